/* Helpers that the market's tests share. */
#ifndef TM_MARKET_TEST_MARKET_HELPERS_H
#define TM_MARKET_TEST_MARKET_HELPERS_H

#include "base/test/harness.h"
#include "market/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Public data that may lie beside the repository. */
#define SHARED_DATA TIDEMILL_SOURCE_DIR "/../shared/data"

/* Equal but for what a sum of doubles may lose. */
static inline bool near(double got, double want, double tolerance)
{
    return fabs(got - want) <= tolerance;
}

/* Parses a copy that is exactly as long as the text: the address sanitizer sees every byte read behind it. */
static inline int parse_exactly(const char *text, const char *format, struct tm_trace *trace, struct tm_error *e)
{
    size_t length = strlen(text);
    char *copy = malloc(length > 0 ? length : 1);
    if (copy == NULL) abort();
    memcpy(copy, text, length);
    int rc = tm_trace_parse("t", copy, length, format, trace, e);
    free(copy);
    return rc;
}

/* Initialises the trace and fills it from a text that must be good. */
static inline void trace_from(const char *text, const char *format, struct tm_trace *trace)
{
    struct tm_error e = {0};
    tm_trace_init(trace);
    int rc = parse_exactly(text, format, trace, &e);
    assert_row(rc == 0, "\"%s\": %s", text, e.text);
}

/* All that the events say in one text, so that a table of tests can show it: "0+4 60-1+1 120$0.5 end 180". */
static inline const char *show_trace(const struct tm_trace *trace, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < trace->event_count && used < size; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        used += (size_t)snprintf(out + used, size - used, "%g", (double)event->time_ms / 1000);
        if (event->out > 0 && used < size) used += (size_t)snprintf(out + used, size - used, "-%d", event->out);
        if (event->in > 0 && used < size) used += (size_t)snprintf(out + used, size - used, "+%d", event->in);
        if (!isnan(event->price_usd_h) && used < size)
            used += (size_t)snprintf(out + used, size - used, "$%g", event->price_usd_h);
        if (used < size) used += (size_t)snprintf(out + used, size - used, " ");
    }
    if (used < size) used += (size_t)snprintf(out + used, size - used, "end %g", (double)trace->end_ms / 1000);
    assert_row(used < size, "too many events to show");
    return out;
}

/* Prints the trace in our text form and reads that again: nothing may be lost. */
static inline void check_round_trip(const char *name, const struct tm_trace *trace)
{
    struct tm_text text;
    struct tm_trace again;
    struct tm_error e = {0};
    tm_text_init(&text, TM_TRACE_BYTES_MAX);
    tm_trace_init(&again);
    tm_trace__print(trace, &text);
    assert_row(tm_text_status(&text, &e) == 0, "%s: %s", name, e.text);
    int rc = tm_trace_parse(name, tm_text_string(&text), text.length, NULL, &again, &e);
    assert_row(rc == 0, "%s: our own text does not read: %s", name, e.text);
    assert_row(strcmp(again.format, "tidemill") == 0, "%s: read as %s", name, again.format);
    assert_row(tm_trace__equals(trace, &again), "%s: not the same after printing and reading", name);
    tm_trace_deinit(&again);
    tm_text_deinit(&text);
}

/* For TM_FAIL_EACH_ALLOC: one reading of a text, from nothing to nothing. */
static inline int parse_once(const char *text, const char *format)
{
    struct tm_trace trace;
    tm_trace_init(&trace);
    int rc = parse_exactly(text, format, &trace, NULL);
    tm_trace_deinit(&trace);
    return rc;
}

#endif
