/* Runs that choose among pools: small cases by hand, and what must hold whatever the traces.
 * builds: release asan */
#include "sim/test/sim_helpers.h"

#include "base/random.h"

#define COST                                                                                                           \
    "tidemill-cost: 1\nkind: measured\nreform_ms: 20000\nlink: 5Gbit/s\nlink_latency_ms: 1\nstore: 2Gbit/s\n"          \
    "start_s: 60\ncopy_interval_s: 120\n"

enum { POOLS = 5, HOUR_MS = 3600000 };

static const char *const choosers[] = {"single", "failover", "spread", "tidemill", "oracle", "ideal"};

struct market {
    struct tm_trace traces[POOLS];
    struct tm_sim_pool list[POOLS];
    struct tm_sim_pools pools;
    struct tm_trace times;
    enum tm_fleet_rent rent;
    int workers_min; /* 0: one is enough */
};

static void begin(struct market *market, int64_t end_ms)
{
    memset(market, 0, sizeof *market);
    tm_trace_init(&market->times);
    market->times.end_ms = end_ms;
    market->pools.list = market->list;
}

/* A pool with so many instances in each hour. */
static struct tm_sim_pool *add(struct market *market, int group, double usd_h, const int *hours, int count)
{
    struct tm_error e;
    int number = market->pools.count++, before = 0;
    struct tm_trace *trace = &market->traces[number];
    tm_trace_init(trace);
    for (int i = 0; i < count; i++) {
        int more = hours[i] > before ? hours[i] - before : 0, fewer = hours[i] < before ? before - hours[i] : 0;
        if (more + fewer > 0) assert_int_equal(tm_trace_add(trace, i * (int64_t)HOUR_MS, more, fewer, NAN, &e), 0);
        before = hours[i];
    }
    trace->end_ms = count * (int64_t)HOUR_MS;
    market->list[number] = (struct tm_sim_pool){.name = "pool",
                                                .market = TM_POOL_SPOT,
                                                .group = group,
                                                .region = group,
                                                .trace = trace,
                                                .limit = 100,
                                                .price_usd_h = usd_h,
                                                .start_s = 60,
                                                .notice_s = 120,
                                                .speed = 1};
    return &market->list[number];
}

static struct tm_sim_result run(struct tm_env *env, struct test_job *job, struct market *market, const char *policy)
{
    struct tm_sim_options options = minute_options(0, market->times.end_ms);
    options.pools = &market->pools;
    options.workers_min = market->workers_min > 0 ? market->workers_min : 1;
    options.workers_each = market->pools.workers_each;
    options.rent = market->rent;
    market->times.event_count = 0;
    for (int64_t t = HOUR_MS; t < market->times.end_ms; t += HOUR_MS) {
        struct tm_error e;
        assert_int_equal(tm_trace_add(&market->times, t - 120000, 0, 0, NAN, &e), 0);
        assert_int_equal(tm_trace_add(&market->times, t, 0, 0, NAN, &e), 0);
    }
    return simulate(env, job, &market->times, policy, &options, NULL);
}

static void drop(struct market *market)
{
    for (int i = 0; i < market->pools.count; i++)
        tm_trace_deinit(&market->traces[i]);
    tm_trace_deinit(&market->times);
}

static double rate(const struct test_job *job, int instances)
{
    return job->layouts.list[job->layouts.best[instances]].samples_per_s;
}

/* ---- by hand ---- */

/* Two regions that take turns: one pool alone has half, whoever moves nearly all, and a move is paid for. */
static void test_regions_take_turns(void **state)
{
    (void)state;
    static const int odd[] = {4, 0, 4, 0, 4, 0}, even[] = {0, 4, 0, 4, 0, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    struct market market;
    begin(&market, 6 * (int64_t)HOUR_MS);
    add(&market, 0, 1, odd, 6);
    add(&market, 1, 1, even, 6);
    market.pools.move_usd = 0.5;
    double whole = 6 * 3600 * rate(job, 4);
    struct tm_sim_result single = run(env, job, &market, "single"), ours = run(env, job, &market, "tidemill");
    struct tm_sim_result failover = run(env, job, &market, "failover"), oracle = run(env, job, &market, "oracle");
    assert_row(single.samples > 0.45 * whole && single.samples <= 0.5 * whole, "single: %g of %g", single.samples,
               whole);
    assert_row(single.pools[0].instance_hours > 11 && single.pools[1].instance_hours == 0, "single rents from one");
    assert_row(ours.samples > 0.9 * whole, "ours: %g of %g", ours.samples, whole);
    assert_row(ours.moves == 5, "ours: %d moves", ours.moves);
    assert_row(failover.samples > 0.9 * whole && failover.samples < whole, "failover: %g", failover.samples);
    assert_row(oracle.samples >= ours.samples && oracle.samples <= whole, "oracle: %g", oracle.samples);
    double hours = ours.pools[0].instance_hours + ours.pools[1].instance_hours;
    assert_row(close_to(ours.bill_usd, hours + 5 * 0.5, 1e-9), "$%g for %g h and 5 moves", ours.bill_usd, hours);
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Two regions that may train together do so where links and traffic leave something of it; else the job stays in one,
 * and goes to the other when its own runs dry. */
static void test_across_regions(void **state)
{
    (void)state;
    static const int all[] = {4, 4, 4, 4}, dries[] = {4, 4, 0, 0};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    double sample_usd = 4.0 / 3600 / rate(job, 4); /* what a sample costs in one region, at a dollar an hour */
    struct {
        const char *name;
        struct tm_far far;
        enum tm_fleet_rent rent;
        bool both;
    } rows[] = {
        {"as near as anything", {0, 0}, TM_RENT_WORTHWHILE, true},
        {"traffic at a hundredth of a sample", {0, 0.01 * sample_usd}, TM_RENT_WORTHWHILE, true},
        {"traffic as dear as a sample", {0, sample_usd}, TM_RENT_WORTHWHILE, false},
        {"as dear, and all are to be rented", {0, sample_usd}, TM_RENT_ALL, true},
        {"a link as slow as all else", {2 / rate(job, 8), 0}, TM_RENT_WORTHWHILE, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct market market;
        begin(&market, 4 * (int64_t)HOUR_MS);
        add(&market, 0, 1, dries, 4);
        add(&market, 0, 1, all, 4)->region = 1;
        market.pools.far = rows[i].far;
        market.rent = rows[i].rent;
        struct tm_sim_result ours = run(env, job, &market, "tidemill");
        double hours = ours.pools[0].instance_hours + ours.pools[1].instance_hours, half_s = 2 * 3600;
        double traffic = ours.bill_usd - hours, whole = ours.samples * rows[i].far.sample_usd;
        double both = tm_far_rate(&rows[i].far, rate(job, 8), 2);
        double most = half_s * ((rows[i].both ? both : rate(job, 4)) + rate(job, 4));
        assert_row((hours > 22) == rows[i].both, "%s: %g instance-hours", rows[i].name, hours);
        assert_row(ours.samples > 0.93 * most && ours.samples <= 1.01 * most, "%s: %g samples of %g", rows[i].name,
                   ours.samples, most);
        assert_row(rows[i].both ? traffic > 0.4 * whole - 1e-6 : traffic < 0.05 * whole + 1e-6, "%s: $%g of traffic",
                   rows[i].name, traffic);
        assert_row(ours.samples <= run(env, job, &market, "oracle").samples, "%s: above the bound", rows[i].name);
        drop(&market);
    }
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* No throughput is given up for a cheaper region, unless the job asks for that; among equal ones the cheaper is it. */
static void test_dear_and_cheap(void **state)
{
    (void)state;
    static const int many[] = {8, 8, 8, 8}, few[] = {3, 3, 3, 3};
    static const struct {
        const char *name;
        const int *cheap;
        enum tm_fleet_rent rent;
        bool goes_cheap;
    } rows[] = {{"few and cheap", few, TM_RENT_WORTHWHILE, false},
                {"few and cheap, all wanted", few, TM_RENT_ALL, false},
                {"few, the cheapest wanted", few, TM_RENT_CHEAPEST, true},
                {"as many, cheaper", many, TM_RENT_WORTHWHILE, true}};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct market market;
        begin(&market, 4 * (int64_t)HOUR_MS);
        add(&market, 0, 5, many, 4);
        add(&market, 1, 1, rows[i].cheap, 4);
        market.rent = rows[i].rent;
        struct tm_sim_result ours = run(env, job, &market, "tidemill"), single = run(env, job, &market, "single");
        bool cheap = ours.pools[1].instance_hours > ours.pools[0].instance_hours;
        assert_row(cheap == rows[i].goes_cheap, "%s: %g h dear, %g h cheap", rows[i].name, ours.pools[0].instance_hours,
                   ours.pools[1].instance_hours);
        assert_row(rows[i].rent == TM_RENT_CHEAPEST || ours.samples >= 0.98 * single.samples, "%s: %g of single's %g",
                   rows[i].name, ours.samples, single.samples);
        drop(&market);
    }
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Three regions: a cheap one and a dear one whose pool has as many, and in a third one two such pools. Twice the
 * throughput is worth a little more for a sample, not any price; and no less is trained than the best pool alone would.
 */
static void test_twice_and_dear(void **state)
{
    (void)state;
    static const int four[] = {4, 4, 4, 4, 4, 4}, dries[] = {4, 4, 4, 0, 0, 0};
    static const struct {
        const char *name;
        const int *cheap;
        double dear_usd_h;
        enum tm_fleet_rent rent;
        double least, most; /* share of all instance-hours that are dear ones */
    } rows[] = {{"hardly dearer", four, 1.03, TM_RENT_WORTHWHILE, 0.9, 1},
                {"much dearer", four, 1.7, TM_RENT_WORTHWHILE, 0, 0},
                {"much dearer, all wanted", four, 1.7, TM_RENT_ALL, 0.9, 1},
                {"much dearer, the cheap one dries up", dries, 1.7, TM_RENT_WORTHWHILE, 0.5, 0.75}};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct market market;
        begin(&market, 6 * (int64_t)HOUR_MS);
        add(&market, 0, rows[i].dear_usd_h, four, 6);
        add(&market, 0, rows[i].dear_usd_h, four, 6);
        add(&market, 1, 1, rows[i].cheap, 6);
        market.rent = rows[i].rent;
        struct tm_sim_result ours = run(env, job, &market, "tidemill"), single = run(env, job, &market, "single");
        double dear = ours.pools[0].instance_hours + ours.pools[1].instance_hours;
        double share = dear / (dear + ours.pools[2].instance_hours);
        assert_row(share >= rows[i].least && share <= rows[i].most, "%s: %g of the hours are dear", rows[i].name,
                   share);
        assert_row(ours.samples >= 0.98 * single.samples, "%s: %g of single's %g", rows[i].name, ours.samples,
                   single.samples);
        drop(&market);
    }
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* No pool alone has as many as the job needs: it trains where several have them together, whatever that costs, and not
 * in a cheap region that has too few. */
static void test_none_alone(void **state)
{
    (void)state;
    static const int three[] = {3, 3, 3, 3, 3, 3}, one[] = {1, 1, 1, 1, 1, 1};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    struct market market;
    begin(&market, 6 * (int64_t)HOUR_MS);
    add(&market, 0, 1, one, 6);
    add(&market, 1, 1.7, three, 6);
    add(&market, 1, 1.7, three, 6);
    market.workers_min = 4;
    struct tm_sim_result ours = run(env, job, &market, "tidemill");
    assert_row(ours.samples > 0.9 * 6 * 3600 * rate(job, 6), "ours: %g of %g", ours.samples, 6 * 3600 * rate(job, 6));
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* The cheap region runs dry for two hours: the job goes to the dear one, and back when as many are there again; a price
 * that a move costs more than is no reason. */
static void test_back_to_the_cheap(void **state)
{
    (void)state;
    static const int steady[] = {4, 4, 4, 4, 4, 4, 4, 4}, gone[] = {4, 0, 0, 4, 4, 4, 4, 4};
    static const struct {
        const char *name;
        double dear_usd_h, move_usd;
        int moves;
    } rows[] = {{"a fifth dearer", 1.2, 0.01, 2}, {"hardly dearer", 1.01, 0.01, 1}, {"a dear move", 1.2, 5, 1}};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(5, false, COST, 4, test_speed);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct market market;
        begin(&market, 8 * (int64_t)HOUR_MS);
        add(&market, 0, rows[i].dear_usd_h, steady, 8);
        add(&market, 1, 1, gone, 8);
        market.pools.move_usd = rows[i].move_usd;
        struct tm_sim_result ours = run(env, job, &market, "tidemill");
        assert_row(ours.moves == rows[i].moves, "%s: %d moves, %g h dear", rows[i].name, ours.moves,
                   ours.pools[0].instance_hours);
        drop(&market);
    }
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* One fast instance does more than two slow ones: together they must do no less than it alone. */
static void test_strong_and_weak(void **state)
{
    (void)state;
    static const int one[] = {1, 1, 1, 1}, two[] = {2, 2, 2, 2};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    struct market market;
    begin(&market, 4 * (int64_t)HOUR_MS);
    add(&market, 0, 1, two, 4);
    add(&market, 0, 12, one, 4)->speed = 6; /* twice as dear for what it does */
    struct tm_sim_result ours = run(env, job, &market, "tidemill"), single = run(env, job, &market, "single");
    assert_row(ours.samples >= 0.98 * single.samples, "%g samples, the strong one alone %g", ours.samples,
               single.samples);
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Pools of one region add up where a sample costs about the same; a limit holds; the cheap one comes first where not
 * all are wanted; and of one that is twice as dear no more are rented than one pool could give, without a deadline that
 * asks for it. */
static void test_one_region_adds_up(void **state)
{
    (void)state;
    static const int all[] = {6, 6, 6};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    struct market market;
    begin(&market, 3 * (int64_t)HOUR_MS);
    struct tm_sim_pool *dear = add(&market, 0, 1.02, all, 3);
    add(&market, 0, 1, all, 3)->limit = 5;
    double least = 0.95 * 3 * 3600 * rate(job, 8);
    struct tm_sim_result ours = run(env, job, &market, "tidemill"), spread = run(env, job, &market, "spread");
    assert_row(ours.samples > least && spread.samples > least, "%g and %g of %g", ours.samples, spread.samples, least);
    assert_row(ours.pools[1].instance_hours > ours.pools[0].instance_hours, "ours: the cheap one first");
    assert_row(close_to(ours.pools[1].instance_hours, 15, 1e-2), "%g h of 5", ours.pools[1].instance_hours);
    assert_row(close_to(spread.pools[0].instance_hours, 12, 0.01), "evenly: %g h", spread.pools[0].instance_hours);
    dear->price_usd_h = 2;
    ours = run(env, job, &market, "tidemill");
    assert_row(ours.pools[0].instance_hours < 4, "twice as dear: %g h",
               ours.pools[0].instance_hours); /* six in all, as one pool has */
    market.rent = TM_RENT_ALL;
    ours = run(env, job, &market, "tidemill");
    assert_row(ours.pools[0].instance_hours > 8, "all, whatever they cost: %g h", ours.pools[0].instance_hours);
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Instances of four workers come, go and are paid whole: eight hours of two are two instances for four hours each. */
static void test_whole_instances(void **state)
{
    (void)state;
    static const int one[] = {4, 4, 0, 4}, two[] = {4, 4, 8, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    for (size_t i = 0; i < TM_COUNT(choosers); i++) {
        struct market market;
        begin(&market, 4 * (int64_t)HOUR_MS);
        market.pools.workers_each = 4;
        add(&market, 0, 0.25, one, 4); /* a dollar an instance */
        add(&market, 0, 0.26, two, 4);
        struct tm_sim_result result = run(env, job, &market, choosers[i]);
        double hours = result.pools[0].instance_hours + result.pools[1].instance_hours;
        double usd = result.pools[0].instance_hours * 1 + result.pools[1].instance_hours * 1.04;
        assert_row(hours <= 8.01 && close_to(hours, result.instance_hours, 1e-9), "%s: %g h", choosers[i], hours);
        assert_row(close_to(result.bill_usd, usd, 1e-9), "%s: $%g, %g h", choosers[i], result.bill_usd, hours);
        /* a part of an instance is never rented: what both had from the beginning was there for whole hours */
        bool both = strcmp(choosers[i], "tidemill") == 0 || strcmp(choosers[i], "spread") == 0;
        if (both) assert_row(hours > 7.8, "%s: %g h of 8", choosers[i], hours);
        drop(&market);
    }
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Anchors are there while the job uses their region, and before it trains in the next; whoever knows all pays none. */
static void test_keepers(void **state)
{
    (void)state;
    static const int first[] = {4, 4, 0, 0}, second[] = {0, 4, 4, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    struct market market;
    begin(&market, 4 * (int64_t)HOUR_MS);
    add(&market, 0, 1, first, 4);
    add(&market, 1, 1, second, 4)->region = 1;
    for (int i = 0; i < 2; i++)
        market.list[2 + i] = (struct tm_sim_pool){.name = "anchors",
                                                  .market = TM_POOL_ON_DEMAND,
                                                  .region = i,
                                                  .limit = 2,
                                                  .price_usd_h = 0.1,
                                                  .start_s = 30,
                                                  .speed = 1};
    struct tm_sim_result without = run(env, job, &market, "tidemill");
    market.pools.keeper_count = 2;
    struct tm_sim_result ours = run(env, job, &market, "tidemill"), single = run(env, job, &market, "single");
    assert_row(ours.samples > 0.99 * without.samples && ours.moves == 1, "%g samples, %g without; %d moves",
               ours.samples, without.samples, ours.moves);
    double east = ours.pools[2].instance_hours, west = ours.pools[3].instance_hours;
    assert_row(east > 3.8 && east < 4.2 && west > 3.8 && west < 4.2, "%g h and %g h of two anchors", east, west);
    assert_row(close_to(ours.pools[2].bill_usd, 0.1 * east, 1e-9), "$%g", ours.pools[2].bill_usd);
    assert_row(single.pools[2].instance_hours == 0 && single.pools[3].instance_hours > 5.8, "single: %g h, %g h",
               single.pools[2].instance_hours, single.pools[3].instance_hours);
    struct tm_sim_result ideal = run(env, job, &market, "ideal");
    assert_row(ideal.pools[2].instance_hours == 0, "ideal: %g h", ideal.pools[2].instance_hours);
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* A pool of faster instances is worth more, and one that cannot train is never rented. */
static void test_types_differ(void **state)
{
    (void)state;
    static const int all[] = {4, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    struct market market;
    begin(&market, 2 * (int64_t)HOUR_MS);
    add(&market, 0, 1, all, 2);
    add(&market, 1, 1, all, 2)->speed = 3;
    add(&market, 2, 0.1, all, 2)->speed = 0;
    struct tm_sim_result ours = run(env, job, &market, "tidemill");
    assert_row(close_to(ours.samples, 3 * rate(job, 4) * 7200, 0.05), "%g", ours.samples);
    assert_row(ours.pools[1].instance_hours > 7.5 && ours.pools[2].instance_hours == 0, "the fast ones");
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Instances of two speeds that train together: their speeds add up, and where money decides, the one that does more
 * for it is rented. */
static void test_types_together(void **state)
{
    (void)state;
    static const int two[] = {2, 2, 2, 2};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    struct market market;
    begin(&market, 4 * (int64_t)HOUR_MS);
    add(&market, 0, 0.5, two, 4);
    add(&market, 0, 1.5, two, 4)->speed = 3;
    struct tm_sim_result single = run(env, job, &market, "single"), ours = run(env, job, &market, "tidemill");
    struct tm_sim_result oracle = run(env, job, &market, "oracle");
    double fast = 3 * 4 * 3600 * rate(job, 2), all = 2 * 4 * 3600 * rate(job, 4);
    assert_row(single.samples > 0.97 * fast && single.samples <= fast, "single: %g of %g", single.samples, fast);
    assert_row(ours.samples > 0.97 * all && ours.samples <= all, "ours: %g of %g", ours.samples, all);
    assert_row(ours.samples <= oracle.samples, "ours: %g, oracle: %g", ours.samples, oracle.samples);
    drop(&market);
    job_drop(job);
    job = job_make(9, false, COST, 2, test_speed); /* only two are wanted */
    begin(&market, 4 * (int64_t)HOUR_MS);
    add(&market, 0, 1, two, 4);
    add(&market, 0, 1.5, two, 4)->speed = 3;
    ours = run(env, job, &market, "tidemill");
    assert_row(ours.pools[0].instance_hours == 0 && ours.pools[1].instance_hours > 7.9, "%g h of the cheap, %g h",
               ours.pools[0].instance_hours, ours.pools[1].instance_hours);
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Two are wanted, and one fast one comes only after the slow ones: that costs hardly more a sample, so it takes the
 * place of a slow one that is there. */
static void test_fast_in_few_places(void **state)
{
    (void)state;
    static const int one[] = {1, 1, 1, 1, 1, 1}, later[] = {0, 1, 1, 1, 1, 1}, two[] = {2, 2, 2, 2, 2, 2};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 2, test_speed);
    struct market market;
    begin(&market, 6 * (int64_t)HOUR_MS);
    add(&market, 0, 4, one, 6)->speed = 4;
    add(&market, 0, 4.1, later, 6)->speed = 4;
    add(&market, 0, 1, two, 6);
    struct tm_sim_result ours = run(env, job, &market, "tidemill"), oracle = run(env, job, &market, "oracle");
    assert_row(ours.pools[1].instance_hours > 4.8, "%g h of the second fast one", ours.pools[1].instance_hours);
    assert_row(ours.samples > 0.95 * oracle.samples, "%g of %g", ours.samples, oracle.samples);
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* On-demand instances come where the deadline needs them, and not before. */
static void test_deadline(void **state)
{
    (void)state;
    static const int none[] = {4, 0, 0, 0, 0, 0, 0, 0};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    for (int asks = 0; asks < 2; asks++) {
        struct market market;
        begin(&market, 8 * (int64_t)HOUR_MS);
        add(&market, 0, 1, none, 8);
        struct tm_sim_pool *on_demand = add(&market, 0, 3, none, 8);
        on_demand->market = TM_POOL_ON_DEMAND;
        on_demand->trace = NULL;
        on_demand->limit = 4;
        struct tm_sim_options options = minute_options(0, market.times.end_ms);
        options.pools = &market.pools;
        options.workers_min = 1;
        options.samples_total = 3 * 3600 * rate(job, 4);
        options.deadline_s = asks == 1 ? 5 * 3600 : 0;
        struct tm_sim_result result = simulate(env, job, &market.times, "tidemill", &options, NULL);
        assert_row(result.deadline_met == (asks == 1), "asks %d: finished at %g s", asks, result.finished_at_s);
        assert_row((result.on_demand_hours > 0) == (asks == 1), "asks %d: %g h", asks, result.on_demand_hours);
        drop(&market);
    }
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Whoever has a notice stays until it has run out, though its successor is here: no more train than the job can use,
 * and nobody takes them for others. */
static void test_successors_before_the_end(void **state)
{
    (void)state;
    static const int ends[] = {4, 0, 4, 0}, stays[] = {4, 4, 4, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    for (size_t k = 0; k < 4; k++) {
        struct market market;
        begin(&market, 4 * (int64_t)HOUR_MS);
        add(&market, 0, 1, ends, 4)->notice_s = 600;
        add(&market, 0, 2, stays, 4)->notice_s = 600;
        struct tm_sim_result result = run(env, job, &market, choosers[k]);
        assert_row(result.samples <= 4 * 3600 * rate(job, 4), "%s: %g", choosers[k], result.samples);
        assert_row(k == 0 || result.samples > 0.9 * 4 * 3600 * rate(job, 4), "%s: %g", choosers[k], result.samples);
        drop(&market);
    }
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Whatever the deadline, spot and on-demand instances together are never more than the job wants. */
static void test_no_more_than_wanted(void **state)
{
    (void)state;
    static const int few[] = {2, 0, 3, 1, 4, 0, 0, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    struct market market;
    begin(&market, 8 * (int64_t)HOUR_MS);
    add(&market, 0, 1, few, 8)->notice_s = 0;
    struct tm_sim_pool *on_demand = add(&market, 0, 3, few, 8);
    on_demand->market = TM_POOL_ON_DEMAND;
    on_demand->trace = NULL;
    on_demand->limit = 8;
    for (int minutes = 60; minutes <= 480; minutes += 5) {
        struct tm_sim_options options = minute_options(0, market.times.end_ms);
        options.pools = &market.pools;
        options.workers_min = 1;
        options.samples_total = 3600 * rate(job, 4);
        options.deadline_s = minutes * 60;
        for (size_t k = 0; k < TM_COUNT(choosers); k++) {
            struct tm_sim_result result = simulate(env, job, &market.times, choosers[k], &options, NULL);
            double hours = (isnan(result.finished_at_s) ? result.wall_s : result.finished_at_s) / 3600;
            assert_row(result.instance_hours <= 4 * hours + 1e-6, "%s, %d min: %g h in %g", choosers[k], minutes,
                       result.instance_hours, hours);
        }
    }
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Whoever knows all has on-demand instances too, and pays for its moves; the ideal has them for nothing. */
static void test_bounds(void **state)
{
    (void)state;
    static const int odd[] = {4, 0, 4, 0, 4, 0}, even[] = {0, 4, 0, 4, 0, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    struct market market;
    begin(&market, 6 * (int64_t)HOUR_MS);
    add(&market, 0, 1, odd, 6);
    add(&market, 1, 1, even, 6);
    struct tm_sim_result oracle = run(env, job, &market, "oracle"), ideal = run(env, job, &market, "ideal");
    assert_row(oracle.moves == 5 && oracle.pauses.migrate_s > 0, "%d moves, %g s", oracle.moves,
               oracle.pauses.migrate_s);
    assert_row(oracle.samples < ideal.samples && ideal.moves == 0, "%g of %g", oracle.samples, ideal.samples);
    struct tm_sim_pool *on_demand = add(&market, 0, 3, odd, 6);
    on_demand->market = TM_POOL_ON_DEMAND;
    on_demand->trace = NULL;
    on_demand->limit = 4;
    struct tm_sim_result spread = run(env, job, &market, "spread");
    oracle = run(env, job, &market, "oracle");
    assert_row(oracle.samples >= spread.samples && oracle.on_demand_hours > 0, "%g, spread %g", oracle.samples,
               spread.samples);
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Half the speed and half the work: the same, with a deadline too. */
static void test_speed_is_a_unit(void **state)
{
    (void)state;
    static const int few[] = {3, 1, 2, 0, 0, 0, 0, 0};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    struct tm_sim_result results[2];
    for (int half = 0; half < 2; half++) {
        struct market market;
        begin(&market, 8 * (int64_t)HOUR_MS);
        add(&market, 0, 1, few, 8);
        struct tm_sim_pool *on_demand = add(&market, 0, 3, few, 8);
        on_demand->market = TM_POOL_ON_DEMAND;
        on_demand->trace = NULL;
        on_demand->limit = 4;
        market.list[0].speed = market.list[1].speed = half == 1 ? 0.5 : 1;
        struct tm_sim_options options = minute_options(0, market.times.end_ms);
        options.pools = &market.pools;
        options.workers_min = 1;
        options.samples_total = 3 * 3600 * rate(job, 4) * market.list[0].speed;
        options.deadline_s = 5 * 3600;
        results[half] = simulate(env, job, &market.times, "tidemill", &options, NULL);
        drop(&market);
    }
    assert_row(results[0].deadline_met && results[1].deadline_met, "finished at %g and %g s", results[0].finished_at_s,
               results[1].finished_at_s);
    assert_row(close_to(results[0].on_demand_hours, results[1].on_demand_hours, 1e-6), "%g h and %g h on demand",
               results[0].on_demand_hours, results[1].on_demand_hours);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Of a pool whose trace begins with the job nothing was known before: it was not empty. */
static void test_history_of_some(void **state)
{
    (void)state;
    static const int old[22] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, fresh[] = {4, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    struct market market;
    begin(&market, 2 * (int64_t)HOUR_MS);
    add(&market, 0, 1, old, 22)->from_ms = 20 * (int64_t)HOUR_MS;
    add(&market, 1, 1, fresh, 2);
    struct tm_sim_result ours = run(env, job, &market, "tidemill");
    assert_row(ours.pools[1].instance_hours > 7 && ours.pools[0].instance_hours == 0, "%g h and %g h",
               ours.pools[0].instance_hours, ours.pools[1].instance_hours);
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* Who moves by himself loses no work, notice or not. */
static void test_own_moves_lose_nothing(void **state)
{
    (void)state;
    static const int before[] = {2, 2, 2}, after[] = {0, 4, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    double samples[2];
    for (int noticed = 0; noticed < 2; noticed++) {
        struct market market;
        begin(&market, 3 * (int64_t)HOUR_MS);
        add(&market, 0, 1, before, 3);
        add(&market, 1, 1, after, 3);
        struct tm_sim_options options = minute_options(0, market.times.end_ms);
        options.pools = &market.pools;
        options.workers_min = 1;
        options.notice_s = noticed * 120;
        struct tm_sim_result result = simulate(env, job, &market.times, "tidemill", &options, NULL);
        assert_row(result.moves == 1, "%d moves", result.moves);
        samples[noticed] = result.samples;
        drop(&market);
    }
    assert_row(close_to(samples[0], samples[1], 1e-9), "%g and %g", samples[0], samples[1]);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

static void test_refusal(void **state)
{
    (void)state;
    static const int all[] = {4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    struct market market;
    begin(&market, HOUR_MS);
    add(&market, 0, 1, all, 1);
    struct tm_sim_job sim_job = {.layouts = &job->layouts, .migrations = job->migrations, .cost = &job->cost};
    struct tm_sim_options options = minute_options(0, HOUR_MS);
    struct tm_sim_result result;
    struct tm_error e;
    options.pools = &market.pools;
    int rc = tm_simulate(env, &sim_job, &market.times, tm_policy_find("parcae"), &options, &result, NULL, &e);
    assert_int_equal(rc, -TM_EUSAGE);
    assert_non_null(strstr(e.text, "parcae does not choose among pools; use tidemill, single"));
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

/* ---- whatever the traces ---- */

static void check(const struct tm_sim_result *result, const struct market *market, const int hours[POOLS][12],
                  const char *policy, int seed)
{
    double usd = result->moves * market->pools.move_usd, instance_hours = 0;
    for (int i = 0; i < market->pools.count; i++) {
        double most = 0;
        for (int h = 0; h < 12; h++)
            most += hours[i][h] < market->list[i].limit ? hours[i][h] : market->list[i].limit;
        assert_row(result->pools[i].instance_hours <= most + 1e-6, "%s, seed %d, pool %d: %g h of %g", policy, seed, i,
                   result->pools[i].instance_hours, most);
        instance_hours += result->pools[i].instance_hours;
        usd += result->pools[i].instance_hours * market->list[i].price_usd_h;
    }
    assert_row(close_to(instance_hours, result->instance_hours, 1e-9), "%s, seed %d: hours", policy, seed);
    assert_row(fabs(usd - result->bill_usd) < 1e-6, "%s, seed %d: $%g, not $%g", policy, seed, result->bill_usd, usd);
}

static void test_whatever_the_traces(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 8, test_speed);
    for (int seed = 0; seed < 20; seed++) {
        struct tm_random random = tm_random_make((uint64_t)seed, 7);
        int hours[POOLS][12];
        struct market market;
        double samples[TM_COUNT(choosers)];
        begin(&market, 12 * (int64_t)HOUR_MS);
        market.pools.move_usd = 0.01 * seed;
        for (int i = 0; i < POOLS; i++) {
            for (int h = 0; h < 12; h++)
                hours[i][h] = (int)tm_random_below(&random, 2) * (int)tm_random_below(&random, 7);
            struct tm_sim_pool *pool =
                add(&market, i % 3, 0.5 + 0.1 * (double)tm_random_below(&random, 9), hours[i], 12);
            pool->limit = 1 + (int)tm_random_below(&random, 6);
            pool->notice_s = (double)tm_random_below(&random, 2) * 120;
        }
        for (size_t k = 0; k < TM_COUNT(choosers); k++) {
            struct tm_sim_result result = run(env, job, &market, choosers[k]);
            check(&result, &market, hours, choosers[k], seed);
            samples[k] = result.samples;
        }
        for (size_t k = 0; k < 4; k++)
            assert_row(samples[k] <= samples[4] * (1 + 1e-9), "seed %d: %s above oracle", seed, choosers[k]);
        assert_row(samples[4] <= samples[5] * (1 + 1e-9), "seed %d: oracle above ideal", seed);
        drop(&market);
    }
    job_drop(job);
    tm_env_virtual_destroy(env);
}

static int run_once(struct tm_env *env, struct test_job *job, const struct market *market, const char *policy)
{
    struct tm_sim_options options = minute_options(0, market->times.end_ms);
    struct tm_migrations *migrations = NULL;
    struct tm_sim_result result;
    struct tm_error e;
    options.pools = &market->pools;
    options.interval_s = 600;
    int rc = tm_migrations_create(&job->layouts, &job->cost, &migrations, &e);
    if (rc != 0) return rc;
    struct tm_sim_job sim_job = {.layouts = &job->layouts, .migrations = migrations, .cost = &job->cost};
    rc = tm_simulate(env, &sim_job, &market->times, tm_policy_find(policy), &options, &result, NULL, &e);
    tm_migrations_destroy(migrations);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    static const int odd[] = {3, 0}, even[] = {1, 4};
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, COST, 4, test_speed);
    struct market market;
    begin(&market, 2 * (int64_t)HOUR_MS);
    add(&market, 0, 1, odd, 2);
    add(&market, 1, 1, even, 2);
    for (size_t k = 0; k < TM_COUNT(choosers); k++)
        TM_FAIL_EACH_ALLOC({ rc = run_once(env, job, &market, choosers[k]); });
    drop(&market);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_regions_take_turns), TM_TEST(test_across_regions), TM_TEST(test_dear_and_cheap),
             TM_TEST(test_twice_and_dear), TM_TEST(test_none_alone), TM_TEST(test_back_to_the_cheap),
             TM_TEST(test_strong_and_weak), TM_TEST(test_one_region_adds_up), TM_TEST(test_whole_instances),
             TM_TEST(test_keepers), TM_TEST(test_types_differ), TM_TEST(test_types_together),
             TM_TEST(test_fast_in_few_places), TM_TEST(test_deadline), TM_TEST(test_successors_before_the_end),
             TM_TEST(test_no_more_than_wanted), TM_TEST(test_bounds), TM_TEST(test_speed_is_a_unit),
             TM_TEST(test_history_of_some), TM_TEST(test_own_moves_lose_nothing), TM_TEST(test_refusal),
             TM_TEST(test_whatever_the_traces), TM_TEST(test_without_memory))
