#include "engine/corpus.h"

#include "base/embed.h"
#include "store/data_set.h"

#include <string.h>

TM_EMBED(tm_text_kjv, "text/kjv-new-testament.txt");

enum { ARENA_MAX = 1 << 20 };

/* A file, or an object of a bucket that becomes one. */
static int map(struct tm_env *env, const char *name, const void **out, size_t *out_length, struct tm_error *e)
{
    struct tm_arena arena;
    int rc = 0;
    tm_arena_init(&arena, ARENA_MAX);
    if (tm_data_set_is(name)) rc = tm_data_set_path(env, name, &arena, &name, e);
    if (rc == 0) {
        rc = env->file_map(env, name, out, out_length, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "data");
    }
    tm_arena_deinit(&arena);
    return rc;
}

int tm_corpus_open(struct tm_env *env, const char *name, struct tm_corpus *out, struct tm_error *e)
{
    struct tm_corpus corpus = {.env = env};
    if (strcmp(name, "kjv-new-testament") == 0) {
        corpus.bytes = (const void *)tm_text_kjv_begin;
        corpus.length = (size_t)(tm_text_kjv_end - tm_text_kjv_begin);
    } else {
        const void *bytes = NULL;
        int rc = map(env, name, &bytes, &corpus.length, e);
        if (rc != 0) return rc;
        corpus.bytes = bytes;
        corpus.mapped = true;
    }
    *out = corpus;
    return 0;
}

void tm_corpus__close(struct tm_corpus *corpus)
{
    if (corpus->mapped) corpus->env->file_unmap(corpus->env, corpus->bytes, corpus->length);
    *corpus = (struct tm_corpus){0};
}

int tm_corpus_windows(const struct tm_corpus *corpus, const char *name, int ctx, int64_t samples, uint64_t *out,
                      struct tm_error *e)
{
    if (corpus->length == 0) return tm_error_set(e, TM_EINPUT, "data: %s: the file is empty", name);
    uint64_t windows = (corpus->length - 1) / (uint64_t)ctx; /* the last byte is a target only */
    if (windows < (uint64_t)samples)
        return tm_error_set(
            e, TM_EINPUT,
            "data: %s: %zu bytes are %llu windows of %d bytes, fewer than one step's %lld samples; give "
            "more text, or a smaller batch or ctx",
            name, corpus->length, (unsigned long long)windows, ctx, (long long)samples);
    *out = windows;
    return 0;
}

void tm_corpus__window(const struct tm_corpus *corpus, int ctx, uint64_t window, uint8_t *tokens, uint8_t *targets)
{
    const uint8_t *at = corpus->bytes + window * (uint64_t)ctx;
    memcpy(tokens, at, (size_t)ctx);
    memcpy(targets, at + 1, (size_t)ctx);
}
