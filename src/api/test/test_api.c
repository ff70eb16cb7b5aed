/* What the status API answers to whom, held requests, the server and its clients in one loop, and metrics. */
#include "api/api_answer.h"
#include "api/api_client.h"
#include "api/api_server.h"
#include "api/metrics.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "run/state_folder.h"
#include "run/test/sample_tap.h"

#include <stdio.h>

#define CREDENTIAL "c0ffee"
#define WITH(line) line " HTTP/1.1\r\nAuthorization: Bearer " CREDENTIAL "\r\n\r\n"

static int64_t ask(struct sample_tap *t, const char *request, bool waited, struct tm_text *out)
{
    struct tm_http_head head;
    assert_row(tm_http_read_request(request, strlen(request), &head, NULL) == 0, "\"%s\"", request);
    struct tm_http_request asked = {.head = &head, .now_ms = 1000, .waited = waited};
    tm_text_clear(out);
    return tm_api__answer(&t->tap, CREDENTIAL, &asked, out);
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
        {WITH("GET /v1/status"), "200", "\"committed\": 100"},
        {WITH("GET /v1/status?x=y"), "200", "Content-Type: application/json"},
        {WITH("GET /metrics"), "200", "tidemill_step_committed 100\n"},
        {WITH("GET /nothing"), "404", "/v1/status"},
        {WITH("POST /v1/status"), "405", "Allow: GET\r\n"},
        {WITH("GET /v1/stop"), "405", "Allow: POST\r\n"},
        {WITH("GET /v1/events"), "200", "\"kind\": \"job\""},
        {WITH("GET /v1/events?after=0&limit=2"), "200", "\"sequence\": 2"},
        {WITH("GET /v1/events?after=999999&wait=0"), "200", "Content-Length: 0\r\n"},
        {WITH("GET /v1/events?after=-1"), "400", "whole numbers"},
        {WITH("GET /v1/events?after=1x"), "400", "whole numbers"},
        {WITH("GET /v1/events?limit=10001"), "400", "whole numbers"},
        {WITH("GET /v1/events?wait=61"), "400", "whole numbers"},
        {WITH("GET /v1/events?after=99999999999999999999"), "400", "whole numbers"},
        {WITH("POST /v1/stop?now=2"), "400", "0 or 1"},
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
    struct tm_env *env = tm_env_virtual_create(7);
    assert_int_equal(begin_server(env), 0); /* the world's own list of files has grown */
    TM_FAIL_EACH_ALLOC(rc = begin_server(env));
    tm_env_virtual_destroy(env);
    sample_tap_deinit(&t);
}

TM_TEST_MAIN(TM_TEST(test_answers), TM_TEST(test_waiting_for_events), TM_TEST(test_server_and_client),
             TM_TEST(test_metrics), TM_TEST(test_memory))
