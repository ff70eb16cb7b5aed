/* What views read: a status as JSON (first byte even), or events as they lie in a record (odd: length in two bytes,
 * then the event, again and again). Whatever comes, it can be drawn, and what was read can be written and read again.
 */
#include "fuzz.h"

#include "cli/run_picture.h"
#include "run/run_report.h"

#include <string.h>

enum { TEXT_MAX = 32 << 20, EVENTS_MAX = 64 };

static void draw(const struct tm_run_status *status)
{
    struct tm_term term = {.utf8 = true, .color = true, .width = 40};
    struct tm_picture_options options = {.rows = 30, .events = 10};
    struct tm_text out;
    tm_text_init(&out, TEXT_MAX);
    tm_run_picture(status, &term, &options, &out);
    tm_text_putc(&out, '\n');
    tm_run_progress_line(status, &out);
    tm_text_deinit(&out);
}

static void read_status(const char *bytes, size_t length)
{
    struct tm_run_status status;
    struct tm_run_status again;
    struct tm_jsonout json;
    struct tm_text text;
    if (tm_run_status_read("status", bytes, length, &status, NULL) != 0) return;
    tm_text_init(&text, TEXT_MAX);
    tm_jsonout_init(&json, &text);
    tm_run_status_write(&status, &json);
    assert(tm_run_status_read("again", text.data, text.length, &again, NULL) == 0);
    draw(&status);
    tm_run_status_deinit(&again);
    tm_run_status_deinit(&status);
    tm_text_deinit(&text);
}

static void take_event(struct tm_run_historian *historian, uint64_t sequence, const char *bytes, size_t length)
{
    struct tm_arena arena;
    struct tm_text text;
    struct tm_jsonout json;
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, 16 << 20);
    tm_text_init(&text, TEXT_MAX);
    if (tm_record_event_unpack(bytes, length, &arena, &event, NULL) == 0) {
        tm_jsonout_init_line(&json, &text);
        tm_run_event_write(sequence, event, &json);
        (void)tm_run_historian_take(historian, sequence, event, NULL);
    }
    tm_text_deinit(&text);
    tm_arena_deinit(&arena);
}

static void read_events(const char *bytes, size_t length)
{
    struct tm_run_historian *historian = tm_run_historian_create();
    struct tm_text html;
    for (uint64_t sequence = 1; length >= 2 && sequence <= EVENTS_MAX; sequence++) {
        size_t size = (unsigned char)bytes[0] + 256U * (unsigned char)bytes[1];
        if (size > length - 2) size = length - 2;
        take_event(historian, sequence, bytes + 2, size);
        bytes += 2 + size;
        length -= 2 + size;
    }
    struct tm_run_report report = {.history = tm_run_historian_tell(historian)};
    tm_text_init(&html, TEXT_MAX);
    (void)tm_run_report_html(&report, &html, NULL);
    draw(report.history->status);
    tm_text_deinit(&html);
    tm_run_historian_destroy(historian);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (data[0] % 2 == 0)
        read_status((const char *)data + 1, size - 1);
    else
        read_events((const char *)data + 1, size - 1);
    assert(tm_alloc_live() == 0);
    return 0;
}
