#include "plan/replay.h"

#include "base/alloc.h"
#include "plan/search_internal.h"
#include "sim/moments.h"
#include "sim/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STARTS_MAX = 64, EVENTS_MAX = 1 << 15 };

static const double PATIENCE = 20; /* times the expected time, then a start is given up */

/* ---- the fleet through the trace ---- */

/* Share of the asked-for instances that the trace gives at a time; it begins anew at its end. */
static double share_at(const struct tm_trace *trace, int64_t time_ms)
{
    int64_t length = trace->end_ms - trace->begin_ms;
    double price = NAN;
    int count = tm_moments_count_at(trace, trace->begin_ms + time_ms % length, &price);
    return trace->instances_max > 0 ? (double)count / (double)trace->instances_max : 0;
}

/* When each pool begins, and which of the traced instances ours are. */
struct start {
    int64_t offsets_ms[TM_PLAN_PARTS_MAX];
    double
        luck; /* from 0 to 1: ours go before or after others of the same zone; another one each time the trace begins */
};

static double luck_at(const struct tm_trace *trace, const struct start *start, int64_t time_ms)
{
    static const double golden = 0.6180339887498949; /* steps of it fill the range evenly */
    double luck = start->luck + golden * (double)(time_ms / (trace->end_ms - trace->begin_ms));
    return luck - floor(luck);
}

/* Instances of the fleet at a time, and what they cost an hour. */
static int instances_at(const struct tm_trace *trace, const struct tm_plan_fleet *fleet, const struct start *start,
                        int64_t time_ms, double *usd_h)
{
    int instances = 0;
    *usd_h = fleet->anchor_instances > 0 ? fleet->anchor_instances * fleet->anchor.offer->on_demand_usd_h : 0;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        /* Evenly spread over the traced ones: on average over luck exactly the traced share is there. */
        int64_t at_ms = time_ms + start->offsets_ms[i];
        double there = part->spot > 0 ? part->spot * share_at(trace, at_ms) : 0;
        int spot = there > 0 ? (int)fmax(0, ceil(there - luck_at(trace, start, at_ms))) : 0;
        instances += spot + part->on_demand;
        if (spot > 0) *usd_h += spot * part->offer->spot_usd_h;
        if (part->on_demand > 0) *usd_h += part->on_demand * part->offer->on_demand_usd_h;
    }
    return instances;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Times up to the horizon at which some pool changes, in order. */
static size_t find_times(const struct tm_trace *trace, const struct tm_plan_fleet *fleet, const struct start *start,
                         int64_t horizon_ms, int64_t *times)
{
    int64_t length = trace->end_ms - trace->begin_ms;
    size_t count = 0;
    times[count++] = 0;
    for (int64_t round = 0; round * length < horizon_ms + length; round++) {
        for (size_t i = 0; i < fleet->part_count; i++) {
            for (size_t k = 0; fleet->parts[i].spot > 0 && k < trace->event_count && count < EVENTS_MAX; k++) {
                int64_t time = trace->events[k].time_ms - trace->begin_ms - start->offsets_ms[i] + round * length;
                if (time > 0 && time < horizon_ms) times[count++] = time;
            }
            int64_t anew = round * length - start->offsets_ms[i]; /* where luck changes */
            if (anew > 0 && anew < horizon_ms && count < EVENTS_MAX) times[count++] = anew;
        }
    }
    qsort(times, count, sizeof *times, compare_times);
    return count;
}

/* The fleet's own trace; the price of an instance is what all of it costs, shared among those that train. */
static int make_trace(const struct tm_trace *trace, const struct tm_plan_fleet *fleet, const struct start *start,
                      int64_t horizon_ms, struct tm_trace *out, struct tm_error *e)
{
    int64_t *times = tm_alloc(EVENTS_MAX * sizeof *times);
    if (times == NULL) return tm_error_nomem(e);
    size_t count = find_times(trace, fleet, start, horizon_ms, times);
    int before = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        double usd_h = 0;
        int instances = instances_at(trace, fleet, start, times[i], &usd_h);
        if (i > 0 && (times[i] == times[i - 1] || instances == before)) continue;
        rc = tm_trace_add(out, times[i], instances > before ? instances - before : 0,
                          instances < before ? before - instances : 0, instances > 0 ? usd_h / instances : 0, e);
        before = instances;
        if (instances > out->instances_max) out->instances_max = instances;
    }
    out->end_ms = horizon_ms;
    tm_free(times);
    return rc;
}

/* ---- how fast it is with fewer instances ---- */

struct speed {
    const struct tm_plan_type *type; /* NULL: several, in proportion */
    int instances;
    int pipelines; /* of all of them; an instance may hold several: then as many as there are instances */
    int stages;    /* instances that a pipeline spans, rounded down: they may share one */
    double samples_per_s;
    double batch;
};

static double speed_with(const struct speed *speed, int instances)
{
    if (speed->type == NULL) return speed->samples_per_s * instances / speed->instances;
    double reached = 0;
    for (size_t i = 0; i < speed->type->rate_count; i++) {
        const struct tm_plan_rate *rate = &speed->type->rates[i];
        if (rate->instances > instances) break;
        reached = rate->samples_per_s;
        const struct tm_plan_rate *next = i + 1 < speed->type->rate_count ? rate + 1 : NULL;
        if (next != NULL && next->instances > instances)
            reached +=
                (next->samples_per_s - reached) * (instances - rate->instances) / (next->instances - rate->instances);
    }
    return fmin(reached, speed->samples_per_s);
}

static int speed_of_layout(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                           struct tm_error *e)
{
    const struct speed *speed = context;
    (void)e;
    int instances = (speed->instances * pipelines + speed->pipelines - 1) / speed->pipelines;
    bool used = stages == speed->stages && pipelines <= speed->pipelines;
    double rate = used ? speed_with(speed, instances) : 0;
    *samples_per_s = rate;
    *step_s = rate > 0 ? speed->batch / rate : 0;
    return 0;
}

static struct speed speed_of(const struct tm_supply *supply, const struct tm_plan_request *request,
                             const struct tm_plan_answer *answer)
{
    const struct tm_instance_type *first = answer->fleet.parts[0].instance;
    struct speed speed = {.instances =
                              tm_plan_spot_instances(&answer->fleet) + tm_plan_on_demand_instances(&answer->fleet),
                          .samples_per_s = answer->prediction.samples_per_s,
                          .batch = request->supply.batch};
    bool alone = true;
    for (size_t i = 1; i < answer->fleet.part_count; i++)
        alone = alone && answer->fleet.parts[i].instance == first;
    for (size_t i = 0; alone && i < supply->type_count; i++) {
        if (supply->types[i].instance == first) speed.type = &supply->types[i];
    }
    int gpus = (int)first->gpus > 0 ? (int)first->gpus : 1;
    bool spans = answer->prediction.stages > gpus;
    speed.pipelines = spans ? answer->prediction.pipelines : speed.instances;
    speed.stages = speed.instances / speed.pipelines;
    return speed;
}

/* ---- one start ---- */

struct outcome {
    double time_s;
    double cost_usd;
};

static struct tm_cost cost_of(const struct tm_plan_request *request, const struct tm_plan_answer *answer, int stages)
{
    double interval_s = answer->expectation.checkpoint_interval_s;
    double link_bit_s = answer->fleet.parts[0].instance->network_gbps * 1e9;
    struct tm_cost cost = {.kind = TM_COST_MEASURED,
                           .rules = {.stages_min = stages, .stages_max = stages, .pipelines_min = 1},
                           .start_s = request->job.startup_s,
                           .copy_interval_s = isfinite(interval_s) && interval_s > 0 ? interval_s : 86400};
    cost.measured = (struct tm_measured_cost){.reform_ms = request->job.restart_s * 1000,
                                              .link_bit_s = link_bit_s,
                                              .link_latency_ms = 0.1,
                                              .store_bit_s = link_bit_s,
                                              .speed = 1};
    return cost;
}

static int run_start(const struct tm_replay *replay, const struct tm_plan_request *request,
                     const struct tm_plan_answer *answer, const struct tm_sim_job *job, int number, struct outcome *out,
                     struct tm_error *e)
{
    const struct tm_plan_fleet *fleet = &answer->fleet;
    struct start start = {.luck = (number + 0.5) / replay->starts};
    int64_t length = replay->trace->end_ms - replay->trace->begin_ms;
    int64_t start_ms = length * (number * 7 % replay->starts) / replay->starts; /* luck and time do not go together */
    double expected_s = fmin(answer->expectation.time_s.mean, 3e7);
    int64_t horizon_ms = (int64_t)(expected_s * PATIENCE * 1000) + 3600000;
    struct tm_trace trace;
    struct tm_sim_result result;
    for (size_t i = 0; i < fleet->part_count; i++) /* zones are short at different times */
        start.offsets_ms[i] = (start_ms + (int64_t)i * (length / (int64_t)fleet->part_count)) % length;
    tm_trace_init(&trace);
    int rc = make_trace(replay->trace, fleet, &start, horizon_ms, &trace, e);
    const struct tm_policy_info *info = tm_policy_find(replay->policy != NULL ? replay->policy : "checkpoint");
    if (rc == 0 && info == NULL) rc = tm_error_set(e, TM_EUSAGE, "no policy \"%.40s\"", replay->policy);
    struct tm_sim_options options = {.to_ms = horizon_ms,
                                     .interval_s = fmax(60, ceil((double)horizon_ms / 1000 / 50000)),
                                     .horizon = 12,
                                     .notice_s = 30,
                                     .on_demand_usd_h = 0,
                                     .samples_total = request->job.samples,
                                     .deadline_s = isfinite(request->job.deadline_s) ? request->job.deadline_s : 0};
    if (rc == 0) rc = tm_simulate(replay->env, job, &trace, info, &options, &result, NULL, e);
    if (rc == 0) {
        out->time_s = isnan(result.finished_at_s) ? INFINITY : result.finished_at_s + request->job.startup_s;
        out->cost_usd = result.bill_usd + request->job.startup_s / 3600 * answer->expectation.usd_h;
    }
    tm_trace_deinit(&trace);
    return rc;
}

/* ---- all starts ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct tm_estimate estimate_of(double *values, int count)
{
    double sum = 0;
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    for (int i = 0; i < count; i++)
        sum += values[i];
    return (struct tm_estimate){sum / count, values[count / 10], values[count - 1 - count / 10]};
}

static void sum_up(const struct tm_plan_request *request, const struct outcome *outcomes, int count,
                   struct tm_expectation *out)
{
    double times[STARTS_MAX];
    double costs[STARTS_MAX];
    int met = 0;
    for (int i = 0; i < count; i++) {
        times[i] = outcomes[i].time_s;
        costs[i] = outcomes[i].cost_usd;
        met += outcomes[i].time_s <= request->job.deadline_s;
    }
    out->time_s = estimate_of(times, count);
    out->cost_usd = estimate_of(costs, count);
    out->finishes = isfinite(out->time_s.mean);
    out->p_deadline = (double)met / count;
    out->sure_s = times[(int)fmin(count - 1, ceil(request->min_probability * count))];
}

int tm_plan_replay(const struct tm_replay *replay, const struct tm_supply *supply,
                   const struct tm_plan_request *request, struct tm_plan_answer *answer, struct tm_error *e)
{
    struct outcome outcomes[STARTS_MAX];
    struct tm_layouts layouts = {0};
    struct tm_migrations *migrations = NULL;
    struct speed speed = speed_of(supply, request, answer);
    struct tm_cost cost = cost_of(request, answer, speed.stages);
    int64_t length = replay->trace->end_ms - replay->trace->begin_ms;
    int starts = replay->starts < STARTS_MAX ? replay->starts : STARTS_MAX;
    if (length <= 0 || replay->trace->instances_max < 1)
        return tm_error_set(e, TM_EINPUT, "the trace has no instances: nothing can be replayed");
    if (speed.stages > TM_LAYOUT_STAGES_MAX || speed.instances > TM_LAYOUT_INSTANCES_MAX || starts < 1)
        return tm_error_set(e, TM_ELIMIT, "a pipeline over %d instances cannot be replayed; at most %d", speed.stages,
                            TM_LAYOUT_STAGES_MAX);
    int rc = tm_layouts_init(&layouts, request->supply.model, &cost.rules, speed.instances, speed_of_layout, &speed, e);
    if (rc == 0) rc = tm_migrations_create(&layouts, &cost, &migrations, e);
    struct tm_sim_job job = {.layouts = &layouts, .migrations = migrations, .cost = &cost};
    for (int i = 0; rc == 0 && i < starts; i++)
        rc = run_start(replay, request, answer, &job, i, &outcomes[i], e);
    if (rc == 0) sum_up(request, outcomes, starts, &answer->expectation);
    tm_migrations_destroy(migrations);
    tm_layouts_deinit(&layouts);
    return rc;
}

static bool holds(const struct tm_plan_request *request, const struct tm_expectation *expectation)
{
    return expectation->finishes && expectation->cost_usd.mean <= request->budget_usd &&
           (isinf(request->job.deadline_s) || expectation->p_deadline >= request->min_probability);
}

static bool comes_before(const struct tm_plan_request *request, const struct tm_expectation *a,
                         const struct tm_expectation *b)
{
    bool a_holds = holds(request, a);
    bool b_holds = holds(request, b);
    if (a_holds != b_holds) return a_holds;
    if (!a_holds && a->p_deadline != b->p_deadline) return a->p_deadline > b->p_deadline;
    return request->objective == TM_PLAN_CHEAPEST ? a->cost_usd.mean < b->cost_usd.mean
                                                  : a->time_s.mean < b->time_s.mean;
}

int tm_plan_replay_all(const struct tm_replay *replay, const struct tm_supply *supply,
                       const struct tm_plan_request *request, struct tm_plan_result *result, struct tm_error *e)
{
    for (size_t i = 0; i < result->count; i++) {
        int rc = tm_plan_replay(replay, supply, request, &result->answers[i], e);
        if (rc != 0) return rc;
        struct tm_plan_answer answer = result->answers[i];
        size_t at = i;
        for (; at > 0 && comes_before(request, &answer.expectation, &result->answers[at - 1].expectation); at--)
            result->answers[at] = result->answers[at - 1];
        result->answers[at] = answer;
    }
    return 0;
}
