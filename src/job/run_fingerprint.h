/* What a job trains, as every machine of it must have it (wire/fingerprint.h): the keys of its file that the weights
 * depend on, its data, and the scripts that its command names. */
#ifndef TM_JOB_RUN_FINGERPRINT_H
#define TM_JOB_RUN_FINGERPRINT_H

#include "base/arena.h"
#include "base/env.h"
#include "base/text.h"
#include "run/run_settings.h"

enum { TM_RUN_FINGERPRINT_MAX = 1 << 14 };

/* Appends its lines. What cannot be read here (data that only the workers have) is left out. */
int tm_run__fingerprint(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_text *out,
                        struct tm_error *e);
/* The scripts among the words of a command; relative ones are meant from `folder` ("": from here). */
void tm_run_fingerprint__word(struct tm_env *env, const char *folder, const char *word, struct tm_text *out);

#endif
