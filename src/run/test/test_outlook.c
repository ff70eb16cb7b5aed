/* What progress so far says of when a run is done. */
#include "run/outlook.h"

#include "base/test/harness.h"

#include <math.h>

static void test_left(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int seconds;     /* seen */
        double steps[2]; /* of even and odd seconds */
        double left;     /* steps */
        double middle_s; /* that is expected; NaN: too little is known */
        double wide_s;   /* the interval is not wider than this ... */
        double narrow_s; /* ... and not narrower */
    } rows[] = {
        {"nothing", 0, {0, 0}, 100, NAN, 0, 0},        {"a few seconds", 8, {10, 10}, 100, NAN, 0, 0},
        {"steady", 60, {10, 10}, 1000, 100, 0.01, 0},  {"long", 100000, {10, 10}, 1e6, 100000, 1, 0},
        {"uneven", 60, {5, 15}, 1000, 100, 60, 10},    {"done", 60, {5, 15}, 0, 0, 0, 0},
        {"stands still", 60, {0, 0}, 1000, NAN, 0, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_outlook outlook = {.count = 0};
        double steps = 0;
        for (int t = 0; t < rows[i].seconds; t++) {
            steps += rows[i].steps[t % 2];
            tm_outlook__keep(&outlook, t, steps);
        }
        double middle_s = tm_outlook__left_s(&outlook, rows[i].left, 0.5);
        double low_s = tm_outlook__left_s(&outlook, rows[i].left, 0.1);
        double high_s = tm_outlook__left_s(&outlook, rows[i].left, 0.9);
        if (isnan(rows[i].middle_s)) {
            assert_row(isnan(middle_s) && isnan(low_s) && isnan(high_s), "%s: %g", rows[i].name, middle_s);
            continue;
        }
        assert_row(fabs(middle_s - rows[i].middle_s) <= 0.03 * rows[i].middle_s, "%s: %g", rows[i].name, middle_s);
        assert_row(low_s <= middle_s && middle_s <= high_s, "%s: %g %g %g", rows[i].name, low_s, middle_s, high_s);
        assert_row(high_s - low_s <= rows[i].wide_s && high_s - low_s >= rows[i].narrow_s, "%s: from %g to %g",
                   rows[i].name, low_s, high_s);
    }
}

/* A silence is no progress, however long it is. */
static void test_silence(void **state)
{
    (void)state;
    struct tm_outlook outlook = {.count = 0};
    for (int t = 0; t <= 100; t++)
        tm_outlook__keep(&outlook, t, 10.0 * t);
    double before_s = tm_outlook__left_s(&outlook, 1000, 0.5);
    tm_outlook__keep(&outlook, 200, 1000);
    double after_s = tm_outlook__left_s(&outlook, 1000, 0.5);
    assert_true(after_s > 1.8 * before_s && after_s < 2.3 * before_s);
    tm_outlook__keep(&outlook, 1e9, 1000);
    assert_true(outlook.count <= TM_OUTLOOK_POINTS);
    tm_outlook__keep(&outlook, INFINITY, 1000);
    assert_true(outlook.count <= TM_OUTLOOK_POINTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
