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

/* Where the bytes come from: the bucket, or what somebody has granted. */
struct source {
    const char *place;
    struct tm_objects *objects; /* NULL: granted */
    const char *name;           /* of the object */
    const struct tm_grant *grant;
    uint64_t total;
};

static int download(struct tm_env *env, const struct source *s, void *into, struct tm_error *e)
{
    struct tm_webs webs;
    uint64_t now = s->total;
    int rc = 0;
    if (s->objects != NULL) {
        rc = s->objects->download(s->objects->self, s->name, into, (size_t)s->total, &now, e);
    } else {
        tm_webs__init(&webs, env);
        rc = tm_grant__down(s->grant, &webs, TM_TRANSFER_TRIES, into, (size_t)s->total, e);
        tm_webs__deinit(&webs);
    }
    if (rc == 0 && now != s->total) rc = tm_error_set(e, TM_EIO, "data: %s changes while it is fetched", s->place);
    return rc;
}

static int fetch(struct tm_env *env, const struct source *s, const char *path, const char *hash_path,
                 struct tm_error *e)
{
    char hash[33];
    size_t total = (size_t)s->total;
    tm_log(TM_LOG_INFO, "fetching the data %s, %zu bytes", s->place, total);
    char *data = tm_alloc(total > 0 ? total : 1);
    if (data == NULL) return tm_error_nomem(e);
    int rc = download(env, s, data, e);
    if (rc == 0) (void)tm_hash_print(tm_hash_of(data, total), hash);
    if (rc == 0) rc = env->file_write_private(env, path, data, total, e);
    if (rc == 0) rc = env->file_write_private(env, hash_path, hash, 32, e); /* last: it says that the file is whole */
    tm_free(data);
    if (rc == 0) tm_log(TM_LOG_INFO, "the data is here");
    return rc;
}

/* One at a time: the others find it when they come. */
static int fetch_once(struct tm_env *env, const struct source *s, const char *path, struct tm_arena *arena,
                      struct tm_error *e)
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
    if (!is_whole(env, path, hash_path)) rc = fetch(env, s, path, hash_path, e);
    env->file_unlock(env, lock);
    return rc;
}

static int take(struct tm_env *env, const struct source *s, struct tm_arena *arena, const char **out,
                struct tm_error *e)
{
    char name[128];
    char hash[33];
    struct tm_error own = {.code = TM_OK};
    if (s->total == 0 || s->total > bytes_max)
        return tm_error_set(e, TM_EINPUT, "data: %s has %" PRIu64 " bytes, expected 1 to %" PRIu64, s->place, s->total,
                            bytes_max);
    (void)snprintf(name, sizeof name, "data/%s-%" PRIu64, tm_hash_print(tm_hash_of(s->place, strlen(s->place)), hash),
                   s->total);
    const char *path = tm_path(env, TM_PATH_CACHE, name, arena, &own);
    if (path == NULL) {
        if (e != NULL) *e = own;
        return -(int)own.code;
    }
    int rc = fetch_once(env, s, path, arena, e);
    if (rc == 0) *out = path;
    return rc;
}

/* ---- asked by whoever wants it ---- */

/* The bucket is the caller's, to be closed, where this works. */
static int find(struct tm_env *env, const char *place, struct tm_arena *arena, struct tm_objects *out,
                struct source *source, struct tm_error *e)
{
    char byte = 0;
    const char *folder = NULL, *object = NULL;
    uint64_t total = 0;
    int rc = take_apart(place, arena, &folder, &object, e);
    if (rc == 0) rc = tm_objects_open(env, folder, out, e);
    if (rc != 0) return rc;
    rc = out->download(out->self, object, &byte, 1, &total, e);
    if (rc == -(int)TM_ENOTFOUND || rc == -(int)TM_EINPUT)
        rc = tm_error_set(e, TM_EINPUT, "data: %s: there is no such object, or it is empty", place);
    *source = (struct source){.place = place, .objects = out, .name = object, .total = total};
    if (rc != 0) out->close(out->self);
    return rc;
}

int tm_data_set_path(struct tm_env *env, const char *place, struct tm_arena *arena, const char **out,
                     struct tm_error *e)
{
    struct tm_objects o;
    struct source source;
    int rc = find(env, place, arena, &o, &source, e);
    if (rc != 0) return rc;
    rc = take(env, &source, arena, out, e);
    o.close(o.self);
    return rc;
}

int tm_data_set_grant(struct tm_env *env, const char *place, struct tm_grant *out, uint64_t *out_total,
                      struct tm_error *e)
{
    struct tm_objects o;
    struct source source;
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 20);
    int rc = find(env, place, &arena, &o, &source, e);
    if (rc == 0) {
        rc = o.grant != NULL ? o.grant(o.self, source.name, 0, out, e)
                             : tm_error_set(e, TM_ENONE, "%s: nothing here signs URLs", place);
        o.close(o.self);
    }
    if (rc == 0) *out_total = source.total;
    tm_arena_deinit(&arena);
    return rc;
}

int tm_data_set_take(struct tm_env *env, const char *place, const struct tm_grant *grant, uint64_t total,
                     struct tm_arena *arena, const char **out, struct tm_error *e)
{
    const struct source source = {.place = place, .grant = grant, .total = total};
    return take(env, &source, arena, out, e);
}
