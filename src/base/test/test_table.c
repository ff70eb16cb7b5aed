#include "base/table.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static const struct tm_column columns[] = {
    {"name", TM_LEFT, 0},
    {"count", TM_RIGHT, 1},
    {"region", TM_LEFT, 2},
    {"note", TM_LEFT, 3},
};

static void fill(struct tm_table *table)
{
    tm_table_init(table, columns, TM_COUNT(columns));
    tm_table_add(table, "alpha");
    tm_table_add(table, "%d", 7);
    tm_table_add(table, "eu-west");
    tm_table_add(table, "first");
    tm_table_add_colored(table, TM_RED, "%s", "日本");
    tm_table_add(table, "%d", 12345);
    tm_table_add(table, "us");
    tm_table_add(table, "%s", "");
}

static void test_fits_the_width(void **state)
{
    (void)state;
    static const struct {
        int width;
        const char *want;
    } rows[] = {
        {0, "name   count  region   note\n"
            "alpha      7  eu-west  first\n"
            "日本   12345  us       \n"},
        {28, "name   count  region   note\n"
             "alpha      7  eu-west  first\n"
             "日本   12345  us       \n"},
        {27, "name   count  region\n"
             "alpha      7  eu-west\n"
             "日本   12345  us\n"},
        {20, "name   count\n"
             "alpha      7\n"
             "日本   12345\n"},
        {11, "name\n"
             "alpha\n"
             "日本\n"},
        {1, "name\n"
            "alpha\n"
            "日本\n"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_table table;
        struct tm_text out;
        fill(&table);
        tm_text_init(&out, 10000);
        int rc = tm_table_print(&table, &(struct tm_term){.utf8 = true, .width = rows[i].width}, &out, NULL);
        assert_row(rc == 0, "width %d: got %d", rows[i].width, rc);
        assert_row(strcmp(tm_text_string(&out), rows[i].want) == 0, "width %d: got\n%s", rows[i].width,
                   tm_text_string(&out));
        tm_text_deinit(&out);
        tm_table_deinit(&table);
    }
}

static void test_colors_take_no_room(void **state)
{
    (void)state;
    static const struct tm_column two[] = {{"a", TM_RIGHT, 0}, {"b", TM_LEFT, 0}};
    struct tm_table table;
    struct tm_text out;
    tm_table_init(&table, two, 2);
    tm_text_init(&out, 1000);
    tm_table_add_colored(&table, TM_GREEN, "x");
    tm_table_add(&table, "y");
    tm_table_add(&table, "xyz");
    tm_table_add(&table, "y");
    assert_int_equal(tm_table_print(&table, &(struct tm_term){.color = true}, &out, NULL), 0);
    assert_string_equal(tm_text_string(&out), "  \033[1ma\033[0m  \033[1mb\033[0m\n"
                                              "  \033[32mx\033[0m  y\n"
                                              "xyz  y\n");
    tm_text_deinit(&out);
    tm_table_deinit(&table);
}

static void test_no_rows_and_a_row_not_complete(void **state)
{
    (void)state;
    struct tm_table table;
    struct tm_text out;
    tm_text_init(&out, 1000);
    tm_table_init(&table, columns, TM_COUNT(columns));
    assert_int_equal(tm_table_print(&table, &(struct tm_term){0}, &out, NULL), 0);
    assert_string_equal(tm_text_string(&out), "name  count  region  note\n");
    tm_table_add(&table, "alone");
    tm_text_clear(&out);
    assert_int_equal(tm_table_print(&table, &(struct tm_term){0}, &out, NULL), 0);
    assert_string_equal(tm_text_string(&out), "name   count  region  note\n");
    tm_text_deinit(&out);
    tm_table_deinit(&table);
}

static void test_many_columns_and_a_long_cell(void **state)
{
    (void)state;
    struct tm_column many[TM_TABLE_COLUMNS_MAX];
    for (size_t i = 0; i < TM_COUNT(many); i++)
        many[i] = (struct tm_column){"c", TM_LEFT, (int)i};
    struct tm_table table;
    struct tm_text out;
    tm_table_init(&table, many, TM_COUNT(many));
    tm_text_init(&out, 100000);
    for (size_t i = 0; i < TM_COUNT(many); i++)
        tm_table_add(&table, "%2000d", (int)i);
    assert_int_equal(tm_table_print(&table, &(struct tm_term){.width = 80}, &out, NULL), 0);
    assert_non_null(strchr(tm_text_string(&out), 'c'));
    tm_text_deinit(&out);
    tm_table_deinit(&table);
}

static void test_the_limit_of_the_text(void **state)
{
    (void)state;
    struct tm_table table;
    struct tm_text out;
    struct tm_error e = {0};
    fill(&table);
    tm_text_init(&out, 10);
    assert_int_equal(tm_table_print(&table, &(struct tm_term){0}, &out, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "limit of 10 bytes");
    tm_text_deinit(&out);
    tm_table_deinit(&table);
}

static int print_once(void)
{
    struct tm_table table;
    struct tm_text out;
    fill(&table);
    for (int i = 0; i < 400; i++)
        tm_table_add(&table, "%d", i);
    tm_text_init(&out, 1 << 20);
    int rc = tm_table_print(&table, &(struct tm_term){.color = true}, &out, NULL);
    tm_text_deinit(&out);
    tm_table_deinit(&table);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = print_once());
}

TM_TEST_MAIN(TM_TEST(test_fits_the_width), TM_TEST(test_colors_take_no_room),
             TM_TEST(test_no_rows_and_a_row_not_complete), TM_TEST(test_many_columns_and_a_long_cell),
             TM_TEST(test_the_limit_of_the_text), TM_TEST(test_without_memory))
