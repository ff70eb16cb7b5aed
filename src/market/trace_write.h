/* Traces for other programs: the formats that can be written. */
#ifndef TM_MARKET_TRACE_WRITE_H
#define TM_MARKET_TRACE_WRITE_H

#include "market/trace.h"

/* Names of the formats, NULL-terminated: tidemill, json-series, csv-counts-s. */
extern const char *const tm_trace_write_formats[];

/* Appends the trace in a format. json-series needs an interval: events between two samples show at the next one, and
 * `interval_ms` 0 takes the trace's own. */
int tm_trace_write(const struct tm_trace *trace, const char *format, int64_t interval_ms, struct tm_text *out,
                   struct tm_error *e);

#endif
