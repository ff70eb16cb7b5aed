/* The layouts that a run may have, how fast each is here, and what changes between them cost: what the coordinator's
 * policy decides with, and what the plan is simulated with. Times are the trace's. */
#ifndef TM_CLI_RUN_SHAPES_H
#define TM_CLI_RUN_SHAPES_H

#include "cli/job_shapes.h"
#include "cli/run_work.h"
#include "layout/migrate.h"

struct tm_run_shapes {
    struct tm_job_shapes job;
    struct tm_migrations *migrations;
    bool measured;      /* costs are as an earlier run in the same state folder has measured them */
    bool speed_unknown; /* of a command: shapes tell which is faster, not how fast */
};

/* `dir` is the state folder. `out` is filled on success. */
int tm_run_shapes_init(struct tm_cli *cli, const char *dir, const struct tm_run_settings *settings,
                       const struct tm_run_work *work, struct tm_run_shapes *out, struct tm_error *e);
void tm_run_shapes_deinit(struct tm_run_shapes *shapes);

#endif
