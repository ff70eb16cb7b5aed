#include "cli/run_folder.h"

#include "api/api_client.h"
#include "base/paths.h"
#include "run/run_tap.h"
#include "run/state_folder.h"

#include <dirent.h>
#include <string.h>

enum { NAMES_SHOWN = 8, ANSWER_MS = 3000 };

static bool is_run(struct tm_cli *cli, const char *dir)
{
    char path[TM_STATE_PATH_MAX];
    if (tm_state_check(dir, NULL) != 0) return false;
    tm_state_path(dir, TM_STATE_RECORD, path);
    if (cli->env->file_exists(cli->env, path)) return true;
    tm_state_path(dir, TM_STATE_RUN, path);
    return cli->env->file_exists(cli->env, path);
}

bool tm_run_is_owned(struct tm_cli *cli, const char *dir)
{
    struct tm_state_owner owner;
    return tm_state_owner(cli->env, dir, &owner, NULL) == 0;
}

/* What lies in the folder of all runs. */
struct found {
    const char *dir; /* the only run, or the only one that goes on */
    size_t runs;
    size_t owned;
    struct tm_text names;
};

static int look_at(struct tm_cli *cli, const char *name, struct found *found, struct tm_error *e)
{
    const char *dir = name[0] == '.' ? NULL : tm_path(cli->env, TM_PATH_STATE, name, &cli->arena, e);
    if (dir == NULL) return name[0] == '.' ? 0 : -(int)TM_ENOMEM;
    if (!is_run(cli, dir)) return 0;
    bool owned = tm_run_is_owned(cli, dir);
    if (found->owned == 0 || owned) found->dir = dir;
    found->owned += owned;
    if (found->runs++ < NAMES_SHOWN) tm_text_printf(&found->names, "%s%s", found->runs > 1 ? ", " : "", name);
    if (found->runs == NAMES_SHOWN + 1) tm_text_puts(&found->names, ", ...");
    return 0;
}

static int search(struct tm_cli *cli, const char **out_dir, struct tm_error *e)
{
    struct found found = {.dir = NULL};
    const char *root = tm_path(cli->env, TM_PATH_STATE, "", &cli->arena, e);
    if (root == NULL) return -(int)e->code;
    tm_text_init(&found.names, 4096);
    DIR *folder = opendir(root);
    int rc = 0;
    for (struct dirent *entry = NULL; rc == 0 && folder != NULL && (entry = readdir(folder)) != NULL;)
        rc = look_at(cli, entry->d_name, &found, e);
    if (folder != NULL) (void)closedir(folder);
    if (rc == 0 && found.runs == 0)
        rc = tm_error_set(e, TM_ENOTFOUND,
                          "there is no run in %s; start one with tidemill run, or name another with --state DIR", root);
    else if (rc == 0 && found.runs > 1 && found.owned != 1)
        rc = tm_error_set(e, TM_ENOTFOUND, "which run? --state NAME: %s", tm_text_string(&found.names));
    tm_text_deinit(&found.names);
    if (rc == 0) *out_dir = found.dir;
    return rc;
}

int tm_run_folder(struct tm_cli *cli, const char **out_dir, struct tm_error *e)
{
    const char *given = tm_given_text(cli, "state");
    if (cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE, "unexpected argument \"%.60s\"; name a run with --state", cli->arguments[0]);
    if (given == NULL) return search(cli, out_dir, e);
    int rc = tm_state_check(given, e);
    if (rc != 0) return rc;
    if (strchr(given, '/') == NULL && strcmp(given, ".") != 0 && strcmp(given, "..") != 0) {
        const char *named = tm_path(cli->env, TM_PATH_STATE, given, &cli->arena, e);
        if (named == NULL) return -(int)e->code;
        if (is_run(cli, named)) {
            *out_dir = named;
            return 0;
        }
    }
    if (!is_run(cli, given)) return tm_error_set(e, TM_ENOTFOUND, "%s: no tidemill run here", given);
    *out_dir = given;
    return 0;
}

/* ---- status ---- */

static int read_record(const char *dir, struct tm_run_status *out, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_RECORD, path);
    struct tm_run_watch *watch = tm_run_watch_create();
    if (watch == NULL) return tm_error_nomem(e);
    int rc = tm_run_record_watch(path, watch, e);
    if (rc == 0) tm_run_watch_give(watch, out);
    tm_run_watch_destroy(watch);
    return rc;
}

int tm_run_status_of(struct tm_cli *cli, const char *dir, struct tm_run_status *out, struct tm_error *e)
{
    struct tm_error asking = {.text = ""};
    struct tm_api_client *client = tm_api_client_create(cli->env, dir);
    if (client == NULL) return tm_error_nomem(e);
    int rc = tm_api_status(client, ANSWER_MS, out, &asking);
    tm_api_client_destroy(client);
    if (rc == 0) return 0;
    rc = read_record(dir, out, e);
    if (rc == -(int)TM_EBUSY) /* a coordinator has the record, but does not answer */
        return tm_error_set(e, TM_EBUSY, "the coordinator does not answer (%s); try again", asking.text);
    return rc;
}

const char *tm_run_away_note(struct tm_cli *cli, const char *dir, const struct tm_run_status *status)
{
    if (status->live || status->state == TM_JOB_FINISHED || status->state == TM_JOB_FAILED) return "";
    if (tm_run_is_owned(cli, dir)) return "the coordinator does not answer; training continues without it for a while";
    return "not running; resume it with tidemill run --resume";
}
