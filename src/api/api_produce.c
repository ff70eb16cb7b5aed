#include "api/api_produce.h"

#include "api/api_logs.h"
#include "api/history_json.h"
#include "api/metrics.h"
#include "base/address.h"
#include "base/number.h"
#include "run/state_folder.h"

#include <string.h>
#include <strings.h>

enum { EVENTS_BYTES = 1 << 20, EVENTS_AT_ONCE = 2000, SOON_MS = 1 };

#define JSON "application/json"

void tm_api__content_init(struct tm_api_content *content)
{
    *content = (struct tm_api_content){.status = 200, .type = JSON};
    tm_text_init(&content->body, TM_API_RESPONSE_MAX);
}

void tm_api__content_refuse(struct tm_api_content *content, int status, const char *why)
{
    struct tm_jsonout json;
    tm_text_clear(&content->body);
    content->status = status;
    content->type = JSON;
    content->hold_ms = 0;
    tm_jsonout_init(&json, &content->body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "error", why);
    tm_jsonout_end(&json);
}

void tm_api__source_deinit(struct tm_api_source *source)
{
    tm_run_historian_destroy(source->historian);
    source->historian = NULL;
    source->told = 0;
}

/* ---- status and metrics ---- */

static void produce_status(struct tm_api_source *source, bool for_prometheus, struct tm_api_content *out)
{
    struct tm_jsonout json;
    const struct tm_run_status *status = source->tap->status(source->tap);
    if (status == NULL) {
        tm_api__content_refuse(out, 503, "the status cannot be had now; try again");
        return;
    }
    tm_jsonout_init(&json, &out->body);
    if (for_prometheus)
        tm_metrics__write(status, &out->body);
    else
        tm_run_status_write(status, &json);
}

/* ---- events ---- */

struct events_out {
    struct tm_text *body;
    bool brief;
};

static int write_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    const struct events_out *out = context;
    struct tm_text *body = out->body;
    struct tm_jsonout json;
    tm_jsonout_init_line(&json, body);
    if (out->brief)
        tm_run_event_write_brief(sequence, event, &json);
    else
        tm_run_event_write(sequence, event, &json);
    int rc = tm_text_status(body, e);
    return rc != 0 ? rc : body->length > EVENTS_BYTES; /* 1: enough for one answer */
}

static void produce_events(struct tm_api_source *source, const struct tm_api_asked *asked, bool waited,
                           struct tm_api_content *out)
{
    uint64_t after = (uint64_t)tm_api__param(asked, "after");
    int64_t wait_s = tm_api__param(asked, "wait");
    if (wait_s > 0 && !waited && source->live && source->tap->sequence <= after) {
        out->hold_ms = wait_s * 1000;
        return;
    }
    size_t limit = (size_t)tm_api__param(asked, "limit");
    struct events_out events = {.body = &out->body, .brief = tm_api__param(asked, "brief") == 1};
    if (source->tap->events(source->tap, after, limit, write_event, &events, NULL) < 0)
        tm_api__content_refuse(out, 503, "the record cannot be read now");
}

/* ---- history ---- */

static int take_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct tm_api_source *source = context;
    int rc = tm_run_historian_take(source->historian, sequence, event, e);
    if (rc == 0) source->told = sequence;
    return rc;
}

/* A long record is read in pieces: a coordinator has other things to do between. */
static void produce_history(struct tm_api_source *source, const struct tm_api_asked *asked, struct tm_api_content *out)
{
    uint64_t before = source->told;
    if (source->historian == NULL) source->historian = tm_run_historian_create();
    int rc = source->historian == NULL
                 ? -1
                 : source->tap->events(source->tap, source->told, EVENTS_AT_ONCE, take_event, source, NULL);
    if (rc < 0) {
        tm_api__source_deinit(source); /* what it has may be half of an event */
        tm_api__content_refuse(out, 503, "the record cannot be read now");
    } else if (source->told - before >= EVENTS_AT_ONCE) {
        out->hold_ms = SOON_MS;
    } else {
        struct tm_jsonout json;
        tm_jsonout_init_line(&json, &out->body);
        tm_history__write(tm_run_historian_tell(source->historian), (size_t)tm_api__param(asked, "points"), &json);
    }
}

/* ---- the rest ---- */

static void produce_prediction(const struct tm_api_source *source, struct tm_api_content *out)
{
    char path[TM_STATE_PATH_MAX];
    if (source->dir != NULL) {
        tm_state_path(source->dir, TM_STATE_PREDICTION, path);
        (void)source->env->file_read(source->env, path, &out->body, NULL);
    }
    if (out->body.length == 0) tm_text_puts(&out->body, "{}\n");
}

static void produce_stop(const struct tm_api_source *source, const struct tm_api_asked *asked,
                         struct tm_api_content *out)
{
    if (!source->live) {
        tm_api__content_refuse(out, 409, "it is not running");
        return;
    }
    source->tap->stop(source->tap, tm_api__param(asked, "now") == 1);
    out->status = 202;
    tm_text_puts(&out->body, "{\n  \"state\": \"stopping\"\n}\n");
}

static int status_of_refusal(const struct tm_error *e)
{
    switch (e->code) {
    case TM_EINPUT:
        return 400;
    case TM_ENOTFOUND:
        return 404;
    case TM_EFULL:
    case TM_ENOMEM:
        return 503;
    default:
        return 409;
    }
}

static void produce_order(const struct tm_api_source *source, const struct tm_api_asked *asked,
                          struct tm_api_content *out)
{
    struct tm_error e = {.text = ""};
    struct tm_steer_order order = {.what = TM_STEER_COPY};
    struct tm_jsonout json;
    if (asked->route->what == TM_API_DEADLINE)
        order = (struct tm_steer_order){TM_STEER_DEADLINE, (uint64_t)tm_api__param(asked, "seconds") * 1000};
    else if (asked->route->what == TM_API_BUDGET)
        order = (struct tm_steer_order){TM_STEER_BUDGET, (uint64_t)tm_api__param(asked, "cents") * 10000};
    else if (asked->route->what == TM_API_DRAIN)
        order = (struct tm_steer_order){TM_STEER_DRAIN, (uint64_t)tm_api__param(asked, "instance")};
    if (!source->live) {
        tm_api__content_refuse(out, 409, "it is not running");
    } else if (source->tap->steer(source->tap, &order, &e) != 0) {
        tm_api__content_refuse(out, status_of_refusal(&e), e.text);
    } else {
        out->status = 202;
        tm_jsonout_init(&json, &out->body);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "ordered", asked->route->path + strlen("/v1/"));
        tm_jsonout_end(&json);
    }
}

void tm_api__produce(struct tm_api_source *source, const struct tm_api_asked *asked, bool waited,
                     struct tm_api_content *out)
{
    struct tm_jsonout json;
    out->type = asked->route->type;
    switch (asked->route->what) {
    case TM_API_STATUS:
    case TM_API_METRICS:
        produce_status(source, asked->route->what == TM_API_METRICS, out);
        break;
    case TM_API_EVENTS:
        produce_events(source, asked, waited, out);
        break;
    case TM_API_HISTORY:
        produce_history(source, asked, out);
        break;
    case TM_API_LOGS:
        tm_api__write_logs(source, asked, out);
        break;
    case TM_API_PREDICTION:
        produce_prediction(source, out);
        break;
    case TM_API_STOP:
        produce_stop(source, asked, out);
        break;
    case TM_API_DEADLINE:
    case TM_API_BUDGET:
    case TM_API_DRAIN:
    case TM_API_COPY:
        produce_order(source, asked, out);
        break;
    case TM_API_OPENAPI:
        tm_jsonout_init(&json, &out->body);
        tm_api_describe(false, "1", &json);
        break;
    default:
        tm_api__content_refuse(out, 404, "a run has no such thing");
        break;
    }
    if (tm_text_status(&out->body, NULL) != 0) tm_api__content_refuse(out, 503, "out of memory; try again");
}

/* ---- streams ---- */

void tm_api__stream_head(struct tm_text *out)
{
    tm_text_puts(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
                      "X-Accel-Buffering: no\r\nConnection: close\r\n\r\nretry: 1000\n\n");
}

void tm_api__stream_events(const char *lines, size_t length, uint64_t *last, struct tm_text *out)
{
    static const char key[] = "\"sequence\": ";
    const char *end = lines + length;
    while (lines < end) {
        const char *stop = memchr(lines, '\n', (size_t)(end - lines));
        if (stop == NULL) stop = end;
        const char *number = memmem(lines, (size_t)(stop - lines), key, sizeof key - 1);
        uint64_t sequence = 0;
        for (const char *at = number == NULL ? stop : number + sizeof key - 1; at < stop && *at >= '0' && *at <= '9';
             at++)
            sequence = sequence * 10 + (uint64_t)(*at - '0');
        if (sequence > *last) {
            *last = sequence;
            tm_text_printf(out, "id: %llu\ndata: ", (unsigned long long)sequence);
            tm_text_append(out, lines, (size_t)(stop - lines));
            tm_text_puts(out, "\n\n");
        }
        lines = stop + 1;
    }
}

/* JSON has no line's end inside a string: what follows one is for the eye. */
void tm_api__stream_document(const char *name, const char *document, size_t length, struct tm_text *out)
{
    const char *end = document + length;
    tm_text_printf(out, "event: %s\ndata: ", name);
    while (document < end) {
        const char *stop = memchr(document, '\n', (size_t)(end - document));
        if (stop == NULL) stop = end;
        tm_text_append(out, document, (size_t)(stop - document));
        document = stop;
        while (document < end && (*document == '\n' || *document == ' '))
            document++;
    }
    tm_text_puts(out, "\n\n");
}

bool tm_api__wants_stream(const struct tm_api_asked *asked, const struct tm_http_head *head)
{
    static const char type[] = "text/event-stream";
    struct tm_slice accept = tm_http_header(head, "accept");
    return asked->route->streams && tm_slice_is(head->method, "GET") && accept.at != NULL &&
           memmem(accept.at, accept.length, type, sizeof type - 1) != NULL;
}

void tm_api__stream_again(uint64_t *last, struct tm_text *out)
{
    *last = 0;
    tm_text_puts(out, "event: again\ndata: {}\n\n");
}

uint64_t tm_api__stream_begin(const struct tm_api_asked *asked, const struct tm_http_head *head)
{
    struct tm_slice given = tm_http_header(head, "last-event-id");
    int64_t value = 0;
    if (given.at != NULL && tm_number_i64(given.at, given.length, &value) && value >= 0) return (uint64_t)value;
    return (uint64_t)tm_api__param(asked, "after");
}

/* ---- who may ask ---- */

/* "NAME" or "NAME:PORT". */
static bool is_host(struct tm_slice host, const char *name)
{
    size_t length = strlen(name);
    int64_t port = 0;
    if (length == 0 || host.length < length || strncasecmp(host.at, name, length) != 0) return false;
    return host.length == length ||
           (host.at[length] == ':' && tm_number_i64(host.at + length + 1, host.length - length - 1, &port));
}

static bool is_address(struct tm_slice host)
{
    char text[TM_ADDRESS_MAX], name[TM_ADDRESS_MAX], port[TM_PORT_MAX], address[TM_ADDRESS_MAX];
    if (host.length >= sizeof text || memchr(host.at, '\0', host.length) != NULL) return false;
    memcpy(text, host.at, host.length);
    text[host.length] = '\0';
    tm_address_of_host(text, "0", address);
    return tm_address_split(address, name, port, NULL) == 0 && tm_host_is_address(name);
}

static bool is_ours(struct tm_slice host, const struct tm_api_place *place)
{
    static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof loopback / sizeof loopback[0]; i++)
        if (is_host(host, loopback[i])) return true;
    for (size_t i = 0; place != NULL && i < place->name_count; i++)
        if (is_host(host, place->names[i])) return true;
    return place != NULL && place->open && is_address(host);
}

bool tm_api__is_visit(const struct tm_http_head *head, const struct tm_api_place *place)
{
    struct tm_slice host = tm_http_header(head, "host");
    return host.at != NULL && is_ours(host, place) && tm_http_header(head, "origin").at == NULL &&
           tm_slice_is(tm_http_header(head, "sec-fetch-mode"), "navigate") &&
           tm_slice_is(tm_http_header(head, "sec-fetch-dest"), "document");
}

bool tm_api__is_ours(const struct tm_http_head *head, const struct tm_api_place *place)
{
    const char *scheme = place != NULL && place->tls ? "https://" : "http://";
    struct tm_slice host = tm_http_header(head, "host");
    struct tm_slice origin = tm_http_header(head, "origin");
    struct tm_slice site = tm_http_header(head, "sec-fetch-site");
    if (host.at != NULL && !is_ours(host, place)) return false;
    if (site.at != NULL && !tm_slice_is(site, "same-origin") && !tm_slice_is(site, "none")) return false;
    if (origin.at == NULL) return true;
    size_t skip = strlen(scheme);
    return host.at != NULL && origin.length == host.length + skip && memcmp(origin.at, scheme, skip) == 0 &&
           strncasecmp(origin.at + skip, host.at, host.length) == 0;
}

struct tm_slice tm_api__bearer(const struct tm_http_head *head)
{
    static const char scheme[] = "Bearer ";
    size_t skip = sizeof scheme - 1;
    struct tm_slice given = tm_http_header(head, "authorization");
    if (given.at == NULL || given.length <= skip || strncasecmp(given.at, scheme, skip) != 0)
        return (struct tm_slice){0};
    return (struct tm_slice){.at = given.at + skip, .length = given.length - skip};
}
