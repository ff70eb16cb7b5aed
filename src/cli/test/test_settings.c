#include "cli/settings.h"

#include "base/env_virtual.h"
#include "base/log.h"
#include "base/term.h"
#include "base/test/harness.h"
#include "market/catalog.h"

#include <string.h>

static int parse(const char *yaml, struct tm_arena *arena, struct tm_settings *settings, struct tm_error *e)
{
    tm_settings_defaults(settings);
    return tm_settings_parse("c.yaml", yaml, strlen(yaml), arena, settings, e);
}

static void test_defaults(void **state)
{
    (void)state;
    struct tm_settings settings;
    tm_settings_defaults(&settings);
    assert_int_equal(settings.color, TM_COLOR_AUTO);
    assert_int_equal(settings.log, TM_LOG_WARN);
    assert_int_equal(settings.precision, TM_PRECISION_MIXED);
    assert_int_equal(settings.clouds.count, 0);
    assert_string_equal(settings.data_dir, "");
    assert_string_equal(settings.path, "");
}

static void test_every_key(void **state)
{
    (void)state;
    static const char yaml[] =
        "# mine\ncolor: never\nlog: debug\nprecision: fp32\nclouds: [aws, 'gcp']\ndata_dir: /srv/x\n";
    struct tm_arena arena;
    struct tm_settings settings;
    struct tm_error e = {0};
    tm_arena_init(&arena, 1 << 20);
    assert_row(parse(yaml, &arena, &settings, &e) == 0, "%s", e.text);
    assert_int_equal(settings.color, TM_COLOR_NEVER);
    assert_int_equal(settings.log, TM_LOG_DEBUG);
    assert_string_equal(tm_precision_names[settings.precision], "fp32");
    assert_int_equal(settings.clouds.count, 2);
    assert_string_equal(settings.clouds.items[0], "aws");
    assert_string_equal(settings.clouds.items[1], "gcp");
    assert_string_equal(settings.data_dir, "/srv/x");
    tm_arena_deinit(&arena);
}

static int choice_of(const struct tm_settings *settings, const struct tm_field *field)
{
    return *(const int *)((const char *)settings + field->offset);
}

/* Every value that the table allows is taken, and is the number of its place. */
static void test_every_choice(void **state)
{
    (void)state;
    for (const struct tm_field *field = tm_settings_fields; field->key != NULL; field++) {
        assert_row(field->doc != NULL && field->doc[0] != '\0', "%s has no doc", field->key);
        for (int i = 0; field->type == TM_FIELD_CHOICE && field->choices[i] != NULL; i++) {
            struct tm_arena arena;
            struct tm_text yaml;
            struct tm_settings settings;
            struct tm_error e = {0};
            tm_arena_init(&arena, 1 << 20);
            tm_text_init(&yaml, 200);
            tm_text_printf(&yaml, "%s: %s\n", field->key, field->choices[i]);
            int rc = parse(tm_text_string(&yaml), &arena, &settings, &e);
            assert_row(rc == 0, "%s: %s", tm_text_string(&yaml), e.text);
            assert_row(choice_of(&settings, field) == i, "%s: got %d", tm_text_string(&yaml),
                       choice_of(&settings, field));
            tm_text_deinit(&yaml);
            tm_arena_deinit(&arena);
        }
    }
}

static void test_one_cloud_alone(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        size_t count;
    } rows[] = {{"clouds: aws\n", 1}, {"clouds: []\n", 0}, {"clouds:\n  - aws\n  - gcp\n  - azure\n", 3}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_settings settings;
        struct tm_error e = {0};
        tm_arena_init(&arena, 1 << 20);
        assert_row(parse(rows[i].yaml, &arena, &settings, &e) == 0, "%s: %s", rows[i].yaml, e.text);
        assert_row(settings.clouds.count == rows[i].count, "%s: got %zu", rows[i].yaml, settings.clouds.count);
        tm_arena_deinit(&arena);
    }
}

/* A refused file names its place and changes nothing. */
static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *want;
    } rows[] = {
        {"color: sometimes\n", "c.yaml:1:8: color: expected one of auto, always, never, got \"sometimes\""},
        {"color: Never\n", "c.yaml:1:8: color: expected one of"},
        {"log: info\ncolor: [auto]\n", "c.yaml:2:8: color: expected one of auto, always, never, got a list"},
        {"color: never\nlog: 3\n", "c.yaml:2:6: log: expected one of error, warning, info, debug, got \"3\""},
        {"log:\n", "log: expected one of error, warning, info, debug, got nothing"},
        {"color: never\n\n  \nprecision: fp12\n", "c.yaml:4:12: precision: expected one of"},
        {"clouds: {a: b}\n", "clouds: expected list of strings, got a map; write for example [aws, gcp]"},
        {"clouds: [aws, [gcp]]\n", "clouds: expected list of strings, got a list"},
        {"data_dir: [x]\n", "data_dir: expected text, got a list"},
        {"data_dir:\n", "data_dir: expected text, got nothing"},
        {"colour: never\n", "c.yaml:1:9: colour: unknown key; did you mean \"color\"?"},
        {"color: never\nxyzzy: 1\n", "c.yaml:2:8: xyzzy: unknown key"},
        {"Color: never\n", "Color: unknown key; did you mean \"color\"?"},
        {"color: never\ncolor: auto\n", "c.yaml:2:"},
        {"color: never\n---\nlog: info\n", "c.yaml:3:1: second document"},
        {"color: &a never\n", "anchors"},
        {"color: *a\n", "c.yaml:1:"},
        {"color: [\n", "not YAML"},
        {"color: never\nlog: \x80\n", "c.yaml:2:6: byte 0x80 is not valid UTF-8"},
        {"- color\n", "c.yaml:1:1: expected a map of keys and values, got a list"},
        {"hello\n", "c.yaml:1:1: expected a map of keys and values, got hello"},
        {"# nothing\n", "c.yaml: document is empty"},
        {"", "c.yaml: document is empty"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_settings settings;
        struct tm_settings before;
        struct tm_error e = {0};
        tm_arena_init(&arena, 1 << 20);
        tm_settings_defaults(&before);
        int rc = parse(rows[i].yaml, &arena, &settings, &e);
        assert_row(rc == -(int)TM_EINPUT, "%s: got %d", rows[i].yaml, rc);
        assert_row(strstr(e.text, rows[i].want) != NULL, "%s: got \"%s\", want \"%s\"", rows[i].yaml, e.text,
                   rows[i].want);
        assert_row(settings.color == before.color && settings.log == before.log, "%s: taken in part", rows[i].yaml);
        tm_arena_deinit(&arena);
    }
}

/* `count` times `piece` between `head` and `tail`. */
static void repeat(struct tm_text *out, const char *head, const char *piece, int count, const char *tail)
{
    tm_text_puts(out, head);
    for (int i = 0; i < count; i++)
        tm_text_puts(out, piece);
    tm_text_puts(out, tail);
}

static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        const char *piece;
        int count;
        const char *tail;
        int want;
        const char *words;
    } rows[] = {
        {"clouds: ", "[", 1000, "", -(int)TM_ELIMIT, "nested more than 32 levels deep"},
        {"", "{a: ", 1000, "", -(int)TM_ELIMIT, "nested more than 32 levels deep"},
        {"clouds: [", "a,", 110000, "a]\n", -(int)TM_ELIMIT, "c.yaml"},
        {"clouds: [", "a,", 1000, "a]\n", 0, ""},
        {"data_dir: ", "x", 1000, "\n", 0, ""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_text yaml;
        struct tm_settings settings;
        struct tm_error e = {0};
        tm_arena_init(&arena, 64 << 20);
        tm_text_init(&yaml, 1 << 20);
        repeat(&yaml, rows[i].head, rows[i].piece, rows[i].count, rows[i].tail);
        int rc = parse(tm_text_string(&yaml), &arena, &settings, &e);
        assert_row(rc == rows[i].want, "row %zu (%s%s...): got %d %s", i, rows[i].head, rows[i].piece, rc, e.text);
        assert_error_has(e, rows[i].words);
        tm_text_deinit(&yaml);
        tm_arena_deinit(&arena);
    }
}

/* ---- from a file ---- */

static void test_which_file(void **state)
{
    (void)state;
    static const struct {
        const char *path; /* as --config gives it; NULL: the usual file */
        int want;
        const char *words;
        int color;
        const char *read;
    } rows[] = {
        {NULL, 0, "", TM_COLOR_NEVER, "/c/config.yaml"},
        {"/other.yaml", 0, "", TM_COLOR_ALWAYS, "/other.yaml"},
        {"/missing.yaml", -(int)TM_ENOTFOUND, "/missing.yaml", TM_COLOR_AUTO, ""},
        {"/bad.yaml", -(int)TM_EINPUT, "/bad.yaml:1:8: color: expected one of", TM_COLOR_AUTO, ""},
        {"/empty.yaml", -(int)TM_EINPUT, "/empty.yaml: file is empty", TM_COLOR_AUTO, ""},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_CONFIG_DIR", "/c"), 0);
    assert_int_equal(env->file_write(env, "/c/config.yaml", "color: never", 12, NULL), 0);
    assert_int_equal(env->file_write(env, "/other.yaml", "color: always", 13, NULL), 0);
    assert_int_equal(env->file_write(env, "/bad.yaml", "color: red", 10, NULL), 0);
    assert_int_equal(env->file_write(env, "/empty.yaml", "\n", 1, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const char *name = rows[i].path != NULL ? rows[i].path : "the usual file";
        struct tm_arena arena;
        struct tm_settings settings;
        struct tm_error e = {0};
        tm_arena_init(&arena, 1 << 20);
        tm_settings_defaults(&settings);
        int rc = tm_settings_load(env, rows[i].path, &arena, &settings, &e);
        assert_row(rc == rows[i].want, "%s: got %d %s", name, rc, e.text);
        assert_row(strstr(e.text, rows[i].words) != NULL, "%s: got \"%s\"", name, e.text);
        assert_row(settings.color == rows[i].color, "%s: color %d", name, settings.color);
        assert_row_string(name, settings.path, rows[i].read);
        tm_arena_deinit(&arena);
    }
    tm_env_virtual_destroy(env);
}

/* No usual file, or no folder for one: the defaults hold. */
static void test_no_file(void **state)
{
    (void)state;
    static const char *const homes[] = {NULL, "/home/x"};
    for (size_t i = 0; i < TM_COUNT(homes); i++) {
        struct tm_env *env = tm_env_virtual_create(1);
        struct tm_arena arena;
        struct tm_settings settings;
        tm_arena_init(&arena, 1 << 20);
        tm_settings_defaults(&settings);
        if (homes[i] != NULL) assert_int_equal(tm_env_virtual_set_variable(env, "HOME", homes[i]), 0);
        assert_int_equal(tm_settings_load(env, NULL, &arena, &settings, NULL), 0);
        assert_string_equal(settings.path, "");
        tm_arena_deinit(&arena);
        tm_env_virtual_destroy(env);
    }
}

static void test_a_file_too_long(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_arena arena;
    struct tm_text yaml;
    struct tm_settings settings;
    struct tm_error e = {0};
    tm_arena_init(&arena, 64 << 20);
    tm_text_init(&yaml, 2 << 20);
    tm_settings_defaults(&settings);
    repeat(&yaml, "color: never\n#", "x", (1 << 20) - 14, "");
    assert_int_equal(env->file_write(env, "/c", yaml.data, yaml.length, NULL), 0);
    assert_int_equal(tm_settings_load(env, "/c", &arena, &settings, &e), 0);
    tm_text_putc(&yaml, 'x');
    assert_int_equal(env->file_write(env, "/c", yaml.data, yaml.length, NULL), 0);
    assert_int_equal(tm_settings_load(env, "/c", &arena, &settings, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "/c");
    tm_text_deinit(&yaml);
    tm_arena_deinit(&arena);
    tm_env_virtual_destroy(env);
}

static void test_settings_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_arena arena;
        struct tm_settings settings;
        tm_arena_init(&arena, 1 << 20);
        rc = parse("color: never\nclouds: [aws, gcp]\ndata_dir: /x\n", &arena, &settings, NULL);
        tm_arena_deinit(&arena);
    });
}

TM_TEST_MAIN(TM_TEST(test_defaults), TM_TEST(test_every_key), TM_TEST(test_every_choice), TM_TEST(test_one_cloud_alone),
             TM_TEST(test_bad_values), TM_TEST(test_limits), TM_TEST(test_which_file), TM_TEST(test_no_file),
             TM_TEST(test_a_file_too_long), TM_TEST(test_settings_without_memory))
