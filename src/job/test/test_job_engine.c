/* One row an engine: each is whole, and tells the same of its job wherever it is asked. */
#include "base/alloc.h"
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "base/test/script_server.h"
#include "base/test/tempdir.h"
#include "job/job_engine.h"
#include "job/run_layouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const char *text;
    const char *engine;
    uint32_t layers;
    uint32_t micro_batches;
    int64_t batch;
} rows[] = {
    {"built in",
     "model: {gpt: {layers: 2, hidden: 32, heads: 2, ctx: 8}}\ndata: kjv-new-testament\nbatch: 8\nmicro_batch: 2\n"
     "steps: 10\n",
     "gpt", 4, 4, 8},
    {"paced", "engine: paced\nmodel: parcae/gpt-1.5b\nsteps: 10\n", "paced", 0, 0, 0},
    {"command", "run: python train.py\nsteps: 10\nbatch: 8\nmicro_batch: 4\n", "command", 8, 2, 8},
    {"command of many layers", "run: python train.py\nsteps: 10\nbatch: 8\nlayers: 20\n", "command", 20, 1, 8},
};

static int load(struct tm_env *env, const char *text, struct tm_run_settings *settings, struct tm_arena *arena,
                struct tm_run_work *out, struct tm_error *e)
{
    int rc = env->file_write(env, "job.yaml", text, strlen(text), e);
    if (rc == 0) rc = tm_job_load(env, "job.yaml", &settings->job, e);
    settings->job.folder = "/f";
    if (rc == 0) rc = tm_run_settings_settle(settings, e);
    return rc == 0 ? tm_run_work__load(env, &settings->job, arena, out, e) : rc;
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; tm_job_engine_names[i] != NULL; i++) {
        struct tm_job job = {.engine = (int)i};
        const struct tm_job_engine *engine = tm_job_engine_of(&job);
        assert_string_equal(engine->name, tm_job_engine_names[i]);
        assert_row(engine->load != NULL && engine->layouts != NULL && engine->fingerprint != NULL &&
                       engine->train != NULL && engine->costs != NULL,
                   "%s", engine->name);
        assert_row(!engine->weights || engine->result != NULL, "%s", engine->name);
    }
}

static void test_work(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    assert_non_null(env);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_run_settings settings;
        struct tm_arena arena;
        struct tm_run_work work = {.layers = 0};
        struct tm_run_layouts layouts;
        struct tm_error e = {0};
        tm_run_settings_init(&settings);
        tm_arena_init(&arena, 1 << 22);
        assert_row(load(env, rows[i].text, &settings, &arena, &work, &e) == 0, "%s: %s", rows[i].name, e.text);
        assert_string_equal(tm_job_engine_of(&settings.job)->name, rows[i].engine);
        assert_row(work.layers > 0 && work.micro_batches > 0, "%s", rows[i].name);
        assert_row(rows[i].layers == 0 || (work.layers == rows[i].layers && work.batch == rows[i].batch &&
                                           work.micro_batches == rows[i].micro_batches),
                   "%s: %u layers, %u micro-batches", rows[i].name, work.layers, work.micro_batches);
        assert_row(tm_run_layouts__init(env, "/state", &settings, &work, &layouts, &e) == 0, "%s: %s", rows[i].name,
                   e.text);
        assert_row(layouts.job.model.layer_count == work.layers, "%s", rows[i].name);
        tm_run_layouts__deinit(&layouts);
        tm_arena_deinit(&arena);
        tm_run_settings_deinit(&settings);
        TM_FAIL_EACH_ALLOC({
            tm_run_settings_init(&settings);
            tm_arena_init(&arena, 1 << 22);
            rc = load(env, rows[i].text, &settings, &arena, &work, NULL);
            tm_arena_deinit(&arena);
            tm_run_settings_deinit(&settings);
        });
    }
    tm_env_virtual_destroy(env);
}

/* The job's own command: where it is started, and what it is told. */
static struct started {
    char folder[64];
    int pid;
    int (*start)(struct tm_env *env, const struct tm_process_options *options, int *out_pid, struct tm_error *e);
} started;

static int start_and_end(struct tm_env *env, const struct tm_process_options *options, int *out_pid, struct tm_error *e)
{
    int rc = started.start(env, options, out_pid, e);
    if (rc != 0) return rc;
    (void)snprintf(started.folder, sizeof started.folder, "%s", options->folder);
    started.pid = *out_pid;
    tm_env_virtual_exit(env, *out_pid, 7);
    return 0;
}

static int train_command(struct tm_env *env, int *out_status, struct tm_error *e)
{
    static const char text[] = "run: python train.py\nsteps: 10\nbatch: 8\nseed: 3\ndeterminism: fast\n"
                               "envs: {A: job, B: job, TIDEMILL_STEPS: 9, TIDEMILL_FINGERPRINT: x}\n";
    struct tm_job job;
    struct tm_arena arena;
    tm_job_init(&job);
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_job_parse("job.yaml", text, strlen(text), &job, e);
    job.folder = "/f";
    if (rc == 0) rc = tm_job_engine_of(&job)->train(env, &job, &arena, out_status, e);
    tm_arena_deinit(&arena);
    tm_job_deinit(&job);
    return rc;
}

static void test_command(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value; /* NULL: it is not told, and stays what it is */
    } told[] = {{"A", NULL},
                {"B", "job"},
                {"TIDEMILL_STEPS", "10"},
                {"TIDEMILL_BATCH", "8"},
                {"TIDEMILL_SEED", "3"},
                {"TIDEMILL_LAYERS", "8"},
                {"TIDEMILL_MICRO_BATCH", "8"},
                {"TIDEMILL_DETERMINISM", "fast"}};
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_error e = {0};
    int status = 0;
    assert_non_null(env);
    assert_int_equal(tm_env_virtual_set_variable(env, "A", "agent"), 0);
    started.start = env->process_start_with;
    env->process_start_with = start_and_end;
    assert_row(train_command(env, &status, &e) == 0, "%s", e.text);
    assert_int_equal(status, 7);
    assert_string_equal(started.folder, "/f");
    for (size_t i = 0; i < TM_COUNT(told); i++) {
        const char *value = tm_env_virtual_process_variable(env, started.pid, told[i].name);
        assert_row(told[i].value == NULL ? value == NULL : value != NULL && strcmp(value, told[i].value) == 0, "%s",
                   told[i].name);
    }
    const char *fingerprint = tm_env_virtual_process_variable(env, started.pid, "TIDEMILL_FINGERPRINT");
    assert_true(fingerprint != NULL && strstr(fingerprint, "python train.py") != NULL);
    tm_env_virtual_destroy(env);
    TM_FAIL_EACH_ALLOC({
        struct tm_env *own = tm_env_virtual_create(1);
        if (own != NULL) own->process_start_with = start_and_end;
        rc = own == NULL ? -(int)TM_ENOMEM : train_command(own, &status, NULL);
        tm_env_virtual_destroy(own);
    });
}

/* ---- data in a bucket ---- */

static char told_path[300]; /* what the command was told; "": nothing */

static int start_nothing(struct tm_env *env, const struct tm_process_options *options, int *out_pid, struct tm_error *e)
{
    static const char name[] = "TIDEMILL_DATA=";
    (void)env;
    (void)e;
    for (const char *const *at = options->variables; *at != NULL; at++)
        if (strncmp(*at, name, strlen(name)) == 0)
            (void)snprintf(told_path, sizeof told_path, "%s", *at + strlen(name));
    *out_pid = 1;
    return 0;
}

static int wait_for_nothing(struct tm_env *env, int pid, int64_t timeout_ms, int *out_status, struct tm_error *e)
{
    (void)env;
    (void)pid;
    (void)timeout_ms;
    (void)e;
    *out_status = 0;
    return 0;
}

static void stay(struct tm_env *env)
{
    (void)env;
}

static int train_with_data(struct tm_env *env, const char *data, struct tm_error *e)
{
    char text[200];
    struct tm_job job;
    struct tm_arena arena;
    int status = 0;
    tm_job_init(&job);
    tm_arena_init(&arena, 1 << 20);
    (void)snprintf(text, sizeof text, "run: python train.py\nsteps: 10\nbatch: 8\ndata: %s\n", data);
    int rc = tm_job_parse("job.yaml", text, strlen(text), &job, e);
    if (rc == 0) rc = tm_job_engine_of(&job)->train(env, &job, &arena, &status, e);
    tm_arena_deinit(&arena);
    tm_job_deinit(&job);
    return rc;
}

#define PART "HTTP/1.1 206 x\r\nContent-Range: bytes 0-0/1\r\nContent-Length: 1\r\nConnection: close\r\n\r\nw"
#define NONE "HTTP/1.1 404 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

/* It is fetched, and the command is told where it lies; where it cannot be, the command is not begun. */
static void test_data(void **state)
{
    (void)state;
    static const char *const script[] = {PART, PART, NONE};
    struct tm_env env = *tm_env_real();
    struct tm_error e = {.text = ""};
    struct tm_tempdir dir;
    struct server s;
    struct tm_text text;
    char endpoint[TM_ADDRESS_MAX + 16];
    env.process_start_with = start_nothing;
    env.process_wait = wait_for_nothing;
    env.process_end_together = stay;
    tm_tempdir_make(&dir);
    start(&s, script, TM_COUNT(script));
    (void)snprintf(endpoint, sizeof endpoint, "http://%s", s.address);
    (void)setenv("XDG_CACHE_HOME", dir.path, 1);
    (void)setenv("AWS_ENDPOINT_URL", endpoint, 1);
    (void)setenv("AWS_REGION", "us-east-1", 1);
    (void)setenv("AWS_ACCESS_KEY_ID", "AKIA", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "hush", 1);
    assert_row(train_with_data(&env, "s3://tide/some/words", &e) == 0, "%s", e.text);
    tm_text_init(&text, 100);
    assert_int_equal(env.file_read(&env, told_path, &text, &e), 0);
    assert_string_equal(tm_text_string(&text), "w");
    tm_text_deinit(&text);
    told_path[0] = '\0';
    assert_int_equal(train_with_data(&env, "s3://tide/some/words", &e), -(int)TM_EINPUT);
    assert_error_has(e, "data: s3://tide/some/words: there is no such object");
    assert_string_equal(told_path, "");
    assert_int_equal(train_with_data(&env, "/here/words", &e), 0); /* as a machine has it that joined */
    assert_string_equal(told_path, "/here/words");
    stop(&s);
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(test_rows), TM_TEST(test_work), TM_TEST(test_command), TM_TEST(test_data))
