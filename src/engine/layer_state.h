/* The state of one layer: weights, both moments of AdamW, and the scales of its fixed-point gradients, in one arena
 * with named tensors. It is all that a worker must have to take a layer over, and all that a copy of it must hold. */
#ifndef TM_ENGINE_LAYER_STATE_H
#define TM_ENGINE_LAYER_STATE_H

#include "engine/network.h"
#include "wire/hash.h"

struct tm_layer_state {
    int layer;
    struct tm_layer_spec spec;
    void *memory;    /* owned; NULL: the tensors are in memory of somebody else's */
    float *weights;  /* spec.floats each, aligned to 64 bytes, one behind the other */
    float *moment1;  /* running mean of gradients */
    float *moment2;  /* running mean of their squares */
    int32_t *scales; /* exponents by tensor: a gradient g counts as round(g * 2^scale) (fixed_point.h) */
};

/* A layer with memory for its tensors; weights unset, moments 0, scales at their start. */
int tm_layer_state__init(struct tm_layer_state *state, const struct tm_network *network, int layer, struct tm_error *e);
/* The same in memory of the caller's, of tm_layer_state__size bytes aligned to 64, which stays as it is. */
void tm_layer_state__place(struct tm_layer_state *state, const struct tm_network *network, int layer, void *memory);
void tm_layer_state__deinit(struct tm_layer_state *state); /* may be called twice */

/* Weights as at the start of training, a pure function of the seed: N(0, 0.02) for matrices and embeddings (divided by
 * sqrt(2 blocks) where they add to the residual), 1 and 0 for normalisations, 0 for biases. */
void tm_layer_state__start(struct tm_layer_state *state, const struct tm_network *network, uint64_t seed);

/* All that is committed of the layer, as one run of bytes, for moving it: weights, moments, scales. */
void *tm_layer_state__bytes(struct tm_layer_state *state, size_t *out_length);
size_t tm_layer_state__size(const struct tm_layer_spec *spec);

/* Of the weights alone; and of all committed state. */
struct tm_hash tm_layer_state__weights_hash(const struct tm_layer_state *state);
struct tm_hash tm_layer_state__hash(const struct tm_layer_state *state);

#endif
