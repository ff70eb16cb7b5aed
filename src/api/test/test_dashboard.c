/* Who may ask the dashboard for what, how one logs in, the page's own files and their headers, and what is refused
 * before anything is done. Runs, streams and browsers: tests/dashboard. */
#include "api/dashboard_internal.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static const struct tm_dashboard_options options = {
    .listen = "127.0.0.1:0", .root = "/state", .program = "/bin/false", .version = "9"};

struct world {
    struct tm_env *env;
    struct tm_dashboard *d;
    struct tm_text out;
};

static void begin(struct world *w)
{
    *w = (struct world){.env = tm_env_virtual_create(3)};
    tm_text_init(&w->out, 1 << 20);
    assert_int_equal(tm_dashboard_create(w->env, &options, &w->d, NULL), 0);
    memset(w->d->steer_token, 'a', 64); /* known to the rows below */
    memset(w->d->watch_token, 'b', 64);
    (void)snprintf(w->d->cookie, sizeof w->d->cookie, "tidemill-8642");
}

static void end(struct world *w)
{
    tm_dashboard_destroy(w->d);
    tm_text_deinit(&w->out);
    tm_env_virtual_destroy(w->env);
}

static int64_t ask(struct world *w, const char *line, const char *headers, const char *body)
{
    char text[4096];
    struct tm_http_head head;
    uint64_t cursor[TM_HTTP_CURSORS] = {0};
    (void)snprintf(text, sizeof text, "%s HTTP/1.1\r\n%s\r\n", line, headers);
    assert_row(tm_http_read_request(text, strlen(text), &head, NULL) == 0, "%s", text);
    struct tm_http_request request = {
        .head = &head, .body = {.at = body, .length = strlen(body)}, .now_ms = 1000, .cursor = cursor};
    tm_text_clear(&w->out);
    return tm_dashboard__answer(w->d, &request, &w->out);
}

#define A16           "aaaaaaaaaaaaaaaa"
#define B16           "bbbbbbbbbbbbbbbb"
#define STEER         A16 A16 A16 A16
#define WATCH         B16 B16 B16 B16
#define HERE          "Host: 127.0.0.1:8642\r\n"
#define ORIGIN        "Origin: http://127.0.0.1:8642\r\n"
#define BEARER(token) HERE "Authorization: Bearer " token "\r\n"
#define COOKIE(token) HERE "Cookie: x=y; tidemill-8642=" token "; z\r\n"

static void test_who_may_ask(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *headers;
        const char *body;
        const char *status;
        const char *piece;
    } rows[] = {
        {"GET /v1/jobs", HERE, "", "401", "log in"},
        {"GET /v1/nothing", HERE, "", "401", "log in"}, /* who may not ask is not told what there is */
        {"GET /v1/jobs", BEARER("c"), "", "401", ""},
        {"GET /v1/jobs", BEARER(WATCH), "", "200", "\"jobs\": []"},
        {"GET /v1/jobs", COOKIE(WATCH), "", "200", ""},
        {"GET /v1/jobs", COOKIE("b"), "", "401", ""},
        {"GET /v1/jobs", HERE "Cookie: tidemill-864=" WATCH "\r\n", "", "401", ""},
        {"GET /v1/jobs", "Authorization: Bearer " STEER "\r\n", "", "403", "its own page"}, /* no Host */
        {"GET /v1/jobs", "Host: evil.example\r\nAuthorization: Bearer " STEER "\r\n", "", "403", ""},
        {"GET /", "Host: evil.example:8642\r\n", "", "403", ""}, /* a name that was made to point here */
        {"GET /v1/jobs", COOKIE(STEER) "Origin: http://evil.example\r\n", "", "403", ""},
        {"GET /v1/jobs", COOKIE(STEER) "Sec-Fetch-Site: cross-site\r\n", "", "403", ""},
        {"POST /v1/plan", COOKIE(STEER), "x", "403", "own page"}, /* a form of another site, without Origin */
        {"POST /v1/plan", COOKIE(WATCH) ORIGIN, "x", "403", "may only watch"},
        {"POST /v1/plan", BEARER(WATCH), "x", "403", "may only watch"},
        {"POST /v1/plan", BEARER(STEER), "", "400", "job file"},
        {"POST /v1/plan", BEARER(STEER), "fleet: {trace: /etc/passwd}", "422",
         "line 1: trace: \\\"/etc/passwd\\\": files"},
        {"POST /v1/plan", BEARER(STEER), "a: [b, {c: d}]\nfleet:\n  pools:\n    - {trace: ../x}", "422",
         "line 4: trace"},
        {"POST /v1/report", BEARER(STEER), "model: dashboard-tokens", "422", "line 1: model"},
        {"POST /v1/simulate", BEARER(STEER), "profile: ~/x", "422", "line 1: profile"},
        {"GET /v1/jobs?limit=0", BEARER(STEER), "", "400", "from 1 to 500"},
        {"GET /v1/nothing", BEARER(STEER), "", "404", "/v1/openapi.json"},
        {"GET /", HERE "Sec-Fetch-Site: cross-site\r\n", "", "403", ""},
        {"GET /", HERE "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", "",
         "200", "<!doctype html>"}, /* a link was clicked */
        {"GET /", HERE "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n", "",
         "403", ""},
        {"GET /v1/jobs",
         COOKIE(STEER) "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", "",
         "403", ""},
        {"POST /v1/plan?pareto=2", BEARER(STEER), "x", "400", "from 0 to 1"},
        {"POST /v1/jobs/none/stop", BEARER(STEER), "", "404", "no such job"},
        {"GET /v1/jobs/..%2f..%2fetc/status", BEARER(STEER), "", "404", "no such job"},
        {"GET /v1/jobs//status", BEARER(STEER), "", "404", ""},
        {"GET /v1/status", BEARER(STEER), "", "404", ""},
        {"DELETE /v1/jobs", BEARER(STEER), "", "405", "Allow: GET\r\n"},
        {"PUT /v1/session", BEARER(STEER), "", "405", "Allow: GET, POST, DELETE\r\n"},
        {"GET /v1/session", BEARER(WATCH), "", "200", "\"scope\": \"watch\""},
        {"GET /v1/session", HERE "authorization: bearer " WATCH "\r\n", "", "200", "\"scope\": \"watch\""},
        {"GET /v1/session", BEARER(STEER), "", "200", "\"scope\": \"steer\""},
        {"GET /v1/openapi.json", BEARER(WATCH), "", "200", "\"/v1/jobs/{job}/events\""},
        {"POST /v1/session", HERE ORIGIN, STEER "\n", "200",
         "Set-Cookie: tidemill-8642=" STEER "; Path=/; HttpOnly; SameSite=Strict\r\n"},
        {"POST /v1/session", HERE ORIGIN, WATCH, "200", "\"scope\": \"watch\""},
        {"POST /v1/session", HERE, "guess", "401", "not the token"},
        {"POST /v1/session", HERE, "", "401", ""},
        {"POST /v1/session", HERE "Origin: http://evil.example\r\n", STEER, "403", ""},
        {"DELETE /v1/session", COOKIE(WATCH) ORIGIN, "", "200", "Max-Age=0"},
    };
    struct world w;
    begin(&w);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        assert_row(ask(&w, rows[i].line, rows[i].headers, rows[i].body) == 0, "%s: held", rows[i].line);
        const char *got = tm_text_string(&w.out);
        assert_row(strncmp(got + 9, rows[i].status, 3) == 0, "%zu: %s: %s", i, rows[i].line, got);
        assert_row(strstr(got, rows[i].piece) != NULL, "%zu: %s: %s", i, rows[i].line, got);
        assert_row(strstr(got, "Access-Control") == NULL, "%s: shown to other sites", rows[i].line);
    }
    end(&w);
}

static void test_files(void **state)
{
    (void)state;
    static const char *const files[] = {"/",
                                        "/style.css",
                                        "/icon.svg",
                                        "/app.js",
                                        "/api.js",
                                        "/dom.js",
                                        "/format.js",
                                        "/chart.js",
                                        "/lanes.js",
                                        "/jobs.js",
                                        "/job.js",
                                        "/layout.js",
                                        "/plan.js",
                                        "/steer.js",
                                        "/vendor/uPlot.iife.min.js",
                                        "/vendor/uPlot.min.css",
                                        "/vendor/uPlot.LICENSE"};
    struct world w;
    begin(&w);
    for (size_t i = 0; i < TM_COUNT(files); i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "GET %s", files[i]);
        (void)ask(&w, line, HERE, "");
        const char *got = tm_text_string(&w.out);
        assert_row(strncmp(got + 9, "200", 3) == 0, "%s", files[i]);
        assert_row(strstr(got, "Content-Security-Policy: default-src 'none'; script-src 'self'") != NULL, "%s",
                   files[i]);
        assert_row(strstr(got, "nosniff") != NULL && strstr(got, "X-Frame-Options: DENY") != NULL, "%s", files[i]);
        bool ours = strncmp(files[i], "/vendor/", 8) != 0; /* theirs name their home in a comment */
        assert_row(!ours || strstr(got, "https://") == NULL, "%s: something from outside", files[i]);
    }
    (void)ask(&w, "GET /../etc/passwd", HERE, "");
    assert_int_equal(strncmp(tm_text_string(&w.out) + 9, "404", 3), 0);
    (void)ask(&w, "POST /", HERE, "");
    assert_int_equal(strncmp(tm_text_string(&w.out) + 9, "405", 3), 0);
    end(&w);
}

static void test_where_it_listens(void **state)
{
    (void)state;
    static const struct {
        const char *listen;
        bool good;
        bool tls;
    } rows[] = {{"127.0.0.1:0", true, false},
                {"localhost:0", true, false},
                {"0.0.0.0:0", true, true},
                {"[::]:0", true, true},
                {"nonsense", false, false}};
    struct tm_env *env = tm_env_virtual_create(3);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_dashboard_options own = options;
        struct tm_dashboard *d = NULL;
        struct tm_error e = {.text = ""};
        own.listen = rows[i].listen;
        int rc = tm_dashboard_create(env, &own, &d, &e);
        assert_row((rc == 0) == rows[i].good, "%s: %d %s", rows[i].listen, rc, e.text);
        assert_row(rows[i].good || strstr(e.text, "--listen") != NULL, "%s: %s", rows[i].listen, e.text);
        assert_row(d == NULL || (d->tls != NULL) == rows[i].tls, "%s: TLS", rows[i].listen);
        assert_row(d == NULL || d->guarded == rows[i].tls, "%s: limits", rows[i].listen);
        tm_dashboard_destroy(d);
    }
    tm_env_virtual_destroy(env);
}

/* Off loopback: by the machine's own names and addresses, over TLS. */
static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"trainer.example.org"};
    static const struct tm_api_place place = {.tls = true, .open = true, .names = names, .name_count = 1};
    static const struct {
        const char *headers;
        bool open, closed; /* there; on loopback */
    } rows[] = {
        {"Host: trainer.example.org:8642\r\n", true, false},
        {"Host: Trainer.Example.org\r\n", true, false},
        {"Host: trainer.example.org.evil.example\r\n", false, false},
        {"Host: evil.example\r\n", false, false},
        {"Host: 10.0.0.7:8642\r\n", true, false},
        {"Host: [fd00::7]:8642\r\n", true, false},
        {"Host: 10.0.0.7.evil.example\r\n", false, false},
        {"Host: localhost:8642\r\n", true, true},
        {"Host: 10.0.0.7\r\nOrigin: https://10.0.0.7\r\n", true, false},
        {"Host: 10.0.0.7\r\nOrigin: http://10.0.0.7\r\n", false, false},
        {"Host: localhost\r\nOrigin: http://localhost\r\n", false, true},
        {"Host: localhost\r\nOrigin: https://localhost\r\n", true, false},
        {"Host: 10.0.0.7\r\nOrigin: https://10.0.0.8\r\n", false, false},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[512];
        struct tm_http_head head;
        (void)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n%s\r\n", rows[i].headers);
        assert_int_equal(tm_http_read_request(text, strlen(text), &head, NULL), 0);
        assert_row(tm_api__is_ours(&head, &place) == rows[i].open, "%s", rows[i].headers);
        assert_row(tm_api__is_ours(&head, NULL) == rows[i].closed, "on loopback: %s", rows[i].headers);
    }
}

/* Wrong tokens make one wait ever longer, and nobody else; so do too many requests. */
static void test_guard(void **state)
{
    (void)state;
    static struct tm_dashboard_guard guard;
    int64_t now_ms = 1000, wait_ms = 0, longest_ms = 0;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tm_dashboard__admit(&guard, "10.0.0.1:5", now_ms), 0);
        tm_dashboard__wrong_token(&guard, "10.0.0.1:6", now_ms); /* whatever its port */
    }
    assert_int_equal(tm_dashboard__admit(&guard, "10.0.0.1:7", now_ms), 0);
    for (int i = 0; i < 20; i++) {
        tm_dashboard__wrong_token(&guard, "10.0.0.1:7", now_ms);
        wait_ms = tm_dashboard__admit(&guard, "10.0.0.1:7", now_ms);
        assert_true(wait_ms >= longest_ms && wait_ms > 0);
        longest_ms = wait_ms;
        now_ms += wait_ms;
        assert_int_equal(tm_dashboard__admit(&guard, "10.0.0.1:7", now_ms), 0);
    }
    assert_int_equal(longest_ms, 300000);
    assert_int_equal(tm_dashboard__admit(&guard, "10.0.0.2:7", now_ms), 0);
    tm_dashboard__right_token(&guard, "10.0.0.1:7", now_ms);
    tm_dashboard__wrong_token(&guard, "10.0.0.1:7", now_ms);
    assert_int_equal(tm_dashboard__admit(&guard, "10.0.0.1:7", now_ms), 0);
    for (int i = 0; i < 6; i++) /* neighbours of one network are one */
        tm_dashboard__wrong_token(&guard, i % 2 == 0 ? "[2001:db8:1:2:3::4]:5" : "[2001:db8:1:2:9::4]:5", now_ms);
    assert_true(tm_dashboard__admit(&guard, "[2001:db8:1:2:7::1]:5", now_ms) > 0);
    assert_int_equal(tm_dashboard__admit(&guard, "[2001:db8:1:3:7::1]:5", now_ms), 0);
    int admitted = 0;
    for (int i = 0; i < 1000; i++)
        admitted += tm_dashboard__admit(&guard, "10.0.0.3:1", now_ms) == 0;
    assert_int_equal(admitted, 400);
    assert_int_equal(tm_dashboard__admit(&guard, "10.0.0.3:1", now_ms + 10), 0); /* one in ten ms */
    assert_true(tm_dashboard__admit(&guard, "10.0.0.3:1", now_ms + 10) > 0);
}

/* A link is good for the next dashboard, too; a file that is none is not trusted. */
static void test_tokens(void **state)
{
    (void)state;
    struct world w;
    struct tm_dashboard *next = NULL;
    struct tm_text first;
    begin(&w);
    tm_text_init(&first, 1024);
    tm_dashboard_destroy(w.d);
    assert_int_equal(tm_dashboard_create(w.env, &options, &w.d, NULL), 0);
    assert_int_equal(tm_dashboard_create(w.env, &options, &next, NULL), 0);
    assert_string_equal(w.d->steer_token, next->steer_token);
    assert_string_equal(w.d->watch_token, next->watch_token);
    assert_string_not_equal(w.d->steer_token, w.d->watch_token);
    tm_dashboard_link(w.d, true, &first);
    assert_non_null(strstr(tm_text_string(&first), "/#token="));
    tm_dashboard_destroy(next);
    assert_int_equal(w.env->file_write(w.env, "/state/dashboard-tokens", "short", 5, NULL), 0);
    assert_int_equal(tm_dashboard_create(w.env, &options, &next, NULL), 0);
    assert_int_equal(strlen(next->steer_token), 64);
    tm_dashboard_destroy(next);
    tm_text_deinit(&first);
    end(&w);
}

static void test_names_of_jobs(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool there;
    } rows[] = {
        {"gpt-tiny", true}, {"gpt%2Dtiny", true}, {"gpt-tiny%00", false}, {"gpt-tiny%00x", false}, {"gpt-", false}};
    struct world w;
    begin(&w);
    assert_non_null(tm_dashboard__add(w.d, "gpt-tiny", "/state/gpt-tiny"));
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_slice name = {.at = rows[i].name, .length = strlen(rows[i].name)};
        assert_row((tm_dashboard__job(w.d, name) != NULL) == rows[i].there, "%s", rows[i].name);
    }
    end(&w);
}

/* A run that has just begun is there for whoever asks for it, whenever the last search was. */
static void test_a_new_run(void **state)
{
    (void)state;
    static const char line[] = "GET /v1/jobs/fresh/prediction";
    static const char *const dirs[] = {"/runs/fresh"};
    struct world w;
    begin(&w);
    w.d->options.dirs = dirs;
    w.d->options.dir_count = 1;
    tm_dashboard__search(w.d);
    assert_int_equal(w.env->file_write(w.env, "/runs/fresh/record", "x", 1, NULL), 0);
    assert_int_equal(ask(&w, line, BEARER(WATCH), ""), 0);
    assert_row(strncmp(tm_text_string(&w.out) + 9, "404", 3) == 0, "not at each request: %s", tm_text_string(&w.out));
    tm_env_virtual_advance(w.env, 300);
    assert_int_equal(ask(&w, line, BEARER(WATCH), ""), 0);
    assert_row(strncmp(tm_text_string(&w.out) + 9, "200", 3) == 0, "%s", tm_text_string(&w.out));
    end(&w);
}

static int begin_once(struct tm_env *env)
{
    struct tm_dashboard *d = NULL;
    int rc = tm_dashboard_create(env, &options, &d, NULL);
    tm_dashboard_destroy(d);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(3);
    assert_int_equal(begin_once(env), 0);
    TM_FAIL_EACH_ALLOC(rc = begin_once(env));
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_who_may_ask), TM_TEST(test_files), TM_TEST(test_where_it_listens), TM_TEST(test_names),
             TM_TEST(test_guard), TM_TEST(test_tokens), TM_TEST(test_names_of_jobs), TM_TEST(test_a_new_run),
             TM_TEST(test_memory))
