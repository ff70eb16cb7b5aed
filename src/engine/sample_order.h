/* Which sample comes when: sample i of a job is window permute(i % n) of epoch i / n, where each epoch has its own
 * keyed permutation of all n windows. So every window is used exactly once an epoch, whatever the layout, and any place
 * in the order is found without walking to it. */
#ifndef TM_ENGINE_SAMPLE_ORDER_H
#define TM_ENGINE_SAMPLE_ORDER_H

#include <stdint.h>

/* The window of sample `index`; count > 0. */
uint64_t tm_sample__window(uint64_t seed, uint64_t count, uint64_t index);

#endif
