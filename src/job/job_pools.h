/* The pools of a job that are choices, as the simulator takes them: a trace each, cut to what all of them cover. */
#ifndef TM_JOB_JOB_POOLS_H
#define TM_JOB_JOB_POOLS_H

#include "cloud/cloud.h"
#include "job/run_work.h"
#include "market/catalog.h"
#include "run/decide_policy.h"
#include "run/run_settings.h"
#include "sim/simulate.h"

struct tm_job_pools {
    struct tm_trace traces[TM_POOLS_MAX]; /* owned */
    struct tm_sim_pool list[TM_POOLS_MAX];
    const char *types[TM_POOLS_MAX]; /* instance types, borrowed from the settings */
    struct tm_sim_pools pools;
    struct tm_trace times; /* owned: when something happens in any of them, and how long all of them go on */
    int wanted;            /* instances that the job wants in all */
};

/* Loads the traces and finds the prices. `pools` is large: give it its own allocation; it is to be freed after any
 * call. -TM_EINPUT: a pool without a price, traces that never overlap. */
int tm_job_pools__init(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_job_pools *pools,
                       struct tm_error *e);
/* How many there are, with those of keepers. */
static inline int tm_job_pools__all(const struct tm_job_pools *pools)
{
    return pools->pools.count + pools->pools.keeper_count;
}
/* `out` is to be freed after any call. */
int tm_job_pools__copy(const struct tm_job_pools *pools, struct tm_job_pools *out, struct tm_error *e);
/* From now on all counts are of workers, so many of each instance, and prices are of one. */
int tm_job_pools__count_workers(struct tm_job_pools *pools, int each, struct tm_error *e);
/* A number for each region: of its first pool. A pool that says its zone alone is in the region that the zone is named
 * after. */
int tm_job_pools__region(const struct tm_job_fleet *fleet, size_t number);
/* What it costs to move the state to another region; 0 where all pools are in one. */
double tm_job_pools__egress_usd(const struct tm_job_fleet *fleet, double state_bytes);
/* What it costs to train in several regions at once; zeros where the job does not say across_regions. */
struct tm_far tm_job_pools__far(const struct tm_job_fleet *fleet, double gradient_bytes, double batch);
/* "p3.2xlarge aws/us-east-2/us-east-2b". NULL: no memory. */
const char *tm_job_pool__name(const struct tm_job_pool *pool, struct tm_arena *arena);
/* What one instance of it would cost on-demand, by the catalogue: in its zone, else in its region, else where it is
 * cheapest. NaN: not known. */
double tm_job_pool__on_demand_usd_h(const struct tm_catalog *catalog, const struct tm_job_pool *pool);
/* What a decider is told of them: all but what the cloud says. An instance trains `join_s` after it has come. */
void tm_job_pools__rule(const struct tm_job_fleet *fleet, const struct tm_run_work *work, double join_s,
                        struct tm_policy_rule *out);
/* From an instance's arrival to its worker's first work. */
double tm_job_pools__join_s(const struct tm_job_fleet *fleet, const struct tm_cost *cost);
/* What a cloud is opened with. */
void tm_job_pools__describe(const struct tm_job_pools *pools, const struct tm_job_fleet *fleet, int number,
                            struct tm_cloud_pool *out);
/* How the job is simulated on them. */
struct tm_sim_options tm_job_pools__sim_options(const struct tm_run_settings *settings,
                                                const struct tm_job_pools *pools, double samples);
/* Of a job's whole state, and of the gradients of a step. */
double tm_run_work__state_bytes(const struct tm_run_work *work);
double tm_run_work__gradient_bytes(const struct tm_run_work *work);
void tm_job_pools__deinit(struct tm_job_pools *pools);

#endif
