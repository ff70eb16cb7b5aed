/* The coordinator and the cloud's link talking: joining, instances, notices, orders, the bill; whatever is lost or
 * comes twice. */
#include "base/test/harness.h"
#include "run/cloud_link.h"
#include "run/coordinator.h"
#include "run/run_status.h"
#include "wire/proof.h"

static const struct tm_coordinator_options options = {.job = 1,
                                                      .incarnation = 5,
                                                      .token = "t",
                                                      .layers = 2,
                                                      .steps = 10,
                                                      .micro_batches = 2,
                                                      .heartbeat_ms = 100,
                                                      .lease_ms = 1000,
                                                      .orphan_ms = 3000,
                                                      .resend_ms = 100,
                                                      .fresh = true};

struct pair {
    struct tm_use_all rule;
    struct tm_coordinator *coordinator;
    struct tm_cloud_link link;
    struct tm_outbox from_coordinator;
    struct tm_outbox from_link;
    size_t recorded; /* instance facts */
    size_t hints;    /* that were told, and the last one's words */
    char hint[200];
    size_t zones; /* likewise */
    char zone[200];
    size_t refusals; /* that were told, and of how many the last was */
    uint32_t missing;
    char words[300]; /* of the last one that had some missing */
    int64_t now_ms;
};

/* As `tidemill events` shows it. */
static void keep_words(const Tmw__RecordEvent *event, char *out, size_t room)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 12);
    tm_run_event_words(event, &text);
    (void)snprintf(out, room, "%s", tm_text_string(&text));
    tm_text_deinit(&text);
}

static void setup(struct pair *p, const char *token)
{
    *p = (struct pair){.rule = {.stages = 1, .workers_min = 1, .workers_max = 6}, .now_ms = 1000};
    struct tm_decider decider = tm_decider_use_all(&p->rule);
    p->coordinator = tm_coordinator_create(&options, &decider);
    assert_non_null(p->coordinator);
    struct tm_cloud_link_options link = {.job = 1, .incarnation = 7, .token = token};
    tm_cloud_link_init(&p->link, &link);
    tm_outbox_init(&p->from_coordinator);
    tm_outbox_init(&p->from_link);
    tm_coordinator_begin(p->coordinator, p->now_ms, 0, &p->from_coordinator);
}

static void teardown(struct pair *p)
{
    tm_coordinator_destroy(p->coordinator);
    tm_outbox_deinit(&p->from_coordinator);
    tm_outbox_deinit(&p->from_link);
}

/* Delivers what was said, `times` times each. */
static void deliver(struct pair *p, int times)
{
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 20);
    struct tm_outbox said = p->from_link;
    struct tm_outbox answered = p->from_coordinator;
    tm_outbox_init(&p->from_link);
    tm_outbox_init(&p->from_coordinator);
    tm_message *message = NULL;
    for (size_t i = 0; i < said.count; i++) {
        const void *data = tm_outbox_data(&said, &said.actions[i]);
        assert_int_equal(tm_message_unpack(data, said.actions[i].length, &arena, &message, NULL), 0);
        for (int k = 0; k < times; k++)
            tm_coordinator_receive(p->coordinator, p->now_ms, message, &p->from_coordinator);
    }
    for (size_t i = 0; i < answered.count; i++) {
        const void *data = tm_outbox_data(&answered, &answered.actions[i]);
        Tmw__RecordEvent *event = NULL;
        if (answered.actions[i].kind == TM_COORDINATOR_RECORD) {
            assert_int_equal(tm_record_event_unpack(data, answered.actions[i].length, &arena, &event, NULL), 0);
            p->recorded += event->body_case == TMW__RECORD_EVENT__BODY_INSTANCE;
            bool refusal = event->body_case == TMW__RECORD_EVENT__BODY_REFUSAL;
            p->refusals += refusal;
            bool hint = event->body_case == TMW__RECORD_EVENT__BODY_HINT;
            p->hints += hint;
            if (hint) keep_words(event, p->hint, sizeof p->hint);
            bool zone = event->body_case == TMW__RECORD_EVENT__BODY_ZONE;
            p->zones += zone;
            if (zone) keep_words(event, p->zone, sizeof p->zone);
            if (refusal) p->missing = event->refusal->missing;
            if (refusal && p->missing > 0) keep_words(event, p->words, sizeof p->words);
        }
        if (answered.actions[i].kind != TM_ACTION_SEND) continue;
        assert_int_equal(tm_message_unpack(data, answered.actions[i].length, &arena, &message, NULL), 0);
        for (int k = 0; k < times; k++)
            (void)tm_cloud_link_receive(&p->link, p->now_ms, message, &p->from_link);
    }
    tm_outbox_deinit(&said);
    tm_outbox_deinit(&answered);
    tm_arena_deinit(&arena);
}

static void join(struct pair *p)
{
    for (int i = 0; i < 6; i++) {
        (void)tm_cloud_link_due(&p->link, p->now_ms, &p->from_link);
        deliver(p, 1);
        p->now_ms += 100;
        tm_coordinator_tick(p->coordinator, p->now_ms, 0, &p->from_coordinator);
    }
}

static void report(struct pair *p, Tmw__Instance *instance, int times)
{
    Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
    Tmw__Instance *list[] = {instance};
    body.instances = list;
    body.n_instances = 1;
    body.spot_microusd_h = 900000;
    body.bill_microusd = instance->bill_microusd;
    tm_cloud_link__changed(&p->link);
    assert_true(tm_cloud_link_due(&p->link, p->now_ms, &p->from_link));
    tm_cloud_link_report(&p->link, p->now_ms, &body, &p->from_link);
    deliver(p, times);
    deliver(p, times);
    p->now_ms += 250;
}

/* ---- a choice of pools ---- */

static void choose(void *context, const struct tm_run_view *view, struct tm_run_decision *out)
{
    struct tm_run_pool *seen = context;
    *out = (struct tm_run_decision){.rents = true, .want_spot = 2, .want_on_demand = 1, .want = {2, 0, 1}, .pools = 1};
    if (view->cloud.pool_count == 3) *seen = view->cloud.pools[1];
}

/* Orders and reports are by pool; of the one that trains, those with a notice are wanted to their end. */
static void test_pools(void **state)
{
    (void)state;
    struct pair p;
    struct tm_run_pool seen = {0};
    struct tm_coordinator_options chooses = options;
    struct tm_decider decider = {.context = &seen, .decide = choose};
    chooses.pools = 3;
    setup(&p, "t");
    tm_coordinator_destroy(p.coordinator);
    p.coordinator = tm_coordinator_create(&chooses, &decider);
    assert_non_null(p.coordinator);
    tm_coordinator_begin(p.coordinator, p.now_ms, 0, &p.from_coordinator);
    join(&p);
    Tmw__Instance instances[2] = {TMW__INSTANCE__INIT, TMW__INSTANCE__INIT};
    Tmw__PoolReport pools[3] = {TMW__POOL_REPORT__INIT, TMW__POOL_REPORT__INIT, TMW__POOL_REPORT__INIT};
    Tmw__PoolReport *pool_list[] = {&pools[0], &pools[1], &pools[2]};
    Tmw__Instance *list[] = {&instances[0], &instances[1]};
    instances[0].spot = instances[1].spot = instances[0].announced = instances[1].announced = true;
    instances[0].id = 1;
    instances[1].id = 2;
    instances[1].pool = 1; /* of a group that does not train */
    pools[1].price_microusd_h = 5;
    pools[1].offered = 7;
    pools[1].refused = 2;
    pools[1].why = (char[]){"VcpuLimitExceeded: no more; ask for more vCPUs"};
    pools[1].starting = 1;
    Tmw__HintEvent hint = TMW__HINT_EVENT__INIT;
    Tmw__HintEvent *hints[] = {&hint};
    hint.instance = 2;
    hint.why = (char[]){"node n1 is drained"};
    Tmw__ZoneEvent zone = TMW__ZONE_EVENT__INIT;
    Tmw__ZoneEvent *zones[] = {&zone};
    zone.zone = instances[0].zone = instances[1].zone = 1;
    zone.name = (char[]){"us-east-1b"};
    for (int i = 0; i < 6; i++) {
        Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
        if (i == 3) assert_true(p.refusals == 1 && p.missing == 2); /* once, though it is reported again */
        pools[1].refused = i == 3 ? 0 : 2;
        body.instances = list;
        body.n_instances = 2;
        body.pools = pool_list;
        body.n_pools = 3;
        body.hints = hints;
        body.n_hints = 1;
        body.zones = zones;
        body.n_zones = 1;
        tm_cloud_link__changed(&p.link);
        assert_true(tm_cloud_link_due(&p.link, p.now_ms, &p.from_link));
        tm_cloud_link_report(&p.link, p.now_ms, &body, &p.from_link);
        deliver(&p, 1);
        deliver(&p, 1);
        p.now_ms += 250;
        tm_coordinator_tick(p.coordinator, p.now_ms, 0, &p.from_coordinator);
    }
    assert_int_equal(p.link.order.pool_count, 3);
    assert_int_equal(p.link.order.want[0], 3); /* two, and the one with a notice */
    assert_int_equal(p.link.order.want[1], 0);
    assert_int_equal(p.link.order.want[2], 1);
    assert_int_equal(seen.offered, 7);
    assert_int_equal(seen.refused, 2);
    assert_int_equal(p.hints, 1); /* though every report has it */
    assert_int_equal(p.zones, 1); /* likewise */
    assert_string_equal(p.zone, "zone 1 is us-east-1b");
    assert_string_equal(p.hint, "instance 2 may be preempted soon: node n1 is drained");
    assert_int_equal(p.refusals, 3); /* it refuses, has room, refuses again */
    assert_string_equal(p.words, "pool 2 has no capacity for 2 of the instances that are wanted: VcpuLimitExceeded: no "
                                 "more; ask for more vCPUs");
    assert_int_equal(seen.starting, 1);
    assert_int_equal(tm_coordinator_look(p.coordinator).pool_count, 3);
    teardown(&p);
}

static void decide_nothing(void *context, const struct tm_run_view *view, struct tm_run_decision *out)
{
    (void)context;
    (void)view;
    *out = (struct tm_run_decision){.rents = false};
}

/* Before anything was decided, as after a restart, those on their way stay wanted as those that are here: fewer would
 * give up places in a queue. */
static void test_kept(void **state)
{
    (void)state;
    struct tm_decider decider = {.decide = decide_nothing};
    for (uint32_t choice = 0; choice <= 2; choice += 2) {
        struct pair p;
        struct tm_coordinator_options keeps = options;
        keeps.pools = choice;
        setup(&p, "t");
        tm_coordinator_destroy(p.coordinator);
        p.coordinator = tm_coordinator_create(&keeps, &decider);
        assert_non_null(p.coordinator);
        tm_coordinator_begin(p.coordinator, p.now_ms, 0, &p.from_coordinator);
        join(&p);
        Tmw__Instance instance = TMW__INSTANCE__INIT;
        Tmw__Instance *list[] = {&instance};
        Tmw__PoolReport pools[2] = {TMW__POOL_REPORT__INIT, TMW__POOL_REPORT__INIT};
        Tmw__PoolReport *pool_list[] = {&pools[0], &pools[1]};
        Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
        instance.id = 1;
        instance.spot = true;
        instance.start_ms = 5;
        pools[0].starting = 2;
        pools[1].starting = 1;
        body.instances = list;
        body.n_instances = 1;
        body.pools = pool_list;
        body.n_pools = 2;
        assert_true(tm_cloud_link_due(&p.link, p.now_ms, &p.from_link));
        tm_cloud_link_report(&p.link, p.now_ms, &body, &p.from_link);
        deliver(&p, 1);
        deliver(&p, 1);
        assert_true(p.link.order.given);
        assert_int_equal(p.link.order.want[0], 3);
        assert_int_equal(p.link.order.want[1], 1);
        teardown(&p);
    }
}

static void test_order(void **state)
{
    (void)state;
    struct pair p;
    setup(&p, "t");
    join(&p);
    assert_true(p.link.registered);
    assert_false(p.link.order.given); /* nothing before the first report */
    Tmw__Instance instance = TMW__INSTANCE__INIT;
    instance.id = 3;
    instance.start_ms = 5;
    instance.price_microusd_h = 900000;
    instance.spot = true;
    for (int i = 0; i < 4; i++) {
        instance.bill_microusd = (uint64_t)i * 10;
        report(&p, &instance, 1 + i % 2); /* some come twice */
    }
    assert_true(p.link.order.given);
    assert_int_equal(p.link.order.want_spot, 6);
    assert_int_equal(p.link.order.job_state, TM_JOB_STARTING);
    assert_false(p.link.order.stop);
    assert_int_equal(p.recorded, 1); /* it has not changed; its bill goes there once a minute */
    struct tm_coordinator_view view = tm_coordinator_look(p.coordinator);
    assert_int_equal(view.bill_microusd, 30);
    assert_int_equal(view.instance_count, 1);
    instance.end_ms = 90;
    report(&p, &instance, 2);
    assert_int_equal(p.recorded, 2);
    instance.end_ms = 0; /* a mistake, or an old word: what has ended stays so */
    report(&p, &instance, 1);
    assert_int_equal(tm_coordinator_look(p.coordinator).instances[0].end_ms, 90);
    teardown(&p);
}

/* The program around the cloud was killed, and with it the last word of an instance: one that is not named has ended.
 */
static void test_not_named(void **state)
{
    (void)state;
    struct pair p;
    setup(&p, "t");
    join(&p);
    Tmw__Instance instance = TMW__INSTANCE__INIT;
    instance.id = 3;
    instance.start_ms = 5;
    instance.bill_microusd = 40;
    report(&p, &instance, 1);
    instance.id = 4;
    report(&p, &instance, 2);
    assert_int_equal(p.recorded, 3); /* 3 came, 4 came, 3 has ended */
    struct tm_coordinator_view view = tm_coordinator_look(p.coordinator);
    assert_int_equal(view.instance_count, 2);
    assert_true(view.instances[0].end_ms != 0 && view.instances[0].released);
    assert_int_equal(view.instances[0].bill_microusd, 40);
    assert_int_equal(view.instances[1].end_ms, 0);
    teardown(&p);
}

static void test_old_report(void **state)
{
    (void)state;
    struct pair p;
    setup(&p, "t");
    join(&p);
    Tmw__Instance instance = TMW__INSTANCE__INIT;
    instance.id = 3;
    instance.start_ms = 5;
    report(&p, &instance, 1);
    p.link.sequence = 0; /* as if it had been under way for long */
    instance.id = 4;
    Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
    Tmw__Instance *list[] = {&instance};
    body.instances = list;
    body.n_instances = 1;
    tm_cloud_link_report(&p.link, p.now_ms, &body, &p.from_link);
    deliver(&p, 1);
    assert_int_equal(tm_coordinator_look(p.coordinator).instance_count, 1);
    teardown(&p);
}

static void test_wrong_token(void **state)
{
    (void)state;
    struct pair p;
    setup(&p, "another");
    join(&p);
    assert_true(p.link.refused);
    assert_false(p.link.registered);
    assert_int_equal(tm_coordinator_look(p.coordinator).leases, 0);
    teardown(&p);
}

/* A coordinator that is gone: the link joins again, and the last order stands meanwhile. */
static void test_silence(void **state)
{
    (void)state;
    struct pair p;
    setup(&p, "t");
    join(&p);
    Tmw__Instance instance = TMW__INSTANCE__INIT;
    instance.id = 3;
    report(&p, &instance, 1);
    for (int i = 0; i < 40 && p.link.registered; i++) {
        Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
        p.now_ms += 250;
        assert_true(tm_cloud_link_due(&p.link, p.now_ms, &p.from_link));
        tm_cloud_link_report(&p.link, p.now_ms, &body, &p.from_link);
        tm_outbox_clear(&p.from_link);
    }
    assert_false(p.link.registered);
    assert_int_equal(p.link.order.want_spot, 6);
    p.now_ms += 1000;
    join(&p);
    assert_true(p.link.registered);
    teardown(&p);
}

/* Says hello for a worker of this instance, and again with the nonce that it is asked for; is it welcome? */
static bool welcomed(struct pair *p, uint64_t id)
{
    struct tm_peer from = {.role = TM_ROLE_WORKER, .id = id, .incarnation = 77};
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    struct tm_arena arena;
    uint64_t nonce = 0;
    bool welcome = false;
    tm_arena_init(&arena, 1 << 20);
    for (int i = 0; i < 2; i++) {
        struct tm_outbox out;
        Tmw__Hello hello = TMW__HELLO__INIT;
        uint8_t proof[TM_PROOF_BYTES];
        tm_message message = tm_message_make(1, &from, &to);
        tm_message *answer = NULL;
        tm_outbox_init(&out);
        tm_proof_put_hello("t", 1, &from, nonce, proof, &hello);
        message.body_case = TMW__ENVELOPE__BODY_HELLO;
        message.hello = &hello;
        tm_coordinator_receive(p->coordinator, p->now_ms, &message, &out);
        for (size_t a = 0; a < out.count; a++) {
            if (out.actions[a].kind != TM_ACTION_SEND) continue;
            const void *data = tm_outbox_data(&out, &out.actions[a]);
            assert_int_equal(tm_message_unpack(data, out.actions[a].length, &arena, &answer, NULL), 0);
            if (answer->body_case == TMW__ENVELOPE__BODY_CHALLENGE) nonce = answer->challenge->nonce;
            welcome = welcome || answer->body_case == TMW__ENVELOPE__BODY_WELCOME;
        }
        tm_outbox_deinit(&out);
    }
    tm_arena_deinit(&arena);
    return welcome;
}

/* A hello of a machine that is gone came late: nobody is here. */
static void test_late_hello(void **state)
{
    (void)state;
    struct pair p;
    setup(&p, "t");
    join(&p);
    Tmw__Instance instance = TMW__INSTANCE__INIT;
    instance.id = 3;
    instance.start_ms = 5;
    instance.end_ms = 90;
    report(&p, &instance, 1);
    assert_false(welcomed(&p, 3));
    assert_int_equal(tm_coordinator_look(p.coordinator).workers, 0);
    assert_true(welcomed(&p, 4)); /* of whom the cloud has not spoken yet */
    teardown(&p);
}

TM_TEST_MAIN(TM_TEST(test_pools), TM_TEST(test_kept), TM_TEST(test_order), TM_TEST(test_not_named),
             TM_TEST(test_old_report), TM_TEST(test_wrong_token), TM_TEST(test_silence), TM_TEST(test_late_hello))
