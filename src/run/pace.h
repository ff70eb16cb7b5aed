/* How far off a predicted step time is, by the steps that were seen. */
#ifndef TM_RUN_PACE_H
#define TM_RUN_PACE_H

#include <stddef.h>

/* The factor by which observed steps move the prediction (workload/observed.h): near 1 while there is little evidence.
 * `step_s` is sorted. */
double tm_pace__correction(double *step_s, size_t count, double predicted_s);

#endif
