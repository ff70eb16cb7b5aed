/* slurmrestd, where there is one: the same commands as sbatch, squeue, sinfo and scancel (slurm_text.h), by HTTP. One
 * at a time, each with a deadline, and none is waited for. Nothing is tried twice here: whoever asks knows what an
 * answer that did not come means.
 *
 * Its address is "unix:/PATH", "http://HOST:PORT" or "https://HOST:PORT". Who we are is said by the socket, or by the
 * variable SLURM_JWT (or a file, which is read before each request, because tokens end) with the user's name. */
#ifndef TM_CLOUD_SLURM_REST_H
#define TM_CLOUD_SLURM_REST_H

#include "base/env.h"
#include "cloud/slurm_rest_json.h"

struct tm_slurm__rest;

/* Finds the version that both know. -TM_EPEER: nobody answers there; -TM_EINPUT: it does not let us in, or it is no
 * address. The strings are borrowed. */
int tm_slurm_rest__open(struct tm_env *env, const char *address, const char *token_file, struct tm_slurm__rest **out,
                        struct tm_error *e);
void tm_slurm_rest__close(struct tm_slurm__rest *rest); /* NULL is allowed */

/* Waits for it. -TM_ENOTFOUND: there is no such partition. */
int tm_slurm_rest__ask_partition(struct tm_slurm__rest *rest, const char *name, struct tm_slurm__partition *out,
                                 struct tm_error *e);

/* Begins a command that is done job by job, or node by node; for TM_SLURM_QUERY none at all means every job there is.
 * Nothing else may be on its way. */
void tm_slurm_rest__add(struct tm_slurm__rest *rest, const char *name);
int tm_slurm_rest__begin(struct tm_slurm__rest *rest, enum tm_slurm__command_kind kind, struct tm_error *e);
/* Begins TM_SLURM_SUBMIT; version and variables are filled in here. */
int tm_slurm_rest__submit(struct tm_slurm__rest *rest, struct tm_slurm__rest_job job, struct tm_error *e);

bool tm_slurm_rest__is_busy(const struct tm_slurm__rest *rest);
/* True: it has ended, and the answer is in *out until the next begins. */
bool tm_slurm_rest__step(struct tm_slurm__rest *rest, struct tm_slurm__answer **out);
size_t tm_slurm_rest__watch(struct tm_slurm__rest *rest, int *handles, size_t max, int64_t *out_wait_ms);

#endif
