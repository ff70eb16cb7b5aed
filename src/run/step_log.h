/* Loggers of a run: the metrics of every committed step, each once and in order, made from the record's StepsEvents
 * (coord_steps.c). Two forms are written here: STATE/metrics.jsonl, one object a line, which loggers in Python follow;
 * and event files of TensorBoard.
 *
 * What a file holds is what counts: it is read when it is opened, a torn end is cut off, and what it lacks is added
 * from the record, however its last writer ended. One writer at a time: the coordinator while it runs, then whoever
 * started it. */
#ifndef TM_RUN_STEP_LOG_H
#define TM_RUN_STEP_LOG_H

#include "run/run_tap.h"
#include "workload/job_log.h"

struct tm_step_log;

/* `targets`: of struct tm_log_target; folders are named from `folder`, the job file's. All is borrowed but `dir`. The
 * caller owns the result. NULL: out of memory. */
struct tm_step_log *tm_step_log_create(struct tm_env *env, const char *dir, const struct tm_maps *targets,
                                       const char *folder, uint64_t job);
void tm_step_log_destroy(struct tm_step_log *log);

/* Events of the record, from the first on; what they say is written with the next tm_step_log__write. */
int tm_step_log__take(struct tm_step_log *log, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e);
int tm_step_log__write(struct tm_step_log *log, struct tm_error *e);

/* In the coordinator's loop (struct tm_run_hook): takes what is new, a part of it at a time. A file that cannot be
 * written is said once, and tried again. */
void tm_step_log_serve(struct tm_step_log *log, struct tm_run_tap *tap);
/* Without a coordinator: all that the record has. */
int tm_step_log_complete(struct tm_step_log *log, struct tm_error *e);

#endif
