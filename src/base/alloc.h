/* The one place where libraries take memory from the system, so that a test can make the n-th call fail. */
#ifndef TM_BASE_ALLOC_H
#define TM_BASE_ALLOC_H

#include <stddef.h>

/* As malloc, calloc, realloc and free; NULL when there is none. The caller owns what is returned. */
void *tm_alloc(size_t size);
void *tm_calloc(size_t count, size_t size);
void *tm_realloc(void *old, size_t size);
void tm_free(void *memory);
/* Not set, on a page of 4096 bytes; for large sizes in the system's large pages, where it has them. */
void *tm_alloc_pages(size_t size);
char *tm_strndup(const char *text, size_t length);

/* Makes room for at least `need` elements in `*array` (grown by doubling, never past `max`).
 * Returns 0, -TM_ENOMEM, or -TM_ELIMIT when need > max. */
int tm_grow(void **array, size_t *capacity, size_t need, size_t element_size, size_t max);

/* Tests: the n-th call from now fails, once (n = 1: the next one; 0: none). */
void tm_alloc_fail_at(long n);
/* Tests: while held, calls neither count nor fail: what the test itself allocates is not what it tests. */
void tm_alloc_fail_hold(int held);
/* Tests: did the failure asked for happen? */
int tm_alloc_failed(void);
/* Allocations not freed yet. */
long tm_alloc_live(void);

#endif
