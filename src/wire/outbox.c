#include "wire/outbox.h"

#include "base/alloc.h"

#include <assert.h>

enum { ACTIONS_MAX = 1 << 20, BYTES_MAX = 1 << 30 };

void tm_outbox_init(struct tm_outbox *outbox)
{
    *outbox = (struct tm_outbox){.actions = NULL};
    tm_text_init(&outbox->bytes, BYTES_MAX);
}

void tm_outbox_deinit(struct tm_outbox *outbox)
{
    tm_free(outbox->actions);
    tm_text_deinit(&outbox->bytes);
    *outbox = (struct tm_outbox){.actions = NULL};
}

void tm_outbox_clear(struct tm_outbox *outbox)
{
    outbox->count = 0;
    outbox->failed = 0;
    tm_text_clear(&outbox->bytes);
}

int tm_outbox_status(const struct tm_outbox *outbox, struct tm_error *e)
{
    assert(outbox->failed == 0 || outbox->count == 0);
    if (outbox->failed == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (outbox->failed == 0) return 0;
    return tm_error_set(e, TM_ELIMIT, "more than %d actions or %d bytes of them in one step", ACTIONS_MAX, BYTES_MAX);
}

void tm_outbox_fail(struct tm_outbox *outbox, int rc)
{
    assert(rc < 0);
    if (outbox->failed == 0) outbox->failed = rc;
    outbox->count = 0;
}

static struct tm_action *next_action(struct tm_outbox *outbox)
{
    if (outbox->failed != 0) return NULL;
    int rc =
        tm_grow((void **)&outbox->actions, &outbox->capacity, outbox->count + 1, sizeof *outbox->actions, ACTIONS_MAX);
    if (rc != 0) {
        tm_outbox_fail(outbox, rc);
        return NULL;
    }
    assert(outbox->count < outbox->capacity);
    struct tm_action *action = &outbox->actions[outbox->count++];
    *action = (struct tm_action){.offset = outbox->bytes.length};
    return action;
}

void tm_outbox_send(struct tm_outbox *outbox, const struct tm_peer *to, const tm_message *message)
{
    assert(to->role != TM_ROLE_NONE && message->body_case != TMW__ENVELOPE__BODY__NOT_SET);
    struct tm_action *action = next_action(outbox);
    if (action == NULL) return;
    tm_message_pack(message, &outbox->bytes);
    action->kind = TM_ACTION_SEND;
    action->to = *to;
    action->length = outbox->bytes.length - action->offset;
    if (outbox->bytes.failed != 0) tm_outbox_fail(outbox, outbox->bytes.failed);
}

void tm_outbox_add(struct tm_outbox *outbox, int kind, const void *data, size_t length, uint64_t number, uint64_t other)
{
    assert(kind >= TM_ACTION_OWN && (data != NULL || length == 0));
    struct tm_action *action = next_action(outbox);
    if (action == NULL) return;
    if (length > 0) tm_text_append(&outbox->bytes, data, length);
    action->kind = kind;
    action->length = length;
    action->number = number;
    action->other = other;
    if (outbox->bytes.failed != 0) tm_outbox_fail(outbox, outbox->bytes.failed);
}

const void *tm_outbox_data(const struct tm_outbox *outbox, const struct tm_action *action)
{
    assert(action->offset <= outbox->bytes.length && action->length <= outbox->bytes.length - action->offset);
    return tm_text_string(&outbox->bytes) + action->offset;
}
