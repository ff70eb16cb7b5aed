#include "plan/replan.h"

#include "plan/search_internal.h"

#include <math.h>
#include <string.h>

/* ---- what is left ---- */

static int request_left(const struct tm_plan_request *request, const struct tm_replan_state *state,
                        struct tm_plan_request *left, struct tm_error *e)
{
    *left = *request;
    left->job.samples = request->job.samples - state->samples_done;
    left->job.deadline_s = request->job.deadline_s - state->elapsed_s;
    left->budget_usd = request->budget_usd - state->spent_usd;
    if (!(left->job.samples > 0)) return tm_error_set(e, TM_EUSAGE, "the job is done: there is nothing left to plan");
    if (!(left->job.deadline_s > 0)) left->job.deadline_s = 1; /* it is missed: what comes nearest is found */
    return 0;
}

/* ---- the fleet that runs ---- */

static int judge_running(const struct tm_supply *supply, const struct tm_replan_state *state, struct tm_replan *out,
                         struct tm_error *e)
{
    struct tm_plan_request running = out->left;
    struct tm_comm_model comm = *running.supply.comm;
    out->running = (struct tm_plan_answer){.fleet = *state->fleet};
    running.job.startup_s = 0; /* it runs already */
    if (state->links != NULL) {
        struct tm_fleet_group unused;
        tm_probed_links_use(state->links, &unused, 0, &comm);
        running.supply.comm = &comm;
        running.supply.probed_bit_s = state->links->rate_bit_s;
    }
    int rc = tm_plan_judge(supply, &running, &out->running, e);
    if (rc != 0) return rc;
    out->factor = 1;
    if (state->observed != NULL && state->observed->count > 0)
        out->factor = tm_observed_correct(state->observed, &out->running.prediction);
    return tm_plan__weigh(supply, &running, &out->running, e);
}

static bool still_holds(const struct tm_plan_request *left, const struct tm_expectation *expectation)
{
    return expectation->finishes && expectation->usd_h <= left->max_usd_h &&
           expectation->cost_usd.mean <= left->budget_usd &&
           (isinf(left->job.deadline_s) || expectation->p_deadline >= left->min_probability);
}

/* ---- what was learned ---- */

/* Types with the GPU of the first part are slower by the factor. */
static void learn(struct tm_supply *supply, const struct tm_replan_state *state, double factor)
{
    const char *gpu = state->fleet->parts[0].instance->gpu;
    for (size_t t = 0; t < supply->type_count; t++) {
        struct tm_plan_type *type = &supply->types[t];
        if (strcmp(type->instance->gpu, gpu) != 0) continue;
        type->slowdown *= factor;
        for (size_t i = 0; i < type->rate_count; i++)
            type->rates[i].samples_per_s /= factor;
    }
}

/* ---- moving ---- */

/* What clouds ask for a GB that leaves them, and for one that goes to another of their regions: list prices, 2026. */
static double egress_usd_gb(const char *cloud, bool same_cloud)
{
    static const struct {
        const char *cloud;
        double out, between;
    } rows[] = {{"aws", 0.09, 0.02}, {"gcp", 0.12, 0.02}, {"azure", 0.087, 0.02}, {"lambda", 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].cloud, cloud) == 0) return same_cloud ? rows[i].between : rows[i].out;
    return same_cloud ? 0.02 : 0.09;
}

/* The state must come along where the next fleet is elsewhere. */
static void add_egress(const struct tm_plan_request *request, const struct tm_plan_fleet *from,
                       struct tm_plan_answer *answer)
{
    const struct tm_plan_part *here = &from->parts[0];
    const struct tm_plan_part *there = &answer->fleet.parts[0];
    bool same_cloud = strcmp(here->instance->cloud, there->instance->cloud) == 0;
    if (same_cloud && strcmp(here->offer->region, there->offer->region) == 0) return;
    answer->egress_usd = request->state_bytes / 1e9 * egress_usd_gb(here->instance->cloud, same_cloud);
    answer->expectation.cost_usd.mean += answer->egress_usd;
    answer->expectation.cost_usd.p10 += answer->egress_usd;
    answer->expectation.cost_usd.p90 += answer->egress_usd;
}

static void move_there(const struct tm_plan_request *request, const struct tm_plan_fleet *from,
                       struct tm_plan_result *next)
{
    for (size_t i = 0; i < next->count; i++) {
        add_egress(request, from, &next->answers[i]);
        struct tm_plan_answer moved = next->answers[i];
        size_t at = i;
        for (; request->objective == TM_PLAN_CHEAPEST && at > 0 &&
               next->answers[at - 1].expectation.cost_usd.mean > moved.expectation.cost_usd.mean;
             at--)
            next->answers[at] = next->answers[at - 1];
        next->answers[at] = moved;
    }
}

int tm_plan_replan(struct tm_supply *supply, const struct tm_plan_request *request, const struct tm_replan_state *state,
                   struct tm_replan *out, struct tm_plan_result *next, struct tm_error *e)
{
    int rc = request_left(request, state, &out->left, e);
    if (rc == 0) rc = judge_running(state->home != NULL ? state->home : supply, state, out, e);
    if (rc != 0) return rc;
    out->holds = still_holds(&out->left, &out->running.expectation);
    if (out->holds) return 0;
    learn(supply, state, out->factor);
    if (out->left.budget_usd < 0) out->left.budget_usd = 0;
    rc = tm_plan_solve(supply, &out->left, next, e);
    if (rc == 0) move_there(&out->left, state->fleet, next);
    return rc;
}
