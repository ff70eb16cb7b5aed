/* What workers write, as it is shown; and in what two job files differ. */
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "job/job_changes.h"
#include "job/run_output.h"
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

static void test_output(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_text out;
    tm_tempdir_make(&dir);
    tm_text_init(&out, 1 << 20);
    put(&dir, "logs/worker-1.log", "old\n");
    put(&dir, "logs/1.log", "the agent's own\n");
    struct tm_run_output *output = tm_run_output_create(tm_env_real(), dir.path);
    assert_non_null(output);
    tm_run_output_take(output, false, &out);
    assert_string_equal(tm_text_string(&out), "");
    put(&dir, "logs/worker-1.log", "old\n\033[31mred\033[0m\t10%\r20%\nhalf");
    put(&dir, "logs/worker-12.log", "\001bell\n");
    tm_run_output_take(output, false, &out);
    assert_true(strstr(tm_text_string(&out), "[1] 20%\n") != NULL);
    assert_true(strstr(tm_text_string(&out), "[12] ?bell\n") != NULL);
    assert_true(strstr(tm_text_string(&out), "old") == NULL && strstr(tm_text_string(&out), "half") == NULL);
    tm_text_clear(&out);
    tm_run_output_take(output, true, &out);
    assert_string_equal(tm_text_string(&out), "[1] half\n");
    tm_run_output_destroy(output);
    TM_FAIL_EACH_ALLOC({
        struct tm_text text;
        tm_text_init(&text, 1 << 20);
        struct tm_run_output *made = tm_run_output_create(tm_env_real(), dir.path);
        if (made != NULL) tm_run_output_take(made, true, &text);
        rc = made == NULL ? -(int)TM_ENOMEM : 0;
        tm_run_output_destroy(made);
        tm_text_deinit(&text);
    });
    tm_text_deinit(&out);
    tm_tempdir_remove(&dir);
}

static int changes(const char *own, const char *given, struct tm_text *out, struct tm_error *e)
{
    struct tm_job first;
    struct tm_job second;
    tm_job_init(&first);
    tm_job_init(&second);
    int rc = tm_job_parse("own", own, strlen(own), &first, e);
    if (rc == 0) rc = tm_job_parse("given", given, strlen(given), &second, e);
    if (rc == 0) rc = tm_job__changes(&first, &second, out, e);
    tm_job_deinit(&second);
    tm_job_deinit(&first);
    return rc;
}

static void test_changes(void **state)
{
    (void)state;
    static const char own[] = "name: a\nsteps: 5\nfleet: {limit: 4, speed: 60}\nanchors: [1x a]\n";
    static const char same[] = "# the same\nfleet:\n  speed: 60\n  limit: 4\nsteps: 5\nname: a\nanchors: [1x a]\n";
    static const char given[] = "steps: 6\nname: a\nfleet: {limit: 4, seed: 2}\nanchors: [1x b]\n";
    struct tm_text out;
    struct tm_error e = {0};
    tm_text_init(&out, 1 << 20);
    assert_row(changes(own, same, &out, &e) == 0, "%s", e.text);
    assert_string_equal(tm_text_string(&out), "");
    assert_int_equal(changes(own, given, &out, &e), 0);
    const char *const says[] = {"  steps: 5, not 6 as ", "  fleet.speed: 60, not nothing as ",
                                "  fleet.seed: nothing, not 2 as ", "  anchors: [...], not [...] as "};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        assert_row(strstr(tm_text_string(&out), says[i]) != NULL, "%s: %s", says[i], tm_text_string(&out));
    TM_FAIL_EACH_ALLOC({
        struct tm_text text;
        tm_text_init(&text, 1 << 20);
        rc = changes(own, given, &text, NULL);
        tm_text_deinit(&text);
    });
    tm_text_deinit(&out);
}

TM_TEST_MAIN(TM_TEST(test_output), TM_TEST(test_changes))
