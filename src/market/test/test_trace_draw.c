#include "market/trace_draw.h"

#include "market/test/market_helpers.h"
#include "market/trace_stats.h"

#include <math.h>

enum { HOUR_MS = 3600 * 1000, DAY_MS = 24 * HOUR_MS };

static const struct tm_draw_losses usual = {
    .burst_share = 0.5, .burst_size = 0.25, .outage_ms = 15 * 60000, .replace_ms = 3 * 60000};

static void draw(const char *name, const struct tm_draw *what, struct tm_trace *out)
{
    struct tm_error e = {0};
    tm_trace_init(out);
    int rc = tm_trace_draw(what, out, &e);
    assert_row(rc == 0, "%s: %s", name, e.text);
}

static void check_sound(const char *name, const struct tm_trace *trace, int most)
{
    int64_t count = 0, latest_ms = -1;
    for (size_t i = 0; i < trace->event_count; i++) {
        count += trace->events[i].in - trace->events[i].out;
        assert_row(trace->events[i].time_ms > latest_ms && trace->events[i].time_ms < trace->end_ms, "%s: time %zu",
                   name, i);
        assert_row(count >= 0 && count <= most, "%s: event %zu: %d instances", name, i, (int)count);
        latest_ms = trace->events[i].time_ms;
    }
    assert_row(trace->event_count > 0 && trace->events[0].time_ms == 0, "%s: does not begin at 0", name);
    assert_row(trace->instances_max == most, "%s: %d at most", name, (int)trace->instances_max);
}

static void test_the_seed_and_the_number_decide(void **state)
{
    (void)state;
    struct tm_draw_pool pool = {8, 0.33, DAY_MS, false};
    struct tm_draw what = {.pools = &pool, .pool_count = 1, .losses = usual, .draws = 4, .length_ms = 10 * DAY_MS};
    struct tm_trace first, same, other;
    draw("first", &what, &first);
    draw("same", &what, &same);
    what.number = 1;
    draw("other", &what, &other);
    check_sound("first", &first, 8);
    assert_true(tm_trace__equals(&first, &same));
    assert_false(tm_trace__equals(&first, &other));
    tm_trace_deinit(&first);
    tm_trace_deinit(&same);
    tm_trace_deinit(&other);
}

/* Over a long time an instance is lost once in its mean life, and is away as the closed form of room plan has it. */
static void test_losses_are_as_often_as_said(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double burst_share;
        double losses_a_day; /* of 16 instances */
        double there;        /* share */
    } rows[] = {
        {"alone", 0, 16, 1 - 3.0 / 1440},
        {"half in bursts", 0.5, 16, 1 - (0.5 * 3 + 0.5 * 15) / 1440},
        {"all in bursts", 1, 16, 1 - 15.0 / 1440},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_draw_pool pool = {16, 1, DAY_MS, false};
        struct tm_draw what = {.pools = &pool,
                               .pool_count = 1,
                               .losses = usual,
                               .seed = 5,
                               .draws = 1,
                               .length_ms = (int64_t)1000 * DAY_MS};
        struct tm_trace trace;
        what.losses.burst_share = rows[i].burst_share;
        draw(rows[i].name, &what, &trace);
        struct tm_trace_stats stats = tm_trace_stats(&trace);
        double a_day = (double)stats.instances_lost / 1000;
        assert_row(fabs(a_day / rows[i].losses_a_day - 1) < 0.05, "%s: %g losses a day", rows[i].name, a_day);
        assert_row(fabs(stats.mean_available / 16 - rows[i].there) < 0.001, "%s: share %g", rows[i].name,
                   stats.mean_available / 16);
        tm_trace_deinit(&trace);
    }
}

static void test_prices_are_of_what_is_there(void **state)
{
    (void)state;
    struct tm_draw_pool pools[] = {{1, 1, HOUR_MS, false}, {1, 3, 1000, true}};
    struct tm_draw what = {
        .pools = pools, .pool_count = 2, .losses = {.replace_ms = HOUR_MS}, .draws = 1, .length_ms = DAY_MS};
    struct tm_trace trace;
    draw("two prices", &what, &trace);
    check_sound("two prices", &trace, 2);
    assert_true(trace.event_count > 4);
    for (size_t i = 0; i < trace.event_count; i++)
        assert_row(trace.events[i].price_usd_h == (trace.events[i].out > 0 ? 3 : 2), "event %zu: $%g", i,
                   trace.events[i].price_usd_h);
    tm_trace_deinit(&trace);
}

/* The share of the trace, over all draws together, whatever the number of instances. */
static void test_cut_has_the_share_of_the_trace(void **state)
{
    (void)state;
    struct tm_trace place;
    tm_trace_init(&place);
    place.instances_max = 12;
    place.end_ms = DAY_MS;
    assert_int_equal(tm_trace_add(&place, 0, 12, 0, NAN, NULL), 0);
    assert_int_equal(tm_trace_add(&place, DAY_MS / 2, 0, 9, NAN, NULL), 0); /* three quarters of a day's half away */
    place.end_ms = DAY_MS;
    double shares = 0;
    for (int number = 0; number < 20; number++) {
        struct tm_draw_pool pools[] = {{5, 1, 0, false}, {2, 1, 0, false}};
        struct tm_draw what = {.pools = pools,
                               .pool_count = 2,
                               .like = &place,
                               .number = number,
                               .draws = 20,
                               .length_ms = 3 * (int64_t)DAY_MS};
        struct tm_trace trace;
        draw("cut", &what, &trace);
        check_sound("cut", &trace, 7);
        shares += tm_trace_stats(&trace).mean_available / 7 / 20;
        tm_trace_deinit(&trace);
    }
    assert_row(fabs(shares - 0.625) < 0.01, "share %g", shares);
    tm_trace_deinit(&place);
}

/* On demand is there, whatever happens to the zone. */
static void test_what_is_always_there(void **state)
{
    (void)state;
    struct tm_trace place, trace;
    trace_from("tidemill-trace 1\nend: 7200s\nnodes: 4\n\n0 +4\n600 -4\n", NULL, &place);
    struct tm_draw_pool pools[] = {{4, 1, 0, false}, {2, 3, 0, true}};
    struct tm_draw what = {.pools = pools, .pool_count = 2, .like = &place, .draws = 1, .length_ms = HOUR_MS};
    draw("always", &what, &trace);
    assert_int_equal(trace.event_count, 2);
    assert_true(trace.events[0].in == 6 && trace.events[0].price_usd_h == 10.0 / 6);
    assert_true(trace.events[1].out == 4 && trace.events[1].time_ms == 600000 && trace.events[1].price_usd_h == 3);
    tm_trace_deinit(&trace);
    tm_trace_deinit(&place);
}

static void test_what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct tm_draw_pool pool = {8, 1, DAY_MS, false};
    struct tm_trace empty, out;
    tm_trace_init(&empty);
    tm_trace_init(&out);
    struct tm_draw sound = {.pools = &pool, .pool_count = 1, .losses = usual, .draws = 1, .length_ms = DAY_MS};
    struct tm_draw what = sound;
    what.losses.burst_size = 0;
    assert_int_equal(tm_trace_draw(&what, &out, NULL), -(int)TM_EINPUT);
    what = sound;
    what.like = &empty;
    assert_int_equal(tm_trace_draw(&what, &out, NULL), -(int)TM_EINPUT);
    what = sound;
    pool.count = TM_DRAW_INSTANCES_MAX + 1;
    assert_int_equal(tm_trace_draw(&what, &out, NULL), -(int)TM_EINPUT);
    pool = (struct tm_draw_pool){64, 1, 1, false}; /* a millisecond of life */
    what.losses.replace_ms = what.losses.outage_ms = 1;
    assert_int_equal(tm_trace_draw(&what, &out, NULL), -(int)TM_ELIMIT);
    what = sound;
    what.pool_count = 0; /* nothing on spot: nothing is there */
    assert_int_equal(tm_trace_draw(&what, &out, NULL), 0);
    assert_int_equal(out.instances_max, 0);
    tm_trace_deinit(&out);
}

static int draw_once(const struct tm_trace *like)
{
    struct tm_draw_pool pool = {4, 1, HOUR_MS, false};
    struct tm_draw what = {
        .pools = &pool, .pool_count = 1, .like = like, .losses = usual, .draws = 1, .length_ms = DAY_MS};
    struct tm_trace out;
    tm_trace_init(&out);
    int rc = tm_trace_draw(&what, &out, NULL);
    tm_trace_deinit(&out);
    return rc;
}

static void test_allocations(void **state)
{
    (void)state;
    struct tm_trace place;
    tm_trace_init(&place);
    place.instances_max = 4;
    assert_int_equal(tm_trace_add(&place, 0, 4, 0, NAN, NULL), 0);
    assert_int_equal(tm_trace_add(&place, HOUR_MS, 0, 2, NAN, NULL), 0);
    place.end_ms = 2 * HOUR_MS;
    TM_FAIL_EACH_ALLOC(rc = draw_once(NULL));
    TM_FAIL_EACH_ALLOC(rc = draw_once(&place));
    tm_trace_deinit(&place);
}

TM_TEST_MAIN(TM_TEST(test_the_seed_and_the_number_decide), TM_TEST(test_losses_are_as_often_as_said),
             TM_TEST(test_prices_are_of_what_is_there), TM_TEST(test_cut_has_the_share_of_the_trace),
             TM_TEST(test_what_is_always_there), TM_TEST(test_what_cannot_be_is_refused), TM_TEST(test_allocations))
