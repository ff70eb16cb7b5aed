/* Requests to a metadata endpoint: whatever comes, the answer is HTTP that our own reader understands, or a hold. */
#include "fuzz.h"

#include "cloud/metadata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t random[2] = {1, 2};
    struct tm_metadata_tokens tokens = {0};
    struct tm_http_head head;
    struct tm_http_head answered;
    struct tm_text out;
    bool noticed = size > 0 && data[0] % 2 == 1;
    struct tm_metadata known = {.id = 3, .zone = "z", .type = "t", .hinted = noticed, .noticed = noticed, .version = 1};
    const char *bytes = (const char *)data + (size > 0);
    size_t length = size > 0 ? size - 1 : 0;
    tokens.list[0].text[0] = 'T';
    tokens.list[0].expires_ms = 1000;
    tm_text_init(&out, 16384);
    if (tm_http_read_request(bytes, length, &head, NULL) == 0) {
        assert(head.length <= length && head.target.length > 0);
        struct tm_metadata_answer answer = tm_metadata__respond(&known, &head, &tokens, 5, false, random, &out);
        assert(answer.hold_ms >= 0 && answer.hold_ms <= TM_METADATA_HOLD_MAX_MS);
        if (answer.hold_ms > 0) answer = tm_metadata__respond(&known, &head, &tokens, 5, true, random, &out);
        assert(answer.hold_ms == 0);
        assert(tm_http__read_response(tm_text_string(&out), out.length, &answered, NULL) == 0);
    }
    tm_text_deinit(&out);
    assert(tm_alloc_live() == 0);
    return 0;
}
