#include "base/arena.h"

#include "base/test/harness.h"

#include <string.h>

static void test_pieces_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 15, 16, 17, 4000, 5000, 100000, 1, 3000000, 8};
    struct tm_arena arena;
    tm_arena_init(&arena, (size_t)64 << 20);
    unsigned char *pieces[TM_COUNT(sizes)];
    for (size_t i = 0; i < TM_COUNT(sizes); i++) {
        pieces[i] = tm_arena_alloc(&arena, sizes[i]);
        assert_row(pieces[i] != NULL, "size %zu: none", sizes[i]);
        assert_row((uintptr_t)pieces[i] % 16 == 0, "size %zu: not aligned", sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_row(pieces[i][k] == 0, "size %zu: byte %zu is not zero", sizes[i], k);
        memset(pieces[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < TM_COUNT(sizes); i++) {
        for (size_t k = 0; k < sizes[i]; k++)
            assert_row(pieces[i][k] == i + 1, "size %zu: byte %zu was overwritten", sizes[i], k);
    }
    tm_arena_deinit(&arena);
    tm_arena_deinit(&arena);
    assert_null(arena.chunks);
}

static void test_few_calls_for_many_pieces(void **state)
{
    (void)state;
    struct tm_arena arena;
    tm_arena_init(&arena, (size_t)64 << 20);
    long before = tm_alloc_live();
    for (int i = 0; i < 100000; i++)
        assert_non_null(tm_arena_alloc(&arena, 16));
    assert_true(tm_alloc_live() - before < 20);
    tm_arena_deinit(&arena);
    assert_int_equal(tm_alloc_live(), before);
}

static void test_the_limit_holds(void **state)
{
    (void)state;
    static const size_t limits[] = {0, 1, 31, 32, 48, 4096, 10000, 1 << 20};
    for (size_t i = 0; i < TM_COUNT(limits); i++) {
        struct tm_arena arena;
        tm_arena_init(&arena, limits[i]);
        size_t given = 0;
        while (tm_arena_alloc(&arena, 16) != NULL)
            given += 16;
        assert_row(arena.bytes <= limits[i], "limit %zu: took %zu", limits[i], arena.bytes);
        assert_row(given <= limits[i], "limit %zu: gave %zu", limits[i], given);
        assert_row(limits[i] < 4096 || given > limits[i] / 2, "limit %zu: gave only %zu", limits[i], given);
        tm_arena_deinit(&arena);
    }
}

static void test_sizes_too_large(void **state)
{
    (void)state;
    static const size_t sizes[] = {1 << 20, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 15, SIZE_MAX};
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < TM_COUNT(sizes); i++)
        assert_row(tm_arena_alloc(&arena, sizes[i]) == NULL, "size %zu was given", sizes[i]);
    assert_non_null(tm_arena_alloc(&arena, 8));
    tm_arena_deinit(&arena);
}

static void test_texts(void **state)
{
    (void)state;
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 20);
    assert_string_equal(tm_arena_strdup(&arena, "abc"), "abc");
    assert_string_equal(tm_arena_strndup(&arena, "abcdef", 2), "ab");
    assert_string_equal(tm_arena_strndup(&arena, NULL, 0), "");
    assert_string_equal(tm_arena_printf(&arena, "%s-%d", "x", 42), "x-42");
    char *wide = tm_arena_printf(&arena, "%10000d", 7);
    assert_int_equal(strlen(wide), 10000);
    assert_null(tm_arena_printf(&arena, "%2000000d", 7));
    tm_arena_deinit(&arena);
}

static int fill_once(void)
{
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 20);
    bool ok = tm_arena_alloc(&arena, 100) != NULL && tm_arena_strdup(&arena, "x") != NULL &&
              tm_arena_printf(&arena, "%8000d", 1) != NULL && tm_arena_strndup(&arena, "y", 1) != NULL;
    tm_arena_deinit(&arena);
    return ok ? 0 : -(int)TM_ENOMEM;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = fill_once());
}

TM_TEST_MAIN(TM_TEST(test_pieces_are_zeroed_aligned_and_apart), TM_TEST(test_few_calls_for_many_pieces),
             TM_TEST(test_the_limit_holds), TM_TEST(test_sizes_too_large), TM_TEST(test_texts),
             TM_TEST(test_without_memory))
