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
        assert_row(tm_knowledge_group(&catalog, type, &group, &e) == 0, "%s: %s", type->name, e.text);
        assert_row(group.gpu.memory_gib == type->gpu_memory_gib, "%s: %g", type->name, group.gpu.memory_gib);
        more += group.gpu.memory_gib != gpu->memory_gib;
    }
    assert_true(more > 0);
    struct tm_instance_type strange = {.name = "x1", .gpu = "V1000", .gpus = 1};
    struct tm_fleet_group group;
    assert_int_equal(tm_knowledge_group(&catalog, &strange, &group, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "unknown GPU \"V1000\"");
    tm_catalog_deinit(&catalog);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_prices), TM_TEST(test_groups))
