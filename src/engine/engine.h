/* One worker's engine: holds layers, and does its part of a training step.
 *
 * The interface to its driver (a thread of `tidemill train`, or libtidemill):
 *
 *     hold, start or fill, drop      which layers it has; a layer's state is named tensors in one arena
 *     assign                         its place in a layout; memory for activations
 *     prepare                        step s up to reduced gradients and the knowledge that all others have theirs
 *     apply or discard               commits the prepared step, or drops it: the state is as if it never began
 *
 * One thread at a time uses an engine. All messages from others come through the mesh, and a cancelled mesh ends
 * prepare at once with -TM_ECANCELED. No result depends on the layout: doc/engine.md explains how. */
#ifndef TM_ENGINE_ENGINE_H
#define TM_ENGINE_ENGINE_H

#include "engine/assignment.h"
#include "engine/corpus.h"
#include "engine/optimizer.h"
#include "engine/passes.h"

struct tm_engine_options {
    struct tm_network network;
    int micro_batch;       /* samples; fixed for the life of the job */
    int64_t micro_batches; /* of a step, over all pipelines */
    uint64_t seed;
    enum tm_determinism determinism;
    struct tm_optimizer optimizer;
    int64_t memory_max; /* bytes; activations are recomputed where all of them would not fit; 0: no limit */
    const struct tm_kernels *kernels; /* borrowed, all four */
    const struct tm_blas *blas;
    const struct tm_corpus *corpus;
    uint64_t windows; /* of the corpus */
};

struct tm_engine;

/* The caller owns the result. It holds no layer yet. */
int tm_engine_create(const struct tm_engine_options *options, struct tm_engine **out, struct tm_error *e);
void tm_engine_destroy(struct tm_engine *engine); /* NULL is allowed */

/* ---- layers ---- */

/* The state of a layer, NULL if it is not held. Writing to it is allowed while no step is prepared. */
struct tm_layer_state *tm_engine__layer(struct tm_engine *engine, int layer);
/* Makes room for a layer: weights unset, to be started or filled by the caller. */
int tm_engine_hold(struct tm_engine *engine, int layer, struct tm_error *e);
/* Holds a layer in memory of the caller's (tm_layer_state__bytes), whether or not it was held before. */
int tm_engine__take(struct tm_engine *engine, int layer, void *memory, struct tm_error *e);
void tm_engine_start_layer(struct tm_engine *engine, int layer); /* as at the start of training */
void tm_engine__drop(struct tm_engine *engine, int layer);
/* The same as one run of bytes (tm_layer_state__bytes) without an engine: a pure function, for any thread. */
int tm_engine__initial_layer(const struct tm_engine_options *options, int layer, void *out, size_t bytes,
                             struct tm_error *e);

/* ---- a layer's steps elsewhere (engine_advance.c) ---- */

/* The reduced gradients of a layer as one run of bytes. */
size_t tm_engine__gradient_bytes(const struct tm_engine_options *options, int layer);
/* Of the step that is prepared. -TM_EINTERNAL: none is, or `bytes` are not as many. */
int tm_engine__read_gradient(const struct tm_engine *engine, int layer, void *out, size_t bytes, struct tm_error *e);
/* What tm_engine_apply does to a layer's state, done to its bytes (tm_layer_state__bytes): to the same bits. A pure
 * function, for any thread. -TM_EINPUT: not as many bytes as the layer has. */
int tm_engine__advance_layer(const struct tm_engine_options *options, int layer, int64_t step, double clip_factor,
                             void *state, size_t state_bytes, const void *gradient, size_t gradient_bytes,
                             struct tm_error *e);

/* ---- a generation ---- */

/* Takes a place in a layout (which is copied). All its layers must be held when a step is prepared. */
int tm_engine_assign(struct tm_engine *engine, const struct tm_assignment *assignment, int rank, struct tm_error *e);

/* Bytes as computed: state, sums, kept gradients, activations, scratch, messages on their way. */
struct tm_engine__memory {
    size_t state;
    size_t gradients; /* sums of the step in hand and those of the last */
    size_t activations;
    size_t scratch; /* with the gradient of one tensor, and what is on its way */
    bool recompute;
};
struct tm_engine__memory tm_engine__memory(const struct tm_engine *engine);

/* ---- a step ---- */

struct tm_step_result {
    double loss; /* mean over the global batch, before the update */
    double norm; /* of the gradient, before clipping */
    double clip_factor;
    int redone;          /* times the step was done again with other scales */
    uint64_t bytes_sent; /* by this worker */
};

/* Does step `step` up to prepared. -TM_EINPUT: a number is no number; the message names step and layer. The state of
 * layers is untouched, also on failure. */
int tm_engine_prepare(struct tm_engine *engine, struct tm_mesh *mesh, int64_t step, struct tm_step_result *out,
                      struct tm_error *e);
/* What a layer that is held here adds to the square of the prepared step's norm. */
double tm_engine__layer_norm(const struct tm_engine *engine, int layer);
/* Commits the prepared step. A worker that holds reduced gradients but did not hear of all others may be told the clip
 * factor by one that did. */
void tm_engine_apply(struct tm_engine *engine, double clip_factor);
void tm_engine__discard(struct tm_engine *engine);

enum tm_engine__phase { TM_ENGINE_IDLE, TM_ENGINE_REDUCED, TM_ENGINE_PREPARED };
enum tm_engine__phase tm_engine__phase(const struct tm_engine *engine);

/* Sends and fetches layers so that this worker has what `to` gives it, drops the rest, and takes its place in `to`.
 * Only what is missing moves. Every worker of both layouts calls it. Counts what came to this worker. */
int tm_engine__migrate(struct tm_engine *engine, struct tm_mesh *mesh, const struct tm_assignment *from,
                       const struct tm_assignment *to, int64_t step, int *out_layers_fetched, struct tm_error *e);

#endif
