#include "store/data_set.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/paths.h"
#include "store/objects.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 100, WAITS_MAX = 36000, HASH_BYTES = 64 };
static const uint64_t bytes_max = (uint64_t)16 << 30;

bool tm_data_set_is(const char *text)
{
    return strstr(text, "://") != NULL;
}

/* The bucket and what is before the last "/", and the object's name behind it. */
static int take_apart(const char *place, struct tm_arena *arena, const char **folder, const char **name,
                      struct tm_error *e)
{
    const char *slash = strrchr(place, '/');
    const char *begin = strstr(place, "://") + 3;
    if (slash < begin || slash[1] == '\0')
        return tm_error_set(e, TM_EINPUT, "data: %.200s: write the object's whole name, s3://BUCKET/KEY", place);
    *folder = tm_arena_strndup(arena, place, (size_t)(slash - place));
    *name = slash + 1;
    return *folder == NULL ? tm_error_nomem(e) : 0;
}

/* Is what was written down the hash of what is there? */
static bool is_whole(struct tm_env *env, const char *path, const char *hash_path)
{
    char right[33];
    struct tm_text text;
    const void *data = NULL;
    size_t length = 0;
    bool same = false;
    tm_text_init(&text, HASH_BYTES);
    if (env->file_exists(env, path) && env->file_read(env, hash_path, &text, NULL) == 0 &&
        env->file_map(env, path, &data, &length, NULL) == 0) {
        same = strcmp(tm_text_string(&text), tm_hash_print(tm_hash_of(data, length), right)) == 0;
        env->file_unmap(env, data, length);
    }
    tm_text_deinit(&text);
    return same;
}

static int fetch(struct tm_env *env, struct tm_objects *o, const char *place, const char *name, uint64_t total,
                 const char *path, const char *hash_path, struct tm_error *e)
{
    char hash[33];
    uint64_t now = 0;
    tm_log(TM_LOG_INFO, "fetching the data %s, %" PRIu64 " bytes", place, total);
    char *data = tm_alloc(total > 0 ? (size_t)total : 1);
    if (data == NULL) return tm_error_nomem(e);
    int rc = o->download(o->self, name, data, (size_t)total, &now, e);
    if (rc == 0 && now != total) rc = tm_error_set(e, TM_EIO, "data: %s changes while it is fetched", place);
    if (rc == 0) (void)tm_hash_print(tm_hash_of(data, (size_t)total), hash);
    if (rc == 0) rc = env->file_write_private(env, path, data, (size_t)total, e);
    if (rc == 0) rc = env->file_write_private(env, hash_path, hash, 32, e); /* last: it says that the file is whole */
    tm_free(data);
    if (rc == 0) tm_log(TM_LOG_INFO, "the data is here");
    return rc;
}

/* One at a time: the others find it when they come. */
static int fetch_once(struct tm_env *env, struct tm_objects *o, const char *place, const char *name, uint64_t total,
                      const char *path, struct tm_arena *arena, struct tm_error *e)
{
    const char *hash_path = tm_arena_printf(arena, "%s.hash", path);
    const char *lock_path = tm_arena_printf(arena, "%s.lock", path);
    int lock = -1;
    if (hash_path == NULL || lock_path == NULL) return tm_error_nomem(e);
    if (is_whole(env, path, hash_path)) return 0;
    int rc = env->file_lock(env, lock_path, &lock, e);
    for (int waited = 0; rc == -(int)TM_EBUSY && waited < WAITS_MAX; waited++) {
        env->sleep_ms(env, WAIT_MS);
        rc = env->file_lock(env, lock_path, &lock, e);
    }
    if (rc != 0) return rc;
    if (!is_whole(env, path, hash_path)) rc = fetch(env, o, place, name, total, path, hash_path, e);
    env->file_unlock(env, lock);
    return rc;
}

int tm_data_set_path(struct tm_env *env, const char *place, struct tm_arena *arena, const char **out,
                     struct tm_error *e)
{
    struct tm_objects o;
    char name[128];
    char hash[33];
    char byte = 0;
    const char *folder = NULL, *object = NULL;
    uint64_t total = 0;
    struct tm_error own = {.code = TM_OK};
    int rc = take_apart(place, arena, &folder, &object, e);
    if (rc == 0) rc = tm_objects_open(env, folder, &o, e);
    if (rc != 0) return rc;
    rc = o.download(o.self, object, &byte, 1, &total, e);
    if (rc == -(int)TM_ENOTFOUND || rc == -(int)TM_EINPUT)
        rc = tm_error_set(e, TM_EINPUT, "data: %s: there is no such object, or it is empty", place);
    if (rc == 0 && total > bytes_max)
        rc = tm_error_set(e, TM_EINPUT, "data: %s has %" PRIu64 " bytes, more than %" PRIu64, place, total, bytes_max);
    (void)snprintf(name, sizeof name, "data/%s-%" PRIu64, tm_hash_print(tm_hash_of(place, strlen(place)), hash), total);
    const char *path = rc == 0 ? tm_path(env, TM_PATH_CACHE, name, arena, &own) : NULL;
    if (rc == 0 && path == NULL) {
        if (e != NULL) *e = own;
        rc = -(int)own.code;
    }
    if (rc == 0) rc = fetch_once(env, &o, place, object, total, path, arena, e);
    o.close(o.self);
    if (rc == 0) *out = path;
    return rc;
}
