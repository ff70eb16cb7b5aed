/* The built-in engine: its job in numbers, how long a step takes on this machine, its worker, its weights. */
#include "engine/elastic.h"
#include "engine/elastic_result.h"
#include "engine/trainer.h"
#include "job/job_engine_internal.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <stdio.h>

static int load_work(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_run_work *out,
                     struct tm_error *e)
{
    (void)env;
    struct tm_train_job t;
    int rc = tm_train_job_of(job, arena, &t, e);
    if (rc != 0) return rc;
    int layers = tm_network_layers(&t.network);
    double width = t.network.width;
    double ctx = t.network.ctx;
    *out = (struct tm_run_work){.layers = (uint32_t)layers,
                                .micro_batches = (uint32_t)(t.batch / t.micro_batch),
                                .batch = t.batch,
                                .sample_tokens = t.network.ctx,
                                .state_bytes_param = 20};
    out->layer_params = tm_arena_alloc(arena, (size_t)layers * sizeof(double));
    out->layer_flops = tm_arena_alloc(arena, (size_t)layers * sizeof(double));
    if (out->layer_params == NULL || out->layer_flops == NULL) return tm_error_nomem(e);
    for (int l = 0; l < layers; l++) {
        struct tm_layer_spec spec;
        tm_network_layer(&t.network, l, &spec);
        out->layer_params[l] = (double)spec.floats;
        double matrices = spec.kind == TM_LAYER_EMBED ? 0 : (double)spec.floats;
        double scores = spec.kind == TM_LAYER_BLOCK ? 4 * ctx * ctx * width : 0;
        out->layer_flops[l] = 2 * ctx * matrices + scores;
    }
    return 0;
}

/* By the processor's time: a busy machine is no slower than it is. */
struct pace {
    struct tm_env *env;
    double last_s;
    double least_s; /* 0: none so far */
};

static void on_step(void *context, int64_t step, const struct tm_step_result *result, double step_s)
{
    struct pace *pace = context;
    double now_s = (double)pace->env->processor_ns(pace->env) * 1e-9;
    (void)result;
    (void)step_s;
    if (step > 0 && (pace->least_s == 0 || now_s - pace->last_s < pace->least_s)) pace->least_s = now_s - pace->last_s;
    pace->last_s = now_s;
}

/* One micro-batch, a few times: the first finds everything cold. */
static int measure(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, double *out_core_s,
                   struct tm_error *e)
{
    static const struct tm_layout_change alone = {.pipelines = 1, .stages = 1};
    struct tm_train_job t;
    struct tm_blas blas;
    struct tm_train_result result = {0};
    struct pace pace = {.env = env};
    struct tm_train_options options = {
        .job = &t, .steps = 4, .layouts = &alone, .layout_count = 1, .progress = on_step, .context = &pace};
    int rc = tm_train_job_of(job, arena, &t, e);
    if (rc != 0) return rc;
    double micro_batches = (double)(t.batch / t.micro_batch);
    t.batch = t.micro_batch;
    t.checkpoint.dir = "";
    if (rc == 0) rc = tm_kernels_choose(env, &options.kernels, e);
    if (rc == 0) rc = tm_blas_open(env, options.kernels->core, &blas, e);
    options.blas = &blas;
    if (rc == 0) rc = tm_train(env, &options, &result, e);
    if (rc != 0) return rc;
    *out_core_s = pace.least_s * micro_batches;
    tm_train_result_deinit(&result);
    return 0;
}

static int fingerprint(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_text *out,
                       struct tm_error *e)
{
    struct tm_train_job t;
    int rc = tm_train_job_of(job, arena, &t, e);
    if (rc == 0) tm_train_job_fingerprint(env, &t, out);
    return rc;
}

static int train(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, int *out_status,
                 struct tm_error *e)
{
    struct tm_train_job t;
    struct tm_elastic_options options = {.job = &t};
    char error[512];
    *out_status = 0;
    int rc = tm_train_job_of(job, arena, &t, e);
    if (rc != 0) return rc;
    if (tidemill_options_from_environment(&options.library, error, sizeof error) != 0)
        return tm_error_set(e, TM_EUSAGE, "%s", error);
    return tm_elastic_worker(env, &options, e);
}

/* The weights as the newest copy set in files has them: a checkpoint in result/ of the state folder (and in the job's
 * checkpoint folder, if it names one), with the hash that `tidemill train` gives. */
static int keep_result(struct tm_env *env, const struct tm_job *job, const char *dir, uint64_t step,
                       struct tm_arena *arena, char out_hash[33], struct tm_error *e)
{
    char copies[TM_STATE_PATH_MAX];
    char result[TM_STATE_PATH_MAX];
    char kernel_class[80];
    struct tm_train_job t;
    struct tm_elastic_result found;
    const struct tm_kernels *kernels = NULL;
    tm_state_path(dir, TM_STATE_COPIES, copies);
    tm_state_path(dir, TM_STATE_RESULT, result);
    int rc = tm_train_job_of(job, arena, &t, e);
    if (rc == 0) rc = tm_kernels_choose(env, &kernels, e); /* as the workers on this machine did */
    if (rc != 0) return rc;
    (void)snprintf(kernel_class, sizeof kernel_class, "%.30s/%.30s", kernels->name, kernels->core);
    rc = tm_elastic_write_checkpoint(env, copies, &t, kernel_class, result, &found, e);
    if (rc == 0 && found.step != step)
        rc = tm_error_set(e, TM_EINPUT, "%s: the newest copy is of step %" PRIu64 ", not of %" PRIu64, copies,
                          found.step, step);
    if (rc == 0 && t.checkpoint.dir[0] != '\0')
        rc = tm_elastic_write_checkpoint(env, copies, &t, kernel_class, t.checkpoint.dir, &found, e);
    if (rc == 0) (void)tm_hash_print(found.weights_hash, out_hash);
    return rc;
}

const struct tm_job_engine tm_job__engine_gpt = {.name = "gpt",
                                                 .costs = "local",
                                                 .weights = true,
                                                 .workers_max = TM_MESH_WORKERS_MAX,
                                                 .load = load_work,
                                                 .measure = measure,
                                                 .layouts = tm_run_layouts__here,
                                                 .fingerprint = fingerprint,
                                                 .train = train,
                                                 .result = keep_result};
