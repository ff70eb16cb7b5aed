/* Attention without a matrix of all scores: TM_SCORE_ROWS rows at a time, only the columns that they may see, softmax
 * in the cache, and on the way back the same rows made again from the kept log(sum(exp)). */
#include "engine/passes_internal.h"

#include <math.h>

/* One head of one sample. Rows of q, k, v and their gradients are 3 x width apart. */
struct head {
    const struct tm_pass *pass;
    const struct tm_dropout *dropout;
    const float *q;
    const float *k;
    const float *v;
    float *lse;       /* by position */
    uint64_t element; /* dropout number of its first score */
    int size;         /* width of a head */
    int row;          /* 3 x width */
    int width;
    int ctx;
    int stride;
};

static struct head head_of(const struct tm_pass *pass, const struct tm_dropout *dropout,
                           const struct tm_block_cache *cache, int sample, int number)
{
    const struct tm_network *network = pass->network;
    size_t width = (size_t)network->width;
    size_t ctx = (size_t)network->ctx;
    size_t size = width / (size_t)network->heads;
    size_t index = (size_t)sample * (size_t)network->heads + (size_t)number;
    const float *q = cache->qkv + (size_t)sample * ctx * 3 * width + (size_t)number * size;
    return (struct head){.pass = pass,
                         .dropout = dropout,
                         .q = q,
                         .k = q + width,
                         .v = q + 2 * width,
                         .lse = cache->lse + index * ctx,
                         .element = index * ctx * tm_pass__score_stride(network),
                         .size = (int)size,
                         .row = 3 * network->width,
                         .width = network->width,
                         .ctx = network->ctx,
                         .stride = (int)tm_pass__score_stride(network)};
}

/* scores[rows x seen] = q[first ..] k' / sqrt(size) */
static void score(const struct head *head, int first, int rows, float *scores)
{
    struct tm_gemm shape = {.transpose_b = true,
                            .m = rows,
                            .n = first + rows,
                            .k = head->size,
                            .alpha = 1.0F / sqrtf((float)head->size),
                            .lda = head->row,
                            .ldb = head->row,
                            .ldc = head->stride};
    tm_gemm(head->pass->blas, &shape, head->q + (size_t)first * (size_t)head->row, head->k, scores);
}

static void head_forward(const struct head *head, float *out, float *scores)
{
    for (int first = 0; first < head->ctx; first += TM_SCORE_ROWS) {
        int rows = head->ctx - first < TM_SCORE_ROWS ? head->ctx - first : TM_SCORE_ROWS;
        score(head, first, rows, scores);
        head->pass->kernels->softmax(scores, head->lse + first, head->dropout,
                                     head->element + (uint64_t)first * (uint64_t)head->stride, (size_t)rows,
                                     (size_t)first, (size_t)first + (size_t)rows, (size_t)head->stride);
        struct tm_gemm shape = {.m = rows,
                                .n = head->size,
                                .k = first + rows,
                                .alpha = 1,
                                .lda = head->stride,
                                .ldb = head->row,
                                .ldc = head->width};
        tm_gemm(head->pass->blas, &shape, scores, head->v, out + (size_t)first * (size_t)head->width);
    }
}

void tm_attention__forward(const struct tm_pass *pass, const struct tm_dropout *dropout,
                           const struct tm_block_cache *cache, float *scores)
{
    size_t width = (size_t)pass->network->width;
    for (int sample = 0; sample < pass->samples; sample++) {
        for (int number = 0; number < pass->network->heads; number++) {
            struct head head = head_of(pass, dropout, cache, sample, number);
            size_t at = (size_t)sample * (size_t)head.ctx * width + (size_t)number * (size_t)head.size;
            head_forward(&head, cache->attended + at, scores);
        }
    }
}

/* Gradients of one head; dout has rows of width, dq the same layout as q. Rows from the last to the first: the last
 * ones see every column, so their products set what the others add to. */
static void head_backward(const struct head *head, const float *dout, float *dq, float *scores)
{
    const struct tm_blas *blas = head->pass->blas;
    float *dscores = scores + (size_t)TM_SCORE_ROWS * (size_t)head->stride;
    float scale = 1.0F / sqrtf((float)head->size);
    int last = (head->ctx - 1) / TM_SCORE_ROWS * TM_SCORE_ROWS;
    for (int first = last; first >= 0; first -= TM_SCORE_ROWS) {
        int rows = head->ctx - first < TM_SCORE_ROWS ? head->ctx - first : TM_SCORE_ROWS;
        int seen = first + rows;
        float beta = first == last ? 0.0F : 1.0F;
        const float *d = dout + (size_t)first * (size_t)head->width;
        size_t at = (size_t)first * (size_t)head->row;
        score(head, first, rows, scores);
        struct tm_gemm shape = {.transpose_b = true,
                                .m = rows,
                                .n = seen,
                                .k = head->size,
                                .alpha = 1,
                                .lda = head->width,
                                .ldb = head->row,
                                .ldc = head->stride};
        tm_gemm(blas, &shape, d, head->v, dscores);
        head->pass->kernels->softmax_backward(scores, dscores, head->lse + first, head->dropout,
                                              head->element + (uint64_t)first * (uint64_t)head->stride, scale,
                                              (size_t)rows, (size_t)first, (size_t)seen, (size_t)head->stride);
        shape = (struct tm_gemm){.transpose_a = true,
                                 .m = seen,
                                 .n = head->size,
                                 .k = rows,
                                 .alpha = 1,
                                 .beta = beta,
                                 .lda = head->stride,
                                 .ldb = head->width,
                                 .ldc = head->row};
        tm_gemm(blas, &shape, scores, d, dq + 2 * head->width); /* values */
        shape.ldb = head->row;
        tm_gemm(blas, &shape, dscores, head->q + at, dq + head->width); /* keys */
        shape = (struct tm_gemm){
            .m = rows, .n = head->size, .k = seen, .alpha = 1, .lda = head->stride, .ldb = head->row, .ldc = head->row};
        tm_gemm(blas, &shape, dscores, head->k, dq + at); /* queries */
    }
}

void tm_attention__backward(const struct tm_pass *pass, const struct tm_dropout *dropout,
                            const struct tm_block_cache *cache, const float *dattended, float *dqkv, float *scores)
{
    size_t width = (size_t)pass->network->width;
    for (int sample = 0; sample < pass->samples; sample++) {
        for (int number = 0; number < pass->network->heads; number++) {
            struct head head = head_of(pass, dropout, cache, sample, number);
            size_t row = (size_t)sample * (size_t)head.ctx;
            size_t column = (size_t)number * (size_t)head.size;
            head_backward(&head, dattended + row * width + column, dqkv + row * 3 * width + column, scores);
        }
    }
}
