/* Many simulations at once: models x traces x policies, over all cores, in one order whatever the number of threads.
 *
 * The work is dealt out by (model, trace): a thread that takes one runs all policies on it, and keeps its own migration
 * table for each model. */
#ifndef TM_SIM_SWEEP_H
#define TM_SIM_SWEEP_H

#include "base/progress.h"
#include "sim/simulate.h"

enum { TM_SWEEP_THREADS_MAX = 64, TM_SWEEP_RUNS_MAX = 100000 };

struct tm_sweep_model {
    const char *name;
    const struct tm_layouts *layouts;
    const struct tm_cost *cost;
    const struct tm_layouts *believed_layouts; /* by policies; NULL: the real ones, as for the costs */
    const struct tm_cost *believed_cost;
};

struct tm_sweep_trace {
    const char *name;
    const struct tm_trace *trace;
    struct tm_sim_options options; /* its times and prices; what is the same for all too */
};

struct tm_sweep {
    const struct tm_sweep_model *models;
    size_t model_count;
    const struct tm_sweep_trace *traces;
    size_t trace_count;
    const struct tm_policy_info *const *policies;
    size_t policy_count;
    const uint64_t *seeds;
    size_t seed_count;
    bool logs; /* keep what happened when */
    int threads;
};

struct tm_sweep_run {
    const char *model;
    const char *trace;
    const char *policy;
    uint64_t seed;
    struct tm_sim_result result;
    double fraction_of_ideal; /* NaN: ideal has no samples */
    struct tm_sim_log log;
};

/* The runs, by model, then trace, then seed, then policy. The caller frees them with tm_sweep_free. `progress` may be
 * NULL; else its total is set to the number of (model, trace) pairs and it is moved on as they are done. The first
 * error, in the order of the runs, ends it. */
int tm_sweep_run(struct tm_env *env, const struct tm_sweep *sweep, struct tm_progress *progress,
                 struct tm_sweep_run **out, size_t *out_count, struct tm_error *e);
void tm_sweep_free(struct tm_sweep_run *runs, size_t count);

#endif
