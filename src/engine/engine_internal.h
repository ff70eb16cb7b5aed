/* Shared by engine.c, engine_step.c and engine_reduce.c only. */
#ifndef TM_ENGINE_ENGINE_INTERNAL_H
#define TM_ENGINE_ENGINE_INTERNAL_H

#include "engine/engine.h"

struct tm_held_layer {
    bool held;
    struct tm_layer_state state;
    struct tm_gradients gradients;
};

/* What is kept of one micro-batch between its way forth and its way back. */
struct tm_slot {
    uint8_t *tokens;               /* micro_batch x ctx */
    uint8_t *targets;              /* the same */
    float **flows;                 /* blocks + 1: what came in to each block of the stage, and what the last one gave */
    struct tm_block_cache *caches; /* blocks of the stage; all share one where activations are recomputed */
};

struct tm_engine {
    struct tm_engine_options options;
    struct tm_held_layer *layers; /* by layer */
    int layer_count;
    /* the place */
    struct tm_assignment assignment;
    bool assigned; /* false: a spare */
    int rank;
    int pipeline;
    int stage;
    int first;       /* layer of the stage */
    int end;         /* behind the last one */
    int first_block; /* the blocks among them */
    int block_count;
    int64_t micro_first; /* of the pipeline */
    int64_t micro_count;
    bool recompute;
    /* memory of the place */
    void *activation_memory;
    size_t activation_bytes;
    struct tm_slot *slots;
    int64_t slot_count;
    float **flow_table;
    struct tm_block_cache *cache_table;
    void *scratch_memory;
    size_t scratch_bytes;
    float *scratch;
    float *single;  /* gradient of one tensor of one micro-batch */
    float *d;       /* the gradient that flows back */
    double *norms;  /* by layer: sums of squares of the reduced gradients of those held here */
    double *losses; /* by micro-batch of the whole step */
    /* the step in hand */
    enum tm_engine__phase phase;
    int64_t step;
    uint32_t attempt;
    int bad_layer; /* the first whose output was no number; -1: none */
    int64_t bad_micro;
};

/* Sums over all workers that hold the same layers, and the largest gradient of each tensor. */
int tm_engine__reduce(struct tm_engine *engine, struct tm_mesh *mesh, struct tm_error *e);

/* Everyone tells everyone: losses, norms, overflow. *out_redo: scales were too large, the step must be done again. */
int tm_engine__exchange(struct tm_engine *engine, struct tm_mesh *mesh, struct tm_step_result *out, bool *out_redo,
                        struct tm_error *e);

/* Gradients that are added to one sum of a tensor in a step: one a micro-batch, two for the tied weight. */
int64_t tm_engine__addends_of(const struct tm_engine_options *options, int layer, size_t tensor);
int64_t tm_engine__addends(const struct tm_engine *engine, int layer, size_t tensor);

#endif
