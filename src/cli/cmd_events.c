#include "api/api_client.h"
#include "base/calendar.h"
#include "base/doc.h"
#include "base/jsonout.h"
#include "base/term.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "run/find_run.h"
#include "run/run_tap.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ANSWER_MS = 5000, WAIT_S = 10, RETRY_MS = 200, BODY_MAX = 16 << 20 };

const struct tm_option tm_events_command_options[] = {
    {.name = "state",
     .value = "DIR|NAME",
     .help = "state folder or name of the run (the one running, or the only one)"},
    {.name = "follow", .letter = 'f', .help = "keep printing events until the run ends; with --json: JSON lines"},
    {.name = "after", .value = "N", .help = "only events after number N (0)"},
    {.name = "all", .help = "also events for programs: progress, prices, costs so far"},
    {.name = NULL},
};

struct reading {
    struct tm_cli *cli;
    const char *dir;
    bool follow;
    bool all;
    uint64_t after; /* the last one seen */
    size_t shown;
};

/* One event, wherever it comes from. */
struct shown {
    uint64_t sequence;
    int64_t utc_ms;
    const char *kind;
    const char *text;
    const char *line; /* as JSON in one line, without its end */
    size_t line_length;
    bool quiet;
};

/* ---- printing ---- */

/* What follows a run is shown as it comes; all else is gathered. */
static void pass_on(struct reading *r)
{
    struct tm_text *out = &r->cli->out;
    if (!r->follow || out->length == 0 || out->failed != 0) return;
    (void)fwrite(out->data, 1, out->length, stdout);
    (void)fflush(stdout);
    tm_text_clear(out);
}

static void show(struct reading *r, const struct shown *event)
{
    char when[TM_CALENDAR_TEXT_MAX];
    struct tm_text *out = &r->cli->out;
    r->after = event->sequence;
    if (event->quiet && !r->all) return;
    if (r->cli->json) {
        if (!r->follow) tm_text_puts(out, r->shown > 0 ? ",\n    " : "\n    ");
        tm_text_append(out, event->line, event->line_length);
        if (r->follow) tm_text_putc(out, '\n');
    } else {
        (void)tm_calendar_print(event->utc_ms / 1000 * 1000, when); /* always with its thousandths: columns stand */
        tm_text_printf(out, "%.10s %.8s.%03d  %5" PRIu64 "  %-13s  ", when, when + 11, (int)(event->utc_ms % 1000),
                       event->sequence, event->kind);
        tm_term_put_safe(out, event->text, strlen(event->text));
        tm_text_putc(out, '\n');
    }
    r->shown++;
    pass_on(r);
}

/* ---- from the record ---- */

static int take_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct reading *r = context;
    struct tm_text words;
    struct tm_text line;
    struct tm_jsonout json;
    tm_text_init(&words, 4096);
    tm_text_init(&line, BODY_MAX);
    tm_run_event_words(event, &words);
    tm_jsonout_init_line(&json, &line);
    if (r->cli->json) tm_run_event_write(sequence, event, &json);
    struct shown shown = {.sequence = sequence,
                          .utc_ms = event->at_ms,
                          .kind = tm_run_event_kind(event),
                          .text = tm_text_string(&words),
                          .line = tm_text_string(&line),
                          .line_length = line.length > 0 ? line.length - 1 : 0,
                          .quiet = tm_run_event_quiet(event)};
    int rc = tm_text_status(&words, e);
    if (rc == 0) rc = tm_text_status(&line, e);
    if (rc == 0) show(r, &shown);
    tm_text_deinit(&words);
    tm_text_deinit(&line);
    return rc;
}

static int read_record(struct reading *r, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(r->dir, TM_STATE_RECORD, path);
    return tm_run_record_each(path, r->after, SIZE_MAX, take_event, r, e);
}

/* ---- from the coordinator ---- */

static int take_line(struct reading *r, const char *line, size_t length, struct tm_error *e)
{
    json_t *root = NULL;
    int rc = tm_json_load("an event", line, length, &root, e);
    if (rc != 0) return rc;
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const char *text = json_string_value(json_object_get(root, "text"));
    struct shown shown = {.sequence = (uint64_t)json_integer_value(json_object_get(root, "sequence")),
                          .utc_ms = json_integer_value(json_object_get(root, "utc_ms")),
                          .kind = kind == NULL ? "?" : kind,
                          .text = text == NULL ? "?" : text,
                          .line = line,
                          .line_length = length,
                          .quiet = json_is_true(json_object_get(root, "quiet"))};
    if (shown.sequence > r->after)
        show(r, &shown);
    else
        rc = tm_error_set(e, TM_EPEER, "the coordinator sent events out of order");
    json_decref(root);
    return rc;
}

/* One answer. *out_more: there may be more at once. */
static int ask_once(struct reading *r, struct tm_api_client *client, int wait_s, bool *out_more, struct tm_error *e)
{
    struct tm_text body;
    char target[96];
    (void)snprintf(target, sizeof target, "/v1/events?after=%" PRIu64 "&wait=%d", r->after, wait_s);
    tm_text_init(&body, BODY_MAX);
    int rc = tm_api_ask(client, "GET", target, ANSWER_MS + wait_s * 1000, &body, e);
    *out_more = rc == 0 && body.length > 0;
    for (const char *at = tm_text_string(&body); rc == 0 && *at != '\0';) {
        const char *end = strchr(at, '\n');
        size_t length = end == NULL ? strlen(at) : (size_t)(end - at);
        rc = take_line(r, at, length, e);
        at += length + (end != NULL);
    }
    tm_text_deinit(&body);
    return rc;
}

/* All that a coordinator has; where none answers, all that the record has. */
static int read_all(struct reading *r, struct tm_api_client *client, struct tm_error *e)
{
    bool more = true;
    int rc = 0;
    while (rc == 0 && more)
        rc = ask_once(r, client, 0, &more, e);
    return rc == 0 ? 0 : read_record(r, e);
}

/* A coordinator that is killed is back soon; once nobody runs the job, the record has the rest. */
static int follow(struct reading *r, struct tm_api_client *client, struct tm_error *e)
{
    bool more = false;
    while (tm_run_is_owned(r->cli->env, r->dir)) {
        if (ask_once(r, client, WAIT_S, &more, e) != 0) r->cli->env->sleep_ms(r->cli->env, RETRY_MS);
    }
    return read_record(r, e);
}

int tm_cmd_events(struct tm_cli *cli, struct tm_error *e)
{
    struct reading r = {.cli = cli, .follow = tm_given(cli, "follow"), .all = tm_given(cli, "all")};
    int64_t after = 0;
    int rc = tm_run_folder(cli, &r.dir, e);
    if (rc == 0) rc = tm_given_integer(cli, "after", 0, INT64_MAX, &after, e);
    if (rc != 0) return rc;
    r.after = (uint64_t)after;
    struct tm_api_client *client = tm_api_client_create(cli->env, r.dir);
    if (client == NULL) return tm_error_nomem(e);
    bool document = cli->json && !r.follow;
    if (document) tm_text_puts(&cli->out, "{\n  \"events\": [");
    rc = r.follow ? follow(&r, client, e) : read_all(&r, client, e);
    if (document) tm_text_puts(&cli->out, r.shown > 0 ? "\n  ]\n}\n" : "]\n}\n");
    tm_api_client_destroy(client);
    return rc;
}
