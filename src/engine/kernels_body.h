/* The kernels themselves, in the words of simd_avx2.h or simd_avx512.h: compiled once for each class. Contraction of
 * products and sums is off for these files, so every fused operation is one that is written here. */
#ifndef TM_ENGINE_KERNELS_BODY_H
#define TM_ENGINE_KERNELS_BODY_H

#include "engine/kernels.h"

#include <math.h>
#include <string.h>

#define LAYERNORM_EPS 1e-5F
#define GELU_SCALE    0.7978845608F /* sqrt(2 / pi) */
#define GELU_CUBE     0.044715F

/* Loads and stores of the last, part-filled vector of a row. */
static inline vf get(const float *p, size_t left)
{
    return left >= LANES ? v_load(p) : v_load_some(p, (int)left);
}
static inline void put(float *p, size_t left, vf v)
{
    if (left >= LANES)
        v_store(p, v);
    else
        v_store_some(p, (int)left, v);
}

/* exp(x), within 2 units in the last place; 0 below -87.3, and no overflow above 88 (it stops growing there). */
static inline vf v_exp(vf x)
{
    x = v_min(v_max(x, v_set(-87.3F)), v_set(88.0F));
    vi n = v_round(x * v_set(1.44269504F));
    vf nf = v_float(n);
    vf r = v_fma(nf, v_set(-0.693359375F), x);
    r = v_fma(nf, v_set(2.12194440e-4F), r);
    vf y = v_set(1.9875691500e-4F);
    y = v_fma(y, r, v_set(1.3981999507e-3F));
    y = v_fma(y, r, v_set(8.3334519073e-3F));
    y = v_fma(y, r, v_set(4.1665795894e-2F));
    y = v_fma(y, r, v_set(1.6666665459e-1F));
    y = v_fma(y, r, v_set(5.0000001201e-1F));
    y = v_fma(y, r * r, r + v_set(1.0F));
    return y * v_power2(n);
}

/* ---- dropout ---- */

/* Philox4x32-10 for LANES counters at once; the same function as tm_random_block. */
static inline void philox(vi counter, const struct tm_dropout *d, vi out[4])
{
    vi c0 = counter;
    vi c1 = vi_set(d->site);
    vi c2 = vi_set(d->micro);
    vi c3 = vi_set(d->step);
    uint32_t k0 = (uint32_t)d->seed;
    uint32_t k1 = (uint32_t)(d->seed >> 32);
    for (int round = 0; round < 10; round++) {
        vi low0;
        vi low1;
        vi high0 = vi_mul(c0, vi_set(0xD2511F53U), &low0);
        vi high1 = vi_mul(c2, vi_set(0xCD9E8D57U), &low1);
        c0 = vi_xor(vi_xor(high1, c1), vi_set(k0));
        c1 = low1;
        c2 = vi_xor(vi_xor(high0, c3), vi_set(k1));
        c3 = low0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Element 128 g + 16 (2 k + h) + j takes half h of word k of block 16 g + j: whole vectors are stored in order. */
static void KERNEL(dropout_mask)(float *mask, const struct tm_dropout *dropout, uint64_t element, size_t count)
{
    vf scale = v_set(dropout->scale);
    for (size_t i = 0; i < count; i += TM_DROPOUT_GROUP) {
        for (size_t j = 0; j < 16; j += LANES) {
            vi bits[4];
            philox(vi_count((uint32_t)((element + i) / 8 + j)), dropout, bits);
            for (size_t k = 0; k < 4; k++) {
                v_store(mask + i + 32 * k + j, v_scale_if_low(bits[k], dropout->threshold, scale));
                v_store(mask + i + 32 * k + 16 + j, v_scale_if_high(bits[k], dropout->threshold, scale));
            }
        }
    }
}

/* ---- layer normalisation ---- */

static void KERNEL(layernorm)(float *out, float *mean, float *rstd, const float *x, const float *w, const float *b,
                              size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * width;
        float *to = out + r * width;
        vf sum = v_set(0);
        for (size_t i = 0; i < width; i += LANES)
            sum += get(row + i, width - i);
        float m = v_sum(sum) / (float)width;
        vf vm = v_set(m);
        vf squares = v_set(0);
        for (size_t i = 0; i < width; i += LANES) {
            vf c = get(row + i, width - i) - vm;
            if (width - i < LANES) c = v_keep_first(c, (int)(width - i), v_set(0));
            squares = v_fma(c, c, squares);
        }
        float s = 1.0F / sqrtf(v_sum(squares) / (float)width + LAYERNORM_EPS);
        vf vs = v_set(s);
        for (size_t i = 0; i < width; i += LANES) {
            vf n = (get(row + i, width - i) - vm) * vs;
            put(to + i, width - i, v_fma(n, get(w + i, width - i), get(b + i, width - i)));
        }
        mean[r] = m;
        rstd[r] = s;
    }
}

static void KERNEL(layernorm_backward)(float *dx, float *dw, float *db, const float *dout, const float *x,
                                       const float *mean, const float *rstd, const float *w, size_t rows, size_t width)
{
    memset(dw, 0, width * sizeof *dw);
    memset(db, 0, width * sizeof *db);
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * width;
        const float *d = dout + r * width;
        float *to = dx + r * width;
        vf vm = v_set(mean[r]);
        vf vs = v_set(rstd[r]);
        vf sum = v_set(0);
        vf dot = v_set(0);
        for (size_t i = 0; i < width; i += LANES) { /* lanes past the end: d is 0 there */
            size_t left = width - i;
            vf g = get(d + i, left);
            vf n = (get(row + i, left) - vm) * vs;
            vf gw = g * get(w + i, left);
            sum += gw;
            dot = v_fma(gw, n, dot);
            put(dw + i, left, v_fma(g, n, get(dw + i, left)));
            put(db + i, left, get(db + i, left) + g);
        }
        vf a = v_set(v_sum(sum) / (float)width);
        vf c = v_set(v_sum(dot) / (float)width);
        for (size_t i = 0; i < width; i += LANES) {
            size_t left = width - i;
            vf n = (get(row + i, left) - vm) * vs;
            vf g = v_fma(get(d + i, left), get(w + i, left), -a);
            g = v_fma(-n, c, g);
            put(to + i, left, v_fma(g, vs, get(to + i, left)));
        }
    }
}

/* ---- element by element ---- */

static void KERNEL(bias)(float *x, const float *b, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < width; i += LANES)
            put(x + r * width + i, width - i, get(x + r * width + i, width - i) + get(b + i, width - i));
    }
}

/* gelu(x) = x * s, s = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
static inline vf gelu_gate(vf x)
{
    vf u = x * v_fma(v_set(GELU_CUBE * GELU_SCALE) * x, x, v_set(GELU_SCALE));
    return v_set(1.0F) / (v_set(1.0F) + v_exp(v_set(-2.0F) * u));
}

static void KERNEL(bias_gelu)(float *x, float *out, const float *b, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < width; i += LANES) {
            size_t at = r * width + i;
            vf y = get(x + at, width - i) + get(b + i, width - i);
            put(x + at, width - i, y);
            put(out + at, width - i, y * gelu_gate(y));
        }
    }
}

/* Of rows that are changed on the way: `column` sums are kept in registers for a strip of columns. */
enum { STRIP = 4 };

static inline void gelu_backward_one(float *d, float *act, const float *x, size_t left, vf *sum)
{
    vf y = get(x, left);
    vf s = gelu_gate(y);
    vf slope = v_fma(v_set(3 * GELU_CUBE * GELU_SCALE) * y, y, v_set(GELU_SCALE));
    vf derivative = v_fma(v_set(2.0F) * y * slope, s * (v_set(1.0F) - s), s);
    vf g = get(d, left) * derivative;
    put(act, left, y * s);
    put(d, left, g);
    *sum += g;
}

static void KERNEL(gelu_backward)(float *d, float *act, float *db, const float *x, size_t rows, size_t width)
{
    for (size_t strip = 0; strip < width; strip += STRIP * LANES) {
        vf sums[STRIP] = {0};
        for (size_t r = 0; r < rows; r++) {
            for (size_t k = 0; k < STRIP && strip + k * LANES < width; k++) {
                size_t i = strip + k * LANES;
                size_t at = r * width + i;
                gelu_backward_one(d + at, act + at, x + at, width - i, &sums[k]);
            }
        }
        for (size_t k = 0; k < STRIP && strip + k * LANES < width; k++)
            put(db + strip + k * LANES, width - strip - k * LANES, sums[k]);
    }
}

static void KERNEL(column_sum)(float *out, const float *x, size_t rows, size_t width)
{
    for (size_t strip = 0; strip < width; strip += STRIP * LANES) {
        vf sums[STRIP] = {0};
        for (size_t r = 0; r < rows; r++) {
            for (size_t k = 0; k < STRIP && strip + k * LANES < width; k++) {
                size_t i = strip + k * LANES;
                sums[k] += get(x + r * width + i, width - i);
            }
        }
        for (size_t k = 0; k < STRIP && strip + k * LANES < width; k++)
            put(out + strip + k * LANES, width - strip - k * LANES, sums[k]);
    }
}

/* A window of masks over elements in ascending order: made a piece at a time, in the first-level cache. */
enum { MASK_PIECE = 1024 };

struct KERNEL(mask_window) {
    const struct tm_dropout *dropout;
    uint64_t start; /* of the piece in hand; behind it: nothing made yet */
    uint64_t end;
    float mask[MASK_PIECE + LANES];
};

static inline vf mask_at(struct KERNEL(mask_window) * window, uint64_t element, size_t left)
{
    uint64_t need = left >= LANES ? LANES : left;
    if (element < window->start || element + need > window->end) {
        window->start = element / TM_DROPOUT_GROUP * TM_DROPOUT_GROUP;
        window->end = window->start + MASK_PIECE;
        KERNEL(dropout_mask)(window->mask, window->dropout, window->start, MASK_PIECE);
    }
    return v_load(window->mask + (element - window->start));
}

static void KERNEL(residual)(float *out, const float *x, const float *y, const float *b,
                             const struct tm_dropout *dropout, size_t rows, size_t width)
{
    struct KERNEL(mask_window) window = {.dropout = dropout};
    bool drops = dropout->threshold > 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < width; i += LANES) {
            size_t at = r * width + i;
            size_t left = width - i;
            vf v = get(y + at, left) + get(b + i, left);
            if (drops) v *= mask_at(&window, at, left);
            put(out + at, left, get(x + at, left) + v);
        }
    }
}

static void KERNEL(residual_backward)(float *dy, float *db, const float *dout, const struct tm_dropout *dropout,
                                      size_t rows, size_t width)
{
    if (dropout->threshold > 0) {
        struct KERNEL(mask_window) window = {.dropout = dropout};
        for (size_t r = 0; r < rows; r++) {
            for (size_t i = 0; i < width; i += LANES) {
                size_t at = r * width + i;
                put(dy + at, width - i, get(dout + at, width - i) * mask_at(&window, at, width - i));
            }
        }
    } else if (dy != dout) {
        memcpy(dy, dout, rows * width * sizeof *dy);
    }
    KERNEL(column_sum)(db, dy, rows, width);
}

/* ---- attention's softmax ---- */

/* Probabilities of one row of scores, and zeros behind the last column that it may see. */
static inline float softmax_row(float *row, size_t seen, size_t columns)
{
    vf top = v_set(-INFINITY);
    for (size_t i = 0; i < seen; i += LANES) {
        vf s = get(row + i, seen - i);
        if (seen - i < LANES) s = v_keep_first(s, (int)(seen - i), v_set(-INFINITY));
        top = v_max(top, s);
    }
    float largest = v_largest(top);
    vf vtop = v_set(largest);
    vf sum = v_set(0);
    for (size_t i = 0; i < columns; i += LANES) {
        vf p = v_set(0);
        if (i < seen) {
            p = v_exp(get(row + i, columns - i) - vtop);
            if (seen - i < LANES) p = v_keep_first(p, (int)(seen - i), v_set(0));
            sum += p;
        }
        put(row + i, columns - i, p);
    }
    float total = v_sum(sum);
    vf scale = v_set(1.0F / total);
    for (size_t i = 0; i < seen; i += LANES)
        put(row + i, columns - i, get(row + i, columns - i) * scale);
    return largest + logf(total);
}

static void KERNEL(softmax)(float *scores, float *lse, const struct tm_dropout *dropout, uint64_t element, size_t rows,
                            size_t first, size_t columns, size_t stride)
{
    struct KERNEL(mask_window) window = {.dropout = dropout};
    for (size_t r = 0; r < rows; r++) {
        float *row = scores + r * stride;
        size_t seen = first + r + 1;
        lse[r] = softmax_row(row, seen, columns);
        if (dropout->threshold == 0) continue;
        for (size_t i = 0; i < seen; i += LANES) {
            vf mask = mask_at(&window, element + r * stride + i, columns - i);
            put(row + i, columns - i, get(row + i, columns - i) * mask);
        }
    }
}

static void KERNEL(softmax_backward)(float *probs, float *dprobs, const float *lse, const struct tm_dropout *dropout,
                                     uint64_t element, float scale, size_t rows, size_t first, size_t columns,
                                     size_t stride)
{
    struct KERNEL(mask_window) window = {.dropout = dropout};
    bool drops = dropout->threshold > 0;
    float whole[TM_CTX_MAX + LANES]; /* probabilities of the row before dropout */
    for (size_t r = 0; r < rows; r++) {
        float *p = probs + r * stride;
        float *d = dprobs + r * stride;
        size_t seen = first + r + 1;
        vf vlse = v_set(lse[r]);
        vf dot = v_set(0);
        for (size_t i = 0; i < seen; i += LANES) {
            vf prob = v_exp(get(p + i, columns - i) - vlse);
            if (seen - i < LANES) prob = v_keep_first(prob, (int)(seen - i), v_set(0));
            vf mask = drops ? mask_at(&window, element + r * stride + i, columns - i) : v_set(1.0F);
            vf grad = get(d + i, columns - i) * mask;
            v_store(whole + i, prob);
            put(p + i, columns - i, prob * mask);
            put(d + i, columns - i, grad);
            dot = v_fma(prob, grad, dot);
        }
        vf sum = v_set(v_sum(dot));
        vf vscale = v_set(scale);
        for (size_t i = 0; i < columns; i += LANES) {
            vf grad = v_set(0);
            if (i < seen) grad = v_load(whole + i) * (get(d + i, columns - i) - sum) * vscale;
            put(d + i, columns - i, grad);
            if (i >= seen) put(p + i, columns - i, grad);
        }
    }
}

/* ---- both ends of the network ---- */

static double KERNEL(cross_entropy)(float *logits, const uint8_t *targets, bool gradients, size_t rows, size_t width)
{
    double loss = 0;
    float share = 1.0F / (float)rows;
    for (size_t r = 0; r < rows; r++) {
        float *row = logits + r * width;
        float at_target = row[targets[r]];
        float lse = softmax_row(row, width, width);
        loss += (double)lse - (double)at_target;
        if (!gradients) continue;
        for (size_t i = 0; i < width; i += LANES)
            put(row + i, width - i, get(row + i, width - i) * v_set(share));
        row[targets[r]] -= share;
    }
    return loss;
}

static void KERNEL(embed)(float *out, const uint8_t *tokens, const float *wte, const float *wpe,
                          const struct tm_dropout *dropout, size_t rows, size_t ctx, size_t width)
{
    struct KERNEL(mask_window) window = {.dropout = dropout};
    bool drops = dropout->threshold > 0;
    for (size_t r = 0; r < rows; r++) {
        const float *token = wte + tokens[r] * width;
        const float *position = wpe + r % ctx * width;
        for (size_t i = 0; i < width; i += LANES) {
            vf v = get(token + i, width - i) + get(position + i, width - i);
            if (drops) v *= mask_at(&window, r * width + i, width - i);
            put(out + r * width + i, width - i, v);
        }
    }
}

/* ---- gradients and weights ---- */

static float KERNEL(quantise)(int32_t *sum, const float *g, float unit, bool first, size_t count)
{
    vf vunit = v_set(unit);
    vf top = v_set(0);
    int odd = 0;
    for (size_t i = 0; i < count; i += LANES) {
        size_t left = count - i;
        vf x = get(g + i, left);
        vf size = v_abs(x);
        odd |= v_any_not_at_most(size, v_set(3.4e38F));
        top = v_max(top, size);
        vi q = v_round(x * vunit);
        if (left >= LANES)
            vi_store(sum + i, first ? q : vi_add(q, vi_load(sum + i)));
        else
            vi_store_some(sum + i, (int)left, first ? q : vi_add(q, vi_load_some(sum + i, (int)left)));
    }
    return odd ? NAN : v_largest(top);
}

static void KERNEL(add_i32)(int32_t *sum, const int32_t *x, size_t count)
{
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        vi_store(sum + i, vi_add(vi_load(sum + i), vi_load(x + i)));
    int left = (int)(count - whole);
    if (left > 0)
        vi_store_some(sum + whole, left, vi_add(vi_load_some(sum + whole, left), vi_load_some(x + whole, left)));
}

static void KERNEL(add_f32)(float *sum, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i += LANES)
        put(sum + i, count - i, get(sum + i, count - i) + get(x + i, count - i));
}

typedef double vd8 __attribute__((vector_size(64)));
typedef float vf8 __attribute__((vector_size(32)));
typedef int32_t vi8 __attribute__((vector_size(32)));

static inline double sum_of_8(const vd8 *p) /* a pointer: how to pass such a vector depends on the class */
{
    vd8 v = *p;
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

static double KERNEL(square_sum_i32)(const int32_t *x, size_t count)
{
    vd8 sum = {0};
    size_t whole = count / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
        vi8 part;
        memcpy(&part, x + i, sizeof part);
        vd8 d = __builtin_convertvector(part, vd8);
        sum += d * d;
    }
    double rest = 0;
    for (size_t i = whole; i < count; i++)
        rest += (double)x[i] * (double)x[i];
    return sum_of_8(&sum) + rest;
}

static double KERNEL(square_sum_f32)(const float *x, size_t count)
{
    vd8 sum = {0};
    size_t whole = count / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
        vf8 part;
        memcpy(&part, x + i, sizeof part);
        vd8 d = __builtin_convertvector(part, vd8);
        sum += d * d;
    }
    double rest = 0;
    for (size_t i = whole; i < count; i++)
        rest += (double)x[i] * (double)x[i];
    return sum_of_8(&sum) + rest;
}

static inline void adamw_one(float *w, float *m, float *v, vf g, const struct tm_adamw *a, size_t left)
{
    vf m1 = v_fma(get(m, left), v_set(a->beta1), v_set(1.0F - a->beta1) * g);
    vf v1 = v_fma(get(v, left), v_set(a->beta2), v_set(1.0F - a->beta2) * g * g);
    vf denominator = v_fma(v_sqrt(v1), v_set(a->v_scale), v_set(a->eps));
    vf w1 = v_fma(v_set(-a->step_size), m1 / denominator, get(w, left) * v_set(a->keep));
    put(m, left, m1);
    put(v, left, v1);
    put(w, left, w1);
}

static void KERNEL(adamw_i32)(float *w, float *m, float *v, const int32_t *g, const struct tm_adamw *adamw,
                              size_t count)
{
    vf scale = v_set(adamw->grad_scale);
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        adamw_one(w + i, m + i, v + i, v_float(vi_load(g + i)) * scale, adamw, LANES);
    int left = (int)(count - whole);
    if (left > 0)
        adamw_one(w + whole, m + whole, v + whole, v_float(vi_load_some(g + whole, left)) * scale, adamw, (size_t)left);
}

static void KERNEL(adamw_f32)(float *w, float *m, float *v, const float *g, const struct tm_adamw *adamw, size_t count)
{
    vf scale = v_set(adamw->grad_scale);
    for (size_t i = 0; i < count; i += LANES)
        adamw_one(w + i, m + i, v + i, get(g + i, count - i) * scale, adamw, count - i);
}

static bool KERNEL(all_finite)(const float *x, size_t count)
{
    int odd = 0;
    for (size_t i = 0; i < count; i += LANES)
        odd |= v_any_not_at_most(v_abs(get(x + i, count - i)), v_set(3.4e38F));
    return odd == 0;
}

const struct tm_kernels KERNEL(tm_kernels_) = {
    .name = KERNEL_CLASS,
    .core = KERNEL_CORE,
    .layernorm = KERNEL(layernorm),
    .layernorm_backward = KERNEL(layernorm_backward),
    .bias = KERNEL(bias),
    .bias_gelu = KERNEL(bias_gelu),
    .gelu_backward = KERNEL(gelu_backward),
    .residual = KERNEL(residual),
    .residual_backward = KERNEL(residual_backward),
    .column_sum = KERNEL(column_sum),
    .softmax = KERNEL(softmax),
    .softmax_backward = KERNEL(softmax_backward),
    .cross_entropy = KERNEL(cross_entropy),
    .embed = KERNEL(embed),
    .dropout_mask = KERNEL(dropout_mask),
    .quantise = KERNEL(quantise),
    .add_i32 = KERNEL(add_i32),
    .add_f32 = KERNEL(add_f32),
    .square_sum_i32 = KERNEL(square_sum_i32),
    .square_sum_f32 = KERNEL(square_sum_f32),
    .adamw_i32 = KERNEL(adamw_i32),
    .adamw_f32 = KERNEL(adamw_f32),
    .all_finite = KERNEL(all_finite),
};

#endif
