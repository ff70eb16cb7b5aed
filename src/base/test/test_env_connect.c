/* Connections that are being made: nothing waits for them, and how they end is told in words. All on loopback: an
 * address that never answers is a listener whose queue is full. */
#include "base/env_internal.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/test/harness.h"

#include <arpa/inet.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LONG_MS = 30000, TICKS = 50, FILL = 3, LOOKUPS = 4 };

/* ---- names of our own ---- */

static struct {
    const char *addresses[4]; /* ends in NULL */
    int failure;              /* of getaddrinfo, instead */
    bool hangs;               /* until `go` */
    sem_t asked;
    sem_t go;
    sem_t answered;
} names;

static int find_name(const char *port, struct addrinfo **out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo **end = out;
    if (names.failure != 0) return names.failure;
    for (size_t i = 0; names.addresses[i] != NULL; i++) {
        if (getaddrinfo(names.addresses[i], port, &hints, end) != 0) return EAI_FAIL;
        end = &(*end)->ai_next;
    }
    return 0;
}

static int look_up_here(const char *host, const char *port, struct addrinfo **out)
{
    (void)host;
    (void)sem_post(&names.asked);
    if (names.hangs) (void)sem_wait(&names.go);
    int failed = find_name(port, out);
    (void)sem_post(&names.answered);
    return failed;
}

/* So many that hang may go on, and are gone when this returns. */
static void let_go(int count)
{
    for (int i = 0; i < count; i++)
        (void)sem_post(&names.go);
    for (int i = 0; i < count; i++)
        (void)sem_wait(&names.answered);
}

static struct tm_env__connecting before;
static long live_before;

static int set_up(void **state)
{
    (void)state;
    live_before = tm_alloc_live();
    before = tm_env__connecting;
    memset(&names, 0, sizeof names);
    (void)sem_init(&names.asked, 0, 0);
    (void)sem_init(&names.go, 0, 0);
    (void)sem_init(&names.answered, 0, 0);
    tm_env__connecting.look_up = look_up_here;
    return 0;
}

/* Attempts that were given up go in a thread of their own: the next test must not count them. */
static int tear_down(void **state)
{
    (void)state;
    while (tm_alloc_live() > live_before)
        (void)sched_yield();
    tm_env__connecting = before;
    return 0;
}

/* ---- listeners ---- */

static int port_of(const char *address)
{
    return atoi(strrchr(address, ':') + 1);
}

struct silent { /* accepts nothing, and its queue is full */
    int listener;
    int queued[FILL];
    char address[TM_ADDRESS_MAX];
};

static void make_silent(struct silent *out, const char *host, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t length = sizeof address;
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    out->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(out->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(out->listener, 0), 0);
    assert_int_equal(getsockname(out->listener, (struct sockaddr *)&address, &length), 0);
    for (size_t i = 0; i < FILL; i++) {
        out->queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(out->queued[i], (struct sockaddr *)&address, sizeof address);
    }
    (void)snprintf(out->address, sizeof out->address, "%s:%d", host, (int)ntohs(address.sin_port));
}

static void end_silent(struct silent *silent)
{
    for (size_t i = 0; i < FILL; i++)
        (void)close(silent->queued[i]);
    (void)close(silent->listener);
}

/* A loop has its turns while the connection is being made. */
static void assert_loop_goes_on(struct tm_env *env, int handle)
{
    char byte = 0;
    size_t done = 0;
    for (int tick = 0; tick < TICKS; tick++) {
        struct tm_watch watch = {.handle = handle, .want = TM_WATCH_BOTH};
        assert_row(env->net_watch(env, &watch, 1, 0, NULL) == -(int)TM_ETIMEOUT, "tick %d: ready", tick);
        assert_row(env->net_send(env, handle, "x", 1, &done, NULL) == -(int)TM_EBUSY, "tick %d: sent", tick);
        assert_row(env->net_receive(env, handle, &byte, 1, &done, NULL) == -(int)TM_EBUSY, "tick %d: received", tick);
    }
}

static void assert_ends(struct tm_env *env, int handle, const char *words)
{
    struct tm_error e = {0};
    struct tm_watch watch = {.handle = handle, .want = TM_WATCH_BOTH};
    size_t done = 0;
    char byte = 0;
    assert_int_equal(env->net_watch(env, &watch, 1, LONG_MS, NULL), 0);
    assert_int_equal(env->net_send(env, handle, "x", 1, &done, &e), -(int)TM_EPEER);
    assert_error_has(e, words);
    assert_int_equal(env->net_receive(env, handle, &byte, 1, &done, &e), -(int)TM_EPEER);
    assert_error_has(e, words);
    env->net_close(env, handle);
}

static void assert_carries(struct tm_env *env, int listener, int near)
{
    int far = -1;
    size_t done = 0;
    char text[4] = "";
    bool ready = false;
    int rc = 0;
    struct tm_error e = {0};
    assert_int_equal(env->net_wait_send(env, near, LONG_MS, NULL), 0);
    assert_row(env->net_send(env, near, "hi", 2, &done, &e) == 0, "%s", e.text);
    while ((rc = env->net_accept(env, listener, &far, NULL)) == -(int)TM_EBUSY)
        assert_int_equal(env->net_wait(env, &listener, 1, LONG_MS, &ready, NULL), 0);
    assert_int_equal(rc, 0);
    assert_int_equal(env->net_wait(env, &far, 1, LONG_MS, &ready, NULL), 0);
    assert_int_equal(env->net_receive(env, far, text, sizeof text, &done, NULL), 0);
    assert_int_equal(done, 2);
    assert_int_equal(env->net_receive(env, near, text, 1, &done, NULL), -(int)TM_EBUSY);
    env->net_close(env, near);
    env->net_close(env, far);
}

/* ---- tests ---- */

static void test_an_address_that_never_answers(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct silent silent;
    int handle = -1;
    make_silent(&silent, "127.0.0.1", 0);
    assert_int_equal(env->net_connect(env, silent.address, &handle, NULL), 0);
    assert_loop_goes_on(env, handle);
    env->net_close(env, handle); /* while it is being made */
    assert_int_equal(env->net_connect(env, silent.address, &handle, NULL), 0);
    env->net_shutdown(env, handle);
    assert_ends(env, handle, "it was ended before it was made");
    tm_env__connecting.limit_ms = 20;
    assert_int_equal(env->net_connect(env, silent.address, &handle, NULL), 0);
    char words[TM_ADDRESS_MAX + 64];
    (void)snprintf(words, sizeof words, "connecting to %s: no answer within 0.02 s", silent.address);
    assert_ends(env, handle, words);
    end_silent(&silent);
}

static void test_a_name_that_takes_its_time(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    char bound[TM_ADDRESS_MAX];
    char address[TM_ADDRESS_MAX];
    int listener = -1;
    int handle = -1;
    names.hangs = true;
    names.addresses[0] = "127.0.0.1";
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &listener, bound, NULL), 0);
    (void)snprintf(address, sizeof address, "somewhere:%d", port_of(bound));
    assert_int_equal(env->net_connect(env, address, &handle, NULL), 0);
    (void)sem_wait(&names.asked);
    assert_loop_goes_on(env, handle);
    let_go(1);
    assert_carries(env, listener, handle);
    /* given up while it is looked up; and one that is not found in time */
    assert_int_equal(env->net_connect(env, address, &handle, NULL), 0);
    (void)sem_wait(&names.asked);
    env->net_close(env, handle);
    tm_env__connecting.limit_ms = 20;
    int second = -1;
    assert_int_equal(env->net_connect(env, address, &second, NULL), 0);
    (void)sem_wait(&names.asked);
    assert_ends(env, second, "the name could not be resolved within 0.02 s");
    let_go(2);
    env->net_close(env, listener);
}

static void test_the_addresses_of_a_name(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    char bound[TM_ADDRESS_MAX];
    char address[TM_ADDRESS_MAX];
    int listener = -1;
    int handle = -1;
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &listener, bound, NULL), 0);
    (void)snprintf(address, sizeof address, "somewhere:%d", port_of(bound));
    /* the first refuses */
    names.addresses[0] = "127.0.0.2";
    names.addresses[1] = "127.0.0.1";
    assert_int_equal(env->net_connect(env, address, &handle, NULL), 0);
    assert_carries(env, listener, handle);
    /* the first says nothing */
    struct silent silent;
    make_silent(&silent, "127.0.0.2", port_of(bound));
    assert_int_equal(env->net_connect(env, address, &handle, NULL), 0);
    assert_carries(env, listener, handle);
    end_silent(&silent);
    /* all refuse */
    env->net_close(env, listener);
    assert_int_equal(env->net_connect(env, address, &handle, NULL), 0);
    assert_ends(env, handle, "none of its 2 addresses could be reached; the last: Connection refused");
    names.addresses[1] = NULL;
    assert_int_equal(env->net_connect(env, address, &handle, NULL), 0);
    assert_ends(env, handle, ": Connection refused");
}

static void test_names_that_are_not_known(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    int handle = -1;
    names.failure = EAI_NONAME;
    assert_int_equal(env->net_connect(env, "nowhere.invalid:7070", &handle, NULL), 0);
    assert_ends(env, handle,
                "connecting to nowhere.invalid:7070: the name cannot be resolved: Name or service not known");
    names.failure = EAI_AGAIN;
    assert_int_equal(env->net_connect(env, "nowhere.invalid:7070", &handle, NULL), 0);
    assert_ends(env, handle, "the name cannot be resolved: Temporary failure");
    names.failure = 0;
    assert_int_equal(env->net_connect(env, "nowhere.invalid:7070", &handle, NULL), 0);
    assert_ends(env, handle, "it has no address");
}

/* Shut down after it was made and before its owner has used it: it carries nothing any more. */
static void test_one_that_is_shut_down_when_made(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    char bound[TM_ADDRESS_MAX];
    char address[TM_ADDRESS_MAX];
    char byte = 0;
    size_t done = 1;
    int listener = -1;
    int near = -1;
    names.addresses[0] = "127.0.0.1";
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &listener, bound, NULL), 0);
    (void)snprintf(address, sizeof address, "somewhere:%d", port_of(bound));
    assert_int_equal(env->net_connect(env, address, &near, NULL), 0);
    assert_int_equal(env->net_wait_send(env, near, LONG_MS, NULL), 0);
    env->net_shutdown(env, near);
    assert_int_equal(env->net_send(env, near, "x", 1, &done, NULL), -(int)TM_EPEER);
    assert_int_equal(env->net_receive(env, near, &byte, 1, &done, NULL), 0);
    assert_int_equal(done, 0);
    env->net_close(env, near);
    env->net_close(env, listener);
}

/* An address needs no lookup; a name has a limit. */
static void test_names_to_listen_on(void **state)
{
    (void)state;
    static const char *const at_once[] = {"127.0.0.1:0", "localhost:0", "0.0.0.0:0"};
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    char bound[TM_ADDRESS_MAX];
    int handle = -1;
    names.failure = EAI_NONAME;
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++) {
        assert_row(env->net_listen(env, at_once[i], &handle, bound, &e) == 0, "%s: %s", at_once[i], e.text);
        env->net_close(env, handle);
    }
    assert_int_equal(sem_trywait(&names.asked), -1);
    assert_int_equal(env->net_listen(env, "nowhere.invalid:0", &handle, bound, &e), -(int)TM_EPEER);
    assert_error_has(e, "listening on nowhere.invalid:0: the name cannot be resolved: Name or service not known");
    names.failure = 0;
    names.addresses[0] = "127.0.0.1";
    assert_row(env->net_listen(env, "here:0", &handle, bound, &e) == 0, "%s", e.text);
    assert_row(strncmp(bound, "127.0.0.1:", 10) == 0, "%s", bound);
    env->net_close(env, handle);
    while (sem_trywait(&names.answered) == 0)
        continue;
    names.hangs = true;
    tm_env__connecting.limit_ms = 20;
    assert_int_equal(env->net_listen(env, "here:0", &handle, bound, &e), -(int)TM_EPEER);
    assert_error_has(e, "listening on here:0: the name could not be resolved within 0.02 s");
    let_go(1);
}

static void test_ipv6(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    char bound[TM_ADDRESS_MAX];
    char address[TM_ADDRESS_MAX];
    int listener = -1;
    int handle = -1;
    if (env->net_listen(env, "[::1]:0", &listener, bound, &e) != 0) {
        (void)fprintf(stderr, "skipped: %s\n", e.text);
        skip();
    }
    assert_row(strncmp(bound, "[::1]:", 6) == 0, "%s", bound);
    assert_int_equal(env->net_connect(env, bound, &handle, NULL), 0);
    assert_carries(env, listener, handle);
    names.addresses[0] = "::1";
    (void)snprintf(address, sizeof address, "somewhere:%d", port_of(bound));
    assert_int_equal(env->net_connect(env, address, &handle, NULL), 0);
    assert_carries(env, listener, handle);
    env->net_close(env, listener);
    assert_int_equal(env->net_connect(env, bound, &handle, &e), -(int)TM_EPEER);
    assert_error_has(e, "Connection refused");
}

static void test_a_bounded_number_at_once(void **state)
{
    (void)state;
    enum { MORE = 1025 };
    struct tm_env *env = tm_env_real();
    static int handles[MORE];
    struct tm_error e = {0};
    struct rlimit files;
    int count = 0;
    int rc = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    names.hangs = true;
    names.failure = EAI_NONAME;
    while (count < MORE && (rc = env->net_connect(env, "somewhere:1", &handles[count], &e)) == 0)
        count++;
    assert_row(rc == -(int)TM_ELIMIT || rc == -(int)TM_ENOMEM, "%d: %s", count, e.text);
    if (rc == -(int)TM_ELIMIT) assert_error_has(e, "1024 connections are being made already");
    for (int i = 0; i < LOOKUPS; i++) /* no more at once; the others wait for their turn */
        (void)sem_wait(&names.asked);
    while (count > 0)
        env->net_close(env, handles[--count]);
    let_go(LOOKUPS);
}

static int connect_once(void)
{
    struct tm_env *env = tm_env_real();
    int handle = -1;
    int rc = env->net_connect(env, "somewhere:1", &handle, NULL);
    if (rc == 0) assert_ends(env, handle, "the name cannot be resolved");
    return rc;
}

static int listen_once(void)
{
    struct tm_env *env = tm_env_real();
    char bound[TM_ADDRESS_MAX];
    int handle = -1;
    int rc = env->net_listen(env, "here:0", &handle, bound, NULL);
    if (rc == 0) env->net_close(env, handle);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    names.failure = EAI_NONAME;
    TM_FAIL_EACH_ALLOC(rc = connect_once());
    names.failure = 0;
    names.addresses[0] = "127.0.0.1";
    TM_FAIL_EACH_ALLOC(rc = listen_once());
}

static void test_addresses_in_words(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        const char *host; /* NULL: refused */
        const char *port; /* or the words of the refusal */
        bool loopback;
    } rows[] = {
        {"127.0.0.1:7070", "127.0.0.1", "7070", true},
        {"127.8.9.10:0", "127.8.9.10", "0", true},
        {"127.example.org:1", "127.example.org", "1", false},
        {"127.0.0.1.example.org:1", "127.0.0.1.example.org", "1", false},
        {"localhost:1", "localhost", "1", true},
        {"localhost.example.org:1", "localhost.example.org", "1", false},
        {"[::1]:65535", "::1", "65535", true},
        {"[::ffff:127.0.0.1]:1", "::ffff:127.0.0.1", "1", true},
        {"[2001:db8::1]:1", "2001:db8::1", "1", false},
        {"[fe80::1%eth0]:1", "fe80::1%eth0", "1", false},
        {"0.0.0.0:1", "0.0.0.0", "1", false},
        {"[::]:1", "::", "1", false},
        {"host:1", "host", "1", false},
        {"::1:7070", NULL, "write an IPv6 address in brackets: [::1]:7070", false},
        {"[::1]", NULL, "expected HOST:PORT", false},
        {"[]:1", NULL, "\"\" is no IPv6 address", false},
        {"[::1:70:x]:1", NULL, "\"::1:70:x\" is no IPv6 address", false},
        {"[host]:1", NULL, "\"host\" is no IPv6 address", false},
        {":1", NULL, "expected HOST:PORT", false},
        {"host", NULL, "expected HOST:PORT", false},
        {"host:", NULL, "the port must be a number from 0 to 65535", false},
        {"host:65536", NULL, "the port must be a number from 0 to 65535", false},
        {"host:-1", NULL, "the port must be a number from 0 to 65535", false},
        {"host:ssh", NULL, "the port must be a number from 0 to 65535", false},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        char host[TM_ADDRESS_MAX] = "";
        char port[TM_PORT_MAX] = "";
        char again[TM_ADDRESS_MAX];
        int rc = tm_address_split(rows[i].address, host, port, &e);
        assert_row(tm_address_is_loopback(rows[i].address) == rows[i].loopback, "%s", rows[i].address);
        if (rows[i].host == NULL) {
            assert_row(rc == -(int)TM_EUSAGE && strstr(e.text, rows[i].port) != NULL, "%s: %s", rows[i].address,
                       e.text);
            continue;
        }
        assert_row(rc == 0 && strcmp(host, rows[i].host) == 0 && strcmp(port, rows[i].port) == 0, "%s: %s %s",
                   rows[i].address, host, port);
        tm_address_join(host, port, again);
        assert_string_equal(again, rows[i].address);
        tm_address_of_host(host, port, again);
        assert_string_equal(again, rows[i].address);
        tm_address_of_host(rows[i].address, "9", again);
        assert_string_equal(again, rows[i].address);
    }
    assert_true(tm_host_is_any("0.0.0.0") && tm_host_is_any("::") && tm_host_is_any("[::]"));
    assert_false(tm_host_is_any("127.0.0.1") || tm_host_is_any("::1") || tm_host_is_any("host"));
}

#define NAME_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
/* What users give for an address, and what is told them. */
static void test_addresses_given(void **state)
{
    (void)state;
    static const struct {
        const char *given;
        const char *says; /* NULL: it is good */
    } rows[] = {{"127.0.0.1:99999", "the port must be a number from 0 to 65535"},
                {"::1:7070", "write an IPv6 address in brackets: [::1]:7070"},
                {"a b", "is no name or address"},
                {"", "is no name or address"},
                {"[::1]:7070", NULL},
                {"::", NULL},
                {"fd00::5", NULL},
                {"[fd00::5]", NULL},
                {"gpu-1.lab:0", NULL},
                {"gpu1", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_error e = {.text = ""};
        int rc = tm_address_check_given(rows[i].given, &e);
        assert_row((rc == 0) == (rows[i].says == NULL), "%s: %s", rows[i].given, e.text);
        assert_row(rows[i].says == NULL || strstr(e.text, rows[i].says) != NULL, "%s: %s", rows[i].given, e.text);
    }
    assert_int_equal(tm_host_check("gpu1:70000", NULL), -(int)TM_EUSAGE);
    assert_int_equal(tm_host_check("gpu1", NULL), 0);
}

TM_TEST_MAIN(TM_TEST(test_addresses_given), NAME_TEST(test_an_address_that_never_answers),
             NAME_TEST(test_a_name_that_takes_its_time), NAME_TEST(test_the_addresses_of_a_name),
             NAME_TEST(test_names_that_are_not_known), NAME_TEST(test_ipv6), NAME_TEST(test_a_bounded_number_at_once),
             NAME_TEST(test_without_memory), NAME_TEST(test_one_that_is_shut_down_when_made),
             NAME_TEST(test_names_to_listen_on), TM_TEST(test_addresses_in_words))
