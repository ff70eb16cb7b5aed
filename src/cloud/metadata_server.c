#include "cloud/metadata_server.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

enum { REQUEST_LIMIT_MS = 5000, RESPONSE_MAX = 16384 };

struct endpoint {
    const struct tm_metadata *known; /* NULL: free */
    int listener;
    int connections;
    struct tm_metadata_tokens tokens;
};

enum progress { READING, HOLDING, SENDING };

struct connection {
    bool open;
    enum progress progress;
    int handle;
    int endpoint;
    int64_t until_ms;  /* READING, SENDING: given up then; HOLDING: answered then */
    uint64_t version;  /* HOLDING: answered when it changes */
    struct tm_text in; /* the request so far */
    struct tm_text out;
    size_t sent;
};

struct tm_metadata_server {
    struct tm_env *env;
    struct endpoint endpoints[TM_METADATA_ENDPOINTS];
    struct connection connections[TM_METADATA_CONNECTIONS];
};

static int64_t monotonic_ms(const struct tm_metadata_server *server)
{
    return server->env->monotonic_ns(server->env) / 1000000;
}

struct tm_metadata_server *tm_metadata_server_create(struct tm_env *env)
{
    struct tm_metadata_server *server = tm_calloc(1, sizeof *server);
    if (server != NULL) server->env = env;
    return server;
}

static void drop(struct tm_metadata_server *server, struct connection *connection)
{
    server->env->net_close(server->env, connection->handle);
    server->endpoints[connection->endpoint].connections--;
    tm_text_deinit(&connection->in);
    tm_text_deinit(&connection->out);
    connection->open = false;
}

void tm_metadata_server_destroy(struct tm_metadata_server *server)
{
    if (server == NULL) return;
    for (int i = 0; i < TM_METADATA_ENDPOINTS; i++)
        tm_metadata_server_close(server, i);
    tm_free(server);
}

int tm_metadata_server_open(struct tm_metadata_server *server, const char *host, const struct tm_metadata *known,
                            char bound[TM_ADDRESS_MAX], int *out_endpoint, struct tm_error *e)
{
    char address[TM_ADDRESS_MAX];
    int free_at = 0;
    while (free_at < TM_METADATA_ENDPOINTS && server->endpoints[free_at].known != NULL)
        free_at++;
    if (free_at == TM_METADATA_ENDPOINTS)
        return tm_error_set(e, TM_ELIMIT, "more than %d metadata endpoints", TM_METADATA_ENDPOINTS);
    struct endpoint *endpoint = &server->endpoints[free_at];
    (void)snprintf(address, sizeof address, "%.90s:0", host);
    int rc = server->env->net_listen(server->env, address, &endpoint->listener, bound, e);
    if (rc != 0) return tm_error_wrap(e, rc, "metadata endpoint");
    endpoint->known = known;
    endpoint->connections = 0;
    endpoint->tokens = (struct tm_metadata_tokens){0};
    *out_endpoint = free_at;
    return 0;
}

void tm_metadata_server_close(struct tm_metadata_server *server, int endpoint)
{
    if (endpoint < 0 || server->endpoints[endpoint].known == NULL) return;
    for (size_t i = 0; i < TM_METADATA_CONNECTIONS; i++) {
        struct connection *connection = &server->connections[i];
        if (connection->open && connection->endpoint == endpoint) drop(server, connection);
    }
    server->env->net_close(server->env, server->endpoints[endpoint].listener);
    server->endpoints[endpoint].known = NULL;
}

static struct connection *free_connection(struct tm_metadata_server *server)
{
    for (size_t i = 0; i < TM_METADATA_CONNECTIONS; i++) {
        if (!server->connections[i].open) return &server->connections[i];
    }
    return NULL;
}

static void accept_some(struct tm_metadata_server *server, int number)
{
    struct endpoint *endpoint = &server->endpoints[number];
    struct tm_env *env = server->env;
    while (endpoint->connections < TM_METADATA_CONNECTIONS_EACH) {
        struct connection *connection = free_connection(server);
        int handle = 0;
        if (connection == NULL || env->net_accept(env, endpoint->listener, &handle, NULL) != 0) return;
        *connection = (struct connection){.open = true, .handle = handle, .endpoint = number};
        connection->until_ms = monotonic_ms(server) + REQUEST_LIMIT_MS;
        tm_text_init(&connection->in, TM_HTTP_HEAD_MAX);
        tm_text_init(&connection->out, RESPONSE_MAX);
        endpoint->connections++;
    }
}

/* Answers, or holds, what has been read. */
static void answer(struct tm_metadata_server *server, struct connection *connection, bool waited)
{
    struct endpoint *endpoint = &server->endpoints[connection->endpoint];
    struct tm_env *env = server->env;
    struct tm_http_head head;
    const uint64_t random[2] = {env->random_u64(env), env->random_u64(env)};
    int64_t now_ms = monotonic_ms(server);
    int rc = tm_http_read_request(tm_text_string(&connection->in), connection->in.length, &head, NULL);
    if (rc == -(int)TM_EBUSY) return;
    if (rc != 0) {
        tm_metadata_refuse(rc == -(int)TM_ELIMIT ? 431 : 400, &connection->out);
    } else {
        struct tm_metadata_answer made =
            tm_metadata_respond(endpoint->known, &head, &endpoint->tokens, now_ms, waited, random, &connection->out);
        if (made.hold_ms > 0) {
            connection->progress = HOLDING;
            connection->version = endpoint->known->version;
            connection->until_ms = now_ms + made.hold_ms;
            return;
        }
    }
    connection->progress = SENDING;
    connection->until_ms = now_ms + REQUEST_LIMIT_MS;
}

/* False once the connection is done for. */
static bool read_more(struct tm_metadata_server *server, struct connection *connection)
{
    struct tm_env *env = server->env;
    char buffer[2048];
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

static bool send_more(struct tm_metadata_server *server, struct connection *connection)
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

static bool serve_one(struct tm_metadata_server *server, struct connection *connection)
{
    uint64_t version = server->endpoints[connection->endpoint].known->version;
    bool late = monotonic_ms(server) >= connection->until_ms;
    if (connection->progress != SENDING && !read_more(server, connection)) return false;
    if (connection->progress == HOLDING && (late || version != connection->version)) answer(server, connection, true);
    if (connection->progress == SENDING) return send_more(server, connection) && !late;
    return connection->progress == HOLDING || !late;
}

void tm_metadata_server_serve(struct tm_metadata_server *server)
{
    for (int i = 0; i < TM_METADATA_ENDPOINTS; i++) {
        if (server->endpoints[i].known != NULL) accept_some(server, i);
    }
    for (size_t i = 0; i < TM_METADATA_CONNECTIONS; i++) {
        struct connection *connection = &server->connections[i];
        if (connection->open && !serve_one(server, connection)) drop(server, connection);
    }
}

size_t tm_metadata_server_watch(const struct tm_metadata_server *server, int *handles, size_t max, int64_t *out_wait_ms)
{
    int64_t now_ms = monotonic_ms(server);
    int64_t wait_ms = INT64_MAX;
    size_t count = 0;
    for (size_t i = 0; i < TM_METADATA_CONNECTIONS; i++) {
        const struct connection *connection = &server->connections[i];
        if (!connection->open) continue;
        if (count < max && connection->progress != SENDING) handles[count++] = connection->handle;
        int64_t left_ms = connection->until_ms > now_ms ? connection->until_ms - now_ms : 0;
        if (connection->progress == SENDING && left_ms > 10) left_ms = 10; /* a peer that reads slowly: rare */
        if (left_ms < wait_ms) wait_ms = left_ms;
    }
    for (size_t i = 0; i < TM_METADATA_ENDPOINTS; i++) {
        const struct endpoint *endpoint = &server->endpoints[i];
        if (endpoint->known != NULL && endpoint->connections < TM_METADATA_CONNECTIONS_EACH && count < max)
            handles[count++] = endpoint->listener;
    }
    *out_wait_ms = wait_ms;
    return count;
}
