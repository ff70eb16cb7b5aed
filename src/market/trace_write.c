#include "market/trace_write.h"

#include "base/number.h"

#include <math.h>
#include <string.h>

enum { SAMPLES_MAX = 1 << 22 };

const char *const tm_trace_write_formats[] = {"tidemill", "json-series", "csv-counts-s", NULL};

struct cursor {
    const struct tm_trace *trace;
    size_t next;
    int64_t count;
    double price;
};

/* Takes all events up to and with time_ms. */
static void advance(struct cursor *cursor, int64_t time_ms)
{
    const struct tm_trace *trace = cursor->trace;
    for (; cursor->next < trace->event_count && trace->events[cursor->next].time_ms <= time_ms; cursor->next++) {
        const struct tm_trace_event *event = &trace->events[cursor->next];
        cursor->count += event->in - event->out;
        if (!isnan(event->price_usd_h)) cursor->price = event->price_usd_h;
    }
}

static int write_json_series(const struct tm_trace *trace, int64_t interval_ms, struct tm_text *out, struct tm_error *e)
{
    char number[TM_NUMBER_TEXT_MAX];
    if (interval_ms == 0) interval_ms = trace->interval_ms;
    if (interval_ms == 0)
        return tm_error_set(e, TM_EUSAGE, "the trace has no interval of its own; give one, for example --interval 60s");
    int64_t samples = trace->end_ms / interval_ms + (trace->end_ms % interval_ms != 0);
    if (samples < 1) samples = 1;
    if (samples > SAMPLES_MAX)
        return tm_error_set(e, TM_ELIMIT, "%lld samples, more than %d; give a longer --interval", (long long)samples,
                            SAMPLES_MAX);
    tm_text_printf(out, "{\"metadata\": {\"gap_seconds\": %s}, \"data\": [",
                   tm_number_print((double)interval_ms / 1000, number));
    struct cursor cursor = {.trace = trace, .price = NAN};
    bool priced = false;
    for (int64_t i = 0; i < samples; i++) {
        advance(&cursor, i * interval_ms);
        tm_text_printf(out, "%s%lld", i > 0 ? ", " : "", (long long)cursor.count);
        priced = priced || !isnan(cursor.price);
    }
    tm_text_puts(out, "]");
    if (priced) {
        tm_text_puts(out, ", \"prices\": [");
        cursor = (struct cursor){.trace = trace, .price = NAN};
        for (int64_t i = 0; i < samples; i++) {
            advance(&cursor, i * interval_ms);
            tm_text_printf(out, "%s%s", i > 0 ? ", " : "",
                           isnan(cursor.price) ? "null" : tm_number_print(cursor.price, number));
        }
        tm_text_puts(out, "]");
    }
    tm_text_puts(out, "}\n");
    return tm_text_status(out, e);
}

static void put_seconds(struct tm_text *out, int64_t ms)
{
    char number[TM_NUMBER_TEXT_MAX];
    tm_text_puts(out, tm_number_print((double)ms / 1000, number));
}

static int write_counts(const struct tm_trace *trace, struct tm_text *out, struct tm_error *e)
{
    int64_t count = 0;
    tm_text_puts(out, "# seconds,count\n"); /* so that nobody has to guess */
    for (size_t i = 0; i < trace->event_count; i++) {
        count += trace->events[i].in - trace->events[i].out;
        put_seconds(out, trace->events[i].time_ms);
        tm_text_printf(out, ",%lld\n", (long long)count);
    }
    if (trace->event_count > 0 && trace->end_ms > trace->events[trace->event_count - 1].time_ms) {
        put_seconds(out, trace->end_ms);
        tm_text_printf(out, ",%lld\n", (long long)count);
    }
    return tm_text_status(out, e);
}

int tm_trace_write(const struct tm_trace *trace, const char *format, int64_t interval_ms, struct tm_text *out,
                   struct tm_error *e)
{
    if (strcmp(format, "json-series") == 0) return write_json_series(trace, interval_ms, out, e);
    if (strcmp(format, "csv-counts-s") == 0) return write_counts(trace, out, e);
    if (strcmp(format, "tidemill") != 0) return tm_error_set(e, TM_EUSAGE, "cannot write trace format \"%s\"", format);
    tm_trace__print(trace, out);
    return tm_text_status(out, e);
}
