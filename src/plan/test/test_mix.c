/* The integer program of the mix against trying every mix. */
#include "base/random.h"
#include "base/test/harness.h"
#include "plan/mix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POOLS = 4, ANCHORS = 2, INSTANCES = 3, ANCHORS_TRIED = 2 };

struct problem {
    struct tm_mix mix;
    struct tm_mix_pool pools[POOLS];
    struct tm_mix_anchor anchors[ANCHORS];
    struct tm_mix_quota quotas[2];
    double covered[2][POOLS];
};

static double between(struct tm_random *random, double low, double high)
{
    return low + (high - low) * tm_random_unit(random);
}

/* Round figures, so that nothing hangs on the last digit. */
static double cents(double value)
{
    return round(value * 100) / 100;
}

static void make_problem(struct tm_random *random, struct problem *p)
{
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < POOLS; i++) {
        double rate = cents(between(random, 1, 10));
        double price = cents(rate * between(random, 0.8, 1.2));
        p->pools[i] = (struct tm_mix_pool){.type = i < 2 ? i : i - 1, /* pools 1 and 2 are of one type */
                                           .samples_per_s = rate,
                                           .spot_usd_h = between(random, 0, 1) < 0.9 ? cents(price * 0.3) : NAN,
                                           .on_demand_usd_h = between(random, 0, 1) < 0.8 ? price : NAN,
                                           .loss_events = cents(between(random, 0, 2)),
                                           .away = cents(between(random, 0, 0.1)),
                                           .network_bit_s = 5e9,
                                           .memory_gib = 16};
    }
    for (size_t i = 0; i < ANCHORS; i++)
        p->anchors[i] = (struct tm_mix_anchor){cents(between(random, 0.1, 0.6)), 5e9 * (double)(i + 1),
                                               between(random, 0, 1) < 0.5 ? 16 : 32};
    for (size_t q = 0; q < 2; q++) {
        for (size_t i = 0; i < POOLS; i++)
            p->covered[q][i] = between(random, 0, 1) < 0.5 ? 0 : q == 0 ? 1 : 1 + (double)(i % 2); /* vCPUs, say */
        p->quotas[q] = (struct tm_mix_quota){p->covered[q], q == 0 ? TM_MIX_SPOT : TM_MIX_SPOT | TM_MIX_ON_DEMAND,
                                             (int)between(random, 0, 4)};
    }
    p->mix =
        (struct tm_mix){.pools = p->pools,
                        .pool_count = POOLS,
                        .anchors = p->anchors,
                        .anchor_count = ANCHORS,
                        .quotas = p->quotas,
                        .quota_count = between(random, 0, 1) < 0.6 ? 2 : 0,
                        .samples_per_s = cents(between(random, 2, 22)) + 0.001,
                        .loss_events = between(random, 0, 1) < 0.5 ? cents(between(random, 0, 4)) + 0.001 : INFINITY,
                        .usd_h = between(random, 0, 1) < 0.3 ? cents(between(random, 1, 12)) + 0.001 : INFINITY,
                        .instances = INSTANCES,
                        .anchor_network_bit_s = between(random, 0, 1) < 0.6 ? 7.5e9 : 0,
                        .anchor_memory_gib = between(random, 0, 1) < 0.6 ? 20 : 0,
                        .types = between(random, 0, 1) < 0.5 ? 1 : 2};
}

/* The price of a mix; infinite where it breaks a rule. */
static double price_of(const struct problem *p, const int spot[POOLS], const int on_demand[POOLS],
                       const int anchors[ANCHORS])
{
    const struct tm_mix *mix = &p->mix;
    double speed = 0, events = 0, price = 0, network = 0, memory = 0;
    int instances = 0;
    bool types[POOLS] = {false};
    for (size_t i = 0; i < POOLS; i++) {
        const struct tm_mix_pool *pool = &p->pools[i];
        if ((spot[i] > 0 && isnan(pool->spot_usd_h)) || (on_demand[i] > 0 && isnan(pool->on_demand_usd_h)))
            return INFINITY;
        speed += pool->samples_per_s * (spot[i] * (1 - pool->away) + on_demand[i]);
        events += spot[i] * pool->loss_events;
        if (spot[i] > 0) price += spot[i] * pool->spot_usd_h;
        if (on_demand[i] > 0) price += on_demand[i] * pool->on_demand_usd_h;
        network += on_demand[i] * pool->network_bit_s;
        memory += on_demand[i] * pool->memory_gib;
        instances += spot[i] + on_demand[i];
        if (spot[i] + on_demand[i] > 0) types[pool->type] = true;
    }
    for (size_t i = 0; i < ANCHORS; i++) {
        price += anchors[i] * p->anchors[i].usd_h;
        network += anchors[i] * p->anchors[i].network_bit_s;
        memory += anchors[i] * p->anchors[i].memory_gib;
    }
    for (size_t q = 0; q < mix->quota_count; q++) {
        double counted = 0;
        for (size_t i = 0; i < POOLS; i++) {
            int counts = spot[i] + ((p->quotas[q].markets & TM_MIX_ON_DEMAND) != 0 ? on_demand[i] : 0);
            counted += p->covered[q][i] * counts;
        }
        if (counted > p->quotas[q].limit) return INFINITY;
    }
    int kinds = types[0] + types[1] + types[2] + types[3];
    bool holds = speed >= mix->samples_per_s && events <= mix->loss_events && price <= mix->usd_h &&
                 instances <= mix->instances && kinds <= mix->types && network >= mix->anchor_network_bit_s &&
                 memory >= mix->anchor_memory_gib;
    return holds ? price : INFINITY;
}

static double try_anchors(const struct problem *p, const int *spot, const int *on_demand)
{
    double best = INFINITY;
    for (int a = 0; a <= ANCHORS_TRIED; a++) {
        for (int b = 0; b <= ANCHORS_TRIED; b++) {
            int anchors[ANCHORS] = {a, b};
            best = fmin(best, price_of(p, spot, on_demand, anchors));
        }
    }
    return best;
}

/* All mixes: each of the eight counts from 0 to the number of instances. */
static double try_all(const struct problem *p, int *counts, size_t at, int left)
{
    if (at == 2 * (size_t)POOLS) return try_anchors(p, counts, counts + POOLS);
    double best = INFINITY;
    for (int n = 0; n <= left; n++) {
        counts[at] = n;
        best = fmin(best, try_all(p, counts, at + 1, left - n));
    }
    counts[at] = 0;
    return best;
}

static void test_equals_trying_all(void **state)
{
    (void)state;
    struct tm_random random = tm_random_make(3, 0);
    int solved = 0;
    for (int i = 0; i < 120; i++) {
        struct problem p;
        struct tm_mix_counts counts[POOLS];
        struct tm_mix_solution solution;
        struct tm_error e = {0};
        int all[2 * POOLS] = {0};
        int anchors[ANCHORS];
        make_problem(&random, &p);
        double want = try_all(&p, all, 0, INSTANCES);
        assert_row(tm_mix__solve(&p.mix, 0, counts, anchors, &solution, &e) == 0, "problem %d: %s", i, e.text);
        assert_row(solution.feasible == isfinite(want), "problem %d: %s, want %g", i,
                   solution.feasible ? "feasible" : "not", want);
        if (!solution.feasible) continue;
        solved++;
        int spot[POOLS];
        int on_demand[POOLS];
        for (size_t k = 0; k < POOLS; k++) {
            spot[k] = counts[k].spot;
            on_demand[k] = counts[k].on_demand;
        }
        double price = price_of(&p, spot, on_demand, anchors);
        assert_row(fabs(solution.usd_h - want) < 1e-6, "problem %d: $%g, want $%g", i, solution.usd_h, want);
        assert_row(fabs(price - want) < 1e-6, "problem %d: the counts cost $%g, want $%g", i, price, want);
        assert_row(solution.bound_usd_h <= want + 1e-6 && solution.bound_usd_h >= want - 1e-6, "problem %d: bound $%g",
                   i, solution.bound_usd_h);
    }
    assert_true(solved > 40 && solved < 120);
}

static void test_program_by_hand(void **state)
{
    (void)state;
    struct tm_milp *milp = tm_milp__create();
    struct tm_milp_solution solution;
    assert_non_null(milp);
    int x = tm_milp__column(milp, 1, 0, INFINITY, true); /* x + 2 y, x + y >= 3.5, y <= 1.2 */
    int y = tm_milp__column(milp, 2, 0, 1.2, false);
    int row = tm_milp__row(milp, 3.5, INFINITY);
    tm_milp__put(milp, row, x, 1);
    tm_milp__put(milp, row, y, 1);
    assert_int_equal(tm_milp__solve(milp, 0, &solution, NULL), 0);
    assert_true(solution.feasible && fabs(solution.objective - 4) < 1e-9 && fabs(solution.values[x] - 4) < 1e-9);
    tm_milp_solution__deinit(&solution);
    int below = tm_milp__row(milp, -INFINITY, 2); /* and x <= 2: nothing is left */
    tm_milp__put(milp, below, x, 1);
    assert_int_equal(tm_milp__solve(milp, 0, &solution, NULL), 0);
    assert_false(solution.feasible);
    tm_milp_solution__deinit(&solution);
    tm_milp__destroy(milp);
}

static int build_and_solve(void)
{
    struct problem p;
    struct tm_random random = tm_random_make(3, 1);
    struct tm_mix_counts counts[POOLS];
    struct tm_mix_solution solution;
    int anchors[ANCHORS];
    make_problem(&random, &p);
    p.mix.samples_per_s = 2;
    return tm_mix__solve(&p.mix, 0.01, counts, anchors, &solution, NULL);
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = build_and_solve());
}

TM_TEST_MAIN(TM_TEST(test_equals_trying_all), TM_TEST(test_program_by_hand), TM_TEST(test_without_memory))
