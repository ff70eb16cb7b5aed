#include "job/run_work.h"

/* Where `run` is called in must be there before anything is rented for it. */
static int check_workdir(struct tm_env *env, const char *path, const char *folder, const struct tm_job *job,
                         struct tm_arena *arena, struct tm_error *e)
{
    if (job->workdir == NULL) return 0;
    bool absolute = job->workdir[0] == '/' || folder[0] == '\0';
    const char *full = absolute ? job->workdir : tm_arena_printf(arena, "%s/%s", folder, job->workdir);
    if (full == NULL) return tm_error_nomem(e);
    if (env->file_exists(env, full)) return 0;
    return tm_error_set(e, TM_EINPUT, "%s: workdir: there is no folder %s", path, full);
}

static int of_command(struct tm_env *env, const char *path, const char *folder, struct tm_arena *arena,
                      struct tm_run_work *out, struct tm_error *e)
{
    struct tm_job job;
    tm_job_init(&job);
    int rc = tm_job_load(env, path, &job, e);
    int64_t layers = job.layers > 0 ? job.layers : TM_RUN_COMMAND_LAYERS;
    int64_t micro_batch = job.micro_batch > 0 ? job.micro_batch : job.batch;
    if (rc == 0 && (job.steps < 1 || job.batch < 1))
        rc = tm_error_set(e, TM_EINPUT, "%s: a job that is run needs steps and batch", path);
    if (rc == 0 && (job.batch % micro_batch != 0 || job.batch / micro_batch > 1 << 20))
        rc = tm_error_set(e, TM_EINPUT, "%s: batch: must be a multiple of micro_batch (%lld), got %lld", path,
                          (long long)micro_batch, (long long)job.batch);
    if (rc == 0) rc = check_workdir(env, path, folder, &job, arena, e);
    if (rc == 0) {
        *out = (struct tm_run_work){.layers = (uint32_t)layers,
                                    .steps = (uint64_t)job.steps,
                                    .micro_batches = (uint32_t)(job.batch / micro_batch),
                                    .batch = job.batch,
                                    .state_bytes_param = 16};
        out->layer_params = tm_arena_alloc(arena, (size_t)layers * sizeof(double));
        out->layer_flops = tm_arena_alloc(arena, (size_t)layers * sizeof(double));
        if (out->layer_params == NULL || out->layer_flops == NULL) rc = tm_error_nomem(e);
        for (int64_t i = 0; rc == 0 && i < layers; i++)
            out->layer_params[i] = out->layer_flops[i] = 1; /* nobody knows: all alike */
    }
    tm_job_deinit(&job);
    return rc;
}

int tm_run_work_load(struct tm_env *env, const char *path, const struct tm_run_settings *settings,
                     struct tm_arena *arena, struct tm_run_work *out, struct tm_error *e)
{
    switch ((enum tm_run_engine)settings->engine) {
    case TM_RUN_GPT:
        return tm_run_work_gpt(env, path, settings->folder, arena, out, e);
    case TM_RUN_COMMAND:
        return of_command(env, path, settings->folder, arena, out, e);
    case TM_RUN_PACED:
        return tm_run_work_paced(env, path, settings->folder, arena, out, e);
    }
    return tm_error_set(e, TM_EINTERNAL, "%s: no such engine", path);
}

int tm_run_work_measure(struct tm_env *env, const char *path, const struct tm_run_settings *settings,
                        struct tm_arena *arena, double *out_core_s, struct tm_error *e)
{
    *out_core_s = 0;
    if (settings->engine != TM_RUN_GPT) return 0;
    return tm_run_measure_gpt(env, path, settings->folder, arena, out_core_s, e);
}
