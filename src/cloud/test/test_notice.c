/* The three readers of notices against the local cloud's endpoints and against servers that mean harm, on a virtual
 * clock; and against the real network once each. */
#include "cloud/metadata_server.h"
#include "cloud/notice.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static const char *const cloud_names[] = {"aws", "gcp", "azure"};

struct pair {
    struct tm_env *env;
    struct tm_metadata known;
    struct tm_metadata_server *server;
    int endpoint;
    char address[TM_ADDRESS_MAX];
    struct tm_notice_reader *reader;
};

static void connect_pair(struct pair *p, struct tm_env *env, enum tm_notice_cloud cloud)
{
    struct tm_error e;
    *p = (struct pair){.env = env, .known = {.id = 17, .zone = "us-east-1a", .type = "p3.2xlarge", .version = 1}};
    p->server = tm_metadata_server__create(env);
    assert_non_null(p->server);
    assert_row(tm_metadata_server__open(p->server, "127.0.0.1", &p->known, p->address, &p->endpoint, &e) == 0, "%s",
               e.text);
    struct tm_notice_options options = {.cloud = cloud, .address = p->address, .poll_ms = 100, .gcp_left_ms = 30000};
    assert_int_equal(tm_notice_reader_create(env, &options, &p->reader, &e), 0);
}

static void drop_pair(struct pair *p)
{
    tm_notice_reader_destroy(p->reader);
    tm_metadata_server__destroy(p->server);
}

/* Serves and reads for a while; 0 when the word changed. */
static int run_pair(struct pair *p, int64_t ms, struct tm_notice *out)
{
    struct tm_env *env = p->env;
    int64_t end_ms = env->monotonic_ns(env) / 1000000 + ms;
    while (env->monotonic_ns(env) / 1000000 < end_ms) {
        int handles[240];
        bool ready[240];
        int64_t wait_ms = 0;
        if (tm_notice_reader_step(p->reader, out, NULL) == 0) return 0;
        tm_metadata_server__serve(p->server);
        if (tm_notice_reader_step(p->reader, out, NULL) == 0) return 0;
        size_t count = tm_metadata_server__watch(p->server, handles, 200, &wait_ms);
        int handle = tm_notice_reader_handle(p->reader);
        if (handle >= 0) handles[count++] = handle;
        int64_t due_ms = tm_notice_reader_wait_ms(p->reader);
        if (due_ms < wait_ms) wait_ms = due_ms;
        if (wait_ms > end_ms - env->monotonic_ns(env) / 1000000) wait_ms = end_ms - env->monotonic_ns(env) / 1000000;
        (void)env->net_wait(env, handles, count, wait_ms < 0 ? 0 : wait_ms, ready, NULL);
    }
    return -(int)TM_ETIMEOUT;
}

static void hear_a_notice(struct tm_env *env, int64_t quiet_ms)
{
    for (int cloud = 0; cloud < TM_NOTICE_CLOUDS; cloud++) {
        struct pair p;
        struct tm_notice word = {0};
        connect_pair(&p, env, (enum tm_notice_cloud)cloud);
        const char *name = cloud_names[cloud];
        assert_row(run_pair(&p, quiet_ms, &word) == -(int)TM_ETIMEOUT, "%s: a word from nothing", name);
        struct tm_notice_health health = tm_notice_reader__health(p.reader);
        assert_row(health.answers > 0 && health.failures == 0, "%s: %s", name, health.last);
        if (cloud == TM_NOTICE_AWS) {
            p.known.hinted = true;
            p.known.version++;
            assert_row(run_pair(&p, 5000, &word) == 0 && word.hinted && !word.going, "%s: no hint", name);
        }
        p.known.noticed = true;
        p.known.loss_utc_ms = env->now_ms(env) / 1000 * 1000 + 30000;
        p.known.version++;
        do {
            assert_row(run_pair(&p, 5000, &word) == 0, "%s: no notice", name);
        } while (!word.going);
        int64_t error_ms = word.gone_utc_ms - p.known.loss_utc_ms;
        assert_row(error_ms >= 0 && error_ms <= (cloud == TM_NOTICE_GCP ? 6000 : 0), "%s: off by %d ms", name,
                   (int)error_ms);
        p.known.noticed = p.known.hinted = false; /* taken back */
        p.known.version++;
        do {
            assert_row(run_pair(&p, 5000, &word) == 0, "%s: not taken back", name);
        } while (word.going || word.hinted);
        drop_pair(&p);
    }
}

static void test_notices_on_a_virtual_clock(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(3);
    hear_a_notice(env, 100000);
    tm_env_virtual_destroy(env);
}

static void test_notices_over_the_real_network(void **state)
{
    (void)state;
    hear_a_notice(tm_env_real(), 250);
}

static void test_a_long_poll_is_one_connection(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(3);
    struct pair p;
    struct tm_notice word = {0};
    connect_pair(&p, env, TM_NOTICE_GCP);
    assert_int_equal(run_pair(&p, 600000, &word), -(int)TM_ETIMEOUT);
    struct tm_notice_health health = tm_notice_reader__health(p.reader);
    assert_in_range(health.answers, 30, 60); /* two each half minute, not one each 100 ms */
    p.known.noticed = true;
    p.known.version++;
    int64_t before_ms = env->now_ms(env);
    assert_int_equal(run_pair(&p, 60000, &word), 0);
    assert_true(word.going);
    assert_in_range(env->now_ms(env) - before_ms, 0, 200); /* heard at once */
    drop_pair(&p);
    tm_env_virtual_destroy(env);
}

static void test_tokens_run_out(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(3);
    struct pair p;
    struct tm_notice word = {0};
    struct tm_error e;
    connect_pair(&p, env, TM_NOTICE_AWS);
    assert_int_equal(run_pair(&p, 1000, &word), -(int)TM_ETIMEOUT);
    /* The endpoint forgets its tokens, as one does that restarts: 401, a new token, and on. */
    tm_metadata_server__close(p.server, p.endpoint);
    char bound[TM_ADDRESS_MAX];
    assert_int_equal(tm_metadata_server__open(p.server, "127.0.0.1", &p.known, bound, &p.endpoint, &e), 0);
    tm_metadata_server__close(p.server, p.endpoint);
    p.known.noticed = true;
    p.known.loss_utc_ms = env->now_ms(env) / 1000 * 1000 + 120000;
    assert_int_equal(run_pair(&p, 3000, &word), -(int)TM_ETIMEOUT); /* refused meanwhile */
    assert_true(tm_notice_reader__health(p.reader).failures > 0);
    assert_string_not_equal(tm_notice_reader__health(p.reader).last, "");
    drop_pair(&p);
    connect_pair(&p, env, TM_NOTICE_AWS);
    assert_int_equal(run_pair(&p, 1000, &word), -(int)TM_ETIMEOUT);
    tm_env_virtual_advance(env, (int64_t)7 * 3600 * 1000); /* past any token's life */
    assert_int_equal(run_pair(&p, 1000, &word), -(int)TM_ETIMEOUT);
    assert_int_equal(tm_notice_reader__health(p.reader).failures, 0);
    p.known.noticed = true;
    p.known.loss_utc_ms = env->now_ms(env) / 1000 * 1000 + 120000;
    assert_int_equal(run_pair(&p, 3000, &word), 0);
    assert_true(word.going && word.gone_utc_ms == p.known.loss_utc_ms);
    drop_pair(&p);
    tm_env_virtual_destroy(env);
}

/* A server that says `answer` to whatever is asked, and closes if it is to. */
static void answer_all(struct tm_env *env, int listener, const char *answer, size_t length, bool closes)
{
    int handle = 0;
    char buffer[4096];
    size_t done = 0;
    while (env->net_accept(env, listener, &handle, NULL) == 0) {
        (void)env->net_receive(env, handle, buffer, sizeof buffer, &done, NULL);
        for (size_t at = 0; at < length; at += done) {
            if (env->net_send(env, handle, answer + at, length - at, &done, NULL) != 0) break;
        }
        if (closes) env->net_close(env, handle);
    }
}

#define OK_HEAD "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n"

static void test_hostile_servers(void **state)
{
    (void)state;
    static char flood[100000];
    memset(flood, 'x', sizeof flood - 1);
    static char headers[9000];
    memset(headers, 'h', sizeof headers - 1);
    static const struct {
        const char *name;
        const char *answer; /* NULL: the flood */
        bool closes;
    } rows[] = {
        {"silence", "", false},
        {"hung up", "", true},
        {"not http", "hello\r\n\r\n", true},
        {"flood without a line", NULL, false},
        {"half a head", "HTTP/1.1 200 OK\r\nContent-Le", true},
        {"half a body", OK_HEAD "Content-Length: 100\r\n\r\n{\"action\"", true},
        {"slow body", OK_HEAD "Content-Length: 100\r\n\r\n{\"action\"", false},
        {"length below zero", OK_HEAD "Content-Length: -5\r\n\r\n", true},
        {"huge length", OK_HEAD "Content-Length: 99999999999\r\n\r\nx", true},
        {"no number", OK_HEAD "Content-Length: five\r\n\r\nx", true},
        {"bad chunk", OK_HEAD "Transfer-Encoding: chunked\r\n\r\nzz\r\n", true},
        {"endless chunk", OK_HEAD "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx", true},
        {"unknown coding", OK_HEAD "Transfer-Encoding: gzip\r\n\r\nx", true},
        {"server error", "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", true},
        {"too many", "HTTP/1.1 429 Slow down\r\nContent-Length: 0\r\n\r\n", true},
        {"forbidden", "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", true},
        {"token with a newline", OK_HEAD "Content-Length: 7\r\n\r\nab\r\nX:y", true},
        {"status of words", "HTTP/1.1 abc OK\r\n\r\n", true},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        for (int cloud = 0; cloud < TM_NOTICE_CLOUDS; cloud++) {
            struct tm_env *env = tm_env_virtual_create(3);
            struct tm_error e;
            char bound[TM_ADDRESS_MAX];
            int listener = 0;
            struct tm_notice word = {0};
            struct tm_notice_reader *reader = NULL;
            assert_int_equal(env->net_listen(env, "127.0.0.1:0", &listener, bound, &e), 0);
            struct tm_notice_options options = {.cloud = (enum tm_notice_cloud)cloud, .address = bound, .poll_ms = 100};
            assert_int_equal(tm_notice_reader_create(env, &options, &reader, &e), 0);
            const char *answer = rows[i].answer != NULL ? rows[i].answer : flood;
            for (int64_t end_ms = env->now_ms(env) + 60000; env->now_ms(env) < end_ms;) {
                assert_row(tm_notice_reader_step(reader, &word, &e) != 0, "%s, %s: believed", rows[i].name,
                           cloud_names[cloud]);
                answer_all(env, listener, answer, strlen(answer), rows[i].closes);
                assert_row(tm_notice_reader_step(reader, &word, &e) != 0, "%s, %s: believed", rows[i].name,
                           cloud_names[cloud]);
                tm_env_virtual_advance(env, 10);
            }
            struct tm_notice_health health = tm_notice_reader__health(reader);
            /* tried again, and not too often: pauses double from 250 ms to 5 s */
            assert_row(health.failures >= 5 && health.failures < 30, "%s, %s: %d failures in a minute", rows[i].name,
                       cloud_names[cloud], (int)health.failures);
            tm_notice_reader_destroy(reader);
            tm_env_virtual_destroy(env);
        }
    }
}

static void test_answers(void **state)
{
    (void)state;
    struct tm_error e;
    int64_t gone = 0;
    bool preempted = false;
    struct tm_notice word = {0};
    static const char action[] = "{\"action\": \"terminate\", \"time\": \"2017-09-18T08:22:00Z\"}";
    assert_int_equal(tm_notice__parse_aws_action(action, strlen(action), &gone, &e), 0);
    assert_int_equal(gone, 1505722920000);
    static const char *const wrong[] = {
        "", "[]", "{}", "null", "{\"action\":1,\"time\":2}", "{\"action\":\"stop\",\"time\":\"soon\"}"};
    for (size_t i = 0; i < TM_COUNT(wrong); i++)
        assert_row(tm_notice__parse_aws_action(wrong[i], strlen(wrong[i]), &gone, &e) < 0, "\"%s\"", wrong[i]);
    assert_int_equal(tm_notice__parse_gcp_preempted("TRUE\n", 5, &preempted, &e), 0);
    assert_true(preempted);
    assert_int_equal(tm_notice__parse_gcp_preempted("MAYBE", 5, &preempted, &e), -(int)TM_EINPUT);
    /* as in Azure's documentation */
    static const char azure[] =
        "{\"DocumentIncarnation\":1,\"Events\":[{\"EventId\":\"602d9444-d2cd-49c7-8624-8643e7171297\",\"EventType\":"
        "\"Preempt\",\"ResourceType\":\"VirtualMachine\",\"Resources\":[\"FrontEnd_IN_0\"],\"EventStatus\":"
        "\"Scheduled\",\"NotBefore\":\"Mon, 19 Sep 2016 18:29:47 GMT\"}]}";
    assert_int_equal(tm_notice__parse_azure(azure, strlen(azure), 5, &word, &e), 0);
    assert_true(word.going && !word.hinted);
    assert_int_equal(word.gone_utc_ms, 1474309787000);
    static const char started[] =
        "{\"Events\":[{\"EventType\":\"Preempt\",\"EventStatus\":\"Started\",\"NotBefore\":\"\"}]}";
    assert_int_equal(tm_notice__parse_azure(started, strlen(started), 5, &word, &e), 0);
    assert_int_equal(word.gone_utc_ms, 5);
    static const char reboot[] = "{\"Events\":[{\"EventType\":\"Reboot\"}]}";
    assert_int_equal(tm_notice__parse_azure(reboot, strlen(reboot), 5, &word, &e), 0);
    assert_true(word.hinted && !word.going);
    static const char *const not_events[] = {"", "{}", "{\"Events\":3}", "{\"Events\":[3]}",
                                             "{\"Events\":[{\"EventType\":\"Preempt\",\"NotBefore\":\"later\"}]}"};
    for (size_t i = 0; i < TM_COUNT(not_events); i++)
        assert_row(tm_notice__parse_azure(not_events[i], strlen(not_events[i]), 5, &word, &e) < 0, "\"%s\"",
                   not_events[i]);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(3);
    struct tm_notice_options options = {.cloud = TM_NOTICE_AZURE, .address = "127.0.0.1:1"};
    TM_FAIL_EACH_ALLOC({
        struct tm_notice_reader *reader = NULL;
        rc = tm_notice_reader_create(env, &options, &reader, NULL);
        if (rc == 0) {
            struct tm_notice word;
            (void)tm_notice_reader_step(reader, &word, NULL);
        }
        tm_notice_reader_destroy(reader);
    });
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_notices_on_a_virtual_clock), TM_TEST(test_notices_over_the_real_network),
             TM_TEST(test_a_long_poll_is_one_connection), TM_TEST(test_tokens_run_out), TM_TEST(test_hostile_servers),
             TM_TEST(test_answers), TM_TEST(test_failing_allocations))
