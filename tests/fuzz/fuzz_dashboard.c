/* Requests to the dashboard, on loopback and off it: whatever comes, the answer is HTTP that our own reader
 * understands, a stream or a hold; who has no token gets the page, an error, and no more; who may only watch steers
 * nothing. */
#include "fuzz.h"

#include "api/dashboard_internal.h"
#include "base/env_virtual.h"
#include "run/test/sample_tap.h"

#include <stdio.h>
#include <string.h>

#define A16 "aaaaaaaaaaaaaaaa"
#define B16 "bbbbbbbbbbbbbbbb"

/* A run that is listed, and shows what a small run does; so routes of jobs have something to say. */
static void add_run(struct tm_dashboard *d)
{
    static struct sample_tap t;
    sample_tap_init(&t, 0);
    (void)sample_tap_status(&t.tap);
    if (d->env->file_write(d->env, "/runs/going/record", "x", 1, NULL) != 0) __builtin_trap();
    tm_dashboard__search(d);
    if (d->job_count != 1) __builtin_trap();
    d->jobs[0]->source.tap = &t.tap;
}

static struct tm_dashboard *make(void)
{
    static const char *const names[] = {"trainer.example.org"};
    static const char *const dirs[] = {"/runs/going"};
    static struct tm_dashboard_options options = {.listen = "127.0.0.1:0",
                                                  .root = "/runs",
                                                  .program = "/nothing",
                                                  .version = "1",
                                                  .names = names,
                                                  .name_count = 1,
                                                  .dirs = dirs,
                                                  .dir_count = 1};
    struct tm_dashboard *d = NULL;
    if (tm_dashboard_create(tm_env_virtual_create(3), &options, &d, NULL) != 0) __builtin_trap();
    memset(d->steer_token, 'a', 64);
    memset(d->watch_token, 'b', 64);
    (void)snprintf(d->cookie, sizeof d->cookie, "tidemill-8642");
    add_run(d);
    return d;
}

/* The run is shown: else routes of jobs would all be 404, and nobody would notice. */
static void see_run(struct tm_dashboard *d)
{
    static const char text[] =
        "GET /v1/jobs/going/status HTTP/1.1\r\nHost: 127.0.0.1:8642\r\nAuthorization: Bearer " A16 A16 A16 A16
        "\r\n\r\n";
    struct tm_http_head head, answered;
    struct tm_text out;
    uint64_t cursor[TM_HTTP_CURSORS] = {0};
    tm_text_init(&out, TM_API_RESPONSE_MAX);
    assert(tm_http_read_request(text, sizeof text - 1, &head, NULL) == 0);
    struct tm_http_request request = {.head = &head, .peer = "127.0.0.1:5", .now_ms = 1, .cursor = cursor};
    assert(tm_dashboard__answer(d, &request, &out) == 0);
    assert(tm_http__read_response(tm_text_string(&out), out.length, &answered, NULL) == 0 && answered.status == 200);
    tm_text_deinit(&out);
}

static bool has(struct tm_slice text, const char *piece)
{
    return text.at != NULL && memmem(text.at, text.length, piece, strlen(piece)) != NULL;
}

static void check(const struct tm_http_head *head, const struct tm_text *out)
{
    struct tm_http_head answered;
    struct tm_slice path = tm_http_path(head->target);
    struct tm_slice bearer = tm_http_header(head, "authorization"), cookie = tm_http_header(head, "cookie");
    assert(tm_http__read_response(tm_text_string(out), out->length, &answered, NULL) == 0);
    bool steers = has(bearer, A16 A16 A16 A16) || has(cookie, A16 A16 A16 A16);
    bool watches = steers || has(bearer, B16 B16 B16 B16) || has(cookie, B16 B16 B16 B16);
    bool of_api = path.length >= 3 && memcmp(path.at, "/v1", 3) == 0;
    bool logs_in = tm_slice_is(path, "/v1/session") && tm_slice_is(head->method, "POST");
    if (of_api && !watches && !logs_in) assert(answered.status >= 400);
    if (!steers) assert(answered.status != 202);
    if (tm_http_header(head, "host").at == NULL) assert(answered.status == 403 || answered.status == 429);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tm_dashboard *d;
    struct tm_http_head head;
    struct tm_text out;
    uint64_t cursor[TM_HTTP_CURSORS] = {0};
    static int64_t now_ms = 1000;
    if (d == NULL) {
        d = make();
        see_run(d);
    }
    if (size == 0) return 0;
    d->guarded = (data[0] & 1) != 0; /* off loopback */
    d->place = (struct tm_api_place){
        .tls = d->guarded, .open = d->guarded, .names = d->options.names, .name_count = d->options.name_count};
    const char *text = (const char *)data + 1;
    tm_text_init(&out, TM_API_RESPONSE_MAX + 8192);
    if (tm_http_read_request(text, size - 1, &head, NULL) == 0) {
        struct tm_http_request request = {.head = &head,
                                          .peer = "192.0.2.1:5",
                                          .body = {.at = text + head.length, .length = size - 1 - head.length},
                                          .now_ms = now_ms += 100,
                                          .cursor = cursor};
        int64_t hold_ms = tm_dashboard__answer(d, &request, &out);
        assert(hold_ms >= 0);
        request.waited = true;
        request.now_ms = now_ms += 100000; /* its patience is over */
        request.streaming = hold_ms > 0 && out.length > 0;
        if (hold_ms > 0) hold_ms = tm_dashboard__answer(d, &request, &out);
        if (!request.streaming && hold_ms == 0) check(&head, &out);
    }
    tm_text_deinit(&out);
    return 0;
}
