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

/* What the simulator would feed its forecaster with at the same counts. */
static void test_same_as_simulated(void **state)
{
    (void)state;
    Tmw__Instance list[] = {spot(1, 0, 0, false),  spot(2, 0, 7, true),   spot(3, 2, 0, false),
                            spot(4, 3, 12, false), spot(5, 9, 12, false), spot(6, 15, 0, false)};
    static const struct {
        int count, arrived, lost;
    } minutes[] = {{2, 0, 0}, {2, 0, 0}, {3, 1, 0}, {4, 1, 0}, {4, 0, 0}, {4, 0, 0}, {4, 0, 0}, {3, 0, 1}, {3, 0, 0},
                   {4, 1, 0}, {4, 0, 0}, {4, 0, 0}, {2, 0, 2}, {2, 0, 0}, {2, 0, 0}, {3, 1, 0}, {3, 0, 0}};
    struct tm_forecaster_options options = {
        .method = TM_FORECAST_TIDEMILL, .interval_ms = MINUTE_MS, .horizon_max = 12};
    struct tm_forecaster *forecaster = NULL;
    struct tm_error e;
    assert_int_equal(tm_forecaster_create(&options, &forecaster, &e), 0);
    for (size_t i = 0; i < TM_COUNT(minutes); i++)
        assert_int_equal(tm_forecaster_observe(forecaster, minutes[i].count, minutes[i].arrived, minutes[i].lost, &e),
                         0);
    struct tm_fleet_watch watch;
    assert_int_equal(tm_fleet_watch_init(&watch, TM_FORECAST_TIDEMILL, MINUTE_MS, 12, &e), 0);
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
        assert_int_equal(tm_fleet_watch_update(&watch, &cloud, &e), 0);
    }
    cloud.now_ms = 16 * MINUTE_MS;
    cloud.instances = list;
    cloud.instance_count = TM_COUNT(list);
    assert_int_equal(tm_fleet_watch_update(&watch, &cloud, &e), 0);
    assert_int_equal(watch.observations, TM_COUNT(minutes));
    assert_int_equal(watch.count, 3);
    struct tm_fleet_watch again; /* a coordinator that was restarted has the list alone */
    assert_int_equal(tm_fleet_watch_init(&again, TM_FORECAST_TIDEMILL, MINUTE_MS, 12, &e), 0);
    assert_int_equal(tm_fleet_watch_update(&again, &cloud, &e), 0);
    struct tm_forecast expected, got, relearned;
    assert_int_equal(tm_forecaster_predict(forecaster, 12, &expected, &e), 0);
    assert_int_equal(tm_forecaster_predict(watch.forecaster, 12, &got, &e), 0);
    assert_int_equal(tm_forecaster_predict(again.forecaster, 12, &relearned, &e), 0);
    for (int i = 0; i < 12; i++) {
        assert_true(expected.steps[i].mean == got.steps[i].mean);
        assert_true(expected.steps[i].mean == relearned.steps[i].mean);
    }
    tm_fleet_watch_deinit(&again);
    tm_fleet_watch_deinit(&watch);
    tm_forecaster_destroy(forecaster);
}

/* A notice makes the next count certain, once. */
static void test_notice(void **state)
{
    (void)state;
    Tmw__Instance list[] = {spot(1, 0, 0, false), spot(2, 0, 0, false), spot(3, 0, 0, false)};
    struct tm_run_cloud cloud = {
        .known = true, .speed = 1, .instances = list, .instance_count = 3, .now_ms = 20 * MINUTE_MS};
    struct tm_fleet_watch watch;
    struct tm_error e;
    struct tm_forecast forecast;
    assert_int_equal(tm_fleet_watch_init(&watch, TM_FORECAST_TIDEMILL, MINUTE_MS, 12, &e), 0);
    assert_int_equal(tm_fleet_watch_update(&watch, &cloud, &e), 0);
    assert_int_equal(tm_forecaster_predict(watch.forecaster, 1, &forecast, &e), 0);
    double before = forecast.steps[0].mean;
    list[1].announced = true;
    list[1].notice_left_ms = 30000;
    for (int i = 0; i < 3; i++)
        assert_int_equal(tm_fleet_watch_update(&watch, &cloud, &e), 0);
    assert_int_equal(watch.hint_count, 1);
    assert_int_equal(tm_forecaster_predict(watch.forecaster, 1, &forecast, &e), 0);
    assert_true(forecast.steps[0].mean < before - 0.8);
    tm_fleet_watch_deinit(&watch);
}

static void test_losses(void **state)
{
    (void)state;
    struct tm_run_cloud cloud = {.known = true, .now_ms = 600 * MINUTE_MS};
    struct tm_fleet_losses none = tm_fleet_losses_of(&cloud, MINUTE_MS);
    assert_true(none.lost_per_s > 0 && none.lost_per_s < 1.0 / 3600); /* what is usual */
    Tmw__Instance list[MOST];
    for (int i = 0; i < MOST; i++) /* ten hours each; every second one is lost in the fifth, pairs together */
        list[i] = spot((uint64_t)i + 1, 0, i % 2 == 0 ? 300 + i / 4 * 10 : 0, i % 4 == 0);
    list[1].end_ms = 10 * MINUTE_MS;
    list[1].released = true; /* given back: no loss */
    cloud.instances = list;
    cloud.instance_count = MOST;
    struct tm_fleet_losses losses = tm_fleet_losses_of(&cloud, MINUTE_MS);
    double hours = 0;
    for (int i = 0; i < MOST; i++)
        hours += (double)(list[i].end_ms == 0 ? cloud.now_ms : list[i].end_ms) / 3.6e6;
    assert_true(fabs(losses.lost_per_s * 3600 - 9 / (hours + 2)) <
                1e-9); /* eight, and one in two hours that is usual */
    assert_true(fabs(losses.unannounced - 5.0 / 10) < 1e-9);
    assert_true(fabs(losses.together - 8.2 / 10) < 1e-9);
}

TM_TEST_MAIN(TM_TEST(test_same_as_simulated), TM_TEST(test_notice), TM_TEST(test_losses))
