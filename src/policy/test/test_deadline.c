/* Deadline policies: rows of views and what must be decided, the safety line, what is learned of spells, and the tables
 * of expected cost against a Monte Carlo of the same market. */
#include "base/random.h"
#include "base/test/harness.h"
#include "policy/deadline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct tm_deadline_terms terms = {
    .work_s = 48 * 3600, .deadline_s = 60 * 3600, .restart_s = 360, .spot_usd_h = 0.9731, .on_demand_usd_h = 3.06};

struct row {
    const char *policy;
    const char *name;
    double now_h, done_h;
    bool spot;
    enum tm_gang_on on;
    double restart_left_h;
    enum tm_gang_on want;
    double until_h; /* NaN: not looked at */
};

/* With 60 h for 48 h of work the even pace is 0.8; a launch takes 0.1 h. */
static const struct row rows[] = {
    {"on-demand", "at once", 0, 0, true, TM_GANG_NOTHING, 0, TM_GANG_ON_DEMAND, INFINITY},
    {"greedy", "spot", 0, 0, true, TM_GANG_NOTHING, 0, TM_GANG_SPOT, 11.9},
    {"greedy", "waits to the line", 1, 0, false, TM_GANG_NOTHING, 0, TM_GANG_NOTHING, 11.9},
    {"greedy", "at the line", 11.9, 0, false, TM_GANG_NOTHING, 0, TM_GANG_ON_DEMAND, INFINITY},
    {"greedy", "at the line though there is spot", 11.9, 0, true, TM_GANG_NOTHING, 0, TM_GANG_ON_DEMAND, INFINITY},
    {"greedy", "working spot stays at the line", 21.9, 10, true, TM_GANG_SPOT, 0, TM_GANG_SPOT, INFINITY},
    {"greedy", "restarting spot does not", 21.9, 10, true, TM_GANG_SPOT, 0.05, TM_GANG_ON_DEMAND, INFINITY},
    {"greedy", "stays on demand", 30, 19, true, TM_GANG_ON_DEMAND, 0, TM_GANG_ON_DEMAND, INFINITY},
    {"greedy", "too late already", 20, 0, true, TM_GANG_SPOT, 0, TM_GANG_ON_DEMAND, INFINITY},
    {"uniform-progress", "no spot at the start: behind at once", 0, 0, false, TM_GANG_NOTHING, 0, TM_GANG_ON_DEMAND,
     INFINITY},
    {"uniform-progress", "spot at the start", 0, 0, true, TM_GANG_NOTHING, 0, TM_GANG_SPOT, 11.9},
    {"uniform-progress", "ahead and no spot: waits until the pace is there", 10, 9, false, TM_GANG_NOTHING, 0,
     TM_GANG_NOTHING, 11.25},
    {"uniform-progress", "behind and no spot", 10, 7.9, false, TM_GANG_NOTHING, 0, TM_GANG_ON_DEMAND, INFINITY},
    {"uniform-progress", "behind, but there is spot", 10, 7.9, true, TM_GANG_NOTHING, 0, TM_GANG_SPOT, NAN},
    {"uniform-progress", "ahead by less than a switch: stays on demand", 10, 8.05, true, TM_GANG_ON_DEMAND, 0,
     TM_GANG_ON_DEMAND, 10.25},
    {"uniform-progress", "the same in its restart", 10, 8.05, true, TM_GANG_ON_DEMAND, 0.1, TM_GANG_ON_DEMAND, 10.75},
    {"uniform-progress", "ahead by a switch, spot", 10, 8.1, true, TM_GANG_ON_DEMAND, 0, TM_GANG_SPOT, NAN},
    {"uniform-progress", "ahead by a switch, none", 10, 8.1, false, TM_GANG_ON_DEMAND, 0, TM_GANG_NOTHING, 10.125},
    {"uniform-progress", "the line", 31, 19.1, true, TM_GANG_NOTHING, 0, TM_GANG_ON_DEMAND, INFINITY},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        struct tm_deadline_view view = {.terms = &terms,
                                        .now_s = row->now_h * 3600,
                                        .done_s = row->done_h * 3600,
                                        .spot = row->spot,
                                        .on = row->on,
                                        .restart_left_s = row->restart_left_h * 3600};
        const struct tm_deadline_policy *policy = tm_deadline_policy_find(row->policy);
        assert_row(policy != NULL, "no policy %s", row->policy);
        struct tm_deadline_decision got = tm_deadline_decide(policy, &view);
        assert_row(got.go == row->want, "%s, %s: got %d, want %d", row->policy, row->name, (int)got.go, (int)row->want);
        bool same_time =
            isnan(row->until_h) || got.until_s == row->until_h * 3600 || fabs(got.until_s / 3600 - row->until_h) < 1e-9;
        assert_row(same_time, "%s, %s: until %g h, want %g h", row->policy, row->name, got.until_s / 3600,
                   row->until_h);
    }
    assert_null(tm_deadline_policy_find("reactive"));
}

static void test_spells(void **state)
{
    (void)state;
    struct tm_spells spells;
    tm_spells_init(&spells, 1e12);
    tm_spells_observe(&spells, -100, true);
    tm_spells_observe(&spells, 50, true);
    tm_spells_observe(&spells, 200, false);
    tm_spells_observe(&spells, 260, true);
    assert_true(fabs(spells.time_s[1] - 300) < 1e-3 && fabs(spells.time_s[0] - 60) < 1e-3);
    assert_true(fabs(spells.ends[1] - 1) < 1e-6 && fabs(spells.ends[0] - 1) < 1e-6);
    assert_true(spells.up);
    /* What is one memory old counts 1/e; however often it is asked, the sums are the same. */
    struct tm_spells often;
    tm_spells_init(&spells, 1000);
    tm_spells_init(&often, 1000);
    tm_spells_observe(&spells, 0, true);
    tm_spells_observe(&spells, 0, false);
    tm_spells_observe(&spells, 1000, false);
    assert_true(fabs(spells.ends[1] - exp(-1)) < 1e-12 && fabs(spells.time_s[0] - 1000 * (1 - exp(-1))) < 1e-9);
    tm_spells_observe(&often, 0, true);
    for (int i = 0; i <= 100; i++)
        tm_spells_observe(&often, i * 10.0, false);
    assert_true(fabs(often.ends[1] - spells.ends[1]) < 1e-12 && fabs(often.time_s[0] - spells.time_s[0]) < 1e-9);
}

/* A market that keeps to one rate of losses and one of arrivals. */
struct market {
    struct tm_random random;
    double up_h, down_h;
    bool up;
    double next_s;
};

static void market_advance(struct market *market, double now_s)
{
    while (market->next_s <= now_s) {
        market->up = !market->up;
        market->next_s += tm_random_exponential(&market->random, 3600 * (market->up ? market->up_h : market->down_h));
    }
}

/* Plays one job through tm_deadline_decide on a grid of 72 s, and gives what it cost; the time to *finish_s. */
static double play(const struct tm_deadline_policy *policy, const struct tm_deadline_values *values,
                   struct tm_spells learned, struct market *market, double *finish_s)
{
    const double step_s = 72;
    struct tm_deadline_view view = {.terms = &terms, .spells = &learned, .values = values};
    double usd = 0;
    while (view.done_s < terms.work_s - 1e-6) {
        market_advance(market, view.now_s);
        view.spot = market->up;
        tm_spells_observe(&learned, view.now_s, market->up);
        if (view.on == TM_GANG_SPOT && !view.spot) view.on = TM_GANG_NOTHING;
        enum tm_gang_on go = tm_deadline_decide(policy, &view).go;
        if (go != view.on) view.restart_left_s = go == TM_GANG_NOTHING ? 0 : terms.restart_s;
        view.on = go;
        view.now_s += step_s;
        if (go == TM_GANG_NOTHING) continue;
        usd += step_s / 3600 * (go == TM_GANG_SPOT ? terms.spot_usd_h : terms.on_demand_usd_h);
        if (view.restart_left_s > 0)
            view.restart_left_s -= step_s;
        else
            view.done_s += step_s;
    }
    *finish_s = view.now_s;
    return usd;
}

/* Told the market's rates (as a long memory of them), tidemill pays what its tables say it will, less than the others,
 * and is never late. The tables do not know the 72 s grid, their own grid rounds, and the mean of 300 jobs has an error
 * of about 1%: 4% is allowed. */
static void test_values_against_monte_carlo(void **state)
{
    (void)state;
    static const struct {
        double up_h, down_h;
    } markets[] = {{8, 2}, {2, 2}, {2, 8}, {32, 8}, {0.5, 0.5}};
    enum { JOBS = 300 };
    struct tm_deadline_values *values = NULL;
    assert_int_equal(tm_deadline_values_create(&terms, &values, NULL), 0);
    for (size_t m = 0; m < TM_COUNT(markets); m++) {
        double mean[3] = {0};
        const char *names[3] = {"tidemill", "greedy", "uniform-progress"};
        struct tm_spells learned;
        tm_spells_init(&learned, 1e12);
        learned.known = true;
        learned.now_s = 0;
        learned.up = true;
        for (int i = 0; i < 2; i++) {
            learned.ends[i] = 1e4;
            learned.time_s[i] = 1e4 * 3600 * (i ? markets[m].up_h : markets[m].down_h);
        }
        for (int p = 0; p < 3; p++) {
            for (int i = 0; i < JOBS; i++) {
                struct market market = {.up_h = markets[m].up_h, .down_h = markets[m].down_h, .up = true};
                market.random = tm_random_make(7, (uint64_t)i);
                market.next_s = tm_random_exponential(&market.random, 3600 * market.up_h);
                double finish_s;
                mean[p] += play(tm_deadline_policy_find(names[p]), values, learned, &market, &finish_s) / JOBS;
                /* Decisions come up to a step late on this grid, so a launch may be too. */
                assert_row(finish_s <= terms.deadline_s + 2 * 72, "%s is late: %g h", names[p], finish_s / 3600);
            }
        }
        struct tm_deadline_costs costs =
            tm_deadline_values__costs(values, &learned, TM_GANG_NOTHING, terms.work_s, terms.deadline_s - terms.work_s);
        assert_row(fabs(costs.spot_usd / mean[0] - 1) < 0.04, "up %g h, down %g h: paid %g, tables say %g",
                   markets[m].up_h, markets[m].down_h, mean[0], costs.spot_usd);
        assert_row(mean[0] <= 1.005 * fmin(mean[1], mean[2]), "up %g h, down %g h: %g, greedy %g, uniform %g",
                   markets[m].up_h, markets[m].down_h, mean[0], mean[1], mean[2]);
    }
    tm_deadline_values_destroy(values);
}

static int values_once(void)
{
    struct tm_deadline_values *values = NULL;
    int rc = tm_deadline_values_create(&terms, &values, NULL);
    tm_deadline_values_destroy(values);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = values_once());
}

/* Terms at the edge of sense give numbers. */
static void test_odd_terms(void **state)
{
    (void)state;
    static const struct tm_deadline_terms odd[] = {
        {1, 1, 0, 0, 0, 0, 0},          {3600, 1800, 360, 0, 1, 3, 0}, {3600, 3600, 0, 0, 1, 3, 0},
        {1, 1e9, 1e6, 1e6, 1, 3, 0},    {1e9, 1e9, 1, 0, 3, 1, 0},     {3600, 7200, 1e9, 1e9, 1e9, 1e9, 0},
        {3600, 3700, 360, 60, 1, 3, 0}, {1e9, 2, 0, 0, 0, 1, 1e9},
    };
    for (size_t i = 0; i < TM_COUNT(odd); i++) {
        struct tm_deadline_values *values = NULL;
        struct tm_spells spells;
        assert_int_equal(tm_deadline_values_create(&odd[i], &values, NULL), 0);
        tm_spells_init(&spells, 3600);
        tm_spells_observe(&spells, 0, true);
        tm_spells_observe(&spells, 100, false);
        for (int on = 0; on < 3; on += 2) {
            struct tm_deadline_costs costs = tm_deadline_values__costs(
                values, &spells, (enum tm_gang_on)on, odd[i].work_s, odd[i].deadline_s - odd[i].work_s);
            assert_row(isfinite(costs.on_demand_usd) && !isnan(costs.wait_usd) && !isnan(costs.spot_usd),
                       "terms %zu: %g %g %g", i, costs.wait_usd, costs.spot_usd, costs.on_demand_usd);
        }
        assert_true(tm_deadline_values__step_s(values) > 0);
        tm_deadline_values_destroy(values);
    }
}

/* A step of slack may be longer than a launch: the table must neither lose work nor advise to wait beside spot. */
static void test_much_slack(void **state)
{
    (void)state;
    const struct tm_deadline_terms loose = {.work_s = 75 * 3600,
                                            .deadline_s = 240 * 3600,
                                            .restart_s = 60,
                                            .start_s = 180,
                                            .spot_usd_h = 0.0976,
                                            .on_demand_usd_h = 0.526};
    struct tm_deadline_values *values = NULL;
    struct tm_spells spells;
    struct tm_error e;
    tm_spells_init(&spells, 24 * 3600.0);
    assert_int_equal(tm_deadline_values_create(&loose, &values, &e), 0);
    tm_spells_observe(&spells, 0, true);
    struct tm_deadline_costs costs =
        tm_deadline_values__costs(values, &spells, TM_GANG_NOTHING, loose.work_s, loose.deadline_s - loose.work_s);
    double least_usd = 75 * loose.spot_usd_h;
    assert_true(costs.spot_usd >= 0.99 * least_usd && costs.wait_usd >= 0.99 * least_usd);
    struct tm_deadline_view view = {.terms = &loose, .spot = true, .spells = &spells, .values = values};
    assert_int_equal(tm_deadline_decide(tm_deadline_policy_find("tidemill"), &view).go, TM_GANG_SPOT);
    tm_deadline_values_destroy(values);
}

TM_TEST_MAIN(TM_TEST(test_rows), TM_TEST(test_spells), TM_TEST(test_values_against_monte_carlo),
             TM_TEST(test_without_memory), TM_TEST(test_odd_terms), TM_TEST(test_much_slack))
