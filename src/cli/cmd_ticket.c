#include "base/address.h"
#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "job/tickets.h"
#include "run/office.h"

const struct tm_option tm_ticket_command_options[] = {
    {.name = "state",
     .value = "DIR|NAME",
     .help = "state folder or name of the run (the one running, or the only one)"},
    {.name = "count", .value = "N", .help = "how many: one for each machine (1)"},
    {.name = "valid", .value = "DURATION", .help = "how long one may be used (15m)"},
    {.name = "host",
     .value = "HOST",
     .help = "name or address by which the machines reach this one (as the run was told, else this machine's name)"},
    {.name = NULL},
};

static void print_json(struct tm_cli *cli, const char *dir, const char *const *tickets,
                       const struct tm_tickets_request *request)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "state", dir);
    tm_jsonout_integer(&json, "valid_s", request->valid_ms / 1000);
    tm_jsonout_list(&json, "tickets");
    for (int i = 0; i < request->count; i++)
        tm_jsonout_string(&json, NULL, tickets[i]);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

int tm_cmd_ticket(struct tm_cli *cli, struct tm_error *e)
{
    const char *dir = NULL;
    const char *const *tickets = NULL;
    int64_t count = 1;
    struct tm_tickets_request request = {.valid_ms = TM_OFFICE_TICKET_MS, .host = tm_given_text(cli, "host")};
    int rc = tm_given_integer(cli, "count", 1, TM_OFFICE_ASKED_MAX, &count, e);
    if (rc == 0) rc = tm_given_time_span(cli, "valid", &request.valid_ms, e);
    if (rc == 0 && request.valid_ms > TM_OFFICE_VALID_MAX_MS)
        rc = tm_error_set(e, TM_EUSAGE, "--valid: at most 24h: ask for another ticket when it is needed");
    if (rc == 0 && request.host != NULL && (rc = tm_host_check(request.host, e)) != 0)
        rc = tm_error_wrap(e, rc, "--host");
    if (rc == 0) rc = tm_run_folder(cli, &dir, e);
    if (rc != 0) return rc;
    request.count = (int)count;
    rc = tm_tickets_ask(cli->env, dir, &request, &cli->arena, &tickets, e);
    if (rc != 0) return rc;
    if (cli->json) {
        print_json(cli, dir, tickets, &request);
        return 0;
    }
    for (int i = 0; i < request.count; i++)
        tm_text_printf(&cli->out, "%s\n", tickets[i]);
    return 0;
}
