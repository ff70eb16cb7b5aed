#include "base/sample_order.h"

#include "base/random.h"

enum { ROUNDS = 6 };
static const uint32_t order_stream = 0x0D3E7000U; /* apart from the streams of dropout and of the start */
static const uint32_t key_stream = 0x70790000U;

/* A Feistel network over 2 x `half` bits: a permutation whatever its round function. */
static uint64_t scramble(uint64_t seed, uint64_t epoch, unsigned half, uint64_t x)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half;
    uint64_t right = x & mask;
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t counter[4] = {(uint32_t)right, (uint32_t)epoch, (uint32_t)(epoch >> 32) ^ round << 24, order_stream};
        uint32_t bits[4];
        tm_random_block(counter, key, bits);
        uint64_t next = left ^ (bits[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t tm_sample_item(uint64_t seed, uint64_t count, uint64_t index)
{
    unsigned half = 1;
    while (half < 32 && (uint64_t)1 << 2 * half < count)
        half++;
    uint64_t x = index % count;
    do { /* walk the cycle until it is back inside: the domain is less than 4 times as large */
        x = scramble(seed, index / count, half, x);
    } while (x >= count);
    return x;
}

uint64_t tm_sample_key(uint64_t seed, uint64_t step, uint32_t number, uint16_t purpose)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), number, key_stream + purpose};
    uint32_t bits[4];
    tm_random_block(counter, key, bits);
    return (bits[0] | (uint64_t)bits[1] << 32) & INT64_MAX;
}
