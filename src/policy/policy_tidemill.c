#include "policy/policy_internal.h"

int tm_policy__tidemill(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                        struct tm_error *e)
{
    return tm_policy__parcae(policy, view, out, e);
}
