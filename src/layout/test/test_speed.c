/* Predicted speeds of layouts are what workload's prediction says of the same layout; what cannot train is 0. */
#include "layout/speed.h"

#include "workload/test/workload_helpers.h"

static struct tm_compute_model compute;
static struct tm_comm_model comm;

static struct tm_speed_context context_of(const struct tm_model *model, int gpus_per_node, int batch)
{
    compute = tm_compute_prior();
    comm = tm_comm_gpus();
    return (struct tm_speed_context){
        .request = {.model = model, .precision = TM_FP16, .batch = batch, .compute = &compute, .comm = &comm},
        .group = {.instance = "v", .gpu = v100(), .gpus_per_node = gpus_per_node, .network_bit_s = 1e10}};
}

static void test_speeds(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int gpus_per_node, batch, pipelines, stages;
        bool trains;
    } rows[] = {
        {"gpt2-124m", 1, 64, 1, 1, true},  {"gpt2-124m", 1, 64, 4, 1, true},  {"gpt2-124m", 1, 64, 2, 3, true},
        {"gpt2-124m", 4, 64, 2, 2, true},  {"gpt2-124m", 1, 8, 8, 1, true},   {"gpt2-124m", 1, 8, 9, 1, false},
        {"gpt2-124m", 4, 2, 3, 1, false},  {"gpt3-6.7b", 1, 64, 1, 1, false}, {"gpt3-6.7b", 1, 64, 1, 16, true},
        {"gpt3-6.7b", 1, 64, 2, 16, true}, {"gpt3-6.7b", 8, 64, 2, 16, true},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_model model;
        struct tm_error e = {0};
        model_from(rows[i].model, &model);
        struct tm_speed_context context = context_of(&model, rows[i].gpus_per_node, rows[i].batch);
        double samples_per_s = -1, step_s = -1;
        int rc = tm_layout_speed_predicted(&context, rows[i].pipelines, rows[i].stages, &samples_per_s, &step_s, &e);
        assert_row(rc == 0, "row %zu: %s", i, e.text);
        assert_row((samples_per_s > 0) == rows[i].trains && (step_s > 0) == rows[i].trains, "row %zu: %g samples/s", i,
                   samples_per_s);
        if (rows[i].trains) {
            struct tm_fleet_group group = context.group;
            struct tm_predict_request request = context.request;
            struct tm_prediction want;
            group.instances = rows[i].pipelines * rows[i].stages;
            request.groups = &group;
            request.group_count = 1;
            request.pipelines = rows[i].pipelines * rows[i].gpus_per_node;
            request.stages = rows[i].stages;
            rc = tm_predict(&request, &want, &e);
            assert_row(rc == 0, "row %zu: %s", i, e.text);
            /* GPUs of one instance may also be stages of one pipeline: then it is faster than with a pipeline each */
            bool alone = rows[i].gpus_per_node == 1;
            bool right = alone ? samples_per_s == want.samples_per_s && step_s == want.step_s.mean
                               : samples_per_s >= want.samples_per_s;
            assert_row(right, "row %zu: %g, want %g", i, samples_per_s, want.samples_per_s);
            assert_row(close_to(samples_per_s * step_s, rows[i].batch, 1e-6), "row %zu: %g samples a step", i,
                       samples_per_s * step_s);
        }
        tm_model_deinit(&model);
    }
}

/* The workers of an instance share its GPUs: the same places on GPUs are as fast, whoever counts them. */
static void test_workers_share_gpus(void **state)
{
    (void)state;
    static const struct {
        int gpus, workers, pipelines, stages; /* of workers ... */
        int whole;                            /* ... which are so many instances' pipelines of one stage */
    } rows[] = {{4, 4, 8, 1, 2}, {4, 2, 4, 1, 2}, {8, 8, 8, 1, 1}, {4, 1, 2, 1, 2}};
    struct tm_model model;
    model_from("gpt2-124m", &model);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double samples_per_s = 0, whole_per_s = 0, step_s = 0;
        struct tm_speed_context context = context_of(&model, rows[i].gpus, 64);
        context.request.micro_batch = 1;
        (void)tm_layout_speed_predicted(&context, rows[i].whole, 1, &whole_per_s, &step_s, NULL);
        context.workers = rows[i].workers;
        (void)tm_layout_speed_predicted(&context, rows[i].pipelines, rows[i].stages, &samples_per_s, &step_s, NULL);
        assert_row(samples_per_s > 0 && close_to(samples_per_s, whole_per_s, 1e-12), "row %zu: %g, whole %g", i,
                   samples_per_s, whole_per_s);
    }
    double two = 0, pair = 0, step_s = 0;
    struct tm_speed_context context = context_of(&model, 1, 64); /* nothing to share: a GPU each, on one instance */
    (void)tm_layout_speed_predicted(&context, 2, 1, &two, &step_s, NULL);
    context.workers = 2;
    (void)tm_layout_speed_predicted(&context, 2, 1, &pair, &step_s, NULL);
    assert_row(pair >= two && pair < 2.1 * two, "%g, apart %g", pair, two);
    tm_model_deinit(&model);
}

/* All layouts of a fleet: more of the same never stop to train, and errors of the figures come through. */
static void test_layouts_of_a_fleet(void **state)
{
    (void)state;
    static struct tm_layouts layouts;
    static const struct tm_layout_rules rules = {.stages_min = 1, .stages_max = 8, .pipelines_min = 1};
    struct tm_model model;
    struct tm_error e = {0};
    model_from("gpt2-355m,gradients=16", &model); /* in 32 bits they would pace 16 instances on such links */
    struct tm_speed_context context = context_of(&model, 1, 256);
    assert_int_equal(tm_layouts_init(&layouts, &model, &rules, 16, tm_layout_speed_predicted, &context, &e), 0);
    for (int instances = 1; instances <= 16; instances++)
        assert_row(layouts.list[layouts.best[instances]].samples_per_s >=
                       layouts.list[layouts.best[instances - 1]].samples_per_s,
                   "%d instances", instances);
    assert_true(layouts.list[layouts.best[16]].samples_per_s > 4 * layouts.list[layouts.best[2]].samples_per_s);
    tm_layouts_deinit(&layouts);
    context.group.network_bit_s = -1;
    int rc = tm_layouts_init(&layouts, &model, &rules, 16, tm_layout_speed_predicted, &context, &e);
    assert_row(rc == -TM_EINPUT, "%d: %s", rc, e.text);
    tm_model_deinit(&model);
}

static int ten_samples(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                       struct tm_error *e)
{
    (void)context;
    (void)e;
    *step_s = stages == 7 ? 0 : 20.0 / (pipelines * stages);
    *samples_per_s = stages == 7 ? 0 : 10 / *step_s;
    return 0;
}

/* Layouts that were measured are as they were measured, others slower by as much as those together. */
static void test_as_measured(void **state)
{
    (void)state;
    struct tm_cost cost = {.steps = {{2, 2, 6000}, {4, 1, 9000}, {1, 7, 5000}}, .step_count = 3};
    struct tm_speed_measured measured = {.speed = ten_samples, .cost = &cost};
    static const struct {
        int pipelines, stages;
        double step_s;
    } rows[] = {{2, 2, 6}, {4, 1, 9}, {1, 2, 15}, {5, 4, 1.5}, {1, 7, 0}};
    assert_int_equal(tm_speed_measured_compare(&measured, NULL), 0);
    assert_true(close_to(measured.ratio, 1.5, 1e-12));
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double samples_per_s = -1, step_s = -1;
        assert_int_equal(
            tm_layout_speed_as_measured(&measured, rows[i].pipelines, rows[i].stages, &samples_per_s, &step_s, NULL),
            0);
        double want = rows[i].step_s > 0 ? 10 / rows[i].step_s : 0;
        assert_row(close_to(step_s, rows[i].step_s, 1e-12) && close_to(samples_per_s, want, 1e-12),
                   "row %zu: %g s, %g samples/s", i, step_s, samples_per_s);
    }
    cost.step_count = 0;
    assert_int_equal(tm_speed_measured_compare(&measured, NULL), 0);
    assert_true(measured.ratio == 1);
}

TM_TEST_MAIN(TM_TEST(test_as_measured), TM_TEST(test_speeds), TM_TEST(test_workers_share_gpus),
             TM_TEST(test_layouts_of_a_fleet))
