#include "base/test/harness.h"
#include "web/xml.h"

#include <stdio.h>
#include <string.h>

static const char sample[] = "<?xml version=\"1.0\"?>\n<a:R xmlns:a=\"u\" k=\"v\"><b> one </b><!-- c --><b>tw&amp;o</b>"
                             "<c><d><e>deep</e></d></c><empty/></a:R>";

static int read_text(const char *text, struct tm_arena *arena, struct tm_xml **out, struct tm_error *e)
{
    return tm_xml_read(text, strlen(text), arena, out, e);
}

static void test_tree(void **state)
{
    (void)state;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    tm_arena_init(&arena, 1 << 20);
    assert_int_equal(read_text(sample, &arena, &root, NULL), 0);
    assert_string_equal(root->name, "R");
    assert_string_equal(tm_xml_text(root, "b"), "one");
    const struct tm_xml *second = tm_xml_again(tm_xml_child(root, "b"));
    assert_string_equal(second->text, "tw&o");
    assert_null(tm_xml_again(second));
    assert_string_equal(tm_xml_text(root, "c/d/e"), "deep");
    assert_string_equal(tm_xml_text(root, "c/d/x"), "");
    assert_string_equal(tm_xml_text(NULL, "c"), "");
    assert_string_equal(tm_xml_text(root, "empty"), "");
    assert_string_equal(tm_xml__anywhere(root, "e")->text, "deep");
    assert_null(tm_xml__anywhere(root, "nowhere"));
    tm_arena_deinit(&arena);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *why;
    } rows[] = {{"", "line 1: no element found"},
                {"<a>", "line 1: no element found"},
                {"<a>\n</b>", "line 2: mismatched tag"},
                {"not xml", "line 1: syntax error"},
                {"<html><body><p></body></html>", "mismatched tag"},
                {"<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>", "a document type is not allowed"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_xml *root = NULL;
        struct tm_error e = {.text = ""};
        tm_arena_init(&arena, 1 << 20);
        assert_int_equal(read_text(rows[i].text, &arena, &root, &e), -(int)TM_EINPUT);
        assert_row(strstr(e.text, rows[i].why) != NULL, "\"%s\": %s", rows[i].text, e.text);
        tm_arena_deinit(&arena);
    }
    char deep[400] = "";
    for (int i = 0; i < 33; i++)
        (void)strcat(deep, "<a>");
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    tm_arena_init(&arena, 1 << 20);
    assert_int_equal(read_text(deep, &arena, &root, NULL), -(int)TM_EINPUT);
    tm_arena_deinit(&arena);
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_arena arena;
        struct tm_xml *root = NULL;
        tm_arena_init(&arena, 1 << 20);
        rc = read_text(sample, &arena, &root, NULL);
        tm_arena_deinit(&arena);
    });
}

TM_TEST_MAIN(TM_TEST(test_tree), TM_TEST(test_refused), TM_TEST(test_memory))
