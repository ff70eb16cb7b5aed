#include "workload/memory.h"

#include <math.h>
#include <string.h>

static const double WORKSPACE_GIB = 0.12; /* of matrix products and small tensors */

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

/* The products behind the last block or convolution. A gradient that two layers share is not whole before the end. */
static void add_head(const struct tm_model *model, size_t first, size_t last, bool blocks, struct tm_footprint *sum)
{
    for (size_t i = last; i > first; i--) {
        const struct tm_layer *layer = &model->layers[i - 1];
        if (layer->kind != TM_LAYER_matmul || layer->tied >= 0) return;
        double trained = layer->params - layer->frozen_params;
        double narrow = layer->saved_values - layer->wide_values;
        sum->head_trained_params += trained;
        sum->head_narrow_values += narrow;
        sum->head_wide_values += layer->wide_values;
        if (!blocks) continue;
        sum->head_kept_narrow_values += narrow;
        sum->head_kept_wide_values += layer->wide_values;
    }
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
    add_head(model, first, last, blocks, &sum);
    return sum;
}

/* What the backward pass no longer needs when it leaves the products at the end. */
static double head_gone(const struct tm_footprint *footprint, const struct tm_memory_use *use, double samples)
{
    bool narrow = tm_precision_value_bytes(use->precision) < 4;
    double narrow_values = use->recompute ? footprint->head_kept_narrow_values : footprint->head_narrow_values;
    double wide_values = use->recompute ? footprint->head_kept_wide_values : footprint->head_wide_values;
    double casts = narrow && use->zero < 3 && !use->narrow_gradients ? 2 * footprint->head_trained_params : 0;
    return casts + (narrow_values * (narrow ? 2 : 4) + wide_values * 4) * samples;
}

/* Weights, frozen or not, their masters and optimizer states: what is there all the time. */
static double held_bytes(const struct tm_footprint *footprint, const struct tm_memory_use *use, bool own16)
{
    double trained = footprint->params - footprint->frozen_params;
    double share = use->shards > 1 ? 1.0 / use->shards : 1;
    double weights = use->zero >= 3 ? share : 1;
    double states = use->zero >= 1 ? share : 1;
    double frozen = footprint->frozen_params * (tm_precision_value_bytes(use->precision) < 4 ? 2 : 4) * weights;
    if (own16) return frozen + trained * (2 * weights + 4 * states * (1 + use->optimizer_states));
    return frozen + trained * 4 * (weights + states * use->optimizer_states);
}

/* 16-bit copies of the weights, or the layers that are gathered while they compute: this one and the next. */
static double cast_bytes(const struct tm_footprint *footprint, const struct tm_memory_use *use, bool narrow, bool own16)
{
    if (use->zero >= 3) return 2 * footprint->layer_params * (narrow ? 2 : 4);
    if (!narrow || own16) return 0;
    return 2 * (use->recompute ? footprint->kept_cast_params : footprint->cast_params);
}

double tm_memory_gib(const struct tm_footprint *footprint, const struct tm_memory_use *use)
{
    bool narrow = tm_precision_value_bytes(use->precision) < 4;
    bool own16 = narrow && use->narrow_gradients;
    double value_bytes = narrow ? 2 : 4;
    double trained = footprint->params - footprint->frozen_params;
    double gradient_bytes = (own16 ? 2.0 : 4.0) * (use->zero >= 2 && use->shards > 1 ? 1.0 / use->shards : 1);
    double casts = cast_bytes(footprint, use, narrow, own16);
    double kept = use->recompute ? footprint->kept_narrow_values * value_bytes + footprint->kept_wide_values * 4
                                 : footprint->narrow_values * value_bytes + footprint->wide_values * 4;
    double again = use->recompute ? footprint->again_narrow_values * value_bytes + footprint->again_wide_values * 4 : 0;
    double before = use->micro_batches > 1 ? trained * gradient_bytes : 0;
    double begin = casts + before + kept * use->in_flight * use->micro_batch;
    double left = begin - before - head_gone(footprint, use, use->micro_batch) +
                  fmax(before, footprint->head_trained_params * gradient_bytes);
    double whole = use->zero >= 2 ? (own16 ? 2 : 4) * footprint->layer_params : 0; /* before it is shared out */
    double end = (trained + 2 * footprint->tied_params) * gradient_bytes + whole +
                 kept * (use->in_flight - 1) * use->micro_batch + again * use->micro_batch;
    double held = held_bytes(footprint, use, own16);
    return (held + fmax(fmax(begin, left), end)) / (use->tensor > 1 ? use->tensor : 1) / (1 << 30) + WORKSPACE_GIB;
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
