/* Throughput of a layout on instances that are not equally fast: micro-batches are shared out (shares.h), and like
 * instances form pipelines. */
#ifndef TM_LAYOUT_MIXED_H
#define TM_LAYOUT_MIXED_H

#include "layout/layouts.h"

enum { TM_MIXED_KINDS_MAX = 64 };

/* Throughput on counts[i] instances of speeds[i] (throughput of one over that which the layouts say; > 0, or none of
 * them train), over the layout's own. The fastest have the seats; where there are fewer than seats, the slowest stand
 * for those that are missing. Of one speed alone it is that speed. `kinds` at most TM_MIXED_KINDS_MAX. */
double tm_layout_mixed(const struct tm_layouts *layouts, int layout, const int *counts, const double *speeds,
                       int kinds);

#endif
