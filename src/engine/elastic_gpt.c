/* The built-in GPT engine for the loop of elastic.h. */
#include "base/alloc.h"
#include "base/log.h"
#include "engine/elastic.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FINGERPRINT_MAX = 1 << 14 };

struct gpt {
    struct tm_engine_options options;
    struct tm_engine *engine;
    struct tm_corpus corpus;
    struct tm_blas blas;
    struct tm_step_result result; /* of the step prepared last */
    char kernel_class[80];
};

uint32_t tm_elastic_layers(const struct tm_train_job *job)
{
    return (uint32_t)tm_network_layers(&job->network);
}

uint32_t tm_elastic_micro_batches(const struct tm_train_job *job)
{
    return (uint32_t)(job->batch / job->micro_batch);
}

/* ---- layers ---- */

static uint64_t layer_bytes(void *context, uint32_t layer)
{
    struct tm_layer_spec spec;
    tm_network_layer(&((struct gpt *)context)->options.network, (int)layer, &spec);
    return tm_layer_state__size(&spec);
}

static int init_layer(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    return tm_engine__initial_layer(&((struct gpt *)context)->options, (int)layer, out, bytes, NULL);
}

static int take_layer(void *context, uint32_t layer, void *memory, uint64_t bytes)
{
    if (bytes != layer_bytes(context, layer)) return -(int)TM_EINTERNAL;
    return tm_engine__take(((struct gpt *)context)->engine, (int)layer, memory, NULL);
}

static void drop_layer(void *context, uint32_t layer)
{
    tm_engine__drop(((struct gpt *)context)->engine, (int)layer);
}

/* ---- steps ---- */

static int take_place(struct gpt *gpt, const struct tidemill_work *work, int rank, struct tm_error *e)
{
    struct tm_assignment a = {.pipelines = (int)work->pipelines, .stages = (int)work->stages};
    if (work->stages > TM_ASSIGNMENT_STAGES_MAX)
        return tm_error_set(e, TM_ELIMIT, "a layout of %u stages; at most %d can be trained", work->stages,
                            TM_ASSIGNMENT_STAGES_MAX);
    for (uint32_t s = 0; s <= work->stages; s++)
        a.first_layer[s] = (int)work->stage_first[s];
    for (uint32_t p = 0; p <= work->pipelines; p++)
        a.first_micro[p] = work->micro_batch_first[p];
    for (int i = 0; i < a.pipelines * a.stages; i++)
        a.ranks[i] = i;
    if (a.first_layer[a.stages] != tm_network_layers(&gpt->options.network) ||
        a.first_micro[a.pipelines] != gpt->options.micro_batches)
        return tm_error_set(e, TM_EINPUT,
                            "the coordinator's job has %d layers and %lld micro-batches, ours %d and %lld",
                            a.first_layer[a.stages], (long long)a.first_micro[a.pipelines],
                            tm_network_layers(&gpt->options.network), (long long)gpt->options.micro_batches);
    return tm_engine_assign(gpt->engine, &a, rank, e);
}

static int prepare(void *context, const struct tidemill_work *work, struct tm_mesh *mesh, bool fresh,
                   struct tidemill_norm *norms, size_t *out_count, struct tm_error *e)
{
    struct gpt *gpt = context;
    int rc = fresh ? take_place(gpt, work, mesh->rank, e) : 0;
    if (rc == 0) rc = tm_engine_prepare(gpt->engine, mesh, (int64_t)work->step - 1, &gpt->result, e);
    if (rc != 0) return rc;
    *out_count = 0;
    for (uint32_t l = work->first_layer; l < work->last_layer; l++) {
        norms[*out_count].layer = l;
        norms[(*out_count)++].sum = tm_engine__layer_norm(gpt->engine, (int)l);
    }
    return 0;
}

static int apply(void *context, const struct tidemill_work *work, double *out_loss, struct tm_error *e)
{
    struct gpt *gpt = context;
    if (tm_engine__phase(gpt->engine) != TM_ENGINE_PREPARED)
        return tm_error_set(e, TM_EINTERNAL, "step %llu should be applied, but is not here",
                            (unsigned long long)work->step);
    tm_engine_apply(gpt->engine, tm_optimizer__clip_factor(&gpt->options.optimizer, sqrt(work->norm)));
    *out_loss = gpt->result.loss;
    return 0;
}

/* ---- a layer's steps elsewhere ---- */

static uint64_t gradient_bytes(void *context, uint32_t layer)
{
    return tm_engine__gradient_bytes(&((struct gpt *)context)->options, (int)layer);
}

static int read_gradient(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    return tm_engine__read_gradient(((struct gpt *)context)->engine, (int)layer, out, bytes, NULL);
}

static int advance_layer(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_bytes,
                         const void *gradient, uint64_t bytes)
{
    const struct tm_engine_options *options = &((struct gpt *)context)->options;
    return tm_engine__advance_layer(options, (int)layer, (int64_t)step - 1,
                                    tm_optimizer__clip_factor(&options->optimizer, sqrt(norm)), state, state_bytes,
                                    gradient, bytes, NULL);
}

/* ---- a worker ---- */

static int open_gpt(struct gpt *gpt, struct tm_env *env, const struct tm_train_job *job, struct tm_error *e)
{
    const struct tm_kernels *kernels = NULL;
    int rc = tm_train_job__check(job, e);
    if (rc == 0) rc = tm_kernels_choose(env, &kernels, e);
    if (rc == 0) rc = tm_blas_open(env, kernels->core, &gpt->blas, e);
    if (rc == 0) rc = tm_corpus_open(env, job->data, &gpt->corpus, e);
    if (rc != 0) return rc;
    gpt->options = (struct tm_engine_options){.network = job->network,
                                              .micro_batch = (int)job->micro_batch,
                                              .micro_batches = job->batch / job->micro_batch,
                                              .seed = job->seed,
                                              .determinism = job->determinism,
                                              .optimizer = job->optimizer,
                                              .memory_max = job->memory_max,
                                              .kernels = kernels,
                                              .blas = &gpt->blas,
                                              .corpus = &gpt->corpus};
    (void)snprintf(gpt->kernel_class, sizeof gpt->kernel_class, "%.30s/%.30s", kernels->name, gpt->blas.core);
    rc = tm_corpus_windows(&gpt->corpus, job->data, job->network.ctx, job->batch, &gpt->options.windows, e);
    return rc == 0 ? tm_engine_create(&gpt->options, &gpt->engine, e) : rc;
}

int tm_elastic_worker(struct tm_env *env, const struct tm_elastic_options *options, struct tm_error *e)
{
    struct gpt gpt = {.engine = NULL};
    int rc = open_gpt(&gpt, env, options->job, e);
    struct tidemill_options library = options->library;
    struct tm_text fingerprint;
    tm_text_init(&fingerprint, FINGERPRINT_MAX);
    if (rc == 0 && library.fingerprint == NULL) {
        tm_train_job_fingerprint(env, options->job, &fingerprint);
        library.fingerprint = tm_text_string(&fingerprint);
        rc = tm_text_status(&fingerprint, e);
    }
    if (rc == 0) {
        struct tm_elastic_engine engine = {.context = &gpt,
                                           .layers = tm_elastic_layers(options->job),
                                           .kernel_class = gpt.kernel_class,
                                           .layer_bytes = layer_bytes,
                                           .init_layer = init_layer,
                                           .take_layer = take_layer,
                                           .drop_layer = drop_layer,
                                           .prepare = prepare,
                                           .apply = apply,
                                           .gradient_bytes = gradient_bytes,
                                           .read_gradient = read_gradient,
                                           .advance_layer = advance_layer};
        rc = tm_elastic__run(env, &library, &engine, e);
    }
    tm_text_deinit(&fingerprint);
    tm_engine_destroy(gpt.engine);
    tm_corpus__close(&gpt.corpus);
    return rc;
}
