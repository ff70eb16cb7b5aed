/* A job file as the simulator takes it: its layouts and costs, what its instances live through, and its limits; beside
 * it the verdict that a run of the same file shows.
 *
 *     tm_job_simulation_init(&simulation);
 *     rc = tm_job_simulation_read(env, path, &simulation, e);      then change simulation.settings by options
 *     if (rc == 0) rc = tm_job_simulation_make(env, arena, &simulation, e);
 *     ... tm_simulate with its layouts, cost, plan.trace and options ...
 *     tm_job_simulation_deinit(&simulation); */
#ifndef TM_JOB_JOB_SIMULATION_H
#define TM_JOB_JOB_SIMULATION_H

#include "job/job_pools.h"
#include "job/planned_fleet.h"
#include "job/verdict.h"
#include "sim/simulate.h"

struct tm_job_simulation {
    struct tm_run_settings settings;
    struct tm_run_plan plan; /* its trace is the one to simulate */
    struct tm_verdict verdict;
    struct tm_run_layouts here;       /* as this machine has them ... */
    struct tm_run_layouts believed;   /* as the policy sees them; none: it knows the real ones */
    struct tm_planned_fleet *planned; /* ... or as predicted for the fleet's instance type; NULL: not so */
    struct tm_fleet_layouts predicted;
    const struct tm_layouts *layouts; /* one of both */
    const struct tm_cost *cost;
    bool drawn_on_demand;          /* its trace has the on-demand instances that train, too */
    struct tm_job_pools *pools;    /* that are choices: then there is no verdict, and the trace is pools->times */
    const char *trace;             /* what to call the trace */
    struct tm_sim_options options; /* of the whole trace */
};

void tm_job_simulation_init(struct tm_job_simulation *simulation);
void tm_job_simulation_deinit(struct tm_job_simulation *simulation);

/* Is this a job file rather than a trace? By its content: a map with a key that says what is trained or on what; what
 * is called .yaml and is neither is a job with mistakes. */
bool tm_job_simulation_is_job(struct tm_env *env, const char *path);

int tm_job_simulation_read(struct tm_env *env, const char *path, struct tm_job_simulation *simulation,
                           struct tm_error *e);
/* What the policy believes migrations to cost, as it did in a run that had measured nothing yet. After make. */
int tm_job_simulation_believe(struct tm_env *env, const char *costs, struct tm_job_simulation *simulation,
                              struct tm_error *e);
/* -TM_ENONE: no layout can train it. -TM_EINPUT also where nothing can be predicted: a command without a model. */
int tm_job_simulation_make(struct tm_env *env, struct tm_arena *arena, struct tm_job_simulation *simulation,
                           struct tm_error *e);

#endif
