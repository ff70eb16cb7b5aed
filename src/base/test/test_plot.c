#include "base/plot.h"

#include "base/test/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tm_term fancy = {.utf8 = true};
static const struct tm_term plain = {.utf8 = false};

static void test_sparkline(void **state)
{
    (void)state;
    static const struct {
        double values[8];
        size_t count;
        size_t width;
        const char *want;
        const char *want_plain;
    } rows[] = {
        {{0, 1, 2, 3, 4, 5, 6, 7}, 8, 8, "▁▂▃▄▅▆▇█", "_.:-=+*#"},
        {{0, 1, 2, 3, 4, 5, 6, 7}, 8, 100, "▁▂▃▄▅▆▇█", "_.:-=+*#"},
        {{0, 0, 8, 8}, 4, 2, "▁█", "_#"},
        {{0, 8, 8, 8}, 4, 2, "▅█", "=#"},
        {{0, 0, 0}, 3, 3, "▁▁▁", "___"},
        {{-5, 5}, 2, 2, "▁█", "_#"},
        {{1}, 1, 1, "█", "#"},
        {{1}, 0, 5, "", ""},
        {{1, 2}, 2, 0, "", ""},
        {{NAN, 1, NAN}, 3, 3, "▁█▁", "_#_"},
        {{INFINITY, 1}, 2, 2, "▁▁", "__"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        tm_text_init(&out, 1000);
        tm_plot_sparkline(&fancy, &out, rows[i].values, rows[i].count, rows[i].width);
        assert_row(strcmp(tm_text_string(&out), rows[i].want) == 0, "row %zu: got %s", i, tm_text_string(&out));
        tm_text_clear(&out);
        tm_plot_sparkline(&plain, &out, rows[i].values, rows[i].count, rows[i].width);
        assert_row(strcmp(tm_text_string(&out), rows[i].want_plain) == 0, "row %zu: got %s", i, tm_text_string(&out));
        tm_text_deinit(&out);
    }
}

static const double steps_x[] = {0, 5};
static const double steps_y[] = {0, 8};
static const struct tm_plot steps = {.title = "Nodes",
                                     .x_label = "hours",
                                     .y_label = "count",
                                     .x = steps_x,
                                     .y = steps_y,
                                     .count = 2,
                                     .x_end = 10,
                                     .y_max = 8};

static void test_terminal_without_utf8(void **state)
{
    (void)state;
    struct tm_text out;
    tm_text_init(&out, 10000);
    assert_int_equal(tm_plot_terminal(&steps, &plain, 20, 3, &out, NULL), 0);
    assert_string_equal(tm_text_string(&out), "Nodes  (count)\n"
                                              "       8 |          ##########\n"
                                              "         |                    \n"
                                              "       0 |##########          \n"
                                              "         +--------------------\n"
                                              "          0      hours      10\n");
    tm_text_deinit(&out);
}

static void test_terminal_in_braille(void **state)
{
    (void)state;
    struct tm_text out;
    tm_text_init(&out, 10000);
    assert_int_equal(tm_plot_terminal(&steps, &fancy, 4, 2, &out, NULL), 0);
    assert_string_equal(tm_text_string(&out), "Nodes  (count)\n"
                                              "       8 ┤⠀⠀⠉⠉\n"
                                              "       0 ┤⣀⣀⠀⠀\n"
                                              "         └────\n"
                                              "          0 hours 10\n");
    tm_text_deinit(&out);
}

static void test_a_jump_within_a_column_is_drawn(void **state)
{
    (void)state;
    static const double x[] = {0, 1, 2, 90};
    static const double y[] = {0, 8, 0, 0};
    struct tm_plot spike = steps;
    spike.x = x;
    spike.y = y;
    spike.count = 4;
    spike.x_end = 100;
    struct tm_text out;
    tm_text_init(&out, 10000);
    assert_int_equal(tm_plot_terminal(&spike, &plain, 4, 3, &out, NULL), 0);
    assert_non_null(strstr(tm_text_string(&out), "       8 |#   \n         |#   \n       0 |####\n"));
    tm_text_deinit(&out);
}

static void test_nothing_to_plot(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        size_t columns;
        size_t rows;
    } rows[] = {{0, 10, 10}, {2, 1, 10}, {2, 10, 1}, {2, 0, 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_plot plot = steps;
        plot.count = rows[i].count;
        struct tm_text out;
        struct tm_error e = {0};
        tm_text_init(&out, 1000);
        int rc = tm_plot_terminal(&plot, &plain, rows[i].columns, rows[i].rows, &out, &e);
        assert_row(rc == -(int)TM_EUSAGE && out.length == 0, "row %zu: got %d", i, rc);
        assert_error_has(e, "nothing to plot");
        if (plot.count == 0) assert_int_equal(tm_plot_svg(&plot, &out, &e), -(int)TM_EUSAGE);
        tm_text_deinit(&out);
    }
}

/* Values no one should plot must not lead out of the arrays. */
static void test_odd_values(void **state)
{
    (void)state;
    static const double x[] = {3, 3, 3};
    static const struct {
        double y[3];
        double x_end;
        double y_max;
    } rows[] = {
        {{1, 2, 3}, 3, 3}, {{1, 2, 3}, 10, 0},        {{-1, 100, 3}, 10, 3}, {{NAN, INFINITY, 1}, 10, 3},
        {{1, 2, 3}, 0, 3}, {{1, 2, 3}, 10, INFINITY}, {{1, 2, 3}, 10, NAN},  {{1e300, 1, 1}, 1e300, 1e-300},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_plot plot = steps;
        plot.x = x;
        plot.y = rows[i].y;
        plot.count = 3;
        plot.x_end = rows[i].x_end;
        plot.y_max = rows[i].y_max;
        struct tm_text out;
        tm_text_init(&out, 1 << 20);
        assert_row(tm_plot_terminal(&plot, &fancy, 10, 8, &out, NULL) == 0, "row %zu: terminal", i);
        assert_row(tm_plot_svg(&plot, &out, NULL) == 0, "row %zu: svg", i);
        tm_text_deinit(&out);
    }
}

static void test_svg(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 320\"",
        "<title>a &lt;b&gt; &amp; c?</title>",
        "d=\"M64.00 268.00V268.00H452.00V44.00H840.00V268.00Z\"",
        ">hours</text>\n</svg>\n",
        ">count</text>",
        "text-anchor=\"end\">8</text>",
    };
    struct tm_plot plot = steps;
    plot.title = "a <b> & c\033";
    struct tm_text out;
    tm_text_init(&out, 1 << 20);
    assert_int_equal(tm_plot_svg(&plot, &out, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(pieces); i++)
        assert_row(strstr(tm_text_string(&out), pieces[i]) != NULL, "no %s in\n%s", pieces[i], tm_text_string(&out));
    assert_null(strstr(tm_text_string(&out), "nan"));
    tm_text_deinit(&out);
}

static int plot_once(const struct tm_term *term)
{
    struct tm_text out;
    tm_text_init(&out, 1 << 20);
    double values[3] = {1, 2, 3};
    tm_plot_sparkline(term, &out, values, 3, 3);
    int rc = tm_plot_terminal(&steps, term, 30, 10, &out, NULL);
    if (rc == 0) rc = tm_plot_svg(&steps, &out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = plot_once(&fancy));
    TM_FAIL_EACH_ALLOC(rc = plot_once(&plain));
}

TM_TEST_MAIN(TM_TEST(test_sparkline), TM_TEST(test_terminal_without_utf8), TM_TEST(test_terminal_in_braille),
             TM_TEST(test_a_jump_within_a_column_is_drawn), TM_TEST(test_nothing_to_plot), TM_TEST(test_odd_values),
             TM_TEST(test_svg), TM_TEST(test_without_memory))
