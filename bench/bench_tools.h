/* What benchmarks share: a clock and the middle of some values. */
#ifndef TM_BENCH_TOOLS_H
#define TM_BENCH_TOOLS_H

#include "base/env.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BENCH_VALUES_MAX = 4096 };

static inline double bench_now_s(void)
{
    return (double)tm_env_real()->monotonic_ns(tm_env_real()) * 1e-9;
}

static inline int bench_ascending(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return *x < *y ? -1 : *x > *y ? 1 : 0;
}

static inline void bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof *values, bench_ascending);
}

/* NaN of none. The values stay as they are. */
static inline double bench_median(const double *values, size_t count)
{
    double sorted[BENCH_VALUES_MAX];
    assert(count <= BENCH_VALUES_MAX);
    if (count == 0) return NAN;
    memcpy(sorted, values, count * sizeof *values);
    bench_sort(sorted, count);
    return count % 2 != 0 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

#endif
