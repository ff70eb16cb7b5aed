/* How often copies are made: the least of cost and expected loss, found by trying; and what must hold at the edges. */
#include "base/test/harness.h"
#include "policy/copy_interval_internal.h"

#include <math.h>

static const struct tm_copy_view usual = {.pipelines = 2,
                                          .stages = 3,
                                          .lost_per_s = 1.0 / 3600,
                                          .together = 0.1,
                                          .copy_s = 4,
                                          .slowed = 0.1,
                                          .step_s = 1,
                                          .exposed_s = 20};

/* The share of time that goes to copies and to work done again, copies every t. */
static double waste(const struct tm_copy_view *view, double t)
{
    return view->copy_s * view->slowed / t + tm_copy__loss_rate(view) * t / 2;
}

static void test_least(void **state)
{
    (void)state;
    for (int pipelines = 1; pipelines <= 3; pipelines++) {
        struct tm_copy_view view = usual;
        view.pipelines = pipelines;
        double best = 1, least = INFINITY;
        for (double t = 1; t < 1e5; t *= 1.001)
            if (waste(&view, t) < least) {
                least = waste(&view, t);
                best = t;
            }
        double expected = fmax(10, fmin(best, 1800));
        double got = tm_copy__interval_s(&view);
        assert_row(fabs(got - expected) < 0.01 * expected, "%d pipelines: %g s, tried: %g s", pipelines, got, expected);
    }
}

/* Rates by drawing losses: one instance first, each other with it or within the time that it takes to replace it. */
static void test_rate(void **state)
{
    (void)state;
    struct tm_copy_view view = usual;
    view.pipelines = 1;
    assert_true(fabs(tm_copy__loss_rate(&view) - 3.0 / 3600) < 1e-12); /* any loss of three */
    view.pipelines = 2;
    double two = tm_copy__loss_rate(&view);
    assert_true(fabs(two - 6.0 / 3600 * (0.1 + 20.0 / 3600)) < 1e-12);
    view.pipelines = 3;
    assert_true(tm_copy__loss_rate(&view) < two);
    view.together = 1; /* all go at once: replicas do not help */
    assert_true(fabs(tm_copy__loss_rate(&view) - 9.0 / 3600) < 1e-12);
}

static void test_edges(void **state)
{
    (void)state;
    struct tm_copy_view view = usual;
    view.lost_per_s = 0;
    assert_true(tm_copy__interval_s(&view) == 1800); /* nothing is ever lost: still one now and then */
    view = usual;
    view.lost_per_s = 10;
    assert_true(tm_copy__interval_s(&view) == 10); /* ten steps at least */
    view.step_s = 0;
    assert_true(tm_copy__interval_s(&view) == 8); /* twice what a copy takes */
    view = usual;
    view.copy_s = 0;
    assert_true(isfinite(tm_copy__interval_s(&view)) && tm_copy__interval_s(&view) > 0);
    struct tm_copy_view rarer = usual;
    rarer.lost_per_s /= 4;
    struct tm_copy_view alone = usual;
    alone.pipelines = 1;
    assert_true(tm_copy__interval_s(&rarer) >= tm_copy__interval_s(&usual));
    assert_true(tm_copy__interval_s(&alone) < tm_copy__interval_s(&usual));
}

TM_TEST_MAIN(TM_TEST(test_least), TM_TEST(test_rate), TM_TEST(test_edges))
