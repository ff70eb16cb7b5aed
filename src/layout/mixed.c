#include "layout/mixed.h"

#include "layout/shares.h"

#include <assert.h>
#include <math.h>

struct kinds {
    int order[TM_MIXED_KINDS_MAX]; /* of those that are there, the fastest first */
    int count;
};

static void sort_kinds(const int *counts, const double *speeds, int kinds, struct kinds *out)
{
    assert(kinds <= TM_MIXED_KINDS_MAX);
    out->count = 0;
    for (int i = 0; i < kinds; i++) {
        if (counts[i] <= 0) continue;
        int at = out->count++;
        for (; at > 0 && speeds[out->order[at - 1]] < speeds[i]; at--)
            out->order[at] = out->order[at - 1];
        out->order[at] = i;
    }
}

/* What steps of equal instances take over those of these; `slowness` by pipeline. */
static double shared_out(const uint32_t *slowness, uint32_t pipelines, uint32_t stages, uint32_t micro_batches)
{
    static _Thread_local uint32_t shares[TM_LAYOUT_INSTANCES_MAX];
    uint64_t mixed = tm_shares_make(slowness, pipelines, stages, micro_batches, shares);
    uint64_t equal = (uint64_t)((micro_batches + pipelines - 1) / pipelines + stages - 1) * TM_SLOWNESS_USUAL;
    return (double)equal / (double)mixed;
}

double tm_layout_mixed(const struct tm_layouts *layouts, int layout, const int *counts, const double *speeds, int kinds)
{
    static _Thread_local uint32_t slowness[TM_LAYOUT_INSTANCES_MAX];
    const struct tm_layout *it = &layouts->list[layout];
    struct kinds sorted;
    sort_kinds(counts, speeds, kinds, &sorted);
    if (sorted.count == 0) return 1;
    double fastest = speeds[sorted.order[0]], slowest = speeds[sorted.order[sorted.count - 1]], sum = 0;
    if (fastest == slowest || !(slowest > 0)) return slowest;
    int seated = 0, at = 0;
    for (int p = 0; p < it->pipelines; p++) {
        for (seated += it->stages; at + 1 < sorted.count && seated > counts[sorted.order[at]]; at++)
            seated -= counts[sorted.order[at]];
        double speed = speeds[sorted.order[at]]; /* of the pipeline's last, and slowest */
        slowness[p] = tm_slowness(1 / speed);
        sum += speed;
    }
    if (it->pipelines == 0) return slowest;
    bool whole = layouts->micro_batches >= it->pipelines && layouts->micro_batches < 1 << 24;
    if (!whole) return sum / it->pipelines;
    return shared_out(slowness, (uint32_t)it->pipelines, (uint32_t)it->stages, (uint32_t)layouts->micro_batches);
}
