/* A coordinator on a bench: workers that say what a test wants them to, and what came of it. */
#ifndef TM_RUN_COORD_BENCH_H
#define TM_RUN_COORD_BENCH_H

#include "base/test/harness.h"
#include "run/coordinator.h"
#include "wire/proof.h"

#include <stdio.h>
#include <string.h>

enum { BENCH_JOB = 3, BENCH_LAYERS = 4 };

static const struct tm_coordinator_options bench_options = {.job = BENCH_JOB,
                                                            .incarnation = 22,
                                                            .token = "t",
                                                            .layers = BENCH_LAYERS,
                                                            .steps = 1000,
                                                            .micro_batches = 4,
                                                            .heartbeat_ms = 100,
                                                            .lease_ms = 1000,
                                                            .orphan_ms = 3000,
                                                            .resend_ms = 100,
                                                            .drain_limit_ms = 100000,
                                                            .fetch_limit_ms = 100000,
                                                            .stall_ms = 100000,
                                                            .copy_limit_ms = 100000,
                                                            .sets_kept = 2,
                                                            .fresh = true};

struct bench {
    struct tm_use_all rule;
    struct tm_coordinator *coordinator;
    struct tm_outbox out;
    struct tm_arena arena;
    int64_t now_ms;
    uint64_t drain_step;    /* heartbeats know of */
    uint64_t report_ago_ms; /* how long ago the step was applied, say reports */
};

static inline void bench_open_as(struct bench *b, const struct tm_coordinator_options *options)
{
    *b = (struct bench){.rule = {.stages = 2, .workers_min = 1, .workers_max = 6}, .now_ms = 1000};
    struct tm_decider decider = tm_decider_use_all(&b->rule);
    b->coordinator = tm_coordinator_create(options, &decider);
    assert_non_null(b->coordinator);
    tm_outbox_init(&b->out);
    tm_arena_init(&b->arena, 64 << 20);
}

static inline void bench_open(struct bench *b)
{
    bench_open_as(b, &bench_options);
    tm_coordinator_begin(b->coordinator, b->now_ms, 0, &b->out);
}

static inline void bench_close(struct bench *b)
{
    tm_coordinator_destroy(b->coordinator);
    tm_outbox_deinit(&b->out);
    tm_arena_deinit(&b->arena);
}

/* The newest message of a kind to that worker since the last bench_forget; NULL: none. */
static inline const tm_message *bench_said(struct bench *b, uint64_t worker, int body)
{
    tm_message *found = NULL;
    for (size_t i = 0; i < b->out.count; i++) {
        const struct tm_action *action = &b->out.actions[i];
        tm_message *message = NULL;
        if (action->kind != TM_ACTION_SEND || action->to.id != worker || action->to.role != TM_ROLE_WORKER) continue;
        assert_int_equal(tm_message_unpack(tm_outbox_data(&b->out, action), action->length, &b->arena, &message, NULL),
                         0);
        if ((int)message->body_case == body) found = message;
    }
    return found;
}

static inline void bench_forget(struct bench *b)
{
    tm_outbox_clear(&b->out);
}

/* How many events of a kind were recorded since then; the last of them. */
static inline size_t bench_recorded(struct bench *b, Tmw__RecordEvent__BodyCase body, Tmw__RecordEvent **out_last)
{
    size_t count = 0;
    for (size_t i = 0; i < b->out.count; i++) {
        const struct tm_action *action = &b->out.actions[i];
        Tmw__RecordEvent *event = NULL;
        if (action->kind != TM_COORDINATOR_RECORD) continue;
        assert_int_equal(
            tm_record_event_unpack(tm_outbox_data(&b->out, action), action->length, &b->arena, &event, NULL), 0);
        if (event->body_case != body) continue;
        if (out_last != NULL) *out_last = event;
        count++;
    }
    return count;
}

static inline uint64_t bench_generation(const struct bench *b)
{
    return tm_coordinator_look(b->coordinator).generation;
}

static inline tm_message bench_head(uint64_t worker)
{
    struct tm_peer from = {.role = TM_ROLE_WORKER, .id = worker, .incarnation = 100 + worker};
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    return tm_message_make(BENCH_JOB, &from, &to);
}

static inline void bench_tick(struct bench *b, int64_t after_ms)
{
    b->now_ms += after_ms;
    tm_coordinator_tick(b->coordinator, b->now_ms, b->now_ms, &b->out);
}

/* The worker joins. */
static inline void bench_hello_as(struct bench *b, tm_message *message, bool anchor)
{
    Tmw__Hello body = TMW__HELLO__INIT;
    struct tm_peer self = tm_message_sender(message);
    uint8_t proof[TM_PROOF_BYTES];
    body.anchor = anchor;
    message->body_case = TMW__ENVELOPE__BODY_HELLO;
    message->hello = &body;
    tm_coordinator_receive(b->coordinator, b->now_ms, message, &b->out);
    const tm_message *challenge = bench_said(b, message->from_id, TMW__ENVELOPE__BODY_CHALLENGE);
    assert_non_null(challenge);
    tm_proof_put_hello("t", message->job, &self, challenge->challenge->nonce, proof, &body);
    tm_coordinator_receive(b->coordinator, b->now_ms, message, &b->out);
}

static inline void bench_hello(struct bench *b, uint64_t worker)
{
    tm_message message = bench_head(worker);
    bench_hello_as(b, &message, false);
}

/* Its answer to the fence: layers [first, last) of step `applied`. */
static inline void bench_report(struct bench *b, uint64_t worker, uint64_t applied, uint64_t held, uint32_t first,
                                uint32_t last)
{
    Tmw__Report body = TMW__REPORT__INIT;
    Tmw__LayerState states[BENCH_LAYERS];
    Tmw__LayerState *list[BENCH_LAYERS];
    tm_message message = bench_head(worker);
    for (uint32_t l = first; l < last; l++) {
        tmw__layer_state__init(&states[l]);
        states[l].layer = l;
        states[l].step = applied;
        states[l].hash_low = 1000 * applied + l;
        list[body.n_layers++] = &states[l];
    }
    body.generation = bench_generation(b);
    body.applied = applied;
    body.held = held;
    body.working_on = held;
    body.norm_known = applied > 0;
    body.applied_ago_ms = b->report_ago_ms;
    body.norm = 1;
    body.layers = list;
    message.body_case = TMW__ENVELOPE__BODY_REPORT;
    message.report = &body;
    tm_coordinator_receive(b->coordinator, b->now_ms, &message, &b->out);
}

static inline void bench_ready(struct bench *b, uint64_t worker)
{
    Tmw__Ready body = TMW__READY__INIT;
    tm_message message = bench_head(worker);
    body.generation = bench_generation(b);
    message.body_case = TMW__ENVELOPE__BODY_READY;
    message.ready = &body;
    tm_coordinator_receive(b->coordinator, b->now_ms, &message, &b->out);
}

/* It trains: `applied` was applied `ago_ms` ago. */
static inline void bench_heartbeat(struct bench *b, uint64_t worker, uint64_t applied, uint64_t ago_ms)
{
    static uint64_t sequence;
    Tmw__Heartbeat body = TMW__HEARTBEAT__INIT;
    tm_message message = bench_head(worker);
    body.sequence = ++sequence;
    body.generation = bench_generation(b);
    body.phase = TM_WORKER_RUNNING;
    body.applied = applied;
    body.applied_ago_ms = ago_ms;
    body.step_ms = 70;
    body.drain_step = b->drain_step;
    message.body_case = TMW__ENVELOPE__BODY_HEARTBEAT;
    message.heartbeat = &body;
    tm_coordinator_receive(b->coordinator, b->now_ms, &message, &b->out);
}

static inline void bench_dead(struct bench *b, uint64_t worker)
{
    struct tm_peer peer = {.role = TM_ROLE_WORKER, .id = worker, .incarnation = 100 + worker};
    tm_coordinator_dead(b->coordinator, b->now_ms, &peer, &b->out);
}

/* Workers 1 to `count` train from the beginning. */
static inline void bench_run(struct bench *b, uint64_t count)
{
    for (uint64_t w = 1; w <= count; w++)
        bench_hello(b, w);
    for (uint64_t w = 1; w <= count; w++)
        bench_report(b, w, 0, 0, 0, 0);
    for (uint64_t w = 1; w <= count; w++)
        bench_ready(b, w);
    assert_int_equal(tm_coordinator_look(b->coordinator).phase, TM_COORDINATOR_RUNNING);
}

#endif
