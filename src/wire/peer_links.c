#include "wire/peer_links.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "base/planted.h"
#include "wire/link_proof.h"
#include "wire/tls.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    CHUNK = 1 << 16,
    ADDRESSES = 64,
    RETRY_MS = 200,
    CONNECTING_QUEUE_MAX = 4 << 20,
    LISTENER_AT = 1,
    ACCEPTED_AT_ONCE = 32 /* then those that are there are heard */
};

static const size_t NOT_NOTED = SIZE_MAX;

struct link {
    int handle;
    bool broken;
    size_t noted;     /* its place in what is waited for; NOT_NOTED: not there */
    bool connecting;  /* nothing has been sent or received yet on a connection that we make */
    int64_t since_ns; /* when it was there: begun, or made where that takes a while */
    struct tm_link_proof proof;
    struct tm_text waiting; /* frames that wait for it */
    struct tm_peer peer;    /* role NONE: has not said who it is */
    struct tm_text in;      /* plain bytes not yet taken as messages */
    struct tm_text out;     /* raw bytes, from out_at on not yet sent */
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
    char token[TM_LINK_TOKEN_MAX];
    char trouble[TM_ERROR_TEXT_MAX];
    tm_links_lost_f lost;
    void *lost_context;
    int wake[2];  /* whoever waits watches the first */
    bool stirred; /* since the last note: something is to be waited for that is not */
    uint8_t chunk[CHUNK];
};

/* Without TLS the address is part of the proof: both ends must call it the same. */
static void call_loopback(const struct tm_tls *tls, const char *address, char out[TM_ADDRESS_MAX])
{
    static const char name[] = "localhost:";
    bool by_name = tls == NULL && strncmp(address, name, strlen(name)) == 0;
    (void)snprintf(out, TM_ADDRESS_MAX, "%s%s", by_name ? "127.0.0.1:" : "",
                   by_name ? address + strlen(name) : address);
}

int tm_links_create(struct tm_env *env, const char *address, struct tm_tls *tls, const char *token,
                    struct tm_links **out, struct tm_error *e)
{
    if (token[0] == '\0' || strlen(token) >= TM_LINK_TOKEN_MAX)
        return tm_error_set(e, TM_EUSAGE, "the join token must have 1 to %d bytes", TM_LINK_TOKEN_MAX - 1);
    if (address != NULL && tls == NULL && !tm_address_is_loopback(address))
        return tm_error_set(e, TM_EUSAGE, "listening on %s needs TLS: only loopback works without it", address);
    struct tm_links *links = tm_calloc(1, sizeof *links);
    if (links == NULL) return tm_error_nomem(e);
    links->env = env;
    links->tls = tls;
    memcpy(links->token, token, strlen(token) + 1);
    links->listener = -1;
    links->wake[0] = links->wake[1] = -1;
    int rc = env->net_pair(env, links->wake, e);
    if (rc == 0 && address != NULL) {
        char at[TM_ADDRESS_MAX];
        call_loopback(tls, address, at);
        rc = env->net_listen(env, at, &links->listener, links->address, e);
    }
    if (rc != 0) {
        tm_links_destroy(links);
        return rc;
    }
    *out = links;
    return 0;
}

static void close_link(struct tm_links *links, struct link *link)
{
    assert(link != NULL && link->handle >= 0);
    if (!TM_PLANTED(handle_leak) || !link->broken) links->env->net_close(links->env, link->handle);
    tm_tls_session_destroy(link->tls);
    tm_text_deinit(&link->in);
    tm_text_deinit(&link->out);
    tm_text_deinit(&link->waiting);
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

const char *tm_links_trouble(const struct tm_links *links)
{
    return links->trouble;
}

void tm_links_on_lost(struct tm_links *links, tm_links_lost_f lost, void *context)
{
    assert(lost != NULL);
    links->lost = lost;
    links->lost_context = context;
}

/* ---- making links ---- */

static void put_bytes(struct link *link, const void *data, size_t length)
{
    assert(data != NULL && length > 0);
    if (link->tls == NULL)
        tm_text_append(&link->out, data, length);
    else if (tm_tls_session_write(link->tls, data, length) != 0)
        link->broken = true;
}

/* Of those who came and have proven nothing, the one that has had the longest time for it; and how many there are. */
static struct link *oldest_unproven(const struct tm_links *links, size_t *out_count)
{
    struct link *oldest = NULL;
    *out_count = 0;
    for (size_t i = 0; i < links->link_count; i++) {
        struct link *link = links->links[i];
        if (link == NULL || link->proof.proven || !link->proof.listens) continue;
        ++*out_count;
        if (oldest == NULL || link->order < oldest->order) oldest = link;
    }
    return oldest;
}

/* A free place. NULL: all are members', or there is no memory. */
static struct link **place_for_link(struct tm_links *links)
{
    size_t strangers = 0;
    for (size_t i = 0; i < links->link_count; i++)
        if (links->links[i] == NULL) return &links->links[i];
    int rc = tm_grow((void **)&links->links, &links->link_capacity, links->link_count + 1, sizeof *links->links,
                     TM_LINKS_MAX);
    if (rc == 0) {
        links->links[links->link_count] = NULL;
        return &links->links[links->link_count++];
    }
    struct link *oldest = oldest_unproven(links, &strangers);
    if (rc != -(int)TM_ELIMIT || oldest == NULL) return NULL;
    close_link(links, oldest);
    return place_for_link(links);
}

static void begin_proof(struct tm_links *links, struct link *link, bool server)
{
    struct tm_text words;
    tm_text_init(&words, TM_LINK_PROOF_NEEDS_MAX);
    tm_link_proof__begin(&link->proof, links->env, server, &words);
    if (tm_text_status(&words, NULL) != 0) link->broken = true;
    if (words.length > 0) put_bytes(link, words.data, words.length);
    tm_text_deinit(&words);
}

/* The coordinator is asked for its own certificate: no other member can pass for it. It has the name, and the hosts
 * that were known when it was made. */
static struct tm_tls_session *open_session(struct tm_links *links, const struct tm_peer *to, const char *address)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    bool asked = to != NULL && to->role == TM_ROLE_COORDINATOR;
    bool by_host = asked && tm_address_split(address, host, port, NULL) == 0 && !tm_host_is_address(host);
    return tm_tls_session_create(links->tls, to == NULL, asked ? TM_TLS_COORDINATOR : NULL, by_host ? host : NULL);
}

/* `to`, `address`: where we connect to; NULL: they have connected to us. */
static struct link *add_link(struct tm_links *links, int handle, const struct tm_peer *to, const char *address)
{
    bool server = to == NULL;
    assert(handle >= 0);
    size_t strangers = 0;
    struct link *oldest = server ? oldest_unproven(links, &strangers) : NULL;
    if (strangers >= TM_LINKS_UNPROVEN_MAX) close_link(links, oldest);
    struct link **place = place_for_link(links);
    struct link *link = place == NULL ? NULL : tm_calloc(1, sizeof *link);
    if (link != NULL && links->tls != NULL) link->tls = open_session(links, to, address);
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
    tm_text_init(&link->waiting, CONNECTING_QUEUE_MAX);
    begin_proof(links, link, server);
    assert(*place == NULL);
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
    assert(to->role != TM_ROLE_NONE && address[0] != '\0');
    struct tm_error e;
    char at[TM_ADDRESS_MAX];
    int handle = -1;
    if (links->tls == NULL && !tm_address_is_loopback(address)) {
        (void)snprintf(links->trouble, sizeof links->trouble, "connecting to %.100s needs TLS: provide certificates",
                       address);
        return NULL;
    }
    call_loopback(links->tls, address, at);
    address = at;
    if (failed_lately(links, address)) return NULL;
    if (links->env->net_connect(links->env, address, &handle, &e) != 0) {
        (void)snprintf(links->trouble, sizeof links->trouble, "%s", e.text);
        tm_debug(TM_DEBUG_WIRE, "%s", e.text);
        note_failed(links, address);
        return NULL;
    }
    struct link *link = add_link(links, handle, to, address);
    if (link == NULL) return NULL;
    tm_debug(TM_DEBUG_WIRE, "connecting to %s %" PRIu64 " at %s", tm_role_name(to->role), to->id, address);
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
    assert(link->out_at <= link->out.length);
    return link->out.length - link->out_at;
}

/* Of a connection that we were to make it is kept why it was not made. */
static void break_link(struct tm_links *links, struct link *link, const char *why)
{
    const char *colon = strstr(why, ": "); /* behind "send" or "receive", which say nothing here */
    if (link->connecting && colon != NULL) why = colon + 2;
    link->broken = true;
    tm_debug(TM_DEBUG_WIRE, "connection %" PRIu64 " %s %s %" PRIu64 " is over: %s", link->order,
             link->address[0] != '\0' ? "to" : "from", tm_role_name(link->peer.role), link->peer.id, why);
    if (link->address[0] != '\0' && !link->proof.proven)
        (void)snprintf(links->trouble, sizeof links->trouble, "%.100s: %.300s", link->address, why);
}

/* The time to prove something counts from here: a name may take as long to look up as the machine allows. */
static void note_connected(const struct tm_links *links, struct link *link)
{
    if (link->connecting) link->since_ns = links->env->monotonic_ns(links->env);
    link->connecting = false;
}

/* Sends what the machine takes now; the rest stays queued. */
static void flush(struct tm_links *links, struct link *link)
{
    if (link->tls != NULL) tm_tls_session_output(link->tls, &link->out);
    if (link->out.failed != 0) link->broken = true; /* a stream with bytes missing is no stream */
    while (!link->broken && queued(link) > 0) {
        size_t sent = 0;
        struct tm_error e;
        int rc = links->env->net_send(links->env, link->handle, link->out.data + link->out_at, queued(link), &sent, &e);
        if (rc == -(int)TM_EBUSY) break;
        if (rc != 0) break_link(links, link, e.text);
        if (rc == 0) note_connected(links, link);
        link->out_at += sent;
        assert(link->out_at <= link->out.length);
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
    assert(to->role != TM_ROLE_NONE && message != NULL && length > 0);
    struct link *link = find_link(links, to);
    if (link == NULL && address != NULL && address[0] != '\0') link = connect_to(links, to, address);
    if (link == NULL) return;
    if (!link->proof.proven) {
        if (link->waiting.length + length + TM_FRAME_HEADER <= CONNECTING_QUEUE_MAX)
            tm_frame_append(&link->waiting, message, length);
        if (tm_text_status(&link->waiting, NULL) != 0) link->broken = true;
    } else if (queued(link) + length + TM_FRAME_HEADER > TM_LINK_QUEUE_MAX / 2) {
        return;
    } else if (link->tls != NULL) {
        struct tm_text frame;
        tm_text_init(&frame, length + TM_FRAME_HEADER);
        tm_frame_append(&frame, message, length);
        if (tm_text_status(&frame, NULL) == 0) put_bytes(link, frame.data, frame.length);
        tm_text_deinit(&frame);
    } else {
        tm_frame_append(&link->out, message, length);
    }
    flush(links, link);
}

/* ---- receiving ---- */

void tm_links_note_more(struct tm_links *links, struct tm_links_waiting *out)
{
    enum { MOST = sizeof out->watches / sizeof *out->watches };
    assert(links->link_count <= TM_LINKS_MAX && links->link_count <= links->link_capacity);
    if (out->count + 2 > MOST) return;
    out->watches[out->count++] = (struct tm_watch){.handle = links->wake[0]};
    if (links->listener >= 0) out->watches[out->count++] = (struct tm_watch){.handle = links->listener};
    for (size_t i = 0; i < links->link_count; i++) {
        struct link *link = links->links[i];
        if (link == NULL) continue;
        bool watched = !link->broken && out->count < MOST;
        link->noted = watched ? out->count : NOT_NOTED;
        if (link->broken) out->timeout_ms = 0; /* to be taken away */
        if (watched)
            out->watches[out->count++] =
                (struct tm_watch){.handle = link->handle,
                                  .want = queued(link) > 0 || link->connecting ? TM_WATCH_BOTH : TM_WATCH_RECEIVE};
    }
    links->stirred = false;
}

void tm_links_note(struct tm_links *links, int64_t timeout_ms, struct tm_links_waiting *out)
{
    out->count = 0;
    out->timeout_ms = timeout_ms;
    tm_links_note_more(links, out);
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
    assert(links->wake[1] >= 0);
    size_t sent = 0;
    (void)links->env->net_send(links->env, links->wake[1], "", 1, &sent, NULL);
}

void tm_links_wake(struct tm_links *links)
{
    if (links->stirred) tm_links_wake_always(links);
}

/* What ties a proof to this connection. */
static size_t channel_of(const struct tm_links *links, const struct link *link, char out[TM_ADDRESS_MAX])
{
    if (link->tls != NULL) {
        static_assert(TM_TLS_BINDING_BYTES <= TM_ADDRESS_MAX, "a channel's name has room");
        return tm_tls_session_binding(link->tls, (uint8_t *)out) == 0 ? (size_t)TM_TLS_BINDING_BYTES : 0;
    }
    return (size_t)snprintf(out, TM_ADDRESS_MAX, "%s", link->proof.listens ? links->address : link->address);
}

/* Takes what has come of the first words, and answers. */
static void take_proof(struct tm_links *links, struct link *link)
{
    assert(!link->proof.proven);
    char channel[TM_ADDRESS_MAX];
    struct tm_text answer;
    size_t done = 0;
    tm_text_init(&answer, TM_LINK_PROOF_NEEDS_MAX);
    for (size_t needs; !link->broken && (needs = tm_link_proof__needs(&link->proof)) > 0;) {
        if (link->in.length - done < needs) break;
        size_t length = channel_of(links, link, channel);
        int rc = length == 0
                     ? -(int)TM_EPEER
                     : tm_link_proof__take(&link->proof, links->token, channel, length, link->in.data + done, &answer);
        if (rc == 0) rc = tm_text_status(&answer, NULL);
        if (rc == -(int)TM_EPEER)
            break_link(links, link,
                       "it does not know this job's token: is it another job, is the token wrong, or does it listen on "
                       "another address?");
        else if (rc != 0)
            break_link(links, link, "it does not speak this protocol");
        done += needs;
    }
    if (!link->broken && answer.length > 0) put_bytes(link, answer.data, answer.length);
    tm_text_deinit(&answer);
    if (link->proof.proven && !link->broken) {
        tm_debug(TM_DEBUG_WIRE, "connection %" PRIu64 " %s is proven", link->order,
                 link->address[0] != '\0' ? link->address : "that came");
        if (link->address[0] != '\0') links->trouble[0] = '\0';
        if (link->waiting.length > 0) put_bytes(link, link->waiting.data, link->waiting.length);
        tm_text_deinit(&link->waiting);
        tm_text_init(&link->waiting, CONNECTING_QUEUE_MAX);
    }
    memmove(link->in.data, link->in.data + done, link->in.length - done);
    link->in.length -= done;
}

static void receive(struct tm_links *links, struct link *link)
{
    for (int i = 0; i < 64 && !link->broken && link->in.length <= TM_MESSAGE_BYTES_MAX; i++) {
        size_t got = 0;
        size_t most = sizeof links->chunk;
        struct tm_error e;
        if (!link->proof.proven && link->tls == NULL) most = tm_link_proof__needs(&link->proof) - link->in.length;
        int rc = links->env->net_receive(links->env, link->handle, links->chunk, most, &got, &e);
        if (rc == -(int)TM_EBUSY) return;
        if (rc != 0 || got == 0) {
            break_link(links, link, rc != 0 ? e.text : "it closed the connection");
            return;
        }
        note_connected(links, link);
        if (link->tls == NULL)
            tm_text_append(&link->in, (const char *)links->chunk, got);
        else if (tm_tls_session_input(link->tls, links->chunk, got, &link->in) != 0)
            break_link(links, link,
                       "TLS failed: its certificate is not of this job, not the coordinator's, or has expired, or ours "
                       "is, or it does "
                       "not use TLS");
        if (tm_text_status(&link->in, NULL) != 0) link->broken = true;
        if (!link->proof.proven && link->in.length > 0) take_proof(links, link);
    }
}

/* The sender's newest connection is the one that is used from now on. False: it speaks for somebody else than before.
 */
static bool belongs_to(struct tm_links *links, struct link *link, const tm_message *message)
{
    struct tm_peer from = tm_message_sender(message);
    if (link->peer.role == from.role && link->peer.id == from.id) {
        link->peer.incarnation = from.incarnation;
        return true;
    }
    if (link->peer.role != TM_ROLE_NONE) return false;
    struct link *old = find_link(links, &from);
    if (old != NULL && old->peer.incarnation != from.incarnation && old->peer.incarnation != 0) old->broken = true;
    tm_debug(TM_DEBUG_WIRE, "connection %" PRIu64 " is of %s %" PRIu64, link->order, tm_role_name(from.role), from.id);
    link->peer = from;
    return true;
}

static void take_messages(struct tm_links *links, struct link *link, tm_links_each_f each, void *context)
{
    assert(link->proof.proven);
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
        if (rc != 0) tm_log(TM_LOG_WARN, "message refused: %s", e.text);
        if (rc == 0 && belongs_to(links, link, message))
            each(context, message);
        else
            link->broken = true;
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
    assert(link->broken);
    struct tm_peer peer = link->peer;
    bool never_was = !link->proof.proven;
    if (never_was && link->address[0] != '\0') note_failed(links, link->address);
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
    for (int i = 0; knocks && i < ACCEPTED_AT_ONCE; i++) {
        if (links->env->net_accept(links->env, links->listener, &handle, NULL) != 0) break;
        const struct link *came = add_link(links, handle, NULL, NULL);
        if (came != NULL) tm_debug(TM_DEBUG_WIRE, "connection %" PRIu64 " came in", came->order);
    }
    for (size_t i = 0; i < links->link_count; i++) {
        struct link *link = links->links[i];
        if (link == NULL) continue;
        if (may_have(waiting, link->noted)) receive(links, link);
        if (link->proof.proven && link->in.length > 0) take_messages(links, link, each, context);
        flush(links, link);
        int64_t age_ns = links->env->monotonic_ns(links->env) - link->since_ns;
        bool talks = !link->broken && !link->connecting; /* until then the machine has a limit of its own */
        if (!link->proof.proven && talks && age_ns > (int64_t)TM_LINK_PROOF_LIMIT_MS * 1000000)
            break_link(links, link, "no answer");
    }
    for (size_t i = 0; i < links->link_count; i++)
        if (links->links[i] != NULL && links->links[i]->broken) take_away(links, links->links[i]);
}

void tm_links_take(struct tm_links *links, tm_links_each_f each, void *context)
{
    tm_links_take_ready(links, NULL, each, context);
}
