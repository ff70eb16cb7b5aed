/* A trace as slots: each instance that the trace counts, with when it comes and when it goes.
 *
 * A trace says how many go, not which: they are drawn from the seed, evenly among those there, or the newest go.
 * Nothing else enters, so trace and seed alone say what each slot's fate is, whatever is rented when. */
#ifndef TM_CLOUD_LOCAL_SLOTS_H
#define TM_CLOUD_LOCAL_SLOTS_H

#include "market/trace.h"

enum { TM_LOCAL_SLOTS_MAX = 1 << 20 };

struct tm_local_slot {
    int64_t from_ms;
    int64_t to_ms; /* INT64_MAX: to the end and beyond */
};

struct tm_local_slots {
    struct tm_local_slot *list; /* owned; in order of from_ms */
    size_t count;
    size_t capacity;
};

void tm_local_slots__deinit(struct tm_local_slots *slots);
/* `slots` must be initialised; filled only on success. `newest`: the newest go. */
int tm_local_slots__make(const struct tm_trace *trace, uint64_t seed, bool newest, struct tm_local_slots *slots,
                         struct tm_error *e);

#endif
