/* Forward and backward through one layer, for one micro-batch, by one thread.
 *
 * Shapes: rows = micro-batch x ctx; the residual stream is rows x width. What the way back needs of a block is kept in
 * a cache; with recomputation only the input of the block is kept and the rest is made again. */
#ifndef TM_ENGINE_PASSES_H
#define TM_ENGINE_PASSES_H

#include "engine/blas.h"
#include "engine/gradients.h"
#include "engine/kernels.h"
#include "engine/layer_state.h"

/* Where and what is computed now. Borrowed parts live as long as the worker. */
struct tm_pass {
    const struct tm_network *network;
    const struct tm_kernels *kernels;
    const struct tm_blas *blas;
    int samples; /* in a micro-batch */
    uint64_t seed;
    uint32_t step;
    uint32_t micro; /* global number of the micro-batch in the step */
    bool training;  /* dropout applies */
    float *scratch; /* tm_pass__scratch_floats, aligned to 64 bytes */
};

/* What a block keeps for the way back; each part is rows x (its factor) x width but for the last three. */
struct tm_block_cache {
    float *input;    /* x: the residual stream that came in */
    float *norm1;    /* behind the first normalisation */
    float *qkv;      /* 3 x width */
    float *attended; /* heads' outputs side by side */
    float *middle;   /* the residual stream between attention and MLP */
    float *norm2;
    float *hidden; /* 4 x width: before GELU */
    float *lse;    /* samples x heads x ctx */
    float *stats;  /* mean, 1 / deviation of both normalisations: 4 x rows */
};

size_t tm_block_cache__floats(const struct tm_network *network, int samples);
/* Lays the parts out behind the input in `memory` (tm_block_cache__floats); input is set apart. */
void tm_block_cache__lay(struct tm_block_cache *cache, const struct tm_network *network, int samples, float *memory);
size_t tm_pass__scratch_floats(const struct tm_network *network, int samples);

void tm_embed__forward(const struct tm_pass *pass, const struct tm_layer_state *state, const uint8_t *tokens,
                       float *out);
void tm_embed__backward(const struct tm_pass *pass, const uint8_t *tokens, float *dout, struct tm_gradients *gradients);

/* out = block(cache->input); fills the cache. */
void tm_block__forward(const struct tm_pass *pass, const struct tm_layer_state *state, struct tm_block_cache *cache,
                       float *out);
/* d: in, of the output; out, of the input. */
void tm_block__backward(const struct tm_pass *pass, const struct tm_layer_state *state,
                        const struct tm_block_cache *cache, float *d, struct tm_gradients *gradients);

/* Mean loss over the micro-batch, and with `d` not NULL its gradient by x, and those of the head. */
double tm_head__loss(const struct tm_pass *pass, const struct tm_layer_state *state, const float *x,
                     const uint8_t *targets, float *d, struct tm_gradients *gradients);
/* rows x vocab. */
void tm_head__logits(const struct tm_pass *pass, const struct tm_layer_state *state, const float *x, float *out_logits);

#endif
