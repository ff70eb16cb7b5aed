/* What the catalogue knows of a type: its price where nobody gives one, and what predictions take of it. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "job/knowledge.h"

#include <math.h>
#include <string.h>

static void test_prices(void **state)
{
    (void)state;
    static const struct {
        const char *instance;
        double spot_usd_h; /* given; NaN: not */
        double on_demand_usd_h;
        bool known;
        const char *says;
    } rows[] = {
        {"p3.2xlarge", NAN, NAN, true, ""},
        {"P3.2XLARGE", 1, NAN, true, ""},
        {"nothing", 1, 2, true, ""}, /* all is given: nobody need know it */
        {"p3.2xlarg", NAN, 2, false, "no price of p3.2xlarg is known (did you mean p3.2xlarge?); do this"},
        {"nothing-like-it", 1, NAN, false, "no price of nothing-like-it is known; do this"},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_catalog catalog;
    struct tm_error e = {0};
    tm_catalog_init(&catalog);
    assert_row(tm_catalog_load(env, &catalog, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double spot = rows[i].spot_usd_h;
        double on_demand = rows[i].on_demand_usd_h;
        int rc = tm_knowledge_prices(&catalog, rows[i].instance, "do this", &spot, &on_demand, &e);
        assert_row(rc == (rows[i].known ? 0 : -(int)TM_EUSAGE), "%s: %d", rows[i].instance, rc);
        if (!rows[i].known) assert_string_equal(e.text, rows[i].says);
        assert_row(isnan(rows[i].spot_usd_h) || spot == rows[i].spot_usd_h, "%s: %g", rows[i].instance, spot);
        assert_row(!rows[i].known || (spot > 0 && on_demand > 0), "%s: %g, %g", rows[i].instance, spot, on_demand);
    }
    tm_catalog_deinit(&catalog);
    tm_env_virtual_destroy(env);
}

/* A type may have GPUs with more memory than is usual. */
static void test_groups(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_catalog catalog;
    struct tm_error e = {0};
    int more = 0;
    tm_catalog_init(&catalog);
    assert_row(tm_catalog_load(env, &catalog, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < catalog.instance_count; i++) {
        const struct tm_instance_type *type = &catalog.instances[i];
        const struct tm_gpu *gpu = type->gpu[0] != '\0' ? tm_catalog_gpu(&catalog, type->gpu) : NULL;
        struct tm_fleet_group group;
        if (gpu == NULL || isnan(type->gpu_memory_gib)) continue;
        assert_row(tm_knowledge__group(&catalog, type, &group, &e) == 0, "%s: %s", type->name, e.text);
        assert_row(group.gpu.memory_gib == type->gpu_memory_gib, "%s: %g", type->name, group.gpu.memory_gib);
        more += group.gpu.memory_gib != gpu->memory_gib;
    }
    assert_true(more > 0);
    struct tm_instance_type strange = {.name = "x1", .gpu = "V1000", .gpus = 1};
    struct tm_fleet_group group;
    assert_int_equal(tm_knowledge__group(&catalog, &strange, &group, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "unknown GPU \"V1000\"");
    tm_catalog_deinit(&catalog);
    tm_env_virtual_destroy(env);
}

/* Parcae's measured layouts on p3.2xlarge, of which nothing is learned: the mean error of each table, and how fast the
 * layout of 32 instances is that looks best. resnet152's table is bimodal: 10x2 takes 2.5 times as long as 9x2. */
static void test_parcae_tables(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        double mape_percent;
    } rows[] = {{"parcae/bert", 12},
                {"parcae/gpt-1.5b", 8},
                {"parcae/gpt-6.7b", 12},
                {"parcae/vgg19", 15},
                {"parcae/resnet152", 34}};
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_catalog catalog;
    struct tm_compute_model compute;
    struct tm_comm_model comm = tm_comm_gpus();
    const struct tm_instance_type *type = NULL;
    struct tm_fleet_group group;
    struct tm_error e = {0};
    tm_catalog_init(&catalog);
    assert_row(tm_catalog_load(env, &catalog, &e) == 0, "%s", e.text);
    assert_row(tm_knowledge_shipped(env, &catalog, &compute, &e) == 0, "%s", e.text);
    assert_int_equal(tm_knowledge_instance(&catalog, "p3.2xlarge", NULL, NULL, &type, &e), 0);
    assert_int_equal(tm_knowledge__group(&catalog, type, &group, &e), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_model model;
        tm_model_init(&model);
        assert_row(tm_model_load(env, rows[i].model, &model, &e) == 0, "%s", e.text);
        double sum = 0, best = 0, predicted = 0, chosen = 0;
        for (size_t k = 0; k < model.point_count; k++) {
            const struct tm_model_point *point = &model.points[k];
            struct tm_predict_request request = {.model = &model,
                                                 .groups = &group,
                                                 .group_count = 1,
                                                 .precision = TM_FP16,
                                                 .batch = model.global_batch,
                                                 .micro_batch = model.micro_batch,
                                                 .pipelines = point->pipelines,
                                                 .stages = point->stages,
                                                 .compute = &compute,
                                                 .comm = &comm,
                                                 .burst = true};
            struct tm_prediction p;
            group.instances = point->pipelines * point->stages;
            assert_row(tm_predict(&request, &p, &e) == 0, "%s: %s", rows[i].model, e.text);
            sum += fabs(p.step_s.mean * 1e3 / point->step_ms - 1);
            best = fmax(best, point->samples_per_s);
            if (p.samples_per_s > predicted) chosen = point->samples_per_s;
            predicted = fmax(predicted, p.samples_per_s);
        }
        double percent = 100 * sum / (double)model.point_count;
        assert_row(percent < rows[i].mape_percent, "%s: %.1f%%", rows[i].model, percent);
        assert_row(chosen >= 0.95 * best, "%s: %g samples/s, best %g", rows[i].model, chosen, best);
        tm_model_deinit(&model);
    }
    tm_catalog_deinit(&catalog);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_prices), TM_TEST(test_groups), TM_TEST(test_parcae_tables))
