/* A job file as a run takes it. */
#ifndef TM_JOB_JOB_FILE_H
#define TM_JOB_JOB_FILE_H

#include "run/run_settings.h"

/* Reads the file at `path`; what it names is meant from the folder that it is in. Both must be initialised. */
int tm_job_file_load(struct tm_env *env, const char *path, struct tm_job *job, struct tm_run_settings *settings,
                     struct tm_error *e);
/* The settings alone. */
int tm_job_file_settings(struct tm_env *env, const char *path, struct tm_run_settings *settings, struct tm_error *e);
/* Can the engine that the settings name train it? -TM_EINPUT says what to add. The built-in engine trains networks
 * whose sizes the job gives; where it has the name of a model alone, `settings` get the paced engine, by whose rules it
 * can be looked at. */
int tm_job_file_check_engine(struct tm_env *env, const char *path, struct tm_run_settings *settings,
                             struct tm_error *e);

#endif
