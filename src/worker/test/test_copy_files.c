#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "worker/copy_files.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 24, SIZE = 5000 };

struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t count;
    size_t good;
    size_t later;
    bool full;
    char trouble[300]; /* the last's */
};

static void on_done(void *context, const struct tm_copy_file_done *done)
{
    struct seen *seen = context;
    bool good = done->is_put ? done->written
                             : done->got.state == TM_COPY_GOOD && done->got.name.layer == done->layer &&
                                   done->got.block->data[SIZE - 1] == (uint8_t)(done->layer + 1);
    (void)pthread_mutex_lock(&seen->lock);
    seen->count++;
    seen->good += good;
    seen->later += !done->is_put && done->got.state == TM_COPY_LATER;
    seen->full = done->full;
    (void)snprintf(seen->trouble, sizeof seen->trouble, "%.299s", done->trouble);
    (void)pthread_cond_signal(&seen->changed);
    (void)pthread_mutex_unlock(&seen->lock);
    tm_block_release(done->got.block);
}

static void await(struct seen *seen, size_t count)
{
    (void)pthread_mutex_lock(&seen->lock);
    while (seen->count < count)
        (void)pthread_cond_wait(&seen->changed, &seen->lock);
    (void)pthread_mutex_unlock(&seen->lock);
}

static void put(struct tm_copy_files *files, struct tm_block_pool *pool, uint32_t layer)
{
    struct tm_block *block = tm_block_create(pool, SIZE);
    assert_non_null(block);
    memset(block->data, (int)layer + 1, SIZE);
    struct tm_copy_name name = {
        .set = 3, .step = 5, .layer = layer, .size = SIZE, .hash = tm_hash_of(block->data, SIZE)};
    tm_copy_files_put(files, &name, block);
}

static struct tm_copy_store *open_store(struct tm_env *env, uint64_t job)
{
    struct tm_copy_store *store = NULL;
    assert_int_equal(tm_copy_store_open(env, "/copies", job, &store, NULL), 0);
    return store;
}

static void test_many_at_once(void **state)
{
    (void)state;
    struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_copy_files *files = NULL;
    struct tm_copy_store *store = open_store(env, 0);
    assert_int_equal(tm_copy_files_create(store, on_done, &seen, &files, NULL), 0);
    for (uint32_t l = 0; l < LAYERS; l++)
        put(files, pool, l);
    await(&seen, LAYERS);
    assert_int_equal(seen.good, LAYERS);
    for (uint32_t l = 0; l < LAYERS; l++)
        tm_copy_files_get(files, 3, l, SIZE, pool);
    await(&seen, 2 * LAYERS);
    assert_int_equal(seen.good, 2 * LAYERS);
    assert_string_equal(seen.trouble, "");
    /* A file that is not there is damage, but not where the folder itself is not what it was. */
    tm_copy_files_get(files, 4, 0, SIZE, pool);
    await(&seen, 2 * LAYERS + 1);
    assert_int_equal(seen.later, 1);
    assert_non_null(strstr(seen.trouble, "the folder for copies has changed: /copies"));
    assert_int_equal(store->seal(store, 3, "m", 1, NULL), 0);
    tm_copy_files_get(files, 4, 0, SIZE, pool);
    await(&seen, 2 * LAYERS + 2);
    assert_int_equal(seen.later, 1);
    assert_string_equal(seen.trouble, "");
    tm_env_virtual_fail_write_at(env, 1);
    put(files, pool, 0);
    await(&seen, 2 * LAYERS + 3);
    assert_int_equal(seen.good, 2 * LAYERS);
    assert_true(seen.full);
    assert_string_equal(seen.trouble, "disk full: /copies/set-3/layer-0.tmcopy cannot be written");
    tm_copy_files_destroy(files);
    store->close(store);
    tm_block_pool_destroy(pool);
    tm_env_virtual_destroy(env);
}

/* Machines that each have a folder of their own store nothing, and say what is wrong; once it is the right one, they
 * do. */
static void test_a_folder_of_its_own(void **state)
{
    (void)state;
    struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_copy_files *files = NULL;
    struct tm_copy_store *store = open_store(env, 77);
    struct tm_copy_store *other = open_store(env, 76);
    assert_int_equal(tm_copy_files_create(store, on_done, &seen, &files, NULL), 0);
    put(files, pool, 0);
    await(&seen, 1);
    assert_non_null(strstr(seen.trouble, "/copies is not the coordinator's folder for copies (no file `job` in it)"));
    assert_int_equal(other->claim(other, false, NULL), 0);
    put(files, pool, 0);
    await(&seen, 2);
    assert_non_null(strstr(seen.trouble, "(it belongs to another job): all machines must use the same folder"));
    assert_int_equal(seen.good, 0);
    struct tm_error e;
    assert_int_equal(store->claim(store, false, &e), -(int)TM_EINPUT); /* nor is it taken away */
    assert_error_has(e, "/copies holds the copies of another job:");
    assert_int_equal(store->claim(store, true, NULL), 0);
    put(files, pool, 0);
    await(&seen, 3);
    assert_int_equal(seen.good, 1);
    tm_env_virtual_fail_write_at(env, 1); /* a full disk does not matter to who is marked already */
    assert_int_equal(store->claim(store, false, NULL), 0);
    tm_copy_files_destroy(files);
    other->close(other);
    store->close(store);
    tm_block_pool_destroy(pool);
    tm_env_virtual_destroy(env);
}

/* Whatever is under way or waits then, no share is left over. */
static void test_end_in_between(void **state)
{
    (void)state;
    for (uint32_t rounds = 0; rounds < 8; rounds++) {
        struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
        struct tm_env *env = tm_env_virtual_create(1);
        struct tm_block_pool *pool = tm_block_pool_create();
        struct tm_copy_files *files = NULL;
        struct tm_copy_store *store = open_store(env, 0);
        assert_int_equal(tm_copy_files_create(rounds == 0 ? NULL : store, on_done, &seen, &files, NULL), 0);
        for (uint32_t l = 0; l < LAYERS; l++) {
            put(files, pool, l / 2);
            tm_copy_files_get(files, 3, l, SIZE, pool);
        }
        await(&seen, rounds);
        tm_copy_files_destroy(files);
        store->close(store);
        tm_block_pool_destroy(pool);
        tm_env_virtual_destroy(env);
    }
}

static void test_memory(void **state)
{
    (void)state;
    struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    TM_FAIL_EACH_ALLOC({
        struct tm_copy_files *files = NULL;
        rc = tm_copy_files_create(NULL, on_done, &seen, &files, NULL);
        if (rc == 0) tm_copy_files_destroy(files);
    });
}

TM_TEST_MAIN(TM_TEST(test_many_at_once), TM_TEST(test_a_folder_of_its_own), TM_TEST(test_end_in_between),
             TM_TEST(test_memory))
