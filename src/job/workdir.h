/* The folder of a job's command, for machines that do not have it: packed by the run, handed out by its office as the
 * built-in engine's data is, unpacked where a machine joins. Only what the job file says as workdir goes along, as with
 * SkyPilot; tar does the work on both ends. */
#ifndef TM_JOB_WORKDIR_H
#define TM_JOB_WORKDIR_H

#include "base/arena.h"
#include "base/env.h"
#include "workload/job.h"

enum { TM_WORKDIR_MAX = 256 << 20 }; /* bytes: a larger one must be on the machines */

/* Where the job's command runs, as its file says; NULL: where the program is. */
const char *tm_workdir__find(const struct tm_job *job, struct tm_arena *arena);
/* Packs it, without version control's own files and without the state folder, into a file of the state folder. *out
 * NULL: the job has none that goes along. */
int tm_workdir__pack(struct tm_env *env, const struct tm_job *job, const char *dir, struct tm_arena *arena,
                     const char **out, struct tm_error *e);
int tm_workdir__unpack(struct tm_env *env, const char *file, const char *folder, struct tm_error *e);

#endif
