/* What the status API answers to whom, held requests, the server and its clients in one loop, and metrics. */
#include "api/api_answer.h"
#include "api/api_client.h"
#include "api/api_schema.h"
#include "api/api_server.h"
#include "api/metrics.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "run/state_folder.h"
#include "run/test/sample_tap.h"

#include <stdio.h>
#include <stdlib.h>

#define CREDENTIAL "c0ffee"
#define FROM(more) "GET /v1/status HTTP/1.1\r\nAuthorization: Bearer " CREDENTIAL "\r\n" more "\r\n"
#define WITH(line) line " HTTP/1.1\r\nAuthorization: Bearer " CREDENTIAL "\r\n\r\n"

static int64_t ask(struct sample_tap *t, const char *request, bool waited, struct tm_text *out)
{
    struct tm_http_head head;
    assert_row(tm_http_read_request(request, strlen(request), &head, NULL) == 0, "\"%s\"", request);
    struct tm_http_request asked = {.head = &head, .now_ms = 1000, .waited = waited};
    struct tm_api_source source = {.env = tm_env_real(), .tap = &t->tap, .live = true};
    tm_text_clear(out);
    int64_t hold_ms = tm_api__answer(&source, CREDENTIAL, &asked, out);
    tm_api__source_deinit(&source);
    return hold_ms;
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        const char *status;
        const char *piece;
    } rows[] = {
        {"GET /v1/status HTTP/1.1\r\n\r\n", "401", "WWW-Authenticate: Bearer\r\n"},
        {"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer wrong\r\n\r\n", "401", "credential"},
        {"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer c0ffeee\r\n\r\n", "401", "credential"},
        {"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer c0ffe\r\n\r\n", "401", "credential"},
        {"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer \r\n\r\n", "401", "credential"},
        {"GET /v1/status HTTP/1.1\r\nAuthorization: Basic c0ffee\r\n\r\n", "401", "credential"},
        {"GET /nothing HTTP/1.1\r\n\r\n", "401", ""}, /* who may not ask is not told what there is */
        {FROM("Host: 127.0.0.1:8123\r\n"), "200", ""},
        {FROM("Host: localhost\r\n"), "200", ""},
        {FROM("Host: [::1]:8123\r\nOrigin: http://[::1]:8123\r\n"), "200", ""},
        {FROM("Host: evil.example:8123\r\n"), "403", "not other sites' pages"}, /* a name that was made ours */
        {FROM("Host: 127.0.0.1.evil.example\r\n"), "403", ""},
        {FROM("Host: localhost:8123x\r\n"), "403", ""},
        {FROM("Host: localhost\r\nOrigin: https://evil.example\r\n"), "403", ""},
        {FROM("Host: localhost\r\nOrigin: null\r\n"), "403", ""},
        {FROM("Host: localhost:1\r\nOrigin: http://localhost:2\r\n"), "403", ""},
        {FROM("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n"), "403", ""},
        {FROM("Host: localhost\r\nSec-Fetch-Site: same-site\r\n"), "403", ""},
        {WITH("GET /v1/history"), "200", "\"on_demand_usd\": ["},
        {WITH("GET /v1/history"), "200", "\"forecasts\": ["},
        {WITH("GET /v1/history"), "200", "\"copies\": ["},
        {WITH("GET /v1/history?points=5000"), "400", "from 0 to 4000"},
        {WITH("GET /v1/logs"), "200", "\"instances\": []"},
        {WITH("GET /v1/logs?instance=1"), "200", "\"instances\": []"}, /* it has written nothing yet */
        {WITH("GET /v1/logs?instance=99"), "404", "there is no instance 99 in this run"},
        {WITH("GET /v1/prediction"), "200", "{}"},
        {WITH("GET /v1/openapi.json"), "200", "\"/v1/events\""},
        {WITH("GET /v1/jobs"), "404", ""},
        {WITH("POST /v1/resume"), "404", ""},
        {WITH("HEAD /v1/status"), "200", "Content-Length: "},
        {WITH("GET /v1/status"), "200", "\"committed\": 100"},
        {WITH("GET /v1/status?"), "200", "Content-Type: application/json"},
        {WITH("GET /v1/status?x=y"), "400", "no parameter"},
        {WITH("GET /metrics"), "200", "tidemill_step_committed 100\n"},
        {WITH("GET /nothing"), "404", "/v1/openapi.json"},
        {WITH("POST /v1/status"), "405", "Allow: GET\r\n"},
        {WITH("GET /v1/stop"), "405", "Allow: POST\r\n"},
        {WITH("GET /v1/events"), "200", "\"kind\": \"job\""},
        {WITH("GET /v1/events?after=0&limit=2"), "200", "\"sequence\": 2"},
        {WITH("GET /v1/events?after=999999&wait=0"), "200", "Content-Length: 0\r\n"},
        {WITH("GET /v1/events?after=-1"), "400", "whole number"},
        {WITH("GET /v1/events?after=1x"), "400", "whole number"},
        {WITH("GET /v1/events?limit=10001"), "400", "whole number"},
        {WITH("GET /v1/events?wait=61"), "400", "whole number"},
        {WITH("GET /v1/events?after=99999999999999999999"), "400", "whole number"},
        {WITH("POST /v1/stop?now=2"), "400", "from 0 to 1"},
        {WITH("GET /v1/drain"), "405", "Allow: POST\r\n"},
        {WITH("POST /v1/budget?cents=-1"), "400", "whole number"},
        {WITH("POST /v1/budget"), "400", "cents must be given"},
        {WITH("POST /v1/deadline"), "400", "seconds must be given"},
        {WITH("POST /v1/deadline?second=7200"), "400", "no parameter \\\"second\\\" here: it takes seconds"},
        {WITH("POST /v1/deadline?deadline=7200&seconds=1"), "400", "no parameter"},
        {WITH("POST /v1/budget?cents=none&x"), "400", "no parameter"},
        {WITH("POST /v1/drain"), "400", "instance must be given"},
        {WITH("POST /v1/copy?now=1"), "400", "no parameter \\\"now\\\" here"},
        {WITH("GET /v1/events?limit=0"), "400", "from 1 to 10000"},
        {WITH("POST /v1/deadline?seconds=8h"), "400", "whole number"},
        {"POST /v1/stop HTTP/1.1\r\nAuthorization: Bearer c0ffee\r\nContent-Length: 5\r\n\r\nhello", "413", "body"},
        {"POST /v1/stop HTTP/1.1\r\nAuthorization: Bearer c0ffee\r\nContent-Length: 0\r\n\r\n", "202", "stopping"},
    };
    struct sample_tap t;
    struct tm_text out;
    sample_tap_init(&t, 0);
    tm_text_init(&out, TM_API_RESPONSE_MAX);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        assert_row(ask(&t, rows[i].request, false, &out) == 0, "%s: held", rows[i].request);
        assert_row(strncmp(tm_text_string(&out) + 9, rows[i].status, 3) == 0, "%s: %.80s", rows[i].request,
                   tm_text_string(&out));
        assert_row(strstr(tm_text_string(&out), rows[i].piece) != NULL, "%s: %s", rows[i].request,
                   tm_text_string(&out));
    }
    assert_int_equal(t.stops, 1);
    assert_false(t.stop_now);
    (void)ask(&t, WITH("POST /v1/stop?now=1"), false, &out);
    assert_int_equal(t.stops, 2);
    assert_true(t.stop_now);
    assert_int_equal(t.steers, 0);
    static const struct {
        const char *request;
        struct tm_steer_order order;
    } orders[] = {
        {WITH("POST /v1/deadline?seconds=7200"), {TM_STEER_DEADLINE, 7200000}},
        {WITH("POST /v1/budget?cents=1250"), {TM_STEER_BUDGET, 12500000}},
        {WITH("POST /v1/budget?cents=none"), {TM_STEER_BUDGET, 0}},
        {WITH("POST /v1/deadline?seconds=none"), {TM_STEER_DEADLINE, 0}},
        {WITH("POST /v1/deadline?seconds=0"), {TM_STEER_DEADLINE, 0}},
        {WITH("POST /v1/drain?instance=3"), {TM_STEER_DRAIN, 3}},
        {WITH("POST /v1/copy"), {TM_STEER_COPY, 0}},
    };
    for (size_t i = 0; i < TM_COUNT(orders); i++) {
        (void)ask(&t, orders[i].request, false, &out);
        assert_row(strncmp(tm_text_string(&out), "HTTP/1.1 202 ", 13) == 0, "%s", orders[i].request);
        assert_row(t.steered.what == orders[i].order.what && t.steered.value == orders[i].order.value, "%s",
                   orders[i].request);
    }
    static const int refusals[][2] = {{TM_EINPUT, 400}, {TM_ENOTFOUND, 404}, {TM_EBUSY, 409}, {TM_EFULL, 503}};
    for (size_t i = 0; i < TM_COUNT(refusals); i++) {
        t.refuse = refusals[i][0];
        (void)ask(&t, WITH("POST /v1/copy"), false, &out);
        assert_int_equal(atoi(tm_text_string(&out) + strlen("HTTP/1.1 ")), refusals[i][1]);
    }
    t.broken = true;
    static const char *const asked[] = {WITH("GET /v1/status"), WITH("GET /v1/events"), WITH("GET /metrics")};
    for (size_t i = 0; i < TM_COUNT(asked); i++) {
        (void)ask(&t, asked[i], false, &out);
        assert_row(strncmp(tm_text_string(&out) + 9, "503", 3) == 0, "%s", asked[i]);
    }
    tm_text_deinit(&out);
    sample_tap_deinit(&t);
}

static void test_waiting_for_events(void **state)
{
    (void)state;
    struct sample_tap t;
    struct tm_text out;
    sample_tap_init(&t, 10);
    tm_text_init(&out, TM_API_RESPONSE_MAX);
    assert_int_equal(ask(&t, WITH("GET /v1/events?after=10&wait=7"), false, &out), 7000);
    assert_int_equal(out.length, 0);
    assert_int_equal(ask(&t, WITH("GET /v1/events?after=10&wait=7"), true, &out), 0); /* its time is over */
    assert_non_null(strstr(tm_text_string(&out), "Content-Length: 0\r\n"));
    assert_int_equal(ask(&t, WITH("GET /v1/events?after=9&wait=7"), false, &out), 0);
    assert_non_null(strstr(tm_text_string(&out), "\"sequence\": 10"));
    t.tap.sequence = 12;
    assert_int_equal(ask(&t, WITH("GET /v1/events?after=10&wait=7"), true, &out), 0);
    assert_non_null(strstr(tm_text_string(&out), "\"sequence\": 11"));
    assert_non_null(strstr(tm_text_string(&out), "\"sequence\": 12"));
    tm_text_deinit(&out);
    sample_tap_deinit(&t);
}

/* ---- streams ---- */

static int64_t ask_stream(struct sample_tap *t, const char *request, int64_t now_ms, uint64_t *cursor, bool begun,
                          struct tm_text *out)
{
    struct tm_http_head head;
    assert_int_equal(tm_http_read_request(request, strlen(request), &head, NULL), 0);
    struct tm_http_request asked = {
        .head = &head, .now_ms = now_ms, .waited = begun, .streaming = begun, .cursor = cursor};
    struct tm_api_source source = {.env = tm_env_real(), .tap = &t->tap, .live = true};
    tm_text_clear(out);
    return tm_api__answer(&source, CREDENTIAL, &asked, out);
}

#define STREAM(target, more)                                                                                           \
    "GET " target " HTTP/1.1\r\nAuthorization: Bearer " CREDENTIAL "\r\nAccept: text/event-stream\r\n" more "\r\n"

/* Every event once, whoever is cut off and comes back with the last number it has. */
static void test_streams(void **state)
{
    (void)state;
    struct sample_tap t;
    struct tm_text out;
    uint64_t cursor[TM_HTTP_CURSORS] = {0};
    sample_tap_init(&t, 10);
    tm_text_init(&out, TM_API_RESPONSE_MAX);
    assert_true(ask_stream(&t, STREAM("/v1/events", ""), 1000, cursor, false, &out) > 0);
    assert_non_null(strstr(tm_text_string(&out), "Content-Type: text/event-stream"));
    assert_non_null(strstr(tm_text_string(&out), "\nid: 1\ndata: {\"sequence\": 1,"));
    assert_non_null(strstr(tm_text_string(&out), "\nid: 10\ndata: {"));
    assert_int_equal(cursor[0], 10);
    t.tap.sequence = 12;
    assert_true(ask_stream(&t, STREAM("/v1/events", ""), 1100, cursor, true, &out) > 0);
    assert_true(strncmp(tm_text_string(&out), "id: 11\n", 7) == 0);
    assert_non_null(strstr(tm_text_string(&out), "id: 12\n"));
    assert_true(ask_stream(&t, STREAM("/v1/events", ""), 1200, cursor, true, &out) > 0);
    assert_string_equal(tm_text_string(&out), ":\n\n");
    /* Again, from where it was cut off. */
    memset(cursor, 0, sizeof cursor);
    assert_true(ask_stream(&t, STREAM("/v1/events", "Last-Event-ID: 11\r\n"), 1300, cursor, false, &out) > 0);
    assert_null(strstr(tm_text_string(&out), "id: 11\n"));
    assert_non_null(strstr(tm_text_string(&out), "id: 12\n"));
    /* A few at a time; the status follows the last. */
    memset(cursor, 0, sizeof cursor);
    assert_int_equal(ask_stream(&t, STREAM("/v1/events?limit=8&status=1", ""), 2000, cursor, false, &out), 1);
    assert_null(strstr(tm_text_string(&out), "event: status"));
    assert_int_equal(ask_stream(&t, STREAM("/v1/events?limit=8&status=1", ""), 2001, cursor, true, &out), 1000);
    assert_non_null(strstr(tm_text_string(&out), "event: status\ndata: {\"job\": {\"name\": \"gpt-small\","));
    assert_int_equal(ask_stream(&t, STREAM("/v1/events?limit=8&status=1", ""), 2301, cursor, true, &out), 700);
    assert_int_equal(out.length, 0);
    tm_text_deinit(&out);
    sample_tap_deinit(&t);
}

/* ---- the server, as the coordinator serves it ---- */

static const char dir[] = "/state";

static int get_status(struct tm_api_client *client, struct tm_run_hook *hook, struct sample_tap *t,
                      struct tm_run_status *out, struct tm_error *e)
{
    int rc = -(int)TM_EBUSY;
    for (int turn = 0; turn < 64 && rc == -(int)TM_EBUSY; turn++) {
        rc = tm_api_status_step(client, out, e);
        if (rc == -(int)TM_EBUSY) hook->serve(hook->context, &t->tap);
    }
    return rc;
}

/* A number beyond the end is of a run that was here before: all of this one follows. And HEAD has no body. */
static void test_another_run(void **state)
{
    (void)state;
    struct sample_tap t;
    struct tm_text out;
    uint64_t cursor[TM_HTTP_CURSORS] = {0};
    sample_tap_init(&t, 10);
    tm_text_init(&out, TM_API_RESPONSE_MAX);
    assert_true(ask_stream(&t, STREAM("/v1/events", "Last-Event-ID: 99\r\n"), 1000, cursor, false, &out) > 0);
    const char *again = strstr(tm_text_string(&out), "event: again\ndata: {}\n\n");
    assert_non_null(again);
    assert_non_null(strstr(again, "\nid: 1\ndata: {\"sequence\": 1,"));
    memset(cursor, 0, sizeof cursor);
    assert_true(ask_stream(&t, STREAM("/v1/events", "Last-Event-ID: 10\r\n"), 1000, cursor, false, &out) > 0);
    assert_null(strstr(tm_text_string(&out), "again"));
    static const char head[] =
        "HEAD /v1/events HTTP/1.1\r\nAuthorization: Bearer " CREDENTIAL "\r\nAccept: text/event-stream\r\n\r\n";
    memset(cursor, 0, sizeof cursor);
    assert_int_equal(ask_stream(&t, head, 1000, cursor, false, &out), 0);
    assert_true(strncmp(tm_text_string(&out), "HTTP/1.1 200 ", 13) == 0);
    assert_non_null(strstr(tm_text_string(&out), "\r\n\r\n"));
    assert_string_equal(strstr(tm_text_string(&out), "\r\n\r\n"), "\r\n\r\n");
    tm_text_deinit(&out);
    sample_tap_deinit(&t);
}

static void test_server_and_client(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(7);
    struct tm_api_server *server = NULL;
    struct tm_api_client *client = tm_api_client_create(env, dir);
    struct sample_tap t;
    struct tm_run_status status;
    struct tm_error e;
    char text[256];
    char again[256];
    sample_tap_init(&t, 0);
    assert_int_equal(tm_api_status_step(client, &status, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(tm_api_status(client, 100, &status, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(tm_api_server_create(env, dir, &server, &e), 0);
    assert_int_equal(tm_state_read(env, dir, TM_STATE_API, text, sizeof text, &e), 0);
    struct tm_run_hook hook = tm_api_server_hook(server);
    int handles[8];
    int64_t wait_ms = 0;
    assert_int_equal(hook.watch(hook.context, handles, TM_COUNT(handles), &wait_ms), 1); /* who comes wakes the loop */
    assert_true(wait_ms == INT64_MAX);
    assert_int_equal(get_status(client, &hook, &t, &status, &e), 0);
    assert_int_equal(status.committed, 100);
    assert_string_equal(status.job.name, "gpt-small");
    tm_run_status_deinit(&status);

    /* Nobody serves: a call that waits ends. The next server has another credential, which the client finds. */
    assert_int_equal(tm_api_status(client, 100, &status, &e), -(int)TM_ETIMEOUT);
    tm_api_server_destroy(server);
    assert_int_equal(tm_api_status_step(client, &status, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(tm_api_server_create(env, dir, &server, &e), 0);
    assert_int_equal(tm_state_read(env, dir, TM_STATE_API, again, sizeof again, &e), 0);
    assert_string_not_equal(strchr(text, ' '), strchr(again, ' '));
    assert_int_equal(strlen(strchr(again, ' ') + 1), 64);
    hook = tm_api_server_hook(server);
    assert_int_equal(get_status(client, &hook, &t, &status, &e), 0);
    tm_run_status_deinit(&status);

    /* A wrong credential, and a file that is none of ours. */
    *strchr(again, ' ') = '\0';
    (void)snprintf(text, sizeof text, "%.200s 0123", again);
    assert_int_equal(tm_state_write(env, dir, TM_STATE_API, text, &e), 0);
    assert_int_equal(get_status(client, &hook, &t, &status, &e), -(int)TM_EPEER);
    assert_error_has(e, "answered 401");
    assert_int_equal(tm_state_write(env, dir, TM_STATE_API, "nonsense", &e), 0);
    assert_int_equal(get_status(client, &hook, &t, &status, &e), -(int)TM_EINPUT);
    tm_api_client_destroy(client);
    tm_api_server_destroy(server);
    sample_tap_deinit(&t);
    tm_env_virtual_destroy(env);
}

/* ---- metrics ---- */

static void test_metrics(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "tidemill_job_info{job=\"gpt-small\"} 1\n",
        "tidemill_job_state{state=\"finished\"} 1\n",
        "tidemill_job_state{state=\"training\"} 0\n",
        "tidemill_steps 100\n",
        "tidemill_step_committed 100\n",
        "tidemill_step_durable 100\n",
        "tidemill_step_seconds 0.2\n",
        "tidemill_steps_redone_total 1\n",
        "tidemill_training_loss 1\n",
        "tidemill_generations_total 3\n",
        "tidemill_losses_total{announced=\"true\"} 1\n",
        "tidemill_losses_total{announced=\"false\"} 1\n",
        "tidemill_arrivals_total 5\n",
        "tidemill_instances{state=\"running\"} 0\n",
        "tidemill_on_demand_dollars 3.325\n",
        "# TYPE tidemill_losses_total counter\n",
        "tidemill_recoveries_total 1\n",
    };
    struct sample_tap t;
    struct tm_text out;
    sample_tap_init(&t, 0);
    tm_text_init(&out, 1 << 20);
    tm_metrics__write(sample_tap_status(&t.tap), &out);
    for (size_t i = 0; i < TM_COUNT(lines); i++)
        assert_row(strstr(tm_text_string(&out), lines[i]) != NULL, "%s", lines[i]);
    assert_null(strstr(tm_text_string(&out), "nan"));
    /* Nothing is known yet: what is unknown is left out. */
    struct tm_run_watch *watch = tm_run_watch_create();
    tm_text_clear(&out);
    tm_metrics__write(tm_run_watch_status(watch), &out);
    assert_null(strstr(tm_text_string(&out), "tidemill_training_loss"));
    assert_null(strstr(tm_text_string(&out), "tidemill_on_demand_dollars"));
    assert_null(strstr(tm_text_string(&out), "nan"));
    tm_run_watch_destroy(watch);
    tm_text_deinit(&out);
    sample_tap_deinit(&t);
}

/* ---- memory ---- */

static int ask_once(struct sample_tap *t, const char *request, struct tm_text *out)
{
    tm_text_init(out, TM_API_RESPONSE_MAX);
    (void)ask(t, request, false, out);
    int rc = tm_text_status(out, NULL);
    if (rc == 0 && strncmp(tm_text_string(out) + 9, "503", 3) == 0) rc = -(int)TM_ENOMEM;
    tm_text_deinit(out);
    return rc;
}

static int begin_server(struct tm_env *env)
{
    struct tm_api_server *server = NULL;
    int rc = tm_api_server_create(env, dir, &server, NULL);
    if (rc == 0) tm_api_server_destroy(server);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct sample_tap t;
    struct tm_text out;
    sample_tap_init(&t, 0);
    (void)sample_tap_status(&t.tap); /* all events are taken */
    TM_FAIL_EACH_ALLOC(rc = ask_once(&t, WITH("GET /v1/status"), &out));
    TM_FAIL_EACH_ALLOC(rc = ask_once(&t, WITH("GET /v1/events"), &out));
    TM_FAIL_EACH_ALLOC(rc = ask_once(&t, WITH("GET /metrics"), &out));
    TM_FAIL_EACH_ALLOC(rc = ask_once(&t, WITH("GET /v1/history"), &out));
    TM_FAIL_EACH_ALLOC(rc = ask_once(&t, WITH("GET /v1/logs"), &out));
    TM_FAIL_EACH_ALLOC(rc = ask_once(&t, WITH("GET /v1/openapi.json"), &out));
    struct tm_env *env = tm_env_virtual_create(7);
    assert_int_equal(begin_server(env), 0); /* the world's own list of files has grown */
    TM_FAIL_EACH_ALLOC(rc = begin_server(env));
    tm_env_virtual_destroy(env);
    sample_tap_deinit(&t);
}

/* How a shape reads as a schema: missing and null are two things. */
static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *schema;
    } rows[] = {
        {"a:s", "{\"type\": \"object\", \"required\": [\"a\"], \"properties\": {\"a\": {\"type\": \"string\"}}}"},
        {"a?:i b:n? *",
         "{\"type\": \"object\", \"required\": [\"b\"], \"properties\": {\"a\": {\"type\": \"integer\"}, "
         "\"b\": {\"type\": [\"number\", \"null\"]}}, \"additionalProperties\": true}"},
        {"a:[{b:b}]", "{\"type\": \"object\", \"required\": [\"a\"], \"properties\": {\"a\": {\"type\": \"array\", "
                      "\"items\": {\"type\": \"object\", \"required\": [\"b\"], \"properties\": {\"b\": {\"type\": "
                      "\"boolean\"}}}}}}"},
        {"a:Fleet?", "{\"type\": \"object\", \"required\": [\"a\"], \"properties\": {\"a\": {\"anyOf\": [{\"$ref\": "
                     "\"#/components/schemas/Fleet\"}, {\"type\": \"null\"}]}}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tm_text out;
        struct tm_jsonout json;
        tm_text_init(&out, 4096);
        tm_jsonout_init_line(&json, &out);
        tm_api__schema_write(NULL, rows[i].shape, &json);
        assert_row(strncmp(tm_text_string(&out), rows[i].schema, strlen(rows[i].schema)) == 0, "%s: %s", rows[i].shape,
                   tm_text_string(&out));
        tm_text_deinit(&out);
    }
}

TM_TEST_MAIN(TM_TEST(test_shapes), TM_TEST(test_answers), TM_TEST(test_waiting_for_events), TM_TEST(test_streams),
             TM_TEST(test_another_run), TM_TEST(test_server_and_client), TM_TEST(test_metrics), TM_TEST(test_memory))
