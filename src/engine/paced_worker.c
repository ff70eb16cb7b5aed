#include "engine/paced_worker.h"

#include "base/alloc.h"
#include "engine/elastic.h"

#include <math.h>

struct paced_worker {
    const struct tm_paced_job *job;
    struct tm_paced *paced;
    struct tm_paced_norm *norms; /* owned; [layers] */
};

static uint64_t layer_bytes(void *context, uint32_t layer)
{
    return tm_paced__layer_bytes(((struct paced_worker *)context)->job, layer);
}

static int init_layer(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    (void)bytes;
    tm_paced__init_layer(((struct paced_worker *)context)->job, layer, out);
    return 0;
}

static int take_layer(void *context, uint32_t layer, void *memory, uint64_t bytes)
{
    (void)bytes;
    tm_paced__take(((struct paced_worker *)context)->paced, layer, memory);
    return 0;
}

static void drop_layer(void *context, uint32_t layer)
{
    tm_paced__drop(((struct paced_worker *)context)->paced, layer);
}

static uint64_t gradient_bytes(void *context, uint32_t layer)
{
    return tm_paced__gradient_bytes(((struct paced_worker *)context)->job, layer);
}

static int read_gradient(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    (void)bytes;
    tm_paced__read_gradient(((struct paced_worker *)context)->paced, layer, out);
    return 0;
}

static int advance_layer(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_bytes,
                         const void *gradient, uint64_t bytes)
{
    const struct tm_paced_job *job = ((struct paced_worker *)context)->job;
    if (state_bytes != tm_paced__layer_bytes(job, layer) || bytes != tm_paced__gradient_bytes(job, layer))
        return -(int)TM_EINPUT;
    tm_paced__advance_layer(job, layer, step, norm, state, gradient);
    return 0;
}

static int prepare(void *context, const struct tidemill_work *work, struct tm_mesh *mesh, bool fresh,
                   struct tidemill_norm *norms, size_t *out_count, struct tm_error *e)
{
    struct paced_worker *w = context;
    struct tm_paced_place place = {.pipeline = work->pipeline,
                                   .pipelines = work->pipelines,
                                   .stage = work->stage,
                                   .stages = work->stages,
                                   .first_layer = work->first_layer,
                                   .last_layer = work->last_layer,
                                   .first_micro_batch = work->first_micro_batch,
                                   .last_micro_batch = work->last_micro_batch};
    int rc = tm_paced__prepare(w->paced, mesh, &place, work->step, fresh, w->norms, e);
    if (rc != 0) return rc;
    *out_count = work->last_layer - work->first_layer;
    for (size_t i = 0; i < *out_count; i++)
        norms[i] = (struct tidemill_norm){.layer = w->norms[i].layer, .sum = w->norms[i].sum};
    return 0;
}

static uint64_t computed_us(void *context)
{
    return tm_paced__computed_us(((struct paced_worker *)context)->paced);
}

static int apply(void *context, const struct tidemill_work *work, double *out_loss, struct tm_error *e)
{
    (void)e;
    *out_loss = NAN;
    tm_paced__apply(((struct paced_worker *)context)->paced, work->step, work->norm);
    return 0;
}

static void cancel(void *context)
{
    tm_paced__cancel(((struct paced_worker *)context)->paced);
}

static void resume(void *context)
{
    tm_paced__resume(((struct paced_worker *)context)->paced);
}

int tm_paced_worker(struct tm_env *env, const struct tidemill_options *library, const struct tm_paced_job *job,
                    struct tm_error *e)
{
    struct paced_worker w = {.job = job};
    struct tm_elastic_engine engine = {.context = &w,
                                       .layers = tm_paced__layers(job),
                                       .kernel_class = "paced",
                                       .layer_bytes = layer_bytes,
                                       .init_layer = init_layer,
                                       .take_layer = take_layer,
                                       .drop_layer = drop_layer,
                                       .prepare = prepare,
                                       .computed_us = computed_us,
                                       .apply = apply,
                                       .gradient_bytes = gradient_bytes,
                                       .read_gradient = read_gradient,
                                       .advance_layer = advance_layer,
                                       .cancel = cancel,
                                       .resume = resume};
    int rc = tm_paced__create(env, job, &w.paced, e);
    if (rc != 0) return rc;
    w.norms = tm_calloc(tm_paced__layers(job), sizeof *w.norms);
    rc = w.norms == NULL ? tm_error_nomem(e) : tm_elastic__run(env, library, &engine, e);
    tm_free(w.norms);
    tm_paced__destroy(w.paced);
    return rc;
}
