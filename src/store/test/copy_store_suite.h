/* What every store of copies must do (store/copy_store.h), tried on one that is empty. An implementation's test opens
 * stores on the same place for the jobs it is asked for, says how its next write fails, and calls copy_store_suite. */
#ifndef TM_STORE_TEST_COPY_STORE_SUITE_H
#define TM_STORE_TEST_COPY_STORE_SUITE_H

#include "base/test/harness.h"
#include "store/copy_store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct copy_store_place {
    void *context;
    struct tm_copy_store *(*open)(void *context, uint64_t job);
    /* The next write is torn, as by a crash: what it returns does not matter. NULL: cannot be planted here. */
    void (*tear_next)(void *context);
    /* The next write finds no room, once. NULL: cannot be planted here. */
    void (*fill_next)(void *context);
};

enum { SUITE_THREADS = 4, SUITE_LAYERS = 12, SUITE_SIZE = 5000 };

static struct tm_copy_name suite_make(struct tm_block_pool *pool, uint64_t set, uint32_t layer, size_t size,
                                      struct tm_block **out)
{
    struct tm_block *block = tm_block_create(pool, size);
    assert_non_null(block);
    for (size_t i = 0; i < size; i++)
        block->data[i] = (uint8_t)(i * 13 + layer + set * 7);
    *out = block;
    return (struct tm_copy_name){.set = set,
                                 .step = 10 * set,
                                 .generation = 2,
                                 .layer = layer,
                                 .size = size,
                                 .hash = tm_hash_of(block->data, size)};
}

static int suite_put(struct tm_copy_store *store, struct tm_block_pool *pool, uint64_t set, uint32_t layer, size_t size)
{
    struct tm_block *block = NULL;
    struct tm_error e = {.text = ""};
    struct tm_copy_name name = suite_make(pool, set, layer, size, &block);
    int rc = store->put(store, &name, block, &e);
    assert_row((rc == 0) == (e.text[0] == '\0'), "%d: %s", rc, e.text); /* errors have words */
    tm_block_release(block);
    return rc;
}

/* 0: it is there and right; asked for by its size, and without. */
static int suite_get(struct tm_copy_store *store, struct tm_block_pool *pool, uint64_t set, uint32_t layer, size_t size)
{
    struct tm_block *wanted = NULL;
    struct tm_copy_name right = suite_make(pool, set, layer, size, &wanted);
    int results[2];
    for (int known = 0; known < 2; known++) {
        struct tm_block *block = NULL;
        struct tm_copy_name name;
        results[known] = store->get(store, set, layer, known ? size : 0, pool, &name, &block, NULL);
        if (results[known] == 0) {
            assert_int_equal(name.set, set);
            assert_int_equal(name.layer, layer);
            assert_int_equal(name.step, right.step);
            assert_int_equal(name.generation, right.generation);
            assert_int_equal(name.size, size);
            assert_true(tm_hash_equal(name.hash, right.hash));
            assert_int_equal(block->size, size);
            assert_memory_equal(block->data, wanted->data, size);
        }
        tm_block_release(block);
    }
    tm_block_release(wanted);
    assert_int_equal(results[0], results[1]);
    return results[0];
}

static int suite_name(void *context, const struct tm_sealed_set *set, struct tm_error *e)
{
    char *all = context;
    size_t used = strlen(all);
    (void)e;
    assert_non_null(set->where);
    (void)snprintf(all + used, 200 - used, "%" PRIu64 ":%.*s ", set->set, (int)set->length,
                   (const char *)set->manifest);
    return strcmp(all, "stop 9:nine ") == 0 ? 77 : 0;
}

static void suite_lists(struct tm_copy_store *store, const char *wanted)
{
    char all[200] = "";
    struct tm_error e = {.text = ""};
    assert_row(store->list(store, suite_name, all, &e) == 0, "%s", e.text);
    assert_string_equal(all, wanted);
}

static uint64_t suite_newest(struct tm_copy_store *store)
{
    uint64_t set = 0;
    int rc = store->newest(store, &set, NULL);
    assert_true(rc == 0 || rc == -(int)TM_ENOTFOUND);
    return set;
}

static void suite_empty(struct tm_copy_store *store, struct tm_block_pool *pool)
{
    struct tm_error e = {.text = ""};
    uint64_t set = 0;
    assert_int_equal(store->newest(store, &set, &e), -(int)TM_ENOTFOUND);
    assert_true(e.text[0] != '\0');
    suite_lists(store, "");
    assert_int_equal(store->drop(store, 1, &e), 0);
    assert_int_equal(suite_get(store, pool, 1, 0, 10), -(int)TM_EIO); /* nobody can be sure */
    assert_int_equal(store->check(store, &e), 0);
    suite_lists(store, "");
}

static void suite_claims(const struct copy_store_place *place, struct tm_block_pool *pool)
{
    struct tm_copy_store *first = place->open(place->context, 41);
    struct tm_copy_store *second = place->open(place->context, 42);
    struct tm_copy_store *any = place->open(place->context, 0);
    assert_int_equal(suite_put(first, pool, 1, 0, 10), -(int)TM_EINPUT); /* not claimed so far */
    assert_int_equal(first->claim(first, false, NULL), 0);
    assert_int_equal(first->claim(first, false, NULL), 0);
    assert_int_equal(suite_put(first, pool, 1, 0, 10), 0);
    assert_int_equal(suite_put(second, pool, 1, 1, 10), -(int)TM_EINPUT);
    assert_int_equal(second->claim(second, false, NULL), -(int)TM_EINPUT);
    assert_int_equal(second->claim(second, true, NULL), 0);
    assert_int_equal(suite_put(second, pool, 1, 1, 10), 0);
    assert_int_equal(any->claim(any, false, NULL), 0);
    assert_int_equal(suite_put(any, pool, 1, 2, 10), 0);
    assert_int_equal(any->drop(any, 1, NULL), 0);
    first->close(first);
    second->close(second);
    any->close(any);
}

static void suite_sets(struct tm_copy_store *store, struct tm_block_pool *pool)
{
    static const size_t sizes[] = {1, 4095, 4096, 4097, 100000};
    struct tm_error e = {.text = ""};
    for (uint32_t l = 0; l < TM_COUNT(sizes); l++)
        assert_int_equal(suite_put(store, pool, 3, l, sizes[l]), 0);
    assert_int_equal(suite_newest(store), 0); /* nothing is whole before it is sealed */
    suite_lists(store, "");
    assert_int_equal(store->seal(store, 3, "three", 5, &e), 0);
    assert_int_equal(suite_newest(store), 3);
    for (uint32_t l = 0; l < TM_COUNT(sizes); l++)
        assert_row(suite_get(store, pool, 3, l, sizes[l]) == 0, "layer %u", l);
    assert_int_equal(suite_get(store, pool, 3, 77, 10), -(int)TM_ENOTFOUND);
    assert_int_equal(suite_get(store, pool, 4, 0, 10), -(int)TM_ENOTFOUND);
    struct tm_block *block = NULL;
    struct tm_copy_name name;
    assert_int_equal(store->get(store, 3, 1, 4094, pool, &name, &block, &e), -(int)TM_EINPUT); /* of another size */
    assert_int_equal(store->get(store, 3, 1, 9999, pool, &name, &block, &e), -(int)TM_EINPUT);
    assert_null(block);
    assert_int_equal(suite_put(store, pool, 3, 1, 200), 0); /* what is there is replaced */
    assert_int_equal(suite_get(store, pool, 3, 1, 200), 0);
    assert_int_equal(store->seal(store, 9, "nine", 4, &e), 0);
    assert_int_equal(store->seal(store, 1000007, "far", 3, &e), 0);
    assert_int_equal(suite_newest(store), 1000007);
    suite_lists(store, "1000007:far 9:nine 3:three ");
    assert_int_equal(store->seal(store, 9, "9", 1, &e), 0); /* sealed again: the newest, whatever its number */
    assert_int_equal(suite_newest(store), 9);
    suite_lists(store, "1000007:far 9:9 3:three ");
    assert_int_equal(store->drop(store, 1000007, &e), 0);
    assert_int_equal(store->seal(store, 9, "nine", 4, &e), 0);
    char all[200] = "stop ";
    assert_int_equal(store->list(store, suite_name, all, &e), 77);
    assert_int_equal(store->drop(store, 3, &e), 0);
    assert_int_equal(store->drop(store, 3, &e), 0);
    assert_int_equal(suite_get(store, pool, 3, 0, 1), -(int)TM_ENOTFOUND);
    suite_lists(store, "9:nine ");
    assert_int_equal(store->check(store, &e), 0);
    suite_lists(store, "9:nine ");
    assert_int_equal(suite_newest(store), 9);
}

/* Whatever became of a write that failed, it is not taken for one that did not, and trying again mends it. */
static void suite_failures(const struct copy_store_place *place, struct tm_copy_store *store,
                           struct tm_block_pool *pool)
{
    if (place->fill_next != NULL) {
        place->fill_next(place->context);
        assert_int_equal(suite_put(store, pool, 11, 0, SUITE_SIZE), -(int)TM_EFULL);
        assert_int_equal(suite_get(store, pool, 11, 0, SUITE_SIZE), -(int)TM_ENOTFOUND);
        place->fill_next(place->context);
        assert_int_equal(store->seal(store, 11, "eleven", 6, NULL), -(int)TM_EFULL);
        assert_int_equal(suite_newest(store), 9);
    }
    if (place->tear_next != NULL) {
        place->tear_next(place->context);
        (void)suite_put(store, pool, 11, 0, SUITE_SIZE);
        int rc = suite_get(store, pool, 11, 0, SUITE_SIZE);
        assert_row(rc == -(int)TM_ENOTFOUND || rc == -(int)TM_EINPUT, "a torn put: %d", rc);
        place->tear_next(place->context);
        (void)store->seal(store, 11, "eleven", 6, NULL);
        assert_int_equal(suite_newest(store), 9);
    }
    assert_int_equal(suite_put(store, pool, 11, 0, SUITE_SIZE), 0);
    assert_int_equal(suite_get(store, pool, 11, 0, SUITE_SIZE), 0);
    assert_int_equal(store->seal(store, 11, "eleven", 6, NULL), 0);
    assert_int_equal(suite_newest(store), 11);
    suite_lists(store, "11:eleven 9:nine ");
    assert_int_equal(store->drop(store, 11, NULL), 0);
    assert_int_equal(store->seal(store, 9, "nine", 4, NULL), 0);
}

/* What was put and never sealed goes, also where only one part of it came; sealed sets, those that are to be kept, and
 * higher numbers stay. */
static void suite_sweep(struct tm_copy_store *store, struct tm_block_pool *pool)
{
    static const uint64_t unsealed[] = {2, 12, 13, 90, 120};
    static const uint64_t keep[] = {13, 4};
    struct tm_error e = {.text = ""};
    assert_int_equal(suite_put(store, pool, 9, 0, 10), 0); /* of one that is sealed */
    for (size_t i = 0; i < TM_COUNT(unsealed); i++)
        for (uint32_t l = 0; l < (unsealed[i] == 12 ? 1 : 3); l++)
            assert_int_equal(suite_put(store, pool, unsealed[i], l, 100), 0);
    assert_int_equal(suite_put(store, pool, 100, 0, 10), 0);
    assert_int_equal(store->seal(store, 100, "hundred", 7, &e), 0);
    assert_row(store->sweep(store, 100, keep, TM_COUNT(keep), &e) == 0, "%s", e.text);
    for (size_t i = 0; i < TM_COUNT(unsealed); i++) {
        bool stays = unsealed[i] == 13 || unsealed[i] > 100;
        assert_row(suite_get(store, pool, unsealed[i], 0, 100) == (stays ? 0 : -(int)TM_ENOTFOUND), "set %d",
                   (int)unsealed[i]);
    }
    assert_int_equal(suite_get(store, pool, 9, 0, 10), 0);
    suite_lists(store, "100:hundred 9:nine ");
    assert_int_equal(suite_newest(store), 100);
    assert_int_equal(store->sweep(store, 1000, NULL, 0, &e), 0);
    assert_int_equal(suite_get(store, pool, 13, 0, 100), -(int)TM_ENOTFOUND);
    assert_int_equal(suite_get(store, pool, 120, 2, 100), -(int)TM_ENOTFOUND);
    assert_int_equal(suite_get(store, pool, 100, 0, 10), 0);
    assert_int_equal(store->drop(store, 100, &e), 0);
    assert_int_equal(store->seal(store, 9, "nine", 4, &e), 0);
}

struct suite_thread {
    struct tm_copy_store *store;
    struct tm_block_pool *pool;
    uint32_t first;
};

static void *suite_run(void *argument)
{
    const struct suite_thread *t = argument;
    for (uint32_t l = t->first; l < SUITE_LAYERS; l += SUITE_THREADS) {
        assert_int_equal(suite_put(t->store, t->pool, 20, l, SUITE_SIZE + l), 0);
        assert_int_equal(suite_get(t->store, t->pool, 20, l, SUITE_SIZE + l), 0);
        assert_int_equal(suite_newest(t->store), 9);
    }
    return NULL;
}

static void suite_threads(struct tm_copy_store *store, struct tm_block_pool *pool)
{
    pthread_t threads[SUITE_THREADS];
    struct suite_thread tasks[SUITE_THREADS];
    for (uint32_t i = 0; i < SUITE_THREADS; i++) {
        tasks[i] = (struct suite_thread){store, pool, i};
        assert_int_equal(pthread_create(&threads[i], NULL, suite_run, &tasks[i]), 0);
    }
    for (uint32_t i = 0; i < SUITE_THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    for (uint32_t l = 0; l < SUITE_LAYERS; l++)
        assert_int_equal(suite_get(store, pool, 20, l, SUITE_SIZE + l), 0);
    assert_int_equal(store->drop(store, 20, NULL), 0);
    assert_int_equal(suite_get(store, pool, 20, 0, SUITE_SIZE), -(int)TM_ENOTFOUND);
}

static void copy_store_suite(const struct copy_store_place *place)
{
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_copy_store *store = place->open(place->context, 0);
    assert_non_null(pool);
    assert_non_null(store);
    suite_empty(store, pool);
    suite_claims(place, pool);
    suite_sets(store, pool);
    suite_failures(place, store, pool);
    suite_sweep(store, pool);
    suite_threads(store, pool);
    store->close(store);
    store = place->open(place->context, 0); /* what was stored stays */
    suite_lists(store, "9:nine ");
    assert_int_equal(suite_newest(store), 9);
    store->close(store);
    tm_block_pool_destroy(pool);
}

#endif
