/* Gradients as integers, so that sums do not depend on how micro-batches are grouped.
 *
 * Each micro-batch's gradient is computed from zero by one thread, multiplied by 2^scale and rounded; integers are
 * added in any order to the same sum. A tensor's scale is part of the committed state. No sum may overflow, whatever
 * the grouping: so every single value must stay below 2^31 / (values that are added), and a step in which one does not
 * is redone with a smaller scale. Both that and the scale of the next step depend on the largest |gradient| of any
 * micro-batch alone, which no grouping changes. */
#ifndef TM_ENGINE_FIXED_POINT_H
#define TM_ENGINE_FIXED_POINT_H

#include <stdbool.h>
#include <stdint.h>

/* The largest |round(g * 2^scale)| of which `addends` can be added. */
double tm_fixed__limit(int64_t addends);

/* The scale a tensor starts with: |g| up to 1 fits. */
int32_t tm_fixed__start(int64_t addends);

/* Does the largest |g| fit at this scale? */
bool tm_fixed__fits(float largest, int32_t scale, int64_t addends);

/* The scale that leaves two bits of room above the largest |g|: for a step that is redone. */
int32_t tm_fixed__best(float largest, int64_t addends);

/* The scale of the next step: as it is while the largest |g| lies within 1 to 6 bits below the limit, else the best. */
int32_t tm_fixed__next(float largest, int32_t scale, int64_t addends);

/* 2^scale as a float; scales are kept within [-100, 100]. */
float tm_fixed__unit(int32_t scale);

#endif
