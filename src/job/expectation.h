/* What a run is expected to take and cost, by the judge (sim/judge.h) with the same policy, limits and costs: shown
 * before anything is rented.
 *
 * A fleet that the job describes by pools is judged as `plan` judges it, on steps predicted for its instance type.
 * Another one is judged as the local cloud will be: on the trace that will be replayed, from its beginning, with steps
 * as they were measured here. */
#ifndef TM_JOB_EXPECTATION_H
#define TM_JOB_EXPECTATION_H

#include "base/arena.h"
#include "job/run_layouts.h"
#include "market/trace.h"
#include "sim/simulate.h"
#include "workload/estimate.h"

/* One way to run the job. */
struct tm_run_expectation {
    const char *policy;        /* NULL: cannot be had */
    struct tm_estimate time_s; /* of the cloud; infinite: it does not finish */
    struct tm_estimate bill_usd;
    double sure_s;     /* done by then with the probability that the job asks for */
    double sure_usd;   /* and enough */
    double p_deadline; /* NaN: there is none */
    double p_finish;   /* within budget and simulated time */
    double paused_s;
    double changes;
};

struct tm_job_pools;

struct tm_run_plan {
    struct tm_run_work work;
    struct tm_trace trace;      /* as the local cloud replays it; of pools to choose from, when something happens */
    struct tm_job_pools *pools; /* to choose from, owned; NULL: there is no choice */
    struct tm_run_expectation chosen;
    struct tm_run_expectation on_demand; /* a full fleet on demand */
    struct tm_run_expectation restart;   /* by checkpoint-restart */
    struct tm_run_expectation unlimited; /* the chosen one without a budget, where that stops it; else policy NULL */
    bool planned;                        /* judged as a planned fleet */
    bool costs_measured;                 /* by an earlier run */
    bool speed_unknown;                  /* of the job's own command: nothing is expected, all of the above is 0 */
};

/* Fills in the settings' prices (from the catalogue, where neither trace nor job has them), measures a step, and
 * simulates. `dir` is the state folder. tm_run_plan_deinit frees. */
int tm_run_plan_make(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_arena *arena,
                     struct tm_run_plan *out, struct tm_error *e);
/* A VM that runs the coordinator costs so much an hour beside all that. */
void tm_run_plan_add_own(struct tm_run_plan *plan, double usd_h);
void tm_run_plan_deinit(struct tm_run_plan *plan);

/* The job in numbers, and a step of it as measured here. */
int tm_run__load_work(struct tm_env *env, struct tm_run_settings *settings, struct tm_arena *arena,
                      struct tm_run_work *out, struct tm_error *e);

/* How the whole job is simulated through a trace, which is made longer: after its end, what there is stays. */
struct tm_sim_options tm_run__sim_options(const struct tm_run_settings *settings, const struct tm_run_work *work,
                                          const struct tm_layouts *layouts, struct tm_trace *trace);

#endif
