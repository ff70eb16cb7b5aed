/* Which run is meant: by the folder or the name that was given, else the one that is going on, or the only one. */
#ifndef TM_RUN_FIND_RUN_H
#define TM_RUN_FIND_RUN_H

#include "base/arena.h"
#include "base/env.h"
#include "wire/hash.h"

/* `given`: a folder, or the name of a job; NULL: neither. -TM_ENOTFOUND says what there is. The result is absolute or
 * as it was given, and lives in the arena. */
int tm_run_find(struct tm_env *env, const char *given, struct tm_arena *arena, const char **out_dir,
                struct tm_error *e);
/* Does a program that lives run it? */
bool tm_run_is_owned(struct tm_env *env, const char *dir);
/* Another one once somebody has run it meanwhile, however shortly: whoever looks now and then sees that he missed it.
 */
struct tm_hash tm_run_stamp(struct tm_env *env, const char *dir);

#endif
