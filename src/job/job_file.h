/* A job file as a run takes it. */
#ifndef TM_JOB_JOB_FILE_H
#define TM_JOB_JOB_FILE_H

#include "run/run_settings.h"

/* Reads the file at `path` into the settings' job and settles it. `settings` must be initialised. */
int tm_job_file_load(struct tm_env *env, const char *path, struct tm_run_settings *settings, struct tm_error *e);
/* Can the engine that the job names train it? -TM_EINPUT says what to add. The built-in engine trains networks whose
 * sizes the job gives; where it has the name of a model alone, the job gets the paced engine, by whose rules it can be
 * looked at. */
int tm_job_file_check_engine(struct tm_job *job, struct tm_error *e);

#endif
