/* HTTP over TLS without either end knowing: large answers through small windows, a certificate that is expected and one
 * that is not, noise instead of a handshake, and every allocation failing in turn. */
#include "base/env_virtual.h"
#include "base/http_call.h"
#include "base/http_server.h"
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "wire/tls_net.h"
#include "wire/tls_page.h"

#include <stdio.h>
#include <string.h>

enum { LARGE = 3 << 20 };

static const char *const no_names[TM_TLS_NAMES_MAX] = {"localhost", NULL};

struct page {
    struct tm_env *env;
    struct tm_tls *tls;
    struct tm_tls_net *net;
    struct tm_http_server *http;
    char address[TM_ADDRESS_MAX];
    char peer[TM_ADDRESS_MAX];
    size_t heard; /* bytes of the last body */
};

static int64_t answer(void *context, const struct tm_http_request *request, struct tm_text *out)
{
    struct page *page = context;
    struct tm_text body;
    page->heard = request->body.length;
    (void)snprintf(page->peer, sizeof page->peer, "%s", request->peer);
    tm_text_init(&body, LARGE + 1);
    for (int i = 0; i < LARGE / 16; i++)
        tm_text_puts(&body, "0123456789abcde\n");
    struct tm_http_reply reply = {
        .status = 200, .type = "text/plain", .body = tm_text_string(&body), .length = body.length};
    tm_http_reply(request, &reply, out);
    tm_text_deinit(&body);
    return 0;
}

static int open_page(struct page *page, struct tm_env *env, struct tm_tls *tls)
{
    struct tm_http_limits limits = {
        .listeners = 1, .connections = 4, .connections_each = 4, .response_max = LARGE + 4096, .body_max = 1 << 20};
    struct tm_http_listener listener = {.answer = answer, .context = page};
    int number = 0;
    *page = (struct page){.env = env, .tls = tls};
    page->net = tm_tls_net_create(env, tls, true, NULL);
    if (page->net != NULL) page->http = tm_http_server_create(tm_tls_net_env(page->net), &limits);
    if (page->http == NULL) return -(int)TM_ENOMEM;
    return tm_http_server_open(page->http, "127.0.0.1:0", &listener, page->address, &number, NULL);
}

static void close_page(struct page *page)
{
    tm_http_server_destroy(page->http);
    tm_tls_net_destroy(page->net);
}

/* The status of the answer; else an error's code. */
static int ask(struct page *page, struct tm_tls *tls, size_t body_length, struct tm_text *body)
{
    struct tm_tls_net *net = tm_tls_net_create(page->env, tls, false, NULL);
    struct tm_http_call call;
    struct tm_http_head head;
    if (net == NULL) return -(int)TM_ENOMEM;
    tm_http_call_init(&call, tm_tls_net_env(net), LARGE + 8192);
    tm_text_printf(&call.request, "POST / HTTP/1.1\r\nContent-Length: %zu\r\n", body_length);
    int rc = tm_http_call_begin(&call, page->address, NULL);
    for (size_t i = 0; rc == 0 && i < body_length; i++)
        tm_text_puts(&call.request, "x");
    if (rc == 0) rc = tm_text_status(&call.request, NULL);
    for (int i = 0; rc == 0 || rc == -(int)TM_EBUSY; i++) {
        if (i == 100000) {
            rc = -(int)TM_ETIMEOUT;
            break;
        }
        tm_http_server_serve(page->http);
        page->env->sleep_ms(page->env, 1);
        rc = tm_http_call_step(&call, &head, body, NULL);
        if (rc == 0) {
            rc = head.status;
            break;
        }
    }
    tm_http_call_deinit(&call);
    tm_tls_net_destroy(net);
    return rc;
}

static struct tm_tls *pinned_to(const struct tm_tls *server)
{
    char text[TM_TLS_FINGERPRINT_TEXT_MAX];
    uint8_t fingerprint[TM_TLS_FINGERPRINT_BYTES];
    struct tm_tls *tls = NULL;
    tm_tls_print_fingerprint(server, text);
    assert_true(tm_tls_read_fingerprint(text, fingerprint));
    assert_int_equal(tm_tls_create_client(fingerprint, &tls, NULL), 0);
    return tls;
}

static void test_talk(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_tls *server = NULL, *other = NULL, *again = NULL;
    struct page page;
    struct tm_text body;
    char text[TM_TLS_FINGERPRINT_TEXT_MAX], text_again[TM_TLS_FINGERPRINT_TEXT_MAX];
    tm_tempdir_make(&dir);
    struct tm_env *env = tm_env_real();
    assert_int_equal(tm_tls_load_or_make_server(env, tm_tempdir_path(&dir, "a"), no_names, &server, NULL), 0);
    assert_int_equal(tm_tls_load_or_make_server(env, tm_tempdir_path(&dir, "b"), no_names, &other, NULL), 0);
    assert_int_equal(tm_tls_load_or_make_server(env, tm_tempdir_path(&dir, "a"), no_names, &again, NULL), 0);
    tm_tls_print_fingerprint(server, text);
    tm_tls_print_fingerprint(again, text_again);
    assert_string_equal(text, text_again); /* made once */
    assert_int_equal(open_page(&page, env, server), 0);
    struct tm_tls *good = pinned_to(server);
    struct tm_tls *wrong = pinned_to(other);
    struct tm_tls *system = NULL;
    assert_int_equal(tm_tls_create_client(NULL, &system, NULL), 0);
    tm_text_init(&body, LARGE + 1);
    assert_int_equal(ask(&page, good, 0, &body), 200);
    assert_int_equal(body.length, LARGE / 16 * 16);
    assert_int_equal(strncmp(page.peer, "127.0.0.1:", 10), 0);
    tm_text_clear(&body);
    assert_int_equal(ask(&page, good, 6000, &body), 200);
    assert_int_equal(page.heard, 6000);
    page.heard = 1;
    assert_int_equal(ask(&page, wrong, 0, &body), -(int)TM_EPEER);
    assert_int_equal(ask(&page, system, 0, &body), -(int)TM_EPEER); /* nobody vouches for it */
    assert_int_equal(page.heard, 1);                                /* it was told nothing */
    tm_text_deinit(&body);
    close_page(&page);
    tm_tls_destroy(good);
    tm_tls_destroy(wrong);
    tm_tls_destroy(system);
    tm_tls_destroy(server);
    tm_tls_destroy(other);
    tm_tls_destroy(again);
    tm_tempdir_remove(&dir);
}

/* A plain request on the TLS port gets no answer, and the connection ends. */
static void test_noise(void **state)
{
    (void)state;
    static const char *const noise[] = {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "\x16\x03\x01\x40\x01zzzzzzzz",
                                        "\n"};
    struct tm_tempdir dir;
    struct tm_tls *server = NULL;
    struct page page;
    struct tm_env *env = tm_env_real();
    tm_tempdir_make(&dir);
    assert_int_equal(tm_tls_load_or_make_server(env, tm_tempdir_path(&dir, "a"), no_names, &server, NULL), 0);
    assert_int_equal(open_page(&page, env, server), 0);
    page.heard = 1;
    for (size_t i = 0; i < TM_COUNT(noise); i++) {
        struct tm_http_call call;
        struct tm_http_head head;
        struct tm_text body;
        int rc = -(int)TM_EBUSY;
        tm_text_init(&body, 4096);
        tm_http_call_init(&call, env, 8192);
        tm_text_puts(&call.request, noise[i]);
        assert_int_equal(tm_http_call_begin(&call, page.address, NULL), 0);
        for (int n = 0; rc == -(int)TM_EBUSY && n < 20000; n++) {
            tm_http_server_serve(page.http);
            env->sleep_ms(env, 1);
            rc = tm_http_call_step(&call, &head, &body, NULL);
        }
        assert_row(rc != 0 && rc != -(int)TM_EBUSY, "%zu: %d", i, rc);
        tm_http_call_deinit(&call);
        tm_text_deinit(&body);
    }
    assert_int_equal(page.heard, 1);
    close_page(&page);
    tm_tls_destroy(server);
    tm_tempdir_remove(&dir);
}

static void test_files(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_tls *tls = NULL;
    struct tm_error e = {.text = ""};
    struct tm_env *env = tm_env_real();
    char folder[512], other[512], certificate[600], key[600], other_key[600];
    tm_tempdir_make(&dir);
    (void)snprintf(folder, sizeof folder, "%s", tm_tempdir_path(&dir, "a"));
    (void)snprintf(other, sizeof other, "%s", tm_tempdir_path(&dir, "b"));
    assert_int_equal(tm_tls_load_or_make_server(env, folder, no_names, &tls, NULL), 0);
    tm_tls_destroy(tls);
    assert_int_equal(tm_tls_load_or_make_server(env, other, no_names, &tls, NULL), 0);
    tm_tls_destroy(tls);
    (void)snprintf(certificate, sizeof certificate, "%s/node.pem", folder);
    (void)snprintf(key, sizeof key, "%s/node.key", folder);
    (void)snprintf(other_key, sizeof other_key, "%s/node.key", other);
    assert_int_equal(tm_tls_load_server(env, key, key, &tls, &e), -(int)TM_EINPUT);
    assert_non_null(strstr(e.text, "not a certificate"));
    assert_int_equal(tm_tls_load_server(env, certificate, other_key, &tls, &e), -(int)TM_EINPUT);
    assert_non_null(strstr(e.text, "not the key"));
    assert_int_equal(tm_tls_load_server(env, "/nothing", key, &tls, &e), -(int)TM_ENOTFOUND);
    uint8_t print[TM_TLS_FINGERPRINT_BYTES];
    assert_false(tm_tls_read_fingerprint("AB:CD", print));
    assert_false(tm_tls_read_fingerprint("", print));
    assert_false(tm_tls_read_fingerprint("0g00000000000000000000000000000000000000000000000000000000000000", print));
    assert_true(tm_tls_read_fingerprint("0a00000000000000000000000000000000000000000000000000000000000000", print));
    assert_false(tm_tls_read_fingerprint("0a000000000000000000000000000000000000000000000000000000000000001", print));
    tm_tempdir_remove(&dir);
}

/* Nothing is left over, whatever fails. */
static void test_memory(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_tls *server = NULL, *client = NULL;
    struct tm_env *env = tm_env_real();
    struct page page;
    tm_tempdir_make(&dir);
    char folder[512];
    (void)snprintf(folder, sizeof folder, "%s", tm_tempdir_path(&dir, "a"));
    assert_int_equal(tm_tls_load_or_make_server(env, folder, no_names, &client, NULL), 0);
    tm_tls_destroy(client);
    TM_FAIL_EACH_ALLOC({
        rc = tm_tls_load_or_make_server(env, folder, no_names, &server, NULL);
        if (rc == 0) tm_tls_destroy(server);
    });
    assert_int_equal(tm_tls_load_or_make_server(env, folder, no_names, &server, NULL), 0);
    client = pinned_to(server);
    TM_FAIL_EACH_ALLOC({
        rc = open_page(&page, env, server);
        close_page(&page);
    });
    tm_tls_destroy(client);
    tm_tls_destroy(server);
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(test_talk), TM_TEST(test_noise), TM_TEST(test_files), TM_TEST(test_memory))
