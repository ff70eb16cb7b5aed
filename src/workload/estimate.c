#include "workload/estimate.h"

#include <math.h>

static const double NORMAL_80 = 1.2815515655446004; /* 80% of a normal lie within this many standard deviations */

struct tm_estimate tm_estimate_around(double mean, double spread)
{
    double reach = exp(NORMAL_80 * spread);
    return (struct tm_estimate){.mean = mean, .p10 = mean / reach, .p90 = mean * reach};
}

double tm_estimate_spread(const struct tm_estimate *estimate)
{
    return log(estimate->p90 / estimate->mean) / NORMAL_80;
}

double tm_estimate__spread_between(double p10, double p90)
{
    return log(p90 / p10) / (2 * NORMAL_80);
}

/* By bisection: it is asked for rarely. */
double tm_normal_quantile(double p)
{
    double low = -8, high = 8;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < p)
            low = middle;
        else
            high = middle;
    }
    return high;
}
