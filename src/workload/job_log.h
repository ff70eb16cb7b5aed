/* Where the metrics of a run's steps also go: the key log of a job file (tidemill-job(5)). */
#ifndef TM_WORKLOAD_JOB_LOG_H
#define TM_WORKLOAD_JOB_LOG_H

#include "base/fields.h"

/* One logger: one of the first three is said. */
struct tm_log_target {
    const char *tensorboard; /* a folder for an event file; NULL: none, as the others */
    const char *mlflow;      /* a tracking URI */
    const char *wandb;       /* a project of Weights & Biases */
    const char *experiment;  /* of MLflow; NULL: the job's name */
    const char *python;      /* with mlflow or wandb: an interpreter that has it; NULL: python3 */
};

/* The table of one of them. */
extern const struct tm_field tm_job__log_fields[];

/* -TM_EINPUT names file and what is wrong: a logger that says nothing or too much, a key that is another's. */
int tm_job__log_check(const struct tm_maps *targets, const char *file, struct tm_error *e);

#endif
