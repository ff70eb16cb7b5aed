/* Which run is meant. */
#include "run/find_run.h"

#include "base/test/tempdir.h"

static void put(const struct tm_tempdir *dir, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir->path, name);
    assert_int_equal(tm_env_real()->file_write(tm_env_real(), path, "x", 1, NULL), 0);
}

static int find(const char *given, char out[512], struct tm_error *e)
{
    struct tm_arena arena;
    const char *dir = "";
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_run_find(tm_env_real(), given, &arena, &dir, e);
    (void)snprintf(out, 512, "%s", dir);
    tm_arena_deinit(&arena);
    return rc;
}

static void test_find(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_error e = {0};
    char got[512];
    char path[512];
    tm_tempdir_make(&dir);
    assert_int_equal(setenv("TIDEMILL_STATE_DIR", dir.path, 1), 0);
    put(&dir, "other/thing");
    assert_int_equal(find(NULL, got, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "there is no run in ");
    put(&dir, "first/record");
    put(&dir, ".hidden/record");
    assert_row(find(NULL, got, &e) == 0, "%s", e.text);
    (void)snprintf(path, sizeof path, "%s/first", dir.path);
    assert_string_equal(got, path);
    put(&dir, "second/run.yaml"); /* begun, and not yet recorded */
    assert_int_equal(find(NULL, got, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "which run? --state NAME: ");
    assert_error_has(e, "second");
    assert_int_equal(find("first", got, &e), 0);
    assert_string_equal(got, path);
    assert_int_equal(find(path, got, &e), 0);
    assert_int_equal(find("third", got, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "third: no tidemill run here");
    assert_false(tm_run_is_owned(tm_env_real(), path));
    TM_FAIL_EACH_ALLOC(rc = find("first", got, NULL));
    TM_FAIL_EACH_ALLOC({
        rc = find(NULL, got, NULL);
        rc = rc == -(int)TM_ENOTFOUND ? 0 : rc;
    });
    for (int i = 0; i < 9; i++) {
        (void)snprintf(path, sizeof path, "more%d/record", i);
        put(&dir, path);
    }
    assert_int_equal(find(NULL, got, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, ", ...");
    assert_int_equal(unsetenv("TIDEMILL_STATE_DIR"), 0);
    tm_tempdir_remove(&dir);
}

/* Whatever a run leaves makes another stamp; looking does not. */
static void test_stamp(void **state)
{
    (void)state;
    static const char *const left[] = {"token", "owner", "summary.json"};
    struct tm_env *env = tm_env_real();
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    for (size_t i = 0; i < TM_COUNT(left); i++) {
        struct tm_hash before = tm_run_stamp(env, dir.path);
        assert_row(tm_hash_equal(before, tm_run_stamp(env, dir.path)), "%s", left[i]);
        put(&dir, left[i]);
        assert_row(!tm_hash_equal(before, tm_run_stamp(env, dir.path)), "%s", left[i]);
    }
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(test_find), TM_TEST(test_stamp))
