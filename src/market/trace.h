/* Traces: how many instances a place would give over time.
 *
 * One form in memory, whatever the file: a list of events in order of time, each with how many instances came, how
 * many went, and the price from then on where it is known. Counts between events do not change. Reading finds the
 * format by content (trace_format.h lists them); tm_trace__print writes our own text form, which reads back to exactly
 * the same trace. */
#ifndef TM_MARKET_TRACE_H
#define TM_MARKET_TRACE_H

#include "base/env.h"
#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_TRACE_EVENTS_MAX = 1 << 22, TM_TRACE_BYTES_MAX = 64 << 20, TM_TRACE_INSTANCES_MAX = 1000000 };

struct tm_trace_event {
    int64_t time_ms;    /* since the trace's zero; ascending, no two events at one time */
    int32_t in;         /* instances that came */
    int32_t out;        /* instances that went */
    double price_usd_h; /* of one instance from now on; NaN: no news */
};

/* X(name in messages, what it means) */
#define TM_TRACE_WARNINGS(X)                                                                                           \
    X(TIMES_GO_BACK, "times-go-back", "a time before the line above it; counted as at the latest time so far")         \
    X(NEVER_AVAILABLE, "never-available",                                                                              \
      "every probe failed; if 1 means available in this file, read it with --format csv-probe-up")                     \
    X(UNIT_GUESSED, "unit-guessed", "the file does not give the unit of time; use --format csv-counts-ms, -s or -h")   \
    X(IRREGULAR_PROBES, "irregular-probes", "probes are not evenly spaced; each holds until the next")

enum tm_trace_warning {
#define TM_TRACE_WARNING_ENUM(name, text, meaning) TM_TRACE_##name,
    TM_TRACE_WARNINGS(TM_TRACE_WARNING_ENUM)
#undef TM_TRACE_WARNING_ENUM
        TM_TRACE_WARNING_COUNT
};

const char *tm_trace_warning_name(enum tm_trace_warning warning);
const char *tm_trace_warning_meaning(enum tm_trace_warning warning);

struct tm_trace {
    char format[24];   /* format it was read from */
    char instance[64]; /* instance type; "" where not known */
    char zone[64];
    char source[256]; /* where the figures come from */
    bool has_start;
    int64_t start_utc_ms;          /* of the trace's zero, where known */
    int64_t interval_ms;           /* samples or events sit on this grid; 0: any time */
    int64_t begin_ms;              /* of the first record: nothing is known before it */
    int64_t end_ms;                /* the trace speaks up to here; its length */
    int64_t instances_max;         /* the most there were, or could have been */
    int64_t polls;                 /* logs of polled instances: how many polls there were ... */
    int64_t polls_running;         /* ... and how many found the instance running; else 0 */
    struct tm_trace_event *events; /* owned */
    size_t event_count;
    size_t event_capacity;
    struct {
        int count;
        int first_line;
    } warnings[TM_TRACE_WARNING_COUNT];
};

void tm_trace_init(struct tm_trace *trace);
void tm_trace_deinit(struct tm_trace *trace);

/* Reads a file ("-": standard input) or, where there is no such file, the shipped trace of that name (hadp, hasp,
 * ladp, lasp). `format` is a name from trace_format.h or NULL: found by content. `trace` must be initialised; it is
 * filled only on success. */
int tm_trace_load(struct tm_env *env, const char *path, const char *format, struct tm_trace *trace, struct tm_error *e);
/* The same for text in hand; `file` is for messages. */
int tm_trace_parse(const char *file, const char *text, size_t length, const char *format, struct tm_trace *trace,
                   struct tm_error *e);

/* Appends the trace in our own text form (man page tidemill-trace(5), trace_tidemill.c). */
void tm_trace__print(const struct tm_trace *trace, struct tm_text *out);

/* True if all that tm_trace__print keeps is equal. */
bool tm_trace__equals(const struct tm_trace *a, const struct tm_trace *b);

/* The part from from_ms up to (and without, unless it is the end) to_ms, its zero moved to from_ms. `out` must be
 * initialised. */
int tm_trace_cut(const struct tm_trace *trace, int64_t from_ms, int64_t to_ms, struct tm_trace *out,
                 struct tm_error *e);

/* The same with counts in proportion, so that where there could have been instances_max there are `instances_max` now,
 * rounded; never more than there were. `out` must be initialised. */
int tm_trace_scale(const struct tm_trace *trace, int64_t instances_max, struct tm_trace *out, struct tm_error *e);

/* As many times as many instances, each at that part of the price: what is made of instances with several workers, seen
 * as their workers. In place; -TM_ELIMIT leaves it as it was. */
int tm_trace_multiply(struct tm_trace *trace, int64_t by, struct tm_error *e);

/* Adds an event behind the others; one at the same time is merged. Fails on going back, on counts below 0, on
 * prices that are negative or not numbers, on limits. */
int tm_trace_add(struct tm_trace *trace, int64_t time_ms, int64_t in, int64_t out, double price_usd_h,
                 struct tm_error *e);

/* Deep copy. `out` must be initialised. */
int tm_trace_copy(const struct tm_trace *trace, struct tm_trace *out, struct tm_error *e);

#endif
