/* A layer's update from gradients that come as bytes: for a worker that takes the layer over while others train it. */
#include "engine/engine_internal.h"
#include "engine/fixed_point.h"

#include <string.h>

/* Before the sums: all that an update needs beside them. */
struct gradient_head {
    int32_t scales[TM_TENSORS_MAX];
    float largest[TM_TENSORS_MAX];
};

size_t tm_engine__gradient_bytes(const struct tm_engine_options *options, int layer)
{
    struct tm_layer_spec spec;
    tm_network_layer(&options->network, layer, &spec);
    return sizeof(struct gradient_head) + spec.floats * sizeof(float);
}

int tm_engine__read_gradient(const struct tm_engine *engine, int layer, void *out, size_t bytes, struct tm_error *e)
{
    const struct tm_held_layer *held = &engine->layers[layer];
    if (engine->phase != TM_ENGINE_PREPARED || !held->held || layer < engine->first || layer >= engine->end ||
        bytes != tm_engine__gradient_bytes(&engine->options, layer))
        return tm_error_set(e, TM_EINTERNAL, "layer %d has no reduced gradients of %zu bytes", layer, bytes);
    struct gradient_head head;
    memcpy(head.scales, held->gradients.scales, sizeof head.scales);
    memcpy(head.largest, held->gradients.largest, sizeof head.largest);
    memcpy(out, &head, sizeof head);
    memcpy((unsigned char *)out + sizeof head, held->gradients.sums.integers, bytes - sizeof head);
    return 0;
}

int tm_engine__advance_layer(const struct tm_engine_options *options, int layer, int64_t step, double clip_factor,
                             void *state, size_t state_bytes, const void *gradient, size_t gradient_bytes,
                             struct tm_error *e)
{
    struct tm_layer_state view = {.layer = layer};
    struct gradient_head head;
    union {
        const unsigned char *given;
        void *taken; /* the optimizer does not write to them */
    } sums = {(const unsigned char *)gradient + sizeof head};
    tm_network_layer(&options->network, layer, &view.spec);
    if (state_bytes != tm_layer_state__size(&view.spec) || gradient_bytes != tm_engine__gradient_bytes(options, layer))
        return tm_error_set(e, TM_EINPUT, "layer %d is not of %zu bytes, or its gradients of %zu", layer, state_bytes,
                            gradient_bytes);
    view.weights = state;
    view.moment1 = view.weights + view.spec.floats;
    view.moment2 = view.moment1 + view.spec.floats;
    view.scales = (void *)(view.moment2 + view.spec.floats);
    struct tm_gradients gradients = {
        .kernels = options->kernels, .spec = &view.spec, .determinism = options->determinism};
    memcpy(&head, gradient, sizeof head);
    memcpy(gradients.scales, head.scales, sizeof head.scales);
    gradients.sums.integers = sums.taken;
    tm_optimizer__apply(&options->optimizer, &gradients, step, options->micro_batches, clip_factor, &view);
    for (size_t t = 0; t < view.spec.tensor_count; t++)
        view.scales[t] = tm_fixed__next(head.largest[t], head.scales[t], tm_engine__addends_of(options, layer, t));
    return 0;
}
