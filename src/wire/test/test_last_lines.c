/* The last lines of a text. */
#include "base/test/harness.h"
#include "wire/last_lines.h"

#include <string.h>

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t count;
        const char *first;
        const char *last;
    } rows[] = {
        {"", 0, NULL, NULL},
        {"\n\n", 0, NULL, NULL},
        {"one", 1, "one", "one"},
        {"one\n\n", 1, "one", "one"},
        {"one\n  two\r\nthree\n", 3, "one", "three"},
        {"\none", 2, "", "one"},
        {" 10%\r 20%\r 30%\nend", 2, " 30%", "end"},
        {"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n", TM_LAST_LINES, "3", "18"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_last_lines lines;
        tm_last_lines_of(rows[i].text, strlen(rows[i].text), &lines);
        assert_row(lines.count == rows[i].count, "%s: %zu", rows[i].text, lines.count);
        if (lines.count == 0) continue;
        assert_row(strcmp(lines.text[0], rows[i].first) == 0, "%s: %s", rows[i].text, lines.text[0]);
        assert_row(strcmp(lines.text[lines.count - 1], rows[i].last) == 0, "%s", rows[i].text);
    }
}

static void test_long(void **state)
{
    (void)state;
    char text[2000];
    struct tm_last_lines lines;
    char *pointers[TM_LAST_LINES];
    memset(text, 'x', sizeof text);
    tm_last_lines_of(text, sizeof text, &lines);
    assert_int_equal(lines.count, 1);
    assert_int_equal(strlen(lines.text[0]), TM_MESSAGE_STRING_MAX);
    assert_int_equal(tm_last_lines_point(&lines, pointers), 1);
    struct tm_last_lines again;
    tm_last_lines_read(pointers, 1, &again);
    assert_string_equal(again.text[0], lines.text[0]);
}

TM_TEST_MAIN(TM_TEST(test_lines), TM_TEST(test_long))
