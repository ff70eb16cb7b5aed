/* Joining, the lease, heartbeats, and who gets which event. The header tells the story. */
#include "worker/worker_internal.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/planted.h"
#include "wire/fingerprint.h"
#include "wire/proof.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void heartbeat(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);

enum { SENT_RING = 64, HEARTBEAT_FIRST_MS = 500, SILENT_HEARTBEATS = 6, SOON_MS = 5 };

struct tm_worker *tm_worker_create(const struct tm_worker_options *options, const struct tm_worker_engine *engine)
{
    assert(options->id > 0 && options->token != NULL && options->address != NULL);
    assert(options->chunk_bytes > 0 && options->chunk_bytes <= TM_MESSAGE_CHUNK_MAX);
    assert(options->resend_ms > 0 && options->kernel_class != NULL);
    assert(engine->layer_bytes != NULL && engine->export_layer != NULL && engine->import_layer != NULL);
    assert(engine->init_layer != NULL && engine->drop_layer != NULL && engine->discard != NULL);
    assert(engine->begin != NULL && engine->cancel != NULL && engine->apply != NULL && engine->waiting_for != NULL);
    assert((engine->gradient_bytes == NULL) == (engine->advance_layer == NULL));
    assert((engine->gradient_bytes == NULL) == (engine->export_gradient == NULL));
    struct tm_worker *w = tm_calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->sent_ms = tm_calloc(SENT_RING, sizeof *w->sent_ms);
    w->blocks = tm_block_pool_create();
    if (w->sent_ms == NULL || w->blocks == NULL) {
        tm_free(w->sent_ms);
        tm_block_pool_destroy(w->blocks);
        tm_free(w);
        return NULL;
    }
    w->options = *options;
    w->engine = *engine;
    w->self = (struct tm_peer){.role = TM_ROLE_WORKER, .id = options->id, .incarnation = options->incarnation};
    w->coordinator = (struct tm_peer){.role = TM_ROLE_COORDINATOR};
    w->heartbeat_every_ms = HEARTBEAT_FIRST_MS;
    w->contact_ms = NEVER_MS;
    w->hello_ms = NEVER_MS;
    w->heartbeat_ms = NEVER_MS;
    w->prepared_ms = NEVER_MS;
    w->applied_ms = NEVER_MS;
    tm_copies_init(&w->copies, options->copy_bytes_max, w->blocks);
    return w;
}

void tm_worker_destroy(struct tm_worker *w)
{
    if (w == NULL) return;
    tm_worker__copy_end(w);
    tm_worker__fetch_end(w);
    tm_worker__reads_end(w);
    tm_worker__follow_end(w);
    tm_worker__serving_end(w);
    tm_worker__steps_deinit(w);
    tm_copies_deinit(&w->copies);
    tm_block_pool_destroy(w->blocks);
    tm_roster_deinit(&w->roster);
    tm_step_list_clear(&w->steps_told);
    tm_free(w->layers);
    tm_free(w->sent_ms);
    tm_free(w);
}

tm_message tm_worker__head(const struct tm_worker *w, const struct tm_peer *to)
{
    assert(to->role != TM_ROLE_NONE);
    return tm_message_make(w->options.job, &w->self, to);
}

struct tm_peer tm_worker__member(const struct tm_worker *w, uint64_t id)
{
    const struct tm_member *member = tm_roster_find(&w->roster, id);
    struct tm_peer peer = {.role = TM_ROLE_WORKER};
    if (member != NULL) {
        peer.id = id;
        peer.incarnation = member->incarnation;
    }
    return peer;
}

bool tm_worker__from_member(const struct tm_worker *w, const tm_message *message)
{
    const struct tm_member *member = tm_roster_find(&w->roster, message->from_id);
    return member != NULL && message->from_role == TM_ROLE_WORKER && member->incarnation == message->from_incarnation;
}

bool tm_worker__leased(const struct tm_worker *w, int64_t now_ms)
{
    return w->registered && w->contact_ms != NEVER_MS && now_ms < w->contact_ms + w->lease_ms;
}

/* Counted from when an answered heartbeat was sent, so that we stop before the coordinator stops waiting for us. */
bool tm_worker__may_work(const struct tm_worker *w, int64_t now_ms)
{
    if (TM_PLANTED(orphan_ignored)) return true;
    return w->contact_ms != NEVER_MS && now_ms < w->contact_ms + w->orphan_ms;
}

uint64_t tm_worker__applied_ago_ms(const struct tm_worker *w, int64_t now_ms)
{
    return w->applied_ms == NEVER_MS || now_ms < w->applied_ms ? 0 : (uint64_t)(now_ms - w->applied_ms);
}

/* ---- joining ---- */

static void say_hello(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    Tmw__Hello body = TMW__HELLO__INIT;
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    tm_message message = tm_worker__head(w, &to);
    union { /* the schema's structs are not const, but packing does not write to them */
        const char *given;
        char *taken;
    } address = {w->options.address}, kernel_class = {w->options.kernel_class},
      endpoint = {w->options.endpoint == NULL ? "" : w->options.endpoint};
    uint8_t proof[TM_PROOF_BYTES];
    tm_proof_put_hello(w->options.token, w->options.job, &w->self, w->nonce, proof, &body);
    body.address = address.taken;
    body.endpoint = endpoint.taken;
    body.kernel_class = kernel_class.taken;
    body.anchor = w->options.anchor;
    body.follows = w->engine.advance_layer != NULL;
    body.instance = w->options.id;
    struct tm_fingerprint fingerprint = {.count = 0};
    char *parts[TM_FINGERPRINT_PARTS_MAX];
    tm_fingerprint_add_lines(&fingerprint, w->options.fingerprint);
    body.n_fingerprint = tm_fingerprint_list(&fingerprint, parts);
    body.fingerprint = parts;
    TM_BODY(message, HELLO, hello, &body);
    tm_outbox_send(out, &to, &message);
    w->hello_ms = now_ms;
}

static void on_challenge(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    w->nonce = message->challenge->nonce;
    if (message->from_incarnation != w->coordinator.incarnation) w->registered = false; /* another process asks */
    say_hello(w, now_ms, out);
}

static bool learn_job(struct tm_worker *w, const Tmw__Welcome *welcome)
{
    assert((w->layer_count == 0) == (w->layers == NULL));
    if (w->layer_count > 0) return w->layer_count == welcome->layers && w->steps == welcome->steps;
    if (welcome->layers == 0 || welcome->layers > TM_LAYERS_MAX || welcome->micro_batches == 0) return false;
    w->layers = tm_calloc(welcome->layers, sizeof *w->layers);
    if (w->layers == NULL) return false;
    w->layer_count = welcome->layers;
    w->steps = welcome->steps;
    w->micro_batches = welcome->micro_batches;
    if (tm_worker__steps_init(w) == 0) return true;
    tm_worker__steps_deinit(w);
    tm_free(w->layers);
    w->layers = NULL;
    w->layer_count = 0;
    return false;
}

static void on_welcome(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__Welcome *welcome = message->welcome;
    if (welcome->nonce != w->nonce || welcome->nonce == 0 || w->registered) return;
    if (welcome->heartbeat_ms == 0 || welcome->lease_ms == 0 || !learn_job(w, welcome)) return;
    w->coordinator.incarnation = message->from_incarnation;
    w->heartbeat_every_ms = welcome->heartbeat_ms;
    w->lease_ms = welcome->lease_ms;
    w->orphan_ms = welcome->orphan_ms;
    w->registered = true;
    w->log_steps = welcome->log_steps != 0;
    for (size_t i = 0; i < w->steps_told.count; i++)
        w->steps_told.entries[i].sequence = 0; /* it may be another coordinator */
    w->acked_sequence = w->sequence;           /* silence is counted anew */
    w->drain_heard = false;                    /* until it says so, too, we only stand still */
    heartbeat(w, now_ms, out);
}

/* ---- heartbeats ---- */

/* Those that no answered heartbeat has told, and the newest: a coordinator that starts anew is told where the job
 * stands. `all`: every one. */
size_t tm_worker__list_steps(struct tm_worker *w, bool all, struct tm_arena *arena, Tmw__StepLoss ***out)
{
    struct tm_step_list *told = &w->steps_told;
    size_t count = 0;
    *out = tm_arena_alloc(arena, (told->count + 1) * sizeof(Tmw__StepLoss *));
    if (*out == NULL) return 0;
    for (size_t i = 0; i < told->count; i++) {
        struct tm_step_entry *entry = &told->entries[i];
        bool heard = entry->sequence != 0 && entry->sequence <= w->acked_sequence;
        if (heard && !all && i + 1 < told->count) continue;
        Tmw__StepLoss *loss = tm_step_entry_write(entry, arena);
        if (loss == NULL) return 0;
        if (!all && entry->sequence == 0) entry->sequence = w->sequence;
        (*out)[count++] = loss;
    }
    return count;
}

static void forget_steps(struct tm_worker *w, uint64_t sequence, uint64_t logged)
{
    const struct tm_step_list *told = &w->steps_told;
    size_t first = 0;
    while (first + 1 < told->count) {
        const struct tm_step_entry *entry = &told->entries[first];
        bool heard = entry->sequence != 0 && entry->sequence <= sequence;
        if (w->log_steps ? entry->step > logged : !heard) break;
        first++;
    }
    tm_step_list_drop_first(&w->steps_told, first);
}

static struct tm_step_entry *step_told(struct tm_worker *w, uint64_t step)
{
    size_t max = w->log_steps ? TM_STEPS_KEPT : LOSSES_MAX;
    tm_step_list_drop_after(&w->steps_told, step); /* it is done again, and so are those after it */
    struct tm_step_entry *entry = tm_step_list_at(&w->steps_told, step);
    if (w->steps_told.count > max) { /* long without an answer: the oldest is given up */
        tm_step_list_drop_first(&w->steps_told, 1);
        entry = &w->steps_told.entries[w->steps_told.count - 1];
    }
    return entry;
}

void tm_worker_loss(struct tm_worker *w, uint64_t step, double loss)
{
    struct tm_step_entry *entry = step_told(w, step);
    if (entry == NULL) return;
    entry->loss = loss;
    entry->known = true;
    entry->sequence = 0;
}

void tm_worker__metric(struct tm_worker *w, uint64_t step, const char *name, double value)
{
    struct tm_step_entry *entry = w->log_steps ? step_told(w, step) : NULL;
    if (entry == NULL) return;
    tm_step_entry_set(entry, name, value);
    entry->sequence = 0;
}

/* Of a step that nothing was told of, that it was. */
void tm_worker__step_done(struct tm_worker *w, uint64_t step)
{
    if (w->log_steps) (void)step_told(w, step);
}

void tm_worker__failed(struct tm_worker *w, int64_t now_ms, const char *reason, struct tm_outbox *out)
{
    assert(reason != NULL);
    if (w->failure[0] != '\0') return;
    /* Of a traceback the last line says what is wrong. */
    tm_last_lines_of(reason, strlen(reason), &w->failure_lines);
    size_t count = w->failure_lines.count;
    (void)snprintf(w->failure, sizeof w->failure, "%s",
                   count == 0 || w->failure_lines.text[count - 1][0] == '\0' ? "no reason given"
                                                                             : w->failure_lines.text[count - 1]);
    if (count == 1) w->failure_lines.count = 0;
    if (w->registered) heartbeat(w, now_ms, out);
}

static void heartbeat(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    assert(w->registered);
    assert(w->sequence >= w->acked_sequence);
    Tmw__Heartbeat body = TMW__HEARTBEAT__INIT;
    tm_message message = tm_worker__head(w, &w->coordinator);
    struct tm_arena arena;
    char *lines[TM_LAST_LINES];
    tm_arena_init(&arena, 16 << 20);
    body.sequence = ++w->sequence;
    body.generation = w->generation;
    body.phase = w->phase;
    body.applied = w->applied;
    body.applied_ago_ms = tm_worker__applied_ago_ms(w, now_ms);
    body.held = w->held;
    body.waiting_for = tm_worker__waiting_for(w);
    body.progress = w->progress;
    if (w->computing || w->held != 0 || w->applying != 0) body.working_on = w->applied + 1;
    body.step_ms = w->step_ms;
    body.micro_us = tm_worker__micro_us(w);
    body.drain_step = w->drain_heard ? w->drain_step : 0;
    body.follow_number = w->follow.number;
    body.follow_step = tm_worker__follow_step(w);
    body.n_copied = tm_worker__copied(w, &arena, &body.copied);
    body.n_losses = tm_worker__list_steps(w, false, &arena, &body.losses);
    body.failure = w->failure;
    body.n_failure_lines = tm_last_lines_point(&w->failure_lines, lines);
    body.failure_lines = lines;
    body.trouble = w->trouble;
    body.trouble_full = w->trouble_full;
    body.copied_set = w->out.set;
    body.copy_missed = w->out.missed;
    TM_BODY(message, HEARTBEAT, heartbeat, &body);
    tm_outbox_send(out, &w->coordinator, &message);
    tm_arena_deinit(&arena);
    w->sent_ms[w->sequence % SENT_RING] = now_ms;
    w->heartbeat_ms = now_ms;
    w->heartbeat_now = false;
    /* A coordinator that stays silent may have forgotten us, or be another one: join again, and go on meanwhile. */
    uint64_t unanswered = w->sequence - w->acked_sequence;
    int64_t since_ms = unanswered < SENT_RING ? w->sent_ms[(w->acked_sequence + 1) % SENT_RING] : INT64_MIN / 2;
    if (unanswered > SILENT_HEARTBEATS && now_ms - since_ms >= SILENT_HEARTBEATS * (int64_t)w->heartbeat_every_ms) {
        w->registered = false;
        w->nonce = 0;
    }
}

static void on_heartbeat_ack(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__HeartbeatAck *ack = message->heartbeat_ack;
    if (ack->sequence <= w->acked_sequence || ack->sequence > w->sequence) return;
    w->acked_sequence = ack->sequence;
    forget_steps(w, ack->sequence, ack->logged_step);
    tm_worker__fence(w, ack->generation);
    /* A coordinator that lost its record does not know which generation is the last. Its word keeps us going, but once
     * our time is over another one may have started without us: then only a fence gets us on. */
    bool knows = ack->generation != 0 || w->phase != TM_WORKER_RUNNING || TM_PLANTED(rebuilder_revives);
    if (w->sequence - ack->sequence < SENT_RING && (knows || tm_worker__may_work(w, now_ms)))
        w->contact_ms = w->sent_ms[ack->sequence % SENT_RING];
    bool news = !w->drain_heard || w->drain_step != ack->drain_step;
    w->drain_step = ack->drain_step;
    w->drain_heard = true;
    if (news && w->drain_step != 0 && w->applied >= w->drain_step) w->heartbeat_now = true; /* it is waited for */
    if (!ack->keep_all) tm_copies_keep(&w->copies, ack->keep, ack->n_keep, ack->newest_set, ack->durable_step);
    if (w->out.set != 0 && ((ack->newest_set == w->out.set && ack->copy_closed) || ack->newest_set > w->out.set))
        tm_worker__copy_end(w);
    tm_worker__pump(w, now_ms, out);
}

static void stop(struct tm_worker *w, bool refused, const char *why, struct tm_outbox *out)
{
    assert(why != NULL);
    if (w->phase == TM_WORKER_STOPPED || TM_PLANTED(stop_ignored)) return;
    if (w->computing) w->engine.cancel(w->engine.context);
    w->computing = false;
    tm_worker__enter(w, TM_WORKER_STOPPED);
    tm_debug(TM_DEBUG_WORKER, "worker %" PRIu64 ": stops%s: %s", w->self.id, refused ? ", refused" : "", why);
    tm_worker__copy_end(w);
    tm_worker__fetch_end(w);
    tm_worker__follow_end(w);
    tm_worker__serving_end(w);
    tm_outbox_add(out, TM_WORKER_STOP, why, strlen(why), refused, 0);
}

/* ---- events ---- */

void tm_worker_tick(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    if (w->phase == TM_WORKER_STOPPED) return;
    if (!w->registered && (w->hello_ms == NEVER_MS || now_ms - w->hello_ms >= w->options.resend_ms))
        say_hello(w, now_ms, out);
    bool due = w->heartbeat_ms == NEVER_MS || now_ms - w->heartbeat_ms >= w->heartbeat_every_ms;
    if (w->registered && (due || w->heartbeat_now)) heartbeat(w, now_ms, out);
    if (w->phase == TM_WORKER_READY && due) tm_worker__say_ready(w, out);
    tm_worker__resend_prepared(w, now_ms, out);
    tm_worker__fetch_pump(w, now_ms, out);
    tm_worker__copy_pump(w, now_ms, out);
    tm_worker__follow_pump(w, now_ms, out);
    tm_worker__pump(w, now_ms, out);
    tm_worker__check(w);
}

static void from_coordinator(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    switch (message->body_case) {
    case TMW__ENVELOPE__BODY_HEARTBEAT_ACK:
        on_heartbeat_ack(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_FENCE:
        tm_worker__on_fence(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_RESOLVE:
        tm_worker__on_resolve(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_ASSIGN:
        tm_worker__on_assign(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_START:
        tm_worker__on_start(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_COPY_ORDER:
        tm_worker__on_copy_order(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_FOLLOW:
        tm_worker__on_follow(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_STOP:
        stop(w, message->stop->failed != 0, message->stop->reason, out);
        break;
    default: /* not for us: nothing a peer sends can stop us */
        break;
    }
}

static void from_worker(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    switch (message->body_case) {
    case TMW__ENVELOPE__BODY_PREPARED:
        tm_worker__on_prepared(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_FETCH_REQUEST:
        tm_worker__on_fetch_request(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_FETCH_DATA:
        tm_worker__on_fetch_data(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_FETCH_REFUSED:
        tm_worker__on_fetch_refused(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_FOLLOW_REQUEST:
        tm_worker__on_follow_request(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_FOLLOW_DATA:
        tm_worker__on_follow_data(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_COPY_PUT:
        tm_worker__on_copy_put(w, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_COPY_ACK:
        tm_worker__on_copy_ack(w, now_ms, message, out);
        break;
    default:
        break;
    }
}

/* What the coordinator waits for is said at once, but not in a flood. */
void tm_worker__say_now(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    if (!w->heartbeat_now || !w->registered || w->phase == TM_WORKER_STOPPED) return;
    if (now_ms - w->heartbeat_ms >= SOON_MS) heartbeat(w, now_ms, out);
}

static void receive(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    struct tm_peer from = tm_message_sender(message);
    if (w->phase == TM_WORKER_STOPPED || message->job != w->options.job) return;
    if (message->to_incarnation != 0 && message->to_incarnation != w->self.incarnation) return;
    if (from.role == TM_ROLE_WORKER) {
        if (w->layer_count > 0) from_worker(w, now_ms, message, out);
        return;
    }
    if (from.role != TM_ROLE_COORDINATOR || message->to_incarnation == 0) return;
    if (message->body_case == TMW__ENVELOPE__BODY_CHALLENGE)
        on_challenge(w, now_ms, message, out);
    else if (message->body_case == TMW__ENVELOPE__BODY_WELCOME)
        on_welcome(w, now_ms, message, out);
    else if (message->body_case == TMW__ENVELOPE__BODY_REFUSE)
        stop(w, true, message->refuse->reason, out);
    else if (w->registered && from.incarnation == w->coordinator.incarnation)
        from_coordinator(w, now_ms, message, out);
}

void tm_worker_receive(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    receive(w, now_ms, message, out);
    tm_worker__say_now(w, now_ms, out);
    tm_worker__check(w);
}

/* ---- views ---- */

struct tm_worker_view tm_worker_look(const struct tm_worker *w, int64_t now_ms)
{
    struct tm_worker_view view = {.phase = w->phase,
                                  .generation = w->generation,
                                  .applied = w->applied,
                                  .held = w->held,
                                  .registered = w->registered,
                                  .working = w->computing || w->applying != 0,
                                  .may_serve = tm_worker__leased(w, now_ms),
                                  .roster = &w->roster,
                                  .copies = &w->copies,
                                  .layers = w->layer_count,
                                  .steps = w->steps,
                                  .fetched_bytes = w->fetched_bytes};
    for (size_t i = 0; i < w->out.part_count; i++)
        if (w->out.parts[i].block != NULL) view.snapshot_bytes += w->out.parts[i].name.size;
    return view;
}

const char *tm_worker__address(const struct tm_worker *w, uint64_t id)
{
    const struct tm_member *member = tm_roster_find(&w->roster, id);
    if (member != NULL) return member->address;
    for (size_t i = 0; i < w->follow.peer_count; i++)
        if (w->follow.peers[i].peer.id == id) return w->follow.peers[i].address;
    return NULL;
}

struct tm_block_pool *tm_worker_blocks(struct tm_worker *w)
{
    return w->blocks;
}

bool tm_worker_holds(const struct tm_worker *w, uint32_t layer, uint64_t *out_step)
{
    if (layer >= w->layer_count || !w->layers[layer].have) return false;
    *out_step = w->layers[layer].step;
    return true;
}
