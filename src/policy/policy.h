/* Policies: what to do next, as pure functions from facts to a decision (policy/facts.h).
 *
 * The simulator and the runtime fill the facts and carry out the decision; a policy reads no clock, no file and no
 * random number but its own seed's. What a policy may know is part of its row in the table: the facts are filled
 * accordingly, so a policy cannot look further than it says. A policy owns its forecast: it is told how the fleet went
 * on, interval by interval, and of losses that were announced. A job's decisions are a sequence of these calls, and the
 * same calls give the same decisions. */
#ifndef TM_POLICY_POLICY_H
#define TM_POLICY_POLICY_H

#include "market/forecast.h"
#include "policy/facts.h"

/* What stands in facts.ahead. */
enum tm_knows {
    TM_KNOWS_PAST,  /* decides before this moment's event is known: nothing (or a forecast given by a test) */
    TM_KNOWS_EVENT, /* nothing; who decides once an interval: one step with all that happens in it */
    TM_KNOWS_NEXT,  /* the true next intervals, as many as the look-ahead has */
    TM_KNOWS_ALL,   /* everything to the end */
};

/* How a policy chooses among pools. */
enum tm_pool_choice {
    TM_CHOICE_NONE,     /* it knows of one pool alone */
    TM_CHOICE_OURS,     /* by throughput to come, price, lifetimes and what a loss or a move costs */
    TM_CHOICE_ONE,      /* one pool, whatever happens */
    TM_CHOICE_FAILOVER, /* one pool; after a preemption the whole job goes to the next by price */
    TM_CHOICE_SPREAD,   /* evenly over the pools that are not short, on demand as a fallback */
    TM_CHOICE_BOUND,    /* whatever is best at each moment: the simulator sees to it */
};

struct tm_view; /* the facts with the forecast, as the policies of this room see them */

struct tm_policy; /* one for a job: borrows its layouts and migrations, owns its forecaster and scratch */

struct tm_policy_info {
    const char *name;
    const char *summary;
    enum tm_knows knows;
    bool ticks_only;            /* decides once an interval, not at each event */
    bool on_demand;             /* rents on-demand instances alone */
    bool deadlines;             /* rents on-demand instances where a deadline needs them */
    bool free;                  /* changes cost nothing, arrivals are used and losses left at once: a bound */
    bool step_in_flight;        /* an unannounced loss costs the step in flight */
    bool checkpoints;           /* everybody restarts at a change: a loss costs the work since the last checkpoint */
    bool runs;                  /* can decide for a running job */
    enum tm_pool_choice choice; /* how it chooses among pools */
    bool choice_only;           /* it is nothing without a choice of pools */
    int forecast;               /* a tm_forecast_method, or -1: none */
    int (*decide)(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e);
};

extern const struct tm_policy_info tm_policies[]; /* ends with name NULL */
const struct tm_policy_info *tm_policy_find(const char *name);

/* How many layouts ours looks at. By default all of up to 256, and of more only those near the best. */
enum tm_breadth { TM_BREADTH_DEFAULT, TM_BREADTH_ALL, TM_BREADTH_LIKELY };

struct tm_policy_options {
    double interval_s; /* of the forecast and the look-ahead; at least 1 ms */
    int horizon;       /* intervals of look-ahead: 1..TM_FORECAST_STEPS_MAX */
    uint64_t seed;     /* of the forecast's random numbers */
    enum tm_breadth breadth;
    /* Decides as in a run, where state moves at any change that leaves some of it; only `checkpoint` restarts. And a
     * coordinator cannot be away for long: fleets of more than TM_POLICY_LIVE_MAX workers decide by the event alone
     * where workers x stages, at most, are more than TM_POLICY_LIVE_PLACES_MAX, since the tables of migrations that a
     * look through the forecast needs take too long to fill in. */
    bool live;
};
enum { TM_POLICY_LIVE_MAX = 64, TM_POLICY_LIVE_PLACES_MAX = 4096 };

int tm_policy_create(const struct tm_policy_info *info, const struct tm_layouts *layouts,
                     struct tm_migrations *migrations, const struct tm_cost *cost,
                     const struct tm_policy_options *options, struct tm_policy **out, struct tm_error *e);
void tm_policy_destroy(struct tm_policy *policy);

/* One interval has passed: `count` spot instances now, of which `arrived` came and `lost` went since the call before.
 * Policies that know this moment's event are told before they decide, others after. -TM_ELIMIT as
 * tm_forecaster_observe. */
int tm_policy_observe(struct tm_policy *policy, int count, int arrived, int lost, struct tm_error *e);
/* `losing` spot instances have their notice, and go in `in_s`. */
void tm_policy_hint(struct tm_policy *policy, int losing, double in_s);
/* Where pools are choices: what each of them has at this moment, before the decision. Losses, refusals and what is
 * offered are learned from; of a history that was before the job, instances are not here but offered. */
void tm_policy_observe_pools(struct tm_policy *policy, double now_s, const struct tm_pool *pools, int count);
/* Observations so far. */
int tm_policy_observed(const struct tm_policy *policy);

/* The decision for these facts. The layout fits facts->after if the policy may know it; else the caller must make it
 * fit (tm_policy_realise). Asked the same again, it answers the same. */
int tm_policy_decide(struct tm_policy *policy, const struct tm_facts *facts, struct tm_decision *out,
                     struct tm_error *e);

/* A path of counts (a forecast's points) as steps of whole intervals, for those who know the past. */
void tm_policy_ahead_of_path(const struct tm_layouts *layouts, double interval_s, const int *path, size_t count,
                             int before, struct tm_ahead *out);

/* What becomes of a layout when there are fewer instances than it needs: as many whole pipelines as there are, else one
 * pipeline over all, else the pause; the pause, too, where there are fewer than workers_min. */
int tm_policy_realise(const struct tm_layouts *layouts, int layout, int instances, int workers_min);

#endif
