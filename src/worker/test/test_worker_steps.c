/* The worker alone, message by message: joining, the lease, fences, the step in doubt, flags. */
#include "wire/proof.h"
#include "worker/test/worker_rig.h"

#define KIND(name) TMW__ENVELOPE__BODY_##name

static void setup(struct rig *r)
{
    assert_true(rig_create(r));
}

/* ---- joining ---- */

static void test_joins(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_tick(&r, 0);
    const tm_message *hello = mailbox_find(&r.box, KIND(HELLO), 0);
    assert_non_null(hello);
    assert_int_equal(hello->hello->nonce, 0);
    assert_int_equal(hello->hello->proof.len, 0); /* nobody has challenged it */
    rig_tick(&r, RIG_RESEND_MS - 1);
    assert_int_equal(mailbox_count(&r.box, KIND(HELLO)), 1); /* not before its time */
    rig_tick(&r, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(HELLO)), 2);
    rig_welcome(&r, 5); /* nobody challenged us with this */
    assert_false(rig_look(&r).registered);
    rig_challenge(&r, 77);
    const Tmw__Hello *answer = mailbox_find(&r.box, KIND(HELLO), 2)->hello; /* at once */
    uint8_t right[TM_PROOF_BYTES];
    struct tm_peer self = tm_message_sender(mailbox_find(&r.box, KIND(HELLO), 2));
    assert_int_equal(answer->nonce, 77);
    assert_true(tm_proof_of_hello("the token", hello->job, &self, 77, right));
    assert_int_equal(answer->proof.len, sizeof right);
    assert_memory_equal(answer->proof.data, right, sizeof right);
    for (size_t i = 0; i < r.box.out.count; i++) /* the token itself is nowhere */
        assert_null(memmem(tm_outbox_data(&r.box.out, &r.box.out.actions[i]), r.box.out.actions[i].length, "the token",
                           strlen("the token")));
    rig_welcome(&r, 76);
    assert_false(rig_look(&r).registered);
    rig_welcome(&r, 77);
    assert_true(rig_look(&r).registered);
    assert_int_equal(mailbox_count(&r.box, KIND(HEARTBEAT)), 1); /* the lease begins now */
    assert_false(rig_look(&r).may_serve);                        /* but counts from an answer */
    rig_ack(&r, 0, 0);
    assert_true(rig_look(&r).may_serve);
    rig_destroy(&r);
}

static void test_refused(void **state)
{
    (void)state;
    struct rig r;
    Tmw__Refuse body = TMW__REFUSE__INIT;
    char why[] = "wrong token";
    body.reason = why;
    setup(&r);
    rig_tick(&r, 0);
    RIG_TELL(&r, rig_peer(2), REFUSE, refuse, &body); /* a peer has no say */
    assert_int_equal(mailbox_action(&r.box, TM_WORKER_STOP, 0), -1);
    RIG_TELL(&r, rig_coordinator(), REFUSE, refuse, &body);
    int place = mailbox_action(&r.box, TM_WORKER_STOP, 0);
    assert_true(place >= 0);
    assert_int_equal(r.box.out.actions[place].number, 1);
    assert_memory_equal(tm_outbox_data(&r.box.out, &r.box.out.actions[place]), why, sizeof why - 1);
    mailbox_clear(&r.box);
    rig_tick(&r, 10000); /* it is over */
    rig_challenge(&r, 1);
    assert_int_equal(r.box.out.count, 0);
    rig_destroy(&r);
}

/* What is not for us, or from one who may not say it, changes nothing. */
static void test_not_for_us(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    mailbox_clear(&r.box);
    Tmw__Fence fence = TMW__FENCE__INIT;
    Tmw__Stop stop = TMW__STOP__INIT;
    fence.generation = 9;
    struct tm_peer old = {.role = TM_ROLE_COORDINATOR, .incarnation = RIG_COORDINATOR - 1};
    RIG_TELL(&r, old, FENCE, fence, &fence);
    RIG_TELL(&r, rig_peer(2), FENCE, fence, &fence);
    RIG_TELL(&r, rig_peer(2), STOP, stop, &stop);
    struct tm_peer from = rig_coordinator();
    struct tm_peer before = {.role = TM_ROLE_WORKER, .id = 1, .incarnation = RIG_SELF - 1};
    tm_message message = tm_message_make(RIG_JOB, &from, &before); /* for the process before us */
    message.body_case = KIND(FENCE);
    message.fence = &fence;
    rig_receive(&r, &message);
    struct tm_peer self = rig_peer(1);
    message = tm_message_make(RIG_JOB + 1, &from, &self); /* of another job */
    message.body_case = KIND(FENCE);
    message.fence = &fence;
    rig_receive(&r, &message);
    assert_int_equal(r.box.out.count, 0);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_RUNNING);
    assert_int_equal(rig_look(&r).generation, 3);
    rig_destroy(&r);
}

static void test_job_is_stopped(void **state)
{
    (void)state;
    struct rig r;
    Tmw__Stop body = TMW__STOP__INIT;
    setup(&r);
    rig_run(&r, 3);
    RIG_TELL(&r, rig_coordinator(), STOP, stop, &body);
    int place = mailbox_action(&r.box, TM_WORKER_STOP, 0);
    assert_true(place >= 0 && r.box.out.actions[place].number == 0);
    assert_int_equal(r.engine.cancels, 1);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_STOPPED);
    rig_destroy(&r);
}

/* ---- the lease and the orphan time ---- */

static void ask_for_layer(struct rig *r, uint64_t generation, uint64_t step)
{
    Tmw__FetchRequest body = TMW__FETCH_REQUEST__INIT;
    struct tm_hash hash = rig_hash(0, step);
    body.generation = generation;
    body.step = step;
    body.hash_low = hash.low;
    body.hash_high = hash.high;
    body.length = RIG_CHUNK;
    RIG_TELL(r, rig_peer(2), FETCH_REQUEST, fetch_request, &body);
}

/* A worker whose lease has ended serves nothing: it may not know that it was replaced. */
static void test_lease_end_means_no_serving(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    rig_contact(&r, 3);
    int64_t sent_ms = r.now_ms; /* the lease counts from when the answered heartbeat was sent */
    rig_fence(&r, 4);
    r.now_ms = sent_ms + RIG_LEASE_MS - 1;
    ask_for_layer(&r, 4, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_DATA)), 1);
    r.now_ms = sent_ms + RIG_LEASE_MS;
    ask_for_layer(&r, 4, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_DATA)), 1);
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_REFUSED)), 0); /* not a word */
    assert_false(rig_look(&r).may_serve);
    rig_destroy(&r);
}

/* Without word from the coordinator: a step may be applied until the orphan time ends, none after it; with word again,
 * it goes on. */
static void test_orphan_time(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    int64_t contact_ms = 1000; /* the first heartbeat was sent then */
    r.now_ms = contact_ms + RIG_ORPHAN_MS - 1;
    rig_step(&r, 3, 1);
    assert_int_equal(r.engine.apply_step, 1);
    assert_int_equal(r.engine.begun, 2);
    size_t told = mailbox_count(&r.box, KIND(PREPARED));
    r.now_ms = contact_ms + RIG_ORPHAN_MS;
    rig_held(&r, 2);
    rig_prepared(&r, rig_peer(2), 3, 2, false);
    rig_tick(&r, 800);
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), told); /* our flag would let others go on */
    assert_int_equal(r.engine.applies, 1);
    /* It has asked to join again meanwhile; the coordinator is back. */
    for (int i = 0; i < 8; i++)
        rig_tick(&r, 800);
    assert_false(rig_look(&r).registered);
    rig_challenge(&r, 78);
    rig_welcome(&r, 78);
    rig_ack(&r, 0, 0); /* one that lost its record does not know whether another generation runs by now */
    rig_tick(&r, 800);
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), told);
    assert_int_equal(r.engine.applies, 1);
    rig_ack(&r, 3, 0);
    assert_int_equal(r.engine.applies, 2);
    assert_int_equal(r.engine.apply_step, 2);
    rig_destroy(&r);
}

/* A coordinator that lost its record keeps those going whose time is not over. */
static void test_rebuilding_keeps_going(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    r.now_ms = 1000 + RIG_ORPHAN_MS - 1000;
    rig_contact(&r, 0);
    r.now_ms += RIG_ORPHAN_MS - 1000;
    rig_step(&r, 3, 1);
    assert_int_equal(r.engine.applies, 1);
    rig_destroy(&r);
}

/* The answer to a heartbeat lets a worker go on: so it carries the generation, and fences one that missed a fence. */
static void test_an_answer_fences(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_contact(&r, 4);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_FENCED);
    assert_int_equal(rig_look(&r).generation, 4);
    assert_int_equal(r.engine.cancels, 1);
    rig_destroy(&r);
}

/* An answer to an old heartbeat is no contact. */
static void test_old_answers(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_contact(&r, 3);
    int64_t sent_ms = r.now_ms;
    Tmw__HeartbeatAck body = TMW__HEARTBEAT_ACK__INIT;
    body.sequence = 1;
    body.keep_all = true;
    body.generation = 3;
    body.drain_step = 7;
    r.now_ms += 3000;
    RIG_TELL(&r, rig_coordinator(), HEARTBEAT_ACK, heartbeat_ack, &body); /* doubled on its way */
    body.sequence = 1000;                                                 /* never sent */
    RIG_TELL(&r, rig_coordinator(), HEARTBEAT_ACK, heartbeat_ack, &body);
    r.now_ms = sent_ms + RIG_LEASE_MS;
    assert_false(rig_look(&r).may_serve);
    rig_step(&r, 3, 1);
    assert_int_equal(r.engine.begun, 2); /* and its drain step is not ours */
    rig_destroy(&r);
}

static void test_silent_coordinator(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    for (int i = 0; i < 7; i++)
        rig_tick(&r, 800);
    assert_false(rig_look(&r).registered); /* it joins again, ... */
    size_t hellos = mailbox_count(&r.box, KIND(HELLO));
    rig_tick(&r, RIG_RESEND_MS);
    assert_true(mailbox_count(&r.box, KIND(HELLO)) > hellos);
    rig_step(&r, 3, 1); /* ... and trains on */
    assert_int_equal(r.engine.begun, 2);
    struct tm_peer next = {.role = TM_ROLE_COORDINATOR, .incarnation = RIG_COORDINATOR + 1};
    Tmw__Challenge body = TMW__CHALLENGE__INIT;
    body.nonce = 91;
    RIG_TELL(&r, next, CHALLENGE, challenge, &body);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_RUNNING); /* a restarted coordinator resumes the generation */
    assert_int_equal(rig_look(&r).applied, 1);
    rig_destroy(&r);
}

/* Another coordinator that says "go on" must not have heard that we stand still by the order of the one before. */
static void test_drain_of_another(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_tick(&r, 800);
    rig_ack(&r, 3, 1);
    rig_step(&r, 3, 1);
    mailbox_clear(&r.box);
    rig_tick(&r, 800);
    assert_int_equal(mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat->drain_step, 1);
    for (int i = 0; i < 7; i++)
        rig_tick(&r, 800);
    rig_challenge(&r, 91);
    mailbox_clear(&r.box);
    rig_welcome(&r, 91);
    assert_int_equal(mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat->drain_step, 0);
    assert_int_equal(r.engine.begun, 1); /* and stands still */
    rig_ack(&r, 3, 1);
    mailbox_clear(&r.box);
    rig_tick(&r, 800);
    assert_int_equal(mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat->drain_step, 1);
    rig_ack(&r, 3, 0);
    assert_int_equal(r.engine.begun, 2);
    rig_destroy(&r);
}

/* ---- generations ---- */

static void test_fence(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    rig_step(&r, 3, 2);
    mailbox_clear(&r.box);
    rig_fence(&r, 2); /* old */
    assert_int_equal(rig_look(&r).phase, TM_WORKER_RUNNING);
    assert_int_equal(r.box.out.count, 0);
    rig_fence(&r, 5);
    assert_int_equal(r.engine.cancels, 1);
    const Tmw__Report *report = mailbox_find(&r.box, KIND(REPORT), 0)->report;
    assert_int_equal(report->generation, 5);
    assert_int_equal(report->applied, 2);
    assert_int_equal(report->held, 0);
    assert_true(report->norm_known);
    assert_true(report->norm == 3.75); /* 1 + 2 + 0.25 + 0.5 */
    assert_int_equal(report->assigned, 3);
    assert_int_equal(report->n_layers, 2);
    for (size_t i = 0; i < 2; i++) {
        struct tm_hash hash = rig_hash((uint32_t)i, 2);
        assert_int_equal(report->layers[i]->layer, i);
        assert_int_equal(report->layers[i]->step, 2);
        assert_true(report->layers[i]->hash_low == hash.low && report->layers[i]->hash_high == hash.high);
    }
    rig_fence(&r, 5); /* asked again: answered again */
    assert_int_equal(mailbox_count(&r.box, KIND(REPORT)), 2);
    /* Nothing of the old generation is obeyed any more. */
    rig_held(&r, 3);
    rig_prepared(&r, rig_peer(2), 3, 3, false);
    rig_start(&r, 3);
    rig_assign_initial(&r, 3);
    assert_int_equal(r.engine.applies, 2);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_FENCED);
    rig_destroy(&r);
}

static void test_assign_and_start(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_join(&r);
    rig_assign_initial(&r, 3); /* before the fence: not obeyed */
    assert_int_equal(r.engine.inits, 0);
    rig_fence(&r, 3);
    rig_start(&r, 3); /* before the assignment */
    assert_int_equal(rig_look(&r).phase, TM_WORKER_FENCED);
    rig_assign_initial(&r, 3);
    assert_int_equal(r.engine.inits, 2);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_READY);
    assert_int_equal(mailbox_count(&r.box, KIND(READY)), 1);
    assert_int_equal(r.engine.begins, 0); /* nobody trains before all are ready */
    rig_assign_initial(&r, 3);            /* the answer was lost */
    assert_int_equal(mailbox_count(&r.box, KIND(READY)), 2);
    assert_int_equal(r.engine.inits, 2);
    rig_start(&r, 3);
    assert_int_equal(r.engine.begun, 1);
    rig_start(&r, 3); /* twice */
    assert_int_equal(r.engine.begins, 1);
    rig_destroy(&r);
}

/* A layer that is not ours in the new generation goes when it starts, and not before: it may have to be served. */
static void test_layers_go_at_the_start(void **state)
{
    (void)state;
    struct rig r;
    uint64_t step = 0;
    setup(&r);
    rig_join(&r);
    rig_fence(&r, 3);
    Tmw__Fetch fetches[3] = {TMW__FETCH__INIT, TMW__FETCH__INIT, TMW__FETCH__INIT};
    Tmw__Fetch *list[3] = {&fetches[0], &fetches[1], &fetches[2]};
    for (uint32_t i = 0; i < 3; i++) {
        fetches[i].layer = 2 - i; /* 2 is not ours */
        fetches[i].initial = true;
    }
    rig_assign(&r, 3, 0, list, 3);
    assert_true(tm_worker_holds(r.worker, 2, &step));
    rig_start(&r, 3);
    assert_false(tm_worker_holds(r.worker, 2, &step));
    assert_int_equal(r.engine.drops, 1);
    rig_destroy(&r);
}

/* ---- steps ---- */

static void test_flags(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_held(&r, 1);
    const tm_message *told = mailbox_find(&r.box, KIND(PREPARED), 0);
    assert_int_equal(mailbox_to(&r.box, KIND(PREPARED), 0).id, 2);
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), 1); /* the spare has no say */
    assert_int_equal(told->prepared->n_norms, 2);
    assert_int_equal(r.engine.applies, 0);
    struct tm_peer old = rig_peer(2);
    old.incarnation--;
    rig_prepared(&r, rig_peer(2), 2, 1, false); /* of an older generation */
    rig_prepared(&r, old, 3, 1, false);         /* of the process before it */
    rig_prepared(&r, rig_peer(3), 3, 1, false); /* of a spare */
    rig_prepared(&r, rig_peer(4), 3, 1, false); /* of one who is no member */
    rig_prepared(&r, rig_peer(2), 3, 3, false); /* of a step that cannot be yet */
    assert_int_equal(r.engine.applies, 0);
    rig_prepared(&r, rig_peer(2), 3, 1, false);
    assert_int_equal(r.engine.applies, 1);
    assert_int_equal(r.engine.apply_step, 1);
    assert_true(r.engine.apply_norm == 3.75);
    rig_prepared(&r, rig_peer(2), 3, 1, false); /* doubled on its way */
    assert_int_equal(r.engine.applies, 1);
    assert_int_equal(rig_look(&r).applied, 0); /* the engine has not said that it is done */
    rig_applied(&r, 2);                        /* of another step */
    assert_int_equal(rig_look(&r).applied, 0);
    rig_applied(&r, 1);
    assert_int_equal(rig_look(&r).applied, 1);
    assert_int_equal(r.engine.begun, 2);
    rig_destroy(&r);
}

/* In a tree: we are its root, and the other one is below us. */
static void test_flags_in_a_tree(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    r.vote_fan = 2;
    rig_run(&r, 3);
    rig_held(&r, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), 0); /* there is nobody above */
    Tmw__Prepared all = TMW__PREPARED__INIT;
    all.generation = 3;
    all.step = 1;
    all.all = true;
    all.norm = 1000;
    RIG_TELL(&r, rig_peer(2), PREPARED, prepared, &all); /* that is not for one below to say */
    assert_int_equal(r.engine.applies, 0);
    rig_prepared(&r, rig_peer(2), 3, 1, false);
    assert_int_equal(r.engine.applies, 1);
    assert_true(r.engine.apply_norm == 3.75);
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), 1);
    const tm_message *told = mailbox_find(&r.box, KIND(PREPARED), 0);
    assert_int_equal(mailbox_to(&r.box, KIND(PREPARED), 0).id, 2);
    assert_true(told->prepared->all && told->prepared->norm == 3.75 && told->prepared->step == 1);
    rig_prepared(&r, rig_peer(2), 3, 1, false); /* it was lost on its way, so it asks again: while we apply ... */
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), 2);
    rig_applied(&r, 1);
    rig_prepared(&r, rig_peer(2), 3, 1, false); /* ... and after that */
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), 3);
    assert_int_equal(r.engine.applies, 1);
    rig_destroy(&r);
}

/* A peer may be a step ahead: its flag waits for us, and is not taken for the step before it. */
static void test_a_flag_that_is_early(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_prepared(&r, rig_peer(2), 3, 2, false); /* it has applied 1 already: so it had our flag of it */
    rig_held(&r, 1);
    assert_int_equal(r.engine.applies, 0);
    rig_prepared(&r, rig_peer(2), 3, 1, false);
    rig_applied(&r, 1);
    rig_held(&r, 2);
    assert_int_equal(r.engine.apply_step, 2);
    rig_destroy(&r);
}

/* One that is behind may lack our flag: it gets it again, once for each time it asks. */
static void test_one_behind_is_answered(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    mailbox_clear(&r.box);
    rig_prepared(&r, rig_peer(2), 3, 1, false);
    const tm_message *answer = mailbox_find(&r.box, KIND(PREPARED), 0);
    assert_non_null(answer);
    assert_true(answer->prepared->answer);
    assert_int_equal(answer->prepared->step, 1);
    rig_prepared(&r, rig_peer(2), 3, 1, true); /* answers are not answered: two would do so for ever */
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), 1);
    rig_destroy(&r);
}

static void test_flags_are_said_again(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_held(&r, 1);
    rig_tick(&r, RIG_RESEND_MS - 1);
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), 1);
    rig_tick(&r, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(PREPARED)), 2);
    rig_destroy(&r);
}

static void resolve(struct rig *r, uint64_t generation, uint64_t step)
{
    Tmw__Resolve body = TMW__RESOLVE__INIT;
    body.generation = generation;
    body.step = step;
    body.norm = 8.5;
    RIG_TELL(r, rig_coordinator(), RESOLVE, resolve, &body);
}

/* Held but not applied when the fence came: told that others applied it, it applies it with their norm. */
static void test_step_in_doubt(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    rig_held(&r, 2);
    rig_fence(&r, 4);
    const Tmw__Report *report = mailbox_find(&r.box, KIND(REPORT), 0)->report;
    if (report->generation != 4) report = mailbox_find(&r.box, KIND(REPORT), 1)->report;
    assert_int_equal(report->applied, 1);
    assert_int_equal(report->held, 2);
    assert_int_equal(r.engine.cancels, 0); /* what is held is not given up */
    mailbox_clear(&r.box);
    resolve(&r, 3, 2); /* of an older generation */
    assert_int_equal(r.engine.applies, 1);
    resolve(&r, 4, 3); /* another step than we hold: says again where it stands */
    assert_int_equal(r.engine.applies, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(REPORT)), 1);
    resolve(&r, 4, 2);
    assert_int_equal(r.engine.apply_step, 2);
    assert_true(r.engine.apply_norm == 8.5);
    resolve(&r, 4, 2); /* doubled while it is applied */
    rig_fence(&r, 4);
    assert_int_equal(r.engine.applies, 2);
    assert_int_equal(mailbox_count(&r.box, KIND(REPORT)), 1); /* the answer waits until the state stands still */
    rig_applied(&r, 2);
    report = mailbox_find(&r.box, KIND(REPORT), 1)->report;
    assert_int_equal(report->applied, 2);
    assert_int_equal(report->held, 0);
    assert_true(report->norm == 8.5);
    rig_destroy(&r);
}

/* Nobody applied it: it is discarded, and computed again in the next generation. */
static void test_step_discarded(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    rig_held(&r, 2);
    rig_fence(&r, 4);
    rig_assign(&r, 4, 1, NULL, 0);
    assert_int_equal(r.engine.discards, 1);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_READY); /* it has its layers: nothing is fetched */
    rig_start(&r, 4);
    assert_int_equal(r.engine.begun, 2);
    rig_held(&r, 2);
    rig_prepared(&r, rig_peer(2), 3, 2, false); /* a flag of the first try */
    assert_int_equal(r.engine.applies, 1);
    rig_prepared(&r, rig_peer(2), 4, 2, false);
    assert_int_equal(r.engine.applies, 2);
    rig_destroy(&r);
}

/* A fence while a step is being applied: the engine may finish it, the report waits for it. */
static void test_fence_while_applying(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_held(&r, 1);
    rig_prepared(&r, rig_peer(2), 3, 1, false);
    mailbox_clear(&r.box);
    rig_fence(&r, 4);
    assert_int_equal(mailbox_count(&r.box, KIND(REPORT)), 0);
    rig_assign_initial(&r, 4);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_FENCED); /* not before it stands still */
    rig_applied(&r, 1);
    assert_int_equal(mailbox_find(&r.box, KIND(REPORT), 0)->report->applied, 1);
    assert_int_equal(r.engine.begun, 1); /* and no further step */
    rig_destroy(&r);
}

static void test_drain(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_tick(&r, 800);
    rig_ack(&r, 3, 2);
    rig_step(&r, 3, 1);
    assert_int_equal(r.engine.begun, 2);
    rig_step(&r, 3, 2);
    assert_int_equal(r.engine.begins, 2); /* it stops there */
    mailbox_clear(&r.box);
    rig_tick(&r, 1); /* and says so at once */
    const tm_message *beat = mailbox_find(&r.box, KIND(HEARTBEAT), 0);
    assert_non_null(beat);
    assert_int_equal(beat->heartbeat->applied, 2);
    assert_int_equal(beat->heartbeat->working_on, 0);
    rig_ack(&r, 3, 0); /* the plan was given up */
    assert_int_equal(r.engine.begun, 3);
    rig_destroy(&r);
}

static void test_the_last_step(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    for (uint64_t step = 1; step <= RIG_STEPS; step++) {
        rig_step(&r, 3, step);
        if (step % 8 == 0) rig_contact(&r, 3);
    }
    assert_int_equal(r.engine.begins, RIG_STEPS);
    rig_tick(&r, 800);
    assert_int_equal(r.engine.begins, RIG_STEPS);
    assert_int_equal(rig_look(&r).applied, RIG_STEPS);
    rig_destroy(&r);
}

/* Losses travel until they are answered; the failure of the job does, too. */
static void test_losses_and_failure(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_contact(&r, 3);
    tm_worker_loss(r.worker, 1, 2.5);
    tm_worker_loss(r.worker, 2, 2.25);
    for (int i = 0; i < 2; i++) { /* the first is lost on its way */
        mailbox_clear(&r.box);
        rig_tick(&r, 800);
        const Tmw__Heartbeat *beat = mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat;
        assert_int_equal(beat->n_losses, 2);
        assert_true(beat->losses[0]->loss == 2.5 && beat->losses[1]->step == 2);
    }
    rig_ack(&r, 3, 0);
    tm_worker__failed(r.worker, r.now_ms, "the loss is not a number", &r.box.out);
    tm_worker__failed(r.worker, r.now_ms, "a second word", &r.box.out);
    mailbox_clear(&r.box);
    rig_tick(&r, 800);
    const Tmw__Heartbeat *beat = mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat;
    assert_int_equal(beat->n_losses, 1); /* the newest, for a coordinator that starts anew */
    assert_string_equal(beat->failure, "the loss is not a number");
    rig_destroy(&r);
}

static uint64_t told_micro_us(struct rig *r)
{
    mailbox_clear(&r->box);
    rig_tick(r, 800);
    uint64_t micro_us = mailbox_find(&r->box, KIND(HEARTBEAT), 0)->heartbeat->micro_us;
    rig_ack(r, 3, 0);
    return micro_us;
}

/* What a micro-batch takes is told once a few steps agree, the first of a generation aside; one that was slow by
 * accident changes nothing. */
static void test_pace(void **state)
{
    (void)state;
    static const uint64_t times_us[] = {900000, 4000, 4000, 50000, 4002, 4004};
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    for (uint64_t step = 1; step <= TM_COUNT(times_us); step++) {
        assert_int_equal(told_micro_us(&r), 0);
        tm_worker_computed(r.worker, step, times_us[step - 1]);
        rig_step(&r, 3, step);
    }
    assert_int_equal(told_micro_us(&r), 2001); /* two micro-batches a step */
    rig_step(&r, 3, 7);                        /* an engine that says nothing */
    assert_int_equal(told_micro_us(&r), 2001);
    rig_fence(&r, 4);
    assert_int_equal(told_micro_us(&r), 0);
    rig_destroy(&r);
}

TM_TEST_MAIN(TM_TEST(test_pace), TM_TEST(test_joins), TM_TEST(test_refused), TM_TEST(test_not_for_us),
             TM_TEST(test_job_is_stopped), TM_TEST(test_lease_end_means_no_serving), TM_TEST(test_orphan_time),
             TM_TEST(test_rebuilding_keeps_going), TM_TEST(test_an_answer_fences), TM_TEST(test_old_answers),
             TM_TEST(test_silent_coordinator), TM_TEST(test_drain_of_another), TM_TEST(test_fence),
             TM_TEST(test_assign_and_start), TM_TEST(test_layers_go_at_the_start), TM_TEST(test_flags),
             TM_TEST(test_flags_in_a_tree), TM_TEST(test_a_flag_that_is_early), TM_TEST(test_one_behind_is_answered),
             TM_TEST(test_flags_are_said_again), TM_TEST(test_step_in_doubt), TM_TEST(test_step_discarded),
             TM_TEST(test_fence_while_applying), TM_TEST(test_drain), TM_TEST(test_the_last_step),
             TM_TEST(test_losses_and_failure))
