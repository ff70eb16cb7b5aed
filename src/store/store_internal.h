/* Shared inside the room: the stores, and files of copies for them. */
#ifndef TM_STORE_INTERNAL_H
#define TM_STORE_INTERNAL_H

#include "store/copy_file.h"
#include "store/copy_store.h"

/* Writes the head into the room before the block's bytes, and all of it to the file: whole or not at all, and synced.
 * `out_direct`: past the page cache. */
int tm_copy_file__write(struct tm_env *env, const char *path, const struct tm_copy_name *name, struct tm_block *block,
                        bool *out_direct, struct tm_error *e);
/* Reads a part of `size` bytes (0: whatever it has), and checks it while it comes; results as of a store's get. */
int tm_copy_file__read(struct tm_env *env, const char *path, uint64_t size, struct tm_block_pool *pool,
                       struct tm_copy_name *out_name, struct tm_block **out_block, struct tm_error *e);

/* Numbers of sets, as a store finds them in names. The list is owned; whoever found them frees it. */
struct tm_copy_sets {
    uint64_t *list;
    size_t count;
    size_t capacity;
};
/* A number that is the last's again is passed over. */
int tm_copy_sets__add(struct tm_copy_sets *sets, uint64_t set, struct tm_error *e);
void tm_copy_sets__sort(struct tm_copy_sets *sets); /* the highest first */
/* Drops each of `parts` that is below that number and neither in `sealed` nor in `keep`; the first failure is the
 * result, after all were tried. */
int tm_copy_sets__sweep(struct tm_copy_store *store, const struct tm_copy_sets *parts,
                        const struct tm_copy_sets *sealed, uint64_t below, const uint64_t *keep, size_t keep_count,
                        struct tm_error *e);

/* The store of a run's office (copy_office.c). */
bool tm_copy_office__is_place(const char *place);
int tm_copy_office__check(const char *place, struct tm_error *e);
int tm_copy_office__open(struct tm_env *env, const char *place, struct tm_copy_store **out, struct tm_error *e);
/* Writes the head into the room before the block's bytes, and zeros to the end of the last page: from data -
 * TM_BLOCK_HEAD on, so many bytes are the file. */
size_t tm_copy_file__prepare(const struct tm_copy_name *name, struct tm_block *block);
/* What the head, TM_BLOCK_HEAD bytes, says. -TM_EINPUT: it is damaged. */
int tm_copy_file__head(const void *head, struct tm_copy_name *out, struct tm_error *e);

/* The stores themselves, of places that were checked. */
int tm_copy_folder__open(struct tm_env *env, const char *place, uint64_t job, struct tm_copy_store **out,
                         struct tm_error *e);
int tm_copy_bucket__open(struct tm_env *env, const char *place, uint64_t job, struct tm_copy_store **out,
                         struct tm_error *e);

#endif
