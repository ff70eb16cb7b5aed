/* The loop that every worker of a training run goes through, whatever connects them: steps, changes of layout,
 * checkpoints, the report at the end. */
#ifndef TM_ENGINE_TRAIN_WORKER_H
#define TM_ENGINE_TRAIN_WORKER_H

#include "engine/trainer.h"

/* What all workers share; made once, read by all. */
struct tm_train_shared {
    struct tm_env *env;
    const struct tm_train_options *options;
    struct tm_engine_options engine;
    struct tm_assignment *assignments; /* by layout change */
    int workers;                       /* the most that any layout has */
    int64_t first_step;
    struct tm_corpus corpus;
};

/* Checks all that can be wrong before anything runs, opens the data, finds the layouts. */
int tm_train_shared__init(struct tm_train_shared *shared, struct tm_env *env, const struct tm_train_options *options,
                          struct tm_error *e);
void tm_train_shared__deinit(struct tm_train_shared *shared);

/* One worker from the first step to the last. `out` (worker 0 only, else NULL) gets the result. */
int tm_train_worker__run(const struct tm_train_shared *shared, struct tm_mesh *mesh, struct tm_train_result *out,
                         struct tm_error *e);

#endif
