#include "sim/simulate.h"

#include "base/alloc.h"
#include "sim/moments.h"

#include <math.h>
#include <string.h>

/* One run under way. */
struct run {
    struct tm_env *env;
    const struct tm_sim_job *job;
    const struct tm_trace *trace;
    const struct tm_policy_info *info;
    const struct tm_sim_options *options;
    struct tm_moments moments;
    struct tm_policy *policy;
    struct tm_forecaster *forecaster; /* NULL: the policy wants none */
    int64_t interval_ms;
    struct tm_forecast forecast;
    bool has_forecast;
    int observed; /* the count of the last observation */
    int arrived;  /* since then */
    int lost;
    size_t tick; /* how many there were */
    struct tm_ahead steps[TM_FORECAST_STEPS_MAX + 1];
    struct tm_standing standing;
    double worked_s;     /* since training last started: tells where in a step a loss strikes */
    double copied_ago_s; /* work since the last checkpoint */
    double dollars;
    double decision_ns_sum;
    double decision_ns_max;
    size_t decisions;
    struct tm_sim_result *out;
    struct tm_sim_log *log;
};

/* ---- forecasts ---- */

static int observe(struct run *run, int count, int arrived, int lost, struct tm_error *e)
{
    run->observed = count;
    return tm_forecaster_observe(run->forecaster, count, arrived, lost, e);
}

/* What the trace says before the job starts is known history. */
static int feed_history(struct run *run, struct tm_error *e)
{
    int64_t from_ms = run->options->from_ms;
    int64_t begin_ms = from_ms - (from_ms - run->trace->begin_ms) / run->interval_ms * run->interval_ms;
    int before = 0;
    size_t next = 0;
    for (int64_t t = begin_ms; t < from_ms; t += run->interval_ms) {
        int count = before, arrived = 0, lost = 0;
        for (; next < run->trace->event_count && run->trace->events[next].time_ms <= t; next++) {
            arrived += run->trace->events[next].in;
            lost += run->trace->events[next].out;
        }
        count += arrived - lost;
        int rc = observe(run, count, t == begin_ms ? 0 : arrived, t == begin_ms ? 0 : lost, e);
        if (rc != 0) return rc;
        before = count;
        run->has_forecast = true;
    }
    return 0;
}

static int make_forecaster(struct run *run, struct tm_error *e)
{
    if (run->info->forecast < 0 || run->options->forecasts != NULL) return 0;
    struct tm_forecaster_options options = {.method = (enum tm_forecast_method)run->info->forecast,
                                            .interval_ms = run->interval_ms,
                                            .horizon_max = run->options->horizon,
                                            .seed = run->options->seed};
    int rc = tm_forecaster_create(&options, &run->forecaster, e);
    return rc != 0 ? rc : feed_history(run, e);
}

/* ---- what the policy sees ---- */

/* A path of counts as steps of whole intervals. */
static size_t steps_from_path(struct run *run, const int *path, int before)
{
    size_t count = (size_t)run->options->horizon;
    int floor = run->job->shapes->stages_min, least = path[0];
    for (size_t i = 1; i < count; i++)
        if (path[i] < least) least = path[i];
    for (size_t i = 0; i < count; i++) {
        int after = least < floor ? floor : path[i]; /* Parcae never plans for less than its smallest layout */
        if (after > run->job->shapes->nodes_max) after = run->job->shapes->nodes_max;
        run->steps[i] = (struct tm_ahead){run->options->interval_s, before, before > after ? before - after : 0, after};
        before = after;
    }
    return count;
}

static int forecast_path(struct run *run, size_t moment, int *path, struct tm_error *e)
{
    int horizon = run->options->horizon;
    if (run->options->forecasts != NULL) {
        const int *given = run->options->forecasts + (run->tick - 1) * (size_t)horizon;
        memcpy(path, given, (size_t)horizon * sizeof *path);
        return 0;
    }
    for (int i = 0; i < horizon; i++)
        path[i] = run->moments.ahead[moment].after; /* the first interval of a trace: nothing is known before */
    if (!run->has_forecast) return 0;
    int rc = tm_forecaster_predict(run->forecaster, horizon, &run->forecast, e);
    for (int i = 0; rc == 0 && i < horizon; i++)
        path[i] = run->forecast.steps[i].point;
    return rc;
}

static void show_event(struct run *run, size_t moment, struct tm_view *view)
{
    const struct tm_ahead *ahead = &run->moments.ahead[moment];
    view->event = run->moments.list[moment].event;
    view->lost = ahead->lost;
    view->after = ahead->after;
    view->noticed = run->options->notice_s > 0;
}

static int show_future(struct run *run, size_t moment, struct tm_view *view, struct tm_error *e)
{
    int horizon = run->options->horizon, path[TM_FORECAST_STEPS_MAX];
    const struct tm_ahead *ahead = &run->moments.ahead[moment];
    view->ahead = run->steps;
    switch (run->info->knows) {
    case TM_KNOWS_PAST: {
        int rc = forecast_path(run, moment, path, e);
        if (rc != 0) return rc;
        view->ahead_count = steps_from_path(run, path, view->before);
        return 0;
    }
    case TM_KNOWS_EVENT:
        run->steps[0] = (struct tm_ahead){run->options->interval_s, ahead->before, ahead->lost, ahead->after};
        for (int i = 1; i < horizon; i++)
            run->steps[i] = (struct tm_ahead){run->options->interval_s, ahead->after, 0, ahead->after};
        view->ahead_count = (size_t)horizon;
        break;
    case TM_KNOWS_NEXT: {
        double end_s = run->moments.list[moment].time_s + run->options->interval_s * horizon;
        size_t end = moment + 1;
        while (end < run->moments.known && run->moments.list[end].time_s < end_s)
            end++;
        view->ahead = ahead;
        view->ahead_count = end - moment;
        break;
    }
    case TM_KNOWS_ALL:
        view->ahead = ahead;
        view->ahead_count = run->moments.count - moment;
        break;
    }
    if (run->forecaster != NULL && run->has_forecast) {
        int rc = tm_forecaster_predict(run->forecaster, horizon, &run->forecast, e);
        if (rc != 0) return rc;
        view->forecast = &run->forecast;
        view->forecast_from = run->observed;
    }
    return 0;
}

static int decide(struct run *run, size_t moment, struct tm_decision *out, struct tm_error *e)
{
    struct tm_view view = {.standing = run->standing,
                           .first = moment == 0,
                           .before = run->moments.ahead[moment].before,
                           .after = run->moments.ahead[moment].before,
                           .interval_s = run->options->interval_s,
                           .now_s = run->moments.list[moment].time_s};
    if (run->info->knows != TM_KNOWS_PAST) show_event(run, moment, &view);
    int rc = show_future(run, moment, &view, e);
    if (rc != 0) return rc;
    int64_t begin_ns = run->env->monotonic_ns(run->env);
    rc = tm_policy_decide(run->policy, &view, out, e);
    double took_ns = (double)(run->env->monotonic_ns(run->env) - begin_ns);
    run->decision_ns_sum += took_ns;
    if (took_ns > run->decision_ns_max) run->decision_ns_max = took_ns;
    run->decisions++;
    return rc;
}

/* ---- what it costs ---- */

static int change_ms(struct run *run, size_t moment, const struct tm_decision *decision, int to, double *out,
                     struct tm_error *e)
{
    const struct tm_ahead *ahead = &run->moments.ahead[moment];
    bool adding = run->moments.list[moment].arrived > 0;
    *out = 0;
    if (decision->change == TM_CHANGE_FREE) return 0;
    if (decision->change == TM_CHANGE_ROLLBACK) {
        *out = tm_cost_rollback_ms(run->job->cost, run->job->shapes, to, adding, moment == 0);
        if (run->standing.migrating_ms > 0) *out += tm_cost_restart_ms(run->job->cost, run->job->shapes, to, adding);
        return 0;
    }
    const double *row = tm_migrations_row(run->job->migrations, ahead->before, run->standing.shape, ahead->lost);
    if (row == NULL) return tm_error_nomem(e);
    *out = row[to];
    if (run->standing.migrating_ms > 0)
        *out = *out > 0 ? *out + tm_migrations_restart_ms(run->job->migrations, to) : run->standing.migrating_ms;
    return 0;
}

/* The step in flight is lost when an instance in use goes without a word. */
static double lost_in_flight(const struct run *run, size_t moment)
{
    const struct tm_ahead *ahead = &run->moments.ahead[moment];
    const struct tm_shape *shape = &run->job->shapes->list[run->standing.shape];
    if (!run->info->step_in_flight || run->options->notice_s > 0 || ahead->lost == 0 || shape->step_s <= 0) return 0;
    int spares = ahead->before - shape->nodes;
    double spared = 1; /* probability that only spares go */
    for (int i = 0; i < ahead->lost; i++)
        spared *= spares > i ? (double)(spares - i) / (ahead->before - i) : 0;
    return (1 - spared) * fmod(run->worked_s, shape->step_s) * shape->samples_per_s;
}

static enum tm_sim_cause cause_of(const struct tm_decision *decision, bool first, int to, double pause_s)
{
    if (to == TM_SHAPE_PAUSE) return TM_SIM_IDLE;
    if (!(pause_s > 0)) return TM_SIM_NONE;
    if (first) return TM_SIM_START;
    return decision->change == TM_CHANGE_ROLLBACK ? TM_SIM_ROLLBACK : TM_SIM_MIGRATE;
}

static void count_pause(struct tm_sim_pauses *pauses, enum tm_sim_cause cause, double pause_s, double duration_s)
{
    if (cause == TM_SIM_IDLE) pauses->idle_s += duration_s;
    if (cause == TM_SIM_START) pauses->start_s += pause_s;
    if (cause == TM_SIM_ROLLBACK) pauses->rollback_s += pause_s;
    if (cause == TM_SIM_MIGRATE) pauses->migrate_s += pause_s;
}

static int log_interval(struct run *run, const struct tm_sim_interval *interval, struct tm_error *e)
{
    if (run->log == NULL) return 0;
    struct tm_sim_log *log = run->log;
    if (tm_grow((void **)&log->intervals, &log->capacity, log->count + 1, sizeof *log->intervals, TM_SIM_MOMENTS_MAX) !=
        0)
        return tm_error_nomem(e);
    log->intervals[log->count++] = *interval;
    return 0;
}

/* Trains through the moment in the shape `to` with a pause before it. */
static int live_through(struct run *run, size_t moment, const struct tm_decision *decision, int to, double cost_ms,
                        struct tm_error *e)
{
    const struct tm_ahead *ahead = &run->moments.ahead[moment];
    const struct tm_shape *shape = &run->job->shapes->list[to];
    double in_flight = lost_in_flight(run, moment);
    double pause_s = fmin(cost_ms / 1000, ahead->duration_s);
    double work_s = ahead->duration_s - pause_s;
    double samples = shape->samples_per_s * work_s * decision->pace - in_flight;
    if (to != run->standing.shape || cost_ms > 0) {
        run->worked_s = 0;
        if (moment > 0 && to != run->standing.shape) run->out->reconfigurations++;
    }
    struct tm_sim_result *out = run->out;
    enum tm_sim_cause cause = cause_of(decision, moment == 0, to, pause_s);
    count_pause(&out->pauses, cause, pause_s, ahead->duration_s);
    double total = run->options->samples_total;
    if (total > 0 && isnan(out->finished_at_s) && out->samples + samples >= total && shape->samples_per_s > 0)
        out->finished_at_s = run->moments.list[moment].time_s + pause_s +
                             (total - out->samples + in_flight) / (shape->samples_per_s * decision->pace);
    out->samples += samples;
    run->worked_s += work_s;
    run->standing = (struct tm_standing){to, cost_ms - pause_s * 1000 > 1e-9 ? cost_ms - pause_s * 1000 : 0};
    double billed_s =
        isnan(out->finished_at_s) ? ahead->duration_s : out->finished_at_s - run->moments.list[moment].time_s;
    double price = run->moments.list[moment].price_usd_h;
    if (isnan(price)) price = run->options->spot_usd_h;
    if (run->info->on_demand) price = run->options->on_demand_usd_h;
    out->bill_usd += billed_s / 3600 * ahead->after * price;
    out->instance_hours += billed_s / 3600 * ahead->after;
    struct tm_sim_interval interval = {run->moments.list[moment].time_s,
                                       ahead->duration_s,
                                       ahead->before,
                                       ahead->lost,
                                       ahead->after,
                                       shape->pipelines,
                                       shape->stages,
                                       pause_s,
                                       samples,
                                       cause};
    return log_interval(run, &interval, e);
}

static int step(struct run *run, size_t moment, struct tm_error *e)
{
    const struct tm_ahead *ahead = &run->moments.ahead[moment];
    const struct tm_moment *now = &run->moments.list[moment];
    run->arrived += moment == 0 ? 0 : now->arrived;
    run->lost += ahead->lost;
    bool after_event = run->info->knows != TM_KNOWS_PAST;
    if (now->tick) run->tick++;
    int rc = 0;
    if (now->tick && after_event && run->forecaster != NULL) {
        rc = observe(run, ahead->after, run->arrived, run->lost, e);
        run->has_forecast = true;
        run->arrived = run->lost = 0;
    }
    struct tm_decision decision = {.shape = run->standing.shape, .change = TM_CHANGE_MIGRATE, .pace = 1};
    if (rc == 0 && (now->tick || !run->info->ticks_only)) rc = decide(run, moment, &decision, e);
    if (rc == 0 && now->tick && !after_event && run->forecaster != NULL) {
        rc = observe(run, ahead->after, run->arrived, run->lost, e);
        run->has_forecast = true;
        run->arrived = run->lost = 0;
    }
    if (rc != 0) return rc;
    int to = tm_policy_realise(run->job->shapes, decision.shape, ahead->after);
    double cost_ms;
    rc = change_ms(run, moment, &decision, to, &cost_ms, e);
    if (rc == 0 && decision.change == TM_CHANGE_MIGRATE && !now->event && to == run->standing.shape && cost_ms == 0)
        cost_ms = run->standing.migrating_ms;
    return rc != 0 ? rc : live_through(run, moment, &decision, to, cost_ms, e);
}

/* On-demand: the largest fleet of the trace, for the whole time. */
static int fix_fleet(struct run *run, struct tm_error *e)
{
    int most = 0;
    for (size_t i = 0; i < run->moments.known; i++)
        if (run->moments.ahead[i].after > most) most = run->moments.ahead[i].after;
    double end_s = (double)(run->options->to_ms - run->options->from_ms) / 1000;
    (void)e;
    run->moments.count = run->moments.known = 1;
    run->moments.list[0].arrived = most;
    run->moments.ahead[0] = (struct tm_ahead){end_s, 0, 0, most};
    return 0;
}

static void sum_up(struct run *run)
{
    struct tm_sim_result *out = run->out;
    out->wall_s = (double)(run->options->to_ms - run->options->from_ms) / 1000;
    double until_s = isnan(out->finished_at_s) ? out->wall_s : out->finished_at_s;
    out->samples_per_s = until_s > 0 ? out->samples / until_s : 0;
    out->usd_per_million_samples = out->samples > 0 ? out->bill_usd / out->samples * 1e6 : NAN;
    out->deadline_met =
        run->options->deadline_s > 0 && !isnan(out->finished_at_s) && out->finished_at_s <= run->options->deadline_s;
    out->decision_us_mean = run->decisions > 0 ? run->decision_ns_sum / (double)run->decisions / 1000 : 0;
    out->decision_us_max = run->decision_ns_max / 1000;
}

static int check_options(const struct tm_sim_options *options, const struct tm_trace *trace, struct tm_error *e)
{
    int64_t end_ms = tm_moments_end_ms(trace, (int64_t)(options->interval_s * 1000));
    if (options->from_ms < trace->begin_ms || options->to_ms > end_ms || options->from_ms >= options->to_ms)
        return tm_error_set(e, TM_EUSAGE, "the trace speaks from %.2fh to %.2fh; --from and --to must lie within",
                            (double)trace->begin_ms / 3.6e6, (double)trace->end_ms / 3.6e6);
    if (!(options->interval_s >= 1) || options->horizon < 1 || options->horizon > TM_FORECAST_STEPS_MAX)
        return tm_error_set(e, TM_EUSAGE, "an interval of at least 1 s and 1 to %d of them to look ahead",
                            TM_FORECAST_STEPS_MAX);
    return 0;
}

static int run_all(struct run *run, struct tm_error *e)
{
    int rc = tm_moments_init(&run->moments, run->trace, run->options->from_ms, run->options->to_ms, run->interval_ms,
                             run->options->horizon, e);
    if (rc == 0 && run->info->on_demand) rc = fix_fleet(run, e);
    if (rc == 0)
        rc = tm_policy_create(run->info, run->job->shapes, run->job->migrations, run->job->cost, &run->policy, e);
    if (rc == 0) rc = make_forecaster(run, e);
    for (size_t i = 0; rc == 0 && i < run->moments.count && isnan(run->out->finished_at_s); i++)
        rc = step(run, i, e);
    if (rc == 0) sum_up(run);
    tm_forecaster_destroy(run->forecaster);
    tm_policy_destroy(run->policy);
    tm_moments_deinit(&run->moments);
    return rc;
}

int tm_simulate(struct tm_env *env, const struct tm_sim_job *job, const struct tm_trace *trace,
                const struct tm_policy_info *info, const struct tm_sim_options *options, struct tm_sim_result *out,
                struct tm_sim_log *log, struct tm_error *e)
{
    int rc = check_options(options, trace, e);
    if (rc != 0) return rc;
    struct tm_sim_result result = {.finished_at_s = NAN};
    struct run *run = tm_calloc(1, sizeof *run);
    if (run == NULL) return tm_error_nomem(e);
    *run = (struct run){.env = env,
                        .job = job,
                        .trace = trace,
                        .info = info,
                        .options = options,
                        .interval_ms = (int64_t)(options->interval_s * 1000),
                        .out = &result,
                        .log = log};
    rc = run_all(run, e);
    tm_free(run);
    if (rc == 0) *out = result;
    return rc;
}

void tm_sim_log_init(struct tm_sim_log *log)
{
    memset(log, 0, sizeof *log);
}

void tm_sim_log_deinit(struct tm_sim_log *log)
{
    tm_free(log->intervals);
    memset(log, 0, sizeof *log);
}
