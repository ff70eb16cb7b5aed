/* Parts of copy sets held in this process's memory for others (and, after a loss, given back to them).
 *
 * A part is one layer at one step, as one source wrote it; it comes in chunks, in order, and counts only once all of it
 * has come and its hash is right. Whether a set is whole is not known here: only the coordinator sees all holders. */
#ifndef TM_STORE_COPIES_H
#define TM_STORE_COPIES_H

#include "base/error.h"
#include "store/block.h"
#include "wire/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_COPY_PARTS_MAX = 1 << 16 };

/* What a part is a copy of. */
struct tm_copy_name {
    uint64_t set;
    uint64_t step;
    uint64_t generation;
    uint32_t layer;
    struct tm_hash hash;
    uint64_t size;
};

struct tm_copy_part {
    struct tm_copy_name name;
    uint64_t received; /* bytes so far; all of them and a right hash: complete */
    bool complete;
    struct tm_block *block; /* a share */
};

struct tm_copies {
    struct tm_copy_part *parts; /* owned */
    size_t count;
    size_t capacity;
    uint64_t bytes;
    uint64_t bytes_max;
    struct tm_block_pool *pool; /* borrowed */
};

void tm_copies_init(struct tm_copies *copies, uint64_t bytes_max, struct tm_block_pool *pool);
void tm_copies_deinit(struct tm_copies *copies);

/* Takes a chunk; `out_received` says how far the part has come, so that a source knows where to go on: a chunk that was
 * here before, or that is ahead, changes nothing. -TM_ELIMIT: no room. -TM_EINPUT: the bytes are not what their hash
 * says; what came is forgotten. */
int tm_copies_put(struct tm_copies *copies, const struct tm_copy_name *name, uint64_t offset, const void *data,
                  size_t length, uint64_t *out_received, struct tm_error *e);
/* Takes a share of a whole part, whose hash its source has just made. -TM_ELIMIT: no room. */
int tm_copies_share(struct tm_copies *copies, const struct tm_copy_name *name, struct tm_block *block,
                    struct tm_error *e);
/* A complete part, NULL if there is none. Borrowed until the next put or keep. */
const struct tm_copy_part *tm_copies_find(const struct tm_copies *copies, uint64_t set, uint32_t layer);
/* Forgets every set up to `newest` that is not in the list. Complete parts of steps after `durable_step` are the
 * exception: they may be what is left of a whole set that the coordinator's lost record knew; of such, the two newest
 * sets stay until a newer step is durable. */
void tm_copies_keep(struct tm_copies *copies, const uint64_t *keep, size_t keep_count, uint64_t newest,
                    uint64_t durable_step);

#endif
