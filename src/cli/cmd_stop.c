#include "api/api_client.h"
#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "job/detach.h"
#include "run/find_run.h"
#include "run/run_home.h"
#include "store/copy_store.h"

#include <inttypes.h>
#include <string.h>

enum { ANSWER_MS = 5000, LOOK_MS = 100, AWAY_LOOK_MS = 1000, PATIENCE_MS = 120000 };

const struct tm_option tm_stop_command_options[] = {
    {.name = "state",
     .value = "DIR|NAME",
     .help = "state folder or name of the run (the one running, or the only one)"},
    {.name = "now", .help = "stop at once, without copying the last step: steps since the newest copy are redone"},
    {.name = NULL},
};

/* Until nobody runs it, which is when its instances are given back. */
static int await_end(struct tm_cli *cli, const char *dir, struct tm_error *e)
{
    int64_t end_ms = cli->env->monotonic_ns(cli->env) / 1000000 + PATIENCE_MS;
    while (tm_run_is_owned(cli->env, dir)) {
        if (cli->env->monotonic_ns(cli->env) / 1000000 > end_ms)
            return tm_error_set(e, TM_ETIMEOUT,
                                "it was told to stop %d s ago, but is still running; see: tidemill status",
                                PATIENCE_MS / 1000);
        cli->env->sleep_ms(cli->env, tm_run_is_away(cli->env, dir) ? AWAY_LOOK_MS : LOOK_MS);
    }
    return 0;
}

static int ask(struct tm_cli *cli, const char *dir, struct tm_error *e)
{
    struct tm_text body;
    struct tm_api_client *client = tm_api_client_create(cli->env, dir);
    if (client == NULL) return tm_error_nomem(e);
    tm_text_init(&body, 1 << 16);
    int rc = tm_api_ask(client, "POST", tm_given(cli, "now") ? "/v1/stop?now=1" : "/v1/stop", ANSWER_MS, &body, e);
    tm_text_deinit(&body);
    tm_api_client_destroy(client);
    return rc;
}

/* One that is not reached looks for orders in its bucket, too. */
static int ask_away(struct tm_cli *cli, const char *dir, struct tm_error *e)
{
    char place[TM_COPY_PLACE_MAX];
    int rc = tm_run_away_place(cli->env, dir, place, e);
    if (rc == 0 && !tm_detach_is_rented(cli->env, dir))
        return tm_error_set(
            e, TM_ENOTFOUND,
            "the VM of its coordinator is gone; go on with tidemill run --resume --state %s, or end its VMs "
            "with tidemill cloud clean",
            dir);
    return rc == 0 ? tm_run_home_ask_stop(cli->env, place, tm_given(cli, "now"), e) : rc;
}

static void print(struct tm_cli *cli, const char *dir, const struct tm_run_status *status)
{
    if (cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "job", status->job.name);
        tm_jsonout_string(&json, "state", tm_job_state_name(status->state));
        tm_jsonout_integer(&json, "steps_committed", (int64_t)status->committed);
        tm_jsonout_integer(&json, "step_durable", (int64_t)status->durable);
        tm_jsonout_end(&json);
        return;
    }
    tm_text_printf(&cli->out, "%s is %s at step %" PRIu64 "; step %" PRIu64 " is durable\n", status->job.name,
                   tm_job_state_name(status->state), status->committed, status->durable);
    if (status->state != TM_JOB_FINISHED && status->state != TM_JOB_FAILED)
        tm_text_printf(&cli->out, "to resume: tidemill run --resume --state %s\n", dir);
}

int tm_cmd_stop(struct tm_cli *cli, struct tm_error *e)
{
    const char *dir = NULL;
    struct tm_run_status status;
    int rc = tm_run_folder(cli, &dir, e);
    if (rc != 0) return rc;
    if (!tm_run_is_owned(cli->env, dir)) return tm_error_set(e, TM_ENOTFOUND, "%s: it is not running", dir);
    rc = ask(cli, dir, e);
    if (rc != 0 && tm_run_is_away(cli->env, dir)) rc = ask_away(cli, dir, e);
    if (rc != 0) return tm_error_wrap(e, rc, "asking for a stop");
    rc = await_end(cli, dir, e);
    if (rc == 0) rc = tm_api_run_status(cli->env, dir, &status, e);
    if (rc != 0) return rc;
    print(cli, dir, &status);
    tm_run_status_deinit(&status);
    return 0;
}
