#include "base/alloc.h"
#include "store/store_internal.h"

#include <assert.h>
#include <stdlib.h>

enum { SETS_MAX = 1 << 20 };

int tm_copy_sets__add(struct tm_copy_sets *sets, uint64_t set, struct tm_error *e)
{
    if (sets->count > 0 && sets->list[sets->count - 1] == set) return 0;
    int rc = tm_grow((void **)&sets->list, &sets->capacity, sets->count + 1, sizeof *sets->list, SETS_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "no room for the names of %zu files", sets->count + 1);
    sets->list[sets->count++] = set;
    return 0;
}

static int higher_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? 1 : -(x > y);
}

void tm_copy_sets__sort(struct tm_copy_sets *sets)
{
    if (sets->count > 1) qsort(sets->list, sets->count, sizeof *sets->list, higher_first);
}

static bool has(const uint64_t *list, size_t count, uint64_t set)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == set) return true;
    return false;
}

int tm_copy_sets__sweep(struct tm_copy_store *store, const struct tm_copy_sets *parts,
                        const struct tm_copy_sets *sealed, uint64_t below, const uint64_t *keep, size_t keep_count,
                        struct tm_error *e)
{
    int rc = 0;
    assert(keep != NULL || keep_count == 0);
    for (size_t i = 0; i < parts->count; i++) {
        uint64_t set = parts->list[i];
        if (set == 0 || set >= below || has(sealed->list, sealed->count, set) || has(keep, keep_count, set)) continue;
        int dropped = store->drop(store, set, rc == 0 ? e : NULL);
        if (rc == 0) rc = dropped;
    }
    return rc;
}
