/* An engine as a worker of a job: the loop between libtidemill (include/tidemill.h), a mesh a generation, and an
 * engine.
 *
 * libtidemill says what to do (compute a step, apply it) and moves layers; the hub (mesh_hub.h) connects the members of
 * the generation; the engine does the arithmetic. tm_elastic__run is that loop for any engine; tm_elastic_worker runs
 * it with the built-in GPT engine. Steps of libtidemill count from 1, those of the engine from 0.
 *
 * The weights at the end are in the newest copy set in files (elastic_result.h). */
#ifndef TM_ENGINE_ELASTIC_H
#define TM_ENGINE_ELASTIC_H

#include "engine/mesh_hub.h"
#include "engine/train_job.h"

#include <tidemill.h>

/* What the loop asks of an engine. `context` comes first everywhere; layers as in struct tidemill_engine. */
struct tm_elastic_engine {
    void *context;
    uint32_t layers;
    const char *kernel_class;
    uint64_t (*layer_bytes)(void *context, uint32_t layer);
    int (*init_layer)(void *context, uint32_t layer, void *out, uint64_t bytes);
    int (*take_layer)(void *context, uint32_t layer, void *memory, uint64_t bytes);
    void (*drop_layer)(void *context, uint32_t layer);
    /* Step work->step up to its reduced gradients: norms of our layers to `norms` (room for all layers). `fresh`: the
     * first step in this mesh, so work's layout may be a new one. The rank of stage s of pipeline p in the mesh is
     * p * stages + s. -TM_ECANCELED or -TM_EPEER: given up, the next generation does it again; -TM_EINPUT or
     * -TM_ELIMIT: the job itself is wrong, and fails; any other ends this worker. */
    int (*prepare)(void *context, const struct tidemill_work *work, struct tm_mesh *mesh, bool fresh,
                   struct tidemill_norm *norms, size_t *out_count, struct tm_error *e);
    /* How long the step that was prepared last was computed, others not waited for; NULL: by the clock. */
    uint64_t (*computed_us)(void *context);
    /* Applies what was prepared last; work->norm is the sum of squares over all layers. `out_loss`: of this step, NaN
     * where it is not known here. */
    int (*apply)(void *context, const struct tidemill_work *work, double *out_loss, struct tm_error *e);
    /* As in struct tidemill_engine; all three or none. */
    uint64_t (*gradient_bytes)(void *context, uint32_t layer);
    int (*read_gradient)(void *context, uint32_t layer, void *out, uint64_t bytes);
    int (*advance_layer)(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_bytes,
                         const void *gradient, uint64_t gradient_bytes);
    void (*cancel)(void *context); /* from any thread: the computation under way is in vain; NULL: none */
    void (*resume)(void *context); /* before each step: what was cancelled so far does not concern it; NULL: none */
};

/* 0: the job is finished; the memory of the layers is gone, the engine may still drop them. -TM_EPEER: refused, or the
 * job has failed. `library` is taken but for endpoint and kernel_class. */
int tm_elastic__run(struct tm_env *env, const struct tidemill_options *library, const struct tm_elastic_engine *engine,
                    struct tm_error *e);

struct tm_elastic_options {
    const struct tm_train_job *job;
    struct tidemill_options library; /* for example by tidemill_options_from_environment */
};

/* The built-in GPT engine; kernels and matrix products are chosen here (TIDEMILL_KERNELS). */
int tm_elastic_worker(struct tm_env *env, const struct tm_elastic_options *options, struct tm_error *e);

/* How many layers and micro-batches a coordinator must be told (struct tm_coordinator_options) for a job. */
uint32_t tm_elastic_layers(const struct tm_train_job *job);
uint32_t tm_elastic_micro_batches(const struct tm_train_job *job);

#endif
