#include "workload/fit.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { ITERATIONS_MAX = 200 };

int tm_fit__cholesky(size_t n, double *a, double *b)
{
    for (size_t j = 0; j < n; j++) { /* A = L L', L over the lower half of A */
        double diagonal = a[j * n + j];
        for (size_t k = 0; k < j; k++)
            diagonal -= a[j * n + k] * a[j * n + k];
        if (!(diagonal > 0)) return -1;
        double root = sqrt(diagonal);
        a[j * n + j] = root;
        for (size_t i = j + 1; i < n; i++) {
            double sum = a[i * n + j];
            for (size_t k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = sum / root;
        }
    }
    for (size_t i = 0; i < n; i++) { /* L y = b */
        for (size_t k = 0; k < i; k++)
            b[i] -= a[i * n + k] * b[k];
        b[i] /= a[i * n + i];
    }
    for (size_t i = n; i-- > 0;) { /* L' x = y */
        for (size_t k = i + 1; k < n; k++)
            b[i] -= a[k * n + i] * b[k];
        b[i] /= a[i * n + i];
    }
    return 0;
}

static double rho(const struct tm_fit *fit, double residual)
{
    if (fit->robust <= 0) return residual * residual;
    double scaled = residual / fit->robust;
    return 2 * fit->robust * fit->robust * (sqrt(1 + scaled * scaled) - 1);
}

/* Weight that turns squares into rho around the present residual. */
static double weight(const struct tm_fit *fit, double residual)
{
    if (fit->robust <= 0) return 1;
    double scaled = residual / fit->robust;
    return 1 / sqrt(1 + scaled * scaled);
}

static double cost_at(const struct tm_fit *fit, const double *x)
{
    double cost = 0;
    for (size_t i = 0; i < fit->residuals; i++)
        cost += rho(fit, fit->residual(fit->context, x, i));
    for (size_t j = 0; j < fit->unknowns; j++) {
        double off = (x[j] - fit->prior[j]) / fit->spread[j];
        cost += off * off;
    }
    return cost;
}

struct normal {
    double a[TM_FIT_UNKNOWNS_MAX * TM_FIT_UNKNOWNS_MAX];
    double g[TM_FIT_UNKNOWNS_MAX];
};

/* J'WJ and J'Wr of data and prior. */
static void build_normal(const struct tm_fit *fit, const double *x, struct normal *normal)
{
    size_t n = fit->unknowns;
    double row[TM_FIT_UNKNOWNS_MAX];
    double moved[TM_FIT_UNKNOWNS_MAX];
    memset(normal, 0, sizeof *normal);
    memcpy(moved, x, n * sizeof *x);
    for (size_t i = 0; i < fit->residuals; i++) {
        double r = fit->residual(fit->context, x, i);
        double w = weight(fit, r);
        for (size_t j = 0; j < n; j++) {
            double step = 1e-6 * fmax(1, fabs(x[j]));
            moved[j] = x[j] + step;
            row[j] = (fit->residual(fit->context, moved, i) - r) / step;
            moved[j] = x[j];
        }
        for (size_t j = 0; j < n; j++) {
            normal->g[j] -= w * row[j] * r;
            for (size_t k = 0; k <= j; k++)
                normal->a[j * n + k] += w * row[j] * row[k];
        }
    }
    for (size_t j = 0; j < n; j++) {
        double precision = 1 / (fit->spread[j] * fit->spread[j]);
        normal->a[j * n + j] += precision;
        normal->g[j] -= precision * (x[j] - fit->prior[j]);
        for (size_t k = 0; k < j; k++)
            normal->a[k * n + j] = normal->a[j * n + k];
    }
}

/* One step with damping `lambda`; 0 and a new point in `next` if it could be made. */
static int try_step(const struct tm_fit *fit, const struct normal *normal, double lambda, const double *x, double *next)
{
    size_t n = fit->unknowns;
    double a[TM_FIT_UNKNOWNS_MAX * TM_FIT_UNKNOWNS_MAX];
    double step[TM_FIT_UNKNOWNS_MAX];
    memcpy(a, normal->a, n * n * sizeof *a);
    memcpy(step, normal->g, n * sizeof *step);
    for (size_t j = 0; j < n; j++)
        a[j * n + j] *= 1 + lambda;
    if (tm_fit__cholesky(n, a, step) != 0) return -1;
    for (size_t j = 0; j < n; j++)
        next[j] = x[j] + step[j];
    return 0;
}

int tm_fit__solve(const struct tm_fit *fit, double *x, struct tm_error *e)
{
    assert(fit->unknowns > 0 && fit->unknowns <= TM_FIT_UNKNOWNS_MAX);
    size_t n = fit->unknowns;
    double next[TM_FIT_UNKNOWNS_MAX];
    struct normal normal;
    memcpy(x, fit->prior, n * sizeof *x);
    double cost = cost_at(fit, x);
    if (!isfinite(cost)) return tm_error_set(e, TM_EINTERNAL, "fit: residuals at the prior are not numbers");
    double lambda = 1e-3;
    for (int iteration = 0; iteration < ITERATIONS_MAX && lambda < 1e12; iteration++) {
        build_normal(fit, x, &normal);
        double gained = 0;
        while (lambda < 1e12) {
            double next_cost = try_step(fit, &normal, lambda, x, next) == 0 ? cost_at(fit, next) : INFINITY;
            if (next_cost < cost) {
                gained = cost - next_cost;
                cost = next_cost;
                memcpy(x, next, n * sizeof *x);
                lambda = fmax(lambda / 5, 1e-9);
                break;
            }
            lambda *= 5;
        }
        if (gained < 1e-10 * (1 + cost)) break;
    }
    return 0;
}
