#include "plan/pareto.h"

#include "base/alloc.h"
#include "plan/fleet_judge_internal.h"

#include <math.h>
#include <string.h>

enum { BUDGETS = 8 };

static const double NEAR = 0.03; /* relative: nearer ones are the same for a person */

static bool covers(const struct tm_expectation *a, const struct tm_expectation *b)
{
    return a->cost_usd.mean <= b->cost_usd.mean * (1 + NEAR) && a->time_s.mean <= b->time_s.mean * (1 + NEAR);
}

/* Adds a fleet unless one is there that is as good; drops those that it makes superfluous. The first, the cheapest,
 * stays. */
static void add(struct tm_plan_result *out, const struct tm_plan_answer *answer)
{
    for (size_t i = 0; i < out->count; i++) {
        if (covers(&out->answers[i].expectation, &answer->expectation)) return;
    }
    size_t kept = out->count > 0 ? 1 : 0;
    for (size_t i = 1; i < out->count; i++) {
        if (!covers(&answer->expectation, &out->answers[i].expectation)) out->answers[kept++] = out->answers[i];
    }
    out->count = kept;
    if (out->count == TM_PLAN_ANSWERS_MAX) return;
    size_t at = out->count++;
    for (; at > 0 && out->answers[at - 1].expectation.cost_usd.mean > answer->expectation.cost_usd.mean; at--)
        out->answers[at] = out->answers[at - 1];
    out->answers[at] = *answer;
}

/* What the closed form would rent, in `out`. */
static int find(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_result *out,
                struct tm_plan_result *scratch, struct tm_error *e)
{
    struct tm_plan_request one = *request;
    one.objective = TM_PLAN_CHEAPEST;
    int rc = tm_plan_solve(supply, &one, out, e);
    if (rc == 0 && out->count > 0) out->count = 1;
    one.objective = TM_PLAN_FASTEST;
    one.top = 1;
    one.programs_max = request->programs_max < 8 ? request->programs_max : 8;
    if (rc == 0 && out->count > 0) rc = tm_plan_solve(supply, &one, scratch, e);
    if (rc != 0 || out->count == 0 || scratch->count == 0) return rc;
    double low = out->answers[0].expectation.cost_usd.mean;
    double high = scratch->answers[0].expectation.cost_usd.mean;
    add(out, &scratch->answers[0]);
    for (int i = 1; rc == 0 && i < BUDGETS; i++) {
        one.budget_usd = fmin(request->budget_usd, low * pow(high / low, (double)i / BUDGETS));
        rc = tm_plan_solve(supply, &one, scratch, e);
        out->fleets += scratch->fleets;
        out->programs += scratch->programs;
        if (rc == 0 && scratch->count > 0) add(out, &scratch->answers[0]);
    }
    return rc;
}

/* Those that are left when each has been judged: the cheapest by its figures comes first, whoever found it. */
static int judge_all(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                     struct tm_plan_result *out, struct tm_plan_result *scratch, struct tm_error *e)
{
    size_t cheapest = 0;
    scratch->count = 0;
    for (size_t i = 0; i < out->count; i++) {
        struct tm_plan_answer *answer = &scratch->answers[scratch->count];
        *answer = out->answers[i];
        int rc = tm_fleet_judge_answer(judge, request, answer, e);
        if (rc != 0) return rc;
        if (!tm_plan__holds(request, &answer->expectation)) continue;
        if (answer->expectation.cost_usd.mean < scratch->answers[cheapest].expectation.cost_usd.mean)
            cheapest = scratch->count;
        scratch->count++;
    }
    out->count = 0;
    if (scratch->count > 0) add(out, &scratch->answers[cheapest]);
    for (size_t i = 0; i < scratch->count; i++)
        add(out, &scratch->answers[i]);
    tm_plan__set_bound(request, out);
    return 0;
}

int tm_plan_pareto(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                   const struct tm_plan_request *request, struct tm_plan_result *out, struct tm_error *e)
{
    struct tm_plan_request cheapest = *request;
    struct tm_plan_result *scratch = tm_alloc(sizeof *scratch);
    if (scratch == NULL) return tm_error_nomem(e);
    cheapest.objective = TM_PLAN_CHEAPEST;
    int rc = find(supply, &cheapest, out, scratch, e);
    if (rc == 0 && judge != NULL && out->count > 0) rc = judge_all(judge, &cheapest, out, scratch, e);
    if (rc == 0 && out->count > request->top) out->count = request->top;
    tm_free(scratch);
    return rc;
}
