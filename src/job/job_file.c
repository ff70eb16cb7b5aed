#include "job/job_file.h"

#include "job/pool_lives.h"
#include "job/provider.h"
#include "job/script_figures.h"
#include "market/catalog.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The GPUs of a type; 0: the catalogue does not know it. */
static int gpus_of(const struct tm_catalog *catalog, const char *type)
{
    for (size_t i = 0; i < catalog->instance_count; i++)
        if (strcasecmp(catalog->instances[i].name, type) == 0) return (int)catalog->instances[i].gpus;
    return 0;
}

/* The type that trains; NULL: not said, or there are several. */
static const char *only_type(const struct tm_job *job)
{
    const struct tm_strings *types = &job->resources.instance_type;
    const char *type = job->fleet.instance;
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(&job->fleet, &count);
    if (count == 0) return type == NULL && types->count == 1 ? types->items[0] : type;
    for (size_t i = 0; i < count; i++) {
        if (pools[i].role != TM_POOL_TRAINS) continue;
        if (pools[i].instance == NULL || pools[i].partition != NULL) return NULL;
        if (type != NULL && strcasecmp(type, pools[i].instance) != 0) return NULL;
        type = pools[i].instance;
    }
    return type;
}

/* One for each GPU of an instance, where the file says nothing. With instances of several types it is one an instance,
 * whatever it has. */
static int fill_workers(struct tm_env *env, struct tm_job *job, struct tm_error *e)
{
    struct tm_catalog catalog;
    const char *type = only_type(job);
    if (job->fleet.workers > 0 || type == NULL || type[0] == '\0' || !tm_provider_of(job)->typed) return 0;
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(env, &catalog, e);
    int gpus = rc == 0 ? gpus_of(&catalog, type) : 0;
    if (gpus > 1 && gpus <= TM_FLEET_WORKERS_EACH_MAX) job->fleet.workers = gpus;
    tm_catalog_deinit(&catalog);
    return rc;
}

int tm_job_file_load(struct tm_env *env, const char *path, struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job *job = &settings->job;
    char folder[PATH_MAX];
    int rc = tm_job_load(env, path, job, e);
    if (rc == 0) rc = tm_script_figures__fill(env, job, e);
    if (rc == 0 && realpath(path, folder) == NULL) rc = tm_error_errno(e, errno, "%s", path);
    if (rc == 0) rc = tm_pool_lives__fill(env, job, e);
    if (rc == 0) rc = fill_workers(env, job, e);
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
