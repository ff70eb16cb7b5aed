#include "wire/hash.h"

#include <xxhash.h>

struct tm_hash tm_hash_of(const void *data, size_t length)
{
    XXH128_hash_t hash = XXH3_128bits(data, length);
    return (struct tm_hash){.low = hash.low64, .high = hash.high64};
}

bool tm_hash_equal(struct tm_hash a, struct tm_hash b)
{
    return a.low == b.low && a.high == b.high;
}
