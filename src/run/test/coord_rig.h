/* One coordinator alone: the test is every worker, agent and cloud. Fakes answer as workers do (or do not, where a test
 * tells them to be silent), so that a test can go to where its question begins and ask it message by message.
 *
 * Four layers, two stages, four micro-batches. Fake worker i is instance i, its process 100 i + n. */
#ifndef TM_RUN_COORD_RIG_H
#define TM_RUN_COORD_RIG_H

#include "run/coordinator.h"
#include "wire/hash.h"
#include "wire/proof.h"
#include "wire/test/mailbox.h"

enum { RIG_JOB = 9, RIG_LAYERS = 4, RIG_FAKES = 9, RIG_COPIES_MAX = 64, RIG_SELF = 55 };

struct fake_copy {
    uint64_t set, step;
    uint32_t layer;
};

struct fake {
    bool here;   /* its process lives */
    bool silent; /* but says nothing, and hears nothing */
    uint64_t incarnation;
    uint64_t sequence;
    uint64_t nonce;
    bool joined;
    bool lost; /* the engine holds no gradients when asked */
    uint64_t generation;
    enum tm_worker_phase phase;
    uint64_t applied, held, working_on, waiting_for, drain_step;
    double norm;
    bool norm_known;
    bool have[RIG_LAYERS];
    uint64_t layer_step[RIG_LAYERS];
    uint64_t assigned, base;
    uint32_t first_layer, last_layer;
    struct fake_copy copies[RIG_COPIES_MAX];
    size_t copy_count;
    /* the copy set that it was ordered to make */
    uint64_t set, set_step;
    Tmw__CopyPart parts[RIG_LAYERS * 8];
    size_t part_count;
    uint64_t agent_incarnation, agent_sequence;
};

struct coord_rig {
    struct tm_coordinator *coordinator;
    struct tm_coordinator_options options;
    struct tm_use_all rule;
    struct mailbox box;
    size_t reacted;               /* actions that fakes have answered */
    struct fake fakes[RIG_FAKES]; /* by number; 0 is nobody */
    int64_t now_ms;
    int failed;           /* the machine said that it must be destroyed */
    uint64_t damaged_set; /* every copy of this layer in it, wherever it is */
    uint32_t damaged_layer;
    int damage_found;    /* so often */
    struct tm_text disk; /* the record: entries as frames */
};

static const struct tm_coordinator_options rig_options = {.job = RIG_JOB,
                                                          .incarnation = RIG_SELF,
                                                          .token = "the token",
                                                          .random_seed = 3,
                                                          .layers = RIG_LAYERS,
                                                          .steps = 100,
                                                          .micro_batches = 4,
                                                          .heartbeat_ms = 500,
                                                          .lease_ms = 4000,
                                                          .orphan_ms = 20000,
                                                          .resend_ms = 600,
                                                          .settle_ms = 1500,
                                                          .drain_limit_ms = 15000,
                                                          .fetch_limit_ms = 8000,
                                                          .stall_ms = 12000,
                                                          .quarantine_ms = 15000,
                                                          .copy_limit_ms = 20000,
                                                          .false_alarm_ms = 10000,
                                                          .durable_wait_ms = 30000,
                                                          .copies = 1,
                                                          .copies_to_files = true,
                                                          .sets_kept = 2,
                                                          .fresh = true};

/* ---- calling it: only the machine's own allocations count ---- */

static inline void rig_call_begin(void)
{
    tm_alloc_fail_hold(0);
}

static inline void rig_call_end(struct coord_rig *r)
{
    tm_alloc_fail_hold(1);
    if (tm_outbox_status(&r->box.out, NULL) != 0) r->failed = 1;
}

static inline bool rig_create(struct coord_rig *r, const struct tm_coordinator_options *options)
{
    *r = (struct coord_rig){
        .options = options == NULL ? rig_options : *options, .rule = {.stages = 2, .workers_min = 2}, .now_ms = 1000};
    mailbox_init(&r->box);
    tm_text_init(&r->disk, 1 << 22);
    struct tm_decider decider = tm_decider_use_all(&r->rule);
    rig_call_begin();
    r->coordinator = tm_coordinator_create(&r->options, &decider);
    rig_call_end(r);
    return r->coordinator != NULL;
}

static inline void rig_begin(struct coord_rig *r)
{
    rig_call_begin();
    tm_coordinator_begin(r->coordinator, r->now_ms, 1000000 + r->now_ms, &r->box.out);
    rig_call_end(r);
}

static inline void rig_destroy(struct coord_rig *r)
{
    tm_coordinator_destroy(r->coordinator);
    mailbox_deinit(&r->box);
    tm_text_deinit(&r->disk);
    tm_alloc_fail_hold(0);
}

/* What was said is carried out, and forgotten here. */
static inline void rig_clear(struct coord_rig *r)
{
    for (size_t i = 0; i < r->box.out.count; i++)
        if (r->box.out.actions[i].kind == TM_COORDINATOR_RECORD)
            tm_frame_append(&r->disk, tm_outbox_data(&r->box.out, &r->box.out.actions[i]),
                            r->box.out.actions[i].length);
    mailbox_clear(&r->box);
    r->reacted = 0;
}

static inline struct tm_coordinator_view rig_look(const struct coord_rig *r)
{
    return tm_coordinator_look(r->coordinator);
}

static inline void rig_tick(struct coord_rig *r, int64_t after_ms)
{
    r->now_ms += after_ms;
    rig_call_begin();
    tm_coordinator_tick(r->coordinator, r->now_ms, 1000000 + r->now_ms, &r->box.out);
    rig_call_end(r);
}

static inline void rig_receive(struct coord_rig *r, const tm_message *message)
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
    tm_coordinator_receive(r->coordinator, r->now_ms, read, &r->box.out);
    rig_call_end(r);
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
}

static inline struct tm_peer rig_worker(const struct coord_rig *r, uint64_t id)
{
    return (struct tm_peer){.role = TM_ROLE_WORKER, .id = id, .incarnation = r->fakes[id].incarnation};
}

static inline struct tm_peer rig_agent(const struct coord_rig *r, uint64_t id)
{
    return (struct tm_peer){.role = TM_ROLE_AGENT, .id = id, .incarnation = r->fakes[id].agent_incarnation};
}

#define RIG_TELL(rig, from, name, field, body)                                                                         \
    do {                                                                                                               \
        struct tm_peer rig_from = (from);                                                                              \
        struct tm_peer rig_to = {.role = TM_ROLE_COORDINATOR, .incarnation = (rig)->options.incarnation};              \
        tm_message rig_message = tm_message_make(RIG_JOB, &rig_from, &rig_to);                                         \
        rig_message.body_case = TMW__ENVELOPE__BODY_##name;                                                            \
        rig_message.field = (body);                                                                                    \
        rig_receive((rig), &rig_message);                                                                              \
    } while (0)

/* ---- what fakes say ---- */

static inline struct tm_hash rig_hash(uint32_t layer, uint64_t step)
{
    return (struct tm_hash){.low = 1000 * step + layer + 1, .high = 7};
}

static inline void rig_hello(struct coord_rig *r, struct tm_peer from, uint64_t nonce, const char *token)
{
    Tmw__Hello body = TMW__HELLO__INIT;
    char address[] = "127.0.0.1:9";
    char kernel_class[] = "test";
    uint8_t proof[TM_PROOF_BYTES];
    tm_proof_put_hello(token, RIG_JOB, &from, nonce, proof, &body);
    body.address = address;
    body.kernel_class = kernel_class;
    body.instance = from.id;
    RIG_TELL(r, from, HELLO, hello, &body);
}

static inline void rig_heartbeat(struct coord_rig *r, uint64_t id)
{
    struct fake *fake = &r->fakes[id];
    Tmw__Heartbeat body = TMW__HEARTBEAT__INIT;
    Tmw__CopyPart *list[RIG_LAYERS * 8];
    body.sequence = ++fake->sequence;
    body.generation = fake->generation;
    body.phase = fake->phase;
    body.applied = fake->applied;
    body.held = fake->held;
    body.working_on = fake->working_on;
    body.waiting_for = fake->waiting_for;
    body.progress = fake->applied + fake->assigned;
    body.step_ms = 500;
    body.drain_step = fake->drain_step;
    body.copied_set = fake->set;
    for (size_t i = 0; fake->set != 0 && fake->applied >= fake->set_step && i < fake->part_count; i++)
        list[body.n_copied++] = &fake->parts[i];
    body.copied = list;
    RIG_TELL(r, rig_worker(r, id), HEARTBEAT, heartbeat, &body);
}

static inline void rig_report(struct coord_rig *r, uint64_t id)
{
    struct fake *fake = &r->fakes[id];
    Tmw__Report body = TMW__REPORT__INIT;
    Tmw__LayerState layers[RIG_LAYERS];
    Tmw__LayerState *layer_list[RIG_LAYERS];
    Tmw__CopyPart copies[RIG_COPIES_MAX];
    Tmw__CopyPart *copy_list[RIG_COPIES_MAX];
    body.generation = fake->generation;
    body.applied = fake->applied;
    body.held = fake->held;
    body.norm = fake->norm;
    body.norm_known = fake->norm_known;
    for (uint32_t l = 0; l < RIG_LAYERS; l++) {
        if (!fake->have[l]) continue;
        Tmw__LayerState *layer = &layers[body.n_layers];
        struct tm_hash hash = rig_hash(l, fake->layer_step[l]);
        tmw__layer_state__init(layer);
        layer->layer = l;
        layer->step = fake->layer_step[l];
        layer->hash_low = hash.low;
        layer->hash_high = hash.high;
        layer_list[body.n_layers++] = layer;
    }
    for (size_t i = 0; i < fake->copy_count; i++) {
        struct tm_hash hash = rig_hash(fake->copies[i].layer, fake->copies[i].step);
        tmw__copy_part__init(&copies[i]);
        copies[i].set = fake->copies[i].set;
        copies[i].step = fake->copies[i].step;
        copies[i].layer = fake->copies[i].layer;
        copies[i].hash_low = hash.low;
        copies[i].hash_high = hash.high;
        copies[i].holder = id;
        copy_list[body.n_copies++] = &copies[i];
    }
    body.layers = layer_list;
    body.copies = copy_list;
    RIG_TELL(r, rig_worker(r, id), REPORT, report, &body);
}

static inline void rig_ready(struct coord_rig *r, uint64_t id)
{
    Tmw__Ready body = TMW__READY__INIT;
    body.generation = r->fakes[id].generation;
    RIG_TELL(r, rig_worker(r, id), READY, ready, &body);
}

struct agent_word {
    uint64_t ended; /* incarnation of the worker that ended */
    bool notice;
    uint64_t notice_left_ms;
};

static inline void rig_agent_says(struct coord_rig *r, uint64_t id, struct agent_word word)
{
    struct fake *fake = &r->fakes[id];
    Tmw__AgentHeartbeat body = TMW__AGENT_HEARTBEAT__INIT;
    body.sequence = ++fake->agent_sequence;
    body.worker_runs = fake->here;
    body.worker_incarnation = fake->here ? fake->incarnation : 0;
    body.ended_incarnation = word.ended;
    body.notice = word.notice;
    body.notice_left_ms = word.notice_left_ms;
    body.instance = id;
    RIG_TELL(r, rig_agent(r, id), AGENT_HEARTBEAT, agent_heartbeat, &body);
}

/* ---- what fakes do with what they hear ---- */

static inline void fake_copies_made(struct coord_rig *r, uint64_t id)
{
    struct fake *fake = &r->fakes[id];
    for (size_t i = 0; i < fake->part_count; i++) {
        struct fake *holder = &r->fakes[fake->parts[i].holder];
        if (fake->parts[i].holder == 0 || holder->copy_count == RIG_COPIES_MAX) continue;
        bool there = false;
        for (size_t c = 0; c < holder->copy_count; c++)
            there = there || (holder->copies[c].set == fake->set && holder->copies[c].layer == fake->parts[i].layer);
        if (!there)
            holder->copies[holder->copy_count++] =
                (struct fake_copy){.set = fake->set, .step = fake->set_step, .layer = fake->parts[i].layer};
    }
}

/* Takes one step further, if it trains. */
static inline void fake_step(struct coord_rig *r, uint64_t id)
{
    struct fake *fake = &r->fakes[id];
    bool may = fake->here && fake->phase == TM_WORKER_RUNNING && fake->last_layer > 0;
    if (!may || (fake->drain_step != 0 && fake->applied >= fake->drain_step)) return;
    if (fake->applied >= r->options.steps) return;
    fake->applied++;
    fake->norm_known = true;
    fake->norm = (double)fake->applied;
    for (uint32_t l = fake->first_layer; l < fake->last_layer; l++)
        fake->layer_step[l] = fake->applied;
    if (fake->set != 0 && fake->applied == fake->set_step) fake_copies_made(r, id);
}

static inline void fake_fenced(struct fake *fake, uint64_t generation)
{
    if (generation <= fake->generation) return;
    fake->generation = generation;
    fake->phase = TM_WORKER_FENCED;
    fake->set = 0;
    fake->part_count = 0;
    fake->drain_step = 0;
    fake->working_on = 0;
}

/* It was told to fetch what is damaged, and says so. */
static inline bool fake_finds_damage(struct coord_rig *r, uint64_t id, const Tmw__Assign *assign)
{
    for (size_t i = 0; i < assign->n_fetches; i++) {
        const Tmw__Fetch *fetch = assign->fetches[i];
        if (fetch->set == 0 || fetch->set != r->damaged_set || fetch->layer != r->damaged_layer) continue;
        Tmw__FetchFailed body = TMW__FETCH_FAILED__INIT;
        body.generation = assign->generation;
        body.layer = fetch->layer;
        body.set = fetch->set;
        body.source = fetch->n_sources > 0 ? fetch->sources[0] : 0; /* files, where nobody holds it */
        r->damage_found++;
        RIG_TELL(r, rig_worker(r, id), FETCH_FAILED, fetch_failed, &body);
        return true;
    }
    return false;
}

static inline void fake_assigned(struct coord_rig *r, uint64_t id, const Tmw__Assign *assign)
{
    struct fake *fake = &r->fakes[id];
    if (assign->generation != fake->generation || fake->phase != TM_WORKER_FENCED) return;
    if (fake_finds_damage(r, id, assign)) return;
    fake->assigned = assign->generation;
    fake->base = assign->base_step;
    fake->held = 0;
    fake->first_layer = fake->last_layer = 0;
    for (size_t i = 0; i < assign->layout->n_members; i++) {
        const Tmw__Member *member = assign->layout->members[i];
        if (member->id != id || member->spare) continue;
        fake->first_layer = assign->layout->stages[member->stage]->first_layer;
        fake->last_layer = fake->first_layer + assign->layout->stages[member->stage]->layer_count;
    }
    for (size_t i = 0; i < assign->n_fetches; i++) {
        fake->have[assign->fetches[i]->layer] = true;
        fake->layer_step[assign->fetches[i]->layer] = assign->base_step;
    }
    if (fake->applied != assign->base_step) fake->norm_known = false;
    fake->applied = assign->base_step;
    fake->phase = TM_WORKER_READY;
    rig_ready(r, id);
}

static inline void fake_started(struct fake *fake, uint64_t generation)
{
    if (generation != fake->generation || fake->phase != TM_WORKER_READY) return;
    fake->phase = TM_WORKER_RUNNING;
    for (uint32_t l = 0; l < RIG_LAYERS; l++)
        if (l < fake->first_layer || l >= fake->last_layer) fake->have[l] = false;
}

static inline void fake_ordered(struct coord_rig *r, uint64_t id, const Tmw__CopyOrder *order)
{
    struct fake *fake = &r->fakes[id];
    if (order->generation != fake->generation || order->set <= fake->set) return;
    fake->set = order->set;
    fake->set_step = order->step;
    fake->part_count = 0;
    for (size_t i = 0; i < order->n_tasks; i++) {
        const Tmw__CopyTask *task = order->tasks[i];
        for (size_t t = 0; t < task->n_targets + (task->to_file != 0); t++) {
            struct tm_hash hash = rig_hash(task->layer, order->step);
            Tmw__CopyPart *part = &fake->parts[fake->part_count++];
            tmw__copy_part__init(part);
            part->set = order->set;
            part->step = order->step;
            part->layer = task->layer;
            part->hash_low = hash.low;
            part->hash_high = hash.high;
            part->holder = t < task->n_targets ? task->targets[t] : 0;
        }
    }
    if (fake->applied == order->step) fake_copies_made(r, id);
}

static inline void fake_hears(struct coord_rig *r, uint64_t id, const tm_message *message)
{
    struct fake *fake = &r->fakes[id];
    switch (message->body_case) {
    case TMW__ENVELOPE__BODY_CHALLENGE:
        fake->nonce = message->challenge->nonce;
        rig_hello(r, rig_worker(r, id), fake->nonce, "the token");
        break;
    case TMW__ENVELOPE__BODY_WELCOME:
        fake->joined = true;
        rig_heartbeat(r, id);
        break;
    case TMW__ENVELOPE__BODY_HEARTBEAT_ACK:
        fake_fenced(fake, message->heartbeat_ack->generation);
        fake->drain_step = message->heartbeat_ack->drain_step;
        break;
    case TMW__ENVELOPE__BODY_FENCE:
        fake_fenced(fake, message->fence->generation);
        if (fake->phase == TM_WORKER_FENCED) rig_report(r, id);
        break;
    case TMW__ENVELOPE__BODY_RESOLVE:
        if (fake->held == message->resolve->step) {
            fake->applied = fake->held;
            fake->held = 0;
            fake->norm = message->resolve->norm;
            fake->norm_known = true;
            for (uint32_t l = 0; l < RIG_LAYERS; l++)
                fake->layer_step[l] = fake->applied;
        }
        rig_report(r, id);
        break;
    case TMW__ENVELOPE__BODY_ASSIGN:
        fake_assigned(r, id, message->assign);
        break;
    case TMW__ENVELOPE__BODY_START:
        fake_started(fake, message->start->generation);
        break;
    case TMW__ENVELOPE__BODY_COPY_ORDER:
        fake_ordered(r, id, message->copy_order);
        break;
    case TMW__ENVELOPE__BODY_STOP:
        fake->phase = TM_WORKER_STOPPED;
        break;
    default:
        break;
    }
}

/* Fakes hear all that was said to them and answer, until nobody has anything to say. */
static inline void rig_talk(struct coord_rig *r)
{
    for (; !r->failed; r->reacted++) {
        mailbox_read(&r->box);
        if (r->reacted >= r->box.read) return;
        const tm_message *message = r->box.sent[r->reacted];
        struct tm_peer to = r->box.out.actions[r->reacted].to;
        if (message == NULL || to.role != TM_ROLE_WORKER || to.id >= RIG_FAKES) continue;
        struct fake *fake = &r->fakes[to.id];
        if (fake->here && !fake->silent && fake->incarnation == to.incarnation) fake_hears(r, to.id, message);
    }
}

/* ---- getting somewhere ---- */

static inline void rig_arrive(struct coord_rig *r, uint64_t id)
{
    struct fake *fake = &r->fakes[id];
    uint64_t before = fake->incarnation;
    uint64_t sequence = fake->agent_sequence;
    uint64_t agent = fake->agent_incarnation;
    *fake = (struct fake){.here = true, .incarnation = before == 0 ? 100 * id : before + 1};
    fake->agent_sequence = sequence;
    fake->agent_incarnation = agent;
    rig_hello(r, rig_worker(r, id), 0, "the token");
    rig_talk(r);
}

/* An agent joins: it answers the challenge by itself. */
static inline void rig_agent_joins(struct coord_rig *r, uint64_t id)
{
    r->fakes[id].agent_incarnation = 5000 + id;
    rig_hello(r, rig_agent(r, id), 0, "the token");
    const tm_message *challenge = NULL;
    for (size_t n = 0;; n++) {
        int place = mailbox_place(&r->box, TMW__ENVELOPE__BODY_CHALLENGE, n);
        if (place < 0) break;
        if (tm_peer_equal(&r->box.out.actions[place].to, &(struct tm_peer){TM_ROLE_AGENT, id, 5000 + id}))
            challenge = r->box.sent[place];
    }
    if (challenge != NULL) rig_hello(r, rig_agent(r, id), challenge->challenge->nonce, "the token");
}

/* Time passes, half a second at a time: who is here sends a heartbeat and, where it trains, takes a step. */
static inline void rig_pass(struct coord_rig *r, int64_t ms, bool steps)
{
    for (int64_t end_ms = r->now_ms + ms; r->now_ms < end_ms && !r->failed;) {
        rig_clear(r);
        rig_tick(r, 500);
        rig_talk(r);
        for (uint64_t id = 1; id < RIG_FAKES && !r->failed; id++) {
            struct fake *fake = &r->fakes[id];
            if (!fake->here || fake->silent) continue;
            if (!fake->joined) rig_hello(r, rig_worker(r, id), fake->nonce, "the token");
            if (steps) fake_step(r, id);
            if (fake->joined && !r->failed) rig_heartbeat(r, id);
            if (!r->failed && fake->agent_incarnation != 0) rig_agent_says(r, id, (struct agent_word){0});
        }
        rig_talk(r);
    }
}

/* Workers 1 to `count` are members; where the count is odd, one is a spare. */
static inline void rig_run(struct coord_rig *r, uint64_t count)
{
    uint32_t least = r->rule.workers_min;
    r->rule.workers_min = (uint32_t)count; /* all in the first generation */
    rig_begin(r);
    for (uint64_t id = 1; id <= count; id++)
        rig_arrive(r, id);
    rig_pass(r, 1000, false);
    r->rule.workers_min = least;
    assert_int_equal(rig_look(r).phase, TM_COORDINATOR_RUNNING);
    assert_int_equal(tm_roster_seated(rig_look(r).roster), count / 2 * 2);
    rig_clear(r);
}

/* ---- the record ---- */

/* Another process takes over, with the record or without one. It has not begun. */
static inline void rig_restart(struct coord_rig *r, bool with_record)
{
    struct tm_decider decider = tm_decider_use_all(&r->rule);
    rig_clear(r);
    tm_coordinator_destroy(r->coordinator);
    r->options.incarnation++;
    r->options.fresh = false;
    r->coordinator = tm_coordinator_create(&r->options, &decider);
    assert_non_null(r->coordinator);
    for (size_t at = 0; with_record && at < r->disk.length;) {
        struct tm_arena arena;
        Tmw__RecordEvent *event = NULL;
        struct tm_error e = {.text = ""};
        int64_t size = tm_frame_next(r->disk.data + at, r->disk.length - at, NULL);
        tm_arena_init(&arena, 1 << 20);
        assert_int_equal(
            tm_record_event_unpack(r->disk.data + at + TM_FRAME_HEADER, (size_t)size, &arena, &event, NULL), 0);
        assert_row(tm_coordinator_load(r->coordinator, event, &e) == 0, "%s", e.text);
        tm_arena_deinit(&arena);
        at += TM_FRAME_HEADER + (size_t)size;
    }
    for (uint64_t id = 1; id < RIG_FAKES; id++)
        r->fakes[id].joined = false;
}

/* The place of the n-th entry of a kind; -1. */
static inline int rig_recorded(struct coord_rig *r, Tmw__RecordEvent__BodyCase kind, size_t n,
                               Tmw__RecordEvent **out_event)
{
    for (size_t i = 0; i < r->box.out.count; i++) {
        const struct tm_action *action = &r->box.out.actions[i];
        Tmw__RecordEvent *event = NULL;
        if (action->kind != TM_COORDINATOR_RECORD) continue;
        int rc =
            tm_record_event_unpack(tm_outbox_data(&r->box.out, action), action->length, &r->box.arena, &event, NULL);
        assert_int_equal(rc, 0);
        if (event->body_case != kind || n-- > 0) continue;
        if (out_event != NULL) *out_event = event;
        return (int)i;
    }
    return -1;
}

#endif
