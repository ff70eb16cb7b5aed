/* Seeded counter-based random numbers (Philox4x32-10, Salmon et al., SC 2011).
 *
 * A number is a pure function of (seed, stream, counter): there is no hidden state, so parts of a program that draw
 * from different streams cannot disturb each other, and any draw can be repeated alone. */
#ifndef TM_BASE_RANDOM_H
#define TM_BASE_RANDOM_H

#include <stdint.h>

/* The block function itself: 128 random bits for (counter, key). */
void tm_random_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A sequence of numbers: the caller owns the struct and may copy it. */
struct tm_random {
    uint64_t seed;
    uint64_t stream;
    uint64_t position; /* of the next 64-bit number */
};

struct tm_random tm_random_make(uint64_t seed, uint64_t stream);
uint64_t tm_random_u64(struct tm_random *random);
double tm_random_unit(struct tm_random *random);                     /* uniform in [0, 1) */
uint64_t tm_random_below(struct tm_random *random, uint64_t limit);  /* uniform in [0, limit), unbiased; limit > 0 */
double tm_random_exponential(struct tm_random *random, double mean); /* > 0 */

#endif
