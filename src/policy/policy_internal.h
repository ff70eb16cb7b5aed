/* Shared by the policies of this room. */
#ifndef TM_POLICY_INTERNAL_H
#define TM_POLICY_INTERNAL_H

#include "policy/deadline.h"
#include "policy/policy.h"
#include "policy/pools_internal.h"

/* The facts as one policy sees them, with what its forecast says. */
struct tm_view {
    struct tm_standing standing;
    bool first;
    bool event;
    int before;
    int lost;
    int after;
    bool noticed;
    double interval_s; /* of the look-ahead */
    const struct tm_ahead *ahead;
    size_t ahead_count;
    const struct tm_forecast *forecast; /* of the intervals after this one; NULL: none */
    int forecast_from;                  /* the count it was made from */
    int observed;                       /* intervals that the forecast has learned from */
    int on_demand;                      /* of `after`, on-demand instances */
    int ordered;                        /* on-demand instances on their way */
    int spot_ordered;                   /* spot ones */
    double start_s;                     /* how long they take */
    double on_demand_usd_h;             /* of one of them: the cheapest pool's; NaN: not known */
    double spot_usd_h;                  /* of a spot instance, of those that are here or on their way; NaN: not known */
    bool choices;                       /* pools are choices */
    bool has_deadline;
    double samples_left; /* at the predicted speeds: where steps take longer than predicted, more */
    double seconds_left;
    double efficiency;
};

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
    struct tm_policy_options options;
    struct tm_forecaster *forecaster; /* NULL: it wants none */
    struct tm_forecast forecast;
    bool forecast_fresh; /* nothing has been learned since it was made */
    int observed;        /* the count of the last observation */
    int observations;
    double slower; /* measured step time over predicted, as last known */
    struct tm_ahead steps[TM_FORECAST_STEPS_MAX];
    struct tm_spells spells; /* of a gang with a deadline, as the next two */
    struct tm_deadline_terms terms;
    struct tm_deadline_values *values; /* NULL: not made yet */
    struct tm_learned_pools *pools;    /* NULL: it chooses among none */
};

/* The policy's own part of a decision: layout, how it is reached, on-demand instances that train. */
int tm_policy__ask(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e);

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

/* Instances here (or on their way) of a market and a role. */
int tm_facts__here(const struct tm_facts *facts, enum tm_pool_market market, enum tm_pool_role role);
int tm_facts__ordered(const struct tm_facts *facts, enum tm_pool_market market, enum tm_pool_role role);
/* What all of them cost in an hour; pools whose price is not known count nothing. */
double tm_facts__usd_h(const struct tm_facts *facts);

/* Of a gang with a deadline: all instances on spot, all on demand, or none for now. Sets what is wanted, until when and
 * why. `samples_left` is at the predicted speeds. */
int tm_policy__gang(struct tm_policy *policy, const struct tm_facts *facts, double samples_left,
                    struct tm_decision *out, struct tm_error *e);

/* How many on-demand instances the deadline needs now. */
int tm_policy__on_demand_needed(const struct tm_layouts *layouts, const struct tm_view *view);

#endif
