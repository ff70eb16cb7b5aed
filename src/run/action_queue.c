#include "run/action_queue.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/planted.h"

#include <assert.h>
#include <string.h>

static void check(const struct tm_action_queue *q)
{
    assert((q->first == NULL) == (q->last == NULL) && (q->first == NULL) == (q->count == 0));
    assert(q->count <= TM_QUEUED_ACTIONS_MAX && q->bytes <= TM_QUEUED_BYTES_MAX);
    assert(q->last == NULL || q->last->barrier <= q->barrier);
}

void tm_action_queue_init(struct tm_action_queue *q)
{
    *q = (struct tm_action_queue){.first = NULL};
}

static struct tm_queued_action *pop(struct tm_action_queue *q)
{
    struct tm_queued_action *gone = q->first;
    q->first = gone->next;
    if (q->first == NULL) q->last = NULL;
    q->count--;
    q->bytes -= gone->action.length;
    return gone;
}

void tm_action_queue_clear(struct tm_action_queue *q)
{
    while (q->first != NULL)
        tm_free(pop(q));
    assert(q->bytes == 0);
    q->barrier = 0;
}

void tm_action_queue_hold(struct tm_action_queue *q, uint64_t number)
{
    assert(number > q->barrier && number > q->durable);
    q->barrier = number;
}

bool tm_action_queue_open(const struct tm_action_queue *q)
{
    check(q);
    return q->first == NULL && (q->barrier <= q->durable || TM_PLANTED(record_unawaited));
}

int tm_action_queue_put(struct tm_action_queue *q, const struct tm_action *action, const void *data, struct tm_error *e)
{
    assert(!tm_action_queue_open(q));
    if (q->count == TM_QUEUED_ACTIONS_MAX || action->length > TM_QUEUED_BYTES_MAX - q->bytes) {
        if (action->kind != TM_ACTION_SEND)
            return tm_error_set(e, TM_ELIMIT, "the record's disk does not answer: %zu actions wait for it; fix it",
                                q->count);
        if (!q->told_full) tm_log(TM_LOG_WARN, "the record's disk does not answer: messages are not sent");
        q->told_full = true;
        return 0;
    }
    struct tm_queued_action *queued = tm_alloc(sizeof *queued + action->length);
    if (queued == NULL) return tm_error_nomem(e);
    *queued = (struct tm_queued_action){.barrier = q->barrier, .action = *action};
    if (action->length > 0) memcpy(queued->data, data, action->length);
    if (q->last != NULL) q->last->next = queued;
    if (q->last == NULL) q->first = queued;
    q->last = queued;
    q->count++;
    q->bytes += action->length;
    check(q);
    return 0;
}

void tm_action_queue_release(struct tm_action_queue *q, uint64_t durable)
{
    assert(durable >= q->durable);
    q->durable = durable;
}

struct tm_queued_action *tm_action_queue_take(struct tm_action_queue *q)
{
    check(q);
    if (q->first == NULL) q->told_full = false;
    return q->first != NULL && q->first->barrier <= q->durable ? pop(q) : NULL;
}
