/* What others do without looking ahead. */
#include "policy/policy_internal.h"

int tm_policy__ideal(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e)
{
    (void)e;
    out->shape = policy->shapes->best[view->after];
    out->change = TM_CHANGE_FREE;
    return 0;
}

int tm_policy__reactive(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                        struct tm_error *e)
{
    (void)e;
    if (!view->event) return 0;
    out->shape = policy->shapes->best[view->after];
    out->change = TM_CHANGE_ROLLBACK;
    return 0;
}

int tm_policy__fixed(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e)
{
    (void)e;
    if (view->event) out->shape = policy->shapes->best[view->after];
    return 0;
}
