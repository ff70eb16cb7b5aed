/* Large objects in parts: several requests at a time, each for its own stretch of memory. The service says how a part
 * is asked for and what its answer means. */
#ifndef TM_STORE_TRANSFER_H
#define TM_STORE_TRANSFER_H

#include "web/web.h"

#include <pthread.h>

enum { TM_TRANSFER_STREAMS = 6, TM_TRANSFER_MS = 600000, TM_TRANSFER_SILENCE_MS = 30000, TM_TRANSFER_TRIES = 6 };

/* Connections of threads: one each, until it is given back. */
struct tm_webs {
    struct tm_env *env;
    pthread_mutex_t lock;
    struct tm_web *idle[64]; /* with the lock */
    size_t idle_count;
};
void tm_webs__init(struct tm_webs *webs, struct tm_env *env);
void tm_webs__deinit(struct tm_webs *webs);
int tm_webs__take(struct tm_webs *webs, struct tm_web **out, struct tm_error *e);
void tm_webs__give(struct tm_webs *webs, struct tm_web *web);

struct tm_stretch {
    size_t number; /* from 0 */
    size_t at;
    size_t length;
    size_t stream; /* below TM_TRANSFER_STREAMS: no other part under way has it */
};

struct tm_transfer {
    struct tm_web *web;
    size_t length;
    size_t part_bytes; /* 0: what suits the length */
    void *context;
    int (*begin)(void *context, const struct tm_stretch *part, struct tm_web_call **out, struct tm_error *e);
    /* Ends the call, too. */
    int (*end)(void *context, const struct tm_stretch *part, struct tm_web_call *call, struct tm_error *e);
};

/* How many parts an upload of so many bytes has; 1: send it whole, in one request. */
size_t tm_transfer__upload_parts(size_t length);
/* The bytes of a part, so that there are at most so many. */
size_t tm_transfer__part_bytes(size_t length, size_t parts_max);
/* All parts, so many at a time; the first that fails ends it. `parts`: 0: as a download. */
int tm_transfer__carry(const struct tm_transfer *transfer, size_t parts, struct tm_error *e);

#endif
