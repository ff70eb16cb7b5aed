#include "market/trace_stats.h"

#include "market/test/market_helpers.h"

static void test_counting(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t min, max, loss_events, instances_lost, arrival_events, instances_arrived;
        double mean, outage_s, up_s, below_s, mtbf_s, burst;
    } rows[] = {
        /* nothing happens */
        {"end: 100s\n\n0 +4\n", 4, 4, 0, 0, 0, 0, 4, 0, 100, 0, (double)INFINITY, 0},
        {"end: 100s\n\n0 +0\n", 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, (double)INFINITY, 0},
        {"end: 100s\nnodes: 2\n\n0 +0\n", 0, 0, 0, 0, 0, 0, 0, 100, 0, 100, (double)INFINITY, 0},
        /* comings and goings; the first record is no arrival */
        {"end: 100s\n\n0 +4\n50 -3\n", 1, 4, 1, 3, 0, 0, 2.5, 0, 100, 50, 100, 3},
        {"end: 100s\n\n0 +4\n20 -3\n40 -1\n70 +2\n80 +1\n", 0, 4, 2, 4, 2, 3, 1.8, 30, 70, 80, 50, 2},
        /* one lost and replaced at once counts as both */
        {"end: 100s\n\n0 +4\n50 -1 +1\n", 4, 4, 1, 1, 1, 1, 4, 0, 100, 0, 100, 1},
        /* outages of 10 and 30 s */
        {"end: 100s\n\n0 +1\n10 -1\n20 +1\n60 -1\n90 +1\n", 0, 1, 2, 2, 2, 2, 0.6, 30, 60, 40, 50, 1},
        {"end: 100s\n\n0 +0\n25 +1\n60 -1\n", 0, 1, 1, 1, 1, 1, 0.35, 40, 35, 65, 100, 1},
        /* before the first record nothing is known: the mean is over the 80 s behind it, the length is 100 s */
        {"begin: 20s\nend: 100s\n\n20 +2\n60 -2\n", 0, 2, 1, 2, 0, 0, 1, 40, 40, 40, 100, 2},
        /* no length at all */
        {"end: 0s\n\n0 +3\n", 3, 3, 0, 0, 0, 0, 3, 0, 0, 0, (double)INFINITY, 0},
        {"end: 100s\n\n0 +3\n100 -1\n", 2, 3, 1, 1, 0, 0, 3, 0, 100, 0, 100, 1},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[200];
        struct tm_trace trace;
        (void)snprintf(text, sizeof text, "tidemill-trace 1\n%s", rows[i].text);
        trace_from(text, NULL, &trace);
        struct tm_trace_stats s = tm_trace_stats(&trace);
        assert_row(s.min == rows[i].min && s.max == rows[i].max, "row %zu: %d..%d", i, (int)s.min, (int)s.max);
        assert_row(s.loss_events == rows[i].loss_events && s.instances_lost == rows[i].instances_lost,
                   "row %zu: losses", i);
        assert_row(s.arrival_events == rows[i].arrival_events && s.instances_arrived == rows[i].instances_arrived,
                   "row %zu: arrivals", i);
        assert_row(near(s.mean_available, rows[i].mean, 1e-12), "row %zu: mean %g", i, s.mean_available);
        assert_row(s.longest_outage_s == rows[i].outage_s, "row %zu: outage %g", i, s.longest_outage_s);
        assert_row(s.time_up_s == rows[i].up_s, "row %zu: up %g", i, s.time_up_s);
        assert_row(s.time_below_max_s == rows[i].below_s, "row %zu: below %g", i, s.time_below_max_s);
        assert_row(s.mean_time_between_losses_s == rows[i].mtbf_s, "row %zu: mtbf", i);
        assert_row(s.mean_burst == rows[i].burst, "row %zu: burst %g", i, s.mean_burst);
        assert_row(!s.has_price, "row %zu: has a price", i);
        tm_trace_deinit(&trace);
    }
}

static void test_availability(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double want;
    } rows[] = {
        {"end: 100s\nnodes: 8\n\n0 +4\n50 -2\n", 0.375}, /* mean / instances */
        {"end: 100s\n\n0 +4\n50 -2\n", 0.75},
        {"end: 100s\npolls: 8 5\n\n0 +4\n50 -2\n", 0.625}, /* polls found it so, whatever the time between */
        {"end: 100s\n\n0 +0\n", 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[200];
        struct tm_trace trace;
        (void)snprintf(text, sizeof text, "tidemill-trace 1\n%s", rows[i].text);
        trace_from(text, NULL, &trace);
        double got = tm_trace_stats(&trace).availability;
        assert_row(near(got, rows[i].want, 1e-12), "row %zu: got %g", i, got);
        tm_trace_deinit(&trace);
    }
}

static void test_prices(void **state)
{
    (void)state;
    static const struct {
        const char *events;
        bool has;
        double mean;
    } rows[] = {
        {"0 +1 $0.5\n", true, 0.5},
        {"0 +1 $0.5\n50 $1.5\n", true, 1},
        {"0 +1\n60 $2\n80 $3\n", true, 2.5}, /* over the time with a price */
        {"0 +1 $2\n25 -1\n50 +1\n75 $6\n", true, 3},
        {"0 +1\n100 $2\n", false, 0},
        {"0 +1 $0\n", true, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[200];
        struct tm_trace trace;
        (void)snprintf(text, sizeof text, "tidemill-trace 1\nend: 100s\n\n%s", rows[i].events);
        trace_from(text, NULL, &trace);
        struct tm_trace_stats s = tm_trace_stats(&trace);
        assert_row(s.has_price == rows[i].has, "row %zu: has a price: %d", i, s.has_price);
        assert_row(near(s.mean_price_usd_h, rows[i].mean, 1e-12), "row %zu: got %g", i, s.mean_price_usd_h);
        tm_trace_deinit(&trace);
    }
}

static void test_of_nothing(void **state)
{
    (void)state;
    struct tm_trace trace;
    tm_trace_init(&trace);
    struct tm_trace_stats s = tm_trace_stats(&trace);
    assert_int_equal(s.max, 0);
    assert_int_equal(s.loss_events, 0);
    assert_true(s.mean_available == 0 && s.availability == 0 && s.duration_s == 0);
}

TM_TEST_MAIN(TM_TEST(test_counting), TM_TEST(test_availability), TM_TEST(test_prices), TM_TEST(test_of_nothing))
