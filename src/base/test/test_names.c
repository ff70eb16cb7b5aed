#include "base/names.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static void test_numbers_come_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        long want;
    } rows[] = {
        {"a", 0}, {"b", 1}, {"", 2}, {"a", 0}, {"ab", 3}, {"A", 4}, {"", 2}, {"\xC3\xA9", 5}, {"b", 1}, {"b ", 6},
    };
    struct tm_names names;
    tm_names_init(&names, 100);
    assert_int_equal(tm_names_find(&names, "a", 1), -1); /* before there is any */
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        long before = tm_names_find(&names, rows[i].name, strlen(rows[i].name));
        bool is_new = (size_t)rows[i].want == names.count;
        assert_row(before == (is_new ? -1 : rows[i].want), "\"%s\": found as %ld", rows[i].name, before);
        long got = tm_names_add(&names, rows[i].name, strlen(rows[i].name));
        assert_row(got == rows[i].want, "\"%s\": got %ld", rows[i].name, got);
        assert_row_string(rows[i].name, names.names[got], rows[i].name);
    }
    assert_int_equal(names.count, 7);
    tm_names_deinit(&names);
}

static void test_names_are_copied_by_length(void **state)
{
    (void)state;
    char text[] = "us-east-1a,p3";
    struct tm_names names;
    tm_names_init(&names, 10);
    assert_int_equal(tm_names_add(&names, text, 10), 0);
    assert_int_equal(tm_names_add(&names, text + 11, 2), 1);
    assert_int_equal(tm_names_add(&names, text, 9), 2);
    memset(text, 'x', sizeof text - 1);
    assert_string_equal(names.names[0], "us-east-1a");
    assert_string_equal(names.names[1], "p3");
    assert_string_equal(names.names[2], "us-east-1");
    assert_int_equal(tm_names_find(&names, "us-east-1a", 10), 0);
    assert_int_equal(tm_names_find(&names, "us-east-1", 9), 2);
    assert_int_equal(tm_names_find(&names, "us-east-", 8), -1);
    assert_int_equal(tm_names_find(&names, "us-east-1ab", 11), -1);
    tm_names_deinit(&names);
}

static void test_many(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    struct tm_names names;
    char name[32];
    tm_names_init(&names, MANY);
    for (long i = 0; i < MANY; i++) {
        int length = snprintf(name, sizeof name, "name-%ld", i * 7919);
        assert_row(tm_names_add(&names, name, (size_t)length) == i, "%s: wrong number", name);
    }
    for (long i = 0; i < MANY; i++) { /* addresses and numbers stay while the set grows */
        int length = snprintf(name, sizeof name, "name-%ld", i * 7919);
        assert_row(tm_names_find(&names, name, (size_t)length) == i, "%s: not found", name);
        assert_row_string(name, names.names[i], name);
    }
    assert_true(names.slot_count >= 2 * names.count);
    tm_names_deinit(&names);
}

static void test_the_limit(void **state)
{
    (void)state;
    struct tm_names names;
    tm_names_init(&names, 2);
    assert_int_equal(tm_names_add(&names, "a", 1), 0);
    assert_int_equal(tm_names_add(&names, "b", 1), 1);
    assert_int_equal(tm_names_add(&names, "c", 1), -TM_ELIMIT);
    assert_int_equal(tm_names_add(&names, "a", 1), 0); /* what is there needs no room */
    assert_int_equal(tm_names_find(&names, "c", 1), -1);
    assert_int_equal(names.count, 2);
    tm_names_deinit(&names);
    assert_int_equal(names.count, 0);
    tm_names_deinit(&names);
}

/* Enough names for the table to grow twice. A failed addition must leave the set as it was. */
static int fill_once(void)
{
    struct tm_names names;
    char name[32];
    long got = 0;
    tm_names_init(&names, 1000);
    for (long i = 0; got >= 0 && i < 100; i++) {
        int length = snprintf(name, sizeof name, "name-%ld", i);
        got = tm_names_add(&names, name, (size_t)length);
        bool there = tm_names_find(&names, name, (size_t)length) >= 0;
        if (there != (got >= 0) || names.count != (size_t)(got >= 0 ? i + 1 : i)) got = -TM_EINTERNAL;
    }
    tm_names_deinit(&names);
    return got < 0 ? (int)got : 0;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = fill_once());
}

TM_TEST_MAIN(TM_TEST(test_numbers_come_in_order), TM_TEST(test_names_are_copied_by_length), TM_TEST(test_many),
             TM_TEST(test_the_limit), TM_TEST(test_without_memory))
