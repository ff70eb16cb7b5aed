/* What a run leaves: the weights of its last step as a checkpoint, their hash, its costs as measured. */
#ifndef TM_CLI_RUN_RESULT_H
#define TM_CLI_RUN_RESULT_H

#include "base/arena.h"
#include "run/run_settings.h"

/* The newest whole copy set of a step in files, by the record; -TM_ENOTFOUND: there is none. */
int tm_run_result_set(const char *dir, uint64_t step, uint64_t *out_set, struct tm_error *e);

/* The built-in engine's layers of a copy set, written as a checkpoint to result/ of the state folder (and to the job's
 * checkpoint folder, if it names one), with the hash that `tidemill train` gives. */
int tm_run_result_gpt(struct tm_env *env, const char *dir, const char *folder, uint64_t set, struct tm_arena *arena,
                      char out_hash[33], struct tm_error *e);

#endif
