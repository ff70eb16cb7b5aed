/* Our own text form: what it can say, what it refuses, and that nothing is lost on the way out and in. */
#include "market/test/market_helpers.h"
#include "market/trace_generate.h"

static void test_what_it_can_say(void **state)
{
    (void)state;
    struct tm_trace trace;
    char shown[200];
    trace_from("tidemill-trace 1\n# words\ninstance:  p3.2xlarge \nzone: us-east-2a\nsource: a: b, \xC3\xA9\n"
               "start: 2023-08-03T00:00:00.250Z\ninterval: 5m\nbegin: 1.5s\nend: 1h30m\nnodes: 8\npolls: 10 0\n\n"
               "1.5 +4\n# more words\n\n1500.001 -3 $0.918\n1800 $0 +2 -1\n",
               NULL, &trace);
    assert_string_equal(trace.instance, "p3.2xlarge");
    assert_string_equal(trace.zone, "us-east-2a");
    assert_string_equal(trace.source, "a: b, \xC3\xA9");
    assert_true(trace.has_start);
    assert_int_equal(trace.start_utc_ms, 1691020800250);
    assert_int_equal(trace.interval_ms, 300000);
    assert_int_equal(trace.begin_ms, 1500);
    assert_int_equal(trace.instances_max, 8);
    assert_int_equal(trace.polls, 10);
    assert_int_equal(trace.polls_running, 0);
    assert_int_equal(trace.events[1].time_ms, 1500001);
    assert_string_equal(show_trace(&trace, shown, sizeof shown), "1.5+4 1500-3$0.918 1800-1+2$0 end 5400");
    check_round_trip("all keys", &trace);
    tm_trace_deinit(&trace);
}

static void test_how_it_is_written(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tidemill-trace 1\nend: 0s\nnodes: 0\n\n0 +0\n",
        "tidemill-trace 1\nend: 1500ms\nnodes: 3\n\n0 +3\n1 $0.1\n1.050 -2\n1.500 +1 -1 $12.25\n",
        ("tidemill-trace 1\ninstance: a\nzone: b\nsource: c\nstart: 1969-12-31T23:59:59Z\ninterval: 60s\nbegin: "
         "60s\n"
         "end: 600s\nnodes: 9\npolls: 5 4\n\n60 +0\n120 +1\n"),
    };
    for (size_t i = 0; i < TM_COUNT(texts); i++) {
        struct tm_trace trace;
        struct tm_text out;
        trace_from(texts[i], NULL, &trace);
        tm_text_init(&out, 10000);
        tm_trace__print(&trace, &out);
        assert_row_string(texts[i], tm_text_string(&out), texts[i]);
        tm_text_deinit(&out);
        tm_trace_deinit(&trace);
    }
}

/* What a careless editor, another system or a half-written file may leave. */
static void test_forms_that_are_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tidemill-trace 1\nend: 60s\n\n0 +2\n30 -1\n",
        "tidemill-trace 1\r\nend: 60s\r\n\r\n0 +2\r\n30 -1\r\n",
        "\xEF\xBB\xBFtidemill-trace 1\nend: 60s\n\n0 +2\n30 -1\n",
        "tidemill-trace 1 \nend:\t1m\nnodes: 1\n\n\n  0\t+2\n30.000   -1",
        "tidemill-trace 1\nend:60000ms\nbegin: 0s\n\n0 +2 -0\n10 +0\n30 -1\n\n",
    };
    struct tm_trace first;
    trace_from(texts[0], NULL, &first);
    for (size_t i = 1; i < TM_COUNT(texts); i++) {
        struct tm_trace other;
        trace_from(texts[i], NULL, &other);
        assert_row(tm_trace__equals(&first, &other), "\"%s\": another trace", texts[i]);
        tm_trace_deinit(&other);
    }
    tm_trace_deinit(&first);
}

static void check_bad(const char *text, const char *words)
{
    struct tm_trace trace;
    struct tm_error e = {0};
    tm_trace_init(&trace);
    int rc = parse_exactly(text, "tidemill", &trace, &e);
    assert_row(rc == -TM_EINPUT, "\"%s\": got %d", text, rc);
    assert_row(strstr(e.text, words) != NULL, "\"%s\": \"%s\"", text, e.text);
    assert_row(trace.events == NULL, "\"%s\": touched its output", text);
}

static void test_bad_keys(void **state)
{
    (void)state;
    static const struct {
        const char *line; /* the third, behind the heading and an end */
        const char *words;
    } rows[] = {
        {"nodes 4", "t:3: expected KEY: VALUE, or an empty line before the events, got \"nodes 4\""},
        {"0 +4", "t:3: expected KEY: VALUE"},
        {"colour: red",
         "t:3: expected one of the keys instance, zone, source, start, interval, begin, end, nodes, polls"},
        {"Nodes: 4", "t:3: expected one of the keys"},
        {"end: 61s", "t:3: expected each key once, got \"end: 61s\""},
        {"nodes: many", "t:3: expected a number of instances"},
        {"nodes: -1", "t:3: expected a number of instances"},
        {"nodes: 1000001", "t:3: expected a number of instances"},
        {"interval: soon", "t:3: expected a duration such as 300s"},
        {"interval: -5s", "t:3: expected a duration"},
        {"begin: 5 apples", "t:3: expected a duration"},
        {"begin: 10s", "t: the first event is not at the time of \"begin\""},
        {"start: 2023-02-30T00:00:00Z", "t:3: expected a time such as 2023-08-03T00:00:00Z"},
        {"start:", "t:3: expected a time"},
        {"polls: 10", "t:3: expected polls: ALL RUNNING"},
        {"polls: 10 11", "t:3: expected polls: ALL RUNNING"},
        {"polls: 0 0", "t:3: expected polls: ALL RUNNING"},
        {"polls: 10 -1", "t:3: expected polls: ALL RUNNING"},
        {"polls: 10  9", "t:3: expected polls: ALL RUNNING"},
        {"zone: a\x01z", "t:3: expected text without control characters"},
        {"zone: 0123456789012345678901234567890123456789012345678901234567890123", "t:3: expected a shorter text"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[400];
        (void)snprintf(text, sizeof text, "tidemill-trace 1\nend: 60s\n%s\n\n0 +2\n30 -1\n", rows[i].line);
        check_bad(text, rows[i].words);
    }
}

static void test_bad_events(void **state)
{
    (void)state;
    static const struct {
        const char *line; /* the sixth, behind one event */
        const char *words;
    } rows[] = {
        {"30", "t:6: expected SECONDS [+IN] [-OUT] [$PRICE], for example 60 +2 -1 $0.918, got \"30\""},
        {"x +1", "t:6: expected SECONDS"},
        {"-30 +1", "t:6: expected SECONDS"},
        {"30s +1", "t:6: expected SECONDS"},
        {"1e1 +1", "t:6: expected SECONDS"},
        {"30 1", "t:6: expected SECONDS"},
        {"30 +", "t:6: expected SECONDS"},
        {"30 + 1", "t:6: expected SECONDS"},
        {"30 +-1", "t:6: expected SECONDS"},
        {"30 --1", "t:6: expected SECONDS"},
        {"30 +1.5", "t:6: expected SECONDS"},
        {"30 $", "t:6: expected SECONDS"},
        {"30 $nan", "t:6: expected SECONDS"},
        {"30 $inf", "t:6: expected SECONDS"},
        {"30 +1 # words", "t:6: expected SECONDS"},
        {"30 +1 +1", "t:6: expected SECONDS"},
        {"30 -1 +1 -1", "t:6: expected SECONDS"},
        {"30 $1 $2", "t:6: expected SECONDS"},
        {"30 $-1", "t:6: expected a price of 0 or more, got -1"},
        {"30 +1000001", "t:6: expected a number of instances from 0 to 1000000, got 1000001"},
        {"9999999999999999999 +1", "t:6: expected SECONDS"},
        {"5 +1", "t:6: time goes back from 10.000 s to 5.000 s"},
        {"10 +1", "t:6: expected one line for each time, got \"10 +1\""},
        {"61 +1", "t: an event comes after \"end\""},
        {"30 -3", "t: at 30.000 s more instances leave than there are"},
        {"30 +999999", "t: more than 1000000 instances"},
        {"zone: a", "t:6: expected SECONDS"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[400];
        (void)snprintf(text, sizeof text, "tidemill-trace 1\nend: 1m\nbegin: 10s\n\n10 +2\n%s\n", rows[i].line);
        check_bad(text, rows[i].words);
    }
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words;
    } rows[] = {
        {"tidemill-trace 2\nend: 60s\n\n0 +1\n", "t:1: expected tidemill-trace 1, got \"tidemill-trace 2\""},
        {"tidemill-trace\n", "t:1: expected tidemill-trace 1"},
        {"\ntidemill-trace 1\n", "t:1: expected tidemill-trace 1, got \"\""},
        {"tidemill-trace 1", "t: key \"end\" is missing"},
        {"tidemill-trace 1\nnodes: 4\n\n0 +4\n", "t: key \"end\" is missing"},
        {"tidemill-trace 1\nend: 60s\n", "t: no records in the trace"},
        {"tidemill-trace 1\nend: 60s\n\n# 0 +1\n", "t: no records in the trace"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        check_bad(rows[i].text, rows[i].words);
}

static void test_round_trip_of_made_up_traces(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct tm_trace_recipe recipe = {.seed = seed,
                                         .instances_max = 1 + (int64_t)seed * 3,
                                         .mean_available = 0.7 * (double)(1 + seed * 3),
                                         .mtbf_ms = 300000,
                                         .interval_ms = seed % 2 == 0 ? 0 : 60000,
                                         .duration_ms = 24 * 3600 * 1000 + (int64_t)seed};
        struct tm_trace trace;
        struct tm_error e = {0};
        char name[32];
        tm_trace_init(&trace);
        (void)snprintf(name, sizeof name, "seed %d", (int)seed);
        int rc = tm_trace_generate(&recipe, &trace, &e);
        assert_row(rc == 0, "%s: %s", name, e.text);
        check_round_trip(name, &trace);
        tm_trace_deinit(&trace);
    }
}

static void test_round_trip_of_odd_figures(void **state)
{
    (void)state;
    static const double prices[] = {0, 0.1, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, 0.918, 123456.789};
    static const int64_t times_ms[] = {0, 1, 999, 1000, 60001, 1LL << 40, (1LL << 52) + 1, INT64_MAX};
    struct tm_trace trace;
    tm_trace_init(&trace);
    for (size_t i = 0; i < TM_COUNT(prices); i++)
        assert_int_equal(tm_trace_add(&trace, times_ms[i], 2, 1, prices[i], NULL), 0);
    trace.end_ms = INT64_MAX;
    trace.interval_ms = 1;
    trace.instances_max = TM_TRACE_INSTANCES_MAX;
    check_round_trip("odd figures", &trace);
    tm_trace_deinit(&trace);
}

static int print_once(const struct tm_trace *trace)
{
    struct tm_text out;
    tm_text_init(&out, 10000);
    tm_trace__print(trace, &out);
    int rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    static const char text[] = "tidemill-trace 1\ninstance: a\nend: 600s\n\n0 +1 $0.5\n1 +1\n2 -1\n";
    struct tm_trace trace;
    trace_from(text, NULL, &trace);
    TM_FAIL_EACH_ALLOC(rc = parse_once(text, "tidemill"));
    TM_FAIL_EACH_ALLOC(rc = print_once(&trace));
    tm_trace_deinit(&trace);
}

TM_TEST_MAIN(TM_TEST(test_what_it_can_say), TM_TEST(test_how_it_is_written), TM_TEST(test_forms_that_are_the_same),
             TM_TEST(test_bad_keys), TM_TEST(test_bad_events), TM_TEST(test_bad_files),
             TM_TEST(test_round_trip_of_made_up_traces), TM_TEST(test_round_trip_of_odd_figures),
             TM_TEST(test_without_memory))
