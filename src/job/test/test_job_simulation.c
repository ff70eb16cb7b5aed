/* Job files as the simulator takes them. */
#include "job/job_simulation.h"

#include "base/test/tempdir.h"

#include <math.h>

static const char *put(const struct tm_tempdir *dir, const char *name, const char *text)
{
    const char *path = tm_tempdir_path(dir, name);
    assert_int_equal(tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), NULL), 0);
    return path;
}

static void job_files_are_told_from_traces(void **state)
{
    static const struct {
        const char *name, *text;
        bool job;
    } rows[] = {
        {"a.yaml", "name: a\nmodel: gpt2-124m\n", true},
        {"b.job", "model: gpt2-124m\n", true},
        {"c.yaml", "a: [\n", true},
        {"d.csv", "time_s,nodes\n0,3\n60,2\n", false},
        {"e.json", "{\"metadata\": {}, \"data\": [0, 1]}", false},
        {"f", "", false},
    };
    struct tm_tempdir dir;
    (void)state;
    tm_tempdir_make(&dir);
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_job_simulation_is_job(tm_env_real(), put(&dir, rows[i].name, rows[i].text)) == rows[i].job, "%s",
                   rows[i].name);
    assert_false(tm_job_simulation_is_job(tm_env_real(), "hadp"));
    tm_tempdir_remove(&dir);
}

static int make(const char *path, struct tm_job_simulation *simulation, struct tm_error *e)
{
    struct tm_arena arena;
    tm_arena_init(&arena, 16 << 20);
    tm_job_simulation_init(simulation);
    int rc = tm_job_simulation_read(tm_env_real(), path, simulation, e);
    if (rc == 0) rc = tm_job_simulation_make(tm_env_real(), &arena, simulation, e);
    if (rc != 0) tm_job_simulation_deinit(simulation);
    if (rc == 0) simulation->verdict.why = NULL; /* of the arena */
    tm_arena_deinit(&arena);
    return rc;
}

/* A model's name is enough: nothing is trained here. */
static void a_planned_fleet_is_simulated(void **state)
{
    struct tm_tempdir dir;
    struct tm_job_simulation simulation;
    struct tm_sim_result result;
    struct tm_error e;
    (void)state;
    tm_tempdir_make(&dir);
    assert_int_equal(setenv("TIDEMILL_STATE_DIR", dir.path, 1), 0);
    const char *path = put(&dir, "job.yaml",
                           "name: a\nmodel: gpt2-124m\nsteps: 2000\nbatch: 64\nmicro_batch: 8\ndeadline: 20h\n"
                           "fleet: {pools: [{instance: g4dn.xlarge, count: 4, price: 0.2}]}\n");
    assert_row(make(path, &simulation, &e) == 0, "%s", e.text);
    assert_string_equal(simulation.trace, "drawn");
    assert_true(simulation.verdict.feasible && simulation.options.samples_total == 128000);
    assert_int_equal(simulation.plan.trace.instances_max, 4);
    struct tm_migrations *migrations = NULL;
    assert_int_equal(tm_migrations_create(simulation.layouts, simulation.cost, &migrations, &e), 0);
    struct tm_sim_job job = {simulation.layouts, migrations, simulation.cost, NULL};
    assert_row(tm_simulate(tm_env_real(), &job, &simulation.plan.trace, tm_policy_find("tidemill"), &simulation.options,
                           &result, NULL, &e) == 0,
               "%s", e.text);
    assert_true(isfinite(result.finished_at_s) && result.deadline_met && result.bill_usd > 0);
    tm_migrations_destroy(migrations);
    tm_job_simulation_deinit(&simulation);
    path = put(&dir, "command.yaml", "name: a\nrun: train\nsteps: 20\nbatch: 64\n");
    assert_int_equal(make(path, &simulation, &e), -(int)TM_EINPUT);
    assert_error_has(e, "the step time of run: is not known");
    tm_tempdir_remove(&dir);
}

static void without_memory(void **state)
{
    struct tm_tempdir dir;
    (void)state;
    tm_tempdir_make(&dir);
    const char *path = put(&dir, "job.yaml", "name: a\nmodel: gpt2-124m\nsteps: 2\nbatch: 64\n");
    TM_FAIL_EACH_ALLOC({
        struct tm_job_simulation simulation;
        tm_job_simulation_init(&simulation);
        rc = tm_job_simulation_read(tm_env_real(), path, &simulation, NULL);
        tm_job_simulation_deinit(&simulation);
    });
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(job_files_are_told_from_traces), TM_TEST(a_planned_fleet_is_simulated), TM_TEST(without_memory))
