/* The loop of a running job: keep the fleet while it holds, plan anew once it does not. */
#include "plan/replan.h"
#include "plan/test/plan_helpers.h"

#include <stdio.h>

#define CATALOG                                                                                                        \
    "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,made up\n"                                            \
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\n"                                   \
    "Slow,,16,300,8,,65,,,s\nFast,,40,1555,19.5,156,312,312,,s\n"                                                      \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,slow.1,Slow,1,4,16,16,20,s\naws,fast.1,Fast,1,8,64,40,50,s\n"                                                 \
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"                                                      \
    "aws,r1,r1a,slow.1,0.5,0.15,s\naws,r1,r1a,fast.1,4,1.2,s\n"

struct fixture {
    struct planning basis;
    struct tm_plan_request request;
    struct tm_supply supply;
    struct tm_plan_result result;
    struct tm_plan_result next;
    struct tm_replan replan;
};

static int set_up(void **state)
{
    struct fixture *f = tm_calloc(1, sizeof *f);
    assert_non_null(f);
    tm_supply_init(&f->supply);
    f->request = planning_init(&f->basis, CATALOG);
    f->request.supply.loss_per_s = 1 / 360000.0;
    f->request.job.deadline_s = 40 * 3600;
    assert_int_equal(tm_plan_make_supply(&f->basis.catalog, &f->request, &f->supply, NULL), 0);
    assert_int_equal(tm_plan_solve(&f->supply, &f->request, &f->result, NULL), 0);
    assert_true(f->result.count > 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tm_supply_deinit(&f->supply);
    planning_deinit(&f->basis);
    tm_free(f);
    return 0;
}

/* Observed steps that take `factor` times what was predicted. */
static void observe(struct fixture *f, double factor, struct tm_observed *observed)
{
    char text[2048] = "";
    for (int i = 0; i < 40; i++) {
        size_t length = strlen(text);
        double step_s = f->result.answers[0].prediction.step_s.mean * factor * (1 + 0.002 * (i % 5 - 2));
        (void)snprintf(text + length, sizeof text - length, "%.6f\n", step_s);
    }
    tm_observed_init(observed);
    assert_int_equal(tm_observed_parse("o", text, strlen(text), observed, NULL), 0);
}

static void test_keeps_what_holds(void **state)
{
    struct fixture *f = *state;
    struct tm_observed observed;
    observe(f, 1, &observed);
    struct tm_replan_state now = {.fleet = &f->result.answers[0].fleet,
                                  .samples_done = 5e7,
                                  .elapsed_s = f->result.answers[0].expectation.time_s.mean / 2,
                                  .observed = &observed};
    assert_int_equal(tm_plan_replan(&f->supply, &f->request, &now, &f->replan, &f->next, NULL), 0);
    assert_true(f->replan.holds && fabs(f->replan.factor - 1) < 0.02);
    assert_true(f->replan.left.job.samples == 5e7 && f->replan.left.job.deadline_s < f->request.job.deadline_s);
    tm_observed_deinit(&observed);
}

/* Steps three times as long: the deadline fails, and the plan for the rest is made with that in mind. */
static void test_plans_anew(void **state)
{
    struct fixture *f = *state;
    struct tm_observed observed;
    observe(f, 3, &observed);
    struct tm_replan_state now = {.fleet = &f->result.answers[0].fleet,
                                  .samples_done = 1e7,
                                  .elapsed_s = 20 * 3600,
                                  .spent_usd = 3,
                                  .observed = &observed};
    assert_int_equal(tm_plan_replan(&f->supply, &f->request, &now, &f->replan, &f->next, NULL), 0);
    assert_false(f->replan.holds);
    assert_true(f->replan.factor > 2.8 && f->replan.factor < 3.2);
    assert_true(f->next.count > 0);
    assert_true(f->next.answers[0].expectation.p_deadline >= 0.95);
    assert_true(f->next.answers[0].expectation.usd_h > f->replan.running.expectation.usd_h);
    tm_observed_deinit(&observed);
}

#define TWO_CLOUDS                                                                                                     \
    "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,made up\n"                                            \
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\n"                                   \
    "Slow,,16,300,8,,65,,,s\nFast,,40,1555,19.5,156,312,312,,s\n"                                                      \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,slow.1,Slow,1,4,16,16,20,s\ngcp,fast-1,Fast,1,8,64,40,50,s\n"                                                 \
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"                                                      \
    "aws,r1,r1a,slow.1,0.5,0.15,s\ngcp,r2,r2-a,fast-1,4,1.2,s\n"

static bool is_of_cloud(const void *context, const struct tm_instance_type *instance, const struct tm_offer *offer,
                        bool anchor)
{
    (void)offer;
    (void)anchor;
    return strcmp(instance->cloud, context) == 0;
}

/* The new plan may lie in one cloud alone, and the job runs in another: its state leaves at that one's price a GB. */
static void test_moves_to_another_cloud(void **state)
{
    (void)state;
    static struct planning basis;
    static struct tm_plan_result next;
    static struct tm_replan replan;
    struct tm_supply there, home;
    struct tm_plan_request request = planning_init(&basis, TWO_CLOUDS);
    tm_supply_init(&there);
    tm_supply_init(&home);
    request.job.deadline_s = 40 * 3600;
    request.supply.allowed = is_of_cloud;
    request.supply.allowed_context = "aws";
    assert_int_equal(tm_plan_make_supply(&basis.catalog, &request, &home, NULL), 0);
    request.supply.allowed_context = "gcp";
    assert_int_equal(tm_plan_make_supply(&basis.catalog, &request, &there, NULL), 0);
    assert_true(home.pool_count == 1 && there.pool_count == 1);
    struct tm_plan_fleet running = {.parts = {{home.types[home.pools[0].type].instance, home.pools[0].offer, 0, 1}},
                                    .part_count = 1};
    struct tm_replan_state now = {.fleet = &running, .home = &home, .elapsed_s = 3600};
    request.state_bytes = 50e9;
    assert_int_equal(tm_plan_replan(&there, &request, &now, &replan, &next, NULL), 0);
    assert_false(replan.holds); /* one slow GPU for 1e8 images in 40 hours */
    assert_true(next.count > 0);
    for (size_t i = 0; i < next.count; i++) {
        assert_string_equal(next.answers[i].fleet.parts[0].instance->cloud, "gcp");
        assert_true(fabs(next.answers[i].egress_usd - 50 * 0.09) < 1e-9);
        assert_true(next.answers[i].expectation.cost_usd.mean > next.answers[i].egress_usd);
    }
    tm_supply_deinit(&home);
    tm_supply_deinit(&there);
    planning_deinit(&basis);
}

/* Slow links that a probe finds are enough. */
static void test_probed_links(void **state)
{
    struct fixture *f = *state;
    struct tm_probed_links slow = {.count = 3, .rate_bit_s = 1e7, .latency_ms = 1, .spread = 0.1};
    struct tm_plan_fleet fleet = f->result.answers[0].fleet;
    fleet.parts[0].spot = 8;
    struct tm_replan_state now = {.fleet = &fleet, .elapsed_s = 3600};
    assert_int_equal(tm_plan_replan(&f->supply, &f->request, &now, &f->replan, &f->next, NULL), 0);
    double before = f->replan.running.prediction.samples_per_s;
    now.links = &slow;
    assert_int_equal(tm_plan_replan(&f->supply, &f->request, &now, &f->replan, &f->next, NULL), 0);
    assert_true(f->replan.running.prediction.samples_per_s < 0.5 * before);
}

static void test_nothing_left(void **state)
{
    struct fixture *f = *state;
    struct tm_replan_state now = {.fleet = &f->result.answers[0].fleet, .samples_done = 1e8};
    assert_int_equal(tm_plan_replan(&f->supply, &f->request, &now, &f->replan, &f->next, NULL), -(int)TM_EUSAGE);
    now.samples_done = 9e7; /* the deadline has passed: it fails, and something is said all the same */
    now.elapsed_s = 50 * 3600;
    assert_int_equal(tm_plan_replan(&f->supply, &f->request, &now, &f->replan, &f->next, NULL), 0);
    assert_false(f->replan.holds);
    assert_int_equal(f->next.count, 0);
}

#define FIXTURE_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

TM_TEST_MAIN(FIXTURE_TEST(test_keeps_what_holds), FIXTURE_TEST(test_plans_anew), FIXTURE_TEST(test_probed_links),
             FIXTURE_TEST(test_nothing_left), TM_TEST(test_moves_to_another_cloud))
