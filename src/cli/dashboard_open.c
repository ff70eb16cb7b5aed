#include "cli/dashboard_open.h"

#include "base/paths.h"
#include "cli/commands.h"
#include "cli/dashboard_attach.h"
#include "run/find_run.h"
#include "run/state_folder.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { DIRS_MAX = 64, NAMES_MAX = 8 };

#define USUAL "127.0.0.1:8642"

struct dirs {
    const char *list[DIRS_MAX];
    size_t count;
};

static int add_dir(struct tm_cli *cli, void *context, const char *value, struct tm_error *e)
{
    struct dirs *dirs = context;
    const char *found = NULL;
    if (dirs->count == DIRS_MAX) return tm_error_set(e, TM_EUSAGE, "--state: more than %d folders", DIRS_MAX);
    const char *copy = tm_arena_strdup(&cli->arena, value);
    if (copy == NULL) return tm_error_nomem(e);
    int rc = tm_run_find(cli->env, copy, &cli->arena, &found, e);
    if (rc == 0) dirs->list[dirs->count++] = found;
    return rc;
}

/* A run's own lies in the folder of all runs, mostly. */
static bool is_below(const char *dir, const char *root)
{
    size_t length = strlen(root);
    return strncmp(dir, root, length) == 0 && dir[length] == '/' && strchr(dir + length + 1, '/') == NULL;
}

static int find_program(struct tm_cli *cli, const char **out, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return tm_error_errno(e, errno, "/proc/self/exe");
    *out = tm_arena_strndup(&cli->arena, path, (size_t)length);
    return *out == NULL ? tm_error_nomem(e) : 0;
}

struct names {
    const char *list[NAMES_MAX];
    size_t count;
};

static int add_name(struct tm_cli *cli, void *context, const char *value, struct tm_error *e)
{
    struct names *names = context;
    if (names->count == NAMES_MAX) return tm_error_set(e, TM_EUSAGE, "--name: more than %d names", NAMES_MAX);
    names->list[names->count] = tm_arena_strdup(&cli->arena, value);
    return names->list[names->count++] == NULL ? tm_error_nomem(e) : 0;
}

/* --name, else what this machine calls itself; TLS and who is shown beside our own runs. */
static int read_rest(struct tm_cli *cli, struct tm_dashboard_options *options, struct tm_error *e)
{
    char host[256] = "";
    struct names *names = tm_arena_alloc(&cli->arena, sizeof *names);
    if (names == NULL) return tm_error_nomem(e);
    names->count = 0;
    options->tls_certificate = tm_given_text(cli, "tls-cert");
    options->tls_key = tm_given_text(cli, "tls-key");
    int rc = tm_cmd_each_value(cli, "name", names, add_name, e);
    if (rc == 0 && names->count == 0 && gethostname(host, sizeof host - 1) == 0 && host[0] != '\0')
        rc = add_name(cli, names, host, e);
    options->names = names->list;
    options->name_count = names->count;
    return rc != 0 ? rc : tm_dashboard_attached(cli, &options->attached, &options->attached_count, e);
}

static int read_served_as(struct tm_cli *cli, struct tm_dashboard_options *options, struct tm_error *e)
{
    struct names *names = tm_arena_alloc(&cli->arena, sizeof *names);
    if (names == NULL) return tm_error_nomem(e);
    names->count = 0;
    int rc = tm_given(cli, "serve-as") ? add_name(cli, names, tm_given_text(cli, "serve-as"), e) : 0;
    options->names = names->list;
    options->name_count = names->count;
    return rc;
}

int tm_dashboard_open(struct tm_cli *cli, const char *dir, struct tm_dashboard **out, struct tm_error *e)
{
    struct tm_dashboard_options options = {.listen = USUAL, .version = TIDEMILL_VERSION};
    struct dirs *dirs = tm_arena_alloc(&cli->arena, sizeof *dirs);
    if (dirs == NULL) return tm_error_nomem(e);
    dirs->count = 0;
    struct tm_error own = {.code = TM_OK};
    options.root = tm_path(cli->env, TM_PATH_STATE, "", &cli->arena, &own);
    int rc = 0;
    if (options.root == NULL) {
        if (e != NULL) *e = own;
        return -(int)own.code;
    }
    size_t length = strlen(options.root);
    if (length > 1 && options.root[length - 1] == '/')
        options.root = tm_arena_strndup(&cli->arena, options.root, length - 1);
    if (options.root == NULL) return tm_error_nomem(e);
    if (dir == NULL) rc = tm_cmd_each_value(cli, "state", dirs, add_dir, e);
    if (dir != NULL && !is_below(dir, options.root)) dirs->list[dirs->count++] = dir;
    if (rc == 0) rc = find_program(cli, &options.program, e);
    if (rc != 0) return rc;
    options.dirs = dirs->list;
    options.dir_count = dirs->count;
    const char *where = dir == NULL ? "listen" : "serve"; /* beside a run, its own --listen is the coordinator's */
    bool given = tm_given(cli, where);
    if (given) options.listen = tm_given_text(cli, where);
    if (dir == NULL) rc = read_rest(cli, &options, e);
    if (rc == 0 && dir != NULL && given) rc = read_served_as(cli, &options, e);
    if (rc != 0) return rc;
    rc = tm_dashboard_create(cli->env, &options, out, e);
    if (rc == 0 || given || rc == -(int)TM_ENOMEM) return rc;
    options.listen = "127.0.0.1:0"; /* somebody else has the usual port */
    return tm_dashboard_create(cli->env, &options, out, e);
}
