/* The coordinator alone, message by message: who may join, what is recorded before what is said, the step in doubt,
 * when a generation may start, planned changes, restarts. */
#include "run/coord_internal.h"
#include "run/test/coord_rig.h"

#define KIND(name)  TMW__ENVELOPE__BODY_##name
#define ENTRY(name) TMW__RECORD_EVENT__BODY_##name

static void setup(struct coord_rig *r)
{
    assert_true(rig_create(r, NULL));
}

/* ---- joining ---- */

static void test_refuses_by_token(void **state)
{
    (void)state;
    struct coord_rig r;
    static const char *const tokens[] = {"", "the toke", "the token ", "the tokeN", "another thing altogether"};
    setup(&r);
    rig_begin(&r);
    for (size_t i = 0; i < TM_COUNT(tokens); i++) {
        struct tm_peer from = {.role = i % 2 == 0 ? TM_ROLE_WORKER : TM_ROLE_AGENT, .id = 1, .incarnation = 100};
        rig_clear(&r);
        rig_hello(&r, from, 0, tokens[i]);
        const tm_message *challenge = mailbox_find(&r.box, KIND(CHALLENGE), 0);
        assert_row(challenge != NULL, "\"%s\"", tokens[i]);
        rig_hello(&r, from, challenge->challenge->nonce, tokens[i]);
        const tm_message *refused = mailbox_find(&r.box, KIND(REFUSE), 0);
        assert_row(refused != NULL && strstr(refused->refuse->reason, "token") != NULL, "\"%s\"", tokens[i]);
    }
    assert_int_equal(rig_look(&r).leases, 0);
    rig_destroy(&r);
}

/* The answer to a challenge proves that the asker lives now: one of another process is worth nothing. */
static void test_challenge(void **state)
{
    (void)state;
    struct coord_rig r;
    struct tm_peer from = {.role = TM_ROLE_WORKER, .id = 1, .incarnation = 100};
    struct tm_peer other = {.role = TM_ROLE_WORKER, .id = 1, .incarnation = 101};
    setup(&r);
    rig_begin(&r);
    rig_hello(&r, from, 0, "the token");
    uint64_t nonce = mailbox_find(&r.box, KIND(CHALLENGE), 0)->challenge->nonce;
    assert_true(nonce != 0);
    rig_hello(&r, from, nonce + 1, "the token");
    rig_hello(&r, other, nonce, "the token");
    assert_int_equal(mailbox_count(&r.box, KIND(WELCOME)), 0);
    assert_int_equal(rig_look(&r).leases, 0);
    rig_hello(&r, from, nonce, "the token");
    const tm_message *welcome = mailbox_find(&r.box, KIND(WELCOME), 0);
    assert_non_null(welcome);
    assert_int_equal(welcome->welcome->nonce, nonce);
    assert_int_equal(welcome->welcome->layers, RIG_LAYERS);
    assert_int_equal(welcome->welcome->orphan_ms, 20000);
    assert_int_equal(rig_look(&r).workers, 1);
    rig_destroy(&r);
}

/* A word of one who has no lease, or to the coordinator before this one, is answered by a challenge and by no more. */
static void test_strangers(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 2);
    struct tm_peer stranger = {.role = TM_ROLE_WORKER, .id = 7, .incarnation = 700};
    Tmw__Heartbeat beat = TMW__HEARTBEAT__INIT;
    beat.generation = UINT64_MAX; /* were it believed, all would be fenced */
    RIG_TELL(&r, stranger, HEARTBEAT, heartbeat, &beat);
    assert_int_equal(mailbox_count(&r.box, KIND(CHALLENGE)), 1);
    assert_int_equal(r.box.out.count, 1);
    rig_clear(&r);
    struct tm_peer from = rig_worker(&r, 1);
    struct tm_peer before = {.role = TM_ROLE_COORDINATOR, .incarnation = RIG_SELF - 1};
    tm_message message = tm_message_make(RIG_JOB, &from, &before);
    message.body_case = KIND(HEARTBEAT);
    message.heartbeat = &beat;
    rig_receive(&r, &message);
    assert_int_equal(mailbox_count(&r.box, KIND(CHALLENGE)), 1);
    message = tm_message_make(RIG_JOB + 1, &from, &before); /* of another job: not a word */
    message.body_case = KIND(HEARTBEAT);
    message.heartbeat = &beat;
    rig_receive(&r, &message);
    assert_int_equal(r.box.out.count, 1);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    rig_destroy(&r);
}

/* Another process under a known number: the one before is dead, and late words of it count for nothing. */
static void test_old_incarnations(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 3);
    uint64_t generation = rig_look(&r).generation;
    struct tm_peer old = rig_worker(&r, 2);
    uint64_t old_nonce = r.fakes[2].nonce;
    rig_arrive(&r, 2); /* started again */
    assert_true(rig_look(&r).generation > generation);
    rig_pass(&r, 4000, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    rig_clear(&r);
    rig_hello(&r, old, old_nonce, "the token"); /* delayed on its way, with a right answer of then */
    assert_int_equal(mailbox_count(&r.box, KIND(WELCOME)), 0);
    Tmw__Report report = TMW__REPORT__INIT;
    report.generation = rig_look(&r).generation;
    report.applied = 90;
    RIG_TELL(&r, old, REPORT, report, &report);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    assert_int_equal(rig_look(&r).workers, 3);
    rig_destroy(&r);
}

/* One started and died before it was heard; its hello, with a right answer of then, comes when its successor trains. */
static void test_one_that_died_unheard(void **state)
{
    (void)state;
    struct coord_rig r;
    struct tm_peer unheard = {.role = TM_ROLE_WORKER, .id = 2, .incarnation = 4711};
    setup(&r);
    rig_begin(&r);
    rig_hello(&r, unheard, 0, "the token");
    uint64_t nonce = mailbox_find(&r.box, KIND(CHALLENGE), 0)->challenge->nonce;
    rig_clear(&r);
    rig_arrive(&r, 1);
    rig_arrive(&r, 2);
    rig_pass(&r, 4000, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    uint64_t generation = rig_look(&r).generation;
    rig_clear(&r);
    rig_hello(&r, unheard, nonce, "the token");
    assert_int_equal(mailbox_count(&r.box, KIND(WELCOME)), 0);
    assert_int_equal(mailbox_count(&r.box, KIND(CHALLENGE)), 1); /* which a living one could answer */
    rig_hello(&r, rig_worker(&r, 2), r.fakes[2].nonce, "the token");
    assert_int_equal(mailbox_count(&r.box, KIND(WELCOME)), 1); /* the successor's own answer still counts */
    assert_int_equal(rig_look(&r).generation, generation);
    assert_int_equal(rig_look(&r).workers, 2);
    rig_destroy(&r);
}

/* ---- what is on disk before what is said ---- */

static void test_a_fence_is_recorded_first(void **state)
{
    (void)state;
    struct coord_rig r;
    Tmw__RecordEvent *event = NULL;
    setup(&r);
    rig_run(&r, 3);
    rig_pass(&r, 2000, true);
    rig_clear(&r);
    rig_agent_joins(&r, 2);
    r.fakes[2].here = false;
    rig_agent_says(&r, 2, (struct agent_word){.ended = r.fakes[2].incarnation}); /* a member is lost */
    int fence = mailbox_place(&r.box, KIND(FENCE), 0);
    int entry = rig_recorded(&r, ENTRY(GENERATION), 0, &event);
    assert_true(entry >= 0 && fence > entry);
    assert_int_equal(r.box.out.actions[entry].number, 1); /* synced */
    assert_false(event->generation->started);
    assert_int_equal(event->generation->generation, rig_look(&r).generation);
    assert_null(mailbox_find_to(&r.box, KIND(FENCE), 2)); /* the dead are not spoken to */
    r.fakes[3].silent = true;
    rig_talk(&r);
    assert_int_equal(mailbox_count(&r.box, KIND(ASSIGN)), 0); /* 3 has not reported */
    r.fakes[3].silent = false;
    rig_pass(&r, 1500, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    rig_destroy(&r);
}

static void test_a_layout_is_recorded_before_it_starts(void **state)
{
    (void)state;
    struct coord_rig r;
    Tmw__RecordEvent *event = NULL;
    setup(&r);
    r.rule.workers_min = 3;
    rig_begin(&r);
    for (uint64_t id = 1; id <= 2; id++)
        rig_arrive(&r, id);
    rig_clear(&r);
    r.rule.workers_min = 2;
    rig_tick(&r, 500); /* both have reported */
    assert_int_equal(mailbox_count(&r.box, KIND(ASSIGN)), 2);
    r.fakes[2].silent = true; /* it hears its assignment later */
    rig_talk(&r);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_ASSIGNED);
    assert_int_equal(mailbox_count(&r.box, KIND(START)), 0);
    assert_int_equal(rig_recorded(&r, ENTRY(GENERATION), 0, NULL), -1);
    r.fakes[2].silent = false;
    rig_clear(&r);
    rig_tick(&r, 700); /* said again */
    rig_talk(&r);
    int entry = rig_recorded(&r, ENTRY(GENERATION), 0, &event);
    assert_true(entry >= 0 && event->generation->started);
    assert_int_equal(r.box.out.actions[entry].number, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(START)), 2);
    assert_true(mailbox_place(&r.box, KIND(START), 0) > entry);
    rig_destroy(&r);
}

/* ---- the step in doubt ---- */

/* Worker 1 has applied step 5; 2 only holds it. 3 is lost. */
static void in_doubt(struct coord_rig *r, bool applied)
{
    setup(r);
    rig_run(r, 4);
    for (int i = 0; i < 4; i++)
        for (uint64_t id = 1; id <= 4; id++)
            fake_step(r, id);
    for (uint64_t id = 1; id <= 4; id++) {
        if (applied && id == 1) fake_step(r, id);
        if (r->fakes[id].applied == 4) r->fakes[id].held = 5;
        rig_heartbeat(r, id);
    }
    rig_clear(r);
    r->fakes[3].here = false;
    struct tm_peer dead = rig_worker(r, 3);
    rig_call_begin();
    tm_coordinator_dead(r->coordinator, r->now_ms, &dead, &r->box.out);
    rig_call_end(r);
}

static void test_resolve(void **state)
{
    (void)state;
    struct coord_rig r;
    in_doubt(&r, true);
    rig_talk(&r);
    size_t resolved = mailbox_count(&r.box, KIND(RESOLVE));
    assert_int_equal(resolved, 2); /* 2 and 4 */
    for (size_t i = 0; i < resolved; i++) {
        const Tmw__Resolve *body = mailbox_find(&r.box, KIND(RESOLVE), i)->resolve;
        assert_int_equal(body->step, 5);
        assert_true(body->norm == 5); /* the one that it was applied with */
        assert_true(mailbox_to(&r.box, KIND(RESOLVE), i).id != 1);
    }
    rig_pass(&r, 3000, false);
    assert_int_equal(rig_look(&r).base, 5);
    assert_int_equal(rig_look(&r).steps_rolled_back, 0);
    rig_destroy(&r);
}

static void test_nobody_applied_it(void **state)
{
    (void)state;
    struct coord_rig r;
    in_doubt(&r, false);
    rig_talk(&r);
    assert_int_equal(mailbox_count(&r.box, KIND(RESOLVE)), 0);
    rig_pass(&r, 3000, false);
    assert_int_equal(rig_look(&r).base, 4); /* step 5 is redone */
    rig_destroy(&r);
}

/* Only what is missing moves: those who stay have their layers, and are told to fetch nothing; one that comes fetches
 * from those who have, with the hash that it must get. */
static void test_only_missing_layers_move(void **state)
{
    (void)state;
    struct coord_rig r;
    in_doubt(&r, false);
    rig_talk(&r);
    rig_tick(&r, 10);
    for (size_t i = 0; i < mailbox_count(&r.box, KIND(ASSIGN)); i++)
        assert_int_equal(mailbox_find(&r.box, KIND(ASSIGN), i)->assign->n_fetches, 0);
    rig_talk(&r);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    rig_arrive(&r, 5);
    bool fetched = false;
    for (int i = 0; i < 20 && !fetched; i++) {
        rig_pass(&r, 500, true);
        const tm_message *assign = mailbox_find_to(&r.box, KIND(ASSIGN), 5);
        for (size_t k = 0; assign != NULL && k < assign->assign->n_fetches; k++) {
            const Tmw__Fetch *fetch = assign->assign->fetches[k];
            struct tm_hash hash = rig_hash(fetch->layer, assign->assign->base_step);
            assert_true(fetch->hash_low == hash.low && fetch->hash_high == hash.high);
            assert_true(fetch->n_sources > 0 && !fetch->initial);
            fetched = true;
        }
    }
    assert_true(fetched);
    rig_destroy(&r);
}

/* ---- leases ---- */

static void test_lease_runs_out(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 3);
    uint64_t generation = rig_look(&r).generation;
    rig_heartbeat(&r, 2);
    int64_t heard_ms = r.now_ms;
    r.fakes[2].silent = true;
    while (r.now_ms < heard_ms + 4000)
        rig_pass(&r, 500, false);
    assert_int_equal(rig_look(&r).generation, generation); /* it waits longer than the worker believes */
    rig_pass(&r, 500, false);
    assert_true(rig_look(&r).generation > generation);
    assert_int_equal(rig_look(&r).workers, 2);
    rig_destroy(&r);
}

/* ---- when may a generation start? ---- */

/* Both members go silent, and are not known to be dead; two others join. */
static void others_join(struct coord_rig *r)
{
    setup(r);
    rig_run(r, 2);
    r->fakes[1].silent = r->fakes[2].silent = true;
    rig_arrive(r, 3);
    rig_arrive(r, 4);
    rig_pass(r, 6000, false); /* leases have run out */
    assert_int_equal(rig_look(r).phase, TM_COORDINATOR_COLLECTING);
    assert_int_equal(rig_look(r).workers, 2);
}

static void test_orphans_are_waited_for(void **state)
{
    (void)state;
    struct coord_rig r;
    others_join(&r);
    int64_t since_ms = r.now_ms;
    while (rig_look(&r).phase == TM_COORDINATOR_COLLECTING && r.now_ms < since_ms + 60000)
        rig_pass(&r, 500, false);
    /* From our last word to them, some 6 s before; a sixteenth on top, for clocks. */
    assert_true(r.now_ms - since_ms > 20000 - 7000);
    assert_true(r.now_ms - since_ms < 20000 + 1250);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    rig_destroy(&r);
}

static void test_the_dead_are_not_waited_for(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct coord_rig r;
        others_join(&r);
        if (how == 0) { /* their agents have seen the end of both */
            for (uint64_t id = 1; id <= 2; id++) {
                rig_agent_joins(&r, id);
                rig_agent_says(&r, id, (struct agent_word){.ended = r.fakes[id].incarnation});
            }
        } else if (how == 1) { /* the program has */
            for (uint64_t id = 1; id <= 2; id++) {
                struct tm_peer dead = rig_worker(&r, id);
                rig_call_begin();
                tm_coordinator_dead(r.coordinator, r.now_ms, &dead, &r.box.out);
                rig_call_end(&r);
            }
        } else { /* one of them obeys the fence: that stops the other, too */
            r.fakes[1].silent = false;
            rig_hello(&r, rig_worker(&r, 1), r.fakes[1].nonce, "the token");
            rig_talk(&r);
        }
        rig_pass(&r, 1500, false);
        assert_row(rig_look(&r).phase == TM_COORDINATOR_RUNNING, "way %d: still waits for %s", how,
                   rig_look(&r).waiting);
        rig_destroy(&r);
    }
}

static void test_under_the_minimum(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 2);
    rig_pass(&r, 2000, true);
    struct tm_peer dead = rig_worker(&r, 2);
    r.fakes[2].here = false;
    rig_call_begin();
    tm_coordinator_dead(r.coordinator, r.now_ms, &dead, &r.box.out);
    rig_call_end(&r);
    rig_pass(&r, 30000, true);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_COLLECTING);
    assert_string_equal(rig_look(&r).waiting, "more workers");
    assert_int_equal(rig_look(&r).state, TM_JOB_WAITING);
    rig_arrive(&r, 3);
    rig_pass(&r, 5000, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    rig_destroy(&r);
}

/* ---- planned changes ---- */

static void test_drain(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 2);
    rig_pass(&r, 2000, true);
    rig_arrive(&r, 3);
    rig_arrive(&r, 4);
    uint64_t generation = rig_look(&r).generation;
    r.fakes[1].working_on = r.fakes[2].working_on = r.fakes[1].applied + 1;
    while (rig_look(&r).phase == TM_COORDINATOR_RUNNING)
        rig_pass(&r, 500, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_DRAINING);
    assert_int_equal(rig_look(&r).generation, generation); /* nobody is fenced */
    rig_clear(&r);
    rig_heartbeat(&r, 1);
    uint64_t drain = mailbox_find(&r.box, KIND(HEARTBEAT_ACK), 0)->heartbeat_ack->drain_step;
    assert_true(drain > r.fakes[1].applied); /* never before a step that is under way */
    r.fakes[1].working_on = r.fakes[2].working_on = 0;
    while (r.fakes[1].applied < drain)
        fake_step(&r, 1);
    rig_heartbeat(&r, 1);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_DRAINING); /* 2 is not there yet */
    while (r.fakes[2].applied < drain)
        fake_step(&r, 2);
    rig_heartbeat(&r, 2);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_COLLECTING);
    rig_talk(&r);
    rig_pass(&r, 3000, false);
    assert_int_equal(tm_roster_seated(rig_look(&r).roster), 4);
    assert_int_equal(rig_look(&r).base, drain); /* nothing is redone */
    assert_int_equal(rig_look(&r).steps_rolled_back, 0);
    rig_destroy(&r);
}

/* One member does not get there: after a while, it is fenced without a common step. */
static void test_drain_limit(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 2);
    rig_pass(&r, 2000, true);
    rig_arrive(&r, 3);
    rig_arrive(&r, 4);
    r.fakes[2].working_on = r.fakes[2].applied + 1; /* and stays there */
    uint64_t generation = rig_look(&r).generation;
    int64_t since_ms = r.now_ms;
    while (rig_look(&r).generation == generation && r.now_ms < since_ms + 60000)
        rig_pass(&r, 500, false);
    assert_true(rig_look(&r).generation > generation);
    assert_true(r.now_ms - since_ms > 12000);
    rig_destroy(&r);
}

static void test_notice_and_false_alarm(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 4);
    rig_pass(&r, 2000, true);
    struct tm_peer agent = {.role = TM_ROLE_AGENT, .id = 2, .incarnation = 5002};
    rig_agent_joins(&r, 2);
    r.fakes[2].agent_incarnation = 0; /* rig_pass does not speak for it */
    for (int i = 0; i < 12; i++) {
        Tmw__AgentHeartbeat body = TMW__AGENT_HEARTBEAT__INIT;
        body.sequence = (uint64_t)i + 1;
        body.notice = true;
        body.notice_left_ms = (uint64_t)(12000 - 1000 * i);
        body.worker_runs = true;
        body.worker_incarnation = r.fakes[2].incarnation;
        RIG_TELL(&r, agent, AGENT_HEARTBEAT, agent_heartbeat, &body);
        rig_pass(&r, 1000, true);
    }
    const struct tm_member *member = tm_roster_find(rig_look(&r).roster, 2);
    assert_true(member == NULL || member->spare);
    assert_int_equal(tm_roster_seated(rig_look(&r).roster), 2);
    assert_int_equal(rig_look(&r).steps_rolled_back, 0);
    for (uint64_t i = 13; i < 30; i++) { /* its time is up, and it is still here */
        Tmw__AgentHeartbeat body = TMW__AGENT_HEARTBEAT__INIT;
        body.sequence = i;
        body.notice = true;
        body.worker_runs = true;
        body.worker_incarnation = r.fakes[2].incarnation;
        RIG_TELL(&r, agent, AGENT_HEARTBEAT, agent_heartbeat, &body);
        rig_pass(&r, 1000, true);
    }
    assert_int_equal(tm_roster_seated(rig_look(&r).roster), 4);
    rig_destroy(&r);
}

/* ---- hanging ---- */

static void test_a_worker_hangs(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 4);
    rig_agent_joins(&r, 3);
    rig_pass(&r, 2000, true);
    uint64_t incarnation = r.fakes[3].incarnation;
    for (uint64_t id = 1; id <= 4; id++) { /* all hold the step, but 3 computes without end */
        r.fakes[id].working_on = r.fakes[id].applied + 1;
        if (id == 3) continue;
        r.fakes[id].held = r.fakes[id].applied + 1;
        r.fakes[id].waiting_for = 3;
    }
    bool restart = false;
    uint64_t generation = rig_look(&r).generation;
    int64_t since_ms = r.now_ms;
    while (!restart && r.now_ms < since_ms + 40000) {
        rig_pass(&r, 500, false);
        for (size_t n = 0; n < mailbox_count(&r.box, KIND(AGENT_ORDER)); n++) {
            const Tmw__AgentOrder *order = mailbox_find(&r.box, KIND(AGENT_ORDER), n)->agent_order;
            restart = restart || (order->restart_worker && order->worker_incarnation == incarnation);
        }
    }
    assert_true(restart);
    assert_true(r.now_ms - since_ms >= 10000); /* not sooner than the stall time */
    assert_true(rig_look(&r).generation > generation);
    const struct tm_member *member = tm_roster_find(rig_look(&r).roster, 3);
    assert_true(member == NULL || member->spare);
    rig_destroy(&r);
}

/* ---- restarts ---- */

static void test_a_restart_resumes(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 4);
    rig_pass(&r, 2000, true);
    uint64_t generation = rig_look(&r).generation;
    rig_restart(&r, true);
    assert_false(tm_coordinator_rebuilds(r.coordinator));
    r.now_ms += 3000;
    rig_begin(&r);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    assert_int_equal(rig_look(&r).generation, generation);
    r.fakes[3].silent = true; /* it joins again later than the others: the fleet is no smaller for that */
    rig_pass(&r, 3000, true);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    r.fakes[3].silent = false;
    rig_pass(&r, 7000, true);
    assert_int_equal(rig_look(&r).generation, generation);
    assert_int_equal(rig_look(&r).workers, 4);
    assert_true(rig_look(&r).applied > 20);
    /* And where a member does not come back, it is lost after a while. */
    rig_restart(&r, true);
    r.fakes[2].here = false;
    rig_begin(&r);
    rig_pass(&r, 12000, true);
    assert_true(rig_look(&r).generation > generation);
    rig_destroy(&r);
}

/* A restart between the fence and the start: the number is used up. */
static void test_a_restart_in_a_change(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 4);
    struct tm_peer dead = rig_worker(&r, 2);
    r.fakes[2].here = false;
    rig_call_begin();
    tm_coordinator_dead(r.coordinator, r.now_ms, &dead, &r.box.out);
    rig_call_end(&r);
    uint64_t fenced = rig_look(&r).generation;
    rig_restart(&r, true);
    rig_begin(&r);
    assert_true(rig_look(&r).generation > fenced);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_COLLECTING);
    rig_pass(&r, 5000, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING); /* members of the last one have obeyed */
    rig_destroy(&r);
}

static void test_a_lost_record_is_rebuilt(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 4);
    rig_pass(&r, 2000, true);
    uint64_t generation = rig_look(&r).generation;
    uint64_t applied = r.fakes[1].applied;
    rig_restart(&r, false);
    assert_true(tm_coordinator_rebuilds(r.coordinator));
    rig_begin(&r);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_REBUILDING);
    int64_t since_ms = r.now_ms;
    rig_pass(&r, 2000, true);
    rig_clear(&r);
    rig_heartbeat(&r, 1);
    const Tmw__HeartbeatAck *ack = mailbox_find(&r.box, KIND(HEARTBEAT_ACK), 0)->heartbeat_ack;
    assert_true(ack->keep_all);           /* no copy goes */
    assert_int_equal(ack->generation, 0); /* and nobody is fenced: they train on */
    while (rig_look(&r).phase == TM_COORDINATOR_REBUILDING && r.now_ms < since_ms + 60000)
        rig_pass(&r, 500, true);
    assert_true(r.now_ms - since_ms > 20000);
    assert_true(rig_look(&r).generation >> 32 > generation >> 32); /* another epoch: no number is used twice */
    rig_pass(&r, 5000, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    assert_true(rig_look(&r).base > applied); /* from where they stood */
    rig_destroy(&r);
}

/* One comes back that obeys a higher number than ours: it gets no word that lets it train. */
static void test_outnumbered(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r);
    rig_run(&r, 2);
    uint64_t generation = rig_look(&r).generation;
    r.fakes[1].generation = generation + 1000;
    rig_clear(&r);
    rig_heartbeat(&r, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(HEARTBEAT_ACK)), 0);
    assert_true(rig_look(&r).generation > generation + 1000);
    assert_int_equal(mailbox_count(&r.box, KIND(FENCE)), 2);
    rig_destroy(&r);
}

/* ---- the end ---- */

static void test_the_end(void **state)
{
    (void)state;
    struct coord_rig r;
    struct tm_coordinator_options options = rig_options;
    options.steps = 10;
    assert_true(rig_create(&r, &options));
    rig_run(&r, 2);
    rig_agent_joins(&r, 1);
    bool done = false;
    for (int i = 0; i < 60 && !done; i++) {
        rig_pass(&r, 500, true);
        done = mailbox_action(&r.box, TM_COORDINATOR_DONE, 0) >= 0;
    }
    assert_true(done);
    int entry = rig_recorded(&r, ENTRY(FINISHED_STEP), 0, NULL);
    assert_true(entry >= 0 && r.box.out.actions[entry].number == 1);
    assert_true(mailbox_place(&r.box, KIND(STOP), 0) > entry); /* recorded before anyone is stopped */
    assert_int_equal(rig_look(&r).durable_step, 10);           /* the last step is durable first */
    assert_int_equal(rig_look(&r).state, TM_JOB_FINISHED);
    rig_clear(&r);
    rig_agent_says(&r, 1, (struct agent_word){0});
    assert_true(mailbox_find(&r.box, KIND(AGENT_ORDER), 0)->agent_order->stop);
    rig_heartbeat(&r, 2); /* one that did not hear it */
    assert_int_equal(mailbox_count(&r.box, KIND(STOP)), 1);
    rig_restart(&r, true);
    rig_begin(&r);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_FINISHED);
    assert_true(mailbox_action(&r.box, TM_COORDINATOR_DONE, 0) >= 0);
    rig_destroy(&r);
}

static bool ends_at_once(struct coord_rig *r, uint64_t id)
{
    rig_clear(r);
    rig_agent_says(r, id, (struct agent_word){0});
    const Tmw__AgentOrder *order = mailbox_find(&r->box, KIND(AGENT_ORDER), 0)->agent_order;
    assert_true(order->stop);
    assert_true(!order->restart_worker || order->worker_incarnation == r->fakes[id].incarnation);
    return order->restart_worker;
}

/* Whoever was in a generation may be saving the result; whoever is still starting is not waited for. */
static void test_the_end_of_those_who_did_not_join(void **state)
{
    (void)state;
    struct coord_rig r;
    struct tm_coordinator_options options = rig_options;
    options.steps = 10;
    assert_true(rig_create(&r, &options));
    rig_run(&r, 2);
    rig_agent_joins(&r, 1);
    rig_agent_joins(&r, 2);
    for (int i = 0; i < 60 && rig_look(&r).state != TM_JOB_FINISHED; i++)
        rig_pass(&r, 500, true);
    assert_int_equal(rig_look(&r).state, TM_JOB_FINISHED);
    rig_agent_joins(&r, 3);
    r.fakes[3].here = true; /* but has not said anything */
    r.fakes[3].incarnation = 77;
    assert_false(ends_at_once(&r, 1));
    assert_false(ends_at_once(&r, 2));
    assert_int_equal(rig_look(&r).agents_untold, 1);
    assert_true(ends_at_once(&r, 3));
    assert_int_equal(rig_look(&r).agents_untold, 0);
    r.fakes[2].incarnation += 1000; /* it died at the end, and was started again */
    assert_true(ends_at_once(&r, 2));
    r.fakes[2].incarnation -= 1000;
    rig_restart(&r, true); /* the record says who trained */
    rig_begin(&r);
    for (uint64_t id = 1; id <= 3; id++)
        rig_agent_joins(&r, id);
    assert_false(ends_at_once(&r, 1));
    assert_true(ends_at_once(&r, 3));
    rig_destroy(&r);
}

/* An engine says that the job itself is wrong: nothing is tried again. */
static void test_the_job_fails(void **state)
{
    (void)state;
    struct coord_rig r;
    Tmw__RecordEvent *event = NULL;
    setup(&r);
    rig_run(&r, 2);
    rig_pass(&r, 1000, true);
    Tmw__Heartbeat body = TMW__HEARTBEAT__INIT;
    char failure[] = "the loss is not a number";
    body.sequence = 500;
    body.generation = r.fakes[1].generation;
    body.phase = TM_WORKER_RUNNING;
    body.applied = r.fakes[1].applied;
    body.failure = failure;
    rig_clear(&r);
    RIG_TELL(&r, rig_worker(&r, 1), HEARTBEAT, heartbeat, &body);
    assert_true(rig_recorded(&r, ENTRY(FAILED), 0, &event) >= 0);
    assert_string_equal(event->failed->reason, failure);
    assert_int_equal(rig_look(&r).state, TM_JOB_FAILED);
    assert_true(mailbox_find_to(&r.box, KIND(STOP), 2) != NULL);
    assert_true(mailbox_find_to(&r.box, KIND(STOP), 2)->stop->failed);
    rig_restart(&r, true);
    rig_begin(&r);
    assert_int_equal(rig_look(&r).state, TM_JOB_FAILED);
    rig_destroy(&r);
}

static void test_moves_between_phases(void **state)
{
    (void)state;
    static const struct {
        enum tm_coordinator_phase from;
        enum tm_coordinator_phase to;
        bool may;
    } rows[] = {
        {TM_COORDINATOR_COLLECTING, TM_COORDINATOR_ASSIGNED, true},
        {TM_COORDINATOR_COLLECTING, TM_COORDINATOR_RUNNING, false}, /* nobody has its layers yet */
        {TM_COORDINATOR_ASSIGNED, TM_COORDINATOR_RUNNING, true},
        {TM_COORDINATOR_ASSIGNED, TM_COORDINATOR_DRAINING, false},
        {TM_COORDINATOR_RUNNING, TM_COORDINATOR_ASSIGNED, false}, /* not without a fence */
        {TM_COORDINATOR_DRAINING, TM_COORDINATOR_RUNNING, false},
        {TM_COORDINATOR_DRAINING, TM_COORDINATOR_FINISHED, false},
        {TM_COORDINATOR_STOPPING, TM_COORDINATOR_RUNNING, true},
        {TM_COORDINATOR_REBUILDING, TM_COORDINATOR_RUNNING, false},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_coord__may_enter(true, rows[i].from, rows[i].to) == rows[i].may, "%s to %s",
                   tm_coordinator_phase_name(rows[i].from), tm_coordinator_phase_name(rows[i].to));
    static const enum tm_coordinator_phase ends[] = {TM_COORDINATOR_STOPPED, TM_COORDINATOR_FINISHED,
                                                     TM_COORDINATOR_FAILED};
    for (size_t i = 0; i < TM_COUNT(ends); i++)
        for (int to = TM_COORDINATOR_REBUILDING; to <= TM_COORDINATOR_FAILED; to++)
            assert_row(!tm_coord__may_enter(true, ends[i], (enum tm_coordinator_phase)to), "%s to %s",
                       tm_coordinator_phase_name(ends[i]), tm_coordinator_phase_name((enum tm_coordinator_phase)to));
    assert_true(tm_coord__may_enter(false, TM_COORDINATOR_COLLECTING, TM_COORDINATOR_FINISHED));
    assert_false(tm_coord__may_enter(false, TM_COORDINATOR_COLLECTING, TM_COORDINATOR_DRAINING));
}

TM_TEST_MAIN(TM_TEST(test_moves_between_phases), TM_TEST(test_refuses_by_token), TM_TEST(test_challenge),
             TM_TEST(test_strangers), TM_TEST(test_old_incarnations), TM_TEST(test_one_that_died_unheard),
             TM_TEST(test_a_fence_is_recorded_first), TM_TEST(test_a_layout_is_recorded_before_it_starts),
             TM_TEST(test_resolve), TM_TEST(test_nobody_applied_it), TM_TEST(test_only_missing_layers_move),
             TM_TEST(test_lease_runs_out), TM_TEST(test_orphans_are_waited_for),
             TM_TEST(test_the_dead_are_not_waited_for), TM_TEST(test_under_the_minimum), TM_TEST(test_drain),
             TM_TEST(test_drain_limit), TM_TEST(test_notice_and_false_alarm), TM_TEST(test_a_worker_hangs),
             TM_TEST(test_a_restart_resumes), TM_TEST(test_a_restart_in_a_change),
             TM_TEST(test_a_lost_record_is_rebuilt), TM_TEST(test_outnumbered), TM_TEST(test_the_end),
             TM_TEST(test_the_end_of_those_who_did_not_join), TM_TEST(test_the_job_fails))
