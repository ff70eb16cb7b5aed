#include "market/trace_format.h"

#include "base/suggest.h"
#include "base/term.h"

#include <math.h>
#include <string.h>

const char *const tm_trace_format_names[] = {
    "tidemill",     "json-series", "parcae-jsonl",  "log",          "csv-node-events", "txt-counts", "csv-probe",
    "csv-probe-up", "csv-counts",  "csv-counts-ms", "csv-counts-s", "csv-counts-h",    NULL,
};

const struct tm_trace_format *const *tm_trace__formats(void)
{
    static const struct tm_trace_format *const formats[] = {
        &tm_trace__tidemill,
        &tm_trace__json_series,
        &tm_trace__parcae,
        &tm_trace__log,
        &tm_trace__node_events,
        &tm_trace__text_counts,
        &tm_trace__probe,
        &tm_trace__probe_up,
        &tm_trace__counts,
        &tm_trace__counts_ms,
        &tm_trace__counts_s,
        &tm_trace__counts_h,
        NULL,
    };
    return formats;
}

int tm_trace_format__find(const char *name, const struct tm_trace_format **out, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = name};
    for (const struct tm_trace_format *const *format = tm_trace__formats(); *format != NULL; format++) {
        if (strcmp((*format)->name, name) == 0) {
            *out = *format;
            return 0;
        }
        tm_suggest_offer(&suggest, (*format)->name);
    }
    return tm_error_set(e, TM_EUSAGE, "unknown trace format \"%s\"%s%s%s", name,
                        suggest.best != NULL ? "; did you mean \"" : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "\"?" : "; see tidemill-trace(5)");
}

static size_t split_row(struct tm_slice row, struct tm_slice *fields, size_t fields_max)
{
    for (size_t count = 0;;) {
        const char *comma = memchr(row.data, ',', row.length);
        size_t length = comma != NULL ? (size_t)(comma - row.data) : row.length;
        bool quoted = length > 0 && row.data[0] == '"'; /* no format quotes its first row */
        if (count == fields_max || quoted) return 0;
        fields[count++] = (struct tm_slice){row.data, length};
        if (comma == NULL) return count;
        row = (struct tm_slice){comma + 1, row.length - length - 1};
    }
}

/* By hand, without the CSV reader: that takes memory, and a probe cannot say that there was none. */
size_t tm_trace__first_row(const struct tm_trace_input *input, struct tm_slice *fields, size_t fields_max)
{
    for (size_t at = 0; at < input->length;) {
        const char *newline = memchr(input->text + at, '\n', input->length - at);
        size_t stop = newline != NULL ? (size_t)(newline - input->text) : input->length;
        struct tm_slice row = {input->text + at, stop - at};
        if (row.length > 0 && row.data[row.length - 1] == '\r') row.length--;
        if (tm_slice_trim(row).length > 0) return split_row(row, fields, fields_max);
        at = stop + 1;
    }
    return 0;
}

/* Files that people will try, and what to do with them. */
static const char *explain_other(const struct tm_trace_input *input)
{
    struct tm_slice fields[16];
    size_t count = tm_trace__first_row(input, fields, 16);
    if (count >= 3 && (tm_slice_equals(fields[0], "insert_time") || tm_slice_equals(fields[0], "VM name") ||
                       (fields[1].length == 0 && fields[2].length == 0)))
        return "a list of lifetimes of single VMs, not a trace of a place";
    if (count >= 5 && tm_slice_equals(fields[0], "InstanceType"))
        return "a SkyPilot catalogue; read it with: tidemill catalog import --format skypilot FILE";
    if (count >= 4 && (tm_slice_equals(fields[0], "timestamp") || tm_slice_equals(fields[0], "date")))
        return "a price history; read it with: tidemill catalog import --format prices FILE";
    return NULL;
}

int tm_trace_format__detect(const struct tm_trace_input *input, const struct tm_trace_format **out, struct tm_error *e)
{
    for (const struct tm_trace_format *const *format = tm_trace__formats(); *format != NULL; format++) {
        if ((*format)->probe == NULL || !(*format)->probe(input)) continue;
        *out = *format;
        return 0;
    }
    const char *other = explain_other(input);
    if (other != NULL) return tm_error_set(e, TM_EINPUT, "%s: %s", input->file, other);
    size_t length = input->length < 40 ? input->length : 40;
    const char *newline = memchr(input->text, '\n', length);
    if (newline != NULL) length = (size_t)(newline - input->text);
    struct tm_text start;
    tm_text_init(&start, 64);
    tm_term_put_safe(&start, input->text, length);
    int rc = tm_error_set(e, TM_EINPUT,
                          "%s:1: no known trace format starts with \"%s\"; see tidemill-trace(5) for the formats",
                          input->file, tm_text_string(&start));
    tm_text_deinit(&start);
    return rc;
}

void tm_trace__warn(struct tm_trace *trace, enum tm_trace_warning warning, int line)
{
    if (trace->warnings[warning].count++ == 0) trace->warnings[warning].first_line = line;
}

int tm_trace__level(struct tm_trace_levels *levels, int line, int64_t time_ms, int64_t count, double price_usd_h,
                    struct tm_error *e)
{
    if (levels->started && time_ms < levels->latest_ms) {
        tm_trace__warn(levels->trace, TM_TRACE_TIMES_GO_BACK, line);
        time_ms = levels->latest_ms;
    }
    if (count < 0 || count > TM_TRACE_INSTANCES_MAX)
        return tm_error_set(e, TM_EINPUT, "%s:%d: expected a number of instances from 0 to %d, got %lld",
                            levels->input->file, line, TM_TRACE_INSTANCES_MAX, (long long)count);
    int64_t change = count - levels->count;
    int rc = 0;
    if (change != 0 || !levels->started || !isnan(price_usd_h))
        rc = tm_trace_add(levels->trace, time_ms, change > 0 ? change : 0, change < 0 ? -change : 0, price_usd_h, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s:%d", levels->input->file, line);
    levels->count = count;
    levels->latest_ms = time_ms;
    levels->started = true;
    return 0;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t tm_trace__grid(const struct tm_trace *trace)
{
    int64_t grid = 0;
    for (size_t i = 0; i < trace->event_count; i++)
        grid = gcd(grid, trace->events[i].time_ms);
    return grid >= 10000 ? grid : 0;
}

static void drop_empty_events(struct tm_trace *trace)
{
    size_t kept = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        if (i > 0 && event->in == 0 && event->out == 0 && isnan(event->price_usd_h)) continue;
        trace->events[kept++] = *event;
    }
    trace->event_count = kept;
}

int tm_trace__finish(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    if (trace->event_count == 0) return tm_error_set(e, TM_EINPUT, "%s: no records in the trace", input->file);
    trace->begin_ms = trace->events[0].time_ms;
    drop_empty_events(trace);
    int64_t count = 0;
    int64_t most = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        count += trace->events[i].in - trace->events[i].out;
        if (count < 0)
            return tm_error_set(e, TM_EINPUT, "%s: at %.3f s more instances leave than there are", input->file,
                                (double)trace->events[i].time_ms / 1000);
        if (count > TM_TRACE_INSTANCES_MAX)
            return tm_error_set(e, TM_EINPUT, "%s: more than %d instances", input->file, TM_TRACE_INSTANCES_MAX);
        if (count > most) most = count;
    }
    if (trace->instances_max < most) trace->instances_max = most;
    int64_t last_ms = trace->events[trace->event_count - 1].time_ms;
    if (trace->end_ms < last_ms) trace->end_ms = last_ms;
    return 0;
}
