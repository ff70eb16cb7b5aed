/* log: a log of instances that somebody kept up and polled, "[time] message" a line:
 *
 *     Created instance ID with N GPU(s) of type T in zone Z     the instance is there
 *     Instance ID running in zone Z                             a poll that found it
 *     Instance ID not running in zone Z                         a poll that did not: lost, if it was there before
 *
 * Other messages (creation failed, deleted) say nothing about capacity that the polls do not say. */
#include "market/trace_format.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/names.h"

#include <math.h>
#include <string.h>

enum { INSTANCES_MAX = 1 << 20, LINE_BYTES_MAX = 4096 };

struct log_reader {
    const struct tm_trace_input *input;
    struct tm_trace *trace;
    struct tm_names ids;
    bool *alive; /* by number of the id */
    size_t alive_capacity;
    int64_t origin_ms;
    int64_t latest_ms;
};

static bool probe_log(const struct tm_trace_input *input)
{
    const char *close = memchr(input->text, ']', input->length < 48 ? input->length : 48);
    int64_t time_ms = 0;
    return input->text[0] == '[' && close != NULL &&
           tm_calendar_parse(input->text + 1, (size_t)(close - input->text) - 1, &time_ms);
}

static int set_alive(struct log_reader *reader, struct tm_slice id, bool alive, int64_t time_ms, struct tm_error *e)
{
    long number = tm_names_add(&reader->ids, id.data, id.length);
    if (number < 0) return tm_error_set(e, (enum tm_code) - number, "too many instances, or no memory for them");
    size_t before = reader->alive_capacity;
    void *array = reader->alive;
    int rc = tm_grow(&array, &reader->alive_capacity, (size_t)number + 1, sizeof *reader->alive, INSTANCES_MAX);
    reader->alive = array;
    if (rc != 0) return tm_error_nomem(e);
    memset(reader->alive + before, 0, reader->alive_capacity - before);
    if (reader->alive[number] == alive) return 0;
    reader->alive[number] = alive;
    return tm_trace_add(reader->trace, time_ms, alive ? 1 : 0, alive ? 0 : 1, NAN, e);
}

/* The word behind `prefix` if the message starts so and goes on with `suffix`. */
static bool match(struct tm_slice message, const char *prefix, const char *suffix, struct tm_slice *word)
{
    size_t length = strlen(prefix);
    if (message.length < length || memcmp(message.data, prefix, length) != 0) return false;
    *word = (struct tm_slice){message.data + length, 0};
    while (length + word->length < message.length && word->data[word->length] != ' ')
        word->length++;
    size_t rest = message.length - length - word->length;
    return word->length > 0 && rest >= strlen(suffix) && memcmp(word->data + word->length, suffix, strlen(suffix)) == 0;
}

static int take_message(struct log_reader *reader, struct tm_slice message, int64_t time_ms, struct tm_error *e)
{
    struct tm_slice id;
    if (match(message, "Created instance ", " with ", &id)) return set_alive(reader, id, true, time_ms, e);
    if (match(message, "Instance ", " running in zone", &id)) {
        reader->trace->polls++;
        reader->trace->polls_running++;
        return set_alive(reader, id, true, time_ms, e);
    }
    if (match(message, "Instance ", " not running in zone", &id)) {
        reader->trace->polls++;
        return set_alive(reader, id, false, time_ms, e);
    }
    return 0;
}

static int take_line(struct log_reader *reader, int line, struct tm_slice text, struct tm_error *e)
{
    const char *close = text.length > LINE_BYTES_MAX ? NULL : memchr(text.data, ']', text.length);
    int64_t time_ms = 0;
    if (text.data[0] != '[' || close == NULL ||
        !tm_calendar_parse(text.data + 1, (size_t)(close - text.data) - 1, &time_ms))
        return tm_error_set(e, TM_EINPUT, "%s:%d: expected [2020-03-15T10:07:33Z] and a message", reader->input->file,
                            line);
    if (!reader->trace->has_start) {
        reader->origin_ms = time_ms;
        reader->trace->has_start = true;
        reader->trace->start_utc_ms = time_ms;
        /* The log speaks from its first line on, whether or not an instance is there yet. */
        int rc = tm_trace_add(reader->trace, 0, 0, 0, NAN, e);
        if (rc != 0) return rc;
    }
    time_ms -= reader->origin_ms;
    if (time_ms < reader->latest_ms) {
        tm_trace__warn(reader->trace, TM_TRACE_TIMES_GO_BACK, line);
        time_ms = reader->latest_ms;
    }
    reader->latest_ms = time_ms;
    struct tm_slice message = {close + 1, text.length - (size_t)(close - text.data) - 1};
    int rc = take_message(reader, tm_slice_trim(message), time_ms, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s:%d", reader->input->file, line);
}

static int read_lines(struct log_reader *reader, struct tm_error *e)
{
    const char *end = reader->input->text + reader->input->length;
    int line = 1;
    for (const char *at = reader->input->text; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        struct tm_slice text = {at, (size_t)(stop - at)};
        if (text.length > 0 && text.data[text.length - 1] == '\r') text.length--;
        int rc = text.length == 0 ? 0 : take_line(reader, line, text, e);
        if (rc != 0) return rc;
        at = stop + 1;
    }
    reader->trace->end_ms = reader->latest_ms;
    return 0;
}

static int read_log(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    struct log_reader reader = {.input = input, .trace = trace};
    tm_names_init(&reader.ids, INSTANCES_MAX);
    int rc = read_lines(&reader, e);
    tm_names_deinit(&reader.ids);
    tm_free(reader.alive);
    return rc;
}

const struct tm_trace_format tm_trace__log = {
    .name = "log",
    .summary = "log of polled instances: [time] Instance ID running in zone Z",
    .probe = probe_log,
    .read = read_log,
};
