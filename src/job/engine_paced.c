/* The paced engine: its job in numbers, its worker, which takes the time that steps would take, and the proof that no
 * step was lost. */
#include "base/alloc.h"
#include "engine/paced_worker.h"
#include "job/job_engine_internal.h"
#include "job/job_layouts.h"
#include "job/pool_speeds.h"
#include "job/run_fingerprint.h"
#include "run/state_folder.h"
#include "store/copy_store.h"
#include "wire/fingerprint.h"
#include "wire/roster.h"

#include <inttypes.h>
#include <stdio.h>

/* A model's file is meant from the job's folder. */
static const char *model_of(struct tm_env *env, const char *model, const char *folder, struct tm_arena *arena)
{
    const char *path = model[0] == '/' ? model : tm_arena_printf(arena, "%s/%s", folder, model);
    if (path == NULL) return NULL;
    return folder[0] != '\0' && env->file_exists(env, path) ? path : tm_arena_strdup(arena, model);
}

static int check(const struct tm_job *job, const struct tm_model *model, int64_t batch, int64_t micro_batch,
                 struct tm_error *e)
{
    bool measured = job->batch != 0 && model->point_count > 0;
    if (job->steps < 1) return tm_error_set(e, TM_EINPUT, "%s: to run, a job needs steps", job->file);
    if (model->layer_count > TM_LAYERS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s: model: %s has %zu layers; a run has at most %d", job->file, model->name,
                            model->layer_count, TM_LAYERS_MAX);
    if (batch < 1)
        return tm_error_set(e, TM_EINPUT, "%s: %s does not give the samples per step: give batch", job->file,
                            model->name);
    if (batch % micro_batch != 0 || batch / micro_batch > 1 << 20)
        return tm_job_wrong(job, "batch", e, "must be a multiple of micro_batch (%lld), got %lld",
                            (long long)micro_batch, (long long)batch);
    if (measured && batch != model->global_batch)
        return tm_job_wrong(job, "batch", e, "%s was measured with %d samples per step; leave out batch", model->name,
                            model->global_batch);
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

static int load_work(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_run_work *out,
                     struct tm_error *e)
{
    struct tm_model model;
    *out = (struct tm_run_work){.layers = 0};
    if (job->model == NULL)
        return tm_error_set(e, TM_EINPUT, "%s: engine: paced needs a model, for example model: parcae/gpt-1.5b",
                            job->file);
    tm_model_init(&model);
    out->model = model_of(env, job->model, job->folder, arena);
    int rc = out->model == NULL ? tm_error_nomem(e) : tm_model_load(env, out->model, &model, e);
    if (rc == 0) {
        /* a model that was measured was so with its own batch */
        int64_t batch = job->batch == 0 ? model.global_batch : job->batch;
        int64_t micro_batch = job->micro_batch > 0 ? job->micro_batch : model.micro_batch > 0 ? model.micro_batch : 1;
        out->batch = batch;
        rc = check(job, &model, batch, micro_batch, e);
        out->micro_batches = rc == 0 ? (uint32_t)(batch / micro_batch) : 0;
    }
    if (rc == 0) rc = fill(&model, arena, out, e);
    tm_model_deinit(&model);
    return rc;
}

static int fingerprint(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_text *out,
                       struct tm_error *e)
{
    (void)arena;
    (void)e;
    tm_run_fingerprint__job(env, job, out);
    if (job->model != NULL) tm_fingerprint_line(out, "model", job->model);
    return 0;
}

/* ---- the worker ---- */

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

/* By which somebody who tries what a straggler does makes one of this instance; NULL: nobody does. */
static const char *slow_file_of(struct tm_env *env, struct tm_arena *arena)
{
    const char *folder = env->variable(env, "TIDEMILL_PACED_SLOW"), *id = env->variable(env, "TIDEMILL_INSTANCE_ID");
    return folder != NULL && id != NULL ? tm_arena_printf(arena, "%s/%s", folder, id) : NULL;
}

static int train_paced(struct tm_env *env, const struct tm_job *job, const struct tm_run_work *work, struct pace *pace,
                       struct tm_arena *arena, struct tm_error *e)
{
    const char *pool = env->variable(env, "TIDEMILL_INSTANCE_POOL");
    struct tm_paced_job paced = {.model = &pace->model,
                                 .micro_batches = work->micro_batches,
                                 .speed = job->fleet.speed,
                                 .slowness = 1 / tm_pool_speeds__of(&job->fleet, pool, arena),
                                 .slow_file = slow_file_of(env, arena),
                                 .bytes_divisor = TM_PACED_DIVISOR,
                                 .step_s = step_s,
                                 .context = pace};
    struct tidemill_options library;
    char error[512];
    if (tidemill_options_from_environment(&library, error, sizeof error) != 0)
        return tm_error_set(e, TM_EUSAGE, "%s", error);
    struct tm_text fingerprint;
    tm_text_init(&fingerprint, TM_RUN_FINGERPRINT_MAX);
    int rc = tm_run__fingerprint(env, job, arena, &fingerprint, e);
    library.fingerprint = tm_text_string(&fingerprint);
    if (rc == 0) rc = tm_paced_worker(env, &library, &paced, e);
    tm_text_deinit(&fingerprint);
    return rc;
}

static int train(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, int *out_status,
                 struct tm_error *e)
{
    struct tm_run_work work;
    struct pace pace;
    *out_status = 0;
    int rc = load_work(env, job, arena, &work, e);
    if (rc != 0) return rc;
    tm_model_init(&pace.model);
    tm_catalog_init(&pace.catalog);
    rc = tm_model_load(env, work.model, &pace.model, e);
    if (rc == 0 && pace.model.point_count == 0) rc = tm_catalog_load(env, &pace.catalog, e);
    if (rc == 0) {
        struct tm_job_speed_request request =
            tm_job_speed__of_job(env, job, &pace.catalog, &pace.model, work.batch, arena);
        rc = tm_job_speed__init(env, &request, &pace.speed, e);
        if (rc == 0) rc = train_paced(env, job, &work, &pace, arena, e);
        tm_job_speed__deinit(&pace.speed);
    }
    tm_catalog_deinit(&pace.catalog);
    tm_model_deinit(&pace.model);
    return rc;
}

/* ---- the result ---- */

/* The hashes of a set's layers, which all must be of that step. */
static int read_hashes(struct tm_copy_store *store, uint64_t step, struct tm_hash *out, uint32_t layers,
                       struct tm_error *e)
{
    struct tm_block_pool *pool = tm_block_pool_create();
    uint64_t set = 0;
    int rc = pool == NULL ? tm_error_nomem(e) : store->newest(store, &set, e);
    for (uint32_t l = 0; rc == 0 && l < layers; l++) {
        struct tm_copy_name name;
        struct tm_block *block = NULL;
        rc = store->get(store, set, l, 0, pool, &name, &block, e); /* which checks the hash */
        if (rc == 0 && name.step != step)
            rc = tm_error_set(e, TM_EINPUT, "%s: the newest set is of step %" PRIu64 ", not of %" PRIu64, store->where,
                              name.step, step);
        if (rc == 0) out[l] = name.hash;
        tm_block_release(block);
    }
    tm_block_pool_destroy(pool);
    return rc;
}

struct wanted {
    struct tm_hash *hashes; /* by layer */
};

static void take_reference(void *context, uint32_t layer, const void *state, uint64_t bytes)
{
    ((struct wanted *)context)->hashes[layer] = tm_hash_of(state, bytes);
}

/* The hash over its layers' states in the newest copy set, which must be those of an undisturbed run. -TM_EINTERNAL:
 * they are not: a step was lost, applied twice or in another order. */
static int check_states(struct tm_env *env, const char *dir, const struct tm_run_work *work, uint64_t step,
                        char out_hash[33], struct tm_error *e)
{
    char copies[TM_STATE_PATH_MAX];
    struct tm_copy_store *store = NULL;
    struct tm_model model;
    struct tm_paced_job job = {
        .model = &model, .micro_batches = work->micro_batches, .speed = 1, .bytes_divisor = TM_PACED_DIVISOR};
    struct tm_hash *hashes = tm_calloc(work->layers, sizeof *hashes);
    struct wanted wanted = {tm_calloc(work->layers, sizeof *wanted.hashes)};
    tm_model_init(&model);
    int rc = hashes == NULL || wanted.hashes == NULL ? tm_error_nomem(e) : tm_model_load(env, work->model, &model, e);
    tm_state_path(dir, TM_STATE_COPIES, copies);
    if (rc == 0) rc = tm_copy_store_open(env, copies, 0, &store, e);
    if (rc == 0) rc = read_hashes(store, step, hashes, work->layers, e);
    if (rc == 0) rc = tm_paced_reference(&job, step, take_reference, &wanted, e);
    for (uint32_t l = 0; rc == 0 && l < work->layers; l++)
        if (!tm_hash_equal(hashes[l], wanted.hashes[l]))
            rc = tm_error_set(e, TM_EINTERNAL,
                              "layer %u after step %" PRIu64 " differs from that of an undisturbed run", l, step);
    if (rc == 0) (void)tm_hash_print(tm_hash_of(hashes, work->layers * sizeof *hashes), out_hash);
    if (store != NULL) store->close(store);
    tm_model_deinit(&model);
    tm_free(wanted.hashes);
    tm_free(hashes);
    return rc;
}

static int check_result(struct tm_env *env, const struct tm_job *job, const char *dir, uint64_t step,
                        struct tm_arena *arena, char out_hash[33], struct tm_error *e)
{
    struct tm_run_work work;
    int rc = load_work(env, job, arena, &work, e);
    return rc == 0 ? check_states(env, dir, &work, step, out_hash, e) : rc;
}

const struct tm_job_engine tm_job__engine_paced = {.name = "paced",
                                                   .costs = "paced",
                                                   .paced = true,
                                                   .proves_steps = true,
                                                   .workers_max = TM_MESH_WORKERS_MAX,
                                                   .load = load_work,
                                                   .layouts = tm_run_layouts__predicted,
                                                   .fingerprint = fingerprint,
                                                   .train = train,
                                                   .result = check_result};
