#include "market/trace.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/suggest.h"
#include "market/shipped.h"
#include "market/trace_format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *meaning;
} warning_table[] = {
#define TM_TRACE_WARNING_ROW(name, text, meaning) {text, meaning},
    TM_TRACE_WARNINGS(TM_TRACE_WARNING_ROW)
#undef TM_TRACE_WARNING_ROW
};

const char *tm_trace_warning_name(enum tm_trace_warning warning)
{
    return warning_table[warning].name;
}

const char *tm_trace_warning_meaning(enum tm_trace_warning warning)
{
    return warning_table[warning].meaning;
}

void tm_trace_init(struct tm_trace *trace)
{
    *trace = (struct tm_trace){0};
}

void tm_trace_deinit(struct tm_trace *trace)
{
    tm_free(trace->events);
    *trace = (struct tm_trace){0};
}

/* ---- building ---- */

static int append_event(struct tm_trace *trace, struct tm_trace_event event, struct tm_error *e)
{
    void *events = trace->events;
    int rc = tm_grow(&events, &trace->event_capacity, trace->event_count + 1, sizeof event, TM_TRACE_EVENTS_MAX);
    trace->events = events;
    if (rc == -(int)TM_ELIMIT) return tm_error_set(e, TM_ELIMIT, "trace has more than %d events", TM_TRACE_EVENTS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    trace->events[trace->event_count++] = event;
    return 0;
}

int tm_trace_add(struct tm_trace *trace, int64_t time_ms, int64_t in, int64_t out, double price_usd_h,
                 struct tm_error *e)
{
    if (in < 0 || out < 0 || in > TM_TRACE_INSTANCES_MAX || out > TM_TRACE_INSTANCES_MAX)
        return tm_error_set(e, TM_EINPUT, "expected a number of instances from 0 to %d, got %lld",
                            TM_TRACE_INSTANCES_MAX, (long long)(in < 0 || in > TM_TRACE_INSTANCES_MAX ? in : out));
    if (isinf(price_usd_h) || price_usd_h < 0)
        return tm_error_set(e, TM_EINPUT, "expected a price of 0 or more, got %g", price_usd_h);
    if (time_ms < 0) return tm_error_set(e, TM_EINPUT, "time is before the start of the trace");
    struct tm_trace_event *last = trace->event_count > 0 ? &trace->events[trace->event_count - 1] : NULL;
    if (last != NULL && time_ms < last->time_ms)
        return tm_error_set(e, TM_EINPUT, "time goes back from %.3f s to %.3f s", (double)last->time_ms / 1000,
                            (double)time_ms / 1000);
    if (last != NULL && time_ms == last->time_ms) {
        if ((int64_t)last->in + in > TM_TRACE_INSTANCES_MAX || (int64_t)last->out + out > TM_TRACE_INSTANCES_MAX)
            return tm_error_set(e, TM_ELIMIT, "more than %d instances", TM_TRACE_INSTANCES_MAX);
        last->in += (int32_t)in;
        last->out += (int32_t)out;
        if (!isnan(price_usd_h)) last->price_usd_h = price_usd_h;
        return 0;
    }
    struct tm_trace_event event = {
        .time_ms = time_ms, .in = (int32_t)in, .out = (int32_t)out, .price_usd_h = price_usd_h};
    return append_event(trace, event, e);
}

int tm_trace_copy(const struct tm_trace *trace, struct tm_trace *out, struct tm_error *e)
{
    struct tm_trace_event *events = tm_alloc((trace->event_count + 1) * sizeof *events);
    if (events == NULL) return tm_error_nomem(e);
    if (trace->event_count > 0) memcpy(events, trace->events, trace->event_count * sizeof *events);
    tm_free(out->events);
    *out = *trace;
    out->events = events;
    out->event_capacity = trace->event_count + 1;
    return 0;
}

/* ---- reading ---- */

int tm_trace_parse(const char *file, const char *text, size_t length, const char *format, struct tm_trace *trace,
                   struct tm_error *e)
{
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        length -= 3;
    }
    if (length == 0) return tm_error_set(e, TM_EINPUT, "%s: file is empty", file);
    struct tm_trace_input input = {.file = file, .text = text, .length = length};
    const struct tm_trace_format *reader = NULL;
    int rc = format != NULL ? tm_trace_format__find(format, &reader, e) : tm_trace_format__detect(&input, &reader, e);
    if (rc != 0) return rc;
    struct tm_trace fresh;
    tm_trace_init(&fresh);
    (void)snprintf(fresh.format, sizeof fresh.format, "%s", reader->name);
    rc = reader->read(&input, &fresh, e);
    if (rc == 0) rc = tm_trace__finish(&input, &fresh, e);
    if (rc != 0) {
        tm_trace_deinit(&fresh);
        return rc;
    }
    tm_trace_deinit(trace);
    *trace = fresh;
    return 0;
}

static int no_such_trace(const char *path, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = path};
    struct tm_text names;
    tm_text_init(&names, 256);
    for (size_t i = 0; i < tm_shipped__trace_count(); i++) {
        tm_suggest_offer(&suggest, tm_shipped__trace(i).name);
        tm_text_printf(&names, "%s%s", i > 0 ? ", " : "", tm_shipped__trace(i).name);
    }
    int rc = suggest.best != NULL
                 ? tm_error_set(e, TM_ENOTFOUND, "%s: no such file; did you mean the shipped trace \"%s\"?", path,
                                suggest.best)
                 : tm_error_set(e, TM_ENOTFOUND, "%s: no such file, and no shipped trace of that name (%s)", path,
                                tm_text_string(&names));
    tm_text_deinit(&names);
    return rc;
}

int tm_trace_load(struct tm_env *env, const char *path, const char *format, struct tm_trace *trace, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_TRACE_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == -(int)TM_ENOTFOUND) {
        struct tm_shipped shipped;
        rc = !tm_shipped__trace_find(path, &shipped)
                 ? no_such_trace(path, e)
                 : tm_trace_parse(path, shipped.text, shipped.length, format, trace, e);
    } else if (rc == 0) {
        rc = tm_trace_parse(strcmp(path, "-") == 0 ? "(standard input)" : path, tm_text_string(&text), text.length,
                            format, trace, e);
    }
    tm_text_deinit(&text);
    return rc;
}

/* ---- cutting and comparing ---- */

int tm_trace_cut(const struct tm_trace *trace, int64_t from_ms, int64_t to_ms, struct tm_trace *out, struct tm_error *e)
{
    if (from_ms < 0 || to_ms <= from_ms || from_ms >= trace->end_ms || to_ms > trace->end_ms)
        return tm_error_set(e, TM_EUSAGE,
                            "the part must be within the trace, from 0 s to %g s, and end after its start (%g s)",
                            (double)trace->end_ms / 1000, (double)from_ms / 1000);
    struct tm_trace cut = *trace;
    cut.events = NULL;
    cut.event_count = 0;
    cut.event_capacity = 0;
    cut.polls = 0; /* polls of the whole say nothing of the part */
    cut.polls_running = 0;
    cut.start_utc_ms = trace->has_start ? trace->start_utc_ms + from_ms : 0;
    cut.begin_ms = trace->begin_ms > from_ms ? trace->begin_ms - from_ms : 0;
    cut.end_ms = to_ms - from_ms;
    if (trace->interval_ms != 0 && from_ms % trace->interval_ms != 0) cut.interval_ms = 0; /* off the grid now */
    int64_t count = 0;
    double price = NAN;
    size_t i = 0;
    for (; i < trace->event_count && trace->events[i].time_ms <= from_ms; i++) {
        count += trace->events[i].in - trace->events[i].out;
        if (!isnan(trace->events[i].price_usd_h)) price = trace->events[i].price_usd_h;
    }
    int rc = trace->begin_ms <= from_ms ? tm_trace_add(&cut, 0, count, 0, price, e) : 0;
    /* Up to to_ms, without it; but the last moment of the whole belongs to its last part. */
    int64_t stop_ms = to_ms == trace->end_ms ? to_ms + 1 : to_ms;
    for (; rc == 0 && i < trace->event_count && trace->events[i].time_ms < stop_ms; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        rc = tm_trace_add(&cut, event->time_ms - from_ms, event->in, event->out, event->price_usd_h, e);
    }
    if (rc == 0 && cut.event_count == 0)
        rc = tm_error_set(e, TM_EUSAGE, "the trace's first record, at %.3f s, comes after that part",
                          (double)trace->begin_ms / 1000);
    if (rc != 0) {
        tm_trace_deinit(&cut);
        return rc;
    }
    tm_trace_deinit(out);
    *out = cut;
    return 0;
}

static int64_t in_proportion(int64_t count, int64_t to, int64_t of)
{
    return (count * to + of / 2) / of;
}

int tm_trace_scale(const struct tm_trace *trace, int64_t instances_max, struct tm_trace *out, struct tm_error *e)
{
    if (instances_max < 1) return tm_error_set(e, TM_EUSAGE, "a trace is scaled to 1 instance or more");
    struct tm_trace scaled = *trace;
    int64_t count = 0;
    int64_t most = trace->instances_max > 0 ? trace->instances_max : 1;
    int64_t to = instances_max < most ? instances_max : most;
    int rc = 0;
    scaled.events = NULL;
    scaled.event_count = scaled.event_capacity = 0;
    scaled.instances_max = to;
    for (size_t i = 0; rc == 0 && i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        int64_t before = in_proportion(count, to, most);
        int64_t less = in_proportion(count - event->out, to, most);
        count += event->in - event->out;
        int64_t in = in_proportion(count, to, most) - less;
        if (i > 0 && in == 0 && before == less && isnan(event->price_usd_h)) continue;
        rc = tm_trace_add(&scaled, event->time_ms, in, before - less, event->price_usd_h, e);
    }
    scaled.end_ms = trace->end_ms;
    if (rc != 0) {
        tm_trace_deinit(&scaled);
        return rc;
    }
    tm_trace_deinit(out);
    *out = scaled;
    return 0;
}

int tm_trace_multiply(struct tm_trace *trace, int64_t by, struct tm_error *e)
{
    if (by < 1 || trace->instances_max > TM_TRACE_INSTANCES_MAX / by)
        return tm_error_set(e, TM_ELIMIT, "%lld times %lld instances: a trace has at most %d", (long long)by,
                            (long long)trace->instances_max, TM_TRACE_INSTANCES_MAX);
    for (size_t i = 0; i < trace->event_count; i++) {
        trace->events[i].in *= (int32_t)by;
        trace->events[i].out *= (int32_t)by;
        trace->events[i].price_usd_h /= (double)by;
    }
    trace->instances_max *= by;
    return 0;
}

static bool same_price(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool tm_trace__equals(const struct tm_trace *a, const struct tm_trace *b)
{
    if (strcmp(a->instance, b->instance) != 0 || strcmp(a->zone, b->zone) != 0 || strcmp(a->source, b->source) != 0 ||
        a->has_start != b->has_start || (a->has_start && a->start_utc_ms != b->start_utc_ms) ||
        a->interval_ms != b->interval_ms || a->begin_ms != b->begin_ms || a->end_ms != b->end_ms ||
        a->instances_max != b->instances_max || a->polls != b->polls || a->polls_running != b->polls_running ||
        a->event_count != b->event_count)
        return false;
    for (size_t i = 0; i < a->event_count; i++) {
        const struct tm_trace_event *x = &a->events[i];
        const struct tm_trace_event *y = &b->events[i];
        if (x->time_ms != y->time_ms || x->in != y->in || x->out != y->out ||
            !same_price(x->price_usd_h, y->price_usd_h))
            return false;
    }
    return true;
}
