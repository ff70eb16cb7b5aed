/* What a policy sees: forecasts, events, the future as far as it may know it. */
#include "sim/simulate_internal.h"

#include <math.h>
#include <string.h>

/* ---- forecasts ---- */

static int observe(struct tm_sim__run *run, int count, int arrived, int lost, struct tm_error *e)
{
    run->observed = count;
    run->observations++;
    return tm_forecaster_observe(run->forecaster, count, arrived, lost, e);
}

/* What the trace says before the job starts is known history. */
static int feed_history(struct tm_sim__run *run, struct tm_error *e)
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

int tm_sim__prepare_forecast(struct tm_sim__run *run, struct tm_error *e)
{
    if (run->info->forecast < 0 || run->options->forecasts != NULL) return 0;
    struct tm_forecaster_options options = {.method = (enum tm_forecast_method)run->info->forecast,
                                            .interval_ms = run->interval_ms,
                                            .horizon_max = run->options->horizon,
                                            .seed = run->options->seed};
    int rc = tm_forecaster_create(&options, &run->forecaster, e);
    return rc != 0 ? rc : feed_history(run, e);
}

int tm_sim__observe(struct tm_sim__run *run, struct tm_error *e)
{
    int rc = observe(run, run->spot, run->arrived, run->lost, e);
    run->has_forecast = true;
    run->arrived = run->lost = 0;
    return rc;
}

/* Losses that have been announced by now, each once: the forecast takes them as a promise. */
static void hear_notices(struct tm_sim__run *run, size_t moment)
{
    double now_s = run->moments.list[moment].time_s;
    if (run->announced <= moment) run->announced = moment + 1;
    for (; run->announced < run->moments.known; run->announced++) {
        double at_s = run->moments.list[run->announced].time_s;
        int losing = run->moments.ahead[run->announced].lost;
        if (at_s > now_s + run->options->notice_s) break;
        if (losing > 0)
            tm_forecaster_hint(run->forecaster, TM_FORECAST_NOTICE, losing,
                               (int)ceil((at_s - now_s) / run->options->interval_s));
    }
}

/* ---- what the policy sees ---- */

static int forecast_path(struct tm_sim__run *run, int *path, struct tm_error *e)
{
    int horizon = run->options->horizon;
    if (run->options->forecasts != NULL) {
        if (run->tick > run->options->forecast_count)
            return tm_error_set(e, TM_EUSAGE, "forecasts are given for %zu intervals; there are more",
                                run->options->forecast_count);
        const int *given = run->options->forecasts + (run->tick - 1) * (size_t)horizon;
        memcpy(path, given, (size_t)horizon * sizeof *path);
        return 0;
    }
    for (int i = 0; i < horizon; i++)
        path[i] = run->now.after; /* the first interval of a trace: nothing is known before */
    if (!run->has_forecast) return 0;
    int rc = tm_forecaster_predict(run->forecaster, horizon, &run->forecast, e);
    for (int i = 0; rc == 0 && i < horizon; i++)
        path[i] = run->forecast.steps[i].point;
    return rc;
}

static void show_event(struct tm_sim__run *run, size_t moment, struct tm_view *view)
{
    const struct tm_ahead *ahead = &run->now;
    view->event = run->moments.list[moment].event || ahead->before != ahead->after || ahead->lost > 0;
    view->lost = ahead->lost;
    view->after = ahead->after;
    view->noticed = run->options->notice_s > 0;
}

/* Who decides once an interval and is told its event is told all that happens in it. Of what arrives later in the
 * interval it can make no use before the next. */
static struct tm_ahead this_interval(const struct tm_sim__run *run, size_t moment)
{
    struct tm_ahead all = run->now;
    double end_s = run->moments.list[moment].time_s + run->options->interval_s;
    for (size_t i = moment + 1; i < run->moments.known && run->moments.list[i].time_s < end_s; i++)
        all.lost += run->moments.ahead[i].lost;
    if (all.lost > all.before) all.lost = all.before;
    int left = all.before - all.lost + run->arrived_now;
    if (left < all.after) all.after = left;
    return all;
}

static int show_future(struct tm_sim__run *run, size_t moment, struct tm_view *view, struct tm_error *e)
{
    int horizon = run->options->horizon, path[TM_FORECAST_STEPS_MAX];
    const struct tm_ahead *ahead = &run->moments.ahead[moment];
    view->ahead = run->steps;
    switch (run->info->knows) {
    case TM_KNOWS_PAST: {
        int rc = forecast_path(run, path, e);
        if (rc != 0) return rc;
        view->ahead_count = (size_t)run->options->horizon;
        tm_policy_ahead_of_path(run->job->layouts, run->options->interval_s, path, view->ahead_count, view->before,
                                run->steps);
        return 0;
    }
    case TM_KNOWS_EVENT:
        run->steps[0] = run->info->ticks_only ? this_interval(run, moment) : run->now;
        run->steps[0].duration_s = run->options->interval_s;
        for (int i = 1; i < horizon; i++)
            run->steps[i] = (struct tm_ahead){run->options->interval_s, run->steps[0].after, 0, run->steps[0].after};
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
        if (run->options->notice_s > 0) hear_notices(run, moment);
        int rc = tm_forecaster_predict(run->forecaster, horizon, &run->forecast, e);
        if (rc != 0) return rc;
        view->forecast = &run->forecast;
        view->forecast_from = run->observed;
        view->observed = run->observations;
    }
    return 0;
}

static int time_decision(struct tm_sim__run *run, const struct tm_view *view, struct tm_decision *out, double *took_ns,
                         struct tm_error *e)
{
    int64_t begin_ns = run->env->monotonic_ns(run->env);
    int rc = tm_policy_decide(run->policy, view, out, e);
    *took_ns = (double)(run->env->monotonic_ns(run->env) - begin_ns);
    return rc;
}

/* A decision fills in the migration table where it has to. Asked again the same question, a pure function gives the
 * same answer from the table: so what a decision takes is told apart from what the table takes. The oracle answers from
 * one plan for the whole trace. */
static int ask(struct tm_sim__run *run, const struct tm_view *view, struct tm_decision *out, struct tm_error *e)
{
    double first_ns, took_ns;
    int rc = time_decision(run, view, out, &first_ns, e);
    took_ns = first_ns;
    if (rc == 0 && run->info->knows != TM_KNOWS_ALL) rc = time_decision(run, view, out, &took_ns, e);
    if (first_ns > took_ns) run->table_ns += first_ns - took_ns;
    run->decision_ns_sum += took_ns;
    if (took_ns > run->decision_ns_max) run->decision_ns_max = took_ns;
    run->decisions++;
    return rc;
}

int tm_sim__decide(struct tm_sim__run *run, size_t moment, struct tm_decision *out, struct tm_error *e)
{
    struct tm_view view = {.standing = run->standing,
                           .first = moment == 0,
                           .before = run->now.before,
                           .after = run->now.before,
                           .on_demand = run->on_demand,
                           .ordered = run->ordered,
                           .samples_left = fmax(0, run->options->samples_total - run->out->samples),
                           .seconds_left = run->options->deadline_s - run->moments.list[moment].time_s,
                           .has_deadline = run->options->deadline_s > 0 && run->options->samples_total > 0,
                           .efficiency = run->best_samples > 0 ? run->out->samples / run->best_samples : NAN,
                           .start_s = run->job->cost->start_s,
                           .interval_s = run->options->interval_s,
                           .now_s = run->moments.list[moment].time_s};
    if (run->info->knows != TM_KNOWS_PAST) show_event(run, moment, &view);
    int rc = show_future(run, moment, &view, e);
    if (rc != 0) return rc;
    return ask(run, &view, out, e);
}
