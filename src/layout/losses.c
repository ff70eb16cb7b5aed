#include "layout/losses.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

struct tm_blocks tm_losses__blocks(int pipelines, int stages, int spares, int lost, int each)
{
    struct tm_blocks blocks = {pipelines, stages, spares, lost, 1, 1};
    if (each <= 1 || stages == 0 || spares % each != 0 || lost % each != 0) return blocks;
    if (stages % each == 0)
        blocks.depth = each;
    else if (each % stages == 0 && pipelines % (each / stages) == 0) {
        blocks.depth = stages;
        blocks.width = each / stages;
    } else
        return blocks;
    blocks.pipelines /= blocks.width;
    blocks.stages /= blocks.depth;
    blocks.spares /= each;
    blocks.lost /= each;
    return blocks;
}

void tm_losses__expand(const struct tm_blocks *blocks, const struct tm_survivors *survivors, int stages,
                       struct tm_survivors *out)
{
    out->stages = stages;
    out->probability = survivors->probability;
    for (int s = 0; s < stages; s++)
        out->left[s] = survivors->left[s / blocks->depth] * blocks->width;
}

static double choose(int n, int k)
{
    if (k < 0 || k > n) return 0;
    if (k > n - k) k = n - k;
    double value = 1;
    for (int i = 1; i <= k; i++)
        value *= (double)(n - k + i) / i;
    return value;
}

/* How many different leftovers there are: coefficients of (1 + x + ... + x^pipelines)^stages (1 + ... + x^spares),
 * cut off at the limit. */
bool tm_losses__are_few(int pipelines, int stages, int spares, int lost)
{
    enum { LOST_MAX = 64 };
    if (lost > LOST_MAX) return false;
    double ways[LOST_MAX + 1] = {1}, next[LOST_MAX + 1];
    for (int part = 0; part <= stages; part++) {
        int most = part == stages ? spares : pipelines;
        for (int sum = 0; sum <= lost; sum++) {
            next[sum] = 0;
            for (int taken = 0; taken <= most && taken <= sum; taken++)
                next[sum] += ways[sum - taken];
        }
        memcpy(ways, next, sizeof ways);
    }
    return ways[lost] <= TM_LOSSES_COUNTED_MAX;
}

struct counting {
    int pipelines;
    int spares;
    double choices[TM_LAYOUT_INSTANCES_MAX + 1]; /* of so many of one stage's replicas */
    double all;                                  /* ways to lose so many of the fleet */
    struct tm_survivors survivors;
    tm_losses_visit visit;
    void *context;
};

static void count_from(struct counting *counting, int stage, int lost, double ways)
{
    if (stage == counting->survivors.stages) {
        double of_spares = choose(counting->spares, lost);
        if (of_spares == 0) return;
        counting->survivors.probability = ways * of_spares / counting->all;
        counting->visit(counting->context, &counting->survivors);
        return;
    }
    int room = counting->pipelines * (counting->survivors.stages - stage - 1) + counting->spares;
    for (int taken = lost > room ? lost - room : 0; taken <= counting->pipelines && taken <= lost; taken++) {
        counting->survivors.left[stage] = counting->pipelines - taken;
        count_from(counting, stage + 1, lost - taken, ways * counting->choices[taken]);
    }
}

/* Draws without replacement: instance k < pipelines x stages holds stage k mod stages. */
static void draw_losses(struct counting *counting, int stages, int instances, int lost)
{
    struct tm_random random = tm_random_make(0x7469646d, (uint64_t)instances * 4096 + (uint64_t)lost);
    int ids[TM_LAYOUT_INSTANCES_MAX] = {0};
    for (int i = 0; i < instances; i++)
        ids[i] = i;
    counting->survivors.probability = 1.0 / TM_LOSSES_DRAWN;
    for (int draw = 0; draw < TM_LOSSES_DRAWN; draw++) {
        for (int s = 0; s < stages; s++)
            counting->survivors.left[s] = counting->pipelines;
        for (int i = 0; i < lost; i++) {
            int j = i + (int)tm_random_below(&random, (uint64_t)(instances - i));
            int id = ids[j];
            ids[j] = ids[i];
            ids[i] = id;
            if (id < counting->pipelines * stages) counting->survivors.left[id % stages]--;
        }
        counting->visit(counting->context, &counting->survivors);
    }
}

bool tm_losses__each(int pipelines, int stages, int spares, int lost, tm_losses_visit visit, void *context)
{
    int instances = pipelines * stages + spares;
    struct counting counting = {.pipelines = pipelines, .spares = spares, .visit = visit, .context = context};
    counting.survivors.stages = stages;
    if (!tm_losses__are_few(pipelines, stages, spares, lost)) {
        draw_losses(&counting, stages, instances, lost);
        return false;
    }
    for (int i = 0; i <= pipelines; i++)
        counting.choices[i] = choose(pipelines, i);
    counting.all = choose(instances, lost);
    count_from(&counting, 0, lost, 1);
    return true;
}

static double log_choose(int n, int k)
{
    return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0);
}

/* Of `rest` instances `to_lose` go; the probabilities that `taken` of one stage's `pipelines` are among them, for taken
 * from *first on. Few losses: by recurrence from the first; many: each by logarithms, since the first may underflow. */
static int stage_losses(int rest, int pipelines, int to_lose, int most, double *share)
{
    enum { FEW = 64 };
    int others = rest - pipelines, first = to_lose > others ? to_lose - others : 0;
    if (to_lose > FEW) {
        double all = log_choose(rest, to_lose);
        for (int taken = first; taken <= most && taken <= to_lose; taken++)
            share[taken] = exp(log_choose(pipelines, taken) + log_choose(others, to_lose - taken) - all);
        return first;
    }
    double next = choose(pipelines, first) * choose(others, to_lose - first) / choose(rest, to_lose);
    for (int taken = first; taken <= most && taken <= to_lose; taken++) {
        share[taken] = next;
        next *= (double)(pipelines - taken) * (to_lose - taken) / ((taken + 1.0) * (others - to_lose + taken + 1.0));
    }
    return first;
}

/* Adds one stage: chance[k] is the probability that the stages so far lost k, none of them too many. */
static double add_stage(double *chance, double *next, int lost, int rest, int pipelines, int most)
{
    double sum = 0, share[TM_LAYOUT_INSTANCES_MAX + 1];
    memset(next, 0, (size_t)(lost + 1) * sizeof *next);
    for (int before = 0; before <= lost; before++) {
        int to_lose = lost - before;
        if (chance[before] <= 0 || to_lose > rest) continue;
        int first = stage_losses(rest, pipelines, to_lose, most, share);
        for (int taken = first; taken <= most && taken <= to_lose; taken++) {
            next[before + taken] += chance[before] * share[taken];
            sum += chance[before] * share[taken];
        }
    }
    memcpy(chance, next, (size_t)(lost + 1) * sizeof *chance);
    return sum;
}

void tm_losses__kept(int pipelines, int stages, int spares, int lost, int keep, double *still_kept)
{
    double chance[TM_LAYOUT_INSTANCES_MAX + 1], next[TM_LAYOUT_INSTANCES_MAX + 1];
    memset(chance, 0, (size_t)(lost + 1) * sizeof *chance);
    chance[0] = 1;
    still_kept[0] = 1;
    for (int stage = 0; stage < stages; stage++) {
        double sum = keep > pipelines ? 0
                                      : add_stage(chance, next, lost, pipelines * (stages - stage) + spares, pipelines,
                                                  pipelines - keep);
        still_kept[stage + 1] = sum < 1 ? sum : 1;
    }
}

double tm_losses_keep_probability(int pipelines, int stages, int spares, int lost, int each, int keep)
{
    double still_kept[TM_LAYOUT_STAGES_MAX + 1];
    if (lost > pipelines * stages + spares) return 0;
    struct tm_blocks blocks = tm_losses__blocks(pipelines, stages, spares, lost, each);
    int whole = (keep + blocks.width - 1) / blocks.width;
    tm_losses__kept(blocks.pipelines, blocks.stages, blocks.spares, blocks.lost, whole, still_kept);
    return still_kept[blocks.stages];
}
