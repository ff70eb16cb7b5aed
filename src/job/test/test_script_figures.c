/* Figures of a user's script: what a call of init says, wherever and however it is written, and what it does not. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "job/script_figures.h"

#include <string.h>

static void test_scripts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *text;
        int64_t steps, batch, micro_batch, seed; /* steps 0 and batch 0: nothing is found */
        const char *determinism;
    } rows[] = {
        {"as the docs have it",
         "job = tidemill.torch.init(steps=300, batch=64, micro_batch=8, seed=1, determinism=\"bitwise\")\n", 300, 64, 8,
         1, "bitwise"},
        {"over lines, with comments",
         "job = tt.init(\n    steps=1_000,  # batch=7\n    batch = 16 ,\n)\nx = 'init(steps=2, batch=2)'\n", 1000, 16,
         0, -1, ""},
        {"behind others of that name",
         "wandb.init(project='steps=3, batch=4', config={'steps': 5})\ndef init(steps=9, batch=9):\n    pass\n"
         "\"\"\"tidemill.torch.init(steps=7, batch=7)\"\"\"\ninit(None, steps=20, batch=f(1, (2, 3)), seed=4)\n",
         20, 0, 0, 4, ""},
        {"behind one with steps alone", "warmup.init(steps=500)\ntidemill.torch.init(steps=10000, batch=64)\n", 10000,
         64, 0, -1, ""},
        {"a comment behind the last", "init(\n    steps=1000,\n    batch=64  # of all workers\n)\n", 1000, 64, 0, -1,
         ""},
        {"of Accelerate", "a = Accelerator(steps=10, batch=20)", 10, 20, 0, -1, ""},
        {"as an expression", "init(steps=args.steps, batch=2 * 32)", 0, 0, 0, -1, ""},
        {"not closed", "init(steps=10, batch='", 10, 0, 0, -1, ""},
        {"not there", "model.initialise(steps=3)\n# init(steps=3, batch=4)\n", 0, 0, 0, -1, ""},
        {"empty", "", 0, 0, 0, -1, ""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_script_figures got = {.seed = -1};
        bool found = tm_script_figures__read(rows[i].text, strlen(rows[i].text), &got);
        assert_row(found == (rows[i].steps > 0 || rows[i].batch > 0), "%s: %d", rows[i].name, found);
        assert_row(got.steps == rows[i].steps && got.batch == rows[i].batch && got.micro_batch == rows[i].micro_batch &&
                       got.seed == rows[i].seed,
                   "%s: %d %d %d %d", rows[i].name, (int)got.steps, (int)got.batch, (int)got.micro_batch,
                   (int)got.seed);
        if (found) assert_row_string(rows[i].name, got.determinism, rows[i].determinism);
    }
}

static int load(struct tm_env *env, const char *text, struct tm_job *job, struct tm_error *e)
{
    int rc = tm_job_parse("task.yaml", text, strlen(text), job, e);
    if (rc == 0) job->folder = "/home";
    return rc == 0 ? tm_script_figures__fill(env, job, e) : rc;
}

static struct tm_env *make_env(void)
{
    static const char script[] = "job = tidemill.torch.init(steps=300, batch=64, micro_batch=8)\n";
    struct tm_env *env = tm_env_virtual_create(7);
    assert_non_null(env);
    static const char *const files[] = {"/home/code/train.py", "/home/code/lab/small.py", "/home/code/lab/__main__.py"};
    for (size_t i = 0; i < TM_COUNT(files); i++)
        assert_int_equal(env->file_write(env, files[i], script, strlen(script), NULL), 0);
    return env;
}

static void test_jobs(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t steps, batch, micro_batch;
    } rows[] = {
        {"name: a\nworkdir: code\nrun: |\n  pip list\n  python train.py --lr 3\n", 300, 64, 8},
        {"name: a\nrun: python code/train.py", 300, 64, 8},
        {"name: a\nworkdir: code\nsteps: 20\nrun: python 'train.py'\n", 20, 64, 8},
        {"name: a\nworkdir: code\nsteps: 20\nbatch: 32\nrun: python train.py\n", 20, 32, 8},
        {"name: a\nworkdir: code\nsteps: 20\nbatch: 4\nrun: python train.py\n", 20, 4, 0},
        {"name: a\nworkdir: code\nmicro_batch: 4\nsamples: 640\nrun: python train.py\n", 10, 64, 4},
        {"name: a\nworkdir: code\nrun: python -m lab.small --lr 3\n", 300, 64, 8},
        {"name: a\nworkdir: code\nrun: python -m lab\n", 300, 64, 8},
        {"name: a\nworkdir: code\nrun: python -m torch.distributed.run train.py\n", 300, 64, 8},
        {"name: a\nworkdir: code\nrun: python -m lab.none\n", 0, 0, 0},
        {"name: a\nworkdir: code\nrun: python other.py\n", 0, 0, 0},
        {"name: a\nworkdir: code\nrun: ./train\n", 0, 0, 0},
        {"{name: a, workdir: code, run: python train.py}\n", 0, 0, 0},
    };
    struct tm_env *env = make_env();
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_job job, again;
        struct tm_error e = {.text = ""};
        tm_job_init(&job);
        tm_job_init(&again);
        assert_row(load(env, rows[i].text, &job, &e) == 0, "%s: %s", rows[i].text, e.text);
        assert_row(job.steps == rows[i].steps && job.batch == rows[i].batch && job.micro_batch == rows[i].micro_batch,
                   "%s: %d %d %d", rows[i].text, (int)job.steps, (int)job.batch, (int)job.micro_batch);
        assert_row_string(rows[i].text, job.folder, "/home");
        assert_row(tm_job_parse("again", job.document, strlen(job.document), &again, &e) == 0, "%s", e.text);
        assert_row(again.steps == job.steps && again.batch == job.batch, "%s: not in its document", rows[i].text);
        tm_job_deinit(&job);
        tm_job_deinit(&again);
    }
    tm_env_virtual_destroy(env);
}

static int try_fill(struct tm_error *e)
{
    struct tm_job job;
    tm_alloc_fail_hold(1);
    struct tm_env *env = make_env();
    tm_alloc_fail_hold(0);
    tm_job_init(&job);
    int rc = load(env, "name: a\nworkdir: code\nrun: python train.py\n", &job, e);
    assert_true(rc != 0 || job.steps == 300);
    tm_job_deinit(&job);
    tm_alloc_fail_hold(1);
    tm_env_virtual_destroy(env);
    tm_alloc_fail_hold(0);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_error e = {.text = ""};
    TM_FAIL_EACH_ALLOC(rc = try_fill(&e));
}

TM_TEST_MAIN(TM_TEST(test_scripts), TM_TEST(test_jobs), TM_TEST(test_memory))
