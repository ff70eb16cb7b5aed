#include "workload/memory.h"

#include <math.h>
#include <string.h>

static const double WORKSPACE_GIB = 0.12; /* of matrix products and small tensors */
/* Values of convolutional networks, which are counted layer by layer: some are shared or dropped early. */
static const double CONV_16 = 0.9;
static const double CONV_32 = 0.8;

static bool is_conv(const struct tm_layer *layer)
{
    return layer->kind == TM_LAYER_conv || layer->kind == TM_LAYER_depthwise;
}

static bool has_blocks(const struct tm_model *model)
{
    for (size_t i = 0; i < model->layer_count; i++) {
        if (model->layers[i].kind == TM_LAYER_block) return true;
    }
    return false;
}

static void add_params(const struct tm_model *model, const struct tm_layer *layer, bool again, struct tm_footprint *sum)
{
    double held = layer->params;
    double frozen = layer->frozen_params;
    double cast = layer->kind == TM_LAYER_embedding || layer->kind == TM_LAYER_norm ? 0 : held - frozen;
    if (layer->tied >= 0 && held == 0) { /* the table at the other end: this product uses it */
        const struct tm_layer *other = &model->layers[layer->tied];
        cast = other->params - other->frozen_params;
    }
    sum->params += held;
    sum->frozen_params += frozen;
    sum->cast_params += cast;
    if (!again) sum->kept_cast_params += cast;
    if (layer->tied >= 0) sum->tied_params = fmax(sum->tied_params, held - frozen);
}

struct tm_footprint tm_footprint_of(const struct tm_model *model, size_t first, size_t last)
{
    struct tm_footprint sum = {0};
    bool blocks = has_blocks(model);
    for (size_t i = first; i < last; i++) {
        const struct tm_layer *layer = &model->layers[i];
        bool again = !blocks || layer->kind == TM_LAYER_block;
        double narrow = layer->saved_values - layer->wide_values;
        double wide = layer->wide_values;
        double input = i > 0 ? model->layers[i - 1].output_values : 0;
        add_params(model, layer, again, &sum);
        sum.layer_params = fmax(sum.layer_params, layer->params);
        if (is_conv(layer)) sum.conv_values += narrow;
        sum.narrow_values += narrow;
        sum.wide_values += wide;
        if (!again) {
            sum.kept_narrow_values += narrow;
            sum.kept_wide_values += wide;
            continue;
        }
        *(blocks ? &sum.kept_wide_values : &sum.kept_narrow_values) += input; /* the residual stream has 32 bits */
        sum.again_narrow_values = fmax(sum.again_narrow_values, narrow);
        sum.again_wide_values = fmax(sum.again_wide_values, wide);
    }
    return sum;
}

double tm_memory_gib(const struct tm_footprint *footprint, const struct tm_memory_use *use)
{
    bool narrow = tm_precision_value_bytes(use->precision) < 4;
    double value_bytes = narrow ? 2 : 4;
    double trained = footprint->params - footprint->frozen_params;
    double share = use->shards > 1 ? 1.0 / use->shards : 1;
    double weights = use->zero >= 3 ? share : 1;
    double gradients = use->zero >= 2 ? share : 1;
    double states = use->zero >= 1 ? share : 1;
    double held =
        footprint->frozen_params * value_bytes * weights + trained * 4 * (weights + states * use->optimizer_states);
    double casts = narrow ? 2 * (use->recompute ? footprint->kept_cast_params : footprint->cast_params) : 0;
    if (use->zero >= 3) casts = 2 * footprint->layer_params * value_bytes; /* this layer and the next */
    double saved = footprint->narrow_values + ((narrow ? CONV_16 : CONV_32) - 1) * footprint->conv_values;
    double kept = use->recompute ? footprint->kept_narrow_values * value_bytes + footprint->kept_wide_values * 4
                                 : saved * value_bytes + footprint->wide_values * 4;
    double again = use->recompute ? footprint->again_narrow_values * value_bytes + footprint->again_wide_values * 4 : 0;
    double before = use->micro_batches > 1 ? 4 * trained * gradients : 0;
    double begin = casts + before + kept * use->in_flight * use->micro_batch;
    double whole = use->zero >= 2 ? 4 * footprint->layer_params : 0; /* before it is shared out */
    double end = 4 * trained * gradients + whole + 8 * footprint->tied_params * gradients +
                 kept * (use->in_flight - 1) * use->micro_batch + again * use->micro_batch;
    return (held + fmax(begin, end)) / (use->tensor > 1 ? use->tensor : 1) / (1 << 30) + WORKSPACE_GIB;
}

double tm_memory__usable_gib(const char *gpu, double memory_gib)
{
    /* As PyTorch names it when memory runs out ("a total capacity of 14.75 GiB"), error correction on as clouds have
     * it. */
    static const struct {
        const char *name;
        double gib;
    } seen[] = {
        {"K80", 11.17},  {"P100", 15.89}, {"V100", 15.77},      {"V100-32GB", 31.74}, {"T4", 14.75},
        {"T4g", 14.75},  {"A10", 22.06},  {"A10G", 22.06},      {"A40", 44.43},       {"L4", 22.03},
        {"L40S", 44.39}, {"A100", 39.39}, {"A100-80GB", 79.15}, {"H100", 79.1},       {"H100-NVL", 93.1},
        {"GH200", 94.5}, {"H200", 139.8},
    };
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        bool same = strcmp(seen[i].name, gpu) == 0 && memory_gib < 1.2 * seen[i].gib; /* not one with more of it */
        if (same) return fmin(memory_gib, seen[i].gib);
    }
    return memory_gib;
}
