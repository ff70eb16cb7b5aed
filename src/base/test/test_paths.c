#include "base/paths.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <string.h>

struct variable {
    const char *name;
    const char *value;
};

static struct tm_env *env_with(const struct variable *variables, size_t count)
{
    struct tm_env *env = tm_env_virtual_create(1);
    assert_non_null(env);
    for (size_t i = 0; i < count && variables[i].name != NULL; i++)
        assert_int_equal(tm_env_virtual_set_variable(env, variables[i].name, variables[i].value), 0);
    return env;
}

static void test_the_order_of_variables(void **state)
{
    (void)state;
    static const struct {
        struct variable variables[3];
        enum tm_path_kind kind;
        const char *name;
        const char *want;
    } rows[] = {
        {{{"HOME", "/h"}}, TM_PATH_CONFIG, "a.yaml", "/h/.config/tidemill/a.yaml"},
        {{{"HOME", "/h"}}, TM_PATH_DATA, "a", "/h/.local/share/tidemill/a"},
        {{{"HOME", "/h"}}, TM_PATH_STATE, "a", "/h/.local/state/tidemill/a"},
        {{{"HOME", "/h"}}, TM_PATH_CACHE, "a", "/h/.cache/tidemill/a"},
        {{{"HOME", "/h"}}, TM_PATH_CACHE, "", "/h/.cache/tidemill"},
        {{{"HOME", "/h"}, {"XDG_CONFIG_HOME", "/x"}}, TM_PATH_CONFIG, "a", "/x/tidemill/a"},
        {{{"HOME", "/h"}, {"XDG_DATA_HOME", "/x"}}, TM_PATH_DATA, "a", "/x/tidemill/a"},
        {{{"HOME", "/h"}, {"XDG_STATE_HOME", "/x"}}, TM_PATH_STATE, "a", "/x/tidemill/a"},
        {{{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}, TM_PATH_CACHE, "", "/x/tidemill"},
        {{{"HOME", "/h"}, {"XDG_DATA_HOME", "/x"}}, TM_PATH_CONFIG, "a", "/h/.config/tidemill/a"},
        {{{"HOME", "/h"}, {"XDG_CONFIG_HOME", "relative"}}, TM_PATH_CONFIG, "a", "/h/.config/tidemill/a"},
        {{{"HOME", "/h"}, {"XDG_CONFIG_HOME", ""}}, TM_PATH_CONFIG, "a", "/h/.config/tidemill/a"},
        {{{"XDG_CONFIG_HOME", "/x"}}, TM_PATH_CONFIG, "a", "/x/tidemill/a"},
        {{{"TIDEMILL_CONFIG_DIR", "/t"}, {"XDG_CONFIG_HOME", "/x"}}, TM_PATH_CONFIG, "a", "/t/a"},
        {{{"TIDEMILL_DATA_DIR", "/t"}}, TM_PATH_DATA, "", "/t"},
        {{{"TIDEMILL_STATE_DIR", "./t"}}, TM_PATH_STATE, "b/c", "./t/b/c"},
        {{{"TIDEMILL_CACHE_DIR", ""}, {"HOME", "/h"}}, TM_PATH_CACHE, "a", "/h/.cache/tidemill/a"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_env *env = env_with(rows[i].variables, 3);
        struct tm_arena arena;
        struct tm_error e = {0};
        tm_arena_init(&arena, 1 << 16);
        const char *path = tm_path(env, rows[i].kind, rows[i].name, &arena, &e);
        assert_row(path != NULL, "row %zu: %s", i, e.text);
        assert_row(strcmp(path, rows[i].want) == 0, "row %zu: got %s, want %s", i, path, rows[i].want);
        tm_arena_deinit(&arena);
        tm_env_virtual_destroy(env);
    }
}

static void test_no_home(void **state)
{
    (void)state;
    static const struct {
        struct variable variables[2];
        enum tm_path_kind kind;
        const char *words;
    } rows[] = {
        {{{0}}, TM_PATH_CONFIG, "no folder for user files: set TIDEMILL_CONFIG_DIR or HOME"},
        {{{"HOME", ""}}, TM_PATH_DATA, "set TIDEMILL_DATA_DIR or HOME"},
        {{{"XDG_STATE_HOME", "relative"}}, TM_PATH_STATE, "set TIDEMILL_STATE_DIR or HOME"},
        {{{"TIDEMILL_CONFIG_DIR", "/t"}}, TM_PATH_CACHE, "set TIDEMILL_CACHE_DIR or HOME"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_env *env = env_with(rows[i].variables, 2);
        struct tm_arena arena;
        struct tm_error e = {0};
        tm_arena_init(&arena, 1 << 16);
        assert_row(tm_path(env, rows[i].kind, "a", &arena, &e) == NULL, "row %zu: found a path", i);
        assert_int_equal(e.code, TM_ENOTFOUND);
        assert_error_has(e, rows[i].words);
        tm_arena_deinit(&arena);
        tm_env_virtual_destroy(env);
    }
}

static int path_once(struct tm_env *env)
{
    struct tm_arena arena;
    struct tm_error e = {0};
    tm_arena_init(&arena, 1 << 16);
    const char *path = tm_path(env, TM_PATH_CONFIG, "a", &arena, &e);
    tm_arena_deinit(&arena);
    return path == NULL ? -(int)e.code : 0;
}

static void test_without_memory(void **state)
{
    (void)state;
    static const struct variable home[] = {{"HOME", "/h"}};
    struct tm_env *env = env_with(home, 1);
    TM_FAIL_EACH_ALLOC(rc = path_once(env));
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_the_order_of_variables), TM_TEST(test_no_home), TM_TEST(test_without_memory))
