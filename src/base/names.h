/* A set of names with small numbers: the first name added is 0, the next 1, and so on. Looking up is O(1). */
#ifndef TM_BASE_NAMES_H
#define TM_BASE_NAMES_H

#include "base/arena.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct tm_names {
    struct tm_arena arena;
    const char **names; /* by number */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* open addressing; 0: free, else number + 1 */
    size_t slot_count;
    size_t max;
};

void tm_names_init(struct tm_names *names, size_t max);
void tm_names_deinit(struct tm_names *names);

/* Number of the name, or -1. */
long tm_names_find(const struct tm_names *names, const char *text, size_t length);
/* Number of the name, which is added if it is new; or a negative code (-TM_ENOMEM, -TM_ELIMIT). */
long tm_names_add(struct tm_names *names, const char *text, size_t length);

#endif
