#include "api/api_answer.h"

#include "base/number.h"
#include "base/secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void tm_api__send(const struct tm_http_request *request, const struct tm_api_content *content, const char *more,
                  struct tm_text *out)
{
    char headers[256];
    (void)snprintf(headers, sizeof headers, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s", more);
    struct tm_http_reply reply = {.status = content->status,
                                  .type = content->type,
                                  .more = headers,
                                  .body = tm_text_string(&content->body),
                                  .length = content->body.length};
    tm_http_reply(request, &reply, out);
}

void tm_api__refuse(const struct tm_http_request *request, int status, const char *more, const char *why,
                    struct tm_text *out)
{
    struct tm_api_content content;
    tm_api__content_init(&content);
    tm_api__content_refuse(&content, status, why);
    tm_api__send(request, &content, more, out);
    tm_text_deinit(&content.body);
}

static void say_wrong(const struct tm_api_asked *asked, char *text, size_t size)
{
    const struct tm_api_param *param = asked->wrong;
    const struct tm_api_param *has = asked->route->params;
    if (param == NULL) {
        int length = snprintf(text, size, "there is no parameter \"%.*s\" here",
                              (int)(asked->unknown.length < 40 ? asked->unknown.length : 40), asked->unknown.at);
        for (bool first = true; has != NULL && has->name != NULL && (size_t)length < size; has++, first = false)
            length += snprintf(text + length, size - (size_t)length, "%s%s", first ? ": it takes " : ", ", has->name);
        return;
    }
    bool none = (param->rules & TM_API_OR_NONE) != 0;
    int from = (param->rules & TM_API_FROM_ONE) != 0;
    const char *must = (param->rules & TM_API_MUST) != 0 ? "must be given, " : "must be ";
    if (param->max == INT64_MAX)
        (void)snprintf(text, size, "%s %sa whole number, %d or more", param->name, must, from);
    else
        (void)snprintf(text, size, "%s %sa whole number from %d to %" PRId64 "%s", param->name, must, from, param->max,
                       none ? ", or none" : "");
}

void tm_api__refuse_request(const struct tm_http_request *request, int found, const struct tm_api_asked *asked,
                            struct tm_text *out)
{
    char text[160];
    char allow[64] = "";
    if (found == 404) {
        (void)snprintf(text, sizeof text, "not found; /v1/openapi.json says what there is");
    } else if (found == 405) {
        (void)snprintf(text, sizeof text, "%s it", asked->allow);
        (void)snprintf(allow, sizeof allow, "Allow: %s\r\n", asked->allow);
    } else {
        say_wrong(asked, text, sizeof text);
    }
    tm_api__refuse(request, found, allow, text, out);
}

static bool may_ask(const struct tm_http_head *head, const char *credential)
{
    struct tm_slice given = tm_api__bearer(head);
    return given.length > 0 && tm_secret_equal(given.at, given.length, credential, strlen(credential));
}

static bool has_body(const struct tm_http_head *head)
{
    int64_t length = 0;
    struct tm_slice given = tm_http_header(head, "content-length");
    bool empty = given.at == NULL || (tm_number_i64(given.at, given.length, &length) && length == 0);
    return !empty || tm_http_header(head, "transfer-encoding").at != NULL;
}

/* ---- a stream: the cursor's first number is the last event told, its second when the status was, in ms ---- */

static int64_t stream(struct tm_api_source *source, const struct tm_api_asked *asked,
                      const struct tm_http_request *request, struct tm_text *out)
{
    uint64_t *cursor = request->cursor;
    struct tm_api_content content;
    struct tm_api_asked next = *asked;
    size_t before = 0;
    if (!request->streaming) {
        cursor[0] = tm_api__stream_begin(asked, request->head);
        tm_api__stream_head(out);
        before = out->length;
        if (cursor[0] > source->tap->sequence) tm_api__stream_again(cursor, out); /* of a run that was here before */
    }
    next.params[0] = (int64_t)cursor[0]; /* after */
    next.params[2] = 0;                  /* wait */
    tm_api__content_init(&content);
    tm_api__produce(source, &next, true, &content);
    if (content.status == 200) tm_api__stream_events(tm_text_string(&content.body), content.body.length, cursor, out);
    bool more = content.status == 200 && source->tap->sequence > cursor[0];
    int64_t since_ms = request->now_ms - (int64_t)cursor[1];
    bool statuses = tm_api__param(asked, "status") == 1;
    if (statuses && !more && (cursor[1] == 0 || since_ms >= TM_API_STATUS_EVERY_MS)) {
        struct tm_api_asked status = {.route = &tm_api__routes[0]};
        tm_text_deinit(&content.body);
        tm_api__content_init(&content);
        tm_api__produce(source, &status, true, &content);
        if (content.status == 200)
            tm_api__stream_document("status", tm_text_string(&content.body), content.body.length, out);
        cursor[1] = (uint64_t)request->now_ms;
        since_ms = 0;
    }
    tm_text_deinit(&content.body);
    if (out->length == before && request->waited && !more && !statuses) tm_text_puts(out, ":\n\n");
    if (more) return 1;
    return statuses ? (since_ms < TM_API_STATUS_EVERY_MS ? TM_API_STATUS_EVERY_MS - since_ms : 1)
                    : TM_API_STREAM_BEAT_MS;
}

int64_t tm_api__answer(struct tm_api_source *source, const char *credential, const struct tm_http_request *request,
                       struct tm_text *out)
{
    struct tm_api_asked asked;
    struct tm_api_content content;
    if (!tm_api__is_ours(request->head, NULL)) {
        tm_api__refuse(request, 403, "", "this API answers programs on its own machine, not other sites' pages", out);
        return 0;
    }
    if (!may_ask(request->head, credential)) {
        tm_api__refuse(request, 401, "WWW-Authenticate: Bearer\r\n",
                       "give the credential of the run's file api as a bearer token", out);
        return 0;
    }
    int found = tm_api__find(request->head, false, &asked);
    if (found == 0 && has_body(request->head)) {
        tm_api__refuse(request, 413, "", "the request must not have a body", out);
        return 0;
    }
    if (found != 0) {
        tm_api__refuse_request(request, found, &asked, out);
        return 0;
    }
    if (tm_api__wants_stream(&asked, request->head) && request->cursor != NULL)
        return stream(source, &asked, request, out);
    tm_api__content_init(&content);
    tm_api__produce(source, &asked, request->waited, &content);
    if (content.hold_ms == 0) tm_api__send(request, &content, "", out);
    tm_text_deinit(&content.body);
    return content.hold_ms;
}
