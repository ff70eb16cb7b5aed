/* Matrix products: OpenBLAS's sgemm, one thread a caller, with the core type that a kernel class pins.
 *
 * The library is opened at the first use and not linked: so that its core type can be chosen before its own start (it
 * reads OPENBLAS_CORETYPE once), and so that commands that train nothing do not pay for it. */
#ifndef TM_ENGINE_BLAS_H
#define TM_ENGINE_BLAS_H

#include "base/env.h"

#include <stdbool.h>

/* C = alpha * op(A) op(B) + beta * C, row-major; m x n x k are the sizes of C and of the sum; lda, ldb, ldc are the
 * lengths of rows in memory. With beta = 0, C is written without being read. */
struct tm_gemm {
    bool transpose_a;
    bool transpose_b;
    int m;
    int n;
    int k;
    float alpha;
    float beta;
    int lda;
    int ldb;
    int ldc;
};

struct tm_blas {
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);
    char core[32]; /* what OpenBLAS says it runs as: "Haswell", "SkylakeX" */
};

/* Opens the library with the core type `core` ("Haswell") for the life of the process. A second call with another core
 * type is -TM_EBUSY: the first one pinned it. -TM_ENOTFOUND names the package where the library is missing. */
int tm_blas_open(struct tm_env *env, const char *core, struct tm_blas *out, struct tm_error *e);

void tm_gemm(const struct tm_blas *blas, const struct tm_gemm *shape, const float *a, const float *b, float *c);

#endif
