/* Documents as YAML again: what is printed, and that it reads back. */
#include "base/yaml_print.h"

#include "base/test/harness.h"

#include <string.h>

static int print(const char *yaml, struct tm_text *out)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    tm_arena_init(&arena, 1 << 20);
    tm_text_clear(out);
    int rc = tm_doc_parse_yaml("a.yaml", yaml, strlen(yaml), &arena, &root, NULL);
    if (rc == 0) tm_yaml_print(root, out);
    tm_arena_deinit(&arena);
    return rc;
}

static void reads_back(void **state)
{
    static const struct {
        const char *yaml;
        const char *text;
    } rows[] = {
        {"a: 1\nb: two words # gone\n", "a: 1\nb: two words\n"},
        {"a: 'x: y'\nb: \"7\"\nc: ''\n", "a: \"x: y\"\nb: \"7\"\nc: \"\"\n"},
        {"a:\nb: ~\nc: 'null'\n", "a: null\nb: null\nc: \"null\"\n"},
        {"a: {b: 1, c: {d: [1, 'e, f']}}\n", "a:\n  b: 1\n  c: {d: [1, \"e, f\"]}\n"},
        {"a: [1, two]\nb: []\nc: {}\n", "a: [1, two]\nb: []\nc: {}\n"},
        {"a: {b: [{c: 1}, {c: 2, d: x y}]}\n", "a:\n  b:\n    - {c: 1}\n    - {c: 2, d: x y}\n"},
        {"run: |\n  one\n    two\n\n  three\n", "run: |\n  one\n    two\n\n  three\n"},
        {"run: |-\n  one\n  two\n", "run: |-\n  one\n  two\n"},
        {"run: \" one\\ntwo\\n\\n\"\n", "run: \" one\\ntwo\\n\\n\"\n"},
        {"'us:on-demand': -1\n", "\"us:on-demand\": \"-1\"\n"},
        {"a: \"tab\\t\\\"quote\\\" \\\\ \\x01\"\n", "a: \"tab\\t\\\"quote\\\" \\\\ \\x01\"\n"},
        {"a: gpt:layers=4,hidden=8\n", "a: \"gpt:layers=4,hidden=8\"\n"},
    };
    struct tm_text text;
    struct tm_text again;
    (void)state;
    tm_text_init(&text, 1 << 16);
    tm_text_init(&again, 1 << 16);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        assert_row(print(rows[i].yaml, &text) == 0, "%s", rows[i].yaml);
        assert_row_string(rows[i].yaml, tm_text_string(&text), rows[i].text);
        assert_row(print(tm_text_string(&text), &again) == 0, "%s does not read back", rows[i].yaml);
        assert_row_string(rows[i].yaml, tm_text_string(&again), rows[i].text);
    }
    tm_text_deinit(&text);
    tm_text_deinit(&again);
}

static int change(struct tm_text *out)
{
    static const char yaml[] = "a: 1\nb: {c: 2}\nd: 3\n";
    struct tm_arena arena;
    struct tm_node *root = NULL;
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_doc_parse_yaml("a.yaml", yaml, strlen(yaml), &arena, &root, NULL);
    struct tm_node *list = rc == 0 ? tm_node_make(&arena, TM_NODE_LIST) : NULL;
    if (rc == 0) rc = tm_node_put(&arena, root, "e", list, NULL);
    if (rc == 0) rc = tm_node_put_text(&arena, list, NULL, "x", false, NULL);
    if (rc == 0) rc = tm_node_put_text(&arena, list, NULL, "8", true, NULL);
    if (rc == 0) rc = tm_node_put_text(&arena, root, "a", "new", false, NULL);
    if (rc == 0) rc = tm_node_put_text(&arena, tm_node_find(root, "b"), "f", "4", false, NULL);
    if (rc == 0) {
        assert_non_null(tm_node_take(root, "d"));
        assert_null(tm_node_take(root, "d"));
        assert_null(tm_node_find(root, "d"));
        tm_yaml_print(root, out);
    }
    tm_arena_deinit(&arena);
    return rc;
}

static void is_changed(void **state)
{
    struct tm_text text;
    (void)state;
    tm_text_init(&text, 1 << 16);
    assert_int_equal(change(&text), 0);
    assert_string_equal(tm_text_string(&text), "a: new\nb:\n  c: 2\n  f: 4\ne: [x, \"8\"]\n");
    tm_text_deinit(&text);
}

static void without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_text text;
        tm_text_init(&text, 1 << 16);
        rc = change(&text);
        if (rc == 0) rc = tm_text_status(&text, NULL);
        tm_text_deinit(&text);
    });
}

TM_TEST_MAIN(TM_TEST(reads_back), TM_TEST(is_changed), TM_TEST(without_memory))
