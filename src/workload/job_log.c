#include "workload/job_log.h"

const struct tm_field tm_job__log_fields[] = {
    {.key = "tensorboard",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_log_target, tensorboard),
     .example = "runs/gpt-tiny",
     .doc = "a folder that TensorBoard reads: an event file is written there"},
    {.key = "mlflow",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_log_target, mlflow),
     .example = "http://127.0.0.1:5000",
     .doc = "a tracking URI of MLflow"},
    {.key = "wandb",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_log_target, wandb),
     .example = "my-project",
     .doc = "a project of Weights & Biases; WANDB_MODE=offline keeps it on this machine"},
    {.key = "experiment",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_log_target, experiment),
     .doc = "with mlflow: the experiment, instead of the job's name"},
    {.key = "python",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_log_target, python),
     .example = "venv/bin/python",
     .doc = "with mlflow or wandb: a Python that has it, instead of python3"},
    {.key = NULL},
};

int tm_job__log_check(const struct tm_maps *targets, const char *file, struct tm_error *e)
{
    const struct tm_log_target *list = targets->items;
    for (size_t i = 0; i < targets->count; i++) {
        const struct tm_log_target *target = &list[i];
        int said = (target->tensorboard != NULL) + (target->mlflow != NULL) + (target->wandb != NULL);
        if (said != 1)
            return tm_error_set(e, TM_EINPUT,
                                "%s: log: each logger has one of tensorboard, mlflow and wandb; number %zu has %d",
                                file, i + 1, said);
        if (target->experiment != NULL && target->mlflow == NULL)
            return tm_error_set(e, TM_EINPUT, "%s: log: number %zu: experiment is for mlflow", file, i + 1);
        if (target->python != NULL && target->tensorboard != NULL)
            return tm_error_set(e, TM_EINPUT,
                                "%s: log: number %zu: python is for mlflow and wandb; an event file of "
                                "TensorBoard needs none",
                                file, i + 1);
    }
    return 0;
}
