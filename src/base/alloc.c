#include "base/alloc.h"

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, LARGE_PAGE_BYTES = 2 << 20 };

static atomic_long fail_countdown; /* 0: off; 1: the next call fails */
static atomic_int fail_held;
static atomic_int fail_happened;
static atomic_long live;

static int must_fail(void)
{
    long left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    if (left <= 0 || atomic_load(&fail_held) != 0) return 0;
    left = atomic_fetch_sub(&fail_countdown, 1);
    if (left != 1) return 0;
    atomic_store(&fail_happened, 1);
    return 1;
}

static void *counted(void *memory)
{
    if (memory != NULL) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return memory;
}

void *tm_alloc(size_t size)
{
    return must_fail() ? NULL : counted(malloc(size != 0 ? size : 1));
}

void *tm_alloc_pages(size_t size)
{
    void *memory = NULL;
    bool large = size >= 2 * LARGE_PAGE_BYTES;
    size_t page = large ? LARGE_PAGE_BYTES : PAGE_BYTES;
    if (must_fail() || posix_memalign(&memory, page, size != 0 ? size : 1) != 0) return NULL;
    if (large) (void)madvise(memory, size / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES, MADV_HUGEPAGE);
    return counted(memory);
}

void *tm_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : counted(calloc(count != 0 ? count : 1, size != 0 ? size : 1));
}

void *tm_realloc(void *old, size_t size)
{
    if (old == NULL) return tm_alloc(size);
    return must_fail() ? NULL : realloc(old, size != 0 ? size : 1);
}

void tm_free(void *memory)
{
    if (memory == NULL) return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(memory);
}

char *tm_strndup(const char *text, size_t length)
{
    char *copy = tm_alloc(length + 1);
    if (copy == NULL) return NULL;
    if (length > 0) memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

int tm_grow(void **array, size_t *capacity, size_t need, size_t element_size, size_t max)
{
    if (need <= *capacity) return 0;
    if (need > max || (element_size > 0 && need > SIZE_MAX / element_size)) return -(int)TM_ELIMIT;
    size_t wanted = *capacity < 8 ? 8 : *capacity * 2;
    if (wanted < need) wanted = need;
    if (wanted > max) wanted = max;
    void *grown = tm_realloc(*array, wanted * element_size);
    if (grown == NULL) return -(int)TM_ENOMEM;
    *array = grown;
    *capacity = wanted;
    return 0;
}

void tm_alloc_fail_at(long n)
{
    atomic_store(&fail_happened, 0);
    atomic_store(&fail_countdown, n);
}

void tm_alloc_fail_hold(int held)
{
    atomic_store(&fail_held, held);
}

int tm_alloc_failed(void)
{
    return atomic_load(&fail_happened);
}

long tm_alloc_live(void)
{
    return atomic_load(&live);
}
