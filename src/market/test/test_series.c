#include "market/series.h"

#include "market/forecast.h"
#include "market/test/market_helpers.h"

static void test_points(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t interval_ms;
        const char *want; /* count+arrivals-losses */
    } rows[] = {
        {"tidemill-trace 1\nend: 180s\n\n0 +4\n60 -1\n", 60000, "4+0-0 3+0-1 3+0-0 "},
        {"tidemill-trace 1\nend: 180s\n\n0 +4\n30 -2\n45 +1\n60 -1\n", 60000, "4+0-0 2+1-3 2+0-0 "},
        {"tidemill-trace 1\nend: 200s\n\n0 +4\n", 60000, "4+0-0 4+0-0 4+0-0 4+0-0 "},
        {"tidemill-trace 1\nend: 120s\n\n0 +4\n120 -1\n", 60000, "4+0-0 4+0-0 3+0-1 "}, /* said at the end itself */
        {"tidemill-trace 1\nbegin: 120s\nend: 300s\n\n120 +2\n", 60000,
         "2+0-0 2+0-0 2+0-0 "}, /* from the first record on */
        {"tidemill-trace 1\nend: 10s\n\n0 +2\n", 60000, "2+0-0 "},
    };
    for (size_t r = 0; r < TM_COUNT(rows); r++) {
        struct tm_trace trace;
        struct tm_series series;
        struct tm_error e = {0};
        char got[256] = "";
        size_t used = 0;
        trace_from(rows[r].text, NULL, &trace);
        tm_series_init(&series);
        assert_row(tm_series_sample(&trace, rows[r].interval_ms, &series, &e) == 0, "%s: %s", rows[r].text, e.text);
        for (size_t i = 0; i < series.count; i++)
            used += (size_t)snprintf(got + used, sizeof got - used, "%d+%d-%d ", series.points[i].count,
                                     series.points[i].arrivals, series.points[i].losses);
        assert_row_string(rows[r].text, got, rows[r].want);
        tm_series_deinit(&series);
        tm_trace_deinit(&trace);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct tm_trace trace;
    struct tm_series series;
    struct tm_error e = {0};
    tm_series_init(&series);
    trace_from("tidemill-trace 1\nend: 2d\n\n0 +5000\n", NULL, &trace);
    assert_int_equal(tm_series_sample(&trace, 60000, &series, &e), -TM_ELIMIT);
    assert_error_has(e, "at most 4096");
    assert_int_equal(tm_series_sample(&trace, 1, &series, &e), -TM_ELIMIT);
    assert_error_has(e, "longer interval");
    assert_int_equal(tm_series_sample(&trace, 0, &series, &e), -TM_EUSAGE);
    assert_null(series.points);
    tm_trace_deinit(&trace);
}

static int sample_once(const struct tm_trace *trace)
{
    struct tm_series series;
    tm_series_init(&series);
    int rc = tm_series_sample(trace, 60000, &series, NULL);
    tm_series_deinit(&series);
    return rc;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct tm_trace trace;
    trace_from("tidemill-trace 1\nend: 180s\n\n0 +4\n60 -1\n", NULL, &trace);
    TM_FAIL_EACH_ALLOC(rc = sample_once(&trace));
    tm_trace_deinit(&trace);
}

TM_TEST_MAIN(TM_TEST(test_points), TM_TEST(test_limits), TM_TEST(test_out_of_memory))
