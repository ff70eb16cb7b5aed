/* A model with its costs and the layouts that it may have, each with its speed: as measured in the model's file, else
 * predicted on an instance type; and as a run has measured it, where the cost file says so. What simulate predicts
 * with, a run decides with, and the paced engine takes its times from. */
#ifndef TM_CLI_JOB_SHAPES_H
#define TM_CLI_JOB_SHAPES_H

#include "cli/command.h"
#include "layout/cost.h"
#include "market/catalog.h"

struct tm_job_shapes {
    struct tm_model model;
    struct tm_cost cost;
    struct tm_shapes shapes;
};

struct tm_job_shapes_request {
    const struct tm_catalog *catalog;
    const char *model;    /* a shipped one, a file or a formula */
    const char *cost;     /* paper, measured or a file */
    double speed;         /* of the trace, for measured costs; 0: at which they were measured */
    const char *instance; /* type that is rented; NULL: p3.2xlarge, which the published hours are of */
    int nodes_max;
    int64_t batch; /* of a model that brings no measured layouts; 0: its own, else 8 a node */
};

/* A profile is learned from where the command has --profile. `out` is filled on success and to be freed after any call.
 */
int tm_job_shapes_init(struct tm_cli *cli, const struct tm_job_shapes_request *request, struct tm_job_shapes *out,
                       struct tm_error *e);
void tm_job_shapes_deinit(struct tm_job_shapes *job);

/* Samples of a step: the batch of the shapes' speeds; 0 where no layout can train. */
double tm_job_shapes_batch(const struct tm_job_shapes *job);

#endif
