/* Data sets in a bucket, as files of this machine: fetched once, however many processes want it, and kept in the user's
 * cache. */
#ifndef TM_STORE_DATA_SET_H
#define TM_STORE_DATA_SET_H

#include "base/arena.h"
#include "base/env.h"

/* Does the text name an object, "s3://BUCKET/KEY", "az://CONTAINER/KEY"? */
bool tm_data_set_is(const char *text);
/* The file that has the object's bytes, in the arena: fetched where there is none, or the bucket's has another size;
 * checked by its hash, which is written down when it is fetched. Waits for another process that fetches it. -TM_EINPUT:
 * there is no such object, or it is too large. */
int tm_data_set_path(struct tm_env *env, const char *place, struct tm_arena *arena, const char **out,
                     struct tm_error *e);

#endif
