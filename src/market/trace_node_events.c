/* csv-node-events: no header, `t_ms,add|remove,NODE`; several lines may share one time; a removed node never comes
 * back under its name. */
#include "market/trace_format.h"

#include "base/alloc.h"
#include "base/names.h"
#include "base/number.h"

#include <math.h>

enum { NODE_NAMES_MAX = 1 << 22 };

static bool is_action(struct tm_slice field)
{
    field = tm_slice_trim(field);
    return tm_slice_equals(field, "add") || tm_slice_equals(field, "remove");
}

static bool probe_node_events(const struct tm_trace_input *input)
{
    struct tm_slice fields[3];
    return tm_trace__first_row(input, fields, 3) == 3 && is_action(fields[1]);
}

/* Keeps who is there: `present` has every node that came, `gone` every node that went. */
struct node_sets {
    struct tm_names present;
    struct tm_names gone;
};

static int move_node(struct node_sets *sets, struct tm_slice node, bool add, struct tm_error *e)
{
    bool known = tm_names_find(&sets->present, node.data, node.length) >= 0;
    bool gone = tm_names_find(&sets->gone, node.data, node.length) >= 0;
    if (add && known)
        return tm_error_set(e, TM_EINPUT, "node %.*s is added a second time", (int)node.length, node.data);
    if (!add && (!known || gone))
        return tm_error_set(e, TM_EINPUT, "node %.*s is removed but is not there", (int)node.length, node.data);
    long number = tm_names_add(add ? &sets->present : &sets->gone, node.data, node.length);
    return number >= 0 ? 0 : tm_error_set(e, (enum tm_code) - number, "too many nodes, or no memory for them");
}

static int take_row(const struct tm_csv *csv, struct node_sets *sets, struct tm_trace *trace, struct tm_error *e)
{
    int64_t time_ms = 0;
    struct tm_slice time = tm_slice_trim(csv->fields[0]);
    if (csv->field_count != 3 || !tm_number_i64(time.data, time.length, &time_ms) || time_ms < 0 ||
        !is_action(csv->fields[1]) || csv->fields[2].length == 0 || csv->fields[2].length > 256)
        return tm_error_set(e, TM_EINPUT, "expected milliseconds,add|remove,node, for example 60000,remove,node3");
    bool add = tm_slice_equals(tm_slice_trim(csv->fields[1]), "add");
    if (trace->event_count > 0 && time_ms < trace->events[trace->event_count - 1].time_ms) {
        tm_trace__warn(trace, TM_TRACE_TIMES_GO_BACK, csv->line);
        time_ms = trace->events[trace->event_count - 1].time_ms;
    }
    int rc = move_node(sets, tm_slice_trim(csv->fields[2]), add, e);
    return rc == 0 ? tm_trace_add(trace, time_ms, add ? 1 : 0, add ? 0 : 1, NAN, e) : rc;
}

static int read_rows(struct tm_csv *csv, struct node_sets *sets, struct tm_trace *trace, struct tm_error *e)
{
    int rc;
    while ((rc = tm_csv_next(csv, e)) == 1) {
        rc = take_row(csv, sets, trace, e);
        if (rc != 0) return tm_error_wrap(e, rc, "%s:%d", csv->file, csv->line);
    }
    if (rc == 0) trace->interval_ms = tm_trace__grid(trace);
    return rc;
}

static int read_node_events(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    struct node_sets sets;
    tm_names_init(&sets.present, NODE_NAMES_MAX);
    tm_names_init(&sets.gone, NODE_NAMES_MAX);
    tm_csv_init(csv, input->file, input->text, input->length);
    int rc = read_rows(csv, &sets, trace, e);
    tm_names_deinit(&sets.present);
    tm_names_deinit(&sets.gone);
    tm_free(csv);
    return rc;
}

const struct tm_trace_format tm_trace__node_events = {
    .name = "csv-node-events",
    .summary = "CSV of t_ms,add|remove,node",
    .probe = probe_node_events,
    .read = read_node_events,
};
