/* The pools of a job that are choices, as the simulator takes them: a trace each, cut to what all of them cover. */
#ifndef TM_JOB_JOB_POOLS_H
#define TM_JOB_JOB_POOLS_H

#include "market/catalog.h"
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
/* What it costs to move the state to another region; 0 where all pools are in one. */
double tm_job_pools__egress_usd(const struct tm_job_fleet *fleet, double state_bytes);
void tm_job_pools__deinit(struct tm_job_pools *pools);

#endif
