#include "base/alloc.h"
#include "engine/mesh_hub_internal.h"

#include <stddef.h>
#include <string.h>

enum { RAW_BYTES = 1 << 16, OUT_MAX = 4 << 20, ROUND_BYTES = 4 << 20, SMALL_BYTES = 4096, SEND_POLL_MS = 10000 };
static const uint64_t greeting_magic = 0x544D485542303031U; /* "TMHUB001" */
static const uint64_t frame_bytes_max = (uint64_t)4 << 30;

int tm_mesh_link__open(struct tm_mesh_link *link, struct tm_env *env, int handle, struct tm_tls *tls, bool server,
                       struct tm_error *e)
{
    *link = (struct tm_mesh_link){.handle = handle, .rank = -1};
    if (tls != NULL) {
        link->tls = tm_tls_session_create(tls, server, NULL, NULL);
        if (link->tls == NULL) {
            env->net_close(env, handle);
            return tm_error_nomem(e);
        }
    }
    (void)pthread_mutex_init(&link->tls_lock, NULL);
    (void)pthread_mutex_init(&link->sending, NULL);
    tm_text_init(&link->out, OUT_MAX);
    tm_text_init(&link->plain, 4 * RAW_BYTES + sizeof(struct tm_mesh_greeting));
    return 0;
}

void tm_mesh_link__close(struct tm_mesh_link *link, struct tm_env *env)
{
    if (link->state == LINK_FREE) return;
    env->net_close(env, link->handle);
    tm_tls_session_destroy(link->tls);
    tm_text_deinit(&link->out);
    tm_text_deinit(&link->plain);
    tm_free(link->parcel);
    (void)pthread_mutex_destroy(&link->tls_lock);
    (void)pthread_mutex_destroy(&link->sending);
    *link = (struct tm_mesh_link){.state = LINK_FREE};
}

/* ---- bytes in ---- */

/* Decrypts what has come until there is something to take. */
static int pull_tls(struct tm_mesh_link *link, struct tm_env *env)
{
    unsigned char raw[RAW_BYTES];
    size_t got = 0;
    link->plain.length = 0;
    link->plain_at = 0;
    while (link->plain.length == 0) {
        int rc = env->net_receive(env, link->handle, raw, sizeof raw, &got, NULL);
        if (rc != 0) return rc;
        if (got == 0) return -(int)TM_EPEER;
        (void)pthread_mutex_lock(&link->tls_lock);
        rc = tm_tls_session_input(link->tls, raw, got, &link->plain);
        (void)pthread_mutex_unlock(&link->tls_lock);
        if (rc == 0) rc = tm_text_status(&link->plain, NULL);
        if (rc != 0) return rc;
        if (link->state != LINK_UP) { /* the handshake has answers of its own */
            rc = tm_mesh_link__flush(link, env);
            if (rc != 0) return rc;
        }
    }
    return 0;
}

/* Up to `want` bytes; -TM_EBUSY: none have come. */
static int pull(struct tm_mesh_link *link, struct tm_env *env, void *to, size_t want, size_t *out_got)
{
    if (link->tls == NULL) {
        int rc = env->net_receive(env, link->handle, to, want, out_got, NULL);
        return rc == 0 && *out_got == 0 ? -(int)TM_EPEER : rc;
    }
    if (link->plain_at == link->plain.length) {
        int rc = pull_tls(link, env);
        if (rc != 0) return rc;
    }
    size_t there = link->plain.length - link->plain_at;
    *out_got = want < there ? want : there;
    memcpy(to, link->plain.data + link->plain_at, *out_got);
    link->plain_at += *out_got;
    return 0;
}

/* ---- greetings ---- */

int tm_mesh_link__flush(struct tm_mesh_link *link, struct tm_env *env)
{
    size_t done = 0;
    int rc = 0;
    if (link->tls != NULL) tm_tls_session_output(link->tls, &link->out);
    if (tm_text_status(&link->out, NULL) != 0) return -(int)TM_ENOMEM;
    while (rc == 0 && done < link->out.length) {
        size_t sent = 0;
        rc = env->net_send(env, link->handle, link->out.data + done, link->out.length - done, &sent, NULL);
        if (rc == 0) done += sent;
    }
    if (done > 0) memmove(link->out.data, link->out.data + done, link->out.length - done);
    link->out.length -= done;
    return rc == -(int)TM_EBUSY ? 0 : rc;
}

static const size_t said_bytes = offsetof(struct tm_mesh_greeting, proof);

int tm_mesh_link__greet(struct tm_mesh_link *link, struct tm_env *env, const char *token, uint64_t kind)
{
    struct tm_mesh_greeting *greeting = &link->greeting;
    greeting->magic = greeting_magic;
    greeting->kind = kind;
    memset(greeting->proof, 0, sizeof greeting->proof);
    if (kind != 1 && !tm_proof_make(token, greeting, said_bytes, greeting->proof)) return -(int)TM_ENOMEM;
    if (link->tls == NULL)
        tm_text_append(&link->out, (const char *)greeting, sizeof *greeting);
    else if (tm_tls_session_write(link->tls, greeting, sizeof *greeting) != 0)
        return -(int)TM_ENOMEM;
    return tm_mesh_link__flush(link, env);
}

int tm_mesh_link__greeted(struct tm_mesh_link *link, struct tm_env *env)
{
    while (link->got < sizeof link->greeting_in) {
        size_t got = 0;
        int rc = pull(link, env, (unsigned char *)&link->greeting_in + link->got, sizeof link->greeting_in - link->got,
                      &got);
        if (rc == -(int)TM_EBUSY) return 0;
        if (rc != 0) return rc;
        link->got += got;
    }
    link->got = 0;
    return link->greeting_in.magic == greeting_magic ? 1 : -(int)TM_EPEER;
}

bool tm_mesh_link__believes(const struct tm_mesh_link *link, const char *token, uint64_t kind)
{
    const struct tm_mesh_greeting *ours = &link->greeting;
    const struct tm_mesh_greeting *theirs = &link->greeting_in;
    bool same = theirs->kind == kind && theirs->job == ours->job && theirs->generation == ours->generation &&
                theirs->from == ours->from && theirs->to == ours->to && theirs->dialer_nonce == ours->dialer_nonce &&
                (kind == 2 || theirs->answerer_nonce == ours->answerer_nonce);
    return same && tm_proof_right(token, theirs, said_bytes, theirs->proof);
}

/* ---- frames ---- */

/* The head is whole: a parcel for what follows. */
static int open_parcel(struct tm_mesh_link *link, struct tm_inbox *inbox)
{
    if (link->head.length > frame_bytes_max) return -(int)TM_EPEER;
    link->parcel = tm_inbox__parcel(inbox, (size_t)link->head.length);
    if (link->parcel == NULL) return -(int)TM_ENOMEM;
    link->parcel->from = link->rank;
    link->parcel->tag = link->head.tag;
    return 0;
}

int tm_mesh_link__read(struct tm_mesh_link *link, struct tm_env *env, struct tm_inbox *inbox)
{
    /* What is decrypted already makes no handle ready: it is taken to the end. */
    for (size_t taken = 0; taken < ROUND_BYTES || link->plain_at < link->plain.length;) {
        bool in_head = link->parcel == NULL;
        unsigned char *to = in_head ? (unsigned char *)&link->head : link->parcel->data;
        size_t whole = in_head ? sizeof link->head : link->parcel->length;
        size_t got = 0;
        int rc = link->got < whole ? pull(link, env, to + link->got, whole - link->got, &got) : 0;
        if (rc == -(int)TM_EBUSY) return 0;
        if (rc != 0) return rc;
        taken += got;
        link->got += got;
        if (link->got < whole) continue;
        link->got = 0;
        if (in_head) {
            rc = open_parcel(link, inbox);
        } else {
            struct tm_parcel *parcel = link->parcel;
            link->parcel = NULL;
            rc = tm_inbox__put(inbox, parcel, NULL);
        }
        if (rc != 0) return rc;
    }
    return 0;
}

static int send_raw(struct tm_mesh_link *link, struct tm_env *env, const void *data, size_t length, struct tm_error *e)
{
    const unsigned char *at = data;
    while (length > 0) {
        size_t done = 0;
        int rc = env->net_send(env, link->handle, at, length, &done, e);
        if (rc == -(int)TM_EBUSY) { /* whoever cancels shuts the handle down, and that ends the wait */
            rc = env->net_wait_send(env, link->handle, SEND_POLL_MS, e);
            if (rc != 0 && rc != -(int)TM_ETIMEOUT) return rc;
            continue;
        }
        if (rc != 0) return rc;
        at += done;
        length -= done;
    }
    return 0;
}

static int send_tls(struct tm_mesh_link *link, struct tm_env *env, const void *data, size_t length, struct tm_error *e)
{
    const unsigned char *at = data;
    int rc = 0;
    while (rc == 0 && length > 0) {
        size_t part = length < RAW_BYTES ? length : RAW_BYTES;
        (void)pthread_mutex_lock(&link->tls_lock);
        rc = tm_tls_session_write(link->tls, at, part);
        tm_tls_session_output(link->tls, &link->out);
        (void)pthread_mutex_unlock(&link->tls_lock);
        if (rc != 0 || tm_text_status(&link->out, e) != 0) return tm_error_set(e, TM_EPEER, "a stream lost bytes");
        rc = send_raw(link, env, link->out.data, link->out.length, e);
        link->out.length = 0;
        at += part;
        length -= part;
    }
    return rc;
}

int tm_mesh_link__send(struct tm_mesh_link *link, struct tm_env *env, uint64_t tag, const void *data, size_t length,
                       struct tm_error *e)
{
    unsigned char small[sizeof(struct tm_mesh_frame) + SMALL_BYTES];
    struct tm_mesh_frame head = {.tag = tag, .length = length};
    size_t first = length < SMALL_BYTES ? length : SMALL_BYTES; /* with the head: small messages are one packet */
    memcpy(small, &head, sizeof head);
    memcpy(small + sizeof head, data, first);
    (void)pthread_mutex_lock(&link->sending);
    int rc = 0;
    if (link->tls != NULL) {
        rc = send_tls(link, env, small, sizeof head + first, e);
        if (rc == 0) rc = send_tls(link, env, (const unsigned char *)data + first, length - first, e);
    } else {
        rc = send_raw(link, env, small, sizeof head + first, e);
        if (rc == 0) rc = send_raw(link, env, (const unsigned char *)data + first, length - first, e);
    }
    (void)pthread_mutex_unlock(&link->sending);
    return rc;
}
