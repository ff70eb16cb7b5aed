/* Heads and bodies of HTTP, and a call that is answered by our own server, held, cut off and refused. */
#include "base/env_virtual.h"
#include "base/http_call.h"
#include "base/http_server.h"
#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static void test_requests(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int rc;
    } rows[] = {
        {"GET / HTTP/1.1\r\n\r\n", 0},
        {"GET / HTTP/1.0\n\n", 0},
        {"PUT /a?b=c HTTP/1.1\r\nA: b\r\nC:d\r\n\r\n", 0},
        {"", -TM_EBUSY},
        {"GET / HT", -TM_EBUSY},
        {"GET / HTTP/1.1\r\nA: b\r\n", -TM_EBUSY},
        {"GET /\r\n\r\n", -TM_EINPUT},
        {"GET  HTTP/1.1\r\n\r\n", -TM_EINPUT},
        {"GET http://x/ HTTP/1.1\r\n\r\n", -TM_EINPUT},
        {"GET / HTTP/2.0\r\n\r\n", -TM_EINPUT},
        {"G(T / HTTP/1.1\r\n\r\n", -TM_EINPUT},
        {"GET /\x01 HTTP/1.1\r\n\r\n", -TM_EINPUT},
        {"GET / HTTP/1.1\r\nno colon\r\n\r\n", -TM_EINPUT},
        {"GET / HTTP/1.1\r\n: x\r\n\r\n", -TM_EINPUT},
        {"GET / HTTP/1.1\r\nA : x\r\n\r\n", -TM_EINPUT},
        {"GET / HTTP/1.1\r\nOrigin: http://a\r\norigin: http://b\r\n\r\n", -TM_EINPUT},
        {"GET / HTTP/1.1\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", -TM_EINPUT},
        {"GET / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", 0},
    };
    struct tm_http_head head;
    struct tm_error e;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int rc = tm_http_read_request(rows[i].bytes, strlen(rows[i].bytes), &head, &e);
        assert_row(rc == rows[i].rc, "\"%s\": %d", rows[i].bytes, rc);
        assert_row(rc != 0 || head.length == strlen(rows[i].bytes), "\"%s\": length", rows[i].bytes);
    }
    static char endless[TM_HTTP_HEAD_MAX + 1];
    memset(endless, 'a', sizeof endless);
    assert_int_equal(tm_http_read_request(endless, sizeof endless, &head, &e), -(int)TM_ELIMIT);
    struct tm_text many;
    tm_text_init(&many, TM_HTTP_HEAD_MAX);
    tm_text_puts(&many, "GET / HTTP/1.1\r\n");
    for (int i = 0; i <= TM_HTTP_HEADERS_MAX; i++)
        tm_text_puts(&many, "a: b\r\n");
    assert_int_equal(tm_http_read_request(many.data, many.length, &head, &e), -(int)TM_ELIMIT);
    tm_text_deinit(&many);
}

static void test_targets_and_headers(void **state)
{
    (void)state;
    static const char bytes[] = "GET /a/b/?x=1&yy=&z=3 HTTP/1.1\r\nMixed-Case:  v w \t\r\n\r\n";
    struct tm_http_head head;
    assert_int_equal(tm_http_read_request(bytes, strlen(bytes), &head, NULL), 0);
    assert_true(tm_slice_is(tm_http_path(head.target), "/a/b"));
    assert_true(tm_slice_is(tm_http_query(head.target, "x"), "1"));
    assert_true(tm_slice_is(tm_http_query(head.target, "yy"), ""));
    assert_true(tm_slice_is(tm_http_query(head.target, "z"), "3"));
    assert_null(tm_http_query(head.target, "y").at);
    assert_true(tm_slice_is(tm_http_header(&head, "mixed-case"), "v w"));
    assert_null(tm_http_header(&head, "mixed").at);
}

static void test_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool closed;
        int rc;
        const char *body;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", false, 0, "abc"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", false, -TM_EBUSY, ""},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", true, -TM_EINPUT, ""},
        {"HTTP/1.0 200\r\n\r\nall", true, 0, "all"},
        {"HTTP/1.0 200\r\n\r\nall", false, -TM_EBUSY, ""},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", false, 0, "abc"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", false, -TM_EBUSY, ""},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", true, -TM_EINPUT, ""},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", false, -TM_EINPUT, ""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_http_head head;
        struct tm_text body;
        size_t length = strlen(rows[i].bytes);
        tm_text_init(&body, 65536);
        assert_int_equal(tm_http__read_response(rows[i].bytes, length, &head, NULL), 0);
        int rc =
            tm_http__read_body(&head, rows[i].bytes + head.length, length - head.length, rows[i].closed, &body, NULL);
        assert_row(rc == rows[i].rc, "row %zu: %d", i, rc);
        if (rc == 0) assert_row_string(rows[i].bytes, tm_text_string(&body), rows[i].body);
        tm_text_deinit(&body);
    }
}

/* ---- a server and a call to it, in one loop ---- */

struct shop {
    uint64_t version;
    int asked;
};

static int64_t answer(void *context, const struct tm_http_request *request, struct tm_text *out)
{
    struct shop *shop = context;
    struct tm_slice path = tm_http_path(request->head->target);
    shop->asked++;
    if (tm_slice_is(path, "/held") && !request->waited) return 7000;
    if (tm_slice_is(path, "/long")) tm_text_fill(out, 'x', 1 << 20);
    if (tm_slice_is(path, "/held") || tm_slice_is(path, "/here"))
        tm_http_respond(out, 200, "text/plain", "X-More: yes\r\n", shop->version == 1 ? "first" : "later");
    else
        tm_http_refuse(out, 404);
    return 0;
}

struct world {
    struct tm_env *env;
    struct tm_http_server *server;
    struct shop shop;
    char bound[TM_ADDRESS_MAX];
    int listener;
};

static void begin(struct world *w)
{
    struct tm_http_limits limits = {.listeners = 1, .connections = 4, .connections_each = 3, .response_max = 4096};
    *w = (struct world){.env = tm_env_virtual_create(1), .shop = {.version = 1}};
    w->server = tm_http_server_create(w->env, &limits);
    struct tm_http_listener listener = {.answer = answer, .context = &w->shop, .version = &w->shop.version};
    assert_int_equal(tm_http_server_free(w->server), 0);
    assert_int_equal(tm_http_server_open(w->server, "127.0.0.1:0", &listener, w->bound, &w->listener, NULL), 0);
    assert_int_equal(tm_http_server_free(w->server), -1);
    assert_int_equal(tm_http_server_open(w->server, "127.0.0.1:0", &listener, w->bound, &w->listener, NULL),
                     -(int)TM_ELIMIT);
}

static void end(struct world *w)
{
    tm_http_server_destroy(w->server);
    tm_env_virtual_destroy(w->env);
}

static void test_a_call(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int status;
        const char *body;
    } rows[] = {
        {"GET /here HTTP/1.1\r\n", 200, "first"},
        {"GET /there HTTP/1.1\r\n", 404, ""},
        {"GET /long HTTP/1.1\r\n", 503, "{\"error\": \"the answer is too long\"}\n"}, /* more than the server's limit */
        {"nonsense\r\n", 400, "{\"error\": \"this is no request that is understood\"}\n"},
    };
    struct world w;
    begin(&w);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_http_call call;
        struct tm_http_head head;
        struct tm_text body;
        struct tm_error e;
        tm_http_call_init(&call, w.env, 65536);
        tm_text_init(&body, 65536);
        tm_http_call_clear(&call);
        tm_text_puts(&call.request, rows[i].line);
        assert_int_equal(tm_http_call_begin(&call, w.bound, &e), 0);
        int rc = 0;
        for (int turn = 0; turn < 8; turn++) {
            rc = tm_http_call_step(&call, &head, &body, &e);
            if (rc != -(int)TM_EBUSY) break;
            tm_http_server_serve(w.server);
        }
        assert_row(rc == 0, "%s: %d", rows[i].line, rc);
        assert_row(head.status == rows[i].status, "%s: %d", rows[i].line, head.status);
        assert_row_string(rows[i].line, tm_text_string(&body), rows[i].body);
        tm_text_deinit(&body);
        tm_http_call_deinit(&call);
    }
    end(&w);
}

static void test_held(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (int changes = 0; changes < 2; changes++) {
        struct tm_http_call call;
        struct tm_http_head head;
        struct tm_text body;
        int handles[8];
        int64_t wait_ms = 0;
        tm_http_call_init(&call, w.env, 65536);
        tm_text_init(&body, 65536);
        tm_text_puts(&call.request, "GET /held HTTP/1.1\r\n");
        assert_int_equal(tm_http_call_begin(&call, w.bound, NULL), 0);
        for (int turn = 0; turn < 4; turn++) {
            assert_int_equal(tm_http_call_step(&call, &head, &body, NULL), -(int)TM_EBUSY);
            tm_http_server_serve(w.server);
        }
        assert_int_equal(tm_http_server_watch(w.server, handles, TM_COUNT(handles), &wait_ms), 2);
        assert_int_equal(wait_ms, 7000);
        if (changes)
            w.shop.version++;
        else
            tm_env_virtual_advance(w.env, 7000);
        tm_http_server_serve(w.server);
        assert_int_equal(tm_http_call_step(&call, &head, &body, NULL), 0);
        assert_string_equal(tm_text_string(&body), changes ? "later" : "first");
        tm_text_deinit(&body);
        tm_http_call_deinit(&call);
    }
    end(&w);
}

/* Waiting calls must end: nobody serves, the peer is gone, nobody listens. */
static void test_a_call_gives_up(void **state)
{
    (void)state;
    struct world w;
    struct tm_http_call call;
    struct tm_http_head head;
    struct tm_text body;
    struct tm_error e;
    begin(&w);
    tm_http_call_init(&call, w.env, 65536);
    tm_text_init(&body, 65536);
    tm_text_puts(&call.request, "GET /here HTTP/1.1\r\n");
    assert_int_equal(tm_http_call_wait(&call, w.bound, 300, &head, &body, &e), -(int)TM_ETIMEOUT);
    tm_http_call_clear(&call);
    tm_text_puts(&call.request, "GET /here HTTP/1.1\r\n");
    assert_int_equal(tm_http_call_begin(&call, w.bound, &e), 0);
    assert_int_equal(tm_http_call_step(&call, &head, &body, &e), -(int)TM_EBUSY);
    tm_env_virtual_cut(w.env, call.handle);
    assert_int_equal(tm_http_call_step(&call, &head, &body, &e), -(int)TM_EPEER);
    tm_http_server_close(w.server, w.listener);
    tm_http_call_clear(&call);
    assert_true(tm_http_call_wait(&call, w.bound, 300, &head, &body, &e) < 0);
    assert_int_equal(call.handle, -1);
    tm_text_deinit(&body);
    tm_http_call_deinit(&call);
    end(&w);
}

/* Connections that say nothing, or half of it, keep nobody out; who has asked stays. */
static void test_a_crowd_of_slow_ones(void **state)
{
    (void)state;
    static const char half[] = "GET /here HTTP/1.1\r\n";
    struct world w;
    struct tm_http_call held;
    struct tm_http_call call;
    struct tm_http_head head;
    struct tm_text body;
    begin(&w);
    tm_http_call_init(&held, w.env, 65536);
    tm_http_call_init(&call, w.env, 65536);
    tm_text_init(&body, 65536);
    tm_text_puts(&held.request, "GET /held HTTP/1.1\r\n");
    assert_int_equal(tm_http_call_begin(&held, w.bound, NULL), 0);
    assert_int_equal(tm_http_call_step(&held, &head, &body, NULL), -(int)TM_EBUSY);
    tm_http_server_serve(w.server);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++) {
            int handle = -1;
            size_t done = 0;
            assert_int_equal(w.env->net_connect(w.env, w.bound, &handle, NULL), 0);
            if (i % 2 == 0) (void)w.env->net_send(w.env, handle, half, sizeof half - 1, &done, NULL);
            if (i == 20) { /* amid the crowd, and heard */
                tm_http_call_clear(&call);
                tm_text_puts(&call.request, half);
                assert_int_equal(tm_http_call_begin(&call, w.bound, NULL), 0);
                assert_int_equal(tm_http_call_step(&call, &head, &body, NULL), -(int)TM_EBUSY);
            }
            if (round == 1) tm_http_server_serve(w.server);
        }
        tm_http_server_serve(w.server);
        tm_text_clear(&body);
        assert_int_equal(tm_http_call_step(&call, &head, &body, NULL), 0);
        assert_string_equal(tm_text_string(&body), "first");
        assert_int_equal(tm_http_call_step(&held, &head, &body, NULL), -(int)TM_EBUSY);
    }
    w.shop.version++;
    tm_http_server_serve(w.server);
    tm_text_clear(&body);
    assert_int_equal(tm_http_call_step(&held, &head, &body, NULL), 0);
    assert_string_equal(tm_text_string(&body), "later");
    tm_env_virtual_advance(w.env, 5000); /* those who are left have had their time */
    tm_http_server_serve(w.server);
    int handles[8];
    int64_t wait_ms = 0;
    assert_int_equal(tm_http_server_watch(w.server, handles, TM_COUNT(handles), &wait_ms), 1);
    tm_text_deinit(&body);
    tm_http_call_deinit(&held);
    tm_http_call_deinit(&call);
    end(&w);
}

/* ---- connections that stay, bodies, streams ---- */

/* "/echo" says the body; "/zeros" is long; "/stream" counts up with the version, and ends at 3. */
static int64_t answer_more(void *context, const struct tm_http_request *request, struct tm_text *out)
{
    static char zeros[5000];
    struct shop *shop = context;
    struct tm_slice path = tm_http_path(request->head->target);
    shop->asked++;
    if (tm_slice_is(path, "/stream")) {
        if (!request->streaming) tm_text_puts(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        if (request->cursor[0] == shop->version) return 9000;
        request->cursor[0] = shop->version;
        tm_text_printf(out, "<%d>", (int)shop->version);
        return shop->version == 3 ? 0 : 9000;
    }
    memset(zeros, '0', sizeof zeros);
    bool echo = tm_slice_is(path, "/echo");
    struct tm_http_reply reply = {.status = 200,
                                  .type = "text/plain",
                                  .body = echo ? request->body.at : zeros,
                                  .length = echo ? request->body.length : sizeof zeros};
    tm_http_reply(request, &reply, out);
    return 0;
}

struct raw {
    struct world w;
    int handle;
    struct tm_text got;
};

static void begin_raw(struct raw *r)
{
    struct tm_http_limits limits = {.listeners = 1,
                                    .connections = 4,
                                    .connections_each = 4,
                                    .response_max = 16384,
                                    .body_max = 1000,
                                    .keep_ms = 20000};
    *r = (struct raw){.w = {.env = tm_env_virtual_create(1), .shop = {.version = 1}}, .handle = -1};
    r->w.server = tm_http_server_create(r->w.env, &limits);
    struct tm_http_listener listener = {.answer = answer_more, .context = &r->w.shop, .version = &r->w.shop.version};
    assert_int_equal(tm_http_server_open(r->w.server, "127.0.0.1:0", &listener, r->w.bound, &r->w.listener, NULL), 0);
    assert_int_equal(r->w.env->net_connect(r->w.env, r->w.bound, &r->handle, NULL), 0);
    tm_text_init(&r->got, 1 << 20);
}

/* Says it, lets the server work, and hears what comes of it. False: the connection is closed. */
static bool say(struct raw *r, const char *text)
{
    struct tm_env *env = r->w.env;
    char buffer[4096];
    size_t done = 0;
    bool open = true;
    tm_text_clear(&r->got);
    for (size_t at = 0; at < strlen(text); at += done)
        if (env->net_send(env, r->handle, text + at, strlen(text) - at, &done, NULL) != 0) return false;
    for (int turn = 0; turn < 8; turn++) {
        tm_http_server_serve(r->w.server);
        int rc = env->net_receive(env, r->handle, buffer, sizeof buffer, &done, NULL);
        if (rc == 0 && done > 0) tm_text_append(&r->got, buffer, done);
        if (rc != -(int)TM_EBUSY && done == 0) open = false;
        if (rc == -(int)TM_EBUSY) done = 0;
    }
    return open;
}

static void end_raw(struct raw *r)
{
    r->w.env->net_close(r->w.env, r->handle);
    tm_text_deinit(&r->got);
    end(&r->w);
}

static int count_of(const char *text, const char *piece)
{
    int count = 0;
    for (const char *at = strstr(text, piece); at != NULL; at = strstr(at + 1, piece))
        count++;
    return count;
}

static void test_connections_that_stay(void **state)
{
    (void)state;
    struct raw r;
    begin_raw(&r);
    assert_true(say(&r, "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe"));
    assert_int_equal(r.got.length, 0);
    assert_true(say(&r, "llo"));
    assert_non_null(strstr(tm_text_string(&r.got), "\r\n\r\nhello"));
    assert_null(strstr(tm_text_string(&r.got), "Connection: close"));
    /* Three at once: each is answered, the body of one is not the next one's head. */
    assert_true(say(&r, "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nfirst"
                        "GET /echo HTTP/1.1\r\n\r\nPOST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nend"));
    assert_int_equal(count_of(tm_text_string(&r.got), "HTTP/1.1 200 OK"), 3);
    assert_non_null(strstr(tm_text_string(&r.got), "\r\n\r\nfirstHTTP"));
    assert_string_equal(tm_text_string(&r.got) + r.got.length - 3, "end");
    /* Idle for long, it is closed. */
    tm_env_virtual_advance(r.w.env, 19000);
    assert_true(say(&r, ""));
    tm_env_virtual_advance(r.w.env, 2000);
    assert_false(say(&r, ""));
    end_raw(&r);
}

static void test_ends_of_connections(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        const char *answer;
    } rows[] = {
        {"GET /echo HTTP/1.1\r\nConnection: close\r\n\r\n", "200"},
        {"GET /echo HTTP/1.0\r\n\r\n", "200"},
        {"POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", "413"},
        {"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"},
        {"POST /echo HTTP/1.1\r\nContent-Length: +1\r\n\r\nx", "400"},
        {"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 0\r\n\r\nx", "400"},
        {"GET /echo HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n", "400"},
        {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "411"},
        {"nonsense\r\n\r\n", "400"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct raw r;
        begin_raw(&r);
        assert_row(!say(&r, rows[i].request), "%s: stays", rows[i].request);
        assert_row(r.got.length > 12 && strncmp(r.got.data + 9, rows[i].answer, 3) == 0, "%s: %s", rows[i].request,
                   tm_text_string(&r.got));
        assert_row(rows[i].answer[0] == '2' || strstr(r.got.data, "{\"error\": \"") != NULL, "%s: %s", rows[i].request,
                   tm_text_string(&r.got));
        end_raw(&r);
    }
}

static void test_gzip(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        bool packed;
    } rows[] = {{"gzip", true},
                {"deflate, gzip;q=0.5, br", true},
                {"GZIP", true},
                {"br", false},
                {"gzip;q=0", false},
                {"gzip; q=0.0", false},
                {"", false},
                {"gzip;q=0.01", true},
                {"identity, gzip", true},
                {",,", false}};
    struct raw r;
    begin_raw(&r);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char request[200];
        (void)snprintf(request, sizeof request, "GET /zeros HTTP/1.1\r\nAccept-Encoding: %s\r\n\r\n", rows[i].accept);
        assert_true(say(&r, request));
        bool packed = strstr(tm_text_string(&r.got), "Content-Encoding: gzip\r\n") != NULL;
        assert_row(packed == rows[i].packed, "\"%s\": %d", rows[i].accept, packed);
        assert_row(packed == (r.got.length < 1000), "\"%s\": %zu bytes", rows[i].accept, r.got.length);
    }
    end_raw(&r);
}

static void test_a_stream(void **state)
{
    (void)state;
    struct raw r;
    begin_raw(&r);
    assert_true(say(&r, "GET /stream HTTP/1.1\r\n\r\n"));
    assert_non_null(strstr(tm_text_string(&r.got), "\r\n\r\n<1>"));
    assert_true(say(&r, ""));
    assert_int_equal(r.got.length, 0);
    r.w.shop.version = 2;
    assert_true(say(&r, ""));
    assert_string_equal(tm_text_string(&r.got), "<2>");
    tm_env_virtual_advance(r.w.env, 60000); /* asked in vain, it goes on */
    assert_true(say(&r, ""));
    assert_int_equal(r.got.length, 0);
    r.w.shop.version = 3;
    assert_false(say(&r, ""));
    assert_string_equal(tm_text_string(&r.got), "<3>");
    end_raw(&r);
}

static int serve_once(void)
{
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_http_limits limits = {.listeners = 1, .connections = 2, .connections_each = 2, .response_max = 4096};
    struct tm_http_server *server = env == NULL ? NULL : tm_http_server_create(env, &limits);
    struct shop shop = {.version = 1};
    struct tm_http_listener listener = {.answer = answer, .context = &shop};
    char bound[TM_ADDRESS_MAX];
    int number = -1;
    int rc = server == NULL ? -(int)TM_ENOMEM : 0;
    if (rc == 0) rc = tm_http_server_open(server, "127.0.0.1:0", &listener, bound, &number, NULL);
    if (rc == 0) {
        struct tm_http_call call;
        struct tm_http_head head;
        struct tm_text body;
        tm_http_call_init(&call, env, 65536);
        tm_text_init(&body, 65536);
        tm_text_puts(&call.request, "GET /here HTTP/1.1\r\n");
        rc = tm_http_call_begin(&call, bound, NULL);
        for (int turn = 0; rc == 0 && turn < 8; turn++) {
            int step = tm_http_call_step(&call, &head, &body, NULL);
            if (step != -(int)TM_EBUSY) {
                rc = step;
                break;
            }
            tm_http_server_serve(server);
        }
        if (rc == -(int)TM_EPEER) rc = -(int)TM_ENOMEM; /* the server had none, and hung up */
        tm_text_deinit(&body);
        tm_http_call_deinit(&call);
    }
    tm_http_server_destroy(server);
    tm_env_virtual_destroy(env);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = serve_once());
}

TM_TEST_MAIN(TM_TEST(test_requests), TM_TEST(test_targets_and_headers), TM_TEST(test_bodies), TM_TEST(test_a_call),
             TM_TEST(test_held), TM_TEST(test_a_call_gives_up), TM_TEST(test_a_crowd_of_slow_ones),
             TM_TEST(test_connections_that_stay), TM_TEST(test_ends_of_connections), TM_TEST(test_gzip),
             TM_TEST(test_a_stream), TM_TEST(test_memory))
