#include "run/run_places.h"

#include "run/state_folder.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FOLDER ".elsewhere" /* a file for each: two programs never write the same one */

enum { PATH_BYTES = TM_STATE_PATH_MAX + 64 };

struct walk {
    struct tm_env *env;
    const char *root;
    tm_name_f take;
    void *context;
};

static int read_place(struct tm_env *env, const char *path, char out[TM_STATE_PATH_MAX])
{
    struct tm_text text;
    tm_text_init(&text, TM_STATE_PATH_MAX);
    int rc = env->file_read(env, path, &text, NULL);
    if (rc == 0 && (text.length == 0 || memchr(text.data, '\0', text.length) != NULL)) rc = -(int)TM_EINPUT;
    if (rc == 0) (void)snprintf(out, TM_STATE_PATH_MAX, "%.*s", (int)text.length, text.data);
    tm_text_deinit(&text);
    return rc == 0 && out[0] != '/' ? -(int)TM_EINPUT : rc;
}

static int take_file(void *context, const char *name, struct tm_error *e)
{
    const struct walk *walk = context;
    char path[PATH_BYTES];
    char dir[TM_STATE_PATH_MAX];
    if (name[0] == '.' || snprintf(path, sizeof path, "%s/" FOLDER "/%s", walk->root, name) >= (int)sizeof path)
        return 0;
    return read_place(walk->env, path, dir) == 0 ? walk->take(walk->context, dir, e) : 0;
}

int tm_run_places_each(struct tm_env *env, const char *root, tm_name_f take, void *context, struct tm_error *e)
{
    struct walk walk = {.env = env, .root = root, .take = take, .context = context};
    char folder[PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s/" FOLDER, root);
    int rc = env->folder_each(env, folder, take_file, &walk, e);
    return rc == -(int)TM_ENOTFOUND || rc == -(int)TM_EIO ? 0 : rc; /* there are none */
}

static bool path_of(const char *root, const char *dir, char out[PATH_BYTES])
{
    struct tm_hash hash = tm_hash_of(dir, strlen(dir));
    return snprintf(out, PATH_BYTES, "%s/" FOLDER "/%016" PRIx64, root, hash.low) < PATH_BYTES;
}

/* One place at a time: what is struck out must not change the list that is being walked. */
struct gone {
    struct tm_env *env;
    bool found;
    char dir[TM_STATE_PATH_MAX];
};

static int find_gone(void *context, const char *dir, struct tm_error *e)
{
    struct gone *gone = context;
    (void)e;
    if (gone->found || gone->env->file_exists(gone->env, dir)) return 0;
    gone->found = true;
    (void)snprintf(gone->dir, sizeof gone->dir, "%s", dir);
    return 0;
}

static void strike_out(struct tm_env *env, const char *root)
{
    enum { AT_MOST = 64 };
    char path[PATH_BYTES];
    for (int i = 0; i < AT_MOST; i++) {
        struct gone gone = {.env = env};
        if (tm_run_places_each(env, root, find_gone, &gone, NULL) != 0 || !gone.found) return;
        if (!path_of(root, gone.dir, path) || env->file_remove(env, path, NULL) != 0) return;
    }
}

void tm_run_places_add(struct tm_env *env, const char *root, const char *dir)
{
    char path[PATH_BYTES];
    size_t length = strlen(root);
    while (length > 1 && root[length - 1] == '/')
        length--;
    bool inside = strncmp(dir, root, length) == 0 && dir[length] == '/';
    if (inside || !path_of(root, dir, path)) return;
    strike_out(env, root);
    if (!env->file_exists(env, path)) (void)env->file_write_private(env, path, dir, strlen(dir), NULL);
}
