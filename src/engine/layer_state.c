#include "engine/layer_state.h"

#include "base/alloc.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

enum { ALIGN = 64, SCALES_BYTES = 64 };
#define WEIGHT_SPREAD 0.02

static const uint32_t start_stream = 0x57A27000U; /* apart from the streams of dropout, whose third word is small */

size_t tm_layer_state__size(const struct tm_layer_spec *spec)
{
    return 3 * spec->floats * sizeof(float) + SCALES_BYTES;
}

void tm_layer_state__place(struct tm_layer_state *state, const struct tm_network *network, int layer, void *memory)
{
    *state = (struct tm_layer_state){.layer = layer, .weights = memory};
    tm_network_layer(network, layer, &state->spec);
    state->moment1 = state->weights + state->spec.floats;
    state->moment2 = state->moment1 + state->spec.floats;
    state->scales = (void *)(state->moment2 + state->spec.floats);
}

int tm_layer_state__init(struct tm_layer_state *state, const struct tm_network *network, int layer, struct tm_error *e)
{
    struct tm_layer_spec spec;
    tm_network_layer(network, layer, &spec);
    unsigned char *memory = tm_calloc(1, tm_layer_state__size(&spec) + ALIGN);
    *state = (struct tm_layer_state){.layer = layer};
    if (memory == NULL) return tm_error_nomem(e);
    tm_layer_state__place(state, network, layer, memory + (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN);
    state->memory = memory;
    return 0;
}

void tm_layer_state__deinit(struct tm_layer_state *state)
{
    tm_free(state->memory);
    *state = (struct tm_layer_state){0};
}

void *tm_layer_state__bytes(struct tm_layer_state *state, size_t *out_length)
{
    *out_length = tm_layer_state__size(&state->spec);
    return state->weights;
}

/* Two normal numbers from one Philox block (Box and Muller). */
static void normal_pair(uint64_t seed, uint32_t layer, uint32_t tensor, size_t pair, double out[2])
{
    uint32_t counter[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), layer << 8 | tensor, start_stream};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    tm_random_block(counter, key, bits);
    double u = ((double)bits[0] + 0.5) * 0x1p-32;
    double angle = ((double)bits[1] + 0.5) * 0x1p-32 * 6.283185307179586;
    double radius = sqrt(-2 * log(u));
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

static void start_normal(float *to, size_t count, double spread, uint64_t seed, int layer, size_t tensor)
{
    for (size_t i = 0; i < count; i += 2) {
        double pair[2];
        normal_pair(seed, (uint32_t)layer, (uint32_t)tensor, i / 2, pair);
        to[i] = (float)(pair[0] * spread);
        if (i + 1 < count) to[i + 1] = (float)(pair[1] * spread);
    }
}

void tm_layer_state__start(struct tm_layer_state *state, const struct tm_network *network, uint64_t seed)
{
    for (size_t t = 0; t < state->spec.tensor_count; t++) {
        const struct tm_tensor_spec *tensor = &state->spec.tensors[t];
        float *to = state->weights + tensor->offset;
        bool is_norm_weight = strncmp(tensor->name, "ln_", 3) == 0 && strstr(tensor->name, "weight") != NULL;
        double spread = WEIGHT_SPREAD;
        if (strstr(tensor->name, "c_proj") != NULL) spread /= sqrt(2.0 * network->blocks);
        /* the head's copy of the tied weight starts as layer 0's: same layer and tensor in the key */
        int layer = state->spec.kind == TM_LAYER_HEAD ? 0 : state->layer;
        if (tensor->dims == 2) start_normal(to, tensor->count, spread, seed, layer, t);
        for (size_t i = 0; tensor->dims == 1 && i < tensor->count; i++)
            to[i] = is_norm_weight ? 1.0F : 0.0F;
    }
}

struct tm_hash tm_layer_state__weights_hash(const struct tm_layer_state *state)
{
    return tm_hash_of(state->weights, state->spec.floats * sizeof(float)); /* what aligns tensors stays 0 */
}

struct tm_hash tm_layer_state__hash(const struct tm_layer_state *state)
{
    return tm_hash_of(state->weights, tm_layer_state__size(&state->spec));
}
