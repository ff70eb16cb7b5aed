#include "sim/fan.h"

#include "base/test/harness.h"
#include "market/trace_format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct tm_sim_fan_options usual = {
    .from_ms = 0, .to_ms = 1200000, .interval_ms = 60000, .horizon = 3, .method = TM_FORECAST_LAST};

static void load(struct tm_trace *trace, const char *text)
{
    struct tm_error e = {0};
    tm_trace_init(trace);
    int rc = tm_trace_parse("test", text, strlen(text), NULL, trace, &e);
    assert_row(rc == 0, "%s", e.text);
}

static const char steps[] = "tidemill-trace 1\nend: 1200s\n\n0 +4\n300 +2\n630 -1\n";

/* The median of `last` is what there was `horizon` intervals before; the truth is what there is. */
static void test_last(void **state)
{
    (void)state;
    static const struct {
        int64_t from_ms, to_ms;
        int horizon;
        size_t points;
        double first_s;
    } rows[] = {
        {0, 1200000, 3, 17, 180},                          /* of the first three nothing was said */
        {600000, 1200000, 3, 10, 0},                       /* history reaches back far enough */
        {60000, 600000, 4, 6, 180},  {0, 120000, 3, 0, 0}, /* over before the first forecast comes true */
        {30000, 1170000, 1, 18, 60},                       /* intervals count from `from` */
    };
    struct tm_trace trace;
    load(&trace, steps);
    for (size_t r = 0; r < TM_COUNT(rows); r++) {
        struct tm_sim_fan_options options = usual;
        options.from_ms = rows[r].from_ms;
        options.to_ms = rows[r].to_ms;
        options.horizon = rows[r].horizon;
        struct tm_sim_fan fan;
        struct tm_error e = {0};
        int rc = tm_sim_fan_init(&fan, "name", &trace, &options, &e);
        assert_row(rc == 0, "row %zu: %s", r, e.text);
        assert_row(fan.report.count == rows[r].points, "row %zu: %zu points", r, fan.report.count);
        for (size_t i = 0; i < fan.report.count; i++) {
            double at_s = fan.report.time_s[i] + (double)rows[r].from_ms / 1000;
            double before_s = at_s - 60.0 * rows[r].horizon;
            double now = at_s < 300 ? 4 : at_s < 630 ? 6 : 5;
            double then = before_s < 300 ? 4 : before_s < 630 ? 6 : 5;
            assert_row(i > 0 || fan.report.time_s[0] == rows[r].first_s, "row %zu: from %g", r, fan.report.time_s[0]);
            assert_row(fan.report.truth[i] == now, "row %zu, %g s: truth %g", r, at_s, fan.report.truth[i]);
            assert_row(fabs(fan.report.p50[i] - then) <= 2, "row %zu, %g s: median %g", r, at_s, fan.report.p50[i]);
            assert_row(fan.report.p10[i] <= fan.report.p50[i] && fan.report.p50[i] <= fan.report.p90[i],
                       "row %zu, %g s: percentiles out of order", r, at_s);
            if (before_s < 300)
                assert_row(fan.report.p50[i] == then, "row %zu, %g s: %g, though nothing had changed", r, at_s,
                           fan.report.p50[i]);
        }
        tm_sim_fan_deinit(&fan);
    }
    tm_trace_deinit(&trace);
}

/* Long times are asked about now and then; Parcae's random numbers do not depend on it. */
static void test_stride(void **state)
{
    (void)state;
    struct tm_trace trace;
    load(&trace, "tidemill-trace 1\nend: 600000s\n\n0 +4\n300000 +2\n");
    struct tm_sim_fan_options options = usual;
    options.to_ms = 600000000;
    struct tm_sim_fan fan;
    assert_int_equal(tm_sim_fan_init(&fan, "name", &trace, &options, NULL), 0);
    assert_int_equal(fan.report.count, (10000 + 2) / 3 - 1); /* every third of 10,000, but of the first */
    assert_true(fan.report.time_s[1] - fan.report.time_s[0] == 180);
    tm_sim_fan_deinit(&fan);
    tm_trace_deinit(&trace);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int64_t from_ms, to_ms, interval_ms;
        int horizon, want;
    } rows[] = {
        {600000, 600000, 60000, 3, -TM_EUSAGE},
        {-1, 600000, 60000, 3, -TM_EUSAGE},
        {0, 600000, 0, 3, -TM_EUSAGE},
        {0, 600000, 60000, 0, -TM_EUSAGE},
        {0, 600000, 60000, TM_FORECAST_STEPS_MAX + 1, -TM_EUSAGE},
        {0, 600000, 1, 3, -TM_ELIMIT},
    };
    struct tm_trace trace;
    load(&trace, steps);
    for (size_t r = 0; r < TM_COUNT(rows); r++) {
        struct tm_sim_fan_options options = {.from_ms = rows[r].from_ms,
                                             .to_ms = rows[r].to_ms,
                                             .interval_ms = rows[r].interval_ms,
                                             .horizon = rows[r].horizon};
        struct tm_sim_fan fan;
        int rc = tm_sim_fan_init(&fan, "name", &trace, &options, NULL);
        assert_row(rc == rows[r].want, "row %zu: %d", r, rc);
    }
    tm_trace_deinit(&trace);
}

static int once(const struct tm_trace *trace, enum tm_forecast_method method)
{
    struct tm_sim_fan_options options = usual;
    options.method = method;
    options.horizon = 12; /* parcae's own */
    struct tm_sim_fan fan;
    int rc = tm_sim_fan_init(&fan, "name", trace, &options, NULL);
    if (rc == 0) tm_sim_fan_deinit(&fan);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_trace trace;
    load(&trace, steps);
    TM_FAIL_EACH_ALLOC(rc = once(&trace, TM_FORECAST_LAST));
    TM_FAIL_EACH_ALLOC(rc = once(&trace, TM_FORECAST_TIDEMILL));
    TM_FAIL_EACH_ALLOC(rc = once(&trace, TM_FORECAST_PARCAE));
    tm_trace_deinit(&trace);
}

TM_TEST_MAIN(TM_TEST(test_last), TM_TEST(test_stride), TM_TEST(test_refusals), TM_TEST(test_memory))
