#include "job/job_file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int tm_job_file_load(struct tm_env *env, const char *path, struct tm_job *job, struct tm_run_settings *settings,
                     struct tm_error *e)
{
    char folder[PATH_MAX];
    int rc = tm_job_load(env, path, job, e);
    if (rc == 0 && realpath(path, folder) == NULL) rc = tm_error_errno(e, errno, "%s", path);
    if (rc != 0) return rc;
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    return tm_run_settings_of_job(job, path, folder, settings, e);
}

int tm_job_file_settings(struct tm_env *env, const char *path, struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job job;
    tm_job_init(&job);
    int rc = tm_job_file_load(env, path, &job, settings, e);
    tm_job_deinit(&job);
    return rc;
}

int tm_job_file_check_engine(struct tm_env *env, const char *path, struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job job;
    if (settings->engine != TM_RUN_GPT) return 0;
    tm_job_init(&job);
    int rc = tm_job_load(env, path, &job, e);
    if (rc == 0 && job.model != NULL && job.gpt.layers == 0) {
        settings->engine = TM_RUN_PACED;
        rc = tm_error_set(e, TM_EINPUT,
                          "%s: model: nothing here trains \"%.60s\" by its name; add run: COMMAND, or model: {gpt: "
                          "{layers: ...}} and data for the built-in engine, or engine: paced to train nothing",
                          path, job.model);
    }
    tm_job_deinit(&job);
    return rc;
}
