/* How fast the instance types of a job's pools are beside each other, where the job does not say it (throughput). */
#ifndef TM_JOB_POOL_SPEEDS_H
#define TM_JOB_POOL_SPEEDS_H

#include "job/job_pools.h"

/* The settings with one pool alone, of so many instances of a type, which is made in `pool`: what layouts are made
 * from. Borrows from both. */
struct tm_run_settings tm_pool_speeds__alone(const struct tm_run_settings *settings, const char *type, int count,
                                             struct tm_job_pool *pool);

/* Sets the speed of each pool: as the job says, else as predicted for `count` instances of its type over `first`,
 * samples per second of as many of the fleet's type (0: predicted too). 0: it cannot train the model. */
int tm_pool_speeds__find(struct tm_env *env, const struct tm_run_settings *settings, int count, double first,
                         struct tm_job_pools *pools, struct tm_error *e);
/* The same for a run, put down in the settings, so that coordinator and workers know it too. -TM_EINPUT: that of some
 * type cannot be predicted. */
int tm_pool_speeds__settle(struct tm_env *env, struct tm_run_settings *settings, struct tm_job_pools *pools,
                           struct tm_error *e);
/* Of the pool of this name, as settled; 1: it has none, or there is no such pool. */
double tm_pool_speeds__of(const struct tm_job_fleet *fleet, const char *name, struct tm_arena *arena);

#endif
