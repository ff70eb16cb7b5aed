#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "store/store_internal.h"

#include <string.h>

enum { SIZE = 3 * 4096 + 77 };

static struct tm_copy_name make(struct tm_block_pool *pool, size_t size, struct tm_block **out)
{
    struct tm_block *block = tm_block_create(pool, size);
    assert_non_null(block);
    for (size_t i = 0; i < size; i++)
        block->data[i] = (uint8_t)(i * 7 + 1);
    *out = block;
    return (struct tm_copy_name){
        .set = 7, .step = 99, .generation = 3, .layer = 1, .size = size, .hash = tm_hash_of(block->data, size)};
}

static void test_in_memory(void **state)
{
    (void)state;
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *block = NULL;
    struct tm_copy_name name = make(pool, SIZE, &block);
    struct tm_copy_name back;
    struct tm_text file;
    struct tm_error e;
    const void *data = NULL;
    tm_text_init(&file, 1 << 20);
    tm_copy_file_encode(&name, block->data, &file);
    assert_int_equal(file.length, tm_copy_file_length(SIZE));
    assert_int_equal(tm_copy_file_decode(file.data, file.length, &back, &data, NULL), 0);
    assert_int_equal(back.step, 99);
    assert_memory_equal(data, block->data, SIZE);
    for (size_t cut = 0; cut < file.length; cut += 97) /* torn anywhere */
        assert_row(tm_copy_file_decode(file.data, cut, &back, &data, NULL) == -(int)TM_EINPUT, "cut at %zu", cut);
    for (size_t i = 0; i < file.length; i++) { /* altered anywhere: head, bytes, the zeros after them */
        file.data[i] ^= 0x20;
        assert_row(tm_copy_file_decode(file.data, file.length, &back, &data, NULL) == -(int)TM_EINPUT, "at %zu", i);
        file.data[i] ^= 0x20;
    }
    file.data[strlen("tidemill-copy ")] = '1';
    assert_int_equal(tm_copy_file_decode(file.data, file.length, &back, &data, &e), -(int)TM_EINPUT);
    assert_error_has(e, "format 1, written by an earlier version of Tidemill:");
    tm_text_deinit(&file);
    tm_block_release(block);
    tm_block_pool_destroy(pool);
}

/* Sizes around the ends of pages and of what one call reads; also on the machine's own disk. */
static void round_trip(struct tm_env *env, const char *path)
{
    static const size_t sizes[] = {
        1, 4095, 4096, 4097, ((size_t)4 << 20) - 4096, ((size_t)4 << 20) + 5, (size_t)17 << 20};
    struct tm_block_pool *pool = tm_block_pool_create();
    for (size_t i = 0; i < TM_COUNT(sizes); i++) {
        struct tm_block *block = NULL;
        struct tm_block *back = NULL;
        struct tm_copy_name name = make(pool, sizes[i], &block);
        struct tm_copy_name got;
        struct tm_error e = {0};
        bool direct = false;
        for (int again = 0; again < 2; again++) /* a file that is there is replaced */
            assert_row(tm_copy_file__write(env, path, &name, block, &direct, &e) == 0, "%zu: %s", sizes[i], e.text);
        for (int known = 0; known < 2; known++) {
            assert_row(tm_copy_file__read(env, path, known ? sizes[i] : 0, pool, &got, &back, &e) == 0, "%zu: %s",
                       sizes[i], e.text);
            assert_true(tm_hash_equal(got.hash, name.hash));
            assert_memory_equal(back->data, block->data, sizes[i]);
            tm_block_release(back);
        }
        /* of a layer of another size: both are told, also where both files would be as long */
        char both[80];
        (void)snprintf(both, sizeof both, "it has %zu bytes, the layer here has %zu", sizes[i], sizes[i] + 1);
        assert_int_equal(tm_copy_file__read(env, path, sizes[i] + 1, pool, &got, &back, &e), -(int)TM_EINPUT);
        assert_error_has(e, both);
        if (sizes[i] > 1)
            assert_int_equal(tm_copy_file__read(env, path, sizes[i] / 2, pool, &got, &back, &e), -(int)TM_EINPUT);
        assert_error_has(e, path);
        tm_block_release(block);
    }
    tm_block_pool_destroy(pool);
}

static void test_on_disk(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    round_trip(tm_env_real(), tm_tempdir_path(&dir, "copy"));
    tm_tempdir_remove(&dir);
    struct tm_env *env = tm_env_virtual_create(1);
    round_trip(env, "/copies/copy");
    tm_env_virtual_destroy(env);
}

static int read_back(struct tm_env *env, uint64_t size, struct tm_block_pool *pool, struct tm_error *e)
{
    struct tm_copy_name name;
    struct tm_block *block = NULL;
    int rc = tm_copy_file__read(env, "/c", size, pool, &name, &block, e);
    tm_block_release(block);
    return rc;
}

static void test_damaged(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *block = NULL;
    struct tm_copy_name name = make(pool, SIZE, &block);
    struct tm_error e = {0};
    struct tm_text file;
    bool direct = false;
    tm_text_init(&file, 1 << 20);
    assert_int_equal(read_back(env, SIZE, pool, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(read_back(env, 0, pool, &e), -(int)TM_ENOTFOUND);
    tm_env_virtual_fail_write_at(env, 1);
    assert_true(tm_copy_file__write(env, "/c", &name, block, &direct, &e) != 0);
    assert_error_has(e, "/c");
    assert_int_equal(tm_copy_file__write(env, "/c", &name, block, &direct, &e), 0);
    assert_int_equal(env->file_read(env, "/c", &file, &e), 0);
    for (size_t at = 0; at < file.length; at += 41) {
        uint64_t size = at % 2 == 0 ? SIZE : 0;
        file.data[at] ^= 4;
        assert_int_equal(env->file_write(env, "/c", file.data, file.length, &e), 0);
        file.data[at] ^= 4;
        assert_row(read_back(env, size, pool, &e) == -(int)TM_EINPUT, "altered at %zu", at);
        assert_error_has(e, "/c: ");
        assert_int_equal(env->file_write(env, "/c", file.data, at, &e), 0);
        assert_row(read_back(env, size, pool, &e) == -(int)TM_EINPUT, "torn at %zu", at);
    }
    tm_text_deinit(&file);
    tm_block_release(block);
    tm_block_pool_destroy(pool);
    tm_env_virtual_destroy(env);
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "copy");
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *block = NULL;
    struct tm_copy_name name = make(pool, SIZE, &block);
    struct tm_copy_name got;
    bool direct = false;
    assert_int_equal(tm_copy_file__write(tm_env_real(), path, &name, block, &direct, NULL), 0);
    for (uint64_t size = 0; size <= SIZE; size += SIZE)
        TM_FAIL_EACH_ALLOC({
            struct tm_block_pool *fresh = tm_block_pool_create();
            struct tm_block *back = NULL;
            rc = fresh == NULL ? -(int)TM_ENOMEM
                               : tm_copy_file__read(tm_env_real(), path, size, fresh, &got, &back, NULL);
            assert_true(rc == 0 || rc == -(int)TM_ENOMEM); /* no memory is no damage */
            tm_block_release(back);
            tm_block_pool_destroy(fresh);
        });
    tm_block_release(block);
    tm_block_pool_destroy(pool);
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(test_in_memory), TM_TEST(test_on_disk), TM_TEST(test_damaged), TM_TEST(test_memory))
