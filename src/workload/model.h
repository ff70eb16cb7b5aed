/* Models: the network that is trained, as a list of layers.
 *
 * A model is a file (model_file.c owns the format, tidemill-model(5) describes it), a shipped one by name, or, for
 * transformers, a formula: "gpt:layers=48,hidden=1600,heads=25,ctx=1024,vocab=50257" (model_formula.c). */
#ifndef TM_WORKLOAD_MODEL_H
#define TM_WORKLOAD_MODEL_H

#include "base/arena.h"
#include "base/env.h"

#include <stdbool.h>
#include <stddef.h>

enum { TM_MODEL_LAYERS_MAX = 4096, TM_MODEL_BYTES_MAX = 4 << 20, TM_MODEL_POINTS_MAX = 4096 };

/* What a layer is made of decides how well it uses a GPU. X(name in files) */
#define TM_LAYER_KINDS(X) X(conv) X(depthwise) X(matmul) X(block) X(embedding) X(norm)

enum tm_layer_kind {
#define TM_LAYER_KIND_ENUM(name) TM_LAYER_##name,
    TM_LAYER_KINDS(TM_LAYER_KIND_ENUM)
#undef TM_LAYER_KIND_ENUM
        TM_LAYER_KIND_COUNT
};

extern const char *const tm_layer_kind_names[]; /* NULL-terminated */

/* Per sample where it depends on samples. "Values" are numbers; their bytes depend on the precision. */
struct tm_layer {
    const char *name;
    enum tm_layer_kind kind;
    double params;
    double forward_flops;  /* 2 per multiply-add */
    double traffic_values; /* read and written forward */
    double saved_values;   /* kept for the backward pass */
    double output_values;  /* handed to the next layer */
    double ops;            /* kernels launched forward */
    int tied;              /* index of the layer that has the same weights; -1: none */
    /* Parts of the figures above. */
    double attention_flops;  /* of forward_flops: in fused attention, scores never stored */
    double unaligned_values; /* of products whose rows no tensor core can load whole: as of 50,257 words */
    double wide_values;      /* of saved_values: kept in 32 bits whatever the precision */
    double frozen_params;    /* of params: not trained, without gradients and optimizer states */
    double attention_scores; /* that fused attention computes: each costs an exponential, however long a head is */
};

/* Measured throughput of a layout, where a model file has it. */
struct tm_model_point {
    int pipelines;
    int stages;
    double step_ms;
    double samples_per_s;
};

struct tm_model {
    struct tm_arena arena; /* owns all below */
    const char *name;
    const char *input;
    const char *source;
    int optimizer_states; /* values kept per parameter besides the weight: 2 for Adam */
    int global_batch;     /* 0: not said */
    int micro_batch;
    int heads;             /* of attention; those that compute a block together have as many each; 0: not known */
    bool recompute;        /* every block's activations are recomputed, whether memory asks for it or not */
    bool compiled;         /* by torch.compile or the like: fewer launches, less traffic */
    bool narrow_gradients; /* made, held and sent in the 16 bits of the training, as are the weights, beside masters in
                              32: no autocast, under which gradients have 32 bits */
    bool channels_last;    /* convolutions on values laid out so: tensor cores take them as they are */
    bool even_cut;         /* its trainer gives every stage as many layers, whatever they cost */
    struct tm_layer *layers;
    size_t layer_count;
    struct tm_model_point *points;
    size_t point_count;
};

void tm_model_init(struct tm_model *model);
void tm_model_deinit(struct tm_model *model);

/* `model` must be initialised; it is filled only on success. An unknown name gets a suggestion. */
int tm_model_load(struct tm_env *env, const char *name_or_path, struct tm_model *model, struct tm_error *e);
int tm_model__parse(const char *file, const char *text, size_t length, struct tm_model *model, struct tm_error *e);
/* A formula with its family: "gpt:...", "llama:...", "bert:...", "vit:...", "t5:...". */
bool tm_model__is_formula(const char *text);
int tm_model__from_formula(const char *formula, struct tm_model *model, struct tm_error *e);
/* Bits of gradients: "16", "fp16", "bf16", "32" or "fp32"; false: none of these. */
bool tm_model__read_gradients(const char *text, size_t length, bool *out_narrow);
/* Our file form; reading it back gives the same model. */
void tm_model__print(const struct tm_model *model, struct tm_text *out);

struct tm_model_totals {
    double params; /* tied weights once */
    double trained_params;
    double forward_flops;
    double train_flops; /* forward + backward: see tm_model_totals */
    double traffic_values;
    double saved_values;
    double ops;
};

/* Sums over the layers. Training counts three times the forward pass: gradients of inputs and of weights each cost as
 * much as the forward pass (the first layer's input gradient, which nobody needs, is left in: below 1%). */
struct tm_model_totals tm_model_totals(const struct tm_model *model);

/* Tokens of one sample, decoded ones not counted; 0 where its samples are not text, or nothing is said of them. */
int64_t tm_model_sample_tokens(const struct tm_model *model);

/* Names of the shipped models. */
size_t tm_model_shipped_count(void);
const char *tm_model_shipped_name(size_t i);

#endif
