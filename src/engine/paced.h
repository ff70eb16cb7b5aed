/* The paced engine: trains nothing, and takes the time and moves the bytes that training would take and move.
 *
 * A step of a layout takes the seconds that a profile or a prediction says (job.step_s), divided by `speed`: at 60 an
 * hour of training takes a minute. A worker with more micro-batches than an equal share takes longer in proportion, and
 * one on a slower instance too (job.slowness). Within a step, stages wait for each other as in 1F1B: the first
 * micro-batch goes down the pipeline, the last comes back up, each stage waits its share on a timer; replicas of a
 * stage then sum their gradients in a ring. What one step is late (messages, votes), the next makes up for, up to a
 * quarter of a step: the profiled time counts from step to step. Activations, gradients and states are real bytes,
 * `bytes_divisor` times smaller than the model's. So layouts matter, and many workers fit on few cores.
 *
 * The state of a layer is a hash chain: step s of layer l mixes in what every micro-batch of s contributed, each once,
 * and the sum of squares over all layers. So the state at the end is a pure function of (job, layer, steps): it proves
 * that each step was applied once, in order, with each micro-batch counted once, whatever happened in between. */
#ifndef TM_ENGINE_PACED_H
#define TM_ENGINE_PACED_H

#include "base/env.h"
#include "engine/mesh.h"

enum { TM_PACED_DIVISOR = 4096 /* unless the job says otherwise */, TM_PACED_WORDS = 8 /* of a gradient that live */ };

struct tm_model; /* workload/model.h */

struct tm_paced_job {
    const struct tm_model *model; /* borrowed */
    uint32_t micro_batches;       /* of a step */
    double speed;                 /* seconds of training per second of real time; > 0 */
    double slowness;              /* of this instance: its micro-batches take so many times as long; 0: 1 */
    const char *slow_file;        /* while it is there, twice as long again; NULL: never */
    uint32_t bytes_divisor;       /* of sizes; > 0 */
    /* Seconds of training that a step takes in so many pipelines of so many stages; 0: cannot train so. */
    double (*step_s)(void *context, uint32_t pipelines, uint32_t stages);
    void *context;
};

/* Who does what: as struct tidemill_work says. The rank of stage s of pipeline p in a mesh is p * stages + s. */
struct tm_paced_place {
    uint32_t pipeline, pipelines;
    uint32_t stage, stages;
    uint32_t first_layer, last_layer;
    uint32_t first_micro_batch, last_micro_batch;
};

struct tm_paced_norm {
    uint32_t layer;
    double sum;
};

struct tm_paced;

/* The caller owns the result. -TM_EINPUT: a job that cannot be (no layers, no speed). */
int tm_paced__create(struct tm_env *env, const struct tm_paced_job *job, struct tm_paced **out, struct tm_error *e);
void tm_paced__destroy(struct tm_paced *paced); /* NULL is allowed */

uint32_t tm_paced__layers(const struct tm_paced_job *job);
uint64_t tm_paced__layer_bytes(const struct tm_paced_job *job, uint32_t layer);
/* The state before the first step, of tm_paced__layer_bytes. */
void tm_paced__init_layer(const struct tm_paced_job *job, uint32_t layer, void *out);

/* The layer is held in `memory` (tm_paced__layer_bytes), which is the caller's. tm_paced__layer: where; NULL: it is not
 * held. Dropping one that is not held is allowed. */
void tm_paced__take(struct tm_paced *paced, uint32_t layer, void *memory);
void *tm_paced__layer(struct tm_paced *paced, uint32_t layer);
void tm_paced__drop(struct tm_paced *paced, uint32_t layer);

/* One step up to its reduced gradients, as long as it takes; norms of the stage's layers to `out` (room for all of
 * them). -TM_ECANCELED: given up; -TM_EPEER: a neighbour is gone. `fresh`: the first step of a generation, or after
 * one that was given up: time counts from now. */
int tm_paced__prepare(struct tm_paced *paced, struct tm_mesh *mesh, const struct tm_paced_place *place, uint64_t step,
                      bool fresh, struct tm_paced_norm *out, struct tm_error *e);
/* What the step that was prepared last would have taken this instance to compute, in real time. */
uint64_t tm_paced__computed_us(const struct tm_paced *paced);
/* Applies the reduced gradients to the layers of the place they were made for. */
void tm_paced__apply(struct tm_paced *paced, uint64_t step, double norm);

/* The reduced gradients of a layer of the place, between prepare and apply; and what apply does to a layer's state,
 * done to its bytes by a pure function. */
uint64_t tm_paced__gradient_bytes(const struct tm_paced_job *job, uint32_t layer);
void tm_paced__read_gradient(const struct tm_paced *paced, uint32_t layer, void *out);
void tm_paced__advance_layer(const struct tm_paced_job *job, uint32_t layer, uint64_t step, double norm, void *state,
                             const void *gradient);

/* From any thread: the timer that is waited for ends at once, and all that follow until `resume`. A mesh is cancelled
 * by its own. */
void tm_paced__cancel(struct tm_paced *paced);
void tm_paced__resume(struct tm_paced *paced);

/* The state of every layer after so many undisturbed steps: `each` gets one after the other. */
int tm_paced_reference(const struct tm_paced_job *job, uint64_t steps,
                       void (*each)(void *context, uint32_t layer, const void *state, uint64_t bytes), void *context,
                       struct tm_error *e);

#endif
