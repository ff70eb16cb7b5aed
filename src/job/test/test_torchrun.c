/* What torchrun is told, as a job file of ours that is read back. */
#include "base/test/harness.h"
#include "job/torchrun.h"
#include "workload/job.h"

#include <stdio.h>
#include <string.h>

static void test_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t least, most; /* 0: refused */
    } rows[] = {{"1", 1, 1},  {"1:4", 1, 4}, {"2:2", 2, 2}, {"4:2", 0, 0}, {"0:2", 0, 0},
                {"1:", 0, 0}, {":4", 0, 0},  {"", 0, 0},    {"two", 0, 0}, {"1:257", 0, 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {.text = ""};
        int64_t least = 0;
        int64_t most = 0;
        int rc = tm_torchrun_nodes(rows[i].text, &least, &most, &e);
        assert_row(rc == (rows[i].most > 0 ? 0 : -(int)TM_EUSAGE), "%s", rows[i].text);
        assert_row(least == rows[i].least && most == rows[i].most, "%s", rows[i].text);
    }
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *from, *name;
    } rows[] = {{"train.py", "train"},   {"a/b/train_small.py", "train_small"},
                {"two of/us.1", "us-1"}, {"", "t"},
                {".py", "tpy"},          {"-x", "tx"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char name[64];
        tm_torchrun_name(rows[i].from, name);
        assert_row(strcmp(name, rows[i].name) == 0, "%s: %s", rows[i].from, name);
    }
}

/* Words of any kind reach the shell as they are. */
static void test_job(void **state)
{
    (void)state;
    static const char *const words[] = {"train.py", "it's", "a \"b\" \\ $c", "two\nlines", "#x: {}"};
    struct tm_torchrun given = {.name = "n",
                                .nodes_min = 2,
                                .nodes_max = 4,
                                .workers = 3,
                                .max_restarts = 0,
                                .steps = 7,
                                .batch = 8,
                                .micro_batch = 2,
                                .seed = -1,
                                .determinism = "bitwise",
                                .folder = "/tmp/a \"b\"",
                                .python = "python3",
                                .words = words,
                                .word_count = TM_COUNT(words)};
    struct tm_text text;
    struct tm_job job;
    struct tm_error e = {.text = ""};
    tm_text_init(&text, 1 << 16);
    tm_job_init(&job);
    assert_row(tm_torchrun_job(&given, &text, &e) == 0, "%s", e.text);
    assert_row(tm_job_parse("a.yaml", text.data, text.length, &job, &e) == 0, "%s", e.text);
    assert_string_equal(job.run, "exec 'python3' -u 'train.py' 'it'\\''s' 'a \"b\" \\ $c' 'two\nlines' '#x: {}'");
    assert_string_equal(job.workdir, "/tmp/a \"b\"");
    assert_true(job.steps == 7 && job.batch == 8 && job.micro_batch == 2 && job.max_failures == 1);
    assert_true(job.fleet.limit == 4 && job.fleet.workers == 3 && job.fleet.workers_min == 6);
    tm_job_deinit(&job);
    given.batch = 0;
    assert_int_equal(tm_torchrun_job(&given, &text, &e), -(int)TM_EUSAGE);
    given.word_count = 0;
    assert_int_equal(tm_torchrun_job(&given, &text, &e), -(int)TM_EUSAGE);
    tm_text_deinit(&text);
    given.batch = 8;
    given.word_count = 1;
    TM_FAIL_EACH_ALLOC({
        struct tm_text out;
        tm_text_init(&out, 1 << 16);
        rc = tm_torchrun_job(&given, &out, NULL);
        tm_text_deinit(&out);
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
