/* The simulator: small cases by hand, and what must hold of any trace, policy and cost.
 * builds: release asan */
#include "sim/simulate.h"

#include "sim/test/sim_helpers.h"

#define PAPER                                                                                                          \
    "tidemill-cost: 1\nkind: paper\nrollback_ms: 14000\ntransfer_us: {1: 100, 1000000000: 1200000}\n"                  \
    "models: {test: {stages_min: 2, stages_max: 4, process_ms: 240, rendezvous_ms: 6600, build_base_ms: 300, "         \
    "build_per_layer_ms: 430, group_add: {base_ms: 35, per_instance_ms: 500}, "                                        \
    "group_remove: {base_ms: 35, per_instance_ms: 40}}}\n"
#define MEASURED                                                                                                       \
    "tidemill-cost: 1\nkind: measured\nreform_ms: 2000\nreform_per_instance_ms: 50\nlink: 5Gbit/s\n"                   \
    "link_latency_ms: 1\nstore: 2Gbit/s\nstart_s: 60\ncopy_interval_s: 120\n"
#define FREE "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 0, 2: 0}\nmodels: {test: {stages_max: 4}}\n"
#define DEAR "tidemill-cost: 1\nkind: measured\nreform_ms: 90000\nlink: 100Mbit/s\nmodels: {test: {stages_min: 3}}\n"

static void trace_of(const char *lines, struct tm_trace *trace)
{
    char text[512];
    struct tm_error e = {0};
    (void)snprintf(text, sizeof text, "tidemill-trace 1\n%s", lines);
    tm_trace_init(trace);
    int rc = tm_trace_parse("t", text, strlen(text), "tidemill", trace, &e);
    assert_row(rc == 0, "\"%s\": %s", lines, e.text);
}

static double speed_of(const struct test_job *job, int pipelines, int stages)
{
    int layout = tm_layouts_find(&job->layouts, pipelines, stages);
    assert_true(layout != TM_LAYOUT_PAUSE);
    return job->layouts.list[layout].samples_per_s;
}

/* ---- by hand ---- */

/* Where nothing costs, everyone who sees the event trains in the fastest layout all the time. */
static void test_without_costs_all_are_ideal(void **state)
{
    (void)state;
    static const char *const policies[] = {"ideal", "reactive", "parcae-notice", "parcae-truth", "oracle"};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, FREE, 8, test_speed);
    struct tm_trace trace;
    trace_of("end: 200s\n\n0 +8\n60 -3\n120 +1\n", &trace);
    struct tm_sim_options options = minute_options(0, 200000);
    double want = 60 * speed_of(job, 8, 1) + 60 * speed_of(job, 5, 1) + 80 * speed_of(job, 6, 1);
    for (size_t i = 0; i < TM_COUNT(policies); i++) {
        struct tm_sim_result result = simulate(env, job, &trace, policies[i], &options, NULL);
        assert_row(close_to(result.samples, want, 1e-12), "%s: %g, want %g", policies[i], result.samples, want);
        assert_row(close_to(result.samples_per_s, want / 200, 1e-12), "%s: rate", policies[i]);
        assert_row(result.reconfigurations == 2, "%s: %d changes", policies[i], result.reconfigurations);
        assert_row(result.pauses.idle_s == 0 && result.pauses.start_s == 0 && result.pauses.migrate_s == 0 &&
                       result.pauses.rollback_s == 0,
                   "%s: pauses", policies[i]);
        double hours = (60 * 8 + 60 * 5 + 80 * 6) / 3600.0;
        assert_row(close_to(result.instance_hours, hours, 1e-12), "%s: %g h", policies[i], result.instance_hours);
        assert_row(close_to(result.bill_usd, hours * 0.91, 1e-12), "%s: $%g", policies[i], result.bill_usd);
        assert_row(close_to(result.usd_per_million_samples, hours * 0.91 / want * 1e6, 1e-12), "%s", policies[i]);
        assert_row(isnan(result.finished_at_s) && !result.deadline_met && result.wall_s == 200, "%s", policies[i]);
    }
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Reactive, event by event: a restart at first, then restarts with 14 s of rollback; the pause before 2 are there. */
static void test_reactive_by_hand(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, PAPER, 8, test_speed);
    struct tm_trace trace;
    struct tm_sim_log log;
    trace_of("end: 300s\n\n0 +8\n90 -4\n180 -3\n240 +7\n", &trace);
    tm_sim_log_init(&log);
    struct tm_sim_options options = minute_options(0, 300000);
    struct tm_sim_result result = simulate(env, job, &trace, "reactive", &options, &log);
    int on8 = job->layouts.best[8], on4 = job->layouts.best[4];
    double start_s = tm_cost_rollback_ms(&job->cost, &job->layouts, on8, true, true) / 1000;
    double down_s = tm_cost_rollback_ms(&job->cost, &job->layouts, on4, false, false) / 1000;
    double up_s = tm_cost_rollback_ms(&job->cost, &job->layouts, on8, true, false) / 1000;
    assert_true(start_s < 60 && down_s < 60 && down_s > 14 && up_s < 60 && up_s > start_s);
    double want = (90 - start_s + 60 - up_s) * job->layouts.list[on8].samples_per_s +
                  (90 - down_s) * job->layouts.list[on4].samples_per_s;
    assert_true(close_to(result.samples, want, 1e-12));
    assert_true(close_to(result.pauses.start_s, start_s, 1e-12));
    assert_true(close_to(result.pauses.rollback_s, down_s + up_s, 1e-12));
    assert_true(result.pauses.migrate_s == 0 && close_to(result.pauses.idle_s, 60, 1e-12));
    assert_int_equal(result.reconfigurations, 3);
    assert_int_equal(log.count, 6); /* 0, 60, 90, 120, 180, 240 s */
    assert_true(log.intervals[2].time_s == 90 && log.intervals[2].lost == 4 && log.intervals[2].after == 4);
    assert_true(log.intervals[4].pipelines == 0 && log.intervals[4].samples == 0);
    tm_sim_log_deinit(&log);
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* On-demand: the largest fleet of the trace, all the time, at the other price; starts once. */
static void test_on_demand_by_hand(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, PAPER, 8, test_speed);
    struct tm_trace trace;
    trace_of("end: 300s\n\n0 +2\n90 +6\n180 -7\n", &trace);
    struct tm_sim_options options = minute_options(0, 300000);
    struct tm_sim_result result = simulate(env, job, &trace, "on-demand", &options, NULL);
    double start_s = tm_migrations_row(job->migrations, 0, TM_LAYOUT_PAUSE, 0)[job->layouts.best[8]] / 1000;
    assert_true(
        close_to(result.samples, (300 - start_s) * job->layouts.list[job->layouts.best[8]].samples_per_s, 1e-12));
    assert_true(close_to(result.pauses.start_s, start_s, 1e-12));
    assert_true(close_to(result.bill_usd, 8 * 300 / 3600.0 * 3.06, 1e-12));
    assert_true(close_to(result.on_demand_hours, 8 * 300 / 3600.0, 1e-12));
    assert_int_equal(result.reconfigurations, 0);
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* A job of so many samples ends inside an interval; time and bill end with it. */
static void test_the_end_of_a_job(void **state)
{
    (void)state;
    static const struct {
        double total, deadline_s, want_finished_s;
        bool met;
    } rows[] = {{1000, 0, 50, false}, {1000, 50, 50, true},   {1000, 49.9, 50, false}, {1200, 70, 60, true},
                {1300, 70, 65, true}, {4000, 500, 200, true}, {4001, 500, NAN, false}};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, FREE, 2, test_speed);
    for (size_t i = 0; i < job->layouts.count; i++)
        job->layouts.list[i].samples_per_s = job->layouts.list[i].instances == 2 ? 20 : 0; /* 2x1 and 1x2 */
    struct tm_trace trace;
    trace_of("end: 200s\n\n0 +2 $1.5\n", &trace);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_sim_options options = minute_options(0, 200000);
        options.samples_total = rows[i].total;
        options.deadline_s = rows[i].deadline_s;
        struct tm_sim_result result = simulate(env, job, &trace, "ideal", &options, NULL);
        bool finishes = !isnan(rows[i].want_finished_s);
        double until_s = finishes ? rows[i].want_finished_s : 200;
        assert_row(finishes ? close_to(result.finished_at_s, until_s, 1e-9) : isnan(result.finished_at_s),
                   "row %zu: finished at %g", i, result.finished_at_s);
        assert_row(result.deadline_met == rows[i].met, "row %zu: deadline", i);
        assert_row(close_to(result.samples, fmin(rows[i].total, 4000), 1e-9), "row %zu: %g samples", i, result.samples);
        assert_row(close_to(result.bill_usd, 2 * until_s / 3600 * 1.5, 1e-9), "row %zu: $%g", i, result.bill_usd);
    }
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

static void test_prices_of_the_trace(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, FREE, 4, test_speed);
    struct tm_trace trace;
    trace_of("end: 300s\n\n0 +4\n30 $0.5\n100 -2 $2\n200 $0\n", &trace);
    struct tm_sim_options options = minute_options(0, 300000);
    struct tm_sim_result result = simulate(env, job, &trace, "oracle", &options, NULL);
    double want = (4 * 30 * 0.91 + 4 * 70 * 0.5 + 2 * 100 * 2) / 3600;
    assert_true(close_to(result.bill_usd, want, 1e-12));
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Ours without notice loses the step in flight when an instance in use goes: half a step here, of a whole fleet. */
static void test_the_step_in_flight(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, FREE, 4, test_speed);
    for (size_t i = 0; i < job->layouts.count; i++)
        job->layouts.list[i].step_s = 20;
    struct tm_trace trace;
    trace_of("end: 120s\n\n0 +4\n50 -2\n", &trace);
    struct tm_sim_options options = minute_options(0, 120000);
    double with_notice = simulate(env, job, &trace, "tidemill", &options, NULL).samples;
    options.notice_s = 0;
    double without = simulate(env, job, &trace, "tidemill", &options, NULL).samples;
    double fastest = job->layouts.list[job->layouts.best[4]].samples_per_s;
    assert_row(close_to(with_notice - without, 10 * fastest, 1e-9), "%g and %g: %g s lost", with_notice, without,
               (with_notice - without) / fastest); /* 50 s are two steps and a half */
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int from_s, to_s;
        double interval_s;
        int horizon, want;
        const char *words;
    } rows[] = {
        {"before the trace", 0, 200, 60, 12, -TM_EUSAGE, "the trace covers"},
        {"beyond it", 60, 301, 60, 12, -TM_EUSAGE, "the trace covers"},
        {"nothing", 100, 100, 60, 12, -TM_EUSAGE, "--from and --to"},
        {"backwards", 200, 100, 60, 12, -TM_EUSAGE, "--from and --to"},
        {"no interval", 60, 300, 0, 12, -TM_EUSAGE, "interval"},
        {"interval that is no number", 60, 300, NAN, 12, -TM_EUSAGE, "interval"},
        {"interval too short", 60, 300, 0.5, 12, -TM_EUSAGE, "interval"},
        {"no look-ahead", 60, 300, 60, 0, -TM_EUSAGE, "look ahead"},
        {"look-ahead too long", 60, 300, 60, TM_FORECAST_STEPS_MAX + 1, -TM_EUSAGE, "look ahead"},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, PAPER, 4, test_speed);
    struct tm_trace trace;
    trace_of("begin: 60s\nend: 300s\n\n60 +4\n", &trace);
    struct tm_sim_job sim_job = {.layouts = &job->layouts, .migrations = job->migrations, .cost = &job->cost};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_sim_options options = minute_options(rows[i].from_s * 1000, rows[i].to_s * 1000);
        struct tm_sim_result result = {.samples = -7};
        struct tm_error e = {0};
        options.interval_s = rows[i].interval_s;
        options.horizon = rows[i].horizon;
        int rc = tm_simulate(env, &sim_job, &trace, tm_policy_find("ideal"), &options, &result, NULL, &e);
        assert_row(rc == rows[i].want, "%s: %d", rows[i].name, rc);
        assert_row(strstr(e.text, rows[i].words) != NULL, "%s: \"%s\"", rows[i].name, e.text);
        assert_row(result.samples == -7, "%s: filled", rows[i].name);
    }
    tm_trace_deinit(&trace);
    trace_of("end: 300s\n\n0 +4\n60 +1\n", &trace); /* more than the layouts were made for */
    struct tm_sim_options options = minute_options(0, 300000);
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++) {
        struct tm_sim_result result;
        struct tm_error e = {0};
        int rc = tm_simulate(env, &sim_job, &trace, info, &options, &result, NULL, &e);
        assert_row(rc == -TM_ELIMIT, "%s: %d", info->name, rc);
        assert_error_has(e, "5 instances");
    }
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Forecasts that are given are those the planner gets: of a loss that does not come, and of one that does. */
static void test_given_forecasts(void **state)
{
    (void)state;
    enum { HORIZON = 7 };
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, PAPER, 8, test_speed);
    struct tm_trace trace;
    struct tm_error e = {0};
    int forecasts[3 * HORIZON];
    trace_of("end: 180s\n\n0 +8\n", &trace);
    struct tm_sim_options options = minute_options(0, 180000);
    options.horizon = HORIZON;
    options.forecasts = forecasts;
    options.forecast_count = 3;
    for (int i = 0; i < 3 * HORIZON; i++)
        forecasts[i] = 8;
    struct tm_sim_log log;
    tm_sim_log_init(&log);
    double right = simulate(env, job, &trace, "parcae", &options, &log).samples;
    assert_true(log.count == 3 && log.intervals[2].pipelines * log.intervals[2].stages == 8);
    tm_sim_log_deinit(&log);
    for (int i = HORIZON; i < 3 * HORIZON; i++)
        forecasts[i] = 4;
    double wrong = simulate(env, job, &trace, "parcae", &options, &log).samples;
    assert_true(log.intervals[2].pipelines * log.intervals[2].stages == 4);
    tm_sim_log_deinit(&log);
    assert_true(wrong < right);
    options.forecast_count = 2; /* one too few */
    struct tm_sim_job sim_job = {.layouts = &job->layouts, .migrations = job->migrations, .cost = &job->cost};
    struct tm_sim_result result;
    assert_int_equal(tm_simulate(env, &sim_job, &trace, tm_policy_find("parcae"), &options, &result, NULL, &e),
                     -TM_EUSAGE);
    assert_error_has(e, "for 2 intervals, but the run has");
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* ---- whatever the trace ---- */

enum { INSTANCES = 10 };

static int pick(struct tm_random *random, int limit)
{
    return (int)tm_random_below(random, (uint64_t)limit);
}

/* Quiet or restless, on the grid or off it, from none to all, with prices or without, with records that begin late. */
static void random_trace(struct tm_random *random, struct tm_trace *trace)
{
    static const int64_t grids_ms[] = {60000, 60000, 1000, 1};
    struct tm_error e = {0};
    int64_t grid_ms = grids_ms[pick(random, 4)], begin_ms = pick(random, 3) == 0 ? 7 * 60000 : 0;
    int64_t length_ms = 60000 * (int64_t)(1 + pick(random, 40)) + (pick(random, 2) == 0 ? pick(random, 60000) : 0);
    int most = pick(random, 5) == 0 ? 1 + pick(random, 3) : INSTANCES, events = pick(random, 25), count;
    bool priced = pick(random, 2) == 0;
    tm_trace_init(trace);
    count = pick(random, most + 1);
    assert_int_equal(tm_trace_add(trace, begin_ms, count, 0, priced ? 1 : NAN, &e), 0);
    int64_t time_ms = begin_ms;
    for (int i = 0; i < events; i++) {
        int64_t step_ms = (int64_t)tm_random_below(random, (uint64_t)(2 * length_ms / (events + 1) / grid_ms + 1));
        time_ms += step_ms * grid_ms;
        if (time_ms >= begin_ms + length_ms) break;
        int lost = pick(random, 3) == 0 ? pick(random, count + 1) : pick(random, 2) * (count > 0);
        int arrived = pick(random, 3) == 0 ? pick(random, most - count + lost + 1) : 0;
        if (step_ms == 0) continue; /* two at one time are put together: their losses could exceed what was there */
        assert_int_equal(tm_trace_add(trace, time_ms, arrived, lost, priced ? tm_random_unit(random) : NAN, &e), 0);
        count += arrived - lost;
    }
    trace->begin_ms = begin_ms;
    trace->end_ms = begin_ms + length_ms;
}

struct run {
    const char *name; /* of the policy */
    char place[128];
    struct tm_sim_result result;
    struct tm_sim_log log;
};

/* The trace by itself: instance time and its price between `from` and `to`. */
static double bill_of(const struct tm_trace *trace, int64_t from_ms, int64_t to_ms, double *hours)
{
    double price = 0.91, bill = 0;
    int64_t count = 0, since_ms = from_ms;
    *hours = 0;
    for (size_t i = 0; i <= trace->event_count; i++) {
        bool last = i == trace->event_count || trace->events[i].time_ms >= to_ms;
        int64_t until_ms = last ? to_ms : trace->events[i].time_ms;
        if (until_ms > since_ms) {
            double part = (double)(until_ms - since_ms) / 3.6e6 * (double)count;
            *hours += part;
            bill += part * price;
            since_ms = until_ms;
        }
        if (last) break;
        count += trace->events[i].in - trace->events[i].out;
        if (!isnan(trace->events[i].price_usd_h)) price = trace->events[i].price_usd_h;
    }
    return bill;
}

/* What happened, from one moment to the next, adds up to the result. */
static void check_log(const struct test_job *job, const struct run *run, double wall_s)
{
    const struct tm_sim_result *result = &run->result;
    double time_s = 0, paused_s = 0, samples = 0, most = 0;
    for (size_t i = 0; i < run->log.count; i++) {
        const struct tm_sim_interval *at = &run->log.intervals[i];
        double speed = at->pipelines > 0 ? speed_of(job, at->pipelines, at->stages) : 0;
        assert_row(fabs(at->time_s - time_s) < 1e-6, "%s: %zu begins at %g", run->place, i, at->time_s);
        assert_row(at->duration_s >= 0 && at->pause_s >= 0 && at->pause_s <= at->duration_s, "%s: %zu pauses %g of %g",
                   run->place, i, at->pause_s, at->duration_s);
        assert_row(at->pipelines * at->stages <= at->after, "%s: %zu: %dx%d on %d", run->place, i, at->pipelines,
                   at->stages, at->after);
        assert_row(isfinite(at->samples), "%s: %zu: %g samples", run->place, i, at->samples);
        assert_row(at->samples <= speed * (at->duration_s - at->pause_s) * (1 + 1e-12) + 1e-9,
                   "%s: %zu: %g samples are too many", run->place, i, at->samples);
        paused_s += at->pipelines > 0 ? at->pause_s : at->duration_s;
        samples += at->samples;
        most += speed * (at->duration_s - at->pause_s);
        time_s += at->duration_s;
    }
    const struct tm_sim_pauses *pauses = &result->pauses;
    double sum_s = pauses->idle_s + pauses->migrate_s + pauses->rollback_s + pauses->start_s;
    assert_row(fabs(time_s - wall_s) < 1e-6 && result->wall_s == wall_s, "%s: %g s of %g", run->place, time_s, wall_s);
    assert_row(fabs(sum_s - paused_s) < 1e-6, "%s: pauses of %g s, their causes sum to %g", run->place, paused_s,
               sum_s);
    assert_row(close_to(result->samples, samples, 1e-9), "%s: %g samples, %g in parts", run->place, result->samples,
               samples);
    assert_row(result->samples <= most * (1 + 1e-9) + 1e-9, "%s: more than the time without pauses gives", run->place);
}

static void check_run(const struct test_job *job, const struct tm_trace *trace, const struct tm_sim_options *options,
                      const struct run *run)
{
    const struct tm_sim_result *result = &run->result;
    const double wall_s = (double)(options->to_ms - options->from_ms) / 1000;
    const double all[] = {result->samples,          result->samples_per_s,    result->pauses.idle_s,
                          result->pauses.start_s,   result->pauses.migrate_s, result->pauses.rollback_s,
                          result->bill_usd,         result->instance_hours,   result->on_demand_hours,
                          result->decision_us_mean, result->decision_us_max};
    for (size_t i = 0; i < TM_COUNT(all); i++)
        assert_row(isfinite(all[i]) && all[i] >= -1e-9, "%s: figure %zu is %g", run->place, i, all[i]);
    assert_row(isnan(result->usd_per_million_samples) == !(result->samples > 0), "%s: $%g a million", run->place,
               result->usd_per_million_samples);
    check_log(job, run, wall_s);
    if (strcmp(run->name, "on-demand") == 0) return;
    double hours, bill = bill_of(trace, options->from_ms, options->to_ms, &hours);
    assert_row(close_to(result->bill_usd, bill, 1e-9), "%s: $%g, want $%g", run->place, result->bill_usd, bill);
    assert_row(close_to(result->instance_hours, hours, 1e-9), "%s: %g h, want %g", run->place, result->instance_hours,
               hours);
}

/* The oracle chooses among migrations. With measured costs, where links are slow, reading a whole checkpoint from the
 * store can be faster than migrating. */
static bool oracle_bounds(const struct test_job *job, const char *name)
{
    if (strcmp(name, "reactive") == 0 || strcmp(name, "checkpoint") == 0) return job->cost.kind == TM_COST_PAPER;
    return strcmp(name, "ideal") != 0 && strcmp(name, "on-demand") != 0;
}

static void check_trace(struct tm_env *env, struct test_job *job, const char *place, struct tm_random *random,
                        double *reached)
{
    struct tm_trace trace;
    double ideal = 0, oracle = 0;
    random_trace(random, &trace);
    struct tm_sim_options options = minute_options(trace.begin_ms, trace.end_ms);
    if (pick(random, 3) == 0) options.from_ms += (trace.end_ms - trace.begin_ms) / 3;
    options.notice_s = pick(random, 2) * 30;
    options.horizon = 7 + pick(random, 6);
    ideal = simulate(env, job, &trace, "ideal", &options, NULL).samples;
    oracle = simulate(env, job, &trace, "oracle", &options, NULL).samples;
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++) {
        struct run run = {.name = info->name};
        (void)snprintf(run.place, sizeof run.place, "%s, %s", place, info->name);
        tm_sim_log_init(&run.log);
        run.result = simulate(env, job, &trace, info->name, &options, &run.log);
        check_run(job, &trace, &options, &run);
        if (!info->on_demand)
            assert_row(run.result.samples <= ideal * (1 + 1e-9) + 1e-9, "%s: %g above ideal, %g", run.place,
                       run.result.samples, ideal);
        if (oracle_bounds(job, info->name) && run.result.samples > oracle * (1 + 1e-9) + 1e-9)
            assert_row(false, "%s: %g above oracle, %g", run.place, run.result.samples, oracle);
        tm_sim_log_deinit(&run.log);
    }
    if (ideal > 0) *reached += oracle / ideal;
    tm_trace_deinit(&trace);
}

static void test_whatever_the_trace(void **state)
{
    (void)state;
    static const struct {
        const char *name, *cost;
        int traces;
    } kinds[] = {{"paper", PAPER, 150}, {"measured", MEASURED, 150}, {"free", FREE, 30}, {"dear", DEAR, 150}};
    struct tm_env *env = tm_env_virtual_create(1);
    for (size_t k = 0; k < TM_COUNT(kinds); k++) {
        struct test_job *job = job_make(9, false, kinds[k].cost, INSTANCES, test_speed);
        double reached = 0;
        for (int i = 0; i < kinds[k].traces; i++) {
            struct tm_random random = tm_random_make(31 + k, (uint64_t)i);
            char place[64];
            (void)snprintf(place, sizeof place, "%s costs, trace %d", kinds[k].name, i);
            check_trace(env, job, place, &random, &reached);
        }
        assert_row(reached > 0, "%s: nothing was ever trained", kinds[k].name);
        job_drop(job);
    }
    tm_env_virtual_destroy(env);
}

/* ---- whatever the deadline ---- */

static void check_deadline(struct tm_env *env, struct test_job *job, const char *place, struct tm_random *random)
{
    struct tm_trace trace;
    random_trace(random, &trace);
    struct tm_sim_options options = minute_options(trace.begin_ms, trace.end_ms);
    const double wall_s = (double)(options.to_ms - options.from_ms) / 1000;
    double full = job->layouts.list[job->layouts.best[INSTANCES]].samples_per_s;
    options.samples_total = 1 + full * wall_s * tm_random_unit(random);
    options.deadline_s = wall_s * (0.1 + tm_random_unit(random));
    options.notice_s = pick(random, 2) * 30;
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++) {
        struct tm_sim_result result = simulate(env, job, &trace, info->name, &options, NULL);
        bool finished = !isnan(result.finished_at_s);
        assert_row(isfinite(result.samples) && isfinite(result.bill_usd) && isfinite(result.samples_per_s),
                   "%s, %s: not a number", place, info->name);
        assert_row(finished == (result.samples >= options.samples_total), "%s, %s: %g of %g samples", place, info->name,
                   result.samples, options.samples_total);
        assert_row(result.samples <= options.samples_total, "%s, %s: %g of %g samples", place, info->name,
                   result.samples, options.samples_total);
        assert_row(!finished || (result.finished_at_s >= options.samples_total / full * (1 - 1e-9) &&
                                 result.finished_at_s <= wall_s + 1e-6),
                   "%s, %s: finished at %g s of %g", place, info->name, result.finished_at_s, wall_s);
        assert_row(result.deadline_met == (finished && result.finished_at_s <= options.deadline_s), "%s, %s: in time",
                   place, info->name);
        /* spot instances may come back while on-demand ones start, which are paid from their grant */
        double most_h = 2 * INSTANCES * (finished ? result.finished_at_s : wall_s) / 3600;
        assert_row(result.on_demand_hours >= 0 && result.on_demand_hours <= result.instance_hours + 1e-9 &&
                       result.instance_hours <= most_h + 1e-9,
                   "%s, %s: %g h of on-demand, %g h in all, at most %g", place, info->name, result.on_demand_hours,
                   result.instance_hours, most_h);
        double least_usd = result.on_demand_hours * options.on_demand_usd_h;
        double most_usd = least_usd + (result.instance_hours - result.on_demand_hours) * 1.0000001;
        assert_row(result.bill_usd >= least_usd - 1e-9 && result.bill_usd <= most_usd + 1e-9,
                   "%s, %s: $%g, not in $%g to $%g", place, info->name, result.bill_usd, least_usd, most_usd);
    }
    tm_trace_deinit(&trace);
}

static void test_whatever_the_deadline(void **state)
{
    (void)state;
    static const char *const costs[] = {PAPER, MEASURED, FREE};
    struct tm_env *env = tm_env_virtual_create(1);
    for (size_t k = 0; k < TM_COUNT(costs); k++) {
        struct test_job *job = job_make(9, false, costs[k], INSTANCES, test_speed);
        for (int i = 0; i < 80; i++) {
            struct tm_random random = tm_random_make(77 + k, (uint64_t)i);
            char place[64];
            (void)snprintf(place, sizeof place, "costs %zu, trace %d", k, i);
            check_deadline(env, job, place, &random);
        }
        job_drop(job);
    }
    tm_env_virtual_destroy(env);
}

/* ---- limits ---- */

#define ANCHORED                                                                                                       \
    "tidemill-cost: 1\nkind: measured\nreform_ms: 1000\nlink: 5Gbit/s\nstore: 2Gbit/s\nstart_s: 100\njoin_s: 10\n"     \
    "stop_s: 36\n"

/* The job stops when its budget is used up, inside a moment, and not before. */
static void test_budget(void **state)
{
    (void)state;
    static const char *const policies[] = {"tidemill", "reactive", "parcae", "on-demand"};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, PAPER, 8, test_speed);
    struct tm_trace trace;
    trace_of("end: 7200s\n\n0 +8\n1000 -2\n2000 +2\n", &trace);
    struct tm_sim_options options = minute_options(0, 7200000);
    options.samples_total = 1e9;
    for (size_t i = 0; i < TM_COUNT(policies); i++) {
        options.budget_usd = 0;
        struct tm_sim_result free_run = simulate(env, job, &trace, policies[i], &options, NULL);
        assert_row(isnan(free_run.stopped_at_s), "%s: stopped without a budget", policies[i]);
        options.budget_usd = free_run.bill_usd / 2;
        struct tm_sim_result result = simulate(env, job, &trace, policies[i], &options, NULL);
        assert_row(!isnan(result.stopped_at_s) && isnan(result.finished_at_s), "%s: not stopped", policies[i]);
        assert_row(result.bill_usd > options.budget_usd * 0.99 && result.bill_usd <= options.budget_usd,
                   "%s: $%g of $%g", policies[i], result.bill_usd, options.budget_usd);
        assert_row(result.samples > 0 && result.samples < free_run.samples, "%s: %g samples", policies[i],
                   result.samples);
        options.budget_usd = free_run.bill_usd * 2;
        result = simulate(env, job, &trace, policies[i], &options, NULL);
        assert_row(isnan(result.stopped_at_s) && close_to(result.samples, free_run.samples, 1e-9) &&
                       close_to(result.bill_usd, free_run.bill_usd, 1e-9),
                   "%s: a budget that is not reached changes something", policies[i]);
    }
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Anchors are paid from their arrival to the end; those that only keep copies do not train. */
static void test_anchors(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, ANCHORED, 8, test_speed);
    struct tm_trace trace;
    trace_of("end: 7200s\n\n0 +8\n", &trace);
    struct tm_sim_options options = minute_options(0, 7200000);
    options.workers_max = 6;
    struct tm_sim_result alone = simulate(env, job, &trace, "tidemill", &options, NULL);
    assert_true(alone.on_demand_hours == 0);
    assert_true(close_to(alone.bill_usd, 6 * 0.91 * 7236 / 3600, 1e-9));
    options.anchors = 2;
    struct tm_sim_result keeps = simulate(env, job, &trace, "tidemill", &options, NULL);
    assert_true(close_to(keeps.on_demand_hours, 2 * (7200 - 90) / 3600.0, 1e-9)); /* from arrival: 100 s less joining */
    assert_true(close_to(keeps.bill_usd, alone.bill_usd + 2 * 3.06 * (7236 - 90) / 3600, 1e-9));
    double paused = job->layouts.list[job->layouts.best[6]].samples_per_s * 1; /* everybody is told where they are */
    assert_true(close_to(keeps.samples, alone.samples - paused, 1e-9));
    options.anchors_train = true;
    struct tm_sim_result trains = simulate(env, job, &trace, "tidemill", &options, NULL);
    assert_true(close_to(trains.on_demand_hours, 2 * (7200 - 90) / 3600.0, 1e-9));
    assert_true(close_to(trains.bill_usd, (4 * 0.91 * 7236 + 2 * 3.06 * (7236 - 90)) / 3600, 1e-9));
    assert_true(trains.samples < alone.samples && trains.samples > 0.97 * alone.samples);
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* As a run: on-demand instances for a deadline are ordered at the notice, not when the instance is left or lost. */
static void test_orders_at_the_notice(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, ANCHORED "leave_s: 50\n", 8, test_speed);
    double full = job->layouts.list[job->layouts.best[8]].samples_per_s;
    struct tm_trace trace;
    trace_of("end: 7200s\n\n0 +8\n3030 -1\n", &trace);
    struct tm_sim_options options = minute_options(0, 7200000);
    options.notice_s = 120;
    options.samples_total = full * 3600;
    options.deadline_s = 3820; /* it will be late, but for a full fleet */
    struct tm_sim_result result = simulate(env, job, &trace, "tidemill", &options, NULL);
    double ordered_s = 3030 - 120, paid_from_s = ordered_s + 100 - 10;
    assert_true(result.deadline_met);
    assert_row(close_to(result.on_demand_hours * 3600, result.finished_at_s - paid_from_s, 1e-6),
               "on-demand for %g s, want %g", result.on_demand_hours * 3600, result.finished_at_s - paid_from_s);
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Who is stopped trains on to a common step. */
static void test_stops_at_a_common_step(void **state)
{
    (void)state;
    static const char *const costs[] = {ANCHORED, ANCHORED "drain_s: 30\n"};
    struct tm_env *env = tm_env_virtual_create(1);
    double samples[2], full = 0;
    struct tm_trace trace;
    trace_of("end: 7200s\n\n0 +8\n", &trace);
    for (int i = 0; i < 2; i++) {
        struct test_job *job = job_make(9, false, costs[i], 8, test_speed);
        struct tm_sim_options options = minute_options(0, 7200000);
        options.budget_usd = 8;
        full = job->layouts.list[job->layouts.best[8]].samples_per_s;
        samples[i] = simulate(env, job, &trace, "tidemill", &options, NULL).samples;
        job_drop(job);
    }
    assert_true(close_to(samples[1] - samples[0], 30 * full, 1e-9));
    tm_trace_deinit(&trace);
    tm_env_virtual_destroy(env);
}

/* Below workers_min the job waits. */
static void test_too_few_wait(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, FREE, 8, test_speed);
    struct tm_trace trace;
    trace_of("end: 3600s\n\n0 +8\n1200 -4\n2400 +4\n", &trace);
    struct tm_sim_options options = minute_options(0, 3600000);
    options.workers_min = 6;
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++) {
        if (info->on_demand) continue;
        struct tm_sim_result result = simulate(env, job, &trace, info->name, &options, NULL);
        assert_row(result.pauses.idle_s >= 1200, "%s: %g s", info->name, result.pauses.idle_s);
    }
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* A gang with a deadline waits for spot while it can, and goes on demand when it cannot: always in time. */
static void test_gang_in_time(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, ANCHORED, 4, test_speed);
    double speed = job->layouts.list[job->layouts.best[4]].samples_per_s;
    static const char *const traces[] = {"end: 90000s\n\n0 +4\n", "end: 90000s\n\n0 +0\n", "end: 90000s\n\n0 +3\n",
                                         "end: 90000s\n\n0 +4\n6000 -1\n30000 +1\n"};
    double bills[TM_COUNT(traces)];
    for (size_t i = 0; i < TM_COUNT(traces); i++) {
        struct tm_trace trace;
        trace_of(traces[i], &trace);
        struct tm_sim_options options = minute_options(0, 90000000);
        options.workers_min = options.workers_max = 4;
        options.samples_total = speed * 10 * 3600;
        options.deadline_s = 14 * 3600;
        options.notice_s = 0;
        struct tm_sim_result result = simulate(env, job, &trace, "tidemill", &options, NULL);
        assert_row(result.deadline_met, "\"%s\": finished at %g s", traces[i], result.finished_at_s);
        bills[i] = result.bill_usd;
        tm_trace_deinit(&trace);
    }
    double on_demand_usd = 4 * 3.06 * 10;
    assert_true(bills[0] < 1.01 * 4 * 0.91 * 10 + 0.1);
    assert_true(bills[1] < 1.08 * on_demand_usd && bills[1] > 0.99 * on_demand_usd);
    assert_true(bills[2] < 1.08 * on_demand_usd && bills[2] > 0.99 * on_demand_usd); /* three of four are none */
    assert_true(bills[3] < 0.9 * on_demand_usd && bills[3] > bills[0]);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* A loss without a notice that takes all replicas of a stage costs the work since the last copy set. */
static void test_copies_bound_what_is_lost(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, ANCHORED, 2, test_speed);
    struct tm_trace trace;
    trace_of("end: 7200s\n\n0 +2\n3700 -2\n3710 +2\n", &trace);
    struct tm_sim_options options = minute_options(0, 7200000);
    double samples[2];
    for (int i = 0; i < 2; i++) {
        options.notice_s = i * 120;
        samples[i] = simulate(env, job, &trace, "tidemill", &options, NULL).samples;
    }
    double speed = job->layouts.list[job->layouts.best[2]].samples_per_s;
    assert_true(samples[0] < samples[1] - 10 * speed);   /* some of it is trained again ... */
    assert_true(samples[0] > samples[1] - 1800 * speed); /* ... and no more than copies allow */
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* ---- repeatable, and without memory ---- */

static void test_repeatable(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_random random = tm_random_make(5, 5);
    struct tm_trace trace;
    random_trace(&random, &trace);
    struct tm_sim_options options = minute_options(trace.begin_ms, trace.end_ms);
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++) {
        double samples[2];
        for (int i = 0; i < 2; i++) {
            struct test_job *job = job_make(9, false, PAPER, INSTANCES, test_speed);
            samples[i] = simulate(env, job, &trace, info->name, &options, NULL).samples;
            job_drop(job);
        }
        assert_row(samples[0] == samples[1], "%s: %.17g, then %.17g", info->name, samples[0], samples[1]);
    }
    tm_trace_deinit(&trace);
    tm_env_virtual_destroy(env);
}

static int simulate_once(struct tm_env *env, struct test_job *job, const struct tm_trace *trace,
                         const struct tm_policy_info *info, bool limited)
{
    struct tm_sim_options options = minute_options(0, 300000);
    struct tm_sim_result result;
    struct tm_sim_log log;
    struct tm_error e;
    struct tm_migrations *migrations;
    if (limited) { /* a gang with a deadline, a budget and an anchor */
        options.samples_total = 1000;
        options.deadline_s = 250;
        options.budget_usd = 0.1;
        options.anchors = 1;
        options.workers_min = options.workers_max = 3;
    }
    int rc = tm_migrations_create(&job->layouts, &job->cost, &migrations, &e);
    if (rc != 0) return rc;
    struct tm_sim_job sim_job = {.layouts = &job->layouts, .migrations = migrations, .cost = &job->cost};
    tm_sim_log_init(&log);
    rc = tm_simulate(env, &sim_job, trace, info, &options, &result, &log, &e);
    tm_sim_log_deinit(&log);
    tm_migrations_destroy(migrations);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, PAPER, 4, test_speed);
    struct tm_trace trace;
    trace_of("end: 300s\n\n0 +4\n90 -2\n180 +1\n", &trace);
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++)
        TM_FAIL_EACH_ALLOC({ rc = simulate_once(env, job, &trace, info, false); });
    TM_FAIL_EACH_ALLOC({ rc = simulate_once(env, job, &trace, tm_policy_find("tidemill"), true); });
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_without_costs_all_are_ideal), TM_TEST(test_reactive_by_hand), TM_TEST(test_on_demand_by_hand),
             TM_TEST(test_the_end_of_a_job), TM_TEST(test_prices_of_the_trace), TM_TEST(test_the_step_in_flight),
             TM_TEST(test_refusals), TM_TEST(test_given_forecasts), TM_TEST(test_whatever_the_trace),
             TM_TEST(test_whatever_the_deadline), TM_TEST(test_budget), TM_TEST(test_anchors),
             TM_TEST(test_orders_at_the_notice), TM_TEST(test_stops_at_a_common_step), TM_TEST(test_too_few_wait),
             TM_TEST(test_gang_in_time), TM_TEST(test_copies_bound_what_is_lost), TM_TEST(test_repeatable),
             TM_TEST(test_without_memory))
