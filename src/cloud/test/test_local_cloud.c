/* The local cloud on a virtual clock: what a trace makes happen, when, and what it costs. */
#include "cloud/local_cloud.h"
#include "cloud/local_slots.h"
#include "cloud/notice.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const command[] = {"agent", NULL};

struct setup {
    struct tm_env *env;
    struct tm_trace trace;
    struct tm_local_options options;
    struct tm_cloud *cloud;
};

static void make_trace(struct tm_trace *trace, const char *text)
{
    struct tm_error e;
    tm_trace_init(trace);
    assert_row(tm_trace_parse("test", text, strlen(text), NULL, trace, &e) == 0, "%s", e.text);
}

static void set_up(struct setup *s, const char *trace)
{
    *s = (struct setup){.env = tm_env_virtual_create(7)};
    make_trace(&s->trace, trace);
    s->options = (struct tm_local_options){
        .trace = &s->trace,
        .command = command,
        .state_dir = "/state",
        .speed = 60,
        .notice_ms = 120000,
        .on_demand_start_ms = 90000,
        .spot_usd_h = 0.9,
        .on_demand_usd_h = 3,
        .limit = 32,
        .seed = 1,
    };
}

static void open_cloud(struct setup *s)
{
    struct tm_error e;
    assert_row(tm_local_cloud_create(s->env, &s->options, &s->cloud, &e) == 0, "%s", e.text);
}

static void tear_down(struct setup *s)
{
    struct tm_error e;
    if (s->cloud != NULL) assert_row(s->cloud->destroy(s->cloud, &e) == 0, "%s", e.text);
    assert_false(s->env->file_exists(s->env, "/state/local-cloud.tmcloud"));
    tm_trace_deinit(&s->trace);
    tm_env_virtual_destroy(s->env);
}

static void want(struct setup *s, int pool, int count)
{
    struct tm_error e;
    assert_int_equal(s->cloud->want(s->cloud, pool, count, &e), 0);
}

/* "arrived 1 @0" for each event up to a time of the trace, one a line. */
static void play(struct setup *s, int64_t until_ms, struct tm_text *out)
{
    struct tm_cloud *cloud = s->cloud;
    struct tm_cloud_event event;
    struct tm_error e;
    for (;;) {
        double left_ms = ceil((double)(until_ms - cloud->now_ms(cloud)) / s->options.speed);
        int rc = cloud->next(cloud, left_ms < 0 ? 0 : (int64_t)left_ms, &event, &e);
        if (rc == -(int)TM_ETIMEOUT) break;
        assert_row(rc == 0, "%s", e.text);
        if (event.kind == TM_CLOUD_REFUSED)
            tm_text_printf(out, "%d refused of %d @%lld\n", event.count, event.pool, (long long)event.time_ms / 1000);
        else
            tm_text_printf(out, "%s %d @%lld%s\n", tm_cloud_event_kind_name(event.kind), (int)event.instance,
                           (long long)event.time_ms / 1000,
                           event.kind == TM_CLOUD_LOST && !event.announced ? " !" : "");
        if (event.kind == TM_CLOUD_REFUSED) continue;
        assert_row(tm_cloud_find(cloud, event.instance) != NULL, "an event of nobody");
        assert_int_equal(tm_cloud_find(cloud, event.instance)->pool, event.pool);
    }
}

static void assert_plays(struct setup *s, int64_t until_s, const char *expected)
{
    struct tm_text out;
    tm_text_init(&out, 1 << 20);
    play(s, until_s * 1000, &out);
    assert_row_string("events", tm_text_string(&out), expected);
    tm_text_deinit(&out);
}

static const char small[] = "tidemill-trace 1\nend: 1200s\nnodes: 4\n\n0 +2\n300 +1\n600 -3\n900 +1\n";

static void test_a_trace_is_played(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, small);
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 2);
    assert_plays(&s, 299, "arrived 1 @0\narrived 2 @0\n");
    want(&s, TM_INSTANCE_SPOT, 3);
    assert_plays(
        &s, 700,
        "arrived 3 @300\nnotice 1 @480\nnotice 2 @480\nnotice 3 @480\nlost 1 @600\nlost 2 @600\nlost 3 @600\n");
    assert_plays(&s, 2000, "arrived 4 @900\n");
    struct tm_cloud_bill bill = s.cloud->bill(s.cloud);
    /* two for 600 s, one for 300 s, one for 1100 s */
    assert_row(fabs(bill.seconds[0] - 2600) < 0.1, "%g instance-seconds", bill.seconds[0]);
    assert_row(fabs(bill.usd[0] - 2600 * 0.9 / 3600) < 1e-4, "%g USD", bill.usd[0]);
    tear_down(&s);
}

/* Pools to choose from: a trace each. What has no capacity is refused, and comes when there is some; where a trace
 * falls the newest go, and whoever stays when another is given back stays as long as that one would have. */
static void test_pools_with_a_trace_each(void **state)
{
    (void)state;
    struct setup s;
    struct tm_trace second;
    struct tm_error e;
    set_up(&s, "tidemill-trace 1\nend: 7200s\nnodes: 4\n\n0 +3\n600 -2\n900 +1\n");
    make_trace(&second, "tidemill-trace 1\nend: 7200s\nnodes: 4\n\n0 +4\n");
    struct tm_local_pool pools[] = {
        {{.name = "a", .type = "p3.2xlarge", .zone = "z-a", .price_usd_h = 1, .notice_ms = 60000}, &s.trace},
        {{.name = "b", .zone = "z-b", .limit = 2, .price_usd_h = 2, .start_ms = 30000}, &second},
        {{.name = "c", .kind = TM_INSTANCE_ON_DEMAND, .limit = 1, .price_usd_h = 3, .start_ms = 10000}, NULL}};
    s.options.pools = pools;
    s.options.pool_count = 3;
    open_cloud(&s);
    assert_int_equal(s.cloud->want(s.cloud, 3, 1, &e), -TM_EUSAGE);
    want(&s, 0, 4);
    want(&s, 1, 3);
    want(&s, 2, 1);
    assert_plays(&s, 299,
                 "1 refused of 0 @0\n1 refused of 1 @0\narrived 2 @0\narrived 3 @0\narrived 4 @0\narrived 1 @10\n"
                 "arrived 5 @30\narrived 6 @30\n");
    assert_int_equal(s.cloud->offered(s.cloud, 0), 0);
    assert_int_equal(s.cloud->offered(s.cloud, 1), 0); /* its limit */
    assert_string_equal(tm_cloud_find(s.cloud, 2)->zone, "z-a");
    /* 2 has the slot that stays, but is given back: 3 or 4 gets it, and the other goes */
    assert_int_equal(s.cloud->release(s.cloud, 2, &e), 0);
    want(&s, 0, 2);
    assert_plays(&s, 610, "released 2 @299\n0 refused of 0 @299\nnotice 4 @540\nlost 4 @600\n1 refused of 0 @600\n");
    assert_plays(&s, 3600, "0 refused of 0 @900\narrived 7 @900\n");
    struct tm_cloud_bill bill = s.cloud->bill(s.cloud); /* paid from the grant on */
    assert_row(fabs(bill.seconds[0] - (299 + 600 + 3600 + 2700)) < 1, "%g instance-seconds", bill.seconds[0]);
    assert_row(fabs(bill.seconds[1] - 7200) < 1 && fabs(bill.usd[1] - 4) < 1e-3, "%g USD", bill.usd[1]);
    assert_row(fabs(bill.usd[2] - 3) < 1e-3, "%g USD", bill.usd[2]);
    tm_trace_deinit(&second);
    tear_down(&s);
}

/* Instances that keep copies are of a type of their own, at their own price; one that goes is replaced by its like. */
static void test_keepers_have_a_type_of_their_own(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, small);
    s.options.types[TM_INSTANCE_ON_DEMAND] = "p3.2xlarge";
    s.options.keepers = 1;
    s.options.keeper_type = "c5.xlarge";
    s.options.keeper_zone = "us-east-1b";
    s.options.keeper_usd_h = 0.17;
    open_cloud(&s);
    want(&s, TM_INSTANCE_ON_DEMAND, 2);
    assert_plays(&s, 200, "arrived 1 @90\narrived 2 @90\n");
    const struct tm_cloud_instance *keeper = tm_cloud_find(s.cloud, 1), *trains = tm_cloud_find(s.cloud, 2);
    assert_string_equal(keeper->type, "c5.xlarge");
    assert_string_equal(keeper->zone, "us-east-1b");
    assert_true(keeper->price_usd_h == 0.17 && trains->price_usd_h == 3);
    assert_string_equal(trains->type, "p3.2xlarge");
    assert_int_equal(s.cloud->release(s.cloud, 1, NULL), 0);
    want(&s, TM_INSTANCE_ON_DEMAND, 2);
    assert_plays(&s, 400, "released 1 @200\narrived 3 @290\n");
    assert_string_equal(tm_cloud_find(s.cloud, 3)->type, "c5.xlarge");
    assert_true(s.cloud->price_usd_h(s.cloud, TM_INSTANCE_ON_DEMAND) == 3);
    tear_down(&s);
}

/* A planned fleet: what is spot and what is on demand are different types, and nothing need be spot at all. */
static void test_instances_are_called_what_was_planned(void **state)
{
    (void)state;
    struct setup s;
    size_t count = 0;
    set_up(&s, "tidemill-trace 1\nend: 1200s\nnodes: 1\n\n0 +1\n");
    s.options.types[TM_INSTANCE_SPOT] = "g4dn.xlarge";
    s.options.types[TM_INSTANCE_ON_DEMAND] = "c5.xlarge";
    s.options.zones[TM_INSTANCE_ON_DEMAND] = "us-east-1a";
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 1);
    want(&s, TM_INSTANCE_ON_DEMAND, 1);
    assert_plays(&s, 299, "arrived 2 @0\narrived 1 @90\n");
    const struct tm_cloud_instance *all = s.cloud->instances(s.cloud, &count);
    assert_int_equal(count, 2);
    assert_string_equal(all[1].type, "g4dn.xlarge");
    assert_string_equal(all[1].zone, "local-a");
    assert_string_equal(all[0].type, "c5.xlarge");
    assert_string_equal(all[0].zone, "us-east-1a");
    tear_down(&s);
}

static void test_notices_in_wall_time_and_hints(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, small);
    s.options.notice_wall_ms = 3000; /* 180 s of the trace */
    s.options.hint_ms = 60000;
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 1);
    assert_plays(&s, 390, "arrived 1 @0\nhint 1 @360\n");
    struct tm_cloud_event event;
    struct tm_error e;
    assert_int_equal(s.cloud->next(s.cloud, 10000, &event, &e), 0);
    assert_int_equal(event.kind, TM_CLOUD_NOTICE);
    assert_int_equal(event.time_ms, 420000);
    assert_in_range(event.left_ms, 2990, 3000);
    assert_plays(&s, 610, "lost 1 @600\n");
    tear_down(&s);
}

static void test_without_notices_losses_are_not_announced(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, small);
    s.options.notice_ms = 0;
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 1);
    assert_plays(&s, 800, "arrived 1 @0\nlost 1 @600 !\n");
    tear_down(&s);
    set_up(&s, small);
    s.options.no_losses = true;
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 4);
    assert_plays(&s, 1200, "arrived 1 @0\narrived 2 @0\narrived 3 @300\narrived 4 @900\n");
    tear_down(&s);
}

static void test_on_demand_comes_always_and_the_limit_holds(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, small);
    s.options.limit = 3;
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 10);
    want(&s, TM_INSTANCE_ON_DEMAND, 2);
    assert_plays(&s, 500, "arrived 3 @0\narrived 1 @90\narrived 2 @90\nnotice 3 @480\n");
    struct tm_error e;
    assert_int_equal(s.cloud->release(s.cloud, 1, &e), 0);
    assert_int_equal(s.cloud->release(s.cloud, 1, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(s.cloud->release(s.cloud, 99, &e), -(int)TM_ENOTFOUND);
    assert_plays(&s, 1000, "released 1 @500\nlost 3 @600\narrived 4 @900\n"); /* slots under notice are not granted */
    assert_int_equal(tm_cloud_find(s.cloud, 1)->state, TM_INSTANCE_RELEASED);
    assert_int_equal(tm_cloud_find(s.cloud, 3)->state, TM_INSTANCE_LOST);
    struct tm_cloud_bill bill = s.cloud->bill(s.cloud);
    assert_row(fabs(bill.seconds[1] - (410 + 910)) < 0.2, "%g instance-seconds", bill.seconds[1]);
    tear_down(&s);
}

/* Whoever is about to go, or is not wanted any more, leaves room: its successor takes over before it is released. */
static void test_successors_come_before_they_go(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, small);
    s.options.limit = 3;
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 3);
    assert_plays(&s, 310, "arrived 1 @0\narrived 2 @0\narrived 3 @300\n");
    want(&s, TM_INSTANCE_SPOT, 1);
    want(&s, TM_INSTANCE_ON_DEMAND, 2);
    assert_plays(&s, 470, "arrived 4 @400\narrived 5 @400\n"); /* two of the three are not wanted */
    want(&s, TM_INSTANCE_ON_DEMAND, 3);
    assert_plays(&s, 590,
                 "notice 1 @480\nnotice 2 @480\nnotice 3 @480\narrived 6 @570\n"); /* room from the notice on */
    tear_down(&s);
}

/* The trace begins when the first instance is asked for, however long that takes. */
static void test_the_trace_begins_with_the_first_order(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, small);
    open_cloud(&s);
    struct tm_cloud_event event;
    struct tm_error e;
    assert_int_equal(s.cloud->next(s.cloud, 2000, &event, &e), -(int)TM_ETIMEOUT);
    want(&s, TM_INSTANCE_SPOT, 0);
    assert_int_equal(s.cloud->now_ms(s.cloud), 0);
    want(&s, TM_INSTANCE_SPOT, 3);
    assert_plays(&s, 310, "arrived 1 @0\narrived 2 @0\narrived 3 @300\n");
    tear_down(&s);
}

static void test_an_instance_that_ends_by_itself(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, "tidemill-trace 1\nend: 9000s\nnodes: 4\n\n0 +2\n");
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 2);
    assert_plays(&s, 60, "arrived 1 @0\narrived 2 @0\n");
    int pid = tm_cloud_find(s.cloud, 1)->pid;
    assert_string_equal(tm_env_virtual_process_variable(s.env, pid, "TIDEMILL_INSTANCE_ID"), "1");
    assert_string_equal(tm_env_virtual_process_variable(s.env, pid, "TIDEMILL_METADATA"),
                        tm_cloud_find(s.cloud, 1)->metadata);
    tm_env_virtual_exit(s.env, pid, 137);
    assert_plays(&s, 119, "lost 1 @60 !\n"); /* the next waits a second on the wall */
    assert_plays(&s, 130, "arrived 3 @120\n");
    tm_env_virtual_exit(s.env, tm_cloud_find(s.cloud, 3)->pid, 1);
    assert_plays(&s, 249, "lost 3 @130 !\n"); /* then two */
    assert_plays(&s, 260, "arrived 4 @250\n");
    tm_env_virtual_exit(s.env, tm_cloud_find(s.cloud, 2)->pid, 0);
    assert_plays(&s, 9000, "released 2 @260\n"); /* in order: not replaced */
    tear_down(&s);
}

static void test_prices_of_the_trace(void **state)
{
    (void)state;
    struct setup s;
    set_up(&s, small);
    struct tm_error e;
    tm_trace_deinit(&s.trace);
    assert_int_equal(tm_trace_add(&s.trace, 0, 1, 0, 1.0, &e), 0);
    assert_int_equal(tm_trace_add(&s.trace, 1800000, 0, 0, 2.0, &e), 0);
    assert_int_equal(tm_trace_add(&s.trace, 3600000, 0, 1, NAN, &e), 0);
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 1);
    assert_plays(&s, 2000, "arrived 1 @0\n");
    assert_row(s.cloud->price_usd_h(s.cloud, TM_INSTANCE_SPOT) == 2, "price");
    assert_plays(&s, 4000, "notice 1 @3480\nlost 1 @3600\n");
    struct tm_cloud_bill bill = s.cloud->bill(s.cloud);
    assert_row(fabs(bill.usd[0] - 1.5) < 1e-9, "%.17g USD", bill.usd[0]); /* half an hour each */
    assert_row(bill.usd[0] == tm_cloud_find(s.cloud, 1)->bill_usd, "the instance's own");
    tear_down(&s);
}

/* Each published hour, all of it wanted: as many at each time as the trace says, the bill by instance-seconds, and the
 * same again from the same seed. */
static void test_published_hours(void **state)
{
    (void)state;
    static const char *const names[] = {"hadp", "hasp", "ladp", "lasp"};
    for (size_t n = 0; n < TM_COUNT(names); n++) {
        struct tm_text played[3];
        for (size_t run = 0; run < 3; run++) {
            struct setup s;
            struct tm_error e;
            set_up(&s, small);
            tm_trace_deinit(&s.trace);
            assert_int_equal(tm_trace_load(s.env, names[n], NULL, &s.trace, &e), 0);
            s.options.seed = run == 2 ? 99 : 5;
            s.options.notice_ms = 30000;
            open_cloud(&s);
            want(&s, TM_INSTANCE_SPOT, 64);
            tm_text_init(&played[run], 1 << 20);
            double seconds = 0;
            int64_t count = 0;
            for (size_t i = 0; i < s.trace.event_count; i++) {
                const struct tm_trace_event *event = &s.trace.events[i];
                int64_t next_ms = i + 1 < s.trace.event_count ? event[1].time_ms : s.trace.end_ms;
                count += event->in - event->out;
                seconds += (double)(count * (next_ms - event->time_ms)) / 1000;
                play(&s, next_ms - 1000, &played[run]);
                size_t all = 0;
                int64_t here = 0;
                const struct tm_cloud_instance *list = s.cloud->instances(s.cloud, &all);
                for (size_t k = 0; k < all; k++)
                    here += tm_instance_is_here(&list[k]);
                assert_row(here == count, "%s event %zu: %d here, trace says %d", names[n], i, (int)here, (int)count);
            }
            play(&s, s.trace.end_ms, &played[run]);
            struct tm_cloud_bill bill = s.cloud->bill(s.cloud);
            assert_row(fabs(bill.seconds[0] - seconds) < 0.1 * 32, "%s: %g, trace %g", names[n], bill.seconds[0],
                       seconds);
            tear_down(&s);
        }
        assert_string_equal(tm_text_string(&played[0]), tm_text_string(&played[1]));
        assert_string_not_equal(tm_text_string(&played[0]), tm_text_string(&played[2]));
        for (size_t run = 0; run < 3; run++)
            tm_text_deinit(&played[run]);
    }
}

/* An agent's readers on the instance's own endpoint hear of the loss when the cloud announces it, and of its time. */
static void test_instances_hear_their_notices(void **state)
{
    (void)state;
    struct setup s;
    struct tm_cloud_event event = {0};
    struct tm_error e;
    struct tm_notice words[TM_NOTICE_CLOUDS] = {{0}};
    struct tm_notice_reader *readers[TM_NOTICE_CLOUDS] = {0};
    set_up(&s, small);
    s.options.notice_wall_ms = 4000;
    open_cloud(&s);
    want(&s, TM_INSTANCE_SPOT, 1);
    assert_int_equal(s.cloud->next(s.cloud, 1000, &event, &e), 0);
    for (int i = 0; i < TM_NOTICE_CLOUDS; i++) {
        struct tm_notice_options options = {.cloud = (enum tm_notice_cloud)i, .poll_ms = 50, .gcp_left_ms = 4000};
        options.address = tm_cloud_find(s.cloud, 1)->metadata;
        assert_int_equal(tm_notice_reader_create(s.env, &options, &readers[i], &e), 0);
    }
    int64_t noticed_ms = 0;
    for (event.kind = TM_CLOUD_ARRIVED; event.kind != TM_CLOUD_LOST;) {
        int rc = s.cloud->next(s.cloud, 10, &event, &e);
        assert_true(rc == 0 || rc == -(int)TM_ETIMEOUT);
        if (rc == 0 && event.kind == TM_CLOUD_NOTICE) noticed_ms = s.env->now_ms(s.env);
        for (int i = 0; event.kind != TM_CLOUD_LOST && i < TM_NOTICE_CLOUDS; i++) {
            if (tm_notice_reader_step(readers[i], &words[i], &e) == 0 && words[i].going)
                assert_row(noticed_ms > 0 && s.env->now_ms(s.env) - noticed_ms < 200, "reader %d heard at %d", i,
                           (int)(s.env->now_ms(s.env) - noticed_ms));
        }
    }
    for (int i = 0; i < TM_NOTICE_CLOUDS; i++) { /* seconds are whole, and cut */
        int64_t early_ms = s.env->now_ms(s.env) - words[i].gone_utc_ms;
        assert_row(words[i].going && early_ms > -300 && early_ms < 1100, "reader %d: %d ms early", i, (int)early_ms);
        tm_notice_reader_destroy(readers[i]);
    }
    tear_down(&s);
}

static void test_wrong_options(void **state)
{
    (void)state;
    static const struct {
        double speed;
        int limit;
        int64_t notice_ms;
        const char *words;
    } rows[] = {{0, 4, 0, "speed"},
                {-1, 4, 0, "speed"},
                {1, 0, 0, "limit"},
                {1, TM_LOCAL_INSTANCES_MAX + 1, 0, "limit"},
                {1, 4, -1, "times"}};
    struct setup s;
    struct tm_error e;
    set_up(&s, small);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        s.options.speed = rows[i].speed;
        s.options.limit = rows[i].limit;
        s.options.notice_ms = rows[i].notice_ms;
        assert_int_equal(tm_local_cloud_create(s.env, &s.options, &s.cloud, &e), -(int)TM_EUSAGE);
        assert_error_has(e, rows[i].words);
    }
    tear_down(&s);
}

static void test_one_cloud_a_state_folder(void **state)
{
    (void)state;
    struct setup s;
    struct tm_error e;
    struct tm_cloud *second = NULL;
    set_up(&s, small);
    open_cloud(&s);
    assert_int_equal(tm_local_cloud_create(s.env, &s.options, &second, &e), -(int)TM_EBUSY);
    assert_error_has(e, "another folder");
    tear_down(&s);
}

static void test_leftovers_of_a_program_that_is_gone(void **state)
{
    (void)state;
    struct setup s;
    struct tm_error e;
    set_up(&s, small);
    static const char *const marked[] = {"TIDEMILL_CLOUD_MARK=00000000000000aa", NULL};
    static const char *const other[] = {"TIDEMILL_CLOUD_MARK=00000000000000ab", NULL};
    struct tm_process_options options = {.argv = command, .variables = marked, .group = true};
    int leader = 0;
    int child = 0;
    int recycled = 0;
    assert_int_equal(s.env->process_start_with(s.env, &options, &recycled, &e), 0);
    options.variables = other;
    assert_int_equal(s.env->process_start_with(s.env, &options, &leader, &e), 0);
    assert_int_equal(s.env->process_start_with(s.env, &options, &child, &e), 0);
    char record[200]; /* virtual starts are 1000 + pid: the last line's is of an earlier process */
    int length = snprintf(record, sizeof record,
                          "tidemill-local-cloud 1\nrun 00000000000000aa\nprogram 77 5\nnetns 0\ninstance 1 %d %d\n"
                          "instance 2 %d 7\n",
                          leader, 1000 + leader, child);
    assert_int_equal(s.env->file_write(s.env, "/state/local-cloud.tmcloud", record, (size_t)length, &e), 0);
    open_cloud(&s);
    assert_int_equal(tm_env_virtual_last_signal(s.env, recycled), 9); /* by its mark */
    assert_int_equal(tm_env_virtual_last_signal(s.env, leader), 9);   /* by pid and start */
    assert_int_equal(tm_env_virtual_last_signal(s.env, child), 0);    /* number used again: not touched */
    assert_int_equal(tm_local_cloud_leftovers(s.cloud), 1);
    tear_down(&s);
}

static void test_broken_records_are_named(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "nonsense\n",
        "tidemill-local-cloud 1\n",
        "tidemill-local-cloud 1\nrun ../../x\nprogram 77 5\n",
        "tidemill-local-cloud 1\nrun 00000000000000aa\nprogram 1 5\n",
        "tidemill-local-cloud 1\nrun 00000000000000aa\nprogram 77 5\ninstance 1 -1 5\n",
        "tidemill-local-cloud 1\nrun 00000000000000aa\nprogram 77 5\ninstance 1 0 5\n",
        "tidemill-local-cloud 1\nrun 00000000000000aa\nprogram 99999999999 5\n",
    };
    struct setup s;
    struct tm_error e;
    set_up(&s, small);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        assert_int_equal(s.env->file_write(s.env, "/state/local-cloud.tmcloud", rows[i], strlen(rows[i]), &e), 0);
        assert_row(tm_local_cloud_create(s.env, &s.options, &s.cloud, &e) == -(int)TM_EINPUT, "row %zu", i);
        assert_error_has(e, "local-cloud.tmcloud");
        assert_error_has(e, "remove");
    }
    assert_int_equal(s.env->file_remove(s.env, "/state/local-cloud.tmcloud", &e), 0);
    tear_down(&s);
}

static int play_short(struct setup *s)
{
    struct tm_cloud_event event;
    struct tm_error e;
    int rc = tm_local_cloud_create(s->env, &s->options, &s->cloud, &e);
    if (rc != 0) return rc;
    (void)s->cloud->want(s->cloud, TM_INSTANCE_SPOT, 3, &e);
    for (int i = 0; i < 12 && rc == 0; i++)
        rc = s->cloud->next(s->cloud, 20000, &event, &e);
    if (rc == -(int)TM_ETIMEOUT) rc = 0;
    int ended = s->cloud->destroy(s->cloud, &e);
    return rc != 0 ? rc : ended;
}

static void test_survives_failing_allocations(void **state)
{
    (void)state;
    for (long n = 1, failed = 1; failed; n++) {
        struct setup s;
        set_up(&s, small);
        long live = tm_alloc_live();
        (void)live;
        tm_alloc_fail_at(n);
        int rc = play_short(&s);
        failed = tm_alloc_failed();
        tm_alloc_fail_at(0);
        assert_row(rc == 0 || (failed && rc == -(int)TM_ENOMEM), "allocation %ld: code %d", n, rc);
        s.cloud = NULL;
        (void)s.env->file_remove(s.env, "/state/local-cloud.tmcloud", NULL); /* left for the next start, rightly */
        tear_down(&s);
        assert_int_equal(tm_alloc_live(), 0);
        assert_true(n < 100000);
    }
}

TM_TEST_MAIN(TM_TEST(test_a_trace_is_played), TM_TEST(test_pools_with_a_trace_each),
             TM_TEST(test_keepers_have_a_type_of_their_own), TM_TEST(test_instances_are_called_what_was_planned),
             TM_TEST(test_notices_in_wall_time_and_hints), TM_TEST(test_without_notices_losses_are_not_announced),
             TM_TEST(test_on_demand_comes_always_and_the_limit_holds), TM_TEST(test_successors_come_before_they_go),
             TM_TEST(test_the_trace_begins_with_the_first_order), TM_TEST(test_an_instance_that_ends_by_itself),
             TM_TEST(test_prices_of_the_trace), TM_TEST(test_published_hours),
             TM_TEST(test_instances_hear_their_notices), TM_TEST(test_wrong_options),
             TM_TEST(test_one_cloud_a_state_folder), TM_TEST(test_leftovers_of_a_program_that_is_gone),
             TM_TEST(test_broken_records_are_named), TM_TEST(test_survives_failing_allocations))
