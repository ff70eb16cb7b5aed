/* Tensors in a file, in Hugging Face's safetensors form:
 *
 *     8 bytes   length of the header, little-endian
 *     header    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {..}}
 *     data      the tensors, row-major, one behind the other without gaps; offsets count from here
 *
 * Everything a file says is checked before a byte of data is looked at: sizes, bounds, gaps, overlaps. */
#ifndef TM_ENGINE_SAFETENSORS_H
#define TM_ENGINE_SAFETENSORS_H

#include "base/arena.h"
#include "base/env.h"
#include "wire/hash.h"

enum { TM_SAFETENSORS_DIMS_MAX = 8, TM_SAFETENSORS_HEADER_MAX = 16 << 20, TM_SAFETENSORS_TENSORS_MAX = 65536 };

enum tm_dtype { TM_DTYPE_F32, TM_DTYPE_I32, TM_DTYPE_OTHER };

struct tm_named_tensor {
    const char *name;
    enum tm_dtype dtype;
    int dims;
    int64_t shape[TM_SAFETENSORS_DIMS_MAX];
    const void *data; /* borrowed */
    size_t bytes;
};

/* Writes the file as a whole or not at all. The hash is of the header's and every tensor's own hash, in order. */
int tm_safetensors__write(struct tm_env *env, const char *path, const struct tm_named_tensor *tensors, size_t count,
                          struct tm_hash *out_hash, struct tm_error *e);

struct tm_safetensors {
    struct tm_env *env;
    const void *data; /* the file, mapped */
    size_t length;
    struct tm_arena arena;
    struct tm_named_tensor *tensors; /* by offset */
    size_t count;
    struct tm_hash hash;
};

int tm_safetensors__open(struct tm_env *env, const char *path, struct tm_safetensors *out, struct tm_error *e);
void tm_safetensors__close(struct tm_safetensors *file);
/* NULL: there is none. Borrowed. */
const struct tm_named_tensor *tm_safetensors__find(const struct tm_safetensors *file, const char *name);

/* The same for bytes in hand (which must outlive the result). */
int tm_safetensors__parse(const char *name, const void *data, size_t length, struct tm_safetensors *out,
                          struct tm_error *e);

#endif
