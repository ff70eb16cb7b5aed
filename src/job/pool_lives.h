/* How long instances of a job's pools live, where the job does not say: what is known of the risk of spot; and how long
 * one waits for them, in the queues of partitions or while VMs boot. */
#ifndef TM_JOB_POOL_LIVES_H
#define TM_JOB_POOL_LIVES_H

#include "base/env.h"
#include "workload/job.h"

/* Fills in the mean life of spot pools for which neither they nor the fleet's losses nor a trace says one, where they
 * are; and start-up times as of tm_pool_lives__fill_starts. An `infra` that says otherwise than the pool's other keys
 * is -TM_EINPUT. */
int tm_pool_lives__fill(struct tm_env *env, struct tm_job *job, struct tm_error *e);
/* Fills in the start-up times that the job does not say, as earlier runs have seen them at the same place: of
 * partitions, and of instance types in their zones. Again once the cloud is known that the job runs on.
 * The fleet's own, where it does not say them, are those of tm_pool_lives__start_ms. */
int tm_pool_lives__fill_starts(struct tm_env *env, struct tm_job *job, struct tm_error *e);
/* How long one waits for what a market has, where all pools of it are wanted: as long as for the slowest that trains.
 * TM_FLEET_UNSAID: no pool says, or they are choices, each with a start of its own. */
int64_t tm_pool_lives__start_ms(const struct tm_job_fleet *fleet, enum tm_pool_market market);

#endif
