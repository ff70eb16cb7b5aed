#include "wire/hash.h"

#include <stdio.h>
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

const char *tm_hash_print(struct tm_hash hash, char buffer[33])
{
    (void)snprintf(buffer, 33, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
    return buffer;
}
