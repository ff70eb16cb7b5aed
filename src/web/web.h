/* HTTP and HTTPS requests to services that are not ours: a cloud's API, its object store, its metadata service.
 *
 * A `struct tm_web` carries calls side by side over libcurl's multi interface, keeps connections for the next call, and
 * belongs to one thread at a time. It never waits by itself. A loop watches its handles among others and calls
 * tm_web_step when one is ready; a thread that may wait calls tm_web_step_wait until its calls are done.
 *
 * Every call has a deadline, over all its tries. A try that failed for now (no connection, a cut answer, 429, 500, 502,
 * 503, 504, and what `again` says) is repeated after a pause that doubles, is drawn at random so that many callers do
 * not come back together, and is never shorter than the service's Retry-After. Redirects are not followed. */
#ifndef TM_WEB_WEB_H
#define TM_WEB_WEB_H

#include "base/env.h"
#include "base/text.h"

#include <stdatomic.h>

enum { TM_WEB_CALLS_MAX = 64, TM_WEB_WORD_MAX = 256, TM_WEB_LINK_MAX = 4200, TM_WEB_BODY_MAX = 16 << 20 };

struct tm_web;
struct tm_web_call;

struct tm_web_answer {
    int status;          /* 0: none came */
    struct tm_text body; /* but what went to the request's `into`; the caller's */
    size_t received;     /* bytes in `into` */
    int64_t total;       /* of Content-Range: bytes of the whole; -1: not said */
    int64_t retry_after_ms;
    int64_t date_ms; /* the service's clock; 0: not said */
    int tries;
    char etag[TM_WEB_WORD_MAX];      /* "": none */
    char region[64];                 /* x-amz-bucket-region */
    char operation[TM_WEB_LINK_MAX]; /* Azure-AsyncOperation, else Location; "": neither, or too long */
    char generation[32];             /* x-goog-generation */
};

/* Whom a service must be, and who we are to it, where that is not what the system says. All is borrowed. */
struct tm_web_tls {
    const char *authority;   /* PEM: only what these signed is believed; NULL: the system's */
    const char *certificate; /* PEM, with its key: ours; NULL: none */
    const char *key;
    bool unchecked; /* whoever answers is believed, because the user said so */
};

struct tm_web_request {
    const char *method;
    const void *body; /* borrowed until the call ends; NULL: none */
    size_t length;
    void *into; /* the body of an answer 2xx goes here; longer than `room` is an error. NULL: to answer->body */
    size_t room;
    int64_t deadline_ms; /* from now on, for all tries; what `prepare` waits for is not counted */
    int64_t silence_ms;  /* a try in which nothing moves for so long has failed; 0: only the deadline counts */
    int tries_max;
    bool direct;        /* never through a proxy */
    bool secret;        /* what is answered with 2xx is a credential: no tape has it */
    const char *socket; /* path of a Unix socket to ask through, whatever host the URL names; NULL: by the URL */
    const struct tm_web_tls *tls; /* NULL: as the system has it; stays until the call ends */
    /* Before each try: appends the URL, and headers as lines "Name: value\n". It does not wait: -TM_EBUSY asks for
     * another look in a moment (credentials are on their way). Any other error ends the call. */
    int (*prepare)(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e);
    /* After an answer that is not 2xx: is another try worth it, whatever its status? NULL: no. */
    bool (*again)(void *context, const struct tm_web_answer *answer);
    void *context;
};

int tm_web_create(struct tm_env *env, struct tm_web **out, struct tm_error *e);
/* Calls that have not ended are given up, and their pointers are void. NULL is allowed. */
void tm_web_destroy(struct tm_web *web);

/* Begins a call: nothing is waited for. What the request points to stays until the call ends; the request itself may
 * go. -TM_ELIMIT: too many are under way. */
int tm_web_begin(struct tm_web *web, const struct tm_web_request *request, struct tm_web_call **out,
                 struct tm_error *e);
/* Moves every call on as far as it goes now. */
void tm_web_step(struct tm_web *web);
/* What to wait for: fills up to `max` watches and says how many; step when one is ready or *out_wait_ms is over. */
size_t tm_web_watch(struct tm_web *web, struct tm_watch *watches, size_t max, int64_t *out_wait_ms);
/* Waits until something moves, and steps: for threads that may wait. */
int tm_web_step_wait(struct tm_web *web, struct tm_error *e);

bool tm_web_is_done(const struct tm_web_call *call);
/* Takes the result and frees the call; one that is not done is given up (-TM_ECANCELED). 0: an answer came, whatever
 * its status; the caller owns its body. -TM_ETIMEOUT, -TM_EPEER: none came; -TM_EINPUT: it cannot come this way (a
 * certificate, a name, a URL); -TM_ELIMIT: it is longer than allowed. */
int tm_web_end(struct tm_web_call *call, struct tm_web_answer *out, struct tm_error *e);
void tm_web_answer_deinit(struct tm_web_answer *answer);

/* Waits for a call that was begun, and ends it. */
int tm_web__finish(struct tm_web *web, struct tm_web_call *call, struct tm_web_answer *out, struct tm_error *e);
/* One call from begin to end, waiting. */
int tm_web_ask(struct tm_web *web, const struct tm_web_request *request, struct tm_web_answer *out, struct tm_error *e);

/* A service that refuses a request because of its time tells its own. Is it another than *ahead_ms says, by more than a
 * minute? Then that is corrected, and another try is worth it. */
bool tm_web__set_clock(struct tm_env *env, const struct tm_web_answer *answer, _Atomic int64_t *ahead_ms);

/* How long to wait before try `tries` + 1: pure, for tests. */
int64_t tm_web__pause_ms(int tries, uint64_t random, int64_t retry_after_ms);
/* Seconds, or a date; 0: neither. */
int64_t tm_web__retry_after_ms(const char *value, size_t length, int64_t now_ms);

#endif
