/* A positive quantity that is not known exactly: its mean and the 80% interval of a log-normal around it. */
#ifndef TM_WORKLOAD_ESTIMATE_H
#define TM_WORKLOAD_ESTIMATE_H

struct tm_estimate {
    double mean;
    double p10;
    double p90;
};

/* Around `mean` with one standard deviation `spread` of its logarithm. */
struct tm_estimate tm_estimate_around(double mean, double spread);
/* The standard deviation of the logarithm, back. */
double tm_estimate_spread(const struct tm_estimate *estimate);
/* The same from any two values that 80% lie between. */
double tm_estimate__spread_between(double p10, double p90);
/* Of a standard normal, the share `p` lies below this: p from 0 to 1, without both. */
double tm_normal_quantile(double p);

#endif
