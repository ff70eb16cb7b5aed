#include "wire/hash.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* for the size of its state */
#include <xxhash.h>

enum { PIECE_BYTES = 1 << 17 }; /* stays in a core's own cache */

struct tm_hash tm_hash_of(const void *data, size_t length)
{
    assert(data != NULL || length == 0);
    XXH128_hash_t hash = XXH3_128bits(data, length);
    return (struct tm_hash){.low = hash.low64, .high = hash.high64};
}

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct tm_hasher), "the state of XXH3 fits");

void tm_hasher_init(struct tm_hasher *hasher)
{
    *hasher = (struct tm_hasher){.state = {0}};
    (void)XXH3_128bits_reset((XXH3_state_t *)(void *)hasher->state);
}

void tm_hasher_add(struct tm_hasher *hasher, const void *data, size_t length)
{
    assert(data != NULL || length == 0);
    (void)XXH3_128bits_update((XXH3_state_t *)(void *)hasher->state, data, length);
}

struct tm_hash tm_hasher_end(const struct tm_hasher *hasher)
{
    XXH128_hash_t hash = XXH3_128bits_digest((const XXH3_state_t *)(const void *)hasher->state);
    return (struct tm_hash){.low = hash.low64, .high = hash.high64};
}

struct tm_hash tm_hash_copy(void *to, const void *from, size_t length)
{
    assert((to != NULL && from != NULL) || length == 0);
    assert((const char *)to + length <= (const char *)from || (const char *)from + length <= (const char *)to);
    struct tm_hasher hasher;
    tm_hasher_init(&hasher);
    for (size_t at = 0; at < length; at += PIECE_BYTES) {
        size_t piece = length - at < PIECE_BYTES ? length - at : PIECE_BYTES;
        memcpy((char *)to + at, (const char *)from + at, piece);
        tm_hasher_add(&hasher, (const char *)to + at, piece);
    }
    return tm_hasher_end(&hasher);
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
