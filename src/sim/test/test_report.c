#include "sim/report.h"

#include "sim/test/report_helpers.h"

/* ---- a report of runs made by hand ---- */

enum { RUNS = 4 };

struct bench {
    struct test_run tests[RUNS];
    struct tm_report_run runs[RUNS];
    struct tm_report report;
};

static void make_bench(struct bench *bench, size_t intervals)
{
    static const char *const policies[RUNS] = {"reactive", "tidemill", "on-demand", "ideal"};
    memset(bench, 0, sizeof *bench);
    for (size_t i = 0; i < RUNS; i++) {
        make_run(&bench->tests[i], intervals, 7 + i);
        bench->runs[i] = (struct tm_report_run){.policy = policies[i],
                                                .trace = "trace-of-test",
                                                .model = "model-of-test",
                                                .result = &bench->tests[i].result,
                                                .log = &bench->tests[i].log,
                                                .fraction_of_ideal = 0.5};
    }
    bench->report =
        (struct tm_report){.title = "A test", .command = "tidemill simulate", .runs = bench->runs, .run_count = RUNS};
}

static void free_bench(struct bench *bench)
{
    for (size_t i = 0; i < RUNS; i++)
        tm_sim_log_deinit(&bench->tests[i].log);
}

static void render(const struct tm_report *report, struct tm_text *out)
{
    struct tm_error e = {0};
    tm_text_init(out, TM_REPORT_BYTES_MAX);
    int rc = tm_report_html(report, out, &e);
    assert_row(rc == 0, "%s", e.text);
    assert_document(out);
}

/* ---- text ---- */

static void test_escape(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } rows[] = {
        {"plain", "plain"},
        {"<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;"},
        {"\xc3\x97 \xe2\x98\x85", "\xc3\x97 \xe2\x98\x85"},
        {"a\xff"
         "b\xc3",
         "a\xef\xbf\xbd"
         "b\xef\xbf\xbd"},
        {"\x1b[31m", "\xef\xbf\xbd[31m"},
        {"two\nlines", "two\nlines"},
        {"\xe2\x80\xae"
         "cod.exe",
         "\xef\xbf\xbd"
         "cod.exe"}, /* text that runs backwards */
        {"", ""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        tm_text_init(&out, 1000);
        tm_html_escape(&out, rows[i].in);
        assert_row_string(rows[i].in, tm_text_string(&out), rows[i].want);
        tm_text_deinit(&out);
    }
}

static void put_2(struct tm_text *out, double value)
{
    tm_html_number(out, value, 2);
}

static void put_share(struct tm_text *out, double value)
{
    tm_html_percent(out, value, 1, 1);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        void (*put)(struct tm_text *out, double value);
        double in;
        const char *want;
    } rows[] = {
        {put_2, 0, "0.00"},
        {put_2, -0.001, "0.00"},
        {put_2, 1234567.891, "1,234,567.89"},
        {put_2, 123456, "123,456.00"},
        {put_2, 999, "999.00"},
        {put_2, -1234.5,
         "\xe2\x88\x92"
         "1,234.50"},
        {put_2, NAN, "\xe2\x80\x93"},
        {put_2, -INFINITY, "\xe2\x80\x93"},
        {put_2, 1e300, "1e+300"},
        {put_2, 999999999999999, "999,999,999,999,999.00"},
        {tm_html_short, 0, "0"},
        {tm_html_short, 1234567, "1,234,567"},
        {tm_html_short, 99.96, "100"},
        {tm_html_short, 12.34, "12.3"},
        {tm_html_short, 1.234, "1.23"},
        {tm_html_short, 0.1234, "0.123"},
        {tm_html_short, 0.01234, "0.0123"},
        {tm_html_short, NAN, "\xe2\x80\x93"},
        {tm_html_duration, 0, "0 s"},
        {tm_html_duration, 60, "60 s"},
        {tm_html_duration, 61.25, "61.2 s"},
        {tm_html_duration, 252, "4.2 min"},
        {tm_html_duration, 7200, "2 h"},
        {tm_html_duration, 90000, "25 h"},
        {tm_html_duration, 864000, "10 d"},
        {tm_html_duration, -1, "\xe2\x80\x93"},
        {tm_html_duration, NAN, "\xe2\x80\x93"},
        {tm_html_usd, 12.345, "$12.35"},
        {tm_html_usd, 0, "$0.00"},
        {tm_html_usd, 0.0123, "$0.0123"},
        {tm_html_usd, 12345.6, "$12,346"},
        {tm_html_usd, INFINITY, "\xe2\x80\x93"},
        {put_share, 0.12345, "12.3%"},
        {put_share, NAN, "\xe2\x80\x93"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        tm_text_init(&out, 1000);
        rows[i].put(&out, rows[i].in);
        assert_row(strcmp(tm_text_string(&out), rows[i].want) == 0, "row %zu, %g: got \"%s\", want \"%s\"", i,
                   rows[i].in, tm_text_string(&out), rows[i].want);
        tm_text_deinit(&out);
    }
}

/* Whatever the end, ticks are few, begin at 0, rise and stay within. */
static void test_axes(void **state)
{
    (void)state;
    static const double ends[] = {1e-308, 1e-9, 0.3, 1,   2.5, 7,    59,    60,       61,   3600, 7201,
                                  43200,  1e5,  1e6, 1e7, 1e9, 1e12, 1e300, INFINITY, -1.0, NAN,  0};
    for (size_t i = 0; i < TM_COUNT(ends); i++) {
        struct tm_html_axis axes[] = {tm_html_axis(ends[i], 3, false), tm_html_axis(ends[i], 3, true),
                                      tm_html_time_axis(ends[i])};
        for (size_t k = 0; k < TM_COUNT(axes); k++) {
            double ticks[TM_HTML_TICKS_MAX];
            size_t count = tm_html_ticks(&axes[k], ticks);
            assert_row(isfinite(axes[k].end) && axes[k].end > 0 && axes[k].step > 0, "axis %zu of %g", k, ends[i]);
            assert_row(count >= 1 && ticks[0] == 0, "axis %zu of %g: %zu ticks", k, ends[i], count);
            for (size_t t = 1; t < count; t++)
                assert_row(ticks[t] > ticks[t - 1] && ticks[t] <= axes[k].end * 1.0001, "tick %zu, axis %zu of %g", t,
                           k, ends[i]);
            if (k < 2 && tm_html_is_plain(ends[i]))
                assert_row(axes[k].end >= ends[i], "axis %zu of %g is short", k, ends[i]);
        }
    }
}

/* ---- who won ---- */

struct outcome {
    const char *policy;
    double samples, bill_usd, finished_at_s;
    bool deadline_met;
};

/* What the cards say of made-up outcomes. */
static void test_winner(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double deadline_s;
        struct outcome outcomes[4];
        const char *caption, *winner, *next;
    } rows[] = {
        {"samples decide among what can be run on spot",
         0,
         {{"reactive", 100, 5, NAN, false},
          {"tidemill", 150, 5, NAN, false},
          {"on-demand", 500, 9, NAN, false},
          {"oracle", 200, 5, NAN, false}},
         "Most samples on spot",
         "<b>tidemill</b>",
         "+50.0%</b><small>samples over reactive"},
        {"equals",
         0,
         {{"tidemill", 100, 5, NAN, false}, {"reactive", 100.0001, 5, NAN, false}, {"ideal", 200, 5, NAN, false}},
         "Most samples on spot",
         "<b>reactive</b>",
         "a tie</b><small>as many samples as tidemill"},
        {"a little more is more",
         0,
         {{"tidemill", 100.02, 5, NAN, false}, {"reactive", 100, 5, NAN, false}},
         "Most samples on spot",
         "<b>tidemill</b>",
         "+0.020%</b><small>samples over reactive"},
        {"on-demand alone", 0, {{"on-demand", 100, 5, NAN, false}}, "Most samples<", "<b>on-demand</b>", NULL},
        {"the bill decides where the job has an end",
         0,
         {{"reactive", 100, 5, 900, false}, {"tidemill", 100, 4, 1000, false}, {"on-demand", 100, 9, 800, false}},
         "Cheapest that finished",
         "<b>tidemill</b>",
         "20.0%</b><small>cost, against reactive"},
        {"cheap but late does not win",
         950,
         {{"reactive", 100, 5, 900, true}, {"tidemill", 100, 4, 1000, false}},
         "Cheapest in time",
         "<b>reactive</b>",
         "the only one</b><small>tidemill is late"},
        {"not finished does not win",
         0,
         {{"reactive", 90, 1, NAN, false}, {"tidemill", 100, 4, 1000, false}},
         "Cheapest that finished",
         "<b>tidemill</b>",
         "the only one</b><small>reactive does not finish"},
        {"only a bound finishes",
         0,
         {{"reactive", 90, 1, NAN, false}, {"ideal", 100, 4, 1000, false}},
         "Most samples; none finished",
         "<b>reactive</b>",
         NULL},
        {"all late", 10, {{"reactive", 90, 1, 50, false}}, "Cheapest that finished, all late", "<b>reactive</b>", NULL},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_sim_result results[4];
        struct tm_report_run runs[4];
        size_t count = 0;
        for (; count < 4 && rows[i].outcomes[count].policy != NULL; count++) {
            const struct outcome *o = &rows[i].outcomes[count];
            results[count] = (struct tm_sim_result){.samples = o->samples,
                                                    .bill_usd = o->bill_usd,
                                                    .finished_at_s = o->finished_at_s,
                                                    .deadline_met = o->deadline_met,
                                                    .wall_s = 3600};
            runs[count] = (struct tm_report_run){
                .policy = o->policy, .trace = "t", .model = "m", .result = &results[count], .fraction_of_ideal = NAN};
        }
        struct tm_report report = {
            .title = "t", .command = "c", .deadline_s = rows[i].deadline_s, .runs = runs, .run_count = count};
        struct tm_text out;
        render(&report, &out);
        const char *cards = strstr(body_of(&out), "<div class=cards>");
        assert_row(cards != NULL, "%s: no cards", rows[i].name);
        const char *card = strstr(cards, rows[i].caption);
        assert_row(card != NULL && card - cards < 60, "%s: %.200s", rows[i].name, cards);
        assert_row(strstr(card, rows[i].winner) != NULL && strstr(card, rows[i].winner) - card < 60, "%s: %.200s",
                   rows[i].name, card);
        if (rows[i].next != NULL) assert_row(strstr(card, rows[i].next) != NULL, "%s: %.400s", rows[i].name, card);
        assert_row(rows[i].next != NULL || strstr(card, "next best") == NULL, "%s: %.400s", rows[i].name, card);
        tm_text_deinit(&out);
    }
}

/* ---- the document ---- */

static size_t count_of(const char *text, const char *piece)
{
    size_t count = 0;
    for (const char *s = strstr(text, piece); s != NULL; s = strstr(s + 1, piece))
        count++;
    return count;
}

static void test_all_parts(void **state)
{
    (void)state;
    struct bench bench;
    make_bench(&bench, 60);
    double time_s[30], p10[30], p50[30], p90[30], truth[30];
    for (size_t i = 0; i < 30; i++) {
        time_s[i] = 60 * (double)(i + 12);
        p10[i] = 4, p50[i] = 6, p90[i] = 8;
        truth[i] = i < 24 ? 7 : 9; /* 80% within, off by 1 and by 3 */
    }
    struct tm_report_fan fan = {"trace-of-test", 60, 12, 30, time_s, p10, p50, p90, truth};
    bench.report.fans = &fan;
    bench.report.fan_count = 1;
    struct tm_text out;
    render(&bench.report, &out);
    const char *html = tm_text_string(&out);
    assert_int_equal(count_of(html, "<section class=strip>"), RUNS + 1);
    assert_int_equal(count_of(html, "<figure class=bars>"), 3);
    assert_int_equal(count_of(html, "class=\"lane nodes\""), RUNS);
    assert_int_equal(count_of(html, "class=\"lane rate\""), RUNS);
    assert_int_equal(count_of(html, "class=\"lane stall\""), RUNS);
    assert_int_equal(count_of(html, "href=\"#ideal0\""), RUNS - 1);
    assert_non_null(strstr(html, "<code>tidemill simulate</code>"));
    assert_non_null(strstr(html, "forecast 12 min ahead (12 intervals of 60 s)"));
    assert_non_null(strstr(html, "held the truth 80% of the time"));
    assert_non_null(strstr(html, "off by 1.40 instances"));
    assert_non_null(strstr(html, "What each policy does"));
    assert_null(strstr(html, "<h2>Overview:")); /* one group needs none */
    tm_text_deinit(&out);
    free_bench(&bench);
}

/* Nobody wins where nobody trained. */
static void test_nothing_trained(void **state)
{
    (void)state;
    struct tm_sim_result result = {.finished_at_s = NAN, .wall_s = 3600, .usd_per_million_samples = NAN};
    struct tm_report_run runs[] = {
        {.policy = "reactive", .trace = "t", .model = "m", .result = &result, .fraction_of_ideal = NAN},
        {.policy = "ideal", .trace = "t", .model = "m", .result = &result, .fraction_of_ideal = NAN}};
    struct tm_report report = {.title = "t", .command = "c", .runs = runs, .run_count = TM_COUNT(runs)};
    struct tm_text out;
    render(&report, &out);
    assert_null(strstr(tm_text_string(&out), "<div class=cards>"));
    assert_non_null(strstr(tm_text_string(&out), "Nothing was trained"));
    tm_text_deinit(&out);
}

static void test_groups(void **state)
{
    (void)state;
    struct bench bench;
    make_bench(&bench, 10);
    bench.runs[1].trace = bench.runs[3].trace = "another";
    bench.runs[3].model = "a-third";
    struct tm_text out;
    render(&bench.report, &out);
    assert_non_null(strstr(tm_text_string(&out), "<h2>Overview:"));
    assert_int_equal(count_of(tm_text_string(&out), "<article id=g"), 3);
    assert_int_equal(count_of(tm_text_string(&out), "href=\"#g2\""), 1);
    assert_int_equal(count_of(tm_text_string(&out), "<td>1 of 3</td>"), 2); /* reactive and tidemill, one group each */
    tm_text_deinit(&out);
    bench.runs[2].note = "seed <7>";
    render(&bench.report, &out);
    assert_int_equal(count_of(tm_text_string(&out), "<article id=g"), 4);
    assert_int_equal(count_of(tm_text_string(&out), "seed &lt;7&gt;"), 2); /* in the view of all, and above its group */
    tm_text_deinit(&out);
    free_bench(&bench);
}

static void test_hostile_names(void **state)
{
    (void)state;
    static const char hostile[] = "\"><script>alert('1')</script>&\xff\x01";
    struct bench bench;
    make_bench(&bench, 10);
    bench.report.title = bench.report.command = hostile;
    for (size_t i = 0; i < RUNS; i++)
        bench.runs[i].policy = bench.runs[i].trace = bench.runs[i].model = hostile;
    double zero = 0, one = 1;
    struct tm_report_fan fan = {hostile, 60, 12, 1, &zero, &zero, &one, &one, &one};
    bench.report.fans = &fan;
    bench.report.fan_count = 1;
    struct tm_text out;
    render(&bench.report, &out);
    assert_null(strstr(tm_text_string(&out), "alert('"));
    assert_int_equal(count_of(tm_text_string(&out), "<script>"), 1); /* ours */
    tm_text_deinit(&out);
    free_bench(&bench);
}

/* Numbers that are none, everywhere at once: a document all the same (render checks it). */
static void test_no_numbers(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY, -1, 1e308, 0};
    for (size_t k = 0; k < TM_COUNT(bad); k++) {
        struct bench bench;
        make_bench(&bench, 20);
        for (size_t i = 0; i < RUNS; i++) {
            struct tm_sim_result *r = &bench.tests[i].result;
            *r = (struct tm_sim_result){.samples = bad[k],
                                        .samples_per_s = bad[k],
                                        .pauses = {bad[k], bad[k], bad[k], bad[k]},
                                        .bill_usd = bad[k],
                                        .usd_per_million_samples = bad[k],
                                        .finished_at_s = bad[k],
                                        .wall_s = bad[k],
                                        .decision_us_mean = bad[k],
                                        .decision_us_max = bad[k],
                                        .instance_hours = bad[k]};
            bench.runs[i].fraction_of_ideal = bad[k];
            bench.tests[i].log.intervals[3].samples = bad[k];
            bench.tests[i].log.intervals[4].pause_s = bad[k];
            bench.tests[i].log.intervals[5].duration_s = bad[k];
            bench.tests[i].log.intervals[6].time_s = bad[k];
        }
        struct tm_report_fan fan = {"t", bad[k], 12, 1, &bad[k], &bad[k], &bad[k], &bad[k], &bad[k]};
        bench.report.fans = &fan;
        bench.report.fan_count = 1;
        bench.report.deadline_s = bad[k];
        struct tm_text out;
        render(&bench.report, &out);
        tm_text_deinit(&out);
        free_bench(&bench);
    }
}

static void test_empty(void **state)
{
    (void)state;
    struct tm_report report = {.title = "none", .command = "tidemill simulate"};
    struct tm_text out;
    render(&report, &out);
    tm_text_deinit(&out);
    struct bench bench;
    make_bench(&bench, 0);
    render(&bench.report, &out);
    assert_int_equal(count_of(tm_text_string(&out), "<section class=strip>"), 0);
    tm_text_deinit(&out);
    free_bench(&bench);
}

/* The longest log there can be, with another layout every minute. */
static void test_long_runs_stay_small(void **state)
{
    (void)state;
    struct bench bench;
    make_bench(&bench, TM_SIM_MOMENTS_MAX);
    struct tm_text out;
    render(&bench.report, &out);
    assert_row(out.length < 1 << 19, "%zu bytes", out.length);
    assert_non_null(strstr(tm_text_string(&out), "Drawn in slices of"));
    tm_text_deinit(&out);
    free_bench(&bench);
}

/* A sweep as large as a report takes, all of it changing all the time. */
static void test_many_runs_stay_small(void **state)
{
    (void)state;
    static struct tm_report_run runs[400];
    static char traces[50][16];
    struct test_run test;
    make_run(&test, 2000, 1);
    for (size_t i = 0; i < TM_COUNT(runs); i++) {
        snprintf(traces[i / 8], sizeof traces[0], "trace-%zu", i / 8);
        runs[i] = (struct tm_report_run){.policy = tm_policies[i % 8].name,
                                         .trace = traces[i / 8],
                                         .model = "m",
                                         .result = &test.result,
                                         .log = &test.log,
                                         .fraction_of_ideal = 0.9};
    }
    struct tm_report report = {.title = "t", .command = "c", .runs = runs, .run_count = TM_COUNT(runs)};
    struct tm_text out;
    render(&report, &out);
    assert_row(out.length < 5 << 19, "%zu bytes", out.length);
    assert_int_equal(count_of(tm_text_string(&out), "<section class=strip>"), TM_REPORT_TIMELINES_MAX);
    assert_non_null(strstr(tm_text_string(&out), "simulate fewer at once"));
    tm_text_deinit(&out);
    tm_sim_log_deinit(&test.log);
}

static void test_limits(void **state)
{
    (void)state;
    struct bench bench;
    make_bench(&bench, 60);
    struct tm_error e = {0};
    struct tm_text out;
    tm_text_init(&out, 10000);
    assert_int_equal(tm_report_html(&bench.report, &out, &e), -TM_ELIMIT);
    tm_text_deinit(&out);
    bench.report.run_count = TM_REPORT_RUNS_MAX + 1;
    tm_text_init(&out, TM_REPORT_BYTES_MAX);
    assert_int_equal(tm_report_html(&bench.report, &out, &e), -TM_ELIMIT);
    assert_error_has(e, "simulate fewer at once");
    assert_int_equal(out.length, 0);
    tm_text_deinit(&out);
    free_bench(&bench);
}

static int render_once(const struct tm_report *report)
{
    struct tm_text out;
    tm_text_init(&out, TM_REPORT_BYTES_MAX);
    int rc = tm_report_html(report, &out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct bench bench;
    make_bench(&bench, 1000);
    TM_FAIL_EACH_ALLOC(rc = render_once(&bench.report));
    free_bench(&bench);
}

TM_TEST_MAIN(TM_TEST(test_escape), TM_TEST(test_numbers), TM_TEST(test_axes), TM_TEST(test_winner),
             TM_TEST(test_all_parts), TM_TEST(test_groups), TM_TEST(test_nothing_trained), TM_TEST(test_hostile_names),
             TM_TEST(test_no_numbers), TM_TEST(test_empty), TM_TEST(test_long_runs_stay_small),
             TM_TEST(test_many_runs_stay_small), TM_TEST(test_limits), TM_TEST(test_memory))
