#include "base/names.h"

#include "base/alloc.h"

#include <string.h>

enum { SLOTS_MIN = 64, NAMES_BYTES_MAX = 1 << 28 };

void tm_names_init(struct tm_names *names, size_t max)
{
    *names = (struct tm_names){.max = max};
    tm_arena_init(&names->arena, NAMES_BYTES_MAX);
}

void tm_names_deinit(struct tm_names *names)
{
    tm_arena_deinit(&names->arena);
    tm_free(names->names);
    tm_free(names->slots);
    *names = (struct tm_names){.max = names->max};
}

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = 0xCBF29CE484222325U; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001B3U;
    return hash ^ hash >> 32;
}

/* The slot of the name, or the free slot where it would go. */
static size_t find_slot(const struct tm_names *names, const char *text, size_t length)
{
    size_t slot = hash_of(text, length) % names->slot_count;
    while (names->slots[slot] != 0) {
        const char *other = names->names[names->slots[slot] - 1];
        if (strncmp(other, text, length) == 0 && other[length] == '\0') break;
        slot = (slot + 1) % names->slot_count;
    }
    return slot;
}

static int grow_slots(struct tm_names *names)
{
    struct tm_names bigger = *names;
    bigger.slot_count = names->slot_count == 0 ? SLOTS_MIN : names->slot_count * 2;
    bigger.slots = tm_calloc(bigger.slot_count, sizeof *bigger.slots);
    if (bigger.slots == NULL) return -(int)TM_ENOMEM;
    for (size_t i = 0; i < names->count; i++)
        bigger.slots[find_slot(&bigger, names->names[i], strlen(names->names[i]))] = (uint32_t)i + 1;
    tm_free(names->slots);
    *names = bigger;
    return 0;
}

long tm_names_find(const struct tm_names *names, const char *text, size_t length)
{
    if (names->slot_count == 0) return -1;
    uint32_t found = names->slots[find_slot(names, text, length)];
    return found == 0 ? -1 : (long)found - 1;
}

long tm_names_add(struct tm_names *names, const char *text, size_t length)
{
    long found = tm_names_find(names, text, length);
    if (found >= 0) return found;
    void *array = (void *)names->names;
    int rc = tm_grow(&array, &names->capacity, names->count + 1, sizeof *names->names, names->max);
    names->names = array;
    if (rc == 0 && (names->count + 1) * 2 > names->slot_count) rc = grow_slots(names);
    if (rc != 0) return rc;
    char *copy = tm_arena_strndup(&names->arena, text, length);
    if (copy == NULL) return -(long)TM_ENOMEM;
    size_t slot = find_slot(names, copy, length);
    names->slots[slot] = (uint32_t)names->count + 1;
    names->names[names->count] = copy;
    return (long)names->count++;
}
