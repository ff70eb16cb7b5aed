/* Without memory: public functions of the room whose own tests do not already fail each of their allocations, and the
 * paths on which the others refuse their input. */
#include "base/content.h"
#include "base/env_virtual.h"
#include "base/fields.h"
#include "base/jsonout.h"
#include "base/names.h"
#include "base/paths.h"
#include "base/table.h"
#include "base/test/harness.h"

#include <stdbool.h>
#include <string.h>

/* What a call that must fail with `want` gave: 0 if it did, its own code if memory was the cause. */
static int refused(int rc, enum tm_code want)
{
    if (rc == -(int)want) return 0;
    return rc == -(int)TM_ENOMEM ? rc : -(int)TM_EINTERNAL;
}

/* ---- alloc ---- */

static int take_once(void)
{
    void *plain = tm_alloc(10);
    void *zeroed = tm_calloc(3, 4);
    char *copy = tm_strndup("abc", 2);
    bool ok = plain != NULL && zeroed != NULL && copy != NULL && strcmp(copy, "ab") == 0;
    void *bigger = tm_realloc(plain, 1000);
    if (bigger == NULL) ok = false; /* the old one is still ours */
    tm_free(bigger != NULL ? bigger : plain);
    tm_free(zeroed);
    tm_free(copy);
    return ok ? 0 : -(int)TM_ENOMEM;
}

/* A failed growth leaves array and capacity as they were. */
static int grow_once(void)
{
    void *array = NULL;
    size_t capacity = 0;
    int rc = 0;
    for (size_t need = 1; rc == 0 && need <= 100; need++) {
        void *before = array;
        size_t capacity_before = capacity;
        rc = tm_grow(&array, &capacity, need, sizeof(int), 1000);
        if (rc != 0 && (array != before || capacity != capacity_before)) rc = -(int)TM_EINTERNAL;
        if (rc == 0) ((int *)array)[need - 1] = (int)need;
    }
    tm_free(array);
    return rc;
}

static void test_alloc(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = take_once());
    TM_FAIL_EACH_ALLOC(rc = grow_once());
}

/* ---- text, table, JSON ---- */

static int put_chars_once(void)
{
    struct tm_text text;
    tm_text_init(&text, 1000);
    for (int i = 0; i < 300; i++)
        tm_text_putc(&text, 'x');
    int rc = tm_text_status(&text, NULL);
    if (rc == 0 && strlen(tm_text_string(&text)) != 300) rc = -(int)TM_EINTERNAL;
    tm_text_deinit(&text);
    return rc;
}

static int put_json_once(void)
{
    struct tm_text out;
    struct tm_jsonout json;
    tm_text_init(&out, 10000);
    tm_jsonout_init(&json, &out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "string", "a\nb");
    tm_jsonout_string(&json, "none", NULL);
    tm_jsonout_number(&json, "number", 0.1);
    tm_jsonout_integer(&json, "integer", INT64_MIN);
    tm_jsonout_bool(&json, "bool", true);
    tm_jsonout_null(&json, "null");
    tm_jsonout_list(&json, "list");
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    int rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    return rc;
}

/* A cell that is lost is told when the table is printed, not forgotten. */
static int print_table_once(int width)
{
    static const struct tm_column columns[] = {{"NAME", TM_LEFT, 0}, {"COUNT", TM_RIGHT, 1}};
    struct tm_term term = {.is_terminal = true, .color = true, .utf8 = true, .width = width};
    struct tm_table table;
    struct tm_text out;
    tm_table_init(&table, columns, TM_COUNT(columns));
    tm_text_init(&out, 10000);
    tm_table_add(&table, "%s", "a name that is cut where the terminal is narrow");
    tm_table_add_colored(&table, TM_GREEN, "%d", 7);
    int rc = tm_table_print(&table, &term, &out, NULL);
    if (rc == 0 && strstr(tm_text_string(&out), "a name") == NULL) rc = -(int)TM_EINTERNAL;
    tm_text_deinit(&out);
    tm_table_deinit(&table);
    return rc;
}

static void test_output(void **state)
{
    (void)state;
    static const int widths[] = {0, 20, 200};
    TM_FAIL_EACH_ALLOC(rc = put_chars_once());
    TM_FAIL_EACH_ALLOC(rc = put_json_once());
    for (size_t i = 0; i < TM_COUNT(widths); i++)
        TM_FAIL_EACH_ALLOC(rc = print_table_once(widths[i]));
}

/* ---- documents and fields ---- */

struct job {
    int color;
    int64_t deadline_ms;
    struct tm_strings zones;
};

static const char *const colors[] = {"red", "green", NULL};
static const struct tm_field fields[] = {
    {.key = "color", .type = TM_FIELD_CHOICE, .offset = offsetof(struct job, color), .choices = colors},
    {.key = "deadline", .type = TM_FIELD_DURATION, .offset = offsetof(struct job, deadline_ms)},
    {.key = "zones", .type = TM_FIELD_STRINGS, .offset = offsetof(struct job, zones)},
    {.key = NULL},
};

static int read_once(const char *text, enum tm_code want)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    struct job job = {0};
    struct tm_error e = {0};
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_doc_parse_yaml("f", text, strlen(text), &arena, &root, &e);
    if (rc == 0) rc = tm_fields_read("f", root, fields, &arena, &job, &e);
    if (rc != -(int)e.code) rc = -(int)TM_EINTERNAL;
    tm_arena_deinit(&arena);
    return refused(rc, want);
}

static int refuse_json_once(const char *text)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    json_t *tree = NULL;
    tm_arena_init(&arena, 1 << 20);
    int rc = refused(tm_doc__parse_json("f", text, strlen(text), &arena, &root, NULL), TM_EINPUT);
    if (rc == 0) rc = refused(tm_json_load("f", text, strlen(text), &tree, NULL), TM_EINPUT);
    tm_arena_deinit(&arena);
    return rc;
}

static int read_option_once(const char *text)
{
    struct tm_arena arena;
    struct job job = {0};
    tm_arena_init(&arena, 1 << 20);
    int rc = refused(tm_field_read_text("--deadline", text, &fields[1], &arena, &job, NULL), TM_EINPUT);
    tm_arena_deinit(&arena);
    return rc;
}

static int expect_once(const struct tm_field *field)
{
    struct tm_text out;
    tm_text_init(&out, 1000);
    tm_field_expected(field, &out);
    int rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_documents(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum tm_code want;
    } rows[] = {
        {"color: green\ndeadline: 6h\nzones: [a, b]\n", TM_OK},
        {"color: blue\n", TM_EINPUT},
        {"deadline: soon\n", TM_EINPUT},
        {"zones: {a: b}\n", TM_EINPUT},
        {"colour: red\n", TM_EINPUT},
        {"color: red\ncolor: red\n", TM_EINPUT},
        {"color: &a red\ndeadline: *a\n", TM_EINPUT},
        {"color: [\n", TM_EINPUT},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", TM_ELIMIT},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        TM_FAIL_EACH_ALLOC(rc = read_once(rows[i].text, rows[i].want));
    static const char *const bad[] = {"{\"a\": 1, \"a\": 2}", "[1, 2", "{\"a\": \"b\\u0000\"}", "x"};
    for (size_t i = 0; i < TM_COUNT(bad); i++)
        TM_FAIL_EACH_ALLOC(rc = refuse_json_once(bad[i]));
    TM_FAIL_EACH_ALLOC(rc = read_option_once("soon"));
    for (size_t i = 0; fields[i].key != NULL; i++)
        TM_FAIL_EACH_ALLOC(rc = expect_once(&fields[i]));
}

/* ---- names, paths, content, the virtual world ---- */

/* An addition refused for its limit, with and without memory. */
static int fill_names_once(void)
{
    struct tm_names names;
    tm_names_init(&names, 2);
    long a = tm_names_add(&names, "a", 1);
    long b = a < 0 ? a : tm_names_add(&names, "b", 1);
    int rc = b < 0 ? (int)b : refused((int)tm_names_add(&names, "c", 1), TM_ELIMIT);
    tm_names_deinit(&names);
    return rc;
}

static int each_path_once(struct tm_env *env)
{
    int rc = 0;
    for (int kind = TM_PATH_CONFIG; rc == 0 && kind <= TM_PATH_CACHE; kind++) {
        struct tm_arena arena;
        struct tm_error e = {0};
        tm_arena_init(&arena, 1 << 16);
        if (tm_path(env, (enum tm_path_kind)kind, "", &arena, &e) == NULL) rc = -(int)e.code;
        tm_arena_deinit(&arena);
    }
    return rc;
}

static int refuse_file_once(struct tm_env *env, const char *path, size_t limit, enum tm_code want)
{
    struct tm_text out;
    tm_text_init(&out, limit);
    int rc = refused(tm_content_read(env, path, &out, NULL), want);
    tm_text_deinit(&out);
    return rc;
}

static int unpack_once(const char *data, size_t length)
{
    struct tm_text out;
    tm_text_init(&out, 100);
    int rc = refused(tm_content__unpack("f", data, length, &out, NULL), TM_EINPUT);
    tm_text_deinit(&out);
    return rc;
}

static void test_files(void **state)
{
    (void)state;
    static const char cut[] = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b";
    static const struct {
        const char *path;
        size_t limit;
        enum tm_code want;
    } rows[] = {
        {"/good", 1000, TM_OK},       {"/missing", 1000, TM_ENOTFOUND}, {"/empty", 1000, TM_EINPUT},
        {"/binary", 1000, TM_EINPUT}, {"/cut.gz", 1000, TM_EINPUT},     {"/good", 3, TM_ELIMIT},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(tm_env_virtual_set_variable(env, "HOME", "/h"), 0);
    assert_int_equal(env->file_write(env, "/good", "a,b\n1,2\n", 8, NULL), 0);
    assert_int_equal(env->file_write(env, "/empty", "", 0, NULL), 0);
    assert_int_equal(env->file_write(env, "/binary", "a\0b", 3, NULL), 0);
    assert_int_equal(env->file_write(env, "/cut.gz", cut, sizeof cut - 1, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = fill_names_once());
    TM_FAIL_EACH_ALLOC(rc = each_path_once(env));
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        TM_FAIL_EACH_ALLOC(rc = refuse_file_once(env, rows[i].path, rows[i].limit, rows[i].want));
    TM_FAIL_EACH_ALLOC(rc = unpack_once(cut, sizeof cut - 1));
    TM_FAIL_EACH_ALLOC(rc = unpack_once("a\0b", 3));
    tm_env_virtual_destroy(env);
}

/* Variables: what could not be set is as it was. */
static int set_variables_once(void)
{
    struct tm_env *env = tm_env_virtual_create(1);
    if (env == NULL) return -(int)TM_ENOMEM;
    int rc = tm_env_virtual_set_variable(env, "A", "x");
    if (rc == 0) rc = tm_env_virtual_set_variable(env, "A", "a value far longer than the one before it");
    if (rc == 0) rc = env->set_variable(env, "B", "y");
    if (rc == 0) rc = env->set_variable(env, "A", "z");
    const char *a = env->variable(env, "A"), *b = env->variable(env, "B");
    if (rc == 0 && (a == NULL || strcmp(a, "z") != 0 || b == NULL || strcmp(b, "y") != 0)) rc = -(int)TM_EINTERNAL;
    if (rc == 0) rc = tm_env_virtual_set_variable(env, "A", NULL);
    tm_env_virtual_destroy(env);
    return rc;
}

static int write_again_once(void)
{
    static const char longer[] = "a content that is longer than the first one was";
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_text out;
    if (env == NULL) return -(int)TM_ENOMEM;
    tm_text_init(&out, 100);
    int rc = env->file_write(env, "/a", "x", 1, NULL);
    if (rc == 0) rc = env->file_write(env, "/a", longer, sizeof longer - 1, NULL);
    if (rc == 0) rc = env->file_read(env, "/a", &out, NULL);
    if (rc == 0 && strcmp(tm_text_string(&out), longer) != 0) rc = -(int)TM_EINTERNAL;
    if (rc == 0) rc = env->file_remove(env, "/a", NULL);
    tm_text_deinit(&out);
    tm_env_virtual_destroy(env);
    return rc;
}

static void test_world(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = set_variables_once());
    TM_FAIL_EACH_ALLOC(rc = write_again_once());
}

TM_TEST_MAIN(TM_TEST(test_alloc), TM_TEST(test_output), TM_TEST(test_documents), TM_TEST(test_files),
             TM_TEST(test_world))
