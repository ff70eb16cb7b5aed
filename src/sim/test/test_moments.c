/* Moments: ticks and events of a trace in order of time, and how far a look-ahead sees. */
#include "sim/moments.h"

#include "base/test/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void trace_of(const char *text, struct tm_trace *trace)
{
    struct tm_error e = {0};
    tm_trace_init(trace);
    int rc = tm_trace_parse("t", text, strlen(text), "tidemill", trace, &e);
    assert_row(rc == 0, "\"%s\": %s", text, e.text);
}

/* "0t+4(60) 60t-1=3(30) 90e+1=4(30)": time, t for a tick, e for an event, the change and the count where it changed,
 * the duration; | where the time of the job ends and look-ahead begins. */
static void show(const struct tm_moments *m, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < m->known && used < size; i++) {
        const struct tm_moment *at = &m->list[i];
        const struct tm_ahead *ahead = &m->ahead[i];
        used += (size_t)snprintf(out + used, size - used, "%s%s%g%s%s", i > 0 ? " " : "", i == m->count ? "| " : "",
                                 at->time_s, at->tick ? "t" : "", at->event ? "e" : "");
        if (ahead->lost > 0 && used < size) used += (size_t)snprintf(out + used, size - used, "-%d", ahead->lost);
        if (at->arrived > 0 && used < size) used += (size_t)snprintf(out + used, size - used, "+%d", at->arrived);
        if (at->event && used < size) used += (size_t)snprintf(out + used, size - used, "=%d", ahead->after);
        if (used < size) used += (size_t)snprintf(out + used, size - used, "(%g)", ahead->duration_s);
        assert_row(ahead->before - ahead->lost + (i > 0 ? at->arrived : ahead->after) == ahead->after,
                   "moment %zu: %d - %d + %d is not %d", i, ahead->before, ahead->lost, at->arrived, ahead->after);
        assert_row(i == 0 || ahead->before == m->ahead[i - 1].after, "moment %zu does not follow", i);
    }
    assert_row(used < size, "too much to show");
}

#define HEAD "tidemill-trace 1\n"

static void test_moments_of_traces(void **state)
{
    (void)state;
    static const struct {
        const char *name, *trace;
        int from_s, to_s, interval_s, beyond;
        const char *want;
    } rows[] = {
        {"on the grid", HEAD "end: 180s\n\n0 +4\n60 -1\n120 +2\n", 0, 180, 60, 2,
         "0te+4=4(60) 60te-1=3(60) 120te+2=5(60)"},
        {"off the grid", HEAD "end: 120s\n\n0 +4\n45 -1\n90 +2\n", 0, 120, 60, 0,
         "0te+4=4(45) 45e-1=3(15) 60t(30) 90e+2=5(30)"},
        {"nothing happens", HEAD "end: 180s\n\n0 +4\n", 0, 180, 60, 0, "0te+4=4(60) 60t(60) 120t(60)"},
        {"partial last interval", HEAD "end: 100s\n\n0 +4\n", 0, 100, 60, 3, "0te+4=4(60) 60t(40)"},
        {"no instances at first", HEAD "end: 120s\n\n0 +0\n70 +3\n", 0, 120, 60, 0, "0te=0(60) 60t(10) 70e+3=3(50)"},
        {"from the middle", HEAD "end: 240s\n\n0 +4\n60 -1\n150 +2\n", 90, 240, 60, 0,
         "0te+3=3(60) 60te+2=5(60) 120t(30)"},
        {"an event where it starts", HEAD "end: 180s\n\n0 +4\n60 -1\n", 60, 180, 60, 0, "0te+3=3(60) 60t(60)"},
        {"an event where it ends", HEAD "end: 180s\n\n0 +4\n120 -1\n", 0, 120, 60, 0, "0te+4=4(60) 60t(60)"},
        {"beyond the end", HEAD "end: 300s\n\n0 +4\n120 -1\n170 +1\n", 0, 120, 60, 2,
         "0te+4=4(60) 60t(60) | 120te-1=3(50) 170e+1=4(10) 180t(60)"},
        {"beyond, as far as the trace goes", HEAD "end: 150s\n\n0 +4\n", 0, 120, 60, 12,
         "0te+4=4(60) 60t(60) | 120t(30)"},
        {"an end between two ticks", HEAD "end: 300s\n\n0 +4\n", 0, 90, 60, 1, "0te+4=4(60) 60t(30) | 120t(30)"},
        {"loss and arrival at once", HEAD "end: 120s\n\n0 +4\n60 -2 +3\n", 0, 120, 60, 0, "0te+4=4(60) 60te-2+3=5(60)"},
        {"all go", HEAD "end: 120s\n\n0 +4\n60 -4\n", 0, 120, 60, 0, "0te+4=4(60) 60te-4=0(60)"},
        {"an event at the very end holds an interval", HEAD "end: 120s\n\n0 +4\n120 -1\n", 0, 180, 60, 0,
         "0te+4=4(60) 60t(60) 120te-1=3(60)"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_trace trace;
        struct tm_moments moments;
        struct tm_error e = {0};
        char got[512];
        trace_of(rows[i].trace, &trace);
        int rc = tm_moments__init(&moments, &trace, rows[i].from_s * 1000, rows[i].to_s * 1000,
                                  rows[i].interval_s * 1000, rows[i].beyond, &e);
        assert_row(rc == 0, "%s: %s", rows[i].name, e.text);
        show(&moments, got, sizeof got);
        assert_row_string(rows[i].name, got, rows[i].want);
        double sum = 0;
        for (size_t k = 0; k < moments.count; k++)
            sum += moments.ahead[k].duration_s;
        assert_row(fabs(sum - (rows[i].to_s - rows[i].from_s)) < 1e-9, "%s: %g s in all", rows[i].name, sum);
        tm_moments__deinit(&moments);
        tm_trace_deinit(&trace);
    }
}

/* A price holds until the next one. */
static void test_prices(void **state)
{
    (void)state;
    struct tm_trace trace;
    struct tm_moments moments;
    struct tm_error e = {0};
    double price;
    trace_of(HEAD "end: 240s\n\n0 +4\n60 $0.5\n100 -1 $0.7\n", &trace);
    assert_int_equal(tm_moments__init(&moments, &trace, 0, 240000, 60000, 0, &e), 0);
    static const double want[] = {NAN, 0.5, 0.7, 0.7, 0.7}; /* at 0, 60, 100, 120, 180 s */
    assert_int_equal(moments.count, TM_COUNT(want));
    for (size_t i = 0; i < TM_COUNT(want); i++)
        assert_row(isnan(want[i]) ? isnan(moments.list[i].price_usd_h) : moments.list[i].price_usd_h == want[i],
                   "moment %zu: $%g", i, moments.list[i].price_usd_h);
    assert_false(moments.list[1].event); /* a price alone changes no fleet */
    assert_int_equal(tm_moments_count_at(&trace, 99999, &price), 4);
    assert_true(price == 0.5);
    assert_int_equal(tm_moments_count_at(&trace, 100000, &price), 3);
    assert_true(price == 0.7);
    assert_int_equal(tm_moments_count_at(&trace, 0, NULL), 4);
    tm_moments__deinit(&moments);
    tm_trace_deinit(&trace);
}

static void test_limits(void **state)
{
    (void)state;
    struct tm_trace trace;
    struct tm_moments moments;
    struct tm_error e = {0};
    trace_of(HEAD "end: 300000s\n\n0 +4\n", &trace);
    assert_int_equal(tm_moments__init(&moments, &trace, 0, 300000000, 1000, 0, &e), -TM_ELIMIT);
    assert_error_has(e, "--interval");
    assert_null(moments.list);
    TM_FAIL_EACH_ALLOC({
        rc = tm_moments__init(&moments, &trace, 0, 30000000, 60000, 3, &e);
        tm_moments__deinit(&moments);
    });
    tm_trace_deinit(&trace);
}

TM_TEST_MAIN(TM_TEST(test_moments_of_traces), TM_TEST(test_prices), TM_TEST(test_limits))
