#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "job/run_report_file.h"
#include "run/state_folder.h"

const struct tm_option tm_report_command_options[] = {
    {.name = "state",
     .value = "DIR|NAME",
     .help = "state folder or name of the run (the one running, or the only one)"},
    {.name = "output", .letter = 'o', .value = "FILE", .help = "output file (report.html in the state folder)"},
    {.name = NULL},
};

int tm_cmd_report(struct tm_cli *cli, struct tm_error *e)
{
    char usual[TM_STATE_PATH_MAX];
    const char *dir = NULL;
    const char *path = tm_given_text(cli, "output");
    int rc = tm_run_folder(cli, &dir, e);
    if (rc != 0) return rc;
    if (path == NULL) {
        tm_state_path(dir, TM_STATE_REPORT, usual);
        path = usual;
    }
    rc = tm_run_report_write(cli->env, dir, path, e);
    if (rc == -(int)TM_EBUSY)
        return tm_error_set(e, TM_EBUSY,
                            "%s: it is still running; reports are for runs that have ended or were stopped", dir);
    if (rc != 0) return rc;
    if (cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "report", path);
        tm_jsonout_end(&json);
    } else {
        tm_text_printf(&cli->out, "%s\n", path);
    }
    return 0;
}
