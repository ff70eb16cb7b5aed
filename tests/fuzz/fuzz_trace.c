/* Every trace reader, found by content and forced; what is read survives our own format unchanged. */
#include "fuzz.h"
#include "market/trace.h"
#include "market/trace_format.h"
#include "market/trace_stats.h"

#include <string.h>

static void check(const struct tm_trace *trace)
{
    struct tm_text text;
    struct tm_trace again;
    struct tm_error e;
    tm_text_init(&text, 64 << 20);
    tm_trace_init(&again);
    tm_trace__print(trace, &text);
    int rc = tm_trace_parse("again", tm_text_string(&text), text.length, "tidemill", &again, &e);
    assert(rc == 0 && tm_trace__equals(trace, &again));
    struct tm_trace_stats stats = tm_trace_stats(trace);
    assert(stats.min >= 0 && stats.max <= stats.instances_max);
    tm_trace_deinit(&again);
    tm_text_deinit(&text);
}

/* The first byte picks the format: 0 is by content. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_trace trace;
    struct tm_error e;
    if (size < 2 || memchr(data + 1, '\0', size - 1) != NULL) return 0;
    size_t format_count = 0;
    while (tm_trace__formats()[format_count] != NULL)
        format_count++;
    size_t pick = (size_t)data[0] % 32;
    const char *format = pick > 0 && pick <= format_count ? tm_trace__formats()[pick - 1]->name : NULL;
    char *text = tm_strndup((const char *)data + 1, size - 1);
    assert(text != NULL);
    tm_trace_init(&trace);
    if (tm_trace_parse("fuzz", text, size - 1, format, &trace, &e) == 0) check(&trace);
    tm_trace_deinit(&trace);
    tm_free(text);
    assert(tm_alloc_live() == 0);
    return 0;
}
