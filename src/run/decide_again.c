#include "run/decide_again.h"

#include "base/alloc.h"
#include "base/text.h"
#include "layout/recorded.h"
#include "layout/shares.h"
#include "policy/facts_record.h"
#include "wire/roster.h"

#include <stdio.h>
#include <string.h>

enum { TRIPLE = 3, TEXT_MAX = 8 << 20 };

/* What the newest coordinator decided with. One that it took over from may still put down its last words. */
struct decides {
    uint64_t coordinator; /* 0: none */
    uint64_t number;      /* of the last event */
    bool broken;          /* the record lacks one: what the policy had learned then is not known */
    char name[TM_MESSAGE_STRING_MAX + 1];
    struct tm_layouts layouts;
    struct tm_cost cost;
    struct tm_migrations *migrations;
    struct tm_policy *policy;
};

struct tm_decide_again {
    const struct tm_policy_info *other;
    struct decides by;
    struct tm_decided_again result;
};

int tm_decide_again_create(const struct tm_policy_info *other, struct tm_decide_again **out, struct tm_error *e)
{
    if (other != NULL && !other->runs)
        return tm_error_set(e, TM_EUSAGE, "policy \"%s\" cannot decide a running job", other->name);
    struct tm_decide_again *again = tm_calloc(1, sizeof *again);
    if (again == NULL) return tm_error_nomem(e);
    again->other = other;
    *out = again;
    return 0;
}

static void drop(struct decides *by)
{
    tm_policy_destroy(by->policy);
    tm_migrations_destroy(by->migrations);
    tm_layouts_deinit(&by->layouts);
    by->policy = NULL;
    by->migrations = NULL;
    by->coordinator = 0;
}

void tm_decide_again_destroy(struct tm_decide_again *again)
{
    if (again == NULL) return;
    drop(&again->by);
    tm_free(again);
}

const struct tm_decided_again *tm_decide_again_result(const struct tm_decide_again *again)
{
    return &again->result;
}

/* ---- making the policy ---- */

static const char *chars(const ProtobufCBinaryData *bytes)
{
    return bytes->len > 0 ? (const char *)bytes->data : "";
}

static int recall_layouts(const Tmw__PolicyEvent *body, struct tm_layouts *out, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TEXT_MAX);
    for (size_t i = 0; i < body->n_layouts; i++)
        tm_text_append(&text, chars(&body->layouts[i]), body->layouts[i].len);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_layouts_recall(tm_text_string(&text), text.length, out, e);
    tm_text_deinit(&text);
    return rc;
}

static int make(const struct tm_decide_again *again, const Tmw__PolicyEvent *body, struct decides *by,
                struct tm_error *e)
{
    const struct tm_policy_info *info = again->other != NULL ? again->other : tm_policy_find(body->name);
    struct tm_policy_options options;
    if (info == NULL) return tm_error_set(e, TM_EINPUT, "policy \"%.40s\" is not known to this release", body->name);
    int rc = tm_policy_options_recall(chars(&body->options), body->options.len, &options, e);
    options.seed = body->seed;
    if (rc == 0) rc = recall_layouts(body, &by->layouts, e);
    if (rc == 0) rc = tm_cost_recall(chars(&body->cost), body->cost.len, &by->cost, e);
    if (rc == 0) rc = tm_migrations_create(&by->layouts, &by->cost, &by->migrations, e);
    if (rc == 0) rc = tm_policy_create(info, &by->layouts, by->migrations, &by->cost, &options, &by->policy, e);
    if (rc != 0) return rc;
    by->coordinator = body->coordinator;
    by->number = 0;
    by->broken = false;
    (void)snprintf(by->name, sizeof by->name, "%s", body->name);
    return 0;
}

static int take_policy(struct tm_decide_again *again, const Tmw__PolicyEvent *body, struct tm_error *e)
{
    drop(&again->by);
    again->result.policies++;
    return make(again, body, &again->by, e);
}

/* ---- asking again ---- */

static void remember(struct tm_decide_again *again, const struct decides *by, const struct tm_decided_otherwise *found)
{
    struct tm_decided_otherwise *first = &again->result.first;
    if (again->result.different++ > 0) return;
    *first = *found;
    (void)snprintf(first->policy, sizeof first->policy, "%s", by->name);
    first->was_layout = by->layouts.list[found->was.layout];
    first->would_layout = by->layouts.list[found->would.layout];
    first->standing = by->layouts.list[found->facts.standing.layout];
}

static int ask(struct tm_decide_again *again, struct decides *by, uint64_t sequence, const Tmw__RecordEvent *event,
               struct tm_error *e)
{
    const Tmw__DecisionEvent *body = event->decision;
    struct tm_decided_otherwise now = {.sequence = sequence, .utc_ms = event->at_ms};
    int rc = tm_facts_recall(chars(&body->facts), body->facts.len, &by->layouts, &now.facts, e);
    bool answered = body->decision.len > 0;
    if (rc == 0 && answered)
        rc = tm_decision_recall(chars(&body->decision), body->decision.len, &by->layouts, &now.was, e);
    if (rc == 0 && now.facts.choices)
        tm_policy_observe_pools(by->policy, now.facts.now_s, now.facts.pools, now.facts.pool_count);
    if (rc == 0) rc = tm_policy_decide(by->policy, &now.facts, &now.would, e);
    if (rc != 0) return rc;
    if (!answered) {
        again->result.unknown++;
        return 0;
    }
    now.index = ++again->result.decisions;
    now.figure = tm_decision_difference(&now.was, &now.would, again->other != NULL);
    if (now.figure != NULL) remember(again, by, &now);
    return 0;
}

static int observe(struct decides *by, const Tmw__DecisionEvent *body, struct tm_error *e)
{
    int rc = 0;
    if (body->n_observed % TRIPLE != 0) return tm_error_set(e, TM_EINPUT, "an interval of less than three numbers");
    for (size_t i = 0; rc == 0 && i < body->n_observed; i += TRIPLE) {
        const uint32_t *numbers = &body->observed[i];
        if (numbers[0] > INT32_MAX || numbers[1] > INT32_MAX || numbers[2] > INT32_MAX)
            return tm_error_set(e, TM_EINPUT, "an interval with more instances than there can be");
        rc = tm_policy_observe(by->policy, (int)numbers[0], (int)numbers[1], (int)numbers[2], e);
    }
    return rc;
}

static int take_decision(struct tm_decide_again *again, uint64_t sequence, const Tmw__RecordEvent *event,
                         struct tm_error *e)
{
    const Tmw__DecisionEvent *body = event->decision;
    struct decides *by = &again->by;
    bool its_own = by->coordinator != 0 && by->coordinator == body->coordinator;
    if (its_own && body->number != by->number + 1) by->broken = true;
    if (!its_own || by->broken) {
        again->result.unknown += body->facts.len > 0;
        return 0;
    }
    by->number = body->number;
    int losing = 0;
    double in_s = 0;
    if (body->n_observed > 0) return observe(by, body, e);
    if (body->facts.len > 0) return ask(again, by, sequence, event, e);
    int rc = tm_hint_recall(chars(&body->hint), body->hint.len, &losing, &in_s, e);
    if (rc == 0) tm_policy_hint(by->policy, losing, in_s);
    return rc;
}

/* ---- shares ---- */

static void take_generation(struct tm_decide_again *again, const Tmw__GenerationEvent *body)
{
    uint32_t slowness[TM_MEMBERS_MAX] = {0}, shares[TM_MEMBERS_MAX];
    const Tmw__Layout *layout = body->layout;
    uint64_t sum = 0;
    if (!body->started || layout == NULL) return;
    again->result.generations++;
    bool can_be = layout->pipelines > 0 && layout->pipelines <= TM_MEMBERS_MAX && layout->n_stages > 0 &&
                  layout->n_stages <= TM_STAGES_MAX && layout->n_micro_batches == layout->pipelines;
    for (size_t p = 0; can_be && p < layout->pipelines; p++)
        sum += layout->micro_batches[p];
    can_be = can_be && sum >= layout->pipelines && sum <= UINT32_MAX;
    for (size_t i = 0; can_be && i < layout->n_members; i++) {
        const Tmw__Member *member = layout->members[i];
        uint32_t its = member->slowness > 0 ? member->slowness : TM_SLOWNESS_USUAL;
        can_be = member->spare || (member->pipeline < layout->pipelines && its <= TM_SLOWNESS_MAX);
        if (can_be && !member->spare && its > slowness[member->pipeline]) slowness[member->pipeline] = its;
    }
    for (size_t p = 0; can_be && p < layout->pipelines; p++)
        can_be = slowness[p] > 0;
    if (can_be) (void)tm_shares_make(slowness, layout->pipelines, (uint32_t)layout->n_stages, (uint32_t)sum, shares);
    bool same = can_be && memcmp(shares, layout->micro_batches, layout->pipelines * sizeof *shares) == 0;
    again->result.shared_otherwise += !same;
}

int tm_decide_again_take(struct tm_decide_again *again, uint64_t sequence, const Tmw__RecordEvent *event,
                         struct tm_error *e)
{
    int rc = 0;
    if (event->body_case == TMW__RECORD_EVENT__BODY_POLICY) rc = take_policy(again, event->policy, e);
    if (event->body_case == TMW__RECORD_EVENT__BODY_DECISION) rc = take_decision(again, sequence, event, e);
    if (event->body_case == TMW__RECORD_EVENT__BODY_GENERATION) take_generation(again, event->generation);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "event %llu of the record", (unsigned long long)sequence);
}
