/* Memory that training takes on one GPU, as PyTorch's allocator counts it at its peak.
 *
 * Weights and optimizer states are there all the time, in 32 bits; under autocast a 16-bit copy of every weight that a
 * product has used stays until its backward pass. Gradients are made while activations go, so that the peak is at one
 * of three moments: when the backward pass begins (all activations, and gradients only of micro-batches before), when
 * it leaves the products at the end (VGG's have most of the weights, and all convolutions still wait), or when it ends
 * (all gradients, and the last activations). Frozen weights are held in the format of the training and have
 * neither gradient nor state. Where the network itself is trained in 16 bits, weights and gradients have 16 for good,
 * and the weights masters in 32 beside them. Of weights that are shared out, two layers are whole at a time. With
 * recomputation a block keeps its input alone, and one block at a time is whole. */
#ifndef TM_WORKLOAD_MEMORY_H
#define TM_WORKLOAD_MEMORY_H

#include "base/precision.h"
#include "workload/model.h"

/* What a run of layers holds; values are per sample. */
struct tm_footprint {
    double params;
    double frozen_params;
    double cast_params; /* weights of products, which autocast copies */
    double kept_cast_params;
    double tied_params;                            /* their gradients come from two places and are added up */
    double narrow_values, wide_values;             /* saved, in the training's format and in 32 bits */
    double kept_narrow_values, kept_wide_values;   /* the same with recomputation, between the passes */
    double again_narrow_values, again_wide_values; /* of the largest layer that is recomputed */
    double layer_params;                           /* of the largest layer */
    /* Of the products at the end, whose backward pass is first; kept: with recomputation, between the passes. */
    double head_trained_params;
    double head_narrow_values, head_wide_values, head_kept_narrow_values, head_kept_wide_values;
};

/* Of layers first .. last - 1 of the model. */
struct tm_footprint tm_footprint_of(const struct tm_model *model, size_t first, size_t last);

/* How it is trained. */
struct tm_memory_use {
    enum tm_precision precision;
    int optimizer_states;
    int micro_batch;
    int in_flight;     /* micro-batches whose activations are held at once */
    int micro_batches; /* of a step: more than one add up in the gradients */
    bool recompute;
    bool narrow_gradients; /* in 16 bits, as weights beside their masters */
    int tensor;            /* GPUs that hold a layer together; 0 or 1: one */
    int zero;              /* what `shards` GPUs share out: ZeRO 1 optimizer states, 2 gradients too, 3 weights too */
    int shards;
};

double tm_memory_gib(const struct tm_footprint *footprint, const struct tm_memory_use *use);

/* What a program finds on a GPU, of the memory that its maker names: error correction takes a sixteenth of GDDR, and
 * the driver some of any. Where nobody told us, what is named. */
double tm_memory__usable_gib(const char *gpu, double memory_gib);

/* What a GPU gives to nobody: driver, libraries, fragments. */
#define TM_MEMORY_RESERVED_GIB 1.0

#endif
