#include "base/test/harness.h"
#include "store/copies.h"

#include <string.h>

static const char bytes[] = "the state of one layer, as of one step";

static struct tm_copy_name name_of(uint64_t set, uint32_t layer, uint64_t step)
{
    return (struct tm_copy_name){.set = set,
                                 .step = step,
                                 .generation = 3,
                                 .layer = layer,
                                 .hash = tm_hash_of(bytes, sizeof bytes),
                                 .size = sizeof bytes};
}

static void put_whole(struct tm_copies *copies, uint64_t set, uint32_t layer, uint64_t step)
{
    struct tm_copy_name name = name_of(set, layer, step);
    uint64_t received = 0;
    assert_int_equal(tm_copies_put(copies, &name, 0, bytes, sizeof bytes, &received, NULL), 0);
}

static void test_chunks(void **state)
{
    (void)state;
    struct tm_copies copies;
    struct tm_copy_name name = name_of(1, 2, 30);
    uint64_t received = 0;
    struct tm_block_pool *pool = tm_block_pool_create();
    tm_copies_init(&copies, 1000, pool);
    assert_int_equal(tm_copies_put(&copies, &name, 0, bytes, 10, &received, NULL), 0);
    assert_int_equal(received, 10);
    assert_int_equal(tm_copies_put(&copies, &name, 20, bytes + 20, 10, &received, NULL), 0); /* ahead: not taken */
    assert_int_equal(received, 10);
    assert_int_equal(tm_copies_put(&copies, &name, 0, bytes, 10, &received, NULL), 0); /* again: not taken */
    assert_int_equal(received, 10);
    assert_null(tm_copies_find(&copies, 1, 2));
    assert_int_equal(tm_copies_put(&copies, &name, 10, bytes + 10, sizeof bytes - 10, &received, NULL), 0);
    assert_int_equal(received, sizeof bytes);
    assert_memory_equal(tm_copies_find(&copies, 1, 2)->block->data, bytes, sizeof bytes);
    tm_copies_deinit(&copies);
    tm_block_pool_destroy(pool);
}

static void test_wrong_bytes_and_no_room(void **state)
{
    (void)state;
    struct tm_copies copies;
    struct tm_copy_name name = name_of(1, 2, 30);
    struct tm_error e = {0};
    uint64_t received = 0;
    struct tm_block_pool *pool = tm_block_pool_create();
    tm_copies_init(&copies, sizeof bytes + 5, pool);
    name.hash.low ^= 1;
    assert_int_equal(tm_copies_put(&copies, &name, 0, bytes, sizeof bytes, &received, &e), -(int)TM_EINPUT);
    assert_error_has(e, "damaged");
    assert_int_equal(copies.count, 0);
    put_whole(&copies, 1, 2, 30);
    name = name_of(1, 3, 30);
    assert_int_equal(tm_copies_put(&copies, &name, 0, bytes, 5, &received, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "no space");
    name.size = UINT64_MAX;
    assert_int_equal(tm_copies_put(&copies, &name, 0, bytes, 5, &received, &e), -(int)TM_ELIMIT);
    tm_copies_deinit(&copies);
    tm_block_pool_destroy(pool);
}

static void test_keep(void **state)
{
    (void)state;
    struct tm_copies copies;
    struct tm_block_pool *pool = tm_block_pool_create();
    tm_copies_init(&copies, 10000, pool);
    for (uint64_t set = 1; set <= 6; set++)
        put_whole(&copies, set, 0, set * 10);
    uint64_t keep[] = {2, 4};
    tm_copies_keep(&copies, keep, 2, 5, 40); /* 6 is newer than what the list knows; 5 is newer than durable */
    for (uint64_t set = 1; set <= 6; set++)
        assert_row((tm_copies_find(&copies, set, 0) != NULL) == (set == 2 || set >= 4), "set %d", (int)set);
    tm_copies_keep(&copies, keep, 0, 6, 60);
    assert_int_equal(copies.count, 0);
    assert_int_equal(copies.bytes, 0);
    for (uint64_t set = 1; set <= 6; set++)
        put_whole(&copies, set, 0, set * 10);
    tm_copies_keep(&copies, keep, 0, 6, 0); /* nothing is durable: the two newest stay */
    for (uint64_t set = 1; set <= 6; set++)
        assert_row((tm_copies_find(&copies, set, 0) != NULL) == (set >= 5), "set %d", (int)set);
    tm_copies_deinit(&copies);
    tm_block_pool_destroy(pool);
}

/* Our own snapshot stays with us: no byte is copied, and the block lives as long as anyone needs it. */
static void test_share(void **state)
{
    (void)state;
    struct tm_copies copies;
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *block = tm_block_create(pool, sizeof bytes);
    struct tm_copy_name name = name_of(1, 2, 30);
    struct tm_error e = {0};
    uint64_t received = 0;
    memcpy(block->data, bytes, sizeof bytes);
    tm_copies_init(&copies, 2 * sizeof bytes, pool);
    assert_int_equal(tm_copies_put(&copies, &name, 0, bytes, 5, &received, NULL), 0); /* begun, never finished */
    assert_int_equal(tm_copies_share(&copies, &name, block, &e), 0);
    assert_int_equal(tm_copies_share(&copies, &name, block, &e), 0); /* again: the same */
    assert_int_equal(copies.count, 1);
    assert_ptr_equal(tm_copies_find(&copies, 1, 2)->block, block);
    tm_block_release(block);
    assert_memory_equal(tm_copies_find(&copies, 1, 2)->block->data, bytes, sizeof bytes);
    put_whole(&copies, 1, 3, 30);
    name = name_of(1, 4, 30);
    assert_int_equal(tm_copies_share(&copies, &name, tm_copies_find(&copies, 1, 3)->block, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "no space");
    tm_copies_deinit(&copies);
    tm_block_pool_destroy(pool);
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_copies copies;
        struct tm_copy_name name = name_of(1, 2, 30);
        uint64_t received = 0;
        struct tm_block_pool *pool = tm_block_pool_create();
        rc = pool == NULL ? -(int)TM_ENOMEM : 0;
        if (rc == 0) {
            tm_copies_init(&copies, 1000, pool);
            rc = tm_copies_put(&copies, &name, 0, bytes, sizeof bytes, &received, NULL);
            if (rc == 0) {
                name.layer = 3;
                rc = tm_copies_share(&copies, &name, tm_copies_find(&copies, 1, 2)->block, NULL);
            }
            tm_copies_deinit(&copies);
        }
        tm_block_pool_destroy(pool);
    });
}

TM_TEST_MAIN(TM_TEST(test_chunks), TM_TEST(test_wrong_bytes_and_no_room), TM_TEST(test_keep), TM_TEST(test_share),
             TM_TEST(test_memory))
