/* Which instances go? A layout cares how many replicas of each stage are left, not which; so all ways to lose `lost`
 * of a fleet are counted by what they leave (a multivariate hypergeometric distribution), not sampled. */
#ifndef TM_LAYOUT_LOSSES_H
#define TM_LAYOUT_LOSSES_H

#include "layout/shapes.h"

/* What a loss leaves: replicas of each stage, and how likely it is. */
struct tm_survivors {
    int stages;
    int left[TM_SHAPE_STAGES_MAX];
    double probability;
};

/* Every way to lose is visited once where there are at most so many; else that many are drawn, from a fixed seed. */
enum { TM_LOSSES_COUNTED_MAX = 6000 };

typedef void (*tm_losses_visit)(void *context, const struct tm_survivors *survivors);

/* Visits what losing `lost` of the pipelines x stages + spares instances may leave, all equally likely to go. Returns
 * true if all ways were counted, false if they were drawn. lost <= the fleet. */
bool tm_losses_each(int pipelines, int stages, int spares, int lost, tm_losses_visit visit, void *context);

/* The probability that every stage keeps at least `keep` of its `pipelines` replicas: exact for any size. */
double tm_losses_keep_probability(int pipelines, int stages, int spares, int lost, int keep);

#endif
