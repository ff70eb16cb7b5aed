#include "cli/live_view.h"

#include "api/api_client.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cli/run_picture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ASK_MS = 250, AWAY_MS = 1500, LINE_MS = 10000, ROWS_USUAL = 24, FRAME_BYTES = 1 << 20, EVENTS_SHOWN = 10 };

struct tm_live_view {
    struct tm_live_view_options options;
    struct tm_api_client *client; /* owned; NULL: another source */
    struct tm_run_status status;
    bool heard;
    int64_t heard_ms;  /* monotonic */
    int64_t asked_ms;  /* when the last question was answered or given up */
    int64_t lined_ms;  /* plain lines: when how far it is was last told */
    uint64_t sequence; /* plain lines: of the last event told */
    size_t drawn;      /* lines that stand on the terminal now */
    int width;         /* that they were drawn for */
};

static int64_t monotonic_ms(const struct tm_live_view *view)
{
    return view->options.env->monotonic_ns(view->options.env) / 1000000;
}

static void emit(const struct tm_live_view *view, const struct tm_text *text)
{
    if (text->failed != 0) return;
    if (view->options.write != NULL) {
        view->options.write(view->options.write_context, tm_text_string(text), text->length);
        return;
    }
    (void)fwrite(tm_text_string(text), 1, text->length, stdout);
    (void)fflush(stdout);
}

static void say(void *context, enum tm_log__level level, const char *line);

struct tm_live_view *tm_live_view_create(const struct tm_live_view_options *options)
{
    struct tm_live_view *view = tm_calloc(1, sizeof *view);
    if (view == NULL) return NULL;
    view->options = *options;
    view->asked_ms = view->lined_ms = INT64_MIN / 2;
    if (options->term.is_terminal) tm_log_set_sink(say, view);
    return view;
}

static int ask_client(void *context, struct tm_run_status *out, struct tm_error *e)
{
    return tm_api_status_step(context, out, e);
}

struct tm_live_view *tm_live_view_of_run(struct tm_env *env, struct tm_term term, const char *state_dir,
                                         void (*write)(void *context, const char *text, size_t length),
                                         void *write_context)
{
    struct tm_api_client *client = tm_api_client_create(env, state_dir);
    struct tm_live_view_options options = {.env = env,
                                           .term = term,
                                           .source = {.context = client, .next = ask_client},
                                           .write = write,
                                           .write_context = write_context};
    struct tm_live_view *view = client == NULL ? NULL : tm_live_view_create(&options);
    if (view == NULL)
        tm_api_client_destroy(client);
    else
        view->client = client;
    return view;
}

void tm_live_view_destroy(struct tm_live_view *view)
{
    if (view == NULL) return;
    if (view->options.term.is_terminal) tm_log_set_sink(NULL, NULL);
    tm_run_status_deinit(&view->status);
    tm_api_client_destroy(view->client);
    tm_free(view);
}

const struct tm_run_status *tm_live_view_status(const struct tm_live_view *view)
{
    return view->heard ? &view->status : NULL;
}

/* ---- on a terminal ---- */

static void measure(const struct tm_live_view *view, size_t *out_rows, int *out_width)
{
    struct winsize size;
    bool told = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    *out_rows = told && size.ws_row >= 4 ? size.ws_row : ROWS_USUAL;
    *out_width = told && size.ws_col >= 20 ? size.ws_col : view->options.term.width;
    if (view->options.rows != NULL) *out_rows = view->options.rows(view->options.write_context);
    if (view->options.width != NULL) *out_width = view->options.width(view->options.write_context);
}

/* One write a frame: back to its first line, each line over the old one, the rest of both wiped. Terminals that know
 * it (2026) show nothing half done. A line that the terminal has wrapped since, because it is narrower now, cannot be
 * found again: then the frame begins below. */
static void draw(struct tm_live_view *view, const struct tm_run_status *status, const char *note, bool last)
{
    struct tm_text picture;
    struct tm_text frame;
    struct tm_term term = view->options.term;
    size_t rows = 0;
    measure(view, &rows, &term.width);
    struct tm_picture_options options = {.rows = last ? 0 : rows - 1, .events = EVENTS_SHOWN, .note = note};
    tm_text_init(&picture, FRAME_BYTES);
    tm_text_init(&frame, FRAME_BYTES);
    tm_run_picture(status, &term, &options, &picture);
    tm_text_puts(&frame, "\033[?2026h");
    if (view->drawn > 0 && term.width >= view->width) tm_text_printf(&frame, "\033[%zuA\r", view->drawn);
    view->drawn = 0;
    for (const char *at = tm_text_string(&picture); *at != '\0';) {
        const char *end = strchr(at, '\n');
        size_t length = end == NULL ? strlen(at) : (size_t)(end - at);
        tm_text_append(&frame, at, length);
        tm_text_puts(&frame, "\033[K\n");
        view->drawn++;
        at += length + (end != NULL);
    }
    tm_text_puts(&frame, "\033[J\033[?2026l");
    view->width = term.width;
    if (tm_text_status(&picture, NULL) == 0) emit(view, &frame);
    tm_text_deinit(&picture);
    tm_text_deinit(&frame);
}

/* They stand above the picture, which is drawn again below them. */
void tm_live_view_put(struct tm_live_view *view, const struct tm_text *lines)
{
    struct tm_text text;
    if (lines->length == 0) return;
    tm_text_init(&text, FRAME_BYTES);
    if (view->drawn > 0) tm_text_printf(&text, "\033[%zuA\r\033[J", view->drawn);
    tm_text_append(&text, tm_text_string(lines), lines->length);
    view->drawn = 0;
    emit(view, &text);
    tm_text_deinit(&text);
    if (view->heard && view->options.term.is_terminal) draw(view, &view->status, "", false);
}

/* A line of the log. */
static void say(void *context, enum tm_log__level level, const char *line)
{
    struct tm_text text;
    tm_text_init(&text, FRAME_BYTES);
    tm_text_printf(&text, "%s: %s\n", tm_log_level_name(level), line);
    tm_live_view_put(context, &text);
    tm_text_deinit(&text);
}

/* ---- elsewhere ---- */

static void put_lines(struct tm_live_view *view, const struct tm_run_status *status, bool last)
{
    struct tm_text lines;
    int64_t now_ms = monotonic_ms(view);
    tm_text_init(&lines, FRAME_BYTES);
    if (status->event_count > 0 && view->sequence > 0 && status->event_count == TM_STATUS_EVENTS &&
        status->events[0].sequence > view->sequence + 1)
        tm_text_puts(&lines, "           ... see tidemill events for what happened in between\n");
    for (size_t i = 0; i < status->event_count; i++) {
        const struct tm_run_event_text *event = &status->events[i];
        if (event->sequence <= view->sequence) continue;
        tm_run_put_when(status, event->utc_ms, &lines);
        tm_text_printf(&lines, "  %s\n", event->text);
    }
    if (status->sequence > view->sequence) view->sequence = status->sequence;
    if (last || now_ms - view->lined_ms >= LINE_MS) {
        view->lined_ms = now_ms;
        tm_run_put_when(status, status->utc_ms, &lines);
        tm_text_puts(&lines, "  ");
        tm_run_progress_line(status, &lines);
        tm_text_putc(&lines, '\n');
    }
    if (lines.length > 0) emit(view, &lines);
    tm_text_deinit(&lines);
}

static void show(struct tm_live_view *view, const struct tm_run_status *status, const char *note, bool last)
{
    if (view->options.term.is_terminal)
        draw(view, status, note, last);
    else
        put_lines(view, status, last);
}

void tm_live_view_step(struct tm_live_view *view)
{
    struct tm_run_status next;
    int64_t now_ms = monotonic_ms(view);
    if (now_ms - view->asked_ms < ASK_MS) return;
    int rc = view->options.source.next(view->options.source.context, &next, NULL);
    if (rc == -(int)TM_EBUSY) return;
    view->asked_ms = now_ms;
    if (rc == 0) {
        tm_run_status_deinit(&view->status);
        view->status = next;
        view->heard = true;
        view->heard_ms = now_ms;
    }
    bool away = now_ms - view->heard_ms > AWAY_MS;
    if (!view->heard || (rc != 0 && !(away && view->options.term.is_terminal))) return;
    show(view, &view->status, away ? "the coordinator does not answer; training continues without it for a while" : "",
         false);
}

void tm_live_view_finish(struct tm_live_view *view, const struct tm_run_status *status)
{
    if (status == NULL && view->heard) status = &view->status;
    if (status != NULL) show(view, status, "", true);
}
