/* Bytes of a layer, which do not change while they are shared: one snapshot is sent to peers, written to a file and
 * kept here. Memory that was read from a file becomes the memory that the engine trains in, once no other share is
 * left. It is never copied.
 *
 * Blocks are laid out for disks that are read and written past the page cache: `data` is on a page, a page of room
 * (TM_BLOCK_HEAD) is before it, and the room after it ends with a page. They come from a pool, which keeps released
 * blocks for the next of the same size: fresh memory of this size costs more than the copy into it. Any thread. */
#ifndef TM_STORE_BLOCK_H
#define TM_STORE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_BLOCK_PAGE = 4096, TM_BLOCK_HEAD = TM_BLOCK_PAGE };

struct tm_block_pool;

struct tm_block {
    uint8_t *data;
    size_t size;
    /* the pool's own */
    struct tm_block_pool *pool;
    struct tm_block *next;
    size_t room; /* from data on: whole pages */
    size_t shares;
};

/* NULL: out of memory. */
struct tm_block_pool *tm_block_pool_create(void);
/* The pool goes once the last of its blocks is released. NULL is allowed. */
void tm_block_pool_destroy(struct tm_block_pool *pool);

/* A block with one share, the caller's; its bytes are not set. NULL: out of memory. */
struct tm_block *tm_block_create(struct tm_block_pool *pool, size_t size);
/* One more share of it; returns it. */
struct tm_block *tm_block_share(struct tm_block *block);
/* Are there more shares than the caller's? If not, none can appear, and the caller may change the bytes. */
bool tm_block_is_shared(struct tm_block *block);
/* Gives a share back. NULL is allowed. */
void tm_block_release(struct tm_block *block);

#endif
