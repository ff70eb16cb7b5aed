/* Loggers of a run that this program runs (the key log of its job): what is written in C is completed when the run has
 * ended; MLflow and Weights & Biases have a process of their own each, which follows the state folder's metrics.jsonl.
 */
#ifndef TM_CLI_RUN_LOGGERS_H
#define TM_CLI_RUN_LOGGERS_H

#include "cli/command.h"
#include "run/run_settings.h"

struct tm_run_loggers;

/* The caller owns the result, which borrows the settings. NULL: the job has none, or memory is out. */
struct tm_run_loggers *tm_run_loggers_open(struct tm_cli *cli, const struct tm_run_settings *settings, const char *dir);
/* Starts what is to run, again where it has ended; never waits. NULL is allowed, here and below. */
void tm_run_loggers_step(struct tm_run_loggers *loggers);
/* The run has ended: all steps are written, and processes get a while to bring them on; who did not is said. */
void tm_run_loggers_finish(struct tm_run_loggers *loggers);
void tm_run_loggers_close(struct tm_run_loggers *loggers);

#endif
