/* What each endpoint answers, and how the server bears bad clients. */
#include "cloud/metadata_server.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

/* ---- what is answered ---- */

static struct tm_metadata known = {.id = 17, .zone = "us-east-1a", .type = "p3.2xlarge", .version = 5};
static struct tm_metadata_tokens tokens;

static int64_t ask(const char *request, bool waited, struct tm_text *out)
{
    struct tm_http_head head;
    const uint64_t random[2] = {1, 2};
    assert_row(tm_http_read_request(request, strlen(request), &head, NULL) == 0, "\"%s\"", request);
    tm_text_init(out, 16384);
    return tm_metadata__respond(&known, &head, &tokens, 1000, waited, random, out).hold_ms;
}

#define TOKEN     "00000000000000010000000000000002"
#define AWS(path) "GET /latest/meta-data/" path " HTTP/1.1\r\nX-aws-ec2-metadata-token: " TOKEN "\r\n\r\n"
#define GCP(path) "GET /computeMetadata/v1/instance/" path " HTTP/1.1\r\nMetadata-Flavor: Google\r\n\r\n"
#define AZURE     "GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nMetadata: true\r\n\r\n"

static void test_answers_of_each_cloud(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        bool noticed;
        int status;
        const char *piece;
    } rows[] = {
        {AWS("instance-id"), false, 401, ""}, /* no token was given out so far */
        {"GET /latest/api/token HTTP/1.1\r\n\r\n", false, 405, ""},
        {"PUT /latest/api/token HTTP/1.1\r\n\r\n", false, 400, ""},
        {"PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: 0\r\n\r\n", false, 400, ""},
        {"PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: 21601\r\n\r\n", false, 400, ""},
        {"PUT /latest/api/token HTTP/1.1\r\nX-Forwarded-For: x\r\n"
         "X-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n",
         false, 403, ""},
        {"PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n", false, 200, TOKEN},
        {AWS("instance-id"), false, 200, "i-00000000000000011"},
        {AWS("instance-type"), false, 200, "p3.2xlarge"},
        {AWS("placement/availability-zone"), false, 200, "us-east-1a"},
        {AWS("spot/instance-action"), false, 404, ""},
        {AWS("spot/instance-action"), true, 200, "{\"action\": \"terminate\", \"time\": \"2016-09-19T18:29:47Z\"}"},
        {AWS("spot/termination-time"), true, 200, "2016-09-19T18:29:47Z"},
        {AWS("events/recommendations/rebalance"), false, 404, ""},
        {AWS("events/recommendations/rebalance"), true, 200, "{\"noticeTime\": \"2016-09-19T18:27:47Z\"}"},
        {AWS("user-data"), true, 404, ""},
        {"GET /computeMetadata/v1/instance/id HTTP/1.1\r\n\r\n", false, 403, ""},
        {GCP("id"), false, 200, "17"},
        {GCP("zone"), false, 200, "projects/1/zones/us-east-1a"},
        {GCP("preempted"), false, 200, "FALSE"},
        {GCP("preempted"), true, 200, "TRUE"},
        {GCP("maintenance-event"), false, 200, "NONE"},
        {GCP("preempted?wait_for_change=true&last_etag=0"), false, 200, "FALSE"}, /* it has changed since */
        {GCP("nothing"), false, 404, ""},
        {AZURE, false, 200, "\"Events\": []"},
        {AZURE, true, 200, "\"NotBefore\": \"Mon, 19 Sep 2016 18:29:47 GMT\""},
        {AZURE, true, 200, "\"EventType\": \"Preempt\""},
        {"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n\r\n", false, 400, ""},
        {"GET /metadata/scheduledevents HTTP/1.1\r\nMetadata: true\r\n\r\n", false, 400, ""},
        {"POST /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nMetadata: true\r\n\r\n", false, 405, ""},
        {"GET / HTTP/1.1\r\n\r\n", false, 404, ""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        char status[16];
        known.noticed = known.hinted = rows[i].noticed;
        known.loss_utc_ms = 1474309787900; /* seconds are cut, not rounded up: never later than it is */
        known.hinted_utc_ms = known.loss_utc_ms - 120000;
        assert_row(ask(rows[i].request, false, &out) == 0, "row %zu held", i);
        (void)snprintf(status, sizeof status, "HTTP/1.1 %d ", rows[i].status);
        assert_row(strncmp(tm_text_string(&out), status, strlen(status)) == 0, "\"%s\": %.40s", rows[i].request,
                   tm_text_string(&out));
        assert_row(strstr(tm_text_string(&out), rows[i].piece) != NULL, "\"%s\": %s", rows[i].request,
                   tm_text_string(&out));
        tm_text_deinit(&out);
    }
}

static void test_waiting_for_a_change(void **state)
{
    (void)state;
    static const char request[] = GCP("preempted?wait_for_change=true&timeout_sec=7&last_etag=0000000000000005");
    struct tm_text out;
    assert_int_equal(ask(request, false, &out), 7000);
    assert_int_equal(out.length, 0);
    tm_text_deinit(&out);
    assert_int_equal(ask(request, true, &out), 0);
    assert_non_null(strstr(tm_text_string(&out), "ETag: 0000000000000005"));
    tm_text_deinit(&out);
    assert_int_equal(ask(GCP("preempted?wait_for_change=TRUE"), false, &out), TM_METADATA_HOLD_MAX_MS);
    tm_text_deinit(&out);
}

static void test_dates(void **state)
{
    (void)state;
    char text[40];
    int64_t back = 0;
    for (int64_t ms = 0; ms < 4102444800000; ms += 86400000LL * 11 + 3661000) {
        tm_http_date__print(ms, text);
        assert_row(tm_http_date__parse(text, strlen(text), &back) && back == ms, "%s", text);
    }
    assert_false(tm_http_date__parse("Mon, 19 Foo 2016 18:29:47 GMT", 29, &back));
    assert_false(tm_http_date__parse("Mon, 32 Sep 2016 18:29:47 GMT", 29, &back));
    assert_false(tm_http_date__parse("soon", 4, &back));
}

/* ---- the server and bad clients ---- */

static void test_the_server_bears_bad_clients(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_metadata_server *server = tm_metadata_server__create(env);
    struct tm_error e;
    char bound[TM_ADDRESS_MAX];
    char answer[256];
    int endpoint = 0;
    int idle[2 * TM_METADATA_CONNECTIONS_EACH];
    int good = 0;
    size_t count = 0;
    assert_int_equal(tm_metadata_server__open(server, "127.0.0.1", &known, bound, &endpoint, &e), 0);
    for (size_t i = 0; i < TM_COUNT(idle); i++) /* more than it takes, all silent or half a request */
        assert_int_equal(env->net_connect(env, bound, &idle[i], &e), 0);
    assert_int_equal(env->net_send(env, idle[0], "GET / HT", 8, &count, &e), 0);
    assert_int_equal(env->net_send(env, idle[1], "nonsense\r\n\r\n", 12, &count, &e), 0);
    assert_int_equal(env->net_connect(env, bound, &good, &e), 0);
    assert_int_equal(env->net_send(env, good, AZURE, strlen(AZURE), &count, &e), 0);
    tm_metadata_server__serve(server);
    assert_int_equal(env->net_receive(env, idle[1], answer, sizeof answer, &count, &e), 0);
    assert_row(strncmp(answer, "HTTP/1.1 400 ", 13) == 0, "%.20s", answer);
    for (int i = 0; i < 6; i++) { /* their patience ends: its turn comes */
        tm_env_virtual_advance(env, 5000);
        tm_metadata_server__serve(server);
        tm_metadata_server__serve(server);
    }
    assert_int_equal(env->net_receive(env, good, answer, sizeof answer, &count, &e), 0);
    assert_row(strncmp(answer, "HTTP/1.1 200 ", 13) == 0, "%.20s", answer);
    tm_metadata_server__destroy(server);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_answers_of_each_cloud), TM_TEST(test_waiting_for_a_change), TM_TEST(test_dates),
             TM_TEST(test_the_server_bears_bad_clients))
