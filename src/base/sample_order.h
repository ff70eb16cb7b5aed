/* Which sample comes when: sample i of a job is item permute(i % n) of epoch i / n, where each epoch has its own
 * keyed permutation of all n items. So every item is used exactly once an epoch, whatever the layout, and any place
 * in the order is found without walking to it. python/tidemill/samples.py has the same functions. */
#ifndef TM_BASE_SAMPLE_ORDER_H
#define TM_BASE_SAMPLE_ORDER_H

#include <stdint.h>

/* The item of sample `index`; count > 0, the number of items. */
uint64_t tm_sample_item(uint64_t seed, uint64_t count, uint64_t index);

/* 63 bits that seed what a sample or a micro-batch draws: of (seed, step, number), different for each purpose. */
uint64_t tm_sample_key(uint64_t seed, uint64_t step, uint32_t number, uint16_t purpose);

#endif
