/* Single-gang jobs: small traces worked out by hand, edges, and the recorded traces beside the repository (skipped
 * where they are not there) with figures of another simulator.
 * builds: release asan */
#include "base/random.h"
#include "base/test/harness.h"
#include "sim/gang.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TRACES TIDEMILL_SOURCE_DIR "/../shared/data/traces/"

/* A trace from hours at which the count changes; it ends after `end_h`. */
struct change {
    double hour;
    int count;
};

static void make_trace(struct tm_trace *trace, const struct change *changes, size_t count, double end_h)
{
    int before = 0;
    tm_trace_init(trace);
    for (size_t i = 0; i < count; i++) {
        int more = changes[i].count - before;
        int64_t time_ms = (int64_t)(changes[i].hour * 3.6e6);
        assert_int_equal(tm_trace_add(trace, time_ms, more > 0 ? more : 0, more < 0 ? -more : 0, NAN, NULL), 0);
        before = changes[i].count;
    }
    trace->end_ms = (int64_t)(end_h * 3.6e6);
}

static struct tm_gang_options hours(double work_h, double deadline_h, double restart_h)
{
    return (struct tm_gang_options){.gang = 1,
                                    .work_s = work_h * 3600,
                                    .deadline_s = deadline_h * 3600,
                                    .restart_s = restart_h * 3600,
                                    .spot_usd_h = 1,
                                    .on_demand_usd_h = 3};
}

/* Spot in hours 0-3 and 5-9; 6 h of work in 10 h, restarts of half an hour.
 * greedy: spot to 3 (2.5 h done), waits, spot 5-9 (3.5 h done): done at 9. $7.
 * uniform-progress: pace 0.6; at 3 it is 0.7 h ahead and waits to 2.5/0.6 = 4h10; on demand from there, half an hour of
 * restart; on 5 it has 0.333 h of work more, is 0.167 h behind, stays until ahead by 0.5 h: at (2/3)/0.4 = 1.667 h
 * later; from 6.667 (4.5 h done) on spot: 0.5 restart, 1.5 h: done at 8.667. Spot 3 + 2 h, on demand 2.5 h: $12.5.
 * oracle-deadline: as greedy. */
static void test_by_hand(void **state)
{
    (void)state;
    static const struct change changes[] = {{0, 1}, {3, 0}, {5, 1}, {9, 0}};
    static const struct {
        const char *policy;
        double usd, finish_h, spot_h, on_demand_h, idle_h;
        int launches, losses;
    } rows[] = {{"on-demand", 19.5, 6.5, 0, 6.5, 0, 1, 0},
                {"greedy", 7, 9, 7, 0, 2, 2, 1},
                {"uniform-progress", 12.5, 26 / 3.0, 5, 2.5, 7 / 6.0, 3, 1},
                {"oracle-deadline", 7, 9, 7, 0, 2, 2, 1}};
    struct tm_trace trace;
    struct tm_gang_options options = hours(6, 10, 0.5);
    make_trace(&trace, changes, TM_COUNT(changes), 20);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_gang_result r;
        struct tm_error e = {0};
        int rc = tm_gang_simulate(&trace, tm_deadline_policy_find(rows[i].policy), &options, &r, &e);
        assert_row(rc == 0, "%s: %s", rows[i].policy, e.text);
        assert_row(fabs(r.cost_usd - rows[i].usd) < 1e-6 && fabs(r.finished_at_s / 3600 - rows[i].finish_h) < 1e-6,
                   "%s: $%g at %g h, want $%g at %g h", rows[i].policy, r.cost_usd, r.finished_at_s / 3600, rows[i].usd,
                   rows[i].finish_h);
        assert_row(fabs(r.spot_s / 3600 - rows[i].spot_h) < 1e-6 &&
                       fabs(r.on_demand_s / 3600 - rows[i].on_demand_h) < 1e-6 &&
                       fabs(r.idle_s / 3600 - rows[i].idle_h) < 1e-6,
                   "%s: spot %g h, on demand %g h, idle %g h", rows[i].policy, r.spot_s / 3600, r.on_demand_s / 3600,
                   r.idle_s / 3600);
        assert_row(r.launches == rows[i].launches && r.losses == rows[i].losses, "%s: %d launches, %d losses",
                   rows[i].policy, r.launches, r.losses);
        assert_row(r.deadline_met && !r.trace_ended && fabs(r.on_demand_only_usd - 19.5) < 1e-9, "%s", rows[i].policy);
    }
    tm_trace_deinit(&trace);
}

/* A gang of 3 has spot only where there are 3, and pays for 3. */
static void test_gang_of_three(void **state)
{
    (void)state;
    static const struct change changes[] = {{0, 2}, {1, 3}, {4, 2}, {5, 8}};
    struct tm_trace trace;
    struct tm_gang_options options = hours(6, 12, 0.5);
    struct tm_gang_result r;
    options.gang = 3;
    make_trace(&trace, changes, TM_COUNT(changes), 30);
    assert_int_equal(tm_gang_simulate(&trace, tm_deadline_policy_find("greedy"), &options, &r, NULL), 0);
    assert_true(fabs(r.finished_at_s / 3600 - 9) < 1e-6 && fabs(r.cost_usd - 3 * 7) < 1e-6 && r.launches == 2);
    tm_trace_deinit(&trace);
}

/* Start-up of on-demand instances is waited for and not billed; the safety line leaves room for it. */
static void test_start_up(void **state)
{
    (void)state;
    static const struct change changes[] = {{0, 0}};
    struct tm_trace trace;
    struct tm_gang_options options = hours(6, 10, 0.5);
    options.start_s = 1800;
    make_trace(&trace, changes, TM_COUNT(changes), 30);
    for (const struct tm_deadline_policy *policy = tm_deadline_policies; policy->name != NULL; policy++) {
        struct tm_gang_result r;
        assert_int_equal(tm_gang_simulate(&trace, policy, &options, &r, NULL), 0);
        assert_row(r.deadline_met, "%s is late", policy->name);
        if (strcmp(policy->name, "uniform-progress") == 0) continue; /* it leaves on-demand when it is ahead */
        assert_row(fabs(r.cost_usd - 19.5) < 1e-6 && fabs(r.start_up_s - 1800) < 1e-3, "%s: $%g after %g s",
                   policy->name, r.cost_usd, r.start_up_s);
    }
    tm_trace_deinit(&trace);
}

/* Deadlines that nobody can meet, traces that end, restarts of nothing: an answer, and no number that is none. */
static void test_edges(void **state)
{
    (void)state;
    static const struct change changes[] = {{0, 1}, {1, 0}, {1.5, 1}, {1.6, 0}, {2.5, 1}};
    static const struct {
        double work_h, deadline_h, restart_h, start_h;
        bool met;
    } rows[] = {{6, 3, 0.5, 0, false},    {6, 6.4, 0.5, 0, false}, {6, 6.5, 0.5, 0, true}, {6, 6.5, 0.5, 0.1, false},
                {6, 100, 0, 0, true},     {6, 7, 0, 0, true},      {0.01, 10, 5, 1, true}, {0.001, 0.002, 0, 0, true},
                {1000, 1010, 2, 0, true}, {6, 6, 0, 0, true},      {1e5, 2e5, 1, 0, true}};
    struct tm_trace trace;
    make_trace(&trace, changes, TM_COUNT(changes), 4);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        for (const struct tm_deadline_policy *policy = tm_deadline_policies; policy->name != NULL; policy++) {
            struct tm_gang_options options = hours(rows[i].work_h, rows[i].deadline_h, rows[i].restart_h);
            options.start_s = rows[i].start_h * 3600;
            struct tm_gang_result r;
            struct tm_error e = {0};
            assert_row(tm_gang_simulate(&trace, policy, &options, &r, &e) == 0, "row %zu, %s: %s", i, policy->name,
                       e.text);
            assert_row(isfinite(r.cost_usd) && isfinite(r.finished_at_s), "row %zu, %s", i, policy->name);
            /* A deadline that on-demand misses is met by luck alone. */
            if (rows[i].met || strcmp(policy->name, "on-demand") == 0)
                assert_row(r.deadline_met == rows[i].met, "row %zu, %s: done at %g h", i, policy->name,
                           r.finished_at_s / 3600);
            assert_row(fabs(r.spot_s + r.on_demand_s + r.idle_s + r.start_up_s - r.finished_at_s) < 1e-3, "row %zu, %s",
                       i, policy->name);
        }
    }
    tm_trace_deinit(&trace);
}

/* What lies before the start teaches: after a day of short outages tidemill waits one out. */
static void test_history(void **state)
{
    (void)state;
    struct change changes[200];
    size_t count = 0;
    for (int i = 0; i < 48; i++) {
        changes[count++] = (struct change){i, 1};
        changes[count++] = (struct change){i + 0.9, 0};
    }
    struct tm_trace trace;
    struct tm_gang_result r;
    struct tm_gang_options options = hours(6, 12, 0.02);
    options.from_ms = (int64_t)(24.95 * 3.6e6);
    make_trace(&trace, changes, count, 60);
    assert_int_equal(tm_gang_simulate(&trace, tm_deadline_policy_find("tidemill"), &options, &r, NULL), 0);
    assert_true(r.on_demand_s == 0 && r.idle_s > 0 && r.deadline_met);
    tm_trace_deinit(&trace);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct change changes[] = {{0, 1}};
    struct tm_trace trace;
    struct tm_gang_result r;
    make_trace(&trace, changes, 1, 10);
    struct tm_gang_options good = hours(6, 10, 0.5);
    struct {
        struct tm_gang_options options;
        const char *words;
    } rows[] = {{good, "work"}, {good, "deadline"}, {good, "restart"}, {good, "spot price"},
                {good, "gang"}, {good, "start"},    {good, "start-up"}};
    rows[0].options.work_s = NAN;
    rows[1].options.deadline_s = INFINITY;
    rows[2].options.restart_s = -1;
    rows[3].options.spot_usd_h = INFINITY;
    rows[4].options.gang = 0;
    rows[5].options.from_ms = 11 * 3600000;
    rows[6].options.start_s = -INFINITY;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        int rc = tm_gang_simulate(&trace, &tm_deadline_policies[0], &rows[i].options, &r, &e);
        assert_row(rc == -TM_EINPUT && strstr(e.text, rows[i].words) != NULL, "%s: %d, %s", rows[i].words, rc, e.text);
    }
    tm_trace_deinit(&trace);
}

static void test_without_memory(void **state)
{
    (void)state;
    static const struct change changes[] = {{0, 1}, {3, 0}, {5, 1}, {9, 0}};
    struct tm_trace trace;
    struct tm_gang_options options = hours(6, 10, 0.5);
    make_trace(&trace, changes, TM_COUNT(changes), 20);
    for (const struct tm_deadline_policy *policy = tm_deadline_policies; policy->name != NULL; policy++) {
        struct tm_gang_result r;
        TM_FAIL_EACH_ALLOC(rc = tm_gang_simulate(&trace, policy, &options, &r, NULL));
    }
    tm_trace_deinit(&trace);
}

/* ---- pools ---- */

struct hand_pool {
    struct change changes[4];
    size_t count;
    int group;
    double usd_h;
};

static int simulate_pools(const struct hand_pool *rows, int count, const char *way,
                          const struct tm_gang_options *options, struct tm_gang_result *r)
{
    struct tm_trace traces[3];
    struct tm_gang_pool pools[3];
    for (int i = 0; i < count; i++) {
        make_trace(&traces[i], rows[i].changes, rows[i].count, 30);
        traces[i].instances_max = 2;
        pools[i] =
            (struct tm_gang_pool){.trace = &traces[i], .limit = 100, .group = rows[i].group, .usd_h = rows[i].usd_h};
    }
    struct tm_gang_pools all = {.list = pools, .count = count};
    int rc = tm_gang_simulate_pools(&all, tm_gang_way_find(way), options, r, NULL);
    for (int i = 0; i < count; i++)
        tm_trace_deinit(&traces[i]);
    return rc;
}

/* 6 h of work in 10 h, restarts of half an hour.
 * "two regions": spot in the first for 0-3, in the second from 3 on. failover and spread: 3 h in the first (2.5 h
 * done), 4 h in the second. oracle: waits for the second, 6.5 h. single: the second alone; a gap at the beginning.
 * "prices": both always there, the first at $2: who knows prices takes the second.
 * "a gang of two zones": 2 + 2 instances make a gang of 4, until the second zone takes one back from 2 to 3: then all
 * are lost, and spread goes on demand for that hour (half of it a restart); 1.5 h + 0.5 h done, 4.5 h from 3 on.
 * oracle: waits. */
static void test_pools_by_hand(void **state)
{
    (void)state;
    static const struct hand_pool regions[] = {{{{0, 1}, {3, 0}}, 2, 0, 1}, {{{0, 0}, {3, 1}}, 2, 1, 1}};
    static const struct hand_pool prices[] = {{{{0, 1}}, 1, 0, 2}, {{{0, 1}}, 1, 1, 1}};
    static const struct hand_pool zones[] = {{{{0, 2}}, 1, 0, 1}, {{{0, 2}, {2, 1}, {3, 2}}, 3, 0, 1}};
    static const struct {
        const char *name;
        const struct hand_pool *pools;
        int gang;
        const char *way;
        double usd, finish_h, hours[3];
        int launches, losses, moves;
    } rows[] = {{"two regions", regions, 1, "failover", 7, 7, {3, 4, 0}, 2, 1, 1},
                {"two regions", regions, 1, "spread", 7, 7, {3, 4, 0}, 2, 1, 1},
                {"two regions", regions, 1, "oracle", 6.5, 9.5, {0, 6.5, 0}, 1, 0, 0},
                {"prices", prices, 1, "failover", 6.5, 6.5, {0, 6.5, 0}, 1, 0, 0},
                {"prices", prices, 1, "tidemill", 6.5, 6.5, {0, 6.5, 0}, 1, 0, 0},
                {"prices", prices, 1, "single", 6.5, 6.5, {0, 6.5, 0}, 1, 0, 0},
                {"prices", prices, 1, "oracle", 6.5, 6.5, {0, 6.5, 0}, 1, 0, 0},
                {"a gang of two zones", zones, 4, "failover", 4 * 19.5, 10, {0, 0, 4 * 6.5}, 1, 0, 0},
                {"a gang of two zones", zones, 4, "spread", 4 * (2 + 3 + 4.5), 7.5, {13, 13, 4}, 3, 1, 0},
                {"a gang of two zones", zones, 4, "oracle", 4 * 6.5, 9.5, {13, 13, 0}, 1, 0, 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_gang_options options = hours(6, 10, 0.5);
        struct tm_gang_result r;
        options.gang = rows[i].gang;
        int rc = simulate_pools(rows[i].pools, 2, rows[i].way, &options, &r);
        assert_row(rc == 0 && r.deadline_met, "%s, %s: %d", rows[i].name, rows[i].way, rc);
        assert_row(fabs(r.cost_usd - rows[i].usd) < 1e-6 && fabs(r.finished_at_s / 3600 - rows[i].finish_h) < 1e-5,
                   "%s, %s: $%g at %g h, want $%g at %g h", rows[i].name, rows[i].way, r.cost_usd,
                   r.finished_at_s / 3600, rows[i].usd, rows[i].finish_h);
        for (int k = 0; k < 3; k++)
            assert_row(fabs(r.pools[k].instance_hours - rows[i].hours[k]) < 1e-5, "%s, %s: pool %d has %g h",
                       rows[i].name, rows[i].way, k, r.pools[k].instance_hours);
        assert_row(r.launches == rows[i].launches && r.losses == rows[i].losses && r.moves == rows[i].moves,
                   "%s, %s: %d launches, %d losses, %d moves", rows[i].name, rows[i].way, r.launches, r.losses,
                   r.moves);
    }
}

/* Worlds drawn at random: nobody is late, nobody beats the oracle, bills of pools are the bill; the best pool alone has
 * no other. */
static void test_drawn_pools(void **state)
{
    (void)state;
    struct tm_random random = tm_random_make(5, 0);
    double sums[2] = {0};
    for (int world = 0; world < 60; world++) {
        struct hand_pool pools[3] = {0};
        for (int i = 0; i < 3; i++) {
            pools[i] = (struct hand_pool){.count = 4, .group = i < 2 ? 0 : 1, .usd_h = 1 + 0.1 * i};
            for (int k = 0; k < 4; k++)
                pools[i].changes[k] =
                    (struct change){k == 0 ? 0 : 2 * k + 2 * tm_random_unit(&random), (int)tm_random_below(&random, 3)};
        }
        struct tm_gang_options options = hours(6, 9, 0.2);
        options.gang = 1 + world % 3;
        options.spot_start_s = world % 2 * 300;
        struct tm_gang_result oracle;
        assert_int_equal(simulate_pools(pools, 3, "oracle", &options, &oracle), 0);
        for (const struct tm_gang_way *way = tm_gang_ways; way->name != NULL; way++) {
            struct tm_gang_result r;
            double sum = 0;
            assert_int_equal(simulate_pools(pools, 3, way->name, &options, &r), 0);
            assert_row(r.deadline_met && r.cost_usd >= oracle.cost_usd - 1e-6, "world %d, %s: $%g, oracle $%g", world,
                       way->name, r.cost_usd, oracle.cost_usd);
            for (int k = 0; k < 4; k++)
                sum += r.pools[k].bill_usd;
            assert_row(fabs(sum - r.cost_usd) < 1e-9, "world %d, %s: pools $%g of $%g", world, way->name, sum,
                       r.cost_usd);
            sums[0] += strcmp(way->name, "single") == 0 ? r.cost_usd : 0;
            sums[1] += strcmp(way->name, "tidemill") == 0 ? r.cost_usd : 0;
        }
    }
    assert_row(sums[1] <= sums[0], "ours costs $%g, the best pool alone $%g", sums[1], sums[0]);
}

static void test_pools_without_memory(void **state)
{
    (void)state;
    static const struct hand_pool pools[] = {{{{0, 1}, {3, 0}}, 2, 0, 1}, {{{0, 0}, {3, 1}}, 2, 1, 1}};
    struct tm_trace traces[2];
    struct tm_gang_pool list[2];
    struct tm_gang_options options = hours(6, 10, 0.5);
    for (int i = 0; i < 2; i++) {
        make_trace(&traces[i], pools[i].changes, pools[i].count, 30);
        list[i] = (struct tm_gang_pool){.trace = &traces[i], .limit = 100, .group = i, .usd_h = 1};
    }
    for (const struct tm_gang_way *way = tm_gang_ways; way->name != NULL; way++) {
        struct tm_gang_pools all = {.list = list, .count = 2};
        struct tm_gang_result r;
        TM_FAIL_EACH_ALLOC(rc = tm_gang_simulate_pools(&all, way, &options, &r, NULL));
    }
    for (int i = 0; i < 2; i++)
        tm_trace_deinit(&traces[i]);
}

/* ---- recorded traces ---- */

/* false: not there. */
static bool simulate_shared(const char *file, const char *policy, double deadline_h, struct tm_gang_result *r)
{
    char path[512];
    struct tm_trace trace;
    struct tm_error e = {0};
    struct tm_gang_options options = hours(48, deadline_h, 0.1);
    options.spot_usd_h = 0.9731;
    options.on_demand_usd_h = 3.06;
    (void)snprintf(path, sizeof path, TRACES "%s", file);
    if (!tm_env_real()->file_exists(tm_env_real(), path)) return false;
    tm_trace_init(&trace);
    assert_row(tm_trace_load(tm_env_real(), path, NULL, &trace, &e) == 0, "%s", e.text);
    options.from_ms = trace.begin_ms;
    assert_row(tm_gang_simulate(&trace, tm_deadline_policy_find(policy), &options, r, &e) == 0, "%s", e.text);
    tm_trace_deinit(&trace);
    return true;
}

/* What the simulator of Can't Be Late gives on the same files. It decides every ten minutes and rounds restarts up to
 * that, so it pays up to a tick more at each launch: within 1.5%. Its integer program is within one tick of ours. */
static void test_against_another_simulator(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *policy;
        double deadline_h, usd, tolerance;
    } rows[] = {{"aws-avail-2022-10-26-p3.2xlarge-us-west-2a-n1.json", "greedy", 52, 137.58, 0.015},
                {"aws-avail-2022-10-26-p3.2xlarge-us-west-2a-n1.json", "oracle-deadline", 52, 109.24, 0.0047},
                {"aws-avail-2022-10-26-p2.xlarge-us-west-2a-n1.json", "greedy", 60, 47.36, 0.015},
                {"aws-avail-2022-10-26-p2.8xlarge-us-west-2a-n1.json", "greedy", 60, 138.81, 0.015},
                {"aws-avail-2022-10-26-p2.xlarge-us-west-2b-n1.json", "greedy", 60, 72.75, 0.015}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_gang_result r;
        if (!simulate_shared(rows[i].file, rows[i].policy, rows[i].deadline_h, &r)) {
            print_message("skipped: no file %s\n", rows[i].file);
            skip();
        }
        assert_row(fabs(r.cost_usd / rows[i].usd - 1) < rows[i].tolerance, "%s, %s: $%.2f, there $%.2f", rows[i].file,
                   rows[i].policy, r.cost_usd, rows[i].usd);
    }
}

/* Some of the recorded single-node traces, of all kinds; bench_deadline has them all. Nobody is late, nobody beats the
 * oracle, and tidemill pays on average at most what the better of greedy and uniform-progress does. */
static void test_recorded_traces(void **state)
{
    (void)state;
    static const char *const files[] = {"aws-avail-2022-10-26-p2.8xlarge-us-west-2b-n1.json",
                                        "aws-avail-2022-10-26-p3.16xlarge-us-west-2b-n1.json",
                                        "aws-avail-2022-11-28-p2.xlarge-us-west-2b-n1.csv",
                                        "aws-avail-2022-11-28-p3.2xlarge-us-west-2a-n1.csv",
                                        "aws-avail-2022-12-13-p2.xlarge-us-west-2a-n1.csv",
                                        "aws-avail-2023-02-15-p3.2xlarge-us-east-1c-n1.json",
                                        "aws-preempt-2023-04-19-r5.16xlarge-us-east-1b-n1.json",
                                        "aws-preempt-2023-04-22-p3.2xlarge-us-west-2c-n1.json",
                                        "gcp-preempt-2023-04-30-c3-highcpu-88-us-central1-a-n1.json"};
    static const char *const policies[] = {"oracle-deadline", "tidemill", "greedy", "uniform-progress", "on-demand"};
    double sums[TM_COUNT(policies)] = {0};
    for (size_t i = 0; i < 2 * TM_COUNT(files); i++) {
        struct tm_gang_result r[TM_COUNT(policies)];
        const char *file = files[i / 2];
        for (size_t p = 0; p < TM_COUNT(policies); p++) {
            if (!simulate_shared(file, policies[p], i % 2 ? 60 : 52, &r[p])) {
                print_message("skipped: no file %s\n", file);
                skip();
            }
            assert_row(r[p].deadline_met, "%s, %s: late", file, policies[p]);
            assert_row(r[p].cost_usd >= r[0].cost_usd - 1e-6, "%s: %s beats the oracle", file, policies[p]);
            sums[p] += r[p].cost_usd;
        }
    }
    assert_true(sums[1] <= sums[2] && sums[1] <= sums[3]);
}

TM_TEST_MAIN(TM_TEST(test_by_hand), TM_TEST(test_gang_of_three), TM_TEST(test_start_up), TM_TEST(test_edges),
             TM_TEST(test_history), TM_TEST(test_refusals), TM_TEST(test_without_memory), TM_TEST(test_pools_by_hand),
             TM_TEST(test_drawn_pools), TM_TEST(test_pools_without_memory), TM_TEST(test_against_another_simulator),
             TM_TEST(test_recorded_traces))
