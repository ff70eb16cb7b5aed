/* Trains a job in this process: a thread a worker, D x P of them, the layout changing between steps if asked. The same
 * loop runs in every worker; worker 0 also reports. */
#ifndef TM_ENGINE_TRAINER_H
#define TM_ENGINE_TRAINER_H

#include "engine/engine.h"
#include "engine/train_job.h"

enum { TM_LAYOUTS_MAX = 64 };

struct tm_layout_change {
    int64_t step; /* the first step in this layout */
    int pipelines;
    int stages;
};

struct tm_train_options {
    const struct tm_train_job *job;
    int64_t steps;                          /* to be done in all, those before `resume` included */
    const struct tm_layout_change *layouts; /* by step; the first from step 0 */
    size_t layout_count;
    const char *resume; /* a checkpoint to go on from; NULL: from the start */
    uint64_t shuffle;   /* tests: messages arrive in an order drawn from this; 0: off */
    /* After every step, by one thread; may be NULL. */
    void (*progress)(void *context, int64_t step, const struct tm_step_result *result, double step_s);
    void *context;
    const struct tm_kernels *kernels;
    const struct tm_blas *blas;
};

struct tm_train_result {
    int64_t steps; /* done in this run */
    double final_loss;
    double train_s; /* all steps, without checkpoints */
    double tokens_per_s;
    double step_p50_s;
    double step_p90_s;
    struct tm_hash weights_hash;
    int64_t steps_redone;
    int64_t layers_moved;
    uint64_t bytes_sent; /* by all workers in steps */
    double *losses;      /* by step of this run; owned */
};

int tm_train(struct tm_env *env, const struct tm_train_options *options, struct tm_train_result *out,
             struct tm_error *e);
void tm_train_result_deinit(struct tm_train_result *result);

#endif
