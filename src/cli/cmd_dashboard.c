#include "api/api_routes.h"
#include "api/dashboard.h"
#include "base/paths.h"
#include "cli/commands.h"
#include "cli/dashboard_open.h"

#include <signal.h>
#include <stdio.h>

enum { STEP_MS = 1000 };

const struct tm_option tm_dashboard_command_options[] = {
    {.name = "listen",
     .value = "HOST:PORT",
     .help = "where to listen, on loopback (127.0.0.1:8642; another port if that one is taken)"},
    {.name = "state", .value = "DIR,...", .help = "state folders elsewhere, to be shown with the others"},
    {.name = "openapi", .help = "print the OpenAPI description of the dashboard's API, and exit"},
    {.name = NULL},
};

static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
    (void)number;
    stopping = 1;
}

static void tell(struct tm_cli *cli, const struct tm_dashboard *dashboard)
{
    struct tm_text text;
    tm_text_init(&text, 4096);
    if (cli->json) {
        struct tm_text link;
        struct tm_jsonout json;
        tm_text_init(&link, 512);
        tm_dashboard_link(dashboard, true, &link);
        tm_jsonout_init_line(&json, &text);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "steer", tm_text_string(&link));
        tm_text_clear(&link);
        tm_dashboard_link(dashboard, false, &link);
        tm_jsonout_string(&json, "watch", tm_text_string(&link));
        tm_jsonout_end(&json);
        tm_text_deinit(&link);
    } else {
        tm_text_puts(&text, "Open in a browser on this machine (the link lets its owner watch and steer):\n  ");
        tm_dashboard_link(dashboard, true, &text);
        tm_text_puts(&text, "\nTo let somebody only watch:\n  ");
        tm_dashboard_link(dashboard, false, &text);
        tm_text_puts(&text, "\nCtrl-C ends the dashboard; runs go on without it.\n");
    }
    (void)fputs(tm_text_string(&text), stdout);
    (void)fflush(stdout);
    tm_text_deinit(&text);
}

int tm_cmd_dashboard(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_dashboard *dashboard = NULL;
    struct sigaction action = {.sa_handler = on_signal};
    if (cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE, "unexpected argument \"%.60s\"; name a state folder with --state",
                            cli->arguments[0]);
    if (tm_given(cli, "openapi")) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_api_describe(true, TIDEMILL_VERSION, &json);
        return 0;
    }
    int rc = tm_dashboard_open(cli, NULL, &dashboard, e);
    if (rc != 0) return rc;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    tell(cli, dashboard);
    while (!stopping)
        tm_dashboard_step(dashboard, STEP_MS);
    tm_dashboard_destroy(dashboard);
    return 0;
}
