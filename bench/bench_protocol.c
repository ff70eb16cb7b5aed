/* What the protocol costs, as ratios to a baseline of the same run.
 *
 * - The coordinator alone, with 32 to 1,024 members played by this program: heartbeats a second (baseline: unpacking
 *   each and packing an answer, which any program must), and from the loss of a member to the start of the next
 *   generation: how many messages, how much of the coordinator's own time (baseline: packing the assignments).
 * - Messages: packing and unpacking, small ones and ones that carry a megabyte (baseline: memcpy of their bytes). */
#include "base/alloc.h"
#include "run/coordinator.h"
#include "wire/hash.h"
#include "wire/proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { JOB = 3, LAYERS = 96, STAGES = 8, MEMBERS_MOST = 1024, SELF = 77, CHUNK_BYTES = 1 << 20 };

/* CPU time of this process, so that other work on the machine shows little. */
static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void must(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "bench_protocol: %s\n", what);
    exit(1);
}

/* ---- a cluster of one real coordinator and fakes ---- */

struct member {
    uint64_t generation, assigned, applied, sequence;
    uint32_t phase, first_layer, last_layer;
    bool dead;
};

struct cluster {
    struct tm_coordinator *coordinator;
    struct tm_use_all rule;
    struct tm_outbox out;
    struct member members[MEMBERS_MOST + 1];
    size_t count;
    int64_t now_ms;
    double spent_s; /* inside the coordinator */
    uint64_t heard; /* messages to it ... */
    uint64_t said;  /* ... and from it */
    uint64_t said_bytes;
};

static struct tm_peer peer_of(uint64_t id)
{
    return (struct tm_peer){.role = TM_ROLE_WORKER, .id = id, .incarnation = 1000 + id};
}

static tm_message head_of(uint64_t id)
{
    struct tm_peer from = peer_of(id);
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR, .incarnation = SELF};
    return tm_message_make(JOB, &from, &to);
}

static void tell(struct cluster *c, tm_message *message)
{
    double start_s = now_s();
    tm_coordinator_receive(c->coordinator, c->now_ms, message, &c->out);
    c->spent_s += now_s() - start_s;
    c->heard++;
}

static void hello(struct cluster *c, uint64_t id, uint64_t nonce)
{
    Tmw__Hello body = TMW__HELLO__INIT;
    tm_message message = head_of(id);
    struct tm_peer self = tm_message_sender(&message);
    uint8_t proof[TM_PROOF_BYTES];
    tm_proof_put_hello("t", message.job, &self, nonce, proof, &body);
    message.body_case = TMW__ENVELOPE__BODY_HELLO;
    message.hello = &body;
    tell(c, &message);
}

static void fill_heartbeat(struct cluster *c, uint64_t id, Tmw__Heartbeat *body)
{
    struct member *member = &c->members[id];
    tmw__heartbeat__init(body);
    body->sequence = ++member->sequence;
    body->generation = member->generation;
    body->phase = member->phase;
    body->applied = member->applied;
    body->working_on = member->phase == TM_WORKER_RUNNING ? member->applied + 1 : 0;
    body->progress = member->applied;
    body->step_ms = 900;
}

static void report(struct cluster *c, uint64_t id)
{
    struct member *member = &c->members[id];
    Tmw__Report body = TMW__REPORT__INIT;
    Tmw__LayerState layers[LAYERS];
    Tmw__LayerState *list[LAYERS];
    tm_message message = head_of(id);
    body.generation = member->generation;
    body.assigned = member->assigned;
    body.applied = member->applied;
    body.norm_known = member->applied > 0;
    for (uint32_t l = member->first_layer; l < member->last_layer; l++) {
        Tmw__LayerState *layer = &layers[body.n_layers];
        tmw__layer_state__init(layer);
        layer->layer = l;
        layer->step = member->applied;
        layer->hash_low = l + 1;
        list[body.n_layers++] = layer;
    }
    body.layers = list;
    message.body_case = TMW__ENVELOPE__BODY_REPORT;
    message.report = &body;
    tell(c, &message);
}

static void assigned(struct cluster *c, uint64_t id, const Tmw__Assign *assign)
{
    struct member *member = &c->members[id];
    member->assigned = assign->generation;
    if (assign->since == 0) member->first_layer = member->last_layer = 0; /* else who is not named stays as it is */
    for (size_t i = 0; i < assign->layout->n_members; i++) {
        const Tmw__Member *seat = assign->layout->members[i];
        if (seat->id != id) continue;
        member->first_layer = seat->spare ? 0 : seat->stage * (LAYERS / STAGES);
        member->last_layer = seat->spare ? 0 : member->first_layer + LAYERS / STAGES;
    }
    member->applied = assign->base_step;
    Tmw__Ready body = TMW__READY__INIT;
    tm_message message = head_of(id);
    body.generation = assign->generation;
    message.body_case = TMW__ENVELOPE__BODY_READY;
    message.ready = &body;
    member->phase = TM_WORKER_READY;
    tell(c, &message);
}

static void react(struct cluster *c, uint64_t id, const tm_message *message)
{
    struct member *member = &c->members[id];
    switch (message->body_case) {
    case TMW__ENVELOPE__BODY_CHALLENGE:
        hello(c, id, message->challenge->nonce);
        break;
    case TMW__ENVELOPE__BODY_FENCE:
        if (message->fence->generation <= member->generation) break;
        member->generation = message->fence->generation;
        member->phase = TM_WORKER_FENCED;
        report(c, id);
        break;
    case TMW__ENVELOPE__BODY_ASSIGN:
        if (member->phase == TM_WORKER_FENCED) assigned(c, id, message->assign);
        break;
    case TMW__ENVELOPE__BODY_START:
        member->phase = TM_WORKER_RUNNING;
        break;
    default:
        break;
    }
}

/* Everyone answers until nobody has anything to say. What an answer leads to goes to another outbox. */
static void talk(struct cluster *c)
{
    while (c->out.count > 0) {
        struct tm_outbox said = c->out;
        tm_outbox_init(&c->out);
        for (size_t i = 0; i < said.count; i++) {
            const struct tm_action *action = &said.actions[i];
            struct tm_arena arena;
            tm_message *message = NULL;
            if (action->kind != TM_ACTION_SEND) continue;
            c->said++;
            c->said_bytes += action->length;
            if (action->to.role != TM_ROLE_WORKER || c->members[action->to.id].dead) continue;
            tm_arena_init(&arena, 64 << 20);
            must(tm_message_unpack(tm_outbox_data(&said, action), action->length, &arena, &message, NULL) == 0,
                 "a message of ours is refused");
            react(c, action->to.id, message);
            tm_arena_deinit(&arena);
        }
        tm_outbox_deinit(&said);
    }
}

static void tick(struct cluster *c)
{
    c->now_ms += 50;
    double start_s = now_s();
    tm_coordinator_tick(c->coordinator, c->now_ms, c->now_ms, &c->out);
    c->spent_s += now_s() - start_s;
    talk(c);
}

static struct cluster *make_cluster(size_t count)
{
    static const struct tm_coordinator_options options = {.job = JOB,
                                                          .incarnation = SELF,
                                                          .token = "t",
                                                          .layers = LAYERS,
                                                          .steps = 1000000,
                                                          .micro_batches = 1024,
                                                          .heartbeat_ms = 1000,
                                                          .lease_ms = 1000000,
                                                          .orphan_ms = 2000000,
                                                          .resend_ms = 100000,
                                                          .settle_ms = 1000,
                                                          .drain_limit_ms = 100000,
                                                          .fetch_limit_ms = 1000000,
                                                          .stall_ms = 1000000,
                                                          .fresh = true};
    struct cluster *c = tm_calloc(1, sizeof *c);
    must(c != NULL, "no memory");
    c->rule = (struct tm_use_all){.stages = STAGES, .workers_min = (uint32_t)count};
    c->count = count;
    c->now_ms = 1000;
    struct tm_decider decider = tm_decider_use_all(&c->rule);
    c->coordinator = tm_coordinator_create(&options, &decider);
    must(c->coordinator != NULL, "no memory");
    tm_outbox_init(&c->out);
    tm_coordinator_begin(c->coordinator, c->now_ms, c->now_ms, &c->out);
    for (uint64_t id = 1; id <= count; id++) {
        hello(c, id, 0);
        talk(c);
    }
    for (int i = 0; i < 10 && tm_coordinator_look(c->coordinator).phase != TM_COORDINATOR_RUNNING; i++)
        tick(c);
    must(tm_coordinator_look(c->coordinator).phase == TM_COORDINATOR_RUNNING, "no generation starts");
    c->rule.workers_min = 1;
    return c;
}

static void drop_cluster(struct cluster *c)
{
    tm_coordinator_destroy(c->coordinator);
    tm_outbox_deinit(&c->out);
    tm_free(c);
}

/* ---- heartbeats ---- */

/* Seconds for `rounds` heartbeats of everyone as bytes, with answers as bytes; without a coordinator: the codec. */
static double heartbeats_s(struct cluster *c, int rounds, bool coordinator)
{
    struct tm_text text;
    double start_s = now_s();
    tm_text_init(&text, 1 << 20);
    for (int round = 0; round < rounds; round++) {
        for (uint64_t id = 1; id <= c->count; id++) {
            Tmw__Heartbeat body;
            tm_message message = head_of(id);
            struct tm_arena arena;
            tm_message *read = NULL;
            c->members[id].applied++;
            fill_heartbeat(c, id, &body);
            message.body_case = TMW__ENVELOPE__BODY_HEARTBEAT;
            message.heartbeat = &body;
            tm_text_clear(&text);
            tm_message_pack(&message, &text);
            tm_arena_init(&arena, 1 << 20);
            must(tm_message_unpack(text.data, text.length, &arena, &read, NULL) == 0, "a heartbeat is refused");
            if (coordinator) {
                tm_coordinator_receive(c->coordinator, c->now_ms, read, &c->out);
            } else {
                Tmw__HeartbeatAck ack = TMW__HEARTBEAT_ACK__INIT;
                struct tm_peer to = peer_of(id);
                struct tm_peer self = {.role = TM_ROLE_COORDINATOR, .incarnation = SELF};
                tm_message answer = tm_message_make(JOB, &self, &to);
                ack.sequence = body.sequence;
                ack.generation = body.generation;
                answer.body_case = TMW__ENVELOPE__BODY_HEARTBEAT_ACK;
                answer.heartbeat_ack = &ack;
                tm_outbox_send(&c->out, &to, &answer);
            }
            tm_arena_deinit(&arena);
        }
        tm_outbox_clear(&c->out);
    }
    tm_text_deinit(&text);
    return now_s() - start_s;
}

/* Packing an assignment for everyone, and nothing else. */
static double packing_s(struct cluster *c)
{
    struct tm_arena arena;
    struct tm_text text;
    Tmw__Assign assign = TMW__ASSIGN__INIT;
    tm_message message = head_of(1);
    tm_arena_init(&arena, 64 << 20);
    tm_text_init(&text, 64 << 20);
    double start_s = now_s();
    for (size_t i = 0; i < c->count; i++) {
        assign.layout = tm_roster_write(tm_coordinator_look(c->coordinator).roster, &arena);
        message.body_case = TMW__ENVELOPE__BODY_ASSIGN;
        message.assign = &assign;
        tm_message_pack(&message, &text);
        must(assign.layout != NULL && tm_text_status(&text, NULL) == 0, "no memory");
        tm_arena_deinit(&arena);
    }
    double took_s = now_s() - start_s;
    tm_text_deinit(&text);
    return took_s;
}

static void bench_coordinator(size_t count)
{
    struct cluster *c = make_cluster(count);
    int rounds = (int)(20000 / count) + 1;
    double events = (double)rounds * (double)count;
    double codec_s = heartbeats_s(c, rounds, false);
    double with_s = heartbeats_s(c, rounds, true);
    double tick_s = now_s();
    for (int i = 0; i < 50; i++) {
        c->now_ms += 1;
        tm_coordinator_tick(c->coordinator, c->now_ms, c->now_ms, &c->out);
        tm_outbox_clear(&c->out);
    }
    tick_s = (now_s() - tick_s) / 50;
    printf("coordinator, %4zu members: %7.0f heartbeats/s, %.2f of the codec alone (%.0f/s); a tick %.0f us", count,
           events / with_s, codec_s / with_s, events / codec_s, 1e6 * tick_s);
    for (uint64_t id = 1; id <= count; id++) /* all are at one step */
        c->members[id].applied = c->members[1].applied;
    (void)heartbeats_s(c, 1, true);
    c->spent_s = 0;
    c->heard = c->said = c->said_bytes = 0;
    struct tm_peer lost = peer_of(count / 2);
    c->members[lost.id].dead = true;
    double start_s = now_s();
    tm_coordinator_dead(c->coordinator, c->now_ms, &lost, &c->out);
    c->spent_s += now_s() - start_s;
    talk(c);
    for (int i = 0; i < 10 && tm_coordinator_look(c->coordinator).phase != TM_COORDINATOR_RUNNING; i++)
        tick(c);
    must(tm_coordinator_look(c->coordinator).phase == TM_COORDINATOR_RUNNING, "no generation after a loss");
    printf("; from loss to start %llu messages in, %llu out (%.1f MB), %.0f us of its time: %.2f times packing them\n",
           (unsigned long long)c->heard, (unsigned long long)c->said, (double)c->said_bytes / 1e6, 1e6 * c->spent_s,
           c->spent_s / packing_s(c));
    drop_cluster(c);
}

/* ---- messages ---- */

static void bench_message(const char *name, const tm_message *message, int rounds)
{
    struct tm_text text;
    tm_text_init(&text, 8 << 20);
    tm_message_pack(message, &text);
    size_t length = text.length;
    uint8_t *copy = tm_alloc(length);
    must(copy != NULL && tm_text_status(&text, NULL) == 0, "no memory");
    double pack_s = now_s();
    for (int i = 0; i < rounds; i++) {
        tm_text_clear(&text);
        tm_message_pack(message, &text);
    }
    pack_s = now_s() - pack_s;
    double unpack_s = now_s();
    for (int i = 0; i < rounds; i++) {
        struct tm_arena arena;
        tm_message *read = NULL;
        tm_arena_init(&arena, 64 << 20);
        must(tm_message_unpack(text.data, text.length, &arena, &read, NULL) == 0, "refused");
        tm_arena_deinit(&arena);
    }
    unpack_s = now_s() - unpack_s;
    double copy_s = now_s();
    for (int i = 0; i < rounds; i++) {
        memcpy(copy, text.data, length);
        text.data[0] ^= (char)(copy[length - 1] & 0);
    }
    copy_s = now_s() - copy_s;
    double mb = (double)length * rounds / 1e6;
    printf(
        "message %-22s %8zu bytes: packed at %6.0f MB/s (%.2f of memcpy), unpacked and checked at %6.0f MB/s (%.2f)\n",
        name, length, mb / pack_s, copy_s / pack_s, mb / unpack_s, copy_s / unpack_s);
    tm_free(copy);
    tm_text_deinit(&text);
}

static void bench_messages(void)
{
    static uint8_t chunk[CHUNK_BYTES];
    Tmw__CopyPut put = TMW__COPY_PUT__INIT;
    tm_message message = head_of(1);
    put.total = put.data.len = sizeof chunk;
    put.data.data = chunk;
    message.body_case = TMW__ENVELOPE__BODY_COPY_PUT;
    message.copy_put = &put;
    bench_message("with 1 MiB of a layer", &message, 300);
    struct cluster *c = make_cluster(32);
    struct tm_arena arena;
    Tmw__Assign assign = TMW__ASSIGN__INIT;
    tm_arena_init(&arena, 1 << 20);
    assign.layout = tm_roster_write(tm_coordinator_look(c->coordinator).roster, &arena);
    message.body_case = TMW__ENVELOPE__BODY_ASSIGN;
    message.assign = &assign;
    bench_message("with 32 members", &message, 20000);
    tm_arena_deinit(&arena);
    Tmw__Heartbeat beat;
    fill_heartbeat(c, 1, &beat);
    message.body_case = TMW__ENVELOPE__BODY_HEARTBEAT;
    message.heartbeat = &beat;
    bench_message("heartbeat", &message, 200000);
    drop_cluster(c);
}

int main(void)
{
    static const size_t counts[] = {32, 128, 512, 1024};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        bench_coordinator(counts[i]);
    bench_messages();
    return 0;
}
