/* What a run is expected to take and cost, by simulation with the same policy, trace and costs: shown before anything
 * is rented. */
#ifndef TM_JOB_EXPECTATION_H
#define TM_JOB_EXPECTATION_H

#include "base/arena.h"
#include "job/run_layouts.h"
#include "market/trace.h"

struct tm_run_expectation {
    const char *policy;
    double time_s; /* of the cloud; NaN: not finished as far as the trace tells */
    double bill_usd;
    double paused_s;
    int changes;
};

struct tm_run_plan {
    struct tm_run_work work;
    struct tm_trace trace; /* as the local cloud replays it */
    struct tm_run_expectation chosen;
    struct tm_run_expectation on_demand; /* a full fleet on demand */
    struct tm_run_expectation restart;   /* by checkpoint-restart */
    bool costs_measured;                 /* by an earlier run */
    bool speed_unknown;                  /* of the job's own command: nothing is expected, all of the above is 0 */
};

/* Fills in the settings' prices (from the catalogue, where neither trace nor job has them), measures a step, and
 * simulates. `path` is the job file, `dir` the state folder. tm_run_plan_deinit frees. */
int tm_run_plan_make(struct tm_env *env, const char *path, const char *dir, struct tm_run_settings *settings,
                     struct tm_arena *arena, struct tm_run_plan *out, struct tm_error *e);
void tm_run_plan_deinit(struct tm_run_plan *plan);

#endif
