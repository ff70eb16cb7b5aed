/* One single-gang job with a deadline on a trace under one policy: what happens and what it costs.
 *
 * Event-driven on a virtual clock: time goes from one change (spot comes or goes, a restart ends, the policy asked to
 * be asked again, the work is done) to the next. A gang of n needs n instances at once: there is spot while the trace
 * has n or more. Nothing is known after the end of the trace: there is no spot. Work survives a loss (the time of a
 * restart represents what is redone). Bills are per instance-second.
 *
 * With several pools the gang is rented from those of one group, and is lost where one of them no longer has its share;
 * each pool has a trace of its own, and all begin together. */
#ifndef TM_SIM_GANG_H
#define TM_SIM_GANG_H

#include "market/trace.h"
#include "policy/deadline_pools.h"

struct tm_gang_options {
    int64_t from_ms; /* of the trace, at or after its first record; what lies before is known to policies that learn */
    int gang;        /* instances, 1 or more */
    double work_s;
    double deadline_s;
    double restart_s;
    double start_s;    /* of on-demand instances */
    double spot_usd_h; /* of one instance; with pools each has its own, and its own begin */
    double on_demand_usd_h;
    double spot_start_s; /* of spot instances: paid, beside the restart */
};

/* A pool that a gang may be of. */
struct tm_gang_pool {
    const struct tm_trace *trace;
    int64_t from_ms; /* of its trace, where the job begins */
    int limit;       /* most instances at a time */
    int group;       /* pools of one group can make a gang together; from 0 on */
    double usd_h;    /* of one instance */
};

struct tm_gang_pools {
    const struct tm_gang_pool *list;
    int count; /* 1 to TM_GANG_PLACES_MAX */
};

struct tm_gang_bill {
    double instance_hours;
    double bill_usd;
};

struct tm_gang_result {
    double cost_usd;
    double finished_at_s; /* since the start */
    bool deadline_met;
    int launches;  /* of either kind */
    int losses;    /* of the spot gang */
    double spot_s; /* restarts included */
    double on_demand_s;
    double idle_s;             /* on nothing */
    double start_up_s;         /* waiting for on-demand instances */
    double restart_s;          /* the part of spot_s and on_demand_s without work */
    bool trace_ended;          /* the job went on behind the end of the trace */
    double on_demand_only_usd; /* the same job on on-demand instances alone */
    int decisions;
    int moves;                                         /* launches on spot in another group than the one before */
    struct tm_gang_bill pools[TM_GANG_PLACES_MAX + 1]; /* by pool; behind them that of on-demand instances */
};

/* -TM_EINPUT with words: a value out of range. oracle-deadline: -TM_ELIMIT as of tm_gang_plan_init; where no plan meets
 * the deadline it is on-demand. */
int tm_gang_simulate(const struct tm_trace *trace, const struct tm_deadline_policy *policy,
                     const struct tm_gang_options *options, struct tm_gang_result *result, struct tm_error *e);

/* The same over pools. oracle: where there are too many states to keep, the cheapest price counts wherever there is
 * spot, and going elsewhere costs nothing: a bound still. */
int tm_gang_simulate_pools(const struct tm_gang_pools *pools, const struct tm_gang_way *way,
                           const struct tm_gang_options *options, struct tm_gang_result *result, struct tm_error *e);

#endif
