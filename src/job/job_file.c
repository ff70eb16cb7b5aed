#include "job/job_file.h"

#include "job/pool_lives.h"
#include "job/provider.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int tm_job_file_load(struct tm_env *env, const char *path, struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job *job = &settings->job;
    char folder[PATH_MAX];
    int rc = tm_job_load(env, path, job, e);
    if (rc == 0 && realpath(path, folder) == NULL) rc = tm_error_errno(e, errno, "%s", path);
    if (rc == 0) rc = tm_pool_lives__fill(env, job, e);
    if (rc != 0) return rc;
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    job->folder = tm_arena_strdup(&job->arena, folder); /* its other processes start elsewhere */
    if (tm_provider_of(job)->by_resources) settings->by_resources = true;
    return job->folder == NULL ? tm_error_nomem(e) : tm_run_settings_settle(settings, e);
}

int tm_job_file_check_engine(struct tm_job *job, struct tm_error *e)
{
    if (job->engine != TM_JOB_ENGINE_GPT || job->model == NULL || job->gpt.layers > 0) return 0;
    job->engine = TM_JOB_ENGINE_PACED;
    return tm_error_set(e, TM_EINPUT,
                        "%s: model: nothing here trains \"%.60s\" by its name; add run: COMMAND, or model: {gpt: "
                        "{layers: ...}} and data for the built-in engine, or engine: paced to train nothing",
                        job->file, job->model);
}
