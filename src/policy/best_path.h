/* The best way through a future that is known: what look-ahead would find if it kept every way that may be the best.
 *
 * Look-ahead keeps, for each layout, the way with most samples among those whose migration is still under way, as
 * Parcae's optimizer does; another with fewer samples but less of its migration left may yield more in the end. Here
 * all are kept that no other beats in both, and the job may pause of its own accord where a migration would not last.
 * So the answer is exact: no sequence of layouts yields more. */
#ifndef TM_POLICY_BEST_PATH_H
#define TM_POLICY_BEST_PATH_H

#include "policy/lookahead.h"

/* The best layout for each step to path[0..count-1], the samples of the whole to *samples (NULL: not wanted).
 * -TM_ELIMIT: too many ways to remember. */
int tm_best__path(const struct tm_layouts *layouts, struct tm_migrations *migrations, struct tm_standing start,
                  const struct tm_ahead *steps, size_t count, int *path, double *samples, struct tm_error *e);

#endif
