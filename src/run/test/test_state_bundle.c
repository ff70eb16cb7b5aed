/* The books of a run as one piece, and back. */
#include "run/state_bundle.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "run/run_home.h"
#include "run/state_folder.h"

#include <stdio.h>
#include <string.h>

static void put(struct tm_env *env, const char *path, const char *text)
{
    assert_int_equal(env->file_write_private(env, path, text, strlen(text), NULL), 0);
}

static void check(struct tm_env *env, const char *path, const char *want)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    assert_row(env->file_read(env, path, &text, NULL) == 0, "%s", path);
    assert_string_equal(tm_text_string(&text), want);
    tm_text_deinit(&text);
}

static void fill(struct tm_env *env)
{
    put(env, "/a/job.yaml", "name: x\n");
    put(env, "/a/token", "00000000000000aa-secret");
    put(env, "/a/record", "pages");
    put(env, "/a/record-wal", "frames");
    put(env, "/a/cloud/account", "1");
    put(env, "/a/logs/worker-1.log", "hello\nthere\n");
    put(env, "/a/logs/odd name", "not taken");
    put(env, "/a/copies", "not taken");
}

static void books_go_there_and_back(void **state)
{
    struct tm_env *env = tm_env_virtual_create(3);
    struct tm_text books;
    struct tm_error e = {.text = ""};
    (void)state;
    fill(env);
    put(env, "/b/record", "older and longer");
    put(env, "/b/record-shm", "of the older");
    tm_text_init(&books, TM_BUNDLE_BYTES_MAX);
    assert_row(tm_state_pack(env, "/a", &books, &e) == 0, "%s", e.text);
    assert_row(tm_state__unpack(env, "/b", books.data, books.length, &e) == 0, "%s", e.text);
    check(env, "/b/job.yaml", "name: x\n");
    check(env, "/b/token", "00000000000000aa"); /* without what lets one in */
    check(env, "/b/record", "pages");
    check(env, "/b/record-wal", "frames");
    check(env, "/b/cloud/account", "1");
    check(env, "/b/logs/worker-1.log", "hello\nthere\n");
    assert_false(env->file_exists(env, "/b/record-shm"));
    assert_false(env->file_exists(env, "/b/copies"));
    assert_false(env->file_exists(env, "/b/logs/odd name"));
    tm_text_deinit(&books);
    tm_env_virtual_destroy(env);
}

/* Whatever byte is another: nothing is written. */
static void damage_is_found(void **state)
{
    struct tm_env *env = tm_env_virtual_create(3);
    struct tm_text books;
    struct tm_error e;
    (void)state;
    fill(env);
    tm_text_init(&books, TM_BUNDLE_BYTES_MAX);
    assert_int_equal(tm_state_pack(env, "/a", &books, &e), 0);
    for (size_t i = 0; i < books.length; i++) {
        books.data[i] ^= 1;
        assert_row(tm_state__unpack(env, "/c", books.data, books.length, &e) == -(int)TM_EINPUT, "byte %zu", i);
        books.data[i] ^= 1;
        assert_row(tm_state__unpack(env, "/c", books.data, i, &e) == -(int)TM_EINPUT, "cut at %zu", i);
    }
    assert_false(env->file_exists(env, "/c/job.yaml"));
    tm_text_deinit(&books);
    tm_env_virtual_destroy(env);
}

static void where_a_run_is_reached(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } rows[] = {{"https://10.0.0.5:7443 ab AB:CD tide", true},
                {"https://10.0.0.5:7443 ab AB:CD tide\n", true},
                {"10.0.0.5:7443 ab AB:CD tide", false},
                {"https://10.0.0.5:7443 ab AB:CD", false},
                {"https://10.0.0.5:7443 ab AB:CD tide x", false},
                {"https://10.0.0.5:7443  AB:CD tide", false},
                {"", false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_home_where where;
        char text[100];
        (void)snprintf(text, sizeof text, "%s", rows[i].text);
        assert_row(tm_home_where_read(text, &where) == rows[i].good, "row %zu", i);
        if (!rows[i].good) continue;
        assert_string_equal(where.address, "10.0.0.5:7443");
        assert_string_equal(where.name, "tide");
    }
}

static void without_memory(void **state)
{
    struct tm_env *env = tm_env_virtual_create(3);
    (void)state;
    fill(env);
    TM_FAIL_EACH_ALLOC({
        struct tm_text books;
        struct tm_error e;
        tm_text_init(&books, TM_BUNDLE_BYTES_MAX);
        rc = tm_state_pack(env, "/a", &books, &e);
        tm_text_deinit(&books);
    });
    tm_env_virtual_destroy(env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(books_go_there_and_back), cmocka_unit_test(damage_is_found),
                                       cmocka_unit_test(where_a_run_is_reached), cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
