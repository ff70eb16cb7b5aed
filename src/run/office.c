#include "run/office.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/debug.h"
#include "run/office_internal.h"
#include "run/state_folder.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    CLIENTS_MAX = 256,
    STRANGERS_MAX = 64, /* who have not been let in; the oldest goes for the next */
    STRANGER_MS = 10000,
    STRANGER_BYTES = 4096,
    LOOK_MS = 500,
    QUEUE_MAX = 2 << 20
};

static int64_t now_ns(const struct tm_office *o)
{
    return o->env->monotonic_ns(o->env);
}

bool tm_office__is_in(const struct tm_office__client *client)
{
    return client->enrolled || tm_tls_session_is_member(client->tls);
}

/* ---- clients ---- */

static void drop_client(struct tm_office *o, size_t at)
{
    struct tm_office__client *client = o->clients[at];
    tm_office__unlink(o, client);
    o->env->net_close(o->env, client->handle);
    tm_tls_session_destroy(client->tls);
    tm_block_release(client->put_block);
    tm_block_release(client->get_block);
    tm_text_deinit(&client->in);
    tm_text_deinit(&client->out);
    tm_free(client);
    o->clients[at] = NULL;
}

/* A free place; where strangers have too many, that of the oldest of them. CLIENTS_MAX: none. */
static size_t find_place(struct tm_office *o)
{
    size_t strangers = 0;
    size_t oldest = CLIENTS_MAX;
    size_t place = CLIENTS_MAX;
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        const struct tm_office__client *client = o->clients[i];
        if (client == NULL) {
            if (place == CLIENTS_MAX) place = i;
            continue;
        }
        if (tm_office__is_in(client)) continue;
        strangers++;
        if (oldest == CLIENTS_MAX || client->since_ns < o->clients[oldest]->since_ns) oldest = i;
    }
    if (oldest < CLIENTS_MAX && (strangers >= STRANGERS_MAX || place == CLIENTS_MAX)) {
        drop_client(o, oldest);
        return oldest;
    }
    return place;
}

static void accept_client(struct tm_office *o, int handle)
{
    size_t place = find_place(o);
    struct tm_office__client *client = place < CLIENTS_MAX ? tm_calloc(1, sizeof *client) : NULL;
    if (client != NULL) client->tls = tm_tls_session_create(o->tls, true, NULL, NULL);
    if (client == NULL || client->tls == NULL) {
        tm_free(client);
        o->env->net_close(o->env, handle);
        return;
    }
    client->handle = handle;
    client->since_ns = now_ns(o);
    tm_text_init(&client->in, TM_MESSAGE_BYTES_MAX * 2);
    tm_text_init(&client->out, TM_MESSAGE_BYTES_MAX * 2 + QUEUE_MAX);
    o->clients[place] = client;
}

/* ---- bytes ---- */

void tm_office__send(struct tm_office__client *client, const Tmw__OfficeMessage *message)
{
    struct tm_text packed;
    struct tm_text frame;
    tm_text_init(&packed, TM_MESSAGE_BYTES_MAX);
    tm_text_init(&frame, TM_MESSAGE_BYTES_MAX + TM_FRAME_HEADER);
    tm_office_message_pack(message, &packed);
    if (tm_text_status(&packed, NULL) == 0) tm_frame_append(&frame, packed.data, packed.length);
    if (packed.length == 0 || tm_text_status(&frame, NULL) != 0 ||
        tm_tls_session_write(client->tls, frame.data, frame.length) != 0)
        client->broken = true;
    tm_text_deinit(&frame);
    tm_text_deinit(&packed);
}

static size_t queued(const struct tm_office__client *client)
{
    return client->out.length - client->out_at;
}

static void flush(struct tm_office *o, struct tm_office__client *client)
{
    for (;;) {
        tm_tls_session_output(client->tls, &client->out);
        if (tm_text_status(&client->out, NULL) != 0) client->broken = true;
        while (!client->broken && queued(client) > 0) {
            size_t sent = 0;
            int rc = o->env->net_send(o->env, client->handle, client->out.data + client->out_at, queued(client), &sent,
                                      NULL);
            if (rc == -(int)TM_EBUSY) return;
            if (rc != 0) client->broken = true;
            client->out_at += sent;
        }
        client->out.length = client->out_at = 0;
        if (client->broken || client->get_block == NULL) return;
        tm_office__go_on(client);
    }
}

/* All whole messages that have come; one that may not be answered ends the connection. */
static void take_messages(struct tm_office *o, struct tm_office__client *client)
{
    size_t done = 0;
    while (!client->broken && client->get_block == NULL && done < client->in.length) {
        struct tm_arena arena;
        struct tm_error e;
        Tmw__OfficeMessage *message = NULL;
        bool stranger = !tm_office__is_in(client);
        int64_t size = tm_frame_next(client->in.data + done, client->in.length - done, NULL);
        if (size < 0 || (stranger && (size > STRANGER_BYTES || client->in.length > STRANGER_BYTES)))
            client->broken = true;
        if (size <= 0 || client->broken) break;
        tm_arena_init(&arena, 16 << 20);
        int rc = tm_office_message_unpack(client->in.data + done + TM_FRAME_HEADER, (size_t)size, &arena, &message, &e);
        if (rc == 0)
            tm_office__answer(o, client, message);
        else
            client->broken = true;
        tm_arena_deinit(&arena);
        done += (size_t)size + TM_FRAME_HEADER;
    }
    if (done == 0) return;
    memmove(client->in.data, client->in.data + done, client->in.length - done);
    client->in.length -= done;
}

static void receive(struct tm_office *o, struct tm_office__client *client)
{
    for (int i = 0; i < 32 && !client->broken && client->in.length <= TM_MESSAGE_BYTES_MAX; i++) {
        size_t got = 0;
        int rc = o->env->net_receive(o->env, client->handle, o->buffer, sizeof o->buffer, &got, NULL);
        if (rc == -(int)TM_EBUSY) break;
        if (rc != 0 || got == 0 || tm_tls_session_input(client->tls, o->buffer, got, &client->in) != 0 ||
            tm_text_status(&client->in, NULL) != 0)
            client->broken = true;
        if (!tm_office__is_in(client) && client->in.length > STRANGER_BYTES) client->broken = true;
    }
}

/* ---- the thread ---- */

static void serve_clients(struct tm_office *o, const struct tm_watch *watches, const size_t *places, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tm_office__client *client = o->clients[places[i]];
        if (client == NULL) continue;
        if (watches[i].ready) receive(o, client);
        take_messages(o, client);
        bool answers = client->broken; /* its last words, if there are any */
        client->broken = false;
        flush(o, client);
        client->broken = client->broken || answers;
        bool late = !tm_office__is_in(client) && now_ns(o) - client->since_ns > STRANGER_MS * (int64_t)1000000;
        if (client->broken || late) drop_client(o, places[i]);
    }
}

static bool is_over(struct tm_office *o)
{
    (void)pthread_mutex_lock(&o->lock);
    bool ends = o->ends;
    (void)pthread_mutex_unlock(&o->lock);
    return ends;
}

static void *serve(void *context)
{
    struct tm_office *o = context;
    struct tm_watch watches[CLIENTS_MAX + 2];
    size_t places[CLIENTS_MAX];
    while (!is_over(o)) {
        size_t count = 0;
        int handle = -1;
        watches[0] = (struct tm_watch){.handle = o->wake[0]};
        watches[1] = (struct tm_watch){.handle = o->listener};
        for (size_t i = 0; i < CLIENTS_MAX; i++) {
            const struct tm_office__client *client = o->clients[i];
            if (client == NULL) continue;
            watches[2 + count] = (struct tm_watch){.handle = client->handle,
                                                   .want = queued(client) > 0 ? TM_WATCH_BOTH : TM_WATCH_RECEIVE};
            places[count++] = i;
        }
        (void)o->env->net_watch(o->env, watches, count + 2, LOOK_MS, NULL);
        serve_clients(o, watches + 2, places, count);
        while (watches[1].ready && o->env->net_accept(o->env, o->listener, &handle, NULL) == 0)
            accept_client(o, handle);
    }
    return NULL;
}

/* ---- life ---- */

/* What a ticket names where nobody says: this machine by its name. */
static void find_host(struct tm_office *o)
{
    struct tm_text text;
    char host[TM_ADDRESS_MAX] = "";
    char port[TM_PORT_MAX];
    tm_text_init(&text, TM_ADDRESS_MAX - 1);
    if (o->options.host != NULL)
        (void)snprintf(o->host, sizeof o->host, "%s", o->options.host);
    else if (tm_address_split(o->address, host, port, NULL) == 0 && !tm_host_is_any(host))
        (void)snprintf(o->host, sizeof o->host, "%s", host);
    else if (o->env->file_read(o->env, "/proc/sys/kernel/hostname", &text, NULL) == 0)
        (void)snprintf(o->host, sizeof o->host, "%.*s", (int)strcspn(tm_text_string(&text), "\n"),
                       tm_text_string(&text));
    tm_text_deinit(&text);
}

static int start(struct tm_office *o, struct tm_error *e)
{
    char copies[TM_STATE_PATH_MAX];
    struct tm_env *env = o->env;
    tm_state_path(o->options.dir, TM_STATE_COPIES, copies);
    int rc = tm_tls_load_open(env, o->options.tls_folder, &o->tls, e);
    if (rc == 0) rc = tm_tls_authority_fingerprint(o->options.authority, o->fingerprint, e);
    if (rc == 0) rc = tm_copy_store_open(env, copies, o->options.job, &o->store, e);
    if (rc == 0) rc = env->net_pair(env, o->wake, e);
    if (rc == 0) rc = env->net_listen(env, o->options.listen, &o->listener, o->address, e);
    if (rc != 0) return tm_error_wrap(e, rc, "the office of the run");
    find_host(o);
    rc = tm_office__write_word(o, e);
    if (rc != 0) return rc;
    o->has_thread = pthread_create(&o->thread, NULL, serve, o) == 0;
    return o->has_thread ? 0 : tm_error_nomem(e);
}

int tm_office_create(struct tm_env *env, const struct tm_office_options *options, struct tm_office **out,
                     struct tm_error *e)
{
    struct tm_office *o = tm_calloc(1, sizeof *o);
    if (o == NULL) return tm_error_nomem(e);
    o->env = env;
    o->options = *options;
    o->listener = o->wake[0] = o->wake[1] = -1;
    o->guest_next = 1;
    (void)pthread_mutex_init(&o->lock, NULL);
    o->tickets = tm_calloc(TM_OFFICE_TICKETS_MAX, sizeof *o->tickets);
    o->pool = tm_block_pool_create();
    int rc = o->tickets == NULL || o->pool == NULL ? tm_error_nomem(e) : start(o, e);
    if (rc != 0) {
        tm_office_destroy(o);
        return rc;
    }
    *out = o;
    return 0;
}

void tm_office_destroy(struct tm_office *o)
{
    size_t sent = 0;
    if (o == NULL) return;
    if (o->has_thread) {
        (void)pthread_mutex_lock(&o->lock);
        o->ends = true;
        (void)pthread_mutex_unlock(&o->lock);
        (void)o->env->net_send(o->env, o->wake[1], "", 1, &sent, NULL);
        (void)pthread_join(o->thread, NULL);
    }
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        if (o->clients[i] != NULL) drop_client(o, i);
    if (o->listener >= 0) o->env->net_close(o->env, o->listener);
    for (int i = 0; i < 2; i++)
        if (o->wake[i] >= 0) o->env->net_close(o->env, o->wake[i]);
    if (o->store != NULL) o->store->close(o->store);
    tm_office__remove_word(o);
    tm_tls_destroy(o->tls);
    tm_block_pool_destroy(o->pool);
    tm_free(o->tickets);
    (void)pthread_mutex_destroy(&o->lock);
    tm_free(o);
}

const char *tm_office_address(const struct tm_office *office)
{
    return office->address;
}
