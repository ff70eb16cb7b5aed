/* Sweeps: the same runs in the same order, whatever the number of threads. */
#include "sim/sweep.h"

#include "sim/test/sim_helpers.h"

#define COST(process)                                                                                                  \
    "tidemill-cost: 1\nkind: paper\nrollback_ms: 14000\ntransfer_us: {1: 100, 1000000000: 1200000}\n"                  \
    "models: {test: {stages_max: 4, process_ms: " process ", rendezvous_ms: 6600, build_base_ms: 300, "                \
    "group_add: {per_instance_ms: 500}, group_remove: {per_instance_ms: 40}}}\n"

enum { MODELS = 2, TRACES = 3, POLICIES = 4, SEEDS = 2, RUNS = MODELS * TRACES * POLICIES * SEEDS };

struct scene {
    struct test_job *jobs[MODELS];
    struct tm_trace traces[TRACES];
    struct tm_sweep_model models[MODELS];
    struct tm_sweep_trace sweep_traces[TRACES];
    const struct tm_policy_info *policies[POLICIES];
    struct tm_sweep sweep;
};

static const uint64_t seeds[SEEDS] = {3, 1};

static void make_scene(struct scene *scene)
{
    static const char *const texts[TRACES] = {"tidemill-trace 1\nend: 1800s\n\n0 +6\n400 -2\n600 +1\n1333 -3\n",
                                              "tidemill-trace 1\nend: 900s\n\n0 +3\n60 +3\n120 -4\n",
                                              "tidemill-trace 1\nend: 1200s\n\n0 +1\n700 -1\n900 +5\n"};
    static const char *const names[TRACES] = {"first", "second", "third"};
    static const char *const policies[POLICIES] = {"ideal", "reactive", "parcae", "tidemill"};
    struct tm_error e = {0};
    memset(scene, 0, sizeof *scene);
    scene->jobs[0] = job_make(9, false, COST("240"), 8, test_speed);
    scene->jobs[1] = job_make(7, true, COST("30"), 8, test_speed);
    for (size_t i = 0; i < MODELS; i++)
        scene->models[i] = (struct tm_sweep_model){
            .name = i == 0 ? "a" : "b", .layouts = &scene->jobs[i]->layouts, .cost = &scene->jobs[i]->cost};
    for (size_t i = 0; i < TRACES; i++) {
        tm_trace_init(&scene->traces[i]);
        assert_int_equal(tm_trace_parse(names[i], texts[i], strlen(texts[i]), NULL, &scene->traces[i], &e), 0);
        scene->sweep_traces[i] =
            (struct tm_sweep_trace){names[i], &scene->traces[i], minute_options(0, scene->traces[i].end_ms)};
    }
    for (size_t i = 0; i < POLICIES; i++)
        scene->policies[i] = tm_policy_find(policies[i]);
    scene->sweep = (struct tm_sweep){.models = scene->models,
                                     .model_count = MODELS,
                                     .traces = scene->sweep_traces,
                                     .trace_count = TRACES,
                                     .policies = scene->policies,
                                     .policy_count = POLICIES,
                                     .seeds = seeds,
                                     .seed_count = SEEDS,
                                     .logs = true};
}

static void drop_scene(struct scene *scene)
{
    for (size_t i = 0; i < MODELS; i++)
        job_drop(scene->jobs[i]);
    for (size_t i = 0; i < TRACES; i++)
        tm_trace_deinit(&scene->traces[i]);
}

static bool same_log(const struct tm_sim_log *a, const struct tm_sim_log *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct tm_sim_interval *x = &a->intervals[i], *y = &b->intervals[i];
        if (x->time_s != y->time_s || x->after != y->after || x->pipelines != y->pipelines || x->stages != y->stages ||
            x->pause_s != y->pause_s || x->samples != y->samples || x->cause != y->cause)
            return false;
    }
    return true;
}

/* One run of a sweep against the same simulation alone. */
static void check_run(struct scene *scene, size_t i, const struct tm_sweep_run *run)
{
    size_t policy = i % POLICIES, seed = i / POLICIES % SEEDS, trace = i / POLICIES / SEEDS % TRACES;
    size_t model = i / POLICIES / SEEDS / TRACES;
    struct tm_sim_options options = scene->sweep_traces[trace].options;
    options.seed = seeds[seed];
    assert_row(strcmp(run->model, scene->models[model].name) == 0 &&
                   strcmp(run->trace, scene->sweep_traces[trace].name) == 0 &&
                   strcmp(run->policy, scene->policies[policy]->name) == 0 && run->seed == seeds[seed],
               "run %zu is %s, %s, %s", i, run->model, run->trace, run->policy);
    struct tm_sim_log log;
    tm_sim_log_init(&log);
    struct test_job *job = scene->jobs[model];
    struct tm_sim_result alone = simulate(tm_env_real(), job, &scene->traces[trace], run->policy, &options, &log);
    double ideal = simulate(tm_env_real(), job, &scene->traces[trace], "ideal", &options, NULL).samples_per_s;
    assert_row(run->result.samples == alone.samples && run->result.bill_usd == alone.bill_usd &&
                   run->result.reconfigurations == alone.reconfigurations,
               "run %zu: %.17g samples, alone %.17g", i, run->result.samples, alone.samples);
    assert_row(run->fraction_of_ideal == alone.samples_per_s / ideal, "run %zu: %g of ideal", i,
               run->fraction_of_ideal);
    assert_row(log.count > 0 && same_log(&run->log, &log), "run %zu: another log", i);
    tm_sim_log_deinit(&log);
}

static void test_any_number_of_threads(void **state)
{
    (void)state;
    static const int threads[] = {0, 1, 2, 5, 1000};
    struct scene scene;
    make_scene(&scene);
    for (size_t t = 0; t < TM_COUNT(threads); t++) {
        struct tm_sweep_run *runs;
        size_t count;
        struct tm_error e = {0};
        scene.sweep.threads = threads[t];
        int rc = tm_sweep_run(tm_env_real(), &scene.sweep, NULL, &runs, &count, &e);
        assert_row(rc == 0, "%d threads: %s", threads[t], e.text);
        assert_int_equal(count, RUNS);
        for (size_t i = 0; i < count; i++)
            check_run(&scene, i, &runs[i]);
        tm_sweep_free(runs, count);
    }
    drop_scene(&scene);
}

/* The first error in the order of the runs, and nothing else, whoever fails first. */
static void test_errors(void **state)
{
    (void)state;
    struct scene scene;
    make_scene(&scene);
    scene.sweep_traces[1].options.to_ms = 10000000; /* beyond its end */
    scene.sweep_traces[2].options.horizon = 0;
    for (int threads = 1; threads <= 6; threads++) {
        struct tm_sweep_run *runs = NULL;
        size_t count = 7;
        struct tm_error e = {0};
        scene.sweep.threads = threads;
        assert_int_equal(tm_sweep_run(tm_env_real(), &scene.sweep, NULL, &runs, &count, &e), -TM_EUSAGE);
        assert_error_has(e, "--from and --to");
        assert_true(runs == NULL && count == 7);
    }
    scene.sweep.seed_count = TM_SWEEP_RUNS_MAX;
    struct tm_error e = {0};
    assert_int_equal(tm_sweep_run(tm_env_real(), &scene.sweep, NULL, &(struct tm_sweep_run *){NULL}, &(size_t){0}, &e),
                     -TM_ELIMIT);
    assert_error_has(e, "at most 100000");
    drop_scene(&scene);
}

static int sweep_once(struct scene *scene)
{
    struct tm_sweep_run *runs;
    size_t count;
    struct tm_error e;
    int rc = tm_sweep_run(tm_env_real(), &scene->sweep, NULL, &runs, &count, &e);
    if (rc == 0) tm_sweep_free(runs, count);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    struct scene scene;
    make_scene(&scene);
    scene.sweep.threads = 1;
    scene.sweep.trace_count = 1;
    scene.sweep.seed_count = 1;
    scene.sweep.policy_count = 2;
    TM_FAIL_EACH_ALLOC({ rc = sweep_once(&scene); });
    tm_sweep_free(NULL, 0);
    drop_scene(&scene);
}

TM_TEST_MAIN(TM_TEST(test_any_number_of_threads), TM_TEST(test_errors), TM_TEST(test_without_memory))
