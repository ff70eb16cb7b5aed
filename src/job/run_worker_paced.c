/* The paced engine as a worker of a run: its model, and how long steps take, as simulate knows them. */
#include "engine/paced_worker.h"
#include "job/job_layouts.h"
#include "job/run_fingerprint.h"
#include "job/run_work.h"
#include "job/run_worker.h"

struct pace {
    struct tm_model model;
    struct tm_catalog catalog;
    struct tm_job_speed speed;
};

static double step_s(void *context, uint32_t pipelines, uint32_t stages)
{
    struct pace *pace = context;
    double samples_per_s = 0;
    double seconds = 0;
    int rc = pace->speed.speed(pace->speed.context, (int)pipelines, (int)stages, &samples_per_s, &seconds, NULL);
    return rc == 0 && samples_per_s > 0 ? seconds : 0;
}

static int train(struct tm_env *env, const char *path, const struct tm_run_settings *settings,
                 const struct tm_run_work *work, struct pace *pace, struct tm_arena *arena, struct tm_error *e)
{
    struct tm_paced_job job = {.model = &pace->model,
                               .micro_batches = work->micro_batches,
                               .speed = settings->fleet.speed,
                               .bytes_divisor = TM_PACED_DIVISOR,
                               .step_s = step_s,
                               .context = pace};
    struct tidemill_options library;
    char error[512];
    if (tidemill_options_from_environment(&library, error, sizeof error) != 0)
        return tm_error_set(e, TM_EUSAGE, "%s", error);
    struct tm_text fingerprint;
    tm_text_init(&fingerprint, TM_RUN_FINGERPRINT_MAX);
    int rc = tm_run_fingerprint(env, path, settings, arena, &fingerprint, e);
    library.fingerprint = tm_text_string(&fingerprint);
    if (rc == 0) rc = tm_paced_worker(env, &library, &job, e);
    tm_text_deinit(&fingerprint);
    return rc;
}

int tm_run_worker_paced(struct tm_env *env, const char *path, const struct tm_run_settings *settings,
                        struct tm_arena *arena, struct tm_error *e)
{
    struct tm_run_work work;
    struct pace pace;
    int rc = tm_run_work_load(env, path, settings, arena, &work, e);
    if (rc != 0) return rc;
    tm_model_init(&pace.model);
    tm_catalog_init(&pace.catalog);
    rc = tm_model_load(env, work.model, &pace.model, e);
    if (rc == 0 && pace.model.point_count == 0) rc = tm_catalog_load(env, &pace.catalog, e);
    if (rc == 0) {
        struct tm_job_speed_request request = {.catalog = &pace.catalog,
                                               .model = &pace.model,
                                               .instance = settings->fleet.instance,
                                               .batch = work.batch,
                                               .instances_max = (int)settings->fleet.limit};
        rc = tm_job_speed_init(env, &request, &pace.speed, e);
        if (rc == 0) rc = train(env, path, settings, &work, &pace, arena, e);
        tm_job_speed_deinit(&pace.speed);
    }
    tm_catalog_deinit(&pace.catalog);
    tm_model_deinit(&pace.model);
    return rc;
}
