#include "store/copies.h"

#include "base/alloc.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { UNLISTED_SETS_KEPT = 2 };

void tm_copies_init(struct tm_copies *copies, uint64_t bytes_max, struct tm_block_pool *pool)
{
    assert(pool != NULL);
    *copies = (struct tm_copies){.bytes_max = bytes_max, .pool = pool};
}

static void drop(struct tm_copies *copies, size_t i)
{
    assert(i < copies->count && copies->bytes >= copies->parts[i].name.size);
    copies->bytes -= copies->parts[i].name.size;
    tm_block_release(copies->parts[i].block);
    copies->parts[i] = copies->parts[--copies->count];
}

void tm_copies_deinit(struct tm_copies *copies)
{
    while (copies->count > 0)
        drop(copies, copies->count - 1);
    tm_free(copies->parts);
    *copies = (struct tm_copies){.bytes_max = copies->bytes_max, .pool = copies->pool};
}

static size_t place_of(const struct tm_copies *copies, uint64_t set, uint32_t layer)
{
    size_t i = 0;
    while (i < copies->count && (copies->parts[i].name.set != set || copies->parts[i].name.layer != layer))
        i++;
    return i;
}

static bool same_part(const struct tm_copy_name *a, const struct tm_copy_name *b)
{
    return a->step == b->step && a->generation == b->generation && a->size == b->size &&
           tm_hash_equal(a->hash, b->hash);
}

/* `block` NULL: one for bytes to come. */
static int add(struct tm_copies *copies, const struct tm_copy_name *name, struct tm_block *block, struct tm_error *e)
{
    assert(copies->bytes <= copies->bytes_max && copies->count <= copies->capacity);
    assert(block == NULL || block->size == name->size);
    if (name->size == 0 || name->size > copies->bytes_max || copies->bytes > copies->bytes_max - name->size)
        return tm_error_set(e, TM_ELIMIT, "no space for a copy of %" PRIu64 " bytes: %" PRIu64 " of %" PRIu64 " in use",
                            name->size, copies->bytes, copies->bytes_max);
    int rc = tm_grow((void **)&copies->parts, &copies->capacity, copies->count + 1, sizeof *copies->parts,
                     TM_COPY_PARTS_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "no room for another copy");
    block = block != NULL ? tm_block_share(block) : tm_block_create(copies->pool, name->size);
    if (block == NULL) return tm_error_nomem(e);
    copies->parts[copies->count++] = (struct tm_copy_part){.name = *name, .block = block};
    copies->bytes += name->size;
    return 0;
}

int tm_copies_put(struct tm_copies *copies, const struct tm_copy_name *name, uint64_t offset, const void *data,
                  size_t length, uint64_t *out_received, struct tm_error *e)
{
    assert(out_received != NULL && (data != NULL || length == 0));
    size_t i = place_of(copies, name->set, name->layer);
    if (i < copies->count && !same_part(&copies->parts[i].name, name)) {
        drop(copies, i); /* the set was begun again by another source: only one of them will be finished */
        i = copies->count;
    }
    if (i == copies->count) {
        int rc = add(copies, name, NULL, e);
        if (rc != 0) return rc;
        i = copies->count - 1;
    }
    struct tm_copy_part *part = &copies->parts[i];
    if (offset == part->received && length <= part->name.size - part->received) {
        if (length > 0) memcpy(part->block->data + offset, data, length);
        part->received += length;
    }
    assert(part->received <= part->name.size);
    if (part->received == part->name.size && !part->complete) {
        if (!tm_hash_equal(tm_hash_of(part->block->data, part->name.size), part->name.hash)) {
            drop(copies, i);
            return tm_error_set(e, TM_EINPUT, "copy of layer %" PRIu32 " was damaged on its way", name->layer);
        }
        part->complete = true;
    }
    *out_received = part->received;
    return 0;
}

int tm_copies_share(struct tm_copies *copies, const struct tm_copy_name *name, struct tm_block *block,
                    struct tm_error *e)
{
    assert(block != NULL && block->size == name->size);
    size_t i = place_of(copies, name->set, name->layer);
    if (i < copies->count && copies->parts[i].complete && same_part(&copies->parts[i].name, name)) return 0;
    if (i < copies->count) drop(copies, i);
    int rc = add(copies, name, block, e);
    if (rc != 0) return rc;
    copies->parts[copies->count - 1].received = name->size;
    copies->parts[copies->count - 1].complete = true;
    return 0;
}

const struct tm_copy_part *tm_copies_find(const struct tm_copies *copies, uint64_t set, uint32_t layer)
{
    size_t i = place_of(copies, set, layer);
    return i < copies->count && copies->parts[i].complete ? &copies->parts[i] : NULL;
}

static bool listed(const uint64_t *keep, size_t keep_count, uint64_t set)
{
    for (size_t k = 0; k < keep_count; k++)
        if (keep[k] == set) return true;
    return false;
}

/* How many other unlisted sets are newer? */
static size_t newer_than(const struct tm_copies *copies, const struct tm_copy_part *part, const uint64_t *keep,
                         size_t keep_count)
{
    assert(part >= copies->parts && part < copies->parts + copies->count);
    uint64_t first = 0;
    size_t count = 0;
    for (size_t i = 0; i < copies->count; i++) {
        const struct tm_copy_part *other = &copies->parts[i];
        if (other->name.set <= part->name.set || !other->complete || other->name.set == first) continue;
        if (listed(keep, keep_count, other->name.set)) continue;
        first = other->name.set;
        count++;
    }
    return count;
}

void tm_copies_keep(struct tm_copies *copies, const uint64_t *keep, size_t keep_count, uint64_t newest,
                    uint64_t durable_step)
{
    assert(keep != NULL || keep_count == 0);
    for (size_t i = copies->count; i-- > 0;) {
        const struct tm_copy_part *part = &copies->parts[i];
        if (part->name.set > newest || listed(keep, keep_count, part->name.set)) continue;
        bool precious = part->complete && part->name.step > durable_step;
        if (!precious || newer_than(copies, part, keep, keep_count) >= UNLISTED_SETS_KEPT) drop(copies, i);
    }
}
