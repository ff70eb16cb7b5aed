/* Online correction: what a running job's own steps say about its prediction.
 *
 * The prediction is a log-normal belief about the step time; observed steps are evidence. The belief moves to the
 * median of what was seen, the further the more steps there are and the less sure it was; its interval narrows, but not
 * below the steps' own spread. */
#ifndef TM_WORKLOAD_OBSERVED_H
#define TM_WORKLOAD_OBSERVED_H

#include "workload/predict.h"

enum { TM_OBSERVED_STEPS_MAX = 1 << 20 };

struct tm_observed {
    double *step_s; /* owned */
    size_t count;
    size_t capacity;
};

void tm_observed_init(struct tm_observed *observed);
void tm_observed_deinit(struct tm_observed *observed);
/* One time in seconds a line, or CSV with a column step_s. */
int tm_observed_load(struct tm_env *env, const char *path, struct tm_observed *observed, struct tm_error *e);
int tm_observed_parse(const char *file, const char *text, size_t length, struct tm_observed *observed,
                      struct tm_error *e);

/* Moves step time, throughput and the parts of `prediction`. Returns the factor by which the step time changed. The
 * order of the observed steps is lost. */
double tm_observed_correct(struct tm_observed *observed, struct tm_prediction *prediction);

#endif
