#include "base/text.h"

#include "base/test/harness.h"

#include <string.h>

static void test_appends_join(void **state)
{
    (void)state;
    struct tm_text text;
    tm_text_init(&text, 1000);
    assert_string_equal(tm_text_string(&text), "");
    tm_text_puts(&text, "ab");
    tm_text_putc(&text, 'c');
    tm_text_fill(&text, '-', 3);
    tm_text_append(&text, "defgh", 2);
    tm_text_append(&text, NULL, 0);
    tm_text_printf(&text, " %d%%", 7);
    assert_string_equal(tm_text_string(&text), "abc---de 7%");
    assert_int_equal(text.length, strlen("abc---de 7%"));
    assert_int_equal(tm_text_status(&text, NULL), 0);
    tm_text_deinit(&text);
    assert_string_equal(tm_text_string(&text), "");
}

static void test_zero_bytes_are_kept(void **state)
{
    (void)state;
    struct tm_text text;
    tm_text_init(&text, 10);
    tm_text_append(&text, "a\0b", 3);
    assert_int_equal(text.length, 3);
    assert_memory_equal(text.data, "a\0b", 4);
    tm_text_deinit(&text);
}

/* Each way to append, with `count` bytes. */
static void append_by(int way, struct tm_text *text, int count)
{
    switch (way) {
    case 0:
        tm_text_append(text, "xxxxxxxxxxxxxxxx", (size_t)count);
        break;
    case 1:
        tm_text_fill(text, 'x', (size_t)count);
        break;
    case 2:
        tm_text_printf(text, "%.*s", count, "xxxxxxxxxxxxxxxx");
        break;
    default:
        for (int i = 0; i < count; i++)
            tm_text_putc(text, 'x');
    }
}

static void test_the_limit_is_sticky(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct tm_text text;
        struct tm_error e;
        tm_text_init(&text, 10);
        append_by(way, &text, 10);
        assert_row(tm_text_status(&text, &e) == 0 && text.length == 10, "way %d: 10 bytes do not fit", way);
        append_by(way, &text, 1);
        assert_row(tm_text_status(&text, &e) == -(int)TM_ELIMIT, "way %d: 11 bytes fit", way);
        assert_error_has(e, "text is longer than its limit of 10 bytes");
        text.length = 0; /* even with room again */
        append_by(way, &text, 1);
        assert_row(text.length == 0 && tm_text_status(&text, NULL) != 0, "way %d: failure was forgotten", way);
        tm_text_clear(&text);
        append_by(way, &text, 1);
        assert_row(tm_text_status(&text, NULL) == 0, "way %d: clear did not help", way);
        assert_string_equal(tm_text_string(&text), "x");
        tm_text_deinit(&text);
    }
}

static void test_huge_counts_do_not_overflow(void **state)
{
    (void)state;
    struct tm_text text;
    tm_text_init(&text, 10);
    tm_text_puts(&text, "abc");
    tm_text_fill(&text, 'x', SIZE_MAX);
    assert_int_equal(tm_text_status(&text, NULL), -(int)TM_ELIMIT);
    tm_text_clear(&text);
    tm_text_puts(&text, "abc");
    tm_text_fill(&text, 'x', SIZE_MAX - 2); /* 3 + this is 1 more than SIZE_MAX */
    assert_int_equal(tm_text_status(&text, NULL), -(int)TM_ELIMIT);
    assert_string_equal(tm_text_string(&text), "abc");
    tm_text_deinit(&text);
}

static void test_limit_zero(void **state)
{
    (void)state;
    struct tm_text text;
    tm_text_init(&text, 0);
    tm_text_puts(&text, "");
    assert_int_equal(tm_text_status(&text, NULL), 0);
    tm_text_putc(&text, 'x');
    assert_int_equal(tm_text_status(&text, NULL), -(int)TM_ELIMIT);
    tm_text_deinit(&text);
}

static int build_once(void)
{
    struct tm_text text;
    struct tm_error e = {0};
    tm_text_init(&text, 1 << 20);
    tm_text_puts(&text, "a");
    tm_text_fill(&text, 'b', 100);
    tm_text_printf(&text, "%300d", 1);
    tm_text_append(&text, "c", 1);
    int rc = tm_text_status(&text, &e);
    if (rc != 0) assert_string_equal(e.text, "out of memory");
    tm_text_deinit(&text);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = build_once());
}

static void test_room(void **state)
{
    (void)state;
    struct tm_text text;
    tm_text_init(&text, 10);
    tm_text_puts(&text, "ab");
    char *room = tm_text_room(&text, 3);
    assert_non_null(room);
    memcpy(room, "cde", 3);
    tm_text_puts(&text, "f");
    assert_string_equal(tm_text_string(&text), "abcdef");
    assert_null(tm_text_room(&text, 5)); /* past the limit */
    assert_int_equal(tm_text_status(&text, NULL), -(int)TM_ELIMIT);
    assert_int_equal(text.length, 6);
    tm_text_deinit(&text);
}

TM_TEST_MAIN(TM_TEST(test_room), TM_TEST(test_appends_join), TM_TEST(test_zero_bytes_are_kept),
             TM_TEST(test_the_limit_is_sticky), TM_TEST(test_huge_counts_do_not_overflow), TM_TEST(test_limit_zero),
             TM_TEST(test_without_memory))
