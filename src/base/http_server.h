/* A small HTTP server that never blocks: any number of listeners up to a limit, each with a function that answers, all
 * served by the caller's own loop.
 *
 * Bounded: connections in all and for each listener, one head each (http.h) and five seconds to send it, one answer a
 * connection and five seconds to take it. A request may be held until something changes (a long poll).
 *
 * Connections that send nothing cannot shut others out: where there is no room for a new one, the oldest whose
 * request is not whole is closed; who has asked is never closed for others. */
#ifndef TM_BASE_HTTP_SERVER_H
#define TM_BASE_HTTP_SERVER_H

#include "base/env.h"
#include "base/http.h"

struct tm_http_limits {
    size_t listeners;
    size_t connections;
    int connections_each; /* listener */
    size_t response_max;
};

struct tm_http_request {
    const struct tm_http_head *head;
    int64_t now_ms; /* monotonic */
    bool waited;    /* it was held: its time is over, or *version has changed */
};

/* Appends a whole response to `out` and returns 0; or appends nothing and returns for how many ms to hold it. */
typedef int64_t (*tm_http_answer_f)(void *context, const struct tm_http_request *request, struct tm_text *out);

struct tm_http_listener {
    tm_http_answer_f answer; /* of what is no request the server says itself: 400, 431 */
    void *context;
    const uint64_t
        *version; /* borrowed: held requests are answered when it changes; NULL: only when their time is over */
};

struct tm_http_server;

/* The caller owns the result. NULL: out of memory. */
struct tm_http_server *tm_http_server_create(struct tm_env *env, const struct tm_http_limits *limits);
void tm_http_server_destroy(struct tm_http_server *server); /* NULL is allowed */

/* Listens on "HOST:PORT"; `bound` says where. The listener's number is not negative. */
int tm_http_server_open(struct tm_http_server *server, const char *address, const struct tm_http_listener *listener,
                        char bound[TM_ADDRESS_MAX], int *out_number, struct tm_error *e);
/* The number that the next listener will get; -1: the limit is reached. */
int tm_http_server_free(const struct tm_http_server *server);
void tm_http_server_close(struct tm_http_server *server, int number); /* its connections too */

/* Does what can be done now, without waiting. */
void tm_http_server_serve(struct tm_http_server *server);
/* What to wait for: appends handles, and gives the wait in ms after which to serve at the latest (INT64_MAX: none).
 * After changing *version, serve at once. */
size_t tm_http_server_watch(const struct tm_http_server *server, int *handles, size_t max, int64_t *out_wait_ms);

#endif
