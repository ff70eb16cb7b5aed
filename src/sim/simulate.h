/* One job, one trace, one policy: what happens.
 *
 * Event-driven on a virtual clock. A moment is a change of the fleet, or a tick of the policy's interval; between two
 * moments nothing changes, so time advances from moment to moment. Which instances go is not in a trace: pauses are
 * expectations over it (migrate.h), so a run is exact and needs no seed for it. */
#ifndef TM_SIM_SIMULATE_H
#define TM_SIM_SIMULATE_H

#include "market/trace.h"
#include "policy/policy.h"

enum { TM_SIM_MOMENTS_MAX = 1 << 17 };

/* A pool that the policy may rent from. */
struct tm_sim_pool {
    const char *name;
    enum tm_pool_market market;
    int group;                    /* pools of one group can train together; from 0 on */
    int region;                   /* a number for each */
    const struct tm_trace *trace; /* NULL: there are always as many as the limit */
    int64_t from_ms;              /* of the trace, where the job begins; its history before is known */
    int limit;
    double price_usd_h; /* where the trace has none */
    double start_s;     /* from asking for one to its first work */
    double notice_s;
    double speed; /* throughput of its instances over that which the layouts say */
};

struct tm_sim_pools {
    const struct tm_sim_pool *list; /* at most TM_POOLS_MAX */
    int count;
    int keeper_count;  /* so many more behind them, whose instances only keep copies */
    int workers_each;  /* tm_sim_options.workers_each */
    double move_usd;   /* of a move of the whole job to another group */
    struct tm_far far; /* where those that train are in several regions */
};

struct tm_sim_pool_bill {
    double instance_hours;
    double bill_usd;
};

struct tm_sim_options {
    int64_t from_ms; /* of the trace; its history before is known to forecasts */
    int64_t to_ms;
    double interval_s; /* of ticks and of the look-ahead */
    int horizon;       /* intervals of look-ahead */
    double notice_s;
    uint64_t seed;
    double spot_usd_h; /* where the trace has no prices */
    double on_demand_usd_h;
    double samples_total;    /* of the job; 0: trains to the end of the trace */
    double first_wait_s;     /* for the instances that the trace begins with, where a wait for others is measured */
    double deadline_s;       /* 0: none */
    double keeper_usd_h;     /* of an anchor that does not train; 0: on_demand_usd_h */
    double beside_usd_h;     /* of instances that only keep copies and are billed apart, as long as the job runs */
    bool buys_nothing;       /* the deadline only counts: no on-demand instances are bought for it */
    double budget_usd;       /* 0: none; the job stops when it is used up */
    int anchors;             /* on-demand instances that hold copies, paid from their grant; 0: none */
    bool anchors_train;      /* they train too, in place of spot ones; else they come on top */
    int workers_min;         /* that train; below it the job waits */
    int workers_max;         /* that train; 0: as many as layouts were made for */
    int workers_each;        /* of an instance: all counts, of traces, too, are of workers then; 0: 1 */
    enum tm_fleet_rent rent; /* tm_facts_limits.rent */
    bool live;               /* decides as a run does: tm_policy_options.live */
    const int *forecasts;    /* given instead of the policy's own, horizon numbers for each tick; NULL: none (tests) */
    size_t forecast_count;
    enum tm_breadth breadth; /* of our policy */
    /* Pools to choose from; the trace is then only a list of the times at which something happens in theirs. NULL: the
     * trace is the pool. */
    const struct tm_sim_pools *pools;
};

/* Why an interval paused. Of idle the whole of it, of the others pause_s, at its beginning. */
enum tm_sim_cause { TM_SIM_NONE, TM_SIM_MIGRATE, TM_SIM_ROLLBACK, TM_SIM_IDLE, TM_SIM_START };

/* From one moment to the next. */
struct tm_sim_interval {
    double time_s;
    double duration_s;
    int before, lost, after;
    int pipelines, stages;
    double pause_s;
    double samples;
    enum tm_sim_cause cause;
};

struct tm_sim_log {
    struct tm_sim_interval *intervals; /* owned */
    size_t count;
    size_t capacity;
};

/* Why it did not train. */
struct tm_sim_pauses {
    double migrate_s;
    double rollback_s;
    double idle_s; /* too few instances for any layout */
    double start_s;
};

struct tm_sim_result {
    double samples;
    double samples_per_s;
    struct tm_sim_pauses pauses;
    int reconfigurations;
    double bill_usd;
    double usd_per_million_samples; /* NaN: no samples */
    double finished_at_s;           /* NaN: not finished */
    double stopped_at_s;            /* by its budget; NaN: it was not */
    bool deadline_met;
    double wall_s;           /* of the simulated time */
    double decision_us_mean; /* with the migration table there ... */
    double decision_us_max;
    double tables_ms; /* ... and what filling it in took, all together */
    double instance_hours;
    double on_demand_hours; /* of those, on on-demand instances */
    int moves;              /* of the whole job to another group of pools */
    struct tm_sim_pool_bill pools[TM_POOLS_MAX];
};

struct tm_sim_job {
    const struct tm_layouts *layouts;
    struct tm_migrations *migrations;
    const struct tm_cost *cost;
    /* What the policy believes instead, as a run's policy did that had not measured itself yet: the same layouts, with
     * other speeds and costs. NULL: it knows. */
    const struct tm_sim_job *believed;
};

/* `log` may be NULL; else it is filled (tm_sim_log_deinit). `env` gives the clock that times decisions. */
int tm_simulate(struct tm_env *env, const struct tm_sim_job *job, const struct tm_trace *trace,
                const struct tm_policy_info *info, const struct tm_sim_options *options, struct tm_sim_result *out,
                struct tm_sim_log *log, struct tm_error *e);

void tm_sim_log_init(struct tm_sim_log *log);
void tm_sim_log_deinit(struct tm_sim_log *log);

#endif
