/* What a state machine asks of the program around it: a list of actions, to be carried out in order.
 *
 * A machine never does I/O: it appends actions here. TM_ACTION_SEND is common to all; each machine names its own
 * further kinds from TM_ACTION_OWN on. Failure (memory) is sticky, as in tm_text, and takes all: an outbox that failed
 * holds no action, so that nothing happens without what must happen before it. Ask tm_outbox_status at the end; a
 * machine whose step could not be put down must be destroyed, and started again. */
#ifndef TM_WIRE_OUTBOX_H
#define TM_WIRE_OUTBOX_H

#include "wire/message.h"

enum { TM_ACTION_SEND, TM_ACTION_OWN = 16 };

struct tm_action {
    int kind;
    struct tm_peer to; /* SEND */
    size_t offset;     /* of its bytes in the outbox: tm_outbox_data */
    size_t length;
    uint64_t number; /* the kind's own */
    uint64_t other;
};

struct tm_outbox {
    struct tm_action *actions; /* owned */
    size_t count;
    size_t capacity;
    struct tm_text bytes;
    int failed;
};

void tm_outbox_init(struct tm_outbox *outbox);
void tm_outbox_deinit(struct tm_outbox *outbox);
void tm_outbox_clear(struct tm_outbox *outbox); /* after the actions are carried out */
int tm_outbox_status(const struct tm_outbox *outbox, struct tm_error *e);
/* Something could not be made that belongs in here: the whole step is void. */
void tm_outbox_fail(struct tm_outbox *outbox, int rc);

void tm_outbox_send(struct tm_outbox *outbox, const struct tm_peer *to, const tm_message *message);
/* An action with bytes (may be none) and two numbers. */
void tm_outbox_add(struct tm_outbox *outbox, int kind, const void *data, size_t length, uint64_t number,
                   uint64_t other);
/* Borrowed until the outbox changes. */
const void *tm_outbox_data(const struct tm_outbox *outbox, const struct tm_action *action);

#endif
