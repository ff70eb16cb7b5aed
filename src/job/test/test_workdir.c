/* The folder of a job's command goes to machines that do not have it: what is in it, what is left out, what is refused.
 */
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "job/workdir.h"

#include <string.h>

static struct tm_tempdir temp;
enum { TEMPDIR_MAX = 256 };
static struct tm_arena arena;

static void put(const char *name, const char *text)
{
    char path[TEMPDIR_MAX + 100];
    struct tm_env *env = tm_env_real();
    (void)snprintf(path, sizeof path, "%s/%s", temp.path, name);
    assert_int_equal(env->file_write_private(env, path, text, strlen(text), NULL), 0);
}

static bool is_there(const char *name)
{
    char path[TEMPDIR_MAX + 100];
    (void)snprintf(path, sizeof path, "%s/%s", temp.path, name);
    return tm_env_real()->file_exists(tm_env_real(), path);
}

static int setup(void **state)
{
    (void)state;
    tm_tempdir_make(&temp);
    tm_arena_init(&arena, 1 << 20);
    put("job/train.py", "print(1)");
    put("job/sub/data", "2");
    put("job/.git/config", "x");
    put("job/__pycache__/a.pyc", "x");
    put("job/state/token", "secret");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tm_arena_deinit(&arena);
    tm_tempdir_remove(&temp);
    return 0;
}

static void name_job(struct tm_job *job, const char *workdir)
{
    static char folder[TEMPDIR_MAX + 10];
    (void)snprintf(folder, sizeof folder, "%s/job", temp.path);
    *job = (struct tm_job){.engine = TM_JOB_ENGINE_COMMAND, .folder = folder, .workdir = workdir};
}

static void test_there_and_back(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_error e = {.text = ""};
    struct tm_job job;
    const char *file = NULL;
    char path[2][TEMPDIR_MAX + 100];
    (void)snprintf(path[0], sizeof path[0], "%s/job/state", temp.path);
    (void)snprintf(path[1], sizeof path[1], "%s/there", temp.path);
    name_job(&job, ".");
    assert_row(tm_workdir__pack(env, &job, path[0], &arena, &file, &e) == 0, "%s", e.text);
    assert_non_null(file);
    assert_row(tm_workdir__unpack(env, file, path[1], &e) == 0, "%s", e.text);
    assert_true(is_there("there/train.py") && is_there("there/sub/data"));
    assert_false(is_there("there/state") || is_there("there/.git") || is_there("there/__pycache__"));
}

static void test_what_goes(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_error e = {.text = ""};
    struct tm_job job;
    const char *file = "before";
    name_job(&job, NULL); /* not said: it does not go */
    assert_int_equal(tm_workdir__pack(env, &job, temp.path, &arena, &file, &e), 0);
    assert_null(file);
    assert_string_equal(tm_workdir__find(&job, &arena), job.folder);
    name_job(&job, "sub");
    assert_non_null(strstr(tm_workdir__find(&job, &arena), "/job/sub"));
    name_job(&job, "/elsewhere");
    assert_string_equal(tm_workdir__find(&job, &arena), "/elsewhere");
    name_job(&job, "nowhere");
    assert_int_equal(tm_workdir__pack(env, &job, temp.path, &arena, &file, &e), -(int)TM_EIO);
    assert_error_has(e, "nowhere");
    put("broken", "no archive");
    char path[2][TEMPDIR_MAX + 100];
    (void)snprintf(path[0], sizeof path[0], "%s/broken", temp.path);
    (void)snprintf(path[1], sizeof path[1], "%s/there", temp.path);
    assert_int_equal(tm_workdir__unpack(env, path[0], path[1], &e), -(int)TM_EIO);
}

static int pack(const struct tm_job *job)
{
    struct tm_arena own;
    struct tm_error e;
    const char *file = NULL;
    tm_arena_init(&own, 1 << 20);
    int rc = tm_workdir__pack(tm_env_real(), job, temp.path, &own, &file, &e);
    tm_arena_deinit(&own);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_job job;
    name_job(&job, "sub");
    TM_FAIL_EACH_ALLOC(rc = pack(&job));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_there_and_back, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_what_goes, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_memory, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
