/* Parcae: plan over the look-ahead as if it were certain, do the first step, plan again next interval. */
#include "policy/policy_internal.h"

#include "base/alloc.h"
#include "policy/best_path.h"

int tm_policy__parcae(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e)
{
    int path[TM_FORECAST_STEPS_MAX + 1];
    size_t count = view->ahead_count <= TM_FORECAST_STEPS_MAX ? view->ahead_count : TM_FORECAST_STEPS_MAX;
    int rc = tm_lookahead__solve(policy->lookahead, view->standing, view->ahead, count, path, NULL, e);
    if (rc == 0) out->layout = path[0];
    return rc;
}

int tm_policy__oracle(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e)
{
    if (view->first || policy->plan_next >= policy->plan_count) {
        if (tm_grow((void **)&policy->plan, &policy->plan_capacity, view->ahead_count, sizeof *policy->plan,
                    TM_LOOKAHEAD_STEPS_MAX) != 0)
            return tm_error_nomem(e);
        policy->plan_count = view->ahead_count;
        policy->plan_next = 0;
        int rc = tm_best__path(policy->layouts, policy->migrations, view->standing, view->ahead, view->ahead_count,
                               policy->plan, NULL, e);
        if (rc != 0) return rc;
    }
    out->layout = policy->plan[policy->plan_next++];
    return 0;
}
