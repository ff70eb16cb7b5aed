/* Everything in a step that is not a matrix product, hand-written for two classes of machines: AVX2 and AVX-512.
 *
 * A class is chosen at the start and pinned for the job: within one class (and the core type of matrix products that
 * goes with it) the same input gives the same bits, whatever the machine does besides. No function depends on how its
 * arguments are aligned. Shapes are written as rows x width; all are row-major floats. */
#ifndef TM_ENGINE_KERNELS_H
#define TM_ENGINE_KERNELS_H

#include "base/env.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tm_kernel_class { TM_KERNELS_AVX2, TM_KERNELS_AVX512, TM_KERNEL_CLASS_COUNT };

/* Random numbers for dropout are a pure function of these and of an element's number: never of who computes it. */
struct tm_dropout {
    float scale;        /* 1 / (1 - probability) as realised; what kept elements are multiplied by */
    uint32_t threshold; /* of 65536: elements whose 16 random bits are below it are dropped; 0: no dropout */
    uint64_t seed;
    uint32_t step;
    uint32_t micro; /* global number of the micro-batch in the step */
    uint32_t site;  /* layer * TM_SITES + site */
};

enum { TM_SITE_EMBED, TM_SITE_ATTENTION, TM_SITE_PROJECTION, TM_SITE_MLP, TM_SITES };
enum { TM_CTX_MAX = 4096 };      /* longest row of attention scores */
enum { TM_DROPOUT_GROUP = 128 }; /* masks are made for whole groups of elements */

struct tm_adamw {
    float beta1;
    float beta2;
    float eps;
    float step_size;  /* lr / (1 - beta1^t) */
    float v_scale;    /* 1 / sqrt(1 - beta2^t) */
    float keep;       /* 1 - lr * weight decay */
    float grad_scale; /* what a stored gradient is multiplied by: unit of fixed point, 1 / micro-batches, clipping */
};

struct tm_kernels {
    const char *name; /* "avx2" */
    const char *core; /* OpenBLAS's core type that goes with it */

    /* out = (x - mean) * rstd * w + b for every row; mean and rstd are kept for the way back. */
    void (*layernorm)(float *out, float *mean, float *rstd, const float *x, const float *w, const float *b, size_t rows,
                      size_t width);
    /* dx += what flows back; dw and db are set. */
    void (*layernorm_backward)(float *dx, float *dw, float *db, const float *dout, const float *x, const float *mean,
                               const float *rstd, const float *w, size_t rows, size_t width);
    void (*bias)(float *x, const float *b, size_t rows, size_t width); /* x += b */
    /* x += b, out = gelu(x): GELU in its tanh form, as in GPT-2. */
    void (*bias_gelu)(float *x, float *out, const float *b, size_t rows, size_t width);
    /* d: in, of the output; out, of the input; db is set to its sum over rows. act is set to gelu(x). */
    void (*gelu_backward)(float *d, float *act, float *db, const float *x, size_t rows, size_t width);
    /* out = x + dropout(y + b). */
    void (*residual)(float *out, const float *x, const float *y, const float *b, const struct tm_dropout *dropout,
                     size_t rows, size_t width);
    /* dy = dropout backward of dout (which it may be), db = its sum over rows. */
    void (*residual_backward)(float *dy, float *db, const float *dout, const struct tm_dropout *dropout, size_t rows,
                              size_t width);
    void (*column_sum)(float *out, const float *x, size_t rows, size_t width); /* set, not added to */

    /* Causal softmax of `rows` rows of scores (row r may see columns 0 .. first + r; stride is the length of a row in
     * memory, `columns` what is written: 0 past what may be seen). lse keeps log(sum(exp)) of each row. `element` is
     * the dropout number of the first row; rows are stride elements apart. */
    void (*softmax)(float *scores, float *lse, const struct tm_dropout *dropout, uint64_t element, size_t rows,
                    size_t first, size_t columns, size_t stride);
    /* probs: in, scores; out, dropped probabilities, as softmax made them. dprobs: in, of those; out, of the scores,
     * times `scale`. */
    void (*softmax_backward)(float *probs, float *dprobs, const float *lse, const struct tm_dropout *dropout,
                             uint64_t element, float scale, size_t rows, size_t first, size_t columns, size_t stride);

    /* Sum over rows of -log(softmax(logits)[target]); logits become gradients of the mean over rows when
     * `gradients`. */
    double (*cross_entropy)(float *logits, const uint8_t *targets, bool gradients, size_t rows, size_t width);

    /* out[row] = dropout(wte[token] + wpe[position]); positions run 0 .. ctx - 1 again and again. */
    void (*embed)(float *out, const uint8_t *tokens, const float *wte, const float *wpe,
                  const struct tm_dropout *dropout, size_t rows, size_t ctx, size_t width);

    void (*dropout_mask)(float *mask, const struct tm_dropout *dropout, uint64_t element, size_t count);

    /* Fixed point: sum (set to, when `first`, else added to) round(g * unit). Returns the largest |g|; NAN where one is
     * no number or infinite. */
    float (*quantise)(int32_t *sum, const float *g, float unit, bool first, size_t count);
    void (*add_i32)(int32_t *sum, const int32_t *x, size_t count);
    void (*add_f32)(float *sum, const float *x, size_t count);
    /* Sums of squares in double over 8 interleaved partial sums, the same in every class. */
    double (*square_sum_i32)(const int32_t *x, size_t count);
    double (*square_sum_f32)(const float *x, size_t count);

    /* One pass over weights, both moments and the gradient. */
    void (*adamw_i32)(float *w, float *m, float *v, const int32_t *g, const struct tm_adamw *adamw, size_t count);
    void (*adamw_f32)(float *w, float *m, float *v, const float *g, const struct tm_adamw *adamw, size_t count);

    bool (*all_finite)(const float *x, size_t count);
};

extern const struct tm_kernels tm_kernels__avx2;
extern const struct tm_kernels tm_kernels__avx512;

/* Can this machine run the class? */
bool tm_kernels__runs(enum tm_kernel_class kernel_class);
/* The best class of this machine; -TM_ENOTFOUND where there is none. TIDEMILL_KERNELS=avx2 asks for another. */
int tm_kernels_choose(struct tm_env *env, const struct tm_kernels **out, struct tm_error *e);
/* A class by name, for a job that is pinned to it. */
int tm_kernels__by_name(const char *name, const struct tm_kernels **out, struct tm_error *e);

/* Dropout of a probability at a site; no dropout for 0. */
struct tm_dropout tm_dropout__make(double probability, uint64_t seed, uint32_t step, uint32_t micro, int layer,
                                   int site);

#endif
