/* The toy engine: a layer's state is a few words of a hash chain that depend on every sample of every step, in any
 * grouping; so a step applied twice, skipped, or with a wrong sample gives other words than the oracle's. */
#include "sim.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ (b + 0x9E3779B97F4A7C15U + (a << 6) + (a >> 2));
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

static uint32_t words_of(uint32_t layer)
{
    return 4 + layer * 5 % (WORDS_MAX - 3);
}

uint64_t toy_layer_bytes(uint32_t layer)
{
    return (uint64_t)words_of(layer) * 8;
}

static void first_words(uint32_t layer, uint64_t words[WORDS_MAX])
{
    for (uint32_t w = 0; w < words_of(layer); w++)
        words[w] = mix(layer + 1, w + 77);
}

static uint64_t sample_of(const struct sim *sim, uint64_t step, uint32_t micro_batch)
{
    return (step - 1) * sim->micro_batches + micro_batch + 1;
}

static void add_micro_batch(const struct sim *sim, const uint64_t *words, uint32_t layer, uint64_t step, uint32_t m,
                            struct toy_partial *partial)
{
    uint64_t sample = sample_of(sim, step, m);
    partial->sum += mix(mix(words[0], words[words_of(layer) - 1]), sample);
    partial->samples += mix(sample, 5);
    partial->micro_batches++;
}

static double norm_of(const struct toy_partial *gradient)
{
    return (double)(gradient->sum >> 11) * 0x1p-53;
}

static void apply_words(uint64_t *words, uint32_t layer, uint64_t gradient, double norm)
{
    uint64_t bits;
    memcpy(&bits, &norm, sizeof bits);
    for (uint32_t w = 0; w < words_of(layer); w++)
        words[w] = mix(mix(words[w], gradient + w), bits);
}

/* ---- the oracle ---- */

static uint64_t *oracle_at(const struct sim *sim, uint64_t step, uint32_t layer)
{
    return sim->oracle + (step * sim->layers + layer) * WORDS_MAX;
}

const uint64_t *oracle_words(const struct sim *sim, uint64_t step, uint32_t layer)
{
    return oracle_at(sim, step, layer);
}

bool oracle_matches(const struct sim *sim, uint64_t step, uint32_t layer, const void *data, size_t length)
{
    return step <= sim->steps && length == toy_layer_bytes(layer) &&
           memcmp(data, oracle_at(sim, step, layer), length) == 0;
}

bool oracle_make(struct sim *sim)
{
    sim->oracle = tm_calloc((sim->steps + 1) * sim->layers * WORDS_MAX, sizeof *sim->oracle);
    if (sim->oracle == NULL) return false;
    for (uint32_t l = 0; l < sim->layers; l++)
        first_words(l, oracle_at(sim, 0, l));
    for (uint64_t step = 1; step <= sim->steps; step++) {
        struct toy_partial gradients[LAYERS_MAX] = {{0}};
        double norm = 0;
        for (uint32_t l = 0; l < sim->layers; l++) {
            for (uint32_t m = 0; m < sim->micro_batches; m++)
                add_micro_batch(sim, oracle_at(sim, step - 1, l), l, step, m, &gradients[l]);
            norm += norm_of(&gradients[l]);
        }
        for (uint32_t l = 0; l < sim->layers; l++) {
            memcpy(oracle_at(sim, step, l), oracle_at(sim, step - 1, l), WORDS_MAX * sizeof(uint64_t));
            apply_words(oracle_at(sim, step, l), l, gradients[l].sum, norm);
        }
        sim->oracle_norm[step] = norm;
    }
    return true;
}

/* ---- state ---- */

static uint64_t engine_layer_bytes(void *context, uint32_t layer)
{
    (void)context;
    return toy_layer_bytes(layer);
}

static int engine_export(void *context, uint32_t layer, void *out, uint64_t size)
{
    struct toy *toy = context;
    if (toy->applying)
        sim_fail(toy->sim, "node %llu: a layer is read while it is written", (unsigned long long)toy->node->id);
    if (!toy->layers[layer].have || size != toy_layer_bytes(layer)) return -(int)TM_EINTERNAL;
    memcpy(out, toy->layers[layer].words, size);
    return 0;
}

static int engine_import(void *context, uint32_t layer, uint64_t step, struct tm_block *block)
{
    struct toy *toy = context;
    assert(block->size == toy_layer_bytes(layer));
    void *room = tm_alloc(block->size); /* an engine may have none */
    if (room == NULL) return -(int)TM_ENOMEM;
    tm_free(room);
    toy->layers[layer] = (struct toy_layer){.have = true, .step = step};
    memcpy(toy->layers[layer].words, block->data, block->size);
    return 0;
}

static int engine_init(void *context, uint32_t layer)
{
    struct toy *toy = context;
    toy->layers[layer] = (struct toy_layer){.have = true, .step = 0};
    first_words(layer, toy->layers[layer].words);
    return 0;
}

static void engine_drop(void *context, uint32_t layer)
{
    struct toy *toy = context;
    toy->layers[layer].have = false;
}

/* ---- a step ---- */

static void finish_if_all_here(struct toy *toy)
{
    if (!toy->computing || !toy->local_done || toy->node->hangs) return;
    struct toy_partial sums[LAYERS_MAX] = {{0}};
    for (uint32_t p = 0; p < toy->pipelines; p++) {
        const struct toy_share *share = &toy->shares[p];
        if (!share->have || share->generation != toy->generation || share->step != toy->step) return;
        for (uint32_t l = toy->first_layer; l < toy->last_layer; l++) {
            sums[l].sum += share->layers[l].sum;
            sums[l].samples += share->layers[l].samples;
            sums[l].micro_batches += share->layers[l].micro_batches;
        }
    }
    struct tm_norm norms[LAYERS_MAX];
    size_t count = 0;
    for (uint32_t l = toy->first_layer; l < toy->last_layer; l++)
        norms[count++] = (struct tm_norm){.layer = l, .sum = norm_of(&sums[l])};
    memcpy(toy->held, sums, sizeof toy->held);
    toy->computing = false;
    struct tm_outbox out;
    tm_outbox_init(&out);
    check_held(toy->sim, toy->node, toy->generation, toy->step);
    sim_memory_short(toy->sim);
    tm_worker_computed(toy->node->worker, toy->step, toy->time_us);
    tm_worker_held(toy->node->worker, sim_clock(toy->sim, toy->node), toy->step, norms, count, &out);
    sim_memory_back(toy->sim);
    sim_worker_actions(toy->sim, toy->node, &out);
    tm_outbox_deinit(&out);
}

static void share_with(struct toy *toy, const struct toy_share *share, uint64_t to)
{
    struct {
        uint64_t pipeline;
        struct toy_share share;
    } packet = {toy->pipeline, *share};
    sim_send(toy->sim, toy->node->id, to, toy_receive, TM_ROLE_WORKER, toy->node->incarnation, &packet, sizeof packet);
}

static void share_with_all(struct toy *toy)
{
    for (uint32_t p = 0; p < toy->pipelines; p++)
        if (p != toy->pipeline) share_with(toy, &toy->own[0], toy->replicas[p]);
}

static void local_done(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    struct toy *toy = &node->toy;
    if (node->worker == NULL || toy->ticket != event->b || !toy->computing || node->hangs) return;
    if (node->paused_ms > sim->now_ms) {
        sim_schedule(sim, node->paused_ms, local_done, event->a, event->b, 0, 0, NULL, 0);
        return;
    }
    struct toy_share *own = &toy->own[0];
    toy->own[1] = *own;
    *own = (struct toy_share){.have = true, .generation = toy->generation, .step = toy->step};
    uint32_t last = toy->micro_first[toy->pipeline + 1];
    if (TM_PLANTED(sample_lost) && toy->pipelines > 1 && toy->pipeline == toy->pipelines - 1) last--;
    for (uint32_t l = toy->first_layer; l < toy->last_layer; l++)
        for (uint32_t m = toy->micro_first[toy->pipeline]; m < last; m++)
            add_micro_batch(sim, toy->layers[l].words, l, toy->step, m, &own->layers[l]);
    for (uint32_t l = toy->first_layer; toy->node->other_job && l < toy->last_layer; l++)
        own->layers[l].sum++;
    toy->shares[toy->pipeline] = *own;
    toy->local_done = true;
    share_with_all(toy);
    finish_if_all_here(toy);
}

static void engine_begin(void *context, const struct tm_roster *roster, uint64_t step)
{
    struct toy *toy = context;
    struct sim *sim = toy->sim;
    const struct tm_member *me = tm_roster_find(roster, toy->node->id);
    assert(me != NULL && !me->spare && !toy->applying);
    check_begun(sim, toy->node, roster->generation);
    toy->computing = true;
    toy->local_done = false;
    toy->ticket++;
    toy->generation = roster->generation;
    toy->step = step;
    toy->pipelines = roster->pipelines;
    toy->pipeline = me->pipeline;
    toy->stage = me->stage;
    toy->first_layer = roster->stage_first[me->stage];
    toy->last_layer = roster->stage_first[me->stage + 1];
    toy->micro_first[0] = 0;
    for (uint32_t p = 0; p < roster->pipelines; p++) {
        toy->replicas[p] = tm_roster_at(roster, p, me->stage)->id;
        toy->micro_first[p + 1] = toy->micro_first[p] + roster->micro_batches[p];
    }
    double share = (double)roster->micro_batches[me->pipeline] / sim->micro_batches;
    double time_ms = sim->compute_ms * (0.2 + share) * (0.9 + 0.2 * sim_unit(sim)) * toy->node->slow;
    if (sim->by_share) time_ms = sim->compute_ms * share * toy->node->slow;
    toy->time_us = (uint64_t)(time_ms * 1000);
    sim_schedule(sim, sim->now_ms + (int64_t)time_ms + 1, local_done, toy->node->id, toy->ticket, 0, 0, NULL, 0);
}

static void engine_cancel(void *context)
{
    struct toy *toy = context;
    toy->computing = false;
    toy->ticket++;
}

static void engine_discard(void *context)
{
    struct toy *toy = context;
    memset(toy->held, 0, sizeof toy->held);
}

static uint64_t engine_waiting_for(void *context)
{
    const struct toy *toy = context;
    if (!toy->computing || !toy->local_done || toy->node->hangs) return 0;
    for (uint32_t p = 0; p < toy->pipelines; p++) {
        const struct toy_share *share = &toy->shares[p];
        if (!share->have || share->generation != toy->generation || share->step != toy->step) return toy->replicas[p];
    }
    return 0;
}

static void apply_done(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    struct toy *toy = &node->toy;
    if (node->worker == NULL || node->incarnation != event->b) return;
    if (node->paused_ms > sim->now_ms) {
        sim_schedule(sim, node->paused_ms, apply_done, event->a, event->b, event->c, event->d, NULL, 0);
        return;
    }
    double norm;
    memcpy(&norm, &event->d, sizeof norm);
    uint64_t step = event->c;
    for (uint32_t l = 0; l < sim->layers; l++) {
        struct toy_layer *layer = &toy->layers[l];
        if (!layer->have || layer->step + 1 != step) continue;
        uint64_t expected = 0;
        for (uint32_t m = 0; m < sim->micro_batches; m++)
            expected += mix(sample_of(sim, step, m), 5);
        if (toy->held[l].micro_batches != sim->micro_batches || toy->held[l].samples != expected)
            sim_fail(sim, "samples: node %llu applies step %llu to layer %u with %u of %u micro-batches, or others",
                     (unsigned long long)node->id, (unsigned long long)step, l, toy->held[l].micro_batches,
                     sim->micro_batches);
        apply_words(layer->words, l, toy->held[l].sum, norm);
        layer->step = step;
    }
    toy->applying = false;
    check_applied(sim, node, toy->generation, step);
    struct tm_outbox out;
    tm_outbox_init(&out);
    tm_worker_loss(node->worker, step, 1.0 / (double)step);
    sim_memory_short(sim);
    tm_worker_applied(node->worker, sim_clock(sim, node), step, &out);
    sim_memory_back(sim);
    sim_worker_actions(sim, node, &out);
    tm_outbox_deinit(&out);
}

static void engine_apply(void *context, uint64_t step, double norm)
{
    struct toy *toy = context;
    uint64_t bits;
    memcpy(&bits, &norm, sizeof bits);
    toy->applying = true;
    sim_schedule(toy->sim, toy->sim->now_ms + 5 + (int64_t)sim_below(toy->sim, 60), apply_done, toy->node->id,
                 toy->node->incarnation, step, bits, NULL, 0);
}

/* A share, or the question for one (generation and step only). */
void toy_receive(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->b];
    struct toy *toy = &node->toy;
    struct {
        uint64_t pipeline;
        struct toy_share share;
    } packet;
    if (node->worker == NULL || node->paused_ms > sim->now_ms || event->length != sizeof packet) return;
    memcpy(&packet, event->data, sizeof packet);
    if (!packet.share.have) { /* a question */
        for (int i = 0; i < 2; i++)
            if (toy->own[i].have && toy->own[i].generation == packet.share.generation &&
                toy->own[i].step == packet.share.step)
                share_with(toy, &toy->own[i], event->a);
        return;
    }
    if (packet.pipeline >= MICRO_MAX) return;
    struct toy_share *slot = &toy->shares[packet.pipeline];
    bool newer = !slot->have || packet.share.generation > slot->generation ||
                 (packet.share.generation == slot->generation && packet.share.step > slot->step);
    if (newer) *slot = packet.share;
    finish_if_all_here(toy);
}

/* Asks again for shares that may have been lost. */
void toy_tick(struct toy *toy)
{
    if (!toy->computing || !toy->local_done || toy->node->hangs) return;
    for (uint32_t p = 0; p < toy->pipelines; p++) {
        const struct toy_share *share = &toy->shares[p];
        if (share->have && share->generation == toy->generation && share->step == toy->step) continue;
        struct toy_share question = {.generation = toy->generation, .step = toy->step};
        share_with(toy, &question, toy->replicas[p]);
    }
}

/* ---- following ---- */

static uint64_t engine_gradient_bytes(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
    return sizeof(struct toy_partial);
}

static int engine_export_gradient(void *context, uint32_t layer, void *out, uint64_t size)
{
    struct toy *toy = context;
    if (toy->applying || !toy->layers[layer].have || size != sizeof(struct toy_partial))
        sim_fail(toy->sim, "node %llu: gradients are read when they are not there", (unsigned long long)toy->node->id);
    memcpy(out, &toy->held[layer], size);
    return 0;
}

static int engine_advance(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_size,
                          const void *gradient, uint64_t gradient_size)
{
    struct toy_partial partial;
    uint64_t words[WORDS_MAX];
    (void)context;
    (void)step;
    if (state_size != toy_layer_bytes(layer) || gradient_size != sizeof partial) return -(int)TM_EINPUT;
    memcpy(&partial, gradient, sizeof partial);
    memcpy(words, state, state_size);
    apply_words(words, layer, partial.sum, norm);
    memcpy(state, words, state_size);
    return 0;
}

struct tm_worker_engine toy_engine(struct toy *toy)
{
    return (struct tm_worker_engine){.context = toy,
                                     .layer_bytes = engine_layer_bytes,
                                     .export_layer = engine_export,
                                     .import_layer = engine_import,
                                     .init_layer = engine_init,
                                     .drop_layer = engine_drop,
                                     .begin = engine_begin,
                                     .cancel = engine_cancel,
                                     .apply = engine_apply,
                                     .discard = engine_discard,
                                     .waiting_for = engine_waiting_for,
                                     .gradient_bytes = engine_gradient_bytes,
                                     .export_gradient = engine_export_gradient,
                                     .advance_layer = engine_advance};
}
