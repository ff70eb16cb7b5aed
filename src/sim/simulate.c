#include "sim/simulate.h"

#include "base/alloc.h"
#include "sim/simulate_internal.h"

#include <math.h>
#include <string.h>

static const double LEAST_PART_S = 1e-6; /* of a moment: times are sums of seconds */

/* ---- what it costs ---- */

/* Losses that are preemptions: what the job itself gives back it knows of. */
static int preempted(const struct tm_sim__run *run)
{
    return run->now.lost - (run->pools != NULL ? run->pools->given_up : 0);
}

/* Probability that a preemption takes an instance in use. */
static double hit_probability(const struct tm_sim__run *run, const struct tm_layout *layout)
{
    int spares = run->now.before - layout->instances, lost = preempted(run), each = run->job->layouts->workers_each;
    double spared = 1;
    if (each < 1 || spares % each != 0 || lost % each != 0) each = 1; /* workers of one instance go together */
    for (int i = 0; i < lost; i += each)
        spared *= spares > i ? (double)(spares - i) / (run->now.before - i) : 0;
    return 1 - spared;
}

/* Probability that an unannounced loss leaves some stage without a replica: then all goes on from the newest copy set.
 * In the published settings, with the paper's costs, no work is lost. */
static double gone_probability(const struct tm_sim__run *run, const struct tm_layout *layout)
{
    bool counts = run->job->cost->kind == TM_COST_MEASURED && run->options->notice_s <= 0 && !run->info->checkpoints;
    int lost = preempted(run), spares = run->now.before - layout->instances;
    if (!counts || lost == 0 || layout->pipelines == 0) return 0;
    return 1 - tm_losses_keep_probability(layout->pipelines, layout->stages, spares, lost,
                                          run->job->layouts->workers_each, 1);
}

/* Until an unannounced loss of an instance in use is known. */
static double detect_ms(const struct tm_sim__run *run)
{
    if (run->job->cost->kind != TM_COST_MEASURED || run->now.lost == 0 || run->options->notice_s > 0) return 0;
    return hit_probability(run, &run->job->layouts->list[run->standing.layout]) * run->job->cost->measured.detect_ms;
}

static int change_ms(struct tm_sim__run *run, size_t moment, const struct tm_decision *decision, int to, double *out,
                     struct tm_error *e)
{
    bool adding = run->arrived_now > 0, migrating = run->standing.migrating_ms > 0;
    bool first = moment == 0 && !run->part;
    *out = run->pools != NULL ? tm_sim__pools_bound_ms(run, to) : 0;
    if (decision->change == TM_CHANGE_FREE) return 0;
    *out = 0;
    if (first && run->pools == NULL && run->job->cost->kind == TM_COST_MEASURED &&
        run->job->cost->measured.begin_s > 0) {
        *out = run->job->cost->measured.begin_s * 1000;
        return 0;
    }
    if (decision->change == TM_CHANGE_ROLLBACK) {
        *out = tm_cost_rollback_ms(run->job->cost, run->job->layouts, to, adding, first);
        if (migrating) *out += tm_cost_restart_ms(run->job->cost, run->job->layouts, to, adding);
        return 0;
    }
    *out = tm_migrations_ms(run->job->migrations, run->now.before, run->standing.layout, run->now.lost, to);
    if (isnan(*out)) return tm_error_nomem(e);
    *out += detect_ms(run);
    if (run->anchored && !first && *out <= 0 && to != TM_LAYOUT_PAUSE)
        *out = tm_migrations_restart_ms(run->job->migrations, to);
    if (decision->change == TM_CHANGE_TIMED) *out = fmax(*out, decision->pause_ms);
    if (migrating)
        *out = *out > 0 ? *out + tm_migrations_restart_ms(run->job->migrations, to) : run->standing.migrating_ms;
    return 0;
}

/* Samples that have to be trained again: the step in flight when an instance in use goes without a word; with
 * checkpoints, all since the last one. */
static double redone(struct tm_sim__run *run, const struct tm_decision *decision)
{
    const struct tm_layout *layout = &run->job->layouts->list[run->standing.layout];
    if (run->now.lost == 0 || layout->step_s <= 0) return 0;
    if (run->info->checkpoints)
        return decision->change == TM_CHANGE_ROLLBACK ? run->uncopied_s * layout->samples_per_s * run->pace : 0;
    if (!run->info->step_in_flight || run->options->notice_s > 0) return 0;
    double gone = gone_probability(run, layout), hit = fmax(0, hit_probability(run, layout) - gone);
    return hit * fmod(run->worked_s, layout->step_s) * layout->samples_per_s + gone * run->uncopied;
}

/* ---- time passes ---- */

static enum tm_sim_cause cause_of(const struct tm_sim__run *run, const struct tm_decision *decision, bool first, int to,
                                  double pause_s)
{
    if (to == TM_LAYOUT_PAUSE) return TM_SIM_IDLE;
    if (!(pause_s > 0)) return TM_SIM_NONE;
    if (first) return TM_SIM_START;
    bool goes_on = run->standing.migrating_ms > 0 && to == run->standing.layout && run->now.lost == 0;
    if (goes_on && decision->change == TM_CHANGE_MIGRATE) return run->cause; /* what was under way */
    return decision->change == TM_CHANGE_ROLLBACK ? TM_SIM_ROLLBACK : TM_SIM_MIGRATE;
}

static void count_pause(struct tm_sim_pauses *pauses, enum tm_sim_cause cause, double pause_s, double duration_s)
{
    if (cause == TM_SIM_IDLE) pauses->idle_s += duration_s;
    if (cause == TM_SIM_START) pauses->start_s += pause_s;
    if (cause == TM_SIM_ROLLBACK) pauses->rollback_s += pause_s;
    if (cause == TM_SIM_MIGRATE) pauses->migrate_s += pause_s;
}

static int log_interval(struct tm_sim__run *run, const struct tm_sim_interval *interval, struct tm_error *e)
{
    if (run->log == NULL) return 0;
    struct tm_sim_log *log = run->log;
    if (tm_grow((void **)&log->intervals, &log->capacity, log->count + 1, sizeof *log->intervals, TM_SIM_MOMENTS_MAX) !=
        0)
        return tm_error_nomem(e);
    log->intervals[log->count++] = *interval;
    /* what has to be trained again was not committed then: samples are taken back from where they were counted */
    double again = interval->samples < 0 ? -interval->samples : 0;
    log->intervals[log->count - 1].samples = fmax(0, interval->samples);
    for (size_t i = log->count - 1; again > 0 && i-- > 0;) {
        double taken = fmin(again, log->intervals[i].samples);
        log->intervals[i].samples -= taken;
        again -= taken;
    }
    return 0;
}

/* The part of the next `hours` that lies after a time. */
static double hours_after(const struct tm_sim__run *run, double from_s, double hours)
{
    return from_s <= run->now_s ? hours : fmax(0, hours - (from_s - run->now_s) / 3600);
}

/* Spot instances that may be rented beside the on-demand ones. Figures that were measured are of runs, which rent none
 * for which an on-demand one is on its way. */
static int spot_room(const struct tm_sim__run *run)
{
    int room = run->workers_max - run->on_demand;
    if (run->spot_max < room) room = run->spot_max;
    return room > 0 ? room : 0;
}

static void bill(struct tm_sim__run *run, const struct tm_moment *moment)
{
    struct tm_sim_result *out = run->out;
    double hours = (isnan(out->finished_at_s) ? run->now.duration_s : out->finished_at_s - run->now_s) / 3600;
    if (run->pools != NULL) {
        tm_sim__pools_bill(run, hours);
        return;
    }
    double spot_usd_h = isnan(moment->price_usd_h) ? run->options->spot_usd_h : moment->price_usd_h;
    int on_demand = run->info->on_demand ? run->now.after : run->on_demand;
    double spot_hours = hours * (run->now.after - on_demand), spot_usd = spot_usd_h * spot_hours;
    if (run->differs) {
        double end_ms = (double)run->options->from_ms + run->now_s * 1000 + hours * 3.6e6;
        tm_paid__advance(&run->paid, end_ms, spot_room(run) + run->leaving, run->options->spot_usd_h, &spot_usd,
                         &spot_hours);
    }
    double on_demand_hours = 0;
    for (int i = 0; i < run->order_count; i++) {
        const struct tm_sim__order *order = &run->orders[i];
        if (order->paid_from_s <= run->now_s)
            on_demand += order->count;
        else
            on_demand_hours += hours_after(run, order->paid_from_s, hours) * order->count;
    }
    on_demand_hours += hours * on_demand;
    double keeping_hours = run->keeping * hours_after(run, run->keep_paid_from_s, hours);
    out->bill_usd +=
        spot_usd + run->options->on_demand_usd_h * on_demand_hours + tm_sim__keeper_usd_h(run->options) * keeping_hours;
    out->instance_hours += spot_hours + on_demand_hours + keeping_hours;
    out->on_demand_hours += on_demand_hours + keeping_hours;
}

/* The job ends when its last sample is trained, inside this moment or not. */
static void finish(struct tm_sim__run *run, double speed, double pause_s, double again)
{
    struct tm_sim_result *out = run->out;
    double left = run->options->samples_total - out->samples + again;
    if (run->options->samples_total <= 0 || speed <= 0) return;
    double need_s = pause_s + left / speed;
    if (need_s > run->now.duration_s) return;
    out->finished_at_s = run->now_s + need_s;
    out->samples = run->options->samples_total;
}

/* Work since the last copy; copies are made on the way. */
static void count_uncopied(struct tm_sim__run *run, double work_s, double samples_per_s)
{
    double since_s = run->uncopied_s + work_s;
    run->uncopied_s = fmod(since_s, run->copy_every_s > 0 ? run->copy_every_s : INFINITY);
    if (run->uncopied_s < since_s)
        run->uncopied = fmin(run->uncopied_s, work_s) * samples_per_s;
    else
        run->uncopied += work_s * samples_per_s;
}

/* Trains through the moment in the layout `to`, with a pause before it. */
static int live_through(struct tm_sim__run *run, size_t moment, const struct tm_decision *decision, int to,
                        double cost_ms, struct tm_error *e)
{
    const struct tm_moment *at = &run->moments.list[moment];
    const struct tm_layout *layout = &run->job->layouts->list[to];
    struct tm_sim_result *out = run->out;
    double again = redone(run, decision), speed = layout->samples_per_s * decision->pace * run->group_speed;
    double pause_s = fmin(cost_ms / 1000, run->now.duration_s), work_s = run->now.duration_s - pause_s;
    bool changed = to != run->standing.layout || cost_ms > 0 || again > 0;
    if (changed) run->worked_s = 0;
    if (changed && run->info->checkpoints) run->uncopied_s = 0;
    if (decision->copy) run->uncopied_s = run->uncopied = 0;
    run->uncopied = fmax(0, run->uncopied - again);
    bool first = moment == 0 && !run->part;
    if (!first && to != run->standing.layout) out->reconfigurations++;
    enum tm_sim_cause cause = run->cause = cause_of(run, decision, first, to, pause_s);
    count_pause(&out->pauses, cause, pause_s, run->now.duration_s);
    double samples = speed * work_s - again;
    double before = out->samples;
    finish(run, speed, pause_s, again);
    if (isnan(out->finished_at_s)) out->samples += samples;
    if (run->pools != NULL) tm_sim__pools_traffic(run, fmax(0, out->samples - before + again));
    run->worked_s += work_s;
    run->trained = work_s > 0;
    run->pace = decision->pace;
    count_uncopied(run, work_s, speed);
    bool gathers = first && run->job->cost->kind == TM_COST_MEASURED; /* as a run counts from when workers joined */
    run->best_samples += run->job->layouts->list[run->job->layouts->best[run->now.after]].samples_per_s *
                         run->group_speed * (gathers ? work_s : run->now.duration_s);
    double left_ms = cost_ms - pause_s * 1000;
    run->standing = (struct tm_standing){to, left_ms > 1e-9 ? left_ms : 0};
    run->spot_s += run->rented * run->now.duration_s;
    bill(run, at);
    struct tm_sim_interval interval = {
        run->now_s,        run->now.duration_s, run->now.before, run->now.lost, run->now.after,
        layout->pipelines, layout->stages,      pause_s,         samples,       cause};
    return log_interval(run, &interval, e);
}

/* ---- the fleet ---- */

int tm_sim__ordered(const struct tm_sim__run *run)
{
    int count = 0;
    for (int i = 0; i < run->order_count; i++)
        count += run->orders[i].count;
    return count;
}

/* How many that were ordered are there now. */
static int take_orders(struct tm_sim__run *run)
{
    int count = 0, left = 0;
    for (int i = 0; i < run->order_count; i++) {
        if (run->now_s >= run->orders[i].ready_s)
            count += run->orders[i].count;
        else
            run->orders[left++] = run->orders[i];
    }
    run->order_count = left;
    return count;
}

/* The newest first. How many were cancelled. */
static int cancel_orders(struct tm_sim__run *run, int count)
{
    int cancelled = 0;
    while (cancelled < count && run->order_count > 0) {
        struct tm_sim__order *last = &run->orders[run->order_count - 1];
        int fewer = count - cancelled < last->count ? count - cancelled : last->count;
        last->count -= fewer;
        cancelled += fewer;
        if (last->count == 0) run->order_count--;
    }
    return cancelled;
}

/* Where the trace has more than are rented, a run that loses some gets others: when those it lost have ended, and the
 * new ones have joined. */
static int lose_some(struct tm_sim__run *run, const struct tm_ahead *trace)
{
    const struct tm_cost *cost = run->job->cost;
    if (cost->kind != TM_COST_MEASURED || run->part || trace->lost == 0 || run->rented == 0) return 0;
    int hits = tm_sim__hits(run, trace->lost, trace->before), spare = trace->before - run->rented;
    run->hits_due += (double)trace->lost * run->rented / trace->before - hits;
    run->missing += hits < spare ? hits : spare;
    run->missing_until_s = run->now_s + run->lead_s + cost->measured.join_s;
    return hits;
}

/* As many as the trace has and there is room for; who has a notice stays in use until the others can do without. */
static int rented_of(const struct tm_sim__run *run, int in_trace, int here)
{
    int room = spot_room(run), fresh = room > run->missing ? room - run->missing : 0;
    if (fresh > in_trace) fresh = in_trace;
    if (here > in_trace) here = in_trace;
    if (here > room + run->leaving) here = room + run->leaving;
    return here > fresh ? here : fresh;
}

/* Those that leave may be here beside those that come in their place: as in a run, no more than the limit train. */
static int at_most(const struct tm_sim__run *run, int instances)
{
    int most = run->job->layouts->instances_max;
    return instances < most ? instances : most;
}

/* The moment as it is: spot instances from the trace as far as there is room, on-demand ones as they were ordered and
 * released. In a later part of a moment the trace does nothing. */
static void meet_moment(struct tm_sim__run *run, size_t moment)
{
    const struct tm_ahead *trace = &run->moments.ahead[moment];
    bool first = moment == 0 && !run->part;
    int had = run->on_demand, spot_before = first ? 0 : run->rented, ordered = take_orders(run);
    run->anchored = run->keeping > 0 && !run->kept && run->now_s >= run->keep_ready_s;
    run->kept = run->kept || run->anchored;
    run->on_demand += ordered - run->released;
    if (run->now_s >= run->missing_until_s) run->missing = 0;
    bool all_rented = !run->part && spot_before == trace->before;
    int lost = all_rented ? trace->lost : lose_some(run, trace);
    run->leaving = first ? 0 : tm_sim__leaving(run, moment);
    run->rented = rented_of(run, trace->after, spot_before - lost);
    if (spot_before - lost > run->rented) lost = spot_before - run->rented;
    run->now = (struct tm_ahead){.duration_s = trace->duration_s,
                                 .before = first ? 0 : at_most(run, spot_before + had),
                                 .after = at_most(run, run->rented + run->on_demand)};
    run->now.lost = lost + run->released < run->now.before ? lost + run->released : run->now.before;
    run->arrived_now = run->rented - (spot_before - lost) + ordered;
    run->released = 0;
    run->losses_seen += all_rented ? lost : 0;
    run->together_seen += all_rented && lost > 1 ? lost : 0;
}

/* On-demand instances are granted always, after their start-up time; those that are given back go at the next moment.
 * They are paid from the grant; by measured figures from their arrival, as the local cloud has it: the rest of their
 * start-up is joining. */
static void carry_out(struct tm_sim__run *run, const struct tm_decision *decision)
{
    const struct tm_cost *cost = run->job->cost;
    bool measured = cost->kind == TM_COST_MEASURED;
    double ready_s = run->now_s + cost->start_s;
    double paid_from_s = measured ? fmax(run->now_s, ready_s - cost->measured.join_s) : run->now_s;
    int beside = run->options->anchors_train ? 0 : run->options->anchors;
    if (run->info->on_demand || !decision->rents) return;
    if (run->keeping == 0 && beside > 0 && !run->info->free) {
        run->keeping = beside;
        run->keep_ready_s = ready_s;
        run->keep_paid_from_s = paid_from_s;
    }
    if (measured || run->options->anchors > 0 || run->gang) run->spot_max = decision->want_spot;
    int more = decision->want_on_demand - beside - run->on_demand - tm_sim__ordered(run);
    int orders_max = measured ? TM_SIM__ORDERS_MAX : 1;
    if (measured && more < 0) more += cancel_orders(run, -more);
    if (more > 0 && run->order_count < orders_max)
        run->orders[run->order_count++] =
            (struct tm_sim__order){.count = more, .ready_s = ready_s, .paid_from_s = paid_from_s};
    else if (more < 0 && run->order_count == 0)
        run->released = -more < run->on_demand ? -more : run->on_demand;
}

/* Where this part of a moment ends: where the policy wants to be asked again, or ordered instances join, as a run would
 * see them. Who knows the whole trace has planned for whole moments. */
static void cut_moment(struct tm_sim__run *run, double end_s, double until_s)
{
    bool measured = run->job->cost->kind == TM_COST_MEASURED;
    double cut_s = run->info->knows == TM_KNOWS_ALL ? INFINITY : until_s;
    for (int i = 0; measured && i < run->order_count; i++)
        cut_s = fmin(cut_s, run->orders[i].ready_s);
    if (run->missing > 0 && run->missing_until_s > run->now_s) cut_s = fmin(cut_s, run->missing_until_s);
    if (run->keeping > 0 && !run->kept) cut_s = fmin(cut_s, run->keep_ready_s);
    if (run->pools != NULL) cut_s = fmin(cut_s, tm_sim__pools_next_s(run));
    if (run->part) run->now.duration_s = end_s - run->now_s;
    if (cut_s > run->now_s && cut_s < end_s) run->now.duration_s = cut_s - run->now_s;
}

static int ask(struct tm_sim__run *run, size_t moment, struct tm_decision *decision, struct tm_error *e)
{
    const struct tm_moment *at = &run->moments.list[moment];
    bool knows_event = run->info->knows != TM_KNOWS_PAST;
    bool watched = at->tick && !run->part && run->options->forecasts == NULL;
    *decision = (struct tm_decision){
        .layout = run->standing.layout, .change = TM_CHANGE_MIGRATE, .pace = 1, .until_s = INFINITY};
    int rc = watched && knows_event ? tm_sim__observe(run, e) : 0;
    bool due = run->part ? run->info->knows != TM_KNOWS_ALL : at->tick || !run->info->ticks_only;
    if (rc == 0 && due) rc = tm_sim__decide(run, moment, decision, e);
    if (rc == 0 && watched && !knows_event) rc = tm_sim__observe(run, e);
    return rc;
}

static int live_part(struct tm_sim__run *run, size_t moment, double end_s, struct tm_error *e)
{
    struct tm_decision decision;
    double cost_ms;
    if (run->pools != NULL)
        tm_sim__pools_meet(run, moment);
    else
        meet_moment(run, moment);
    int rc = ask(run, moment, &decision, e);
    if (rc != 0) return rc;
    if (decision.stop) {
        run->out->stopped_at_s = run->now_s;
        return 0;
    }
    if (run->pools != NULL) tm_sim__pools_carry_out(run, &decision);
    /* An instance with its notice trains on until the others have its layers: the layout without it comes then. */
    bool nothing_else = run->now.lost == 0 && run->arrived_now == 0;
    if (run->leaving > 0 && nothing_else) {
        decision.layout = run->standing.layout;
        decision.change = TM_CHANGE_MIGRATE;
    }
    int to = tm_policy_realise(run->job->layouts, decision.layout, run->now.after, run->options->workers_min);
    if (run->pools != NULL) tm_sim__pools_speed(run, to);
    rc = change_ms(run, moment, &decision, to, &cost_ms, e);
    if (rc != 0) return rc;
    if (run->pools == NULL) carry_out(run, &decision);
    run->copy_every_s = run->info->checkpoints ? run->job->cost->copy_interval_s : decision.copy_every_s;
    cut_moment(run, end_s, decision.until_s);
    rc = live_through(run, moment, &decision, to, cost_ms, e);
    run->now_s += run->now.duration_s;
    return rc;
}

static bool has_ended(const struct tm_sim__run *run)
{
    return !isnan(run->out->finished_at_s) || !isnan(run->out->stopped_at_s);
}

static int step(struct tm_sim__run *run, size_t moment, struct tm_error *e)
{
    const struct tm_moment *at = &run->moments.list[moment];
    double end_s = at->time_s + run->moments.ahead[moment].duration_s;
    run->arrived += moment == 0 ? 0 : at->arrived;
    run->lost += run->moments.ahead[moment].lost;
    run->spot = run->moments.ahead[moment].after;
    if (at->tick) run->tick++;
    run->now_s = at->time_s;
    run->part = false;
    int rc = live_part(run, moment, end_s, e);
    run->part = true;
    while (rc == 0 && !has_ended(run) && end_s - run->now_s > LEAST_PART_S)
        rc = live_part(run, moment, end_s, e);
    return rc;
}

/* On-demand alone: the largest fleet of the trace, for the whole time. */
static void fix_fleet(struct tm_sim__run *run)
{
    int most = 0;
    for (size_t i = 0; i < run->moments.known; i++)
        if (run->moments.ahead[i].after > most) most = run->moments.ahead[i].after;
    if (most > run->workers_max) most = run->workers_max;
    double end_s = (double)(run->options->to_ms - run->options->from_ms) / 1000;
    run->moments.count = run->moments.known = 1;
    run->moments.list[0].arrived = most;
    run->moments.ahead[0] = (struct tm_ahead){end_s, 0, 0, most};
}

/* A run that is stopped goes on to a step that all agree on. */
static void train_to_the_end(struct tm_sim__run *run)
{
    struct tm_sim_result *out = run->out;
    const struct tm_cost *cost = run->job->cost;
    if (cost->kind != TM_COST_MEASURED || run->info->free || !isnan(out->finished_at_s)) return;
    double speed = run->job->layouts->list[run->standing.layout].samples_per_s * run->pace * run->group_speed;
    out->samples += speed * cost->measured.drain_s;
    if (run->options->samples_total > 0) out->samples = fmin(out->samples, run->options->samples_total);
}

/* Instances are paid until they are given back. */
static void pay_the_end(struct tm_sim__run *run)
{
    const struct tm_cost *cost = run->job->cost;
    if (cost->kind != TM_COST_MEASURED || run->info->free || run->moments.count == 0) return;
    if (run->pools != NULL) {
        tm_sim__pools_bill(run, cost->measured.stop_s / 3600);
        return;
    }
    double hours = cost->measured.stop_s / 3600, price = run->moments.list[run->moments.count - 1].price_usd_h;
    int64_t spot = run->info->on_demand ? 0 : run->differs ? run->paid.count : run->rented;
    int on_demand = run->info->on_demand ? run->now.after : run->on_demand;
    if (spot > spot_room(run)) spot = spot_room(run);
    run->out->bill_usd +=
        hours * ((isnan(price) ? run->options->spot_usd_h : price) * (double)spot +
                 run->options->on_demand_usd_h * on_demand + tm_sim__keeper_usd_h(run->options) * run->keeping);
}

/* What was counted are workers. */
static void count_instances(struct tm_sim__run *run)
{
    struct tm_sim_result *out = run->out;
    double each = run->options->workers_each > 1 ? run->options->workers_each : 1;
    out->instance_hours /= each;
    out->on_demand_hours /= each;
    for (int i = 0; i < TM_POOLS_MAX; i++)
        out->pools[i].instance_hours /= each;
}

static void sum_up(struct tm_sim__run *run)
{
    struct tm_sim_result *out = run->out;
    train_to_the_end(run);
    pay_the_end(run);
    count_instances(run);
    out->wall_s = (double)(run->options->to_ms - run->options->from_ms) / 1000;
    double until_s = out->wall_s;
    if (!isnan(out->stopped_at_s)) until_s = out->stopped_at_s;
    if (!isnan(out->finished_at_s)) until_s = out->finished_at_s;
    out->samples_per_s = until_s > 0 ? out->samples / until_s : 0;
    if (!run->info->on_demand) out->bill_usd += run->options->beside_usd_h * until_s / 3600;
    out->usd_per_million_samples = out->samples > 0 ? out->bill_usd / out->samples * 1e6 : NAN;
    out->deadline_met =
        run->options->deadline_s > 0 && !isnan(out->finished_at_s) && out->finished_at_s <= run->options->deadline_s;
    out->decision_us_mean = run->decisions > 0 ? run->decision_ns_sum / (double)run->decisions / 1000 : 0;
    out->decision_us_max = run->decision_ns_max / 1000;
    out->tables_ms = run->table_ns / 1e6;
}

static int check_options(const struct tm_sim_options *options, const struct tm_trace *trace, struct tm_error *e)
{
    if (!(options->interval_s >= 1) || options->horizon < 1 || options->horizon > TM_FORECAST_STEPS_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected an interval of at least 1 s, and 1 to %d of them to look ahead",
                            TM_FORECAST_STEPS_MAX);
    int64_t end_ms = tm_moments_end_ms(trace, (int64_t)(options->interval_s * 1000));
    if (options->from_ms < trace->begin_ms || options->to_ms > end_ms || options->from_ms >= options->to_ms)
        return tm_error_set(e, TM_EUSAGE, "the trace covers %.2fh to %.2fh; --from and --to must be within it",
                            (double)trace->begin_ms / 3.6e6, (double)trace->end_ms / 3.6e6);
    return 0;
}

/* Layouts are known by their number in the list. */
static int check_belief(const struct tm_sim_job *job, struct tm_error *e)
{
    if (job->believed == NULL) return 0;
    const struct tm_layouts *real = job->layouts, *believed = job->believed->layouts;
    bool same = real->count == believed->count;
    for (size_t i = 0; same && i < real->count; i++)
        same =
            real->list[i].pipelines == believed->list[i].pipelines && real->list[i].stages == believed->list[i].stages;
    return same ? 0 : tm_error_set(e, TM_EUSAGE, "the believed costs allow other layouts than the real ones");
}

static int check_fleet(const struct tm_sim__run *run, struct tm_error *e)
{
    for (size_t i = 0; i < run->moments.known; i++)
        if (run->moments.ahead[i].after > run->job->layouts->instances_max)
            return tm_error_set(e, TM_ELIMIT, "the trace has %d instances; layouts were made for at most %d",
                                run->moments.ahead[i].after, run->job->layouts->instances_max);
    return 0;
}

static int run_all(struct tm_sim__run *run, struct tm_error *e)
{
    run->workers_max = run->job->layouts->instances_max;
    if (run->options->workers_max > 0 && run->options->workers_max < run->workers_max)
        run->workers_max = run->options->workers_max;
    run->spot_max = run->workers_max - (run->options->anchors_train ? run->options->anchors : 0);
    run->gang = tm_facts_gang(run->options->workers_min, run->workers_max, run->options->deadline_s > 0);
    int rc = tm_moments__init(&run->moments, run->trace, run->options->from_ms, run->options->to_ms, run->interval_ms,
                              run->options->horizon, e);
    if (rc == 0) rc = check_fleet(run, e);
    if (rc == 0 && run->info->on_demand) fix_fleet(run);
    const struct tm_sim_job *known = run->job->believed != NULL ? run->job->believed : run->job;
    struct tm_policy_options asked = {.interval_s = run->options->interval_s,
                                      .horizon = run->options->horizon,
                                      .seed = run->options->seed,
                                      .breadth = run->options->breadth,
                                      .live = run->options->live};
    if (rc == 0)
        rc = tm_policy_create(run->info, known->layouts, known->migrations, known->cost, &asked, &run->policy, e);
    if (rc == 0) rc = run->options->pools != NULL ? tm_sim__pools_begin(run, e) : tm_sim__feed_history(run, e);
    for (size_t i = 0; rc == 0 && i < run->moments.count && !has_ended(run); i++)
        rc = step(run, i, e);
    if (rc == 0) sum_up(run);
    tm_sim__pools_end(run);
    tm_policy_destroy(run->policy);
    tm_moments__deinit(&run->moments);
    return rc;
}

/* Policies that pay nothing for a change use and leave instances at once. */
static int use_trace(struct tm_sim__run *run, struct tm_error *e)
{
    const struct tm_cost *cost = run->job->cost;
    if (run->options->pools != NULL) {
        run->used = *run->options;
        run->options = &run->used;
        return 0;
    }
    if (run->info->free || run->info->on_demand || cost->kind != TM_COST_MEASURED) return 0;
    run->used = *run->options;
    run->used.notice_s = tm_in_use__notice_s(cost, run->options->notice_s);
    run->lead_s = tm_in_use__lead_s(cost, run->options->notice_s);
    if (tm_in_use__differs(cost, run->options->notice_s) || run->options->first_wait_s > 0) {
        int rc = tm_in_use__trace(run->trace, cost, run->options->from_ms, run->options->notice_s,
                                  run->options->first_wait_s, &run->in_use, e);
        if (rc != 0) return rc;
        run->paid = tm_paid__begin(run->trace, run->options->from_ms);
        run->trace = &run->in_use;
        run->differs = true;
    }
    run->options = &run->used;
    return 0;
}

int tm_simulate(struct tm_env *env, const struct tm_sim_job *job, const struct tm_trace *trace,
                const struct tm_policy_info *info, const struct tm_sim_options *options, struct tm_sim_result *out,
                struct tm_sim_log *log, struct tm_error *e)
{
    int rc = check_options(options, trace, e);
    if (rc == 0) rc = check_belief(job, e);
    if (rc == 0 && options->pools != NULL && info->choice == TM_CHOICE_NONE)
        rc = tm_error_set(e, TM_EUSAGE,
                          "policy %s does not choose among pools; use tidemill, single, failover, spread, oracle or "
                          "ideal",
                          info->name);
    if (rc != 0) return rc;
    if (options->pools != NULL && info->choice == TM_CHOICE_ONE && options->pools->count > 1)
        return tm_sim__best_single(env, job, trace, info, options, out, log, e);
    struct tm_sim_result result = {.finished_at_s = NAN, .stopped_at_s = NAN};
    struct tm_sim__run *run = tm_calloc(1, sizeof *run);
    if (run == NULL) return tm_error_nomem(e);
    *run = (struct tm_sim__run){.env = env,
                                .job = job,
                                .trace = trace,
                                .info = info,
                                .options = options,
                                .interval_ms = (int64_t)(options->interval_s * 1000),
                                .group_speed = 1,
                                .out = &result,
                                .log = log};
    rc = use_trace(run, e);
    if (rc == 0) rc = run_all(run, e);
    if (run->differs) tm_trace_deinit(&run->in_use);
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
