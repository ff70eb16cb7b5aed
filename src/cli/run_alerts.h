/* Alerts of a run that this program runs: receivers of the job file and of config.yaml are told. */
#ifndef TM_CLI_RUN_ALERTS_H
#define TM_CLI_RUN_ALERTS_H

#include "cli/command.h"
#include "run/run_status.h"
#include "workload/job.h"

struct tm_run_alerts;

/* The caller owns the result, which borrows the job and the settings. `resumed`: the run goes on. NULL: nobody is to be
 * told, or memory is out. */
struct tm_run_alerts *tm_run_alerts_open(struct tm_cli *cli, const struct tm_job *job, const char *dir, bool resumed);
/* Looks at the run now and then, and tells; never waits. `strays`: found so far (tm_launch_strays). NULL is allowed,
 * here and below. */
void tm_run_alerts_step(struct tm_run_alerts *alerts, int strays);
/* Instances could not be given back: waits a little until all are told. */
void tm_run_alerts_left(struct tm_run_alerts *alerts, const char *words);
/* The run cannot go on, in words: as above. */
void tm_run_alerts_failed(struct tm_run_alerts *alerts, const char *words);
/* How it ended: waits a little until all are told, and says who was not. */
void tm_run_alerts_finish(struct tm_run_alerts *alerts, const struct tm_run_status *status);
void tm_run_alerts_close(struct tm_run_alerts *alerts);

#endif
