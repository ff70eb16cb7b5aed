/* The search over fleets: against weighing every fleet by hand, and under constraints.
 * builds: release asan */
#include "plan/search.h"
#include "plan/test/plan_helpers.h"

#include <stdio.h>

#define CATALOG                                                                                                        \
    "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,made up\n"                                            \
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\n"                                   \
    "Slow,,16,300,8,,65,,,s\nFast,,40,1555,19.5,156,312,312,,s\nTrainium,,40,1555,19.5,156,312,312,,s\n"               \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,slow.1,Slow,1,4,16,16,10,s\naws,fast.1,Fast,1,8,64,40,25,s\naws,fast.8,Fast,8,96,1000,40,100,s\n"             \
    "aws,cpu,,,4,16,,10,s\naws,dark.1,Fast,1,8,64,40,,s\naws,fast.2,Fast,2,16,128,40,50,s\n"                           \
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"                                                      \
    "aws,r1,r1a,slow.1,0.5,0.15,s\naws,r2,r2a,slow.1,0.45,0.2,s\naws,r1,r1a,fast.1,4,1.2,s\n"                          \
    "aws,r1,r1a,fast.8,32,9,s\naws,r1,r1a,cpu,0.1,0.02,s\naws,r1,r1a,dark.1,0.01,0.01,s\n"                             \
    "aws,r1,r1b,slow.1,0.5,0.16,s\naws,r1,r1b,fast.1,4,1.25,s\naws,r1,r1a,fast.2,8.2,2.5,s\n"

enum { OFFERS = 9 };

struct fixture {
    struct planning basis;
    struct tm_plan_request request;
    struct tm_plan_result result;
    struct tm_plan_result other;
};

static int set_up(void **state)
{
    struct fixture *f = tm_calloc(1, sizeof *f);
    assert_non_null(f);
    f->request = planning_init(&f->basis, CATALOG);
    f->request.supply.default_loss_per_s = 1 / 86400.0;
    f->request.job.replace_s = 180;
    f->request.top = 8;
    f->request.programs_max = 25;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    planning_deinit(&f->basis);
    tm_free(f);
    return 0;
}

/* A fleet by hand: counts at each of the catalogue's offers. */
struct hand {
    int spot[OFFERS];
    int on_demand[OFFERS];
};

static struct tm_fleet_group group_by_hand(struct fixture *f, const struct tm_instance_type *instance, int instances)
{
    const struct tm_gpu *gpu = tm_catalog_gpu(&f->basis.catalog, instance->gpu);
    struct tm_fleet_group group = {.instance = instance->name,
                                   .instances = instances,
                                   .gpus_per_node = (int)instance->gpus,
                                   .network_bit_s = instance->network_gbps * 1e9,
                                   .gpu = {.name = gpu->name,
                                           .memory_bytes_s = gpu->memory_gbyte_s * 1e9,
                                           .memory_gib = instance->gpu_memory_gib}};
    for (int p = 0; p < TM_PRECISION_COUNT; p++)
        group.gpu.flops[p] = gpu->tflops[p] * 1e12;
    return group;
}

/* Expected cost (or time) of a fleet; infinite where a constraint fails. */
static double weigh(struct fixture *f, const struct hand *hand)
{
    struct tm_fleet_group groups[OFFERS];
    size_t count = 0;
    struct tm_expect_fleet fleet = {.usd_h = 0};
    int instances = 0;
    bool slow = false;
    for (size_t i = 0; i < OFFERS; i++)
        instances += hand->spot[i] + hand->on_demand[i];
    for (size_t i = 0; i < OFFERS; i++) {
        const struct tm_offer *offer = &f->basis.catalog.offers[i];
        const struct tm_instance_type *instance = &f->basis.catalog.instances[offer->instance];
        int here = hand->spot[i] + hand->on_demand[i];
        if (here == 0) continue;
        size_t at = 0;
        while (at < count && strcmp(groups[at].instance, instance->name) != 0)
            at++;
        if (at == count) groups[count++] = group_by_hand(f, instance, 0);
        groups[at].instances += here;
        slow = slow || strcmp(instance->gpu, "Slow") == 0;
        fleet.usd_h += hand->spot[i] * offer->spot_usd_h + hand->on_demand[i] * offer->on_demand_usd_h;
        tm_expect__add_pool(&f->request.job, instances, hand->spot[i], f->request.supply.loss_per_s, &fleet.losses);
    }
    struct tm_predict_request predict = {.model = &f->basis.model,
                                         .groups = groups,
                                         .group_count = count,
                                         .precision = slow ? TM_FP16 : TM_BF16,
                                         .batch = f->request.supply.batch,
                                         .compute = &f->basis.compute,
                                         .comm = &f->basis.comm};
    struct tm_prediction prediction;
    if (count == 0 || tm_predict(&predict, &prediction, NULL) != 0) return INFINITY;
    fleet.samples_per_s = tm_estimate_around(prediction.samples_per_s, tm_estimate_spread(&prediction.step_s));
    struct tm_expectation got = tm__expect(&f->request.job, &fleet);
    if (got.p_deadline < f->request.min_probability && isfinite(f->request.job.deadline_s)) return INFINITY;
    if (got.usd_h > f->request.max_usd_h || got.cost_usd.mean > f->request.budget_usd) return INFINITY;
    return f->request.objective == TM_PLAN_CHEAPEST ? got.cost_usd.mean : got.time_s.mean;
}

/* Every count from 1 to 5 and every split of it, at every offer. */
static double brute_force(struct fixture *f)
{
    double best = INFINITY;
    for (size_t i = 0; i < OFFERS; i++) {
        if (f->basis.catalog.instances[f->basis.catalog.offers[i].instance].gpus < 1 || i == 5)
            continue; /* cpu, dark.1 */
        for (int instances = 1; instances <= 5; instances++) {
            for (int on_demand = 0; on_demand <= instances; on_demand++) {
                struct hand hand = {{0}, {0}};
                hand.spot[i] = instances - on_demand;
                hand.on_demand[i] = on_demand;
                best = fmin(best, weigh(f, &hand));
            }
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
    f->request.max_instances = 5;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        f->request.objective = rows[i].objective;
        f->request.job.deadline_s = rows[i].deadline_h * 3600;
        f->request.budget_usd = rows[i].budget;
        f->request.max_usd_h = rows[i].hourly;
        f->request.supply.loss_per_s = 1 / (rows[i].life_h * 3600);
        assert_row(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, &e) == 0, "row %zu: %s", i,
                   e.text);
        double want = brute_force(f);
        assert_row((f->result.count > 0) == isfinite(want), "row %zu: %zu answers, want %g", i, f->result.count, want);
        if (f->result.count == 0) continue;
        const struct tm_expectation *got = &f->result.answers[0].expectation;
        double value = rows[i].objective == TM_PLAN_CHEAPEST ? got->cost_usd.mean : got->time_s.mean;
        /* Mixes, which the hand does not try here, may be better still. */
        assert_row(value < want * (1 + 1e-9), "row %zu: %g, want %g", i, value, want);
        f->request.programs_max = 0;
        assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, &e), 0);
        f->request.programs_max = 25;
        got = &f->result.answers[0].expectation;
        value = rows[i].objective == TM_PLAN_CHEAPEST ? got->cost_usd.mean : got->time_s.mean;
        assert_row(fabs(value / want - 1) < 1e-9, "row %zu, one type: %g, want %g", i, value, want);
    }
}

/* Every mix of fast.2, fast.1 and fast.8 in r1 on spot and on demand, within quotas. */
static double brute_mixes(struct fixture *f, int fast2_max, int fast_max, int fast8_max, int most)
{
    double best = INFINITY;
    for (int a = 0; a <= fast2_max; a++) {
        for (int b = 0; a + b <= fast2_max; b++) {
            for (int c = 0; c <= fast_max; c++) {
                for (int d = 0; c + d <= fast_max; d++) {
                    for (int g = 0; g <= fast8_max; g++) {
                        struct hand hand = {{0}, {0}};
                        if (a + b + c + d + g > most) continue;
                        hand.spot[8] = a;
                        hand.on_demand[8] = b;
                        hand.spot[2] = c;
                        hand.on_demand[2] = d;
                        hand.spot[3] = g;
                        best = fmin(best, weigh(f, &hand));
                    }
                }
            }
        }
    }
    return best;
}

/* Where quotas force several types, what the integer programs find is within 2% of trying every mix, and the bound
 * that they prove lies below it. */
static void test_mixes_against_brute_force(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum tm_plan_objective objective;
        double deadline_h, budget, hourly;
        int fast2, fast, fast8;
    } rows[] = {
        {TM_PLAN_FASTEST, INFINITY, INFINITY, 6, 2, 2, 1},   {TM_PLAN_FASTEST, INFINITY, INFINITY, 4, 1, 2, 1},
        {TM_PLAN_CHEAPEST, 12, INFINITY, INFINITY, 1, 2, 1}, {TM_PLAN_CHEAPEST, 9, INFINITY, INFINITY, 1, 2, 0},
        {TM_PLAN_FASTEST, INFINITY, 40, INFINITY, 1, 1, 0},  {TM_PLAN_FASTEST, INFINITY, INFINITY, 30, 1, 1, 1},
        {TM_PLAN_FASTEST, INFINITY, INFINITY, 8, 1, 2, 0},   {TM_PLAN_CHEAPEST, 6, INFINITY, INFINITY, 1, 3, 0},
        {TM_PLAN_CHEAPEST, 3, INFINITY, INFINITY, 2, 2, 1},
    };
    f->request.max_instances = 6;
    int mixed = 0;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        f->request.objective = rows[i].objective;
        f->request.job.deadline_s = rows[i].deadline_h * 3600;
        f->request.budget_usd = rows[i].budget;
        f->request.max_usd_h = rows[i].hourly;
        f->request.quotas[0] = (struct tm_plan_quota){"fast.2", 3, rows[i].fast2, false};
        f->request.quotas[1] = (struct tm_plan_quota){"fast.1", 3, rows[i].fast, false};
        f->request.quotas[2] = (struct tm_plan_quota){"fast.8", 3, rows[i].fast8, false};
        f->request.quotas[3] = (struct tm_plan_quota){"Slow", 3, 0, false};
        f->request.quota_count = 4;
        assert_row(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, &e) == 0, "row %zu: %s", i,
                   e.text);
        double want = brute_mixes(f, rows[i].fast2, rows[i].fast, rows[i].fast8, 6);
        assert_row((f->result.count > 0) == isfinite(want), "row %zu: want %g", i, want);
        if (f->result.count == 0) continue;
        const struct tm_plan_answer *best = &f->result.answers[0];
        double value =
            rows[i].objective == TM_PLAN_CHEAPEST ? best->expectation.cost_usd.mean : best->expectation.time_s.mean;
        assert_row(value < want * 1.02, "row %zu: %g, want %g", i, value, want);
        assert_row(f->result.bound <= value && f->result.bound > 0, "row %zu: bound %g of %g", i, f->result.bound,
                   value);
        mixed += best->fleet.part_count > 1 && best->fleet.parts[0].instance != best->fleet.parts[1].instance;
    }
    assert_true(mixed > 0);
}

/* A deadline that bursts endanger makes the fleet lie in several zones, or partly on demand. */
static void test_spreads_over_zones(void **state)
{
    struct fixture *f = *state;
    bool spread = false;
    f->basis.compute.product_spread = f->basis.compute.conv_spread = f->basis.compute.floor_spread =
        0.02; /* or the throughput's own spread would hide it */
    f->request.job.burst_share = 1;
    f->request.job.burst_size = 0.5;
    f->request.job.outage_s = 7200;
    f->request.max_instances = 4;
    f->request.market = TM_PLAN_SPOT_ONLY;
    f->request.quotas[0] = (struct tm_plan_quota){"Fast", 3, 0, false};
    f->request.quota_count = 1;
    for (double hours = 20; hours < 60; hours += 1) {
        f->request.job.deadline_s = hours * 3600;
        assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL), 0);
        if (f->result.count > 0) spread = spread || f->result.answers[0].fleet.part_count == 2;
    }
    assert_true(spread);
}

/* Anchors hold two copy sets and take one in within a quarter of the interval. */
static void test_anchors(void **state)
{
    struct fixture *f = *state;
    f->request.state_bytes = 20.0 * (1 << 30);
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL), 0);
    for (size_t i = 0; i < f->result.count; i++) {
        const struct tm_plan_answer *answer = &f->result.answers[i];
        double gib = answer->fleet.anchor_instances * 16.0;
        double gbps = answer->fleet.anchor_instances * 10.0;
        for (size_t k = 0; k < answer->fleet.part_count; k++) {
            gib += answer->fleet.parts[k].on_demand * answer->fleet.parts[k].instance->memory_gib;
            gbps += answer->fleet.parts[k].on_demand * answer->fleet.parts[k].instance->network_gbps;
        }
        bool in_r1 = strcmp(answer->fleet.parts[0].offer->region, "r1") == 0; /* r2 has nothing to rent for it */
        if (tm_plan_spot_instances(&answer->fleet) == 0 || !in_r1) continue;
        assert_row(gib >= 40 && gbps * 1e9 >= 20.0 * (1 << 30) * 8 / (answer->expectation.checkpoint_interval_s / 4),
                   "answer %zu: %g GiB, %g Gbit/s", i, gib, gbps);
        assert_true(answer->anchors >= answer->fleet.anchor_instances && answer->anchors > 0);
    }
    f->request.state_bytes = 0;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL), 0);
    assert_int_equal(f->result.answers[0].fleet.anchor_instances, 0);
}

/* Quotas of a type, a GPU, a zone, a region, a cloud, and of one market. */
static void test_quotas(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        int markets;
        int limit;
    } rows[] = {{"slow.1", 3, 2}, {"Fast", 3, 1}, {"r1a", 3, 3},  {"r1", 3, 2},      {"aws", 3, 2},
                {"slow.1", 1, 1}, {"AWS", 1, 0},  {"slow", 3, 2}, {"r1/slow", 3, 1}, {"aws", 3, 0}};
    f->request.job.deadline_s = 12 * 3600;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        f->request.quotas[0] = (struct tm_plan_quota){rows[i].name, rows[i].markets, rows[i].limit, false};
        f->request.quota_count = 1;
        assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL), 0);
        assert_row(f->result.count > 0 || i == 9, "%s: nothing", rows[i].name);
        for (size_t k = 0; k < f->result.count; k++) {
            int counted = 0;
            const struct tm_plan_fleet *fleet = &f->result.answers[k].fleet;
            for (size_t p = 0; p < fleet->part_count; p++) {
                if (!tm_plan__quota_covers(&f->request.quotas[0], fleet->parts[p].instance, fleet->parts[p].offer))
                    continue;
                counted += (rows[i].markets & 1) != 0 ? fleet->parts[p].spot : 0;
                counted += (rows[i].markets & 2) != 0 ? fleet->parts[p].on_demand : 0;
            }
            assert_row(counted <= rows[i].limit, "%s: %d of %d", rows[i].name, counted, rows[i].limit);
        }
    }
}

static void test_order_and_kinds(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, &f->other, NULL), 0);
    assert_true(f->result.count >= 3); /* one for each type with a GPU and a known network, and mixes */
    for (size_t i = 1; i < f->result.count; i++)
        assert_true(f->result.answers[i - 1].expectation.cost_usd.mean <=
                    f->result.answers[i].expectation.cost_usd.mean);
    f->request.market = TM_PLAN_ON_DEMAND_ONLY;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL), 0);
    for (size_t i = 0; i < f->result.count; i++)
        assert_int_equal(tm_plan_spot_instances(&f->result.answers[i].fleet), 0);
    f->request.market = TM_PLAN_SPOT_ONLY;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL), 0);
    for (size_t i = 0; i < f->result.count; i++)
        assert_int_equal(tm_plan_on_demand_instances(&f->result.answers[i].fleet), 0);
}

/* On its own objective ours is never worse than the published idea, judged alike: over lives of instances, deadlines,
 * budgets, objectives and markets. */
static void test_never_worse_than_srift(void **state)
{
    struct fixture *f = *state;
    static const double lives_h[] = {0.3, 1, 3, 10, 100};
    static const double limits[] = {4, 8, 16, 48}; /* hours, or tens of dollars */
    f->request.programs_max = 8;
    int compared = 0;
    for (size_t i = 0; i < TM_COUNT(lives_h) * TM_COUNT(limits) * 4; i++) {
        double life_h = lives_h[i % 5];
        double limit = limits[i / 5 % 4];
        bool fastest = i / 20 % 2 == 1;
        f->request.market = i / 40 == 0 ? TM_PLAN_MIXED : TM_PLAN_SPOT_ONLY;
        f->request.objective = fastest ? TM_PLAN_FASTEST : TM_PLAN_CHEAPEST;
        f->request.supply.loss_per_s = 1 / (life_h * 3600);
        f->request.job.deadline_s = fastest ? INFINITY : limit * 3600;
        f->request.budget_usd = fastest ? limit * 10 : INFINITY;
        assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, &f->other, NULL), 0);
        if (f->other.count == 0) continue;
        const struct tm_expectation *theirs = &f->other.answers[0].expectation;
        bool theirs_holds = theirs->finishes && theirs->p_deadline >= f->request.min_probability &&
                            theirs->cost_usd.mean <= f->request.budget_usd;
        assert_row(!theirs_holds || f->result.count > 0, "life %g h, limit %g: nothing found", life_h, limit);
        if (f->result.count == 0) continue;
        const struct tm_expectation *ours = &f->result.answers[0].expectation;
        double own = fastest ? ours->time_s.mean : ours->cost_usd.mean;
        double other = fastest ? theirs->time_s.mean : theirs->cost_usd.mean;
        compared += theirs_holds;
        assert_row(ours->p_deadline >= f->request.min_probability && ours->cost_usd.mean <= f->request.budget_usd,
                   "life %g h, limit %g: breaks a constraint", life_h, limit);
        assert_row(!theirs_holds || own <= other * (1 + 1e-12), "life %g h, limit %g: %g > %g", life_h, limit, own,
                   other);
    }
    assert_row(compared > 20, "%d compared", compared);
}

static void test_nothing_found(void **state)
{
    struct fixture *f = *state;
    f->request.budget_usd = 0.5;
    f->request.job.deadline_s = 10 * 3600;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL), 0);
    assert_int_equal(f->result.count, 0);
    double needed = f->result.budget_needed_usd;
    assert_true(isfinite(needed) && needed > 0.5);
    f->request.budget_usd = needed * 1.0001; /* the relaxation that was named is enough */
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL), 0);
    assert_true(f->result.count > 0);
}

#define HEAD                                                                                                           \
    "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,made up\n"                                            \
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\nSlow,,16,300,8,,65,,,s\n"           \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,slow.1,Slow,1,4,16,16,10,s\n[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"

/* Prices that are none are refused where they come in; an offer without any is never rented. */
static void test_wrong_prices(void **state)
{
    (void)state;
    static const char *const rows[] = {"aws,r1,r1a,slow.1,-1,0.1,s\n", "aws,r1,r1a,slow.1,nan,0.1,s\n",
                                       "aws,r1,r1a,slow.1,0.5,-0.1,s\n", "aws,r1,r1a,slow.1,inf,0.1,s\n"};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_catalog catalog;
        struct tm_error e = {0};
        char text[2048];
        (void)snprintf(text, sizeof text, "%s%s", HEAD, rows[i]);
        tm_catalog_init(&catalog);
        assert_row(tm_catalog_parse(&catalog, "c", text, strlen(text), false, &e) == -(int)TM_EINPUT, "%s", rows[i]);
        tm_catalog_deinit(&catalog);
    }
}

/* Searches another catalogue than the fixture's. */
static void search_text(struct fixture *f, const char *text, size_t length)
{
    struct tm_error e = {0};
    tm_catalog_deinit(&f->basis.catalog);
    tm_catalog_init(&f->basis.catalog);
    int rc = tm_catalog_parse(&f->basis.catalog, "c", text, length, false, &e);
    if (rc == 0) rc = tm_catalog_finish(&f->basis.catalog, &e);
    if (rc == 0) rc = tm_plan__search(&f->basis.catalog, &f->request, &f->result, &f->other, &e);
    assert_row(rc == 0, "%s", e.text);
}

static void test_few_offers(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *row;
        size_t answers;
        int spot;
    } rows[] = {
        {"", 0, 0},
        {"aws,r1,r1a,slow.1,0.5,0.15,s\n", 1, 1},
        {"aws,r1,,slow.1,0.5,,s\n", 1, 0},
        {"aws,r1,r1a,slow.1,,0.15,s\n", 1, 1},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[2048];
        (void)snprintf(text, sizeof text, "%s%s", HEAD, rows[i].row);
        search_text(f, text, strlen(text));
        assert_row(f->result.count == rows[i].answers, "\"%s\": %zu answers", rows[i].row, f->result.count);
        if (f->result.count > 0)
            assert_row((tm_plan_spot_instances(&f->result.answers[0].fleet) > 0) == (rows[i].spot > 0), "%s",
                       rows[i].row);
    }
}

/* A hundred thousand offers in a thousand regions, of which one is cheapest. */
static void test_many_offers(void **state)
{
    struct fixture *f = *state;
    struct tm_text text;
    tm_text_init(&text, 16 << 20);
    tm_text_puts(&text, HEAD);
    for (int i = 0; i < 100000; i++)
        tm_text_printf(&text, "aws,r%d,z%d,slow.1,%g,%g,s\n", i / 100, i, 0.5 + i % 977 * 1e-4,
                       i == 77777 ? 0.1 : 0.15 + i % 1009 * 1e-4);
    search_text(f, tm_text_string(&text), text.length);
    assert_true(f->result.count > 0);
    assert_string_equal(f->result.answers[0].fleet.parts[0].offer->zone, "z77777");
    assert_true(f->result.gap < 0.01);
    tm_text_deinit(&text);
}

static void test_bad_requests(void **state)
{
    struct fixture *f = *state;
    struct tm_error e = {0};
    struct tm_plan_request good = f->request;
    f->request.top = 0;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, &e), -TM_EUSAGE);
    f->request = good;
    f->request.job.samples = 0;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, &e), -TM_EUSAGE);
    f->request = good;
    f->request.job.deadline_s = -1;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, &e), -TM_EUSAGE);
    f->request = good;
    f->request.max_instances = 0;
    assert_int_equal(tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, &e), -TM_EUSAGE);
}

static void test_without_memory(void **state)
{
    struct fixture *f = *state;
    f->request.max_instances = 1;
    f->request.programs_max = 1;
    TM_FAIL_EACH_ALLOC(rc = tm_plan__search(&f->basis.catalog, &f->request, &f->result, NULL, NULL));
}

#define FIXTURE_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

TM_TEST_MAIN(FIXTURE_TEST(test_equals_brute_force), FIXTURE_TEST(test_mixes_against_brute_force),
             FIXTURE_TEST(test_spreads_over_zones), FIXTURE_TEST(test_anchors), FIXTURE_TEST(test_quotas),
             FIXTURE_TEST(test_order_and_kinds), FIXTURE_TEST(test_never_worse_than_srift),
             FIXTURE_TEST(test_nothing_found), FIXTURE_TEST(test_few_offers), FIXTURE_TEST(test_many_offers),
             TM_TEST(test_wrong_prices), FIXTURE_TEST(test_bad_requests), FIXTURE_TEST(test_without_memory))
