#include "engine/passes.h"

#include "engine/passes_internal.h"

#include <string.h>

enum { ALIGN_FLOATS = 16 };

static size_t aligned(size_t floats)
{
    return (floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static size_t rows_of(const struct tm_network *network, int samples)
{
    return (size_t)samples * (size_t)network->ctx;
}

static size_t wide_of(const struct tm_network *network)
{
    return 4 * network->width > TM_VOCAB ? 4 * (size_t)network->width : (size_t)TM_VOCAB;
}

size_t tm_pass__score_stride(const struct tm_network *network)
{
    return (size_t)(network->ctx + TM_DROPOUT_GROUP - 1) / TM_DROPOUT_GROUP * TM_DROPOUT_GROUP;
}

size_t tm_pass__scratch_floats(const struct tm_network *network, int samples)
{
    size_t rows = rows_of(network, samples);
    return 2 * aligned(rows * wide_of(network)) + 2 * aligned(rows * (size_t)network->width) +
           2 * TM_SCORE_ROWS * tm_pass__score_stride(network);
}

static struct tm_scratch scratch_of(const struct tm_pass *pass)
{
    size_t rows = rows_of(pass->network, pass->samples);
    struct tm_scratch scratch = {.wide1 = pass->scratch};
    scratch.wide2 = scratch.wide1 + aligned(rows * wide_of(pass->network));
    scratch.flow1 = scratch.wide2 + aligned(rows * wide_of(pass->network));
    scratch.flow2 = scratch.flow1 + aligned(rows * (size_t)pass->network->width);
    scratch.scores = scratch.flow2 + aligned(rows * (size_t)pass->network->width);
    return scratch;
}

size_t tm_block_cache__floats(const struct tm_network *network, int samples)
{
    size_t rows = rows_of(network, samples);
    return 11 * aligned(rows * (size_t)network->width) + aligned(rows * (size_t)network->heads) + 4 * aligned(rows);
}

void tm_block_cache__lay(struct tm_block_cache *cache, const struct tm_network *network, int samples, float *memory)
{
    size_t rows = rows_of(network, samples);
    size_t flow = aligned(rows * (size_t)network->width);
    cache->norm1 = memory;
    cache->qkv = cache->norm1 + flow;
    cache->attended = cache->qkv + 3 * flow;
    cache->middle = cache->attended + flow;
    cache->norm2 = cache->middle + flow;
    cache->hidden = cache->norm2 + flow;
    cache->lse = cache->hidden + 4 * flow;
    cache->stats = cache->lse + aligned(rows * (size_t)network->heads);
}

static struct tm_dropout dropout_at(const struct tm_pass *pass, int layer, int site)
{
    double probability = pass->training ? pass->network->dropout : 0;
    return tm_dropout__make(probability, pass->seed, pass->step, pass->micro, layer, site);
}

static const float *weights(const struct tm_layer_state *state, size_t tensor)
{
    return state->weights + state->spec.tensors[tensor].offset;
}

/* out[rows x n] = x[rows x k] w[k x n] */
static void multiply(const struct tm_pass *pass, const float *x, const float *w, float *out, int n, int k)
{
    struct tm_gemm shape = {
        .m = (int)rows_of(pass->network, pass->samples), .n = n, .k = k, .alpha = 1, .lda = k, .ldb = n, .ldc = n};
    tm_gemm(pass->blas, &shape, x, w, out);
}

/* dx[rows x k] = dy[rows x n] w'[n x k] */
static void multiply_back(const struct tm_pass *pass, const float *dy, const float *w, float *dx, int n, int k)
{
    struct tm_gemm shape = {.transpose_b = true,
                            .m = (int)rows_of(pass->network, pass->samples),
                            .n = k,
                            .k = n,
                            .alpha = 1,
                            .lda = n,
                            .ldb = n,
                            .ldc = k};
    tm_gemm(pass->blas, &shape, dy, w, dx);
}

/* dw[k x n] = x'[k x rows] dy[rows x n], handed over as the gradient of `tensor` */
static void weight_gradient(const struct tm_pass *pass, const float *x, const float *dy, int n, int k,
                            struct tm_gradients *gradients, size_t tensor)
{
    float beta = 0;
    float *at = tm_gradients__begin(gradients, tensor, &beta);
    struct tm_gemm shape = {.transpose_a = true,
                            .m = k,
                            .n = n,
                            .k = (int)rows_of(pass->network, pass->samples),
                            .alpha = 1,
                            .beta = beta,
                            .lda = k,
                            .ldb = n,
                            .ldc = n};
    tm_gemm(pass->blas, &shape, x, dy, at);
    tm_gradients__end(gradients, tensor, at);
}

/* ---- embedding ---- */

void tm_embed__forward(const struct tm_pass *pass, const struct tm_layer_state *state, const uint8_t *tokens,
                       float *out)
{
    struct tm_dropout dropout = dropout_at(pass, state->layer, TM_SITE_EMBED);
    pass->kernels->embed(out, tokens, weights(state, TM_EMBED_WTE), weights(state, TM_EMBED_WPE), &dropout,
                         rows_of(pass->network, pass->samples), (size_t)pass->network->ctx,
                         (size_t)pass->network->width);
}

void tm_embed__backward(const struct tm_pass *pass, const uint8_t *tokens, float *dout, struct tm_gradients *gradients)
{
    struct tm_dropout dropout = dropout_at(pass, 0, TM_SITE_EMBED);
    size_t rows = rows_of(pass->network, pass->samples);
    size_t width = (size_t)pass->network->width;
    size_t ctx = (size_t)pass->network->ctx;
    struct tm_scratch scratch = scratch_of(pass);
    pass->kernels->residual_backward(dout, scratch.flow1, dout, &dropout, rows, width);
    float *to = tm_gradients__begin_set(gradients);
    memset(to, 0, TM_VOCAB * width * sizeof *to);
    for (size_t r = 0; r < rows; r++)
        pass->kernels->add_f32(to + tokens[r] * width, dout + r * width, width);
    tm_gradients__end(gradients, TM_EMBED_WTE, to);
    to = tm_gradients__begin_set(gradients);
    memcpy(to, dout, ctx * width * sizeof *to);
    for (int sample = 1; sample < pass->samples; sample++)
        pass->kernels->add_f32(to, dout + (size_t)sample * ctx * width, ctx * width);
    tm_gradients__end(gradients, TM_EMBED_WPE, to);
}

/* ---- block ---- */

void tm_block__forward(const struct tm_pass *pass, const struct tm_layer_state *state, struct tm_block_cache *cache,
                       float *out)
{
    const struct tm_kernels *k = pass->kernels;
    struct tm_scratch scratch = scratch_of(pass);
    int width = pass->network->width;
    size_t w = (size_t)width;
    size_t rows = rows_of(pass->network, pass->samples);
    float *stats = cache->stats;
    struct tm_dropout at_scores = dropout_at(pass, state->layer, TM_SITE_ATTENTION);
    struct tm_dropout at_projection = dropout_at(pass, state->layer, TM_SITE_PROJECTION);
    struct tm_dropout at_mlp = dropout_at(pass, state->layer, TM_SITE_MLP);

    k->layernorm(cache->norm1, stats, stats + rows, cache->input, weights(state, TM_BLOCK_LN1_W),
                 weights(state, TM_BLOCK_LN1_B), rows, w);
    multiply(pass, cache->norm1, weights(state, TM_BLOCK_QKV_W), cache->qkv, 3 * width, width);
    k->bias(cache->qkv, weights(state, TM_BLOCK_QKV_B), rows, 3 * w);
    tm_attention__forward(pass, &at_scores, cache, scratch.scores);
    multiply(pass, cache->attended, weights(state, TM_BLOCK_PROJ_W), scratch.flow1, width, width);
    k->residual(cache->middle, cache->input, scratch.flow1, weights(state, TM_BLOCK_PROJ_B), &at_projection, rows, w);

    k->layernorm(cache->norm2, stats + 2 * rows, stats + 3 * rows, cache->middle, weights(state, TM_BLOCK_LN2_W),
                 weights(state, TM_BLOCK_LN2_B), rows, w);
    multiply(pass, cache->norm2, weights(state, TM_BLOCK_FC_W), cache->hidden, 4 * width, width);
    k->bias_gelu(cache->hidden, scratch.wide1, weights(state, TM_BLOCK_FC_B), rows, 4 * w);
    multiply(pass, scratch.wide1, weights(state, TM_BLOCK_OUT_W), scratch.flow1, width, 4 * width);
    k->residual(out, cache->middle, scratch.flow1, weights(state, TM_BLOCK_OUT_B), &at_mlp, rows, w);
}

/* From the gradient of the block's output to that of the stream between attention and MLP, both in d. */
static void mlp_backward(const struct tm_pass *pass, const struct tm_layer_state *state,
                         const struct tm_block_cache *cache, float *d, struct tm_gradients *gradients)
{
    const struct tm_kernels *k = pass->kernels;
    struct tm_scratch scratch = scratch_of(pass);
    int width = pass->network->width;
    size_t w = (size_t)width;
    size_t rows = rows_of(pass->network, pass->samples);
    struct tm_dropout at_mlp = dropout_at(pass, state->layer, TM_SITE_MLP);
    float *dy = at_mlp.threshold > 0 ? scratch.flow1 : d;

    float *to = tm_gradients__begin_set(gradients);
    k->residual_backward(dy, to, d, &at_mlp, rows, w);
    tm_gradients__end(gradients, TM_BLOCK_OUT_B, to);
    multiply_back(pass, dy, weights(state, TM_BLOCK_OUT_W), scratch.wide1, width, 4 * width);
    to = tm_gradients__begin_set(gradients);
    k->gelu_backward(scratch.wide1, scratch.wide2, to, cache->hidden, rows, 4 * w);
    tm_gradients__end(gradients, TM_BLOCK_FC_B, to);
    weight_gradient(pass, scratch.wide2, dy, width, 4 * width, gradients, TM_BLOCK_OUT_W);
    weight_gradient(pass, cache->norm2, scratch.wide1, 4 * width, width, gradients, TM_BLOCK_FC_W);
    multiply_back(pass, scratch.wide1, weights(state, TM_BLOCK_FC_W), scratch.flow2, 4 * width, width);

    to = tm_gradients__begin_set(gradients);
    const float *stats = cache->stats + 2 * rows;
    k->layernorm_backward(d, to, to + w, scratch.flow2, cache->middle, stats, stats + rows,
                          weights(state, TM_BLOCK_LN2_W), rows, w);
    tm_gradients__end(gradients, TM_BLOCK_LN2_W, to);
    tm_gradients__end(gradients, TM_BLOCK_LN2_B, to + w);
}

static void attention_backward(const struct tm_pass *pass, const struct tm_layer_state *state,
                               const struct tm_block_cache *cache, float *d, struct tm_gradients *gradients)
{
    const struct tm_kernels *k = pass->kernels;
    struct tm_scratch scratch = scratch_of(pass);
    int width = pass->network->width;
    size_t w = (size_t)width;
    size_t rows = rows_of(pass->network, pass->samples);
    struct tm_dropout at_scores = dropout_at(pass, state->layer, TM_SITE_ATTENTION);
    struct tm_dropout at_projection = dropout_at(pass, state->layer, TM_SITE_PROJECTION);
    float *dy = at_projection.threshold > 0 ? scratch.flow1 : d;

    float *to = tm_gradients__begin_set(gradients);
    k->residual_backward(dy, to, d, &at_projection, rows, w);
    tm_gradients__end(gradients, TM_BLOCK_PROJ_B, to);
    weight_gradient(pass, cache->attended, dy, width, width, gradients, TM_BLOCK_PROJ_W);
    multiply_back(pass, dy, weights(state, TM_BLOCK_PROJ_W), scratch.flow2, width, width);
    tm_attention__backward(pass, &at_scores, cache, scratch.flow2, scratch.wide1, scratch.scores);
    to = tm_gradients__begin_set(gradients);
    k->column_sum(to, scratch.wide1, rows, 3 * w);
    tm_gradients__end(gradients, TM_BLOCK_QKV_B, to);
    weight_gradient(pass, cache->norm1, scratch.wide1, 3 * width, width, gradients, TM_BLOCK_QKV_W);
    multiply_back(pass, scratch.wide1, weights(state, TM_BLOCK_QKV_W), scratch.flow2, 3 * width, width);

    to = tm_gradients__begin_set(gradients);
    k->layernorm_backward(d, to, to + w, scratch.flow2, cache->input, cache->stats, cache->stats + rows,
                          weights(state, TM_BLOCK_LN1_W), rows, w);
    tm_gradients__end(gradients, TM_BLOCK_LN1_W, to);
    tm_gradients__end(gradients, TM_BLOCK_LN1_B, to + w);
}

void tm_block__backward(const struct tm_pass *pass, const struct tm_layer_state *state,
                        const struct tm_block_cache *cache, float *d, struct tm_gradients *gradients)
{
    mlp_backward(pass, state, cache, d, gradients);
    attention_backward(pass, state, cache, d, gradients);
}

/* ---- head ---- */

/* norm = layernorm(x); logits = norm wte' */
static void head_forward(const struct tm_pass *pass, const struct tm_layer_state *state, const float *x, float *norm,
                         float *stats, float *logits)
{
    size_t rows = rows_of(pass->network, pass->samples);
    int width = pass->network->width;
    pass->kernels->layernorm(norm, stats, stats + rows, x, weights(state, TM_HEAD_LN_W), weights(state, TM_HEAD_LN_B),
                             rows, (size_t)width);
    multiply_back(pass, norm, weights(state, TM_HEAD_WTE), logits, width, TM_VOCAB);
}

void tm_head__logits(const struct tm_pass *pass, const struct tm_layer_state *state, const float *x, float *out_logits)
{
    struct tm_scratch scratch = scratch_of(pass);
    head_forward(pass, state, x, scratch.flow1, scratch.wide2, out_logits);
}

double tm_head__loss(const struct tm_pass *pass, const struct tm_layer_state *state, const float *x,
                     const uint8_t *targets, float *d, struct tm_gradients *gradients)
{
    struct tm_scratch scratch = scratch_of(pass);
    size_t rows = rows_of(pass->network, pass->samples);
    int width = pass->network->width;
    size_t w = (size_t)width;
    float *stats = scratch.wide2;
    head_forward(pass, state, x, scratch.flow1, stats, scratch.wide1);
    double loss = pass->kernels->cross_entropy(scratch.wide1, targets, d != NULL, rows, TM_VOCAB) / (double)rows;
    if (d == NULL) return loss;
    weight_gradient(pass, scratch.wide1, scratch.flow1, width, TM_VOCAB, gradients, TM_HEAD_WTE);
    multiply(pass, scratch.wide1, weights(state, TM_HEAD_WTE), scratch.flow2, width, TM_VOCAB);
    float *to = tm_gradients__begin_set(gradients);
    memset(d, 0, rows * w * sizeof *d);
    pass->kernels->layernorm_backward(d, to, to + w, scratch.flow2, x, stats, stats + rows,
                                      weights(state, TM_HEAD_LN_W), rows, w);
    tm_gradients__end(gradients, TM_HEAD_LN_W, to);
    tm_gradients__end(gradients, TM_HEAD_LN_B, to + w);
    return loss;
}
