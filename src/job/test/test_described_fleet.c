/* Fleets as people write them. */
#include "job/described_fleet.h"

#include "base/alloc.h"
#include "base/test/harness.h"

#include <math.h>
#include <string.h>

static bool not_azure(const void *context, const char *cloud)
{
    (void)context;
    return strcmp(cloud, "azure") != 0;
}

static void test_what_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *wrong; /* NULL: it is fine */
        int instances;     /* of all groups */
        size_t groups;
        enum tm_precision mixed;
    } rows[] = {
        {"8x p3.2xlarge", NULL, 8, 1, TM_FP16},
        {"8 x p3.2xlarge, 2x g5.xlarge", NULL, 10, 2, TM_FP16},
        {"1xg5.xlarge+1xg5.2xlarge", NULL, 2, 2, TM_BF16},
        {"1x n1-standard-8+1xT4", NULL, 1, 1, TM_FP16}, /* the plus is part of the type's name */
        {"2x n1-standard-8+1xT4 + 1x g4dn.xlarge", NULL, 3, 2, TM_FP16},
        {"2x N1-standard-8+1xT4+1xg4dn.xlarge", NULL, 3, 2, TM_FP16},
        {"1x g5.xlarge + 1x g5.2xlarge , 3x g5.xlarge", NULL, 5, 3, TM_BF16},
        {"", "empty; write for example", 0, 0, TM_FP32},
        {"p3.2xlarge", "expected COUNTx TYPE, got \"p3.2xlarge\"", 0, 0, TM_FP32},
        {"0x p3.2xlarge", "expected from 1 to 100000 of p3.2xlarge", 0, 0, TM_FP32},
        {"100001x p3.2xlarge", "expected from 1 to 100000 of p3.2xlarge", 0, 0, TM_FP32},
        {"1x c5.xlarge", "c5.xlarge has no GPU", 0, 0, TM_FP32},
        {"1x p3.2xlarg", "did you mean p3.2xlarge?", 0, 0, TM_FP32},
        {"8x v100",
         "is a GPU: name an instance type that has it, such as p3.16xlarge (8 of them), p3.2xlarge (1 of them), ", 0, 0,
         TM_FP32},
        {"1x Standard_NC4as_T4_v3", "Standard_NC4as_T4_v3", 0, 0, TM_FP32}, /* of a cloud that is not allowed */
    };
    struct tm_catalog catalog;
    struct tm_error e = {0};
    tm_catalog_init(&catalog);
    assert_row(tm_catalog_load(tm_env_real(), &catalog, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_described_fleet fleet;
        int rc = tm_described_fleet_parse(&catalog, rows[i].text, not_azure, NULL, &fleet, &e);
        assert_row((rc == 0) == (rows[i].wrong == NULL), "%s: %d", rows[i].text, rc);
        if (rows[i].wrong != NULL) {
            assert_row(strstr(e.text, rows[i].wrong) != NULL, "%s: %s", rows[i].text, e.text);
            continue;
        }
        int instances = 0;
        double gpus = 0;
        for (size_t g = 0; g < fleet.group_count; g++) {
            instances += fleet.groups[g].instances;
            gpus += fleet.groups[g].instances * fleet.groups[g].gpus_per_node;
        }
        assert_row(fleet.group_count == rows[i].groups && instances == rows[i].instances, "%s", rows[i].text);
        assert_row(tm_described_fleet_precision(&fleet, TM_PRECISION_MIXED) == rows[i].mixed, "%s", rows[i].text);
        assert_int_equal(tm_described_fleet_precision(&fleet, TM_FP32), TM_FP32);
        assert_row((double)tm_described_fleet_batch(&fleet) == 8 * gpus, "%s", rows[i].text);
        assert_row(fleet.spot_usd_h > 0 && fleet.spot_usd_h < fleet.on_demand_usd_h, "%s", rows[i].text);
    }
    tm_catalog_deinit(&catalog);
}

/* Measured steps count where the fleet's GPU is the one that they were measured on. */
static void test_what_is_known(void **state)
{
    (void)state;
    int batches[] = {1, 2};
    double ms[] = {3, 4};
    struct tm_knowledge knowledge = {.gpu = "V100", .batches = batches, .ms = ms, .count = 2};
    struct tm_described_fleet fleet = {.group_count = 1, .groups = {{.gpu = {.name = "V100"}}}};
    struct tm_predict_request request = {.batch = 0};
    tm_described_fleet_knowledge(&fleet, &knowledge, &request);
    assert_true(request.measured_count == 2 && request.measured_ms == ms && request.compute == &knowledge.compute);
    fleet.groups[0].gpu.name = "T4";
    tm_described_fleet_knowledge(&fleet, &knowledge, &request);
    assert_int_equal(request.measured_count, 0);
    assert_true(fabs(tm_usd_per_million(3.6, 100) - 10) < 1e-9);
}

TM_TEST_MAIN(TM_TEST(test_what_is_read), TM_TEST(test_what_is_known))
