/* Where a job's copies are, as its state folder says it: copies/ is a folder of its own, a link to one that machines
 * share, or a file with "s3://BUCKET/PREFIX" (or az://) in it. */
#ifndef TM_JOB_COPIES_PLACE_H
#define TM_JOB_COPIES_PLACE_H

#include "base/env.h"

/* The place becomes that of the state folder, unless it is already; relative folders are below `base` (NULL: the
 * current one). `what` names the option or key in messages. -TM_EUSAGE: the job has its copies elsewhere. NULL is
 * allowed as a place: nothing is done. */
int tm_copies_place__link(struct tm_env *env, const char *place, const char *base, const char *dir, const char *what,
                          struct tm_error *e);
/* Do other machines, or other jobs, see the place, too? */
bool tm_copies_place__is_shared(struct tm_env *env, const char *dir);
/* Drops all sets that are there, sealed or not, where the place is shared: with a folder of its own they go with it.
 * `out_place` is where that was; "": it is not shared. */
int tm_copies_place__forget(struct tm_env *env, const char *dir, char *out_place, size_t room, struct tm_error *e);

#endif
