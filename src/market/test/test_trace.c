#include "market/trace.h"

#include "base/env_virtual.h"
#include "market/test/market_helpers.h"

static void test_adding_and_merging(void **state)
{
    (void)state;
    struct tm_trace trace;
    struct tm_error e = {0};
    char shown[200];
    tm_trace_init(&trace);
    assert_int_equal(tm_trace_add(&trace, 0, 4, 0, NAN, &e), 0);
    assert_int_equal(tm_trace_add(&trace, 60000, 0, 2, 0.5, &e), 0);
    assert_int_equal(tm_trace_add(&trace, 60000, 1, 0, NAN, &e), 0); /* merged; the price stays */
    assert_int_equal(tm_trace_add(&trace, 60000, 0, 0, 0.75, &e), 0);
    assert_int_equal(tm_trace_add(&trace, 61500, 0, 0, 0, &e), 0); /* for free */
    assert_int_equal(trace.event_count, 3);
    assert_string_equal(show_trace(&trace, shown, sizeof shown), "0+4 60-2+1$0.75 61.5$0 end 0");
    tm_trace_deinit(&trace);
    tm_trace_deinit(&trace);
}

static void test_what_cannot_be_added(void **state)
{
    (void)state;
    static const struct {
        int64_t time_ms, in, out;
        double price;
        int rc;
        const char *words;
    } rows[] = {
        {999, 1, 0, NAN, -TM_EINPUT, "time goes back from 1.000 s to 0.999 s"},
        {-1, 1, 0, NAN, -TM_EINPUT, "before the start of the trace"},
        {2000, -1, 0, NAN, -TM_EINPUT, "from 0 to 1000000, got -1"},
        {2000, 0, -7, NAN, -TM_EINPUT, "got -7"},
        {2000, 1000001, 0, NAN, -TM_EINPUT, "got 1000001"},
        {2000, 0, INT64_MAX, NAN, -TM_EINPUT, "got 9223372036854775807"},
        {2000, 1, 0, -0.5, -TM_EINPUT, "price of 0 or more, got -0.5"},
        {2000, 1, 0, (double)INFINITY, -TM_EINPUT, "price of 0 or more, got inf"},
        {1000, 1000000, 0, NAN, -TM_ELIMIT, "more than 1000000 instances"},
        {1000, 0, 1000000, NAN, -TM_ELIMIT, "more than 1000000 instances"},
    };
    struct tm_trace trace;
    tm_trace_init(&trace);
    assert_int_equal(tm_trace_add(&trace, 1000, 1, 1, NAN, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        int rc = tm_trace_add(&trace, rows[i].time_ms, rows[i].in, rows[i].out, rows[i].price, &e);
        assert_row(rc == rows[i].rc, "row %zu: got %d", i, rc);
        assert_row(strstr(e.text, rows[i].words) != NULL, "row %zu: \"%s\"", i, e.text);
        assert_row(trace.event_count == 1, "row %zu was added", i);
        assert_row(trace.events[0].in == 1 && trace.events[0].out == 1, "row %zu was merged", i);
    }
    tm_trace_deinit(&trace);
}

static void test_the_limit_of_events(void **state)
{
    (void)state;
    struct tm_trace trace;
    struct tm_error e = {0};
    tm_trace_init(&trace);
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < TM_TRACE_EVENTS_MAX; i++)
        rc = tm_trace_add(&trace, i, 1, 1, NAN, &e);
    assert_int_equal(rc, 0);
    assert_int_equal(tm_trace_add(&trace, TM_TRACE_EVENTS_MAX - 1, 1, 0, NAN, &e), 0); /* merged: takes no room */
    assert_int_equal(tm_trace_add(&trace, TM_TRACE_EVENTS_MAX, 1, 0, NAN, &e), -TM_ELIMIT);
    assert_error_has(e, "trace has more than 4194304 events");
    assert_int_equal(trace.event_count, TM_TRACE_EVENTS_MAX);
    tm_trace_deinit(&trace);
}

static const char sample[] = "tidemill-trace 1\ninstance: p3.2xlarge\nzone: us-east-2a\nsource: made up\n"
                             "start: 2023-08-03T00:00:00Z\ninterval: 60s\nbegin: 60s\nend: 600s\nnodes: 8\n"
                             "polls: 10 7\n\n60 +4 $0.5\n120 -1\n300 +2 -1 $0.75\n480 -4\n";

static void test_cutting(void **state)
{
    (void)state;
    static const struct {
        int64_t from_s, to_s;
        const char *want;
        int64_t begin_s;
    } rows[] = {
        {0, 600, "60+4$0.5 120-1 300-1+2$0.75 480-4 end 600", 60},
        {60, 600, "0+4$0.5 60-1 240-1+2$0.75 420-4 end 540", 0},
        {90, 600, "0+4$0.5 30-1 210-1+2$0.75 390-4 end 510", 0},
        {30, 130, "30+4$0.5 90-1 end 100", 30},
        {120, 300, "0+3$0.5 end 180", 0}, /* the event at the end belongs to the next part */
        {300, 301, "0+4$0.75 end 1", 0},
        {500, 600, "0$0.75 end 100", 0}, /* nobody there, but that is known */
    };
    struct tm_trace trace;
    struct tm_trace part;
    char shown[200];
    trace_from(sample, NULL, &trace);
    tm_trace_init(&part);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        int rc = tm_trace_cut(&trace, rows[i].from_s * 1000, rows[i].to_s * 1000, &part, &e);
        assert_row(rc == 0, "row %zu: %s", i, e.text);
        show_trace(&part, shown, sizeof shown);
        assert_row(strcmp(shown, rows[i].want) == 0, "row %zu: got \"%s\", want \"%s\"", i, shown, rows[i].want);
        assert_row(part.begin_ms == rows[i].begin_s * 1000, "row %zu: begins at %lld", i, (long long)part.begin_ms);
        assert_row(part.start_utc_ms == trace.start_utc_ms + rows[i].from_s * 1000, "row %zu: wrong start", i);
        assert_row(part.polls == 0 && part.polls_running == 0, "row %zu: polls of the whole", i);
        assert_row(strcmp(part.zone, "us-east-2a") == 0 && part.instances_max == 8, "row %zu: lost what it is", i);
        check_round_trip("a part", &part);
    }
    assert_int_equal(trace.event_count, 4);
    tm_trace_deinit(&part);
    tm_trace_deinit(&trace);
}

static void test_what_cannot_be_cut(void **state)
{
    (void)state;
    static const struct {
        int64_t from_ms, to_ms;
        const char *words;
    } rows[] = {
        {-1, 1000, "the part must be within the trace, from 0 s to 600 s,"},
        {1000, 1000, "the part must be within the trace,"},
        {2000, 1000, "the part must be within the trace,"},
        {0, 600001, "the part must be within the trace, from 0 s to 600 s,"},
        {600000, 600001, "the part must be within the trace,"},
        {0, 60000, "first record, at 60.000 s, comes after that part"},
    };
    struct tm_trace trace;
    struct tm_trace part;
    trace_from(sample, NULL, &trace);
    trace_from("0,7\n10,8\n", "csv-counts-s", &part);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        int rc = tm_trace_cut(&trace, rows[i].from_ms, rows[i].to_ms, &part, &e);
        assert_row(rc == -TM_EUSAGE, "row %zu: got %d", i, rc);
        assert_row(strstr(e.text, rows[i].words) != NULL, "row %zu: \"%s\"", i, e.text);
        assert_row(part.event_count == 2 && part.instances_max == 8, "row %zu: touched its output", i);
    }
    tm_trace_deinit(&part);
    tm_trace_deinit(&trace);
}

static void test_copying(void **state)
{
    (void)state;
    struct tm_trace trace;
    struct tm_trace copy;
    struct tm_error e = {0};
    trace_from(sample, NULL, &trace);
    trace_from("0,1\n", "csv-counts-s", &copy); /* what was there is freed */
    assert_int_equal(tm_trace_copy(&trace, &copy, &e), 0);
    assert_true(tm_trace__equals(&trace, &copy));
    assert_ptr_not_equal(trace.events, copy.events);
    assert_int_equal(tm_trace_add(&copy, 700000, 1, 0, NAN, &e), 0);
    assert_int_equal(trace.event_count, 4);
    assert_false(tm_trace__equals(&trace, &copy));
    struct tm_trace empty;
    tm_trace_init(&empty);
    assert_int_equal(tm_trace_copy(&empty, &copy, &e), 0);
    assert_int_equal(copy.event_count, 0);
    assert_true(tm_trace__equals(&empty, &copy));
    tm_trace_deinit(&copy);
    tm_trace_deinit(&trace);
}

/* Changes one thing after the other: each must be seen. */
static void change(struct tm_trace *trace, size_t what)
{
    int64_t *numbers[] = {&trace->start_utc_ms,  &trace->interval_ms, &trace->begin_ms,      &trace->end_ms,
                          &trace->instances_max, &trace->polls,       &trace->polls_running, &trace->events[1].time_ms};
    char *texts[] = {trace->instance, trace->zone, trace->source};
    if (what < 8)
        ++*numbers[what];
    else if (what < 11)
        texts[what - 8][0] = 'X';
    else if (what == 11)
        trace->events[2].in++;
    else if (what == 12)
        trace->events[2].out++;
    else if (what == 13)
        trace->events[2].price_usd_h = NAN;
    else if (what == 14)
        trace->has_start = false;
    else
        trace->event_count--;
}

static void test_equality_sees_every_change(void **state)
{
    (void)state;
    struct tm_trace trace;
    struct tm_trace other;
    trace_from(sample, NULL, &trace);
    tm_trace_init(&other);
    for (size_t what = 0; what < 16; what++) {
        assert_int_equal(tm_trace_copy(&trace, &other, NULL), 0);
        assert_row(tm_trace__equals(&trace, &other), "copy %zu differs", what);
        change(&other, what);
        assert_row(!tm_trace__equals(&trace, &other) && !tm_trace__equals(&other, &trace), "change %zu not seen", what);
    }
    assert_int_equal(tm_trace_copy(&trace, &other, NULL), 0);
    (void)snprintf(other.format, sizeof other.format, "log"); /* printing does not keep these two */
    other.warnings[TM_TRACE_UNIT_GUESSED].count = 1;
    assert_true(tm_trace__equals(&trace, &other));
    tm_trace_deinit(&other);
    tm_trace_deinit(&trace);
}

static void test_warnings_have_names(void **state)
{
    (void)state;
    static const char *const names[] = {"times-go-back", "never-available", "unit-guessed", "irregular-probes"};
    assert_int_equal(TM_COUNT(names), TM_TRACE_WARNING_COUNT);
    for (size_t i = 0; i < TM_COUNT(names); i++) {
        assert_string_equal(tm_trace_warning_name((enum tm_trace_warning)i), names[i]);
        assert_row(strlen(tm_trace_warning_meaning((enum tm_trace_warning)i)) > 20, "%s: no meaning", names[i]);
    }
}

static void test_loading(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *format;
        int rc;
        const char *words; /* the format read, or of the error */
    } rows[] = {
        {"/t/a.csv", NULL, 0, "csv-counts-s"},
        {"/t/a.csv", "csv-counts-h", 0, "csv-counts-h"},
        {"-", NULL, 0, "tidemill"},
        {"hadp", NULL, 0, "tidemill"},
        {"LaSp", NULL, 0, "tidemill"},
        {"hasp", NULL, 0, "csv-counts-s"}, /* a file goes before a shipped trace */
        {"hapd", NULL, -TM_ENOTFOUND, "hapd: no such file; did you mean the shipped trace \"hadp\"?"},
        {"/t/none.csv", NULL, -TM_ENOTFOUND, "/t/none.csv: no such file, and no shipped trace of that name (hadp, "},
        {"/t/a.csv", "csv-count", -TM_EUSAGE, "unknown trace format \"csv-count\"; did you mean \"csv-counts\"?"},
        {"/t/a.csv", "zzzzzz", -TM_EUSAGE, "unknown trace format \"zzzzzz\"; see tidemill-trace(5)"},
        {"/t/empty", NULL, -TM_EINPUT, "/t/empty: file is empty"},
        {"/t/bom", NULL, -TM_EINPUT, "/t/bom: file is empty"},
        {"/t/binary", NULL, -TM_EINPUT, "/t/binary: binary data"},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(env->file_write(env, "/t/a.csv", "0,4\n61,5\n", 9, NULL), 0);
    assert_int_equal(env->file_write(env, "hasp", "0,4\n61,5\n", 9, NULL), 0);
    assert_int_equal(env->file_write(env, "/dev/stdin", sample, sizeof sample - 1, NULL), 0);
    assert_int_equal(env->file_write(env, "/t/empty", " \n", 2, NULL), 0);
    assert_int_equal(env->file_write(env, "/t/bom", "\xEF\xBB\xBF", 3, NULL), 0);
    assert_int_equal(env->file_write(env, "/t/binary", "0,4\0\n", 5, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_trace trace;
        struct tm_error e = {0};
        tm_trace_init(&trace);
        int rc = tm_trace_load(env, rows[i].path, rows[i].format, &trace, &e);
        assert_row(rc == rows[i].rc, "%s: got %d: %s", rows[i].path, rc, e.text);
        const char *got = rc == 0 ? trace.format : e.text;
        assert_row(strstr(got, rows[i].words) != NULL, "%s: got \"%s\"", rows[i].path, got);
        assert_row(rc == 0 || trace.event_count == 0, "%s: filled on failure", rows[i].path);
        tm_trace_deinit(&trace);
    }
    tm_env_virtual_destroy(env);
}

static int all_once(struct tm_env *env)
{
    struct tm_trace trace;
    struct tm_trace part;
    tm_trace_init(&trace);
    tm_trace_init(&part);
    int rc = tm_trace_load(env, "hadp", NULL, &trace, NULL);
    if (rc == 0) rc = tm_trace_cut(&trace, 600000, 1200000, &part, NULL);
    if (rc == 0) rc = tm_trace_copy(&part, &trace, NULL);
    tm_trace_deinit(&part);
    tm_trace_deinit(&trace);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    TM_FAIL_EACH_ALLOC(rc = all_once(env));
    tm_env_virtual_destroy(env);
}

/* Instances of three workers, seen as their workers: the same money, and they go together. */
static void test_multiplying(void **state)
{
    (void)state;
    struct tm_trace trace;
    struct tm_error e;
    tm_trace_init(&trace);
    trace.instances_max = 4;
    assert_int_equal(tm_trace_add(&trace, 0, 4, 0, 0.9, &e), 0);
    assert_int_equal(tm_trace_add(&trace, 1000, 0, 1, NAN, &e), 0);
    assert_int_equal(tm_trace_multiply(&trace, 3, &e), 0);
    assert_int_equal(trace.instances_max, 12);
    assert_int_equal(trace.events[0].in, 12);
    assert_true(fabs(trace.events[0].price_usd_h - 0.3) < 1e-12);
    assert_int_equal(trace.events[1].out, 3);
    assert_true(isnan(trace.events[1].price_usd_h));
    assert_int_equal(tm_trace_multiply(&trace, TM_TRACE_INSTANCES_MAX, &e), -TM_ELIMIT);
    assert_int_equal(trace.events[1].out, 3);
    tm_trace_deinit(&trace);
}

TM_TEST_MAIN(TM_TEST(test_multiplying), TM_TEST(test_adding_and_merging), TM_TEST(test_what_cannot_be_added),
             TM_TEST(test_the_limit_of_events), TM_TEST(test_cutting), TM_TEST(test_what_cannot_be_cut),
             TM_TEST(test_copying), TM_TEST(test_equality_sees_every_change), TM_TEST(test_warnings_have_names),
             TM_TEST(test_loading), TM_TEST(test_without_memory))
