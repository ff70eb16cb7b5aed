/* A coordinator's and an agent's life with every allocation failing in turn: each goes on, or says that it must be
 * destroyed, and nothing is left over. */
#include "run/agent.h"
#include "run/cloud_link.h"
#include "run/test/coord_rig.h"

#define KIND(name) TMW__ENVELOPE__BODY_##name

/* Time passes until it is so; -TM_ENOMEM when the machine said that it must be destroyed. */
#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        for (int tries = 0; !r->failed && !(condition); tries++) {                                                     \
            assert_row(tries < 120, "does not go on: %s (%s)", #condition, rig_look(r).waiting);                       \
            rig_pass(r, 500, true);                                                                                    \
        }                                                                                                              \
        if (r->failed) return -(int)TM_ENOMEM;                                                                         \
    } while (0)

static void dies(struct coord_rig *r, uint64_t id)
{
    struct tm_peer dead = rig_worker(r, id);
    r->fakes[id].here = false;
    rig_call_begin();
    tm_coordinator_dead(r->coordinator, r->now_ms, &dead, &r->box.out);
    rig_call_end(r);
}

static void list_instances(struct coord_rig *r, uint64_t sequence)
{
    struct tm_peer cloud = {.role = TM_ROLE_CLOUD, .id = TM_CLOUD_PEER_ID, .incarnation = 77};
    rig_hello(r, cloud, 0, "the token");
    const tm_message *challenge = NULL;
    for (size_t n = 0; !r->failed && mailbox_place(&r->box, KIND(CHALLENGE), n) >= 0; n++)
        if (mailbox_to(&r->box, KIND(CHALLENGE), n).role == TM_ROLE_CLOUD)
            challenge = mailbox_find(&r->box, KIND(CHALLENGE), n);
    if (!r->failed && challenge != NULL) rig_hello(r, cloud, challenge->challenge->nonce, "the token");
    Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
    Tmw__Instance instances[12];
    Tmw__Instance *list[12];
    for (uint64_t i = 0; i < 12; i++) {
        tmw__instance__init(&instances[i]);
        instances[i].id = i + 1;
        instances[i].price_microusd_h = 900000;
        list[i] = &instances[i];
    }
    body.sequence = sequence;
    body.instances = list;
    body.n_instances = 12;
    body.spot_microusd_h = 900000;
    if (!r->failed) RIG_TELL(r, cloud, CLOUD_REPORT, cloud_report, &body);
}

static int life(struct coord_rig *r)
{
    struct tm_coordinator_options options = rig_options;
    options.steps = 60;
    if (!rig_create(r, &options)) return -(int)TM_ENOMEM;
    r->rule.workers_min = 4;
    r->rule.copy_every_ms = 2000;
    rig_begin(r);
    for (uint64_t id = 1; id <= 4 && !r->failed; id++)
        rig_arrive(r, id);
    UNTIL(rig_look(r).phase == TM_COORDINATOR_RUNNING);
    r->rule.workers_min = 2;
    for (uint64_t i = 1; i < 20 && !r->failed && rig_look(r).instance_count < 12; i++)
        list_instances(r, i);
    if (r->failed) return -(int)TM_ENOMEM;
    assert_int_equal(rig_look(r).instance_count, 12);
    UNTIL(rig_look(r).durable_set >= 2);
    uint64_t started = rig_look(r).generations_started;
    r->damaged_set = rig_look(r).durable_set; /* a roll-back that finds damage */
    r->damaged_layer = 3;
    for (uint64_t id = 1; id <= 4 && !r->failed; id++)
        if (r->fakes[id].first_layer > 0) dies(r, id);
    if (!r->failed) rig_arrive(r, 5);
    UNTIL(rig_look(r).generations_started > started && rig_look(r).phase == TM_COORDINATOR_RUNNING);
    if (!r->failed) rig_arrive(r, 6); /* a planned change */
    UNTIL(rig_look(r).phase == TM_COORDINATOR_RUNNING && tm_roster_seated(rig_look(r).roster) == 4);
    UNTIL(rig_look(r).phase == TM_COORDINATOR_FINISHED);
    return 0;
}

static void test_coordinator(void **state)
{
    (void)state;
    static struct coord_rig r;
    TM_FAIL_EACH_ALLOC({
        tm_alloc_fail_hold(1);
        rc = life(&r);
        rig_destroy(&r);
    });
}

/* Reading the record back. */
static void test_load(void **state)
{
    (void)state;
    static struct coord_rig r;
    assert_true(rig_create(&r, NULL));
    rig_run(&r, 4);
    r.rule.copy_every_ms = 2000;
    rig_pass(&r, 12000, true);
    rig_clear(&r);
    assert_true(rig_look(&r).durable_set >= 2);
    tm_alloc_fail_hold(0);
    TM_FAIL_EACH_ALLOC({
        struct tm_decider decider = tm_decider_use_all(&r.rule);
        struct tm_coordinator *c = tm_coordinator_create(&r.options, &decider);
        rc = c == NULL ? -(int)TM_ENOMEM : 0;
        for (size_t at = 0; rc == 0 && at < r.disk.length;) {
            struct tm_arena arena;
            Tmw__RecordEvent *event = NULL;
            int64_t size = tm_frame_next(r.disk.data + at, r.disk.length - at, NULL);
            tm_arena_init(&arena, 1 << 20);
            rc = tm_record_event_unpack(r.disk.data + at + TM_FRAME_HEADER, (size_t)size, &arena, &event, NULL);
            if (rc == 0 && event->body_case == TMW__RECORD_EVENT__BODY_SET_WHOLE)
                rc = tm_coordinator__load_manifest(c, event, NULL);
            else if (rc == 0)
                rc = tm_coordinator_load(c, event, NULL);
            tm_arena_deinit(&arena);
            at += TM_FRAME_HEADER + (size_t)size;
        }
        if (tm_alloc_failed()) assert_int_equal(rc, -(int)TM_ENOMEM); /* nothing is left out without a word */
        if (rc == 0) assert_true(tm_coordinator_look(c).durable_set >= 2);
        tm_coordinator_destroy(c);
    });
    rig_destroy(&r);
}

static void test_agent(void **state)
{
    (void)state;
    static const struct tm_agent_options options = {.job = 1,
                                                    .id = 5,
                                                    .incarnation = 9,
                                                    .token = "t",
                                                    .heartbeat_ms = 1000,
                                                    .backoff_ms = 100,
                                                    .restarts_max = 3,
                                                    .restart_window_ms = 10000};
    TM_FAIL_EACH_ALLOC({
        struct tm_agent agent;
        struct tm_outbox out;
        tm_outbox_init(&out);
        tm_agent_init(&agent, &options);
        tm_agent_tick(&agent, 0, &out);
        agent.registered = true;
        tm_agent_notice(&agent, 100, 30000, &out);
        tm_agent_worker_ended(&agent, 200, agent.worker,
                              &(struct tm_worker_end){.status = 1, .output = "a\nb\n", .output_length = 4}, &out);
        tm_agent_tick(&agent, 2000, &out);
        rc = tm_outbox_status(&out, NULL);
        if (rc != 0) assert_int_equal(out.count, 0); /* and nothing of it happens */
        tm_outbox_deinit(&out);
    });
}

TM_TEST_MAIN(TM_TEST(test_coordinator), TM_TEST(test_load), TM_TEST(test_agent))
