/* The cheapest plan against all plans: on small worlds with whole hours everywhere, some cheapest plan changes at whole
 * hours only, so trying all ways, 3^hours or with two places of spot 4^hours, is the truth. */
#include "base/random.h"
#include "base/test/harness.h"
#include "policy/deadline_oracle.h"

#include <math.h>
#include <stdio.h>

enum { HOURS_MAX = 11, HOURS_MAX_OF_TWO = 8, ELSEWHERE = 3 }; /* ELSEWHERE: on spot in the second place */

struct world {
    struct tm_deadline_terms terms;
    struct tm_gang_places places;
    int hours;
    uint64_t up[HOURS_MAX];
};

static bool is_spot(int on)
{
    return on == TM_GANG_SPOT || on == ELSEWHERE;
}

static bool can_be(const struct world *world, int hour, int on)
{
    return !is_spot(on) || (world->up[hour] >> (on == ELSEWHERE) & 1) != 0;
}

static double price_usd_h(const struct world *world, int on)
{
    if (on == TM_GANG_ON_DEMAND) return world->terms.on_demand_usd_h;
    return world->places.usd_h[on == ELSEWHERE];
}

struct way {
    int hour;
    int left; /* hours of work */
    int on;   /* an enum tm_gang_on, or ELSEWHERE */
    int restart_left;
    int start_left;
    double usd;
};

/* Cheapest end of a way, by trying all. */
static double try_all(const struct world *world, struct way way)
{
    const struct tm_deadline_terms *t = &world->terms;
    if (way.left == 0) return way.usd;
    if (way.hour == world->hours) return INFINITY;
    double best = INFINITY;
    if (!can_be(world, way.hour, way.on)) way.on = TM_GANG_NOTHING;
    for (int on = 0; on < 2 + world->places.count; on++) {
        struct way next = way;
        if (!can_be(world, way.hour, on)) continue;
        if (on != way.on) {
            next.restart_left = (int)((t->restart_s + (is_spot(on) ? t->spot_start_s : 0)) / 3600);
            next.start_left = on == TM_GANG_ON_DEMAND ? (int)(t->start_s / 3600) : 0;
        }
        next.on = on;
        next.hour++;
        if (on != TM_GANG_NOTHING) {
            if (next.start_left > 0) {
                next.start_left--;
            } else {
                next.usd += price_usd_h(world, on);
                if (next.restart_left > 0)
                    next.restart_left--;
                else
                    next.left--;
            }
        }
        best = fmin(best, try_all(world, next));
    }
    return best;
}

/* What a plan costs when it is followed; INFINITY: the work is not done in time, or it is on spot where there is none.
 */
static double follow(const struct world *world, const struct tm_gang_plan *plan)
{
    const struct tm_deadline_terms *t = &world->terms;
    const double step_s = 36;
    double usd = 0;
    double done_s = 0;
    double idle_s = 0;
    int on = TM_GANG_NOTHING;
    size_t at = 0;
    for (double now_s = 0; done_s < t->work_s - 1e-6; now_s += step_s) {
        if (now_s >= t->deadline_s - 1e-6) return INFINITY;
        while (at + 1 < plan->count && plan->stretches[at + 1].start_s <= now_s + 1e-6)
            at++;
        const struct tm_gang_stretch *stretch = &plan->stretches[at];
        int next = stretch->on == TM_GANG_SPOT && stretch->place == 1 ? ELSEWHERE : (int)stretch->on;
        if (!can_be(world, (int)((now_s + 1e-6) / 3600), next)) return INFINITY;
        if (next != on)
            idle_s = next == TM_GANG_NOTHING ? 0 : t->restart_s + (is_spot(next) ? t->spot_start_s : t->start_s);
        on = next;
        if (on == TM_GANG_NOTHING) continue;
        bool billed = is_spot(on) || idle_s <= t->restart_s + 1e-6;
        if (billed) usd += step_s / 3600 * price_usd_h(world, on);
        if (idle_s > 1e-6)
            idle_s -= step_s;
        else
            done_s += step_s;
    }
    return usd;
}

static void check_world(const struct world *world, const char *name, int number)
{
    struct tm_gang_spell spells[HOURS_MAX];
    size_t count = 0;
    for (int i = 0; i < world->hours; i++) {
        if (count == 0 || spells[count - 1].up != world->up[i])
            spells[count++] = (struct tm_gang_spell){.start_s = i * 3600.0, .up = world->up[i]};
    }
    struct tm_gang_plan plan;
    double want = try_all(world, (struct way){.left = (int)(world->terms.work_s / 3600)});
    int rc = tm_gang_plan_init(&plan, &world->terms, &world->places, spells, count, NULL);
    if (isinf(want)) {
        assert_row(rc == -TM_ENONE, "%s %d: no plan meets the deadline, but got %d", name, number, rc);
        return;
    }
    assert_row(rc == 0, "%s %d: got %d", name, number, rc);
    assert_row(fabs(plan.cost_usd - want) < 1e-9, "%s %d: got $%g, cheapest is $%g", name, number, plan.cost_usd, want);
    double paid = follow(world, &plan);
    assert_row(fabs(paid - want) < 1e-6, "%s %d: following the plan costs $%g, not $%g", name, number, paid, want);
    tm_gang_plan_deinit(&plan);
}

static void test_against_all_plans(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double restart_h, start_h, spot_usd_h, on_demand_usd_h;
        double elsewhere_usd_h; /* 0: there is no second place */
        double spot_start_h;
    } kinds[] = {{"restart 1 h", 1, 0, 1, 3, 0, 0},
                 {"no restart", 0, 0, 1, 3, 0, 0},
                 {"start-up 1 h", 0, 1, 1, 3, 0, 0},
                 {"both", 1, 1, 1, 3, 0, 0},
                 {"restart 2 h", 2, 0, 1, 3, 0, 0},
                 {"spot hardly cheaper", 1, 0, 2.9, 3, 0, 0},
                 {"spot dearer", 1, 0, 4, 3, 0, 0},
                 {"two places", 1, 0, 1, 3, 1, 0},
                 {"two places at two prices", 1, 0, 1, 4, 2, 0},
                 {"two places, no restart", 0, 0, 1.5, 3, 1, 0},
                 {"two places that start up", 0, 1, 1, 3, 1.2, 1}};
    struct tm_random random = tm_random_make(11, 0);
    for (size_t k = 0; k < TM_COUNT(kinds); k++) {
        bool two = kinds[k].elsewhere_usd_h > 0;
        for (int i = 0; i < 60; i++) {
            int most = two ? HOURS_MAX_OF_TWO : HOURS_MAX;
            struct world world = {.hours = 6 + (int)tm_random_below(&random, (uint64_t)most - 6 + 1)};
            for (int hour = 0; hour < world.hours; hour++)
                world.up[hour] = hour > 0 && tm_random_unit(&random) < 0.6 ? world.up[hour - 1]
                                                                           : tm_random_below(&random, two ? 4 : 2);
            world.places = (struct tm_gang_places){{kinds[k].spot_usd_h, kinds[k].elsewhere_usd_h}, two ? 2 : 1};
            world.terms = (struct tm_deadline_terms){.work_s = 3600.0 * (double)(2 + tm_random_below(&random, 6)),
                                                     .deadline_s = 3600.0 * world.hours,
                                                     .restart_s = 3600 * kinds[k].restart_h,
                                                     .start_s = 3600 * kinds[k].start_h,
                                                     .on_demand_usd_h = kinds[k].on_demand_usd_h,
                                                     .spot_start_s = 3600 * kinds[k].spot_start_h};
            check_world(&world, kinds[k].name, i);
        }
    }
}

/* Work of half hours: the one change that is not where spot comes or goes. No spot for 4 h, then 6 h of it; 7.5 h of
 * work in 10 h, restarts of 1 h: on demand for 3.5 h (2.5 h of work), then spot (5 h of work). */
static void test_part_of_a_spell(void **state)
{
    (void)state;
    struct world world = {.hours = 10, .places = {{1}, 1}};
    struct tm_gang_spell spells[] = {{0, 0}, {4 * 3600, 1}};
    struct tm_gang_plan plan;
    for (int i = 4; i < 10; i++)
        world.up[i] = 1;
    world.terms = (struct tm_deadline_terms){7.5 * 3600, 10 * 3600, 3600, 0, 1, 3, 0};
    assert_int_equal(tm_gang_plan_init(&plan, &world.terms, &world.places, spells, 2, NULL), 0);
    assert_true(fabs(plan.cost_usd - (3.5 * 3 + 6)) < 1e-9);
    assert_true(fabs(follow(&world, &plan) - plan.cost_usd) < 1e-6);
    tm_gang_plan_deinit(&plan);
}

static int plan_once(void)
{
    struct tm_deadline_terms terms = {10 * 3600, 14 * 3600, 360, 0, 1, 3, 0};
    struct tm_gang_places places = {{1, 1.5}, 2};
    struct tm_gang_spell spells[] = {{0, 0}, {3600, 1}, {9000, 2}, {20000, 3}, {40000, 0}};
    struct tm_gang_plan plan = {0};
    int rc = tm_gang_plan_init(&plan, &terms, &places, spells, TM_COUNT(spells), NULL);
    tm_gang_plan_deinit(&plan);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = plan_once());
}

TM_TEST_MAIN(TM_TEST(test_against_all_plans), TM_TEST(test_part_of_a_spell), TM_TEST(test_without_memory))
