/* Which instances go? A layout cares how many replicas of each stage are left, not which; so all ways to lose `lost`
 * of a fleet are counted by what they leave (a multivariate hypergeometric distribution), not sampled. */
#ifndef TM_LAYOUT_LOSSES_H
#define TM_LAYOUT_LOSSES_H

#include "layout/layouts.h"

/* What a loss leaves: replicas of each stage, and how likely it is. */
struct tm_survivors {
    int stages;
    int left[TM_LAYOUT_STAGES_MAX];
    double probability;
};

/* A fleet whose workers are lost by instances, as one of instances: each has neighbouring stages of one pipeline, or
 * whole pipelines. */
struct tm_blocks {
    int pipelines, stages, spares, lost; /* in instances */
    int depth;                           /* stages that one has ... */
    int width;                           /* ... of so many pipelines */
};

/* So many `each`: an instance's stages stand beside each other, as the coordinator seats them. Where an instance's
 * workers do not divide the stages, nor the pipelines, or the figures are not of whole instances, every worker is taken
 * for lost by itself. */
struct tm_blocks tm_losses__blocks(int pipelines, int stages, int spares, int lost, int each);
/* What the loss of instances leaves of `stages` stages. */
void tm_losses__expand(const struct tm_blocks *blocks, const struct tm_survivors *survivors, int stages,
                       struct tm_survivors *out);

/* Every way to lose is visited once where there are at most TM_LOSSES_COUNTED_MAX; else TM_LOSSES_DRAWN are drawn, from
 * a fixed seed. */
enum { TM_LOSSES_COUNTED_MAX = 6000, TM_LOSSES_DRAWN = 512 };

/* Are there so few ways that they are counted? */
bool tm_losses__are_few(int pipelines, int stages, int spares, int lost);

typedef void (*tm_losses_visit)(void *context, const struct tm_survivors *survivors);

/* Visits what losing `lost` of the pipelines x stages + spares instances may leave, all equally likely to go. Returns
 * true if all ways were counted, false if they were drawn. lost <= the fleet. */
bool tm_losses__each(int pipelines, int stages, int spares, int lost, tm_losses_visit visit, void *context);

/* Going through the stages one by one: still_kept[i] is the probability that each of the first i keeps at least `keep`
 * of its replicas, for i from 0 to `stages`. Exact for any size; O(stages x lost^2). */
void tm_losses__kept(int pipelines, int stages, int spares, int lost, int keep, double *still_kept);

/* The probability that every stage keeps at least `keep` of its `pipelines` replicas: exact for any size. `each`: as
 * tm_losses__blocks. */
double tm_losses_keep_probability(int pipelines, int stages, int spares, int lost, int each, int keep);

#endif
