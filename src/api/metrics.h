/* A run's status for Prometheus, in its text format 0.0.4. doc/watch.md lists the names; they are kept. */
#ifndef TM_API_METRICS_H
#define TM_API_METRICS_H

#include "run/run_status.h"

void tm_metrics__write(const struct tm_run_status *status, struct tm_text *out);

#endif
