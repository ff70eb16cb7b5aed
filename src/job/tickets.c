#include "job/tickets.h"

#include "base/address.h"
#include "run/office.h"
#include "run/state_folder.h"
#include "wire/office_link.h"

#include <string.h>

static int send_request(struct tm_office_link *link, const struct tm_ticket *word,
                        const struct tm_tickets_request *request, struct tm_error *e)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__TicketRequest body = TMW__TICKET_REQUEST__INIT;
    uint8_t channel[TM_TLS_BINDING_BYTES];
    uint8_t proof[TM_TICKET_PROOF_BYTES];
    char host[TM_ADDRESS_MAX] = "";
    int rc = tm_office_link_channel(link, channel, e);
    if (rc != 0) return rc;
    if (!tm_ticket_prove(word->secret, channel, sizeof channel, "", 0, proof)) return tm_error_nomem(e);
    if (request->host != NULL) memcpy(host, request->host, strnlen(request->host, sizeof host - 1));
    message.body_case = TMW__OFFICE_MESSAGE__BODY_TICKET_REQUEST;
    message.ticket_request = &body;
    body.proof = (ProtobufCBinaryData){sizeof proof, proof};
    body.count = (uint32_t)request->count;
    body.valid_ms = (uint64_t)request->valid_ms;
    body.host = host;
    return tm_office_link_send(link, &message, e);
}

static int take(const Tmw__OfficeMessage *answer, int count, struct tm_arena *arena, const char *const **out,
                struct tm_error *e)
{
    if (answer->body_case != TMW__OFFICE_MESSAGE__BODY_TICKETS || answer->tickets->n_tickets != (size_t)count)
        return tm_error_set(e, TM_EPEER, "the office answered something else");
    const char **list = tm_arena_alloc(arena, (size_t)count * sizeof *list);
    if (list == NULL) return tm_error_nomem(e);
    for (int i = 0; i < count; i++)
        if ((list[i] = tm_arena_strdup(arena, answer->tickets->tickets[i])) == NULL) return tm_error_nomem(e);
    *out = list;
    return 0;
}

int tm_tickets_ask(struct tm_env *env, const char *dir, const struct tm_tickets_request *request,
                   struct tm_arena *arena, const char *const **out, struct tm_error *e)
{
    char text[TM_TICKET_MAX];
    struct tm_ticket word;
    struct tm_tls *tls = NULL;
    struct tm_office_link *link = NULL;
    struct tm_arena own;
    Tmw__OfficeMessage *answer = NULL;
    int rc = tm_state_read(env, dir, TM_STATE_OFFICE, text, sizeof text, e);
    if (rc == -(int)TM_ENOMEM) return rc;
    if (rc != 0)
        return tm_error_set(e, TM_ENOTFOUND,
                            "%s: no machines join this run: start it with tidemill run JOB --cloud join", dir);
    rc = tm_ticket_parse(text, strlen(text), &word, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s/office", dir);
    tm_arena_init(&own, 8 << 20);
    rc = tm_tls_create_pinned(word.authority, &tls, e);
    if (rc == 0) rc = tm_office_link_open(env, word.address, tls, &link, e);
    if (rc == 0) rc = send_request(link, &word, request, e);
    if (rc == 0) rc = tm_office_link_receive(link, &own, &answer, e);
    if (rc == 0) rc = take(answer, request->count, arena, out, e);
    tm_office_link_close(link);
    tm_tls_destroy(tls);
    tm_arena_deinit(&own);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "asking for tickets");
}
