#include "job/bucket_result.h"

#include "base/alloc.h"
#include "job/copies_place.h"
#include "run/state_folder.h"
#include "store/copy_store.h"
#include "store/objects.h"

#include <stdio.h>
#include <string.h>

enum { FILES_MAX = 1 << 16, NAME_BYTES = 256 };

#define RESULT "result/"

bool tm_bucket__of(struct tm_env *env, const char *dir, char *out)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_COPIES, path);
    return tm_copy_store_place(env, path, out, NULL) == 0 && strstr(out, "://") != NULL;
}

bool tm_bucket_result__place(struct tm_env *env, const char *dir, char *out)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_COPIES, path);
    return tm_copies_place__is_shared(env, dir) && tm_copy_store_place(env, path, out, NULL) == 0;
}

struct names {
    char (*list)[NAME_BYTES]; /* owned */
    size_t count;
    size_t capacity;
};

static int take_name(void *context, const char *name, struct tm_error *e)
{
    struct names *names = context;
    if (name[0] == '.' || strlen(name) >= NAME_BYTES) return 0;
    if (tm_grow((void **)&names->list, &names->capacity, names->count + 1, sizeof *names->list, FILES_MAX) != 0)
        return tm_error_nomem(e);
    (void)snprintf(names->list[names->count++], NAME_BYTES, "%s", name);
    return 0;
}

static bool has(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->list[i], name) == 0) return true;
    return false;
}

/* Where it goes: a bucket, or a folder. */
struct target {
    struct tm_env *env;
    const char *folder; /* NULL: a bucket */
    struct tm_objects objects;
};

static int open_target(struct tm_env *env, const char *place, struct target *out, struct tm_error *e)
{
    bool is_bucket = strstr(place, "://") != NULL;
    *out = (struct target){.env = env, .folder = is_bucket ? NULL : place};
    return is_bucket ? tm_objects_open(env, place, &out->objects, e) : 0;
}

static void close_target(struct target *t)
{
    if (t->folder == NULL) t->objects.close(t->objects.self);
}

static int bring_file(struct target *t, const char *path, const char *name, struct tm_error *e)
{
    const void *data = NULL;
    size_t length = 0;
    char there[TM_COPY_PLACE_MAX + 2 * NAME_BYTES];
    if (!t->env->file_exists(t->env, path)) return 0;
    int rc = t->env->file_map(t->env, path, &data, &length, e);
    if (rc != 0) return rc;
    (void)snprintf(there, sizeof there, "%s/%s", t->folder != NULL ? t->folder : "", name);
    rc = t->folder != NULL ? t->env->file_write_private(t->env, there, data, length, e)
                           : t->objects.upload(t->objects.self, name, data, length, e);
    t->env->file_unmap(t->env, data, length);
    return rc;
}

/* Files of the folder and of folders in it, by their names below it. */
static int list_files(struct tm_env *env, const char *folder, struct names *out, struct tm_error *e)
{
    struct names top = {.list = NULL};
    char path[TM_STATE_PATH_MAX + NAME_BYTES];
    char name[2 * NAME_BYTES];
    int rc = env->folder_each(env, folder, take_name, &top, e);
    for (size_t i = 0; rc == 0 && i < top.count; i++) {
        struct names inside = {.list = NULL};
        (void)snprintf(path, sizeof path, "%s/%s", folder, top.list[i]);
        if (env->folder_each(env, path, take_name, &inside, NULL) != 0) {
            rc = take_name(out, top.list[i], e);
        } else {
            for (size_t k = 0; rc == 0 && k < inside.count; k++) {
                (void)snprintf(name, sizeof name, "%s/%s", top.list[i], inside.list[k]);
                rc = take_name(out, name, e);
            }
        }
        tm_free(inside.list);
    }
    tm_free(top.list);
    return rc;
}

/* What is there of an earlier result, by names below RESULT, in `out`. */
static int list_there(struct target *t, struct names *out, struct tm_error *e)
{
    char folder[TM_COPY_PLACE_MAX + sizeof RESULT];
    struct names all = {.list = NULL};
    (void)snprintf(folder, sizeof folder, "%s/result", t->folder != NULL ? t->folder : "");
    if (t->folder != NULL) return t->env->file_exists(t->env, folder) ? list_files(t->env, folder, out, e) : 0;
    int rc = t->objects.abort_uploads(t->objects.self, RESULT, e);
    if (rc == 0) rc = t->objects.each(t->objects.self, RESULT, false, take_name, &all, e);
    for (size_t i = 0; rc == 0 && i < all.count; i++)
        rc = take_name(out, all.list[i] + strlen(RESULT), e);
    tm_free(all.list);
    return rc;
}

static int remove_there(struct target *t, const char *name, struct tm_error *e)
{
    char path[TM_COPY_PLACE_MAX + 2 * NAME_BYTES];
    (void)snprintf(path, sizeof path, "%s/" RESULT "%s", t->folder != NULL ? t->folder : "", name);
    return t->folder != NULL ? t->env->file_remove(t->env, path, e) : t->objects.remove(t->objects.self, path + 1, e);
}

/* The weights first: a summary speaks of them. */
static int bring_weights(struct target *t, const char *dir, struct tm_error *e)
{
    char folder[TM_STATE_PATH_MAX];
    char path[TM_STATE_PATH_MAX + NAME_BYTES];
    char name[NAME_BYTES + sizeof RESULT];
    struct names here = {.list = NULL}, there = {.list = NULL};
    tm_state_path(dir, TM_STATE_RESULT, folder);
    if (!t->env->file_exists(t->env, folder)) return 0;
    int rc = list_files(t->env, folder, &here, e);
    if (rc == 0 && here.count > 0) rc = list_there(t, &there, e);
    for (size_t i = 0; rc == 0 && i < here.count; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, here.list[i]);
        (void)snprintf(name, sizeof name, RESULT "%s", here.list[i]);
        rc = bring_file(t, path, name, e);
    }
    for (size_t i = 0; rc == 0 && i < there.count; i++)
        if (!has(&here, there.list[i])) rc = remove_there(t, there.list[i], e);
    tm_free(here.list);
    tm_free(there.list);
    return rc;
}

int tm_bucket_result__bring(struct tm_env *env, const char *dir, const char *place, struct tm_error *e)
{
    static const struct {
        enum tm_state_file file;
        const char *name;
    } papers[] = {{TM_STATE_REPORT, "report.html"}, {TM_STATE_SUMMARY, "summary.json"}};
    char path[TM_STATE_PATH_MAX];
    struct target target;
    int rc = open_target(env, place, &target, e);
    if (rc != 0) return rc;
    rc = bring_weights(&target, dir, e);
    for (size_t i = 0; rc == 0 && i < sizeof papers / sizeof *papers; i++) {
        tm_state_path(dir, papers[i].file, path);
        rc = bring_file(&target, path, papers[i].name, e);
    }
    close_target(&target);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "bringing the result to %s; it is in %s", place, dir);
}

/* ---- back ---- */

static int fetch_file(struct tm_env *env, struct tm_objects *o, const char *name, const char *path, struct tm_error *e)
{
    char byte = 0;
    uint64_t total = 0;
    int rc = o->download(o->self, name, &byte, 1, &total, e);
    char *data = rc == 0 ? tm_alloc(total > 0 ? (size_t)total : 1) : NULL;
    if (rc == 0 && data == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = o->download(o->self, name, data, (size_t)total, &total, e);
    if (rc == 0) rc = env->file_write_private(env, path, data, (size_t)total, e);
    tm_free(data);
    return rc;
}

int tm_bucket_result_fetch(struct tm_env *env, const char *place, const char *folder, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX + NAME_BYTES];
    struct names there = {.list = NULL};
    struct tm_objects o;
    int rc = tm_objects_open(env, place, &o, e);
    if (rc != 0) return rc;
    rc = o.each(o.self, RESULT, false, take_name, &there, e);
    if (rc == 0 && there.count == 0) rc = tm_error_set(e, TM_ENOTFOUND, "%s has no result so far", place);
    for (size_t i = 0; rc == 0 && i < there.count; i++) {
        const char *name = there.list[i] + strlen(RESULT);
        if (name[0] == '\0' || name[0] == '.' || name[0] == '/' || strstr(name, "/.") != NULL) continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
        rc = fetch_file(env, &o, there.list[i], path, e);
    }
    o.close(o.self);
    tm_free(there.list);
    return rc;
}
