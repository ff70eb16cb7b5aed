#include "base/test/harness.h"
#include "store/block.h"

#include <pthread.h>
#include <string.h>

static void test_layout(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, (size_t)5 << 20};
    struct tm_block_pool *pool = tm_block_pool_create();
    for (size_t i = 0; i < TM_COUNT(sizes); i++) {
        struct tm_block *block = tm_block_create(pool, sizes[i]);
        assert_row(block != NULL && block->size == sizes[i], "%zu bytes", sizes[i]);
        assert_row((uintptr_t)block->data % TM_BLOCK_PAGE == 0, "%zu bytes", sizes[i]);
        assert_row(block->room % TM_BLOCK_PAGE == 0 && block->room >= sizes[i], "%zu bytes", sizes[i]);
        memset(block->data - TM_BLOCK_HEAD, 1, TM_BLOCK_HEAD + block->room); /* all of it is ours */
        tm_block_release(block);
    }
    assert_null(tm_block_create(pool, SIZE_MAX - 1));
    tm_block_pool_destroy(pool);
    tm_block_pool_destroy(NULL);
    tm_block_release(NULL);
}

static void test_used_again(void **state)
{
    (void)state;
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *first = tm_block_create(pool, 100000);
    const uint8_t *where = first->data;
    assert_ptr_equal(tm_block_share(first), first);
    tm_block_release(first);
    struct tm_block *other = tm_block_create(pool, 100000); /* the first is still needed */
    assert_ptr_not_equal(other->data, where);
    tm_block_release(first);
    struct tm_block *small = tm_block_create(pool, 10); /* would waste it */
    assert_ptr_not_equal(small->data, where);
    struct tm_block *again = tm_block_create(pool, 99990);
    assert_ptr_equal(again->data, where);
    assert_int_equal(again->size, 99990);
    tm_block_pool_destroy(pool); /* what is out stays valid */
    memset(again->data, 7, again->size);
    tm_block_release(other);
    tm_block_release(small);
    tm_block_release(again);
}

/* What is kept in sizes that nobody asks for goes when others are asked for, at the latest when there is no memory. */
static void test_kept_in_vain(void **state)
{
    (void)state;
    for (int without_memory = 0; without_memory < 2; without_memory++) {
        struct tm_block_pool *pool = tm_block_pool_create();
        struct tm_block *few[4];
        tm_block_release(tm_block_create(pool, 1000000));
        long kept = tm_alloc_live();
        for (size_t i = 0; i < TM_COUNT(few); i++) {
            if (without_memory && i == 0) tm_alloc_fail_at(2);
            few[i] = tm_block_create(pool, 200000);
            assert_non_null(few[i]);
        }
        assert_int_equal(tm_alloc_live(), kept + 2 * (long)TM_COUNT(few) - 2);
        for (size_t i = 0; i < TM_COUNT(few); i++)
            tm_block_release(few[i]);
        tm_block_pool_destroy(pool);
    }
}

enum { ROUNDS = 2000 };

static void *share_and_release(void *argument)
{
    struct tm_block *block = argument;
    for (int i = 0; i < ROUNDS; i++) {
        struct tm_block *own = tm_block_create(block->pool, (size_t)(i % 7) * 4096);
        if (own != NULL) memset(own->data, 1, own->size);
        tm_block_release(own);
        tm_block_release(tm_block_share(block));
    }
    tm_block_release(block);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    long live = tm_alloc_live();
    pthread_t threads[3];
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *block = tm_block_create(pool, 10);
    for (size_t i = 0; i < TM_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, share_and_release, tm_block_share(block)), 0);
    tm_block_release(block);
    tm_block_pool_destroy(pool);
    for (size_t i = 0; i < TM_COUNT(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(tm_alloc_live(), live);
}

TM_TEST_MAIN(TM_TEST(test_layout), TM_TEST(test_used_again), TM_TEST(test_kept_in_vain), TM_TEST(test_threads))
