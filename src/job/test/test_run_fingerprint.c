/* What a job is known by: every key that the weights depend on, its data, its scripts; and nothing else. */
#include "base/alloc.h"
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "job/run_fingerprint.h"
#include "wire/fingerprint.h"

#include <stdio.h>
#include <string.h>

static const char gpt[] = "name: a\nmodel: {gpt: {layers: 2, hidden: 32, heads: 2, ctx: 8, dropout: 0.1}}\n"
                          "data: text.txt\nbatch: 8\nmicro_batch: 2\nsteps: 10\nseed: 1\n"
                          "optimizer: {lr: 0.003, clip: 1}\nfleet: {limit: 4}\n";
static const char own[] = "name: a\nrun: python train.py --size 3\nsteps: 10\nbatch: 8\nmicro_batch: 2\n"
                          "envs: {MODE: fast}\nfleet: {limit: 4}\n";

static int fingerprint(struct tm_env *env, const char *path, struct tm_fingerprint *out)
{
    struct tm_arena arena;
    struct tm_job job;
    struct tm_text text;
    tm_arena_init(&arena, 1 << 20);
    tm_job_init(&job);
    tm_text_init(&text, TM_RUN_FINGERPRINT_MAX);
    int rc = tm_job_load(env, path, &job, NULL);
    if (rc == 0) rc = tm_run__fingerprint(env, &job, &arena, &text, NULL);
    *out = (struct tm_fingerprint){.count = 0};
    if (rc == 0) tm_fingerprint_add_lines(out, tm_text_string(&text));
    tm_text_deinit(&text);
    tm_job_deinit(&job);
    tm_arena_deinit(&arena);
    return rc;
}

static void put(struct tm_env *env, const char *path, const char *text)
{
    assert_int_equal(env->file_write(env, path, text, strlen(text), NULL), 0);
}

static void change(struct tm_env *env, const char *text, const char *from, const char *to)
{
    char changed[1024];
    const char *at = strstr(text, from);
    assert_non_null(at);
    (void)snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    put(env, "/f/other.yaml", changed);
}

static void test_what_differs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *from, *to;
        const char *part; /* that differs; NULL: none */
    } rows[] = {
        {gpt, "lr: 0.003", "lr: 0.001", "lr"},
        {gpt, "seed: 1", "seed: 2", "seed"},
        {gpt, "layers: 2", "layers: 3", "layers"},
        {gpt, "dropout: 0.1", "dropout: 0.2", "dropout"},
        {gpt, "batch: 8", "batch: 16", "batch"},
        {gpt, "steps: 10", "steps: 11", "steps"},
        {gpt, "clip: 1", "clip: 2", "clip"},
        {gpt, "text.txt", "other.txt", "data"},
        {gpt, "limit: 4", "limit: 3", NULL}, /* of the run, not of what is trained */
        {gpt, "name: a", "name: b", NULL},
        {gpt, "lr: 0.003", "lr: 3e-3", NULL}, /* what is meant counts, not how it is written */
        {gpt, "text.txt", "same.txt", NULL},
        {own, "--size 3", "--size 4", "run"},
        {own, "MODE: fast", "MODE: slow", "envs.MODE"},
        {own, "micro_batch: 2", "micro_batch: 4", "micro_batch"},
        {own, "limit: 4", "limit: 3", NULL},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    assert_non_null(env);
    put(env, "/f/text.txt",
        "a text that is long enough for some windows of eight bytes each, and then some more of it");
    put(env, "/f/same.txt",
        "a text that is long enough for some windows of eight bytes each, and then some more of it");
    put(env, "/f/other.txt", "another text that is long enough for some windows of eight bytes each, and some more");
    put(env, "/f/train.py", "import tidemill\n");
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_fingerprint first, second;
        char why[TM_MESSAGE_STRING_MAX + 1];
        put(env, "/f/job.yaml", rows[i].text);
        change(env, rows[i].text, rows[i].from, rows[i].to);
        assert_row(fingerprint(env, "/f/job.yaml", &first) == 0, "row %zu", i);
        assert_row(fingerprint(env, "/f/other.yaml", &second) == 0, "row %zu", i);
        size_t differ = 0;
        for (size_t k = 0; k < second.count; k++) {
            if (!tm_fingerprint_differs(&first, second.parts[k], "b", why)) continue;
            differ++;
            assert_row(rows[i].part != NULL && strncmp(second.parts[k], rows[i].part, strlen(rows[i].part)) == 0,
                       "row %zu: %s", i, why);
        }
        assert_row(differ == (rows[i].part != NULL), "row %zu: %zu parts differ", i, differ);
    }
    struct tm_fingerprint before, after; /* the script that the command names */
    char why[TM_MESSAGE_STRING_MAX + 1] = "";
    put(env, "/f/job.yaml", own);
    assert_int_equal(fingerprint(env, "/f/job.yaml", &before), 0);
    put(env, "/f/train.py", "import tidemill # mended\n");
    assert_int_equal(fingerprint(env, "/f/job.yaml", &after), 0);
    for (size_t k = 0; k < after.count && why[0] == '\0'; k++)
        (void)tm_fingerprint_differs(&before, after.parts[k], "b", why);
    assert_non_null(strstr(why, "another program: program train.py"));
    tm_env_virtual_destroy(env);
}

static void test_memory(void **state)
{
    (void)state;
    static struct tm_fingerprint out;
    struct tm_env *env = tm_env_virtual_create(1);
    assert_non_null(env);
    put(env, "/f/text.txt",
        "a text that is long enough for some windows of eight bytes each, and then some more of it");
    put(env, "/f/train.py", "import tidemill\n");
    put(env, "/f/gpt.yaml", gpt);
    put(env, "/f/own.yaml", own);
    TM_FAIL_EACH_ALLOC({ rc = fingerprint(env, "/f/gpt.yaml", &out); });
    TM_FAIL_EACH_ALLOC({ rc = fingerprint(env, "/f/own.yaml", &out); });
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_what_differs), TM_TEST(test_memory))
