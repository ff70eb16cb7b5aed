#include "market/arima.h"

#include <math.h>
#include <stdbool.h>

/* phi up to tanh(6) = 0.99998 either way. */
enum { GRID = 96 };
static const double z_max = 12;

/* The mu of the largest likelihood at a phi: weighted least squares of d_0 and of d_t - phi d_{t-1}. */
static double best_mu(const double *d, size_t count, double phi)
{
    double first = 1 - phi * phi;
    double sum = first * d[0];
    for (size_t t = 1; t < count; t++)
        sum += (1 - phi) * (d[t] - phi * d[t - 1]);
    return sum / (first + (double)(count - 1) * (1 - phi) * (1 - phi));
}

double tm_arima__log_likelihood(const double *differences, size_t count, struct tm_arima model)
{
    double e = differences[0] - model.mu;
    double squares = (1 - model.phi * model.phi) * e * e;
    for (size_t t = 1; t < count; t++) {
        double next = differences[t] - model.mu;
        squares += (next - model.phi * e) * (next - model.phi * e);
        e = next;
    }
    double n = (double)count;
    return squares > 0 ? -n / 2 * log(squares / n) + 0.5 * log(1 - model.phi * model.phi) : -INFINITY;
}

static struct tm_arima at(const double *d, size_t count, double z)
{
    double phi = tanh(z / 2);
    return (struct tm_arima){.mu = best_mu(d, count, phi), .phi = phi};
}

static double profile(const double *d, size_t count, double z)
{
    return tm_arima__log_likelihood(d, count, at(d, count, z));
}

/* The largest profile between two neighbours of the best grid point. */
static double golden(const double *d, size_t count, double low, double high)
{
    static const double share = 0.61803398874989485;
    double a = high - share * (high - low);
    double b = low + share * (high - low);
    double value_a = profile(d, count, a);
    double value_b = profile(d, count, b);
    while (high - low > 1e-7) {
        bool left = value_a >= value_b;
        if (left) {
            high = b;
            b = a;
            value_b = value_a;
            a = high - share * (high - low);
            value_a = profile(d, count, a);
        } else {
            low = a;
            a = b;
            value_a = value_b;
            b = low + share * (high - low);
            value_b = profile(d, count, b);
        }
    }
    return (low + high) / 2;
}

struct tm_arima tm_arima__fit(const double *differences, size_t count)
{
    bool constant = true;
    for (size_t t = 1; t < count; t++)
        constant = constant && differences[t] == differences[0];
    if (constant) return (struct tm_arima){.mu = differences[0], .phi = 0};
    double best_z = 0;
    double best = -INFINITY;
    double step = 2 * z_max / GRID;
    for (int i = 0; i <= GRID; i++) {
        double z = -z_max + i * step;
        double value = profile(differences, count, z);
        if (value > best) {
            best = value;
            best_z = z;
        }
    }
    double low = fmax(-z_max, best_z - step);
    double high = fmin(z_max, best_z + step);
    return at(differences, count, golden(differences, count, low, high));
}

void tm_arima__extrapolate(struct tm_arima model, double last, double difference, double *out, size_t steps)
{
    for (size_t h = 0; h < steps; h++) {
        difference = model.mu * (1 - model.phi) + model.phi * difference;
        last += difference;
        out[h] = last;
    }
}
