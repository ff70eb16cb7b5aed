/* Probes over loopback: real sockets, real threads, servers in this process. */
#include "base/test/harness.h"
#include "wire/probe_internal.h"
#include "wire/tls.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct server {
    struct tm_probe_server options;
    pthread_t thread;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t bound;
    char address[TM_ADDRESS_MAX];
    int rc;
    struct tm_error e;
};

static void note_bound(void *context, const char *address)
{
    struct server *server = context;
    (void)pthread_mutex_lock(&server->lock);
    (void)snprintf(server->address, sizeof server->address, "%s", address);
    (void)pthread_cond_signal(&server->bound);
    (void)pthread_mutex_unlock(&server->lock);
}

static void *run_server(void *context)
{
    struct server *server = context;
    server->rc = tm_probe_serve(tm_env_real(), &server->options, &server->e);
    return NULL;
}

static struct server *start_server(struct tm_tls *tls)
{
    struct server *server = calloc(1, sizeof *server);
    assert_non_null(server);
    (void)pthread_mutex_init(&server->lock, NULL);
    (void)pthread_cond_init(&server->bound, NULL);
    server->options = (struct tm_probe_server){
        .address = "127.0.0.1:0", .tls = tls, .bound = note_bound, .context = server, .stop = &server->stop};
    assert_int_equal(pthread_create(&server->thread, NULL, run_server, server), 0);
    (void)pthread_mutex_lock(&server->lock);
    while (server->address[0] == '\0')
        (void)pthread_cond_wait(&server->bound, &server->lock);
    (void)pthread_mutex_unlock(&server->lock);
    return server;
}

static void stop_server(struct server *server)
{
    atomic_store(&server->stop, true);
    (void)pthread_join(server->thread, NULL);
    assert_int_equal(server->rc, 0);
    (void)pthread_cond_destroy(&server->bound);
    (void)pthread_mutex_destroy(&server->lock);
    free(server);
}

static struct tm_probe_report report;

static void count_progress(void *context, const char *what, double share)
{
    assert_true(what[0] != '\0' && share >= 0 && share <= 1);
    (*(int *)context)++;
}

/* n servers: every ordered pair once, the ring with what it gave together, and times of messages. */
static void check_report(size_t peers)
{
    size_t machines = peers + 1;
    size_t together = 0;
    bool seen[TM_PROBE_PEERS_MAX + 1][TM_PROBE_PEERS_MAX + 1] = {{false}};
    assert_int_equal(report.link_count, machines * peers);
    for (size_t i = 0; i < report.link_count; i++) {
        const struct tm_probe_link *link = &report.links[i];
        assert_true(link->from != link->to && link->from >= -1 && link->to < (int)peers);
        assert_false(seen[link->from + 1][link->to + 1]);
        seen[link->from + 1][link->to + 1] = true;
        assert_true(link->latency_ms > 0 && link->latency_ms < 10000);
        assert_true(link->rate > 0 && link->both > 0 && link->streams > 0);
        if (isnan(link->together)) continue;
        together++;
        assert_int_equal(link->to + 1, (link->from + 2) % (int)machines);
        assert_true(link->together > 0);
    }
    assert_int_equal(together, machines);
    for (size_t p = 0; p < peers; p++)
        assert_true(report.size_ms[p][0] > 0);
}

static void test_all_pairs(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 4; count++) {
        struct server *servers[4];
        const char *peers[4];
        int told = 0;
        struct tm_error e = {0};
        for (size_t i = 0; i < count; i++) {
            servers[i] = start_server(NULL);
            peers[i] = servers[i]->address;
        }
        struct tm_probe_request request = {.peers = peers,
                                           .peer_count = count,
                                           .duration_ms = 20,
                                           .streams = 2,
                                           .progress = count_progress,
                                           .context = &told};
        int rc = tm_probe_run(tm_env_real(), &request, &report, &e);
        assert_row(rc == 0, "%zu peers: %s", count, e.text);
        check_report(count);
        assert_true(told > 0);
        for (size_t i = 0; i < count; i++)
            stop_server(servers[i]);
    }
}

static void make_folder(char *folder, size_t size, const char *name)
{
    const char *parent = getenv("TMPDIR");
    (void)snprintf(folder, size, "%s/tidemill-probe-%d-%s", parent != NULL ? parent : "/tmp", (int)getpid(), name);
}

static struct tm_tls *make_tls(const char *folder)
{
    struct tm_tls *tls = NULL;
    struct tm_error e = {0};
    assert_row(tm_tls_make_job(tm_env_real(), folder, &e) == 0, "%s", e.text);
    assert_row(tm_tls_load(tm_env_real(), folder, &tls, &e) == 0, "%s", e.text);
    return tls;
}

static void remove_tls(struct tm_tls *tls, const char *folder)
{
    static const char *const files[] = {"/ca.pem", "/node.pem", "/node.key", ""};
    for (size_t i = 0; i < TM_COUNT(files); i++) {
        char path[300];
        (void)snprintf(path, sizeof path, "%s%s", folder, files[i]);
        (void)tm_env_real()->file_remove(tm_env_real(), path, NULL);
    }
    tm_tls_destroy(tls);
}

/* With certificates all goes as without; those of another job, or none, are turned away. */
static void test_credentials(void **state)
{
    (void)state;
    char own[200];
    char other[200];
    struct tm_error e = {0};
    make_folder(own, sizeof own, "own");
    make_folder(other, sizeof other, "other");
    struct tm_tls *tls = make_tls(own);
    struct tm_tls *foreign = make_tls(other);
    struct server *servers[2] = {start_server(tls), start_server(tls)};
    const char *peers[2] = {servers[0]->address, servers[1]->address};
    struct tm_probe_request request = {.peers = peers, .peer_count = 2, .tls = tls, .duration_ms = 20, .streams = 2};
    assert_row(tm_probe_run(tm_env_real(), &request, &report, &e) == 0, "%s", e.text);
    check_report(2);
    request.tls = foreign;
    assert_int_equal(tm_probe_run(tm_env_real(), &request, &report, &e), -(int)TM_EPEER);
    assert_error_has(e, servers[0]->address);
    request.tls = NULL;
    assert_true(tm_probe_run(tm_env_real(), &request, &report, &e) < 0);
    request.tls = tls; /* and the servers have taken no harm */
    assert_row(tm_probe_run(tm_env_real(), &request, &report, &e) == 0, "%s", e.text);
    stop_server(servers[0]);
    stop_server(servers[1]);
    remove_tls(tls, own);
    remove_tls(foreign, other);
}

static void test_beyond_loopback(void **state)
{
    (void)state;
    static const char *const peers[] = {"10.1.2.3:7070"};
    static const char *const nobody[] = {"127.0.0.1:1"};
    struct tm_error e = {0};
    atomic_bool stop = true;
    struct tm_probe_server server = {.address = "0.0.0.0:0", .bound = note_bound, .stop = &stop};
    assert_int_equal(tm_probe_serve(tm_env_real(), &server, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "serving 0.0.0.0:0 needs a credential: give --tls DIR;");
    struct tm_probe_request request = {.peers = peers, .peer_count = 1, .duration_ms = 20, .streams = 1};
    assert_int_equal(tm_probe_run(tm_env_real(), &request, &report, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "probing 10.1.2.3:7070 needs a credential:");
    request.peers = nobody;
    assert_true(tm_probe_run(tm_env_real(), &request, &report, &e) < 0);
    assert_error_has(e, "127.0.0.1:1");
    request.peer_count = 0;
    assert_int_equal(tm_probe_run(tm_env_real(), &request, &report, &e), -(int)TM_EUSAGE);
}

/* Frames that a server must not believe: it closes, and goes on serving others. */
static void test_bad_frames(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind;
        uint64_t a;
        uint64_t b;
        const char *name;
    } rows[] = {
        {0, 0, 0, "no kind"},
        {TM_PROBE_KINDS, 0, 0, "an unknown kind"},
        {TM_PROBE_ECHO, (64 << 20) + 1, 0, "an echo too long"},
        {TM_PROBE_DATA, TM_PROBE_CHUNK + 1, 0, "data too long"},
        {TM_PROBE_DATA, 10, 0, "data nobody asked for"},
        {TM_PROBE_ACK, 0, 0, "an answer without a question"},
        {TM_PROBE_SOURCE, 60001, 0, "a test too long"},
        {TM_PROBE_PAIR, TM_ADDRESS_MAX, 10, "an address too long"},
        {TM_PROBE_PAIR, 9, 0, "an order without time"},
        {TM_PROBE_FLOOD, 9, 60001, "an order too long"},
    };
    struct server *server = start_server(NULL);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_probe_stream stream;
        struct tm_probe_frame frame;
        struct tm_error e = {0};
        assert_row(tm_probe__connect(tm_env_real(), server->address, NULL, &stream, &e) == 0, "%s", e.text);
        assert_int_equal(tm_probe__send_frame(&stream, (enum tm_probe_kind)rows[i].kind, rows[i].a, rows[i].b, &e), 0);
        int rc = tm_probe__receive_frame(&stream, &frame, &e);
        assert_row(rc == -(int)TM_EPEER, "%s: %d", rows[i].name, rc);
        tm_probe__close(&stream);
    }
    stop_server(server);
}

/* An order that cannot be carried out comes back with its reason. */
static void test_order_that_fails(void **state)
{
    (void)state;
    static const char address[] = "10.9.8.7:1";
    struct server *server = start_server(NULL);
    struct tm_probe_stream stream;
    struct tm_probe_frame frame;
    struct tm_error e = {0};
    char text[TM_PROBE_TEXT_MAX + 1] = "";
    assert_int_equal(tm_probe__connect(tm_env_real(), server->address, NULL, &stream, &e), 0);
    assert_int_equal(tm_probe__send_frame(&stream, TM_PROBE_FLOOD, strlen(address), 10, &e), 0);
    assert_int_equal(tm_probe__send(&stream, address, strlen(address), &e), 0);
    assert_int_equal(tm_probe__receive_frame(&stream, &frame, &e), 0);
    assert_int_equal(frame.kind, TM_PROBE_FAILED);
    assert_int_equal(tm_probe__receive(&stream, text, (size_t)frame.a, &e), 0);
    assert_row(strstr(text, "10.9.8.7:1 needs a credential:") != NULL, "%s", text);
    tm_probe__close(&stream);
    stop_server(server);
}

static void test_frames(void **state)
{
    (void)state;
    static const struct tm_probe_frame rows[] = {{TM_PROBE_ECHO, 0, 0},
                                                 {TM_PROBE_SINK, 60000, 1},
                                                 {TM_PROBE_RESULT, UINT64_MAX, UINT64_C(0x0102030405060708)},
                                                 {TM_PROBE_FLOOD, 10, 60000}};
    uint8_t bytes[TM_PROBE_FRAME_BYTES];
    struct tm_probe_frame frame;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        tm_probe__put_frame(&rows[i], bytes);
        assert_int_equal(tm_probe__get_frame(bytes, &frame, NULL), 0);
        assert_true(frame.kind == rows[i].kind && frame.a == rows[i].a && frame.b == rows[i].b);
    }
    bytes[0] = 'X';
    assert_int_equal(tm_probe__get_frame(bytes, &frame, NULL), -(int)TM_EPEER);
}

TM_TEST_MAIN(TM_TEST(test_frames), TM_TEST(test_all_pairs), TM_TEST(test_credentials), TM_TEST(test_beyond_loopback),
             TM_TEST(test_bad_frames), TM_TEST(test_order_that_fails))
