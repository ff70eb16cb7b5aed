/* Who is not of the job, and speaks all the same. Strangers say well-formed frames without knowing the token: under a
 * number that nobody has, or under a member's with another incarnation. They keep frames of ours, and send them again
 * much later. (Who takes a member's whole name cannot prove it to a link: sim_links.c.)
 *
 * Checked: nobody gives them more than a question or a refusal, none of them is ever here, and all other checkers stay
 * silent. */
#include "sim.h"

#include "base/alloc.h"
#include "wire/proof.h"

#include <assert.h>
#include <string.h>

#define STRANGER UINT64_C(0xBADBADBADBADBAD1) /* as an incarnation */

enum { OVERHEARD_ONE_IN = 24, FRAMES_MAX = 24 };

bool hostile_is(const struct tm_peer *peer)
{
    return peer->incarnation == STRANGER;
}

/* ---- what they keep ---- */

void hostile_overhears(struct sim *sim, uint64_t from, uint64_t to, uint64_t role, const void *data, size_t length)
{
    if (tm_random_below(&sim->odd, OVERHEARD_ONE_IN) != 0) return;
    struct overheard *frame = &sim->overheard[tm_random_below(&sim->odd, OVERHEARD_MAX)];
    uint8_t *copy = tm_alloc(length + 1);
    assert(copy != NULL);
    memcpy(copy, data, length);
    tm_free(frame->data);
    *frame = (struct overheard){.from = from, .to = to, .role = role, .data = copy, .length = length};
}

void hostile_deinit(struct sim *sim)
{
    for (size_t i = 0; i < OVERHEARD_MAX; i++) {
        tm_free(sim->overheard[i].data);
        sim->overheard[i] = (struct overheard){.from = 0};
    }
}

/* What was kept comes now, and again over the next minutes, when those it names may be others. */
void hostile_replays(struct sim *sim)
{
    for (size_t i = 0; i < OVERHEARD_MAX; i++) {
        const struct overheard *frame = &sim->overheard[i];
        if (frame->data == NULL || !fault_comes(sim, FAULT_MESSAGE_REPLAYED)) continue;
        for (int again = 0; again < 3; again++)
            sim_deliver_at(sim, sim->now_ms + (int64_t)tm_random_below(&sim->odd, 1000 + 60000 * (uint64_t)again),
                           frame);
    }
}

/* ---- what they say ---- */

static void say(struct sim *sim, uint64_t to, uint64_t role, tm_message *message, int64_t in_ms)
{
    struct tm_text text;
    message->from_incarnation = STRANGER;
    tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
    tm_message_pack(message, &text);
    struct overheard frame = {.from = to, .to = to, .role = role, .data = (uint8_t *)text.data, .length = text.length};
    if (tm_text_status(&text, NULL) == 0 && fault_comes(sim, FAULT_STRANGER))
        sim_deliver_at(sim, sim->now_ms + in_ms, &frame);
    tm_text_deinit(&text);
}

/* Alters what it carries: if anybody took it, it would show. */
static void spoil(tm_message *message)
{
    ProtobufCBinaryData *data = NULL;
    if (message->body_case == TMW__ENVELOPE__BODY_FETCH_DATA) data = &message->fetch_data->data;
    if (message->body_case == TMW__ENVELOPE__BODY_FOLLOW_DATA) data = &message->follow_data->data;
    if (message->body_case == TMW__ENVELOPE__BODY_COPY_PUT) data = &message->copy_put->data;
    for (size_t i = 0; data != NULL && i < data->len; i++)
        data->data[i] ^= 0x55;
}

/* Who speaks for the coordinator has proven it to the link before a word of these is heard; hellos we make ourselves.
 */
static bool is_for_links(const tm_message *message)
{
    if (message->body_case == TMW__ENVELOPE__BODY_HELLO) return true;
    return message->from_role == TM_ROLE_COORDINATOR &&
           (message->body_case == TMW__ENVELOPE__BODY_CHALLENGE || message->body_case == TMW__ENVELOPE__BODY_WELCOME ||
            message->body_case == TMW__ENVELOPE__BODY_REFUSE);
}

/* To the process that is there now. */
static uint64_t target(const struct sim *sim, const struct overheard *frame)
{
    const struct node *node = &sim->instances[frame->to];
    if (frame->role == TM_ROLE_WORKER) return node->incarnation;
    if (frame->role == TM_ROLE_AGENT) return node->agent.self.incarnation;
    return frame->role == TM_ROLE_CLOUD ? sim->cloud.self.incarnation : 0;
}

/* A frame of ours with another's name on it. */
static void say_overheard(struct sim *sim, const struct overheard *frame)
{
    struct tm_arena arena;
    tm_message *message = NULL;
    tm_arena_init(&arena, 64 << 20);
    if (tm_message_unpack(frame->data, frame->length, &arena, &message, NULL) == 0 && !is_for_links(message)) {
        if (tm_random_below(&sim->odd, 2) == 0) message->from_id = INSTANCES_MAX + 1 + tm_random_below(&sim->odd, 3);
        message->to_incarnation = target(sim, frame);
        spoil(message);
        say(sim, frame->to, frame->role, message, (int64_t)tm_random_below(&sim->odd, 2000));
    }
    tm_arena_deinit(&arena);
}

static tm_message to_worker(struct sim *sim, const struct node *node)
{
    bool unknown = tm_random_below(&sim->odd, 2) == 0;
    struct tm_peer from = {.role = TM_ROLE_WORKER, .id = unknown ? INSTANCES_MAX + 1 : 1 + node->id % sim->node_count};
    struct tm_peer to = {.role = TM_ROLE_WORKER, .id = node->id, .incarnation = node->incarnation};
    return tm_message_make(42, &from, &to);
}

/* "Give me your layers", and "I have prepared your step". */
static void ask_worker(struct sim *sim, const struct node *node)
{
    struct tm_worker_view view = tm_worker_look(node->worker, sim_clock(sim, node));
    tm_message message = to_worker(sim, node);
    Tmw__FollowRequest follow = TMW__FOLLOW_REQUEST__INIT;
    Tmw__FetchRequest fetch = TMW__FETCH_REQUEST__INIT;
    Tmw__Prepared prepared = TMW__PREPARED__INIT;
    follow.generation = fetch.generation = prepared.generation = view.generation;
    follow.layer = fetch.layer = (uint32_t)tm_random_below(&sim->odd, sim->layers);
    follow.number = 1;
    (void)tm_worker_holds(node->worker, fetch.layer, &fetch.step);
    fetch.length = 8;
    prepared.step = view.applied + 1;
    message.body_case = TMW__ENVELOPE__BODY_FOLLOW_REQUEST;
    message.follow_request = &follow;
    say(sim, node->id, TM_ROLE_WORKER, &message, 0);
    message.body_case = TMW__ENVELOPE__BODY_FETCH_REQUEST;
    message.fetch_request = &fetch;
    say(sim, node->id, TM_ROLE_WORKER, &message, 0);
    message.body_case = TMW__ENVELOPE__BODY_PREPARED;
    message.prepared = &prepared;
    say(sim, node->id, TM_ROLE_WORKER, &message, 0);
}

/* Answers the coordinator's question, and does not know the token. */
static void say_hello(struct sim *sim, enum tm_role role, uint64_t id, uint64_t nonce)
{
    struct tm_peer from = {.role = role, .id = id};
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    char address[] = "stranger";
    char kernel_class[] = "toy";
    uint8_t proof[TM_PROOF_BYTES];
    Tmw__Hello hello = TMW__HELLO__INIT;
    tm_message message = tm_message_make(42, &from, &to);
    from.incarnation = STRANGER;
    tm_proof_put_hello("a token that somebody has made up", 42, &from, nonce, proof, &hello);
    hello.address = address;
    hello.kernel_class = kernel_class;
    message.body_case = TMW__ENVELOPE__BODY_HELLO;
    message.hello = &hello;
    say(sim, 0, TM_ROLE_COORDINATOR, &message, 1 + (int64_t)tm_random_below(&sim->odd, 30));
}

void hostile_speaks(struct sim *sim)
{
    say_hello(sim, TM_ROLE_WORKER, INSTANCES_MAX + 2, 0);
    say_hello(sim, TM_ROLE_WORKER, 1 + tm_random_below(&sim->odd, sim->node_count), 0);
    for (size_t i = 1; i < sim->node_count; i++)
        if (sim->instances[i].up && sim->instances[i].worker != NULL) ask_worker(sim, &sim->instances[i]);
    for (size_t i = 0; i < FRAMES_MAX; i++) {
        const struct overheard *frame = &sim->overheard[tm_random_below(&sim->odd, OVERHEARD_MAX)];
        if (frame->data != NULL) say_overheard(sim, frame);
    }
}

/* ---- the checker ---- */

void hostile_answered(struct sim *sim, uint64_t from_node, const struct tm_peer *to, const void *data, size_t length)
{
    struct tm_arena arena;
    tm_message *message = NULL;
    tm_arena_init(&arena, 64 << 20);
    int rc = tm_message_unpack(data, length, &arena, &message, NULL);
    assert(rc == 0);
    if (message->body_case == TMW__ENVELOPE__BODY_CHALLENGE) {
        if (!sim->faults.over) say_hello(sim, to->role, to->id, message->challenge->nonce);
    } else if (message->body_case != TMW__ENVELOPE__BODY_REFUSE &&
               message->body_case != TMW__ENVELOPE__BODY_FETCH_REFUSED) {
        sim_fail(sim, "hostile: node %llu says %s to a stranger", (unsigned long long)from_node,
                 tm_message_name(message));
    }
    tm_arena_deinit(&arena);
}

void hostile_check(struct sim *sim, const Tmw__RecordEvent *event)
{
    bool arrived = event->body_case == TMW__RECORD_EVENT__BODY_ARRIVAL && event->arrival->incarnation == STRANGER;
    const Tmw__Layout *layout = event->body_case == TMW__RECORD_EVENT__BODY_GENERATION && event->generation->started
                                    ? event->generation->layout
                                    : NULL;
    for (size_t i = 0; layout != NULL && i < layout->n_members; i++)
        arrived = arrived || layout->members[i]->incarnation == STRANGER;
    if (arrived) sim_fail(sim, "hostile: a stranger is taken for one of the job");
}
