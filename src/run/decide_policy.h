/* The policies that the simulator judges, deciding for a running job: what the coordinator sees becomes facts of room
 * policy (policy/facts.h), and the decision is carried out: a layout, a number of instances, a copy set now, a stop.
 * The same code decides in both, so a simulation predicts a run. The forecast is the policy's too, learned from the
 * instances that the cloud has listed.
 *
 * Of instances with several workers (rule.workers), facts and layouts count workers: a pool has so many times as many,
 * at so much less each, and what is wanted is whole instances again. They come and go together, as the policy sees.
 *
 * Layouts, costs and facts are in the cloud's time, as in the simulator; real time may pass faster. */
#ifndef TM_RUN_DECIDE_POLICY_H
#define TM_RUN_DECIDE_POLICY_H

#include "policy/policy.h"
#include "run/decide.h"

struct tm_policy_decider;

/* A pool that the policy may choose. */
struct tm_rule_pool {
    enum tm_pool_market market;
    int group;      /* pools of one group can train together */
    int region;     /* a number for each */
    int limit;      /* the most instances that the job may have of it; 0: as many as it wants */
    double start_s; /* from asking for one to its first work */
    double wait_s;  /* of that, to its arrival: what the cloud measures counts more */
    bool free;      /* it costs nothing, which is not the same as a price that is not known */
    double speed;   /* throughput of its instances over that which the layouts say */
};

struct tm_policy_rule {
    const struct tm_policy_info *info; /* one that knows the past or the event: the future is not known in a run */
    const struct tm_layouts *layouts;  /* borrowed, as are the next two */
    struct tm_migrations *migrations;
    const struct tm_cost *cost;
    bool steps_unknown; /* nobody knows what steps take: layouts tell which is faster, not how fast */
    double speed;       /* the cloud's seconds in one on the wall, as far as is known before it says so; 0: 1 */
    double interval_s;  /* of the forecast and the look-ahead, in the cloud's time */
    int workers;        /* of an instance; 0: 1. The next four count instances, but for workers_min */
    int workers_min;
    int workers_max; /* that train; 0: what there is, nothing is rented or given back */
    int anchors;     /* on-demand instances that hold copies */
    bool anchors_train;
    double samples_per_step;                 /* with a deadline or a budget */
    double deadline_s;                       /* real time since the job began; 0: none */
    double budget_usd;                       /* 0: none */
    bool deadline_moot;                      /* nothing can be done about one: spot instances alone are allowed */
    struct tm_rule_pool pools[TM_POOLS_MAX]; /* by number */
    int pool_count;                          /* 0: there is no choice */
    int keeper_count;                        /* so many more behind them, whose instances only keep copies */
    enum tm_fleet_rent rent;                 /* tm_facts_limits.rent */
    double spot_wait_s;                      /* without a choice: of the cost's join_s, to the arrival */
    double move_usd;                         /* of a move of the whole job to another group */
    struct tm_far far;                       /* where those that train are in several regions */
    /* 0: by expected loss against cost (as the policy says); else fixed, where two replicas of each stage live ...
     */
    int64_t copy_every_ms;
    int64_t copy_every_alone_ms; /* ... and where a stage has only one */
};

/* -TM_EUSAGE: a policy that knows what is to come. The caller owns the result. */
int tm_policy_decider_create(const struct tm_policy_rule *rule, struct tm_policy_decider **out, struct tm_error *e);
void tm_policy_decider_destroy(struct tm_policy_decider *decider);
struct tm_decider tm_policy_decider_get(struct tm_policy_decider *decider); /* borrowed */

#endif
