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
     .help = "where to listen (127.0.0.1:8642; another port if that one is taken); not on loopback: with TLS"},
    {.name = "tls-cert",
     .value = "FILE",
     .help = "certificate (PEM, with those that vouch for it); without it one is made where it is needed"},
    {.name = "tls-key", .value = "FILE", .help = "its key (PEM, without password)"},
    {.name = "name", .value = "NAME,...", .help = "names by which browsers elsewhere ask (this machine's host name)"},
    {.name = "attach",
     .value = "URL,...",
     .help =
         "also show the runs of another machine's dashboard; https://HOST:PORT#sha256=FINGERPRINT pins a certificate "
         "that no authority vouches for"},
    {.name = "token",
     .value = "FILE",
     .help = "of --attach: a file with its token, or with a line HOST:PORT TOKEN for each (the variable "
             "TIDEMILL_ATTACH_TOKEN)"},
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
        tm_text_clear(&link);
        tm_dashboard_fingerprint(dashboard, &link);
        if (link.length > 0) tm_jsonout_string(&json, "fingerprint", tm_text_string(&link));
        tm_jsonout_end(&json);
        tm_text_deinit(&link);
    } else {
        struct tm_text fingerprint;
        tm_text_init(&fingerprint, 256);
        tm_dashboard_fingerprint(dashboard, &fingerprint);
        tm_text_printf(&text, "Open in a browser%s (the link lets its owner watch and steer):\n  ",
                       fingerprint.length > 0 ? "" : " on this machine");
        tm_dashboard_link(dashboard, true, &text);
        tm_text_puts(&text, "\nTo let somebody only watch:\n  ");
        tm_dashboard_link(dashboard, false, &text);
        if (fingerprint.length > 0)
            tm_text_printf(&text, "\nThe SHA-256 fingerprint of its certificate, to compare before you trust it:\n  %s",
                           tm_text_string(&fingerprint));
        tm_text_deinit(&fingerprint);
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
