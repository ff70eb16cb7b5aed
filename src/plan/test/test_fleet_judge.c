/* Fleets judged by simulation: against the closed form where nothing happens, and by hand where something does; and the
 * published planners on a catalogue.
 * builds: release asan */
#include "plan/fleet_judge.h"
#include "plan/pareto.h"
#include "plan/rivals.h"
#include "plan/test/plan_helpers.h"

#include <stdio.h>

#define CATALOG                                                                                                        \
    "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,made up\n"                                            \
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\nFast,,40,1555,19.5,156,312,312,,"   \
    "s\n"                                                                                                              \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,fast.1,Fast,1,8,64,40,25,s\naws,fast.2,Fast,2,16,128,40,25,s\naws,cpu,,,4,16,,10,s\n"                         \
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"                                                      \
    "aws,r1,r1a,fast.1,4,1,s\naws,r1,r1b,fast.1,4,1,s\naws,r1,r1a,fast.2,8.5,2,s\naws,r1,r1a,cpu,0.1,0.02,s\n"

struct fixture {
    struct planning basis;
    struct tm_plan_request request;
    struct tm_supply supply;
    struct tm_trace trace;
};

static int set_up(void **state)
{
    struct fixture *f = tm_calloc(1, sizeof *f);
    assert_non_null(f);
    tm_supply_init(&f->supply);
    tm_trace_init(&f->trace);
    f->request = planning_init(&f->basis, CATALOG);
    assert_int_equal(tm_plan_make_supply(&f->basis.catalog, &f->request, &f->supply, NULL), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tm_trace_deinit(&f->trace);
    tm_supply_deinit(&f->supply);
    planning_deinit(&f->basis);
    tm_free(f);
    return 0;
}

static struct tm_plan_answer answer_of(struct fixture *f, int spot, int on_demand)
{
    struct tm_plan_answer answer = {.fleet = {.part_count = 1}};
    const struct tm_offer *offer = &f->basis.catalog.offers[0];
    answer.fleet.parts[0] = (struct tm_plan_part){&f->basis.catalog.instances[offer->instance], offer, spot, on_demand};
    assert_int_equal(tm_plan_judge(&f->supply, &f->request, &answer, NULL), 0);
    return answer;
}

static void add(struct fixture *f, double hour, int in, int out)
{
    assert_int_equal(tm_trace_add(&f->trace, (int64_t)(hour * 3600e3), in, out, NAN, NULL), 0);
    if (in > f->trace.instances_max) f->trace.instances_max = in;
}

static struct tm_fleet_judge judge_of(struct fixture *f, const char *policy)
{
    return (struct tm_fleet_judge){.env = tm_env_real(),
                                   .catalog = &f->basis.catalog,
                                   .trace = f->trace.event_count > 0 ? &f->trace : NULL,
                                   .policy = policy};
}

static void judge_as(struct fixture *f, const char *policy, struct tm_plan_answer *answer)
{
    struct tm_fleet_judge judge = judge_of(f, policy);
    struct tm_error e = {0};
    int rc = tm_fleet_judge_answer(&judge, &f->request, answer, &e);
    assert_row(rc == 0, "%s", e.text);
}

/* Where nothing is lost the simulation is the closed form. */
static void test_nothing_is_lost(void **state)
{
    struct fixture *f = *state;
    add(f, 0, 4, 0);
    f->trace.end_ms = 3600000;
    for (int spot = 0; spot <= 4; spot += 2) {
        struct tm_plan_answer answer = answer_of(f, spot, 4 - spot);
        double least_s = 180 + 1e8 / answer.prediction.samples_per_s;
        judge_as(f, NULL, &answer);
        assert_row(fabs(answer.expectation.time_s.mean / least_s - 1) < 0.01, "%d spot: %g s, least %g s", spot,
                   answer.expectation.time_s.mean, least_s);
        double usd = answer.expectation.time_s.mean / 3600 * (spot + 4.0 * (4 - spot));
        assert_row(fabs(answer.expectation.cost_usd.mean / usd - 1) < 0.01, "%d spot: $%g, want $%g", spot,
                   answer.expectation.cost_usd.mean, usd);
        assert_true(answer.expectation.p_deadline == 1);
        assert_true(answer.expectation.time_s.p10 < answer.expectation.time_s.p90); /* steps are not known exactly */
    }
}

/* Half of the zone gone half of the time: a fleet of spot instances does three quarters of the work in that time, and
 * pays for three quarters of the instances; one on demand does not notice. */
static void test_losses_cost(void **state)
{
    struct fixture *f = *state;
    add(f, 0, 8, 0);
    add(f, 3, 0, 4);
    add(f, 6, 4, 0);
    f->trace.end_ms = (int64_t)(6 * 3600e3);
    struct tm_plan_answer spot = answer_of(f, 4, 0);
    struct tm_plan_answer on_demand = answer_of(f, 0, 4);
    double full_s = 1e8 / spot.prediction.samples_per_s;
    judge_as(f, "checkpoint", &spot);
    judge_as(f, "checkpoint", &on_demand);
    assert_row(spot.expectation.time_s.mean > 1.15 * full_s && spot.expectation.time_s.mean < 1.6 * full_s,
               "%g s, undisturbed %g s", spot.expectation.time_s.mean, full_s);
    assert_true(on_demand.expectation.time_s.mean < 1.03 * full_s + 400);
    f->request.job.deadline_s = 1.1 * full_s + 400;
    judge_as(f, "checkpoint", &spot);
    judge_as(f, "checkpoint", &on_demand);
    assert_row(spot.expectation.p_deadline + 0.2 < on_demand.expectation.p_deadline, "spot %g, on demand %g",
               spot.expectation.p_deadline, on_demand.expectation.p_deadline);
}

static void test_never_there(void **state)
{
    struct fixture *f = *state;
    add(f, 0, 8, 0);
    add(f, 0.001, 0, 8);
    f->trace.end_ms = (int64_t)(100 * 3600e3);
    struct tm_plan_answer answer = answer_of(f, 4, 0);
    struct tm_fleet_judge judge = judge_of(f, NULL);
    judge.runs = 1; /* each goes on for as long as a job is given */
    assert_int_equal(tm_fleet_judge_answer(&judge, &f->request, &answer, NULL), 0);
    assert_false(answer.expectation.finishes);
    struct tm_trace empty;
    tm_trace_init(&empty);
    judge.trace = &empty;
    assert_int_equal(tm_fleet_judge_answer(&judge, &f->request, &answer, NULL), -(int)TM_EINPUT);
    judge.policy = "nobody";
    assert_int_equal(tm_fleet_judge_answer(&judge, &f->request, &answer, NULL), -(int)TM_EUSAGE);
    tm_trace_deinit(&empty);
}

static struct tm_plan_result *search(struct fixture *f, struct tm_plan_result **out_other)
{
    struct tm_plan_result *results = tm_calloc(2, sizeof *results);
    struct tm_fleet_judge judge = judge_of(f, NULL);
    struct tm_error e = {0};
    assert_non_null(results);
    int rc = tm_plan_search_judged(&judge, &f->supply, &f->request, &results[0], &results[1], &e);
    assert_row(rc == 0, "%s", e.text);
    *out_other = &results[1];
    return results;
}

/* What is answered holds by the judge's own figures, best first, and what any other caller gets for the fleet is the
 * same to the last digit; no bound lies above the answer. */
static void test_answers_are_the_judges(void **state)
{
    struct fixture *f = *state;
    static const double deadlines_h[] = {INFINITY, 40, 20, 12};
    f->request.programs_max = 20;
    f->request.job.burst_share = 0.5;
    f->request.job.burst_size = 0.25;
    f->request.job.outage_s = 900;
    f->request.job.replace_s = 180;
    for (size_t i = 0; i < sizeof deadlines_h / sizeof *deadlines_h; i++) {
        struct tm_plan_result *other;
        f->request.job.deadline_s = deadlines_h[i] * 3600;
        struct tm_plan_result *result = search(f, &other);
        assert_row(result->count > 0, "%g h: nothing found", deadlines_h[i]);
        for (size_t k = 0; k < result->count; k++) {
            struct tm_plan_answer *answer = &result->answers[k], again = *answer;
            assert_row(tm_plan__holds(&f->request, &answer->expectation), "%g h: %zu", deadlines_h[i], k);
            judge_as(f, "tidemill", &again);
            assert_memory_equal(&again.expectation, &answer->expectation, sizeof again.expectation);
            assert_row(k == 0 || answer->expectation.cost_usd.mean >= answer[-1].expectation.cost_usd.mean,
                       "%g h: %zu is out of order", deadlines_h[i], k);
        }
        assert_row(isnan(result->bound) || result->bound <= result->answers[0].expectation.cost_usd.mean,
                   "%g h: $%g chosen, bound $%g", deadlines_h[i], result->answers[0].expectation.cost_usd.mean,
                   result->bound);
        tm_free(result);
    }
}

/* The closed form took a fleet for dear where the trace has few losses in a row of long lives: $37.76 was chosen beside
 * "no mix is below $52.41". */
static void test_no_bound_above_the_answer(void **state)
{
    struct fixture *f = *state;
    struct tm_plan_result *other;
    add(f, 0, 8, 0);
    f->trace.end_ms = (int64_t)(20 * 3600e3); /* nothing is ever lost, though the request says every two hours */
    f->request.supply.loss_per_s = 1 / 7200.0;
    f->request.job.replace_s = 3600;
    f->request.programs_max = 20;
    struct tm_plan_result *closed = tm_calloc(1, sizeof *closed);
    assert_non_null(closed);
    assert_int_equal(tm_plan_solve(&f->supply, &f->request, closed, NULL), 0);
    struct tm_plan_result *result = search(f, &other);
    assert_true(closed->bound > result->answers[0].expectation.cost_usd.mean); /* the contradiction is there ... */
    assert_true(isnan(result->bound) && isnan(result->gap));                   /* ... and is not printed */
    tm_free(closed);
    tm_free(result);
}

/* A run has one micro-batch size for life: the job's where it says one, else one that divides the batch. */
static void test_micro_batch(void **state)
{
    struct fixture *f = *state;
    struct tm_fleet_judge judge = judge_of(f, "tidemill");
    double best = 0;
    f->request.supply.batch = 24; /* no power of two above 8 divides it */
    for (int micro = 0; micro <= 12; micro = micro == 0 ? 1 : micro * 2 + (micro == 2) * 2) { /* 0, 1, 2, 6, 12 */
        struct tm_plan_answer answer = answer_of(f, 4, 0);
        struct tm_fleet_layouts layouts;
        f->request.supply.micro_batch = micro;
        assert_int_equal(tm_fleet_layouts_init(&judge, &f->request, &answer.fleet, &layouts, NULL), 0);
        int settled = layouts.prediction.micro_batch;
        assert_row(micro > 0 ? settled == micro : 24 % settled == 0, "%d: %d", micro, settled);
        double four = layouts.layouts.list[layouts.layouts.best[4]].samples_per_s;
        double three = layouts.layouts.list[layouts.layouts.best[3]].samples_per_s;
        if (micro == 0) best = four + three;
        assert_row(four + three <= best * (1 + 1e-9), "%d is better than what was chosen", micro);
        assert_row(micro < 12 || four <= three * (1 + 1e-9), "two micro-batches keep two instances busy, not four");
        tm_fleet_layouts_deinit(&layouts);
    }
}

/* Anchors that the job names are beside every fleet, and cost money. */
static void test_named_anchors(void **state)
{
    struct fixture *f = *state;
    static const enum tm_plan_market markets[] = {TM_PLAN_MIXED, TM_PLAN_SPOT_ONLY, TM_PLAN_ON_DEMAND_ONLY};
    f->request.anchors_said = 3;
    f->request.supply.anchor_type = &f->basis.catalog.instances[2];
    f->request.programs_max = 20;
    for (size_t i = 0; i < sizeof markets / sizeof *markets; i++) {
        struct tm_plan_result *other;
        f->request.market = markets[i];
        tm_supply_deinit(&f->supply);
        tm_supply_init(&f->supply);
        assert_int_equal(tm_plan_make_supply(&f->basis.catalog, &f->request, &f->supply, NULL), 0);
        struct tm_plan_result *result = search(f, &other);
        assert_row(result->count > 0, "%zu: nothing found", i);
        for (size_t k = 0; k < result->count; k++) {
            const struct tm_plan_fleet *fleet = &result->answers[k].fleet;
            assert_row(fleet->anchor_instances == 3 && fleet->anchor.instance == f->request.supply.anchor_type,
                       "%zu: %d anchors", i, fleet->anchor_instances);
        }
        tm_free(result);
    }
}

/* Money and time that nothing can meet: no answer, and what would do. */
static void test_infeasible(void **state)
{
    struct fixture *f = *state;
    struct tm_plan_result *other;
    struct tm_plan_answer fastest = answer_of(f, 0, 8);
    double least_s = 1e8 / fastest.prediction.samples_per_s;
    f->request.job.deadline_s = 0.8 * least_s;
    struct tm_plan_result *result = search(f, &other);
    assert_int_equal(result->count, 0);
    assert_row(result->deadline_needed_s > 0.8 * least_s && result->deadline_needed_s < 3 * least_s, "%g s of %g s",
               result->deadline_needed_s, least_s);
    tm_free(result);
}

/* DeepVM's planners on a catalogue stay within the price and give whole fleets. */
static void test_rivals(void **state)
{
    struct fixture *f = *state;
    for (enum tm_deepvm_planner planner = TM_DEEPVM; planner <= TM_DEEPVM_PERF_FIRST; planner++) {
        for (double usd_h = 0.5; usd_h < 20; usd_h *= 2) {
            struct tm_plan_answer answer = {.anchors = 0};
            bool found = false;
            f->request.max_usd_h = usd_h;
            assert_int_equal(tm_plan_rival(&f->supply, &f->request, planner, &answer, &found, NULL), 0);
            if (!found) continue;
            assert_int_equal(tm_plan_judge(&f->supply, &f->request, &answer, NULL), 0);
            assert_row(answer.expectation.usd_h <= usd_h, "planner %d: $%g of $%g", (int)planner,
                       answer.expectation.usd_h, usd_h);
        }
    }
}

static int judge_and_drop(struct fixture *f, struct tm_plan_answer *answer)
{
    struct tm_fleet_judge judge = judge_of(f, NULL);
    judge.runs = 1;
    return tm_fleet_judge_answer(&judge, &f->request, answer, NULL);
}

static int search_and_drop(struct fixture *f, struct tm_plan_result *out)
{
    struct tm_fleet_judge judge = judge_of(f, NULL);
    judge.runs = 1;
    return tm_plan_search_judged(&judge, &f->supply, &f->request, out, NULL, NULL);
}

static void test_without_memory(void **state)
{
    struct fixture *f = *state;
    add(f, 0, 8, 0);
    add(f, 3, 0, 4);
    f->trace.end_ms = (int64_t)(6 * 3600e3);
    struct tm_plan_answer answer = answer_of(f, 4, 0);
    f->request.job.samples = 1e6;
    TM_FAIL_EACH_ALLOC(rc = judge_and_drop(f, &answer));
    struct tm_plan_result *result = tm_calloc(1, sizeof *result);
    assert_non_null(result);
    f->request.top = 1;
    TM_FAIL_EACH_ALLOC(rc = search_and_drop(f, result));
    tm_free(result);
}

/* What is shown of the trade between money and time are the judge's figures, cheapest first, each faster than the last.
 */
static void test_trade_is_the_judges(void **state)
{
    struct fixture *f = *state;
    struct tm_fleet_judge judge = judge_of(f, NULL);
    struct tm_plan_result *result = tm_calloc(1, sizeof *result);
    struct tm_error e = {0};
    assert_non_null(result);
    int rc = tm_plan_pareto(&judge, &f->supply, &f->request, result, &e);
    assert_row(rc == 0 && result->count > 1, "%s, %zu answers", e.text, result->count);
    for (size_t i = 0; i < result->count; i++) {
        struct tm_plan_answer again = result->answers[i];
        again.expectation.time_s.mean = 0;
        judge_as(f, NULL, &again);
        const struct tm_expectation *now = &result->answers[i].expectation,
                                    *last = &result->answers[i > 0 ? i - 1 : 0].expectation;
        assert_true(again.expectation.time_s.mean == now->time_s.mean);
        assert_true(again.expectation.cost_usd.mean == now->cost_usd.mean);
        if (i > 0) assert_true(now->cost_usd.mean > last->cost_usd.mean && now->time_s.mean < last->time_s.mean);
    }
    tm_free(result);
}

#define FIXTURE_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

TM_TEST_MAIN(FIXTURE_TEST(test_nothing_is_lost), FIXTURE_TEST(test_losses_cost), FIXTURE_TEST(test_never_there),
             FIXTURE_TEST(test_answers_are_the_judges), FIXTURE_TEST(test_no_bound_above_the_answer),
             FIXTURE_TEST(test_infeasible), FIXTURE_TEST(test_rivals), FIXTURE_TEST(test_trade_is_the_judges),
             FIXTURE_TEST(test_without_memory), FIXTURE_TEST(test_micro_batch), FIXTURE_TEST(test_named_anchors))
