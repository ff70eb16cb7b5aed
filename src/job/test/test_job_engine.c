/* One row an engine: each is whole, and tells the same of its job wherever it is asked. */
#include "base/alloc.h"
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "job/job_engine.h"
#include "job/run_layouts.h"

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
    struct tm_job job;
    tm_job_init(&job);
    int rc = env->file_write(env, "job.yaml", text, strlen(text), e);
    if (rc == 0) rc = tm_job_load(env, "job.yaml", &job, e);
    if (rc == 0) rc = tm_run_settings_of_job(&job, "job.yaml", "/f", settings, e);
    if (rc == 0) rc = tm_run_work__load(env, &job, settings, arena, out, e);
    tm_job_deinit(&job);
    return rc;
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; tm_run_engine_names[i] != NULL; i++) {
        struct tm_run_settings settings = {.engine = (int)i};
        const struct tm_job_engine *engine = tm_job_engine_of(&settings);
        assert_string_equal(engine->name, tm_run_engine_names[i]);
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
        struct tm_run_work work;
        struct tm_run_layouts layouts;
        struct tm_error e = {0};
        tm_run_settings_init(&settings);
        tm_arena_init(&arena, 1 << 22);
        assert_row(load(env, rows[i].text, &settings, &arena, &work, &e) == 0, "%s: %s", rows[i].name, e.text);
        assert_string_equal(tm_job_engine_of(&settings)->name, rows[i].engine);
        assert_row(work.steps == 10 && work.layers > 0 && work.micro_batches > 0, "%s", rows[i].name);
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

TM_TEST_MAIN(TM_TEST(test_rows), TM_TEST(test_work))
