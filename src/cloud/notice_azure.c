/* Azure: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events */
#include "cloud/notice_internal.h"

#include "base/doc.h"
#include "cloud/metadata.h"

#include <string.h>

static int64_t ask(struct tm_notice__talk *talk, int64_t now_ms, struct tm_text *out)
{
    (void)talk;
    (void)now_ms;
    tm_text_puts(out, "GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nMetadata: true\r\n");
    return 0;
}

/* One event into the word. Which VM it names is not looked at: the endpoint speaks of this one (and its set). */
static int read_event(const json_t *event, int64_t now_utc_ms, struct tm_notice *word, struct tm_error *e)
{
    const char *type = json_string_value(json_object_get(event, "EventType"));
    const char *status = json_string_value(json_object_get(event, "EventStatus"));
    const char *when = json_string_value(json_object_get(event, "NotBefore"));
    int64_t gone_utc_ms = now_utc_ms; /* NotBefore is empty once it has started */
    if (type == NULL) return tm_error_set(e, TM_EINPUT, "scheduled events: one without a type");
    if (strcmp(type, "Preempt") != 0 && strcmp(type, "Terminate") != 0) {
        word->hinted = true; /* Freeze, Reboot, Redeploy: it will be away for a while */
        return 0;
    }
    bool started = status != NULL && strcmp(status, "Started") == 0;
    if (!started && when != NULL && when[0] != '\0' && !tm_http_date__parse(when, strlen(when), &gone_utc_ms))
        return tm_error_set(e, TM_EINPUT, "scheduled events: NotBefore is not a date");
    if (!word->going || gone_utc_ms < word->gone_utc_ms) word->gone_utc_ms = gone_utc_ms;
    word->going = true;
    return 0;
}

int tm_notice__parse_azure(const char *text, size_t length, int64_t now_utc_ms, struct tm_notice *out,
                           struct tm_error *e)
{
    struct tm_notice word = {0};
    json_t *root = NULL;
    int rc = tm_json_load("scheduled events", text, length, &root, e);
    if (rc != 0) return rc;
    const json_t *events = json_object_get(root, "Events");
    if (!json_is_array(events)) rc = tm_error_set(e, TM_EINPUT, "scheduled events: no list of events");
    for (size_t i = 0; rc == 0 && i < json_array_size(events); i++)
        rc = read_event(json_array_get(events, i), now_utc_ms, &word, e);
    json_decref(root);
    if (rc == 0) *out = word;
    return rc;
}

static int hear(struct tm_notice__talk *talk, const struct tm_notice__answer *answer, int64_t *out_pause_ms,
                struct tm_error *e)
{
    struct tm_notice word;
    if (answer->head->status != 200) return tm_notice__unexpected(answer, "scheduled events", e);
    int rc = tm_notice__parse_azure(answer->body, answer->length, answer->now_utc_ms, &word, e);
    if (rc != 0) return rc;
    /* Started, its time is "now" each time it is asked: the first counts. */
    if (word.going && talk->word.going && word.gone_utc_ms > talk->word.gone_utc_ms)
        word.gone_utc_ms = talk->word.gone_utc_ms;
    talk->word = word;
    *out_pause_ms = talk->options->poll_ms;
    return 0;
}

const struct tm_notice__kind tm_notice__azure = {.ask = ask, .hear = hear};
