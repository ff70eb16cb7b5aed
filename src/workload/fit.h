/* Robust non-linear least squares with a prior, for a handful of unknowns.
 *
 * Minimises  sum_i rho(r_i(x))  +  sum_j ((x_j - prior_j) / spread_j)^2,  where rho is the pseudo-Huber loss of width
 * `robust`: quadratic for residuals below it, linear beyond, so that a few wild measurements do not carry the fit away.
 * The prior makes every problem solvable, also with fewer measurements than unknowns: what the data do not say stays at
 * what physics suggests. Method: Levenberg-Marquardt with derivatives by differences. */
#ifndef TM_WORKLOAD_FIT_H
#define TM_WORKLOAD_FIT_H

#include "base/error.h"

#include <stddef.h>

enum { TM_FIT_UNKNOWNS_MAX = 24 };

struct tm_fit {
    size_t unknowns;
    size_t residuals;
    const double *prior;
    const double *spread; /* how far from the prior an unknown may be expected: one standard deviation */
    double robust;        /* 0: plain squares */
    /* Residual i at x, in units of its own noise. Pure. */
    double (*residual)(const void *context, const double *x, size_t i);
    const void *context;
};

/* Best x to `x` (unknowns long). -TM_EINTERNAL if a residual at the prior is not a number. */
int tm_fit__solve(const struct tm_fit *fit, double *x, struct tm_error *e);

/* Solves A x = b for a symmetric positive definite A (n x n, row after row; destroyed), x over b. Non-zero: A is not.
 */
int tm_fit__cholesky(size_t n, double *a, double *b);

#endif
