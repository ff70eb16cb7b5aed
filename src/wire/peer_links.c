#include "wire/peer_links.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/planted.h"
#include "wire/tls.h"

#include <assert.h>
#include <string.h>

enum {
    CHUNK = 1 << 16,
    ADDRESSES = 64,
    RETRY_MS = 200,
    CONNECT_LIMIT_MS = 5000,
    CONNECTING_QUEUE_MAX = 4 << 20,
    LISTENER_AT = 1
};

static const size_t NOT_NOTED = SIZE_MAX;

struct link {
    int handle;
    bool broken;
    size_t noted;        /* its place in what is waited for; NOT_NOTED: not there */
    bool connecting;     /* nothing has been sent or received yet on a connection that we make */
    int64_t since_ns;    /* when it was begun */
    struct tm_peer peer; /* role NONE: has not said who it is */
    struct tm_text in;   /* plain bytes not yet taken as messages */
    struct tm_text out;  /* raw bytes, from out_at on not yet sent */
    size_t out_at;
    struct tm_tls_session *tls;
    uint64_t order;               /* of its making */
    char address[TM_ADDRESS_MAX]; /* where we connected to; "": they came */
};

struct failed_address {
    char address[TM_ADDRESS_MAX];
    int64_t at_ns;
};

struct tm_links {
    struct tm_env *env;
    struct tm_tls *tls;
    int listener; /* -1: none */
    char address[TM_ADDRESS_MAX];
    struct link **links; /* owned; a place may be NULL */
    size_t link_count;   /* places */
    size_t link_capacity;
    struct failed_address failed[ADDRESSES];
    size_t next_failed;
    uint64_t made;
    tm_links_lost_f lost;
    void *lost_context;
    int wake[2];  /* whoever waits watches the first */
    bool stirred; /* since the last note: something is to be waited for that is not */
    uint8_t chunk[CHUNK];
};

bool tm_address_is_loopback(const char *address)
{
    static const char *const names[] = {"localhost:", "::1:", "[::1]:"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(address, names[i], strlen(names[i])) == 0) return true;
    /* 127.A.B.C:PORT, and nothing but digits and dots: 127.example.org is a name like any other. */
    size_t host = strspn(address, "0123456789.");
    return strncmp(address, "127.", 4) == 0 && address[host] == ':';
}

int tm_links_create(struct tm_env *env, const char *address, struct tm_tls *tls, struct tm_links **out,
                    struct tm_error *e)
{
    if (address != NULL && tls == NULL && !tm_address_is_loopback(address))
        return tm_error_set(e, TM_EUSAGE, "listening on %s needs TLS: only loopback does without", address);
    struct tm_links *links = tm_calloc(1, sizeof *links);
    if (links == NULL) return tm_error_nomem(e);
    links->env = env;
    links->tls = tls;
    links->listener = -1;
    links->wake[0] = links->wake[1] = -1;
    int rc = env->net_pair(env, links->wake, e);
    if (rc == 0 && address != NULL) rc = env->net_listen(env, address, &links->listener, links->address, e);
    if (rc != 0) {
        tm_links_destroy(links);
        return rc;
    }
    *out = links;
    return 0;
}

static void close_link(struct tm_links *links, struct link *link)
{
    if (!TM_PLANTED(handle_leak) || !link->broken) links->env->net_close(links->env, link->handle);
    tm_tls_session_destroy(link->tls);
    tm_text_deinit(&link->in);
    tm_text_deinit(&link->out);
    for (size_t i = 0; i < links->link_count; i++)
        if (links->links[i] == link) links->links[i] = NULL;
    tm_free(link);
}

void tm_links_destroy(struct tm_links *links)
{
    if (links == NULL) return;
    for (size_t i = 0; i < links->link_count; i++)
        if (links->links[i] != NULL) close_link(links, links->links[i]);
    tm_free(links->links);
    if (links->listener >= 0) links->env->net_close(links->env, links->listener);
    for (int i = 0; i < 2; i++)
        if (links->wake[i] >= 0) links->env->net_close(links->env, links->wake[i]);
    tm_free(links);
}

const char *tm_links_address(const struct tm_links *links)
{
    return links->address;
}

void tm_links_on_lost(struct tm_links *links, tm_links_lost_f lost, void *context)
{
    links->lost = lost;
    links->lost_context = context;
}

/* ---- making links ---- */

/* A free place; where there is none, the one of whoever has been silent for longest without saying who it is: a flood
 * of such connections does not keep members out. NULL: all are members', or there is no memory. */
static struct link **place_for_link(struct tm_links *links)
{
    struct link *oldest = NULL;
    for (size_t i = 0; i < links->link_count; i++)
        if (links->links[i] == NULL) return &links->links[i];
    int rc = tm_grow((void **)&links->links, &links->link_capacity, links->link_count + 1, sizeof *links->links,
                     TM_LINKS_MAX);
    if (rc == 0) {
        links->links[links->link_count] = NULL;
        return &links->links[links->link_count++];
    }
    for (size_t i = 0; i < links->link_count; i++) {
        struct link *link = links->links[i];
        if (link->peer.role == TM_ROLE_NONE && (oldest == NULL || link->order < oldest->order)) oldest = link;
    }
    if (rc != -(int)TM_ELIMIT || oldest == NULL) return NULL;
    close_link(links, oldest);
    return place_for_link(links);
}

static struct link *add_link(struct tm_links *links, int handle, bool server)
{
    struct link **place = place_for_link(links);
    struct link *link = place == NULL ? NULL : tm_calloc(1, sizeof *link);
    if (link != NULL && links->tls != NULL) link->tls = tm_tls_session_create(links->tls, server);
    if (link == NULL || (links->tls != NULL && link->tls == NULL)) {
        links->env->net_close(links->env, handle);
        tm_free(link);
        return NULL;
    }
    link->handle = handle;
    link->noted = NOT_NOTED;
    link->order = ++links->made;
    link->since_ns = links->env->monotonic_ns(links->env);
    links->stirred = true;
    tm_text_init(&link->in, TM_MESSAGE_BYTES_MAX + CHUNK + TM_FRAME_HEADER);
    tm_text_init(&link->out, TM_LINK_QUEUE_MAX);
    *place = link;
    return link;
}

static bool failed_lately(struct tm_links *links, const char *address)
{
    int64_t now_ns = links->env->monotonic_ns(links->env);
    for (size_t i = 0; i < ADDRESSES; i++)
        if (strcmp(links->failed[i].address, address) == 0 &&
            now_ns - links->failed[i].at_ns < (int64_t)RETRY_MS * 1000000)
            return true;
    return false;
}

static void note_failed(struct tm_links *links, const char *address)
{
    struct failed_address *failed = &links->failed[links->next_failed++ % ADDRESSES];
    size_t length = strnlen(address, sizeof failed->address - 1);
    memcpy(failed->address, address, length);
    failed->address[length] = '\0';
    failed->at_ns = links->env->monotonic_ns(links->env);
}

static struct link *connect_to(struct tm_links *links, const struct tm_peer *to, const char *address)
{
    struct tm_error e;
    int handle = -1;
    if (links->tls == NULL && !tm_address_is_loopback(address)) return NULL;
    if (failed_lately(links, address)) return NULL;
    if (links->env->net_begin_connect(links->env, address, &handle, &e) != 0) {
        note_failed(links, address);
        return NULL;
    }
    struct link *link = add_link(links, handle, false);
    if (link == NULL) return NULL;
    size_t length = strnlen(address, sizeof link->address - 1);
    link->peer = *to;
    link->connecting = true;
    memcpy(link->address, address, length);
    link->address[length] = '\0';
    return link;
}

static struct link *find_link(struct tm_links *links, const struct tm_peer *peer)
{
    for (size_t i = 0; i < links->link_count; i++) {
        struct link *link = links->links[i];
        if (link != NULL && !link->broken && link->peer.id == peer->id && link->peer.role == peer->role) return link;
    }
    return NULL;
}

/* ---- sending ---- */

static size_t queued(const struct link *link)
{
    return link->out.length - link->out_at;
}

/* Sends what the machine takes now; the rest stays queued. */
static void flush(struct tm_links *links, struct link *link)
{
    if (link->tls != NULL) tm_tls_session_output(link->tls, &link->out);
    if (link->out.failed != 0) link->broken = true; /* a stream with bytes missing is no stream */
    while (!link->broken && queued(link) > 0) {
        size_t sent = 0;
        int rc =
            links->env->net_send(links->env, link->handle, link->out.data + link->out_at, queued(link), &sent, NULL);
        if (rc == -(int)TM_EBUSY) break;
        if (rc != 0) link->broken = true;
        if (rc == 0) link->connecting = false;
        link->out_at += sent;
    }
    if (queued(link) > 0 || link->broken) links->stirred = true;
    if (link->out_at < link->out.length / 2) return;
    if (queued(link) > 0) memmove(link->out.data, link->out.data + link->out_at, queued(link));
    link->out.length = queued(link);
    link->out_at = 0;
}

void tm_links_send(struct tm_links *links, const struct tm_peer *to, const char *address, const void *message,
                   size_t length)
{
    struct link *link = find_link(links, to);
    if (link == NULL && address != NULL && address[0] != '\0') link = connect_to(links, to, address);
    size_t room = link != NULL && link->connecting ? CONNECTING_QUEUE_MAX : TM_LINK_QUEUE_MAX / 2;
    if (link == NULL || queued(link) + length + TM_FRAME_HEADER > room) return;
    if (link->tls != NULL) {
        struct tm_text frame;
        tm_text_init(&frame, length + TM_FRAME_HEADER);
        tm_frame_append(&frame, message, length);
        if (tm_text_status(&frame, NULL) == 0 && tm_tls_session_write(link->tls, frame.data, frame.length) != 0)
            link->broken = true;
        tm_text_deinit(&frame);
    } else {
        tm_frame_append(&link->out, message, length);
    }
    flush(links, link);
}

/* ---- receiving ---- */

void tm_links_note(struct tm_links *links, int64_t timeout_ms, struct tm_links_waiting *out)
{
    out->count = 0;
    out->watches[out->count++] = (struct tm_watch){.handle = links->wake[0]};
    if (links->listener >= 0) out->watches[out->count++] = (struct tm_watch){.handle = links->listener};
    for (size_t i = 0; i < links->link_count; i++) {
        struct link *link = links->links[i];
        if (link == NULL) continue;
        link->noted = link->broken ? NOT_NOTED : out->count;
        if (link->broken)
            timeout_ms = 0; /* to be taken away */
        else
            out->watches[out->count++] =
                (struct tm_watch){.handle = link->handle, .send = queued(link) > 0 || link->connecting};
    }
    out->timeout_ms = timeout_ms;
    links->stirred = false;
}

void tm_links_also(struct tm_links_waiting *waiting, int handle)
{
    if (waiting->count < sizeof waiting->watches / sizeof *waiting->watches)
        waiting->watches[waiting->count++] = (struct tm_watch){.handle = handle};
}

void tm_links_wait(const struct tm_links *links, struct tm_links_waiting *waiting)
{
    (void)links->env->net_watch(links->env, waiting->watches, waiting->count, waiting->timeout_ms, NULL);
}

void tm_links_wake_always(struct tm_links *links)
{
    size_t sent = 0;
    (void)links->env->net_send(links->env, links->wake[1], "", 1, &sent, NULL);
}

void tm_links_wake(struct tm_links *links)
{
    if (links->stirred) tm_links_wake_always(links);
}

static void receive(struct tm_links *links, struct link *link)
{
    for (int i = 0; i < 64 && !link->broken && link->in.length <= TM_MESSAGE_BYTES_MAX; i++) {
        size_t got = 0;
        int rc = links->env->net_receive(links->env, link->handle, links->chunk, sizeof links->chunk, &got, NULL);
        if (rc == -(int)TM_EBUSY) return;
        if (rc != 0 || got == 0) {
            link->broken = true;
            return;
        }
        link->connecting = false;
        if (link->tls == NULL)
            tm_text_append(&link->in, (const char *)links->chunk, got);
        else if (tm_tls_session_input(link->tls, links->chunk, got, &link->in) != 0)
            link->broken = true;
        if (tm_text_status(&link->in, NULL) != 0) link->broken = true;
    }
}

/* The sender's newest connection is the one that is used from now on. */
static void belongs_to(struct tm_links *links, struct link *link, const tm_message *message)
{
    struct tm_peer from = tm_message_sender(message);
    if (link->peer.role == from.role && link->peer.id == from.id) {
        link->peer.incarnation = from.incarnation;
        return;
    }
    if (link->peer.role != TM_ROLE_NONE) return;
    struct link *old = find_link(links, &from);
    if (old != NULL && old->peer.incarnation != from.incarnation && old->peer.incarnation != 0) old->broken = true;
    link->peer = from;
}

static void take_messages(struct tm_links *links, struct link *link, tm_links_each_f each, void *context)
{
    size_t done = 0;
    for (;;) {
        int64_t size = tm_frame_next(link->in.data + done, link->in.length - done, NULL);
        if (size < 0) link->broken = true; /* not our protocol */
        if (size <= 0) break;
        struct tm_arena arena;
        struct tm_error e;
        tm_message *message = NULL;
        tm_arena_init(&arena, 64 << 20);
        int rc = tm_message_unpack(link->in.data + done + TM_FRAME_HEADER, (size_t)size, &arena, &message, &e);
        if (rc == 0) {
            belongs_to(links, link, message);
            each(context, message);
        } else {
            tm_log(TM_LOG_WARN, "a message is refused: %s", e.text);
            link->broken = true;
        }
        tm_arena_deinit(&arena);
        done += (size_t)size + TM_FRAME_HEADER;
        if (link->broken) break;
    }
    if (done == 0) return;
    memmove(link->in.data, link->in.data + done, link->in.length - done);
    link->in.length -= done;
}

/* A connection that cannot be made is noted, so that it is not tried again at once. */
static void take_away(struct tm_links *links, struct link *link)
{
    struct tm_peer peer = link->peer;
    if (link->connecting) note_failed(links, link->address);
    bool never_was = link->connecting;
    close_link(links, link);
    if (!never_was && links->lost != NULL && peer.role != TM_ROLE_NONE && find_link(links, &peer) == NULL)
        links->lost(links->lost_context, &peer);
}

static bool may_have(const struct tm_links_waiting *waiting, size_t noted)
{
    return waiting == NULL || (noted != NOT_NOTED && waiting->watches[noted].ready);
}

void tm_links_take_ready(struct tm_links *links, const struct tm_links_waiting *waiting, tm_links_each_f each,
                         void *context)
{
    int handle = -1;
    size_t woken = 0;
    if (may_have(waiting, 0))
        (void)links->env->net_receive(links->env, links->wake[0], links->chunk, sizeof links->chunk, &woken, NULL);
    bool knocks = links->listener >= 0 && may_have(waiting, LISTENER_AT);
    while (knocks && links->env->net_accept(links->env, links->listener, &handle, NULL) == 0)
        (void)add_link(links, handle, true);
    for (size_t i = 0; i < links->link_count; i++) {
        struct link *link = links->links[i];
        if (link == NULL) continue;
        if (may_have(waiting, link->noted)) receive(links, link);
        if (link->in.length > 0) take_messages(links, link, each, context);
        flush(links, link);
        int64_t age_ns = links->env->monotonic_ns(links->env) - link->since_ns;
        if (link->connecting && age_ns > (int64_t)CONNECT_LIMIT_MS * 1000000) link->broken = true;
    }
    for (size_t i = 0; i < links->link_count; i++)
        if (links->links[i] != NULL && links->links[i]->broken) take_away(links, links->links[i]);
}

void tm_links_take(struct tm_links *links, tm_links_each_f each, void *context)
{
    tm_links_take_ready(links, NULL, each, context);
}
