#include "base/test/harness.h"

#include <string.h>

static void test_live_counts_what_is_held(void **state)
{
    (void)state;
    long before = tm_alloc_live();
    char *a = tm_alloc(0);
    char *b = tm_calloc(3, 5);
    char *c = tm_strndup("abcdef", 3);
    char *d = tm_realloc(NULL, 10);
    assert_non_null(a);
    assert_non_null(b);
    assert_string_equal(c, "abc");
    assert_int_equal(tm_alloc_live(), before + 4);
    d = tm_realloc(d, 1000);
    assert_non_null(d);
    assert_int_equal(tm_alloc_live(), before + 4);
    for (size_t i = 0; i < 15; i++)
        assert_int_equal(b[i], 0);
    tm_free(a);
    tm_free(b);
    tm_free(c);
    tm_free(d);
    tm_free(NULL);
    assert_int_equal(tm_alloc_live(), before);
}

static void test_strndup_of_nothing(void **state)
{
    (void)state;
    char *empty = tm_strndup(NULL, 0);
    assert_string_equal(empty, "");
    tm_free(empty);
}

static void test_the_nth_call_fails_once(void **state)
{
    (void)state;
    for (long n = 1; n <= 4; n++) {
        tm_alloc_fail_at(n);
        for (long call = 1; call <= 6; call++) {
            void *memory = call % 2 == 0 ? tm_alloc(8) : tm_calloc(1, 8);
            assert_row((memory == NULL) == (call == n), "fail at %ld: call %ld", n, call);
            assert_row(tm_alloc_failed() == (call >= n), "fail at %ld: failed() after call %ld", n, call);
            tm_free(memory);
        }
    }
    tm_alloc_fail_at(0);
    assert_int_equal(tm_alloc_failed(), 0);
}

static void test_what_is_held_does_not_count(void **state)
{
    (void)state;
    tm_alloc_fail_at(2);
    void *first = tm_alloc(1);
    tm_alloc_fail_hold(1);
    void *aside = tm_alloc(1);
    assert_non_null(aside);
    tm_alloc_fail_hold(0);
    assert_null(tm_alloc(1));
    assert_int_equal(tm_alloc_failed(), 1);
    tm_alloc_fail_at(0);
    tm_free(first);
    tm_free(aside);
}

static void test_a_failed_realloc_keeps_the_old(void **state)
{
    (void)state;
    char *text = tm_strndup("abc", 3);
    tm_alloc_fail_at(1);
    assert_null(tm_realloc(text, 100));
    assert_int_equal(tm_alloc_failed(), 1);
    tm_alloc_fail_at(0);
    assert_string_equal(text, "abc");
    tm_free(text);
}

static void test_grow_by_doubling_up_to_max(void **state)
{
    (void)state;
    static const struct {
        size_t need;
        size_t max;
        int rc;
        size_t capacity;
    } rows[] = {
        {0, 100, 0, 0},     {1, 100, 0, 8},
        {8, 100, 0, 8},     {9, 100, 0, 16},
        {50, 100, 0, 50},   {51, 100, 0, 100},
        {100, 100, 0, 100}, {101, 100, -(int)TM_ELIMIT, 100},
        {101, 101, 0, 101}, {SIZE_MAX, SIZE_MAX, -(int)TM_ELIMIT, 101},
    };
    void *array = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int rc = tm_grow(&array, &capacity, rows[i].need, sizeof(int), rows[i].max);
        assert_row(rc == rows[i].rc, "need %zu: got %d", rows[i].need, rc);
        assert_row(capacity == rows[i].capacity, "need %zu: capacity %zu", rows[i].need, capacity);
        if (capacity > 0) memset(array, 0xAB, capacity * sizeof(int)); /* ASan looks whether it is there */
    }
    tm_free(array);
}

static int grow_twice(void)
{
    void *array = NULL;
    size_t capacity = 0;
    int rc = tm_grow(&array, &capacity, 1, 4, 100);
    size_t before = capacity;
    if (rc == 0) rc = tm_grow(&array, &capacity, 20, 4, 100);
    if (rc != 0) assert_int_equal(capacity, before);
    tm_free(array);
    return rc;
}

static void test_grow_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = grow_twice());
}

static int strndup_once(void)
{
    char *copy = tm_strndup("x", 1);
    tm_free(copy);
    return copy == NULL ? -(int)TM_ENOMEM : 0;
}

static void test_strndup_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = strndup_once());
}

TM_TEST_MAIN(TM_TEST(test_live_counts_what_is_held), TM_TEST(test_strndup_of_nothing),
             TM_TEST(test_the_nth_call_fails_once), TM_TEST(test_what_is_held_does_not_count),
             TM_TEST(test_a_failed_realloc_keeps_the_old), TM_TEST(test_grow_by_doubling_up_to_max),
             TM_TEST(test_grow_without_memory), TM_TEST(test_strndup_without_memory))
