#include "engine/train_worker.h"

#include "base/alloc.h"
#include "engine/checkpoint.h"

#include <stdlib.h>
#include <string.h>

/* ---- what all share ---- */

static int make_assignments(struct tm_train_shared *shared, struct tm_error *e)
{
    const struct tm_train_options *o = shared->options;
    shared->assignments = tm_calloc(o->layout_count, sizeof *shared->assignments);
    if (shared->assignments == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < o->layout_count; i++) {
        const struct tm_layout_change *change = &o->layouts[i];
        int rc = tm_assignment_make(&o->job->network, change->pipelines, change->stages, shared->engine.micro_batches,
                                    &shared->assignments[i], e);
        if (rc != 0) return rc;
        int workers = change->pipelines * change->stages;
        if (workers > shared->workers) shared->workers = workers;
    }
    return 0;
}

/* A checkpoint to go on from must be of the same network, and of the same class of kernels for the same bits. */
static int check_resume(struct tm_train_shared *shared, struct tm_error *e)
{
    struct tm_checkpoint checkpoint;
    int rc = tm_checkpoint_open(shared->env, shared->options->resume, &checkpoint, e);
    if (rc != 0) return rc;
    const struct tm_network *want = &shared->engine.network;
    const struct tm_network *have = &checkpoint.network;
    if (have->blocks != want->blocks || have->width != want->width || have->heads != want->heads ||
        have->ctx != want->ctx)
        rc = tm_error_set(e, TM_EINPUT, "%s: a checkpoint of another network (layers %d, hidden %d, heads %d, ctx %d)",
                          shared->options->resume, have->blocks, have->width, have->heads, have->ctx);
    else if (!checkpoint.has_optimizer)
        rc = tm_error_set(e, TM_EINPUT, "%s: has weights but no optimizer state; training cannot continue from it",
                          shared->options->resume);
    else if (strcmp(checkpoint.kernels, shared->engine.kernels->name) != 0)
        rc = tm_error_set(
            e, TM_EINPUT,
            "%s: was written with %s kernels, but this machine uses %s; set TIDEMILL_KERNELS=%s for the same bits",
            shared->options->resume, checkpoint.kernels, shared->engine.kernels->name, checkpoint.kernels);
    shared->first_step = checkpoint.step;
    tm_checkpoint_close(&checkpoint);
    return rc;
}

int tm_train_shared__init(struct tm_train_shared *shared, struct tm_env *env, const struct tm_train_options *options,
                          struct tm_error *e)
{
    const struct tm_train_job *job = options->job;
    *shared = (struct tm_train_shared){.env = env, .options = options};
    shared->engine = (struct tm_engine_options){.network = job->network,
                                                .micro_batch = (int)job->micro_batch,
                                                .micro_batches = job->batch / job->micro_batch,
                                                .seed = job->seed,
                                                .determinism = job->determinism,
                                                .optimizer = job->optimizer,
                                                .memory_max = job->memory_max,
                                                .kernels = options->kernels,
                                                .blas = options->blas,
                                                .corpus = &shared->corpus};
    int rc = tm_train_job__check(job, e);
    if (rc == 0) rc = make_assignments(shared, e);
    if (rc == 0) rc = tm_corpus_open(env, job->data, &shared->corpus, e);
    if (rc == 0)
        rc = tm_corpus_windows(&shared->corpus, job->data, job->network.ctx, job->batch, &shared->engine.windows, e);
    if (rc == 0 && options->resume != NULL) rc = check_resume(shared, e);
    if (rc == 0 && shared->first_step >= options->steps)
        rc = tm_error_set(e, TM_EINPUT, "%s: already has %lld steps; train more with --steps",
                          options->resume != NULL ? options->resume : "the job", (long long)shared->first_step);
    if (rc != 0) tm_train_shared__deinit(shared);
    return rc;
}

void tm_train_shared__deinit(struct tm_train_shared *shared)
{
    tm_corpus__close(&shared->corpus);
    tm_free(shared->assignments);
    shared->assignments = NULL;
}

/* ---- one worker ---- */

struct loop {
    const struct tm_train_shared *shared;
    struct tm_mesh *mesh;
    struct tm_engine *engine;
    size_t layout; /* in force */
    struct tm_train_result *result;
    double *step_s; /* worker 0: by step of this run */
    uint64_t step_bytes;
    int64_t layers_moved;
};

static size_t layout_at(const struct tm_train_options *options, int64_t step)
{
    size_t layout = 0;
    while (layout + 1 < options->layout_count && options->layouts[layout + 1].step <= step)
        layout++;
    return layout;
}

static int fill_layers(struct loop *loop, struct tm_error *e)
{
    const struct tm_train_shared *shared = loop->shared;
    const char *resume = shared->options->resume;
    struct tm_checkpoint checkpoint;
    int rc = resume != NULL ? tm_checkpoint_open(shared->env, resume, &checkpoint, e) : 0;
    if (rc != 0) return rc;
    const struct tm_assignment *assignment = &shared->assignments[loop->layout];
    for (int l = 0; rc == 0 && l < tm_network_layers(&shared->engine.network); l++) {
        if (!tm_assignment_holds(assignment, loop->mesh->rank, l)) continue;
        rc = tm_engine_hold(loop->engine, l, e);
        if (rc != 0) break;
        if (resume != NULL)
            rc = tm_checkpoint__read_layer(&checkpoint, tm_engine__layer(loop->engine, l), e);
        else
            tm_engine_start_layer(loop->engine, l);
    }
    if (resume != NULL) tm_checkpoint_close(&checkpoint);
    if (rc != 0) return rc;
    return tm_engine_assign(loop->engine, assignment, loop->mesh->rank, e);
}

static int change_layout(struct loop *loop, size_t layout, int64_t step, struct tm_error *e)
{
    const struct tm_assignment *from = &loop->shared->assignments[loop->layout];
    const struct tm_assignment *to = &loop->shared->assignments[layout];
    int fetched = 0;
    int rc = tm_engine__migrate(loop->engine, loop->mesh, from, to, step, &fetched, e);
    loop->layout = layout;
    loop->layers_moved += fetched;
    return rc;
}

/* Each layer's two files by the worker of pipeline 0 that holds it; then, when worker 0 has heard of all, the index. */
static int save(struct loop *loop, int64_t steps_done, struct tm_error *e)
{
    const struct tm_train_shared *shared = loop->shared;
    const struct tm_assignment *a = &shared->assignments[loop->layout];
    struct tm_mesh *mesh = loop->mesh;
    int layers = tm_network_layers(&shared->engine.network);
    int pipeline = 0;
    int stage = 0;
    if (!tm_assignment__place(a, mesh->rank, &pipeline, &stage) || pipeline != 0) return 0;
    struct tm_layer_files *files = tm_calloc((size_t)layers, sizeof *files);
    if (files == NULL) return tm_error_nomem(e);
    struct tm_checkpoint_info info = {.network = shared->engine.network,
                                      .step = steps_done,
                                      .kernels = shared->engine.kernels->name,
                                      .blas_core = shared->engine.blas->core,
                                      .name = shared->options->job->name,
                                      .seed = shared->engine.seed};
    struct tm_checkpoint_place place = {
        .env = shared->env, .dir = shared->options->job->checkpoint.dir, .keep = shared->options->job->checkpoint.keep};
    int rc = 0;
    for (int l = 0; rc == 0 && l < layers; l++) {
        int holder = 0;
        while (!tm_assignment_holds(a, a->ranks[holder], l))
            holder++;
        holder = a->ranks[holder];
        uint64_t tag = tm_message__tag(TM_MESSAGE_REPORT, steps_done, 0, (uint32_t)l);
        if (holder == mesh->rank)
            rc = tm_checkpoint__write_layer(&place, &info, tm_engine__layer(loop->engine, l), &files[l], e);
        if (rc == 0 && holder == mesh->rank && holder != 0)
            rc = mesh->send(mesh, 0, tag, &files[l], sizeof files[l], e);
        if (rc == 0 && mesh->rank == 0 && holder != 0)
            rc = tm_mesh__receive_into(mesh, holder, tag, &files[l], sizeof files[l], e);
    }
    if (rc == 0 && mesh->rank == 0) rc = tm_checkpoint__finish(&place, &info, files, e);
    tm_free(files);
    return rc;
}

static double seconds(struct tm_env *env)
{
    return (double)env->monotonic_ns(env) / 1e9;
}

static int one_step(struct loop *loop, int64_t step, struct tm_error *e)
{
    const struct tm_train_shared *shared = loop->shared;
    const struct tm_train_options *o = shared->options;
    int pipeline = 0;
    int stage = 0;
    if (!tm_assignment__place(&shared->assignments[loop->layout], loop->mesh->rank, &pipeline, &stage)) return 0;
    struct tm_step_result result;
    double start = seconds(shared->env);
    int rc = tm_engine_prepare(loop->engine, loop->mesh, step, &result, e);
    if (rc != 0) return rc;
    tm_engine_apply(loop->engine, result.clip_factor);
    double took = seconds(shared->env) - start;
    loop->step_bytes += result.bytes_sent;
    if (loop->result == NULL) return 0;
    int64_t index = step - shared->first_step;
    loop->step_s[index] = took;
    loop->result->losses[index] = result.loss;
    loop->result->final_loss = result.loss;
    loop->result->steps_redone += result.redone;
    loop->result->train_s += took;
    if (o->progress != NULL) o->progress(o->context, step, &result, took);
    return 0;
}

static bool is_due(const struct tm_train_options *options, int64_t done)
{
    const struct tm_train_job *job = options->job;
    if (job->checkpoint.dir[0] == '\0') return false;
    return done == options->steps || (job->checkpoint.every > 0 && done % job->checkpoint.every == 0);
}

static int run_steps(struct loop *loop, struct tm_error *e)
{
    const struct tm_train_options *o = loop->shared->options;
    int rc = 0;
    for (int64_t step = loop->shared->first_step; rc == 0 && step < o->steps; step++) {
        size_t layout = layout_at(o, step);
        if (layout != loop->layout) rc = change_layout(loop, layout, step, e);
        if (rc == 0) rc = one_step(loop, step, e);
        if (rc == 0 && is_due(o, step + 1)) rc = save(loop, step + 1, e);
    }
    return rc;
}

/* ---- the end ---- */

/* What a worker says at the end; a hash for each layer it holds follows. */
struct last_word {
    uint64_t step_bytes;
    int64_t layers_moved;
};

static int send_last_word(struct loop *loop, struct tm_error *e)
{
    const struct tm_train_shared *shared = loop->shared;
    struct tm_mesh *mesh = loop->mesh;
    struct last_word word = {.step_bytes = loop->step_bytes, .layers_moved = loop->layers_moved};
    uint64_t tag = tm_message__tag(TM_MESSAGE_REPORT, 0, 1, UINT32_MAX);
    int rc = mesh->send(mesh, 0, tag, &word, sizeof word, e);
    for (int l = 0; rc == 0 && l < tm_network_layers(&shared->engine.network); l++) {
        const struct tm_layer_state *state = tm_engine__layer(loop->engine, l);
        if (state == NULL) continue;
        struct tm_hash hash = tm_layer_state__weights_hash(state);
        rc = mesh->send(mesh, 0, tm_message__tag(TM_MESSAGE_REPORT, 0, 2, (uint32_t)l), &hash, sizeof hash, e);
    }
    char farewell; /* nobody leaves before worker 0 has heard it */
    if (rc == 0) rc = tm_mesh__receive_into(mesh, 0, tm_message__tag(TM_MESSAGE_REPORT, 0, 3, 0), &farewell, 1, e);
    return rc;
}

/* Worker 0 hears of every copy of every layer: copies must be equal to the bit. */
static int hear_layer(struct loop *loop, int layer, struct tm_hash *out, struct tm_error *e)
{
    const struct tm_assignment *a = &loop->shared->assignments[loop->layout];
    struct tm_mesh *mesh = loop->mesh;
    bool known = false;
    for (int w = 0; w < mesh->size; w++) {
        struct tm_hash hash;
        if (!tm_assignment_holds(a, w, layer)) continue;
        if (w == 0) {
            hash = tm_layer_state__weights_hash(tm_engine__layer(loop->engine, layer));
        } else {
            uint64_t tag = tm_message__tag(TM_MESSAGE_REPORT, 0, 2, (uint32_t)layer);
            int rc = tm_mesh__receive_into(mesh, w, tag, &hash, sizeof hash, e);
            if (rc != 0) return rc;
        }
        if (known && !tm_hash_equal(hash, *out) && loop->shared->engine.determinism != TM_FAST)
            return tm_error_set(e, TM_EINTERNAL, "layer %d: the copy of worker %d differs from the others", layer, w);
        if (!known) *out = hash;
        known = true;
    }
    return 0;
}

static int hear_last_words(struct loop *loop, struct tm_error *e)
{
    int layers = tm_network_layers(&loop->shared->engine.network);
    struct tm_hash *hashes = tm_calloc((size_t)layers, sizeof *hashes);
    if (hashes == NULL) return tm_error_nomem(e);
    int rc = 0;
    loop->result->bytes_sent = loop->step_bytes;
    loop->result->layers_moved = loop->layers_moved;
    for (int w = 1; rc == 0 && w < loop->mesh->size; w++) {
        struct last_word word;
        rc = tm_mesh__receive_into(loop->mesh, w, tm_message__tag(TM_MESSAGE_REPORT, 0, 1, UINT32_MAX), &word,
                                   sizeof word, e);
        if (rc != 0) break;
        loop->result->bytes_sent += word.step_bytes;
        loop->result->layers_moved += word.layers_moved;
    }
    for (int l = 0; rc == 0 && l < layers; l++)
        rc = hear_layer(loop, l, &hashes[l], e);
    if (rc == 0) loop->result->weights_hash = tm_hash_of(hashes, (size_t)layers * sizeof *hashes);
    for (int w = 1; rc == 0 && w < loop->mesh->size; w++)
        rc = loop->mesh->send(loop->mesh, w, tm_message__tag(TM_MESSAGE_REPORT, 0, 3, 0), "", 1, e);
    tm_free(hashes);
    return rc;
}

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return *x < *y ? -1 : *x > *y ? 1 : 0;
}

static void sum_up(struct loop *loop)
{
    const struct tm_train_shared *shared = loop->shared;
    struct tm_train_result *result = loop->result;
    result->steps = shared->options->steps - shared->first_step;
    size_t count = (size_t)result->steps;
    qsort(loop->step_s, count, sizeof *loop->step_s, compare_doubles);
    result->step_p50_s = loop->step_s[(count - 1) / 2];
    result->step_p90_s = loop->step_s[(count - 1) * 9 / 10];
    const struct tm_train_job *job = shared->options->job;
    double tokens = (double)result->steps * (double)job->batch * (double)job->network.ctx;
    result->tokens_per_s = result->train_s > 0 ? tokens / result->train_s : 0;
}

int tm_train_worker__run(const struct tm_train_shared *shared, struct tm_mesh *mesh, struct tm_train_result *out,
                         struct tm_error *e)
{
    struct loop loop = {.shared = shared, .mesh = mesh, .result = out};
    size_t steps = (size_t)(shared->options->steps - shared->first_step);
    int rc = tm_engine_create(&shared->engine, &loop.engine, e);
    loop.layout = layout_at(shared->options, shared->first_step);
    if (rc == 0 && out != NULL) {
        *out = (struct tm_train_result){.losses = tm_calloc(steps, sizeof *out->losses)};
        loop.step_s = tm_calloc(steps, sizeof *loop.step_s);
        if (out->losses == NULL || loop.step_s == NULL) rc = tm_error_nomem(e);
    }
    if (rc == 0) rc = fill_layers(&loop, e);
    if (rc == 0) rc = run_steps(&loop, e);
    if (rc == 0 && out == NULL) rc = send_last_word(&loop, e);
    if (rc == 0 && out != NULL) rc = hear_last_words(&loop, e);
    if (rc == 0 && out != NULL) sum_up(&loop);
    if (rc != 0 && out != NULL) tm_train_result_deinit(out);
    tm_free(loop.step_s);
    tm_engine_destroy(loop.engine);
    return rc;
}

void tm_train_result_deinit(struct tm_train_result *result)
{
    tm_free(result->losses);
    result->losses = NULL;
}
