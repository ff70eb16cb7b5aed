#include "base/doc.h"

#include "base/test/harness.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

typedef int (*parse_f)(const char *file, const char *text, size_t length, struct tm_arena *arena, struct tm_node **out,
                       struct tm_error *e);

/* A tree as text: key@line:column=value; text in quotes where it was quoted. */
static void show(const struct tm_node *node, struct tm_text *out)
{
    if (node->key != NULL) tm_text_printf(out, "%s", node->key);
    if (node->line > 0) tm_text_printf(out, "@%d:%d", node->line, node->column);
    if (node->key != NULL || node->line > 0) tm_text_puts(out, "=");
    if (node->kind == TM_NODE_NULL) tm_text_puts(out, "null");
    if (node->kind == TM_NODE_SCALAR) tm_text_printf(out, node->quoted ? "\"%s\"" : "%s", node->text);
    if (node->kind != TM_NODE_LIST && node->kind != TM_NODE_MAP) return;
    tm_text_putc(out, node->kind == TM_NODE_LIST ? '[' : '{');
    size_t count = 0;
    for (const struct tm_node *child = node->first; child != NULL; child = child->next, count++) {
        if (child != node->first) tm_text_puts(out, ", ");
        show(child, out);
    }
    assert_row(count == node->count, "count is %zu, there are %zu", node->count, count);
    tm_text_putc(out, node->kind == TM_NODE_LIST ? ']' : '}');
}

/* What parsing gives: the tree as text, or "!" and the error. */
static int parse(parse_f parser, const char *text, size_t length, struct tm_text *out)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    struct tm_error e = {0};
    tm_arena_init(&arena, 64 << 20);
    tm_text_init(out, 1 << 20);
    int rc = parser("f", text, length, &arena, &root, &e);
    if (rc == 0)
        show(root, out);
    else
        tm_text_printf(out, "!%s", e.text);
    assert_row((rc != 0) == (root == NULL), "root is set on an error or not set without one");
    assert_row(rc == 0 || rc == -(int)e.code, "rc %d is not the code %d", rc, (int)e.code);
    tm_arena_deinit(&arena);
    return rc;
}

struct row {
    const char *text;
    const char *want;
};

static void check_rows(parse_f parser, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tm_text got;
        (void)parse(parser, rows[i].text, strlen(rows[i].text), &got);
        assert_row_string(rows[i].text, tm_text_string(&got), rows[i].want);
        tm_text_deinit(&got);
    }
}

static void test_yaml_trees_and_places(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"a: 1\nb:\n  c: [x, y]\n  d: {e: f}\n", "@1:1={a@1:4=1, b@3:3={c@3:6=[@3:7=x, @3:10=y], d@4:6={e@4:10=f}}}"},
        {"a: 1\r\nb: two words\r\nc: 3\r\n", "@1:1={a@1:4=1, b@2:4=two words, c@3:4=3}"},
        {"\xEF\xBB\xBF"
         "a: 1\n",
         "@1:1={a@1:4=1}"},
        {"- x\n- y\n", "@1:1=[@1:3=x, @2:3=y]"},
        {"word", "@1:1=word"},
        {"a:\nb: ~\nc: null\n", "@1:1={a@1:1=null, b@2:4=null, c@3:4=null}"},
        {"[]", "@1:1=[]"},
        {"{}\n", "@1:1={}"},
        {"# c\na: 1 # d\n", "@2:1={a@2:4=1}"},
        {"---\na: 1\n...\n", "@2:1={a@2:4=1}"},
        {"ä: ö\n", "@1:1={ä@1:4=ö}"},
        {"a: x: y\n", "!f:1:5: not YAML: invalid nested block mapping on the same line"},
    };
    check_rows(tm_doc_parse_yaml, rows, TM_COUNT(rows));
}

static void test_yaml_quotes_make_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool quoted;
        enum tm_node_kind kind;
        const char *value;
    } rows[] = {
        {"8", false, TM_NODE_SCALAR, "8"},
        {"'8'", true, TM_NODE_SCALAR, "8"},
        {"\"8\"", true, TM_NODE_SCALAR, "8"},
        {"''", true, TM_NODE_SCALAR, ""},
        {"'null'", true, TM_NODE_SCALAR, "null"},
        {"'it''s'", true, TM_NODE_SCALAR, "it's"},
        {"\"a\\tb\\u00e4\"", true, TM_NODE_SCALAR, "a\tbä"},
        {"|\n a\n b\n", true, TM_NODE_SCALAR, "a\nb\n"},
        {"null", false, TM_NODE_NULL, "null"},
        {"~", false, TM_NODE_NULL, "~"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_node *node = NULL;
        tm_arena_init(&arena, 1 << 20);
        int rc = tm_doc_parse_yaml("f", rows[i].text, strlen(rows[i].text), &arena, &node, NULL);
        assert_row(rc == 0, "%s: got %d", rows[i].text, rc);
        assert_row(node->quoted == rows[i].quoted && node->kind == rows[i].kind, "%s: quoted %d, kind %d", rows[i].text,
                   node->quoted, (int)node->kind);
        assert_row_string(rows[i].text, node->text, rows[i].value);
        tm_arena_deinit(&arena);
    }
}

static void test_yaml_refusals(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"", "!f: document is empty"},
        {"# only a comment\n", "!f: document is empty"},
        {"a: 1\nb: 2\na: 3\n", "!f:3:4: a: duplicate key, first given in line 1; keep one"},
        {"x:\n  a: 1\n  a: 1\n", "!f:3:6: a: duplicate key, first given in line 2; keep one"},
        {"{a: 1, a: 2}", "!f:1:11: a: duplicate key, first given in line 1; keep one"},
        {"a: 1\n---\nb: 2\n", "!f:3:1: second document in the file; keep one"},
        {"- 1\n--- word\n", "!f:2:5: second document in the file; keep one"},
        {"a: &x 1\n", "!f:1:7: anchors (&name) are not supported; remove it"},
        {"&x {a: 1}\n", "!f:1:4: anchors (&name) are not supported; remove it"},
        {"- &x [1]\n", "!f:1:6: anchors (&name) are not supported; remove it"},
        {"? [a]\n: b\n", "!f:1:3: a key must be plain text, not a list or a map"},
        {"{{a: b}: c}", "!f:1:2: a key must be plain text, not a list or a map"},
        {"a: \"x\\0y\"\n", "!f:1:5: zero byte in text"},
        {"a: [1, 2\n", "!f:2:1: not YAML: flow sequence without a closing bracket"},
        {"a: 'x\n", "!f:1:5: not YAML: single-quoted scalar without closing quote"},
        {"a: @x\n", "!f:1:4: not YAML: plain scalar cannot start with '@'"},
        {"ok: 1\nä: \xFF\nlost: 3\n", "!f:2:4: byte 0xff is not valid UTF-8"},
        {"a: x\xC3\n", "!f:1:5: byte 0xc3 is not valid UTF-8"},
        {"a: \xED\xA0\x80\n", "!f:1:4: byte 0xed is not valid UTF-8"}, /* a surrogate */
        {"a: \xC0\xAF\n", "!f:1:4: byte 0xc0 is not valid UTF-8"},     /* overlong */
    };
    check_rows(tm_doc_parse_yaml, rows, TM_COUNT(rows));
}

static void test_yaml_zero_bytes_and_utf16(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
        const char *want;
    } rows[] = {
        {"a: 1\nb: x\0y\nc: 2\n", 16, "!f:2:5: byte 0x00 is not valid UTF-8"},
        {"\xFF\xFE"
         "a\0:\0",
         6, "!f:1:1: byte 0xff is not valid UTF-8"},
        {"\xE6\x97\xA5", 2, "!f:1:1: byte 0xe6 is not valid UTF-8"}, /* cut by the end of the file */
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text got;
        int rc = parse(tm_doc_parse_yaml, rows[i].text, rows[i].length, &got);
        assert_row(rc == -(int)TM_EINPUT, "row %zu: got %d", i, rc);
        assert_row_string(rows[i].want, tm_text_string(&got), rows[i].want);
        tm_text_deinit(&got);
    }
}

static void test_yaml_bomb_of_aliases(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"b: [*a, *a]\n", "!f:1:6: aliases (*name) are not supported; write the value out"},
        {"a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\n",
         "!f:1:7: anchors (&name) are not supported; remove it"},
    };
    check_rows(tm_doc_parse_yaml, rows, TM_COUNT(rows));
}

/* `count` times the opener, a 1, `count` times the closer. */
static int parse_nested(parse_f parser, const char *opener, const char *closer, size_t count, struct tm_text *got)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    for (size_t i = 0; i < count; i++)
        tm_text_puts(&text, opener);
    tm_text_putc(&text, '1');
    for (size_t i = 0; i < count; i++)
        tm_text_puts(&text, closer);
    int rc = parse(parser, tm_text_string(&text), text.length, got);
    tm_text_deinit(&text);
    return rc;
}

static void test_depth(void **state)
{
    (void)state;
    static const struct {
        parse_f parser;
        const char *opener;
        const char *closer;
        size_t count;
        int code;
        const char *words;
    } rows[] = {
        {tm_doc_parse_yaml, "[", "]", 32, TM_OK, ""},
        {tm_doc_parse_yaml, "[", "]", 33, TM_ELIMIT, "f:1:33: nested more than 32 levels deep"},
        {tm_doc_parse_yaml, "{a: ", "}", 32, TM_OK, ""},
        {tm_doc_parse_yaml, "{a: ", "}", 33, TM_ELIMIT, "f:1:129: nested more than 32 levels deep"},
        {tm_doc_parse_yaml, "- ", "", 33, TM_ELIMIT, "f:1:65: nested more than 32 levels deep"},
        {tm_doc_parse_yaml, "[", "]", 100000, TM_ELIMIT, "nested more than 32 levels deep"},
        {tm_doc_parse_yaml, "[", "", 100000, TM_ELIMIT, "nested more than 32 levels deep"},
        {tm_doc_parse_yaml, "{", "", 100000, TM_EINPUT, "a key must be plain text"},
        {tm_doc_parse_yaml, "- ", "", 100000, TM_ELIMIT, "nested more than 32 levels deep"},
        {tm_doc__parse_json, "[", "]", 32, TM_OK, ""},
        {tm_doc__parse_json, "[", "]", 33, TM_ELIMIT, "f: nested more than 32 levels deep"},
        {tm_doc__parse_json, "{\"a\":", "}", 32, TM_OK, ""},
        {tm_doc__parse_json, "{\"a\":", "}", 33, TM_ELIMIT, "f: nested more than 32 levels deep"},
        {tm_doc__parse_json, "[", "]", 65, TM_ELIMIT, "f:1: nested more than 64 levels deep"},
        {tm_doc__parse_json, "[", "", 100000, TM_ELIMIT, "f:1: nested more than 64 levels deep"},
        {tm_doc__parse_json, "[\n", "]", 100000, TM_ELIMIT, "f:65: nested more than 64 levels deep"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text got;
        int rc = parse_nested(rows[i].parser, rows[i].opener, rows[i].closer, rows[i].count, &got);
        assert_row(rc == -rows[i].code, "%zu x %s: %s", rows[i].count, rows[i].opener, tm_text_string(&got));
        assert_row(strstr(tm_text_string(&got), rows[i].words) != NULL, "%zu x %s: %s", rows[i].count, rows[i].opener,
                   tm_text_string(&got));
        tm_text_deinit(&got);
    }
}

static void test_number_of_values(void **state)
{
    (void)state;
    static const parse_f parsers[] = {tm_doc_parse_yaml, tm_doc__parse_json};
    for (size_t i = 0; i < TM_COUNT(parsers); i++) {
        for (int over = 0; over < 2; over++) { /* the list is a value too */
            struct tm_text text;
            tm_text_init(&text, 1 << 20);
            tm_text_puts(&text, "[1");
            for (int k = 0; k < 99998 + over; k++)
                tm_text_puts(&text, ",1");
            tm_text_puts(&text, "]");
            struct tm_text got;
            int rc = parse(parsers[i], tm_text_string(&text), text.length, &got);
            assert_row(rc == (over ? -(int)TM_ELIMIT : 0), "parser %zu: %d over: got %d", i, over, rc);
            if (over) assert_non_null(strstr(tm_text_string(&got), "document has more than 100000 values"));
            tm_text_deinit(&got);
            tm_text_deinit(&text);
        }
    }
}

static void test_json_trees(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"b\": 1, \"a\": [1.5, null, true, false, \"x\", {}]}",
         "@1:1={b@1:7=1, a@1:15=[@1:16=1.5, @1:21=null, @1:27=true, @1:33=false, @1:40=\"x\", @1:45={}]}"},
        {"\xEF\xBB\xBF[1]", "@1:1=[@1:2=1]"},
        {"[\r\n 1,\r\n 2]\r\n", "@1:1=[@2:2=1, @3:2=2]"},
        {"[9223372036854775807, -0.1, 1e3]", "@1:1=[@1:2=9223372036854775807, @1:23=-0.1, @1:29=1000]"},
        {"[\"\\u00e4]{[\\\"\"]", "@1:1=[@1:2=\"ä]{[\"\"]"},
    };
    check_rows(tm_doc__parse_json, rows, TM_COUNT(rows));
}

static void test_json_refusals(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"a\":1,\"a\":2}", "!f:1:10: not JSON: duplicate object key near '\"a\"'"},
        {"{\"a\":\n}", "!f:2:1: not JSON: unexpected token near '}'"},
        {"[1", "!f:1:2: not JSON: ']' expected near end of file"},
        {"", "!f:1:0: not JSON: '[' or '{' expected near end of file"},
        {"3", "!f:1:1: not JSON: '[' or '{' expected near '3'"},
        {"[1] x", "!f:1:5: not JSON: end of file expected near 'x'"},
        {"[1e999]", "!f:1:6: not JSON: real number overflow near '1e999'"},
        {"[NaN]", "!f:1:4: not JSON: invalid token near 'NaN'"},
        {"[99999999999999999999]", "!f:1:21: not JSON: too big integer near '99999999999999999999'"},
        {"[\"\xFF\"]", "!f:1:2: not JSON: unable to decode byte 0xff near '\"'"},
    };
    check_rows(tm_doc__parse_json, rows, TM_COUNT(rows));
    struct tm_text got;
    assert_int_equal(parse(tm_doc__parse_json, "[\"\\u0000\"]", 10, &got), -(int)TM_EINPUT);
    tm_text_deinit(&got);
    assert_int_equal(parse(tm_doc__parse_json, "[1]\0", 4, &got), -(int)TM_EINPUT);
    tm_text_deinit(&got);
}

static void test_json_load(void **state)
{
    (void)state;
    json_t *root = NULL;
    struct tm_error e = {0};
    assert_int_equal(tm_json_load("f", "{\"a\": [1, 2]}", 13, &root, &e), 0);
    assert_int_equal(json_array_size(json_object_get(root, "a")), 2);
    json_decref(root);
    root = NULL;
    assert_int_equal(tm_json_load("f", "{\"a\": 1, \"a\": 2}", 16, &root, &e), -(int)TM_EINPUT);
    assert_error_has(e, "duplicate object key");
    assert_int_equal(tm_json_load("f", "[", 1, &root, NULL), -(int)TM_EINPUT);
    assert_null(root);
}

static void test_place(void **state)
{
    (void)state;
    char buffer[20];
    struct tm_node node = {.line = 3, .column = 7};
    assert_string_equal(tm_node_place("job.yaml", &node, buffer, sizeof buffer), "job.yaml:3:7");
    assert_string_equal(tm_node_place("a-very-long-name-of-a-file", &node, buffer, 10), "a-very-lo");
    node.line = 0;
    assert_string_equal(tm_node_place("job.json", &node, buffer, sizeof buffer), "job.json");
}

static int parse_once(parse_f parser, const char *text)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    tm_arena_init(&arena, 1 << 20);
    int rc = parser("f", text, strlen(text), &arena, &root, NULL);
    tm_arena_deinit(&arena);
    return rc;
}

static int load_once(const char *text)
{
    json_t *root = NULL;
    int rc = tm_json_load("f", text, strlen(text), &root, NULL);
    json_decref(root);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"name\": [1, 2.5, \"a text so long that a buffer has to grow\", true], \"b\": {}}";
    TM_FAIL_EACH_ALLOC(rc = load_once(text));
    TM_FAIL_EACH_ALLOC(rc = parse_once(tm_doc__parse_json, text));
    TM_FAIL_EACH_ALLOC(rc = parse_once(tm_doc_parse_yaml, text));
}

static void test_an_arena_too_small(void **state)
{
    (void)state;
    static const parse_f parsers[] = {tm_doc_parse_yaml, tm_doc__parse_json};
    for (size_t i = 0; i < TM_COUNT(parsers); i++) {
        for (size_t limit = 0; limit < 900; limit += 50) {
            struct tm_arena arena;
            struct tm_node *root = NULL;
            tm_arena_init(&arena, limit);
            int rc = parsers[i]("f", "{\"a\": [1, 2, 3], \"b\": {\"c\": 1, \"d\": \"x\"}}", 41, &arena, &root, NULL);
            assert_row(rc == -(int)TM_ENOMEM || limit > 500, "parser %zu, limit %zu: got %d", i, limit, rc);
            tm_arena_deinit(&arena);
        }
    }
}

TM_TEST_MAIN(TM_TEST(test_yaml_trees_and_places), TM_TEST(test_yaml_quotes_make_text), TM_TEST(test_yaml_refusals),
             TM_TEST(test_yaml_zero_bytes_and_utf16), TM_TEST(test_yaml_bomb_of_aliases), TM_TEST(test_depth),
             TM_TEST(test_number_of_values), TM_TEST(test_json_trees), TM_TEST(test_json_refusals),
             TM_TEST(test_json_load), TM_TEST(test_place), TM_TEST(test_without_memory),
             TM_TEST(test_an_arena_too_small))
