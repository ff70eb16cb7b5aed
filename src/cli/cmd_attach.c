#include "base/jsonout.h"
#include "base/paths.h"
#include "cli/cloud_accounts.h"
#include "cli/commands.h"
#include "cli/live_view.h"
#include "job/detach.h"
#include "job/launch.h"
#include "run/find_run.h"
#include "run/run_home.h"
#include "run/state_folder.h"
#include "store/copy_store.h"

#include <string.h>

const struct tm_option tm_attach_command_options[] = {
    {.name = "state", .value = "DIR", .help = "state folder to make or use here (~/.local/state/tidemill/NAME)"},
    {.name = "no-follow", .help = "only make the state folder; status, events, logs and stop use it"},
    {.name = NULL},
};

/* By the tag of the VM that runs the job of that name, in the clouds that are set up here. */
static int find_by_name(struct tm_cli *cli, const char *job, char *out, struct tm_error *e)
{
    const struct tm_cloud_kind *kind = NULL;
    struct tm_error why;
    int failed = 0;
    for (size_t i = 0; (kind = tm_cloud_kind_at(i)) != NULL; i++) {
        struct tm_error own;
        if (!tm_cloud_kind_is_set(cli->env, kind)) continue;
        int rc = tm_detach_find(cli->env, kind->name, job, out, TM_COPY_PLACE_MAX, &own);
        if (rc == 0) return 0;
        if (rc == -(int)TM_ENOTFOUND || failed != 0) continue;
        failed = rc; /* it may be there; but another may have it */
        why = own;
    }
    if (failed != 0 && e != NULL) *e = why;
    if (failed != 0) return failed;
    return tm_error_set(
        e, TM_ENOTFOUND,
        "no VM of the clouds that are set up here (of AWS in this region) runs a job named %.100s; name "
        "the place of its copies: tidemill attach s3://BUCKET/PREFIX",
        job);
}

/* "s3://BUCKET/PREFIX", or a job's name. */
static int find_place(struct tm_cli *cli, const char *given, char *out, struct tm_error *e)
{
    if (!tm_detach_is_place(given)) return find_by_name(cli, given, out, e);
    size_t length = strlen(given);
    while (length > 0 && given[length - 1] == '/')
        length--;
    if (length >= TM_COPY_PLACE_MAX) return tm_error_set(e, TM_EUSAGE, "the place's name is too long");
    memcpy(out, given, length);
    out[length] = '\0';
    return 0;
}

static int make_folder(struct tm_cli *cli, const char *place, const char **out_dir, struct tm_error *e)
{
    char there[TM_COPY_PLACE_MAX];
    const char *name = strrchr(place, '/') + 1;
    int rc = tm_launch_find_dir(cli->env, tm_given_text(cli, "state"), name, &cli->arena, out_dir, e);
    if (rc != 0) return rc;
    bool away = tm_run_is_away(cli->env, *out_dir);
    if (!away && tm_launch_has_work(cli->env, *out_dir))
        return tm_error_set(e, TM_EEXISTS, "%s has a run of this machine; give another folder with --state", *out_dir);
    if (away && (tm_run_away_place(cli->env, *out_dir, there, e) != 0 || strcmp(there, place) != 0))
        return tm_error_set(e, TM_EEXISTS, "%s has another run; give another folder with --state", *out_dir);
    return away ? 0 : tm_run_away_write(cli->env, *out_dir, place, e);
}

int tm_cmd_attach(struct tm_cli *cli, struct tm_error *e)
{
    char place[TM_COPY_PLACE_MAX];
    const char *dir = NULL;
    if (cli->argument_count != 1)
        return tm_error_set(e, TM_EUSAGE, "which run? tidemill attach s3://BUCKET/PREFIX, or tidemill attach JOB");
    int rc = find_place(cli, cli->arguments[0], place, e);
    if (rc == 0) rc = make_folder(cli, place, &dir, e);
    if (rc == 0) rc = tm_run_away_refresh(cli->env, dir, e);
    if (rc != 0) return rc;
    if (cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "place", place);
        tm_jsonout_string(&json, "state_dir", dir);
        tm_jsonout_bool(&json, "running", tm_run_is_owned(cli->env, dir));
        tm_jsonout_end(&json);
        return 0;
    }
    if (tm_given(cli, "no-follow")) {
        tm_text_printf(&cli->out, "%s\n", dir);
        return 0;
    }
    return tm_status_follow(cli, dir, e);
}
