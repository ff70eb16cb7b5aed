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
