/* AWS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html */
#include "cloud/notice_internal.h"

#include "base/calendar.h"
#include "base/doc.h"

#include <string.h>

enum step { ACTION, REBALANCE };
enum { TOKEN_S = 21600, TOKEN_MARGIN_MS = 60000 };

static bool has_token(const struct tm_notice__talk *talk, int64_t now_ms)
{
    return talk->token[0] != '\0' && now_ms < talk->token_until_ms;
}

static int64_t ask(struct tm_notice__talk *talk, int64_t now_ms, struct tm_text *out)
{
    if (!has_token(talk, now_ms)) {
        talk->token[0] = '\0';
        tm_text_printf(out,
                       "PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: %d\r\n"
                       "Content-Length: 0\r\n",
                       TOKEN_S);
        return 0;
    }
    tm_text_printf(out, "GET /latest/meta-data/%s HTTP/1.1\r\nX-aws-ec2-metadata-token: %s\r\n",
                   talk->step == ACTION ? "spot/instance-action" : "events/recommendations/rebalance", talk->token);
    return 0;
}

int tm_notice__parse_aws_action(const char *text, size_t length, int64_t *out_gone_utc_ms, struct tm_error *e)
{
    json_t *root = NULL;
    int rc = tm_json_load("spot/instance-action", text, length, &root, e);
    if (rc != 0) return rc;
    const char *time = json_string_value(json_object_get(root, "time"));
    const char *action = json_string_value(json_object_get(root, "action"));
    int64_t gone_utc_ms = 0;
    if (action == NULL || time == NULL || !tm_calendar_parse(time, strlen(time), &gone_utc_ms))
        rc = tm_error_set(e, TM_EINPUT, "spot/instance-action: no action with a time");
    json_decref(root);
    if (rc == 0) *out_gone_utc_ms = gone_utc_ms;
    return rc;
}

static int hear_token(struct tm_notice__talk *talk, const struct tm_notice__answer *answer, struct tm_error *e)
{
    struct tm_slice token = {.at = answer->body, .length = answer->length};
    if (answer->head->status != 200) return tm_notice__unexpected(answer, "token", e);
    if (!tm_notice__keep(talk->token, token)) return tm_error_set(e, TM_EINPUT, "token: not a token");
    talk->token_until_ms = answer->now_ms + TOKEN_S * 1000 - TOKEN_MARGIN_MS;
    return 0;
}

static int hear(struct tm_notice__talk *talk, const struct tm_notice__answer *answer, int64_t *out_pause_ms,
                struct tm_error *e)
{
    int status = answer->head->status;
    if (talk->token[0] == '\0') return hear_token(talk, answer, e);
    if (status == 401) { /* it has run out, or another machine woke up from our image: a new one */
        talk->token[0] = '\0';
        return tm_notice__unexpected(answer, "token", e);
    }
    if (status != 200 && status != 404) return tm_notice__unexpected(answer, "metadata", e);
    if (talk->step == ACTION) {
        int64_t gone_utc_ms = 0;
        int rc = status == 200 ? tm_notice__parse_aws_action(answer->body, answer->length, &gone_utc_ms, e) : 0;
        if (rc != 0) return rc;
        talk->word.going = status == 200;
        talk->word.gone_utc_ms = gone_utc_ms;
        talk->step = REBALANCE;
    } else {
        talk->word.hinted = status == 200;
        talk->step = ACTION;
        *out_pause_ms = talk->options->poll_ms;
    }
    return 0;
}

const struct tm_notice__kind tm_notice__aws = {.ask = ask, .hear = hear};
