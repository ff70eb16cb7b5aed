#include "engine/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct comparison {
    const struct tm_network *network;
    struct tm_layer_difference *layer;
    struct tm_difference *first;
    int number; /* of the layer */
};

static bool same_bits(float a, float b)
{
    uint32_t x;
    uint32_t y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

static void compare_tensor(struct comparison *c, size_t tensor, const char *suffix, const float *a, const float *b,
                           size_t count)
{
    int64_t differing = 0;
    size_t first = 0;
    c->layer->tensors++;
    for (size_t i = 0; i < count; i++) {
        if (same_bits(a[i], b[i])) continue;
        if (differing++ == 0) first = i;
        double apart = fabs((double)a[i] - (double)b[i]);
        if (!(apart <= c->layer->largest)) c->layer->largest = apart;
    }
    if (differing == 0) return;
    c->layer->differing++;
    if (!c->first->same) return;
    char name[TM_TENSOR_NAME_MAX];
    c->first->same = false;
    c->first->layer = c->number;
    c->first->element = (int64_t)first;
    c->first->elements = differing;
    c->first->a = (double)a[first];
    c->first->b = (double)b[first];
    (void)snprintf(c->first->tensor, sizeof c->first->tensor, "%s%s",
                   tm_network__tensor_name(c->network, c->number, tensor, name), suffix);
}

static void compare_layer(struct comparison *c, const struct tm_layer_state *a, const struct tm_layer_state *b,
                          bool moments)
{
    size_t from = a->spec.kind == TM_LAYER_HEAD ? 1 : 0; /* the tied weight was compared in layer 0 */
    for (size_t t = from; t < a->spec.tensor_count; t++) {
        size_t at = a->spec.tensors[t].offset;
        compare_tensor(c, t, "", a->weights + at, b->weights + at, a->spec.tensors[t].count);
    }
    for (size_t t = from; moments && t < a->spec.tensor_count; t++) {
        size_t at = a->spec.tensors[t].offset;
        compare_tensor(c, t, ".moment1", a->moment1 + at, b->moment1 + at, a->spec.tensors[t].count);
        compare_tensor(c, t, ".moment2", a->moment2 + at, b->moment2 + at, a->spec.tensors[t].count);
    }
}

static bool same_shape(const struct tm_network *a, const struct tm_network *b)
{
    return a->blocks == b->blocks && a->width == b->width && a->ctx == b->ctx && a->heads == b->heads;
}

int tm_checkpoint_compare(const struct tm_checkpoint *a, const struct tm_checkpoint *b,
                          struct tm_layer_difference *layers, struct tm_difference *out, struct tm_error *e)
{
    struct tm_difference difference = {.same = true};
    if (!same_shape(&a->network, &b->network))
        return tm_error_set(e, TM_EINPUT,
                            "%s and %s are checkpoints of different networks: layers %d and %d, hidden %d and %d, "
                            "heads %d and %d, ctx %d and %d",
                            a->dir, b->dir, a->network.blocks, b->network.blocks, a->network.width, b->network.width,
                            a->network.heads, b->network.heads, a->network.ctx, b->network.ctx);
    int rc = 0;
    for (int l = 0; rc == 0 && l < tm_network_layers(&a->network); l++) {
        struct tm_layer_state left = {0};
        struct tm_layer_state right = {0};
        layers[l] = (struct tm_layer_difference){0};
        struct comparison c = {.network = &a->network, .layer = &layers[l], .first = &difference, .number = l};
        rc = tm_layer_state__init(&left, &a->network, l, e);
        if (rc == 0) rc = tm_layer_state__init(&right, &b->network, l, e);
        if (rc == 0) rc = tm_checkpoint__read_layer(a, &left, e);
        if (rc == 0) rc = tm_checkpoint__read_layer(b, &right, e);
        if (rc == 0) compare_layer(&c, &left, &right, a->has_optimizer && b->has_optimizer);
        tm_layer_state__deinit(&left);
        tm_layer_state__deinit(&right);
    }
    if (rc == 0) *out = difference;
    return rc;
}
