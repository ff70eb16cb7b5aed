/* A run's events become spans of one trace: each generation, each change between two, and the run; told once. */
#include "run/otlp.h"

#include "base/test/harness.h"
#include "run/test/record_samples.h"

#include <string.h>

static void take(struct tm_otlp *otlp, const char *text)
{
    json_t *event = NULL;
    assert_int_equal(tm_json_load("event", text, strlen(text), &event, NULL), 0);
    assert_int_equal(tm_otlp_take(otlp, event), 0);
    json_decref(event);
}

static const char *const events[] = {
    "{\"sequence\": 1, \"utc_ms\": 1000, \"kind\": \"job\", \"text\": \"\", \"job\": {\"name\": \"j\"}}",
    ("{\"sequence\": 2, \"utc_ms\": 1001, \"kind\": \"generation\", \"generation\": {\"generation\": 1, \"started\": "
     "false, "
     "\"why\": \"the coordinator starts\"}}"),
    ("{\"sequence\": 3, \"utc_ms\": 1500, \"kind\": \"generation\", \"generation\": {\"generation\": 1, \"started\": "
     "true, "
     "\"base_step\": 0, \"layout\": {\"pipelines\": 2, \"stages\": [{}, {}], \"members\": [{\"spare\": true}, "
     "{\"spare\": "
     "false}]}}}"),
    "{\"sequence\": 4, \"utc_ms\": 1700, \"kind\": \"progress\", \"progress\": {\"step\": 7}}",
    ("{\"sequence\": 5, \"utc_ms\": 2000, \"kind\": \"generation\", \"generation\": {\"generation\": 2, \"started\": "
     "false, "
     "\"why\": \"drained\"}}"),
    ("{\"sequence\": 6, \"utc_ms\": 2100, \"kind\": \"generation\", \"generation\": {\"generation\": 3, \"started\": "
     "false, "
     "\"why\": \"a loss\"}}"),
    ("{\"sequence\": 7, \"utc_ms\": 2500, \"kind\": \"generation\", \"generation\": {\"generation\": 3, \"started\": "
     "true, "
     "\"base_step\": 7, \"rolled_back\": 1, \"layout\": {\"pipelines\": 1, \"stages\": [{}], \"members\": []}}}"),
    ("{\"sequence\": 8, \"utc_ms\": 3000, \"kind\": \"state\", \"text\": \"the job is failed at step 9: no\", "
     "\"state\": {}}"),
};

static json_t *spans_of(const struct tm_text *text, json_t **out_root)
{
    assert_int_equal(tm_json_load("spans", text->data, text->length, out_root, NULL), 0);
    json_t *resource = json_array_get(json_object_get(*out_root, "resourceSpans"), 0);
    return json_object_get(json_array_get(json_object_get(resource, "scopeSpans"), 0), "spans");
}

static const char *text_of(json_t *spans, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(spans, i), key));
}

static void test_spans(void **state)
{
    (void)state;
    static const char *const names[] = {"change to generation 1", "generation 1", "change to generation 2",
                                        "generation 3", "run j"};
    struct tm_otlp *otlp = tm_otlp_create("training", "team=tides, zone = a%20b,service.name=x,bad");
    struct tm_text text;
    json_t *root = NULL;
    assert_non_null(otlp);
    tm_text_init(&text, 1 << 20);
    for (size_t i = 0; i < TM_COUNT(events); i++)
        take(otlp, events[i]);
    take(otlp, events[3]); /* again: nothing */
    assert_int_equal(tm_otlp_sequence(otlp), 8);
    assert_int_equal(tm_otlp_count(otlp), TM_COUNT(names));
    tm_otlp_write(otlp, &text);
    assert_int_equal(tm_otlp_count(otlp), 0);
    json_t *spans = spans_of(&text, &root);
    assert_int_equal(json_array_size(spans), TM_COUNT(names));
    for (size_t i = 0; i < TM_COUNT(names); i++) {
        assert_string_equal(text_of(spans, i, "name"), names[i]);
        assert_int_equal(strlen(text_of(spans, i, "traceId")), 32);
        assert_string_equal(text_of(spans, i, "traceId"), text_of(spans, 0, "traceId"));
        assert_int_equal(strlen(text_of(spans, i, "spanId")), 16);
        bool is_run = i + 1 == TM_COUNT(names);
        const char *parent = text_of(spans, i, "parentSpanId");
        assert_true(is_run ? parent == NULL : strcmp(parent, text_of(spans, TM_COUNT(names) - 1, "spanId")) == 0);
    }
    assert_string_equal(text_of(spans, 1, "startTimeUnixNano"), "1500000000");
    assert_string_equal(text_of(spans, 1, "endTimeUnixNano"), "2000000000");
    assert_non_null(strstr(tm_text_string(&text), "\"tidemill.step.last\", \"value\": {\"intValue\": \"7\"}"));
    assert_non_null(strstr(tm_text_string(&text), "\"service.name\", \"value\": {\"stringValue\": \"training\"}"));
    assert_non_null(strstr(tm_text_string(&text), "\"team\", \"value\": {\"stringValue\": \"tides\"}"));
    assert_non_null(strstr(tm_text_string(&text), "\"zone\", \"value\": {\"stringValue\": \"a b\"}"));
    assert_null(strstr(tm_text_string(&text), "\"bad\""));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json_array_get(spans, 4), "status"), "code")),
                     2);
    json_decref(root);
    tm_text_deinit(&text);
    tm_otlp_destroy(otlp);
}

/* A real record's events, and what is none. */
static void test_record(void **state)
{
    (void)state;
    static const char *const nonsense[] = {"{}", "[]", "{\"kind\": 5, \"sequence\": 1}",
                                           "{\"kind\": \"generation\", \"sequence\": 1}",
                                           "{\"kind\": \"state\", \"sequence\": 2, \"text\": null}"};
    struct tm_otlp *otlp = tm_otlp_create("tidemill", NULL);
    struct samples samples;
    for (size_t i = 0; i < TM_COUNT(nonsense); i++)
        take(otlp, nonsense[i]);
    tm_otlp_destroy(otlp);
    otlp = tm_otlp_create("tidemill", NULL);
    samples_init(&samples);
    samples_small_run(&samples, true);
    for (size_t i = 0; i < samples.count; i++) {
        struct tm_text line;
        struct tm_jsonout json;
        tm_text_init(&line, 1 << 20);
        tm_jsonout_init_line(&json, &line);
        tm_run_event_write(i + 1, samples.events[i], &json);
        take(otlp, tm_text_string(&line));
        tm_text_deinit(&line);
    }
    assert_true(tm_otlp_count(otlp) >= 3);
    samples_deinit(&samples);
    tm_otlp_destroy(otlp);
}

/* Without OTEL_SERVICE_NAME the service is the one of OTEL_RESOURCE_ATTRIBUTES; it is said once. */
static void test_service(void **state)
{
    (void)state;
    static const struct {
        const char *service, *attributes, *said;
    } rows[] = {{"training", "service.name=other", "training"},
                {NULL, "team=tides,service.name=mill", "mill"},
                {NULL, "team=tides", "tidemill"},
                {NULL, NULL, "tidemill"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_otlp *otlp = tm_otlp_create(rows[i].service, rows[i].attributes);
        struct tm_text text;
        char said[80];
        tm_text_init(&text, 1 << 20);
        for (size_t n = 0; n < TM_COUNT(events); n++)
            take(otlp, events[n]);
        tm_otlp_write(otlp, &text);
        (void)snprintf(said, sizeof said, "\"stringValue\": \"%s\"", rows[i].said);
        const char *at = strstr(tm_text_string(&text), "\"service.name\"");
        assert_non_null(at);
        assert_non_null(strstr(at, said));
        assert_null(strstr(at + 1, "\"service.name\""));
        tm_text_deinit(&text);
        tm_otlp_destroy(otlp);
    }
}

static int take_all(void)
{
    struct tm_otlp *otlp = tm_otlp_create("tidemill", NULL);
    int rc = otlp == NULL ? -(int)TM_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < TM_COUNT(events); i++) {
        json_t *event = NULL;
        rc = tm_json_load("event", events[i], strlen(events[i]), &event, NULL);
        if (rc == 0) rc = tm_otlp_take(otlp, event);
        json_decref(event);
    }
    tm_otlp_destroy(otlp);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = take_all());
}

TM_TEST_MAIN(TM_TEST(test_spans), TM_TEST(test_record), TM_TEST(test_service), TM_TEST(test_memory))
