#include "job/copies_place.h"

#include "base/alloc.h"
#include "run/state_folder.h"
#include "store/copy_store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SETS_MAX = 1 << 20 };

static bool is_url(const char *place)
{
    return strstr(place, "://") != NULL;
}

static int elsewhere(const char *what, const char *place, const char *there, struct tm_error *e)
{
    return tm_error_set(e, TM_EUSAGE,
                        "%s %s: this job has its copies in %s; leave it out, or start over with another --state", what,
                        place, there);
}

static int link_folder(struct tm_env *env, const char *folder, const char *path, const char *what, struct tm_error *e)
{
    char real[PATH_MAX];
    char there[PATH_MAX];
    int rc = env->folder_make(env, folder, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s", what);
    if (realpath(folder, real) == NULL) return tm_error_errno(e, errno, "%s %s", what, folder);
    if (symlink(real, path) == 0) return 0;
    if (errno != EEXIST) return tm_error_errno(e, errno, "%s", path);
    if (realpath(path, there) == NULL)
        return tm_error_errno(e, errno, "%s %s: this job has its copies elsewhere, and %s does not lead there any more",
                              what, folder, path);
    return strcmp(there, real) == 0 ? 0 : elsewhere(what, folder, there, e);
}

static int link_url(struct tm_env *env, const char *place, const char *path, const char *what, struct tm_error *e)
{
    char there[TM_COPY_PLACE_MAX];
    char line[TM_COPY_PLACE_MAX + 2];
    if (env->file_exists(env, path)) {
        int rc = tm_copy_store_place(env, path, there, e);
        if (rc != 0) return rc;
        return strcmp(there, place) == 0 ? 0 : elsewhere(what, place, there, e);
    }
    int length = snprintf(line, sizeof line, "%s\n", place);
    return env->file_write_private(env, path, line, (size_t)length, e);
}

int tm_copies_place__link(struct tm_env *env, const char *place, const char *base, const char *dir, const char *what,
                          struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char folder[PATH_MAX];
    if (place == NULL) return 0;
    int rc = tm_copy_store_check_place(place, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s", what);
    tm_state_path(dir, TM_STATE_COPIES, path);
    if (is_url(place)) return link_url(env, place, path, what, e);
    bool below = place[0] != '/' && base != NULL && base[0] != '\0';
    int length = snprintf(folder, sizeof folder, "%s%s%s", below ? base : "", below ? "/" : "", place);
    if (length >= (int)sizeof folder) return tm_error_set(e, TM_EUSAGE, "%s: the folder's name is too long", what);
    return link_folder(env, folder, path, what, e);
}

bool tm_copies_place__is_shared(struct tm_env *env, const char *dir)
{
    char path[TM_STATE_PATH_MAX];
    char place[TM_COPY_PLACE_MAX];
    tm_state_path(dir, TM_STATE_COPIES, path);
    return env->file_is_link(env, path) || (tm_copy_store_place(env, path, place, NULL) == 0 && is_url(place));
}

struct sets {
    uint64_t *list; /* owned */
    size_t count;
    size_t capacity;
};

static int take_set(void *context, const struct tm_sealed_set *set, struct tm_error *e)
{
    struct sets *s = context;
    if (tm_grow((void **)&s->list, &s->capacity, s->count + 1, sizeof *s->list, SETS_MAX) != 0)
        return tm_error_nomem(e);
    s->list[s->count++] = set->set;
    return 0;
}

int tm_copies_place__forget(struct tm_env *env, const char *dir, char *out_place, size_t room, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char place[TM_COPY_PLACE_MAX];
    struct tm_copy_store *store = NULL;
    struct sets sets = {.list = NULL};
    out_place[0] = '\0';
    tm_state_path(dir, TM_STATE_COPIES, path);
    if (!tm_copies_place__is_shared(env, dir)) return 0;
    int rc = tm_copy_store_place(env, path, place, e);
    if (rc == 0) rc = tm_copy_store_open(env, path, 0, &store, e);
    if (rc != 0) return rc;
    rc = store->list(store, take_set, &sets, e);
    for (size_t i = 0; rc == 0 && i < sets.count; i++)
        rc = store->drop(store, sets.list[i], e);
    if (rc == 0) rc = store->sweep(store, UINT64_MAX, NULL, 0, e);
    store->close(store);
    tm_free(sets.list);
    if (rc == 0) (void)snprintf(out_place, room, "%s", place);
    return rc;
}
