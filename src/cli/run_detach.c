#include "cli/run_detach.h"

#include "base/jsonout.h"
#include "base/log.h"
#include "cli/commands.h"
#include "run/run_home.h"
#include "run/state_folder.h"
#include "store/objects.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 1000, VM_LOOKS = 10, PATIENCE_MS = 20 * 60000, LOG_MAX = 1 << 20, LOG_SHOWN = 600 };

void tm_run_where(const struct tm_dashboard *dashboard, const char *dir, char *out)
{
    struct tm_text link, print;
    out[0] = '\0';
    tm_text_init(&link, TM_HOME_WHERE_MAX);
    tm_text_init(&print, TM_HOME_WHERE_MAX);
    tm_dashboard_link(dashboard, true, &link);
    tm_dashboard_fingerprint(dashboard, &print);
    const char *text = tm_text_string(&link);
    const char *token = strstr(text, "/#token=");
    const char *name = strrchr(dir, '/');
    if (print.length > 0 && token != NULL && name != NULL)
        (void)snprintf(out, TM_HOME_WHERE_MAX, "%.*s %s %s %s", (int)(token - text), text, token + strlen("/#token="),
                       tm_text_string(&print), name + 1);
    tm_text_deinit(&link);
    tm_text_deinit(&print);
}

/* The VM has ended before it said a word: what it wrote. */
static int tell_end(struct tm_cli *cli, const char *place, struct tm_error *e)
{
    struct tm_objects o;
    struct tm_text log;
    tm_text_init(&log, LOG_MAX);
    int rc = tm_objects_open(cli->env, place, &o, e);
    if (rc == 0) {
        (void)o.get(o.self, "vm/coordinator.log", &log, NULL, NULL);
        o.close(o.self);
        const char *text = tm_text_string(&log);
        size_t skip = log.length > LOG_SHOWN ? log.length - LOG_SHOWN : 0;
        rc = tm_error_set(e, TM_EPEER, "the VM of the coordinator has ended; it said: %s", text + skip);
    }
    tm_text_deinit(&log);
    return rc;
}

static int await(struct tm_cli *cli, const char *dir, const char *place, struct tm_error *e)
{
    char where[TM_HOME_WHERE_MAX];
    int64_t end_ms = cli->env->monotonic_ns(cli->env) / 1000000 + PATIENCE_MS;
    for (int look = 1; cli->env->monotonic_ns(cli->env) / 1000000 < end_ms; look++) {
        int rc = tm_run_home_where(cli->env, place, where, e);
        if (rc == 0) return 0;
        if (rc != -(int)TM_ENOTFOUND && rc != -(int)TM_EIO) return rc;
        if (look % VM_LOOKS == 0 && !tm_detach_is_rented(cli->env, dir)) return tell_end(cli, place, e);
        cli->env->sleep_ms(cli->env, LOOK_MS);
    }
    return tm_error_set(e, TM_ETIMEOUT, "the VM of the coordinator says nothing; see tidemill cloud list");
}

int tm_run_detach(struct tm_cli *cli, const struct tm_detach_request *request, struct tm_error *e)
{
    char id[TM_VM_ID_MAX] = "";
    const struct tm_job *job = &request->settings->job;
    int rc = tm_detach(cli->env, request, id, e);
    if (rc != 0) return rc;
    tm_log(TM_LOG_INFO, "VM %s runs %s from now on; this machine may go. Waiting for its first word", id, job->name);
    rc = await(cli, request->dir, job->copies, e);
    if (rc != 0) return rc;
    if (cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "job", job->name);
        tm_jsonout_string(&json, "instance", id);
        tm_jsonout_string(&json, "place", job->copies);
        tm_jsonout_string(&json, "state_dir", request->dir);
        tm_jsonout_end(&json);
        return 0;
    }
    tm_text_printf(&cli->out,
                   "%s runs on VM %s; this machine may go.\n"
                   "  tidemill status --state %s      # also events, logs, stop\n"
                   "  tidemill attach %s   # from another machine\n",
                   job->name, id, request->dir, job->copies);
    return 0;
}
