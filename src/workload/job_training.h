/* What a job file says of how the built-in engine trains. Not said: 0, NULL; NaN where 0 means something. */
#ifndef TM_WORKLOAD_JOB_TRAINING_H
#define TM_WORKLOAD_JOB_TRAINING_H

#include <stdint.h>

/* model: {gpt: {...}} */
struct tm_job_gpt {
    int64_t layers;
    int64_t hidden;
    int64_t heads;
    int64_t ctx;
    int64_t vocab;
    double dropout;
};

struct tm_job_optimizer {
    double lr;
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    double clip;
};

struct tm_job_schedule {
    int64_t warmup; /* steps, as the next */
    int64_t decay_to;
    double lr_min;
};

struct tm_job_checkpoint {
    const char *dir;
    int64_t every; /* steps */
    int64_t keep;
};

#endif
