#include "base/paths.h"

#include <string.h>

static const struct {
    const char *override;
    const char *xdg;
    const char *under_home;
} kinds[] = {
    [TM_PATH_CONFIG] = {"TIDEMILL_CONFIG_DIR", "XDG_CONFIG_HOME", ".config"},
    [TM_PATH_DATA] = {"TIDEMILL_DATA_DIR", "XDG_DATA_HOME", ".local/share"},
    [TM_PATH_STATE] = {"TIDEMILL_STATE_DIR", "XDG_STATE_HOME", ".local/state"},
    [TM_PATH_CACHE] = {"TIDEMILL_CACHE_DIR", "XDG_CACHE_HOME", ".cache"},
};

const char *tm_path(struct tm_env *env, enum tm_path_kind kind, const char *name, struct tm_arena *arena,
                    struct tm_error *e)
{
    const char *slash = name[0] != '\0' ? "/" : "";
    const char *folder = env->variable(env, kinds[kind].override);
    const char *xdg = env->variable(env, kinds[kind].xdg);
    const char *home = env->variable(env, "HOME");
    const char *path = NULL;
    if (folder != NULL && folder[0] != '\0')
        path = tm_arena_printf(arena, "%s%s%s", folder, slash, name);
    else if (xdg != NULL && xdg[0] == '/')
        path = tm_arena_printf(arena, "%s/tidemill%s%s", xdg, slash, name);
    else if (home != NULL && home[0] != '\0')
        path = tm_arena_printf(arena, "%s/%s/tidemill%s%s", home, kinds[kind].under_home, slash, name);
    else {
        (void)tm_error_set(e, TM_ENOTFOUND, "no folder for user files: set %s or HOME", kinds[kind].override);
        return NULL;
    }
    if (path == NULL) (void)tm_error_nomem(e);
    return path;
}

const char *tm_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}
