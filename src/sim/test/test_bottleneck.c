#include "sim/bottleneck.h"

#include "base/test/harness.h"

#include <math.h>

/* Feeds `count` observations a second apart from `from_s` on; the last verdict. */
static struct tm_bottleneck_verdict feed(struct tm_bottleneck *b, double from_s, int count, double observed,
                                         struct tm_bottleneck_observation like)
{
    struct tm_bottleneck_verdict verdict = {0};
    for (int i = 0; i < count; i++) {
        like.time_s = from_s + i;
        like.observed_steps_s = observed;
        verdict = tm_bottleneck_observe(b, &like);
    }
    return verdict;
}

static void test_causes(void **state)
{
    (void)state;
    static const bool nowhere[4] = {false};
    static const bool last_two[4] = {false, false, true, true};
    static const struct {
        const char *name;
        double observed;
        double server_share;
        double ratio[4];
        const bool *remote;
        enum tm_bottleneck_cause want;
    } rows[] = {
        {"as predicted", 10, 0.9, {1, 1, 1, 1}, nowhere, TM_BOTTLENECK_NONE},
        {"a little slow", 9.5, 0.9, {0.95, 0.95, 0.95, 0.95}, nowhere, TM_BOTTLENECK_NONE},
        {"faster", 14, 0.9, {1.4, 1.4, 1.4, 1.4}, nowhere, TM_BOTTLENECK_NONE},
        {"servers", 8, 0.9, {0.8, 0.8, 0.8, 0.8}, nowhere, TM_BOTTLENECK_SERVERS},
        {"input", 8, 0.3, {0.8, 0.8, 0.8, 0.8}, nowhere, TM_BOTTLENECK_INPUT},
        {"one worker", 8.5, 0.9, {1, 1, 0.4, 1}, nowhere, TM_BOTTLENECK_WORKER},
        {"far ones", 8, 0.9, {1, 1, 0.6, 0.6}, last_two, TM_BOTTLENECK_REMOTE},
        {"far ones, but all are slow", 7, 0.9, {0.8, 0.8, 0.6, 0.6}, last_two, TM_BOTTLENECK_SERVERS},
    };
    for (size_t r = 0; r < TM_COUNT(rows); r++) {
        struct tm_bottleneck b;
        tm_bottleneck_init(&b, &tm_bottleneck__default);
        struct tm_bottleneck_observation like = {.predicted_steps_s = 10,
                                                 .server_share = rows[r].server_share,
                                                 .worker_ratio = rows[r].ratio,
                                                 .worker_remote = rows[r].remote,
                                                 .worker_count = 4};
        struct tm_bottleneck_verdict got = feed(&b, 30, 20, rows[r].observed, like);
        assert_row(got.cause == rows[r].want, "%s: %s", rows[r].name, tm_bottleneck_words(got.cause));
        if (got.cause == TM_BOTTLENECK_WORKER) assert_int_equal(got.worker, 2);
        if (got.cause != TM_BOTTLENECK_NONE)
            assert_row(fabs(got.shortfall - (1 - rows[r].observed / 10)) < 1e-9, "%s", rows[r].name);
    }
}

/* Not before the warm-up, not from a few slow steps, not once it has recovered, and not across a change of the fleet.
 */
static void test_patience(void **state)
{
    (void)state;
    struct tm_bottleneck b;
    struct tm_bottleneck_observation like = {.predicted_steps_s = 10};
    tm_bottleneck_init(&b, &tm_bottleneck__default);
    assert_int_equal(feed(&b, 0, 30, 5, like).cause, TM_BOTTLENECK_NONE);
    assert_int_equal(feed(&b, 30, 11, 5, like).cause, TM_BOTTLENECK_NONE);
    assert_int_equal(feed(&b, 41, 1, 5, like).cause, TM_BOTTLENECK_INPUT);
    assert_int_equal(feed(&b, 42, 1, 10, like).cause, TM_BOTTLENECK_NONE);
    assert_int_equal(feed(&b, 43, 1, 5, like).cause, TM_BOTTLENECK_INPUT);
    assert_int_equal(feed(&b, 44, 16, 10, like).cause, TM_BOTTLENECK_NONE);
    assert_int_equal(feed(&b, 60, 11, 5, like).cause, TM_BOTTLENECK_NONE);
    tm_bottleneck__reset(&b);
    assert_int_equal(feed(&b, 71, 11, 5, like).cause, TM_BOTTLENECK_NONE);
    assert_int_equal(feed(&b, 82, 1, 5, like).cause, TM_BOTTLENECK_INPUT);
}

static void test_no_numbers(void **state)
{
    (void)state;
    struct tm_bottleneck b;
    tm_bottleneck_init(&b, &tm_bottleneck__default);
    struct tm_bottleneck_observation like = {.predicted_steps_s = 0};
    assert_int_equal(feed(&b, 30, 40, 0, like).cause, TM_BOTTLENECK_NONE);
    like.predicted_steps_s = NAN;
    assert_int_equal(feed(&b, 70, 40, 1, like).cause, TM_BOTTLENECK_NONE);
    like.predicted_steps_s = 10;
    assert_int_equal(feed(&b, 110, 40, INFINITY, like).cause, TM_BOTTLENECK_NONE);
    assert_int_equal(feed(&b, 150, 40, 0, like).cause, TM_BOTTLENECK_INPUT); /* it stands still */
}

TM_TEST_MAIN(TM_TEST(test_causes), TM_TEST(test_patience), TM_TEST(test_no_numbers))
