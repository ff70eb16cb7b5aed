/* One HTTP request and its answer, without blocking: for loops that wait for other things too; and one that waits. */
#ifndef TM_BASE_HTTP_CALL_H
#define TM_BASE_HTTP_CALL_H

#include "base/env.h"
#include "base/http.h"

struct tm_http_call {
    struct tm_env *env;
    int handle; /* -1: none is under way; wait for it to be readable */
    struct tm_text request;
    size_t sent;
    struct tm_text received;
};

/* No more than `received_max` bytes of an answer, head and all, are taken. */
void tm_http_call_init(struct tm_http_call *call, struct tm_env *env, size_t received_max);
void tm_http_call_deinit(struct tm_http_call *call);

/* Hangs up what was under way and clears call->request: the caller appends first line and headers of its own, each
 * with its line's end, then begins. (Host, Accept and the end of the head follow by themselves.) */
void tm_http_call_clear(struct tm_http_call *call);
int tm_http_call_begin(struct tm_http_call *call, const char *address, struct tm_error *e);
/* Sends and receives what it can. 0: `head` and `body` (whose limit is the body's) are whole, and the connection is
 * closed; the head borrows from the call. -TM_EBUSY: not yet. Else it failed. */
int tm_http_call_step(struct tm_http_call *call, struct tm_http_head *head, struct tm_text *body, struct tm_error *e);
void tm_http_call_hang_up(struct tm_http_call *call);

/* Waits for the whole answer to call->request, up to timeout_ms (-TM_ETIMEOUT). */
int tm_http_call_wait(struct tm_http_call *call, const char *address, int64_t timeout_ms, struct tm_http_head *head,
                      struct tm_text *body, struct tm_error *e);

#endif
