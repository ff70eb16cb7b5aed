#include "engine/engine.h"

#include "base/alloc.h"
#include "engine/engine_internal.h"
#include "engine/fixed_point.h"

#include <string.h>

enum { ALIGN = 64 };

int64_t tm_engine__addends_of(const struct tm_engine_options *options, int layer, size_t tensor)
{
    bool tied = tensor == 0 && (layer == 0 || layer == tm_network_layers(&options->network) - 1);
    return options->micro_batches * (tied ? 2 : 1);
}

int64_t tm_engine__addends(const struct tm_engine *engine, int layer, size_t tensor)
{
    return tm_engine__addends_of(&engine->options, layer, tensor);
}

/* ---- layers ---- */

int tm_engine_create(const struct tm_engine_options *options, struct tm_engine **out, struct tm_error *e)
{
    struct tm_engine *engine = tm_calloc(1, sizeof *engine);
    if (engine == NULL) return tm_error_nomem(e);
    engine->options = *options;
    engine->layer_count = tm_network_layers(&options->network);
    engine->layers = tm_calloc((size_t)engine->layer_count, sizeof *engine->layers);
    engine->losses = tm_calloc((size_t)options->micro_batches, sizeof *engine->losses);
    engine->norms = tm_calloc((size_t)engine->layer_count, sizeof *engine->norms);
    if (engine->layers == NULL || engine->norms == NULL || engine->losses == NULL) {
        tm_engine_destroy(engine);
        return tm_error_nomem(e);
    }
    *out = engine;
    return 0;
}

static void leave_place(struct tm_engine *engine)
{
    tm_free(engine->activation_memory);
    tm_free(engine->slots);
    tm_free(engine->flow_table);
    tm_free(engine->cache_table);
    tm_free(engine->scratch_memory);
    engine->activation_memory = NULL;
    engine->slots = NULL;
    engine->flow_table = NULL;
    engine->cache_table = NULL;
    engine->scratch_memory = NULL;
    engine->activation_bytes = 0;
    engine->scratch_bytes = 0;
    engine->slot_count = 0;
    engine->assigned = false;
}

void tm_engine_destroy(struct tm_engine *engine)
{
    if (engine == NULL) return;
    for (int l = 0; engine->layers != NULL && l < engine->layer_count; l++)
        tm_engine__drop(engine, l);
    leave_place(engine);
    tm_free(engine->layers);
    tm_free(engine->losses);
    tm_free(engine->norms);
    tm_free(engine);
}

struct tm_layer_state *tm_engine__layer(struct tm_engine *engine, int layer)
{
    return engine->layers[layer].held ? &engine->layers[layer].state : NULL;
}

/* The state has its memory. */
static int begin_to_hold(struct tm_engine *engine, struct tm_held_layer *held, struct tm_error *e)
{
    int rc = tm_gradients__init(&held->gradients, engine->options.kernels, &held->state, engine->options.determinism,
                                NULL, e);
    held->held = rc == 0;
    if (rc != 0) tm_layer_state__deinit(&held->state);
    return rc;
}

int tm_engine_hold(struct tm_engine *engine, int layer, struct tm_error *e)
{
    struct tm_held_layer *held = &engine->layers[layer];
    if (held->held) return 0;
    int rc = tm_layer_state__init(&held->state, &engine->options.network, layer, e);
    if (rc == 0) rc = begin_to_hold(engine, held, e);
    for (size_t t = 0; rc == 0 && t < held->state.spec.tensor_count; t++)
        held->state.scales[t] = tm_fixed__start(tm_engine__addends(engine, layer, t));
    return rc;
}

int tm_engine__take(struct tm_engine *engine, int layer, void *memory, struct tm_error *e)
{
    struct tm_held_layer *held = &engine->layers[layer];
    tm_layer_state__deinit(&held->state);
    tm_layer_state__place(&held->state, &engine->options.network, layer, memory);
    return held->held ? 0 : begin_to_hold(engine, held, e);
}

void tm_engine_start_layer(struct tm_engine *engine, int layer)
{
    tm_layer_state__start(&engine->layers[layer].state, &engine->options.network, engine->options.seed);
}

int tm_engine__initial_layer(const struct tm_engine_options *options, int layer, void *out, size_t bytes,
                             struct tm_error *e)
{
    struct tm_layer_state state;
    size_t length = 0;
    int rc = tm_layer_state__init(&state, &options->network, layer, e);
    if (rc != 0) return rc;
    tm_layer_state__start(&state, &options->network, options->seed);
    for (size_t t = 0; t < state.spec.tensor_count; t++)
        state.scales[t] = tm_fixed__start(tm_engine__addends_of(options, layer, t));
    const void *from = tm_layer_state__bytes(&state, &length);
    if (length == bytes)
        memcpy(out, from, bytes);
    else
        rc = tm_error_set(e, TM_EINTERNAL, "layer %d has %zu bytes, not %zu", layer, length, bytes);
    tm_layer_state__deinit(&state);
    return rc;
}

double tm_engine__layer_norm(const struct tm_engine *engine, int layer)
{
    return engine->norms[layer];
}

void tm_engine__drop(struct tm_engine *engine, int layer)
{
    struct tm_held_layer *held = &engine->layers[layer];
    if (!held->held) return;
    tm_gradients__deinit(&held->gradients);
    tm_layer_state__deinit(&held->state);
    held->held = false;
}

/* ---- a place ---- */

static size_t aligned(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

static size_t rows_of(const struct tm_engine *engine)
{
    return (size_t)engine->options.micro_batch * (size_t)engine->options.network.ctx;
}

static size_t flow_floats(const struct tm_engine *engine)
{
    return aligned(rows_of(engine) * (size_t)engine->options.network.width);
}

/* Bytes of one slot without caches: tokens, targets, what flows between blocks. */
static size_t slot_bytes(const struct tm_engine *engine)
{
    size_t flows = (size_t)engine->block_count + 1;
    return flows * flow_floats(engine) * sizeof(float) + 2 * aligned(rows_of(engine)) * sizeof(float) / 4 + 2 * ALIGN;
}

static size_t cache_bytes(const struct tm_engine *engine)
{
    return aligned(tm_block_cache__floats(&engine->options.network, engine->options.micro_batch)) * sizeof(float);
}

static size_t activation_bytes(const struct tm_engine *engine, bool recompute)
{
    size_t slots = (size_t)engine->slot_count;
    size_t caches = (size_t)engine->block_count * slots;
    if (recompute && caches > 1) caches = 1;
    return slots * slot_bytes(engine) + caches * cache_bytes(engine) + ALIGN;
}

static size_t largest_tensor(const struct tm_network *network)
{
    size_t largest = 0;
    for (int l = 0; l <= network->blocks + 1; l++) {
        struct tm_layer_spec spec;
        tm_network_layer(network, l, &spec);
        for (size_t t = 0; t < spec.tensor_count; t++)
            largest = spec.tensors[t].count > largest ? spec.tensors[t].count : largest;
    }
    return aligned(largest);
}

static unsigned char *align_up(void *memory)
{
    unsigned char *at = memory;
    return at + (ALIGN - (uintptr_t)at % ALIGN) % ALIGN;
}

static int take_scratch(struct tm_engine *engine, struct tm_error *e)
{
    const struct tm_network *network = &engine->options.network;
    size_t scratch = aligned(tm_pass__scratch_floats(network, engine->options.micro_batch));
    size_t single = largest_tensor(network);
    engine->scratch_bytes = (scratch + single + flow_floats(engine)) * sizeof(float) + ALIGN;
    engine->scratch_memory = tm_alloc(engine->scratch_bytes);
    if (engine->scratch_memory == NULL) return tm_error_nomem(e);
    engine->scratch = (void *)align_up(engine->scratch_memory);
    engine->single = engine->scratch + scratch;
    engine->d = engine->single + single;
    return 0;
}

/* Cuts the activation memory up. */
static void lay_slots(struct tm_engine *engine)
{
    size_t blocks = (size_t)engine->block_count;
    size_t flow = flow_floats(engine);
    float *at = (void *)align_up(engine->activation_memory);
    float *cache = at;
    if (engine->recompute && blocks > 0) at += cache_bytes(engine) / sizeof(float);
    for (size_t s = 0; s < (size_t)engine->slot_count; s++) {
        struct tm_slot *slot = &engine->slots[s];
        slot->flows = engine->flow_table + s * (blocks + 1);
        slot->caches = engine->cache_table + s * blocks;
        for (size_t b = 0; b <= blocks; b++, at += flow)
            slot->flows[b] = at;
        for (size_t b = 0; b < blocks; b++) {
            if (!engine->recompute) cache = at;
            tm_block_cache__lay(&slot->caches[b], &engine->options.network, engine->options.micro_batch, cache);
            slot->caches[b].input = slot->flows[b];
            if (!engine->recompute) at += cache_bytes(engine) / sizeof(float);
        }
        slot->tokens = (void *)at;
        at += aligned((rows_of(engine) + 3) / 4);
        slot->targets = (void *)at;
        at += aligned((rows_of(engine) + 3) / 4);
    }
}

static int take_activations(struct tm_engine *engine, struct tm_error *e)
{
    size_t slots = (size_t)engine->slot_count;
    size_t blocks = (size_t)engine->block_count;
    engine->activation_bytes = activation_bytes(engine, engine->recompute) + slots * 2 * ALIGN;
    engine->activation_memory = tm_alloc(engine->activation_bytes);
    engine->slots = tm_calloc(slots, sizeof *engine->slots);
    engine->flow_table = tm_calloc(slots * (blocks + 1), sizeof *engine->flow_table);
    engine->cache_table = tm_calloc(slots * blocks, sizeof *engine->cache_table);
    if (engine->activation_memory == NULL || engine->slots == NULL || engine->flow_table == NULL ||
        engine->cache_table == NULL)
        return tm_error_nomem(e);
    lay_slots(engine);
    return 0;
}

static size_t state_bytes(const struct tm_engine *engine)
{
    size_t bytes = 0;
    for (int l = engine->first; l < engine->end; l++) {
        struct tm_layer_spec spec;
        tm_network_layer(&engine->options.network, l, &spec);
        bytes += tm_layer_state__size(&spec);
    }
    return bytes;
}

static size_t gradient_bytes(const struct tm_engine *engine)
{
    size_t bytes = 0;
    for (int l = engine->first; l < engine->end; l++) {
        struct tm_layer_spec spec;
        tm_network_layer(&engine->options.network, l, &spec);
        bytes += 2 * spec.floats * sizeof(float);
    }
    return bytes;
}

/* Keeps all activations if they fit, only what comes in to each block if not. */
static int choose_recompute(struct tm_engine *engine, struct tm_error *e)
{
    int64_t limit = engine->options.memory_max;
    int64_t fixed = (int64_t)(state_bytes(engine) + gradient_bytes(engine) + engine->scratch_bytes);
    engine->recompute = limit > 0 && fixed + (int64_t)activation_bytes(engine, false) > limit;
    int64_t need = fixed + (int64_t)activation_bytes(engine, engine->recompute);
    if (limit > 0 && need > limit)
        return tm_error_set(e, TM_ELIMIT,
                            "worker %d needs %.1f MB, more than memory: %.1f MB, even with activations recomputed; use "
                            "more stages or a smaller micro_batch",
                            engine->rank, (double)need / 1e6, (double)limit / 1e6);
    return 0;
}

int tm_engine_assign(struct tm_engine *engine, const struct tm_assignment *assignment, int rank, struct tm_error *e)
{
    leave_place(engine);
    engine->assignment = *assignment;
    engine->rank = rank;
    if (!tm_assignment__place(assignment, rank, &engine->pipeline, &engine->stage)) return 0;
    int blocks = engine->options.network.blocks;
    engine->first = assignment->first_layer[engine->stage];
    engine->end = assignment->first_layer[engine->stage + 1];
    engine->first_block = engine->first > 1 ? engine->first : 1;
    int end_block = engine->end < blocks + 1 ? engine->end : blocks + 1;
    engine->block_count = end_block > engine->first_block ? end_block - engine->first_block : 0;
    engine->micro_first = assignment->first_micro[engine->pipeline];
    engine->micro_count = assignment->first_micro[engine->pipeline + 1] - engine->micro_first;
    engine->slot_count = tm_stage_in__flight(assignment->stages, engine->stage, engine->micro_count);
    int rc = take_scratch(engine, e);
    if (rc == 0) rc = choose_recompute(engine, e);
    if (rc == 0) rc = take_activations(engine, e);
    if (rc != 0) {
        leave_place(engine);
        return rc;
    }
    engine->assigned = true;
    return 0;
}

struct tm_engine__memory tm_engine__memory(const struct tm_engine *engine)
{
    struct tm_engine__memory memory = {.recompute = engine->recompute};
    if (!engine->assigned) return memory;
    memory.state = state_bytes(engine);
    memory.gradients = gradient_bytes(engine);
    memory.activations = engine->activation_bytes;
    memory.scratch = engine->scratch_bytes;
    return memory;
}

enum tm_engine__phase tm_engine__phase(const struct tm_engine *engine)
{
    return engine->phase;
}

/* ---- moving layers ---- */

static int move_layer(struct tm_engine *engine, struct tm_mesh *mesh, const struct tm_layer_move *move, uint64_t tag,
                      struct tm_error *e)
{
    size_t length = 0;
    if (move->from == mesh->rank) {
        const void *bytes = tm_layer_state__bytes(&engine->layers[move->layer].state, &length);
        return mesh->send(mesh, move->to, tag, bytes, length, e);
    }
    int rc = tm_engine_hold(engine, move->layer, e);
    if (rc != 0) return rc;
    void *bytes = tm_layer_state__bytes(&engine->layers[move->layer].state, &length);
    rc = tm_mesh__receive_into(mesh, move->from, tag, bytes, length, e);
    if (rc != 0) tm_engine__drop(engine, move->layer);
    return rc;
}

/* Nobody goes on before all have what they need: a held-back message would keep another waiting. */
static int meet(struct tm_mesh *mesh, int64_t step, struct tm_error *e)
{
    struct tm_group all = {.count = mesh->size, .place = mesh->rank};
    float nothing = 0;
    for (int i = 0; i < mesh->size; i++)
        all.ranks[i] = i;
    return tm_mesh__all_largest(mesh, &all, &nothing, 1, tm_message__tag(TM_MESSAGE_LAYER, step, 15, UINT32_MAX), e);
}

int tm_engine__migrate(struct tm_engine *engine, struct tm_mesh *mesh, const struct tm_assignment *from,
                       const struct tm_assignment *to, int64_t step, int *out_layers_fetched, struct tm_error *e)
{
    size_t count = tm_assignment__moves(from, to, mesh->size, NULL, 0);
    struct tm_layer_move *moves = tm_alloc(count * sizeof *moves);
    if (moves == NULL) return tm_error_nomem(e);
    (void)tm_assignment__moves(from, to, mesh->size, moves, count);
    int rc = 0;
    int fetched = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (moves[i].from != mesh->rank && moves[i].to != mesh->rank) continue;
        uint64_t tag = tm_message__tag(TM_MESSAGE_LAYER, step, 0, (uint32_t)moves[i].layer);
        rc = move_layer(engine, mesh, &moves[i], tag, e);
        if (moves[i].to == mesh->rank) fetched++;
    }
    tm_free(moves);
    if (rc == 0) rc = meet(mesh, step, e);
    if (rc != 0) return tm_error_wrap(e, rc, "migrating layers before step %lld", (long long)step);
    for (int l = 0; l < engine->layer_count; l++) {
        if (!tm_assignment_holds(to, mesh->rank, l)) tm_engine__drop(engine, l);
    }
    *out_layers_fetched = fetched;
    return tm_engine_assign(engine, to, mesh->rank, e);
}
