#include "market/trace_write.h"

#include "market/test/market_helpers.h"
#include "market/trace_stats.h"

static const char sample[] =
    "tidemill-trace 1\ninterval: 60s\nend: 300s\nnodes: 4\n\n0 +4\n90 -1 $0.5\n120 -2\n240 +1 $0.25\n";

static void test_formats(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        int64_t interval_ms;
        const char *want;
    } rows[] = {
        {"tidemill", 0, sample},
        {"json-series", 0,
         "{\"metadata\": {\"gap_seconds\": 60}, \"data\": [4, 4, 1, 1, 2], \"prices\": [null, null, 0.5, 0.5, "
         "0.25]}\n"},
        {"json-series", 90000,
         "{\"metadata\": {\"gap_seconds\": 90}, \"data\": [4, 3, 1, 2], \"prices\": [null, 0.5, 0.5, 0.25]}\n"},
        {"json-series", 1000000, "{\"metadata\": {\"gap_seconds\": 1000}, \"data\": [4]}\n"},
        {"json-series", 62500,
         "{\"metadata\": {\"gap_seconds\": 62.5}, \"data\": [4, 4, 1, 1, 2], \"prices\": [null, null, 0.5, 0.5, "
         "0.25]}\n"},
        {"csv-counts-s", 0, "# seconds,count\n0,4\n90,3\n120,1\n240,2\n300,2\n"},
    };
    struct tm_trace trace;
    trace_from(sample, NULL, &trace);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        struct tm_error e = {0};
        tm_text_init(&out, 10000);
        int rc = tm_trace_write(&trace, rows[i].format, rows[i].interval_ms, &out, &e);
        assert_row(rc == 0, "row %zu: %s", i, e.text);
        assert_row_string(rows[i].format, tm_text_string(&out), rows[i].want);
        tm_text_deinit(&out);
    }
    tm_trace_deinit(&trace);
}

/* Writes in a format and reads that again. */
static void write_and_read(const struct tm_trace *trace, const char *format, struct tm_trace *again)
{
    struct tm_text out;
    struct tm_error e = {0};
    tm_text_init(&out, 1 << 20);
    tm_trace_init(again);
    assert_row(tm_trace_write(trace, format, 0, &out, &e) == 0, "%s: %s", format, e.text);
    int rc = tm_trace_parse("w", tm_text_string(&out), out.length, format, again, &e);
    assert_row(rc == 0, "%s: %s", format, e.text);
    assert_row_string(format, again->format, format);
    tm_text_deinit(&out);
}

static void test_what_is_written_reads_back(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tidemill-trace 1\ninterval: 60s\nend: 300s\n\n0 +4\n60 -1\n120 -2\n240 +1\n",
        "tidemill-trace 1\ninterval: 60s\nend: 120s\n\n0 +0\n60 +3\n",
        "tidemill-trace 1\ninterval: 10s\nend: 100000010s\n\n0 +1\n100000000 -1\n", /* no exponents */
    };
    for (size_t i = 0; i < TM_COUNT(texts); i++) {
        struct tm_trace trace;
        struct tm_trace again;
        char want[200];
        char got[200];
        trace_from(texts[i], NULL, &trace);
        show_trace(&trace, want, sizeof want);
        for (size_t f = 0; tm_trace_write_formats[f] != NULL; f++) {
            if (i == 2 && strcmp(tm_trace_write_formats[f], "json-series") == 0) continue; /* too many samples */
            write_and_read(&trace, tm_trace_write_formats[f], &again);
            show_trace(&again, got, sizeof got);
            assert_row_string(tm_trace_write_formats[f], got, want);
            assert_row(tm_trace_stats(&again).mean_available == tm_trace_stats(&trace).mean_available, "row %zu", i);
            tm_trace_deinit(&again);
        }
        tm_trace_deinit(&trace);
    }
}

static void test_what_cannot_be_written(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *format;
        int64_t interval_ms;
        int rc;
        const char *words;
    } rows[] = {
        {"end: 9s\n\n0 +1\n", "log", 0, -TM_EUSAGE, "cannot write trace format \"log\""},
        {"end: 9s\n\n0 +1\n", "", 0, -TM_EUSAGE, "cannot write trace format \"\""},
        {"end: 9s\n\n0 +1\n", "json-series", 0, -TM_EUSAGE, "no interval of its own; give one"},
        {"end: 4194305s\n\n0 +1\n", "json-series", 1000, -TM_ELIMIT, "4194305 samples, more than 4194304"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[200];
        struct tm_trace trace;
        struct tm_text out;
        struct tm_error e = {0};
        (void)snprintf(text, sizeof text, "tidemill-trace 1\n%s", rows[i].text);
        trace_from(text, NULL, &trace);
        tm_text_init(&out, 100);
        int rc = tm_trace_write(&trace, rows[i].format, rows[i].interval_ms, &out, &e);
        assert_row(rc == rows[i].rc && out.length == 0, "row %zu: got %d", i, rc);
        assert_row(strstr(e.text, rows[i].words) != NULL, "row %zu: \"%s\"", i, e.text);
        tm_text_deinit(&out);
        tm_trace_deinit(&trace);
    }
}

static int write_once(const struct tm_trace *trace, const char *format, size_t bytes_max)
{
    struct tm_text out;
    tm_text_init(&out, bytes_max);
    int rc = tm_trace_write(trace, format, 0, &out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_without_room(void **state)
{
    (void)state;
    struct tm_trace trace;
    trace_from(sample, NULL, &trace);
    for (size_t f = 0; tm_trace_write_formats[f] != NULL; f++) {
        TM_FAIL_EACH_ALLOC(rc = write_once(&trace, tm_trace_write_formats[f], 10000));
        int rc = write_once(&trace, tm_trace_write_formats[f], 20);
        assert_row(rc == -TM_ELIMIT, "%s: got %d", tm_trace_write_formats[f], rc);
    }
    tm_trace_deinit(&trace);
}

TM_TEST_MAIN(TM_TEST(test_formats), TM_TEST(test_what_is_written_reads_back), TM_TEST(test_what_cannot_be_written),
             TM_TEST(test_without_room))
