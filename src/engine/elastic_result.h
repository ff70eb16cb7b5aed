/* What a job of the built-in engine has trained: read from the newest whole copy set in files.
 *
 * `copies` is the folder that workers and coordinator were given for copies (copies/ of a state folder): the
 * coordinator names the newest whole set there in the file `newest`. When the job is finished that set is of its last
 * step. */
#ifndef TM_ENGINE_ELASTIC_RESULT_H
#define TM_ENGINE_ELASTIC_RESULT_H

#include "base/env.h"
#include "engine/train_job.h"
#include "wire/hash.h"

struct tm_elastic_result {
    uint64_t set;
    uint64_t step;               /* steps that are in it */
    struct tm_hash weights_hash; /* what `tidemill train` prints for the same job after as many steps */
};

/* -TM_ENOTFOUND: there is no whole set. -TM_EINPUT: one of its files is damaged, or of another network. */
int tm_elastic_weights_hash(struct tm_env *env, const char *copies, const struct tm_train_job *job,
                            struct tm_elastic_result *out, struct tm_error *e);

/* The same, and writes it all as a checkpoint under `dir` (checkpoint.h), which `generate`, `verify` and `train
 * --resume` read. `kernel_class` as the record and the coordinator's view have it ("avx512/SkylakeX"). */
int tm_elastic_write_checkpoint(struct tm_env *env, const char *copies, const struct tm_train_job *job,
                                const char *kernel_class, const char *dir, struct tm_elastic_result *out,
                                struct tm_error *e);

#endif
