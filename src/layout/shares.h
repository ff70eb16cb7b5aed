/* Shares: how many of a step's micro-batches each pipeline gets where instances are not equally fast, so that none
 * waits for another. The sum of a step is made of the same integers whoever computed them, so shares change no bit.
 *
 * Whole numbers in and out, and no rounding: the same slownesses give the same shares on every machine. They are facts
 * of a generation: its layout in the record names each member's slowness and each pipeline's share, and whoever reads
 * it can share out again and must find the same. */
#ifndef TM_LAYOUT_SHARES_H
#define TM_LAYOUT_SHARES_H

#include <stdint.h>

/* Slowness: the time of a micro-batch over that of an instance as fast as the layouts say, in thousandths. */
enum { TM_SLOWNESS_USUAL = 1000, TM_SLOWNESS_MAX = 1000000 };

/* 0 (not known) is as usual; else within 1 to TM_SLOWNESS_MAX. */
uint32_t tm_slowness(double slowness);

/* What the slowest pipeline takes, in thousandths of a usual micro-batch's time: with the fill and drain of `stages`.
 */
uint64_t tm_shares_time(const uint32_t *slowness, const uint32_t *shares, uint32_t pipelines, uint32_t stages);

/* Gives out all micro-batches (at least as many as pipelines), at least one to each pipeline, so that the slowest takes
 * as little as can be; returns what it takes, as tm_shares_time. `slowness` of a pipeline is that of its slowest
 * member. Of equal ways, pipelines that would be done later get less, and of those the last. */
uint64_t tm_shares_make(const uint32_t *slowness, uint32_t pipelines, uint32_t stages, uint32_t micro_batches,
                        uint32_t *out);

#endif
