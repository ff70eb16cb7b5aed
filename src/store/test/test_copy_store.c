/* Every store of copies through the same suite: a folder on the machine's own disk, one of the virtual world, and the
 * one in memory that other tests use; then what is a folder's own. */
#include "base/env_virtual.h"
#include "base/test/tempdir.h"
#include "store/test/copy_memory.h"
#include "store/test/copy_store_suite.h"

struct folder_place {
    struct tm_env *env;
    const char *path;
};

static struct tm_copy_store *open_folder(void *context, uint64_t job)
{
    const struct folder_place *place = context;
    struct tm_copy_store *store = NULL;
    assert_int_equal(tm_copy_store_open(place->env, place->path, job, &store, NULL), 0);
    return store;
}

static void fill_virtual(void *context)
{
    tm_env_virtual_fail_write_at(((struct folder_place *)context)->env, 1);
}

static void test_folder(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    struct folder_place real = {tm_env_real(), tm_tempdir_path(&dir, "copies")};
    copy_store_suite(&(struct copy_store_place){&real, open_folder, NULL, NULL});
    tm_tempdir_remove(&dir);
    struct folder_place virtual = {tm_env_virtual_create(1), "/copies"};
    copy_store_suite(&(struct copy_store_place){&virtual, open_folder, NULL, fill_virtual});
    tm_env_virtual_destroy(virtual.env);
}

static struct tm_copy_store *open_memory(void *context, uint64_t job)
{
    return copy_memory_open(context, job);
}

static void tear_memory(void *context)
{
    ((struct copy_memory *)context)->torn = 1;
}

static void fill_memory(void *context)
{
    ((struct copy_memory *)context)->full = 1;
}

static void test_memory_store(void **state)
{
    (void)state;
    static struct copy_memory memory;
    copy_memory_init(&memory);
    copy_store_suite(&(struct copy_store_place){&memory, open_memory, tear_memory, fill_memory});
    struct tm_copy_store *store = copy_memory_open(&memory, 0);
    struct tm_block_pool *pool = tm_block_pool_create();
    memory.down = 2;
    assert_int_equal(suite_put(store, pool, 30, 0, 10), -(int)TM_EIO);
    assert_int_equal(store->drop(store, 30, NULL), -(int)TM_EIO);
    assert_int_equal(suite_put(store, pool, 30, 0, 10), 0);
    tm_block_pool_destroy(pool);
    store->close(store);
    copy_memory_deinit(&memory);
}

/* Any file of a folder cut short or altered: never a copy, never a set that is not there. */
static void test_torn_files(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct folder_place place = {env, "/copies"};
    struct tm_copy_store *store = open_folder(&place, 0);
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_text file;
    struct tm_error e;
    uint64_t set = 0;
    tm_text_init(&file, 1 << 20);
    assert_int_equal(suite_put(store, pool, 1, 0, SUITE_SIZE), 0);
    assert_int_equal(store->seal(store, 1, "one", 3, NULL), 0);
    const char *path = "/copies/set-1/layer-0.tmcopy";
    assert_int_equal(env->file_read(env, path, &file, NULL), 0);
    for (size_t at = 0; at < file.length; at += 211) {
        assert_int_equal(env->file_write(env, path, file.data, at, NULL), 0);
        assert_row(suite_get(store, pool, 1, 0, SUITE_SIZE) == -(int)TM_EINPUT, "cut at %zu", at);
    }
    assert_int_equal(env->file_write(env, "/copies/newest", "", 0, NULL), 0);
    assert_int_equal(store->newest(store, &set, &e), -(int)TM_EINPUT);
    assert_error_has(e, "/copies/newest: not the number of a copy set");
    suite_lists(store, "1:one "); /* the manifest is there */
    assert_int_equal(env->file_remove(env, "/copies/newest", NULL), 0);
    assert_int_equal(suite_newest(store), 1);
    /* names of others are nobody's set */
    assert_int_equal(env->file_write(env, "/copies/set-x.manifest", "x", 1, NULL), 0);
    assert_int_equal(env->file_write(env, "/copies/set-0.manifest", "x", 1, NULL), 0);
    assert_int_equal(env->file_write(env, "/copies/set-2.manifest.tmp", "x", 1, NULL), 0);
    suite_lists(store, "1:one ");
    tm_text_deinit(&file);
    store->close(store);
    tm_block_pool_destroy(pool);
    tm_env_virtual_destroy(env);
}

static void test_places(void **state)
{
    (void)state;
    char folder[5000];
    struct tm_copy_store *store = NULL;
    uint64_t set = 0;
    memset(folder, 'x', sizeof folder);
    folder[sizeof folder - 1] = '\0';
    assert_int_equal(tm_copy_store_open(tm_env_real(), folder, 0, &store, NULL), -(int)TM_EUSAGE);
    assert_int_equal(tm_copy_store_open(tm_env_real(), "", 0, &store, NULL), -(int)TM_EUSAGE);
    struct tm_error e = {0};
    assert_int_equal(tm_copy_store_open(tm_env_real(), "r2://bucket/copies", 0, &store, &e), -(int)TM_EUSAGE);
    assert_error_has(
        e, "r2://bucket/copies: not supported; give a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://");
    assert_int_equal(tm_copy_store_newest(tm_env_real(), "/no/such/folder", &set, NULL), -(int)TM_ENOTFOUND);
}

static int use(struct tm_env *env)
{
    struct tm_copy_store *store = NULL;
    char all[200] = "";
    uint64_t set = 0;
    int rc = tm_copy_store_open(env, "/copies", 5, &store, NULL);
    if (rc != 0) return rc;
    rc = store->claim(store, false, NULL);
    if (rc == 0) rc = store->seal(store, 2, "two", 3, NULL);
    if (rc == 0) rc = store->seal(store, 3, "three", 5, NULL);
    if (rc == 0) rc = store->newest(store, &set, NULL);
    if (rc == 0) rc = store->list(store, suite_name, all, NULL);
    if (rc == 0) rc = store->drop(store, 2, NULL);
    store->close(store);
    return rc != 0 ? rc : tm_copy_store_newest(env, "/copies", &set, NULL);
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_env *env = tm_env_virtual_create(1);
        rc = env == NULL ? -(int)TM_ENOMEM : use(env);
        tm_env_virtual_destroy(env);
    });
}

TM_TEST_MAIN(TM_TEST(test_folder), TM_TEST(test_memory_store), TM_TEST(test_torn_files), TM_TEST(test_places),
             TM_TEST(test_memory))
