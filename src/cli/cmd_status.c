#include "api/api_client.h"
#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/live_view.h"
#include "cli/run_folder.h"
#include "cli/run_picture.h"
#include "run/find_run.h"
#include "run/run_home.h"

enum { STEP_MS = 50, AWAY_STEPS = 100, EVENTS_SHOWN = 10 };

const struct tm_option tm_status_command_options[] = {
    {.name = "state",
     .value = "DIR|NAME",
     .help = "state folder or name of the run (the one running, or the only one)"},
    {.name = "follow", .letter = 'f', .help = "keep the display up to date until the run ends"},
    {.name = NULL},
};

/* Until nobody runs it any more. */
int tm_status_follow(struct tm_cli *cli, const char *dir, struct tm_error *e)
{
    struct tm_run_status last;
    struct tm_live_view *view = tm_live_view_of_run(cli->env, cli->term, dir, NULL, NULL);
    if (view == NULL) return tm_error_nomem(e);
    int steps = tm_run_is_away(cli->env, dir) ? AWAY_STEPS : 1; /* of one elsewhere a bucket is asked */
    while (tm_run_is_owned(cli->env, dir)) {
        for (int i = 0; i < steps; i++) {
            tm_live_view_step(view);
            cli->env->sleep_ms(cli->env, STEP_MS);
        }
    }
    int rc = tm_api_run_status(cli->env, dir, &last, e);
    if (rc == 0) {
        tm_live_view_finish(view, &last);
        tm_run_status_deinit(&last);
    }
    tm_live_view_destroy(view);
    return rc;
}

int tm_cmd_status(struct tm_cli *cli, struct tm_error *e)
{
    const char *dir = NULL;
    struct tm_run_status status;
    int rc = tm_run_folder(cli, &dir, e);
    if (rc != 0) return rc;
    if (tm_given(cli, "follow") && cli->json)
        return tm_error_set(e, TM_EUSAGE,
                            "--follow draws for a terminal; programs can use: tidemill events --follow --json");
    if (tm_given(cli, "follow")) return tm_status_follow(cli, dir, e);
    rc = tm_api_run_status(cli->env, dir, &status, e);
    if (rc != 0) return rc;
    if (cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_run_status_write(&status, &json);
    } else {
        struct tm_picture_options options = {.events = EVENTS_SHOWN, .note = tm_api_away_note(cli->env, dir, &status)};
        tm_run_picture(&status, &cli->term, &options, &cli->out);
    }
    tm_run_status_deinit(&status);
    return 0;
}
