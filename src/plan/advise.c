#include "plan/advise.h"

#include "base/alloc.h"

#include <math.h>

enum { PROGRAMS = 6 }; /* of one search again: what it adds to fleets of one type is small */

static double value_of(const struct tm_plan_request *request, const struct tm_plan_result *result)
{
    if (result->count == 0) return INFINITY;
    const struct tm_expectation *expectation = &result->answers[0].expectation;
    return request->objective == TM_PLAN_CHEAPEST ? expectation->cost_usd.mean : expectation->time_s.mean;
}

static int instances_of(const struct tm_plan_fleet *fleet)
{
    return tm_plan_spot_instances(fleet) + tm_plan_on_demand_instances(fleet);
}

/* Searches again with other limits, as the answer was searched for: judged, where there is a judge. */
static int search_again(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                        const struct tm_plan_request *request, struct tm_plan_result *scratch, struct tm_error *e)
{
    struct tm_plan_request again = *request;
    again.top = 1;
    if (again.programs_max > PROGRAMS) again.programs_max = PROGRAMS;
    return judge == NULL ? tm_plan_solve(supply, &again, scratch, e)
                         : tm_plan__search_briefly(judge, supply, &again, scratch, e);
}

/* ---- what binds ---- */

static int try_without(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                       const struct tm_plan_request *relaxed, const char *name, double best,
                       struct tm_plan_result *scratch, struct tm_plan_advice *out, struct tm_error *e)
{
    int rc = search_again(judge, supply, relaxed, scratch, e);
    double value = rc == 0 ? value_of(relaxed, scratch) : INFINITY;
    if (value < best * (1 - 0.005) && out->bind_count < TM_PLAN_BINDINGS_MAX) {
        out->binds[out->bind_count] = name;
        out->without[out->bind_count++] = value;
    }
    return rc;
}

static int find_bindings(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                         const struct tm_plan_request *request, const struct tm_plan_result *result,
                         struct tm_plan_result *scratch, struct tm_plan_advice *out, struct tm_error *e)
{
    double best = value_of(request, result);
    int rc = 0;
    struct tm_plan_request relaxed = *request;
    if (isfinite(request->job.deadline_s)) {
        relaxed.job.deadline_s = INFINITY;
        rc = try_without(judge, supply, &relaxed, "--deadline", best, scratch, out, e);
    }
    relaxed = *request;
    if (rc == 0 && isfinite(request->budget_usd)) {
        relaxed.budget_usd = INFINITY;
        rc = try_without(judge, supply, &relaxed, "--budget", best, scratch, out, e);
    }
    relaxed = *request;
    if (rc == 0 && isfinite(request->max_usd_h)) {
        relaxed.max_usd_h = INFINITY;
        rc = try_without(judge, supply, &relaxed, "--max-hourly", best, scratch, out, e);
    }
    relaxed = *request;
    if (rc == 0 && request->quota_count > 0) {
        relaxed.quota_count = 0;
        rc = try_without(judge, supply, &relaxed, "--quota", best, scratch, out, e);
    }
    if (rc == 0 && instances_of(&result->answers[0].fleet) == request->max_instances &&
        out->bind_count < TM_PLAN_BINDINGS_MAX) {
        out->binds[out->bind_count] = "--max-nodes";
        out->without[out->bind_count++] = NAN; /* larger fleets were not looked at */
    }
    return rc;
}

/* ---- a little more ---- */

/* What was found, else what there is: it holds with more, too. */
static void take(const struct tm_plan_result *scratch, const struct tm_plan_result *result, double limit,
                 struct tm_plan_what_if *out)
{
    out->limit = limit;
    out->found = true;
    out->answer = scratch->count > 0 ? scratch->answers[0] : result->answers[0];
}

/* With a budget that half of the runs keep, only those that keep it have a time, and they are the lucky ones. What is
 * told is what the fleet takes and costs on average, where that is within the budget and faster. */
static int judge_all_runs(const struct tm_fleet_judge *judge, const struct tm_plan_request *request, double budget_usd,
                          double fastest_s, struct tm_plan_result *scratch, struct tm_error *e)
{
    if (judge == NULL || scratch->count == 0) return 0;
    int rc = tm_fleet_judge_answer(judge, request, &scratch->answers[0], e);
    const struct tm_expectation *judged = &scratch->answers[0].expectation;
    bool better = judged->finishes && judged->cost_usd.mean <= budget_usd && judged->time_s.mean < fastest_s;
    if (rc == 0 && !better) scratch->count = 0;
    return rc;
}

int tm_plan_advise(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                   const struct tm_plan_request *request, const struct tm_plan_result *result,
                   struct tm_plan_advice *out, struct tm_error *e)
{
    struct tm_plan_result *scratch = tm_alloc(sizeof *scratch);
    if (scratch == NULL) return tm_error_nomem(e);
    const struct tm_expectation *best = &result->answers[0].expectation;
    struct tm_plan_request later = *request;
    struct tm_plan_request richer = *request;
    *out = (struct tm_plan_advice){.bind_count = 0};
    int rc = find_bindings(judge, supply, request, result, scratch, out, e);
    later.objective = TM_PLAN_CHEAPEST;
    later.job.deadline_s += 3600;
    if (rc == 0 && isfinite(request->job.deadline_s)) { /* without a deadline there is time enough */
        rc = search_again(judge, supply, &later, scratch, e);
        if (rc == 0) take(scratch, result, later.job.deadline_s, &out->more_time);
    }
    richer.objective = TM_PLAN_FASTEST;
    if (rc == 0 && isfinite(request->budget_usd)) { /* what the budget allows already is nothing new */
        rc = search_again(judge, supply, &richer, scratch, e);
        out->fastest_s = rc == 0 && scratch->count > 0 ? scratch->answers[0].expectation.time_s.mean : INFINITY;
    }
    out->fastest_s = fmin(out->fastest_s > 0 ? out->fastest_s : INFINITY, best->time_s.mean);
    bool has_budget = isfinite(request->budget_usd);
    richer.budget_usd = 1.1 * (has_budget ? request->budget_usd : best->cost_usd.mean);
    /* Without a budget that must be kept, a tenth more is what is likely to be paid. */
    if (!has_budget && !isfinite(request->job.deadline_s)) richer.min_probability = fmin(request->min_probability, 0.5);
    if (rc == 0) rc = search_again(judge, supply, &richer, scratch, e);
    if (rc == 0 && !has_budget) rc = judge_all_runs(judge, request, richer.budget_usd, out->fastest_s, scratch, e);
    if (rc == 0) take(scratch, result, richer.budget_usd, &out->more_money);
    tm_free(scratch);
    return rc;
}

/* ---- a larger batch ---- */

static bool waits_much(const struct tm_prediction *step)
{
    return step->exposed_comm_s + step->bubble_s + step->optimizer_s > 0.15 * step->step_s.mean;
}

int tm_plan_try_larger_batch(const struct tm_fleet_judge *judge, const struct tm_catalog *catalog,
                             const struct tm_plan_request *request, const struct tm_plan_answer *best,
                             struct tm_plan_larger_batch *out, struct tm_error *e)
{
    enum { TIMES = 4 };
    const double worth_telling = 0.9;
    struct tm_plan_request larger = *request;
    struct tm_supply supply;
    *out = (struct tm_plan_larger_batch){.batch = 0};
    if (!waits_much(&best->prediction)) return 0;
    struct tm_plan_result *scratch = tm_alloc(sizeof *scratch);
    if (scratch == NULL) return tm_error_nomem(e);
    larger.supply.batch *= TIMES;
    tm_supply_init(&supply);
    int rc = tm_plan_make_supply(catalog, &larger, &supply, e);
    if (rc == 0) rc = search_again(judge, &supply, &larger, scratch, e);
    double now =
        request->objective == TM_PLAN_CHEAPEST ? best->expectation.cost_usd.mean : best->expectation.time_s.mean;
    if (rc == 0 && value_of(&larger, scratch) < worth_telling * now)
        *out = (struct tm_plan_larger_batch){.batch = larger.supply.batch, .answer = scratch->answers[0]};
    tm_supply_deinit(&supply);
    tm_free(scratch);
    return rc;
}

/* ---- nothing found ---- */

static int smallest_instances(const struct tm_plan_result *result)
{
    int least = 0;
    for (size_t i = 0; i < result->count; i++) {
        int instances = instances_of(&result->answers[i].fleet);
        if (least == 0 || instances < least) least = instances;
    }
    return least;
}

/* Searches a supply of its own, for what the one in hand was not made for. */
static int search_afresh(const struct tm_catalog *catalog, const struct tm_plan_request *request,
                         struct tm_plan_result *scratch, struct tm_error *e)
{
    struct tm_plan_request again = *request;
    struct tm_supply supply;
    again.programs_max = 0;
    tm_supply_init(&supply);
    int rc = tm_plan_make_supply(catalog, &again, &supply, e);
    if (rc == 0) rc = tm_plan_solve(&supply, &again, scratch, e);
    tm_supply_deinit(&supply);
    return rc;
}

/* The best chance there is to meet the deadline, to two digits and rounded down. */
static int best_chance(const struct tm_supply *supply, const struct tm_plan_request *request,
                       struct tm_plan_result *scratch, double *out, struct tm_error *e)
{
    struct tm_plan_request again = *request;
    double low = 0;
    double high = request->min_probability;
    again.programs_max = 0;
    again.top = 1;
    for (int i = 0; i < 7; i++) {
        again.min_probability = (low + high) / 2;
        int rc = tm_plan_solve(supply, &again, scratch, e);
        if (rc != 0) return rc;
        if (scratch->count > 0)
            low = again.min_probability;
        else
            high = again.min_probability;
    }
    *out = floor(low * 100) / 100;
    return 0;
}

static bool helps(const struct tm_plan_relaxation *relax)
{
    return isfinite(relax->deadline_s) || isfinite(relax->budget_usd) || isfinite(relax->usd_h) ||
           relax->instances > 0 || relax->quotas || relax->market || relax->probability > 0;
}

/* The cheapest fleet without deadline and budget: what it takes and costs, for sure. */
static int relax_both(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                      const struct tm_plan_request *request, struct tm_plan_result *scratch,
                      struct tm_plan_relaxation *out, struct tm_error *e)
{
    struct tm_plan_request relaxed = *request;
    relaxed.job.deadline_s = relaxed.budget_usd = INFINITY;
    int rc = search_again(judge, supply, &relaxed, scratch, e);
    if (rc != 0 || scratch->count == 0) return rc;
    out->both_s = fmax(scratch->answers[0].expectation.sure_s, request->job.deadline_s);
    out->both_usd = fmax(scratch->answers[0].expectation.sure_usd, request->budget_usd);
    return 0;
}

int tm_plan_relax(const struct tm_fleet_judge *judge, const struct tm_catalog *catalog, const struct tm_supply *supply,
                  const struct tm_plan_request *request, const struct tm_plan_result *result,
                  struct tm_plan_relaxation *out, struct tm_error *e)
{
    struct tm_plan_result *scratch = tm_alloc(sizeof *scratch);
    if (scratch == NULL) return tm_error_nomem(e);
    struct tm_plan_request relaxed = *request;
    *out = (struct tm_plan_relaxation){
        .deadline_s = INFINITY, .budget_usd = INFINITY, .usd_h = INFINITY, .both_s = NAN, .both_usd = NAN};
    if (isfinite(request->job.deadline_s)) out->deadline_s = result->deadline_needed_s;
    if (isfinite(request->budget_usd)) out->budget_usd = result->budget_needed_usd;
    if (isfinite(request->max_usd_h)) out->usd_h = result->usd_h_needed;
    int rc = 0;
    if (isfinite(request->job.deadline_s)) rc = best_chance(supply, request, scratch, &out->probability, e);
    if (rc == 0 && request->quota_count > 0) {
        relaxed.quota_count = 0;
        rc = search_again(NULL, supply, &relaxed, scratch, e);
        out->quotas = rc == 0 && scratch->count > 0;
    }
    if (rc == 0 && request->max_instances < TM_PLAN_INSTANCES_MAX) {
        relaxed = *request;
        relaxed.max_instances =
            request->max_instances * 8 < TM_PLAN_INSTANCES_MAX ? request->max_instances * 8 : TM_PLAN_INSTANCES_MAX;
        rc = search_afresh(catalog, &relaxed, scratch, e);
        int instances = rc == 0 ? smallest_instances(scratch) : 0;
        if (instances > request->max_instances) out->instances = instances; /* else it was something else */
    }
    if (rc == 0 && request->market != TM_PLAN_MIXED) {
        relaxed = *request;
        relaxed.market = TM_PLAN_MIXED;
        rc = search_afresh(catalog, &relaxed, scratch, e);
        out->market = rc == 0 && scratch->count > 0;
    }
    if (rc == 0 && !helps(out) && isfinite(request->job.deadline_s) && isfinite(request->budget_usd))
        rc = relax_both(judge, supply, request, scratch, out, e);
    tm_free(scratch);
    return rc;
}
