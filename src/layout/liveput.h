/* Liveput: the throughput a layout is expected to keep over the losses that may come, how many AND which.
 *
 * After a loss the pipelines that can still be made whole by regrouping replicas within their stages are as many as the
 * stage that lost most has left; spares soak up losses but do not step in (that takes a migration, which migrate.h
 * prices). By counting, exact for any size. */
#ifndef TM_LAYOUT_LIVEPUT_H
#define TM_LAYOUT_LIVEPUT_H

#include "layout/losses.h"

/* Probability that at least 0, 1, ... `pipelines` whole pipelines are left when `lost` of a fleet go, to at_least[]. */
void tm_liveput_pipelines(int pipelines, int stages, int spares, int lost, double *at_least);

/* loss_pmf[k] is the probability that k instances go, k < loss_count; what is missing to 1 counts as no loss.
 * fleet >= the layout's instances. Layouts that have not been measured yield nothing. */
double tm_liveput(const struct tm_layouts *layouts, int layout, int fleet, const double *loss_pmf, int loss_count);

#endif
