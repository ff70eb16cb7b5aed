/* The server's side: a thread for each connection. */
#include "wire/probe_internal.h"

#include "base/alloc.h"
#include "base/log.h"
#include "wire/peer_links.h"

#include <pthread.h>
#include <string.h>

enum { POLL_MS = 100, ORDER_STREAMS = 4 };

struct connection {
    struct tm_env *env;
    struct tm_tls *tls;
    int handle;
    bool used;
    atomic_bool over;
    pthread_t thread;
};

/* ---- what is asked for ---- */

static int say_why(struct tm_probe_stream *stream, const struct tm_error *why, struct tm_error *e)
{
    size_t length = strlen(why->text);
    if (length > TM_PROBE_TEXT_MAX) length = TM_PROBE_TEXT_MAX;
    int rc = tm_probe__send_frame(stream, TM_PROBE_FAILED, length, 0, e);
    return rc == 0 ? tm_probe__send(stream, why->text, length, e) : rc;
}

static int send_figures(struct tm_probe_stream *stream, const double *figures, size_t count, struct tm_error *e)
{
    int rc = tm_probe__send_frame(stream, TM_PROBE_RESULT, count, 0, e);
    for (size_t i = 0; rc == 0 && i < count; i++) { /* as bits, in the order of frames */
        uint64_t bits = 0;
        uint8_t bytes[8];
        memcpy(&bits, &figures[i], sizeof bits);
        for (int k = 0; k < 8; k++)
            bytes[k] = (uint8_t)(bits >> (8 * k));
        rc = tm_probe__send(stream, bytes, sizeof bytes, e);
    }
    return rc;
}

/* Measures a link of its own, as ordered. */
static int obey(struct tm_probe_stream *stream, struct tm_tls *tls, const struct tm_probe_frame *frame,
                struct tm_error *e)
{
    char address[TM_ADDRESS_MAX] = "";
    struct tm_error why = {.code = TM_OK};
    struct tm_probe_target target = {
        .env = stream->env, .address = address, .tls = tls, .duration_ms = (int64_t)frame->b, .streams = ORDER_STREAMS};
    int rc = tm_probe__receive(stream, address, (size_t)frame->a, e);
    if (rc != 0) return rc;
    if (frame->kind == TM_PROBE_FLOOD) {
        double bits_s = 0;
        rc = tm_probe__measure_flow(&target, false, &bits_s, &why);
        return rc == 0 ? send_figures(stream, &bits_s, 1, e) : say_why(stream, &why, e);
    }
    struct tm_probe_pair pair;
    rc = tm_probe__measure_pair(&target, &pair, &why);
    if (rc != 0) return say_why(stream, &why, e);
    const double figures[] = {pair.latency_ms, pair.out,         pair.back,        pair.both_out,
                              pair.both_back,  pair.streams_out, pair.streams_back};
    return send_figures(stream, figures, sizeof figures / sizeof *figures, e);
}

static int answer(struct tm_probe_stream *stream, struct tm_tls *tls, const struct tm_probe_frame *frame,
                  struct tm_error *e)
{
    uint64_t bytes = 0;
    uint64_t ns = 0;
    int rc = 0;
    switch (frame->kind) {
    case TM_PROBE_ECHO:
        rc = tm_probe__receive(stream, NULL, (size_t)frame->a, e);
        return rc == 0 ? tm_probe__send_frame(stream, TM_PROBE_ACK, 0, 0, e) : rc;
    case TM_PROBE_SINK:
        rc = tm_probe__drain(stream, (int64_t)frame->a, &bytes, &ns, e);
        return rc == 0 ? tm_probe__send_frame(stream, TM_PROBE_RESULT, bytes, ns, e) : rc;
    case TM_PROBE_SOURCE:
        return tm_probe__pour(stream, (int64_t)frame->a, e);
    case TM_PROBE_PAIR:
    case TM_PROBE_FLOOD:
        return obey(stream, tls, frame, e);
    default:
        return tm_error_set(e, TM_EPEER, "a frame that asks for nothing");
    }
}

static void *serve_connection(void *context)
{
    struct connection *connection = context;
    struct tm_probe_stream stream;
    struct tm_error e = {.code = TM_OK};
    struct tm_probe_frame frame;
    int rc = tm_probe__adopt(connection->env, connection->handle, connection->tls, true, &stream, &e);
    while (rc == 0) {
        rc = tm_probe__receive_frame(&stream, &frame, &e);
        if (rc == 0) rc = answer(&stream, connection->tls, &frame, &e);
    }
    tm_log(TM_LOG_INFO, "a probe's connection closed: %s", e.text);
    stream.handle = -1; /* whoever joins this thread closes it: until then it may be shut down */
    tm_probe__close(&stream);
    atomic_store(&connection->over, true);
    return NULL;
}

/* ---- connections ---- */

static void reap(struct connection *connections, bool all)
{
    for (size_t i = 0; i < TM_PROBE_CONNECTIONS_MAX; i++) {
        struct connection *connection = &connections[i];
        if (!connection->used || (!all && !atomic_load(&connection->over))) continue;
        if (all) connection->env->net_shutdown(connection->env, connection->handle);
        (void)pthread_join(connection->thread, NULL);
        connection->env->net_close(connection->env, connection->handle);
        connection->used = false;
    }
}

static void take(struct tm_env *env, const struct tm_probe_server *server, struct connection *connections, int handle)
{
    for (size_t i = 0; i < TM_PROBE_CONNECTIONS_MAX; i++) {
        struct connection *connection = &connections[i];
        if (connection->used) continue;
        connection->env = env;
        connection->tls = server->tls;
        connection->handle = handle;
        atomic_store(&connection->over, false);
        if (pthread_create(&connection->thread, NULL, serve_connection, connection) != 0) break;
        connection->used = true;
        return;
    }
    tm_log(TM_LOG_WARN, "probe: more than %d connections: refusing one", TM_PROBE_CONNECTIONS_MAX);
    env->net_close(env, handle);
}

int tm_probe_serve(struct tm_env *env, const struct tm_probe_server *server, struct tm_error *e)
{
    char bound[TM_ADDRESS_MAX];
    int listener = -1;
    if (server->tls == NULL && !tm_address_is_loopback(server->address))
        return tm_error_set(e, TM_EUSAGE,
                            "serving %s needs a credential: give --tls DIR; only loopback works without one",
                            server->address);
    struct connection *connections = tm_calloc(TM_PROBE_CONNECTIONS_MAX, sizeof *connections);
    if (connections == NULL) return tm_error_nomem(e);
    int rc = env->net_listen(env, server->address, &listener, bound, e);
    if (rc == 0) server->bound(server->context, bound);
    while (rc == 0 && !atomic_load(server->stop)) {
        bool ready = false;
        int handle = -1;
        int waited = env->net_wait(env, &listener, 1, POLL_MS, &ready, NULL);
        reap(connections, false);
        if (waited == 0 && env->net_accept(env, listener, &handle, NULL) == 0) take(env, server, connections, handle);
    }
    if (listener >= 0) env->net_close(env, listener);
    reap(connections, true);
    tm_free(connections);
    return rc;
}
