/* Traces and the offers that they speak of.
 * builds: release asan */
#include "plan/recorded_traces.h"
#include "plan/supply.h"
#include "plan/test/plan_helpers.h"

#define CATALOG                                                                                                        \
    "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,made up\n"                                            \
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\nFast,,40,1555,19.5,156,312,312,,"   \
    "s\n"                                                                                                              \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,fast.1,Fast,1,8,64,40,25,s\naws,fast.2,Fast,2,16,128,40,25,s\naws,cpu,,,4,16,,10,s\n"                         \
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"                                                      \
    "aws,us-west-2,usw2-az1,fast.1,4,1,s\naws,us-east-1,,fast.1,4,1,s\naws,us-west-2,,fast.2,8.5,2,s\n"                \
    "aws,us-east1,us-east1-c,fast.2,8.5,2,s\n"

enum { ANY, FAST_1_WEST, FAST_1, GPU, TRACES };

static const struct tm_plan_traces all = {.list = {[ANY] = {.losses = {.loss_per_s = 1}},
                                                   [FAST_1_WEST] = {.type = "fast.1", .region = "us-west-2"},
                                                   [FAST_1] = {.type = "FAST.1", .losses = {.loss_per_s = 3}},
                                                   [GPU] = {.type = "Fast"}},
                                          .count = TRACES};

static void test_most_particular_counts(void **state)
{
    static const struct {
        size_t offer;
        size_t want;
    } rows[] = {{0, FAST_1_WEST}, {1, FAST_1}, {2, GPU}, {3, GPU}};
    struct planning basis;
    struct tm_plan_request request = planning_init(&basis, CATALOG);
    (void)state;
    request.supply.traces = &all;
    request.supply.catalog = &basis.catalog;
    request.supply.loss_per_s = 7;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tm_offer *offer = &basis.catalog.offers[rows[i].offer];
        const struct tm_instance_type *instance = &basis.catalog.instances[offer->instance];
        const struct tm_plan_trace *trace = tm_plan__trace_of(&all, instance, offer);
        assert_row(trace == &all.list[rows[i].want], "offer %zu: trace %td", rows[i].offer, trace - all.list);
        assert_true(tm_supply__loss_rate(&request.supply, offer) == trace->losses.loss_per_s);
    }
    static const struct tm_plan_traces west = {.list = {{.type = "fast.1", .region = "us-west-2"}}, .count = 1};
    request.supply.traces = &west;
    assert_true(tm_supply__loss_rate(&request.supply, &basis.catalog.offers[0]) == 0);
    assert_true(tm_supply__loss_rate(&request.supply, &basis.catalog.offers[1]) == 7); /* elsewhere: as said */
    assert_true(tm_supply__loss_rate(&request.supply, &basis.catalog.offers[2]) == 7); /* another type */
    assert_null(tm_plan__trace_of(NULL, &basis.catalog.instances[0], &basis.catalog.offers[0]));
    planning_deinit(&basis);
}

static void test_regions_of_headers(void **state)
{
    static const struct {
        const char *zone, *want;
    } rows[] = {{"us-west-2", "us-west-2"},
                {"us-west-2a", "us-west-2"},
                {"usw2-az1", "us-west-2"},
                {"us-east-1b", "us-east-1"},
                {"us-east1-c", "us-east1"},
                {"us-east1-b", "us-east1"},
                {"us-west-2-lax-1a", NULL},
                {"us-west-22", NULL},
                {"mars", NULL},
                {"", NULL}};
    struct planning basis;
    (void)planning_init(&basis, CATALOG);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_trace trace;
        tm_trace_init(&trace);
        (void)snprintf(trace.zone, sizeof trace.zone, "%s", rows[i].zone);
        const char *region = tm_plan_trace_region(&basis.catalog, &trace);
        assert_row((region == NULL) == (rows[i].want == NULL) && (region == NULL || !strcmp(region, rows[i].want)),
                   "%s: %s", rows[i].zone, region != NULL ? region : "none");
        tm_trace_deinit(&trace);
    }
    assert_true(tm_plan_trace_type_is_known(&basis.catalog, "fast.2"));
    assert_true(tm_plan_trace_type_is_known(&basis.catalog, "fast"));
    assert_false(tm_plan_trace_type_is_known(&basis.catalog, "cpu")); /* nothing trains there */
    planning_deinit(&basis);
}

static void test_losses_of_the_trace(void **state)
{
    struct tm_expect_job job = {.samples = 5, .burst_share = 0.5, .burst_size = 0.25, .replace_s = 1, .outage_s = 2};
    struct tm_plan_trace trace = {.losses = {.burst_share = 0.1, .burst_size = 0.2, .replace_s = 3}, .outage_s = 4};
    (void)state;
    struct tm_expect_job same = tm_plan__job_on(&job, NULL);
    struct tm_expect_job other = tm_plan__job_on(&job, &trace);
    assert_true(same.burst_share == 0.5 && same.outage_s == 2);
    assert_true(other.burst_share == 0.1 && other.burst_size == 0.2 && other.replace_s == 3 && other.outage_s == 4);
    assert_true(other.samples == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_most_particular_counts),
        cmocka_unit_test(test_regions_of_headers),
        cmocka_unit_test(test_losses_of_the_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
