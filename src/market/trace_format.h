/* The formats traces come in. To add one: write src/market/trace_NAME.c with a probe and a reader, add its row to the
 * table in trace_format.c, a test with a small sample, a fuzz corpus file, and a line to doc/tidemill-trace.5.scd. */
#ifndef TM_MARKET_TRACE_FORMAT_H
#define TM_MARKET_TRACE_FORMAT_H

#include "base/csv.h"
#include "market/trace.h"

struct tm_trace_input {
    const char *file; /* for messages */
    const char *text; /* not empty, no zero bytes, no byte order mark */
    size_t length;
};

struct tm_trace_format {
    const char *name;
    const char *summary; /* one line for help and the manual */
    /* Does the text look like this format? Looks at the first lines only. NULL: only read when asked for by name. */
    bool (*probe)(const struct tm_trace_input *input);
    /* Fills events, interval, begin, end, start where known. Errors name file and line. */
    int (*read)(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e);
};

/* All formats, in the order in which they are tried; NULL ends the list. */
const struct tm_trace_format *const *tm_trace__formats(void);

/* Names of all formats, for options; NULL ends the list. */
extern const char *const tm_trace_format_names[];

int tm_trace_format__find(const char *name, const struct tm_trace_format **out, struct tm_error *e);
int tm_trace_format__detect(const struct tm_trace_input *input, const struct tm_trace_format **out, struct tm_error *e);

/* ---- help for readers ---- */

/* Checks and completes what a reader left: begin, end, instances_max, interval of event traces, warnings. */
int tm_trace__finish(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e);

/* Counts a warning of a kind and keeps its first line. */
void tm_trace__warn(struct tm_trace *trace, enum tm_trace_warning warning, int line);

/* A level: "from time_ms on there are `count` instances". Goes through tm_trace_add as the difference to the level
 * before; levels at one time add up, so that an instance lost and replaced within the file's resolution still shows as
 * one out and one in. A time that goes back is moved forward and warned of. Wraps errors with file and line. */
struct tm_trace_levels {
    const struct tm_trace_input *input;
    struct tm_trace *trace;
    int64_t count;
    int64_t latest_ms;
    bool started;
};
int tm_trace__level(struct tm_trace_levels *levels, int line, int64_t time_ms, int64_t count, double price_usd_h,
                    struct tm_error *e);

/* The first row of the text, read as CSV: number of fields, 0 if it is none. */
size_t tm_trace__first_row(const struct tm_trace_input *input, struct tm_slice *fields, size_t fields_max);

/* The largest time step of at least 10 s that all events sit on, or 0. */
int64_t tm_trace__grid(const struct tm_trace *trace);

/* Readers, one file each. */
extern const struct tm_trace_format tm_trace__tidemill;
extern const struct tm_trace_format tm_trace__json_series;
extern const struct tm_trace_format tm_trace__parcae;
extern const struct tm_trace_format tm_trace__log;
extern const struct tm_trace_format tm_trace__node_events;
extern const struct tm_trace_format tm_trace__text_counts;
extern const struct tm_trace_format tm_trace__probe;
extern const struct tm_trace_format tm_trace__probe_up;
extern const struct tm_trace_format tm_trace__counts;
extern const struct tm_trace_format tm_trace__counts_ms;
extern const struct tm_trace_format tm_trace__counts_s;
extern const struct tm_trace_format tm_trace__counts_h;

#endif
