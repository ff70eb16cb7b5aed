/* Tickets, and who comes by one that is for nobody in particular. What is said here of guests and tickets is read and
 * written with the office's lock. */
#include "base/address.h"
#include "base/log.h"
#include "base/secret.h"
#include "run/office_internal.h"
#include "run/state_folder.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t now_ns(const struct tm_office *o)
{
    return o->env->monotonic_ns(o->env);
}

static int64_t away_ns(const struct tm_office *o)
{
    return (o->options.away_ms > 0 ? o->options.away_ms : TM_OFFICE_AWAY_MS) * (int64_t)1000000;
}

static void draw_secret(struct tm_office *o, uint8_t out[TM_TICKET_SECRET_BYTES])
{
    for (size_t i = 0; i < TM_TICKET_SECRET_BYTES; i += 8) {
        uint64_t random = o->env->random_u64(o->env);
        memcpy(out + i, &random, 8);
    }
}

/* ---- tickets ---- */

/* With the lock. */
static int make_ticket(struct tm_office *o, const struct tm_ticket_for *who, struct tm_ticket *out, struct tm_error *e)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    assert(o->tickets != NULL);
    int rc = tm_address_split(o->address, host, port, e);
    if (rc != 0) return rc;
    *out = (struct tm_ticket){.job = o->options.job};
    tm_address_join(who->host != NULL ? who->host : o->host, port, out->address);
    memcpy(out->authority, o->fingerprint, sizeof out->authority);
    draw_secret(o, out->secret);
    int64_t valid_ms = who->valid_ms > 0 ? who->valid_ms : TM_OFFICE_TICKET_MS;
    for (size_t i = 0; i < TM_OFFICE_TICKETS_MAX && who->instance != 0; i++)
        if (o->tickets[i].instance == who->instance && !o->tickets[i].used) o->tickets[i].void_ = true;
    struct tm_office__ticket *kept = &o->tickets[o->ticket_count % TM_OFFICE_TICKETS_MAX];
    *kept = (struct tm_office__ticket){.number = ++o->ticket_count,
                                       .instance = who->instance,
                                       .anchor = who->anchor,
                                       .until_ns = now_ns(o) + valid_ms * 1000000};
    memcpy(kept->secret, out->secret, sizeof kept->secret);
    out->number = kept->number;
    return 0;
}

int tm_office_ticket(void *office, const struct tm_ticket_for *who, char out[TM_TICKET_MAX], struct tm_error *e)
{
    struct tm_office *o = office;
    struct tm_ticket ticket;
    (void)pthread_mutex_lock(&o->lock);
    int rc = make_ticket(o, who, &ticket, e);
    (void)pthread_mutex_unlock(&o->lock);
    if (rc == 0) tm_ticket_print(&ticket, out);
    return rc;
}

void tm_office_bind(struct tm_office *office, uint64_t instance, const char *host)
{
    (void)pthread_mutex_lock(&office->lock);
    for (size_t i = 0; i < TM_OFFICE_TICKETS_MAX; i++) {
        struct tm_office__ticket *ticket = &office->tickets[i];
        if (ticket->instance == instance && !ticket->used && !ticket->void_)
            (void)snprintf(ticket->from, sizeof ticket->from, "%.63s", host);
    }
    (void)pthread_mutex_unlock(&office->lock);
}

bool tm_office_has_joined(struct tm_office *office, uint64_t instance)
{
    bool joined = false;
    (void)pthread_mutex_lock(&office->lock);
    for (size_t i = 0; i < TM_OFFICE_TICKETS_MAX && !joined; i++)
        joined = office->tickets[i].instance == instance && office->tickets[i].used;
    (void)pthread_mutex_unlock(&office->lock);
    return joined;
}

/* ---- the run's own word: who reads the state folder may ask for tickets ---- */

int tm_office__write_word(struct tm_office *o, struct tm_error *e)
{
    struct tm_ticket ticket = {.job = o->options.job};
    char word[TM_TICKET_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    char path[TM_STATE_PATH_MAX];
    int rc = tm_address_split(o->address, host, port, e);
    if (rc != 0) return rc;
    const char *near = !tm_host_is_any(host) ? host : "127.0.0.1"; /* [::] has it, too */
    tm_address_join(near, port, ticket.address);
    memcpy(ticket.authority, o->fingerprint, sizeof ticket.authority);
    draw_secret(o, o->secret);
    memcpy(ticket.secret, o->secret, sizeof ticket.secret);
    tm_ticket_print(&ticket, word);
    tm_state_path(o->options.dir, TM_STATE_OFFICE, path);
    rc = o->env->file_write_private(o->env, path, word, strlen(word), e);
    o->has_word = rc == 0;
    return rc;
}

void tm_office__remove_word(struct tm_office *o)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(o->options.dir, TM_STATE_OFFICE, path);
    if (o->has_word) (void)o->env->file_remove(o->env, path, NULL);
}

static void send_tickets(struct tm_office__client *client, const struct tm_ticket *tickets, size_t count)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__Tickets body = TMW__TICKETS__INIT;
    static const size_t max = TM_OFFICE_ASKED_MAX;
    char words[TM_OFFICE_ASKED_MAX][TM_TICKET_MAX];
    char *list[TM_OFFICE_ASKED_MAX];
    for (size_t i = 0; i < count && i < max; i++) {
        tm_ticket_print(&tickets[i], words[i]);
        list[i] = words[i];
    }
    message.body_case = TMW__OFFICE_MESSAGE__BODY_TICKETS;
    message.tickets = &body;
    body.tickets = list;
    body.n_tickets = count;
    tm_office__send(client, &message);
}

static int check_request(struct tm_office *o, const struct tm_office__client *client, const Tmw__TicketRequest *body,
                         struct tm_error *e)
{
    uint8_t channel[TM_TLS_BINDING_BYTES];
    uint8_t right[TM_TICKET_PROOF_BYTES];
    if (tm_tls_session_binding(client->tls, channel) != 0) return tm_error_set(e, TM_EPEER, "TLS failed");
    bool good = o->has_word && tm_ticket_prove(o->secret, channel, sizeof channel, "", 0, right) &&
                tm_secret_equal(body->proof.data, body->proof.len, right, sizeof right);
    if (!good) return tm_error_set(e, TM_EPEER, "this is not the word of the run's state folder");
    if (!o->options.guests)
        return tm_error_set(e, TM_EUSAGE,
                            "this run's cloud starts its instances itself; cloud: join takes machines with tickets");
    if (body->count < 1 || body->count > TM_OFFICE_ASKED_MAX || body->valid_ms > TM_OFFICE_VALID_MAX_MS)
        return tm_error_set(e, TM_EINPUT, "at most %d tickets at a time, for at most %d h", TM_OFFICE_ASKED_MAX,
                            TM_OFFICE_VALID_MAX_MS / 3600000);
    return strlen(body->host) < TM_ADDRESS_MAX - TM_PORT_MAX - 4 ? 0 : tm_error_set(e, TM_EINPUT, "too long a host");
}

int tm_office__give_tickets(struct tm_office *o, struct tm_office__client *client, const Tmw__TicketRequest *body,
                            struct tm_error *e)
{
    struct tm_ticket tickets[TM_OFFICE_ASKED_MAX];
    const struct tm_ticket_for who = {.host = body->host[0] != '\0' ? body->host : NULL,
                                      .valid_ms = (int64_t)body->valid_ms};
    int rc = check_request(o, client, body, e);
    if (rc != 0) return rc;
    (void)pthread_mutex_lock(&o->lock);
    for (uint32_t i = 0; rc == 0 && i < body->count; i++)
        rc = make_ticket(o, &who, &tickets[i], e);
    (void)pthread_mutex_unlock(&o->lock);
    if (rc == 0) send_tickets(client, tickets, body->count);
    return rc;
}

/* ---- guests ---- */

static struct tm_office__guest *find_guest(struct tm_office *o, uint64_t id)
{
    for (size_t i = 0; i < o->guest_count; i++)
        if (o->guests[i].id == id) return &o->guests[i];
    return NULL;
}

int tm_office__has_room(const struct tm_office *o, struct tm_error *e)
{
    int here = 0;
    for (size_t i = 0; i < o->guest_count; i++) {
        const struct tm_office__guest *guest = &o->guests[i];
        here += guest->state == TM_GUEST_HERE && !guest->dismissed && !guest->noticed;
    }
    if (here < o->welcome) return 0;
    if (o->welcome == 0) return tm_error_set(e, TM_EBUSY, "the job wants no machines now");
    return tm_error_set(e, TM_EBUSY, "the job has all the machines that it wants now (%d)", here);
}

/* For people: what is not a letter of a host name is left out. */
static void take_name(const char *said, char out[64])
{
    size_t length = 0;
    for (; *said != '\0' && length < 63; said++) {
        bool good = (*said >= 'a' && *said <= 'z') || (*said >= 'A' && *said <= 'Z') || (*said >= '0' && *said <= '9');
        if (good || *said == '-' || *said == '.' || *said == '_') out[length++] = *said;
    }
    out[length] = '\0';
}

/* The oldest that is over, and was told, makes room; there are always such: has_room says how many are here. */
void tm_office__admit(struct tm_office *o, const char *name)
{
    size_t at = o->guest_count;
    for (size_t i = 0; at == TM_OFFICE_GUESTS_MAX && i < o->guest_count; i++)
        if (o->guests[i].state != TM_GUEST_HERE && o->guests[i].told) at = i;
    for (size_t i = 0; i < o->guest_count && at < o->guest_count; i++)
        if (o->guests[i].state != TM_GUEST_HERE && o->guests[i].told && o->guests[i].id < o->guests[at].id) at = i;
    if (at == TM_OFFICE_GUESTS_MAX) return; /* it counts as unknown, and is told to go */
    if (at == o->guest_count) o->guest_count++;
    o->guests[at] = (struct tm_office__guest){.id = o->guest_next++, .heard_ns = now_ns(o)};
    take_name(name, o->guests[at].name);
}

/* It was away for too long: one ticket to come back by; an earlier one that it has not used is void. */
static int let_back(struct tm_office *o, struct tm_office__guest *guest, struct tm_ticket *out)
{
    struct tm_office__ticket *before =
        guest->ticket > 0 ? &o->tickets[(guest->ticket - 1) % TM_OFFICE_TICKETS_MAX] : NULL;
    if (before != NULL && before->number == guest->ticket && before->used) return -(int)TM_EEXISTS;
    if (before != NULL && before->number == guest->ticket) before->void_ = true;
    const struct tm_ticket_for who = {.instance = 0};
    int rc = make_ticket(o, &who, out, NULL);
    if (rc == 0) guest->ticket = out->number;
    return rc;
}

static void hear(struct tm_office *o, struct tm_office__guest *guest, const Tmw__Stay *body)
{
    guest->heard_ns = now_ns(o);
    guest->linked = true;
    guest->noticed = body->noticed;
    if (body->noticed)
        guest->notice_end_ns = guest->heard_ns + (int64_t)(body->notice_left_ms % (86400 * 1000)) * 1000000;
    if (!body->leaves) return;
    guest->state = TM_GUEST_LEFT;
    guest->status = (int)(body->status % 256);
}

static bool is_over(const struct tm_office *o, const struct tm_office__guest *guest)
{
    int64_t now = now_ns(o);
    if (guest->state != TM_GUEST_HERE) return true;
    bool dropped = guest->dropped_ns > guest->heard_ns && now - guest->dropped_ns > away_ns(o) / 10;
    return dropped || now - guest->heard_ns > away_ns(o);
}

int tm_office__stay(struct tm_office *o, struct tm_office__client *client, const Tmw__Stay *body, bool *out_go,
                    struct tm_error *e)
{
    char name[80];
    struct tm_ticket back;
    (void)snprintf(name, sizeof name, TM_STATE_TLS_INSTANCE ".tidemill", body->instance);
    if (!tm_tls_session_has_name(client->tls, name))
        return tm_error_set(e, TM_EPEER, "the certificate is not that of instance %" PRIu64, body->instance);
    (void)pthread_mutex_lock(&o->lock);
    struct tm_office__guest *guest = find_guest(o, body->instance);
    if (guest != NULL && is_over(o, guest) && guest->state == TM_GUEST_HERE) guest->state = TM_GUEST_LOST;
    bool lost = guest != NULL && guest->state == TM_GUEST_LOST && !guest->dismissed && !body->leaves;
    bool again = lost && let_back(o, guest, &back) == 0;
    bool here = guest != NULL && guest->state == TM_GUEST_HERE;
    if (here) hear(o, guest, body);
    client->guest = here && !body->leaves ? guest->id : 0;
    *out_go = !here || guest->dismissed;
    (void)pthread_mutex_unlock(&o->lock);
    if (!again) return 0;
    tm_log(TM_LOG_INFO, "a machine that was away for too long may come back");
    send_tickets(client, &back, 1);
    return -(int)TM_EEXISTS; /* it has its answer */
}

void tm_office__unlink(struct tm_office *o, const struct tm_office__client *client)
{
    if (client->guest == 0) return;
    (void)pthread_mutex_lock(&o->lock);
    struct tm_office__guest *guest = find_guest(o, client->guest);
    if (guest != NULL) guest->dropped_ns = now_ns(o);
    (void)pthread_mutex_unlock(&o->lock);
}

void tm_office_welcome(struct tm_office *office, int count, uint64_t id_first)
{
    (void)pthread_mutex_lock(&office->lock);
    office->welcome = count;
    if (office->guest_next < id_first) office->guest_next = id_first;
    (void)pthread_mutex_unlock(&office->lock);
}

void tm_office_dismiss(struct tm_office *office, uint64_t instance)
{
    (void)pthread_mutex_lock(&office->lock);
    struct tm_office__guest *guest = find_guest(office, instance);
    if (guest != NULL) guest->dismissed = true;
    (void)pthread_mutex_unlock(&office->lock);
}

size_t tm_office_guests(struct tm_office *office, struct tm_guest *out, size_t max)
{
    size_t count = 0;
    (void)pthread_mutex_lock(&office->lock);
    for (size_t i = 0; i < office->guest_count && count < max; i++) {
        struct tm_office__guest *guest = &office->guests[i];
        if (is_over(office, guest) && guest->state == TM_GUEST_HERE) guest->state = TM_GUEST_LOST;
        if (guest->told) continue;
        int64_t left_ms = (guest->notice_end_ns - now_ns(office)) / 1000000;
        out[count] = (struct tm_guest){.id = guest->id,
                                       .state = guest->state,
                                       .noticed = guest->noticed,
                                       .notice_left_ms = left_ms > 0 ? left_ms : 0,
                                       .status = guest->status};
        memcpy(out[count++].name, guest->name, sizeof out->name);
        guest->told = guest->state != TM_GUEST_HERE;
    }
    (void)pthread_mutex_unlock(&office->lock);
    return count;
}
