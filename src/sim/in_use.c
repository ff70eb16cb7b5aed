#include "sim/in_use.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

double tm_in_use__lead_s(const struct tm_cost *cost, double notice_s)
{
    return cost->measured.leaves && cost->measured.leave_s < notice_s ? notice_s - cost->measured.leave_s : 0;
}

bool tm_in_use__differs(const struct tm_cost *cost, double notice_s)
{
    return cost->kind == TM_COST_MEASURED && (cost->measured.join_s > 0 || tm_in_use__lead_s(cost, notice_s) > 0);
}

double tm_in_use__notice_s(const struct tm_cost *cost, double notice_s)
{
    if (cost->kind != TM_COST_MEASURED || !cost->measured.leaves) return notice_s;
    return cost->measured.leave_s < notice_s ? cost->measured.leave_s : 0;
}

static int add_event(struct tm_trace *out, struct tm_trace_event event, struct tm_error *e)
{
    int rc = tm_grow((void **)&out->events, &out->event_capacity, out->event_count + 1, sizeof *out->events,
                     TM_TRACE_EVENTS_MAX);
    if (rc == -(int)TM_ELIMIT) return tm_error_set(e, TM_ELIMIT, "more than %d events in a trace", TM_TRACE_EVENTS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    out->events[out->event_count++] = event;
    return 0;
}

static int mark(struct tm_trace *out, int64_t from_ms, double time_ms, struct tm_error *e)
{
    if (time_ms <= (double)from_ms || time_ms >= 9e15) return 0;
    return add_event(out, (struct tm_trace_event){.time_ms = (int64_t)time_ms, .price_usd_h = NAN}, e);
}

/* Arrivals and losses as events of their own, each at its new time. */
static int split(const struct tm_trace *trace, const struct tm_cost *cost, int64_t from_ms, double notice_s,
                 struct tm_trace *out, struct tm_error *e)
{
    double later_ms = cost->measured.join_s * 1000, earlier_ms = tm_in_use__lead_s(cost, notice_s) * 1000;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < trace->event_count; i++) {
        struct tm_trace_event event = trace->events[i];
        if (event.time_ms <= from_ms) {
            rc = add_event(out, event, e);
            continue;
        }
        struct tm_trace_event arrival = {.in = event.in, .price_usd_h = NAN}, loss = {.out = event.out};
        loss.price_usd_h = NAN;
        double joined_ms = (double)event.time_ms + later_ms, left_ms = (double)event.time_ms - earlier_ms;
        arrival.time_ms = joined_ms < 9e15 ? (int64_t)joined_ms : INT64_MAX;
        loss.time_ms = left_ms > (double)from_ms ? (int64_t)left_ms : from_ms + 1;
        event.in = event.out = 0;
        if (!isnan(event.price_usd_h)) rc = add_event(out, event, e);
        if (rc == 0 && loss.out > 0 && earlier_ms > 0)
            rc = mark(out, from_ms, (double)event.time_ms - notice_s * 1000, e);
        if (rc == 0 && loss.out > 0) rc = add_event(out, loss, e);
        if (rc == 0 && arrival.in > 0 && later_ms > 0) rc = mark(out, from_ms, (double)event.time_ms, e);
        if (rc == 0 && arrival.in > 0 && arrival.time_ms < trace->end_ms) rc = add_event(out, arrival, e);
    }
    return rc;
}

/* By time; at one time losses come first, as in a trace's own events. */
static int by_time(const void *a, const void *b)
{
    const struct tm_trace_event *x = a, *y = b;
    if (x->time_ms != y->time_ms) return x->time_ms < y->time_ms ? -1 : 1;
    return (x->in > 0) - (y->in > 0);
}

/* Events at one time become one. A loss that finds nobody left takes the place of an arrival to come. */
static void merge(struct tm_trace *out)
{
    int64_t count = 0, missing = 0;
    size_t kept = 0;
    for (size_t i = 0; i < out->event_count; i++) {
        struct tm_trace_event event = out->events[i];
        int64_t unseen = event.in < missing ? event.in : missing;
        event.in -= (int32_t)unseen;
        missing -= unseen;
        if (event.out > count + event.in) {
            missing += event.out - (count + event.in);
            event.out = (int32_t)(count + event.in);
        }
        count += event.in - event.out;
        struct tm_trace_event *last = kept > 0 ? &out->events[kept - 1] : NULL;
        if (last != NULL && last->time_ms == event.time_ms) {
            last->in += event.in;
            last->out += event.out;
            if (!isnan(event.price_usd_h)) last->price_usd_h = event.price_usd_h;
        } else {
            out->events[kept++] = event;
        }
    }
    out->event_count = kept;
}

/* All that is there at from_ms comes later. Its losses meanwhile are found by merge(). */
static int delay_first(struct tm_trace *out, int64_t from_ms, double first_wait_s, struct tm_error *e)
{
    int64_t count = 0;
    for (size_t i = 0; i < out->event_count && out->events[i].time_ms <= from_ms; i++) {
        count += out->events[i].in - out->events[i].out;
        out->events[i].in = out->events[i].out = 0;
    }
    int64_t at_ms = from_ms + (int64_t)(fmin(first_wait_s, 9e12) * 1000);
    if (count == 0 || at_ms >= out->end_ms) return 0;
    return add_event(out, (struct tm_trace_event){.time_ms = at_ms, .in = (int32_t)count, .price_usd_h = NAN}, e);
}

int tm_in_use__trace(const struct tm_trace *trace, const struct tm_cost *cost, int64_t from_ms, double notice_s,
                     double first_wait_s, struct tm_trace *out, struct tm_error *e)
{
    struct tm_trace made = *trace;
    made.events = NULL;
    made.event_count = made.event_capacity = 0;
    int rc = split(trace, cost, from_ms, notice_s, &made, e);
    if (rc == 0 && first_wait_s > 0) rc = delay_first(&made, from_ms, first_wait_s, e);
    if (rc != 0) {
        tm_free(made.events);
        return rc;
    }
    if (made.event_count > 0) qsort(made.events, made.event_count, sizeof *made.events, by_time);
    merge(&made);
    *out = made;
    return 0;
}

struct tm_paid tm_paid__begin(const struct tm_trace *trace, int64_t from_ms)
{
    return (struct tm_paid){.trace = trace, .price_usd_h = NAN, .time_ms = (double)from_ms};
}

void tm_paid__advance(struct tm_paid *paid, double to_ms, int most, double spot_usd_h, double *out_usd,
                      double *out_hours)
{
    *out_usd = *out_hours = 0;
    while (paid->time_ms < to_ms || paid->next < paid->trace->event_count) {
        const struct tm_trace_event *event =
            paid->next < paid->trace->event_count ? &paid->trace->events[paid->next] : NULL;
        bool due = event != NULL && (double)event->time_ms <= paid->time_ms;
        if (due) {
            paid->next++;
            paid->count += event->in - event->out;
            if (!isnan(event->price_usd_h)) paid->price_usd_h = event->price_usd_h;
            continue;
        }
        if (paid->time_ms >= to_ms) return;
        double until_ms = event != NULL && (double)event->time_ms < to_ms ? (double)event->time_ms : to_ms;
        int64_t paying = paid->count < most ? paid->count : most;
        double hours = (double)(paying > 0 ? paying : 0) * (until_ms - paid->time_ms) / 3.6e6;
        *out_hours += hours;
        *out_usd += hours * (isnan(paid->price_usd_h) ? spot_usd_h : paid->price_usd_h);
        paid->time_ms = until_ms;
    }
}
