#include "worker/layer_places.h"

#include "base/alloc.h"
#include "base/error.h"

#include <assert.h>
#include <string.h>

int tm_layer_places_init(struct tm_layer_places *p, const struct tidemill_engine *engine, uint32_t count,
                         struct tm_block_pool *pool, pthread_mutex_t *lock)
{
    assert(count > 0);
    *p = (struct tm_layer_places){.engine = *engine, .pool = pool, .lock = lock};
    p->places = tm_calloc(count, sizeof *p->places);
    if (p->places == NULL) return -(int)TM_ENOMEM;
    p->count = count;
    return 0;
}

void tm_layer_places_deinit(struct tm_layer_places *p)
{
    for (uint32_t l = 0; l < p->count; l++) {
        tm_block_release(p->places[l].staged);
        tm_block_release(p->places[l].given);
    }
    tm_free(p->places);
    *p = (struct tm_layer_places){.count = 0};
}

void tm_layer_places_stage(struct tm_layer_places *p, uint32_t layer, struct tm_block *block)
{
    assert(layer < p->count && block != NULL);
    struct tm_layer_place *place = &p->places[layer];
    tm_block_release(place->staged);
    place->staged = block;
    place->dropped = false;
    p->unsettled = true;
}

void tm_layer_places__drop(struct tm_layer_places *p, uint32_t layer)
{
    assert(layer < p->count);
    struct tm_layer_place *place = &p->places[layer];
    tm_block_release(place->staged);
    place->staged = NULL;
    place->dropped = true;
    p->unsettled = true;
}

bool tm_layer_places__has(const struct tm_layer_places *p, uint32_t layer)
{
    assert(layer < p->count);
    return p->places[layer].staged != NULL || p->places[layer].memory != NULL;
}

const void *tm_layer_places__view(const struct tm_layer_places *p, uint32_t layer)
{
    assert(layer < p->count);
    const struct tm_layer_place *place = &p->places[layer];
    if (place->staged != NULL) return place->staged->data;
    return p->engine.read_layer == NULL ? place->memory : NULL;
}

int tm_layer_places__read(const struct tm_layer_places *p, uint32_t layer, void *out, uint64_t size)
{
    assert(layer < p->count && out != NULL);
    const void *seen = tm_layer_places__view(p, layer);
    if (!tm_layer_places__has(p, layer)) return -(int)TM_EINTERNAL;
    if (seen == NULL) return p->engine.read_layer(p->engine.context, layer, out, size) == 0 ? 0 : -(int)TM_EINTERNAL;
    memcpy(out, seen, size);
    return 0;
}

/* ---- settling ---- */

/* To where the engine has the layer. The lock is not held meanwhile: heartbeats and files go on, and whoever wants the
 * layer gets what is staged. */
static void copy_staged(struct tm_layer_places *p, struct tm_layer_place *place)
{
    assert(place->staged != NULL && place->memory != NULL);
    struct tm_block *block = tm_block_share(place->staged);
    void *to = place->memory;
    (void)pthread_mutex_unlock(p->lock);
    memcpy(to, block->data, block->size);
    (void)pthread_mutex_lock(p->lock);
    if (place->staged == block) { /* else it was dropped, or a later one has come: the next time */
        tm_block_release(place->staged);
        place->staged = NULL;
    }
    tm_block_release(block);
}

/* Takes over the caller's share, unless the engine has no room. */
static int hand_over(struct tm_layer_places *p, struct tm_layer_place *place, struct tm_block *block)
{
    assert(p->engine.take_layer != NULL && block != NULL);
    uint32_t layer = (uint32_t)(place - p->places);
    if (p->engine.take_layer(p->engine.context, layer, block->data, block->size) != 0) return -(int)TM_ENOMEM;
    tm_block_release(place->given);
    place->given = block;
    place->memory = block->data;
    return 0;
}

/* Others may still send or write what came: it stays as it is, and the engine gets a copy. */
static int give_copy(struct tm_layer_places *p, struct tm_layer_place *place)
{
    if (place->memory == NULL) {
        struct tm_block *own = tm_block_create(p->pool, place->staged->size);
        if (own == NULL || hand_over(p, place, own) != 0) {
            tm_block_release(own);
            return -(int)TM_ENOMEM;
        }
    }
    copy_staged(p, place);
    return 0;
}

static int give(struct tm_layer_places *p, struct tm_layer_place *place)
{
    assert(place->staged != NULL);
    if (tm_block_is_shared(place->staged)) return give_copy(p, place);
    int rc = hand_over(p, place, place->staged);
    if (rc == 0) place->staged = NULL;
    return rc;
}

/* As copy_staged: meanwhile other layers come. */
static int write_by_engine(struct tm_layer_places *p, struct tm_layer_place *place)
{
    assert(place->staged != NULL && p->engine.write_layer != NULL);
    uint32_t layer = (uint32_t)(place - p->places);
    struct tm_block *block = tm_block_share(place->staged);
    place->memory = place;
    (void)pthread_mutex_unlock(p->lock);
    int rc = p->engine.write_layer(p->engine.context, layer, block->data, block->size);
    (void)pthread_mutex_lock(p->lock);
    if (rc == 0 && place->staged == block) {
        tm_block_release(place->staged);
        place->staged = NULL;
    }
    tm_block_release(block);
    return rc == 0 ? 0 : -(int)TM_ENOMEM;
}

static int copy_in(struct tm_layer_places *p, struct tm_layer_place *place)
{
    uint32_t layer = (uint32_t)(place - p->places);
    if (place->memory == NULL) place->memory = p->engine.layer_memory(p->engine.context, layer, place->staged->size);
    if (place->memory == NULL) return -(int)TM_ENOMEM;
    copy_staged(p, place);
    return 0;
}

static int settle_one(struct tm_layer_places *p, struct tm_layer_place *place)
{
    if (place->dropped && place->memory != NULL) {
        p->engine.drop_layer(p->engine.context, (uint32_t)(place - p->places));
        place->memory = NULL;
        tm_block_release(place->given);
        place->given = NULL;
    }
    place->dropped = false;
    if (place->staged == NULL) return 0;
    if (p->engine.write_layer != NULL) return write_by_engine(p, place);
    return p->engine.take_layer != NULL ? give(p, place) : copy_in(p, place);
}

int tm_layer_places_settle(struct tm_layer_places *p)
{
    int rc = 0;
    p->unsettled = false;
    for (uint32_t l = 0; rc == 0 && l < p->count; l++)
        rc = settle_one(p, &p->places[l]);
    if (rc != 0) p->unsettled = true;
    return rc;
}
