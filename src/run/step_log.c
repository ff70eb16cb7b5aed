#include "run/step_log.h"

#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "run/event_file.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SINKS_MAX = 8, EVENTS_AT_ONCE = 256, PENDING_MAX = 64 << 20, WRITE_BYTES = 1 << 20 };
enum { PIECE_BYTES = 2 << 20, TAIL_BYTES = 1 << 16, AGAIN_MS = 10000 };

struct sink {
    const char *folder; /* of an event file; NULL: metrics.jsonl */
    struct tm_text path;
    bool open;
    int64_t size;  /* bytes of it that are good */
    uint64_t last; /* step */
    struct tm_text pending;
};

struct tm_step_log {
    struct tm_env *env;
    char dir[TM_STATE_PATH_MAX];
    const char *folder;
    uint64_t job;
    struct sink sinks[SINKS_MAX];
    size_t sink_count;
    struct tm_run_watch *watch;
    uint64_t sequence;
    int64_t failed_ms; /* a write failed then: all is begun anew a while later; 0: none */
    bool warned;
};

/* One step, as all forms show it. */
struct row {
    const Tmw__StepLoss *told;
    int64_t utc_ms;
    double step_s;
    uint64_t generation;
    uint32_t instances;
    double cost_usd;
};

static int64_t now_ms(const struct tm_step_log *log)
{
    return log->env->monotonic_ns(log->env) / 1000000;
}

static void begin(struct tm_step_log *log)
{
    tm_run_watch_destroy(log->watch);
    log->watch = tm_run_watch_create();
    log->sequence = 0;
    log->failed_ms = 0;
    for (size_t i = 0; i < log->sink_count; i++) {
        log->sinks[i].open = false;
        tm_text_clear(&log->sinks[i].pending);
        tm_text_clear(&log->sinks[i].path);
    }
}

struct tm_step_log *tm_step_log_create(struct tm_env *env, const char *dir, const struct tm_maps *targets,
                                       const char *folder, uint64_t job)
{
    const struct tm_log_target *list = targets->items;
    struct tm_step_log *log = tm_calloc(1, sizeof *log);
    if (log == NULL) return NULL;
    log->env = env;
    log->folder = folder;
    log->job = job;
    (void)snprintf(log->dir, sizeof log->dir, "%s", dir);
    log->sink_count = 1;
    for (size_t i = 0; i < targets->count && log->sink_count < SINKS_MAX; i++)
        if (list[i].tensorboard != NULL) log->sinks[log->sink_count++].folder = list[i].tensorboard;
    for (size_t i = 0; i < log->sink_count; i++) {
        tm_text_init(&log->sinks[i].path, TM_STATE_PATH_MAX);
        tm_text_init(&log->sinks[i].pending, PENDING_MAX);
    }
    begin(log);
    if (log->watch != NULL) return log;
    tm_step_log_destroy(log);
    return NULL;
}

void tm_step_log_destroy(struct tm_step_log *log)
{
    if (log == NULL) return;
    for (size_t i = 0; i < log->sink_count; i++) {
        tm_text_deinit(&log->sinks[i].path);
        tm_text_deinit(&log->sinks[i].pending);
    }
    tm_run_watch_destroy(log->watch);
    tm_free(log);
}

/* ---- what a file has ---- */

static int name_sink(const struct tm_step_log *log, struct sink *sink, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char folder[TM_STATE_PATH_MAX];
    tm_text_clear(&sink->path);
    if (sink->folder == NULL) {
        tm_state_path(log->dir, TM_STATE_METRICS, path);
        tm_text_puts(&sink->path, path);
    } else {
        bool beside = sink->folder[0] != '/' && log->folder[0] != '\0';
        (void)snprintf(folder, sizeof folder, "%s%s%s", beside ? log->folder : "", beside ? "/" : "", sink->folder);
        tm_event_file__name(&sink->path, folder, tm_run_watch_status(log->watch)->begun_utc_ms, log->job);
    }
    return tm_text_status(&sink->path, e);
}

static uint64_t step_of_line(const char *line)
{
    static const char head[] = "{\"step\":";
    return strncmp(line, head, sizeof head - 1) == 0 ? strtoull(line + sizeof head - 1, NULL, 10) : 0;
}

/* The last whole line; a torn one after it goes. */
static int open_lines(const struct tm_step_log *log, struct sink *sink, struct tm_error *e)
{
    char *bytes = tm_calloc(1, TAIL_BYTES + 1);
    size_t got = 0;
    int64_t size = 0;
    if (bytes == NULL) return tm_error_nomem(e);
    const char *path = tm_text_string(&sink->path);
    int rc = log->env->file_read_at(log->env, path, 0, bytes, 0, &got, &size, e);
    int64_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    if (rc == 0) rc = log->env->file_read_at(log->env, path, from, bytes, TAIL_BYTES, &got, &size, e);
    while (rc == 0 && got > 0 && bytes[got - 1] != '\n')
        got--;
    sink->size = from + (int64_t)got;
    size_t start = got > 0 ? got - 1 : 0;
    while (start > 0 && bytes[start - 1] != '\n')
        start--;
    bytes[got] = '\0';
    if (rc == 0) sink->last = step_of_line(bytes + start);
    tm_free(bytes);
    return rc;
}

static int open_events(const struct tm_step_log *log, struct sink *sink, struct tm_error *e)
{
    struct tm_event_scan scan = {.step = 0};
    char *bytes = tm_calloc(1, PIECE_BYTES);
    size_t got = 0;
    int64_t size = 0;
    int rc = bytes == NULL ? tm_error_nomem(e) : 0;
    while (rc == 0 && !scan.damaged) {
        rc = log->env->file_read_at(log->env, tm_text_string(&sink->path), sink->size, bytes, PIECE_BYTES, &got, &size,
                                    e);
        if (rc != 0) break;
        tm_event_file__scan(bytes, got, &scan);
        sink->size += (int64_t)scan.used;
        if (scan.used == 0) break;
    }
    sink->last = scan.step;
    tm_free(bytes);
    return rc;
}

static int open_sink(const struct tm_step_log *log, struct sink *sink, struct tm_error *e)
{
    sink->size = 0;
    sink->last = 0;
    int rc = name_sink(log, sink, e);
    if (rc == 0) rc = sink->folder == NULL ? open_lines(log, sink, e) : open_events(log, sink, e);
    if (rc == -(int)TM_ENOTFOUND) rc = 0;
    if (rc == 0 && sink->folder != NULL && sink->size == 0)
        tm_event_file__begin(&sink->pending, (double)tm_run_watch_status(log->watch)->begun_utc_ms / 1000);
    sink->open = rc == 0;
    return rc;
}

/* ---- rows ---- */

static void put_line(struct tm_text *out, const struct row *row)
{
    struct tm_jsonout json;
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_integer(&json, "step", (int64_t)row->told->step); /* first: step_of_line looks for it */
    tm_jsonout_integer(&json, "utc_ms", row->utc_ms);
    tm_jsonout_number(&json, "loss", row->told->unknown ? NAN : row->told->loss);
    tm_jsonout_number(&json, "step_s", row->step_s);
    tm_jsonout_integer(&json, "generation", (int64_t)row->generation);
    tm_jsonout_integer(&json, "instances", row->instances);
    tm_jsonout_number(&json, "cost_usd", row->cost_usd);
    tm_jsonout_object(&json, "metrics");
    for (size_t i = 0; i < row->told->n_metrics; i++)
        tm_jsonout_number(&json, row->told->metrics[i]->name, row->told->metrics[i]->value);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    if (out->length > 0 && out->data[out->length - 1] != '\n') tm_text_putc(out, '\n');
}

static void put_event(struct tm_text *out, const struct row *row)
{
    struct tm_text body;
    char tag[TM_MESSAGE_STRING_MAX + 16];
    tm_text_init(&body, 1 << 16);
    if (!row->told->unknown) tm_event_file__scalar(&body, "train/loss", row->told->loss);
    for (size_t i = 0; i < row->told->n_metrics; i++) {
        (void)snprintf(tag, sizeof tag, "train/%s", row->told->metrics[i]->name);
        tm_event_file__scalar(&body, tag, row->told->metrics[i]->value);
    }
    if (!isnan(row->step_s)) tm_event_file__scalar(&body, "tidemill/step_s", row->step_s);
    tm_event_file__scalar(&body, "tidemill/generation", (double)row->generation);
    tm_event_file__scalar(&body, "tidemill/instances", row->instances);
    tm_event_file__scalar(&body, "tidemill/cost_usd", row->cost_usd);
    tm_event_file__step(out, (double)row->utc_ms / 1000, row->told->step, &body);
    tm_text_deinit(&body);
}

static int take_steps(struct tm_step_log *log, int64_t at_ms, const Tmw__StepsEvent *event, struct tm_error *e)
{
    const struct tm_run_status *status = tm_run_watch_status(log->watch);
    struct row row = {.step_s = status->step_s,
                      .generation = status->generation,
                      .instances = status->here,
                      .cost_usd = status->bill_usd};
    int rc = 0;
    for (size_t s = 0; s < log->sink_count && rc == 0; s++) {
        struct sink *sink = &log->sinks[s];
        if (!sink->open) rc = open_sink(log, sink, e);
        for (size_t i = 0; rc == 0 && i < event->n_steps; i++) {
            row.told = event->steps[i];
            if (row.told->step <= sink->last) continue; /* it is there */
            double ago_ms = isnan(row.step_s) ? 0 : 1000 * row.step_s * (double)(event->n_steps - 1 - i);
            row.utc_ms = at_ms - (int64_t)fmin(ago_ms, 1000);
            (sink->folder == NULL ? put_line : put_event)(&sink->pending, &row);
            sink->last = row.told->step;
        }
        if (rc == 0) rc = tm_text_status(&sink->pending, e);
    }
    return rc;
}

int tm_step_log__write(struct tm_step_log *log, struct tm_error *e)
{
    for (size_t i = 0; i < log->sink_count; i++) {
        struct sink *sink = &log->sinks[i];
        if (sink->pending.length == 0) continue;
        int rc = log->env->file_extend(log->env, tm_text_string(&sink->path), sink->size, sink->pending.data,
                                       sink->pending.length, e);
        if (rc != 0) return rc;
        sink->size += (int64_t)sink->pending.length;
        tm_text_clear(&sink->pending);
    }
    return 0;
}

int tm_step_log__take(struct tm_step_log *log, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    int rc = tm_run_watch_take(log->watch, sequence, event, e);
    if (rc == 0 && event->body_case == TMW__RECORD_EVENT__BODY_STEPS)
        rc = take_steps(log, event->at_ms, event->steps, e);
    if (rc == 0) log->sequence = sequence;
    if (rc == 0 && log->sinks[0].pending.length > WRITE_BYTES) rc = tm_step_log__write(log, e);
    return rc;
}

static int take_each(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    return tm_step_log__take(context, sequence, event, e);
}

void tm_step_log_serve(struct tm_step_log *log, struct tm_run_tap *tap)
{
    struct tm_error e = {.text = ""};
    if (log->failed_ms != 0) {
        if (now_ms(log) - log->failed_ms < AGAIN_MS) return;
        begin(log);
    }
    if (log->watch == NULL || tap->sequence <= log->sequence) return;
    int rc = tap->events(tap, log->sequence, EVENTS_AT_ONCE, take_each, log, &e);
    if (rc == 0) rc = tm_step_log__write(log, &e);
    if (rc == 0) return;
    if (!log->warned) tm_log(TM_LOG_WARN, "metrics are not logged: %s; retrying", e.text);
    log->warned = true;
    log->failed_ms = now_ms(log);
}

int tm_step_log_complete(struct tm_step_log *log, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    begin(log);
    tm_state_path(log->dir, TM_STATE_RECORD, path);
    int rc = log->watch == NULL ? tm_error_nomem(e) : tm_run_record_each(path, 0, SIZE_MAX, take_each, log, e);
    return rc == 0 ? tm_step_log__write(log, e) : rc;
}
