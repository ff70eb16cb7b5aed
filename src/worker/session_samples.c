/* The order of samples, for engines that keep it. */
#include "base/sample_order.h"
#include <tidemill.h>

int tidemill_sample_items(uint64_t seed, uint64_t items, uint64_t first, size_t count, uint64_t *out)
{
    if (items == 0) return 1;
    for (size_t i = 0; i < count; i++)
        out[i] = tm_sample_item(seed, items, first + i);
    return 0;
}

void tidemill_sample_keys(uint64_t seed, uint64_t step, uint32_t first, size_t count, uint16_t purpose, uint64_t *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = tm_sample_key(seed, step, first + (uint32_t)i, purpose);
}
