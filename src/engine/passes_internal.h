/* Shared by passes.c and attention.c only. */
#ifndef TM_ENGINE_PASSES_INTERNAL_H
#define TM_ENGINE_PASSES_INTERNAL_H

#include "engine/passes.h"

/* Scratch of a pass, cut up. */
struct tm_scratch {
    float *wide1;  /* rows x max(4 width, vocab) */
    float *wide2;  /* the same */
    float *flow1;  /* rows x width */
    float *flow2;  /* rows x width */
    float *scores; /* two pieces of attention scores */
};

enum { TM_SCORE_ROWS = 64 }; /* attention looks at so many rows of scores at a time: they stay in the cache */

size_t tm_pass__score_stride(const struct tm_network *network); /* ctx, in whole groups of dropout masks */

/* attended = softmax(q k' / sqrt(head width)) v, causal, head by head. */
void tm_attention__forward(const struct tm_pass *pass, const struct tm_dropout *dropout,
                           const struct tm_block_cache *cache, float *scores);
/* dqkv is set from dattended. */
void tm_attention__backward(const struct tm_pass *pass, const struct tm_dropout *dropout,
                            const struct tm_block_cache *cache, const float *dattended, float *dqkv, float *scores);

#endif
