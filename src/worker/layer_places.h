/* Layers on their way into the engine: what was fetched or made is staged here by any thread, and goes to its place
 * when the engine's own thread settles, inside tidemill_next. Until then readers of the layer get what is staged.
 *
 * An engine has layers in one of three places (include/tidemill.h): in memory that the library gives it (take_layer:
 * nothing is copied if nobody else needs the bytes), in plain memory of its own (layer_memory), or where only it can
 * read and write (read_layer, write_layer).
 *
 * Every call is made under the owner's lock; settling lets go of it while bytes are copied. */
#ifndef TM_WORKER_LAYER_PLACES_H
#define TM_WORKER_LAYER_PLACES_H

#include <tidemill.h>

#include "store/block.h"

#include <pthread.h>
#include <stdbool.h>

struct tm_layer_place {
    struct tm_block *staged; /* owned share; not yet in its place */
    struct tm_block *given;  /* owned share; the engine has the layer in it (take_layer) */
    void *memory;            /* the engine's plain memory; where it reads and writes by itself, any address but NULL */
    bool dropped;            /* the engine is to be told */
};

struct tm_layer_places {
    struct tidemill_engine engine;
    struct tm_block_pool *pool; /* borrowed */
    pthread_mutex_t *lock;      /* borrowed */
    bool unsettled;             /* something was staged or dropped since the engine last looked */
    struct tm_layer_place *places;
    uint32_t count;
};

/* -TM_ENOMEM. Layers have numbers below `count`. */
int tm_layer_places_init(struct tm_layer_places *p, const struct tidemill_engine *engine, uint32_t count,
                         struct tm_block_pool *pool, pthread_mutex_t *lock);
/* The engine's thread has ended. All 0: nothing is done. */
void tm_layer_places_deinit(struct tm_layer_places *p);

/* Takes over the caller's share. */
void tm_layer_places_stage(struct tm_layer_places *p, uint32_t layer, struct tm_block *block);
void tm_layer_places__drop(struct tm_layer_places *p, uint32_t layer);
/* Is it here, staged or in its place? */
bool tm_layer_places__has(const struct tm_layer_places *p, uint32_t layer);

/* The layer's bytes where they lie, while the lock is held; NULL: only the engine can read them. */
const void *tm_layer_places__view(const struct tm_layer_places *p, uint32_t layer);
/* A copy of them. -TM_EINTERNAL: it is not here, or the engine cannot read it. */
int tm_layer_places__read(const struct tm_layer_places *p, uint32_t layer, void *out, uint64_t size);

/* By the engine's thread. More may be staged meanwhile (`unsettled`). -TM_ENOMEM: the engine has no room; what was
 * staged still is. */
int tm_layer_places_settle(struct tm_layer_places *p);

#endif
