/* What may be removed from a state folder unasked. */
#include "base/test/harness.h"
#include "base/test/tempdir.h"
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
    struct tm_launch_request request = {
        .path = "job.yaml", .dir = path, .settings = &settings, .plan = &plan, .program = "/bin/false"};
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

TM_TEST_MAIN(TM_TEST(test_clear), TM_TEST(test_refused))
