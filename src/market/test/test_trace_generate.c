#include "market/trace_generate.h"

#include "base/env_virtual.h"
#include "market/test/market_helpers.h"
#include "market/trace_stats.h"

enum { HOUR_MS = 3600 * 1000, DAY_MS = 24 * HOUR_MS };

static void generate(const char *name, const struct tm_trace_recipe *recipe, struct tm_trace *trace)
{
    struct tm_error e = {0};
    tm_trace_init(trace);
    int rc = tm_trace_generate(recipe, trace, &e);
    assert_row(rc == 0, "%s: %s", name, e.text);
}

static void test_the_seed_decides(void **state)
{
    (void)state;
    struct tm_trace_recipe recipe = {
        .seed = 7, .instances_max = 16, .mean_available = 12, .mtbf_ms = 600000, .mean_burst = 2};
    struct tm_trace first;
    struct tm_trace same;
    struct tm_trace other;
    generate("first", &recipe, &first);
    generate("same", &recipe, &same);
    recipe.seed = 8;
    generate("other", &recipe, &other);
    assert_true(tm_trace__equals(&first, &same));
    assert_false(tm_trace__equals(&first, &other));
    assert_string_equal(first.source, "generated, seed 7");
    assert_string_equal(first.format, "generated");
    assert_int_equal(first.end_ms, DAY_MS);
    assert_int_equal(first.instances_max, 16);
    tm_trace_deinit(&first);
    tm_trace_deinit(&same);
    tm_trace_deinit(&other);
}

/* What any trace must hold, made up or not. */
static void check_sound(const char *name, const struct tm_trace *trace)
{
    int64_t count = 0;
    int64_t latest_ms = -1;
    int64_t grid_ms = trace->interval_ms > 0 ? trace->interval_ms : 1000;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        count += event->in - event->out;
        assert_row(event->time_ms > latest_ms && event->time_ms < trace->end_ms, "%s: event %zu: time", name, i);
        assert_row(event->time_ms % grid_ms == 0, "%s: event %zu: not on the grid", name, i);
        assert_row(count >= 0 && count <= trace->instances_max, "%s: event %zu: %d nodes", name, i, (int)count);
        assert_row(i == 0 || event->in > 0 || event->out > 0, "%s: event %zu: says nothing", name, i);
        latest_ms = event->time_ms;
    }
    assert_row(trace->begin_ms == 0 && trace->events[0].time_ms == 0, "%s: does not begin at 0", name);
    check_round_trip(name, trace);
}

static void check_figures(const char *name, const struct tm_trace *trace, double mean, double losses_per_h,
                          double burst)
{
    struct tm_trace_stats s = tm_trace_stats(trace);
    double rate = (double)s.loss_events / s.duration_s * 3600;
    assert_row(near(s.mean_available, mean, 0.03 * mean), "%s: mean %g, want %g", name, s.mean_available, mean);
    assert_row(near(rate, losses_per_h, 0.1 * losses_per_h), "%s: %g losses an hour, want %g", name, rate,
               losses_per_h);
    assert_row(near(s.mean_burst, burst, 0.15 * burst), "%s: burst %g, want %g", name, s.mean_burst, burst);
}

/* Long enough for some 1,000 losses and more, so that chance cannot spoil the figures. */
static void test_figures_are_met(void **state)
{
    (void)state;
    static const struct {
        int64_t instances;
        double mean;
        int64_t mtbf_s;
        double burst;
        int64_t interval_s;
        int64_t days;
    } rows[] = {
        {1, 0.5, 3600, 1, 0, 90}, {1, 0.9, 7200, 1, 300, 120}, {8, 6, 1800, 1, 0, 30},
        {16, 12, 600, 2, 0, 14},  {32, 27, 400, 2.1, 60, 14},  {32, 10, 900, 3, 0, 30},
        {100, 60, 300, 5, 0, 14}, {100, 90, 1200, 4, 60, 60},  {1000, 700, 600, 10, 0, 14},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        for (uint64_t seed = 1; seed <= 2; seed++) {
            char name[64];
            struct tm_trace trace;
            struct tm_trace_recipe recipe = {.seed = seed,
                                             .instances_max = rows[i].instances,
                                             .mean_available = rows[i].mean,
                                             .mtbf_ms = rows[i].mtbf_s * 1000,
                                             .mean_burst = rows[i].burst,
                                             .interval_ms = rows[i].interval_s * 1000,
                                             .duration_ms = rows[i].days * DAY_MS};
            (void)snprintf(name, sizeof name, "row %zu, seed %d", i, (int)seed);
            generate(name, &recipe, &trace);
            check_sound(name, &trace);
            check_figures(name, &trace, rows[i].mean, 3600.0 / (double)rows[i].mtbf_s, rows[i].burst);
            tm_trace_deinit(&trace);
        }
    }
}

static void test_like_the_shipped_traces(void **state)
{
    (void)state;
    static const char *const names[] = {"hadp", "hasp", "ladp", "lasp"};
    struct tm_env *env = tm_env_virtual_create(1);
    for (size_t i = 0; i < TM_COUNT(names); i++) {
        struct tm_trace like;
        struct tm_trace trace;
        tm_trace_init(&like);
        assert_int_equal(tm_trace_load(env, names[i], NULL, &like, NULL), 0);
        struct tm_trace_stats want = tm_trace_stats(&like);
        for (uint64_t seed = 1; seed <= 2; seed++) {
            char name[64];
            struct tm_trace_recipe recipe = {.seed = seed, .like = &like, .duration_ms = (int64_t)14 * DAY_MS};
            (void)snprintf(name, sizeof name, "like %s, seed %d", names[i], (int)seed);
            generate(name, &recipe, &trace);
            assert_row(trace.interval_ms == 60000 && trace.end_ms == (int64_t)14 * DAY_MS, "%s: wrong shape", name);
            assert_row(trace.instances_max == like.instances_max, "%s: wrong size", name);
            check_sound(name, &trace);
            check_figures(name, &trace, want.mean_available, (double)want.loss_events, want.mean_burst);
            tm_trace_deinit(&trace);
        }
        tm_trace_deinit(&like);
    }
    tm_env_virtual_destroy(env);
}

static void test_like_takes_what_is_not_said(void **state)
{
    (void)state;
    struct tm_trace like;
    struct tm_trace trace;
    trace_from("tidemill-trace 1\ninterval: 60s\nend: 7200s\nnodes: 4\n\n0 +4\n600 -1\n1200 +1\n", NULL, &like);
    struct tm_trace_recipe recipe = {.seed = 1, .like = &like};
    generate("like", &recipe, &trace);
    assert_int_equal(trace.end_ms, 7200000);
    assert_int_equal(trace.interval_ms, 60000);
    tm_trace_deinit(&trace);
    recipe.interval_ms = 30000;
    recipe.duration_ms = 3600000;
    generate("like, but", &recipe, &trace);
    assert_int_equal(trace.end_ms, 3600000);
    assert_int_equal(trace.interval_ms, 30000);
    tm_trace_deinit(&trace);
    tm_trace_deinit(&like);
}

/* No losses, no room, nobody there: the rates go to their ends, and the work must still end. */
static void test_traces_at_the_edge(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tidemill-trace 1\nend: 3600s\n\n0 +4\n",
        "tidemill-trace 1\nend: 3600s\nnodes: 4\n\n0 +0\n",
        "tidemill-trace 1\nend: 3600s\nnodes: 0\n\n0 +0\n",
        "tidemill-trace 1\nend: 3600s\n\n0 +4\n1800 -4\n",
        "tidemill-trace 1\nend: 3600s\nnodes: 8\n\n0 +0\n1800 +4\n",
    };
    for (size_t i = 0; i < TM_COUNT(texts); i++) {
        struct tm_trace like;
        struct tm_trace trace;
        trace_from(texts[i], NULL, &like);
        struct tm_trace_recipe recipe = {.seed = 1, .like = &like};
        generate(texts[i], &recipe, &trace);
        check_sound(texts[i], &trace);
        tm_trace_deinit(&trace);
        tm_trace_deinit(&like);
    }
    struct tm_trace_recipe full = {.seed = 1, .instances_max = 8, .mean_available = 8, .mtbf_ms = 60000};
    struct tm_trace trace;
    generate("full", &full, &trace);
    check_sound("full", &trace);
    assert_true(tm_trace_stats(&trace).mean_available > 7.5);
    tm_trace_deinit(&trace);
}

static void test_figures_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        struct tm_trace_recipe recipe;
        int rc;
        const char *words;
    } rows[] = {
        {{.instances_max = 0, .mean_available = 1, .mtbf_ms = 1000}, -TM_EUSAGE, "between 1 and 1000000 instances"},
        {{.instances_max = -1, .mean_available = 1, .mtbf_ms = 1000}, -TM_EUSAGE, "between 1 and 1000000 instances"},
        {{.instances_max = 1000001, .mean_available = 1, .mtbf_ms = 1000},
         -TM_EUSAGE,
         "between 1 and 1000000 instances"},
        {{.instances_max = 4, .mean_available = 5, .mtbf_ms = 1000},
         -TM_EUSAGE,
         "mean above 0 and at most 4, the most instances at a time"},
        {{.instances_max = 4, .mean_available = 0, .mtbf_ms = 1000}, -TM_EUSAGE, "mean above 0"},
        {{.instances_max = 4, .mean_available = -1, .mtbf_ms = 1000}, -TM_EUSAGE, "mean above 0"},
        {{.instances_max = 4, .mean_available = (double)NAN, .mtbf_ms = 1000}, -TM_EUSAGE, "mean above 0"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = 0}, -TM_EUSAGE, "mean time between preemptions above 0"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = -5}, -TM_EUSAGE, "mean time between preemptions above 0"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = 1000, .mean_burst = 5},
         -TM_EUSAGE,
         "burst from 1 to 4, the most instances at a time"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = 1000, .mean_burst = 0.5}, -TM_EUSAGE, "burst from 1 to"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = 60000, .duration_ms = 999},
         -TM_EUSAGE,
         "a second or more"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = 60000, .duration_ms = -1},
         -TM_EUSAGE,
         "a second or more"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = 60000, .interval_ms = -1}, -TM_EUSAGE, "an interval no"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = 60000, .duration_ms = 60000, .interval_ms = 60001},
         -TM_EUSAGE,
         "an interval no longer"},
        {{.instances_max = 4, .mean_available = 2, .mtbf_ms = 1}, -TM_ELIMIT, "more than 1048576 preemptions;"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_trace trace;
        struct tm_error e = {0};
        tm_trace_init(&trace);
        int rc = tm_trace_generate(&rows[i].recipe, &trace, &e);
        assert_row(rc == rows[i].rc, "row %zu: got %d", i, rc);
        assert_row(strstr(e.text, rows[i].words) != NULL, "row %zu: \"%s\"", i, e.text);
        assert_row(trace.events == NULL, "row %zu: touched its output", i);
    }
    struct tm_trace like;
    struct tm_error e = {0};
    trace_from("tidemill-trace 1\nend: 0s\n\n0 +4\n", NULL, &like);
    struct tm_trace_recipe recipe = {.like = &like};
    struct tm_trace trace;
    tm_trace_init(&trace);
    assert_int_equal(tm_trace_generate(&recipe, &trace, &e), -TM_EUSAGE);
    assert_error_has(e, "the trace to match has no length");
    tm_trace_deinit(&like);
}

static int generate_once(const struct tm_trace_recipe *recipe)
{
    struct tm_trace trace;
    tm_trace_init(&trace);
    int rc = tm_trace_generate(recipe, &trace, NULL);
    tm_trace_deinit(&trace);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    struct tm_trace like;
    trace_from("tidemill-trace 1\nend: 7200s\nnodes: 4\n\n0 +4\n600 -1\n1200 +1\n", NULL, &like);
    struct tm_trace_recipe recipe = {.seed = 1, .like = &like};
    struct tm_trace_recipe figures = {.seed = 1, .instances_max = 4, .mean_available = 3, .mtbf_ms = 600000};
    TM_FAIL_EACH_ALLOC(rc = generate_once(&recipe));
    TM_FAIL_EACH_ALLOC(rc = generate_once(&figures));
    tm_trace_deinit(&like);
}

TM_TEST_MAIN(TM_TEST(test_the_seed_decides), TM_TEST(test_figures_are_met), TM_TEST(test_like_the_shipped_traces),
             TM_TEST(test_like_takes_what_is_not_said), TM_TEST(test_traces_at_the_edge),
             TM_TEST(test_figures_that_cannot_be), TM_TEST(test_without_memory))
