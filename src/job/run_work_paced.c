/* The paced engine's part of a run: its job in numbers. */
#include "job/run_work.h"
#include "wire/roster.h"
#include "workload/model.h"

#include <string.h>

/* A model's file is meant from the job's folder. */
static const char *model_of(struct tm_env *env, const char *model, const char *folder, struct tm_arena *arena)
{
    const char *path = model[0] == '/' ? model : tm_arena_printf(arena, "%s/%s", folder, model);
    if (path == NULL) return NULL;
    return folder[0] != '\0' && env->file_exists(env, path) ? path : tm_arena_strdup(arena, model);
}

static int check(const char *path, const struct tm_job *job, const struct tm_model *model, int64_t batch,
                 int64_t micro_batch, struct tm_error *e)
{
    if (job->steps < 1) return tm_error_set(e, TM_EINPUT, "%s: a job that is run needs steps", path);
    if (model->layer_count > TM_LAYERS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s: model: %s has %zu layers; a run has at most %d", path, model->name,
                            model->layer_count, TM_LAYERS_MAX);
    if (batch < 1)
        return tm_error_set(e, TM_EINPUT, "%s: %s does not say how many samples a step has: give batch", path,
                            model->name);
    if (batch % micro_batch != 0 || batch / micro_batch > 1 << 20)
        return tm_error_set(e, TM_EINPUT, "%s: batch: must be a multiple of micro_batch (%lld), got %lld", path,
                            (long long)micro_batch, (long long)batch);
    return 0;
}

static int fill(const struct tm_model *model, struct tm_arena *arena, struct tm_run_work *out, struct tm_error *e)
{
    out->layers = (uint32_t)model->layer_count;
    out->state_bytes_param = 4 * (1 + model->optimizer_states);
    out->layer_params = tm_arena_alloc(arena, model->layer_count * sizeof(double));
    out->layer_flops = tm_arena_alloc(arena, model->layer_count * sizeof(double));
    if (out->layer_params == NULL || out->layer_flops == NULL) return tm_error_nomem(e);
    for (size_t l = 0; l < model->layer_count; l++) {
        out->layer_params[l] = model->layers[l].params;
        out->layer_flops[l] = model->layers[l].forward_flops;
    }
    return 0;
}

int tm_run_work_paced(struct tm_env *env, const char *path, const char *folder, struct tm_arena *arena,
                      struct tm_run_work *out, struct tm_error *e)
{
    struct tm_job job;
    struct tm_model model;
    *out = (struct tm_run_work){.layers = 0};
    tm_job_init(&job);
    tm_model_init(&model);
    int rc = tm_job_load(env, path, &job, e);
    if (rc == 0 && job.model == NULL)
        rc = tm_error_set(e, TM_EINPUT, "%s: engine: paced needs a model, for example model: parcae/gpt-1.5b", path);
    if (rc == 0) {
        out->model = model_of(env, job.model, folder, arena);
        rc = out->model == NULL ? tm_error_nomem(e) : tm_model_load(env, out->model, &model, e);
    }
    if (rc == 0) {
        bool own = job.batch == 0; /* a model that was measured was so with its own batch */
        int64_t batch = own ? model.global_batch : job.batch;
        int64_t micro_batch = job.micro_batch > 0 ? job.micro_batch : model.micro_batch > 0 ? model.micro_batch : 1;
        out->steps = (uint64_t)job.steps;
        out->batch = batch;
        rc = check(path, &job, &model, batch, micro_batch, e);
        if (rc == 0 && !own && model.point_count > 0 && batch != model.global_batch)
            rc = tm_error_set(e, TM_EINPUT, "%s: batch: %s was measured with %d samples a step; leave batch out", path,
                              model.name, model.global_batch);
        out->micro_batches = rc == 0 ? (uint32_t)(batch / micro_batch) : 0;
    }
    if (rc == 0) rc = fill(&model, arena, out, e);
    tm_model_deinit(&model);
    tm_job_deinit(&job);
    return rc;
}
