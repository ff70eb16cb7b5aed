#include "store/copies.h"

#include "base/alloc.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 192, UNLISTED_SETS_KEPT = 2, PATH_BYTES = 4096 };

void tm_copies_init(struct tm_copies *copies, uint64_t bytes_max)
{
    *copies = (struct tm_copies){.bytes_max = bytes_max};
}

static void drop(struct tm_copies *copies, size_t i)
{
    copies->bytes -= copies->parts[i].name.size;
    tm_free(copies->parts[i].data);
    copies->parts[i] = copies->parts[--copies->count];
}

void tm_copies_deinit(struct tm_copies *copies)
{
    while (copies->count > 0)
        drop(copies, copies->count - 1);
    tm_free(copies->parts);
    *copies = (struct tm_copies){.bytes_max = copies->bytes_max};
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

static int add(struct tm_copies *copies, const struct tm_copy_name *name, struct tm_error *e)
{
    if (name->size == 0 || name->size > copies->bytes_max || copies->bytes > copies->bytes_max - name->size)
        return tm_error_set(e, TM_ELIMIT, "no room for a copy of %" PRIu64 " bytes: %" PRIu64 " of %" PRIu64 " in use",
                            name->size, copies->bytes, copies->bytes_max);
    int rc = tm_grow((void **)&copies->parts, &copies->capacity, copies->count + 1, sizeof *copies->parts,
                     TM_COPY_PARTS_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "no room for another copy");
    uint8_t *data = tm_alloc(name->size);
    if (data == NULL) return tm_error_nomem(e);
    copies->parts[copies->count++] = (struct tm_copy_part){.name = *name, .data = data};
    copies->bytes += name->size;
    return 0;
}

int tm_copies_put(struct tm_copies *copies, const struct tm_copy_name *name, uint64_t offset, const void *data,
                  size_t length, uint64_t *out_received, struct tm_error *e)
{
    size_t i = place_of(copies, name->set, name->layer);
    if (i < copies->count && !same_part(&copies->parts[i].name, name)) {
        drop(copies, i); /* the set was begun again by another source: only one of them will be finished */
        i = copies->count;
    }
    if (i == copies->count) {
        int rc = add(copies, name, e);
        if (rc != 0) return rc;
        i = copies->count - 1;
    }
    struct tm_copy_part *part = &copies->parts[i];
    if (offset == part->received && length <= part->name.size - part->received) {
        if (length > 0) memcpy(part->data + offset, data, length);
        part->received += length;
    }
    if (part->received == part->name.size && !part->complete) {
        if (!tm_hash_equal(tm_hash_of(part->data, part->name.size), part->name.hash)) {
            drop(copies, i);
            return tm_error_set(e, TM_EINPUT, "copy of layer %" PRIu32 " was damaged on its way", name->layer);
        }
        part->complete = true;
    }
    *out_received = part->received;
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
    for (size_t i = copies->count; i-- > 0;) {
        const struct tm_copy_part *part = &copies->parts[i];
        if (part->name.set > newest || listed(keep, keep_count, part->name.set)) continue;
        bool precious = part->complete && part->name.step > durable_step;
        if (!precious || newer_than(copies, part, keep, keep_count) >= UNLISTED_SETS_KEPT) drop(copies, i);
    }
}

/* ---- as files ---- */

void tm_copy_file_encode(const struct tm_copy_name *name, const void *data, struct tm_text *out)
{
    char head[HEAD_BYTES];
    memset(head, ' ', sizeof head);
    int length =
        snprintf(head, sizeof head,
                 "tidemill-copy 1 set %" PRIu64 " step %" PRIu64 " generation %" PRIu64 " layer %" PRIu32
                 " bytes %" PRIu64 " xxh3-128 %016" PRIx64 "%016" PRIx64,
                 name->set, name->step, name->generation, name->layer, name->size, name->hash.high, name->hash.low);
    head[length] = ' ';
    head[HEAD_BYTES - 1] = '\n';
    tm_text_append(out, head, sizeof head);
    tm_text_append(out, data, name->size);
}

int tm_copy_file_decode(const void *file, size_t length, struct tm_copy_name *out, const void **out_data,
                        struct tm_error *e)
{
    char head[HEAD_BYTES];
    struct tm_copy_name name;
    if (length < sizeof head) return tm_error_set(e, TM_EINPUT, "not a copy: only %zu bytes", length);
    memcpy(head, file, sizeof head);
    if (head[HEAD_BYTES - 1] != '\n') return tm_error_set(e, TM_EINPUT, "not a copy: its head is damaged");
    head[HEAD_BYTES - 1] = '\0';
    int got = sscanf(head,
                     "tidemill-copy 1 set %" SCNu64 " step %" SCNu64 " generation %" SCNu64 " layer %" SCNu32
                     " bytes %" SCNu64 " xxh3-128 %16" SCNx64 "%16" SCNx64,
                     &name.set, &name.step, &name.generation, &name.layer, &name.size, &name.hash.high, &name.hash.low);
    if (got != 7) return tm_error_set(e, TM_EINPUT, "not a copy: its head is damaged");
    const uint8_t *data = (const uint8_t *)file + sizeof head;
    if (name.size != length - sizeof head)
        return tm_error_set(e, TM_EINPUT, "copy of layer %" PRIu32 ": %zu bytes of %" PRIu64, name.layer,
                            length - sizeof head, name.size);
    if (!tm_hash_equal(tm_hash_of(data, name.size), name.hash))
        return tm_error_set(e, TM_EINPUT, "copy of layer %" PRIu32 ": damaged, its hash is not what its head says",
                            name.layer);
    *out = name;
    *out_data = data;
    return 0;
}

int tm_copy_newest_set(struct tm_env *env, const char *folder, uint64_t *out, struct tm_error *e)
{
    char path[PATH_BYTES];
    struct tm_text text;
    int64_t set = 0;
    (void)snprintf(path, sizeof path, "%s/newest", folder);
    tm_text_init(&text, 64);
    int rc = env->file_read(env, path, &text, e);
    if (rc == -(int)TM_ENOTFOUND) rc = tm_error_set(e, TM_ENOTFOUND, "%s: there is no whole copy set yet", folder);
    if (rc == 0) {
        size_t length = strcspn(tm_text_string(&text), "\n");
        if (!tm_number_i64(tm_text_string(&text), length, &set) || set <= 0)
            rc = tm_error_set(e, TM_EINPUT, "%s: not the number of a copy set", path);
    }
    tm_text_deinit(&text);
    if (rc == 0) *out = (uint64_t)set;
    return rc;
}
