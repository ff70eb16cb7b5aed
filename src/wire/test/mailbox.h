/* For tests of one state machine alone: the test plays all others. What the machine says is unpacked and can be asked
 * for by kind; what it is told goes through bytes, as in life. */
#ifndef TM_WIRE_MAILBOX_H
#define TM_WIRE_MAILBOX_H

#include "base/alloc.h"
#include "base/test/harness.h"
#include "wire/outbox.h"

#include <string.h>

enum { MAILBOX_MAX = 4096 };

struct mailbox {
    struct tm_outbox out;
    struct tm_arena arena;
    tm_message *sent[MAILBOX_MAX]; /* of actions that send; NULL for others */
    size_t read;                   /* actions unpacked so far */
};

static inline void mailbox_init(struct mailbox *box)
{
    tm_outbox_init(&box->out);
    tm_arena_init(&box->arena, 64 << 20);
    box->read = 0;
}

static inline void mailbox_deinit(struct mailbox *box)
{
    tm_outbox_deinit(&box->out);
    tm_arena_deinit(&box->arena);
}

/* Forgets what was said so far. */
static inline void mailbox_clear(struct mailbox *box)
{
    tm_outbox_clear(&box->out);
    tm_arena_deinit(&box->arena);
    box->read = 0;
}

/* Whatever the test itself needs memory for does not count. */
static inline void mailbox_read(struct mailbox *box)
{
    for (; box->read < box->out.count && box->read < MAILBOX_MAX; box->read++) {
        const struct tm_action *action = &box->out.actions[box->read];
        tm_message *message = NULL;
        struct tm_error e = {.text = ""};
        if (action->kind == TM_ACTION_SEND)
            assert_row(
                tm_message_unpack(tm_outbox_data(&box->out, action), action->length, &box->arena, &message, &e) == 0,
                "a message of ours is refused: %s", e.text);
        box->sent[box->read] = message;
    }
}

/* The place among the actions of the n-th (from 0) message of a kind; -1 if there are fewer. */
static inline int mailbox_place(struct mailbox *box, Tmw__Envelope__BodyCase kind, size_t n)
{
    mailbox_read(box);
    for (size_t i = 0; i < box->read; i++)
        if (box->sent[i] != NULL && box->sent[i]->body_case == kind && n-- == 0) return (int)i;
    return -1;
}

static inline const tm_message *mailbox_find(struct mailbox *box, Tmw__Envelope__BodyCase kind, size_t n)
{
    int place = mailbox_place(box, kind, n);
    return place < 0 ? NULL : box->sent[place];
}

static inline size_t mailbox_count(struct mailbox *box, Tmw__Envelope__BodyCase kind)
{
    size_t count = 0;
    while (mailbox_place(box, kind, count) >= 0)
        count++;
    return count;
}

/* To whom the n-th message of a kind goes. */
static inline struct tm_peer mailbox_to(struct mailbox *box, Tmw__Envelope__BodyCase kind, size_t n)
{
    int place = mailbox_place(box, kind, n);
    assert_true(place >= 0);
    return box->out.actions[place].to;
}

/* The n-th message of a kind to this member; NULL if there is none. */
static inline const tm_message *mailbox_find_to(struct mailbox *box, Tmw__Envelope__BodyCase kind, uint64_t id)
{
    for (size_t n = 0;; n++) {
        int place = mailbox_place(box, kind, n);
        if (place < 0) return NULL;
        if (box->out.actions[place].to.id == id) return box->sent[place];
    }
}

/* The first action of a kind of the machine's own from `from` on; -1. */
static inline int mailbox_action(const struct mailbox *box, int kind, size_t from)
{
    for (size_t i = from; i < box->out.count; i++)
        if (box->out.actions[i].kind == kind) return (int)i;
    return -1;
}

#endif
