/* A worker's whole life with every allocation failing in turn: it goes on (what was lost is said again, as it would be
 * after a lost message), or says that it must be destroyed; nothing is left over. The same for its session. */
#include "worker/test/worker_rig.h"

#include <tidemill.h>

#define KIND(name) TMW__ENVELOPE__BODY_##name

enum { TRIES = 25 }; /* a file is put again after ten */

/* The coordinator answers what it hears. */
static void pass_time(struct rig *r)
{
    rig_tick(r, RIG_RESEND_MS);
    if (!r->failed && mailbox_find(&r->box, KIND(HEARTBEAT), 0) != NULL) rig_ack(r, rig_look(r).generation, 0);
}

/* Again and again until it holds, with time passing; ends the life if the machine failed. */
#define UNTIL(condition, ...)                                                                                          \
    do {                                                                                                               \
        int tries = 0;                                                                                                 \
        while (!(condition)) {                                                                                         \
            assert_row(tries++ < TRIES, "does not go on: %s", #condition);                                             \
            __VA_ARGS__;                                                                                               \
            pass_time(r);                                                                                              \
            if (r->failed) return -(int)TM_ENOMEM;                                                                     \
        }                                                                                                              \
    } while (0)

static bool said(struct rig *r, Tmw__Envelope__BodyCase kind)
{
    return mailbox_find(&r->box, kind, 0) != NULL;
}

static void give_layer(struct rig *r, uint64_t set, uint32_t layer)
{
    uint8_t bytes[RIG_BYTES];
    rig_state(layer, 7, bytes);
    for (uint64_t offset = 0; offset < RIG_BYTES; offset += RIG_CHUNK) {
        Tmw__FetchData body = TMW__FETCH_DATA__INIT;
        body.generation = 3;
        body.step = 7;
        body.layer = layer;
        body.set = set;
        body.offset = offset;
        body.total = RIG_BYTES;
        body.data.data = bytes + offset;
        body.data.len = RIG_BYTES - offset < RIG_CHUNK ? RIG_BYTES - offset : RIG_CHUNK;
        RIG_TELL(r, rig_peer(2), FETCH_DATA, fetch_data, &body);
    }
}

static void assign(struct rig *r)
{
    Tmw__Fetch fetches[2] = {TMW__FETCH__INIT, TMW__FETCH__INIT};
    Tmw__Fetch *list[2] = {&fetches[0], &fetches[1]};
    uint64_t sources[] = {2};
    for (uint32_t i = 0; i < 2; i++) {
        struct tm_hash hash = rig_hash(i, 7);
        fetches[i].layer = i;
        fetches[i].hash_low = hash.low;
        fetches[i].hash_high = hash.high;
        fetches[i].set = i == 1 ? 5 : 0;
        fetches[i].sources = sources;
        fetches[i].n_sources = 1;
    }
    rig_assign(r, 3, 7, list, 2);
    give_layer(r, 0, 0);
    give_layer(r, 5, 1);
}

static void order_copy(struct rig *r)
{
    Tmw__CopyOrder body = TMW__COPY_ORDER__INIT;
    Tmw__CopyTask task = TMW__COPY_TASK__INIT;
    Tmw__CopyTask *list[] = {&task};
    uint64_t targets[] = {1};
    task.targets = targets;
    task.n_targets = 1;
    task.to_file = true;
    body.set = 6;
    body.generation = 3;
    body.step = 8;
    body.tasks = list;
    body.n_tasks = 1;
    RIG_TELL(r, rig_coordinator(), COPY_ORDER, copy_order, &body);
}

static void put_copy(struct rig *r)
{
    uint8_t bytes[RIG_BYTES];
    Tmw__CopyPut body = TMW__COPY_PUT__INIT;
    struct tm_hash hash = rig_hash(2, 8);
    rig_state(2, 8, bytes);
    body.set = 6;
    body.generation = 3;
    body.step = 8;
    body.layer = 2;
    body.hash_low = hash.low;
    body.hash_high = hash.high;
    body.total = RIG_BYTES;
    body.data.data = bytes;
    body.data.len = RIG_BYTES;
    RIG_TELL(r, rig_peer(2), COPY_PUT, copy_put, &body);
}

static void store_files(struct rig *r)
{
    if (mailbox_action(&r->box, TM_WORKER_FILE_PUT, 0) < 0) return;
    rig_call_begin();
    tm_worker__file_put(r->worker, r->now_ms, 6, 0, true, &r->box.out);
    rig_call_end(r);
}

static bool copied(struct rig *r)
{
    for (size_t n = 0;; n++) {
        const tm_message *beat = mailbox_find(&r->box, KIND(HEARTBEAT), n);
        if (beat == NULL) return false;
        if (beat->heartbeat->copied_set == 6 && (beat->heartbeat->n_copied == 2 || beat->heartbeat->copy_missed))
            return true;
    }
}

static bool holds_put(struct rig *r)
{
    for (size_t n = 0;; n++) {
        const tm_message *ack = mailbox_find(&r->box, KIND(COPY_ACK), n);
        if (ack == NULL) return false;
        if (ack->copy_ack->complete || ack->copy_ack->refused) return true;
    }
}

static void ask(struct rig *r)
{
    Tmw__FetchRequest body = TMW__FETCH_REQUEST__INIT;
    struct tm_hash hash = rig_hash(0, 8);
    body.generation = 4;
    body.step = 8;
    body.hash_low = hash.low;
    body.hash_high = hash.high;
    body.length = RIG_CHUNK;
    RIG_TELL(r, rig_peer(2), FETCH_REQUEST, fetch_request, &body);
}

static int train(struct rig *r)
{
    UNTIL(rig_look(r).phase == TM_WORKER_RUNNING, rig_start(r, 3));
    order_copy(r);
    if (r->failed) return -(int)TM_ENOMEM;
    UNTIL(rig_look(r).copies->count > 0 && holds_put(r), put_copy(r));
    rig_held(r, 8);
    if (r->failed) return -(int)TM_ENOMEM;
    UNTIL(said(r, KIND(PREPARED)), (void)0);
    rig_prepared(r, rig_peer(2), 3, 8, false);
    if (r->failed) return -(int)TM_ENOMEM;
    assert_int_equal(r->engine.apply_step, 8);
    rig_applied(r, 8);
    if (r->failed) return -(int)TM_ENOMEM;
    UNTIL(copied(r), order_copy(r); store_files(r));
    return 0;
}

static int life(struct rig *r)
{
    if (!rig_create(r)) return -(int)TM_ENOMEM;
    rig_tick(r, 0);
    if (r->failed) return -(int)TM_ENOMEM;
    UNTIL(rig_look(r).registered, rig_challenge(r, 77); rig_welcome(r, 77));
    UNTIL(rig_look(r).may_serve, (void)0);
    UNTIL(said(r, KIND(REPORT)), rig_fence(r, 3));
    UNTIL(rig_look(r).phase == TM_WORKER_READY, assign(r));
    int rc = train(r);
    if (rc != 0) return rc;
    mailbox_clear(&r->box);
    UNTIL(said(r, KIND(REPORT)), rig_fence(r, 4));
    UNTIL(said(r, KIND(FETCH_DATA)), ask(r));
    Tmw__Stop body = TMW__STOP__INIT;
    RIG_TELL(r, rig_coordinator(), STOP, stop, &body);
    if (r->failed) return -(int)TM_ENOMEM;
    assert_true(mailbox_action(&r->box, TM_WORKER_STOP, 0) >= 0);
    return 0;
}

static void test_a_life(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        static struct rig r;
        tm_alloc_fail_hold(1);
        rc = life(&r);
        rig_destroy(&r);
    });
}

/* ---- the session ---- */

static uint64_t any_bytes(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
    return 8;
}

/* Opened and closed without anyone to talk to; its thread allocates too, so any call may be the one that fails. */
static void test_session(void **state)
{
    (void)state;
    struct tidemill_options options = {.size = sizeof options,
                                       .coordinator = "127.0.0.1:9",
                                       .token = "the token",
                                       .kernel_class = "test",
                                       .job = 1,
                                       .instance = 1};
    struct tidemill_engine engine = {.layer_bytes = any_bytes};
    for (long n = 1; n < 40; n++) {
        char error[256] = "";
        long live = tm_alloc_live();
        tm_alloc_fail_at(n);
        tidemill *t = tidemill_open(&options, &engine, error, sizeof error);
        if (t == NULL) assert_row(strstr(error, "out of memory") != NULL, "allocation %ld: %s", n, error);
        tidemill_close(t);
        tm_alloc_fail_at(0);
        assert_row(tm_alloc_live() == live, "allocation %ld: %ld are left", n, tm_alloc_live() - live);
    }
}

TM_TEST_MAIN(TM_TEST(test_a_life), TM_TEST(test_session))
