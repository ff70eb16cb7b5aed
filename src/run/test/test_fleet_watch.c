/* The fleet as a forecaster sees it, from the list of instances alone. */
#include "base/test/harness.h"
#include "run/fleet_watch.h"

#include <math.h>
#include <string.h>

enum { MINUTE_MS = 60000, MOST = 16 };

static Tmw__Instance spot(uint64_t id, int64_t start_min, int64_t end_min, bool announced)
{
    Tmw__Instance instance = TMW__INSTANCE__INIT;
    instance.id = id;
    instance.spot = true;
    instance.start_ms = start_min * MINUTE_MS;
    instance.end_ms = end_min * MINUTE_MS;
    instance.announced = announced;
    return instance;
}

struct told {
    struct {
        int count, arrived, lost;
    } minutes[64];
    size_t count;
    int hints;
    double hint_s;
};

static int observe(void *context, int count, int arrived, int lost, struct tm_error *e)
{
    struct told *told = context;
    (void)e;
    assert_true(told->count < TM_COUNT(told->minutes));
    told->minutes[told->count].count = count;
    told->minutes[told->count].arrived = arrived;
    told->minutes[told->count++].lost = lost;
    return 0;
}

static void hint(void *context, int losing, double in_s)
{
    struct told *told = context;
    told->hints += losing;
    told->hint_s = in_s;
}

static void watch_init(struct tm_fleet_watch *watch, struct told *told)
{
    struct tm_fleet_learner learner = {.context = told, .observe = observe, .hint = hint};
    memset(told, 0, sizeof *told);
    tm_fleet_watch__init(watch, &learner, MINUTE_MS);
}

/* What the simulator would tell the policy at the same counts. */
static void test_same_as_simulated(void **state)
{
    (void)state;
    Tmw__Instance list[] = {spot(1, 0, 0, false),  spot(2, 0, 7, true),   spot(3, 2, 0, false),
                            spot(4, 3, 12, false), spot(5, 9, 12, false), spot(6, 15, 0, false)};
    static const struct {
        int count, arrived, lost;
    } minutes[] = {{2, 0, 0}, {2, 0, 0}, {3, 1, 0}, {4, 1, 0}, {4, 0, 0}, {4, 0, 0}, {4, 0, 0}, {3, 0, 1}, {3, 0, 0},
                   {4, 1, 0}, {4, 0, 0}, {4, 0, 0}, {2, 0, 2}, {2, 0, 0}, {2, 0, 0}, {3, 1, 0}, {3, 0, 0}};
    struct tm_error e;
    struct told told[2];
    struct tm_fleet_watch watch;
    watch_init(&watch, &told[0]);
    struct tm_run_cloud cloud = {.known = true, .speed = 60, .instances = list};
    for (int64_t now_ms = 0; now_ms <= 16 * MINUTE_MS; now_ms += 13000) { /* as reports come, not minute by minute */
        cloud.now_ms = now_ms;
        Tmw__Instance seen[TM_COUNT(list)];
        cloud.instance_count = 0;
        for (size_t i = 0; i < TM_COUNT(list); i++) { /* what will be is not known yet */
            if (list[i].start_ms > now_ms) continue;
            seen[cloud.instance_count] = list[i];
            if (list[i].end_ms > now_ms) {
                seen[cloud.instance_count].end_ms = 0;
                seen[cloud.instance_count].announced = false;
            }
            cloud.instance_count++;
        }
        cloud.instances = seen;
        assert_int_equal(tm_fleet_watch__update(&watch, &cloud, &e), 0);
    }
    cloud.now_ms = 16 * MINUTE_MS;
    cloud.instances = list;
    cloud.instance_count = TM_COUNT(list);
    assert_int_equal(tm_fleet_watch__update(&watch, &cloud, &e), 0);
    assert_int_equal(watch.observations, TM_COUNT(minutes));
    struct tm_fleet_watch again; /* a coordinator that was restarted has the list alone */
    watch_init(&again, &told[1]);
    assert_int_equal(tm_fleet_watch__update(&again, &cloud, &e), 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(told[k].count, TM_COUNT(minutes));
        for (size_t i = 0; i < TM_COUNT(minutes); i++)
            assert_row(told[k].minutes[i].count == minutes[i].count &&
                           told[k].minutes[i].arrived == minutes[i].arrived &&
                           told[k].minutes[i].lost == minutes[i].lost,
                       "minute %zu, watch %d", i, k);
    }
}

/* A notice is passed on once. */
static void test_notice(void **state)
{
    (void)state;
    Tmw__Instance list[] = {spot(1, 0, 0, false), spot(2, 0, 0, false), spot(3, 0, 0, false)};
    struct tm_run_cloud cloud = {
        .known = true, .speed = 4, .instances = list, .instance_count = 3, .now_ms = 20 * MINUTE_MS};
    struct tm_fleet_watch watch;
    struct told told;
    struct tm_error e;
    watch_init(&watch, &told);
    assert_int_equal(tm_fleet_watch__update(&watch, &cloud, &e), 0);
    assert_int_equal(told.hints, 0);
    list[1].announced = true;
    list[1].notice_left_ms = 30000;
    for (int i = 0; i < 3; i++)
        assert_int_equal(tm_fleet_watch__update(&watch, &cloud, &e), 0);
    assert_int_equal(watch.hint_count, 1);
    assert_int_equal(told.hints, 1);
    assert_true(told.hint_s == 120); /* the cloud's time */
}

static void test_losses(void **state)
{
    (void)state;
    struct tm_run_cloud cloud = {.known = true, .now_ms = 600 * MINUTE_MS};
    struct tm_facts_losses none = tm_fleet_losses__of(&cloud, MINUTE_MS);
    assert_true(none.lost_per_s > 0 && none.lost_per_s < 1.0 / 3600); /* what is usual */
    Tmw__Instance list[MOST];
    for (int i = 0; i < MOST; i++) /* ten hours each; every second one is lost in the fifth, pairs together */
        list[i] = spot((uint64_t)i + 1, 0, i % 2 == 0 ? 300 + i / 4 * 10 : 0, i % 4 == 0);
    list[1].end_ms = 10 * MINUTE_MS;
    list[1].released = true; /* given back: no loss */
    cloud.instances = list;
    cloud.instance_count = MOST;
    struct tm_facts_losses losses = tm_fleet_losses__of(&cloud, MINUTE_MS);
    double hours = 0;
    for (int i = 0; i < MOST; i++)
        hours += (double)(list[i].end_ms == 0 ? cloud.now_ms : list[i].end_ms) / 3.6e6;
    assert_true(fabs(losses.lost_per_s * 3600 - 9 / (hours + 2)) <
                1e-9); /* eight, and one in two hours that is usual */
    assert_true(fabs(losses.unannounced - 5.0 / 10) < 1e-9);
    assert_true(fabs(losses.together - 8.2 / 10) < 1e-9);
}

TM_TEST_MAIN(TM_TEST(test_same_as_simulated), TM_TEST(test_notice), TM_TEST(test_losses))
