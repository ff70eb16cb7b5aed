/* What names the bytes of a layer: XXH3-128. It finds damage; it does not defend against an enemy (TLS does). */
#ifndef TM_WIRE_HASH_H
#define TM_WIRE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_hash {
    uint64_t low;
    uint64_t high;
};

struct tm_hash tm_hash_of(const void *data, size_t length);
/* The same while the bytes are copied: read once. */
struct tm_hash tm_hash_copy(void *to, const void *from, size_t length);
/* The same piece by piece. */
struct tm_hasher {
    _Alignas(64) unsigned char state[640];
};
void tm_hasher_init(struct tm_hasher *hasher);
void tm_hasher_add(struct tm_hasher *hasher, const void *data, size_t length);
struct tm_hash tm_hasher_end(const struct tm_hasher *hasher);
bool tm_hash_equal(struct tm_hash a, struct tm_hash b);
/* 32 hexadecimal digits; returns the buffer. */
const char *tm_hash_print(struct tm_hash hash, char buffer[33]);

#endif
