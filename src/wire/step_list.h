/* What is told of single steps: the loss, and metrics of the user's own. Workers keep them until the coordinator's
 * record has them; the coordinator until it has put them there. Ordered by step, one entry each. */
#ifndef TM_WIRE_STEP_LIST_H
#define TM_WIRE_STEP_LIST_H

#include "base/arena.h"
#include "wire/message.h"

enum { TM_STEPS_KEPT = 4096, TM_STEP_METRICS_MAX = 16, TM_STEP_NAME_MAX = 48 };

struct tm_step_metric {
    char name[TM_STEP_NAME_MAX];
    double value;
};

struct tm_step_entry {
    uint64_t step;
    double loss;
    bool known;        /* the loss is */
    uint64_t sequence; /* free for the owner; 0 in a new one */
    size_t metric_count;
    struct tm_step_metric *metrics; /* owned */
};

struct tm_step_list {
    struct tm_step_entry *entries; /* owned; NULL: none yet */
    size_t count, capacity;
};

void tm_step_list_clear(struct tm_step_list *list); /* and frees all */
/* The entry of a step, made where there is none; the oldest makes room where there are TM_STEPS_KEPT. NULL: out of
 * memory, or older than all that are kept in a full list. Borrowed until the next change. */
struct tm_step_entry *tm_step_list_at(struct tm_step_list *list, uint64_t step);
/* The value of a metric; what there is no room for (more than TM_STEP_METRICS_MAX, a longer name) is left out. */
void tm_step_entry_set(struct tm_step_entry *entry, const char *name, double value);
void tm_step_list_drop_first(struct tm_step_list *list, size_t count);
void tm_step_list_drop_after(struct tm_step_list *list, uint64_t step); /* what is above it */

/* As messages have them: an entry in the arena, which borrows. NULL: out of memory. */
Tmw__StepLoss *tm_step_entry_write(struct tm_step_entry *entry, struct tm_arena *arena);
/* The other way; what is told of a step replaces what was. */
void tm_step_list_take(struct tm_step_list *list, const Tmw__StepLoss *told);

#endif
