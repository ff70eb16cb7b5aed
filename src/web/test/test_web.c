/* Requests against a server of our own that answers each connection with the next line of a script. */
#include "base/test/script_server.h"
#include "web/web.h"

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    (void)e;
    tm_text_printf(url, "http://%s/a%%20b/../c?x=%%2F", (const char *)context);
    tm_text_puts(headers, "x-own: 1\n");
    return 0;
}

static struct tm_web_request request_to(struct server *s)
{
    return (struct tm_web_request){
        .method = "GET", .deadline_ms = 20000, .tries_max = 4, .prepare = prepare, .context = s->address};
}

#define OK(body)           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\nConnection: close\r\n\r\n" body
#define STATUS(code, more) "HTTP/1.1 " code " x\r\n" more "Content-Length: 2\r\nConnection: close\r\n\r\nno"

static void test_tries(void **state)
{
    (void)state;
    static const struct {
        const char *script[4];
        int tries; /* wanted */
        int rc;
        int status;
    } rows[] = {
        {{OK("hello")}, 1, 0, 200},
        {{STATUS("503", ""), OK("hello")}, 2, 0, 200},
        {{STATUS("429", ""), STATUS("500", ""), STATUS("502", ""), OK("hello")}, 4, 0, 200},
        {{"", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", OK("hello")}, 3, 0, 200}, /* cut */
        {{STATUS("504", ""), STATUS("503", ""), STATUS("503", ""), STATUS("503", "")}, 4, 0, 503},
        {{STATUS("404", "")}, 1, 0, 404},
        {{STATUS("403", "")}, 1, 0, 403},
        {{STATUS("301", "Location: http://127.0.0.1:1/\r\n")}, 1, 0, 301},
        {{"nonsense\r\n\r\n", OK("hello")}, 2, 0, 200},
        {{"", "", "", ""}, 4, -(int)TM_EPEER, 0},
    };
    struct tm_web *web = NULL;
    assert_int_equal(tm_web_create(tm_env_real(), &web, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct server s;
        struct tm_web_answer answer = {.status = 0};
        struct tm_error e = {.text = ""};
        start(&s, rows[i].script, 4);
        struct tm_web_request request = request_to(&s);
        int rc = tm_web_ask(web, &request, &answer, &e);
        assert_row(rc == rows[i].rc, "row %zu: %d %s", i, rc, e.text);
        assert_row(atomic_load(&s.served) == (size_t)rows[i].tries, "row %zu: %zu tries", i, atomic_load(&s.served));
        if (rc == 0) assert_row(answer.status == rows[i].status, "row %zu: %d", i, answer.status);
        if (rc == 0 && answer.status == 200) {
            assert_string_equal(tm_text_string(&answer.body), "hello");
            assert_string_equal(answer.etag, "\"e\"");
            assert_non_null(strstr(s.seen[0], "GET /a%20b/../c?x=%2F HTTP/1.1\r\n")); /* as it was signed */
            assert_non_null(strstr(s.seen[0], "x-own: 1\r\n"));
        }
        if (rc == 0) tm_web_answer_deinit(&answer);
        stop(&s);
    }
    tm_web_destroy(web);
}

/* Credentials that take longer than the service may. The clock moves while they are waited for. */
static int64_t moved_ns;
static int64_t moved_by_ns;

static void moved_sleep_ms(struct tm_env *env, int64_t ms)
{
    (void)env;
    (void)ms;
    moved_ns += moved_by_ns;
}

static int64_t moved_monotonic_ns(struct tm_env *env)
{
    (void)env;
    return tm_env_real()->monotonic_ns(tm_env_real()) + moved_ns;
}

struct held {
    struct server *server;
    int looks; /* in vain */
};

static int prepare_held(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    struct held *held = context;
    if (held->looks-- <= 0) return prepare(held->server->address, url, headers, e);
    return tm_error_set(e, TM_EBUSY, "on their way");
}

static void test_held(void **state)
{
    (void)state;
    static const char *const script[] = {OK("hello")};
    static const struct {
        int looks;
        int64_t each_s; /* what one takes */
        int rc;
    } rows[] = {{0, 0, 0}, {1, 60, 0}, {3, 30, 0}, {1000, 30, -(int)TM_ETIMEOUT}}; /* with a limit of their own */
    struct tm_env env = *tm_env_real();
    struct tm_web *web = NULL;
    env.monotonic_ns = moved_monotonic_ns;
    env.sleep_ms = moved_sleep_ms;
    assert_int_equal(tm_web_create(&env, &web, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct server s;
        struct tm_web_answer answer = {.status = 0};
        struct tm_error e = {.text = ""};
        start(&s, script, 1);
        struct held held = {&s, rows[i].looks};
        moved_by_ns = rows[i].each_s * 1000000000;
        struct tm_web_request request = request_to(&s);
        request.prepare = prepare_held;
        request.context = &held;
        request.tries_max = 1;
        int rc = tm_web_ask(web, &request, &answer, &e);
        assert_row(rc == rows[i].rc, "row %zu: %d %s", i, rc, e.text);
        if (rc == 0)
            assert_row(answer.status == 200 && answer.tries == 1, "row %zu: %d, %d tries", i, answer.status,
                       answer.tries);
        else
            assert_error_has(e, "no credentials in time");
        if (rc == 0) tm_web_answer_deinit(&answer);
        stop(&s);
    }
    tm_web_destroy(web);
}

static void test_body_and_into(void **state)
{
    (void)state;
    static const char *const script[] = {
        OK(""), "HTTP/1.1 206 x\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/77\r\n\r\nabcd",
        "HTTP/1.1 206 x\r\nContent-Length: 5\r\n\r\nabcde", STATUS("404", "")};
    struct server s;
    struct tm_web *web = NULL;
    struct tm_web_answer answer;
    char into[4];
    start(&s, script, 4);
    assert_int_equal(tm_web_create(tm_env_real(), &web, NULL), 0);
    struct tm_web_request request = request_to(&s);
    request.method = "PUT";
    request.body = "body!";
    request.length = 5;
    request.tries_max = 1;
    assert_int_equal(tm_web_ask(web, &request, &answer, NULL), -(int)TM_EPEER); /* fewer bytes than it says */
    assert_non_null(strstr(s.seen[0], "\r\n\r\nbody!"));
    assert_null(strcasestr(s.seen[0], "expect:"));
    assert_null(strcasestr(s.seen[0], "content-type:"));
    request = request_to(&s);
    request.into = into;
    request.room = sizeof into;
    assert_int_equal(tm_web_ask(web, &request, &answer, NULL), 0);
    assert_int_equal(answer.received, 4);
    assert_int_equal(answer.total, 77);
    assert_memory_equal(into, "abcd", 4);
    tm_web_answer_deinit(&answer);
    assert_int_equal(tm_web_ask(web, &request, &answer, NULL), -(int)TM_ELIMIT);
    assert_int_equal(tm_web_ask(web, &request, &answer, NULL), 0); /* a refusal's words do not go there */
    assert_int_equal(answer.status, 404);
    assert_string_equal(tm_text_string(&answer.body), "no");
    tm_web_answer_deinit(&answer);
    tm_web_destroy(web);
    stop(&s);
}

/* Who does not answer does not hold anybody up: the deadline ends it, and giving up needs no answer. */
static void test_silence(void **state)
{
    (void)state;
    static const char *const script[] = {NULL, NULL, NULL, NULL};
    struct server s;
    struct tm_web *web = NULL;
    struct tm_web_answer answer;
    struct tm_web_call *call = NULL;
    start(&s, script, 4);
    assert_int_equal(tm_web_create(tm_env_real(), &web, NULL), 0);
    struct tm_web_request request = request_to(&s);
    request.deadline_ms = 150;
    assert_int_equal(tm_web_ask(web, &request, &answer, NULL), -(int)TM_ETIMEOUT);
    assert_int_equal(tm_web_begin(web, &request, &call, NULL), 0);
    assert_false(tm_web_is_done(call));
    assert_int_equal(tm_web_end(call, &answer, NULL), -(int)TM_ECANCELED);
    assert_int_equal(tm_web_begin(web, &request, &call, NULL), 0);
    tm_web_destroy(web); /* with a call under way */
    stop(&s);
}

/* Many at once, driven by a loop that watches handles. */
static void test_loop(void **state)
{
    (void)state;
    const char *script[SCRIPT_MAX];
    struct server s;
    struct tm_web *web = NULL;
    struct tm_web_call *calls[8];
    size_t done = 0;
    for (size_t i = 0; i < SCRIPT_MAX; i++)
        script[i] = i % 3 == 1 ? STATUS("503", "") : OK("hello");
    start(&s, script, SCRIPT_MAX);
    assert_int_equal(tm_web_create(tm_env_real(), &web, NULL), 0);
    struct tm_web_request request = request_to(&s);
    request.tries_max = 9;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(tm_web_begin(web, &request, &calls[i], NULL), 0);
    while (done < 8) {
        struct tm_watch watches[64];
        int64_t wait_ms = 0;
        size_t count = tm_web_watch(web, watches, 64, &wait_ms);
        if (wait_ms > 500) wait_ms = 500;
        (void)s.env->net_watch(s.env, watches, count, wait_ms, NULL);
        tm_web_step(web);
        done = 0;
        for (size_t i = 0; i < 8; i++)
            done += tm_web_is_done(calls[i]);
    }
    for (size_t i = 0; i < 8; i++) {
        struct tm_web_answer answer;
        assert_int_equal(tm_web_end(calls[i], &answer, NULL), 0);
        assert_int_equal(answer.status, 200);
        tm_web_answer_deinit(&answer);
    }
    tm_web_destroy(web);
    stop(&s);
}

static void test_pauses(void **state)
{
    (void)state;
    for (uint64_t r = 0; r < 1000; r += 37) {
        assert_in_range(tm_web__pause_ms(1, r * r, 0), 50, 100);
        assert_in_range(tm_web__pause_ms(3, r * r, 0), 200, 400);
        assert_in_range(tm_web__pause_ms(50, r * r, 0), 10000, 20000);
        assert_int_equal(tm_web__pause_ms(1, r, 3000), 3000);
    }
    assert_int_equal(tm_web__retry_after_ms("2", 1, 0), 2000);
    assert_int_equal(tm_web__retry_after_ms("x", 1, 0), 0);
    assert_int_equal(tm_web__retry_after_ms("-5", 2, 0), 0);
    assert_int_equal(tm_web__retry_after_ms("Thu, 01 Jan 1970 00:00:09 GMT", 29, 4000), 5000);
    assert_int_equal(tm_web__retry_after_ms("Thu, 01 Jan 1970 00:00:09 GMT", 29, 40000), 0);
}

static void test_memory(void **state)
{
    (void)state;
    static const char *const script[] = {STATUS("404", "")};
    struct server s;
    struct tm_web_answer answer;
    const char *many[SCRIPT_MAX];
    for (size_t i = 0; i < SCRIPT_MAX; i++)
        many[i] = script[0];
    tm_alloc_fail_hold(1);
    start(&s, many, SCRIPT_MAX);
    struct tm_web_request request = request_to(&s);
    tm_alloc_fail_hold(0);
    for (long n = 1; n < 40; n++) { /* libcurl's own memory is not ours to fail */
        struct tm_web *web = NULL;
        long live = tm_alloc_live();
        tm_alloc_fail_at(n);
        int rc = tm_web_create(s.env, &web, NULL);
        if (rc == 0) rc = tm_web_ask(web, &request, &answer, NULL);
        int was = tm_alloc_failed();
        tm_alloc_fail_at(0);
        if (rc == 0) tm_web_answer_deinit(&answer);
        tm_web_destroy(web);
        if (was) assert_int_equal(rc, -(int)TM_ENOMEM);
        assert_int_equal(tm_alloc_live(), live);
        if (!was) break;
    }
    stop(&s);
}

TM_TEST_MAIN(TM_TEST(test_tries), TM_TEST(test_held), TM_TEST(test_body_and_into), TM_TEST(test_silence),
             TM_TEST(test_loop), TM_TEST(test_pauses), TM_TEST(test_memory))
