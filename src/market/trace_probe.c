/* csv-probe: no header, `index,ISO time,fail`: one launch tried at each time. Mind the polarity: 0 = the launch
 * succeeded = available, 1 = it failed. csv-probe-up is the same with 1 = available; it is read only when asked for.
 *
 * Probes that come at even intervals (each within 2% of the median) are put on that grid, so that a probe's own
 * seconds of delay do not add up to a drift. */
#include "market/trace_format.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/number.h"

#include <math.h>
#include <stdlib.h>

struct probe_row {
    int64_t time_ms;
    int line;
    bool available;
};

struct probe_rows {
    struct probe_row *rows;
    size_t count;
    size_t capacity;
};

static bool probe_probe(const struct tm_trace_input *input)
{
    struct tm_slice fields[3];
    int64_t number = 0;
    if (tm_trace__first_row(input, fields, 3) != 3) return false;
    struct tm_slice time = tm_slice_trim(fields[1]);
    return tm_number_i64(fields[0].data, fields[0].length, &number) &&
           tm_calendar_parse(time.data, time.length, &number);
}

static int take_row(const struct tm_csv *csv, bool one_is_up, struct probe_rows *rows, struct tm_error *e)
{
    int64_t index = 0;
    int64_t flag = 0;
    struct probe_row row = {.line = csv->line};
    struct tm_slice time = csv->field_count == 3 ? tm_slice_trim(csv->fields[1]) : (struct tm_slice){"", 0};
    struct tm_slice last = csv->field_count == 3 ? tm_slice_trim(csv->fields[2]) : (struct tm_slice){"", 0};
    if (csv->field_count != 3 || !tm_number_i64(csv->fields[0].data, csv->fields[0].length, &index) ||
        !tm_calendar_parse(time.data, time.length, &row.time_ms))
        return tm_error_set(e, TM_EINPUT, "%s:%d: expected index,time,fail, for example 0,2022-11-28T22:23:37Z,1",
                            csv->file, csv->line);
    if (!tm_number_i64(last.data, last.length, &flag) || flag < 0 || flag > 1)
        return tm_error_set(e, TM_EINPUT, "%s:%d: expected %s in the third column, got \"%.*s\"", csv->file, csv->line,
                            one_is_up ? "1 (available) or 0" : "0 (launched) or 1 (failed)",
                            (int)(last.length < 20 ? last.length : 20), last.data);
    row.available = (flag == 1) == one_is_up;
    void *array = rows->rows;
    int rc = tm_grow(&array, &rows->capacity, rows->count + 1, sizeof row, TM_TRACE_EVENTS_MAX);
    rows->rows = array;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "%s:%d: no room for another probe", csv->file, csv->line);
    rows->rows[rows->count++] = row;
    return 0;
}

static int compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Median step between probes, and whether all steps are near it. */
static int measure_steps(const struct probe_rows *rows, int64_t *out_median_ms, bool *out_even, struct tm_error *e)
{
    *out_median_ms = 0;
    *out_even = rows->count > 1;
    if (rows->count < 2) return 0;
    size_t count = rows->count - 1;
    int64_t *steps = tm_alloc(count * sizeof *steps);
    if (steps == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < count; i++)
        steps[i] = rows->rows[i + 1].time_ms - rows->rows[i].time_ms;
    qsort(steps, count, sizeof *steps, compare_i64);
    int64_t median = steps[(count - 1) / 2];
    *out_even = median > 0 && steps[0] * 100 >= median * 98 && steps[count - 1] * 100 <= median * 102;
    *out_median_ms = median > 0 ? median : 0;
    tm_free(steps);
    return 0;
}

static int fill_trace(const struct tm_trace_input *input, const struct probe_rows *rows, struct tm_trace *trace,
                      struct tm_error *e)
{
    struct tm_trace_levels levels = {.input = input, .trace = trace};
    bool even = false;
    bool any_up = false;
    int64_t step_ms = 0;
    if (rows->count == 0) return 0;
    int rc = measure_steps(rows, &step_ms, &even, e);
    for (size_t i = 0; rc == 0 && i < rows->count; i++) {
        const struct probe_row *row = &rows->rows[i];
        int64_t time_ms = even ? (int64_t)i * step_ms : row->time_ms - rows->rows[0].time_ms;
        rc = tm_trace__level(&levels, row->line, time_ms, row->available ? 1 : 0, NAN, e);
        any_up = any_up || row->available;
    }
    if (rc != 0) return rc;
    trace->has_start = true;
    trace->start_utc_ms = rows->rows[0].time_ms;
    trace->interval_ms = even ? step_ms : 0;
    trace->end_ms = levels.latest_ms + step_ms;
    trace->instances_max = 1;
    if (!even && rows->count > 1) tm_trace__warn(trace, TM_TRACE_IRREGULAR_PROBES, rows->rows[0].line);
    if (!any_up) tm_trace__warn(trace, TM_TRACE_NEVER_AVAILABLE, rows->rows[0].line);
    return 0;
}

static int read_with(const struct tm_trace_input *input, bool one_is_up, struct tm_trace *trace, struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    struct probe_rows rows = {0};
    tm_csv_init(csv, input->file, input->text, input->length);
    int rc;
    while ((rc = tm_csv_next(csv, e)) == 1) {
        rc = take_row(csv, one_is_up, &rows, e);
        if (rc != 0) break;
    }
    if (rc == 0) rc = fill_trace(input, &rows, trace, e);
    tm_free(rows.rows);
    tm_free(csv);
    return rc;
}

static int read_probe(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    return read_with(input, false, trace, e);
}

static int read_probe_up(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    return read_with(input, true, trace, e);
}

const struct tm_trace_format tm_trace__probe = {
    .name = "csv-probe",
    .summary = "CSV of index,time,fail; 0 = launched = available",
    .probe = probe_probe,
    .read = read_probe,
};
const struct tm_trace_format tm_trace__probe_up = {
    .name = "csv-probe-up",
    .summary = "CSV of index,time,up; 1 = available; never guessed",
    .read = read_probe_up,
};
