/* Our own text form of a trace.
 *
 *     tidemill-trace 1                      first line: form and version
 *     instance: p3.2xlarge                  keys, each at most once, all but `end` optional:
 *     zone: us-east-2a                        instance, zone, source  text
 *     start: 2023-08-03T00:00:00Z             start     time of the trace's zero, UTC
 *     interval: 300s                          interval  records sit on this grid
 *     begin: 0s                               begin     first record; nothing is known before it
 *     end: 5130s                              end       length
 *     instances: 4                                instances     the most there could be
 *     polls: 2103 2071                        polls     polls made, polls that found the instance running
 *                                           an empty line ends the keys
 *     0 +4                                  then one event a line, in order of time:
 *     1500 -3 $0.918                          SECONDS [+IN] [-OUT] [$PRICE]
 *     1800 +2                                 seconds with at most 3 decimals; $ per instance-hour from then on
 *
 * Lines that start with '#' are comments. Reading what tm_trace__print wrote gives the same trace, to the last bit. */
#include "market/trace_format.h"

#include "base/calendar.h"
#include "base/number.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char heading[] = "tidemill-trace 1";

static void put_time(struct tm_text *out, int64_t ms)
{
    tm_text_printf(out, "%lld", (long long)(ms / 1000));
    if (ms % 1000 != 0) tm_text_printf(out, ".%03lld", (long long)(ms % 1000));
}

static void put_duration(struct tm_text *out, const char *key, int64_t ms)
{
    char buffer[TM_UNITS_TEXT_MAX];
    tm_text_printf(out, "%s: %s\n", key, tm_unit_print_exact(TM_UNIT_DURATION, ms, buffer));
}

void tm_trace__print(const struct tm_trace *trace, struct tm_text *out)
{
    char buffer[TM_CALENDAR_TEXT_MAX];
    char number[TM_NUMBER_TEXT_MAX];
    tm_text_printf(out, "%s\n", heading);
    if (trace->instance[0] != '\0') tm_text_printf(out, "instance: %s\n", trace->instance);
    if (trace->zone[0] != '\0') tm_text_printf(out, "zone: %s\n", trace->zone);
    if (trace->source[0] != '\0') tm_text_printf(out, "source: %s\n", trace->source);
    if (trace->has_start) tm_text_printf(out, "start: %s\n", tm_calendar_print(trace->start_utc_ms, buffer));
    if (trace->interval_ms != 0) put_duration(out, "interval", trace->interval_ms);
    if (trace->begin_ms != 0) put_duration(out, "begin", trace->begin_ms);
    put_duration(out, "end", trace->end_ms);
    tm_text_printf(out, "nodes: %lld\n", (long long)trace->instances_max);
    if (trace->polls != 0)
        tm_text_printf(out, "polls: %lld %lld\n", (long long)trace->polls, (long long)trace->polls_running);
    tm_text_putc(out, '\n');
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        put_time(out, event->time_ms);
        if (event->in > 0 || (event->out == 0 && isnan(event->price_usd_h))) tm_text_printf(out, " +%d", event->in);
        if (event->out > 0) tm_text_printf(out, " -%d", event->out);
        if (!isnan(event->price_usd_h)) tm_text_printf(out, " $%s", tm_number_print(event->price_usd_h, number));
        tm_text_putc(out, '\n');
    }
}

/* ---- reading ---- */

struct reader {
    const struct tm_trace_input *input;
    struct tm_trace *trace;
    struct tm_error *e;
    const char *at;
    const char *end;
    int line;
    unsigned keys_seen;
    bool has_end;
    struct tm_slice text; /* the line in hand, without its end and blanks */
};

static bool next_line(struct reader *reader)
{
    if (reader->at >= reader->end) return false;
    const char *newline = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    const char *stop = newline != NULL ? newline : reader->end;
    reader->text = (struct tm_slice){reader->at, (size_t)(stop - reader->at)};
    if (reader->text.length > 0 && reader->text.data[reader->text.length - 1] == '\r') reader->text.length--;
    reader->text = tm_slice_trim(reader->text);
    reader->at = newline != NULL ? newline + 1 : reader->end;
    reader->line++;
    return true;
}

static int wrong(const struct reader *reader, const char *expected)
{
    return tm_error_set(reader->e, TM_EINPUT, "%s:%d: expected %s, got \"%.*s\"", reader->input->file, reader->line,
                        expected, (int)(reader->text.length < 60 ? reader->text.length : 60), reader->text.data);
}

static int read_text_value(const struct reader *reader, struct tm_slice value, char *target, size_t size)
{
    if (value.length >= size) return wrong(reader, "a shorter text");
    for (size_t i = 0; i < value.length; i++) {
        if ((unsigned char)value.data[i] < 0x20) return wrong(reader, "text without control characters");
    }
    (void)snprintf(target, size, "%.*s", (int)value.length, value.data);
    return 0;
}

static int read_polls(const struct reader *reader, struct tm_slice value)
{
    const char *blank = memchr(value.data, ' ', value.length);
    size_t first = blank == NULL ? value.length : (size_t)(blank - value.data);
    if (blank == NULL || !tm_number_i64(value.data, first, &reader->trace->polls) ||
        !tm_number_i64(blank + 1, value.length - first - 1, &reader->trace->polls_running) ||
        reader->trace->polls_running < 0 || reader->trace->polls < reader->trace->polls_running ||
        reader->trace->polls < 1)
        return wrong(reader, "polls: ALL RUNNING, for example polls: 2103 2071");
    return 0;
}

enum key { KEY_INSTANCE, KEY_ZONE, KEY_SOURCE, KEY_START, KEY_INTERVAL, KEY_BEGIN, KEY_END, KEY_INSTANCES, KEY_POLLS };
static const char *const key_names[] = {"instance", "zone", "source", "start", "interval",
                                        "begin",    "end",  "nodes",  "polls"};

static int read_value(struct reader *reader, enum key key, struct tm_slice value)
{
    struct tm_trace *trace = reader->trace;
    int64_t *duration = key == KEY_INTERVAL ? &trace->interval_ms
                        : key == KEY_BEGIN  ? &trace->begin_ms
                                            : &trace->end_ms;
    switch (key) {
    case KEY_INSTANCE:
        return read_text_value(reader, value, trace->instance, sizeof trace->instance);
    case KEY_ZONE:
        return read_text_value(reader, value, trace->zone, sizeof trace->zone);
    case KEY_SOURCE:
        return read_text_value(reader, value, trace->source, sizeof trace->source);
    case KEY_START:
        trace->has_start = true;
        if (tm_calendar_parse(value.data, value.length, &trace->start_utc_ms)) return 0;
        return wrong(reader, "a time such as 2023-08-03T00:00:00Z");
    case KEY_INSTANCES:
        if (tm_number_i64(value.data, value.length, &trace->instances_max) && trace->instances_max >= 0 &&
            trace->instances_max <= TM_TRACE_INSTANCES_MAX)
            return 0;
        return wrong(reader, "a number of instances");
    case KEY_POLLS:
        return read_polls(reader, value);
    default:
        reader->has_end = reader->has_end || key == KEY_END;
        if (tm_unit_parse(TM_UNIT_DURATION, value.data, value.length, duration, NULL) == 0) return 0;
        return wrong(reader, "a duration such as 300s");
    }
}

static int read_key(struct reader *reader)
{
    const char *colon = memchr(reader->text.data, ':', reader->text.length);
    if (colon == NULL) return wrong(reader, "KEY: VALUE, or an empty line before the events");
    struct tm_slice name = {reader->text.data, (size_t)(colon - reader->text.data)};
    struct tm_slice value = {colon + 1, reader->text.length - name.length - 1};
    for (unsigned key = 0; key < sizeof key_names / sizeof *key_names; key++) {
        if (!tm_slice_equals(name, key_names[key])) continue;
        if ((reader->keys_seen & 1U << key) != 0) return wrong(reader, "each key once");
        reader->keys_seen |= 1U << key;
        return read_value(reader, (enum key)key, tm_slice_trim(value));
    }
    return wrong(reader, "one of the keys instance, zone, source, start, interval, begin, end, nodes, polls");
}

/* The next word of the line, cut off from its front. */
static struct tm_slice take_word(struct tm_slice *text)
{
    *text = tm_slice_trim(*text);
    struct tm_slice word = {text->data, 0};
    while (word.length < text->length && text->data[word.length] != ' ' && text->data[word.length] != '\t')
        word.length++;
    text->data += word.length;
    text->length -= word.length;
    return word;
}

static int read_event(struct reader *reader)
{
    struct tm_slice rest = reader->text;
    struct tm_slice word = take_word(&rest);
    int64_t time_ms = 0;
    int64_t in = 0;
    int64_t out = 0;
    double price = NAN;
    unsigned seen = 0;
    bool ok = tm_number_scaled(word.data, word.length, 1000, &time_ms) && rest.length > 0;
    while (ok && rest.length > 0) {
        word = take_word(&rest);
        switch (word.data[0]) {
        case '+':
            ok = tm_number_i64(word.data + 1, word.length - 1, &in) && in >= 0;
            break;
        case '-':
            ok = tm_number_i64(word.data + 1, word.length - 1, &out) && out >= 0;
            break;
        case '$':
            ok = tm_number_double(word.data + 1, word.length - 1, &price);
            break;
        default:
            ok = false;
        }
        unsigned kind = word.data[0] == '+' ? 1 : word.data[0] == '-' ? 2 : 4;
        ok = ok && (seen & kind) == 0; /* each at most once */
        seen |= kind;
    }
    if (!ok) return wrong(reader, "SECONDS [+IN] [-OUT] [$PRICE], for example 60 +2 -1 $0.918");
    const struct tm_trace *trace = reader->trace;
    if (trace->event_count > 0 && trace->events[trace->event_count - 1].time_ms == time_ms)
        return wrong(reader, "one line for each time");
    int rc = tm_trace_add(reader->trace, time_ms, in, out, price, reader->e);
    return rc == 0 ? 0 : tm_error_wrap(reader->e, rc, "%s:%d", reader->input->file, reader->line);
}

static int check_whole(const struct reader *reader)
{
    const struct tm_trace *trace = reader->trace;
    if (!reader->has_end) return tm_error_set(reader->e, TM_EINPUT, "%s: key \"end\" is missing", reader->input->file);
    if (trace->event_count == 0) return 0; /* finish() will say so */
    if (trace->events[0].time_ms != trace->begin_ms)
        return tm_error_set(reader->e, TM_EINPUT, "%s: the first event is not at the time of \"begin\"",
                            reader->input->file);
    if (trace->events[trace->event_count - 1].time_ms > trace->end_ms)
        return tm_error_set(reader->e, TM_EINPUT, "%s: an event comes after \"end\"", reader->input->file);
    return 0;
}

static int read_tidemill(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    struct reader reader = {
        .input = input, .trace = trace, .e = e, .at = input->text, .end = input->text + input->length};
    bool in_events = false;
    if (!next_line(&reader) || !tm_slice_equals(reader.text, heading)) return wrong(&reader, heading);
    while (next_line(&reader)) {
        int rc = 0;
        if (reader.text.length == 0)
            in_events = true;
        else if (reader.text.data[0] != '#')
            rc = in_events ? read_event(&reader) : read_key(&reader);
        if (rc != 0) return rc;
    }
    return check_whole(&reader);
}

static bool probe_tidemill(const struct tm_trace_input *input)
{
    return input->length >= 14 && memcmp(input->text, "tidemill-trace", 14) == 0;
}

const struct tm_trace_format tm_trace__tidemill = {
    .name = "tidemill",
    .summary = "our own text form, tidemill-trace(5)",
    .probe = probe_tidemill,
    .read = read_tidemill,
};
