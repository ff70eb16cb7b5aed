#include "base/http_server.h"

#include "base/alloc.h"
#include "base/number.h"

#include <assert.h>
#include <string.h>

enum { REQUEST_LIMIT_MS = 5000, ACCEPTS_AT_ONCE = 1024, ANSWERS_AT_ONCE = 16 };

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
    int64_t until_ms;                 /* READING, SENDING: given up then; HOLDING: answered then */
    uint64_t number;                  /* in the order of their coming */
    uint64_t version;                 /* HOLDING: answered when it changes */
    uint64_t cursor[TM_HTTP_CURSORS]; /* of who answers */
    bool streaming;                   /* the answer has begun and goes on */
    bool keep;                        /* after the answer */
    bool chatty;                      /* something came while it was held: nobody reads that */
    int64_t hold_ms;                  /* SENDING a piece of a stream: how long to wait for the next */
    size_t whole;                     /* length of the request that is answered, in `in` */
    struct tm_text in;                /* the request so far */
    struct tm_text out;
    size_t sent;
    char peer[TM_ADDRESS_MAX];
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

/* How long the body is; -TM_EBUSY: it is not whole yet. 0: the head is all there is, or all that is heard. */
static int measure_body(const struct tm_http_server *server, const struct connection *connection,
                        const struct tm_http_head *head, size_t *out_length)
{
    struct tm_slice given = tm_http_header(head, "content-length");
    int64_t length = 0;
    *out_length = 0;
    if (server->limits.body_max == 0) return 0;
    if (tm_http_header(head, "transfer-encoding").at != NULL) return -(int)TM_EUSAGE;
    if (given.at == NULL) return 0;
    if (!tm_http__read_length(given, &length)) return -(int)TM_EINPUT;
    if ((uint64_t)length > server->limits.body_max) return -(int)TM_ELIMIT;
    *out_length = (size_t)length;
    return connection->in.length - head->length >= (size_t)length ? 0 : -(int)TM_EBUSY;
}

/* With a body that nobody heard, what follows on the connection is no request. */
static bool may_keep(const struct tm_http_server *server, const struct connection *connection,
                     const struct tm_http_head *head)
{
    struct tm_slice line = {.at = connection->in.data, .length = head->length};
    const char *end = memchr(line.at, '\n', line.length);
    bool new = end != NULL &&end - line.at > 9 && memcmp(end - (end[-1] == '\r' ? 9 : 8), "HTTP/1.1", 8) == 0;
    bool unheard = server->limits.body_max == 0 && (tm_http_header(head, "content-length").at != NULL ||
                                                    tm_http_header(head, "transfer-encoding").at != NULL);
    return server->limits.keep_ms > 0 && new && !unheard && !connection->chatty &&
           !tm_slice_is_any_case(tm_http_header(head, "connection"), "close");
}

static void begin_sending(struct tm_http_server *server, struct connection *connection)
{
    connection->progress = SENDING;
    connection->until_ms = monotonic_ms(server) + REQUEST_LIMIT_MS;
}

static const char *words_of(int status)
{
    switch (status) {
    case 400:
        return "{\"error\": \"this is no request that is understood\"}\n";
    case 411:
        return "{\"error\": \"say how long the body is: Content-Length\"}\n";
    case 413:
        return "{\"error\": \"the body is too long\"}\n";
    case 431:
        return "{\"error\": \"the headers are too long, or too many\"}\n";
    default:
        return "{\"error\": \"the answer is too long\"}\n";
    }
}

static void refuse(struct tm_http_server *server, struct connection *connection, int status)
{
    tm_text_clear(&connection->out);
    tm_http_respond(&connection->out, status, "application/json", "", words_of(status));
    connection->keep = false;
    begin_sending(server, connection);
}

static void hold(struct tm_http_server *server, struct connection *connection, int64_t hold_ms)
{
    connection->progress = HOLDING;
    connection->until_ms = monotonic_ms(server) + hold_ms;
}

/* Asks who answers; the request is whole. */
static void ask(struct tm_http_server *server, struct connection *connection, const struct tm_http_head *head,
                bool waited)
{
    const struct listener *listener = &server->listeners[connection->listener];
    struct tm_http_request request = {
        .head = head,
        .peer = connection->peer,
        .body = {.at = connection->in.data + head->length, .length = connection->whole - head->length},
        .now_ms = monotonic_ms(server),
        .waited = waited,
        .streaming = connection->streaming,
        .may_keep = may_keep(server, connection, head),
        .keep = &connection->keep,
        .cursor = connection->cursor};
    connection->keep = false;
    connection->version = version_of(listener);
    int64_t hold_ms = listener->given.answer(listener->given.context, &request, &connection->out);
    if (tm_text_status(&connection->out, NULL) == -(int)TM_ELIMIT && !connection->streaming) {
        refuse(server, connection, 503);
        return;
    }
    if (hold_ms > 0 && connection->out.length == 0) {
        hold(server, connection, hold_ms);
        return;
    }
    connection->streaming = hold_ms > 0;
    connection->hold_ms = hold_ms;
    begin_sending(server, connection);
}

/* Answers, or holds, what has been read. */
static void answer(struct tm_http_server *server, struct connection *connection, bool waited)
{
    struct tm_http_head head;
    size_t body = 0;
    int rc = tm_http_read_request(tm_text_string(&connection->in), connection->in.length, &head, NULL);
    if (rc == -(int)TM_EBUSY) return;
    if (rc != 0) {
        refuse(server, connection, rc == -(int)TM_ELIMIT ? 431 : 400);
        return;
    }
    rc = measure_body(server, connection, &head, &body);
    if (rc == -(int)TM_EBUSY) return;
    if (rc != 0) {
        refuse(server, connection, rc == -(int)TM_ELIMIT ? 413 : rc == -(int)TM_EUSAGE ? 411 : 400);
        return;
    }
    connection->whole = head.length + body;
    ask(server, connection, &head, waited);
}

/* False once the connection is done for. */
static bool read_more(struct tm_http_server *server, struct connection *connection)
{
    struct tm_env *env = server->env;
    char buffer[TM_HTTP_HEAD_MAX]; /* all of a request that has come: see make_room */
    for (;;) {
        size_t got = 0;
        int rc = env->net_receive(env, connection->handle, buffer, sizeof buffer, &got, NULL);
        if (rc == -(int)TM_EBUSY) return true;
        if (rc != 0 || got == 0) return false;
        if (connection->progress != READING) {
            connection->chatty = true; /* what comes before the answer is not heard */
            return true;
        }
        size_t room = connection->in.max - connection->in.length;
        tm_text_append(&connection->in, buffer, got < room ? got : room);
        if (tm_text_status(&connection->in, NULL) != 0) return false;
        answer(server, connection, false);
        if (connection->progress != READING || server->limits.body_max == 0) return true;
    }
}

/* The answer is sent: the next request, if the connection stays. What came of it already is answered. */
static bool begin_again(struct tm_http_server *server, struct connection *connection)
{
    if (!connection->keep) return false;
    size_t rest = connection->in.length - connection->whole;
    if (rest > 0) memmove(connection->in.data, connection->in.data + connection->whole, rest);
    connection->in.length = rest;
    if (connection->in.data != NULL) connection->in.data[rest] = '\0';
    tm_text_clear(&connection->out);
    connection->progress = READING;
    connection->sent = 0;
    memset(connection->cursor, 0, sizeof connection->cursor);
    connection->until_ms = monotonic_ms(server) + server->limits.keep_ms;
    if (rest > 0) answer(server, connection, false);
    return true;
}

/* A piece of a stream is sent: the next follows when there is something. */
static bool await_more(struct tm_http_server *server, struct connection *connection)
{
    tm_text_clear(&connection->out);
    connection->sent = 0;
    hold(server, connection, connection->hold_ms);
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
        if (rc == -(int)TM_EBUSY) return monotonic_ms(server) < connection->until_ms;
        if (rc != 0) return false;
        connection->sent += done;
    }
    return connection->streaming ? await_more(server, connection) : begin_again(server, connection);
}

static bool serve_one(struct tm_http_server *server, struct connection *connection)
{
    uint64_t version = version_of(&server->listeners[connection->listener]);
    bool late = monotonic_ms(server) >= connection->until_ms;
    if (connection->progress != SENDING && !read_more(server, connection)) return false;
    if (connection->progress == HOLDING && (late || version != connection->version)) answer(server, connection, true);
    bool lives = connection->progress != READING || !late;
    for (int i = 0; lives && connection->progress == SENDING && i < ANSWERS_AT_ONCE; i++) {
        lives = send_more(server, connection);
        if (connection->progress == SENDING && connection->sent > 0) break; /* the peer takes no more now */
    }
    return lives;
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
        if (env->net_peer_address(env, handle, connection->peer, NULL) != 0) connection->peer[0] = '\0';
        connection->until_ms = monotonic_ms(server) + REQUEST_LIMIT_MS;
        tm_text_init(&connection->in, TM_HTTP_HEAD_MAX + server->limits.body_max);
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
