#include "cloud/metadata.h"

#include "base/calendar.h"
#include "base/jsonout.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TTL_MAX_S = 21600, GCP_PROJECT = 1 };

struct asked { /* one request with all that an answer needs */
    const struct tm_metadata *known;
    const struct tm_http_head *request;
    struct tm_metadata_tokens *tokens;
    int64_t now_ms;
    bool waited;
    const uint64_t *random;
    struct tm_text *out;
};

/* ---- answers ---- */

static void answer_text(const struct asked *asked, const char *text)
{
    tm_http_respond(asked->out, 200, "text/plain", "", text);
}

/* ---- AWS ---- */

static void make_token(const struct asked *asked)
{
    struct tm_slice ttl = tm_http_header(asked->request, "x-aws-ec2-metadata-token-ttl-seconds");
    int64_t seconds = 0;
    char header[80];
    if (ttl.at == NULL || !tm_number_i64(ttl.at, ttl.length, &seconds) || seconds < 1 || seconds > TTL_MAX_S) {
        tm_http_refuse(asked->out, 400);
        return;
    }
    size_t slot = asked->tokens->next++ % TM_METADATA_TOKENS;
    char *text = asked->tokens->list[slot].text;
    (void)snprintf(text, TM_METADATA_TOKEN_TEXT, "%016" PRIx64 "%016" PRIx64, asked->random[0], asked->random[1]);
    asked->tokens->list[slot].expires_ms = asked->now_ms + seconds * 1000;
    (void)snprintf(header, sizeof header, "X-aws-ec2-metadata-token-ttl-seconds: %" PRId64 "\r\n", seconds);
    tm_http_respond(asked->out, 200, "text/plain", header, text);
}

static bool has_token(const struct asked *asked)
{
    struct tm_slice given = tm_http_header(asked->request, "x-aws-ec2-metadata-token");
    for (size_t i = 0; i < TM_METADATA_TOKENS; i++) {
        const char *text = asked->tokens->list[i].text;
        if (text[0] != '\0' && tm_slice_is(given, text) && asked->now_ms < asked->tokens->list[i].expires_ms)
            return true;
    }
    return false;
}

/* Whole seconds: AWS writes no others. */
static const char *whole_seconds(int64_t utc_ms, char buffer[TM_CALENDAR_TEXT_MAX])
{
    return tm_calendar_print(utc_ms / 1000 * 1000, buffer);
}

static void aws_answer(const struct asked *asked, struct tm_slice path)
{
    const struct tm_metadata *known = asked->known;
    char text[160];
    char when[TM_CALENDAR_TEXT_MAX];
    if (tm_slice_is(path, "instance-id")) {
        (void)snprintf(text, sizeof text, "i-%017" PRIx64, known->id);
        answer_text(asked, text);
    } else if (tm_slice_is(path, "instance-type")) {
        answer_text(asked, known->type);
    } else if (tm_slice_is(path, "placement/availability-zone")) {
        answer_text(asked, known->zone);
    } else if (tm_slice_is(path, "spot/instance-action") && known->noticed) {
        (void)snprintf(text, sizeof text, "{\"action\": \"terminate\", \"time\": \"%s\"}",
                       whole_seconds(known->loss_utc_ms, when));
        tm_http_respond(asked->out, 200, "application/json", "", text);
    } else if (tm_slice_is(path, "spot/termination-time") && known->noticed) {
        answer_text(asked, whole_seconds(known->loss_utc_ms, when));
    } else if (tm_slice_is(path, "events/recommendations/rebalance") && known->hinted) {
        (void)snprintf(text, sizeof text, "{\"noticeTime\": \"%s\"}", whole_seconds(known->hinted_utc_ms, when));
        tm_http_respond(asked->out, 200, "application/json", "", text);
    } else {
        tm_http_refuse(asked->out, 404);
    }
}

static void aws_respond(const struct asked *asked, struct tm_slice path)
{
    static const char tree[] = "/latest/meta-data/";
    const struct tm_http_head *request = asked->request;
    size_t length = sizeof tree - 1;
    if (tm_slice_is(path, "/latest/api/token")) {
        bool put = tm_slice_is(request->method, "PUT");
        bool forwarded = tm_http_header(request, "x-forwarded-for").at != NULL; /* AWS refuses what came by a proxy */
        if (put && !forwarded)
            make_token(asked);
        else
            tm_http_refuse(asked->out, put ? 403 : 405);
    } else if (!tm_slice_is(request->method, "GET")) {
        tm_http_refuse(asked->out, 405);
    } else if (!has_token(asked)) {
        tm_http_refuse(asked->out, 401);
    } else if (path.length > length && memcmp(path.at, tree, length) == 0) {
        aws_answer(asked, (struct tm_slice){.at = path.at + length, .length = path.length - length});
    } else {
        tm_http_refuse(asked->out, 404);
    }
}

/* ---- GCP ---- */

static bool gcp_value(const struct tm_metadata *known, struct tm_slice name, char *out, size_t size)
{
    if (tm_slice_is(name, "id"))
        (void)snprintf(out, size, "%" PRIu64, known->id);
    else if (tm_slice_is(name, "zone"))
        (void)snprintf(out, size, "projects/%d/zones/%s", GCP_PROJECT, known->zone);
    else if (tm_slice_is(name, "machine-type"))
        (void)snprintf(out, size, "projects/%d/machineTypes/%s", GCP_PROJECT, known->type);
    else if (tm_slice_is(name, "preempted"))
        (void)snprintf(out, size, "%s", known->noticed ? "TRUE" : "FALSE");
    else if (tm_slice_is(name, "maintenance-event"))
        (void)snprintf(out, size, "%s", known->noticed ? "TERMINATE_ON_HOST_MAINTENANCE" : "NONE");
    else
        return false;
    return true;
}

/* How long to hold: until there is another version than the one that the client has seen. */
static int64_t gcp_hold_ms(const struct asked *asked, const char *etag)
{
    struct tm_slice target = asked->request->target;
    struct tm_slice seen = tm_http_query(target, "last_etag");
    struct tm_slice limit = tm_http_query(target, "timeout_sec");
    int64_t seconds = 0;
    if (asked->waited || !tm_slice_is_any_case(tm_http_query(target, "wait_for_change"), "true")) return 0;
    if (seen.at != NULL && !tm_slice_is(seen, etag)) return 0;
    if (limit.at == NULL) return TM_METADATA_HOLD_MAX_MS;
    if (!tm_number_i64(limit.at, limit.length, &seconds) || seconds <= 0) return 0;
    return seconds > TM_METADATA_HOLD_MAX_MS / 1000 ? TM_METADATA_HOLD_MAX_MS : seconds * 1000;
}

static struct tm_metadata_answer gcp_respond(const struct asked *asked, struct tm_slice path)
{
    static const char tree[] = "/computeMetadata/v1/instance/";
    struct tm_metadata_answer answer = {0};
    size_t length = sizeof tree - 1;
    char value[256];
    char etag[20];
    char headers[80];
    bool inside = path.length > length && memcmp(path.at, tree, length) == 0;
    struct tm_slice name = {.at = inside ? path.at + length : NULL, .length = inside ? path.length - length : 0};
    if (!tm_slice_is(asked->request->method, "GET")) {
        tm_http_refuse(asked->out, 405);
    } else if (!tm_slice_is(tm_http_header(asked->request, "metadata-flavor"), "Google")) {
        tm_http_refuse(asked->out, 403);
    } else if (!gcp_value(asked->known, name, value, sizeof value)) {
        tm_http_refuse(asked->out, 404);
    } else {
        (void)snprintf(etag, sizeof etag, "%016" PRIx64, asked->known->version);
        answer.hold_ms = gcp_hold_ms(asked, etag);
        (void)snprintf(headers, sizeof headers, "Metadata-Flavor: Google\r\nETag: %s\r\n", etag);
        if (answer.hold_ms == 0) tm_http_respond(asked->out, 200, "application/text", headers, value);
    }
    return answer;
}

/* ---- Azure ---- */

static void azure_event(struct tm_jsonout *json, const struct tm_metadata *known)
{
    char text[64];
    tm_jsonout_object(json, NULL);
    (void)snprintf(text, sizeof text, "%08X-0000-4000-8000-%012" PRIX64, 0x7163U, known->id);
    tm_jsonout_string(json, "EventId", text);
    tm_jsonout_string(json, "EventType", "Preempt");
    tm_jsonout_string(json, "ResourceType", "VirtualMachine");
    tm_jsonout_list(json, "Resources");
    (void)snprintf(text, sizeof text, "tidemill-%" PRIu64, known->id);
    tm_jsonout_string(json, NULL, text);
    tm_jsonout_end(json);
    tm_jsonout_string(json, "EventStatus", "Scheduled");
    tm_http_date__print(known->loss_utc_ms, text);
    tm_jsonout_string(json, "NotBefore", text);
    tm_jsonout_string(json, "Description", "");
    tm_jsonout_string(json, "EventSource", "Platform");
    tm_jsonout_integer(json, "DurationInSeconds", -1);
    tm_jsonout_end(json);
}

static void azure_respond(const struct asked *asked, struct tm_slice path)
{
    const struct tm_http_head *request = asked->request;
    struct tm_slice version = tm_http_query(request->target, "api-version");
    if (!tm_slice_is(path, "/metadata/scheduledevents")) {
        tm_http_refuse(asked->out, 404);
    } else if (!tm_slice_is(request->method, "GET")) {
        tm_http_refuse(asked->out, 405);
    } else if (!tm_slice_is_any_case(tm_http_header(request, "metadata"), "true") ||
               !tm_slice_is(version, "2020-07-01")) {
        tm_http_refuse(asked->out, 400);
    } else {
        struct tm_text body;
        struct tm_jsonout json;
        tm_text_init(&body, 4096);
        tm_jsonout_init(&json, &body);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_integer(&json, "DocumentIncarnation", (int64_t)(asked->known->version & INT32_MAX));
        tm_jsonout_list(&json, "Events");
        if (asked->known->noticed) azure_event(&json, asked->known);
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
        if (tm_text_status(&body, NULL) == 0)
            tm_http_respond(asked->out, 200, "application/json; charset=utf-8", "", tm_text_string(&body));
        else
            tm_http_refuse(asked->out, 503);
        tm_text_deinit(&body);
    }
}

struct tm_metadata_answer tm_metadata__respond(const struct tm_metadata *known, const struct tm_http_head *request,
                                               struct tm_metadata_tokens *tokens, int64_t now_ms, bool waited,
                                               const uint64_t random[2], struct tm_text *out)
{
    struct asked asked = {known, request, tokens, now_ms, waited, random, out};
    struct tm_metadata_answer at_once = {0};
    struct tm_slice path = tm_http_path(request->target);
    if (path.length > 8 && memcmp(path.at, "/latest/", 8) == 0)
        aws_respond(&asked, path);
    else if (path.length > 17 && memcmp(path.at, "/computeMetadata/", 17) == 0)
        return gcp_respond(&asked, path);
    else
        azure_respond(&asked, path);
    return at_once;
}
