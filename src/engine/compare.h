/* Two checkpoints side by side, layer by layer, to the bit. */
#ifndef TM_ENGINE_COMPARE_H
#define TM_ENGINE_COMPARE_H

#include "engine/checkpoint.h"

struct tm_layer_difference {
    int64_t tensors;   /* compared: weights, and moments where both have them */
    int64_t differing; /* tensors */
    double largest;    /* |a - b| of any element */
};

struct tm_difference {
    bool same;
    int layer; /* of the first tensor that differs */
    char tensor[TM_TENSOR_NAME_MAX + 16];
    int64_t element;
    double a;
    double b;
    int64_t elements; /* of that tensor that differ */
};

/* `layers` has one place for each layer. -TM_EINPUT: they are of different networks. */
int tm_checkpoint_compare(const struct tm_checkpoint *a, const struct tm_checkpoint *b,
                          struct tm_layer_difference *layers, struct tm_difference *out, struct tm_error *e);

#endif
