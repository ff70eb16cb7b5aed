#include "base/doc.h"
#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "job/bucket_result.h"
#include "run/run_home.h"
#include "run/state_folder.h"
#include "store/copy_store.h"

#include <string.h>

enum { SUMMARY_MAX = 1 << 20 };

const struct tm_option tm_result_command_options[] = {
    {.name = "state",
     .value = "DIR|NAME",
     .help = "state folder or name of the run (the one running, or the only one)"},
    {.name = NULL},
};

/* What the run says of its end; NULL: it has not finished. */
static json_t *read_summary(struct tm_cli *cli, const char *dir)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    json_t *root = NULL;
    tm_state_path(dir, TM_STATE_SUMMARY, path);
    tm_text_init(&text, SUMMARY_MAX);
    if (cli->env->file_read(cli->env, path, &text, NULL) == 0)
        (void)tm_json_load(path, tm_text_string(&text), text.length, &root, NULL);
    tm_text_deinit(&text);
    return root;
}

/* Where the weights are on this machine: from the bucket, once, where another has run it. */
static int find_weights(struct tm_cli *cli, const char *dir, char path[TM_STATE_PATH_MAX], struct tm_error *e)
{
    char place[TM_COPY_PLACE_MAX];
    tm_state_path(dir, TM_STATE_RESULT, path);
    if (cli->env->file_exists(cli->env, path)) return 0;
    if (!tm_run_is_away(cli->env, dir))
        return tm_error_set(e, TM_ENOTFOUND, "%s: there is no result: it has not ended, or its own program saved it",
                            dir);
    int rc = tm_run_away_place(cli->env, dir, place, e);
    return rc == 0 ? tm_bucket_result_fetch(cli->env, place, path, e) : rc;
}

int tm_cmd_result(struct tm_cli *cli, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    const char *dir = NULL;
    int rc = tm_run_folder(cli, &dir, e);
    if (rc == 0) rc = find_weights(cli, dir, path, e);
    if (rc != 0) return rc;
    json_t *summary = read_summary(cli, dir);
    const char *hash = json_string_value(json_object_get(summary, "weights_hash"));
    if (cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "result", path);
        if (hash != NULL) tm_jsonout_string(&json, "weights_hash", hash);
        tm_jsonout_end(&json);
    } else {
        tm_text_printf(&cli->out, "%s%s%s\n", path, hash != NULL ? "  weights " : "", hash != NULL ? hash : "");
    }
    json_decref(summary);
    return 0;
}
