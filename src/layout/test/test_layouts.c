/* Layouts: the list, the fastest on so many instances, and how layers are cut into stages. */
#include "layout/layouts.h"

#include "base/env_virtual.h"
#include "layout/test/layout_helpers.h"

static const struct tm_layout_rules any_rules = {
    .stages_min = 1, .stages_max = TM_LAYOUT_STAGES_MAX, .pipelines_min = 1};

static struct test_job *bare(int layers, bool equal)
{
    struct test_job *job = tm_calloc(1, sizeof *job);
    assert_non_null(job);
    test_model(job, layers, equal);
    return job;
}

static void make(struct test_job *job, const struct tm_layout_rules *rules, int instances, tm_layout_speed speed)
{
    struct tm_error e = {0};
    int rc = tm_layouts_init(&job->layouts, &job->model, rules, instances, speed, NULL, &e);
    assert_row(rc == 0, "%s", e.text);
}

static void drop(struct test_job *job)
{
    tm_layouts_deinit(&job->layouts);
    tm_free(job);
}

/* ---- cuts ---- */

/* Layers of each stage, by hand: the first layer on top of the first stage, what is left over to the stages before the
 * last, from the back. */
static void test_cuts_by_hand(void **state)
{
    (void)state;
    static const struct {
        int layers, stages;
        const char *want;
    } rows[] = {
        {1, 1, "1"},
        {2, 1, "2"},
        {3, 2, "2 1"},
        {4, 2, "3 1"},
        {4, 3, "2 1 1"},
        {6, 4, "2 1 2 1"},
        {7, 4, "2 2 2 1"},
        {8, 4, "3 2 2 1"},
        {9, 3, "4 3 2"},
        {10, 3, "4 3 3"},
        {10, 4, "3 2 3 2"},
        {9, 8, "2 1 1 1 1 1 1 1"},
        {50, 8, "7 6 6 6 6 6 7 6"},
        {50, 6, "9 8 8 8 9 8"},
        {50, 32, "2 1 1 1 1 1 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 1"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct test_job *job = bare(rows[i].layers, false);
        make(job, &any_rules, 64, NULL);
        const struct tm_cut *cut = &job->layouts.cuts[rows[i].stages];
        char got[256] = "", place[64];
        size_t used = 0;
        for (int s = 0; s < cut->stages; s++)
            used += (size_t)snprintf(got + used, sizeof got - used, "%s%d", s > 0 ? " " : "",
                                     cut->first[s + 1] - cut->first[s]);
        (void)snprintf(place, sizeof place, "%d layers in %d stages", rows[i].layers, rows[i].stages);
        assert_row_string(place, got, rows[i].want);
        drop(job);
    }
}

/* Every cut holds each layer once, in order, and its bytes are those of its layers. */
static void test_cuts_hold_every_layer_once(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 40; layers++) {
        struct test_job *job = bare(layers, false);
        make(job, &any_rules, 64, NULL);
        for (int stages = 1; stages <= TM_LAYOUT_STAGES_MAX; stages++) {
            const struct tm_cut *cut = &job->layouts.cuts[stages];
            bool possible = layers == 1 ? stages == 1 : stages < layers;
            assert_row(cut->stages == (possible ? stages : 0), "%d layers, %d stages", layers, stages);
            if (!possible) continue;
            assert_row(cut->first[0] == 0 && cut->first[stages] == layers, "%d layers, %d stages", layers, stages);
            for (int s = 0; s < stages; s++) {
                double params = 0;
                assert_row(cut->first[s] < cut->first[s + 1], "%d layers, stage %d of %d is empty", layers, s, stages);
                for (int i = cut->first[s]; i < cut->first[s + 1]; i++)
                    params += job->layers[i].params;
                double got = tm_layouts_stage_bytes(&job->layouts, stages, s);
                assert_row(close_to(got, params * 12, 1e-12), "%d layers, stage %d of %d: %g", layers, s, stages, got);
            }
        }
        drop(job);
    }
}

/* ---- the list ---- */

static void test_which_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct tm_layout_rules rules;
        int layers, instances;
        const char *want;
    } rows[] = {
        {"any", {1, 64, 1, {0}}, 9, 4, "0x0 1x1 2x1 3x1 4x1 1x2 2x2 1x3 1x4"},
        {"no instances", {1, 64, 1, {0}}, 9, 0, "0x0"},
        {"one instance", {1, 64, 1, {0}}, 9, 1, "0x0 1x1"},
        {"one instance, too few", {2, 64, 1, {0}}, 9, 1, "0x0"},
        {"at least two stages", {2, 3, 1, {0}}, 9, 6, "0x0 1x2 2x2 3x2 1x3 2x3"},
        {"skipped", {1, 4, 1, {[1] = true, [3] = true}}, 9, 4, "0x0 1x2 2x2 1x4"},
        {"two pipelines at least", {2, 3, 2, {0}}, 9, 6, "0x0 1x2 2x2 3x2 1x3 2x3"},
        {"fewer layers than stages", {1, 64, 1, {0}}, 3, 4, "0x0 1x1 2x1 3x1 4x1 1x2 2x2"},
        {"fewer layers than the least", {4, 8, 1, {0}}, 3, 8, "0x0"},
        {"one layer", {1, 64, 1, {0}}, 1, 3, "0x0 1x1 2x1 3x1"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct test_job *job = bare(rows[i].layers, true);
        make(job, &rows[i].rules, rows[i].instances, test_speed);
        char got[256] = "";
        size_t used = 0;
        for (size_t k = 0; k < job->layouts.count; k++) {
            const struct tm_layout *layout = &job->layouts.list[k];
            used += (size_t)snprintf(got + used, sizeof got - used, "%s%dx%d", k > 0 ? " " : "", layout->pipelines,
                                     layout->stages);
            assert_row(layout->instances == layout->pipelines * layout->stages, "%s", rows[i].name);
            assert_row(tm_layouts_find(&job->layouts, layout->pipelines, layout->stages) == (int)k, "%s: %zu not found",
                       rows[i].name, k);
            bool trains = layout->instances > 0 && layout->pipelines >= rows[i].rules.pipelines_min;
            assert_row((layout->samples_per_s > 0) == trains, "%s: speed of %zu", rows[i].name, k);
        }
        assert_row_string(rows[i].name, got, rows[i].want);
        drop(job);
    }
}

static void test_what_is_not_found(void **state)
{
    (void)state;
    static const int rows[][2] = {{0, 0},  {0, 2},  {-1, 2}, {1, 0},    {1, -3}, {4, 2}, {1, 3},
                                  {1, 64}, {1, 65}, {3, 4},  {2000, 1}, {1, 5},  {1, 8}, {2147483647, 2}};
    struct tm_layout_rules rules = {.stages_min = 2, .stages_max = 4, .pipelines_min = 1, .skipped = {[3] = true}};
    struct test_job *job = bare(9, true);
    make(job, &rules, 7, test_speed);
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_layouts_find(&job->layouts, rows[i][0], rows[i][1]) == TM_LAYOUT_PAUSE, "%dx%d found", rows[i][0],
                   rows[i][1]);
    assert_int_equal(job->layouts.stages_min, 2);
    drop(job);
}

/* ---- the fastest ---- */

static int stepped_speed(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                         struct tm_error *e)
{
    (void)context;
    (void)e;
    static const double of[4][4] = {{0}, {0, 10, 20, 20}, {0, 20, 5, 0}, {0, 15, 0, 0}};
    if (pipelines < 4 && stages < 4) *samples_per_s = of[pipelines][stages];
    *step_s = 1;
    return 0;
}

/* 1x1: 10, 2x1 and 1x2: 20 (fewer stages first), 1x3: 20 with one instance more, 3x1: 15, 2x2: 5. */
static void test_the_fastest(void **state)
{
    (void)state;
    static const struct {
        int instances, pipelines, stages;
    } rows[] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 1}, {3, 1, 3}, {4, 1, 3}, {9, 1, 3}};
    struct test_job *job = bare(9, true);
    make(job, &(struct tm_layout_rules){.stages_min = 1, .stages_max = 3, .pipelines_min = 1}, 9, stepped_speed);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const struct tm_layout *best = &job->layouts.list[job->layouts.best[rows[i].instances]];
        assert_row(best->pipelines == rows[i].pipelines && best->stages == rows[i].stages, "on %d: %dx%d",
                   rows[i].instances, best->pipelines, best->stages);
    }
    drop(job);
}

/* Nothing on so many instances is faster, for each number of them. */
static void test_the_fastest_of_all(void **state)
{
    (void)state;
    struct test_job *job = bare(20, true);
    make(job, &any_rules, 64, test_speed);
    for (int instances = 0; instances <= 64; instances++) {
        double best = job->layouts.list[job->layouts.best[instances]].samples_per_s;
        assert_row(job->layouts.list[job->layouts.best[instances]].instances <= instances, "%d: too large", instances);
        for (size_t k = 0; k < job->layouts.count; k++)
            assert_row(job->layouts.list[k].instances > instances || job->layouts.list[k].samples_per_s <= best,
                       "on %d: shape %zu is faster", instances, k);
    }
    drop(job);
}

/* ---- speeds ---- */

static double odd_speed;

static int speed_odd(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                     struct tm_error *e)
{
    (void)context;
    (void)step_s;
    if (odd_speed == -2) return tm_error_set(e, TM_ENOTFOUND, "no speed of %dx%d", pipelines, stages);
    *samples_per_s = odd_speed;
    return 0;
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int instances, layers;
        double speed;
        int want;
        const char *words;
    } rows[] = {
        {-1, 9, 1, -TM_ELIMIT, "at most 4096"},   {4097, 9, 1, -TM_ELIMIT, "4097 instances"},
        {4, 5000, 1, -TM_ELIMIT, "5000 layers"},  {4, 9, -1, -TM_EINPUT, "layout 1x1"},
        {4, 9, NAN, -TM_EINPUT, "layout 1x1"},    {4, 9, INFINITY, -TM_EINPUT, "not a number of samples"},
        {4, 9, -2, -TM_ENOTFOUND, "no speed of"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct test_job *job = bare(9, true);
        struct tm_error e = {0};
        job->model.layer_count = (size_t)rows[i].layers;
        odd_speed = rows[i].speed;
        int rc = tm_layouts_init(&job->layouts, &job->model, &any_rules, rows[i].instances, speed_odd, NULL, &e);
        assert_row(rc == rows[i].want, "row %zu: %d, want %d", i, rc, rows[i].want);
        assert_error_has(e, rows[i].words);
        drop(job);
    }
}

/* The largest fleet is within all limits. */
static void test_the_largest(void **state)
{
    (void)state;
    struct test_job *job = bare(60, true);
    make(job, &any_rules, TM_LAYOUT_INSTANCES_MAX, test_speed);
    size_t want = 1;
    for (int stages = 1; stages < 60; stages++)
        want += (size_t)(TM_LAYOUT_INSTANCES_MAX / stages);
    assert_int_equal(job->layouts.count, want);
    assert_int_equal(job->layouts.list[job->layouts.best[TM_LAYOUT_INSTANCES_MAX]].instances <= TM_LAYOUT_INSTANCES_MAX,
                     1);
    drop(job);
}

static void test_measured_points(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_model model;
    struct tm_error e = {0};
    tm_model_init(&model);
    assert_int_equal(tm_model_load(env, "parcae/gpt-1.5b", &model, &e), 0);
    double samples_per_s = 0, step_s = 0;
    assert_int_equal(tm_layout_speed_measured(&model, 4, 8, &samples_per_s, &step_s, &e), 0);
    assert_true(fabs(samples_per_s * 60 - 2608.08) < 0.01);   /* a minute of the reference: 2,608.08 samples */
    assert_true(close_to(samples_per_s * step_s, 128, 1e-3)); /* its global batch */
    samples_per_s = 0;
    assert_int_equal(tm_layout_speed_measured(&model, 31, 31, &samples_per_s, &step_s, &e), 0);
    assert_true(samples_per_s == 0); /* never measured: cannot train */
    tm_model_deinit(&model);
    tm_env_virtual_destroy(env);
}

static void test_without_memory(void **state)
{
    (void)state;
    struct test_job *job = bare(9, true);
    TM_FAIL_EACH_ALLOC({
        struct tm_error e;
        rc = tm_layouts_init(&job->layouts, &job->model, &any_rules, 200, test_speed, NULL, &e);
        tm_layouts_deinit(&job->layouts);
    });
    tm_free(job);
}

TM_TEST_MAIN(TM_TEST(test_cuts_by_hand), TM_TEST(test_cuts_hold_every_layer_once), TM_TEST(test_which_layouts),
             TM_TEST(test_what_is_not_found), TM_TEST(test_the_fastest), TM_TEST(test_the_fastest_of_all),
             TM_TEST(test_refusals), TM_TEST(test_the_largest), TM_TEST(test_measured_points),
             TM_TEST(test_without_memory))
