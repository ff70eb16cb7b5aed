/* What a run leaves: the weights of its last step as a checkpoint, and their hash. */
#ifndef TM_JOB_RUN_RESULT_H
#define TM_JOB_RUN_RESULT_H

#include "base/arena.h"
#include "job/run_work.h"

/* The built-in engine's weights as the newest copy set in files has them: a checkpoint in result/ of the state folder
 * (and in the job's checkpoint folder, if it names one), with the hash that `tidemill train` gives. `folder` is the job
 * file's. -TM_EINPUT: the set is not of step `step`. */
int tm_run_result_gpt(struct tm_env *env, const char *dir, const char *folder, uint64_t step, struct tm_arena *arena,
                      char out_hash[33], struct tm_error *e);

/* The paced engine's: the hash over its layers' states in the newest copy set, which must be those of an undisturbed
 * run. -TM_EINTERNAL: they are not: a step was lost, applied twice or in another order. */
int tm_run_result_paced(struct tm_env *env, const char *dir, uint64_t step, const struct tm_run_work *work,
                        char out_hash[33], struct tm_error *e);

#endif
