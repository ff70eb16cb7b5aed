/* The gradients of one layer over the micro-batches of a step: as integers (fixed_point.h), or plainly as floats.
 *
 * A pass asks where to put the gradient of a tensor (begin), computes it there, and hands it over (end). */
#ifndef TM_ENGINE_GRADIENTS_H
#define TM_ENGINE_GRADIENTS_H

#include "engine/kernels.h"
#include "engine/layer_state.h"

enum tm_determinism {
    TM_BITWISE, /* integers: the same bits whatever the layout */
    TM_FAST,    /* floats, added in whatever order they come */
    TM_NAIVE,   /* floats over a worker's micro-batches, then integers: looks safe, is not (kept for a test) */
};

extern const char *const tm_determinism_names[]; /* "bitwise", "fast": what a job may ask for */

struct tm_gradients {
    const struct tm_kernels *kernels;
    const struct tm_layer_spec *spec; /* borrowed */
    enum tm_determinism determinism;
    void *memory; /* owned; holds both sums */
    union tm_sums {
        int32_t *integers;
        float *floats;
    } sums, kept;                   /* spec->floats: of the step in hand; reduced, of the last prepared step */
    float *single;                  /* of one tensor of one micro-batch; borrowed, largest tensor of any layer */
    bool first;                     /* nothing was added yet in this step */
    int32_t scales[TM_TENSORS_MAX]; /* in force in this step */
    float largest[TM_TENSORS_MAX];  /* of any micro-batch of this step; NAN: one is no number */
};

int tm_gradients__init(struct tm_gradients *gradients, const struct tm_kernels *kernels,
                       const struct tm_layer_state *state, enum tm_determinism determinism, float *single,
                       struct tm_error *e);
void tm_gradients__deinit(struct tm_gradients *gradients);

/* A new step (or the same again) with these scales: sums start from nothing. */
void tm_gradients__start(struct tm_gradients *gradients, const int32_t scales[TM_TENSORS_MAX]);

/* Where the gradient of a tensor goes, and whether it is to be added there (*out_beta 1) or set (0). */
float *tm_gradients__begin(struct tm_gradients *gradients, size_t tensor, float *out_beta);
/* Where one goes that must be made from zero, whatever the kind of sum. */
float *tm_gradients__begin_set(struct tm_gradients *gradients);
void tm_gradients__end(struct tm_gradients *gradients, size_t tensor, const float *at);
/* The micro-batch is done. */
void tm_gradients__micro_done(struct tm_gradients *gradients);
/* All micro-batches of this worker are done: sums of a worker that had none become 0; naive sums become integers. */
void tm_gradients__finish(struct tm_gradients *gradients);

/* Sum of squares of the reduced gradient, `from` a tensor on, as the optimizer will see it but for clipping. */
double tm_gradients__square_sum(const struct tm_gradients *gradients, size_t from_tensor, int64_t micro_batches);
/* What a stored gradient of a tensor is multiplied by to be the mean over micro-batches. */
double tm_gradients__unit(const struct tm_gradients *gradients, size_t tensor, int64_t micro_batches);

#endif
