/* Links over real sockets on loopback, plain and with TLS. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "wire/link_proof.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>

struct heard {
    int count;
    uint64_t nonce;
    struct tm_peer from;
    int lost;
};

static void hear(void *context, const tm_message *message)
{
    struct heard *heard = context;
    heard->count++;
    heard->nonce = message->challenge->nonce;
    heard->from = tm_message_sender(message);
}

static void lose(void *context, const struct tm_peer *peer)
{
    (void)peer;
    ((struct heard *)context)->lost++;
}

static void say(struct tm_links *links, const struct tm_peer *from, const struct tm_peer *to, const char *address,
                uint64_t nonce)
{
    Tmw__Challenge body = TMW__CHALLENGE__INIT;
    tm_message message = tm_message_make(1, from, to);
    struct tm_text text;
    body.nonce = nonce;
    message.body_case = TMW__ENVELOPE__BODY_CHALLENGE;
    message.challenge = &body;
    tm_text_init(&text, 4096);
    tm_message_pack(&message, &text);
    tm_links_send(links, to, address, text.data, text.length);
    tm_text_deinit(&text);
}

/* Lets both sides get on until something was heard, or they had time enough. */
static void exchange(struct tm_links *a, struct heard *at_a, struct tm_links *b, struct heard *at_b, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        struct tm_links_waiting waiting;
        tm_links_take(a, hear, at_a);
        tm_links_note(b, 5, &waiting);
        tm_links_wait(b, &waiting);
        tm_links_take(b, hear, at_b);
        if (at_a->count + at_b->count > 0) return;
    }
}

static const struct tm_peer first = {.role = TM_ROLE_WORKER, .id = 1, .incarnation = 11};
static const struct tm_peer second = {.role = TM_ROLE_WORKER, .id = 2, .incarnation = 22};

static void talk(struct tm_tls *tls_a, struct tm_tls *tls_b, bool works)
{
    struct tm_links *a = NULL;
    struct tm_links *b = NULL;
    struct heard at_a = {0};
    struct heard at_b = {0};
    struct tm_error e;
    assert_int_equal(tm_links_create(tm_env_real(), "127.0.0.1:0", tls_a, "secret", &a, &e), 0);
    assert_int_equal(tm_links_create(tm_env_real(), "127.0.0.1:0", tls_b, "secret", &b, &e), 0);
    tm_links_on_lost(b, lose, &at_b);
    say(a, &first, &second, tm_links_address(b), 77);
    exchange(a, &at_a, b, &at_b, works ? 2000 : 40);
    assert_int_equal(at_b.count, works ? 1 : 0);
    if (works) {
        assert_int_equal(at_b.nonce, 77);
        assert_true(tm_peer_equal(&at_b.from, &first));
        at_b.count = 0;
        say(b, &second, &first, NULL, 88); /* back over the same connection: no address is needed */
        exchange(a, &at_a, b, &at_b, 2000);
        assert_int_equal(at_a.nonce, 88);
        tm_links_destroy(a);
        a = NULL;
        for (int i = 0; i < 2000 && at_b.lost == 0; i++) {
            struct tm_links_waiting waiting;
            tm_links_note(b, 5, &waiting);
            tm_links_wait(b, &waiting);
            tm_links_take(b, hear, &at_b);
        }
        assert_int_equal(at_b.lost, 1);
    }
    tm_links_destroy(a);
    tm_links_destroy(b);
}

static void test_plain(void **state)
{
    (void)state;
    talk(NULL, NULL, true);
}

static void test_tls(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_error e = {0};
    struct tm_tls *ours = NULL;
    struct tm_tls *others = NULL;
    tm_tempdir_make(&dir);
    struct tm_env *env = tm_env_real();
    char here[512];
    char there[512];
    (void)snprintf(here, sizeof here, "%s", tm_tempdir_path(&dir, "here"));
    (void)snprintf(there, sizeof there, "%s", tm_tempdir_path(&dir, "there"));
    assert_row(tm_tls_make_job(env, here, &e) == 0, "%s", e.text);
    assert_int_equal(tm_tls_make_job(env, here, &e), -(int)TM_EEXISTS);
    assert_int_equal(tm_tls_make_job(env, there, &e), 0);
    struct stat status;
    assert_int_equal(stat(tm_tempdir_path(&dir, "here/ca.key"), &status), -1); /* nobody can make another */
    assert_int_equal(stat(tm_tempdir_path(&dir, "here/node.key"), &status), 0);
    assert_int_equal(status.st_mode & 0077, 0); /* for the owner alone */
    assert_row(tm_tls_load(env, here, &ours, &e) == 0, "%s", e.text);
    assert_int_equal(tm_tls_load(env, there, &others, &e), 0);
    talk(ours, ours, true);
    talk(others, ours, false); /* of another job */
    talk(NULL, ours, false);   /* no TLS at all */
    tm_tls_destroy(ours);
    tm_tls_destroy(others);
    assert_int_equal(tm_tls_load(env, "/nowhere", &ours, &e), -(int)TM_ENOTFOUND);
    tm_tempdir_remove(&dir);
}

/* Each member has a key of its own; those of one authority talk, and one of another's is shown out, though it has the
 * token. */
static void test_a_key_each(void **state)
{
    (void)state;
    static const char *const members[] = {"/a/one", "/a/two", "/b/one"};
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_tls_authority *authorities[2] = {NULL, NULL};
    struct tm_tls *tls[3] = {NULL, NULL, NULL};
    struct tm_text keys[3];
    struct tm_error e = {0};
    char path[64];
    assert_non_null(env);
    for (size_t i = 0; i < 2; i++)
        assert_row(tm_tls_authority_create(env, &authorities[i], &e) == 0, "%s", e.text);
    for (size_t i = 0; i < 3; i++) {
        const struct tm_tls_member member = {.subject = "member", .names = {TM_TLS_COORDINATOR}};
        assert_row(tm_tls_authority_issue(authorities[i / 2], env, members[i], &member, &e) == 0, "%s", e.text);
        assert_row(tm_tls_load(env, members[i], &tls[i], &e) == 0, "%s", e.text);
        (void)snprintf(path, sizeof path, "%s/node.key", members[i]);
        tm_text_init(&keys[i], 4096);
        assert_int_equal(env->file_read(env, path, &keys[i], NULL), 0);
    }
    assert_string_not_equal(tm_text_string(&keys[0]), tm_text_string(&keys[1]));
    talk(tls[0], tls[1], true);
    talk(tls[2], tls[1], false);
    for (size_t i = 0; i < 3; i++) {
        tm_text_deinit(&keys[i]);
        tm_tls_destroy(tls[i]);
    }
    for (size_t i = 0; i < 2; i++)
        tm_tls_authority_destroy(authorities[i]);
    tm_env_virtual_destroy(env);
}

/* ---- names of certificates ---- */

static bool pump(struct tm_tls_session *from, struct tm_tls_session *to, struct tm_text *plain)
{
    struct tm_text raw;
    tm_text_init(&raw, 1 << 20);
    tm_tls_session_output(from, &raw);
    int rc = raw.length == 0 ? 0 : tm_tls_session_input(to, raw.data, raw.length, plain);
    tm_text_deinit(&raw);
    return rc == 0;
}

/* One who asks for a name, or for a host, of one who has that certificate. */
static bool is_trusted(struct tm_tls *client_tls, struct tm_tls *server_tls, const char *name, const char *host)
{
    struct tm_tls_session *client = tm_tls_session_create(client_tls, false, name, host);
    struct tm_tls_session *server = tm_tls_session_create(server_tls, true, NULL, NULL);
    struct tm_text heard;
    bool good = true;
    assert_non_null(client);
    assert_non_null(server);
    tm_text_init(&heard, 1 << 16);
    assert_int_equal(tm_tls_session_write(client, "hello", 5), 0);
    for (int i = 0; good && i < 10 && heard.length < 5; i++)
        good = pump(client, server, &heard) && pump(server, client, &heard);
    good = good && heard.length == 5;
    tm_text_deinit(&heard);
    tm_tls_session_destroy(client);
    tm_tls_session_destroy(server);
    return good;
}

static X509 *read_certificate(struct tm_env *env, const char *path)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 16);
    assert_int_equal(env->file_read(env, path, &text, NULL), 0);
    BIO *memory = BIO_new_mem_buf(tm_text_string(&text), -1);
    X509 *certificate = PEM_read_bio_X509(memory, NULL, NULL, NULL);
    (void)BIO_free(memory);
    tm_text_deinit(&text);
    assert_non_null(certificate);
    return certificate;
}

/* A member's certificate is for its own names: none passes for the coordinator. */
static void test_names_of_certificates(void **state)
{
    (void)state;
    enum { COORDINATOR, INSTANCE, NAMELESS, MEMBERS };
    static const struct tm_tls_member members[MEMBERS] = {
        {"coordinator", {TM_TLS_COORDINATOR, "trainer.example.org", "10.0.0.1", "0.0.0.0"}, 0},
        {"instance", {"instance-1.tidemill", "a,DNS:" TM_TLS_COORDINATOR, "fe80::1%eth0", "fd00::5"}, 0},
        {TM_TLS_COORDINATOR, {NULL}, 0}}; /* a subject is no name */
    static const char *const folders[MEMBERS] = {"/coordinator", "/instance", "/nameless"};
    static const struct {
        int server;
        const char *name, *host;
        bool works;
    } rows[] = {{COORDINATOR, NULL, NULL, true},
                {COORDINATOR, TM_TLS_COORDINATOR, NULL, true},
                {COORDINATOR, TM_TLS_COORDINATOR, "elsewhere.example.org", true},
                {COORDINATOR, NULL, "trainer.example.org", true},
                {COORDINATOR, NULL, "elsewhere.example.org", false},
                {INSTANCE, NULL, NULL, true},
                {INSTANCE, TM_TLS_COORDINATOR, NULL, false},
                {INSTANCE, TM_TLS_COORDINATOR, "trainer.example.org", false},
                {NAMELESS, NULL, NULL, true},
                {NAMELESS, TM_TLS_COORDINATOR, NULL, false}};
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_tls_authority *authority = NULL;
    struct tm_tls *tls[MEMBERS];
    struct tm_error e = {0};
    assert_row(tm_tls_authority_create(env, &authority, &e) == 0, "%s", e.text);
    for (int i = 0; i < MEMBERS; i++) {
        assert_row(tm_tls_authority_issue(authority, env, folders[i], &members[i], &e) == 0, "%s", e.text);
        assert_row(tm_tls_load(env, folders[i], &tls[i], &e) == 0, "%s", e.text);
    }
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(is_trusted(tls[INSTANCE], tls[rows[i].server], rows[i].name, rows[i].host) == rows[i].works,
                   "row %zu", i);
    X509 *certificate = read_certificate(env, "/coordinator/node.pem");
    assert_int_equal(X509_check_ip_asc(certificate, "10.0.0.1", 0), 1);
    assert_int_equal(X509_check_ip_asc(certificate, "0.0.0.0", 0), 0);
    X509_free(certificate);
    certificate = read_certificate(env, "/instance/node.pem");
    assert_int_equal(X509_check_ip_asc(certificate, "fd00::5", 0), 1);
    X509_free(certificate);
    for (int i = 0; i < MEMBERS; i++)
        tm_tls_destroy(tls[i]);
    tm_tls_authority_destroy(authority);
    tm_env_virtual_destroy(env);
}

static void test_only_loopback_without_tls(void **state)
{
    (void)state;
    struct tm_links *links = NULL;
    struct tm_error e = {0};
    assert_int_equal(tm_links_create(tm_env_real(), "0.0.0.0:0", NULL, "secret", &links, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "needs TLS");
    static const struct {
        const char *address;
        bool loopback;
    } rows[] = {{"127.0.0.1:80", true}, {"localhost:1", true}, {"[::1]:9", true},
                {"0.0.0.0:80", false},  {"10.0.0.1:7", false}, {"127x.example:1", false}};
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_address_is_loopback(rows[i].address) == rows[i].loopback, "%s", rows[i].address);
}

/* What is not our protocol closes the connection; a message that claims too much does, too. */
static void test_garbage(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_links *links = NULL;
    struct heard heard = {0};
    static const char *const pieces[] = {"GET / HTTP/1.1\r\n\r\n", "\377\377\377\377", "\4\0\0\0abcd"};
    assert_int_equal(tm_links_create(env, "127.0.0.1:0", NULL, "secret", &links, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(pieces); i++) {
        int handle = -1;
        size_t sent = 0;
        size_t got = 1;
        char byte;
        assert_int_equal(env->net_connect(env, tm_links_address(links), &handle, NULL), 0);
        size_t length = i == 1 ? 4 : i == 2 ? 8 : strlen(pieces[i]);
        assert_int_equal(env->net_send(env, handle, pieces[i], length, &sent, NULL), 0);
        int rc = -(int)TM_EBUSY;
        for (int round = 0; round < 1000 && rc == -(int)TM_EBUSY; round++) {
            struct tm_links_waiting waiting;
            tm_links_note(links, 5, &waiting);
            tm_links_wait(links, &waiting);
            tm_links_take(links, hear, &heard);
            rc = env->net_receive(env, handle, &byte, 1, &got, NULL);
        }
        assert_row(rc != -(int)TM_EBUSY && (rc != 0 || got == 0), "piece %zu is not refused", i);
        env->net_close(env, handle);
    }
    assert_int_equal(heard.count, 0);
    tm_links_destroy(links);
}

static int knock(struct tm_env *env, const struct tm_links *links)
{
    int handle = -1;
    assert_int_equal(env->net_connect(env, tm_links_address(links), &handle, NULL), 0);
    return handle;
}

/* What comes on a connection that a test made itself. */
static size_t listen_to(struct tm_env *env, int handle, char *buffer, size_t size)
{
    size_t got = 0;
    return env->net_receive(env, handle, buffer, size, &got, NULL) == 0 ? got : 0;
}

/* A well-formed first frame in a member's name, from one who does not know the token: the member's connection stays,
 * nothing is heard and nothing is answered; and who connects to such a one tells it nothing either. */
static void test_impostor(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_links *a = NULL;
    struct tm_links *b = NULL;
    struct heard at_a = {0};
    struct heard at_b = {0};
    struct tm_text text, frame;
    Tmw__Challenge body = TMW__CHALLENGE__INIT;
    const struct tm_peer later = {.role = first.role, .id = first.id, .incarnation = first.incarnation + 1};
    char buffer[4096];
    char address[TM_ADDRESS_MAX];
    int listener = -1;
    size_t sent = 0;
    assert_int_equal(tm_links_create(env, "127.0.0.1:0", NULL, "the secret", &a, NULL), 0);
    assert_int_equal(tm_links_create(env, "127.0.0.1:0", NULL, "the secret", &b, NULL), 0);
    tm_links_on_lost(b, lose, &at_b);
    say(a, &first, &second, tm_links_address(b), 76);
    exchange(a, &at_a, b, &at_b, 10);
    assert_int_equal(at_b.nonce, 76);
    tm_message message = tm_message_make(1, &later, &second);
    message.body_case = TMW__ENVELOPE__BODY_CHALLENGE;
    message.challenge = &body;
    tm_text_init(&text, 4096);
    tm_text_init(&frame, 4096);
    tm_message_pack(&message, &text);
    tm_frame_append(&frame, text.data, text.length);
    for (int greets = 0; greets < 2; greets++) { /* the frame at once, and after a greeting that it can make */
        int handle = knock(env, b);
        tm_text_clear(&text);
        if (greets) tm_text_append(&text, "TMLINK01................................", 40);
        if (greets) tm_text_append(&text, "a proof of 32 bytes, made up....", 32);
        tm_text_append(&text, frame.data, frame.length);
        for (int i = 0; i < 6; i++) /* more than one would need */
            tm_text_append(&text, frame.data, frame.length);
        assert_int_equal(env->net_send(env, handle, text.data, text.length, &sent, NULL), 0);
        at_b = (struct heard){0};
        for (int i = 0; i < 5; i++)
            tm_links_take(b, hear, &at_b);
        assert_int_equal(at_b.count, 0);
        assert_int_equal(at_b.lost, 0);
        size_t got = listen_to(env, handle, buffer, sizeof buffer);
        assert_int_equal(got, 0);
        say(b, &second, &first, NULL, 80 + (uint64_t)greets); /* what is meant for the member gets to it */
        at_a = (struct heard){0};
        exchange(a, &at_a, b, &at_b, 10);
        assert_int_equal(at_a.nonce, 80 + greets);
        assert_int_equal(listen_to(env, handle, buffer, sizeof buffer), 0);
        env->net_close(env, handle);
    }
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &listener, address, NULL), 0);
    say(a, &first, &(struct tm_peer){.role = TM_ROLE_COORDINATOR}, address, 90);
    int handle = -1;
    assert_int_equal(env->net_accept(env, listener, &handle, NULL), 0);
    assert_int_equal(env->net_send(env, handle, text.data, text.length, &sent, NULL), 0);
    size_t got = listen_to(env, handle, buffer, sizeof buffer);
    assert_int_equal(got, TM_LINK_MAGIC_BYTES + TM_LINK_NONCE_BYTES);
    for (int i = 0; i < 5; i++)
        tm_links_take(a, hear, &at_a);
    assert_int_equal(listen_to(env, handle, buffer, sizeof buffer), 0);
    assert_non_null(strstr(tm_links_trouble(a), "does not know this job's token"));
    env->net_close(env, handle);
    env->net_close(env, listener);
    tm_text_deinit(&text);
    tm_text_deinit(&frame);
    tm_links_destroy(a);
    tm_links_destroy(b);
    tm_env_virtual_destroy(env);
}

/* An address that never answers keeps nobody from talking to others meanwhile, and it is told what is the matter. */
static void test_an_address_that_never_answers(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_links *a = NULL;
    struct tm_links *b = NULL;
    struct heard at_a = {0};
    struct heard at_b = {0};
    struct tm_peer third = {.role = TM_ROLE_WORKER, .id = 3, .incarnation = 33};
    assert_int_equal(tm_links_create(env, "127.0.0.1:0", NULL, "secret", &a, NULL), 0);
    assert_int_equal(tm_links_create(env, "[::1]:0", NULL, "secret", &b, NULL), 0);
    tm_env_virtual_never_answer(env, "127.0.0.9:9");
    tm_env_virtual_set_connect_ms(env, 20);
    int64_t began_ms = env->now_ms(env);
    say(a, &first, &third, "127.0.0.9:9", 1);
    assert_int_equal(env->now_ms(env), began_ms); /* nobody waited */
    for (uint64_t tick = 1; tick <= 20; tick++) {
        say(a, &first, &third, "127.0.0.9:9", tick);
        say(a, &first, &second, tm_links_address(b), tick);
        tm_env_virtual_advance(env, 100);
        at_b.count = 0;
        exchange(a, &at_a, b, &at_b, 10);
        assert_row(at_b.nonce == tick, "tick %d: %d came", (int)tick, (int)at_b.nonce);
    }
    assert_string_equal(tm_links_trouble(a), "");
    at_b.count = 0;
    tm_env_virtual_advance(env, TM_CONNECT_LIMIT_MS);
    exchange(a, &at_a, b, &at_b, 10);
    assert_string_equal(tm_links_trouble(a), "127.0.0.9:9: no answer in time");
    tm_links_destroy(a);
    tm_links_destroy(b);
    tm_env_virtual_destroy(env);
}

/* A name that takes longer to look up than a proof may: the time for that begins when the connection is there. */
static void test_a_slow_name(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_links *a = NULL;
    struct tm_links *b = NULL;
    struct heard at_a = {0};
    struct heard at_b = {0};
    assert_int_equal(tm_links_create(env, NULL, NULL, "secret", &a, NULL), 0);
    assert_int_equal(tm_links_create(env, "127.0.0.1:0", NULL, "secret", &b, NULL), 0);
    tm_env_virtual_set_connect_ms(env, TM_LINK_PROOF_LIMIT_MS + 1000);
    for (int waited_ms = 0; waited_ms <= TM_LINK_PROOF_LIMIT_MS + 1000; waited_ms += 500) {
        say(a, &first, &second, tm_links_address(b), 7);
        exchange(a, &at_a, b, &at_b, 10);
        tm_env_virtual_advance(env, 500);
    }
    exchange(a, &at_a, b, &at_b, 10);
    assert_true(at_b.count > 0 && at_b.nonce == 7);
    assert_string_equal(tm_links_trouble(a), "");
    tm_links_destroy(a);
    tm_links_destroy(b);
    /* one that is connected and says nothing is given up as before */
    int silent = -1;
    char bound[TM_ADDRESS_MAX];
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &silent, bound, NULL), 0);
    assert_int_equal(tm_links_create(env, NULL, NULL, "secret", &a, NULL), 0);
    say(a, &first, &second, bound, 8);
    tm_env_virtual_advance(env, TM_LINK_PROOF_LIMIT_MS + 1000);
    tm_links_take(a, hear, &at_a);
    assert_string_equal(tm_links_trouble(a), "");
    tm_env_virtual_advance(env, TM_LINK_PROOF_LIMIT_MS + 1);
    tm_links_take(a, hear, &at_a);
    assert_non_null(strstr(tm_links_trouble(a), ": no answer"));
    tm_links_destroy(a);
    env->net_close(env, silent);
    tm_env_virtual_destroy(env);
}

/* Whoever has proven nothing keeps no memory and no place: few bytes of it are read, it has little time, and the oldest
 * goes where there are many. */
static void test_unproven(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_links *links = NULL;
    struct heard heard = {0};
    static char much[1 << 16];
    int handles[60];
    char byte[8];
    assert_int_equal(tm_links_create(env, "127.0.0.1:0", NULL, "secret", &links, NULL), 0);
    memcpy(much, "\0\0\77\0TMLINK01", 12); /* a frame of 4 MB that never ends */
    for (size_t i = 0; i < TM_COUNT(handles); i++) {
        size_t sent = 0;
        handles[i] = knock(env, links);
        assert_int_equal(env->net_send(env, handles[i], much, sizeof much, &sent, NULL), 0);
    }
    size_t before = tm_env_virtual_handles(env);
    for (int i = 0; i < 200; i++)
        tm_links_take(links, hear, &heard);
    assert_int_equal(tm_env_virtual_handles(env), before); /* all were shown out: what is left is our ends */
    for (size_t i = 0; i < TM_COUNT(handles); i++)
        env->net_close(env, handles[i]);
    before = tm_env_virtual_handles(env);
    int slow = knock(env, links);
    size_t sent = 0;
    assert_int_equal(env->net_send(env, slow, "TMLINK01", 8, &sent, NULL), 0);
    tm_links_take(links, hear, &heard);
    tm_env_virtual_advance(env, TM_LINK_PROOF_LIMIT_MS - 1);
    tm_links_take(links, hear, &heard);
    assert_int_equal(tm_env_virtual_handles(env), before + 2);
    tm_env_virtual_advance(env, 2);
    tm_links_take(links, hear, &heard);
    assert_int_equal(tm_env_virtual_handles(env), before + 1); /* its time is over */
    env->net_close(env, slow);
    for (int i = 0; i < 3 * TM_LINKS_UNPROVEN_MAX; i++) {
        (void)knock(env, links);
        tm_links_take(links, hear, &heard);
    }
    assert_int_equal(tm_env_virtual_handles(env), before + 4 * TM_LINKS_UNPROVEN_MAX); /* ours, and a third of theirs */
    assert_int_equal(listen_to(env, handles[0], byte, sizeof byte), 0);
    tm_links_destroy(links);
    tm_env_virtual_destroy(env);
}

static void rounds(struct tm_links *a, struct tm_links *b, struct heard *at_b)
{
    struct heard at_a = {0};
    for (int i = 0; i < 200; i++) {
        tm_links_take(a, hear, &at_a);
        tm_links_take(b, hear, at_b);
    }
}

/* Strangers who connect and say nothing, more of them than there are places, keep no member out. */
static void test_flood(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_links *a = NULL;
    struct tm_links *b = NULL;
    struct heard at_b = {0};
    assert_non_null(env);
    assert_int_equal(tm_links_create(env, "127.0.0.1:0", NULL, "secret", &a, NULL), 0);
    assert_int_equal(tm_links_create(env, "127.0.0.1:0", NULL, "secret", &b, NULL), 0);
    say(a, &first, &second, tm_links_address(b), 76); /* a member from before */
    rounds(a, b, &at_b);
    assert_int_equal(at_b.count, 1);
    for (int i = 0; i < TM_LINKS_MAX + 20; i++) {
        int handle = 0;
        assert_int_equal(env->net_connect(env, tm_links_address(b), &handle, NULL), 0);
        if (i % 64 == 0) tm_links_take(b, hear, &at_b);
    }
    const struct tm_peer third = {.role = TM_ROLE_AGENT, .id = 3, .incarnation = 33};
    say(a, &third, &(struct tm_peer){.role = TM_ROLE_COORDINATOR}, tm_links_address(b), 77);
    rounds(a, b, &at_b);
    assert_int_equal(at_b.count, 2);
    say(a, &first, &second, NULL, 78); /* and the one from before is still there */
    rounds(a, b, &at_b);
    assert_int_equal(at_b.nonce, 78);
    tm_links_destroy(a);
    tm_links_destroy(b);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_an_address_that_never_answers), TM_TEST(test_a_slow_name), TM_TEST(test_plain),
             TM_TEST(test_tls), TM_TEST(test_a_key_each), TM_TEST(test_names_of_certificates),
             TM_TEST(test_only_loopback_without_tls), TM_TEST(test_garbage), TM_TEST(test_impostor),
             TM_TEST(test_unproven), TM_TEST(test_flood))
