#include "cli/run_traces.h"

#include "api/api_client.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "run/otlp.h"
#include "run/run_tap.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    LOOK_MS = 1000,
    LAST_MS = 5000,
    STEP_MS = 20,
    TIMEOUT_MS = 10000, /* as OpenTelemetry has it */
    LONGEST_TIMEOUT_MS = 600000,
    SPARE_MS = 5000, /* for curl to end by itself */
    TRIES = 3,
    BODY_MAX = 32 << 20,
    URL_MAX = 2000
};

struct tm_run_traces {
    struct tm_env *env;
    const char *dir;
    char logs[TM_STATE_PATH_MAX];
    char url[URL_MAX];
    const char *headers;     /* borrowed; NULL: none */
    const char *certificate; /* borrowed; NULL: the system's */
    int64_t timeout_ms;
    struct tm_otlp *otlp;
    struct tm_api_client *client;
    struct tm_text body; /* being sent; length 0: nothing is */
    int pid;             /* 0: none is under way */
    int tried;
    int64_t at_ms; /* when to look next */
    int64_t until_ms;
    bool warned;
};

static int64_t now_ms(const struct tm_run_traces *t)
{
    return t->env->monotonic_ns(t->env) / 1000000;
}

static const char *variable(const struct tm_cli *cli, const char *name)
{
    const char *text = cli->env->variable(cli->env, name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* A variable of all signals, or of traces alone, which counts more. */
static const char *exporter_variable(const struct tm_cli *cli, const char *end)
{
    char name[64];
    (void)snprintf(name, sizeof name, "OTEL_EXPORTER_OTLP_TRACES_%s", end);
    const char *own = variable(cli, name);
    (void)snprintf(name, sizeof name, "OTEL_EXPORTER_OTLP_%s", end);
    return own != NULL ? own : variable(cli, name);
}

/* "http://127.0.0.1:4318" and its path; false: none, or one that curl's file could not hold. */
static bool find_url(const struct tm_cli *cli, char out[URL_MAX])
{
    const char *own = variable(cli, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    const char *base = variable(cli, "OTEL_EXPORTER_OTLP_ENDPOINT");
    const char *disabled = variable(cli, "OTEL_SDK_DISABLED");
    const char *exporter = variable(cli, "OTEL_TRACES_EXPORTER");
    const char *given = own != NULL ? own : base;
    if (given == NULL || (disabled != NULL && strcasecmp(disabled, "true") == 0) ||
        (exporter != NULL && strcmp(exporter, "none") == 0))
        return false;
    size_t length = strlen(given);
    if (own == NULL && length > 0 && given[length - 1] == '/') length--;
    bool good = (strncmp(given, "http://", 7) == 0 || strncmp(given, "https://", 8) == 0) &&
                strcspn(given, "\"\\\r\n") == strlen(given) && length + 16 < URL_MAX;
    if (!good) {
        tm_log(TM_LOG_WARN, "OTEL_EXPORTER_OTLP_ENDPOINT is no http:// or https:// address: no traces are sent");
        return false;
    }
    (void)snprintf(out, URL_MAX, "%.*s%s", (int)length, given, own != NULL ? "" : "/v1/traces");
    return true;
}

/* The receivers of HTTP take JSON as they take protobuf; those of gRPC have another port. */
static void warn_of_protocol(const struct tm_cli *cli)
{
    const char *protocol = exporter_variable(cli, "PROTOCOL");
    if (protocol != NULL && strncmp(protocol, "http/", 5) != 0)
        tm_log(TM_LOG_WARN, "OTEL_EXPORTER_OTLP_PROTOCOL is %s: traces are sent as http/json, usually to port 4318",
               protocol);
}

/* The authority that vouches for the receiver, and how long it may take. */
static void take_limits(struct tm_run_traces *t, const struct tm_cli *cli)
{
    const char *timeout = exporter_variable(cli, "TIMEOUT");
    int64_t ms = 0;
    t->timeout_ms = TIMEOUT_MS;
    t->certificate = exporter_variable(cli, "CERTIFICATE");
    if (t->certificate != NULL && strcspn(t->certificate, "\"\\\r\n") != strlen(t->certificate)) {
        tm_log(TM_LOG_WARN, "OTEL_EXPORTER_OTLP_CERTIFICATE is no path: it is not used");
        t->certificate = NULL;
    }
    if (timeout == NULL) return;
    if (tm_number_i64(timeout, strlen(timeout), &ms) && ms > 0 && ms <= LONGEST_TIMEOUT_MS)
        t->timeout_ms = ms;
    else
        tm_log(TM_LOG_WARN, "OTEL_EXPORTER_OTLP_TIMEOUT is %s, and not milliseconds up to %d: %d are waited for",
               timeout, LONGEST_TIMEOUT_MS, TIMEOUT_MS);
}

static int take_record(struct tm_run_traces *t);

/* Spans that ended before the run went on were sent then. */
static void pass_over(struct tm_run_traces *t)
{
    (void)take_record(t);
    while (tm_otlp_count(t->otlp) > 0) {
        tm_otlp_write(t->otlp, &t->body);
        tm_text_clear(&t->body);
    }
}

struct tm_run_traces *tm_run_traces_open(struct tm_cli *cli, const char *dir, bool resumed)
{
    char url[URL_MAX];
    if (!find_url(cli, url)) return NULL;
    warn_of_protocol(cli);
    struct tm_run_traces *t = tm_calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->env = cli->env;
    t->dir = dir;
    memcpy(t->url, url, sizeof url);
    t->headers = exporter_variable(cli, "HEADERS");
    take_limits(t, cli);
    tm_state_path(dir, TM_STATE_LOGS, t->logs);
    tm_text_init(&t->body, BODY_MAX);
    t->otlp = tm_otlp_create(variable(cli, "OTEL_SERVICE_NAME"), variable(cli, "OTEL_RESOURCE_ATTRIBUTES"));
    t->client = tm_api_client_create(cli->env, dir);
    if (t->otlp != NULL && resumed) pass_over(t);
    if (t->otlp != NULL && t->client != NULL) return t;
    tm_run_traces_close(t);
    return NULL;
}

static void path_of(const struct tm_run_traces *t, const char *end, char out[TM_STATE_PATH_MAX + 32])
{
    (void)snprintf(out, TM_STATE_PATH_MAX + 32, "%s/traces.%s", t->logs, end);
}

static void remove_files(const struct tm_run_traces *t)
{
    char path[TM_STATE_PATH_MAX + 32];
    static const char *const ends[] = {"body", "curl"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        path_of(t, ends[i], path);
        (void)t->env->file_remove(t->env, path, NULL);
    }
}

static void end_process(struct tm_run_traces *t)
{
    int status = 0;
    if (t->pid <= 0) return;
    (void)t->env->process_signal_group(t->env, t->pid, SIGKILL, NULL);
    (void)t->env->process_wait(t->env, t->pid, 1000, &status, NULL);
    t->pid = 0;
}

void tm_run_traces_close(struct tm_run_traces *t)
{
    if (t == NULL) return;
    end_process(t);
    if (t->body.length > 0) remove_files(t);
    tm_text_deinit(&t->body);
    tm_otlp_destroy(t->otlp);
    tm_api_client_destroy(t->client);
    tm_free(t);
}

/* ---- sending: by a process of its own, which may take its time ---- */

/* A line of curl's file; there no other user can read it. */
static int put_header(void *context, const char *name, const char *value)
{
    struct tm_text *out = context;
    tm_text_printf(out, "header = \"%s: ", name);
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\') tm_text_putc(out, '\\');
        tm_text_putc(out, *value);
    }
    tm_text_puts(out, "\"\n");
    return 0;
}

static int start(struct tm_run_traces *t, struct tm_error *e)
{
    char body[TM_STATE_PATH_MAX + 32], curl[TM_STATE_PATH_MAX + 32], log[TM_STATE_PATH_MAX + 32];
    struct tm_text text;
    path_of(t, "body", body);
    path_of(t, "curl", curl);
    path_of(t, "log", log);
    tm_text_init(&text, 65536);
    tm_text_printf(&text,
                   "url = \"%s\"\ndata-binary = \"@%s\"\nheader = \"Content-Type: application/json\"\nsilent\n"
                   "show-error\nfail\nmax-time = %.3f\noutput = \"/dev/null\"\n",
                   t->url, body, (double)t->timeout_ms / 1000);
    if (t->certificate != NULL) tm_text_printf(&text, "cacert = \"%s\"\n", t->certificate);
    (void)tm_otlp_pairs(t->headers, put_header, &text);
    const char *const argv[] = {"curl", "--config", curl, NULL};
    struct tm_process_options options = {.argv = argv, .group = true, .output = log};
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = t->env->file_write_private(t->env, body, t->body.data, t->body.length, e);
    if (rc == 0) rc = t->env->file_write_private(t->env, curl, text.data, text.length, e);
    if (rc == 0) rc = t->env->process_start_with(t->env, &options, &t->pid, e);
    t->until_ms = now_ms(t) + t->timeout_ms + SPARE_MS;
    tm_text_deinit(&text);
    return rc;
}

static void sent(struct tm_run_traces *t, bool well)
{
    t->pid = 0;
    t->at_ms = now_ms(t) + LOOK_MS * (1 + t->tried);
    if (!well && ++t->tried < TRIES) return; /* once more, later */
    if (!well && !t->warned) tm_log(TM_LOG_WARN, "traces cannot be sent; see logs/traces.log");
    t->warned = t->warned || !well;
    t->tried = 0;
    remove_files(t);
    tm_text_clear(&t->body);
}

/* True: nothing is left to send. */
static bool send_step(struct tm_run_traces *t)
{
    struct tm_error e;
    int status = 0;
    if (t->pid > 0) {
        int rc = t->env->process_wait(t->env, t->pid, 0, &status, NULL);
        if (rc == -(int)TM_ETIMEOUT && now_ms(t) < t->until_ms) return false;
        if (rc == -(int)TM_ETIMEOUT) end_process(t);
        sent(t, rc == 0 && status == 0);
        return false;
    }
    if (t->body.length == 0 && tm_otlp_count(t->otlp) > 0) {
        tm_otlp_write(t->otlp, &t->body);
        if (tm_text_status(&t->body, NULL) != 0) tm_text_clear(&t->body);
    }
    if (t->body.length == 0) return true;
    if (t->tried > 0 && now_ms(t) < t->at_ms) return false;
    if (start(t, &e) != 0) sent(t, false);
    return false;
}

/* ---- looking ---- */

static void take_lines(struct tm_run_traces *t, const char *at, size_t length)
{
    const char *end = at + length;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        json_t *event = NULL;
        if (line_end == NULL) line_end = end;
        if (tm_json_load("events", at, (size_t)(line_end - at), &event, NULL) == 0) (void)tm_otlp_take(t->otlp, event);
        json_decref(event);
        at = line_end + 1;
    }
}

void tm_run_traces_step(struct tm_run_traces *t)
{
    char target[80];
    struct tm_text lines;
    if (t == NULL) return;
    if (now_ms(t) >= t->at_ms) {
        (void)snprintf(target, sizeof target, "/v1/events?after=%" PRIu64 "&limit=2000", tm_otlp_sequence(t->otlp));
        tm_text_init(&lines, BODY_MAX);
        int rc = tm_api_ask_step(t->client, target, &lines, NULL);
        if (rc != -(int)TM_EBUSY) t->at_ms = now_ms(t) + LOOK_MS;
        if (rc == 0) take_lines(t, tm_text_string(&lines), lines.length);
        tm_text_deinit(&lines);
    }
    (void)send_step(t);
}

static int take_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct tm_run_traces *t = context;
    struct tm_text line;
    struct tm_jsonout json;
    tm_text_init(&line, BODY_MAX);
    tm_jsonout_init_line(&json, &line);
    tm_run_event_write(sequence, event, &json);
    int rc = tm_text_status(&line, e);
    if (rc == 0) take_lines(t, tm_text_string(&line), line.length);
    tm_text_deinit(&line);
    return rc;
}

static int take_record(struct tm_run_traces *t)
{
    char record[TM_STATE_PATH_MAX];
    tm_state_path(t->dir, TM_STATE_RECORD, record);
    return tm_run_record_each(record, tm_otlp_sequence(t->otlp), SIZE_MAX, take_event, t, NULL);
}

void tm_run_traces_finish(struct tm_run_traces *t)
{
    if (t == NULL) return;
    int64_t end_ms = now_ms(t) + LAST_MS;
    (void)take_record(t);
    while (!send_step(t) && now_ms(t) < end_ms)
        t->env->sleep_ms(t->env, STEP_MS);
}
