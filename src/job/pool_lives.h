/* How long instances of a job's pools live, where the job does not say: what is known of the risk of spot; and how long
 * jobs waited in the queues of partitions. */
#ifndef TM_JOB_POOL_LIVES_H
#define TM_JOB_POOL_LIVES_H

#include "base/env.h"
#include "workload/job.h"

/* Fills in the mean life of spot pools for which neither they nor the fleet's losses nor a trace says one, where they
 * are; and the start-up time of partitions without one, as earlier runs have seen it. An `infra` that says otherwise
 * than the pool's other keys is -TM_EINPUT. */
int tm_pool_lives__fill(struct tm_env *env, struct tm_job *job, struct tm_error *e);

#endif
