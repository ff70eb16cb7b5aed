/* The layouts that a run may have, how fast each is here, and what changes between them cost: what the coordinator's
 * policy decides with, and what the plan is simulated with. Times are the trace's. */
#ifndef TM_JOB_RUN_LAYOUTS_H
#define TM_JOB_RUN_LAYOUTS_H

#include "job/job_layouts.h"
#include "job/run_work.h"
#include "layout/migrate.h"

struct tm_run_layouts {
    struct tm_job_layouts job;
    struct tm_migrations *migrations;
    bool measured;      /* costs are as an earlier run in the same state folder has measured them */
    bool speed_unknown; /* of a command: layouts tell which is faster, not how fast */
};

/* `dir` is the state folder. `out` is filled on success. */
int tm_run_layouts__init(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                         const struct tm_run_work *work, struct tm_run_layouts *out, struct tm_error *e);
/* -TM_EINPUT where more workers would train together than the engine connects: they would fail at their first step,
 * once they are rented. */
int tm_run_layouts__check_together(const struct tm_job *job, const struct tm_run_layouts *layouts, struct tm_error *e);
void tm_run_layouts__deinit(struct tm_run_layouts *layouts);
/* How long a run waits for its first instances: those of a fleet of one market, as its pools, the job or earlier runs
 * say. 0: nobody does, the fleet has both markets, or its pools are choices, each with a start of its own. */
double tm_run_layouts__first_wait_s(const struct tm_job_fleet *fleet);

#endif
