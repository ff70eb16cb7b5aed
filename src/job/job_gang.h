/* The pools that a gang with a deadline is rented from (sim/gang.h): those of a job file, or one for each of several
 * traces.
 *
 *     tm_job_gang_init(gang);
 *     rc = tm_job_gang_read(env, path, arena, gang, e);            or tm_job_gang_add for each trace
 *     tm_job_gang_settle(gang, instances);
 *     ... tm_gang_simulate_pools with tm_job_gang_pools(gang) ...
 *     tm_job_gang_deinit(gang); */
#ifndef TM_JOB_JOB_GANG_H
#define TM_JOB_JOB_GANG_H

#include "job/job_pools.h"
#include "sim/gang.h"

/* Large: give it its own allocation. */
struct tm_job_gang {
    struct tm_run_settings settings;
    struct tm_job_pools *pools;             /* of a job file; NULL: traces were added */
    struct tm_trace traces[TM_POOLS_MAX];   /* those, owned */
    struct tm_gang_pool list[TM_POOLS_MAX]; /* spot ones */
    const char *names[TM_POOLS_MAX];
    int count;
    int limit;              /* fleet.limit; 0: not said */
    double deadline_s;      /* 0: not said */
    double spot_start_s;    /* the longest of its pools */
    double on_demand_usd_h; /* of the cheapest on-demand pool that has room for the gang (tm_job_gang_settle), else of
                               the catalogue; NaN: not known */
    const char *on_demand_name;
};

void tm_job_gang_init(struct tm_job_gang *gang);
void tm_job_gang_deinit(struct tm_job_gang *gang);

/* The spot pools of a job file that are choices. Gangs stay in one region and of one instance type, whatever the file
 * says. -TM_EINPUT: pools of several speeds, or that only keep copies. */
int tm_job_gang_read(struct tm_env *env, const char *path, struct tm_arena *arena, struct tm_job_gang *gang,
                     struct tm_error *e);
/* A trace as a pool. Traces that name zones of one region and the same type are of one group. Takes the trace over,
 * also where it fails. -TM_ELIMIT: too many. */
int tm_job_gang_add(struct tm_job_gang *gang, const char *name, struct tm_trace *trace, double usd_h,
                    struct tm_error *e);
/* Finds the on-demand price; warns where no group could ever give so many instances. */
void tm_job_gang_settle(struct tm_job_gang *gang, int instances);
struct tm_gang_pools tm_job_gang_pools(const struct tm_job_gang *gang);

#endif
