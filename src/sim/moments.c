#include "sim/moments.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

int tm_moments_count_at(const struct tm_trace *trace, int64_t time_ms, double *price_usd_h)
{
    int64_t count = 0;
    double price = NAN;
    for (size_t i = 0; i < trace->event_count && trace->events[i].time_ms <= time_ms; i++) {
        count += trace->events[i].in - trace->events[i].out;
        if (!isnan(trace->events[i].price_usd_h)) price = trace->events[i].price_usd_h;
    }
    if (price_usd_h != NULL) *price_usd_h = price;
    return (int)count;
}

int64_t tm_moments_end_ms(const struct tm_trace *trace, int64_t interval_ms)
{
    bool at_end = trace->event_count > 0 && trace->events[trace->event_count - 1].time_ms == trace->end_ms;
    return at_end ? trace->end_ms + interval_ms : trace->end_ms;
}

static int add_moment(struct tm_moments *m, const struct tm_moment *moment, const struct tm_ahead *ahead,
                      struct tm_error *e)
{
    int rc = tm_grow((void **)&m->list, &m->capacity, m->known + 1, sizeof *m->list, TM_LOOKAHEAD_STEPS_MAX);
    if (rc == 0)
        rc = tm_grow((void **)&m->ahead, &m->ahead_capacity, m->known + 1, sizeof *m->ahead, TM_LOOKAHEAD_STEPS_MAX);
    if (rc == -TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT,
                            "more than %d events and intervals; simulate less time, or a longer --interval",
                            TM_LOOKAHEAD_STEPS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    m->list[m->known] = *moment;
    m->ahead[m->known] = *ahead;
    m->known++;
    return 0;
}

/* Walks ticks and events in order of time; both at one time are one moment. */
static int walk(struct tm_moments *m, const struct tm_trace *trace, int64_t from_ms, int64_t end_ms,
                int64_t interval_ms, struct tm_error *e)
{
    double price;
    int fleet = tm_moments_count_at(trace, from_ms, &price);
    struct tm_moment first = {.tick = true, .event = true, .arrived = fleet, .price_usd_h = price};
    int rc = add_moment(m, &first, &(struct tm_ahead){.after = fleet}, e);
    size_t next = 0;
    while (next < trace->event_count && trace->events[next].time_ms <= from_ms)
        next++;
    int64_t tick_ms = from_ms + interval_ms;
    while (rc == 0) {
        int64_t time_ms = tick_ms;
        bool event = next < trace->event_count && trace->events[next].time_ms <= tick_ms;
        if (event) time_ms = trace->events[next].time_ms;
        if (time_ms >= end_ms) break;
        struct tm_moment moment = {.time_s = (double)(time_ms - from_ms) / 1000, .tick = time_ms == tick_ms};
        struct tm_ahead ahead = {.before = fleet, .after = fleet};
        if (event) {
            const struct tm_trace_event *change = &trace->events[next++];
            moment.event = change->in > 0 || change->out > 0;
            moment.arrived = change->in;
            ahead.lost = change->out < fleet ? change->out : fleet;
            ahead.after = fleet - ahead.lost + change->in;
            fleet = ahead.after;
            if (!isnan(change->price_usd_h)) price = change->price_usd_h;
        }
        moment.price_usd_h = price;
        if (moment.tick) tick_ms += interval_ms;
        rc = add_moment(m, &moment, &ahead, e);
    }
    return rc;
}

static void measure_durations(struct tm_moments *m, double end_s, double to_s)
{
    for (size_t i = 0; i < m->known; i++) {
        double until = i + 1 < m->known ? m->list[i + 1].time_s : end_s;
        if (m->list[i].time_s < to_s && until > to_s) until = to_s;
        m->ahead[i].duration_s = until - m->list[i].time_s;
        if (m->list[i].time_s < to_s) m->count = i + 1;
    }
}

int tm_moments__init(struct tm_moments *m, const struct tm_trace *trace, int64_t from_ms, int64_t to_ms,
                     int64_t interval_ms, int beyond, struct tm_error *e)
{
    memset(m, 0, sizeof *m);
    int64_t end_ms = to_ms + interval_ms * beyond;
    int64_t trace_end_ms = tm_moments_end_ms(trace, interval_ms);
    if (end_ms > trace_end_ms) end_ms = trace_end_ms > to_ms ? trace_end_ms : to_ms;
    int rc = walk(m, trace, from_ms, end_ms, interval_ms, e);
    if (rc == 0)
        measure_durations(m, (double)(end_ms - from_ms) / 1000, (double)(to_ms - from_ms) / 1000);
    else
        tm_moments__deinit(m);
    return rc;
}

void tm_moments__deinit(struct tm_moments *m)
{
    tm_free(m->list);
    tm_free(m->ahead);
    memset(m, 0, sizeof *m);
}
