#include "run/cloud_link.h"

#include "wire/proof.h"

#include <string.h>

#define TM_BODY(message, name, field, pointer)                                                                         \
    do {                                                                                                               \
        (message).body_case = TMW__ENVELOPE__BODY_##name;                                                              \
        (message).field = (pointer);                                                                                   \
    } while (0)

enum { NEVER_MS = -1, REPORT_MS = 250, HELLO_MS = 500, SILENT_REPORTS = 24 };

void tm_cloud_link_init(struct tm_cloud_link *link, const struct tm_cloud_link_options *options)
{
    *link = (struct tm_cloud_link){.options = *options, .said_ms = NEVER_MS};
    if (link->options.report_ms <= 0) link->options.report_ms = REPORT_MS;
    link->self = (struct tm_peer){.role = TM_ROLE_CLOUD, .id = TM_CLOUD_PEER_ID, .incarnation = options->incarnation};
    link->coordinator = (struct tm_peer){.role = TM_ROLE_COORDINATOR};
}

void tm_cloud_link__changed(struct tm_cloud_link *link)
{
    link->changed = true;
}

static void say_hello(struct tm_cloud_link *link, int64_t now_ms, struct tm_outbox *out)
{
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    tm_message message = tm_message_make(link->options.job, &link->self, &to);
    Tmw__Hello body = TMW__HELLO__INIT;
    uint8_t proof[TM_PROOF_BYTES];
    tm_proof_put_hello(link->options.token, link->options.job, &link->self, link->nonce, proof, &body);
    TM_BODY(message, HELLO, hello, &body);
    tm_outbox_send(out, &to, &message);
    link->said_ms = now_ms;
}

bool tm_cloud_link_due(struct tm_cloud_link *link, int64_t now_ms, struct tm_outbox *out)
{
    if (link->refused) return false;
    int64_t since_ms = link->said_ms == NEVER_MS ? INT64_MAX : now_ms - link->said_ms;
    if (!link->registered) {
        if (since_ms >= HELLO_MS) say_hello(link, now_ms, out);
        return false;
    }
    return link->changed || since_ms >= link->options.report_ms;
}

void tm_cloud_link_report(struct tm_cloud_link *link, int64_t now_ms, Tmw__CloudReport *report, struct tm_outbox *out)
{
    if (!link->registered) return;
    tm_message message = tm_message_make(link->options.job, &link->self, &link->coordinator);
    report->sequence = ++link->sequence;
    TM_BODY(message, CLOUD_REPORT, cloud_report, report);
    tm_outbox_send(out, &link->coordinator, &message);
    link->said_ms = now_ms;
    link->changed = false;
    /* A coordinator that stays silent may have forgotten us, or be another one. */
    if (link->sequence - link->acked > SILENT_REPORTS) {
        link->registered = false;
        link->nonce = 0;
    }
}

static bool take_order(struct tm_cloud_link *link, const Tmw__CloudOrder *body)
{
    if (body->sequence <= link->acked || body->sequence > link->sequence) return false;
    link->acked = body->sequence;
    struct tm_cloud_order *order = &link->order;
    *order = (struct tm_cloud_order){.given = true,
                                     .want_spot = body->want_spot,
                                     .want_on_demand = body->want_on_demand,
                                     .job_state = (enum tm_job_state)body->job_state,
                                     .want = {body->want_spot, body->want_on_demand},
                                     .pool_count = 2,
                                     .stop = body->stop != 0};
    if (body->n_want > 0) order->pool_count = body->n_want < TM_ORDER_POOLS_MAX ? body->n_want : TM_ORDER_POOLS_MAX;
    for (size_t i = 0; body->n_want > 0 && i < TM_ORDER_POOLS_MAX; i++)
        order->want[i] = i < body->n_want ? body->want[i] : 0;
    for (size_t i = 0; i < body->n_release && order->release_count < TM_CLOUD_RELEASES_MAX; i++)
        order->release[order->release_count++] = body->release[i];
    return true;
}

bool tm_cloud_link_receive(struct tm_cloud_link *link, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    if (message->job != link->options.job || message->from_role != TM_ROLE_COORDINATOR) return false;
    if (message->to_incarnation != link->self.incarnation) return false;
    switch (message->body_case) {
    case TMW__ENVELOPE__BODY_CHALLENGE:
        link->nonce = message->challenge->nonce;
        if (message->from_incarnation != link->coordinator.incarnation) link->registered = false;
        say_hello(link, now_ms, out);
        return false;
    case TMW__ENVELOPE__BODY_WELCOME:
        if (message->welcome->nonce != link->nonce || link->nonce == 0 || link->registered) return false;
        link->coordinator.incarnation = message->from_incarnation;
        link->registered = true;
        link->acked = link->sequence;
        link->changed = true;
        return false;
    case TMW__ENVELOPE__BODY_REFUSE:
        link->refused = true;
        return false;
    case TMW__ENVELOPE__BODY_CLOUD_ORDER:
        if (!link->registered || message->from_incarnation != link->coordinator.incarnation) return false;
        return take_order(link, message->cloud_order);
    default:
        return false;
    }
}
