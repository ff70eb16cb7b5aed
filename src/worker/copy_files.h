/* Copies in a store, written and read by separate threads: a disk or a network may be slow, and the thread that votes
 * on steps and keeps the lease must not wait for it. Several parts are written or read at once, which keeps a fast disk
 * and several cores busy; `done` reports each. */
#ifndef TM_WORKER_COPY_FILES_H
#define TM_WORKER_COPY_FILES_H

#include "store/copy_store.h"
#include "worker/worker.h"

enum { TM_COPY_FILES_AT_ONCE = 12 };

struct tm_copy_files;

struct tm_copy_file_done {
    uint64_t set;
    uint32_t layer;
    bool is_put;
    bool written;           /* a put: it is stored */
    struct tm_copy_got got; /* a get; its block is the receiver's to release */
    bool full;              /* a put: there is no room for it */
    const char *trouble;    /* borrowed: why it could not be written, or not be read now; "": it could */
};
/* Puts or gets one part in the calling thread: for the threads below, and for the simulated cluster, which has its own
 * time.
 * `done->trouble` is the error's text. */
void tm_copy_put(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
                 struct tm_copy_file_done *done, struct tm_error *e);
void tm_copy_get(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t size, struct tm_block_pool *pool,
                 struct tm_copy_file_done *done, struct tm_error *e);
/* Tells the worker what became of it. */
void tm_copy_tell(struct tm_worker *worker, int64_t now_ms, const struct tm_copy_file_done *done,
                  struct tm_outbox *out);

/* By one of the threads, which holds nothing. It may ask for more. */
typedef void (*tm_copy_files_done_f)(void *context, const struct tm_copy_file_done *done);

/* The caller owns the result. The store is borrowed; NULL: there is none, and nothing can be stored. */
int tm_copy_files_create(struct tm_copy_store *store, tm_copy_files_done_f done, void *context,
                         struct tm_copy_files **out, struct tm_error *e);
/* What waits is forgotten; the files under way are finished. NULL is allowed. */
void tm_copy_files_destroy(struct tm_copy_files *files);

/* From any thread. The same file twice is done once. put takes over the caller's share of the block. */
void tm_copy_files_put(struct tm_copy_files *files, const struct tm_copy_name *name, struct tm_block *block);
/* A part of `size` bytes; blocks come from the pool, which is borrowed. */
void tm_copy_files_get(struct tm_copy_files *files, uint64_t set, uint32_t layer, uint64_t size,
                       struct tm_block_pool *pool);

#endif
