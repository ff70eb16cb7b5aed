/* Shared by the policies of this room. */
#ifndef TM_POLICY_INTERNAL_H
#define TM_POLICY_INTERNAL_H

#include "policy/policy.h"

/* A layout and the most it can be worth. */
struct tm_ranked {
    int layout;
    double pause_s; /* to get there */
    double bound;
};

struct tm_policy {
    const struct tm_policy_info *info;
    const struct tm_layouts *layouts;
    struct tm_migrations *migrations;
    const struct tm_cost *cost;
    struct tm_lookahead *lookahead;
    int *plan; /* oracle: the whole way, made at the first decision */
    size_t plan_count;
    size_t plan_capacity;
    size_t plan_next;
    int *candidates;          /* [layouts]: scratch */
    struct tm_ranked *ranked; /* [layouts]: scratch */
    enum tm_breadth breadth;
};

int tm_policy__ideal(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e);
int tm_policy__reactive(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                        struct tm_error *e);
int tm_policy__checkpoint(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                          struct tm_error *e);
int tm_policy__redundant(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                         struct tm_error *e);
int tm_policy__fixed(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e);
int tm_policy__parcae(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                      struct tm_error *e);
int tm_policy__tidemill(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                        struct tm_error *e);
int tm_policy__oracle(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                      struct tm_error *e);

/* How many on-demand instances the deadline needs now. */
int tm_policy__on_demand_needed(const struct tm_layouts *layouts, const struct tm_view *view);

#endif
