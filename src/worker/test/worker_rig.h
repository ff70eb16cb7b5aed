/* One worker alone: the test is its engine, its coordinator and its peers. Four layers of 40 bytes in two stages; the
 * worker under test is number 1 and trains stage 0, number 2 trains stage 1, number 3 is a spare. */
#ifndef TM_WORKER_RIG_H
#define TM_WORKER_RIG_H

#include "wire/test/mailbox.h"
#include "worker/worker.h"

enum {
    RIG_LAYERS = 4,
    RIG_BYTES = 40,
    RIG_CHUNK = 16, /* three chunks a layer */
    RIG_GRADIENT = 20,
    RIG_STEPS = 20,
    RIG_LEASE_MS = 4000,
    RIG_ORPHAN_MS = 20000,
    RIG_RESEND_MS = 600,
    RIG_JOB = 9,
    RIG_SELF = 101,       /* incarnations */
    RIG_COORDINATOR = 55, /* ... */
};

struct rig_engine {
    bool have[RIG_LAYERS];
    uint8_t bytes[RIG_LAYERS][RIG_BYTES];
    bool no_room;   /* imports fail */
    uint64_t begun; /* the step; 0: none */
    unsigned begins, cancels, applies, discards, inits, imports, drops;
    uint64_t apply_step;
    double apply_norm;
};

struct rig {
    uint32_t vote_fan; /* of the assignments */
    struct tm_worker *worker;
    struct rig_engine engine;
    struct mailbox box;
    int64_t now_ms;
    int failed; /* the machine said that it must be destroyed */
};

/* A layer's state after a step, as everyone would have it. */
static inline void rig_state(uint32_t layer, uint64_t step, uint8_t out[RIG_BYTES])
{
    for (uint32_t i = 0; i < RIG_BYTES; i++)
        out[i] = (uint8_t)(layer * 31 + step * 7 + i);
}

static inline struct tm_hash rig_hash(uint32_t layer, uint64_t step)
{
    uint8_t bytes[RIG_BYTES];
    rig_state(layer, step, bytes);
    return tm_hash_of(bytes, sizeof bytes);
}

static uint64_t rig_layer_bytes(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
    return RIG_BYTES;
}

static int rig_export(void *context, uint32_t layer, void *out, uint64_t size)
{
    struct rig_engine *engine = context;
    if (!engine->have[layer]) return -(int)TM_EINTERNAL;
    memcpy(out, engine->bytes[layer], size);
    return 0;
}

static int rig_import(void *context, uint32_t layer, uint64_t step, struct tm_block *block)
{
    struct rig_engine *engine = context;
    (void)step;
    if (engine->no_room) return -(int)TM_ENOMEM;
    engine->have[layer] = true;
    engine->imports++;
    memcpy(engine->bytes[layer], block->data, block->size);
    return 0;
}

static int rig_init_layer(void *context, uint32_t layer)
{
    struct rig_engine *engine = context;
    engine->have[layer] = true;
    engine->inits++;
    rig_state(layer, 0, engine->bytes[layer]);
    return 0;
}

static void rig_drop(void *context, uint32_t layer)
{
    struct rig_engine *engine = context;
    engine->have[layer] = false;
    engine->drops++;
}

static void rig_begin(void *context, const struct tm_roster *roster, uint64_t step)
{
    struct rig_engine *engine = context;
    (void)roster;
    engine->begun = step;
    engine->begins++;
}

static void rig_cancel(void *context)
{
    struct rig_engine *engine = context;
    engine->begun = 0;
    engine->cancels++;
}

static void rig_apply(void *context, uint64_t step, double norm)
{
    struct rig_engine *engine = context;
    engine->applies++;
    engine->apply_step = step;
    engine->apply_norm = norm;
}

static void rig_discard(void *context)
{
    ((struct rig_engine *)context)->discards++;
}

static uint64_t rig_waiting_for(void *context)
{
    (void)context;
    return 0;
}

/* The gradients of a step say which one; a layer that is followed comes to where rig_state has it. */
static uint64_t rig_gradient_bytes(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
    return RIG_GRADIENT;
}

static int rig_export_gradient(void *context, uint32_t layer, void *out, uint64_t size)
{
    const struct rig_engine *engine = context;
    memset(out, (int)(engine->begun + layer), size);
    return 0;
}

static int rig_advance(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_size,
                       const void *gradient, uint64_t gradient_size)
{
    uint8_t next[RIG_BYTES];
    (void)context;
    (void)norm;
    rig_state(layer, step, next);
    if (state_size != RIG_BYTES || gradient_size != RIG_GRADIENT) return -(int)TM_EINPUT;
    if (((const uint8_t *)gradient)[0] != (uint8_t)(step + layer)) return -(int)TM_EINPUT;
    memcpy(state, next, sizeof next);
    return 0;
}

/* ---- talking to it: only the machine's own allocations count ---- */

static inline void rig_call_begin(void)
{
    tm_alloc_fail_hold(0);
}

static inline void rig_call_end(struct rig *r)
{
    tm_alloc_fail_hold(1);
    if (tm_outbox_status(&r->box.out, NULL) != 0) r->failed = 1;
}

static inline bool rig_create(struct rig *r)
{
    *r = (struct rig){.now_ms = 1000};
    mailbox_init(&r->box);
    struct tm_worker_options options = {.job = RIG_JOB,
                                        .id = 1,
                                        .incarnation = RIG_SELF,
                                        .token = "the token",
                                        .address = "127.0.0.1:1",
                                        .kernel_class = "test",
                                        .chunk_bytes = RIG_CHUNK,
                                        .copy_bytes_max = 1 << 16,
                                        .resend_ms = RIG_RESEND_MS};
    struct tm_worker_engine engine = {.context = &r->engine,
                                      .layer_bytes = rig_layer_bytes,
                                      .export_layer = rig_export,
                                      .import_layer = rig_import,
                                      .init_layer = rig_init_layer,
                                      .drop_layer = rig_drop,
                                      .begin = rig_begin,
                                      .cancel = rig_cancel,
                                      .apply = rig_apply,
                                      .discard = rig_discard,
                                      .waiting_for = rig_waiting_for,
                                      .gradient_bytes = rig_gradient_bytes,
                                      .export_gradient = rig_export_gradient,
                                      .advance_layer = rig_advance};
    rig_call_begin();
    r->worker = tm_worker_create(&options, &engine);
    rig_call_end(r);
    return r->worker != NULL;
}

static inline void rig_destroy(struct rig *r)
{
    tm_worker_destroy(r->worker);
    mailbox_deinit(&r->box);
    tm_alloc_fail_hold(0);
}

static inline struct tm_worker_view rig_look(const struct rig *r)
{
    return tm_worker_look(r->worker, r->now_ms);
}

static inline struct tm_peer rig_peer(uint64_t id)
{
    return (struct tm_peer){.role = TM_ROLE_WORKER, .id = id, .incarnation = 100 + id};
}

static inline struct tm_peer rig_coordinator(void)
{
    return (struct tm_peer){.role = TM_ROLE_COORDINATOR, .incarnation = RIG_COORDINATOR};
}

static inline void rig_receive(struct rig *r, const tm_message *message)
{
    struct tm_text text;
    struct tm_arena arena;
    struct tm_error e = {.text = ""};
    tm_message *read = NULL;
    tm_alloc_fail_hold(1);
    tm_text_init(&text, 1 << 20);
    tm_arena_init(&arena, 8 << 20);
    tm_message_pack(message, &text);
    assert_row(tm_message_unpack(text.data, text.length, &arena, &read, &e) == 0, "%s: %s", tm_message_name(message),
               e.text);
    rig_call_begin();
    tm_worker_receive(r->worker, r->now_ms, read, &r->box.out);
    rig_call_end(r);
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
}

/* A message from someone, with `body` of the kind. */
#define RIG_TELL(rig, from, name, field, body)                                                                         \
    do {                                                                                                               \
        struct tm_peer rig_from = (from);                                                                              \
        struct tm_peer rig_to = rig_peer(1);                                                                           \
        tm_message rig_message = tm_message_make(RIG_JOB, &rig_from, &rig_to);                                         \
        rig_message.body_case = TMW__ENVELOPE__BODY_##name;                                                            \
        rig_message.field = (body);                                                                                    \
        rig_receive((rig), &rig_message);                                                                              \
    } while (0)

static inline void rig_tick(struct rig *r, int64_t after_ms)
{
    r->now_ms += after_ms;
    rig_call_begin();
    tm_worker_tick(r->worker, r->now_ms, &r->box.out);
    rig_call_end(r);
}

static inline void rig_welcome(struct rig *r, uint64_t nonce)
{
    Tmw__Welcome body = TMW__WELCOME__INIT;
    body.heartbeat_ms = 800;
    body.lease_ms = RIG_LEASE_MS;
    body.orphan_ms = RIG_ORPHAN_MS;
    body.layers = RIG_LAYERS;
    body.steps = RIG_STEPS;
    body.micro_batches = 2;
    body.nonce = nonce;
    RIG_TELL(r, rig_coordinator(), WELCOME, welcome, &body);
}

static inline void rig_challenge(struct rig *r, uint64_t nonce)
{
    Tmw__Challenge body = TMW__CHALLENGE__INIT;
    body.nonce = nonce;
    RIG_TELL(r, rig_coordinator(), CHALLENGE, challenge, &body);
}

/* Answers its newest heartbeat. */
static inline void rig_ack(struct rig *r, uint64_t generation, uint64_t drain_step)
{
    Tmw__HeartbeatAck body = TMW__HEARTBEAT_ACK__INIT;
    const tm_message *newest = NULL;
    for (size_t n = 0;; n++) {
        const tm_message *next = mailbox_find(&r->box, TMW__ENVELOPE__BODY_HEARTBEAT, n);
        if (next == NULL) break;
        newest = next;
    }
    assert_non_null(newest);
    body.sequence = newest->heartbeat->sequence;
    body.generation = generation;
    body.drain_step = drain_step;
    body.keep_all = true;
    RIG_TELL(r, rig_coordinator(), HEARTBEAT_ACK, heartbeat_ack, &body);
}

/* A heartbeat, and its answer. */
static inline void rig_contact(struct rig *r, uint64_t generation)
{
    rig_tick(r, 800);
    rig_ack(r, generation, 0);
}

static inline void rig_join(struct rig *r)
{
    rig_tick(r, 0);
    rig_challenge(r, 77);
    rig_welcome(r, 77);
    rig_ack(r, 0, 0);
    assert_true(rig_look(r).registered);
}

static inline void rig_fence(struct rig *r, uint64_t generation)
{
    Tmw__Fence body = TMW__FENCE__INIT;
    body.generation = generation;
    RIG_TELL(r, rig_coordinator(), FENCE, fence, &body);
}

static inline void rig_start(struct rig *r, uint64_t generation)
{
    Tmw__Start body = TMW__START__INIT;
    body.generation = generation;
    RIG_TELL(r, rig_coordinator(), START, start, &body);
}

static inline void rig_assign(struct rig *r, uint64_t generation, uint64_t base, Tmw__Fetch **fetches, size_t count)
{
    Tmw__Assign body = TMW__ASSIGN__INIT;
    Tmw__Layout layout = TMW__LAYOUT__INIT;
    Tmw__Stage stages[2] = {TMW__STAGE__INIT, TMW__STAGE__INIT};
    Tmw__Stage *stage_list[2] = {&stages[0], &stages[1]};
    Tmw__Member members[3] = {TMW__MEMBER__INIT, TMW__MEMBER__INIT, TMW__MEMBER__INIT};
    Tmw__Member *member_list[3] = {&members[0], &members[1], &members[2]};
    char address[] = "127.0.0.1:9";
    uint32_t micro_batches[] = {2};
    for (uint32_t i = 0; i < 2; i++) {
        stages[i].first_layer = 2 * i;
        stages[i].layer_count = 2;
    }
    for (uint32_t i = 0; i < 3; i++) {
        members[i].id = i + 1;
        members[i].incarnation = 101 + i;
        members[i].address = address;
        members[i].stage = i % 2;
        members[i].spare = i == 2;
    }
    layout.pipelines = 1;
    layout.stages = stage_list;
    layout.n_stages = 2;
    layout.members = member_list;
    layout.n_members = 3;
    layout.micro_batches = micro_batches;
    layout.n_micro_batches = 1;
    body.generation = generation;
    body.base_step = base;
    body.layout = &layout;
    body.fetches = fetches;
    body.n_fetches = count;
    body.vote_fan = r->vote_fan;
    RIG_TELL(r, rig_coordinator(), ASSIGN, assign, &body);
}

/* From the job's seed: layers 0 and 1 are made, nothing is fetched. */
static inline void rig_assign_initial(struct rig *r, uint64_t generation)
{
    Tmw__Fetch fetches[2] = {TMW__FETCH__INIT, TMW__FETCH__INIT};
    Tmw__Fetch *list[2] = {&fetches[0], &fetches[1]};
    for (uint32_t i = 0; i < 2; i++) {
        fetches[i].layer = i;
        fetches[i].initial = true;
    }
    rig_assign(r, generation, 0, list, 2);
}

static inline void rig_prepared(struct rig *r, struct tm_peer from, uint64_t generation, uint64_t step, bool answer)
{
    Tmw__Prepared body = TMW__PREPARED__INIT;
    Tmw__NormPart norms[2] = {TMW__NORM_PART__INIT, TMW__NORM_PART__INIT};
    Tmw__NormPart *list[2] = {&norms[0], &norms[1]};
    for (uint32_t i = 0; i < 2; i++) { /* of stage 1 */
        norms[i].layer = 2 + i;
        norms[i].sum = 0.25 * (double)(i + 1);
    }
    body.generation = generation;
    body.step = step;
    body.norms = list;
    body.n_norms = 2;
    body.answer = answer;
    RIG_TELL(r, from, PREPARED, prepared, &body);
}

/* The engine holds the step's gradients: shares 1 and 2 of layers 0 and 1. */
static inline void rig_held(struct rig *r, uint64_t step)
{
    const struct tm_norm norms[] = {{.layer = 0, .sum = 1}, {.layer = 1, .sum = 2}};
    rig_call_begin();
    tm_worker_held(r->worker, r->now_ms, step, norms, 2, &r->box.out);
    rig_call_end(r);
}

/* The engine has applied it. */
static inline void rig_applied(struct rig *r, uint64_t step)
{
    for (uint32_t l = 0; l < RIG_LAYERS; l++)
        if (r->engine.have[l]) rig_state(l, step, r->engine.bytes[l]);
    rig_call_begin();
    tm_worker_applied(r->worker, r->now_ms, step, &r->box.out);
    rig_call_end(r);
}

/* One whole step in this generation. */
static inline void rig_step(struct rig *r, uint64_t generation, uint64_t step)
{
    rig_held(r, step);
    rig_prepared(r, rig_peer(2), generation, step, false);
    rig_applied(r, step);
}

/* Joined, and running `generation` from the job's seed. */
static inline void rig_run(struct rig *r, uint64_t generation)
{
    rig_join(r);
    rig_fence(r, generation);
    rig_assign_initial(r, generation);
    rig_start(r, generation);
    assert_int_equal(rig_look(r).phase, TM_WORKER_RUNNING);
    assert_int_equal(r->engine.begun, 1);
}

#endif
