#include "base/jsonout.h"

#include "base/test/harness.h"

#include <math.h>
#include <string.h>

static void write_sample(struct tm_text *out, bool one_line)
{
    struct tm_jsonout json;
    (one_line ? tm_jsonout_init_line : tm_jsonout_init)(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_number(&json, "nodes", 3);
    tm_jsonout_string(&json, "name", "a \"b\" \\ \n \x01");
    tm_jsonout_list(&json, "list");
    tm_jsonout_integer(&json, NULL, INT64_MIN);
    tm_jsonout_bool(&json, NULL, true);
    tm_jsonout_bool(&json, NULL, false);
    tm_jsonout_null(&json, NULL);
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "empty");
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "none");
    tm_jsonout_end(&json);
    tm_jsonout_string(&json, "missing", NULL);
    tm_jsonout_end(&json);
}

static void test_layout(void **state)
{
    (void)state;
    struct tm_text out;
    tm_text_init(&out, 10000);
    write_sample(&out, false);
    assert_string_equal(tm_text_string(&out), "{\n"
                                              "  \"nodes\": 3,\n"
                                              "  \"name\": \"a \\\"b\\\" \\\\ \\u000a \\u0001\",\n"
                                              "  \"list\": [\n"
                                              "    -9223372036854775808,\n"
                                              "    true,\n"
                                              "    false,\n"
                                              "    null\n"
                                              "  ],\n"
                                              "  \"empty\": {},\n"
                                              "  \"none\": [],\n"
                                              "  \"missing\": null\n"
                                              "}\n");
    tm_text_clear(&out);
    write_sample(&out, true);
    assert_string_equal(tm_text_string(&out), "{\"nodes\": 3, \"name\": \"a \\\"b\\\" \\\\ \\u000a \\u0001\", "
                                              "\"list\": [-9223372036854775808, true, false, null], \"empty\": {}, "
                                              "\"none\": [], \"missing\": null}\n");
    tm_text_deinit(&out);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *want;
    } rows[] = {
        {0, "[\n  0\n]\n"},
        {-0.0, "[\n  0\n]\n"},
        {0.1, "[\n  0.1\n]\n"},
        {1e300, "[\n  1e+300\n]\n"},
        {NAN, "[\n  null\n]\n"},
        {INFINITY, "[\n  null\n]\n"},
        {-INFINITY, "[\n  null\n]\n"},
        {1.0 / 3, "[\n  0.3333333333333333\n]\n"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        struct tm_jsonout json;
        tm_text_init(&out, 1000);
        tm_jsonout_init(&json, &out);
        tm_jsonout_list(&json, NULL);
        tm_jsonout_number(&json, NULL, rows[i].value);
        tm_jsonout_end(&json);
        assert_row_string(rows[i].want, tm_text_string(&out), rows[i].want);
        tm_text_deinit(&out);
    }
}

/* Whatever the bytes are, the document must be JSON that reads back. */
static void test_strings_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {
        {"", ""},
        {"äöü 日本 😀", "äöü 日本 😀"},
        {"\t\r\n\b\f\x1f\x7f", "\t\r\n\b\f\x1f\x7f"},
        {"a\xff"
         "b",
         "a\uFFFDb"},
        {"\xC0\xAF", "\uFFFD\uFFFD"}, /* overlong */
        {"\xC3", "\uFFFD"},           /* cut */
        {"\xE6\x97", "\uFFFD\uFFFD"},
        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"}, /* a surrogate */
        {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
        {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
        {"</script>", "</script>"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        struct tm_jsonout json;
        struct tm_error e = {0};
        json_t *root = NULL;
        tm_text_init(&out, 1000);
        tm_jsonout_init(&json, &out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, rows[i].text, rows[i].text);
        tm_jsonout_end(&json);
        int rc = tm_json_load("out", tm_text_string(&out), out.length, &root, &e);
        assert_row(rc == 0, "row %zu: %s", i, e.text);
        const char *back = json_string_value(json_object_get(root, rows[i].want));
        assert_row(back != NULL && strcmp(back, rows[i].want) == 0, "row %zu: reads \"%s\"", i, back);
        json_decref(root);
        tm_text_deinit(&out);
    }
}

static void test_sixteen_levels(void **state)
{
    (void)state;
    struct tm_text out;
    struct tm_jsonout json;
    json_t *root = NULL;
    tm_text_init(&out, 10000);
    tm_jsonout_init(&json, &out);
    for (int i = 0; i < TM_JSONOUT_DEPTH_MAX; i++)
        tm_jsonout_list(&json, NULL);
    for (int i = 0; i < TM_JSONOUT_DEPTH_MAX; i++)
        tm_jsonout_end(&json);
    assert_int_equal(tm_json_load("out", tm_text_string(&out), out.length, &root, NULL), 0);
    json_decref(root);
    tm_text_deinit(&out);
}

static void test_a_value_alone(void **state)
{
    (void)state;
    struct tm_text out;
    struct tm_jsonout json;
    tm_text_init(&out, 100);
    tm_jsonout_init(&json, &out);
    tm_jsonout_string(&json, NULL, "x");
    assert_string_equal(tm_text_string(&out), "\"x\"");
    tm_text_deinit(&out);
}

static int write_once(size_t limit)
{
    struct tm_text out;
    tm_text_init(&out, limit);
    write_sample(&out, false);
    int rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_failures_stick_to_the_text(void **state)
{
    (void)state;
    assert_int_equal(write_once(20), -(int)TM_ELIMIT);
    TM_FAIL_EACH_ALLOC(rc = write_once(10000));
}

TM_TEST_MAIN(TM_TEST(test_layout), TM_TEST(test_numbers), TM_TEST(test_strings_read_back), TM_TEST(test_sixteen_levels),
             TM_TEST(test_a_value_alone), TM_TEST(test_failures_stick_to_the_text))
