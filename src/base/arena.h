/* Arenas: many small pieces that die together. No piece is freed alone.
 *
 *     struct tm_arena a;
 *     tm_arena_init(&a, 64 << 20);      limit in bytes, past which allocation fails
 *     char *s = tm_arena_strndup(&a, "x", 1);
 *     tm_arena_deinit(&a); */
#ifndef TM_BASE_ARENA_H
#define TM_BASE_ARENA_H

#include <stddef.h>

struct tm_arena_chunk;

struct tm_arena {
    struct tm_arena_chunk *chunks; /* newest first */
    size_t bytes;                  /* taken from the system */
    size_t bytes_max;
};

void tm_arena_init(struct tm_arena *arena, size_t bytes_max);
void tm_arena_deinit(struct tm_arena *arena); /* may be called twice */

/* Zeroed memory, aligned for any type; NULL when memory or the limit is exhausted. Owned by the arena. */
void *tm_arena_alloc(struct tm_arena *arena, size_t size);
char *tm_arena_strndup(struct tm_arena *arena, const char *text, size_t length);
char *tm_arena_strdup(struct tm_arena *arena, const char *text);
char *tm_arena_printf(struct tm_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
