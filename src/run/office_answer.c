/* What the office answers. */
#include "base/address.h"
#include "base/log.h"
#include "base/secret.h"
#include "run/office_internal.h"
#include "run/state_folder.h"
#include "store/data_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PEM_MAX = 1 << 14 };

static void send_done(struct tm_office__client *client, int rc, const char *text, uint64_t number)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__Done done = TMW__DONE__INIT;
    char cut[TM_MESSAGE_STRING_MAX + 1];
    (void)snprintf(cut, sizeof cut, "%s", rc == 0 ? "" : text);
    message.body_case = TMW__OFFICE_MESSAGE__BODY_DONE;
    message.done = &done;
    done.code = (uint32_t)-rc;
    done.text = cut;
    done.number = number;
    tm_office__send(client, &message);
}

/* ---- letting in ---- */

/* Does it come from there? IPv4 may be written as IPv6. */
static bool is_from(struct tm_office *o, int handle, const char *wanted)
{
    static const char mapped[] = "::ffff:";
    char address[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    if (o->env->net_peer_address(o->env, handle, address, NULL) != 0 ||
        tm_address_split(address, host, port, NULL) != 0)
        return false;
    bool is_mapped = strncmp(host, mapped, sizeof mapped - 1) == 0;
    return strcmp(is_mapped ? host + sizeof mapped - 1 : host, wanted) == 0;
}

/* A ticket is used up by whoever shows its proof, and by nobody else. An answer may be lost on its way: the same key
 * gets the same instance again (`used` of what comes out). */
static int use_ticket(struct tm_office *o, const struct tm_office__client *client, const Tmw__Enrol *body,
                      struct tm_office__ticket *out, struct tm_error *e)
{
    uint8_t channel[TM_TLS_BINDING_BYTES];
    uint8_t right[TM_TICKET_PROOF_BYTES];
    if (body->ticket == 0 || body->ticket > o->ticket_count || o->ticket_count - body->ticket >= TM_OFFICE_TICKETS_MAX)
        return tm_error_set(e, TM_ENOTFOUND, "this ticket is not known: ask for a new one");
    struct tm_office__ticket *ticket = &o->tickets[(body->ticket - 1) % TM_OFFICE_TICKETS_MAX];
    if (tm_tls_session_binding(client->tls, channel) != 0) return tm_error_set(e, TM_EPEER, "TLS failed");
    bool good =
        tm_ticket_prove(ticket->secret, channel, sizeof channel, body->public_key.data, body->public_key.len, right) &&
        tm_secret_equal(body->proof.data, body->proof.len, right, sizeof right);
    if (!good) return tm_error_set(e, TM_EPEER, "this is not the ticket's secret");
    if (!tm_ticket_prove(ticket->secret, "", 0, body->public_key.data, body->public_key.len, right))
        return tm_error_nomem(e);
    *out = *ticket;
    memcpy(out->key, right, sizeof out->key);
    if (ticket->used && tm_secret_equal(ticket->key, sizeof ticket->key, right, sizeof right)) return 0;
    if (ticket->used)
        return tm_error_set(e, TM_EEXISTS,
                            "this ticket has been used: one machine joins by it, once; ask for a new one");
    if (ticket->void_)
        return tm_error_set(e, TM_EEXISTS, "this ticket is void: a newer one was made for the same instance");
    if (o->env->monotonic_ns(o->env) > ticket->until_ns)
        return tm_error_set(e, TM_ETIMEOUT, "this ticket has expired: ask for a new one");
    if (ticket->from[0] != '\0' && !is_from(o, client->handle, ticket->from))
        return tm_error_set(e, TM_EEXISTS, "this ticket is for the machine at %s alone", ticket->from);
    return 0;
}

/* HOST:PORT for agents: "" as the host: the one by which they have come. */
static int find_coordinator(const struct tm_office *o, char out[TM_ADDRESS_MAX], struct tm_error *e)
{
    char address[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    int rc = tm_state_read(o->env, o->options.dir, TM_STATE_ADDRESS, address, sizeof address, NULL);
    if (rc != 0) return tm_error_set(e, TM_EBUSY, "the coordinator is not there yet: try again");
    rc = tm_address_split(address, host, port, e);
    if (rc != 0) return rc;
    if (o->options.coordinator_host != NULL)
        tm_address_join(o->options.coordinator_host, port, out);
    else
        (void)snprintf(out, TM_ADDRESS_MAX, ":%s", port);
    return 0;
}

static int sign(struct tm_office *o, const Tmw__Enrol *body, uint64_t instance, struct tm_text *certificate,
                struct tm_text *authority, struct tm_error *e)
{
    char member[64];
    char name[80];
    char subject[80];
    (void)snprintf(member, sizeof member, TM_STATE_TLS_INSTANCE, instance);
    (void)snprintf(name, sizeof name, "%s.tidemill", member);
    (void)snprintf(subject, sizeof subject, "tidemill %s", member);
    const struct tm_tls_member who = {.subject = subject, .names = {name}};
    return tm_tls_authority_sign(o->options.authority, o->env, body->public_key.data, body->public_key.len, &who,
                                 certificate, authority, e);
}

static void send_enrolled(struct tm_office *o, struct tm_office__client *client, const struct tm_office__ticket *ticket,
                          bool guest, char *coordinator, const struct tm_text *certificate,
                          const struct tm_text *authority)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__Enrolled enrolled = TMW__ENROLLED__INIT;
    char token[TM_STATE_TOKEN_MAX];
    (void)snprintf(token, sizeof token, "%s", o->options.token);
    message.body_case = TMW__OFFICE_MESSAGE__BODY_ENROLLED;
    message.enrolled = &enrolled;
    enrolled.certificate = (ProtobufCBinaryData){certificate->length, (uint8_t *)certificate->data};
    enrolled.authority = (ProtobufCBinaryData){authority->length, (uint8_t *)authority->data};
    enrolled.token = token;
    enrolled.instance = ticket->instance;
    enrolled.anchor = ticket->anchor;
    enrolled.stays = guest;
    enrolled.coordinator = coordinator;
    tm_office__send(client, &message);
}

static void note_use(struct tm_office *o, const struct tm_office__ticket *ticket)
{
    struct tm_office__ticket *kept = &o->tickets[(ticket->number - 1) % TM_OFFICE_TICKETS_MAX];
    kept->used = true;
    kept->given = ticket->instance;
    memcpy(kept->key, ticket->key, sizeof kept->key);
}

static void enrol(struct tm_office *o, struct tm_office__client *client, const Tmw__Enrol *body)
{
    struct tm_error e = {.text = ""};
    struct tm_office__ticket ticket = {0};
    char coordinator[TM_ADDRESS_MAX];
    struct tm_text certificate;
    struct tm_text authority;
    tm_text_init(&certificate, PEM_MAX);
    tm_text_init(&authority, PEM_MAX);
    (void)pthread_mutex_lock(&o->lock);
    int rc = use_ticket(o, client, body, &ticket, &e);
    bool guest = ticket.instance == 0;
    bool again = ticket.used;
    if (rc == 0 && guest && !again) rc = tm_office__has_room(o, &e);
    if (rc == 0) rc = find_coordinator(o, coordinator, &e);
    if (guest) ticket.instance = again ? ticket.given : o->guest_next;
    if (rc == 0) rc = sign(o, body, ticket.instance, &certificate, &authority, &e);
    if (rc == 0) note_use(o, &ticket);
    if (rc == 0 && guest && !again) tm_office__admit(o, body->name);
    (void)pthread_mutex_unlock(&o->lock);
    if (rc == 0) {
        client->enrolled = true;
        send_enrolled(o, client, &ticket, guest, coordinator, &certificate, &authority);
    } else {
        if (rc == -(int)TM_EEXISTS || rc == -(int)TM_ETIMEOUT) /* who had the secret; others may say anything */
            tm_log(TM_LOG_WARN, "a machine was refused: %s", e.text);
        send_done(client, rc, e.text, 0);
        client->broken = true;
    }
    tm_text_deinit(&certificate);
    tm_text_deinit(&authority);
}

static void answer_stay(struct tm_office *o, struct tm_office__client *client, const Tmw__Stay *body)
{
    struct tm_error e = {.text = ""};
    bool go = false;
    int rc = tm_office__stay(o, client, body, &go, &e);
    if (rc != -(int)TM_EEXISTS) send_done(client, rc, e.text, go);
}

static void answer_tickets(struct tm_office *o, struct tm_office__client *client, const Tmw__TicketRequest *body)
{
    struct tm_error e = {.text = ""};
    int rc = tm_office__give_tickets(o, client, body, &e);
    if (rc == 0) return;
    send_done(client, rc, e.text, 0);
    client->broken = true;
}

/* ---- files ---- */

static void answer_file(struct tm_office *o, struct tm_office__client *client, const Tmw__FileRequest *body)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__FileData answer = TMW__FILE_DATA__INIT;
    struct tm_error e = {.text = ""};
    char path[TM_STATE_PATH_MAX] = "";
    size_t length = 0;
    int64_t size = 0;
    if (body->file == TM_OFFICE_JOB) tm_state_path(o->options.dir, TM_STATE_JOB, path);
    if (body->file == TM_OFFICE_RUN) tm_state_path(o->options.dir, TM_STATE_RUN, path);
    if (body->file == TM_OFFICE_DATA && o->options.data != NULL)
        (void)snprintf(path, sizeof path, "%s", o->options.data);
    struct tm_block *room = tm_block_create(o->pool, TM_OFFICE_PIECE);
    int rc = room == NULL ? tm_error_nomem(&e) : 0;
    if (rc == 0 && path[0] == '\0') rc = tm_error_set(&e, TM_ENOTFOUND, "there is no such file for machines to read");
    if (rc == 0 && body->offset > INT64_MAX / 2) rc = tm_error_set(&e, TM_EINPUT, "behind the end of the file");
    if (rc == 0)
        rc = o->env->file_read_at(o->env, path, (int64_t)body->offset, room->data, room->size, &length, &size, &e);
    if (rc == 0) {
        message.body_case = TMW__OFFICE_MESSAGE__BODY_FILE_DATA;
        message.file_data = &answer;
        answer.total = (uint64_t)size;
        answer.data = (ProtobufCBinaryData){length, room->data};
        tm_office__send(client, &message);
    } else {
        send_done(client, rc, e.text, 0);
    }
    tm_block_release(room);
}

/* ---- copies ---- */

static void take_put(struct tm_office *o, struct tm_office__client *client, const Tmw__StorePut *body)
{
    struct tm_error e = {.text = ""};
    bool first = body->offset == 0;
    if (first) {
        tm_block_release(client->put_block);
        client->put_block =
            body->total <= TM_OFFICE_PART_MAX && body->set > 0 ? tm_block_create(o->pool, (size_t)body->total) : NULL;
        client->put = (struct tm_copy_name){.set = body->set,
                                            .step = body->step,
                                            .generation = body->generation,
                                            .layer = body->layer,
                                            .hash = {body->hash_low, body->hash_high},
                                            .size = body->total};
        client->put_at = 0;
    }
    if (body->offset != client->put_at || body->total != client->put.size ||
        body->data.len > body->total - body->offset) {
        client->broken = true; /* not as members do it */
        return;
    }
    if (client->put_block != NULL && body->data.len > 0)
        memcpy(client->put_block->data + body->offset, body->data.data, body->data.len);
    client->put_at += body->data.len;
    if (client->put_at < client->put.size) return;
    int rc = 0;
    if (client->put_block == NULL)
        rc = tm_error_set(&e, TM_ENOMEM, "no memory for a part of %" PRIu64 " bytes", body->total);
    else if (!tm_hash_equal(tm_hash_of(client->put_block->data, client->put_block->size), client->put.hash))
        rc = tm_error_set(&e, TM_EIO, "the bytes that came are not what their hash says");
    else
        rc = o->store->put(o->store, &client->put, client->put_block, &e);
    tm_block_release(client->put_block);
    client->put_block = NULL;
    send_done(client, rc, e.text, 0);
}

void tm_office__go_on(struct tm_office__client *client)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__StorePut body = TMW__STORE_PUT__INIT;
    const struct tm_copy_name *name = &client->get;
    size_t left = client->get_block->size - client->get_at;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_STORE_PUT;
    message.store_put = &body;
    body.set = name->set;
    body.step = name->step;
    body.generation = name->generation;
    body.layer = name->layer;
    body.hash_low = name->hash.low;
    body.hash_high = name->hash.high;
    body.total = client->get_block->size;
    body.offset = client->get_at;
    body.data.data = client->get_block->data + client->get_at;
    body.data.len = left < TM_OFFICE_PIECE ? left : TM_OFFICE_PIECE;
    tm_office__send(client, &message);
    client->get_at += body.data.len;
    if (client->get_at < client->get_block->size) return;
    tm_block_release(client->get_block);
    client->get_block = NULL;
}

static void begin_get(struct tm_office *o, struct tm_office__client *client, const Tmw__StoreGet *body)
{
    struct tm_error e = {.text = ""};
    int rc = body->set == 0 ? tm_error_set(&e, TM_EINPUT, "sets are numbered from 1") : 0;
    if (rc == 0)
        rc = o->store->get(o->store, body->set, body->layer, body->size, o->pool, &client->get, &client->get_block, &e);
    client->get_at = 0;
    if (rc != 0) send_done(client, rc, e.text, 0);
}

/* ---- copies that do not pass through here ---- */

static void send_urls(struct tm_office__client *client, const struct tm_grant *grant, uint64_t total)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__StoreUrls answer = TMW__STORE_URLS__INIT;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_STORE_URLS;
    message.store_urls = &answer;
    answer.urls = (ProtobufCBinaryData){grant->urls.length, (uint8_t *)grant->urls.data};
    answer.upload = (ProtobufCBinaryData){strlen(grant->upload), (uint8_t *)grant->upload};
    answer.part_bytes = grant->part_bytes;
    answer.total = total;
    tm_office__send(client, &message);
}

static void answer_data_set(struct tm_office *o, struct tm_office__client *client)
{
    struct tm_error e = {.text = ""};
    struct tm_grant grant;
    uint64_t total = 0;
    int rc = o->options.data_set != NULL ? 0 : tm_error_set(&e, TM_ENONE, "there is no data set for machines to read");
    tm_grant_init(&grant);
    if (rc == 0) rc = tm_data_set_grant(o->env, o->options.data_set, &grant, &total, &e);
    if (rc == 0)
        send_urls(client, &grant, total);
    else /* whatever it is: a machine may have credentials of its own */
        send_done(client, -(int)TM_ENONE, e.text, 0);
    tm_grant_deinit(&grant);
}

static void answer_grant(struct tm_office *o, struct tm_office__client *client, const Tmw__StoreGrant *body)
{
    struct tm_error e = {.text = ""};
    struct tm_grant grant;
    int rc = body->set == 0 ? tm_error_set(&e, TM_EINPUT, "sets are numbered from 1") : 0;
    if (rc == 0 && o->store->grant == NULL) rc = tm_error_set(&e, TM_ENONE, "copies come through the office");
    tm_grant_init(&grant);
    if (rc == 0) rc = o->store->grant(o->store, body->set, body->layer, body->length, &grant, &e);
    if (rc == 0)
        send_urls(client, &grant, 0);
    else
        send_done(client, rc, e.text, 0);
    tm_grant_deinit(&grant);
}

static void answer_granted(struct tm_office *o, struct tm_office__client *client, const Tmw__StoreGranted *body)
{
    struct tm_error e = {.text = ""};
    struct tm_text upload;
    struct tm_text tags;
    tm_text_init(&upload, TM_GRANT_UPLOAD_MAX);
    tm_text_init(&tags, TM_GRANT_URLS_MAX);
    tm_text_append(&upload, (const char *)body->upload.data, body->upload.len);
    tm_text_append(&tags, (const char *)body->tags.data, body->tags.len);
    int rc = tm_text_status(&upload, &e);
    if (rc == 0) rc = tm_text_status(&tags, &e);
    if (rc == 0 && (body->set == 0 || upload.length == 0 || o->store->granted == NULL))
        rc = tm_error_set(&e, TM_EINPUT, "nothing was granted");
    if (rc == 0)
        rc = o->store->granted(o->store, body->set, body->layer, tm_text_string(&upload), tm_text_string(&tags), &e);
    send_done(client, rc, e.text, 0);
    tm_text_deinit(&upload);
    tm_text_deinit(&tags);
}

static void answer_newest(struct tm_office *o, struct tm_office__client *client)
{
    struct tm_error e = {.text = ""};
    uint64_t set = 0;
    int rc = o->store->newest(o->store, &set, &e);
    send_done(client, rc, e.text, set);
}

/* False: it is no question of those who are in. */
static bool answer_member(struct tm_office *o, struct tm_office__client *client, const Tmw__OfficeMessage *message)
{
    switch (message->body_case) {
    case TMW__OFFICE_MESSAGE__BODY_FILE_REQUEST:
        if (message->file_request->file == TM_OFFICE_DATA_SET)
            answer_data_set(o, client);
        else
            answer_file(o, client, message->file_request);
        return true;
    case TMW__OFFICE_MESSAGE__BODY_STORE_PUT:
        take_put(o, client, message->store_put);
        return true;
    case TMW__OFFICE_MESSAGE__BODY_STORE_GET:
        begin_get(o, client, message->store_get);
        return true;
    case TMW__OFFICE_MESSAGE__BODY_STORE_NEWEST:
        answer_newest(o, client);
        return true;
    case TMW__OFFICE_MESSAGE__BODY_STORE_GRANT:
        answer_grant(o, client, message->store_grant);
        return true;
    case TMW__OFFICE_MESSAGE__BODY_STORE_GRANTED:
        answer_granted(o, client, message->store_granted);
        return true;
    case TMW__OFFICE_MESSAGE__BODY_STAY:
        answer_stay(o, client, message->stay);
        return true;
    default:
        return false;
    }
}

static bool answer_stranger(struct tm_office *o, struct tm_office__client *client, const Tmw__OfficeMessage *message)
{
    switch (message->body_case) {
    case TMW__OFFICE_MESSAGE__BODY_ENROL:
        enrol(o, client, message->enrol);
        return true;
    case TMW__OFFICE_MESSAGE__BODY_TICKET_REQUEST:
        answer_tickets(o, client, message->ticket_request);
        return true;
    default:
        return false;
    }
}

void tm_office__answer(struct tm_office *o, struct tm_office__client *client, const Tmw__OfficeMessage *message)
{
    bool in = tm_office__is_in(client);
    if (in ? answer_member(o, client, message) : answer_stranger(o, client, message)) return;
    send_done(client, -(int)TM_EUSAGE, in ? "not a question for the office" : "enrol with a ticket first", 0);
    client->broken = true;
}
