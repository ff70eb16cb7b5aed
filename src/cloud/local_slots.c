#include "cloud/local_slots.h"

#include "base/alloc.h"
#include "base/random.h"

enum { STREAM_LOSSES = 0x10CA1 };

struct making {
    struct tm_local_slots slots;
    uint32_t *there; /* numbers of the slots that are there */
    size_t there_count;
    size_t there_capacity;
    struct tm_random random;
    bool newest; /* go first */
};

static void slots_init(struct tm_local_slots *slots)
{
    *slots = (struct tm_local_slots){0};
}

void tm_local_slots__deinit(struct tm_local_slots *slots)
{
    tm_free(slots->list);
    slots_init(slots);
}

static void take_one(struct making *making, int64_t time_ms)
{
    if (making->there_count == 0) return;
    size_t drawn = making->there_count - 1;
    if (!making->newest) drawn = (size_t)tm_random_below(&making->random, making->there_count);
    making->slots.list[making->there[drawn]].to_ms = time_ms;
    making->there[drawn] = making->there[--making->there_count];
}

static int add_one(struct making *making, int64_t time_ms)
{
    struct tm_local_slots *slots = &making->slots;
    void *list = slots->list;
    void *there = making->there;
    int rc = tm_grow(&list, &slots->capacity, slots->count + 1, sizeof *slots->list, TM_LOCAL_SLOTS_MAX);
    slots->list = list;
    if (rc == 0)
        rc = tm_grow(&there, &making->there_capacity, making->there_count + 1, sizeof *making->there,
                     TM_LOCAL_SLOTS_MAX);
    making->there = there;
    if (rc != 0) return rc;
    making->there[making->there_count++] = (uint32_t)slots->count;
    slots->list[slots->count++] = (struct tm_local_slot){.from_ms = time_ms, .to_ms = INT64_MAX};
    return 0;
}

int tm_local_slots__make(const struct tm_trace *trace, uint64_t seed, bool newest, struct tm_local_slots *slots,
                         struct tm_error *e)
{
    struct making making = {.random = tm_random_make(seed, STREAM_LOSSES), .newest = newest};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        int32_t left = event->out;
        for (; left > 0 && making.there_count > 0; left--) /* those that were there before the newcomers */
            take_one(&making, event->time_ms);
        for (int32_t n = 0; rc == 0 && n < event->in; n++)
            rc = add_one(&making, event->time_ms);
        for (; rc == 0 && left > 0; left--)
            take_one(&making, event->time_ms);
    }
    tm_free(making.there);
    if (rc != 0) {
        tm_local_slots__deinit(&making.slots);
        if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
        return tm_error_set(e, TM_ELIMIT, "the trace has more than %d instances: cut it (tidemill trace cut)",
                            TM_LOCAL_SLOTS_MAX);
    }
    tm_local_slots__deinit(slots);
    *slots = making.slots;
    return 0;
}
