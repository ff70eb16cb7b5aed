#include "store/store_internal.h"

#include "base/debug.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = TM_BLOCK_HEAD, PAGE_BYTES = TM_BLOCK_PAGE };

static const char head_start[] = "tidemill-copy 2 ";

size_t tm_copy_file_length(uint64_t size)
{
    return HEAD_BYTES + (size_t)((size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
}

/* ---- head and end ---- */

static void write_head(const struct tm_copy_name *name, char head[HEAD_BYTES])
{
    memset(head, ' ', HEAD_BYTES);
    int length = snprintf(head, HEAD_BYTES,
                          "%sset %" PRIu64 " step %" PRIu64 " generation %" PRIu64 " layer %" PRIu32 " bytes %" PRIu64
                          " xxh3-128 %016" PRIx64 "%016" PRIx64,
                          head_start, name->set, name->step, name->generation, name->layer, name->size, name->hash.high,
                          name->hash.low);
    uint64_t own = tm_hash_of(head, (size_t)length).low;
    length += snprintf(head + length, HEAD_BYTES - (size_t)length, " head %016" PRIx64, own);
    head[length] = ' ';
    head[HEAD_BYTES - 1] = '\n';
}

/* Only what write_head writes, its own hash included. */
int tm_copy_file__head(const void *from, struct tm_copy_name *out, struct tm_error *e)
{
    char head[HEAD_BYTES];
    char same[HEAD_BYTES];
    struct tm_copy_name name = {.set = 0};
    memcpy(head, from, sizeof head);
    if (memcmp(head, "tidemill-copy 1 ", sizeof head_start - 1) == 0)
        return tm_error_set(e, TM_EINPUT,
                            "is a copy in format 1, written by an earlier version of Tidemill: finish the job with "
                            "that version, or start over");
    head[HEAD_BYTES - 1] = '\0';
    int got = 0;
    if (memcmp(head, head_start, sizeof head_start - 1) == 0)
        got = sscanf(/* NOLINT(cert-err34-c): what was read is written again below, and must be the same */
                     head + sizeof head_start - 1,
                     "set %" SCNu64 " step %" SCNu64 " generation %" SCNu64 " layer %" SCNu32 " bytes %" SCNu64
                     " xxh3-128 %16" SCNx64 "%16" SCNx64,
                     &name.set, &name.step, &name.generation, &name.layer, &name.size, &name.hash.high, &name.hash.low);
    if (got == 7) write_head(&name, same);
    if (got != 7 || memcmp(from, same, sizeof same) != 0)
        return tm_error_set(e, TM_EINPUT, "not a copy: its header is damaged");
    *out = name;
    return 0;
}

static int wrong_length(const struct tm_copy_name *name, size_t length, struct tm_error *e)
{
    return tm_error_set(e, TM_EINPUT, "copy of layer %" PRIu32 ": its file has %zu bytes, not %zu", name->layer, length,
                        tm_copy_file_length(name->size));
}

static bool length_is_right(const struct tm_copy_name *name, size_t length)
{
    return name->size <= SIZE_MAX / 2 && tm_copy_file_length(name->size) == length;
}

/* The hash, and the zeros after the bytes. */
static int check(const struct tm_copy_name *name, struct tm_hash hash, const uint8_t *data, struct tm_error *e)
{
    bool good = tm_hash_equal(hash, name->hash);
    for (size_t i = (size_t)name->size; i % PAGE_BYTES != 0; i++)
        good = good && data[i] == 0;
    if (good) return 0;
    return tm_error_set(e, TM_EINPUT, "copy of layer %" PRIu32 ": damaged: its hash does not match its header",
                        name->layer);
}

/* ---- in memory ---- */

void tm_copy_file_encode(const struct tm_copy_name *name, const void *data, struct tm_text *out)
{
    assert(data != NULL && out != NULL);
    char head[HEAD_BYTES];
    static const char zeros[PAGE_BYTES];
    write_head(name, head);
    tm_text_append(out, head, sizeof head);
    tm_text_append(out, data, name->size);
    tm_text_append(out, zeros, tm_copy_file_length(name->size) - HEAD_BYTES - (size_t)name->size);
}

int tm_copy_file_decode(const void *file, size_t length, struct tm_copy_name *out, const void **out_data,
                        struct tm_error *e)
{
    assert(file != NULL || length == 0);
    struct tm_copy_name name;
    const uint8_t *data = (const uint8_t *)file + HEAD_BYTES;
    if (length < HEAD_BYTES) return tm_error_set(e, TM_EINPUT, "not a copy: only %zu bytes", length);
    int rc = tm_copy_file__head(file, &name, e);
    if (rc != 0) return rc;
    if (!length_is_right(&name, length)) return wrong_length(&name, length, e);
    rc = check(&name, tm_hash_of(data, (size_t)name.size), data, e);
    if (rc != 0) return rc;
    *out = name;
    *out_data = data;
    return 0;
}

/* ---- on disk ---- */

size_t tm_copy_file__prepare(const struct tm_copy_name *name, struct tm_block *block)
{
    assert(block->size == name->size && block->shares > 0);
    size_t length = tm_copy_file_length(name->size);
    assert(length - HEAD_BYTES <= block->room);
    write_head(name, (char *)block->data - HEAD_BYTES);
    memset(block->data + name->size, 0, length - HEAD_BYTES - (size_t)name->size);
    return length;
}

int tm_copy_file__write(struct tm_env *env, const char *path, const struct tm_copy_name *name, struct tm_block *block,
                        bool *out_direct, struct tm_error *e)
{
    size_t length = tm_copy_file__prepare(name, block);
    int rc = env->file_write_blocks(env, path, block->data - HEAD_BYTES, length, out_direct, e);
    tm_debug(TM_DEBUG_STORE, "set %" PRIu64 ", layer %" PRIu32 ", step %" PRIu64 ": %zu bytes %s %s", name->set,
             name->layer, name->step, length, rc == 0 ? "written to" : "not written to", path);
    return rc;
}

struct reading {
    struct tm_copy_name name;
    size_t size; /* that is expected */
    size_t read; /* of the whole file */
    bool refused;
    struct tm_hasher hasher;
};

static int first_piece(struct reading *r, const void *data, size_t length, struct tm_error *e)
{
    if (length < HEAD_BYTES) return tm_error_set(e, TM_EINPUT, "not a copy: only %zu bytes", length);
    int rc = tm_copy_file__head(data, &r->name, e);
    if (rc != 0 || r->name.size == r->size) return rc;
    return tm_error_set(e, TM_EINPUT,
                        "copy of layer %" PRIu32 ": it has %" PRIu64 " bytes, the layer here has %zu: was the model or "
                        "its optimizer changed since it was made?",
                        r->name.layer, r->name.size, r->size);
}

static int on_piece(void *context, const void *data, size_t length, struct tm_error *e)
{
    assert(data != NULL && length > 0);
    struct reading *r = context;
    const uint8_t *from = data;
    size_t begin = r->read;
    r->read += length;
    if (begin == 0) {
        int rc = first_piece(r, data, length, e);
        r->refused = rc != 0;
        if (rc != 0) return rc;
        from += HEAD_BYTES;
        begin = HEAD_BYTES;
    }
    size_t end = HEAD_BYTES + r->size < r->read ? HEAD_BYTES + r->size : r->read;
    if (end > begin) tm_hasher_add(&r->hasher, from, end - begin);
    return 0;
}

/* Where nobody knows how large it is. */
static int read_any(struct tm_env *env, const char *path, struct tm_block_pool *pool, struct tm_copy_name *out_name,
                    struct tm_block **out_block, struct tm_error *e)
{
    const void *file = NULL;
    const void *data = NULL;
    size_t length = 0;
    struct tm_copy_name name = {.set = 0};
    int rc = env->file_map(env, path, &file, &length, e);
    if (rc != 0) return rc;
    rc = tm_copy_file_decode(file, length, &name, &data, e);
    if (rc != 0) rc = tm_error_wrap(e, rc, "%s", path);
    struct tm_block *block = rc == 0 ? tm_block_create(pool, (size_t)name.size) : NULL;
    if (rc == 0 && block == NULL) rc = tm_error_nomem(e);
    if (rc == 0 && data != NULL) {
        memcpy(block->data, data, (size_t)name.size);
        *out_name = name;
        *out_block = block;
    }
    env->file_unmap(env, file, length);
    return rc;
}

int tm_copy_file__read(struct tm_env *env, const char *path, uint64_t size, struct tm_block_pool *pool,
                       struct tm_copy_name *out_name, struct tm_block **out_block, struct tm_error *e)
{
    assert(pool != NULL && out_name != NULL && out_block != NULL);
    size_t length = 0;
    if (size == 0) return read_any(env, path, pool, out_name, out_block, e);
    struct tm_block *block = tm_block_create(pool, (size_t)size);
    if (block == NULL) return tm_error_nomem(e);
    struct reading reading = {.size = (size_t)size};
    tm_hasher_init(&reading.hasher);
    int rc = env->file_read_blocks(env, path, block->data - HEAD_BYTES, tm_copy_file_length(size), on_piece, &reading,
                                   &length, e);
    bool came = rc == 0;
    if (came && (length == 0 || !length_is_right(&reading.name, length))) rc = wrong_length(&reading.name, length, e);
    if (rc == 0) rc = check(&reading.name, tm_hasher_end(&reading.hasher), block->data, e);
    tm_debug(TM_DEBUG_STORE, "%zu bytes read from %s: %s", length, path, rc == 0 ? "good" : "not what it should be");
    if (rc == 0) {
        *out_name = reading.name;
        *out_block = block;
        return 0;
    }
    tm_block_release(block);
    if (rc == -(int)TM_ELIMIT) return tm_error_set(e, TM_EINPUT, "%s: longer than a copy of that layer is", path);
    return came || reading.refused ? tm_error_wrap(e, rc, "%s", path) : rc;
}
