/* The worker alone: fetching layers from several sources and from files, serving them, making and holding copies. */
#include "worker/test/worker_rig.h"
#include "worker/worker_internal.h"

#define KIND(name) TMW__ENVELOPE__BODY_##name

static void setup(struct rig *r)
{
    assert_true(rig_create(r));
}

/* ---- fetching ---- */

enum { BASE = 7, SET = 5 };

/* Assigned at step 7: layer 0 from the live state of 2 and 3, layer 1 from set 5, with 2 and in files. */
static void assign_fetches(struct rig *r, uint64_t generation)
{
    Tmw__Fetch fetches[2] = {TMW__FETCH__INIT, TMW__FETCH__INIT};
    Tmw__Fetch *list[2] = {&fetches[0], &fetches[1]};
    uint64_t live[] = {2, 3};
    uint64_t holders[] = {2};
    for (uint32_t i = 0; i < 2; i++) {
        struct tm_hash hash = rig_hash(i, BASE);
        fetches[i].layer = i;
        fetches[i].hash_low = hash.low;
        fetches[i].hash_high = hash.high;
    }
    fetches[0].sources = live;
    fetches[0].n_sources = 2;
    fetches[1].set = SET;
    fetches[1].sources = holders;
    fetches[1].n_sources = 1;
    fetches[1].from_file = true;
    rig_assign(r, generation, BASE, list, 2);
}

static void give(struct rig *r, uint64_t from, uint32_t layer, uint64_t set, uint64_t offset, uint8_t change)
{
    uint8_t bytes[RIG_BYTES];
    Tmw__FetchData body = TMW__FETCH_DATA__INIT;
    rig_state(layer, BASE, bytes);
    bytes[offset] ^= change;
    body.generation = 4;
    body.step = BASE;
    body.layer = layer;
    body.set = set;
    body.offset = offset;
    body.total = RIG_BYTES;
    body.data.data = bytes + offset;
    body.data.len = RIG_BYTES - offset < RIG_CHUNK ? RIG_BYTES - offset : RIG_CHUNK;
    RIG_TELL(r, rig_peer(from), FETCH_DATA, fetch_data, &body);
}

/* Answers every request since the last time, as right as asked for: `bad` is the member whose bytes are altered. */
static void answer_requests(struct rig *r, uint64_t bad)
{
    struct {
        uint64_t to, set, offset;
        uint32_t layer;
    } asked[32];
    size_t count = 0;
    for (const tm_message *m = NULL; count < 32; count++) {
        m = mailbox_find(&r->box, KIND(FETCH_REQUEST), count);
        if (m == NULL) break;
        asked[count].to = mailbox_to(&r->box, KIND(FETCH_REQUEST), count).id;
        asked[count].set = m->fetch_request->set;
        asked[count].offset = m->fetch_request->offset;
        asked[count].layer = m->fetch_request->layer;
    }
    mailbox_clear(&r->box);
    for (size_t i = 0; i < count; i++)
        give(r, asked[i].to, asked[i].layer, asked[i].set, asked[i].offset, asked[i].to == bad ? 1 : 0);
}

static void fetching(struct rig *r)
{
    setup(r);
    rig_join(r);
    rig_fence(r, 4);
    mailbox_clear(&r->box);
    assign_fetches(r, 4);
    assert_int_equal(rig_look(r).phase, TM_WORKER_FETCHING);
}

static void test_from_several_sources_at_once(void **state)
{
    (void)state;
    struct rig r;
    fetching(&r);
    bool asked[4] = {false};
    for (size_t i = 0; i < mailbox_count(&r.box, KIND(FETCH_REQUEST)); i++) {
        const Tmw__FetchRequest *request = mailbox_find(&r.box, KIND(FETCH_REQUEST), i)->fetch_request;
        struct tm_hash hash = rig_hash(request->layer, BASE);
        assert_int_equal(request->generation, 4);
        assert_int_equal(request->step, BASE);
        assert_true(request->hash_low == hash.low);
        if (request->layer == 0) asked[mailbox_to(&r.box, KIND(FETCH_REQUEST), i).id] = true;
    }
    assert_true(asked[2] && asked[3]);
    answer_requests(&r, 0);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_READY);
    assert_int_equal(r.engine.imports, 2);
    assert_int_equal(rig_look(&r).fetched_bytes, 2 * RIG_BYTES);
    assert_int_equal(mailbox_count(&r.box, KIND(READY)), 1);
    rig_destroy(&r);
}

/* Bytes that do not belong where they say they do are not taken; a chunk that does not come is asked of another. */
static void test_wrong_pieces(void **state)
{
    (void)state;
    struct rig r;
    fetching(&r);
    uint8_t bytes[RIG_BYTES] = {0};
    const struct {
        uint64_t generation, step, set, offset, total;
        size_t length;
        uint32_t layer;
    } rows[] = {
        {3, BASE, 0, 0, RIG_BYTES, RIG_CHUNK, 0},     /* generation */
        {4, BASE + 1, 0, 0, RIG_BYTES, RIG_CHUNK, 0}, /* step */
        {4, BASE, SET + 1, 0, RIG_BYTES, RIG_CHUNK, 1},
        {4, BASE, 0, 3, RIG_BYTES, RIG_CHUNK, 0},             /* between chunks */
        {4, BASE, 0, 48, RIG_BYTES, RIG_CHUNK, 0},            /* beyond the end */
        {4, BASE, 0, 0, RIG_BYTES + 1, RIG_CHUNK, 0},         /* another size */
        {4, BASE, 0, 0, RIG_BYTES, RIG_CHUNK - 1, 0},         /* short */
        {4, BASE, 0, 32, RIG_BYTES, RIG_CHUNK, 0},            /* longer than the last one is */
        {4, BASE, 0, 0, RIG_BYTES, RIG_CHUNK, RIG_LAYERS + 9} /* no layer of ours */
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        Tmw__FetchData body = TMW__FETCH_DATA__INIT;
        body.generation = rows[i].generation;
        body.step = rows[i].step;
        body.set = rows[i].set;
        body.offset = rows[i].offset;
        body.total = rows[i].total;
        body.layer = rows[i].layer;
        body.data.data = bytes;
        body.data.len = rows[i].length;
        RIG_TELL(&r, rig_peer(2), FETCH_DATA, fetch_data, &body);
    }
    give(&r, 2, 0, 0, 0, 0);
    uint64_t first_asked = 0;
    for (size_t i = 0; i < mailbox_count(&r.box, KIND(FETCH_REQUEST)); i++) {
        const Tmw__FetchRequest *request = mailbox_find(&r.box, KIND(FETCH_REQUEST), i)->fetch_request;
        if (request->layer == 0 && request->offset == 16) first_asked = mailbox_to(&r.box, KIND(FETCH_REQUEST), i).id;
    }
    mailbox_clear(&r.box);
    rig_tick(&r, RIG_RESEND_MS);
    for (size_t i = 0; i < mailbox_count(&r.box, KIND(FETCH_REQUEST)); i++) {
        const Tmw__FetchRequest *request = mailbox_find(&r.box, KIND(FETCH_REQUEST), i)->fetch_request;
        assert_false(request->layer == 0 && request->offset == 0); /* that one is here */
        if (request->layer == 0 && request->offset == 16)
            assert_true(mailbox_to(&r.box, KIND(FETCH_REQUEST), i).id != first_asked);
    }
    answer_requests(&r, 0);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_READY);
    rig_destroy(&r);
}

/* One of two sources gives altered bytes: they are asked one by one; whoever is found so is named, and the other's are
 * taken. */
static void one_source_is_bad(uint64_t bad)
{
    struct rig r;
    uint8_t bytes[RIG_BYTES];
    fetching(&r);
    bool named = false;
    for (int round = 0; round < 8 && rig_look(&r).phase == TM_WORKER_FETCHING; round++) {
        if (mailbox_count(&r.box, KIND(FETCH_REQUEST)) == 0) rig_tick(&r, RIG_RESEND_MS);
        give(&r, 2, 1, SET, 0, 0); /* layer 1 comes as it should */
        give(&r, 2, 1, SET, 16, 0);
        give(&r, 2, 1, SET, 32, 0);
        answer_requests(&r, bad);
        for (size_t i = 0; i < mailbox_count(&r.box, KIND(FETCH_FAILED)); i++) {
            const Tmw__FetchFailed *failed = mailbox_find(&r.box, KIND(FETCH_FAILED), i)->fetch_failed;
            assert_int_equal(failed->source, bad);
            assert_int_equal(failed->layer, 0);
            assert_int_equal(failed->set, 0);
            assert_int_equal(failed->generation, 4);
            named = true;
        }
    }
    assert_int_equal(rig_look(&r).phase, TM_WORKER_READY);
    rig_state(0, BASE, bytes);
    assert_memory_equal(r.engine.bytes[0], bytes, sizeof bytes);
    assert_row(named == (bad == 2), "source %d", (int)bad); /* 2 is asked first; then nothing is left to ask of 3 */
    rig_destroy(&r);
}

static void test_bad_source(void **state)
{
    (void)state;
    one_source_is_bad(2);
    one_source_is_bad(3);
}

static void test_only_source_is_bad(void **state)
{
    (void)state;
    struct rig r;
    fetching(&r);
    answer_requests(&r, 2); /* layer 1 has no other in memory */
    bool named = false;
    for (int round = 0; round < 4 && !named; round++) {
        for (size_t i = 0; i < mailbox_count(&r.box, KIND(FETCH_FAILED)); i++) {
            const Tmw__FetchFailed *failed = mailbox_find(&r.box, KIND(FETCH_FAILED), i)->fetch_failed;
            named = named || (failed->layer == 1 && failed->set == SET && failed->source == 2);
        }
        if (!named) answer_requests(&r, 2);
    }
    assert_true(named);
    assert_int_equal(r.engine.have[1], false);
    rig_destroy(&r);
}

static void test_refused_as_damaged(void **state)
{
    (void)state;
    struct rig r;
    fetching(&r);
    Tmw__FetchRefused body = TMW__FETCH_REFUSED__INIT;
    body.generation = 4;
    body.step = BASE;
    body.layer = 1;
    body.set = SET;
    RIG_TELL(&r, rig_peer(2), FETCH_REFUSED, fetch_refused, &body); /* not now: it is asked again */
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_FAILED)), 0);
    body.damaged = true;
    RIG_TELL(&r, rig_peer(2), FETCH_REFUSED, fetch_refused, &body);
    assert_int_equal(mailbox_find(&r.box, KIND(FETCH_FAILED), 0)->fetch_failed->source, 2);
    rig_destroy(&r);
}

static void file_got(struct rig *r, const struct tm_copy_got *file)
{
    rig_call_begin();
    tm_worker__file_got(r->worker, r->now_ms, SET, 1, file, &r->box.out);
    rig_call_end(r);
}

/* Holders stay silent: the file is read, and checked as they are. */
static void test_from_a_file(void **state)
{
    (void)state;
    struct rig r;
    fetching(&r);
    int asked = -1;
    for (int i = 0; i < 12 && asked < 0; i++) {
        rig_tick(&r, RIG_RESEND_MS);
        asked = mailbox_action(&r.box, TM_WORKER_FILE_GET, 0);
    }
    assert_true(asked >= 0);
    assert_int_equal(r.box.out.actions[asked].number, SET);
    assert_int_equal(r.box.out.actions[asked].other, 1);
    uint8_t bytes[RIG_BYTES];
    rig_state(1, BASE, bytes);
    struct tm_copy_got file = {
        .name = {.set = SET, .step = BASE, .layer = 1, .hash = rig_hash(1, BASE), .size = RIG_BYTES}};
    file.block = tm_block_create(tm_worker_blocks(r.worker), RIG_BYTES);
    assert_non_null(file.block);
    memcpy(file.block->data, bytes, sizeof bytes);
    mailbox_clear(&r.box);
    file.state = TM_COPY_LATER;
    file_got(&r, &file);
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_FAILED)), 0);
    file.state = TM_COPY_BAD;
    file_got(&r, &file);
    file.state = TM_COPY_GOOD;
    file.name.hash.low ^= 1; /* whole, but not what was to be there */
    file_got(&r, &file);
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_FAILED)), 2);
    assert_int_equal(mailbox_find(&r.box, KIND(FETCH_FAILED), 0)->fetch_failed->source, 0);
    assert_int_equal(r.engine.imports, 0);
    file.name.hash.low ^= 1;
    file_got(&r, &file);
    assert_int_equal(r.engine.imports, 1);
    assert_memory_equal(r.engine.bytes[1], bytes, sizeof bytes);
    tm_block_release(file.block);
    rig_destroy(&r);
}

/* All bytes are here, but the engine has no room: tried again, not waited for. */
static void test_engine_without_room(void **state)
{
    (void)state;
    struct rig r;
    fetching(&r);
    r.engine.no_room = true;
    answer_requests(&r, 0);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_FETCHING);
    rig_tick(&r, 10);
    r.engine.no_room = false;
    rig_tick(&r, 10);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_READY);
    rig_destroy(&r);
}

static void test_fence_ends_a_fetch(void **state)
{
    (void)state;
    struct rig r;
    fetching(&r);
    rig_fence(&r, 5);
    mailbox_clear(&r.box);
    give(&r, 2, 0, 0, 0, 0);
    rig_tick(&r, 5000);
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_REQUEST)), 0);
    assert_int_equal(rig_look(&r).phase, TM_WORKER_FENCED);
    rig_destroy(&r);
}

/* ---- serving ---- */

static void ask(struct rig *r, uint64_t generation, uint64_t step, uint64_t set, uint32_t layer, uint64_t offset,
                uint32_t length)
{
    Tmw__FetchRequest body = TMW__FETCH_REQUEST__INIT;
    struct tm_hash hash = rig_hash(layer, step);
    body.generation = generation;
    body.step = step;
    body.set = set;
    body.layer = layer;
    body.hash_low = hash.low;
    body.hash_high = hash.high;
    body.offset = offset;
    body.length = length;
    mailbox_clear(&r->box);
    RIG_TELL(r, rig_peer(2), FETCH_REQUEST, fetch_request, &body);
}

static void test_serves(void **state)
{
    (void)state;
    struct rig r;
    uint8_t bytes[RIG_BYTES];
    setup(&r);
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    rig_contact(&r, 3);
    rig_fence(&r, 4);
    rig_state(0, 1, bytes);
    ask(&r, 4, 1, 0, 0, 16, RIG_CHUNK);
    const Tmw__FetchData *data = mailbox_find(&r.box, KIND(FETCH_DATA), 0)->fetch_data;
    assert_int_equal(data->total, RIG_BYTES);
    assert_int_equal(data->data.len, RIG_CHUNK);
    assert_memory_equal(data->data.data, bytes + 16, RIG_CHUNK);
    ask(&r, 3, 1, 0, 0, 0, RIG_CHUNK); /* another generation: no word */
    assert_int_equal(r.box.out.count, 0);
    ask(&r, 4, 2, 0, 0, 0, RIG_CHUNK); /* a step that we are not at */
    assert_false(mailbox_find(&r.box, KIND(FETCH_REFUSED), 0)->fetch_refused->damaged);
    ask(&r, 4, 1, 0, 3, 0, RIG_CHUNK); /* a layer that we do not have */
    assert_non_null(mailbox_find(&r.box, KIND(FETCH_REFUSED), 0));
    ask(&r, 4, 1, 8, 0, 0, RIG_CHUNK); /* a copy that is not here will not come */
    assert_true(mailbox_find(&r.box, KIND(FETCH_REFUSED), 0)->fetch_refused->damaged);
    ask(&r, 4, 1, 0, 0, 32, RIG_CHUNK); /* past the end */
    ask(&r, 4, 1, 0, 0, UINT64_MAX, 2);
    ask(&r, 4, 1, 0, 0, 0, UINT32_MAX);
    assert_int_equal(r.box.out.count, 0);
    rig_destroy(&r);
}

/* State that the optimizer may be writing is never read. */
static void test_live_state_is_not_served_while_it_runs(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    ask(&r, 3, 1, 0, 0, 0, RIG_CHUNK);
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_DATA)), 0);
    rig_destroy(&r);
}

/* ---- copies: as a source ---- */

static void order(struct rig *r, uint64_t set, uint64_t step)
{
    Tmw__CopyOrder body = TMW__COPY_ORDER__INIT;
    Tmw__CopyTask task = TMW__COPY_TASK__INIT;
    Tmw__CopyTask *list[] = {&task};
    uint64_t targets[] = {2, 1};
    task.layer = 0;
    task.targets = targets;
    task.n_targets = 2;
    task.to_file = true;
    body.set = set;
    body.generation = 3;
    body.step = step;
    body.tasks = list;
    body.n_tasks = 1;
    RIG_TELL(r, rig_coordinator(), COPY_ORDER, copy_order, &body);
}

static void acknowledge(struct rig *r, uint64_t set, uint64_t received, bool refused)
{
    Tmw__CopyAck body = TMW__COPY_ACK__INIT;
    body.set = set;
    body.received = received;
    body.complete = received == RIG_BYTES;
    body.refused = refused;
    RIG_TELL(r, rig_peer(2), COPY_ACK, copy_ack, &body);
}

static void test_snapshot(void **state)
{
    (void)state;
    struct rig r;
    uint8_t bytes[RIG_BYTES];
    setup(&r);
    rig_run(&r, 3);
    order(&r, 5, 2);
    rig_step(&r, 3, 1);
    assert_int_equal(mailbox_count(&r.box, KIND(COPY_PUT)), 0); /* not this step's */
    rig_step(&r, 3, 2);
    rig_step(&r, 3, 3); /* training goes on; the snapshot does not */
    rig_state(0, 2, bytes);
    for (uint64_t offset = 0; offset < RIG_BYTES; offset += RIG_CHUNK) {
        const Tmw__CopyPut *put = mailbox_find(&r.box, KIND(COPY_PUT), 0)->copy_put;
        assert_int_equal(put->step, 2);
        assert_int_equal(put->offset, offset);
        assert_int_equal(put->total, RIG_BYTES);
        assert_memory_equal(put->data.data, bytes + offset, put->data.len);
        if (offset == 0) { /* the file goes at the same time */
            int file = mailbox_action(&r.box, TM_WORKER_FILE_PUT, 0);
            struct tm_copy_name name;
            assert_true(file >= 0);
            assert_int_equal(r.box.out.actions[file].number, 5);
            struct tm_block *block = tm_worker_file_block(r.worker, 5, (uint32_t)r.box.out.actions[file].other, &name);
            assert_int_equal(name.step, 2);
            assert_true(tm_hash_equal(name.hash, rig_hash(0, 2)));
            assert_memory_equal(block->data, bytes, sizeof bytes);
            assert_null(tm_worker_file_block(r.worker, 4, 0, &name)); /* of another set */
            tm_block_release(block);
        }
        uint64_t received = offset + put->data.len;
        mailbox_clear(&r.box);
        acknowledge(&r, 5, received, false);
    }
    assert_true(rig_look(&r).snapshot_bytes > 0); /* the file is not there yet */
    rig_call_begin();
    tm_worker__file_put(r.worker, r.now_ms, 5, 0, false, &r.box.out);
    rig_call_end(&r);
    assert_true(rig_look(&r).snapshot_bytes > 0);
    mailbox_clear(&r.box);
    rig_tick(&r, 1);
    assert_true(mailbox_action(&r.box, TM_WORKER_FILE_PUT, 0) < 0);
    rig_tick(&r, RIG_RESEND_MS); /* the disk was full: it may have room again */
    assert_true(mailbox_action(&r.box, TM_WORKER_FILE_PUT, 0) >= 0);
    rig_call_begin();
    tm_worker__file_put(r.worker, r.now_ms, 5, 0, true, &r.box.out);
    rig_call_end(&r);
    assert_int_equal(rig_look(&r).snapshot_bytes, 0);
    mailbox_clear(&r.box);
    rig_tick(&r, 1); /* told at once */
    const Tmw__Heartbeat *beat = mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat;
    assert_int_equal(beat->copied_set, 5);
    assert_int_equal(beat->n_copied, 3); /* its peer, itself, files */
    assert_false(beat->copy_missed);
    assert_non_null(tm_copies_find(rig_look(&r).copies, 5, 0));
    rig_destroy(&r);
}

static void test_copies_that_cannot_be(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    rig_step(&r, 3, 1);
    rig_step(&r, 3, 2);
    order(&r, 5, 1); /* the step has passed */
    mailbox_clear(&r.box);
    rig_tick(&r, 1);
    assert_true(mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat->copy_missed);
    order(&r, 6, 2); /* the step stands now */
    assert_non_null(mailbox_find(&r.box, KIND(COPY_PUT), 0));
    order(&r, 5, 2); /* an older order comes late */
    acknowledge(&r, 6, 0, true);
    mailbox_clear(&r.box);
    rig_tick(&r, 1);
    const Tmw__Heartbeat *beat = mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat;
    assert_int_equal(beat->copied_set, 6);
    assert_true(beat->copy_missed); /* a holder has no room */
    rig_destroy(&r);
}

/* A set that was given up keeps no memory. */
static void test_a_fence_ends_a_copy(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    order(&r, 5, 1);
    rig_step(&r, 3, 1);
    assert_int_equal(rig_look(&r).snapshot_bytes, RIG_BYTES);
    rig_fence(&r, 4);
    assert_int_equal(rig_look(&r).snapshot_bytes, 0);
    acknowledge(&r, 5, 16, false);
    assert_int_equal(rig_look(&r).snapshot_bytes, 0);
    rig_destroy(&r);
}

/* ---- copies: as a holder ---- */

static void put(struct rig *r, uint64_t generation, uint64_t set, uint64_t step, uint64_t offset, size_t length)
{
    uint8_t bytes[RIG_BYTES];
    Tmw__CopyPut body = TMW__COPY_PUT__INIT;
    struct tm_hash hash = rig_hash(2, step);
    rig_state(2, step, bytes);
    body.set = set;
    body.generation = generation;
    body.step = step;
    body.layer = 2;
    body.hash_low = hash.low;
    body.hash_high = hash.high;
    body.offset = offset;
    body.total = RIG_BYTES;
    body.data.data = bytes + offset;
    body.data.len = length;
    mailbox_clear(&r->box);
    RIG_TELL(r, rig_peer(2), COPY_PUT, copy_put, &body);
}

static void test_holds_copies(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    put(&r, 2, 5, 4, 0, 16); /* of another generation */
    assert_int_equal(r.box.out.count, 0);
    put(&r, 3, 5, 4, 0, 16);
    assert_int_equal(mailbox_find(&r.box, KIND(COPY_ACK), 0)->copy_ack->received, 16);
    put(&r, 3, 5, 4, 32, 8); /* ahead: says where it stands */
    assert_int_equal(mailbox_find(&r.box, KIND(COPY_ACK), 0)->copy_ack->received, 16);
    put(&r, 3, 5, 4, 16, 24);
    assert_true(mailbox_find(&r.box, KIND(COPY_ACK), 0)->copy_ack->complete);
    rig_contact(&r, 3);
    rig_fence(&r, 4);
    mailbox_clear(&r.box);
    rig_fence(&r, 4);
    const Tmw__Report *report = mailbox_find(&r.box, KIND(REPORT), 0)->report;
    assert_int_equal(report->n_copies, 1);
    assert_int_equal(report->copies[0]->set, 5);
    assert_int_equal(report->copies[0]->step, 4);
    ask(&r, 4, 4, 5, 2, 0, RIG_CHUNK);
    assert_non_null(mailbox_find(&r.box, KIND(FETCH_DATA), 0));
    rig_destroy(&r);
}

/* What the coordinator lists is kept, the rest goes; while it collects, all is kept. */
static void test_keeps_what_is_listed(void **state)
{
    (void)state;
    struct rig r;
    setup(&r);
    rig_run(&r, 3);
    for (uint64_t set = 1; set <= 3; set++)
        put(&r, 3, set, set, 0, RIG_BYTES);
    rig_contact(&r, 3); /* keep_all */
    assert_int_equal(rig_look(&r).copies->count, 3);
    mailbox_clear(&r.box);
    rig_tick(&r, 800);
    Tmw__HeartbeatAck body = TMW__HEARTBEAT_ACK__INIT;
    uint64_t keep[] = {2};
    body.sequence = mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat->sequence;
    body.generation = 3;
    body.keep = keep;
    body.n_keep = 1;
    body.newest_set = 3;
    body.durable_step = 3;
    RIG_TELL(&r, rig_coordinator(), HEARTBEAT_ACK, heartbeat_ack, &body);
    assert_int_equal(rig_look(&r).copies->count, 1);
    assert_non_null(tm_copies_find(rig_look(&r).copies, 2, 2));
    rig_destroy(&r);
}

/* A stranger on the same machine, or the process before a member, speaks in a member's name. */
static void test_impostors(void **state)
{
    (void)state;
    struct rig r;
    uint8_t bytes[RIG_BYTES];
    struct tm_peer impostor = {.role = TM_ROLE_WORKER, .id = 2, .incarnation = 4711};
    fetching(&r);
    Tmw__FetchRefused refused = TMW__FETCH_REFUSED__INIT;
    refused.generation = 4;
    refused.step = BASE;
    refused.layer = 1;
    refused.set = SET;
    refused.damaged = true;
    mailbox_clear(&r.box);
    RIG_TELL(&r, impostor, FETCH_REFUSED, fetch_refused, &refused);
    assert_int_equal(mailbox_count(&r.box, KIND(FETCH_FAILED)), 0); /* a good copy is not called bad */
    rig_destroy(&r);
    setup(&r);
    rig_run(&r, 3);
    order(&r, 5, 1);
    rig_step(&r, 3, 1);
    mailbox_clear(&r.box);
    Tmw__CopyAck ack = TMW__COPY_ACK__INIT;
    ack.set = 5;
    ack.received = RIG_BYTES;
    ack.complete = true;
    RIG_TELL(&r, impostor, COPY_ACK, copy_ack, &ack);
    rig_call_begin();
    tm_worker__file_put(r.worker, r.now_ms, 5, 0, true, &r.box.out);
    rig_call_end(&r);
    rig_tick(&r, 800);
    const Tmw__Heartbeat *beat = mailbox_find(&r.box, KIND(HEARTBEAT), 0)->heartbeat;
    assert_int_equal(beat->n_copied, 2); /* files and itself: 2 has not said that it has it */
    put(&r, 3, 8, 1, 0, RIG_BYTES);
    assert_non_null(tm_copies_find(rig_look(&r).copies, 8, 2));
    Tmw__CopyPut body = TMW__COPY_PUT__INIT;
    memset(bytes, 0, sizeof bytes);
    body.set = 8;
    body.generation = 3;
    body.step = 1;
    body.layer = 2;
    body.total = RIG_BYTES;
    body.data.data = bytes;
    body.data.len = RIG_BYTES;
    RIG_TELL(&r, impostor, COPY_PUT, copy_put, &body);
    assert_non_null(tm_copies_find(rig_look(&r).copies, 8, 2)); /* what is held is not replaced */
    rig_destroy(&r);
}

/* ---- phases ---- */

/* The way of a generation, a fence from wherever it is, a stop, and nothing after that. */
static void test_phase_moves(void **state)
{
    (void)state;
    static const char *const allowed[] = {
        [TM_WORKER_FENCED] = "11001", /* to FENCED, FETCHING, READY, RUNNING, STOPPED */
        [TM_WORKER_FETCHING] = "10101", [TM_WORKER_READY] = "10011",
        [TM_WORKER_RUNNING] = "10001",  [TM_WORKER_STOPPED] = "00000",
    };
    for (int from = TM_WORKER_FENCED; from <= TM_WORKER_STOPPED; from++)
        for (int to = TM_WORKER_FENCED; to <= TM_WORKER_STOPPED; to++)
            assert_row(tm_worker__may_enter((enum tm_worker_phase)from, (enum tm_worker_phase)to) ==
                           (allowed[from][to - TM_WORKER_FENCED] == '1'),
                       "from %d to %d", from, to);
}

TM_TEST_MAIN(TM_TEST(test_phase_moves), TM_TEST(test_from_several_sources_at_once), TM_TEST(test_wrong_pieces),
             TM_TEST(test_bad_source), TM_TEST(test_only_source_is_bad), TM_TEST(test_refused_as_damaged),
             TM_TEST(test_from_a_file), TM_TEST(test_engine_without_room), TM_TEST(test_fence_ends_a_fetch),
             TM_TEST(test_serves), TM_TEST(test_live_state_is_not_served_while_it_runs), TM_TEST(test_snapshot),
             TM_TEST(test_copies_that_cannot_be), TM_TEST(test_a_fence_ends_a_copy), TM_TEST(test_holds_copies),
             TM_TEST(test_keeps_what_is_listed), TM_TEST(test_impostors))
