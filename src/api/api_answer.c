#include "api/api_answer.h"

#include "api/metrics.h"
#include "base/number.h"
#include "base/secret.h"

#include <string.h>

enum { EVENTS_USUAL = 1000, EVENTS_BYTES = 1 << 20 };

struct asked {
    struct tm_run_tap *tap;
    const struct tm_http_request *request;
    struct tm_text *out;
};

static void refuse(struct tm_text *out, int status, const char *more, const char *why)
{
    struct tm_text body;
    struct tm_jsonout json;
    tm_text_init(&body, 4096);
    tm_jsonout_init(&json, &body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "error", why);
    tm_jsonout_end(&json);
    tm_http_respond(out, status, "application/json", more, tm_text_string(&body));
    tm_text_deinit(&body);
}

/* A body that could not be made whole is not sent. */
static void send_body(const struct asked *asked, const char *type, const struct tm_text *body)
{
    if (tm_text_status(body, NULL) != 0)
        refuse(asked->out, 503, "", "out of memory; try again");
    else
        tm_http_respond(asked->out, 200, type, "Cache-Control: no-store\r\n", tm_text_string(body));
}

static bool may_ask(const struct tm_http_head *head, const char *credential)
{
    static const char scheme[] = "Bearer ";
    size_t skip = strlen(scheme);
    struct tm_slice given = tm_http_header(head, "authorization");
    if (given.at == NULL || given.length < skip || memcmp(given.at, scheme, skip) != 0) return false;
    return tm_secret_equal(given.at + skip, given.length - skip, credential, strlen(credential));
}

/* A parameter that is a whole number in [0, max]; left alone where it is not given. False: it is wrong. */
static bool number_of(const struct asked *asked, const char *name, int64_t max, int64_t *out)
{
    struct tm_slice given = tm_http_query(asked->request->head->target, name);
    int64_t value = 0;
    if (given.at == NULL) return true;
    if (!tm_number_i64(given.at, given.length, &value) || value < 0 || value > max) return false;
    *out = value;
    return true;
}

/* ---- status ---- */

static void answer_status(const struct asked *asked, bool for_prometheus)
{
    struct tm_text body;
    const struct tm_run_status *status = asked->tap->status(asked->tap);
    if (status == NULL) {
        refuse(asked->out, 503, "", "out of memory; try again");
        return;
    }
    tm_text_init(&body, TM_API_RESPONSE_MAX);
    if (for_prometheus) {
        tm_metrics__write(status, &body);
        send_body(asked, "text/plain; version=0.0.4; charset=utf-8", &body);
    } else {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &body);
        tm_run_status_write(status, &json);
        send_body(asked, "application/json", &body);
    }
    tm_text_deinit(&body);
}

/* ---- events ---- */

static int write_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct tm_text *body = context;
    struct tm_jsonout json;
    tm_jsonout_init_line(&json, body);
    tm_run_event_write(sequence, event, &json);
    int rc = tm_text_status(body, e);
    return rc != 0 ? rc : body->length > EVENTS_BYTES; /* 1: enough for one answer */
}

static int64_t answer_events(const struct asked *asked)
{
    struct tm_text body;
    int64_t after = 0;
    int64_t limit = EVENTS_USUAL;
    int64_t wait_s = 0;
    if (!number_of(asked, "after", INT64_MAX, &after) || !number_of(asked, "limit", TM_API_EVENTS_MAX, &limit) ||
        !number_of(asked, "wait", TM_API_WAIT_MAX_S, &wait_s)) {
        refuse(asked->out, 400, "", "after, limit (up to 10000) and wait (seconds, up to 60) must be whole numbers");
        return 0;
    }
    if (wait_s > 0 && !asked->request->waited && asked->tap->sequence <= (uint64_t)after) return wait_s * 1000;
    tm_text_init(&body, TM_API_RESPONSE_MAX);
    int rc = asked->tap->events(asked->tap, (uint64_t)after, (size_t)limit, write_event, &body, NULL);
    if (rc < 0)
        refuse(asked->out, 503, "", "the record cannot be read now");
    else
        send_body(asked, "application/x-ndjson", &body);
    tm_text_deinit(&body);
    return 0;
}

/* ---- stop ---- */

static void answer_stop(const struct asked *asked)
{
    int64_t now = 0;
    int64_t length = 0;
    struct tm_slice given = tm_http_header(asked->request->head, "content-length");
    bool empty = given.at == NULL || (tm_number_i64(given.at, given.length, &length) && length == 0);
    if (!number_of(asked, "now", 1, &now)) {
        refuse(asked->out, 400, "", "now is 0 or 1");
    } else if (!empty || tm_http_header(asked->request->head, "transfer-encoding").at != NULL) {
        refuse(asked->out, 413, "", "the request must not have a body");
    } else {
        asked->tap->stop(asked->tap, now == 1);
        tm_http_respond(asked->out, 202, "application/json", "", "{\n  \"state\": \"stopping\"\n}\n");
    }
}

int64_t tm_api__answer(struct tm_run_tap *tap, const char *credential, const struct tm_http_request *request,
                       struct tm_text *out)
{
    struct asked asked = {.tap = tap, .request = request, .out = out};
    struct tm_slice path = tm_http_path(request->head->target);
    bool stop = tm_slice_is(path, "/v1/stop");
    bool known =
        stop || tm_slice_is(path, "/v1/status") || tm_slice_is(path, "/v1/events") || tm_slice_is(path, "/metrics");
    if (!may_ask(request->head, credential)) {
        refuse(out, 401, "WWW-Authenticate: Bearer\r\n", "give the credential of the run's file api as a bearer token");
    } else if (!known) {
        refuse(out, 404, "", "not found; there are /v1/status, /v1/events, /v1/stop and /metrics");
    } else if (!tm_slice_is(request->head->method, stop ? "POST" : "GET")) {
        refuse(out, 405, stop ? "Allow: POST\r\n" : "Allow: GET\r\n", stop ? "POST it" : "GET it");
    } else if (stop) {
        answer_stop(&asked);
    } else if (tm_slice_is(path, "/v1/events")) {
        return answer_events(&asked);
    } else {
        answer_status(&asked, tm_slice_is(path, "/metrics"));
    }
    return 0;
}
