#include "layout/shares.h"

#include <assert.h>

uint32_t tm_slowness(double slowness)
{
    if (!(slowness > 0)) return TM_SLOWNESS_USUAL;
    double thousandths = slowness * TM_SLOWNESS_USUAL + 0.5;
    if (thousandths >= TM_SLOWNESS_MAX) return TM_SLOWNESS_MAX;
    return thousandths < 1 ? 1 : (uint32_t)thousandths;
}

static uint64_t time_of(uint32_t slowness, uint64_t share, uint32_t stages)
{
    return (share + stages - 1) * slowness;
}

uint64_t tm_shares_time(const uint32_t *slowness, const uint32_t *shares, uint32_t pipelines, uint32_t stages)
{
    uint64_t longest = 0;
    for (uint32_t p = 0; p < pipelines; p++) {
        uint64_t time = time_of(slowness[p], shares[p], stages);
        if (time > longest) longest = time;
    }
    return longest;
}

/* How many a pipeline does in a time; at least one, whatever it takes. */
static uint64_t done_in(uint64_t time, uint32_t slowness, uint32_t stages)
{
    uint64_t count = time / slowness;
    return count > stages ? count - (stages - 1) : 1;
}

static uint64_t all_done_in(uint64_t time, const uint32_t *slowness, uint32_t pipelines, uint32_t stages)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < pipelines; p++)
        sum += done_in(time, slowness[p], stages);
    return sum;
}

/* The least time in which all are done. */
static uint64_t least_time(const uint32_t *slowness, uint32_t pipelines, uint32_t stages, uint32_t micro_batches)
{
    uint64_t low = 0, high = time_of(TM_SLOWNESS_MAX, micro_batches, stages);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (all_done_in(middle, slowness, pipelines, stages) >= micro_batches)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint64_t tm_shares_make(const uint32_t *slowness, uint32_t pipelines, uint32_t stages, uint32_t micro_batches,
                        uint32_t *out)
{
    assert(pipelines > 0 && stages > 0 && micro_batches >= pipelines);
    uint64_t time = least_time(slowness, pipelines, stages, micro_batches), sum = 0;
    for (uint32_t p = 0; p < pipelines; p++) {
        out[p] = (uint32_t)done_in(time, slowness[p], stages);
        sum += out[p];
    }
    /* In a thousandth less they would not all be done, so fewer than one for each pipeline are too many. */
    for (; sum > micro_batches; sum--) {
        uint32_t latest = pipelines;
        for (uint32_t p = 0; p < pipelines; p++) {
            if (out[p] == 1) continue;
            if (latest == pipelines ||
                time_of(slowness[p], out[p], stages) >= time_of(slowness[latest], out[latest], stages))
                latest = p;
        }
        assert(latest < pipelines); /* else there were as many as pipelines */
        out[latest]--;
    }
    return tm_shares_time(slowness, out, pipelines, stages);
}
