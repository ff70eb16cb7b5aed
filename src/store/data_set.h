/* Data sets in a bucket, as files of this machine: fetched once, however many processes want it, and kept in the user's
 * cache. */
#ifndef TM_STORE_DATA_SET_H
#define TM_STORE_DATA_SET_H

#include "base/arena.h"
#include "base/env.h"
#include "store/grant.h"

/* Does the text name an object, "s3://BUCKET/KEY", "az://CONTAINER/KEY"? */
bool tm_data_set_is(const char *text);
/* The file that has the object's bytes, in the arena: fetched where there is none, or the bucket's has another size;
 * checked by its hash, which is written down when it is fetched. Waits for another process that fetches it. -TM_EINPUT:
 * there is no such object, or it is too large. */
int tm_data_set_path(struct tm_env *env, const char *place, struct tm_arena *arena, const char **out,
                     struct tm_error *e);
/* For a machine without credentials: what it reads the object by, and how many bytes that has. -TM_ENONE: nothing here
 * signs URLs for it; else as above. */
int tm_data_set_grant(struct tm_env *env, const char *place, struct tm_grant *out, uint64_t *out_total,
                      struct tm_error *e);
/* As tm_data_set_path, by what was granted. */
int tm_data_set_take(struct tm_env *env, const char *place, const struct tm_grant *grant, uint64_t total,
                     struct tm_arena *arena, const char **out, struct tm_error *e);

#endif
