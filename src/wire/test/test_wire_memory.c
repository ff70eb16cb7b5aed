/* Links and TLS with every allocation failing in turn, OpenSSL's own among them: a connection may be lost, and is made
 * again; no memory and no handle is left over. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <openssl/crypto.h>
#include <string.h>

/* ---- OpenSSL's allocations are ours ---- */

static void *openssl_alloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return size == 0 ? NULL : tm_alloc(size);
}

static void *openssl_realloc(void *old, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    if (size > 0) return tm_realloc(old, size);
    tm_free(old);
    return NULL;
}

static void openssl_free(void *memory, const char *file, int line)
{
    (void)file;
    (void)line;
    tm_free(memory);
}

__attribute__((constructor)) static void route_allocations(void)
{
    if (CRYPTO_set_mem_functions(openssl_alloc, openssl_realloc, openssl_free) != 1) __builtin_trap();
}

/* What OpenSSL keeps for this thread (texts of errors, random numbers) goes. */
static void settle(void)
{
    OPENSSL_thread_stop();
}

/* ---- TLS alone ---- */

static int pump(struct tm_tls_session *from, struct tm_tls_session *to, struct tm_text *plain)
{
    struct tm_text raw;
    tm_text_init(&raw, 1 << 20);
    tm_tls_session_output(from, &raw);
    int rc = raw.failed;
    if (rc == 0 && raw.length > 0) rc = tm_tls_session_input(to, raw.data, raw.length, plain);
    tm_text_deinit(&raw);
    return rc;
}

static int tls_talk(struct tm_env *env, struct tm_tls *tls)
{
    (void)env;
    struct tm_tls_session *client = tm_tls_session_create(tls, false, TM_TLS_COORDINATOR, NULL);
    struct tm_tls_session *server = tm_tls_session_create(tls, true, NULL, NULL);
    struct tm_text heard;
    tm_text_init(&heard, 1 << 16);
    int rc = client == NULL || server == NULL ? -(int)TM_ENOMEM : tm_tls_session_write(client, "hello", 5);
    for (int i = 0; rc == 0 && i < 10 && heard.length < 5; i++) {
        rc = pump(client, server, &heard);
        if (rc == 0) rc = pump(server, client, &heard);
    }
    if (rc == 0) rc = heard.failed;
    if (rc == 0) assert_memory_equal(heard.data, "hello", 5);
    tm_text_deinit(&heard);
    tm_tls_session_destroy(client);
    tm_tls_session_destroy(server);
    return rc;
}

static struct tm_env *make_world(struct tm_tls **out_tls)
{
    struct tm_env *env = tm_env_virtual_create(5);
    struct tm_error e = {.text = ""};
    assert_non_null(env);
    assert_row(tm_tls_make_job(env, "/job", &e) == 0, "%s", e.text);
    assert_row(tm_tls_load(env, "/job", out_tls, &e) == 0, "%s", e.text);
    for (int i = 0; i < 3; i++) /* what OpenSSL keeps for good is there from now on */
        assert_int_equal(tls_talk(env, *out_tls), 0);
    settle();
    return env;
}

/* Fails the 1st, 2nd, ... allocation, later only some: a handshake takes thousands, most of them OpenSSL's. A stream
 * may end for whatever reason OpenSSL found. */
static void fail_some(int (*talk)(struct tm_env *env, struct tm_tls *tls), struct tm_env *env, struct tm_tls *tls)
{
    int failed = 1;
    for (long n = 1; failed; n += 1 + n / 16) {
        long left = 0;
        for (int again = 0; again < 2; again++) { /* what is kept for good is kept once; a leak grows */
            long live = tm_alloc_live();
            tm_alloc_fail_at(n);
            int rc = talk(env, tls);
            failed = tm_alloc_failed();
            tm_alloc_fail_at(0);
            settle();
            assert_row(failed || rc == 0, "%d without a failure", rc);
            assert_int_equal(tm_env_virtual_handles(env), 0);
            left = tm_alloc_live() - live;
            if (left == 0) break;
        }
        assert_row(left == 0, "allocation %ld fails: %ld are left", n, left);
    }
}

static int load_again(struct tm_env *env, struct tm_tls *tls)
{
    struct tm_tls *again = NULL;
    (void)tls;
    int rc = tm_tls_load(env, "/job", &again, NULL);
    tm_tls_destroy(again);
    return rc;
}

static int make_again(struct tm_env *env, struct tm_tls *tls)
{
    (void)tls;
    int rc = tm_tls_make_job(env, "/other", NULL);
    static const char *const files[] = {"/other/ca.pem", "/other/node.key", "/other/node.pem"};
    for (size_t i = 0; i < TM_COUNT(files); i++)
        (void)env->file_remove(env, files[i], NULL);
    return rc;
}

static void test_tls(void **state)
{
    (void)state;
    struct tm_tls *tls = NULL;
    struct tm_env *env = make_world(&tls);
    fail_some(tls_talk, env, tls);
    fail_some(load_again, env, tls);
    fail_some(make_again, env, tls);
    tm_tls_destroy(tls);
    tm_env_virtual_destroy(env);
}

/* ---- links ---- */

static const struct tm_peer first = {.role = TM_ROLE_WORKER, .id = 1, .incarnation = 11};
static const struct tm_peer second = {.role = TM_ROLE_WORKER, .id = 2, .incarnation = 22};

static void hear(void *context, const tm_message *message)
{
    uint64_t *heard = context;
    *heard = message->challenge->nonce;
}

static void say(struct tm_links *links, const struct tm_peer *from, const struct tm_peer *to, const char *address)
{
    Tmw__Challenge body = TMW__CHALLENGE__INIT;
    tm_message message = tm_message_make(1, from, to);
    struct tm_text text;
    body.nonce = 77;
    message.body_case = TMW__ENVELOPE__BODY_CHALLENGE;
    message.challenge = &body;
    tm_text_init(&text, 4096);
    tm_message_pack(&message, &text);
    if (tm_text_status(&text, NULL) == 0) tm_links_send(links, to, address, text.data, text.length);
    tm_text_deinit(&text);
}

/* Says it again until it is heard, both ways. */
static int links_talk(struct tm_env *env, struct tm_tls *tls)
{
    struct tm_links *a = NULL;
    struct tm_links *b = NULL;
    uint64_t at_a = 0;
    uint64_t at_b = 0;
    int rc = tm_links_create(env, "127.0.0.1:0", tls, "secret", &a, NULL);
    if (rc == 0) rc = tm_links_create(env, "127.0.0.1:0", tls, "secret", &b, NULL);
    for (int i = 0; rc == 0 && (at_a == 0 || at_b == 0); i++) {
        assert_row(i < 60, "a failed allocation stops the talk for good");
        if (at_b == 0) say(a, &first, &second, tm_links_address(b));
        if (at_a == 0) say(b, &second, &first, tm_links_address(a));
        for (int k = 0; k < 4; k++) {
            tm_links_take(a, hear, &at_a);
            tm_links_take(b, hear, &at_b);
        }
        tm_env_virtual_advance(env, 250);
    }
    tm_links_destroy(a);
    tm_links_destroy(b);
    return rc;
}

static void test_links(void **state)
{
    (void)state;
    struct tm_tls *tls = NULL;
    struct tm_env *env = make_world(&tls);
    for (int i = 0; i < 4; i++) { /* the world's own table of handles is large enough from now on */
        assert_int_equal(links_talk(env, NULL), 0);
        assert_int_equal(links_talk(env, tls), 0);
    }
    settle();
    fail_some(links_talk, env, NULL); /* the proof is OpenSSL's work, too */
    fail_some(links_talk, env, tls);
    tm_tls_destroy(tls);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_tls), TM_TEST(test_links))
