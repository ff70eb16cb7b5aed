/* report.html of a state folder, made from its record; and what was predicted, which it stands beside. */
#ifndef TM_JOB_RUN_REPORT_FILE_H
#define TM_JOB_RUN_REPORT_FILE_H

#include "job/expectation.h"
#include "run/run_report.h"

/* prediction.json: what a plan says, kept until the report is made. Reading gives back what was written; -TM_ENOTFOUND:
 * there is none. */
struct tm_run_predictions {
    char policy[64];
    struct tm_run_predicted run;
    struct tm_run_predicted restart;
    struct tm_run_predicted on_demand;
};
int tm_run_predictions__save(struct tm_env *env, const char *dir, const struct tm_run_plan *plan, struct tm_error *e);
int tm_run_predictions_load(struct tm_env *env, const char *dir, struct tm_run_predictions *out, struct tm_error *e);

/* Writes the report to `path` (NULL: report.html of the folder). -TM_EBUSY: a coordinator has the record open. */
int tm_run_report_write(struct tm_env *env, const char *dir, const char *path, struct tm_error *e);

#endif
