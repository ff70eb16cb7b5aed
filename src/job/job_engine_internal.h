#ifndef TM_JOB_JOB_ENGINE_INTERNAL_H
#define TM_JOB_JOB_ENGINE_INTERNAL_H

#include "job/job_engine.h"
#include "workload/job.h"

extern const struct tm_job_engine tm_job__engine_gpt;
extern const struct tm_job_engine tm_job__engine_paced;
extern const struct tm_job_engine tm_job__engine_command;

/* For rows: layouts as fast as this machine is, and as fast as profiled or predicted. */
int tm_run_layouts__here(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                         const struct tm_run_work *work, struct tm_run_layouts *out, struct tm_error *e);
int tm_run_layouts__predicted(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                              const struct tm_run_work *work, struct tm_run_layouts *out, struct tm_error *e);
/* The keys of a job that is not the built-in engine's, and the scripts that its command names. */
void tm_run_fingerprint__job(struct tm_env *env, const struct tm_job *job, struct tm_text *out);

#endif
