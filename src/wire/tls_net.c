#include "wire/tls_net.h"

#include "base/address.h"
#include "base/alloc.h"
#include "wire/tls_internal.h"

#include <stdio.h>
#include <string.h>

enum { LINKS_MAX = 4096, PIECE_BYTES = 16 << 10, RAW_MAX = 1 << 20, PLAIN_MAX = 1 << 20 };

struct tls_link {
    int handle;
    struct tm_tls_session *session;
    struct tm_text raw; /* to be sent ... */
    size_t raw_sent;
    size_t accepted;      /* ... with so many plain bytes of who sends; 0: none are on their way */
    struct tm_text plain; /* received ... */
    size_t taken;         /* ... and given on */
    bool over;            /* nothing more comes */
};

struct tm_tls_net {
    struct tm_env env; /* first: its functions find the rest behind it */
    struct tm_env *under;
    struct tm_tls *tls;
    bool server;
    char host[TM_ADDRESS_MAX]; /* "": none */
    struct tls_link *links;
    size_t count;
    size_t capacity;
};

static struct tm_tls_net *net_of(struct tm_env *env)
{
    return (struct tm_tls_net *)env;
}

static struct tls_link *find(struct tm_tls_net *net, int handle)
{
    for (size_t i = 0; i < net->count; i++)
        if (net->links[i].handle == handle) return &net->links[i];
    return NULL;
}

/* A new connection; where there is no memory it is closed. */
static int add(struct tm_tls_net *net, int handle, struct tm_error *e)
{
    void *array = net->links;
    const char *host = net->host[0] != '\0' ? net->host : NULL;
    struct tm_tls_session *session = NULL;
    int rc = tm_grow(&array, &net->capacity, net->count + 1, sizeof *net->links, LINKS_MAX);
    if (rc == 0) {
        net->links = array;
        session = tm_tls_session_create(net->tls, net->server, NULL, host);
    }
    if (session == NULL) {
        net->under->net_close(net->under, handle);
        return tm_error_nomem(e);
    }
    if (host != NULL && !tm_host_is_address(host)) (void)SSL_set_tlsext_host_name(session->ssl, host);
    struct tls_link *link = &net->links[net->count++];
    *link = (struct tls_link){.handle = handle, .session = session};
    tm_text_init(&link->raw, RAW_MAX);
    tm_text_init(&link->plain, PLAIN_MAX);
    return 0;
}

static int flush(struct tm_tls_net *net, struct tls_link *link, struct tm_error *e)
{
    tm_tls_session_output(link->session, &link->raw);
    int rc = tm_text_status(&link->raw, e);
    while (rc == 0 && link->raw_sent < link->raw.length) {
        size_t done = 0;
        rc = net->under->net_send(net->under, link->handle, link->raw.data + link->raw_sent,
                                  link->raw.length - link->raw_sent, &done, e);
        if (rc == 0) link->raw_sent += done;
    }
    if (rc != 0) return rc;
    tm_text_clear(&link->raw);
    link->raw_sent = 0;
    return 0;
}

/* ---- what env promises ---- */

static int64_t tls_monotonic_ns(struct tm_env *env)
{
    struct tm_env *under = net_of(env)->under;
    return under->monotonic_ns(under);
}

static int tls_listen(struct tm_env *env, const char *address, int *out_handle, char bound[TM_ADDRESS_MAX],
                      struct tm_error *e)
{
    struct tm_env *under = net_of(env)->under;
    return under->net_listen(under, address, out_handle, bound, e);
}

static int tls_accept(struct tm_env *env, int listener, int *out_handle, struct tm_error *e)
{
    struct tm_tls_net *net = net_of(env);
    int rc = net->under->net_accept(net->under, listener, out_handle, e);
    return rc != 0 ? rc : add(net, *out_handle, e);
}

static int tls_connect(struct tm_env *env, const char *address, int *out_handle, struct tm_error *e)
{
    struct tm_tls_net *net = net_of(env);
    int rc = net->under->net_connect(net->under, address, out_handle, e);
    return rc != 0 ? rc : add(net, *out_handle, e);
}

static int tls_send(struct tm_env *env, int handle, const void *data, size_t length, size_t *out_sent,
                    struct tm_error *e)
{
    struct tm_tls_net *net = net_of(env);
    struct tls_link *link = find(net, handle);
    if (link == NULL) return tm_error_set(e, TM_EPEER, "not a connection");
    if (link->accepted == 0) {
        size_t piece = length < PIECE_BYTES ? length : PIECE_BYTES;
        if (tm_tls_session_write(link->session, data, piece) != 0)
            return tm_error_set(e, TM_EPEER, "the TLS connection is broken");
        link->accepted = piece;
    }
    int rc = flush(net, link, e);
    if (rc != 0) return rc;
    *out_sent = link->accepted;
    link->accepted = 0;
    return 0;
}

/* Bytes of the other side become plain ones, or part of the handshake, whose answer goes out. */
static int hear(struct tm_tls_net *net, struct tls_link *link, struct tm_error *e)
{
    char raw[PIECE_BYTES];
    size_t got = 0;
    int rc = net->under->net_receive(net->under, link->handle, raw, sizeof raw, &got, e);
    if (rc == -(int)TM_EBUSY) (void)flush(net, link, NULL);
    if (rc != 0) return rc;
    tm_text_clear(&link->plain);
    link->taken = 0;
    if (got == 0)
        link->over = true;
    else if (tm_tls_session_input(link->session, raw, got, &link->plain) != 0)
        link->over = true; /* its last word, a stranger, or noise */
    rc = tm_text_status(&link->plain, e);
    if (rc == 0) rc = flush(net, link, e);
    return rc == -(int)TM_EBUSY ? 0 : rc;
}

static int tls_receive(struct tm_env *env, int handle, void *buffer, size_t size, size_t *out_received,
                       struct tm_error *e)
{
    struct tm_tls_net *net = net_of(env);
    struct tls_link *link = find(net, handle);
    if (link == NULL) return tm_error_set(e, TM_EPEER, "not a connection");
    if (link->taken == link->plain.length && !link->over) {
        int rc = hear(net, link, e);
        if (rc != 0) return rc;
    }
    size_t left = link->plain.length - link->taken;
    if (left == 0 && link->over && !tm_tls_session__is_ready(link->session))
        return tm_error_set(e, TM_EPEER, "no TLS, or not the certificate that was expected");
    if (left == 0 && !link->over) return -(int)TM_EBUSY;
    if (left > size) left = size;
    if (left > 0) memcpy(buffer, link->plain.data + link->taken, left);
    link->taken += left;
    *out_received = left;
    return 0;
}

static int tls_wait(struct tm_env *env, const int *handles, size_t count, int64_t timeout_ms, bool *out_ready,
                    struct tm_error *e)
{
    struct tm_env *under = net_of(env)->under;
    return under->net_wait(under, handles, count, timeout_ms, out_ready, e);
}

static int tls_wait_send(struct tm_env *env, int handle, int64_t timeout_ms, struct tm_error *e)
{
    struct tm_env *under = net_of(env)->under;
    return under->net_wait_send(under, handle, timeout_ms, e);
}

static int tls_peer_address(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e)
{
    struct tm_env *under = net_of(env)->under;
    return under->net_peer_address(under, handle, out, e);
}

static void tls_close(struct tm_env *env, int handle)
{
    struct tm_tls_net *net = net_of(env);
    struct tls_link *link = find(net, handle);
    if (link != NULL) {
        tm_tls_session_destroy(link->session);
        tm_text_deinit(&link->raw);
        tm_text_deinit(&link->plain);
        *link = net->links[--net->count];
    }
    net->under->net_close(net->under, handle); /* also of a listener */
}

struct tm_tls_net *tm_tls_net_create(struct tm_env *under, struct tm_tls *tls, bool server, const char *host)
{
    struct tm_tls_net *net = tm_calloc(1, sizeof *net);
    if (net == NULL) return NULL;
    net->under = under;
    net->tls = tls;
    net->server = server;
    (void)snprintf(net->host, sizeof net->host, "%s", host == NULL ? "" : host);
    net->env = (struct tm_env){.monotonic_ns = tls_monotonic_ns,
                               .net_listen = tls_listen,
                               .net_accept = tls_accept,
                               .net_connect = tls_connect,
                               .net_send = tls_send,
                               .net_receive = tls_receive,
                               .net_wait = tls_wait,
                               .net_wait_send = tls_wait_send,
                               .net_peer_address = tls_peer_address,
                               .net_close = tls_close};
    return net;
}

void tm_tls_net_destroy(struct tm_tls_net *net)
{
    if (net == NULL) return;
    while (net->count > 0)
        tls_close(&net->env, net->links[net->count - 1].handle);
    tm_free(net->links);
    tm_free(net);
}

struct tm_env *tm_tls_net_env(struct tm_tls_net *net)
{
    return &net->env;
}
