/* How a job speeds up with more instances, from its own measurements (instances, seconds).
 *
 * Two curves are fitted. DeepVM's: the speed-up S(n) = c / (1 + exp(-a (n - b))), of which its planner uses the tangent
 * at b below b and S above. And a physical one of time itself. With the batch of an instance fixed, n instances take
 * 1/n of the steps, and each step is compute, a ring that moves 2 (n - 1)/n of the gradients, and a delay for each hop:
 *
 *     T(n) = (work + exchange 2 (n - 1)/n + latency (n - 1)) / n */
#ifndef TM_WORKLOAD_SCALING_H
#define TM_WORKLOAD_SCALING_H

#include "base/env.h"

enum { TM_SCALING_POINTS_MAX = 4096 };

struct tm_scaling_point {
    double instances;
    double seconds;
};

struct tm_scaling_data {
    struct tm_scaling_point *points; /* owned */
    size_t count;
    size_t capacity;
};

void tm_scaling_data_init(struct tm_scaling_data *data);
void tm_scaling_data_deinit(struct tm_scaling_data *data);
/* CSV with a header that has `instances` and `seconds`. */
int tm_scaling_data_load(struct tm_env *env, const char *path, struct tm_scaling_data *data, struct tm_error *e);
int tm_scaling_data__parse(const char *file, const char *text, size_t length, struct tm_scaling_data *data,
                           struct tm_error *e);

struct tm_scaling_fit {
    double a, b, c;                   /* of the speed-up's logistic curve */
    double a_error, b_error, c_error; /* one standard error of each; NaN where there are no more points than unknowns */
    double work_s, exchange_s, latency_s;
    double logistic_percent; /* mean of |measured - curve| / max of both, in speed-up: S(n) itself */
    double estimate_percent; /* the same for DeepVM's estimate: tangent below b, S above */
    double physical_percent; /* the same for the physical curve */
};

/* Needs the time of one instance (instances = 1) and at least three points. */
int tm_scaling_fit(const struct tm_scaling_data *data, struct tm_scaling_fit *out, struct tm_error *e);

#endif
