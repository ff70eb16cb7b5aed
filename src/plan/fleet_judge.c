#include "plan/fleet_judge_internal.h"

#include "base/alloc.h"
#include "plan/search_internal.h"

#include <math.h>
#include <string.h>

enum { TICKS = 200, HORIZON = 12, CANDIDATES = 8, OTHERS = 2, AGAIN = 3, AGAIN_PROGRAMS = 6, NEIGHBOURS = 3 };

static const double INTERVAL_MIN_S = 60, INTERVAL_MAX_S = 3600;
static const double PATIENCE = 8; /* times the undisturbed time, then a run is given up */
static const double LEAST_PATIENCE = 1.5;

/* ---- one fleet ---- */

static double dollars(double usd)
{
    return round(usd * 1e6) / 1e6;
}

/* What an instance of the fleet's first type costs on demand: as the fleet has it, else in its region, else anywhere;
 * NaN: nowhere. */
static double on_demand_usd_h(const struct tm_catalog *catalog, const struct tm_plan_fleet *fleet)
{
    const struct tm_plan_part *first = &fleet->parts[0];
    double best = NAN, anywhere = NAN;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        if (part->on_demand > 0 && part->instance == first->instance) return dollars(part->offer->on_demand_usd_h);
    }
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        double price = offer->on_demand_usd_h;
        if (&catalog->instances[offer->instance] != first->instance || isnan(price)) continue;
        anywhere = fmin(anywhere, price);
        if (strcmp(offer->region, first->offer->region) == 0) best = fmin(best, price);
    }
    return dollars(isnan(best) ? anywhere : best);
}

/* As the job says, else as the cloud gives it. */
static double notice_s(const struct tm_fleet_judge *judge, const struct tm_plan_fleet *fleet)
{
    double said_s = judge->asked != NULL ? tm_job_fleet_notice_s(judge->asked) : NAN;
    return isnan(said_s) ? (double)tm_cloud_notice_ms(fleet->parts[0].instance->cloud) / 1000 : said_s;
}

struct pools {
    struct tm_draw_pool list[TM_DRAW_POOLS_MAX];
    size_t count;
    double keepers_usd_h; /* instances that only keep copies, all of them */
};

static void pools_of(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                     const struct tm_plan_fleet *fleet, struct pools *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        if (part->spot > 0)
            out->list[out->count++] =
                (struct tm_draw_pool){.count = part->spot,
                                      .price_usd_h = dollars(part->offer->spot_usd_h),
                                      .mean_life_ms = tm_fleet_judge__life_ms(judge, request, fleet, i)};
        if (part->on_demand > 0)
            out->list[out->count++] = (struct tm_draw_pool){
                .count = part->on_demand, .price_usd_h = dollars(part->offer->on_demand_usd_h), .always = true};
    }
    if (fleet->anchor_instances > 0)
        out->keepers_usd_h = fleet->anchor_instances * dollars(fleet->anchor.offer->on_demand_usd_h);
}

/* What of the budget goes to instances that train. */
static double training_share(const struct pools *pools)
{
    double usd_h = 0;
    for (size_t i = 0; i < pools->count; i++)
        usd_h += pools->list[i].count * pools->list[i].price_usd_h;
    return usd_h > 0 ? usd_h / (usd_h + pools->keepers_usd_h) : 1;
}

const struct tm_plan_trace *tm_plan_trace_of_fleet(const struct tm_plan_request *request,
                                                   const struct tm_plan_fleet *fleet)
{
    const struct tm_plan_trace *found = NULL;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        if (part->spot == 0) continue;
        const struct tm_plan_trace *trace = tm_plan__trace_of(request->supply.traces, part->instance, part->offer);
        if (trace == NULL || (found != NULL && trace != found)) return NULL;
        found = trace;
    }
    return found;
}

static const struct tm_trace *replayed(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                                       const struct tm_plan_fleet *fleet)
{
    const struct tm_plan_trace *trace = tm_plan_trace_of_fleet(request, fleet);
    if (judge->no_losses) return NULL;
    return judge->trace != NULL || trace == NULL ? judge->trace : trace->trace;
}

/* A job of years has more preemptions than a simulation holds, if it is given eight times as long as it takes: then it
 * is given less. */
static int judge_patiently(struct tm_judge *ask, double full_s, struct tm_judged *out, struct tm_error *e)
{
    int rc = tm_judge_job(ask, out, e);
    while (rc == -(int)TM_ELIMIT && (double)ask->options.to_ms > 2 * LEAST_PATIENCE * full_s * 1000) {
        ask->options.to_ms /= 2;
        rc = tm_judge_job(ask, out, e);
    }
    return rc;
}

/* On-demand alone has its fleet at once: where the fleet is on demand anyway, it is waited for as that is. */
static struct tm_cost cost_of(const struct tm_fleet_judge *judge, const struct tm_fleet_layouts *layouts,
                              const struct tm_policy_info *policy)
{
    struct tm_cost cost = layouts->cost;
    bool trains = judge->asked != NULL && judge->asked->on_demand > tm_job_fleet_keepers(judge->asked);
    if (policy->on_demand && trains) cost.measured.begin_s += judge->first_wait_s;
    return cost;
}

int tm_fleet_judge_policy(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                          const struct tm_plan_fleet *fleet, const struct tm_fleet_layouts *layouts,
                          const struct tm_policy_info *policy, struct tm_judged *out, struct tm_error *e)
{
    const struct tm_expect_job *job = &request->job;
    struct tm_cost cost = cost_of(judge, layouts, policy);
    struct tm_sim_job sim = {&layouts->layouts, layouts->migrations, &cost, NULL};
    int instances = layouts->layouts.instances_max;
    double full_s = job->samples / layouts->layouts.list[layouts->layouts.best[instances]].samples_per_s;
    double interval_s = fmin(fmax(ceil(full_s / TICKS), INTERVAL_MIN_S), INTERVAL_MAX_S);
    interval_s = fmax(interval_s, ceil(full_s * PATIENCE / (0.5 * TM_SIM_MOMENTS_MAX))); /* a job of years */
    double price = on_demand_usd_h(judge->catalog, fleet);
    struct pools pools;
    pools_of(judge, request, fleet, &pools);
    if (policy->on_demand) { /* never lost, and there is nothing to keep copies for */
        pools = (struct pools){.list = {{.count = instances, .price_usd_h = isnan(price) ? 0 : price}}, .count = 1};
        if (isnan(price))
            return tm_error_set(e, TM_ENONE, "%s is not offered on-demand", fleet->parts[0].instance->name);
    }
    struct tm_judge ask = {.env = judge->env,
                           .job = &sim,
                           .policy = policy,
                           .draw = {.pools = pools.list,
                                    .pool_count = pools.count,
                                    .like = policy->on_demand ? NULL : replayed(judge, request, fleet),
                                    .losses = {.burst_share = round(job->burst_share * 1e6) / 1e6,
                                               .burst_size = round(job->burst_size * 1e6) / 1e6,
                                               .outage_ms = llround(job->outage_s * 1000),
                                               .replace_ms = llround(job->replace_s * 1000)},
                                    .seed = judge->seed},
                           .step_spread = tm_estimate_spread(&layouts->prediction.step_s),
                           .beside_usd_h = pools.keepers_usd_h,
                           .probability = request->min_probability,
                           .runs = judge->runs};
    ask.options = (struct tm_sim_options){
        .to_ms = (int64_t)fmin((full_s + job->startup_s + judge->first_wait_s) * PATIENCE * 1000 + 3.6e6,
                               interval_s * 1e3 * 1e5),
        .interval_s = interval_s,
        .horizon = HORIZON,
        .notice_s = notice_s(judge, fleet),
        .on_demand_usd_h = isnan(price) ? 0 : price,
        .samples_total = job->samples,
        .first_wait_s = judge->first_wait_s,
        .budget_usd = isfinite(request->budget_usd) ? request->budget_usd * training_share(&pools) : 0,
        .workers_min = request->workers_min > 1 ? request->workers_min : 1, /* as in a run */
        .live = true};
    /* Where nothing may be bought on demand, a policy cannot do anything about a deadline. */
    if (isfinite(job->deadline_s)) ask.deadline_s = job->deadline_s;
    if (!isnan(price) && request->market != TM_PLAN_SPOT_ONLY) ask.options.deadline_s = ask.deadline_s;
    return judge_patiently(&ask, full_s + job->startup_s + judge->first_wait_s, out, e);
}

/* ---- an answer ---- */

/* How often the fleet loses an instance. */
static double loss_rate_of(const struct tm_plan_request *request, const struct tm_plan_fleet *fleet)
{
    double rate = 0;
    for (size_t i = 0; i < fleet->part_count; i++)
        if (fleet->parts[i].spot > 0)
            rate += fleet->parts[i].spot * tm_supply__loss_rate(&request->supply, fleet->parts[i].offer);
    return rate;
}

static int judge_answer(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                        struct tm_plan_answer *answer, struct tm_error *e)
{
    const struct tm_policy_info *policy = tm_policy_find(judge->policy != NULL ? judge->policy : "tidemill");
    struct tm_fleet_layouts layouts;
    struct tm_judged judged;
    if (policy == NULL) return tm_error_set(e, TM_EUSAGE, "no policy \"%.40s\"", judge->policy);
    int rc = tm_fleet_layouts_init(judge, request, &answer->fleet, &layouts, e);
    if (rc != 0) return rc;
    rc = tm_fleet_judge_policy(judge, request, &answer->fleet, &layouts, policy, &judged, e);
    answer->prediction = layouts.prediction; /* with the micro-batch size that it will have */
    tm_fleet_layouts_deinit(&layouts);
    if (rc != 0) return rc;
    struct tm_expectation *out = &answer->expectation;
    if (!isfinite(out->usd_h)) out->checkpoint_interval_s = NAN; /* by the closed form it never finishes */
    out->usd_h = tm_plan_usd_h(&answer->fleet);
    out->losses = loss_rate_of(request, &answer->fleet) * judged.time_s.mean;
    out->finishes = judged.finishes;
    out->time_s = judged.time_s;
    out->cost_usd = judged.bill_usd;
    out->p_deadline = isnan(judged.p_deadline) ? 1 : judged.p_deadline;
    out->p_budget = isfinite(request->budget_usd) ? judged.p_finish : NAN; /* a run ends where its budget does */
    out->sure_s = judged.sure_s;
    out->sure_usd = judged.sure_usd;
    return 0;
}

int tm_fleet_judge_answer(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                          struct tm_plan_answer *answer, struct tm_error *e)
{
    int rc = judge_answer(judge, request, answer, e);
    if (rc != -(int)TM_ENONE && rc != -(int)TM_ELIMIT) return rc;
    answer->expectation.finishes = false; /* the closed form has room for what the simulator has no layout for */
    answer->expectation.p_deadline = answer->expectation.p_budget = 0;
    return 0;
}

bool tm_plan__holds(const struct tm_plan_request *request, const struct tm_expectation *expectation)
{
    return expectation->finishes && expectation->cost_usd.mean <= request->budget_usd &&
           (isinf(request->job.deadline_s) || expectation->p_deadline >= request->min_probability - 1e-9);
}

static bool is_better(const struct tm_plan_request *request, const struct tm_expectation *a,
                      const struct tm_expectation *b)
{
    return request->objective == TM_PLAN_CHEAPEST ? a->cost_usd.mean < b->cost_usd.mean
                                                  : a->time_s.mean < b->time_s.mean;
}

/* ---- all answers ---- */

static bool is_same_fleet(const struct tm_plan_fleet *a, const struct tm_plan_fleet *b)
{
    bool same = a->part_count == b->part_count && a->anchor_instances == b->anchor_instances;
    for (size_t i = 0; same && i < a->part_count; i++)
        same = a->parts[i].offer == b->parts[i].offer && a->parts[i].spot == b->parts[i].spot &&
               a->parts[i].on_demand == b->parts[i].on_demand;
    return same;
}

/* Fleets that were judged, whether they hold or not. */
struct hearing {
    const struct tm_fleet_judge *judge;
    const struct tm_plan_request *request;
    struct tm_plan_answer list[TM_PLAN_ANSWERS_MAX];
    size_t count;
    size_t holding;
    bool first_holds; /* the closed form's best */
};

static int hear(struct hearing *hearing, const struct tm_plan_result *result, size_t most, struct tm_error *e)
{
    for (size_t i = 0, heard = 0; i < result->count && heard < most; i++, heard++) {
        bool known = hearing->count == TM_PLAN_ANSWERS_MAX;
        for (size_t k = 0; k < hearing->count && !known; k++)
            known = is_same_fleet(&hearing->list[k].fleet, &result->answers[i].fleet);
        if (known) continue;
        struct tm_plan_answer *answer = &hearing->list[hearing->count];
        *answer = result->answers[i];
        int rc = tm_fleet_judge_answer(hearing->judge, hearing->request, answer, e);
        if (rc != 0) return rc;
        bool holds = tm_plan__holds(hearing->request, &answer->expectation);
        if (hearing->count == 0) hearing->first_holds = holds;
        hearing->count++;
        hearing->holding += holds;
    }
    return 0;
}

/* Where the closed form's best does not hold, it is asked again with limits times a factor, until something does. */
static int hear_again(struct hearing *hearing, const struct tm_supply *supply, struct tm_plan_result *scratch,
                      struct tm_error *e)
{
    static const double factors[] = {0.85, 0.7, 1.4};
    const struct tm_plan_request *request = hearing->request;
    bool limited = isfinite(request->job.deadline_s) || isfinite(request->budget_usd);
    for (size_t i = 0; limited && !hearing->first_holds && i < sizeof factors / sizeof *factors; i++) {
        size_t before = hearing->holding;
        struct tm_plan_request again = *request;
        again.top = AGAIN;
        again.job.deadline_s *= factors[i];
        again.budget_usd *= factors[i];
        if (factors[i] > 1) again.min_probability = fmin(again.min_probability, 0.5);
        if (again.programs_max > AGAIN_PROGRAMS) again.programs_max = AGAIN_PROGRAMS;
        int rc = tm_plan_solve(supply, &again, scratch, e);
        if (rc == 0) rc = hear(hearing, scratch, AGAIN, e);
        if (rc != 0) return rc;
        if (hearing->holding > before) break;
    }
    return 0;
}

/* The same answer with another number of instances, where they are all of one offer and market. */
static int make_neighbour(const struct tm_supply *supply, const struct tm_plan_request *request, int instances,
                          struct tm_plan_answer *answer, bool *out_allowed, struct tm_error *e)
{
    const struct tm_search search = {supply, request, true, NULL};
    struct tm_plan_part *part = &answer->fleet.parts[0];
    *out_allowed = false;
    if (instances < 1 || instances > request->max_instances || instances < request->workers_min) return 0;
    *(part->spot > 0 ? &part->spot : &part->on_demand) = instances;
    if (!tm_search__within_quotas(&search, &answer->fleet)) return 0;
    int rc = tm_plan_judge(supply, request, answer, e);
    if (rc == -(int)TM_ENONE) return 0;
    *out_allowed = rc == 0 && answer->expectation.finishes && answer->expectation.usd_h <= request->max_usd_h;
    return rc;
}

/* The best that holds; NULL: none does. */
static const struct tm_plan_answer *best_heard(const struct hearing *hearing)
{
    const struct tm_plan_answer *best = NULL;
    for (size_t i = 0; i < hearing->count; i++) {
        const struct tm_plan_answer *answer = &hearing->list[i];
        if (!tm_plan__holds(hearing->request, &answer->expectation)) continue;
        if (best == NULL || is_better(hearing->request, &answer->expectation, &best->expectation)) best = answer;
    }
    return best;
}

/* The closed form is off by some percent, so that the best number of instances by the judge may be another: one fewer,
 * one more, or twice as many. */
static int hear_neighbours(struct hearing *hearing, const struct tm_supply *supply, struct tm_plan_result *scratch,
                           struct tm_error *e)
{
    for (int turn = 0; turn < NEIGHBOURS; turn++) {
        const struct tm_plan_answer *best = best_heard(hearing);
        size_t before = hearing->count;
        if (best == NULL || best->fleet.part_count != 1) return 0;
        const struct tm_plan_part *part = &best->fleet.parts[0];
        if (part->spot > 0 && part->on_demand > 0) return 0;
        int now = part->spot + part->on_demand;
        int twice = 2 * now < hearing->request->max_instances ? 2 * now : hearing->request->max_instances;
        const int counts[] = {now - 1, now + 1, twice};
        scratch->count = 0;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            bool allowed = false;
            scratch->answers[scratch->count] = *best;
            int rc =
                make_neighbour(supply, hearing->request, counts[i], &scratch->answers[scratch->count], &allowed, e);
            if (rc != 0) return rc;
            scratch->count += allowed;
        }
        int rc = hear(hearing, scratch, scratch->count, e);
        if (rc != 0 || hearing->count == before) return rc; /* all of them are known */
    }
    return 0;
}

/* Does another one that was heard and holds, of the same types, do better? */
static bool is_outdone(const struct hearing *hearing, size_t index)
{
    const struct tm_plan_answer *answer = &hearing->list[index];
    for (size_t i = 0; i < hearing->count; i++) {
        const struct tm_plan_answer *other = &hearing->list[i];
        if (i == index || !tm_search__same_types(&other->fleet, &answer->fleet) ||
            !tm_plan__holds(hearing->request, &other->expectation))
            continue;
        if (is_better(hearing->request, &other->expectation, &answer->expectation)) return true;
        if (i < index && !is_better(hearing->request, &answer->expectation, &other->expectation)) return true;
    }
    return false;
}

/* The answers that hold, best first, one for each set of instance types. */
static void take(const struct hearing *hearing, struct tm_plan_result *out)
{
    const struct tm_plan_request *request = hearing->request;
    out->count = 0;
    for (size_t i = 0; i < hearing->count; i++) {
        const struct tm_plan_answer *answer = &hearing->list[i];
        const struct tm_expectation *judged = &answer->expectation;
        if (!tm_plan__holds(request, judged) || is_outdone(hearing, i)) continue;
        size_t at = out->count < request->top ? out->count++ : out->count;
        if (at == request->top && !is_better(request, judged, &out->answers[--at].expectation)) continue;
        for (; at > 0 && is_better(request, judged, &out->answers[at - 1].expectation); at--)
            out->answers[at] = out->answers[at - 1];
        out->answers[at] = *answer;
    }
}

/* Where nothing holds: what one limit alone would have to be. */
static int find_needed(struct hearing *hearing, struct tm_plan_result *out, struct tm_error *e)
{
    struct tm_plan_request unlimited = *hearing->request;
    double deadline_s = hearing->request->job.deadline_s;
    unlimited.budget_usd = INFINITY;
    out->deadline_needed_s = out->budget_needed_usd = INFINITY;
    for (size_t i = 0; i < hearing->count; i++) {
        struct tm_expectation *judged = &hearing->list[i].expectation;
        if (judged->finishes) out->deadline_needed_s = fmin(out->deadline_needed_s, judged->sure_s);
        if (isinf(hearing->request->budget_usd)) continue;
        int rc = tm_fleet_judge_answer(hearing->judge, &unlimited, &hearing->list[i], e);
        if (rc != 0) return rc;
        bool on_time = isinf(deadline_s) || judged->p_deadline >= unlimited.min_probability - 1e-9;
        if (judged->finishes && on_time) out->budget_needed_usd = fmin(out->budget_needed_usd, judged->sure_usd);
    }
    return 0;
}

void tm_plan__set_bound(const struct tm_plan_request *request, struct tm_plan_result *out)
{
    if (isnan(out->bound) || out->count == 0) return;
    const struct tm_expectation *best = &out->answers[0].expectation;
    double value = request->objective == TM_PLAN_CHEAPEST ? best->cost_usd.mean : best->time_s.mean;
    out->gap = 1 - out->bound / value;
    if (out->bound > value) out->bound = out->gap = NAN;
}

/* For show: what it takes and costs is told also where the budget is not enough often enough. */
static int judge_freely(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                        struct tm_plan_answer *answer, struct tm_error *e)
{
    struct tm_plan_request unlimited = *request;
    unlimited.budget_usd = INFINITY;
    int rc = tm_fleet_judge_answer(judge, request, answer, e);
    if (rc != 0 || answer->expectation.finishes || isinf(request->budget_usd)) return rc;
    double p_budget = answer->expectation.p_budget;
    rc = tm_fleet_judge_answer(judge, &unlimited, answer, e);
    answer->expectation.p_budget = p_budget;
    return rc;
}

static int search_judged(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                         const struct tm_plan_request *request, size_t candidates, struct tm_plan_result *out,
                         struct tm_plan_result *other, struct tm_error *e)
{
    struct tm_plan_result *scratch = tm_alloc(sizeof *scratch);
    struct hearing *hearing = tm_calloc(1, sizeof *hearing);
    int rc = scratch != NULL && hearing != NULL ? 0 : tm_error_nomem(e);
    if (rc == 0) {
        struct tm_plan_request wide = *request; /* however few are asked for, as many are heard */
        if (wide.top < candidates) wide.top = candidates;
        hearing->judge = judge;
        hearing->request = request;
        rc = tm_plan_search_in(supply, &wide, out, other, e);
    }
    if (rc == 0) rc = hear(hearing, out, candidates, e);
    if (rc == 0 && other != NULL && request->planner == TM_PLAN_TIDEMILL) rc = hear(hearing, other, OTHERS, e);
    if (rc == 0) rc = hear_again(hearing, supply, scratch, e);
    if (rc == 0 && request->planner == TM_PLAN_TIDEMILL) rc = hear_neighbours(hearing, supply, scratch, e);
    if (rc == 0) {
        take(hearing, out);
        tm_plan__set_bound(request, out);
        if (out->count == 0 && hearing->count > 0) rc = find_needed(hearing, out, e);
    }
    if (rc == 0 && other != NULL && other->count > 0) { /* the one that is shown */
        other->count = 1;
        rc = judge_freely(judge, request, &other->answers[0], e);
    }
    tm_free(hearing);
    tm_free(scratch);
    return rc;
}

int tm_plan_search_judged(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                          const struct tm_plan_request *request, struct tm_plan_result *out,
                          struct tm_plan_result *other, struct tm_error *e)
{
    return search_judged(judge, supply, request, CANDIDATES, out, other, e);
}

int tm_plan__search_briefly(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                            const struct tm_plan_request *request, struct tm_plan_result *out, struct tm_error *e)
{
    return search_judged(judge, supply, request, AGAIN, out, NULL, e);
}
