/* Text from a trained network, byte by byte. */
#ifndef TM_ENGINE_GENERATE_H
#define TM_ENGINE_GENERATE_H

#include "base/text.h"
#include "engine/blas.h"
#include "engine/checkpoint.h"
#include "engine/kernels.h"

struct tm_generate_options {
    const char *prompt; /* may be empty: it starts behind a line break then */
    int64_t length;     /* bytes to make */
    double temperature; /* 0: always the likeliest byte */
    int64_t top_k;      /* only the k likeliest bytes; 0: all */
    uint64_t seed;
};

/* Appends the bytes made (not the prompt) to `out`. */
int tm_generate(const struct tm_checkpoint *checkpoint, const struct tm_kernels *kernels, const struct tm_blas *blas,
                const struct tm_generate_options *options, struct tm_text *out, struct tm_error *e);

#endif
