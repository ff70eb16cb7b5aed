/* csv-counts-ms, -s, -h: no header, `t,count`; from t on there are `count` instances. Several lines may share a time
 * (step corners: old and new count); the last one holds. A first line "# milliseconds,count", "# seconds,count" or
 * "# hours,count" tells the unit. Without it the unit is guessed, and the guess is warned of: fractions mean hours;
 * whole numbers that are all multiples of 1,000 and reach 60,000, or that reach past 10^7, mean milliseconds; other
 * whole numbers seconds.
 *
 * txt-counts: `YYYY-MM-DD, HH:MM:SS, count`. */
#include "market/trace_format.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum counts_kind { COUNTS_MS, COUNTS_S, COUNTS_H, COUNTS_TEXT };

static const int64_t unit_ms[] = {[COUNTS_MS] = 1, [COUNTS_S] = 1000, [COUNTS_H] = 3600000};

/* Time of a row in ms from the trace's zero (of text rows: from 1970). False: not a time. */
static bool read_time(const struct tm_csv *csv, enum counts_kind kind, int64_t *out_ms)
{
    if (kind != COUNTS_TEXT) {
        struct tm_slice time = tm_slice_trim(csv->fields[0]);
        return tm_number_scaled(time.data, time.length, unit_ms[kind], out_ms);
    }
    char both[48];
    struct tm_slice day = tm_slice_trim(csv->fields[0]);
    struct tm_slice clock = tm_slice_trim(csv->fields[1]);
    if (day.length + clock.length + 2 > sizeof both) return false;
    int length = snprintf(both, sizeof both, "%.*s %.*s", (int)day.length, day.data, (int)clock.length, clock.data);
    return tm_calendar_parse(both, (size_t)length, out_ms);
}

static int wrong_row(const struct tm_csv *csv, enum counts_kind kind, struct tm_error *e)
{
    const char *expected = kind == COUNTS_TEXT ? "date, time, count, for example 2021-12-10, 13:07:45, 80"
                           : kind == COUNTS_H  ? "hours,count, for example 0.030,9"
                           : kind == COUNTS_S  ? "seconds,count, for example 21529,4"
                                               : "milliseconds,count, for example 60000,4";
    return tm_error_set(e, TM_EINPUT, "%s:%d: expected %s", csv->file, csv->line, expected);
}

static int read_rows(struct tm_csv *csv, enum counts_kind kind, struct tm_trace_levels *levels, struct tm_error *e)
{
    size_t count_field = kind == COUNTS_TEXT ? 2 : 1;
    int64_t origin_ms = 0;
    int rc;
    while ((rc = tm_csv_next(csv, e)) == 1) {
        int64_t time_ms = 0;
        int64_t count = 0;
        struct tm_slice text =
            csv->field_count > count_field ? tm_slice_trim(csv->fields[count_field]) : (struct tm_slice){"", 0};
        if (csv->field_count != count_field + 1 || !read_time(csv, kind, &time_ms) ||
            !tm_number_i64(text.data, text.length, &count))
            return wrong_row(csv, kind, e);
        if (kind == COUNTS_TEXT && !levels->started) {
            origin_ms = time_ms;
            levels->trace->has_start = true;
            levels->trace->start_utc_ms = time_ms;
        }
        rc = tm_trace__level(levels, csv->line, time_ms - origin_ms, count, NAN, e);
        if (rc != 0) return rc;
    }
    levels->trace->end_ms = levels->latest_ms;
    if (rc == 0 && kind != COUNTS_TEXT) levels->trace->interval_ms = tm_trace__grid(levels->trace);
    return rc;
}

static int read_counts(const struct tm_trace_input *input, enum counts_kind kind, struct tm_trace *trace,
                       struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    struct tm_trace_levels levels = {.input = input, .trace = trace};
    tm_csv_init(csv, input->file, input->text, input->length);
    csv->comments = true;
    int rc = read_rows(csv, kind, &levels, e);
    tm_free(csv);
    return rc;
}

static int read_counts_ms(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    return read_counts(input, COUNTS_MS, trace, e);
}

static int read_counts_s(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    return read_counts(input, COUNTS_S, trace, e);
}

static int read_counts_h(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    return read_counts(input, COUNTS_H, trace, e);
}

static int read_text_counts(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    return read_counts(input, COUNTS_TEXT, trace, e);
}

/* ---- which of them is it ---- */

static const char *const unit_lines[] = {"# milliseconds,count", "# seconds,count", "# hours,count"};

/* The unit that the first line tells, if it does. */
static bool told_unit(const struct tm_trace_input *input, enum counts_kind *out)
{
    for (enum counts_kind kind = COUNTS_MS; kind <= COUNTS_H; kind++) {
        size_t length = strlen(unit_lines[kind]);
        if (input->length <= length || memcmp(input->text, unit_lines[kind], length) != 0) continue;
        *out = kind;
        return input->text[length] == '\n' || input->text[length] == '\r';
    }
    return false;
}

static bool is_counts(const struct tm_trace_input *input)
{
    struct tm_slice fields[2];
    double number = 0;
    enum counts_kind kind;
    if (told_unit(input, &kind)) return true;
    if (tm_trace__first_row(input, fields, 2) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        struct tm_slice field = tm_slice_trim(fields[i]);
        if (!tm_number_double(field.data, field.length, &number)) return false;
    }
    return true;
}

static enum counts_kind guess_unit(const struct tm_trace_input *input)
{
    bool all_thousands = true;
    int64_t largest = 0;
    const char *end = input->text + input->length;
    for (const char *at = input->text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        const char *comma = memchr(at, ',', (size_t)(stop - at));
        int64_t time = 0;
        if (comma != NULL) {
            if (memchr(at, '.', (size_t)(comma - at)) != NULL) return COUNTS_H;
            struct tm_slice field = tm_slice_trim((struct tm_slice){at, (size_t)(comma - at)});
            if (tm_number_i64(field.data, field.length, &time)) {
                all_thousands = all_thousands && time % 1000 == 0;
                largest = time > largest ? time : largest;
            }
        }
        at = stop + 1;
    }
    return (all_thousands && largest >= 60000) || largest > 10000000 ? COUNTS_MS : COUNTS_S;
}

static int read_guessed(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    static const char *const names[] = {"csv-counts-ms", "csv-counts-s", "csv-counts-h"};
    enum counts_kind kind = COUNTS_S;
    if (!told_unit(input, &kind)) {
        kind = guess_unit(input);
        tm_trace__warn(trace, TM_TRACE_UNIT_GUESSED, 1);
    }
    (void)snprintf(trace->format, sizeof trace->format, "%s", names[kind]);
    return read_counts(input, kind, trace, e);
}

static bool probe_text_counts(const struct tm_trace_input *input)
{
    struct tm_slice fields[3];
    int64_t time_ms = 0;
    if (tm_trace__first_row(input, fields, 3) != 3) return false;
    struct tm_slice day = tm_slice_trim(fields[0]);
    struct tm_slice clock = tm_slice_trim(fields[1]);
    return tm_calendar_parse(day.data, day.length, &time_ms) && memchr(clock.data, ':', clock.length) != NULL;
}

/* Found by content under this row; tm_trace.format then has the unit's own name. */
const struct tm_trace_format tm_trace__counts = {
    .name = "csv-counts",
    .summary = "CSV of t,count; the unit of t is guessed",
    .probe = is_counts,
    .read = read_guessed,
};
const struct tm_trace_format tm_trace__counts_ms = {
    .name = "csv-counts-ms", .summary = "CSV of milliseconds,count", .read = read_counts_ms};
const struct tm_trace_format tm_trace__counts_s = {
    .name = "csv-counts-s", .summary = "CSV of seconds,count", .read = read_counts_s};
const struct tm_trace_format tm_trace__counts_h = {
    .name = "csv-counts-h", .summary = "CSV of hours,count", .read = read_counts_h};
const struct tm_trace_format tm_trace__text_counts = {
    .name = "txt-counts",
    .summary = "date, time, count",
    .probe = probe_text_counts,
    .read = read_text_counts,
};
