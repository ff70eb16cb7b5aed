#include "engine/generate.h"

#include "base/alloc.h"
#include "base/random.h"
#include "engine/passes.h"

#include <math.h>
#include <string.h>

enum { ALIGN = 64 };

struct generator {
    struct tm_network network; /* ctx: how many bytes are looked at now */
    int ctx_max;
    struct tm_layer_state *states;
    int layers;
    struct tm_pass pass;
    struct tm_block_cache cache;
    float *flow;
    float *logits;
    void *memory;
};

static void close_generator(struct generator *g)
{
    for (int l = 0; g->states != NULL && l < g->layers; l++)
        tm_layer_state__deinit(&g->states[l]);
    tm_free(g->states);
    tm_free(g->memory);
}

static size_t aligned(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

static int open_generator(struct generator *g, const struct tm_checkpoint *checkpoint, struct tm_error *e)
{
    g->network = checkpoint->network;
    g->ctx_max = g->network.ctx;
    g->layers = tm_network_layers(&g->network);
    g->states = tm_calloc((size_t)g->layers, sizeof *g->states);
    size_t flow = aligned((size_t)g->network.ctx * (size_t)g->network.width);
    size_t logits = aligned((size_t)g->network.ctx * TM_VOCAB);
    size_t cache = aligned(tm_block_cache__floats(&g->network, 1));
    size_t scratch = aligned(tm_pass__scratch_floats(&g->network, 1));
    g->memory = tm_alloc((2 * flow + logits + cache + scratch) * sizeof(float) + ALIGN);
    if (g->states == NULL || g->memory == NULL) return tm_error_nomem(e);
    unsigned char *start = g->memory;
    float *at = (void *)(start + (ALIGN - (uintptr_t)start % ALIGN) % ALIGN);
    g->flow = at;
    g->cache.input = at + flow;
    g->logits = at + 2 * flow;
    tm_block_cache__lay(&g->cache, &g->network, 1, g->logits + logits);
    g->pass.scratch = g->logits + logits + cache;
    int rc = 0;
    for (int l = 0; rc == 0 && l < g->layers; l++) {
        rc = tm_layer_state__init(&g->states[l], &checkpoint->network, l, e);
        if (rc == 0) rc = tm_checkpoint__read_layer(checkpoint, &g->states[l], e);
    }
    return rc;
}

/* Logits of the byte behind the `count` bytes at `tokens`. */
static const float *next_logits(struct generator *g, const uint8_t *tokens, size_t count)
{
    size_t width = (size_t)g->network.width;
    g->network.ctx = (int)count;
    tm_embed__forward(&g->pass, &g->states[0], tokens, g->flow);
    for (int l = 1; l < g->layers - 1; l++) {
        memcpy(g->cache.input, g->flow, count * width * sizeof(float));
        tm_block__forward(&g->pass, &g->states[l], &g->cache, g->flow);
    }
    tm_head__logits(&g->pass, &g->states[g->layers - 1], g->flow, g->logits);
    return g->logits + (count - 1) * TM_VOCAB;
}

/* The k-th largest logit. */
static float cut_at(const float *logits, int64_t top_k)
{
    float sorted[TM_VOCAB];
    memcpy(sorted, logits, sizeof sorted);
    for (int i = 0; i < top_k; i++) { /* a few rounds of selection: k is small */
        int best = i;
        for (int j = i + 1; j < TM_VOCAB; j++)
            best = sorted[j] > sorted[best] ? j : best;
        float swap = sorted[i];
        sorted[i] = sorted[best];
        sorted[best] = swap;
    }
    return sorted[top_k - 1];
}

static uint8_t draw(const float *logits, const struct tm_generate_options *options, struct tm_random *random)
{
    int best = 0;
    for (int i = 1; i < TM_VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    if (options->temperature <= 0) return (uint8_t)best;
    float cut = options->top_k > 0 && options->top_k < TM_VOCAB ? cut_at(logits, options->top_k) : -INFINITY;
    double weights[TM_VOCAB];
    double sum = 0;
    for (int i = 0; i < TM_VOCAB; i++) {
        weights[i] = logits[i] >= cut ? exp((double)(logits[i] - logits[best]) / options->temperature) : 0;
        sum += weights[i];
    }
    double at = tm_random_unit(random) * sum;
    for (int i = 0; i < TM_VOCAB; i++) {
        at -= weights[i];
        if (at < 0) return (uint8_t)i;
    }
    return (uint8_t)best;
}

static int run(struct generator *g, const struct tm_generate_options *options, struct tm_text *out, struct tm_error *e)
{
    struct tm_text text;
    struct tm_random random = tm_random_make(options->seed, 0);
    tm_text_init(&text, 1 << 28);
    tm_text_puts(&text, options->prompt[0] != '\0' ? options->prompt : "\n");
    int rc = tm_text_status(&text, e);
    for (int64_t i = 0; rc == 0 && i < options->length; i++) {
        size_t count = text.length < (size_t)g->ctx_max ? text.length : (size_t)g->ctx_max;
        const float *logits = next_logits(g, (const uint8_t *)text.data + text.length - count, count);
        if (!g->pass.kernels->all_finite(logits, TM_VOCAB)) {
            rc = tm_error_set(e, TM_EINPUT, "the checkpoint's weights produce NaN or infinity");
            break;
        }
        char byte = (char)draw(logits, options, &random);
        tm_text_putc(&text, byte);
        tm_text_putc(out, byte);
        rc = tm_text_status(&text, e);
        if (rc == 0) rc = tm_text_status(out, e);
    }
    tm_text_deinit(&text);
    return rc;
}

int tm_generate(const struct tm_checkpoint *checkpoint, const struct tm_kernels *kernels, const struct tm_blas *blas,
                const struct tm_generate_options *options, struct tm_text *out, struct tm_error *e)
{
    struct generator g = {0};
    int rc = open_generator(&g, checkpoint, e);
    g.pass.network = &g.network;
    g.pass.kernels = kernels;
    g.pass.blas = blas;
    g.pass.samples = 1;
    if (rc == 0) rc = run(&g, options, out, e);
    close_generator(&g);
    return rc;
}
