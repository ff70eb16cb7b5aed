/* GCP: https://cloud.google.com/compute/docs/instances/create-use-preemptible#detect_if_an_instance_was_preempted */
#include "cloud/notice_internal.h"

#include <string.h>

enum step { PREEMPTED, MAINTENANCE };
enum { HOLD_S = 30 };

static int64_t ask(struct tm_notice__talk *talk, int64_t now_ms, struct tm_text *out)
{
    (void)now_ms;
    int64_t longer_ms = 0;
    tm_text_puts(out, "GET /computeMetadata/v1/instance/");
    if (talk->step == MAINTENANCE) {
        tm_text_puts(out, "maintenance-event");
    } else if (talk->token[0] == '\0') { /* the first time at once: it may have been said already */
        tm_text_puts(out, "preempted");
    } else {
        tm_text_printf(out, "preempted?wait_for_change=true&timeout_sec=%d&last_etag=%s", HOLD_S, talk->token);
        longer_ms = HOLD_S * 1000;
    }
    tm_text_puts(out, " HTTP/1.1\r\nMetadata-Flavor: Google\r\n");
    return longer_ms;
}

int tm_notice__parse_gcp_preempted(const char *text, size_t length, bool *out_preempted, struct tm_error *e)
{
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r' || text[length - 1] == ' '))
        length--;
    struct tm_slice value = {.at = text, .length = length};
    bool preempted = tm_slice_is_any_case(value, "TRUE");
    if (!preempted && !tm_slice_is_any_case(value, "FALSE"))
        return tm_error_set(e, TM_EINPUT, "preempted: neither TRUE nor FALSE");
    *out_preempted = preempted;
    return 0;
}

static int hear(struct tm_notice__talk *talk, const struct tm_notice__answer *answer, int64_t *out_pause_ms,
                struct tm_error *e)
{
    if (answer->head->status != 200) return tm_notice__unexpected(answer, "metadata", e);
    if (!tm_slice_is(tm_http_header(answer->head, "metadata-flavor"), "Google")) /* as Google asks its clients to */
        return tm_error_set(e, TM_EINPUT, "no header Metadata-Flavor: Google: this is not GCP's metadata server");
    if (talk->step == MAINTENANCE) {
        struct tm_slice value = {.at = answer->body, .length = answer->length};
        talk->word.hinted = !tm_slice_is(value, "NONE");
        talk->step = PREEMPTED;
        if (talk->token[0] == '\0') *out_pause_ms = talk->options->poll_ms;
        return 0;
    }
    bool preempted = false;
    int rc = tm_notice__parse_gcp_preempted(answer->body, answer->length, &preempted, e);
    if (rc != 0) return rc;
    char seen[TM_NOTICE_TOKEN_MAX];
    memcpy(seen, talk->token, sizeof seen);
    if (!tm_notice__keep(talk->token, tm_http_header(answer->head, "etag"))) talk->token[0] = '\0';
    if (preempted && !talk->word.going) talk->word.gone_utc_ms = answer->now_utc_ms + talk->options->gcp_left_ms;
    talk->word.going = preempted;
    talk->step = MAINTENANCE;
    /* A server that does not hold, or whose ETag never settles, is polled, not flooded. */
    if (talk->token[0] != '\0' && seen[0] != '\0') *out_pause_ms = talk->options->poll_ms / 10 + 1;
    return 0;
}

const struct tm_notice__kind tm_notice__gcp = {.ask = ask, .hear = hear};
