/* Text to train on: bytes, cut into windows of ctx bytes that do not overlap; each byte's target is the next one. */
#ifndef TM_ENGINE_CORPUS_H
#define TM_ENGINE_CORPUS_H

#include "base/env.h"

struct tm_corpus {
    struct tm_env *env;
    const uint8_t *bytes;
    size_t length;
    bool mapped; /* from a file, to be given back */
};

/* A file, or an object of a bucket (store/data_set.h), mapped into memory; or, by its name, a text that is part of the
 * program: "kjv-new-testament". */
int tm_corpus_open(struct tm_env *env, const char *name, struct tm_corpus *out, struct tm_error *e);
void tm_corpus__close(struct tm_corpus *corpus);

/* How many windows there are; -TM_EINPUT where there are fewer than `samples` (of one step). */
int tm_corpus_windows(const struct tm_corpus *corpus, const char *name, int ctx, int64_t samples, uint64_t *out,
                      struct tm_error *e);

/* tokens and targets of window `window`, ctx bytes each. */
void tm_corpus__window(const struct tm_corpus *corpus, int ctx, uint64_t window, uint8_t *tokens, uint8_t *targets);

#endif
