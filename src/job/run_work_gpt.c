/* The built-in engine's part of a run: its job in numbers, and how long a step takes on this machine. */
#include "engine/trainer.h"
#include "job/run_work.h"

#include <time.h>

int tm_run_work_gpt(struct tm_env *env, const char *path, const char *folder, struct tm_arena *arena,
                    struct tm_run_work *out, struct tm_error *e)
{
    struct tm_train_job job;
    int rc = tm_train_job_load_from(env, path, folder, arena, &job, e);
    if (rc != 0) return rc;
    int layers = tm_network_layers(&job.network);
    double width = job.network.width;
    double ctx = job.network.ctx;
    *out = (struct tm_run_work){.layers = (uint32_t)layers,
                                .steps = (uint64_t)job.steps,
                                .micro_batches = (uint32_t)(job.batch / job.micro_batch),
                                .batch = job.batch,
                                .sample_tokens = job.network.ctx,
                                .state_bytes_param = 20};
    out->layer_params = tm_arena_alloc(arena, (size_t)layers * sizeof(double));
    out->layer_flops = tm_arena_alloc(arena, (size_t)layers * sizeof(double));
    if (out->layer_params == NULL || out->layer_flops == NULL) return tm_error_nomem(e);
    for (int l = 0; l < layers; l++) {
        struct tm_layer_spec spec;
        tm_network_layer(&job.network, l, &spec);
        out->layer_params[l] = (double)spec.floats;
        double matrices = spec.kind == TM_LAYER_EMBED ? 0 : (double)spec.floats;
        double scores = spec.kind == TM_LAYER_BLOCK ? 4 * ctx * ctx * width : 0;
        out->layer_flops[l] = 2 * ctx * matrices + scores;
    }
    return 0;
}

/* By the processor's time: a busy machine is no slower than it is. */
struct pace {
    double last_s;
    double least_s; /* 0: none so far */
};

static double processor_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void on_step(void *context, int64_t step, const struct tm_step_result *result, double step_s)
{
    struct pace *pace = context;
    double now_s = processor_s();
    (void)result;
    (void)step_s;
    if (step > 0 && (pace->least_s == 0 || now_s - pace->last_s < pace->least_s)) pace->least_s = now_s - pace->last_s;
    pace->last_s = now_s;
}

/* One micro-batch, a few times: the first finds everything cold. */
int tm_run_measure_gpt(struct tm_env *env, const char *path, const char *folder, struct tm_arena *arena,
                       double *out_core_s, struct tm_error *e)
{
    static const struct tm_layout_change alone = {.pipelines = 1, .stages = 1};
    struct tm_train_job job;
    struct tm_blas blas;
    struct tm_train_result result = {0};
    struct pace pace = {0};
    struct tm_train_options options = {
        .job = &job, .steps = 4, .layouts = &alone, .layout_count = 1, .progress = on_step, .context = &pace};
    int rc = tm_train_job_load_from(env, path, folder, arena, &job, e);
    if (rc != 0) return rc;
    double micro_batches = (double)(job.batch / job.micro_batch);
    job.batch = job.micro_batch;
    job.checkpoint.dir = "";
    if (rc == 0) rc = tm_kernels_choose(env, &options.kernels, e);
    if (rc == 0) rc = tm_blas_open(env, options.kernels->core, &blas, e);
    options.blas = &blas;
    if (rc == 0) rc = tm_train(env, &options, &result, e);
    if (rc != 0) return rc;
    *out_core_s = pace.least_s * micro_batches;
    tm_train_result_deinit(&result);
    return 0;
}
