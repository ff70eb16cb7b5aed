#include "store/block.h"

#include "base/alloc.h"

#include <assert.h>
#include <pthread.h>

static const size_t kept_bytes_max = (size_t)1 << 30;

struct tm_block_pool {
    pthread_mutex_t lock;
    bool open; /* its owner has not destroyed it */
    size_t out_count;
    size_t out_bytes;
    size_t most_bytes;     /* that were out at once */
    struct tm_block *kept; /* the latest first */
    size_t kept_bytes;
};

struct tm_block_pool *tm_block_pool_create(void)
{
    struct tm_block_pool *pool = tm_calloc(1, sizeof *pool);
    if (pool == NULL) return NULL;
    (void)pthread_mutex_init(&pool->lock, NULL);
    pool->open = true;
    return pool;
}

static void free_block(struct tm_block *block)
{
    tm_free(block->data - TM_BLOCK_HEAD);
    tm_free(block);
}

static void free_kept(struct tm_block_pool *pool)
{
    while (pool->kept != NULL) {
        struct tm_block *block = pool->kept;
        pool->kept = block->next;
        free_block(block);
    }
    pool->kept_bytes = 0;
}

/* Ends the caller's hold of the lock, and the pool where it was the last to need it. */
static void leave(struct tm_block_pool *pool)
{
    bool over = !pool->open && pool->out_count == 0;
    if (!pool->open) free_kept(pool);
    (void)pthread_mutex_unlock(&pool->lock);
    if (!over) return;
    (void)pthread_mutex_destroy(&pool->lock);
    tm_free(pool);
}

void tm_block_pool_destroy(struct tm_block_pool *pool)
{
    if (pool == NULL) return;
    (void)pthread_mutex_lock(&pool->lock);
    assert(pool->open);
    pool->open = false;
    leave(pool);
}

/* One that fits without wasting more than a quarter. */
static struct tm_block *take_kept(struct tm_block_pool *pool, size_t room)
{
    for (struct tm_block **at = &pool->kept; *at != NULL; at = &(*at)->next) {
        struct tm_block *block = *at;
        if (block->room < room || block->room - room > room / 4) continue;
        *at = block->next;
        pool->kept_bytes -= block->room;
        return block;
    }
    return NULL;
}

static void free_oldest(struct tm_block_pool *pool)
{
    assert(pool->kept != NULL);
    struct tm_block **at = &pool->kept;
    while ((*at)->next != NULL)
        at = &(*at)->next;
    pool->kept_bytes -= (*at)->room;
    free_block(*at);
    *at = NULL;
}

static struct tm_block *try_block(struct tm_block_pool *pool, size_t room)
{
    struct tm_block *block = tm_alloc(sizeof *block);
    uint8_t *memory = block == NULL ? NULL : tm_alloc_pages(TM_BLOCK_HEAD + room);
    if (memory == NULL) {
        tm_free(block);
        return NULL;
    }
    *block = (struct tm_block){.data = memory + TM_BLOCK_HEAD, .pool = pool, .room = room};
    return block;
}

/* None that is kept fits: those of sizes that are not asked for any more go, beyond a quarter more than was needed at
 * one time. */
static struct tm_block *make_block(struct tm_block_pool *pool, size_t room)
{
    size_t limit = pool->most_bytes + pool->most_bytes / 4;
    while (pool->kept != NULL && pool->kept_bytes + pool->out_bytes + room > limit)
        free_oldest(pool);
    struct tm_block *block = try_block(pool, room);
    if (block != NULL || pool->kept == NULL) return block;
    free_kept(pool);
    return try_block(pool, room);
}

struct tm_block *tm_block_create(struct tm_block_pool *pool, size_t size)
{
    assert(pool != NULL);
    if (size > SIZE_MAX / 2) return NULL;
    size_t room = (size + TM_BLOCK_PAGE) / TM_BLOCK_PAGE * TM_BLOCK_PAGE; /* also for no bytes */
    if (size > 0 && size % TM_BLOCK_PAGE == 0) room = size;
    (void)pthread_mutex_lock(&pool->lock);
    struct tm_block *block = take_kept(pool, room);
    if (block == NULL) block = make_block(pool, room);
    if (block != NULL) {
        assert(block->room >= size && (uintptr_t)block->data % TM_BLOCK_PAGE == 0);
        block->size = size;
        block->shares = 1;
        block->next = NULL;
        pool->out_count++;
        pool->out_bytes += block->room;
        if (pool->out_bytes > pool->most_bytes) pool->most_bytes = pool->out_bytes;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return block;
}

struct tm_block *tm_block_share(struct tm_block *block)
{
    assert(block != NULL && block->pool != NULL);
    (void)pthread_mutex_lock(&block->pool->lock);
    assert(block->shares > 0);
    block->shares++;
    (void)pthread_mutex_unlock(&block->pool->lock);
    return block;
}

bool tm_block_is_shared(struct tm_block *block)
{
    assert(block != NULL && block->pool != NULL);
    (void)pthread_mutex_lock(&block->pool->lock);
    assert(block->shares > 0);
    bool shared = block->shares > 1;
    (void)pthread_mutex_unlock(&block->pool->lock);
    return shared;
}

/* With what is out, never more memory than was needed at one time. */
static bool worth_keeping(const struct tm_block_pool *pool, const struct tm_block *block)
{
    assert(block->shares == 0);
    size_t kept = pool->kept_bytes + block->room;
    return pool->open && kept <= kept_bytes_max && kept + pool->out_bytes <= pool->most_bytes;
}

void tm_block_release(struct tm_block *block)
{
    if (block == NULL) return;
    struct tm_block_pool *pool = block->pool;
    (void)pthread_mutex_lock(&pool->lock);
    assert(block->shares > 0 && pool->out_count > 0 && pool->out_bytes >= block->room);
    if (--block->shares == 0) {
        pool->out_count--;
        pool->out_bytes -= block->room;
        if (worth_keeping(pool, block)) {
            block->next = pool->kept;
            pool->kept = block;
            pool->kept_bytes += block->room;
        } else {
            free_block(block);
        }
    }
    leave(pool);
}
