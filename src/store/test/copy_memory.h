/* A store of copies in memory, which fails as it is told to: for tests of the interface and of who uses it. */
#ifndef TM_STORE_TEST_COPY_MEMORY_H
#define TM_STORE_TEST_COPY_MEMORY_H

#include "base/alloc.h"
#include "store/copy_store.h"

#include <pthread.h>
#include <string.h>

enum { COPY_MEMORY_ITEMS = 512, COPY_MEMORY_MANIFEST = -1 };

struct copy_memory_item {
    uint64_t set;
    int64_t layer; /* COPY_MEMORY_MANIFEST: it is the manifest */
    struct tm_copy_name name;
    uint8_t *bytes; /* owned */
    size_t length;
};

/* The world of one or more stores: what several processes would share. */
struct copy_memory {
    pthread_mutex_t lock;
    struct copy_memory_item items[COPY_MEMORY_ITEMS];
    size_t count;
    uint64_t newest;
    uint64_t job;
    /* planted, one call each: the next so many writes find it full, cannot reach it, or are torn in the middle */
    int full;
    int down;
    int torn;
};

struct copy_memory_store {
    struct tm_copy_store store;
    struct copy_memory *memory;
    uint64_t job;
};

static struct copy_memory *copy_memory_enter(struct tm_copy_store *store)
{
    struct copy_memory *m = ((struct copy_memory_store *)store->self)->memory;
    (void)pthread_mutex_lock(&m->lock);
    return m;
}

static int copy_memory_leave(struct copy_memory *m, int rc)
{
    (void)pthread_mutex_unlock(&m->lock);
    return rc;
}

static struct copy_memory_item *copy_memory_find(struct copy_memory *m, uint64_t set, int64_t layer)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->items[i].set == set && m->items[i].layer == layer) return &m->items[i];
    return NULL;
}

static int copy_memory_fails(struct copy_memory *m, struct tm_error *e)
{
    if (m->full > 0 && m->full-- > 0) return tm_error_set(e, TM_EFULL, "memory: full");
    if (m->down > 0 && m->down-- > 0) return tm_error_set(e, TM_EIO, "memory: cannot be reached");
    return 0;
}

static int copy_memory_write(struct copy_memory *m, const struct tm_copy_name *name, int64_t layer, const void *bytes,
                             size_t length, struct tm_error *e)
{
    int rc = copy_memory_fails(m, e);
    if (rc != 0) return rc;
    bool torn = m->torn > 0 && m->torn-- > 0;
    struct copy_memory_item *item = copy_memory_find(m, name->set, layer);
    if (item == NULL && m->count == COPY_MEMORY_ITEMS) return tm_error_set(e, TM_EFULL, "memory: full");
    uint8_t *copy = tm_alloc(length + 1);
    if (copy == NULL) return tm_error_nomem(e);
    memcpy(copy, bytes, length);
    if (item == NULL)
        item = &m->items[m->count++];
    else
        tm_free(item->bytes);
    *item = (struct copy_memory_item){
        .set = name->set, .layer = layer, .name = *name, .bytes = copy, .length = torn ? length / 2 : length};
    return torn ? tm_error_set(e, TM_EIO, "memory: the connection was lost") : 0;
}

static int copy_memory_put(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
                           struct tm_error *e)
{
    uint64_t job = ((struct copy_memory_store *)store->self)->job;
    struct copy_memory *m = copy_memory_enter(store);
    if (job != 0 && m->job != job)
        return copy_memory_leave(m, tm_error_set(e, TM_EINPUT, "memory is not the coordinator's store"));
    return copy_memory_leave(m, copy_memory_write(m, name, name->layer, block->data, (size_t)name->size, e));
}

static int copy_memory_get(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t size,
                           struct tm_block_pool *pool, struct tm_copy_name *out_name, struct tm_block **out_block,
                           struct tm_error *e)
{
    struct copy_memory *m = copy_memory_enter(store);
    const struct copy_memory_item *item = copy_memory_find(m, set, layer);
    int rc = copy_memory_fails(m, e);
    if (rc == 0 && item == NULL) rc = tm_error_set(e, m->newest == 0 ? TM_EIO : TM_ENOTFOUND, "memory: not there");
    if (rc == 0 && (item->length != item->name.size || (size != 0 && size != item->name.size) ||
                    !tm_hash_equal(item->name.hash, tm_hash_of(item->bytes, item->length))))
        rc = tm_error_set(e, TM_EINPUT, "memory: damaged");
    struct tm_block *block = rc == 0 ? tm_block_create(pool, item->length) : NULL;
    if (rc == 0 && block == NULL) rc = tm_error_nomem(e);
    if (rc == 0) {
        memcpy(block->data, item->bytes, item->length);
        *out_name = item->name;
        *out_block = block;
    }
    return copy_memory_leave(m, rc);
}

static int copy_memory_seal(struct tm_copy_store *store, uint64_t set, const void *manifest, size_t length,
                            struct tm_error *e)
{
    struct tm_copy_name name = {.set = set};
    struct copy_memory *m = copy_memory_enter(store);
    if (m->torn > 0) { /* listed, but not the newest */
        int torn = m->torn;
        m->torn = 0;
        (void)copy_memory_write(m, &name, COPY_MEMORY_MANIFEST, manifest, length, e);
        m->torn = torn - 1;
        return copy_memory_leave(m, tm_error_set(e, TM_EIO, "memory: the connection was lost"));
    }
    int rc = copy_memory_write(m, &name, COPY_MEMORY_MANIFEST, manifest, length, e);
    if (rc == 0) m->newest = set;
    return copy_memory_leave(m, rc);
}

static int copy_memory_newest(struct tm_copy_store *store, uint64_t *out_set, struct tm_error *e)
{
    struct copy_memory *m = copy_memory_enter(store);
    int rc = copy_memory_fails(m, e);
    if (rc == 0 && m->newest == 0) rc = tm_error_set(e, TM_ENOTFOUND, "memory: there is no complete copy set yet");
    if (rc == 0) *out_set = m->newest;
    return copy_memory_leave(m, rc);
}

static int copy_memory_list(struct tm_copy_store *store, tm_sealed_set_f each, void *context, struct tm_error *e)
{
    struct copy_memory *m = copy_memory_enter(store);
    int rc = copy_memory_fails(m, e);
    for (uint64_t below = UINT64_MAX; rc == 0;) {
        const struct copy_memory_item *next = NULL;
        for (size_t i = 0; i < m->count; i++)
            if (m->items[i].layer == COPY_MEMORY_MANIFEST && m->items[i].set < below &&
                (next == NULL || m->items[i].set > next->set))
                next = &m->items[i];
        if (next == NULL) break;
        below = next->set;
        rc = each(context, &(struct tm_sealed_set){next->set, "memory", next->bytes, next->length}, e);
    }
    return copy_memory_leave(m, rc);
}

static int copy_memory_drop(struct tm_copy_store *store, uint64_t set, struct tm_error *e)
{
    struct copy_memory *m = copy_memory_enter(store);
    int rc = copy_memory_fails(m, e);
    for (size_t i = m->count; rc == 0 && i-- > 0;) {
        if (m->items[i].set != set) continue;
        tm_free(m->items[i].bytes);
        m->items[i] = m->items[--m->count];
    }
    return copy_memory_leave(m, rc);
}

static int copy_memory_sweep(struct tm_copy_store *store, uint64_t below, const uint64_t *keep, size_t keep_count,
                             struct tm_error *e)
{
    struct copy_memory *m = copy_memory_enter(store);
    int rc = copy_memory_fails(m, e);
    for (size_t i = m->count; rc == 0 && i-- > 0;) {
        bool stays = m->items[i].set >= below || copy_memory_find(m, m->items[i].set, COPY_MEMORY_MANIFEST) != NULL;
        for (size_t k = 0; k < keep_count; k++)
            stays = stays || keep[k] == m->items[i].set;
        if (stays) continue;
        tm_free(m->items[i].bytes);
        m->items[i] = m->items[--m->count];
    }
    return copy_memory_leave(m, rc);
}

static int copy_memory_claim(struct tm_copy_store *store, bool take_over, struct tm_error *e)
{
    uint64_t job = ((struct copy_memory_store *)store->self)->job;
    struct copy_memory *m = copy_memory_enter(store);
    if (job == 0 || m->job == job) return copy_memory_leave(m, 0);
    if (m->job != 0 && !take_over)
        return copy_memory_leave(m, tm_error_set(e, TM_EINPUT, "memory holds the copies of another job:"));
    int rc = copy_memory_fails(m, e);
    if (rc == 0) m->job = job;
    return copy_memory_leave(m, rc);
}

static int copy_memory_check(struct tm_copy_store *store, struct tm_error *e)
{
    struct copy_memory *m = copy_memory_enter(store);
    return copy_memory_leave(m, copy_memory_fails(m, e));
}

static void copy_memory_close(struct tm_copy_store *store)
{
    tm_free(store->self);
}

static struct tm_copy_store *copy_memory_open(struct copy_memory *memory, uint64_t job)
{
    struct copy_memory_store *s = tm_calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->memory = memory;
    s->job = job;
    s->store = (struct tm_copy_store){.self = s,
                                      .where = "memory",
                                      .put = copy_memory_put,
                                      .get = copy_memory_get,
                                      .seal = copy_memory_seal,
                                      .newest = copy_memory_newest,
                                      .list = copy_memory_list,
                                      .drop = copy_memory_drop,
                                      .sweep = copy_memory_sweep,
                                      .claim = copy_memory_claim,
                                      .check = copy_memory_check,
                                      .close = copy_memory_close};
    return &s->store;
}

static void copy_memory_init(struct copy_memory *memory)
{
    memset(memory, 0, sizeof *memory);
    (void)pthread_mutex_init(&memory->lock, NULL);
}

static void copy_memory_deinit(struct copy_memory *memory)
{
    while (memory->count > 0)
        tm_free(memory->items[--memory->count].bytes);
    (void)pthread_mutex_destroy(&memory->lock);
}

#endif
