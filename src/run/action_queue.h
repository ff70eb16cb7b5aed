/* Actions that wait for the record: what a state machine asks for after an event that must be durable may not leave
 * before it is. The loop goes on meanwhile, and further actions queue up behind. */
#ifndef TM_RUN_ACTION_QUEUE_H
#define TM_RUN_ACTION_QUEUE_H

#include "wire/outbox.h"

enum { TM_QUEUED_ACTIONS_MAX = 1 << 16, TM_QUEUED_BYTES_MAX = 256 << 20 };

struct tm_queued_action {
    struct tm_queued_action *next; /* the queue's */
    uint64_t barrier;              /* the event that it waits for */
    struct tm_action action;
    char data[]; /* action.length bytes */
};

struct tm_action_queue {
    struct tm_queued_action *first; /* owned */
    struct tm_queued_action *last;
    size_t count;
    size_t bytes;
    uint64_t barrier; /* the newest event that must last before anything that comes now */
    uint64_t durable; /* all events up to this one do */
    bool told_full;
};

void tm_action_queue_init(struct tm_action_queue *queue);
/* All that waits is forgotten, and nothing is waited for any more. */
void tm_action_queue_clear(struct tm_action_queue *queue);

/* All actions from now on wait for the event with that number. */
void tm_action_queue_hold(struct tm_action_queue *queue, uint64_t number);
/* May an action that comes now leave at once? */
bool tm_action_queue_open(const struct tm_action_queue *queue);
/* Copies an action, which waits. Where too many do, messages are left out, as if they were lost on the way: they are
 * said again. Anything else is then -TM_ELIMIT. */
int tm_action_queue_put(struct tm_action_queue *queue, const struct tm_action *action, const void *data,
                        struct tm_error *e);
/* Events up to `durable` last. */
void tm_action_queue_release(struct tm_action_queue *queue, uint64_t durable);
/* The next that waits for nothing any more, in order: the caller's, to be freed with tm_free. NULL: none. */
struct tm_queued_action *tm_action_queue_take(struct tm_action_queue *queue);

#endif
