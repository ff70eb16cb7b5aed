#include "base/http_server.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

enum { REQUEST_LIMIT_MS = 5000, ACCEPTS_AT_ONCE = 1024 };

struct listener {
    struct tm_http_listener given; /* answer NULL: free */
    int handle;
    int connections;
};

enum progress { READING, HOLDING, SENDING };

struct connection {
    bool open;
    enum progress progress;
    int handle;
    int listener;
    int64_t until_ms;  /* READING, SENDING: given up then; HOLDING: answered then */
    uint64_t number;   /* in the order of their coming */
    uint64_t version;  /* HOLDING: answered when it changes */
    struct tm_text in; /* the request so far */
    struct tm_text out;
    size_t sent;
};

struct tm_http_server {
    struct tm_env *env;
    struct tm_http_limits limits;
    struct listener *listeners;
    struct connection *connections;
    uint64_t accepted;
};

static int64_t monotonic_ms(const struct tm_http_server *server)
{
    return server->env->monotonic_ns(server->env) / 1000000;
}

struct tm_http_server *tm_http_server_create(struct tm_env *env, const struct tm_http_limits *limits)
{
    struct tm_http_server *server = tm_calloc(1, sizeof *server);
    if (server == NULL) return NULL;
    *server = (struct tm_http_server){.env = env, .limits = *limits};
    server->listeners = tm_calloc(limits->listeners, sizeof *server->listeners);
    server->connections = tm_calloc(limits->connections, sizeof *server->connections);
    if (server->listeners != NULL && server->connections != NULL) return server;
    tm_free(server->listeners);
    tm_free(server->connections);
    tm_free(server);
    return NULL;
}

static void drop(struct tm_http_server *server, struct connection *connection)
{
    server->env->net_close(server->env, connection->handle);
    server->listeners[connection->listener].connections--;
    tm_text_deinit(&connection->in);
    tm_text_deinit(&connection->out);
    connection->open = false;
}

void tm_http_server_destroy(struct tm_http_server *server)
{
    if (server == NULL) return;
    for (size_t i = 0; i < server->limits.listeners; i++)
        tm_http_server_close(server, (int)i);
    tm_free(server->listeners);
    tm_free(server->connections);
    tm_free(server);
}

int tm_http_server_free(const struct tm_http_server *server)
{
    for (size_t i = 0; i < server->limits.listeners; i++) {
        if (server->listeners[i].given.answer == NULL) return (int)i;
    }
    return -1;
}

int tm_http_server_open(struct tm_http_server *server, const char *address, const struct tm_http_listener *given,
                        char bound[TM_ADDRESS_MAX], int *out_number, struct tm_error *e)
{
    int number = tm_http_server_free(server);
    assert(given->answer != NULL);
    if (number < 0) return tm_error_set(e, TM_ELIMIT, "more than %zu HTTP listeners", server->limits.listeners);
    struct listener *listener = &server->listeners[number];
    int rc = server->env->net_listen(server->env, address, &listener->handle, bound, e);
    if (rc != 0) return rc;
    listener->given = *given;
    listener->connections = 0;
    *out_number = number;
    return 0;
}

void tm_http_server_close(struct tm_http_server *server, int number)
{
    if (number < 0 || server->listeners[number].given.answer == NULL) return;
    for (size_t i = 0; i < server->limits.connections; i++) {
        struct connection *connection = &server->connections[i];
        if (connection->open && connection->listener == number) drop(server, connection);
    }
    server->env->net_close(server->env, server->listeners[number].handle);
    server->listeners[number].given.answer = NULL;
}

/* ---- serving ---- */

static uint64_t version_of(const struct listener *listener)
{
    return listener->given.version == NULL ? 0 : *listener->given.version;
}

/* Answers, or holds, what has been read. */
static void answer(struct tm_http_server *server, struct connection *connection, bool waited)
{
    const struct listener *listener = &server->listeners[connection->listener];
    struct tm_http_head head;
    int64_t now_ms = monotonic_ms(server);
    int rc = tm_http_read_request(tm_text_string(&connection->in), connection->in.length, &head, NULL);
    if (rc == -(int)TM_EBUSY) return;
    if (rc != 0) {
        tm_http_refuse(&connection->out, rc == -(int)TM_ELIMIT ? 431 : 400);
    } else {
        struct tm_http_request request = {.head = &head, .now_ms = now_ms, .waited = waited};
        int64_t hold_ms = listener->given.answer(listener->given.context, &request, &connection->out);
        if (hold_ms > 0) {
            connection->progress = HOLDING;
            connection->version = version_of(listener);
            connection->until_ms = now_ms + hold_ms;
            return;
        }
        if (tm_text_status(&connection->out, NULL) == -(int)TM_ELIMIT) {
            tm_text_clear(&connection->out);
            tm_http_refuse(&connection->out, 503);
        }
    }
    connection->progress = SENDING;
    connection->until_ms = now_ms + REQUEST_LIMIT_MS;
}

/* False once the connection is done for. */
static bool read_more(struct tm_http_server *server, struct connection *connection)
{
    struct tm_env *env = server->env;
    char buffer[TM_HTTP_HEAD_MAX]; /* all of a request that has come: see make_room */
    size_t got = 0;
    int rc = env->net_receive(env, connection->handle, buffer, sizeof buffer, &got, NULL);
    if (rc == -(int)TM_EBUSY) return true;
    if (rc != 0 || got == 0) return false;
    if (connection->progress != READING) return true; /* one request a connection: the rest is not heard */
    size_t room = connection->in.max - connection->in.length;
    tm_text_append(&connection->in, buffer, got < room ? got : room);
    if (tm_text_status(&connection->in, NULL) != 0) return false;
    answer(server, connection, false);
    return true;
}

static bool send_more(struct tm_http_server *server, struct connection *connection)
{
    struct tm_env *env = server->env;
    if (tm_text_status(&connection->out, NULL) != 0) return false;
    while (connection->sent < connection->out.length) {
        size_t done = 0;
        int rc = env->net_send(env, connection->handle, connection->out.data + connection->sent,
                               connection->out.length - connection->sent, &done, NULL);
        if (rc == -(int)TM_EBUSY) return true;
        if (rc != 0) return false;
        connection->sent += done;
    }
    return false; /* all said */
}

static bool serve_one(struct tm_http_server *server, struct connection *connection)
{
    uint64_t version = version_of(&server->listeners[connection->listener]);
    bool late = monotonic_ms(server) >= connection->until_ms;
    if (connection->progress != SENDING && !read_more(server, connection)) return false;
    if (connection->progress == HOLDING && (late || version != connection->version)) answer(server, connection, true);
    if (connection->progress == SENDING) return send_more(server, connection) && !late;
    return connection->progress == HOLDING || !late;
}

static struct connection *free_connection(struct tm_http_server *server)
{
    for (size_t i = 0; i < server->limits.connections; i++) {
        if (!server->connections[i].open) return &server->connections[i];
    }
    return NULL;
}

/* Whose request is not whole yet, so that nothing is known of them: strangers, as far as we can tell. */
static struct connection *oldest_stranger(const struct tm_http_server *server, int listener)
{
    struct connection *oldest = NULL;
    for (size_t i = 0; i < server->limits.connections; i++) {
        struct connection *one = &server->connections[i];
        if (!one->open || one->progress != READING || (listener >= 0 && one->listener != listener)) continue;
        if (oldest == NULL || one->number < oldest->number) oldest = one;
    }
    return oldest;
}

static bool is_full(struct tm_http_server *server, int number)
{
    return server->listeners[number].connections >= server->limits.connections_each || free_connection(server) == NULL;
}

/* Whom to send away for somebody new; NULL: all have spoken. */
static struct connection *dispensable(struct tm_http_server *server, int number)
{
    bool own = server->listeners[number].connections >= server->limits.connections_each;
    return oldest_stranger(server, own ? number : -1);
}

/* If need be, sends away those who had the time to speak and did not. */
static bool make_room(struct tm_http_server *server, int number)
{
    struct connection *oldest = NULL;
    while (is_full(server, number) && (oldest = dispensable(server, number)) != NULL) {
        bool lives = serve_one(server, oldest); /* it may have spoken since */
        if (!lives || oldest->progress == READING) drop(server, oldest);
    }
    return !is_full(server, number);
}

/* Who comes is served before the next one: a request that is whole cannot be driven out by a crowd behind it. */
static void accept_some(struct tm_http_server *server, int number)
{
    struct listener *listener = &server->listeners[number];
    struct tm_env *env = server->env;
    for (int i = 0; i < ACCEPTS_AT_ONCE && (!is_full(server, number) || dispensable(server, number) != NULL); i++) {
        int handle = 0;
        if (env->net_accept(env, listener->handle, &handle, NULL) != 0) return;
        if (!make_room(server, number)) {
            env->net_close(env, handle);
            return;
        }
        struct connection *connection = free_connection(server);
        *connection = (struct connection){.open = true, .handle = handle, .listener = number};
        connection->number = server->accepted++;
        connection->until_ms = monotonic_ms(server) + REQUEST_LIMIT_MS;
        tm_text_init(&connection->in, TM_HTTP_HEAD_MAX);
        tm_text_init(&connection->out, server->limits.response_max);
        listener->connections++;
        if (!serve_one(server, connection)) drop(server, connection);
    }
}

void tm_http_server_serve(struct tm_http_server *server)
{
    for (size_t i = 0; i < server->limits.listeners; i++) {
        if (server->listeners[i].given.answer != NULL) accept_some(server, (int)i);
    }
    for (size_t i = 0; i < server->limits.connections; i++) {
        struct connection *connection = &server->connections[i];
        if (connection->open && !serve_one(server, connection)) drop(server, connection);
    }
}

size_t tm_http_server_watch(const struct tm_http_server *server, int *handles, size_t max, int64_t *out_wait_ms)
{
    int64_t now_ms = monotonic_ms(server);
    int64_t wait_ms = INT64_MAX;
    size_t count = 0;
    for (size_t i = 0; i < server->limits.connections; i++) {
        const struct connection *connection = &server->connections[i];
        if (!connection->open) continue;
        if (count < max && connection->progress != SENDING) handles[count++] = connection->handle;
        int64_t left_ms = connection->until_ms > now_ms ? connection->until_ms - now_ms : 0;
        if (connection->progress == SENDING && left_ms > 10) left_ms = 10; /* a peer that reads slowly: rare */
        if (left_ms < wait_ms) wait_ms = left_ms;
    }
    for (size_t i = 0; i < server->limits.listeners; i++) {
        const struct listener *listener = &server->listeners[i];
        bool room = listener->connections < server->limits.connections_each || oldest_stranger(server, (int)i) != NULL;
        if (listener->given.answer != NULL && room && count < max) handles[count++] = listener->handle;
    }
    *out_wait_ms = wait_ms;
    return count;
}
