/* The coordinator alone: copy sets. When one is whole, what is kept, what a damaged part does, where a roll-back goes.
 */
#include "run/test/coord_rig.h"

#define KIND(name)  TMW__ENVELOPE__BODY_##name
#define ENTRY(name) TMW__RECORD_EVENT__BODY_##name

/* Trains until there are `sets` whole ones. */
static void until_sets(struct coord_rig *r, uint64_t sets)
{
    r->rule.copy_every_ms = 3000;
    for (int i = 0; i < 200 && rig_look(r).durable_set < sets; i++)
        rig_pass(r, 500, true);
    assert_true(rig_look(r).durable_set >= sets);
}

static void dies(struct coord_rig *r, uint64_t id)
{
    struct tm_peer dead = rig_worker(r, id);
    r->fakes[id].here = false;
    r->fakes[id].copy_count = 0;
    rig_call_begin();
    tm_coordinator_dead(r->coordinator, r->now_ms, &dead, &r->box.out);
    rig_call_end(r);
}

static void setup(struct coord_rig *r, uint64_t workers, bool to_files)
{
    struct tm_coordinator_options options = rig_options;
    options.copies_to_files = to_files;
    assert_true(rig_create(r, &options));
    rig_run(r, workers);
}

/* ---- when it is whole ---- */

static void test_whole_when_every_part_is_there(void **state)
{
    (void)state;
    struct coord_rig r;
    Tmw__RecordEvent *event = NULL;
    setup(&r, 4, true);
    r.rule.copy_every_ms = 1000;
    for (int i = 0; i < 20 && r.fakes[1].set == 0; i++)
        rig_pass(&r, 500, true);
    uint64_t set = r.fakes[1].set;
    assert_true(set != 0);
    bool layers[RIG_LAYERS] = {false};
    bool files[RIG_LAYERS] = {false};
    for (uint64_t id = 1; id <= 4; id++) { /* every layer once, by one that trains it, to a peer, itself, and files */
        struct fake *fake = &r.fakes[id];
        for (size_t i = 0; i < fake->part_count; i++) {
            assert_true(fake->parts[i].layer >= fake->first_layer && fake->parts[i].layer < fake->last_layer);
            layers[fake->parts[i].layer] = true;
            if (fake->parts[i].holder == 0) files[fake->parts[i].layer] = true;
        }
    }
    for (uint32_t l = 0; l < RIG_LAYERS; l++)
        assert_true(layers[l] && files[l]);
    struct fake *last = NULL;
    for (uint64_t id = 1; id <= 4; id++)
        if (r.fakes[id].part_count > 0) last = &r.fakes[id];
    assert_non_null(last);
    size_t all = last->part_count;
    last->part_count = all - 1; /* one part does not get there */
    rig_pass(&r, 4000, true);
    assert_int_equal(rig_look(&r).durable_set, 0);
    last->part_count = all;
    rig_clear(&r);
    rig_heartbeat(&r, (uint64_t)(last - r.fakes));
    int entry = rig_recorded(&r, ENTRY(SET_WHOLE), 0, &event);
    assert_true(entry >= 0);
    assert_int_equal(r.box.out.actions[entry].number, 1); /* synced */
    assert_int_equal(event->set_whole->set, set);
    int manifest = mailbox_action(&r.box, TM_COORDINATOR_MANIFEST, 0);
    assert_true(manifest > entry); /* the same beside the files */
    assert_int_equal(r.box.out.actions[manifest].number, set);
    assert_int_equal(rig_look(&r).durable_set, set);
    assert_int_equal(rig_look(&r).durable_step, r.fakes[1].set_step);
    rig_destroy(&r);
}

/* A source missed the step: the set is given up, its files may go, and another is tried. */
static void test_missed(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 2, true);
    r.rule.copy_every_ms = 1000;
    for (int i = 0; i < 20 && r.fakes[1].set == 0; i++)
        rig_pass(&r, 500, true);
    uint64_t set = r.fakes[1].set;
    Tmw__Heartbeat body = TMW__HEARTBEAT__INIT;
    body.sequence = ++r.fakes[1].sequence;
    body.generation = r.fakes[1].generation;
    body.phase = TM_WORKER_RUNNING;
    body.applied = r.fakes[1].applied;
    body.copied_set = set;
    body.copy_missed = true;
    rig_clear(&r);
    RIG_TELL(&r, rig_worker(&r, 1), HEARTBEAT, heartbeat, &body);
    int drop = mailbox_action(&r.box, TM_COORDINATOR_FILES_DROP, 0);
    assert_true(drop >= 0 && r.box.out.actions[drop].number == set);
    assert_true(mailbox_find(&r.box, KIND(HEARTBEAT_ACK), 0)->heartbeat_ack->copy_closed);
    r.fakes[1].part_count = r.fakes[2].part_count = 0;
    for (int i = 0; i < 40 && r.fakes[1].set == set; i++)
        rig_pass(&r, 500, true);
    assert_true(r.fakes[1].set > set);
    rig_destroy(&r);
}

static void test_given_up_after_a_while(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 2, true);
    r.rule.copy_every_ms = 1000;
    for (int i = 0; i < 20 && r.fakes[1].set == 0; i++)
        rig_pass(&r, 500, true);
    uint64_t set = r.fakes[1].set;
    r.fakes[1].part_count = 0; /* nothing arrives */
    bool dropped = false;
    int64_t since_ms = r.now_ms;
    while (!dropped && r.now_ms < since_ms + 40000) {
        rig_pass(&r, 500, true);
        int drop = mailbox_action(&r.box, TM_COORDINATOR_FILES_DROP, 0);
        dropped = drop >= 0 && r.box.out.actions[drop].number == set;
    }
    assert_true(dropped && r.now_ms - since_ms > 15000);
    assert_int_equal(rig_look(&r).durable_set, 0);
    rig_destroy(&r);
}

/* ---- what is kept ---- */

static bool kept(struct coord_rig *r, uint64_t set)
{
    rig_clear(r);
    rig_heartbeat(r, 1);
    const Tmw__HeartbeatAck *ack = mailbox_find(&r->box, KIND(HEARTBEAT_ACK), 0)->heartbeat_ack;
    for (size_t i = 0; i < ack->n_keep; i++)
        if (ack->keep[i] == set) return true;
    return ack->keep_all != 0;
}

static void test_the_last_two_are_kept(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 4, true);
    until_sets(&r, 2);
    uint64_t second = rig_look(&r).durable_set;
    assert_true(kept(&r, second) && kept(&r, second - 1));
    int entry = -1;
    int drop = -1;
    for (int i = 0; i < 40 && drop < 0; i++) {
        rig_pass(&r, 500, true);
        entry = rig_recorded(&r, ENTRY(SET_BAD), 0, NULL);
        drop = mailbox_action(&r.box, TM_COORDINATOR_FILES_DROP, 0);
    }
    assert_true(entry >= 0 && drop > entry); /* the record knows before the files go */
    assert_int_equal(r.box.out.actions[entry].number, 1);
    assert_true(kept(&r, second) && !kept(&r, second - 1));
    rig_destroy(&r);
}

/* While a new one is made, the old ones stay. */
static void test_the_old_one_stays_until_the_new_is_whole(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 4, true);
    until_sets(&r, 1);
    uint64_t first = rig_look(&r).durable_set;
    for (int i = 0; i < 40 && r.fakes[1].set == first; i++)
        rig_pass(&r, 500, true);
    assert_true(r.fakes[1].set > first);
    assert_true(kept(&r, first));
    assert_true(kept(&r, r.fakes[1].set)); /* and the parts that have come */
    rig_destroy(&r);
}

/* ---- rolling back ---- */

/* Both replicas of stage 1 are lost: the newest set is where it goes on from, and the steps since are counted. */
static void test_rolls_back_to_the_newest_set(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 4, true);
    until_sets(&r, 2);
    uint64_t durable = rig_look(&r).durable_step;
    rig_pass(&r, 1500, true);
    uint64_t applied = r.fakes[1].applied;
    assert_true(applied > durable);
    for (uint64_t id = 1; id <= 4; id++)
        if (r.fakes[id].first_layer > 0) dies(&r, id);
    rig_pass(&r, 500, false);
    rig_arrive(&r, 5);
    rig_pass(&r, 6000, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    assert_int_equal(rig_look(&r).base, durable);
    assert_int_equal(rig_look(&r).steps_rolled_back, applied - durable);
    rig_destroy(&r);
}

/* A damaged part is not asked for again; where it was the last of its layer, the set before is used. That one is then
 * the only good one, and stays until there are two good ones after it: the damaged one does not count. */
static void test_bad_parts(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 4, true);
    until_sets(&r, 2);
    uint64_t durable = rig_look(&r).durable_step;
    r.damaged_set = rig_look(&r).durable_set;
    r.damaged_layer = 3;
    uint64_t good = r.damaged_set - 1;
    for (uint64_t id = 1; id <= 4; id++)
        if (r.fakes[id].first_layer > 0) dies(&r, id);
    rig_arrive(&r, 5);
    rig_pass(&r, 2000, false);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    assert_true(r.damage_found >= 1 && r.damage_found <= 4); /* each source once */
    assert_true(rig_look(&r).base < durable && rig_look(&r).base > 0);
    assert_int_equal(rig_look(&r).durable_set, good);
    assert_true(kept(&r, good));
    until_sets(&r, r.damaged_set + 1);
    assert_true(kept(&r, good));
    until_sets(&r, rig_look(&r).durable_set + 1);
    assert_false(kept(&r, good));
    rig_destroy(&r);
}

/* The newest set's holders are away, and may come back: it is waited for, not given up; when the wait is over, the one
 * before is used. */
static void test_holders_are_waited_for(void **state)
{
    (void)state;
    for (int come_back = 0; come_back < 2; come_back++) {
        struct coord_rig r;
        setup(&r, 4, false);
        until_sets(&r, 1);
        uint64_t durable = rig_look(&r).durable_step;
        rig_pass(&r, 1000, true);
        for (uint64_t id = 1; id <= 4; id++)
            r.fakes[id].silent = true; /* a cut, not a death */
        rig_arrive(&r, 5);
        rig_arrive(&r, 6);
        rig_pass(&r, 28000, false); /* leases and the orphan time have passed */
        assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_COLLECTING);
        assert_string_equal(rig_look(&r).waiting, "holders of the newest copy set");
        if (come_back) {
            for (uint64_t id = 1; id <= 4; id++) {
                r.fakes[id].silent = false;
                r.fakes[id].joined = false;
            }
            rig_pass(&r, 6000, false);
            assert_true(rig_look(&r).base >= durable);
        } else {
            rig_pass(&r, 30000, false);
            assert_int_equal(rig_look(&r).base, 0); /* from the beginning: nothing else is left */
        }
        assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
        rig_destroy(&r);
    }
}

/* The record is lost, the copies are not: the set is found again from the reports. */
static void test_sets_are_adopted(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 4, false);
    until_sets(&r, 1);
    uint64_t set = rig_look(&r).durable_set;
    rig_restart(&r, false);
    rig_begin(&r);
    rig_pass(&r, 30000, true);
    assert_int_equal(rig_look(&r).phase, TM_COORDINATOR_RUNNING);
    assert_true(rig_look(&r).durable_set >= set);
    rig_destroy(&r);
}

TM_TEST_MAIN(TM_TEST(test_whole_when_every_part_is_there), TM_TEST(test_missed), TM_TEST(test_given_up_after_a_while),
             TM_TEST(test_the_last_two_are_kept), TM_TEST(test_the_old_one_stays_until_the_new_is_whole),
             TM_TEST(test_rolls_back_to_the_newest_set), TM_TEST(test_bad_parts), TM_TEST(test_holders_are_waited_for),
             TM_TEST(test_sets_are_adopted))
