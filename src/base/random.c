#include "base/random.h"

#include <math.h>

static void mul_high_low(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low)
{
    uint64_t product = (uint64_t)a * b;
    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
}

void tm_random_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint32_t high0;
        uint32_t low0;
        uint32_t high1;
        uint32_t low1;
        mul_high_low(0xD2511F53U, c[0], &high0, &low0);
        mul_high_low(0xCD9E8D57U, c[2], &high1, &low1);
        uint32_t next[4] = {high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9U; /* Weyl sequences of the golden ratio and of sqrt(3) - 1 */
        k[1] += 0xBB67AE85U;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

struct tm_random tm_random_make(uint64_t seed, uint64_t stream)
{
    return (struct tm_random){.seed = seed, .stream = stream};
}

uint64_t tm_random_u64(struct tm_random *random)
{
    uint64_t block = random->position / 2;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)random->stream,
                           (uint32_t)(random->stream >> 32)};
    uint32_t key[2] = {(uint32_t)random->seed, (uint32_t)(random->seed >> 32)};
    uint32_t bits[4];
    tm_random_block(counter, key, bits);
    unsigned half = (unsigned)(random->position % 2) * 2;
    random->position++;
    return (uint64_t)bits[half + 1] << 32 | bits[half];
}

double tm_random_unit(struct tm_random *random)
{
    return (double)(tm_random_u64(random) >> 11) * 0x1p-53;
}

uint64_t tm_random_below(struct tm_random *random, uint64_t limit)
{
    /* Draws under `reject` would make small results likelier than others: draw again. */
    uint64_t reject = (0 - limit) % limit;
    uint64_t bits;
    do {
        bits = tm_random_u64(random);
    } while (bits < reject);
    return bits % limit;
}

double tm_random_exponential(struct tm_random *random, double mean)
{
    double unit = tm_random_unit(random);
    return -mean * log1p(unit > 0 ? -unit : -0x1p-54);
}
