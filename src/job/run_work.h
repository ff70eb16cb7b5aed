/* What a job that is run trains, in numbers that coordinator, plan and policies need, whatever engine does it: only
 * what the job file does not say as such, and its engine makes of it. */
#ifndef TM_JOB_RUN_WORK_H
#define TM_JOB_RUN_WORK_H

#include "base/arena.h"
#include "base/env.h"
#include "run/run_settings.h"

#include <stdbool.h>
#include <stdint.h>

struct tm_run_work {
    uint32_t layers;
    uint32_t micro_batches;   /* of a step */
    int64_t batch;            /* samples of a step: the job's, else the model's */
    int64_t sample_tokens;    /* 0: not known */
    double *layer_params;     /* [layers]; in the arena, as the next */
    double *layer_flops;      /* of one sample, forward */
    double state_bytes_param; /* bytes of state and of gradients for each parameter */
    const char *model;        /* of the paced engine: a shipped one, a file or a formula; in the arena */
};

/* By the job's engine. Errors name file, line and key. */
int tm_run_work__load(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_run_work *out,
                      struct tm_error *e);
/* Core-seconds of one step, measured here and now: a micro-batch is trained a few times. 0 where nothing can be
 * measured. */
int tm_run_work__measure(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, double *out_core_s,
                         struct tm_error *e);

#endif
