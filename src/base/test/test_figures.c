/* Structs of numbers as text: what is read is what was printed, and what is wrong is named. */
#include "base/figures.h"

#include "base/test/harness.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct sample {
    int whole;
    bool flag;
    double real;
    double many[5];
    struct {
        int a;
        double b;
    } pairs[3];
};

static const struct tm_figure table[] = {
    {.name = "whole", .type = TM_FIGURE_INT, .offset = offsetof(struct sample, whole), .min = -5, .max = 5},
    {.name = "flag", .type = TM_FIGURE_BOOL, .offset = offsetof(struct sample, flag)},
    {.name = "real",
     .type = TM_FIGURE_DOUBLE,
     .offset = offsetof(struct sample, real),
     .min = -DBL_MAX,
     .max = DBL_MAX,
     .special = true},
    {.name = "many", .type = TM_FIGURE_DOUBLE, .offset = offsetof(struct sample, many), .count = 5, .max = 1e9},
    {.name = "pairs.a",
     .type = TM_FIGURE_INT,
     .offset = offsetof(struct sample, pairs[0].a),
     .count = 3,
     .stride = sizeof(((struct sample *)NULL)->pairs[0]),
     .max = 9},
    {.name = NULL}};

static void test_round_trip(void **state)
{
    (void)state;
    static const double reals[] = {0,       1,        -1,       0.1,       1.0 / 3, 5e-324,   DBL_MIN,
                                   DBL_MAX, -DBL_MAX, INFINITY, -INFINITY, NAN,     1e17 + 1, 12345.678901234567};
    for (size_t i = 0; i < TM_COUNT(reals); i++) {
        struct sample given = {.whole = -3,
                               .flag = i % 2 == 0,
                               .real = reals[i],
                               .many = {0, 1.5, 0, 1.0 / 7},
                               .pairs = {{.a = 0}, {.a = 7}, {.a = 0}}};
        struct sample back = {.whole = 0};
        struct tm_text text;
        struct tm_error e;
        tm_text_init(&text, 4096);
        tm_figures_print(table, &given, &text);
        assert_int_equal(tm_text_status(&text, &e), 0);
        assert_row(tm_figures_parse(table, text.data, text.length, &back, &e) == 0, "%g: %s", reals[i], e.text);
        const struct tm_figure *which = NULL;
        assert_row(tm_figures_same(table, &given, &back, &which), "%g: %s", reals[i], which == NULL ? "" : which->name);
        tm_text_deinit(&text);
    }
}

static void test_zeros_are_left_out(void **state)
{
    (void)state;
    struct sample given = {.many = {0, 2}};
    struct tm_text text;
    tm_text_init(&text, 4096);
    tm_figures_print(table, &given, &text);
    assert_string_equal(tm_text_string(&text), "many 0 2\n");
    tm_text_deinit(&text);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"unheard 1\n", "unheard"},
        {"whole 6\n", "whole"},
        {"whole 1.5\n", "whole"},
        {"whole nan\n", "whole"},
        {"whole 1 2\n", "more than 1"},
        {"flag 2\n", "flag"},
        {"many 1 2 3 4 5 6\n", "more than 5"},
        {"many inf\n", "many"},
        {"many -1\n", "many"},
        {"real 0x10\n", "real"},
        {"real 1\n 2\n", "\"2\""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct sample to = {.whole = 0};
        struct tm_error e;
        int rc = tm_figures_parse(table, rows[i].text, strlen(rows[i].text), &to, &e);
        assert_row(rc == -(int)TM_EINPUT && strstr(e.text, rows[i].says) != NULL, "%s: %s", rows[i].text, e.text);
    }
}

static void test_differences_are_named(void **state)
{
    (void)state;
    struct sample a = {.real = NAN}, b = {.real = NAN};
    const struct tm_figure *which = NULL;
    assert_true(tm_figures_same(table, &a, &b, &which));
    b.pairs[2].a = 1;
    assert_false(tm_figures_same(table, &a, &b, &which));
    assert_string_equal(which->name, "pairs.a");
}

TM_TEST_MAIN(TM_TEST(test_round_trip), TM_TEST(test_zeros_are_left_out), TM_TEST(test_refusals),
             TM_TEST(test_differences_are_named))
