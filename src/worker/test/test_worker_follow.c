/* Following: one that serves versions and gradients, and one that takes them. */
#include "worker/test/worker_rig.h"

#include "worker/worker_internal.h"

#define KIND(name) TMW__ENVELOPE__BODY_##name

static void request(struct rig *r, uint64_t from, uint32_t layer, uint64_t step, uint64_t offset)
{
    Tmw__FollowRequest body = TMW__FOLLOW_REQUEST__INIT;
    body.generation = 3;
    body.number = 8;
    body.layer = layer;
    body.step = step;
    body.offset = offset;
    RIG_TELL(r, rig_peer(from), FOLLOW_REQUEST, follow_request, &body);
}

static const Tmw__FollowData *answered(struct rig *r)
{
    size_t count = mailbox_count(&r->box, KIND(FOLLOW_DATA));
    return count == 0 ? NULL : mailbox_find(&r->box, KIND(FOLLOW_DATA), count - 1)->follow_data;
}

/* The coordinator says who may ask. */
static void let_follow(struct rig *r, uint64_t id)
{
    Tmw__Follow body = TMW__FOLLOW__INIT;
    Tmw__Member follower = TMW__MEMBER__INIT;
    Tmw__Member *followers[] = {&follower};
    char address[] = "127.0.0.1:7";
    follower.id = id;
    follower.incarnation = rig_peer(id).incarnation;
    follower.address = address;
    body.generation = 3;
    body.number = 4;
    body.followers = followers;
    body.n_followers = 1;
    RIG_TELL(r, rig_coordinator(), FOLLOW, follow, &body);
}

static void setup(struct rig *r)
{
    assert_true(rig_create(r));
    rig_run(r, 3);
    for (uint64_t step = 1; step <= 2; step++) {
        rig_step(r, 3, step);
        for (uint32_t l = 0; l < 2; l++)
            rig_state(l, step, r->engine.bytes[l]);
    }
    let_follow(r, 7);
    mailbox_clear(&r->box);
}

/* ---- serving ---- */

/* Layers are given to those whom the coordinator has named, and to the very process. */
static void test_strangers(void **state)
{
    (void)state;
    struct rig r;
    struct tm_peer other_process = rig_peer(7);
    Tmw__FollowRequest body = TMW__FOLLOW_REQUEST__INIT;
    setup(&r);
    request(&r, 8, 1, 0, 0);
    body.generation = 3;
    body.number = 8;
    body.layer = 1;
    other_process.incarnation++;
    RIG_TELL(&r, other_process, FOLLOW_REQUEST, follow_request, &body);
    assert_int_equal(r.box.out.count, 0);
    request(&r, 7, 1, 0, 0);
    assert_non_null(answered(&r));
    rig_destroy(&r);
}

static void test_version_and_gradients(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    uint8_t got[RIG_BYTES] = {0};
    for (uint64_t offset = 0; offset < RIG_BYTES; offset += RIG_CHUNK) {
        request(&r, 7, 1, 0, offset);
        const Tmw__FollowData *data = answered(&r);
        assert_non_null(data);
        assert_int_equal(data->step, 2);
        assert_int_equal(data->total, RIG_BYTES);
        memcpy(got + offset, data->data.data, data->data.len);
        if (offset == 0) rig_step(&r, 3, 3); /* it trains on, the version stays */
        for (uint32_t l = 0; l < 2; l++)
            rig_state(l, 3, r.engine.bytes[l]);
        struct tm_hash hash = {.low = data->hash_low, .high = data->hash_high};
        assert_true(tm_hash_equal(hash, rig_hash(1, 2)));
        mailbox_clear(&r.box);
    }
    uint8_t expected[RIG_BYTES];
    rig_state(1, 2, expected);
    assert_memory_equal(got, expected, sizeof got);
    request(&r, 7, 1, 3, 0); /* the gradients of the step since */
    assert_int_equal(answered(&r)->data.data[0], 3 + 1);
    assert_true(answered(&r)->gradient);
    mailbox_clear(&r.box);
    request(&r, 7, 1, 4, 0); /* still to come ... */
    assert_null(answered(&r));
    rig_step(&r, 3, 4);
    assert_int_equal(answered(&r)->step, 4); /* ... and told when they are there */
    mailbox_clear(&r.box);
    request(&r, 7, 1, 2, 0); /* of before the version */
    assert_true(answered(&r)->gone);
    rig_destroy(&r);
}

static void test_not_served(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    request(&r, 7, 3, 0, 0); /* not our layer */
    request(&r, 7, 1, 0, 4000);
    assert_null(answered(&r));
    request(&r, 7, 0, 3, 0); /* nobody asked for a version of it */
    assert_true(answered(&r)->gone);
    mailbox_clear(&r.box);
    request(&r, 7, 1, 0, 0);
    assert_non_null(answered(&r));
    for (int i = 0; i < 40; i++) { /* nobody asks any more */
        rig_tick(&r, 400);
        rig_ack(&r, 3, 0);
    }
    mailbox_clear(&r.box);
    request(&r, 7, 1, 3, 0);
    assert_true(answered(&r)->gone);
    Tmw__FollowRequest old = TMW__FOLLOW_REQUEST__INIT;
    old.generation = 2;
    mailbox_clear(&r.box);
    RIG_TELL(&r, rig_peer(7), FOLLOW_REQUEST, follow_request, &old);
    assert_null(answered(&r));
    rig_destroy(&r);
}

/* What is kept grows with what is trained, not with the memory for others' copies; what the follower has had goes. */
static void test_kept_within_bounds(void **state)
{
    (void)state;
    struct rig r;
    assert_true(rig_create(&r));
    r.worker->options.copy_bytes_max = 1;
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    let_follow(&r, 7);
    request(&r, 7, 1, 0, 0);
    assert_non_null(answered(&r));
    rig_step(&r, 3, 2);
    rig_step(&r, 3, 3);
    uint64_t before = r.worker->serving.bytes;
    assert_true(before > RIG_BYTES);
    request(&r, 7, 1, 3, 0);
    assert_int_equal(answered(&r)->step, 3);
    assert_true(r.worker->serving.bytes < before);
    mailbox_clear(&r.box);
    request(&r, 7, 1, 2, 0); /* it says that it has applied that */
    assert_true(answered(&r)->gone);
    for (uint64_t step = 4; step < 400; step++) /* nobody asks: beyond the bound all of it goes */
        rig_step(&r, 3, step);
    assert_int_equal(r.worker->serving.bytes, 0);
    rig_destroy(&r);
}

/* ---- following ---- */

static void follow(struct rig *r, uint64_t number)
{
    Tmw__Follow body = TMW__FOLLOW__INIT;
    Tmw__FollowTask task = TMW__FOLLOW_TASK__INIT;
    Tmw__FollowTask *tasks[] = {&task};
    Tmw__Member peer = TMW__MEMBER__INIT;
    Tmw__Member *peers[] = {&peer};
    char address[] = "127.0.0.1:7";
    task.layer = 3;
    task.source = 2;
    peer.id = 2;
    peer.incarnation = 102;
    peer.address = address;
    body.generation = 3;
    body.number = number;
    body.tasks = tasks;
    body.n_tasks = 1;
    body.peers = peers;
    body.n_peers = 1;
    RIG_TELL(r, rig_coordinator(), FOLLOW, follow, &body);
}

static void give(struct rig *r, uint64_t step, bool gradient, uint64_t offset, bool wrong)
{
    Tmw__FollowData body = TMW__FOLLOW_DATA__INIT;
    uint8_t version[RIG_BYTES];
    uint8_t gradients[RIG_GRADIENT];
    struct tm_hash hash = rig_hash(3, step);
    rig_state(3, step, version);
    memset(gradients, (int)step + 3, sizeof gradients);
    if (wrong) version[5] ^= 1;
    uint64_t total = gradient ? sizeof gradients : sizeof version;
    body.generation = 3;
    body.number = 8;
    body.layer = 3;
    body.step = step;
    body.gradient = gradient;
    body.offset = offset;
    body.total = total;
    body.hash_low = hash.low;
    body.hash_high = hash.high;
    body.data.data = (gradient ? gradients : version) + offset;
    body.data.len = total - offset < RIG_CHUNK ? total - offset : RIG_CHUNK;
    RIG_TELL(r, rig_peer(2), FOLLOW_DATA, follow_data, &body);
}

static const Tmw__FollowRequest *asked(struct rig *r)
{
    size_t count = mailbox_count(&r->box, KIND(FOLLOW_REQUEST));
    return count == 0 ? NULL : mailbox_find(&r->box, KIND(FOLLOW_REQUEST), count - 1)->follow_request;
}

static uint64_t told_step(struct rig *r)
{
    mailbox_clear(&r->box);
    rig_tick(r, 900);
    const tm_message *heartbeat = mailbox_find(&r->box, KIND(HEARTBEAT), 0);
    assert_non_null(heartbeat);
    rig_ack(r, 3, 0);
    return heartbeat->heartbeat->follow_step;
}

static void follower(struct rig *r)
{
    assert_true(rig_create(r));
    rig_join(r);
    rig_fence(r, 3);
    rig_ack(r, 3, 0);
    mailbox_clear(&r->box);
    follow(r, 8);
}

static void test_follows(void **state)
{
    (void)state;
    struct rig r;
    follower(&r);
    assert_int_equal(asked(&r)->step, 0);
    assert_int_equal(mailbox_to(&r.box, KIND(FOLLOW_REQUEST), 0).id, 2);
    assert_string_equal(tm_worker__address(r.worker, 2), "127.0.0.1:7");
    for (uint64_t offset = 0; offset < RIG_BYTES; offset += RIG_CHUNK) {
        give(&r, 5, false, offset, false);
        give(&r, 5, false, offset, false); /* twice */
    }
    assert_int_equal(asked(&r)->step, 6);
    assert_int_equal(told_step(&r), 5);
    give(&r, 6, true, 0, false);
    assert_int_equal(asked(&r)->offset, RIG_CHUNK);
    give(&r, 6, true, RIG_CHUNK, false);
    assert_int_equal(asked(&r)->step, 7);
    give(&r, 6, true, 0, false); /* old */
    assert_int_equal(told_step(&r), 6);
    follow(&r, 8); /* the same order again changes nothing */
    assert_int_equal(told_step(&r), 6);
    rig_fence(&r, 4);
    const Tmw__Report *report = mailbox_find(&r.box, KIND(REPORT), 0)->report;
    assert_int_equal(report->n_layers, 0);
    assert_int_equal(report->n_followed, 1);
    struct tm_hash hash = {.low = report->followed[0]->hash_low, .high = report->followed[0]->hash_high};
    assert_true(report->followed[0]->step == 6 && tm_hash_equal(hash, rig_hash(3, 6)));
    rig_destroy(&r);
}

static void test_wrong_version(void **state)
{
    (void)state;
    struct rig r;
    follower(&r);
    for (uint64_t offset = 0; offset < RIG_BYTES; offset += RIG_CHUNK)
        give(&r, 5, false, offset, true);
    assert_int_equal(told_step(&r), 0);
    assert_int_equal(asked(&r)->offset, 0); /* again from the beginning */
    give(&r, 5, false, 0, false);
    give(&r, 6, false, RIG_CHUNK, false); /* another version meanwhile */
    assert_int_equal(asked(&r)->offset, 0);
    for (uint64_t offset = 0; offset < RIG_BYTES; offset += RIG_CHUNK)
        give(&r, 6, false, offset, false);
    assert_int_equal(told_step(&r), 6);
    Tmw__FollowData gone = TMW__FOLLOW_DATA__INIT;
    gone.generation = 3;
    gone.number = 8;
    gone.layer = 3;
    gone.step = 7;
    gone.gone = true;
    RIG_TELL(&r, rig_peer(2), FOLLOW_DATA, follow_data, &gone);
    assert_int_equal(told_step(&r), 0); /* it begins again */
    rig_destroy(&r);
}

/* Both sides with each allocation failing in turn: it goes on, or says that it must be destroyed. */
static int life(void)
{
    struct rig r;
    if (!rig_create(&r)) {
        rig_destroy(&r);
        return -(int)TM_ENOMEM;
    }
    rig_tick(&r, 0);
    rig_challenge(&r, 77);
    rig_welcome(&r, 77);
    rig_fence(&r, 3);
    follow(&r, 8);
    for (uint64_t offset = 0; offset < RIG_BYTES; offset += RIG_CHUNK)
        give(&r, 5, false, offset, false);
    give(&r, 6, true, 0, false);
    give(&r, 6, true, RIG_CHUNK, false);
    int rc = r.failed != 0 ? -(int)TM_ENOMEM : 0;
    rig_destroy(&r);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = life());
}

TM_TEST_MAIN(TM_TEST(test_strangers), TM_TEST(test_version_and_gradients), TM_TEST(test_not_served),
             TM_TEST(test_kept_within_bounds), TM_TEST(test_follows), TM_TEST(test_wrong_version), TM_TEST(test_memory))
