#include "base/arena.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES_MIN = 4096, ALIGNMENT = 16 };

struct tm_arena_chunk {
    struct tm_arena_chunk *next;
    size_t used;
    size_t size;
    size_t unused_for_alignment;
    unsigned char data[];
};

_Static_assert(sizeof(struct tm_arena_chunk) % ALIGNMENT == 0, "data of a chunk must be aligned");

void tm_arena_init(struct tm_arena *arena, size_t bytes_max)
{
    *arena = (struct tm_arena){.bytes_max = bytes_max};
}

void tm_arena_deinit(struct tm_arena *arena)
{
    while (arena->chunks != NULL) {
        struct tm_arena_chunk *next = arena->chunks->next;
        tm_free(arena->chunks);
        arena->chunks = next;
    }
    arena->bytes = 0;
}

/* Chunks double in size up to 1 MiB, so that small arenas take few calls and large ones waste little. */
static struct tm_arena_chunk *add_chunk(struct tm_arena *arena, size_t size)
{
    size_t wanted = arena->chunks == NULL ? CHUNK_BYTES_MIN : arena->chunks->size * 2;
    if (wanted > ((size_t)1 << 20)) wanted = (size_t)1 << 20;
    if (wanted < size) wanted = size;
    size_t left = arena->bytes_max - arena->bytes;
    if (size + sizeof(struct tm_arena_chunk) > left) return NULL;
    if (wanted + sizeof(struct tm_arena_chunk) > left) wanted = left - sizeof(struct tm_arena_chunk);
    struct tm_arena_chunk *chunk = tm_alloc(sizeof *chunk + wanted);
    if (chunk == NULL) return NULL;
    chunk->next = arena->chunks;
    chunk->used = 0;
    chunk->size = wanted;
    arena->chunks = chunk;
    arena->bytes += wanted + sizeof *chunk;
    return chunk;
}

void *tm_arena_alloc(struct tm_arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct tm_arena_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->size - chunk->used < size) chunk = add_chunk(arena, size);
    if (chunk == NULL) return NULL;
    void *memory = chunk->data + chunk->used;
    chunk->used += size;
    memset(memory, 0, size);
    return memory;
}

char *tm_arena_strndup(struct tm_arena *arena, const char *text, size_t length)
{
    char *copy = tm_arena_alloc(arena, length + 1);
    if (copy != NULL && length > 0) memcpy(copy, text, length);
    return copy;
}

char *tm_arena_strdup(struct tm_arena *arena, const char *text)
{
    return tm_arena_strndup(arena, text, strlen(text));
}

char *tm_arena_printf(struct tm_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : tm_arena_alloc(arena, (size_t)length + 1);
    if (text != NULL) (void)vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}
