/* The search over fleets: against weighing every fleet by hand, and under constraints. */
#include "base/env.h"
#include "base/test/harness.h"
#include "plan/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CATALOG                                                                                                        \
    "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,made up\n"                                            \
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\n"                                   \
    "Slow,,16,300,8,,65,,,s\nFast,,40,1555,19.5,156,312,312,,s\n"                                                      \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,slow.1,Slow,1,4,16,16,10,s\naws,fast.1,Fast,1,8,64,40,25,s\naws,fast.8,Fast,8,96,1000,40,100,s\n"             \
    "aws,cpu,,,4,16,,10,s\naws,dark.1,Fast,1,8,64,40,,s\n"                                                             \
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"                                                      \
    "aws,r1,r1a,slow.1,0.5,0.15,s\naws,r2,r2a,slow.1,0.45,0.2,s\naws,r1,r1a,fast.1,4,1.2,s\n"                          \
    "aws,r1,r1a,fast.8,32,9,s\naws,r1,r1a,cpu,0.1,0.02,s\naws,r1,r1a,dark.1,0.01,0.01,s\n"

struct fixture {
    struct tm_catalog catalog;
    struct tm_model model;
    struct tm_compute_model compute;
    struct tm_comm_model comm;
    struct tm_plan_request request;
    struct tm_plan_result result;
    struct tm_plan_result other;
};

static int set_up(void **state)
{
    struct fixture *f = tm_calloc(1, sizeof *f);
    struct tm_error e = {0};
    assert_non_null(f);
    tm_catalog_init(&f->catalog);
    tm_model_init(&f->model);
    assert_int_equal(tm_catalog_parse(&f->catalog, "c", CATALOG, strlen(CATALOG), false, &e), 0);
    assert_int_equal(tm_catalog_finish(&f->catalog, &e), 0);
    assert_int_equal(tm_model_load(tm_env_real(), "resnet50", &f->model, &e), 0);
    f->compute = tm_compute_prior();
    f->comm = tm_comm_gpus();
    f->request = (struct tm_plan_request){.model = &f->model,
                                          .compute = &f->compute,
                                          .comm = &f->comm,
                                          .precision = TM_PRECISION_MIXED,
                                          .batch = 256,
                                          .job = {.samples = 1e8,
                                                  .deadline_s = INFINITY,
                                                  .checkpoint_s = 1,
                                                  .restart_s = 60,
                                                  .replace_s = 180,
                                                  .startup_s = 180},
                                          .budget_usd = INFINITY,
                                          .max_usd_h = INFINITY,
                                          .max_nodes = 8,
                                          .min_probability = 0.95,
                                          .loss_per_s = 1 / 36000.0,
                                          .default_loss_per_s = 1 / 86400.0,
                                          .top = 8};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tm_model_deinit(&f->model);
    tm_catalog_deinit(&f->catalog);
    tm_free(f);
    return 0;
}

/* Expected cost (or time) of a fleet, by hand. */
static double weigh(struct fixture *f, size_t offer_index, int spot, int on_demand)
{
    const struct tm_offer *offer = &f->catalog.offers[offer_index];
    const struct tm_instance *instance = &f->catalog.instances[offer->instance];
    const struct tm_gpu *gpu = tm_catalog_gpu(&f->catalog, instance->gpu);
    struct tm_fleet_group group = {.instance = instance->name,
                                   .nodes = spot + on_demand,
                                   .gpus_per_node = (int)instance->gpus,
                                   .network_bit_s = instance->network_gbps * 1e9,
                                   .gpu = {.name = gpu->name,
                                           .memory_bytes_s = gpu->memory_gbyte_s * 1e9,
                                           .memory_gib = instance->gpu_memory_gib}};
    for (int p = 0; p < TM_PRECISION_COUNT; p++)
        group.gpu.flops[p] = gpu->tflops[p] * 1e12;
    struct tm_predict_request predict = {.model = &f->model,
                                         .groups = &group,
                                         .group_count = 1,
                                         .precision = gpu->tflops[TM_BF16] > 0 ? TM_BF16 : TM_FP16,
                                         .batch = f->request.batch,
                                         .compute = &f->compute,
                                         .comm = &f->comm};
    struct tm_prediction prediction;
    if (tm_predict(&predict, &prediction, NULL) != 0) return INFINITY;
    double batch = f->request.batch;
    struct tm_expect_fleet fleet = {
        .samples_per_s = {batch / prediction.step_s.mean, batch / prediction.step_s.p90, batch / prediction.step_s.p10},
        .spot_nodes = spot,
        .on_demand_nodes = on_demand,
        .loss_per_s = f->request.loss_per_s,
        .spot_usd_h = offer->spot_usd_h,
        .on_demand_usd_h = offer->on_demand_usd_h};
    struct tm_expectation got = tm_expect(&f->request.job, &fleet);
    if (got.p_deadline < f->request.min_probability && isfinite(f->request.job.deadline_s)) return INFINITY;
    if (got.usd_h > f->request.max_usd_h || got.cost_usd.mean > f->request.budget_usd) return INFINITY;
    return f->request.objective == TM_PLAN_CHEAPEST ? got.cost_usd.mean : got.time_s.mean;
}

/* Every count from 1 to 5 and every split of it (which the search tries in full), at every offer. */
static double brute_force(struct fixture *f)
{
    double best = INFINITY;
    for (size_t i = 0; i < 4; i++) {
        for (int nodes = 1; nodes <= 5; nodes++) {
            for (int on_demand = 0; on_demand <= nodes; on_demand++)
                best = fmin(best, weigh(f, i, nodes - on_demand, on_demand));
        }
    }
    return best;
}

static void test_equals_brute_force(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum tm_plan_objective objective;
        double deadline_h, budget, hourly, life_h;
    } rows[] = {
        {TM_PLAN_CHEAPEST, INFINITY, INFINITY, INFINITY, 10},
        {TM_PLAN_CHEAPEST, 20, INFINITY, INFINITY, 10},
        {TM_PLAN_CHEAPEST, 8, INFINITY, INFINITY, 2},
        {TM_PLAN_CHEAPEST, 4, INFINITY, INFINITY, 0.2},
        {TM_PLAN_FASTEST, INFINITY, 30, INFINITY, 10},
        {TM_PLAN_FASTEST, INFINITY, INFINITY, 5, 10},
        {TM_PLAN_FASTEST, INFINITY, 12, 3, 1},
        {TM_PLAN_CHEAPEST, 30, 20, 2, 5},
    };
    f->request.max_nodes = 5;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        f->request.objective = rows[i].objective;
        f->request.job.deadline_s = rows[i].deadline_h * 3600;
        f->request.budget_usd = rows[i].budget;
        f->request.max_usd_h = rows[i].hourly;
        f->request.loss_per_s = 1 / (rows[i].life_h * 3600);
        assert_row(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, &e) == 0, "row %zu: %s", i, e.text);
        double want = brute_force(f);
        assert_row((f->result.count > 0) == isfinite(want), "row %zu: %zu answers, want %g", i, f->result.count, want);
        if (f->result.count == 0) continue;
        const struct tm_expectation *got = &f->result.answers[0].expectation;
        double value = rows[i].objective == TM_PLAN_CHEAPEST ? got->cost_usd.mean : got->time_s.mean;
        assert_row(fabs(value / want - 1) < 1e-9, "row %zu: %g, want %g", i, value, want);
    }
}

static void test_order_and_kinds(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, &f->other, NULL), 0);
    assert_int_equal(f->result.count, 3); /* one for each type with a GPU and a known network */
    for (size_t i = 1; i < f->result.count; i++)
        assert_true(f->result.answers[i - 1].expectation.cost_usd.mean <=
                    f->result.answers[i].expectation.cost_usd.mean);
    f->request.market = TM_PLAN_ON_DEMAND_ONLY;
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, NULL), 0);
    for (size_t i = 0; i < f->result.count; i++)
        assert_int_equal(f->result.answers[i].spot_nodes, 0);
    f->request.market = TM_PLAN_SPOT_ONLY;
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, NULL), 0);
    for (size_t i = 0; i < f->result.count; i++)
        assert_int_equal(f->result.answers[i].on_demand_nodes, 0);
}

/* On its own objective ours is never worse than the published idea, judged alike. */
static void test_never_worse_than_srift(void **state)
{
    struct fixture *f = *state;
    static const double lives_h[] = {0.3, 1, 3, 10, 100};
    static const double deadlines_h[] = {4, 8, 16, 48};
    for (size_t i = 0; i < TM_COUNT(lives_h); i++) {
        for (size_t k = 0; k < TM_COUNT(deadlines_h); k++) {
            f->request.loss_per_s = 1 / (lives_h[i] * 3600);
            f->request.job.deadline_s = deadlines_h[k] * 3600;
            assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, &f->other, NULL), 0);
            if (f->result.count == 0 || f->other.count == 0) continue;
            const struct tm_expectation *ours = &f->result.answers[0].expectation;
            const struct tm_expectation *theirs = &f->other.answers[0].expectation;
            bool theirs_holds = theirs->finishes && theirs->p_deadline >= f->request.min_probability;
            assert_row(ours->p_deadline >= f->request.min_probability, "%g h, %g h: misses", lives_h[i],
                       deadlines_h[k]);
            assert_row(!theirs_holds || ours->cost_usd.mean <= theirs->cost_usd.mean * (1 + 1e-12),
                       "%g h, %g h: $%g > $%g", lives_h[i], deadlines_h[k], ours->cost_usd.mean, theirs->cost_usd.mean);
        }
    }
}

static void test_nothing_found(void **state)
{
    struct fixture *f = *state;
    f->request.budget_usd = 0.5;
    f->request.job.deadline_s = 10 * 3600;
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, NULL), 0);
    assert_int_equal(f->result.count, 0);
    double needed = f->result.cheapest_within_deadline_usd;
    assert_true(isfinite(needed) && needed > 0.5);
    f->request.budget_usd = needed * 1.0001; /* the relaxation that was named is enough */
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, NULL), 0);
    assert_true(f->result.count > 0);
}

static void test_bad_requests(void **state)
{
    struct fixture *f = *state;
    struct tm_error e = {0};
    struct tm_plan_request good = f->request;
    f->request.top = 0;
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, &e), -TM_EUSAGE);
    f->request = good;
    f->request.job.samples = 0;
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, &e), -TM_EUSAGE);
    f->request = good;
    f->request.job.deadline_s = -1;
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, &e), -TM_EUSAGE);
    f->request = good;
    f->request.max_nodes = 0;
    assert_int_equal(tm_plan_search(&f->catalog, &f->request, &f->result, NULL, &e), -TM_EUSAGE);
}

static void test_without_memory(void **state)
{
    struct fixture *f = *state;
    f->request.max_nodes = 2;
    TM_FAIL_EACH_ALLOC(rc = tm_plan_search(&f->catalog, &f->request, &f->result, NULL, NULL));
}

#define FIXTURE_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

TM_TEST_MAIN(FIXTURE_TEST(test_equals_brute_force), FIXTURE_TEST(test_order_and_kinds),
             FIXTURE_TEST(test_never_worse_than_srift), FIXTURE_TEST(test_nothing_found),
             FIXTURE_TEST(test_bad_requests), FIXTURE_TEST(test_without_memory))
