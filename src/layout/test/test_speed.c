/* Predicted speeds of shapes are what workload's prediction says of the same layout; what cannot train is 0. */
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
        {"gpt2-124m", 4, 8, 3, 1, false},  {"gpt3-6.7b", 1, 64, 1, 1, false}, {"gpt3-6.7b", 1, 64, 1, 16, true},
        {"gpt3-6.7b", 1, 64, 2, 16, true}, {"gpt3-6.7b", 8, 64, 2, 16, true},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_model model;
        struct tm_error e = {0};
        model_from(rows[i].model, &model);
        struct tm_speed_context context = context_of(&model, rows[i].gpus_per_node, rows[i].batch);
        double samples_per_s = -1, step_s = -1;
        int rc = tm_shape_speed_predicted(&context, rows[i].pipelines, rows[i].stages, &samples_per_s, &step_s, &e);
        assert_row(rc == 0, "row %zu: %s", i, e.text);
        assert_row((samples_per_s > 0) == rows[i].trains && (step_s > 0) == rows[i].trains, "row %zu: %g samples/s", i,
                   samples_per_s);
        if (rows[i].trains) {
            struct tm_fleet_group group = context.group;
            struct tm_predict_request request = context.request;
            struct tm_prediction want;
            group.nodes = rows[i].pipelines * rows[i].stages;
            request.groups = &group;
            request.group_count = 1;
            request.pipelines = rows[i].pipelines * rows[i].gpus_per_node;
            request.stages = rows[i].stages;
            rc = tm_predict(&request, &want, &e);
            assert_row(rc == 0, "row %zu: %s", i, e.text);
            assert_row(samples_per_s == want.samples_per_s && step_s == want.step_s.mean, "row %zu: %g, want %g", i,
                       samples_per_s, want.samples_per_s);
            assert_row(close_to(samples_per_s * step_s, rows[i].batch, 1e-6), "row %zu: %g samples a step", i,
                       samples_per_s * step_s);
        }
        tm_model_deinit(&model);
    }
}

/* All shapes of a fleet: more of the same never stop to train, and errors of the figures come through. */
static void test_shapes_of_a_fleet(void **state)
{
    (void)state;
    static struct tm_shapes shapes;
    static const struct tm_shape_rules rules = {.stages_min = 1, .stages_max = 8, .pipelines_min = 1};
    struct tm_model model;
    struct tm_error e = {0};
    model_from("gpt2-355m", &model);
    struct tm_speed_context context = context_of(&model, 1, 256);
    assert_int_equal(tm_shapes_init(&shapes, &model, &rules, 16, tm_shape_speed_predicted, &context, &e), 0);
    for (int nodes = 1; nodes <= 16; nodes++)
        assert_row(shapes.list[shapes.best[nodes]].samples_per_s >= shapes.list[shapes.best[nodes - 1]].samples_per_s,
                   "%d instances", nodes);
    assert_true(shapes.list[shapes.best[16]].samples_per_s > 4 * shapes.list[shapes.best[2]].samples_per_s);
    tm_shapes_deinit(&shapes);
    context.group.network_bit_s = -1;
    int rc = tm_shapes_init(&shapes, &model, &rules, 16, tm_shape_speed_predicted, &context, &e);
    assert_row(rc == -TM_EINPUT, "%d: %s", rc, e.text);
    tm_model_deinit(&model);
}

TM_TEST_MAIN(TM_TEST(test_speeds), TM_TEST(test_shapes_of_a_fleet))
