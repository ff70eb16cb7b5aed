/* A step: forward and backward in the order of 1F1B, then prepared, then applied or discarded. */
#include "base/sample_order.h"
#include "engine/engine_internal.h"
#include "engine/fixed_point.h"

#include <math.h>
#include <string.h>

enum { ATTEMPTS_MAX = 8 };

static size_t rows_of(const struct tm_engine *engine)
{
    return (size_t)engine->options.micro_batch * (size_t)engine->options.network.ctx;
}

static size_t flow_bytes(const struct tm_engine *engine)
{
    return rows_of(engine) * (size_t)engine->options.network.width * sizeof(float);
}

static struct tm_pass pass_of(const struct tm_engine *engine, int64_t micro)
{
    return (struct tm_pass){.network = &engine->options.network,
                            .kernels = engine->options.kernels,
                            .blas = engine->options.blas,
                            .samples = engine->options.micro_batch,
                            .seed = engine->options.seed,
                            .step = (uint32_t)engine->step,
                            .micro = (uint32_t)micro,
                            .training = true,
                            .scratch = engine->scratch};
}

/* Samples of micro-batch `micro` of the step: numbers step x batch + micro x micro_batch onward. */
static void load_samples(const struct tm_engine *engine, struct tm_slot *slot, int64_t micro)
{
    const struct tm_engine_options *o = &engine->options;
    uint64_t batch = (uint64_t)o->micro_batches * (uint64_t)o->micro_batch;
    uint64_t first = (uint64_t)engine->step * batch + (uint64_t)micro * (uint64_t)o->micro_batch;
    size_t ctx = (size_t)o->network.ctx;
    for (size_t i = 0; i < (size_t)o->micro_batch; i++) {
        uint64_t window = tm_sample_item(o->seed, o->windows, first + i);
        tm_corpus__window(o->corpus, o->network.ctx, window, slot->tokens + i * ctx, slot->targets + i * ctx);
    }
}

static void check_output(struct tm_engine *engine, int layer, int64_t micro, const float *out)
{
    size_t count = rows_of(engine) * (size_t)engine->options.network.width;
    if (engine->bad_layer >= 0 && engine->bad_layer <= layer) return;
    if (engine->options.kernels->all_finite(out, count)) return;
    engine->bad_layer = layer;
    engine->bad_micro = micro;
}

static uint64_t flow_tag(const struct tm_engine *engine, enum tm_message_kind kind, int64_t micro)
{
    return tm_message__tag(kind, engine->step, engine->attempt, (uint32_t)micro);
}

static int neighbour(const struct tm_engine *engine, int stage)
{
    return engine->assignment.ranks[engine->pipeline * engine->assignment.stages + stage];
}

/* Looked at before every block, so that a step that is given up ends within the time of one. */
static int check_cancelled(struct tm_mesh *mesh, struct tm_error *e)
{
    if (mesh->is_cancelled == NULL || !mesh->is_cancelled(mesh)) return 0;
    return tm_error_set(e, TM_ECANCELED, "the step was cancelled");
}

static int forward(struct tm_engine *engine, struct tm_mesh *mesh, int64_t number, struct tm_error *e)
{
    int64_t micro = engine->micro_first + number;
    struct tm_slot *slot = &engine->slots[number % engine->slot_count];
    struct tm_pass pass = pass_of(engine, micro);
    int blocks = engine->block_count;
    bool is_last = engine->stage == engine->assignment.stages - 1;
    if (engine->stage == 0 || is_last) load_samples(engine, slot, micro);
    if (engine->stage == 0) {
        tm_embed__forward(&pass, &engine->layers[0].state, slot->tokens, slot->flows[0]);
        check_output(engine, 0, micro, slot->flows[0]);
    } else {
        int rc =
            tm_mesh__receive_into(mesh, neighbour(engine, engine->stage - 1),
                                  flow_tag(engine, TM_MESSAGE_FORWARD, micro), slot->flows[0], flow_bytes(engine), e);
        if (rc != 0) return rc;
    }
    for (int b = 0; b < blocks; b++) {
        int layer = engine->first_block + b;
        int rc = check_cancelled(mesh, e);
        if (rc != 0) return rc;
        tm_block__forward(&pass, &engine->layers[layer].state, &slot->caches[b], slot->flows[b + 1]);
        check_output(engine, layer, micro, slot->flows[b + 1]);
    }
    if (is_last) return 0; /* the head does both ways at once, on the way back */
    return mesh->send(mesh, neighbour(engine, engine->stage + 1), flow_tag(engine, TM_MESSAGE_FORWARD, micro),
                      slot->flows[blocks], flow_bytes(engine), e);
}

static int backward(struct tm_engine *engine, struct tm_mesh *mesh, int64_t number, struct tm_error *e)
{
    int64_t micro = engine->micro_first + number;
    struct tm_slot *slot = &engine->slots[number % engine->slot_count];
    struct tm_pass pass = pass_of(engine, micro);
    int blocks = engine->block_count;
    int head = engine->layer_count - 1;
    if (engine->stage == engine->assignment.stages - 1) {
        engine->losses[micro] = tm_head__loss(&pass, &engine->layers[head].state, slot->flows[blocks], slot->targets,
                                              engine->d, &engine->layers[head].gradients);
        if (!isfinite(engine->losses[micro]) && engine->bad_layer < 0) {
            engine->bad_layer = head;
            engine->bad_micro = micro;
        }
    } else {
        int rc = tm_mesh__receive_into(mesh, neighbour(engine, engine->stage + 1),
                                       flow_tag(engine, TM_MESSAGE_BACKWARD, micro), engine->d, flow_bytes(engine), e);
        if (rc != 0) return rc;
    }
    for (int b = blocks - 1; b >= 0; b--) {
        struct tm_held_layer *held = &engine->layers[engine->first_block + b];
        int rc = check_cancelled(mesh, e);
        if (rc != 0) return rc;
        if (engine->recompute) /* into the flow behind it, which is not needed again */
            tm_block__forward(&pass, &held->state, &slot->caches[b], slot->flows[b + 1]);
        tm_block__backward(&pass, &held->state, &slot->caches[b], engine->d, &held->gradients);
    }
    if (engine->stage == 0) tm_embed__backward(&pass, slot->tokens, engine->d, &engine->layers[0].gradients);
    for (int l = engine->first; l < engine->end; l++)
        tm_gradients__micro_done(&engine->layers[l].gradients);
    if (engine->stage == 0) return 0;
    return mesh->send(mesh, neighbour(engine, engine->stage - 1), flow_tag(engine, TM_MESSAGE_BACKWARD, micro),
                      engine->d, flow_bytes(engine), e);
}

/* All micro-batches of this worker, in the order of 1F1B: sums of gradients and losses. */
static int run_schedule(struct tm_engine *engine, struct tm_mesh *mesh, struct tm_error *e)
{
    int rc = 0;
    engine->bad_layer = -1;
    memset(engine->losses, 0, (size_t)engine->options.micro_batches * sizeof *engine->losses);
    for (int64_t turn = 0; rc == 0 && turn < 2 * engine->micro_count; turn++) {
        struct tm_stage__turn now = tm_stage__turn(engine->assignment.stages, engine->stage, engine->micro_count, turn);
        rc = now.backward ? backward(engine, mesh, now.micro, e) : forward(engine, mesh, now.micro, e);
    }
    return rc;
}

static int start_attempt(struct tm_engine *engine, struct tm_error *e)
{
    for (int l = engine->first; l < engine->end; l++) {
        struct tm_held_layer *held = &engine->layers[l];
        if (!held->held) return tm_error_set(e, TM_EINTERNAL, "layer %d was assigned but is not here", l);
        int32_t scales[TM_TENSORS_MAX] = {0};
        bool again = engine->attempt > 0;
        memcpy(scales, again ? held->gradients.scales : held->state.scales,
               held->state.spec.tensor_count * sizeof *scales);
        held->gradients.single = engine->single;
        tm_gradients__start(&held->gradients, scales);
    }
    return 0;
}

/* Scales for the step done again: those that did not fit become the best. */
static void mend_scales(struct tm_engine *engine)
{
    for (int l = engine->first; l < engine->end; l++) {
        struct tm_gradients *gradients = &engine->layers[l].gradients;
        for (size_t t = 0; t < gradients->spec->tensor_count; t++) {
            int64_t addends = tm_engine__addends(engine, l, t);
            if (!tm_fixed__fits(gradients->largest[t], gradients->scales[t], addends))
                gradients->scales[t] = tm_fixed__best(gradients->largest[t], addends);
        }
    }
}

int tm_engine_prepare(struct tm_engine *engine, struct tm_mesh *mesh, int64_t step, struct tm_step_result *out,
                      struct tm_error *e)
{
    if (!engine->assigned) return tm_error_set(e, TM_EINTERNAL, "worker %d has no place in the layout", engine->rank);
    uint64_t sent_before = mesh->bytes_sent;
    engine->step = step;
    for (engine->attempt = 0; engine->attempt < ATTEMPTS_MAX; engine->attempt++) {
        bool redo = false;
        engine->phase = TM_ENGINE_IDLE;
        int rc = start_attempt(engine, e);
        if (rc == 0) rc = run_schedule(engine, mesh, e);
        if (rc == 0) rc = tm_engine__reduce(engine, mesh, e);
        if (rc != 0) return rc;
        engine->phase = TM_ENGINE_REDUCED;
        struct tm_step_result result = {.redone = (int)engine->attempt};
        rc = tm_engine__exchange(engine, mesh, &result, &redo, e);
        if (rc != 0) return rc;
        if (redo) {
            mend_scales(engine);
            continue;
        }
        engine->phase = TM_ENGINE_PREPARED;
        result.bytes_sent = mesh->bytes_sent - sent_before;
        *out = result;
        return 0;
    }
    return tm_error_set(e, TM_EINTERNAL, "step %lld: the gradients do not fit any scale", (long long)step);
}

void tm_engine_apply(struct tm_engine *engine, double clip_factor)
{
    for (int l = engine->first; l < engine->end; l++) {
        struct tm_held_layer *held = &engine->layers[l];
        struct tm_gradients *gradients = &held->gradients;
        tm_optimizer__apply(&engine->options.optimizer, gradients, engine->step, engine->options.micro_batches,
                            clip_factor, &held->state);
        for (size_t t = 0; t < gradients->spec->tensor_count; t++)
            held->state.scales[t] =
                tm_fixed__next(gradients->largest[t], gradients->scales[t], tm_engine__addends(engine, l, t));
        union tm_sums reduced = gradients->sums; /* kept until the next step is prepared */
        gradients->sums = gradients->kept;
        gradients->kept = reduced;
    }
    engine->phase = TM_ENGINE_IDLE;
}

void tm_engine__discard(struct tm_engine *engine)
{
    engine->phase = TM_ENGINE_IDLE; /* scales and weights were never touched */
}
