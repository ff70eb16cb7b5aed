/* parcae-jsonl: one JSON list a line and interval, [t_ms, "add"|"remove"|"no-op", {"nodes": [...], "duration":
 * ms}]. Other keys of the object are somebody's answers, not data, and are ignored. */
#include "market/trace_format.h"

#include "base/doc.h"

#include <math.h>
#include <string.h>

static bool probe_parcae(const struct tm_trace_input *input)
{
    const char *text = input->text;
    if (input->length < 8 || text[0] != '[') return false;
    size_t at = 1;
    while (at < input->length && text[at] >= '0' && text[at] <= '9')
        at++;
    size_t digits = at - 1;
    while (at < input->length && text[at] == ' ')
        at++;
    return digits > 0 && at < input->length && text[at] == ',' &&
           memchr(text, '"', input->length < 64 ? input->length : 64) != NULL;
}

static int wrong_line(const struct tm_trace_input *input, int line, struct tm_error *e)
{
    return tm_error_set(e, TM_EINPUT,
                        "%s:%d: expected [ms, \"add\"|\"remove\"|\"no-op\", {\"nodes\": [...], \"duration\": ms}]",
                        input->file, line);
}

static int take_record(const struct tm_trace_input *input, int line, const json_t *record, struct tm_trace *trace,
                       struct tm_error *e)
{
    const json_t *time = json_array_get(record, 0);
    const char *action = json_string_value(json_array_get(record, 1));
    const json_t *detail = json_array_get(record, 2);
    const json_t *instances = json_object_get(detail, "nodes");
    const json_t *duration = json_object_get(detail, "duration");
    if (!json_is_integer(time) || action == NULL || !json_is_array(instances) || !json_is_integer(duration) ||
        json_integer_value(duration) <= 0 || json_integer_value(duration) > (int64_t)1 << 40 ||
        json_integer_value(time) > (int64_t)1 << 50)
        return wrong_line(input, line, e);
    int64_t count = (int64_t)json_array_size(instances);
    bool add = strcmp(action, "add") == 0;
    bool remove = strcmp(action, "remove") == 0;
    if (!add && !remove && strcmp(action, "no-op") != 0) return wrong_line(input, line, e);
    int rc = tm_trace_add(trace, json_integer_value(time), add ? count : 0, remove ? count : 0, NAN, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s:%d", input->file, line);
    trace->end_ms = json_integer_value(time) + json_integer_value(duration);
    if (trace->interval_ms == 0) trace->interval_ms = json_integer_value(duration);
    return 0;
}

static int read_parcae(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    const char *end = input->text + input->length;
    int line = 1;
    for (const char *at = input->text; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        const char *first = at;
        while (first < stop && (*first == ' ' || *first == '\t' || *first == '\r'))
            first++;
        if (first < stop) {
            json_t *record = NULL;
            int rc = tm_json_load(input->file, at, (size_t)(stop - at), &record, e);
            if (rc == -(int)TM_EINPUT) return wrong_line(input, line, e);
            if (rc != 0) return rc;
            rc = take_record(input, line, record, trace, e);
            json_decref(record);
            if (rc != 0) return rc;
        }
        at = stop + 1;
    }
    return 0;
}

const struct tm_trace_format tm_trace__parcae = {
    .name = "parcae-jsonl",
    .summary = "one JSON list a line: [ms, \"add\"|\"remove\"|\"no-op\", {nodes, duration}]",
    .probe = probe_parcae,
    .read = read_parcae,
};
