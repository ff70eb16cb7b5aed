/* Requests to the status API: whatever comes, the answer is HTTP that our own reader understands, or a hold; and only
 * who has the credential gets more than an error or stops the job. */
#include "fuzz.h"

#include "api/api_answer.h"
#include "run/test/sample_tap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sample_tap t;
    struct tm_http_head head;
    struct tm_http_head answered;
    struct tm_text out;
    if (t.watch == NULL) {
        sample_tap_init(&t, 0);
        (void)sample_tap_status(&t.tap);
    }
    long live = tm_alloc_live();
    int stops = t.stops;
    tm_text_init(&out, TM_API_RESPONSE_MAX);
    if (tm_http_read_request((const char *)data, size, &head, NULL) == 0) {
        uint64_t cursor[TM_HTTP_CURSORS] = {0}; /* so that streams begin */
        struct tm_http_request request = {.head = &head, .now_ms = 5, .cursor = cursor};
        struct tm_api_source source = {.env = tm_env_real(), .tap = &t.tap, .live = true};
        int64_t hold_ms = tm_api__answer(&source, "secret", &request, &out);
        assert(hold_ms >= 0 && hold_ms <= TM_API_WAIT_MAX_S * 1000);
        request.waited = true;
        request.streaming = hold_ms > 0 && out.length > 0; /* its head has gone out, and it goes on for ever */
        if (hold_ms > 0) hold_ms = tm_api__answer(&source, "secret", &request, &out);
        assert((hold_ms == 0) == !request.streaming);
        assert(tm_http__read_response(tm_text_string(&out), out.length, &answered, NULL) == 0);
        bool knows = tm_slice_is(tm_http_header(&head, "authorization"), "Bearer secret");
        assert(knows || answered.status == 401 || answered.status == 403);
        assert(!knows || answered.status != 401);
        tm_api__source_deinit(&source);
        assert(t.stops == stops || answered.status == 202);
    }
    tm_text_deinit(&out);
    assert(tm_alloc_live() == live);
    return 0;
}
