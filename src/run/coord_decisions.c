/* What the policy is told and asked goes to the record, as it comes and without waiting: what it was made from, then
 * every interval, notice, question and answer. decide_again.c reads it. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "policy/facts_record.h"

enum { TRIPLE = 3, OBSERVED_MAX = 4096 * TRIPLE, TEXT_MAX = 1 << 16, PIECES_MAX = 8 };

static ProtobufCBinaryData bytes_of(const char *data, size_t length)
{
    union {
        const char *given;
        uint8_t *taken;
    } bytes = {data};
    return (ProtobufCBinaryData){.len = length, .data = bytes.taken};
}

static void tell_policy(struct tm_coordinator *c, struct tm_outbox *out)
{
    const struct tm_policy_made *made = c->decider.made;
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__PolicyEvent body = TMW__POLICY_EVENT__INIT;
    ProtobufCBinaryData pieces[PIECES_MAX];
    union {
        const char *given;
        char *taken;
    } name = {made->name};
    body.coordinator = c->options.incarnation;
    body.name = name.taken;
    body.seed = made->seed;
    body.options = bytes_of(made->options->data, made->options->length);
    body.cost = bytes_of(made->cost->data, made->cost->length);
    body.layouts = pieces;
    for (size_t at = 0; at < made->layouts->length && body.n_layouts < PIECES_MAX; at += TM_MESSAGE_CHUNK_MAX) {
        size_t left = made->layouts->length - at;
        pieces[body.n_layouts++] =
            bytes_of(made->layouts->data + at, left < TM_MESSAGE_CHUNK_MAX ? left : TM_MESSAGE_CHUNK_MAX);
    }
    event.body_case = TMW__RECORD_EVENT__BODY_POLICY;
    event.policy = &body;
    tm_coord__record(c, &event, false, out);
    c->decisions.policy = true;
}

static void tell(struct tm_coordinator *c, Tmw__DecisionEvent *body, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    if (!c->decisions.policy) tell_policy(c, out);
    body->coordinator = c->options.incarnation;
    body->number = ++c->decisions.number;
    event.body_case = TMW__RECORD_EVENT__BODY_DECISION;
    event.decision = body;
    tm_coord__record(c, &event, false, out);
}

/* Many intervals in one event: a coordinator that begins hears of all that there were. */
void tm_coord__decisions_tell(struct tm_coordinator *c, struct tm_outbox *out)
{
    if (TM_PLANTED(decision_untold)) c->decisions.observed_count = 0;
    if (c->decisions.observed_count == 0) return;
    Tmw__DecisionEvent body = TMW__DECISION_EVENT__INIT;
    body.n_observed = c->decisions.observed_count;
    body.observed = c->decisions.observed;
    c->decisions.observed_count = 0;
    tell(c, &body, out);
}

static void observed(void *context, int count, int arrived, int lost)
{
    struct tm_coordinator *c = context;
    struct decisions_told *told = &c->decisions;
    if (tm_grow((void **)&told->observed, &told->observed_capacity, told->observed_count + TRIPLE,
                sizeof *told->observed, OBSERVED_MAX) != 0) {
        tm_outbox_fail(told->out, -(int)TM_ENOMEM);
        return;
    }
    told->observed[told->observed_count++] = (uint32_t)count;
    told->observed[told->observed_count++] = (uint32_t)arrived;
    told->observed[told->observed_count++] = (uint32_t)lost;
    if (told->observed_count == OBSERVED_MAX) tm_coord__decisions_tell(c, told->out);
}

static void tell_text(struct tm_coordinator *c, Tmw__DecisionEvent *body, const struct tm_text *first,
                      const struct tm_text *second)
{
    tm_coord__decisions_tell(c, c->decisions.out);
    if (first->failed == 0 && second->failed == 0)
        tell(c, body, c->decisions.out);
    else
        tm_outbox_fail(c->decisions.out, -(int)TM_ENOMEM);
}

static void hinted(void *context, int losing, double in_s)
{
    Tmw__DecisionEvent body = TMW__DECISION_EVENT__INIT;
    struct tm_text text;
    tm_text_init(&text, TEXT_MAX);
    tm_hint_record(losing, in_s, &text);
    body.hint = bytes_of(text.data, text.length);
    tell_text(context, &body, &text, &text);
    tm_text_deinit(&text);
}

static void decided(void *context, const struct tm_facts *facts, const struct tm_decision *decision)
{
    Tmw__DecisionEvent body = TMW__DECISION_EVENT__INIT;
    struct tm_text asked, answered;
    tm_text_init(&asked, TEXT_MAX);
    tm_text_init(&answered, TEXT_MAX);
    tm_facts_record(facts, &asked);
    if (decision != NULL) tm_decision_record(decision, &answered);
    body.facts = bytes_of(asked.data, asked.length);
    body.decision = bytes_of(answered.data, answered.length);
    tell_text(context, &body, &asked, &answered);
    tm_text_deinit(&asked);
    tm_text_deinit(&answered);
}

struct tm_decision_ear tm_coord__ear(struct tm_coordinator *c, struct tm_outbox *out)
{
    c->decisions.out = out;
    return (struct tm_decision_ear){.context = c, .observed = observed, .hinted = hinted, .decided = decided};
}
