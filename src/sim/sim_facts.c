/* What is known at a moment, as facts for the policy: the fleet, the event, the future as far as it may be known. */
#include "sim/simulate_internal.h"

#include "base/debug.h"

#include <math.h>

/* ---- what the forecast learns from ---- */

/* What the trace says before the job starts is known history. */
int tm_sim__feed_history(struct tm_sim__run *run, struct tm_error *e)
{
    if (run->info->forecast < 0 || run->options->forecasts != NULL) return 0;
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
        int rc = tm_policy_observe(run->policy, count, t == begin_ms ? 0 : arrived, t == begin_ms ? 0 : lost, e);
        if (rc != 0) return rc;
        before = count;
    }
    return 0;
}

/* Who pays for an instance knows of it, whether it is used yet, or still, or not. */
static void see_paid(struct tm_sim__run *run)
{
    const struct tm_trace *trace = run->paid.trace;
    double now_ms = (double)run->options->from_ms + run->now_s * 1000;
    run->arrived = run->lost = 0;
    for (; run->seen < trace->event_count && (double)trace->events[run->seen].time_ms <= now_ms; run->seen++) {
        const struct tm_trace_event *event = &trace->events[run->seen];
        bool before = event->time_ms <= run->options->from_ms;
        run->arrived += before ? 0 : event->in;
        run->lost += before ? 0 : event->out;
        run->seen_count += event->in - event->out;
    }
    run->spot = (int)run->seen_count;
}

int tm_sim__observe(struct tm_sim__run *run, struct tm_error *e)
{
    if (run->differs) see_paid(run);
    int rc = tm_policy_observe(run->policy, run->spot, run->arrived, run->lost, e);
    run->arrived = run->lost = 0;
    return rc;
}

/* Up to when losses have been announced by now. Marked times are of whole milliseconds. */
static double announced_s(const struct tm_sim__run *run)
{
    return run->now_s + run->options->notice_s + (run->lead_s > 0 ? 0.002 : 0);
}

/* Losses that have been announced by now, each once: the forecast takes them as a promise. */
static void hear_notices(struct tm_sim__run *run, size_t moment)
{
    double now_s = run->now_s;
    if (run->options->notice_s <= 0 || run->info->knows == TM_KNOWS_PAST || tm_policy_observed(run->policy) == 0)
        return;
    if (run->announced <= moment) run->announced = moment + 1;
    for (; run->announced < run->moments.known; run->announced++) {
        double at_s = run->moments.list[run->announced].time_s;
        int losing = run->moments.ahead[run->announced].lost;
        if (at_s > announced_s(run)) break;
        if (losing > 0) tm_policy_hint(run->policy, losing, at_s + run->lead_s - now_s);
    }
}

/* ---- who has a notice ---- */

/* Of losses of the trace, those that hit instances that are rented. Which ones go is drawn in a run; here so many that
 * all together are as many as expected. */
int tm_sim__hits(const struct tm_sim__run *run, int lost, int in_trace)
{
    int most = lost < run->rented ? lost : run->rented;
    if (run->rented >= in_trace) return most;
    int hits = (int)lround(run->hits_due + (double)lost * run->rented / in_trace);
    return hits < 0 ? 0 : hits < most ? hits : most;
}

int tm_sim__leaving(const struct tm_sim__run *run, size_t moment)
{
    int count = 0;
    bool told = run->info->knows == TM_KNOWS_EVENT && run->lead_s > 0;
    for (size_t i = moment + 1; told && i < run->moments.known; i++) {
        const struct tm_ahead *ahead = &run->moments.ahead[i];
        if (run->moments.list[i].time_s > announced_s(run)) break;
        if (ahead->lost > 0) count += tm_sim__hits(run, ahead->lost, ahead->before);
    }
    return count < run->rented ? count : run->rented;
}

/* ---- what the policy may know of the future ---- */

/* Forecasts that a test gives. */
static int give_path(struct tm_sim__run *run, struct tm_facts *facts, struct tm_error *e)
{
    size_t horizon = (size_t)run->options->horizon;
    if (run->options->forecasts == NULL) return 0;
    if (run->tick > run->options->forecast_count)
        return tm_error_set(e, TM_EUSAGE, "there are forecasts for %zu intervals, but the run has more",
                            run->options->forecast_count);
    tm_policy_ahead_of_path(run->job->layouts, run->options->interval_s,
                            run->options->forecasts + (run->tick - 1) * horizon, horizon, facts->before, run->steps);
    facts->ahead = run->steps;
    facts->ahead_count = horizon;
    return 0;
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
    all.duration_s = run->options->interval_s;
    return all;
}

static int show_future(struct tm_sim__run *run, size_t moment, struct tm_facts *facts, struct tm_error *e)
{
    const struct tm_ahead *ahead = &run->moments.ahead[moment];
    switch (run->info->knows) {
    case TM_KNOWS_PAST:
        return give_path(run, facts, e);
    case TM_KNOWS_EVENT:
        if (!run->info->ticks_only) return 0;
        run->steps[0] = this_interval(run, moment);
        facts->ahead = run->steps;
        facts->ahead_count = 1;
        return 0;
    case TM_KNOWS_NEXT: {
        double end_s = run->moments.list[moment].time_s + run->options->interval_s * run->options->horizon;
        size_t end = moment + 1;
        while (end < run->moments.known && run->moments.list[end].time_s < end_s)
            end++;
        facts->ahead = ahead;
        facts->ahead_count = end - moment;
        return 0;
    }
    case TM_KNOWS_ALL:
        facts->ahead = ahead;
        facts->ahead_count = run->moments.count - moment;
        return 0;
    }
    return 0;
}

/* ---- the facts ---- */

/* Instances that are paid and have their notice, left or not. */
static int leaving_paid(const struct tm_sim__run *run)
{
    int count = 0;
    double now_ms = (double)run->options->from_ms + run->now_s * 1000;
    double until_ms = now_ms + (run->lead_s + announced_s(run) - run->now_s) * 1000;
    for (size_t i = run->paid.next; run->lead_s > 0 && i < run->paid.trace->event_count; i++) {
        const struct tm_trace_event *event = &run->paid.trace->events[i];
        if ((double)event->time_ms > until_ms) break;
        if ((double)event->time_ms > now_ms) count += event->out;
    }
    return count;
}

static void show_event(struct tm_sim__run *run, size_t moment, struct tm_facts *facts)
{
    const struct tm_ahead *ahead = &run->now;
    facts->lost = ahead->lost + run->leaving;
    facts->after = ahead->after - run->leaving;
    facts->event = (run->moments.list[moment].event && !run->part) || ahead->before != facts->after || facts->lost > 0;
    facts->noticed = run->options->notice_s > 0;
}

static void show_pools(const struct tm_sim__run *run, size_t moment, struct tm_facts *facts)
{
    const struct tm_sim_job *job = run->job;
    const struct tm_cost *known = job->believed != NULL ? job->believed->cost : job->cost; /* to the policy */
    double spot_usd_h = run->moments.list[moment].price_usd_h;
    int on_demand = run->info->on_demand ? run->now.after : run->on_demand;
    int spot = run->now.after - run->leaving - on_demand, leaving = leaving_paid(run);
    int room = run->workers_max - on_demand < run->spot_max ? run->workers_max - on_demand : run->spot_max;
    int in_trace = run->moments.ahead[moment].after;
    int64_t paid = run->differs && run->paid.count < room ? run->paid.count : run->differs ? room : 0;
    facts->pools[0] = (struct tm_pool){.market = TM_POOL_SPOT,
                                       .role = TM_POOL_TRAINS,
                                       .price_usd_h = isnan(spot_usd_h) ? run->options->spot_usd_h : spot_usd_h,
                                       .here = spot,
                                       .ordered = paid > spot + leaving ? (int)paid - spot - leaving : 0,
                                       .leaving = leaving,
                                       .offered = in_trace > spot ? in_trace - spot : 0,
                                       .start_s = known->measured.join_s};
    facts->pools[1] = (struct tm_pool){.market = TM_POOL_ON_DEMAND,
                                       .role = TM_POOL_TRAINS,
                                       .price_usd_h = run->options->on_demand_usd_h,
                                       .here = on_demand,
                                       .ordered = tm_sim__ordered(run),
                                       .offered = -1,
                                       .start_s = known->start_s};
    facts->pools[2] = (struct tm_pool){.market = TM_POOL_ON_DEMAND,
                                       .role = TM_POOL_KEEPS_COPIES,
                                       .price_usd_h = tm_sim__keeper_usd_h(run->options),
                                       .here = run->kept ? run->keeping : 0,
                                       .ordered = run->kept ? 0 : run->keeping,
                                       .offered = -1,
                                       .start_s = known->start_s};
    facts->pool_count = run->options->anchors > 0 && !run->options->anchors_train ? 3 : 2;
}

static void show_limits(const struct tm_sim__run *run, struct tm_facts_limits *limits)
{
    const struct tm_sim_options *options = run->options;
    *limits = (struct tm_facts_limits){.workers_min = options->workers_min,
                                       .workers_max = run->workers_max,
                                       .workers_each = options->workers_each,
                                       .rent = options->rent,
                                       .anchors = run->info->on_demand || run->info->free ? 0 : options->anchors,
                                       .anchors_train = options->anchors_train,
                                       .has_deadline = options->deadline_s > 0 && options->samples_total > 0 &&
                                                       !options->buys_nothing,
                                       .seconds_left = options->deadline_s - run->now_s,
                                       .budget_usd = options->budget_usd,
                                       .bill_usd = run->out->bill_usd + options->beside_usd_h * run->now_s / 3600};
}

/* Copies are made as the policy says where a run's figures are given, else as often as the cost file says. */
static void show_copies(const struct tm_sim__run *run, bool by_policy, struct tm_facts_copies *copies)
{
    const struct tm_layout *layout = &run->job->layouts->list[run->standing.layout];
    double fixed_s = by_policy ? 0 : run->job->cost->copy_interval_s;
    *copies = (struct tm_facts_copies){.since_s = run->uncopied_s,
                                       .uncopied = run->uncopied_s > 0,
                                       .only_one_replica = layout->pipelines == 1,
                                       .copy_s = tm_migrations_largest_ms(run->job->migrations, layout->stages) / 1000,
                                       .every_s = fixed_s,
                                       .every_alone_s = fixed_s};
}

static void fill_facts(const struct tm_sim__run *run, size_t moment, struct tm_facts *facts)
{
    const struct tm_sim_options *options = run->options;
    const struct tm_cost *cost = run->job->cost;
    bool measured = cost->kind == TM_COST_MEASURED && cost->measured.speed > 0;
    *facts = (struct tm_facts){
        .now_s = run->now_s,
        .speed = measured ? cost->measured.speed : 1,
        .first = moment == 0 && !run->part,
        .before = run->now.before,
        .standing = run->standing,
        .progress = {.samples_left =
                         options->samples_total > 0 ? fmax(0, options->samples_total - run->out->samples) : INFINITY,
                     .efficiency = run->best_samples > 0 ? run->out->samples / run->best_samples : NAN,
                     .step_s = run->trained && run->group_speed > 0
                                   ? run->job->layouts->list[run->standing.layout].step_s / run->group_speed
                                   : 0},
        .losses = tm_facts_losses_of(run->losses_seen, options->notice_s > 0 ? 0 : run->losses_seen, run->together_seen,
                                     run->spot_s)};
    show_copies(run, measured && !run->info->checkpoints, &facts->copies);
    show_limits(run, &facts->limits);
    if (run->pools == NULL) show_pools(run, moment, facts);
}

/* ---- asking ---- */

static int time_decision(struct tm_sim__run *run, const struct tm_facts *facts, struct tm_decision *out,
                         double *took_ns, struct tm_error *e)
{
    int64_t begin_ns = run->env->monotonic_ns(run->env);
    int rc = tm_policy_decide(run->policy, facts, out, e);
    *took_ns = (double)(run->env->monotonic_ns(run->env) - begin_ns);
    return rc;
}

/* A decision fills in the migration table where it has to, and makes the forecast. Asked again the same question, it
 * gives the same answer from the table: so what a decision takes is told apart from what these take. The oracle answers
 * from one plan for the whole trace. */
static int ask(struct tm_sim__run *run, const struct tm_facts *facts, struct tm_decision *out, struct tm_error *e)
{
    double first_ns, took_ns;
    int rc = time_decision(run, facts, out, &first_ns, e);
    took_ns = first_ns;
    if (rc == 0 && run->info->knows != TM_KNOWS_ALL) rc = time_decision(run, facts, out, &took_ns, e);
    if (first_ns > took_ns) run->table_ns += first_ns - took_ns;
    run->decision_ns_sum += took_ns;
    if (took_ns > run->decision_ns_max) run->decision_ns_max = took_ns;
    run->decisions++;
    return rc;
}

int tm_sim__decide(struct tm_sim__run *run, size_t moment, struct tm_decision *out, struct tm_error *e)
{
    struct tm_facts facts;
    fill_facts(run, moment, &facts);
    show_event(run, moment, &facts);
    if (run->pools != NULL) {
        tm_sim__pools_show(run, &facts);
        return ask(run, &facts, out, e);
    }
    hear_notices(run, moment);
    int rc = show_future(run, moment, &facts, e);
    if (rc == 0) rc = ask(run, &facts, out, e);
    if (rc != 0) return rc;
    tm_debug(TM_DEBUG_SIM,
             "%s at %.1f s: %d instances, lost %d, now %d; spot %d, %d coming, %d leaving; on-demand %d, %d coming; "
             "layout %d, was %d; wants %d spot, %d on-demand%s",
             run->info->name, facts.now_s, facts.before, facts.lost, facts.after, facts.pools[0].here,
             facts.pools[0].ordered, facts.pools[0].leaving, facts.pools[1].here, facts.pools[1].ordered, out->layout,
             facts.standing.layout, out->want_spot, out->want_on_demand, out->stop ? "; stops" : "");
    return 0;
}
