/* A small HTTP server that never blocks: any number of listeners up to a limit, each with a function that answers, all
 * served by the caller's own loop.
 *
 * Bounded: connections in all and for each listener, one head each (http.h) and a body up to a limit with five seconds
 * to send them, and five seconds to take a piece of the answer. A request may be held until something changes (a long
 * poll), and its answer may go on as things change (a stream). One request a connection, unless limits.keep_ms lets
 * connections stay.
 *
 * Connections that send nothing cannot shut others out: where there is no room for a new one, the oldest whose
 * request is not whole is closed; who has asked is never closed for others. */
#ifndef TM_BASE_HTTP_SERVER_H
#define TM_BASE_HTTP_SERVER_H

#include "base/env.h"
#include "base/http.h"

enum { TM_HTTP_CURSORS = 5 };

struct tm_http_limits {
    size_t listeners;
    size_t connections;
    int connections_each; /* listener */
    size_t response_max;
    size_t body_max; /* of a request: 413 beyond it; 0: bodies are not heard, who answers sees only their length */
    int64_t keep_ms; /* how long a connection may stay idle after an answer by tm_http_reply; 0: it ends with it */
};

struct tm_http_request {
    const struct tm_http_head *head;
    const char *peer;     /* who asks, "HOST:PORT"; "": not known */
    struct tm_slice body; /* length 0: none, or bodies are not heard */
    int64_t now_ms;       /* monotonic */
    bool waited;          /* it was held: its time is over, or *version has changed */
    bool streaming;       /* its answer has begun: more of it is asked for */
    bool may_keep;        /* the connection may stay after this answer */
    bool *keep;           /* set by tm_http_reply: it does; NULL: nobody asks */
    uint64_t *cursor;     /* TM_HTTP_CURSORS numbers of this request, for whoever answers: 0 at first; NULL: none */
};

/* Appends a whole response to `out` and returns 0; or appends nothing and returns for how many ms to hold it. A stream
 * begins with something appended (a head without a length: the connection ends with it) and a time to hold it: it is
 * asked again, `streaming`, when *version changes or that time is over, and goes on, also with nothing, until 0 is
 * returned. */
typedef int64_t (*tm_http_answer_f)(void *context, const struct tm_http_request *request, struct tm_text *out);

struct tm_http_listener {
    tm_http_answer_f answer; /* of what is no request the server says itself: 400, 431 */
    void *context;
    const uint64_t
        *version; /* borrowed: held requests are answered when it changes; NULL: only when their time is over */
};

/* An answer, with what the request lets us do: gzip where it is accepted and worth it, and the connection kept. */
struct tm_http_reply {
    int status;
    const char *type;
    const char *more; /* further headers, each with its line's end; NULL: none */
    const char *body;
    size_t length;
};
void tm_http_reply(const struct tm_http_request *request, const struct tm_http_reply *reply, struct tm_text *out);

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
