/* The content of answers about one run, wherever it comes from: a coordinator's tap, or a record that nobody writes. */
#ifndef TM_API_API_PRODUCE_H
#define TM_API_API_PRODUCE_H

#include "api/api_routes.h"
#include "base/env.h"
#include "run/run_history.h"
#include "run/run_tap.h"

enum { TM_API_RESPONSE_MAX = 8 << 20 };

/* A run, and what is kept of it between questions. */
struct tm_api_source {
    struct tm_env *env;
    const char *dir;        /* its state folder; NULL: it has none (tests) */
    struct tm_run_tap *tap; /* borrowed */
    bool live;              /* it can be stopped */
    struct tm_run_historian *historian;
    uint64_t told; /* the last event that the historian has */
};

/* What is to be answered. */
struct tm_api_content {
    int status;
    const char *type; /* static */
    struct tm_text body;
    int64_t hold_ms; /* not 0: not yet; ask again after so long, or when something happens */
};

void tm_api__content_init(struct tm_api_content *content); /* limit: TM_API_RESPONSE_MAX */
/* Instead of all that it was: {"error": why}. */
void tm_api__content_refuse(struct tm_api_content *content, int status, const char *why);

/* `asked` is of a run; `waited`: it was held. `out` is initialised and empty. */
void tm_api__produce(struct tm_api_source *source, const struct tm_api_asked *asked, bool waited,
                     struct tm_api_content *out);
void tm_api__source_deinit(struct tm_api_source *source);

/* ---- streams ---- */

/* JSON lines of events as server-sent events, each with its number as id; sets *last to the last of these numbers. */
void tm_api__stream_events(const char *lines, size_t length, uint64_t *last, struct tm_text *out);
/* One JSON document as an event with a name. */
void tm_api__stream_document(const char *name, const char *document, size_t length, struct tm_text *out);
void tm_api__stream_head(struct tm_text *out);
/* Does the request want a stream? */
bool tm_api__wants_stream(const struct tm_api_asked *asked, const struct tm_http_head *head);
/* Where it begins: Last-Event-ID, else the parameter after. */
uint64_t tm_api__stream_begin(const struct tm_api_asked *asked, const struct tm_http_head *head);
/* From its first event: whoever looks is to forget what he has. */
void tm_api__stream_again(uint64_t *last, struct tm_text *out);

/* ---- who may ask ---- */

/* Where one is asked beside loopback. */
struct tm_api_place {
    bool tls;
    bool open;                /* also by any IP address, which no attacker can make point to us */
    const char *const *names; /* also by these */
    size_t name_count;
};

/* Host must be this machine's loopback or a name of `place` (NULL: none), whatever its port: a name that an attacker
 * made point to us is another. Origin, where it is given, must be that host, and Sec-Fetch-Site not another site. */
bool tm_api__is_ours(const struct tm_http_head *head, const struct tm_api_place *place);
/* Is it a link to our page that was clicked on another one? Only the page itself is shown for it. */
bool tm_api__is_visit(const struct tm_http_head *head, const struct tm_api_place *place);
/* The bearer token; length 0: none. */
struct tm_slice tm_api__bearer(const struct tm_http_head *head);

#endif
