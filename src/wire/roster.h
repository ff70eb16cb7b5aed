/* A generation's membership and layout as plain data, read from and written to messages with every bound checked. */
#ifndef TM_WIRE_ROSTER_H
#define TM_WIRE_ROSTER_H

#include "wire/message.h"

enum { TM_MEMBERS_MAX = 1024, TM_STAGES_MAX = 256, TM_LAYERS_MAX = 4096, TM_MEMBER_ADDRESS_MAX = 108 };

struct tm_member {
    uint64_t id;
    uint64_t incarnation;
    bool spare;  /* no seat: follows, holds copies, does not train */
    bool remote; /* a spare that is there for copies alone */
    uint32_t pipeline;
    uint32_t stage;
    uint32_t slowness; /* by which micro-batches were shared out, in thousandths; 0: as usual */
    char address[TM_MEMBER_ADDRESS_MAX];
    char endpoint[TM_MEMBER_ADDRESS_MAX]; /* its engine's; opaque */
};

struct tm_roster {
    uint64_t generation; /* 0: none */
    uint32_t pipelines;
    uint32_t stages;
    uint32_t stage_first[TM_STAGES_MAX + 1]; /* stage s holds layers [stage_first[s], stage_first[s + 1]) */
    uint32_t micro_batches[TM_MEMBERS_MAX];  /* of each pipeline */
    struct tm_member *members;               /* owned; seated members fill every (pipeline, stage) exactly once */
    size_t member_count;
    bool ordered; /* members are in the order of their numbers, so one is found quickly */
};

void tm_roster_deinit(struct tm_roster *roster); /* leaves an empty one */
int tm_roster_copy(struct tm_roster *to, const struct tm_roster *from, struct tm_error *e);

/* Is every layer held, every seat taken once, every micro-batch given out? -TM_EINPUT says what is not so. */
int tm_roster_check(const struct tm_roster *roster, uint32_t layers, uint32_t micro_batches, struct tm_error *e);

/* `out` is set on success only. The caller owns it. Bounds and seats are checked, see tm_roster_check. */
int tm_roster_read(uint64_t generation, const Tmw__Layout *layout, uint32_t layers, uint32_t micro_batches,
                   struct tm_roster *out, struct tm_error *e);
/* The message's form, made in the arena. NULL: no memory. Strings are borrowed from the roster. */
Tmw__Layout *tm_roster_write(const struct tm_roster *roster, struct tm_arena *arena);

/* Puts members in the order of their numbers. Whoever makes a roster for others does: then all have them in one order.
 */
void tm_roster_order(struct tm_roster *roster);
/* The same as a change of another roster, which the receiver has; both are ordered. Most of a large fleet stays as it
 * is from one generation to the next, so that this is short. */
Tmw__Layout *tm_roster_write_change(const struct tm_roster *from, const struct tm_roster *roster,
                                    struct tm_arena *arena);
/* `out` is set on success only, and checked as by tm_roster_read. */
int tm_roster_read_change(const struct tm_roster *from, uint64_t generation, const Tmw__Layout *change, uint32_t layers,
                          uint32_t micro_batches, struct tm_roster *out, struct tm_error *e);

/* The member with this number, NULL if there is none. */
const struct tm_member *tm_roster_find(const struct tm_roster *roster, uint64_t id);
/* The seated member there. */
const struct tm_member *tm_roster_at(const struct tm_roster *roster, uint32_t pipeline, uint32_t stage);
uint32_t tm_roster_stage_of(const struct tm_roster *roster, uint32_t layer);
size_t tm_roster_seated(const struct tm_roster *roster);

#endif
