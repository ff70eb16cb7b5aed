/* The built-in engines as workers of a run; options come from the variables that the agent set. */
#ifndef TM_JOB_RUN_WORKER_H
#define TM_JOB_RUN_WORKER_H

#include "base/arena.h"
#include "run/run_settings.h"

/* Trains until the job is over. */
int tm_run_worker(struct tm_env *env, const char *path, const struct tm_run_settings *settings, struct tm_arena *arena,
                  struct tm_error *e);

/* The paced engine's part of it. */
int tm_run_worker_paced(struct tm_env *env, const char *path, const struct tm_run_settings *settings,
                        struct tm_arena *arena, struct tm_error *e);

#endif
