/* What is drawn adds up to what was simulated. */
#include "sim/test/report_helpers.h"

#include "layout/migrate.h"
#include "workload/model.h"

static bool near(double got, double want)
{
    return fabs(got - want) <= 1e-9 * fmax(1, fabs(want));
}

struct sums {
    double samples, node_s, time_s;
    double stalled_s[TM_REPORT_CAUSES];
};

static struct sums sums_of_columns(const struct tm_report_column *columns, size_t count)
{
    struct sums sums = {0};
    for (size_t i = 0; i < count; i++) {
        double time_s = columns[i].to_s - columns[i].from_s, parts_s = 0;
        sums.time_s += time_s;
        sums.samples += columns[i].samples_per_s * time_s;
        sums.node_s += columns[i].instances * time_s;
        for (int cause = 0; cause < TM_REPORT_CAUSES; cause++) {
            sums.stalled_s[cause] += columns[i].stalled_s[cause];
            parts_s += columns[i].stalled_s[cause];
        }
        assert_row(near(parts_s, time_s), "column %zu: %g s of %g", i, parts_s, time_s);
        assert_row(i == 0 || near(columns[i].from_s, columns[i - 1].to_s), "column %zu begins late", i);
        assert_true(columns[i].instances_least <= columns[i].instances + 1e-9);
        assert_true(columns[i].instances_most >= columns[i].instances - 1e-9);
    }
    return sums;
}

static struct sums sums_of_log(const struct tm_sim_log *log)
{
    struct sums sums = {0};
    for (size_t i = 0; i < log->count; i++) {
        const struct tm_sim_interval *interval = &log->intervals[i];
        double pause_s = interval->cause == TM_SIM_IDLE   ? interval->duration_s
                         : interval->cause == TM_SIM_NONE ? 0
                                                          : interval->pause_s;
        sums.time_s += interval->duration_s;
        sums.samples += interval->samples;
        sums.node_s += interval->after * interval->duration_s;
        sums.stalled_s[interval->cause] += pause_s;
        sums.stalled_s[TM_SIM_NONE] += interval->duration_s - pause_s;
    }
    return sums;
}

static void assert_adds_up(const char *name, const struct tm_sim_log *log, size_t column_max, double tolerance)
{
    struct tm_report_column *columns;
    size_t count;
    assert_int_equal(tm_report__columns(log, column_max, &columns, &count, NULL), 0);
    assert_row(count <= column_max, "%s: %zu columns", name, count);
    struct sums got = sums_of_columns(columns, count), want = sums_of_log(log);
    assert_row(near(got.time_s, want.time_s), "%s, %zu: %g s, not %g", name, column_max, got.time_s, want.time_s);
    assert_row(fabs(got.samples - want.samples) <= tolerance * fmax(1, want.samples), "%s, %zu: %g samples, not %g",
               name, column_max, got.samples, want.samples);
    assert_row(near(got.node_s, want.node_s), "%s, %zu: %g", name, column_max, got.node_s);
    for (int cause = 0; cause < TM_REPORT_CAUSES; cause++)
        assert_row(near(got.stalled_s[cause], want.stalled_s[cause]), "%s, %zu, %s: %g s, not %g", name, column_max,
                   tm_report__cause_names[cause], got.stalled_s[cause], want.stalled_s[cause]);
    tm_free(columns);
}

static void test_sums_are_kept(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 3, 59, 60, 61, 1000, 10007};
    static const size_t most[] = {1, 2, 60, 480, 100000};
    for (size_t i = 0; i < TM_COUNT(lengths); i++) {
        struct test_run run;
        make_run(&run, lengths[i], 100 + i);
        for (size_t k = 0; k < TM_COUNT(most); k++)
            assert_adds_up("by hand", &run.log, most[k], 1e-9);
        tm_sim_log_deinit(&run.log);
    }
}

/* A slice shows the layout that stood longest in it. */
static void test_longest_layout(void **state)
{
    (void)state;
    struct tm_sim_interval intervals[] = {
        {.time_s = 0, .duration_s = 10, .after = 8, .pipelines = 2, .stages = 4, .samples = 10},
        {.time_s = 10, .duration_s = 30, .after = 6, .pipelines = 1, .stages = 6, .samples = 30},
        {.time_s = 40, .duration_s = 15, .after = 8, .pipelines = 2, .stages = 4, .samples = 15},
        {.time_s = 55, .duration_s = 5, .after = 2, .cause = TM_SIM_IDLE},
    };
    struct tm_sim_log log = {.intervals = intervals, .count = TM_COUNT(intervals)};
    struct tm_report_column *columns;
    size_t count;
    assert_int_equal(tm_report__columns(&log, 1, &columns, &count, NULL), 0);
    assert_int_equal(count, 1);
    assert_int_equal(columns[0].pipelines, 1);
    assert_int_equal(columns[0].stages, 6);
    assert_int_equal(columns[0].instances_least, 2);
    assert_int_equal(columns[0].instances_most, 8);
    assert_true(near(columns[0].samples_per_s, 55.0 / 60));
    assert_true(near(columns[0].stalled_s[TM_SIM_IDLE], 5));
    tm_free(columns);
    assert_int_equal(tm_report__columns(&log, 2, &columns, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_int_equal(columns[0].stages, 6); /* 20 s of 30 */
    assert_int_equal(columns[1].stages, 4); /* 15 s, 10 s of the other, 5 s idle */
    tm_free(columns);
}

/* ---- true simulations ---- */

struct job {
    struct tm_model model;
    struct tm_cost cost;
    struct tm_layouts layouts;
    struct tm_migrations *migrations;
    struct tm_trace trace;
};

static void open_job(struct job *job, const char *model, const char *trace)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    tm_model_init(&job->model);
    tm_trace_init(&job->trace);
    int rc = tm_model_load(env, model, &job->model, &e);
    if (rc == 0) rc = tm_cost_load(env, "paper", model, &job->cost, &e);
    if (rc == 0)
        rc = tm_layouts_init(&job->layouts, &job->model, &job->cost.rules, 32, tm_layout_speed_measured, &job->model,
                             &e);
    if (rc == 0) rc = tm_migrations_create(&job->layouts, &job->cost, &job->migrations, &e);
    if (rc == 0) rc = tm_trace_load(env, trace, NULL, &job->trace, &e);
    assert_row(rc == 0, "%s on %s: %s", model, trace, e.text);
}

static void close_job(struct job *job)
{
    tm_trace_deinit(&job->trace);
    tm_migrations_destroy(job->migrations);
    tm_layouts_deinit(&job->layouts);
    tm_model_deinit(&job->model);
}

static void simulate(const struct job *job, const char *policy, struct test_run *run)
{
    struct tm_sim_options options = {.from_ms = job->trace.begin_ms,
                                     .to_ms = job->trace.end_ms,
                                     .interval_s = 60,
                                     .horizon = 12,
                                     .notice_s = 30,
                                     .spot_usd_h = 0.9,
                                     .on_demand_usd_h = 3};
    struct tm_sim_job sim_job = {&job->layouts, job->migrations, &job->cost, NULL};
    struct tm_error e = {0};
    tm_sim_log_init(&run->log);
    int rc = tm_simulate(tm_env_real(), &sim_job, &job->trace, tm_policy_find(policy), &options, &run->result,
                         &run->log, &e);
    assert_row(rc == 0, "%s: %s", policy, e.text);
}

/* The log, the result's sums and the columns agree; all policies together make a document. */
static void test_published_hour(void **state)
{
    (void)state;
    static const char *const policies[] = {"ideal", "on-demand", "reactive", "parcae", "parcae-notice", "tidemill"};
    struct job job;
    open_job(&job, "parcae/gpt-1.5b", "hadp");
    struct test_run tests[TM_COUNT(policies)];
    struct tm_report_run runs[TM_COUNT(policies)];
    for (size_t i = 0; i < TM_COUNT(policies); i++) {
        simulate(&job, policies[i], &tests[i]);
        runs[i] = (struct tm_report_run){.policy = policies[i],
                                         .trace = "hadp",
                                         .model = "parcae/gpt-1.5b",
                                         .result = &tests[i].result,
                                         .log = &tests[i].log,
                                         .fraction_of_ideal = tests[i].result.samples / tests[0].result.samples};
        struct sums sums = sums_of_log(&tests[i].log);
        for (int cause = TM_SIM_NONE + 1; cause < TM_REPORT_CAUSES; cause++)
            assert_row(near(sums.stalled_s[cause], tm_report__stall_of(&runs[i], (enum tm_sim_cause)cause)),
                       "%s, %s: %g s in the log, not %g", policies[i], tm_report__cause_names[cause],
                       sums.stalled_s[cause], tm_report__stall_of(&runs[i], (enum tm_sim_cause)cause));
        assert_row(near(sums.samples, tests[i].result.samples), "%s: samples", policies[i]);
        assert_adds_up(policies[i], &tests[i].log, 480, 1e-9);
        assert_adds_up(policies[i], &tests[i].log, 60, 1e-9);
    }
    assert_true(tests[2].result.pauses.rollback_s > 0);
    struct tm_report report = {
        .title = "A published hour", .command = "tidemill simulate", .runs = runs, .run_count = TM_COUNT(policies)};
    struct tm_text out;
    tm_text_init(&out, TM_REPORT_BYTES_MAX);
    assert_int_equal(tm_report_html(&report, &out, NULL), 0);
    assert_document(&out);
    assert_non_null(strstr(tm_text_string(&out), "4\xc3\x97"
                                                 "8</text>")); /* the whole fleet of 32 */
    tm_text_deinit(&out);
    for (size_t i = 0; i < TM_COUNT(policies); i++)
        tm_sim_log_deinit(&tests[i].log);
    close_job(&job);
}

TM_TEST_MAIN(TM_TEST(test_sums_are_kept), TM_TEST(test_longest_layout), TM_TEST(test_published_hour))
