/* ARIMA(1,1,0) with drift: the differences d of a series follow d_t - mu = phi (d_{t-1} - mu) + noise.
 *
 * Fitted by exact Gaussian maximum likelihood. For a given phi the best mu has a closed form, so that one variable is
 * left; it is searched as z, phi = tanh(z / 2), over a grid and then by golden section: a global optimum, where
 * iterations from a start may stay in a local one. */
#ifndef TM_MARKET_ARIMA_H
#define TM_MARKET_ARIMA_H

#include <stddef.h>

struct tm_arima {
    double mu;
    double phi; /* |phi| < 1 */
};

/* `differences` must hold at least two values. Equal ones (no noise at all) give their value as mu and phi 0. */
struct tm_arima tm_arima__fit(const double *differences, size_t count);

/* Log likelihood at (mu, phi), noise variance at its best, up to a constant. -INFINITY without noise. */
double tm_arima__log_likelihood(const double *differences, size_t count, struct tm_arima model);

/* The next `steps` values of the series after `last`, whose newest difference was `difference`. */
void tm_arima__extrapolate(struct tm_arima model, double last, double difference, double *out, size_t steps);

#endif
