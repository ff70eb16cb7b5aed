/* Giving instances back: which ones, and not before what they hold is elsewhere. */
#include "run/test/coord_bench.h"

struct cloud {
    struct bench b;
    uint64_t sequence;
    Tmw__Instance instances[8];
    size_t count;
};

static void cloud_joins(struct cloud *c)
{
    Tmw__Hello body = TMW__HELLO__INIT;
    struct tm_peer from = {.role = TM_ROLE_CLOUD, .id = 1, .incarnation = 9};
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    tm_message message = tm_message_make(BENCH_JOB, &from, &to);
    uint8_t proof[TM_PROOF_BYTES];
    message.body_case = TMW__ENVELOPE__BODY_HELLO;
    message.hello = &body;
    tm_coordinator_receive(c->b.coordinator, c->b.now_ms, &message, &c->b.out);
    const struct tm_action *last = &c->b.out.actions[c->b.out.count - 1];
    tm_message *challenge = NULL;
    assert_int_equal(tm_message_unpack(tm_outbox_data(&c->b.out, last), last->length, &c->b.arena, &challenge, NULL),
                     0);
    tm_proof_put_hello("t", message.job, &from, challenge->challenge->nonce, proof, &body);
    tm_coordinator_receive(c->b.coordinator, c->b.now_ms, &message, &c->b.out);
}

/* The order that answers the next report. */
static const Tmw__CloudOrder *report(struct cloud *c)
{
    Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
    struct tm_peer from = {.role = TM_ROLE_CLOUD, .id = 1, .incarnation = 9};
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    tm_message message = tm_message_make(BENCH_JOB, &from, &to);
    Tmw__Instance *list[8];
    for (size_t i = 0; i < c->count; i++)
        list[body.n_instances++] = &c->instances[i];
    body.instances = list;
    body.sequence = ++c->sequence;
    message.body_case = TMW__ENVELOPE__BODY_CLOUD_REPORT;
    message.cloud_report = &body;
    bench_tick(&c->b, 10);
    tm_coordinator_receive(c->b.coordinator, c->b.now_ms, &message, &c->b.out);
    tm_message *order = NULL;
    for (size_t i = 0; i < c->b.out.count; i++) {
        const struct tm_action *action = &c->b.out.actions[i];
        if (action->kind != TM_ACTION_SEND || action->to.role != TM_ROLE_CLOUD) continue;
        assert_int_equal(
            tm_message_unpack(tm_outbox_data(&c->b.out, action), action->length, &c->b.arena, &order, NULL), 0);
    }
    assert_non_null(order);
    assert_int_equal(order->body_case, TMW__ENVELOPE__BODY_CLOUD_ORDER);
    return order->cloud_order;
}

static void setup_with(struct cloud *c, const struct tm_coordinator_options *options, size_t instances,
                       uint32_t workers_max)
{
    *c = (struct cloud){.count = instances};
    bench_open_as(&c->b, options);
    c->b.rule.workers_max = workers_max;
    tm_coordinator_begin(c->b.coordinator, c->b.now_ms, 0, &c->b.out);
    for (size_t i = 0; i < instances; i++) {
        tmw__instance__init(&c->instances[i]);
        c->instances[i].id = i + 1;
        c->instances[i].spot = true;
        c->instances[i].start_ms = 1;
    }
    cloud_joins(c);
}

static void setup_as(struct cloud *c, size_t instances, uint32_t workers_max, bool leaves_early)
{
    struct tm_coordinator_options options = bench_options;
    options.lease_ms = 1000000;
    options.leaves_early = leaves_early;
    setup_with(c, &options, instances, workers_max);
}

static void setup(struct cloud *c, size_t instances, uint32_t workers_max)
{
    setup_as(c, instances, workers_max, false);
}

/* Those who train are in two regions: their gradients' traffic is on the bill of the larger pool. Then all are in one,
 * which is another than where most were: that is a move. */
static void test_traffic_between_regions(void **state)
{
    (void)state;
    struct cloud c;
    struct tm_coordinator_options options = bench_options;
    options.lease_ms = 1000000;
    options.pools = 3;
    options.pool_region[2] = 2; /* the first two pools are of one region */
    options.region_step_usd = 0.25;
    options.move_usd = 3;
    setup_with(&c, &options, 4, 4);
    c.instances[0].pool = 1;
    c.instances[1].pool = c.instances[2].pool = 0;
    c.instances[3].pool = 2;
    (void)report(&c);
    bench_run(&c.b, 4);
    static const struct {
        uint64_t step;
        bool elsewhere;
        uint64_t want_microusd[3];
    } rows[] = {{5, false, {1250000, 0, 0}},
                {5, false, {1250000, 0, 0}},
                {8, false, {2000000, 0, 0}},
                {9, true, {2000000, 0, 3000000}},
                {10, true, {2000000, 0, 3000000}}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        Tmw__RecordEvent *event = NULL;
        bench_tick(&c.b, 2000);
        for (size_t k = 0; rows[i].elsewhere && k < c.count; k++) {
            c.instances[k].pool = 2;
            c.instances[k].bill_microusd++; /* what has not changed is not read */
        }
        (void)report(&c);
        for (uint64_t w = 1; w <= 4; w++)
            bench_heartbeat(&c.b, w, rows[i].step, 0);
        bench_tick(&c.b, 2000);
        assert_true(bench_recorded(&c.b, TMW__RECORD_EVENT__BODY_PROGRESS, &event) > 0);
        assert_row(event->progress->n_pool_traffic_microusd == 3 &&
                       memcmp(event->progress->pool_traffic_microusd, rows[i].want_microusd,
                              sizeof rows[i].want_microusd) == 0,
                   "row %zu", i);
    }
    bench_close(&c.b);
}

/* Four train in two pipelines; from now on two are wanted. The two that go are left out first. */
static void test_seat_moves_first(void **state)
{
    (void)state;
    struct cloud c;
    setup(&c, 4, 4);
    assert_int_equal(report(&c)->want_spot, 4);
    bench_run(&c.b, 4);
    for (uint64_t w = 1; w <= 4; w++)
        bench_heartbeat(&c.b, w, 5, 0);
    assert_int_equal(report(&c)->n_release, 0);
    c.b.rule.workers_max = 2;
    bench_tick(&c.b, 50);
    const Tmw__CloudOrder *order = report(&c);
    assert_int_equal(order->want_spot, 2);
    assert_int_equal(order->n_release, 0); /* they have seats */
    bench_tick(&c.b, 50);
    assert_int_equal(tm_coordinator_look(c.b.coordinator).phase, TM_COORDINATOR_DRAINING);
    c.b.drain_step = 6;
    for (uint64_t w = 1; w <= 4; w++)
        bench_heartbeat(&c.b, w, 6, 0);
    Tmw__RecordEvent *event = NULL;
    assert_true(bench_recorded(&c.b, TMW__RECORD_EVENT__BODY_GENERATION, &event) > 0);
    assert_int_equal(event->generation->cause, TM_CHANGED_RELEASE);
    for (uint64_t w = 1; w <= 4; w++)
        bench_report(&c.b, w, 6, 0, w % 2 == 1 ? 0 : 2, w % 2 == 1 ? 2 : 4);
    assert_int_equal(report(&c)->n_release, 0); /* not before the next generation runs */
    const struct tm_roster *roster = tm_coordinator_look(c.b.coordinator).roster;
    for (size_t i = 0; i < roster->member_count; i++)
        if (!roster->members[i].spare) bench_ready(&c.b, roster->members[i].id);
    assert_int_equal(tm_coordinator_look(c.b.coordinator).phase, TM_COORDINATOR_RUNNING);
    (void)report(&c);
    order = report(&c);
    assert_int_equal(order->n_release, 2);
    for (size_t i = 0; i < 2; i++)
        assert_true(tm_roster_find(roster, order->release[i])->spare);
    assert_int_equal(bench_recorded(&c.b, TMW__RECORD_EVENT__BODY_RELEASE, NULL), 2); /* each once */
    for (size_t i = 0; i < 2; i++) {                                                  /* they go: no loss */
        c.instances[order->release[i] - 1].end_ms = 99;
        c.instances[order->release[i] - 1].released = true;
    }
    bench_forget(&c.b);
    assert_int_equal(report(&c)->n_release, 0);
    assert_int_equal(bench_recorded(&c.b, TMW__RECORD_EVENT__BODY_LOSS, NULL), 0);
    assert_int_equal(tm_coordinator_look(c.b.coordinator).phase, TM_COORDINATOR_RUNNING);
    bench_close(&c.b);
}

/* A notice, where somebody waits for the place: the cloud is told as soon as the seat has moved, and no other one is
 * wanted for that; elsewhere it stays for as long as the notice lasts. */
static void test_leaves_early(void **state)
{
    (void)state;
    for (int early = 0; early < 2; early++) {
        struct cloud c;
        setup_as(&c, 4, 4, early == 1);
        (void)report(&c);
        bench_run(&c.b, 4);
        for (uint64_t w = 1; w <= 4; w++)
            bench_heartbeat(&c.b, w, 5, 0);
        c.instances[2].announced = true;
        c.instances[2].notice_left_ms = 100000;
        const Tmw__CloudOrder *order = report(&c);
        assert_int_equal(order->n_release, 0); /* it has a seat */
        bench_tick(&c.b, 50);
        assert_int_equal(tm_coordinator_look(c.b.coordinator).phase, TM_COORDINATOR_DRAINING);
        c.b.drain_step = 6;
        for (uint64_t w = 1; w <= 4; w++)
            bench_heartbeat(&c.b, w, 6, 0);
        for (uint64_t w = 1; w <= 4; w++)
            bench_report(&c.b, w, 6, 0, w % 2 == 1 ? 0 : 2, w % 2 == 1 ? 2 : 4);
        const struct tm_roster *roster = tm_coordinator_look(c.b.coordinator).roster;
        for (size_t i = 0; i < roster->member_count; i++)
            if (!roster->members[i].spare) bench_ready(&c.b, roster->members[i].id);
        assert_int_equal(tm_coordinator_look(c.b.coordinator).phase, TM_COORDINATOR_RUNNING);
        (void)report(&c);
        order = report(&c);
        assert_int_equal(order->n_release, early);
        if (early == 1) assert_int_equal(order->release[0], 3);
        assert_int_equal(order->want_spot, 4);
        bench_close(&c.b);
    }
}

/* Wanted again before the cloud was told: it stays. */
static void test_wanted_again(void **state)
{
    (void)state;
    struct cloud c;
    setup(&c, 2, 2);
    (void)report(&c);
    bench_run(&c.b, 2);
    c.b.rule.workers_max = 1;
    bench_tick(&c.b, 50);
    (void)report(&c);
    bench_tick(&c.b, 50);
    assert_int_equal(tm_coordinator_look(c.b.coordinator).phase, TM_COORDINATOR_DRAINING);
    c.b.rule.workers_max = 2;
    c.b.drain_step = 1;
    for (uint64_t w = 1; w <= 2; w++)
        bench_heartbeat(&c.b, w, 1, 0);
    for (uint64_t w = 1; w <= 2; w++)
        bench_report(&c.b, w, 1, 0, w == 1 ? 0 : 2, w == 1 ? 2 : 4);
    (void)report(&c);
    const Tmw__CloudOrder *order = report(&c);
    assert_int_equal(order->n_release, 0);
    assert_int_equal(order->want_spot, 2);
    bench_close(&c.b);
}

/* One that never joined goes first, and at once. */
static void test_stranger_first(void **state)
{
    (void)state;
    struct cloud c;
    setup(&c, 3, 2);
    (void)report(&c);
    bench_run(&c.b, 2);
    bench_tick(&c.b, 50);
    (void)report(&c);
    const Tmw__CloudOrder *order = report(&c);
    assert_int_equal(order->n_release, 1);
    assert_int_equal(order->release[0], 3);
    bench_close(&c.b);
}

static int steer(struct cloud *c, enum tm_steer what, uint64_t value)
{
    struct tm_steer_order order = {.what = what, .value = value};
    return tm_coordinator__steer(c->b.coordinator, &order, &c->b.out, NULL);
}

/* Ordered to go: another is wanted in its place at once; its seat moves first; then the cloud is told. */
static void test_drain(void **state)
{
    (void)state;
    struct cloud c;
    setup(&c, 4, 4);
    (void)report(&c);
    bench_run(&c.b, 4);
    for (uint64_t w = 1; w <= 4; w++)
        bench_heartbeat(&c.b, w, 5, 0);
    assert_int_equal(report(&c)->want_spot, 4);
    assert_int_equal(steer(&c, TM_STEER_DRAIN, 9), -(int)TM_ENOTFOUND);
    assert_int_equal(bench_recorded(&c.b, TMW__RECORD_EVENT__BODY_STEER, NULL), 0);
    assert_int_equal(steer(&c, TM_STEER_DRAIN, 3), 0);
    Tmw__RecordEvent *event = NULL;
    assert_int_equal(bench_recorded(&c.b, TMW__RECORD_EVENT__BODY_STEER, &event), 1);
    assert_int_equal(event->steer->instance, 3);
    const Tmw__CloudOrder *order = report(&c);
    assert_int_equal(order->want_spot, 5);
    assert_int_equal(order->n_release, 0); /* it has a seat */
    bench_tick(&c.b, 50);
    assert_int_equal(tm_coordinator_look(c.b.coordinator).phase, TM_COORDINATOR_DRAINING);
    c.b.drain_step = 6;
    for (uint64_t w = 1; w <= 4; w++)
        bench_heartbeat(&c.b, w, 6, 0);
    for (uint64_t w = 1; w <= 4; w++)
        bench_report(&c.b, w, 6, 0, w % 2 == 1 ? 0 : 2, w % 2 == 1 ? 2 : 4);
    const struct tm_roster *roster = tm_coordinator_look(c.b.coordinator).roster;
    for (size_t i = 0; i < roster->member_count; i++)
        if (!roster->members[i].spare) bench_ready(&c.b, roster->members[i].id);
    assert_int_equal(tm_coordinator_look(c.b.coordinator).phase, TM_COORDINATOR_RUNNING);
    (void)report(&c);
    order = report(&c);
    assert_int_equal(order->n_release, 1);
    assert_int_equal(order->release[0], 3);
    c.instances[2].end_ms = 99;
    c.instances[2].released = true;
    (void)report(&c);
    order = report(&c);
    assert_int_equal(order->want_spot, 4);
    assert_int_equal(order->n_release, 0);
    bench_close(&c.b);
}

/* A coordinator after this one knows of it from the record; what is gone by then is nobody's business. */
static void test_drain_after_restart(void **state)
{
    (void)state;
    struct cloud c;
    Tmw__RecordEvent instance = TMW__RECORD_EVENT__INIT;
    Tmw__RecordEvent order = TMW__RECORD_EVENT__INIT;
    Tmw__SteerEvent body = TMW__STEER_EVENT__INIT;
    struct tm_coordinator_options options = bench_options;
    c = (struct cloud){.count = 2};
    bench_open_as(&c.b, &options);
    c.b.rule.workers_max = 2;
    for (size_t i = 0; i < 2; i++) {
        tmw__instance__init(&c.instances[i]);
        c.instances[i].id = i + 1;
        c.instances[i].spot = true;
        c.instances[i].start_ms = 1;
        instance.body_case = TMW__RECORD_EVENT__BODY_INSTANCE;
        instance.instance = &c.instances[i];
        assert_int_equal(tm_coordinator_load(c.b.coordinator, &instance, NULL), 0);
    }
    body.what = TM_STEER_DRAIN;
    order.body_case = TMW__RECORD_EVENT__BODY_STEER;
    order.steer = &body;
    for (body.instance = 2; body.instance <= 3; body.instance++)
        assert_int_equal(tm_coordinator_load(c.b.coordinator, &order, NULL), 0);
    tm_coordinator_begin(c.b.coordinator, c.b.now_ms, 0, &c.b.out);
    cloud_joins(&c);
    bench_hello(&c.b, 1);
    bench_hello(&c.b, 2);
    for (uint64_t w = 1; w <= 2; w++)
        bench_report(&c.b, w, 0, 0, 0, 0);
    (void)report(&c);
    assert_int_equal(report(&c)->want_spot, 3); /* the two, and one in the place of number 2 */
    const struct tm_roster *roster = tm_coordinator_look(c.b.coordinator).roster;
    for (size_t i = 0; i < roster->member_count; i++)
        assert_true(roster->members[i].id != 2 || roster->members[i].spare);
    bench_close(&c.b);
}

TM_TEST_MAIN(TM_TEST(test_seat_moves_first), TM_TEST(test_leaves_early), TM_TEST(test_wanted_again),
             TM_TEST(test_stranger_first), TM_TEST(test_drain), TM_TEST(test_drain_after_restart),
             TM_TEST(test_traffic_between_regions))
