/* What the built-in engine takes of a job: the network and the optimizer as it computes with them, with nothing unsaid,
 * all in range and fitting together. It is made from a struct tm_job, and read from no file. */
#ifndef TM_ENGINE_TRAIN_JOB_H
#define TM_ENGINE_TRAIN_JOB_H

#include "base/arena.h"
#include "base/env.h"
#include "base/fields.h"
#include "engine/gradients.h"
#include "engine/network.h"
#include "engine/optimizer.h"
#include "workload/job.h"

struct tm_train_job {
    const char *name;
    struct tm_network network;
    const char *data; /* a shipped text's name, or a path (from the job's folder) */
    int64_t batch;    /* samples of a step */
    int64_t micro_batch;
    int64_t steps;
    uint64_t seed;
    struct tm_optimizer optimizer;
    enum tm_determinism determinism;
    int pipelines; /* of the layout it asks for; 1x1 if none */
    int stages;
    int64_t memory_max; /* bytes a worker may use; 0: no limit */
    struct {
        const char *dir; /* "": none are written */
        int64_t every;   /* steps; 0: at the end only */
        int64_t keep;    /* complete ones that stay */
    } checkpoint;
};

/* Texts live in the arena. Errors name file, line and key. */
int tm_train_job_of(const struct tm_job *from, struct tm_arena *arena, struct tm_train_job *out, struct tm_error *e);

/* What is wrong with it as a whole, as -TM_EINPUT (also done by the above). */
int tm_train_job__check(const struct tm_train_job *job, struct tm_error *e);

/* What must be the same on all machines, as lines of wire/fingerprint.h: whatever the weights depend on. The data's
 * part is left out where it cannot be read here. */
void tm_train_job_fingerprint(struct tm_env *env, const struct tm_train_job *job, struct tm_text *out);

#endif
