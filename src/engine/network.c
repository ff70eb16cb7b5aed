#include "engine/network.h"

#include "engine/kernels.h"

#include <stdio.h>

enum { TENSOR_ALIGN = 16, WIDTH_MAX = 65536 };

int tm_network__check(const struct tm_network *network, struct tm_error *e)
{
    if (network->blocks < 1 || network->blocks > TM_NETWORK_LAYERS_MAX - 2)
        return tm_error_set(e, TM_EINPUT, "layers: expected 1 to %d, got %d", TM_NETWORK_LAYERS_MAX - 2,
                            network->blocks);
    if (network->width < 1 || network->width > WIDTH_MAX)
        return tm_error_set(e, TM_EINPUT, "hidden: expected 1 to %d, got %d", WIDTH_MAX, network->width);
    if (network->heads < 1 || network->width % network->heads != 0)
        return tm_error_set(e, TM_EINPUT, "heads: hidden (%d) must be a multiple of heads, got %d", network->width,
                            network->heads);
    if (network->ctx < 1 || network->ctx > TM_CTX_MAX)
        return tm_error_set(e, TM_EINPUT, "ctx: expected 1 to %d, got %d", TM_CTX_MAX, network->ctx);
    if (!(network->dropout >= 0 && network->dropout <= 0.9))
        return tm_error_set(e, TM_EINPUT, "dropout: expected 0 to 0.9, got %g", network->dropout);
    return 0;
}

int tm_network_layers(const struct tm_network *network)
{
    return network->blocks + 2;
}

static void add_tensor(struct tm_layer_spec *spec, const char *name, int64_t rows, int64_t columns)
{
    struct tm_tensor_spec *tensor = &spec->tensors[spec->tensor_count++];
    size_t count = (size_t)(rows > 0 ? rows : 1) * (size_t)columns;
    *tensor = (struct tm_tensor_spec){.name = name,
                                      .dims = rows > 0 ? 2 : 1,
                                      .shape = {rows > 0 ? rows : columns, columns},
                                      .offset = spec->floats,
                                      .count = count,
                                      .decays = rows > 0};
    spec->floats += (count + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
}

static void block_tensors(struct tm_layer_spec *spec, int64_t width)
{
    add_tensor(spec, "ln_1.weight", 0, width);
    add_tensor(spec, "ln_1.bias", 0, width);
    add_tensor(spec, "attn.c_attn.weight", width, 3 * width);
    add_tensor(spec, "attn.c_attn.bias", 0, 3 * width);
    add_tensor(spec, "attn.c_proj.weight", width, width);
    add_tensor(spec, "attn.c_proj.bias", 0, width);
    add_tensor(spec, "ln_2.weight", 0, width);
    add_tensor(spec, "ln_2.bias", 0, width);
    add_tensor(spec, "mlp.c_fc.weight", width, 4 * width);
    add_tensor(spec, "mlp.c_fc.bias", 0, 4 * width);
    add_tensor(spec, "mlp.c_proj.weight", 4 * width, width);
    add_tensor(spec, "mlp.c_proj.bias", 0, width);
}

void tm_network_layer(const struct tm_network *network, int layer, struct tm_layer_spec *out)
{
    *out = (struct tm_layer_spec){.kind = TM_LAYER_BLOCK};
    if (layer == 0) {
        out->kind = TM_LAYER_EMBED;
        add_tensor(out, "wte.weight", TM_VOCAB, network->width);
        add_tensor(out, "wpe.weight", network->ctx, network->width);
    } else if (layer == network->blocks + 1) {
        out->kind = TM_LAYER_HEAD;
        add_tensor(out, "wte.weight", TM_VOCAB, network->width);
        add_tensor(out, "ln_f.weight", 0, network->width);
        add_tensor(out, "ln_f.bias", 0, network->width);
    } else {
        block_tensors(out, network->width);
    }
}

const char *tm_network__tensor_name(const struct tm_network *network, int layer, size_t tensor,
                                    char buffer[TM_TENSOR_NAME_MAX])
{
    struct tm_layer_spec spec;
    tm_network_layer(network, layer, &spec);
    if (spec.kind == TM_LAYER_BLOCK)
        (void)snprintf(buffer, TM_TENSOR_NAME_MAX, "h.%d.%s", layer - 1, spec.tensors[tensor].name);
    else
        (void)snprintf(buffer, TM_TENSOR_NAME_MAX, "%s", spec.tensors[tensor].name);
    return buffer;
}

int64_t tm_network__parameters(const struct tm_network *network)
{
    int64_t count = 0;
    for (int layer = 0; layer < tm_network_layers(network); layer++) {
        struct tm_layer_spec spec;
        tm_network_layer(network, layer, &spec);
        for (size_t t = spec.kind == TM_LAYER_HEAD ? 1 : 0; t < spec.tensor_count; t++)
            count += (int64_t)spec.tensors[t].count;
    }
    return count;
}

double tm_network_sample_flops(const struct tm_network *network)
{
    double width = network->width;
    double matrices = (double)network->blocks * 12 * width * width + (double)TM_VOCAB * width;
    double attention = (double)network->blocks * 2 * (double)network->ctx * width; /* scores and values, unmasked */
    return 6 * (matrices + attention) * (double)network->ctx;
}
