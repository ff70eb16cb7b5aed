#include "run/find_run.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/paths.h"
#include "run/run_home.h"
#include "run/state_folder.h"

#include <string.h>

enum { NAMES_SHOWN = 8, NAMES_MAX = 1 << 16, STAMPED_MAX = 1 << 16 };

static bool is_run(struct tm_env *env, const char *dir)
{
    char path[TM_STATE_PATH_MAX];
    if (tm_state_check(dir, NULL) != 0) return false;
    tm_state_path(dir, TM_STATE_RECORD, path);
    if (env->file_exists(env, path)) return true;
    tm_state_path(dir, TM_STATE_RUN, path);
    return env->file_exists(env, path) || tm_run_is_away(env, dir);
}

bool tm_run_is_owned(struct tm_env *env, const char *dir)
{
    struct tm_state_owner owner;
    if (tm_run_is_away(env, dir)) return tm_run__away_is_live(env, dir);
    return tm_state__owner(env, dir, &owner, NULL) == 0;
}

/* A new run has another token, one that was killed leaves its owner's mark, and one that ended its own summary. */
struct tm_hash tm_run_stamp(struct tm_env *env, const char *dir)
{
    static const enum tm_state_file files[] = {TM_STATE_TOKEN, TM_STATE_OWNER, TM_STATE_SUMMARY};
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    tm_text_init(&text, STAMPED_MAX);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        tm_state_path(dir, files[i], path);
        (void)env->file_read(env, path, &text, NULL);
        tm_text_puts(&text, "\n");
    }
    struct tm_hash stamp = tm_hash_of(tm_text_string(&text), text.length);
    tm_text_deinit(&text);
    return stamp;
}

static int path_of(struct tm_env *env, const char *name, struct tm_arena *arena, const char **out, struct tm_error *e)
{
    struct tm_error own;
    struct tm_error *where = e != NULL ? e : &own;
    *out = tm_path(env, TM_PATH_STATE, name, arena, where);
    return *out == NULL ? -(int)where->code : 0;
}

/* ---- without a name ---- */

/* What lies in the folder of all runs. */
struct found {
    struct tm_env *env;
    struct tm_arena *arena;
    const char **names; /* of folders that may be runs */
    size_t count;
    size_t capacity;
    const char *dir; /* the only run, or the only one that goes on */
    size_t runs;
    size_t owned;
    struct tm_text shown;
};

static int add_name(void *context, const char *name, struct tm_error *e)
{
    struct found *found = context;
    void *array = found->names;
    if (name[0] == '.') return 0;
    int rc = tm_grow(&array, &found->capacity, found->count + 1, sizeof *found->names, NAMES_MAX);
    found->names = array;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "too many runs to look through: name one with --state");
    found->names[found->count] = tm_arena_strdup(found->arena, name);
    return found->names[found->count++] == NULL ? tm_error_nomem(e) : 0;
}

static int look_at(struct found *found, const char *name, struct tm_error *e)
{
    const char *dir = NULL;
    int rc = path_of(found->env, name, found->arena, &dir, e);
    if (rc != 0 || !is_run(found->env, dir)) return rc;
    bool away = tm_run_is_away(found->env, dir); /* not asked for here: that may take long */
    bool owned = !away && tm_run_is_owned(found->env, dir);
    if (found->owned == 0 || owned) found->dir = dir;
    found->owned += owned;
    if (found->runs++ < NAMES_SHOWN) tm_text_printf(&found->shown, "%s%s", found->runs > 1 ? ", " : "", name);
    if (found->runs == NAMES_SHOWN + 1) tm_text_puts(&found->shown, ", ...");
    return 0;
}

static int search(struct tm_env *env, struct tm_arena *arena, const char **out_dir, struct tm_error *e)
{
    struct found found = {.env = env, .arena = arena};
    const char *root = NULL;
    int rc = path_of(env, "", arena, &root, e);
    if (rc != 0) return rc;
    tm_text_init(&found.shown, 4096);
    rc = env->folder_each(env, root, add_name, &found, e);
    if (rc != 0 && rc != -(int)TM_ENOMEM && rc != -(int)TM_ELIMIT) rc = 0; /* what cannot be listed has no runs */
    for (size_t i = 0; rc == 0 && i < found.count; i++)
        rc = look_at(&found, found.names[i], e);
    if (rc == 0 && found.runs == 0)
        rc = tm_error_set(e, TM_ENOTFOUND,
                          "there is no run in %s; start one with tidemill run, or name another with --state DIR", root);
    else if (rc == 0 && found.runs > 1 && found.owned != 1)
        rc = tm_error_set(e, TM_ENOTFOUND, "which run? --state NAME: %s", tm_text_string(&found.shown));
    tm_text_deinit(&found.shown);
    tm_free(found.names);
    if (rc == 0) *out_dir = found.dir;
    return rc;
}

/* ---- with one ---- */

static int find(struct tm_env *env, const char *given, struct tm_arena *arena, const char **out_dir, struct tm_error *e)
{
    if (given == NULL) return search(env, arena, out_dir, e);
    int rc = tm_state_check(given, e);
    if (rc != 0) return rc;
    if (strchr(given, '/') == NULL && strcmp(given, ".") != 0 && strcmp(given, "..") != 0) {
        const char *named = NULL;
        rc = path_of(env, given, arena, &named, e);
        if (rc != 0) return rc;
        if (is_run(env, named)) {
            *out_dir = named;
            return 0;
        }
    }
    if (!is_run(env, given)) return tm_error_set(e, TM_ENOTFOUND, "%s: no tidemill run here", given);
    *out_dir = given;
    return 0;
}

/* Of a run that another machine has: what is known of it now. */
static int refresh(struct tm_env *env, const char *dir, struct tm_error *e)
{
    struct tm_error why = {.text = ""};
    char path[TM_STATE_PATH_MAX];
    int rc = tm_run_away_refresh(env, dir, &why);
    if (rc == 0) return 0;
    tm_state_path(dir, TM_STATE_RECORD, path);
    if (rc == -(int)TM_ENOMEM || !env->file_exists(env, path)) {
        if (e != NULL) *e = why;
        return rc;
    }
    tm_log(TM_LOG_WARN, "%s; what was known last is shown", why.text);
    return 0;
}

int tm_run_find(struct tm_env *env, const char *given, struct tm_arena *arena, const char **out_dir, struct tm_error *e)
{
    int rc = find(env, given, arena, out_dir, e);
    return rc == 0 && tm_run_is_away(env, *out_dir) ? refresh(env, *out_dir, e) : rc;
}
