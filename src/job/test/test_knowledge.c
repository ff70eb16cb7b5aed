/* What the catalogue knows of a type: its price where nobody gives one, and what predictions take of it. */
#include "base/alloc.h"
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "job/knowledge.h"
#include "workload/shipped_profiles.h"

#include <math.h>
#include <stdio.h>
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

#define STEPS "network,gpu,precision,micro_batch,fwd_ms,bwd_ms\n"

/* The GPU of a step: what its row says, then what was asked for, then what the file is called. */
static void test_step_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *rows;
        const char *asked;
        const char *says; /* of both steps; or the error */
    } rows[] = {
        {"a100_steps.csv", STEPS "a,,fp16,1,1,1\nb,,fp16,1,1,1\n", NULL, "A100 A100"},
        {"x/l40s.csv", STEPS "a,,fp16,1,1,1\nb,,fp16,1,1,1\n", NULL, "L40S L40S"},
        {"my-A100-80GB.csv", STEPS "a,,fp16,1,1,1\nb,,fp16,1,1,1\n", NULL, "A100-80GB A100-80GB"},
        {"h200_llm_steps.csv", STEPS "a,,fp16,1,1,1\nb,,fp16,1,1,1\n", NULL, "H200 H200"},
        {"h200_llm_steps.csv", STEPS "a,,fp16,1,1,1\nb,T4,fp16,1,1,1\n", "L4", "L4 T4"},
        {"steps.csv", STEPS "a,V100,fp16,1,1,1\nb,T4,fp16,1,1,1\n", "L4", "V100 T4"},
        {"steps.csv", STEPS "a,,fp16,1,1,1\nb,T4,fp16,1,1,1\n", NULL, "T4 T4"},
        {"steps.csv", STEPS "a,NVIDIA A100-SXM4-80GB,fp16,1,1,1\nb,Tesla T4,fp16,1,1,1\n", NULL, "A100-80GB T4"},
        {"h2000.csv", STEPS "a,,fp16,1,1,1\nb,,fp16,1,1,1\n", NULL, "which GPU it was measured on; give it: --gpu"},
        {"steps.csv", STEPS "a,H20,fp16,1,1,1\nb,,fp16,1,1,1\n", NULL, "unknown GPU \"H20\""},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load(env, &catalog, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_profile profile;
        struct tm_error e = {0};
        struct tm_gpu_figures *gpus = NULL;
        char said[80] = "";
        tm_profile_init(&profile);
        assert_int_equal(tm_profile_parse("p", rows[i].rows, strlen(rows[i].rows), &profile, &e), 0);
        int rc = tm_knowledge_step_gpus(&catalog, &profile, rows[i].file, rows[i].asked, &gpus, &e);
        if (rc == 0) (void)snprintf(said, sizeof said, "%s %s", gpus[0].name, gpus[1].name);
        assert_row(strstr(rc == 0 ? said : e.text, rows[i].says) != NULL, "%s: \"%s\" is not \"%s\"", rows[i].file,
                   rc == 0 ? said : e.text, rows[i].says);
        tm_free(gpus);
        tm_profile_deinit(&profile);
    }
    tm_catalog_deinit(&catalog);
    tm_env_virtual_destroy(env);
}

/* Where nothing of a file may be learned, its memory does not tell how attention was computed: what ships does. */
static void test_attention_of_named_steps(void **state)
{
    (void)state;
    static const char text[] = "network,precision,micro_batch,fwd_ms,bwd_ms,peak_gib\n"
                               "gpt2-124m-1024,bf16,16,1,1,1\n"    /* far less than stored scores take */
                               "gpt2-774m-1024,bf16,16,1,1,130\n"; /* far more than fused ones do */
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_profile profile;
    struct tm_profile shipped;
    tm_profile_init(&profile);
    tm_profile_init(&shipped);
    assert_int_equal(tm_shipped_profiles(&shipped, NULL), 0);
    assert_int_equal(tm_profile_parse("p", text, sizeof text - 1, &profile, NULL), 0);
    for (int untrained = 0; untrained < 2; untrained++) {
        struct tm_knowledge_names names = {
            .env = env, .profile = &profile, .shipped = untrained != 0 ? &shipped : NULL};
        for (size_t i = 0; i < 2; i++) {
            struct tm_model model;
            tm_model_init(&model);
            assert_true(tm_knowledge_step_model(&names, &profile.steps[i], &model));
            bool plain = strstr(model.name, "attention=plain") != NULL;
            assert_row(plain == (untrained != 0 ? i == 0 : i == 1), "%s, untrained %d", model.name, untrained);
            tm_model_deinit(&model);
        }
    }
    tm_profile_deinit(&profile);
    tm_profile_deinit(&shipped);
    tm_env_virtual_destroy(env);
}

/* Parcae's measured layouts on p3.2xlarge, of which nothing is learned: the mean error of each table, and how fast the
 * layout is that looks best, of all and at each number of instances that the table has. resnet152's table is bimodal:
 * 10x2 takes 2.5 times as long as 9x2. */
static void test_parcae_tables(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        double mape_percent;
        size_t outlier;                  /* instances at which a row of the table contradicts its neighbours; 0: none */
    } rows[] = {{"parcae/bert", 15, 16}, /* 8x2 is slower there than 7x2 on 14 */
                {"parcae/gpt-1.5b", 8, 0},
                {"parcae/gpt-6.7b", 17, 0},
                {"parcae/vgg19", 15, 0},
                {"parcae/resnet152", 34, 20}}; /* 10x2 takes 2.5 times as long as 9x2 on 18 */
    enum { COUNTS_MAX = 65 };
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
        double sum = 0;
        double best[COUNTS_MAX] = {0};
        double predicted[COUNTS_MAX] = {0};
        double chosen[COUNTS_MAX] = {0};
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
            size_t counts[2] = {0, (size_t)group.instances}; /* of all, and of as many instances */
            assert_true(counts[1] < COUNTS_MAX);
            for (size_t c = 0; c < 2; c++) {
                size_t n = counts[c];
                best[n] = fmax(best[n], point->samples_per_s);
                if (p.samples_per_s > predicted[n]) chosen[n] = point->samples_per_s;
                predicted[n] = fmax(predicted[n], p.samples_per_s);
            }
        }
        double percent = 100 * sum / (double)model.point_count;
        assert_row(percent < rows[i].mape_percent, "%s: %.1f%%", rows[i].model, percent);
        for (size_t n = 0; n < COUNTS_MAX; n++) {
            if (best[n] == 0 || n == rows[i].outlier) continue;
            assert_row(chosen[n] >= 0.95 * best[n], "%s on %zu: %g samples/s, best %g", rows[i].model, n, chosen[n],
                       best[n]);
        }
        tm_model_deinit(&model);
    }
    tm_catalog_deinit(&catalog);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_step_gpus), TM_TEST(test_attention_of_named_steps), TM_TEST(test_prices),
             TM_TEST(test_groups), TM_TEST(test_parcae_tables))
