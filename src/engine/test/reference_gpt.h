/* The same network in plain loops and double precision, forward only: what gradients are checked against. */
#ifndef TM_ENGINE_TEST_REFERENCE_GPT_H
#define TM_ENGINE_TEST_REFERENCE_GPT_H

#include "engine/kernels.h"
#include "engine/layer_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reference {
    const struct tm_network *network;
    const struct tm_kernels *kernels; /* for masks alone: those are checked apart */
    double **weights;                 /* by layer, laid out as the layer's arena */
    int samples;
    uint64_t seed;
    uint32_t step;
    uint32_t micro;
};

static inline const double *ref_tensor(const struct reference *ref, int layer, size_t tensor)
{
    struct tm_layer_spec spec;
    tm_network_layer(ref->network, layer, &spec);
    return ref->weights[layer] + spec.tensors[tensor].offset;
}

static inline double *ref_doubles(size_t count)
{
    double *memory = calloc(count, sizeof *memory);
    if (memory == NULL) abort();
    return memory;
}

/* x *= mask, elements numbered from `element` */
static inline void ref_drop(const struct reference *ref, int layer, int site, uint64_t element, double *x, size_t count)
{
    struct tm_dropout dropout = tm_dropout__make(ref->network->dropout, ref->seed, ref->step, ref->micro, layer, site);
    if (dropout.threshold == 0) return;
    size_t from = (size_t)(element % TM_DROPOUT_GROUP);
    size_t room = (from + count + TM_DROPOUT_GROUP - 1) / TM_DROPOUT_GROUP * TM_DROPOUT_GROUP;
    float *mask = calloc(room, sizeof *mask);
    if (mask == NULL) abort();
    ref->kernels->dropout_mask(mask, &dropout, element - from, room);
    for (size_t i = 0; i < count; i++)
        x[i] *= (double)mask[from + i];
    free(mask);
}

static inline void ref_norm(double *out, const double *x, const double *w, const double *b, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        double mean = 0;
        double variance = 0;
        for (size_t i = 0; i < width; i++)
            mean += x[r * width + i] / (double)width;
        for (size_t i = 0; i < width; i++)
            variance += pow(x[r * width + i] - mean, 2) / (double)width;
        for (size_t i = 0; i < width; i++)
            out[r * width + i] = (x[r * width + i] - mean) / sqrt(variance + 1e-5) * w[i] + b[i];
    }
}

static inline void ref_linear(double *out, const double *x, const double *w, const double *b, size_t rows, size_t k,
                              size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        double *to = out + r * n;
        memcpy(to, b, n * sizeof *to);
        for (size_t i = 0; i < k; i++) {
            for (size_t j = 0; j < n; j++)
                to[j] += x[r * k + i] * w[i * n + j];
        }
    }
}

static inline void ref_attention(const struct reference *ref, int layer, double *out, const double *qkv)
{
    size_t width = (size_t)ref->network->width;
    size_t heads = (size_t)ref->network->heads;
    size_t ctx = (size_t)ref->network->ctx;
    size_t size = width / heads;
    size_t stride = (ctx + TM_DROPOUT_GROUP - 1) / TM_DROPOUT_GROUP * TM_DROPOUT_GROUP;
    double *p = ref_doubles(ctx);
    for (size_t row = 0; row < (size_t)ref->samples * heads * ctx; row++) {
        size_t i = row % ctx;
        size_t head = row / ctx % heads;
        size_t sample = row / ctx / heads;
        const double *base = qkv + sample * ctx * 3 * width + head * size;
        double sum = 0;
        for (size_t j = 0; j <= i; j++) {
            double score = 0;
            for (size_t c = 0; c < size; c++)
                score += base[i * 3 * width + c] * base[j * 3 * width + width + c];
            p[j] = exp(score / sqrt((double)size));
            sum += p[j];
        }
        for (size_t j = 0; j <= i; j++)
            p[j] /= sum;
        ref_drop(ref, layer, TM_SITE_ATTENTION, row * stride, p, i + 1);
        for (size_t c = 0; c < size; c++) {
            double value = 0;
            for (size_t j = 0; j <= i; j++)
                value += p[j] * base[j * 3 * width + 2 * width + c];
            out[(sample * ctx + i) * width + head * size + c] = value;
        }
    }
    free(p);
}

/* x = block(x) */
static inline void ref_block(const struct reference *ref, int layer, double *x)
{
    size_t width = (size_t)ref->network->width;
    size_t rows = (size_t)ref->samples * (size_t)ref->network->ctx;
    double *norm = ref_doubles(rows * width);
    double *wide = ref_doubles(rows * 4 * width);
    double *out = ref_doubles(rows * width);
    ref_norm(norm, x, ref_tensor(ref, layer, TM_BLOCK_LN1_W), ref_tensor(ref, layer, TM_BLOCK_LN1_B), rows, width);
    ref_linear(wide, norm, ref_tensor(ref, layer, TM_BLOCK_QKV_W), ref_tensor(ref, layer, TM_BLOCK_QKV_B), rows, width,
               3 * width);
    ref_attention(ref, layer, norm, wide);
    ref_linear(out, norm, ref_tensor(ref, layer, TM_BLOCK_PROJ_W), ref_tensor(ref, layer, TM_BLOCK_PROJ_B), rows, width,
               width);
    ref_drop(ref, layer, TM_SITE_PROJECTION, 0, out, rows * width);
    for (size_t i = 0; i < rows * width; i++)
        x[i] += out[i];
    ref_norm(norm, x, ref_tensor(ref, layer, TM_BLOCK_LN2_W), ref_tensor(ref, layer, TM_BLOCK_LN2_B), rows, width);
    ref_linear(wide, norm, ref_tensor(ref, layer, TM_BLOCK_FC_W), ref_tensor(ref, layer, TM_BLOCK_FC_B), rows, width,
               4 * width);
    for (size_t i = 0; i < rows * 4 * width; i++)
        wide[i] *= 0.5 * (1 + tanh(sqrt(2 / M_PI) * (wide[i] + 0.044715 * pow(wide[i], 3))));
    ref_linear(out, wide, ref_tensor(ref, layer, TM_BLOCK_OUT_W), ref_tensor(ref, layer, TM_BLOCK_OUT_B), rows,
               4 * width, width);
    ref_drop(ref, layer, TM_SITE_MLP, 0, out, rows * width);
    for (size_t i = 0; i < rows * width; i++)
        x[i] += out[i];
    free(norm);
    free(wide);
    free(out);
}

/* Mean loss of the micro-batch. */
static inline double ref_loss(const struct reference *ref, const uint8_t *tokens, const uint8_t *targets)
{
    size_t width = (size_t)ref->network->width;
    size_t ctx = (size_t)ref->network->ctx;
    size_t rows = (size_t)ref->samples * ctx;
    int head = ref->network->blocks + 1;
    double *x = ref_doubles(rows * width);
    double *norm = ref_doubles(rows * width);
    const double *wte = ref_tensor(ref, 0, TM_EMBED_WTE);
    const double *wpe = ref_tensor(ref, 0, TM_EMBED_WPE);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < width; i++)
            x[r * width + i] = wte[tokens[r] * width + i] + wpe[r % ctx * width + i];
    }
    ref_drop(ref, 0, TM_SITE_EMBED, 0, x, rows * width);
    for (int layer = 1; layer < head; layer++)
        ref_block(ref, layer, x);
    ref_norm(norm, x, ref_tensor(ref, head, TM_HEAD_LN_W), ref_tensor(ref, head, TM_HEAD_LN_B), rows, width);
    const double *tied = ref_tensor(ref, head, TM_HEAD_WTE);
    double loss = 0;
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        double at_target = 0;
        for (size_t v = 0; v < TM_VOCAB; v++) {
            double logit = 0;
            for (size_t i = 0; i < width; i++)
                logit += norm[r * width + i] * tied[v * width + i];
            sum += exp(logit);
            if (v == targets[r]) at_target = logit;
        }
        loss += log(sum) - at_target;
    }
    free(x);
    free(norm);
    return loss / (double)rows;
}

#endif
