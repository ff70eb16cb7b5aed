/* What may be removed from a state folder unasked. */
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "job/job_file.h"
#include "job/launch.h"
#include "run/state_folder.h"

#include <stdio.h>
#include <string.h>

static void put(const struct tm_tempdir *dir, const char *name, const char *text)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_error e = {0};
    (void)snprintf(path, sizeof path, "%s/%s", dir->path, name);
    assert_row(tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), &e) == 0, "%s", e.text);
}

static void test_clear(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_error e = {0};
    tm_tempdir_make(&dir);
    put(&dir, "job.yaml", "name: a\n");
    assert_false(tm_launch_has_work(tm_env_real(), dir.path));
    assert_int_equal(tm_launch_may_clear(tm_env_real(), dir.path, &e), 0);
    put(&dir, "record", "not one that can be read");
    assert_true(tm_launch_has_work(tm_env_real(), dir.path));
    assert_int_equal(tm_launch_may_clear(tm_env_real(), dir.path, &e), -(int)TM_EEXISTS);
    assert_row(strstr(e.text, "there is an unfinished run; continue it with --resume") != NULL, "%s", e.text);
    put(&dir, "summary.json", "{}"); /* nobody knows how it ended */
    assert_int_equal(tm_launch_may_clear(tm_env_real(), dir.path, &e), -(int)TM_EEXISTS);
    tm_tempdir_remove(&dir);
}

/* Going on: with what is there, or a reason why not; a folder that was given is absolute afterwards. */
static void test_resume(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_arena arena;
    struct tm_text changes;
    struct tm_run_settings settings;
    struct tm_error e = {0};
    const char *found = NULL;
    tm_tempdir_make(&dir);
    tm_arena_init(&arena, 1 << 16);
    tm_text_init(&changes, 1 << 20);
    tm_run_settings_init(&settings);
    assert_int_equal(tm_launch_find_dir(tm_env_real(), "a/b", "n", &arena, &found, &e), 0);
    assert_true(found[0] == '/' && strstr(found, "/a/b") != NULL);
    assert_int_equal(tm_launch_find_dir(tm_env_real(), dir.path, "n", &arena, &found, &e), 0);
    assert_string_equal(found, dir.path);
    assert_int_equal(tm_launch_resume(tm_env_real(), found, &settings, &changes, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "there is no run to resume");
    put(&dir, "record", "");
    put(&dir, "job.yaml", "name: a\n");
    assert_int_equal(tm_launch_resume(tm_env_real(), found, &settings, &changes, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "run.yaml is missing");
    put(&dir, "given.yaml", "name: b\n");
    char given[TM_STATE_PATH_MAX];
    (void)snprintf(given, sizeof given, "%s/given.yaml", dir.path);
    assert_int_equal(tm_job_file_load(tm_env_real(), given, &settings, &e), 0);
    assert_row(tm_launch_resume(tm_env_real(), found, &settings, &changes, &e) == 0, "%s", e.text);
    assert_string_equal(settings.job.name, "a"); /* the run's own counts */
    assert_row(strstr(tm_text_string(&changes), "name: a, not b") != NULL, "%s", tm_text_string(&changes));
    TM_FAIL_EACH_ALLOC({
        struct tm_arena own;
        struct tm_text text;
        tm_arena_init(&own, 1 << 16);
        tm_text_init(&text, 1 << 20);
        rc = tm_launch_find_dir(tm_env_real(), "a/b", "n", &own, &found, NULL);
        if (rc == 0) rc = tm_job_file_load(tm_env_real(), given, &settings, NULL);
        if (rc == 0) rc = tm_launch_resume(tm_env_real(), dir.path, &settings, &text, NULL);
        tm_text_deinit(&text);
        tm_arena_deinit(&own);
    });
    tm_run_settings_deinit(&settings);
    tm_text_deinit(&changes);
    tm_arena_deinit(&arena);
    tm_tempdir_remove(&dir);
}

/* A folder that cannot be made: nothing is rented, and all that was taken is given back. */
static void test_refused(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_error e = {0};
    struct tm_run_settings settings;
    struct tm_run_plan plan = {.speed_unknown = true};
    struct tm_launch *launch = NULL;
    char path[TM_STATE_PATH_MAX];
    tm_tempdir_make(&dir);
    put(&dir, "file", "");
    (void)snprintf(path, sizeof path, "%s/file/state", dir.path);
    tm_run_settings_init(&settings);
    tm_trace_init(&plan.trace);
    struct tm_launch_request request = {.dir = path, .settings = &settings, .plan = &plan, .program = "/bin/false"};
    int made = tm_launch_create(tm_env_real(), &request, &launch, &e);
    assert_true(made < 0);
    assert_int_equal(tm_launch_close(launch, made, &e), made);
    tm_launch_destroy(launch);
    TM_FAIL_EACH_ALLOC({
        int again = tm_launch_create(tm_env_real(), &request, &launch, NULL);
        assert_int_equal(tm_launch_close(launch, again, NULL), again);
        tm_launch_destroy(launch);
        rc = again == -(int)TM_ENOMEM ? again : 0;
    });
    tm_trace_deinit(&plan.trace);
    tm_run_settings_deinit(&settings);
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(test_clear), TM_TEST(test_resume), TM_TEST(test_refused))
