/* Who is here: challenges, leases, heartbeats, agents. */
#include "run/coord_internal.h"

#include "base/planted.h"
#include "base/secret.h"
#include "wire/proof.h"

#include <stdio.h>
#include <string.h>

/* ---- joining ---- */

/* The nonce is a function of who asks, so that a flood of unknown names costs no memory. It is new with each
 * coordinator process and whenever another process has taken the number over (`round`): a hello that proves to be alive
 * does so after that, and cannot be the late word of one that died unheard before. */
static uint64_t nonce_of(const struct tm_coordinator *c, const struct tm_peer *peer, uint64_t round)
{
    struct tm_random random = tm_random_make(c->options.random_seed ^ peer->incarnation,
                                             c->self.incarnation ^ peer->id * 4 ^ peer->role ^ round << 32);
    return tm_random_u64(&random) | 1;
}

static uint64_t round_of(struct tm_coordinator *c, const struct tm_peer *peer)
{
    const struct known *k = tm_coord__find(c, peer->role, peer->id);
    return k == NULL ? c->rounds : k->round;
}

void tm_coord__challenge(struct tm_coordinator *c, const struct tm_peer *to, struct tm_outbox *out)
{
    Tmw__Challenge body = TMW__CHALLENGE__INIT;
    tm_message message = tm_coord__head(c, to);
    body.nonce = nonce_of(c, to, round_of(c, to));
    TM_BODY(message, CHALLENGE, challenge, &body);
    tm_outbox_send(out, to, &message);
}

/* The process that has the number has proven itself in the round before. */
static bool nonce_right(struct tm_coordinator *c, const struct tm_peer *from, uint64_t nonce)
{
    const struct known *k = tm_coord__find(c, from->role, from->id);
    if (k != NULL && k->peer.incarnation == from->incarnation && nonce == nonce_of(c, from, k->round_before))
        return true;
    return nonce == nonce_of(c, from, round_of(c, from));
}

static bool proof_right(const struct tm_coordinator *c, const struct tm_peer *from, const Tmw__Hello *hello)
{
    uint8_t right[TM_PROOF_BYTES];
    if (TM_PLANTED(hello_unproven)) return true;
    return tm_proof_of_hello(c->options.token, c->options.job, from, hello->nonce, right) &&
           tm_secret_equal(hello->proof.data, hello->proof.len, (const char *)right, sizeof right);
}

static void refuse(struct tm_coordinator *c, const struct tm_peer *to, const char *why, struct tm_outbox *out)
{
    Tmw__Refuse body = TMW__REFUSE__INIT;
    tm_message message = tm_coord__head(c, to);
    char text[TM_MESSAGE_STRING_MAX + 1];
    size_t length = strnlen(why, sizeof text - 1);
    memcpy(text, why, length);
    text[length] = '\0';
    body.reason = text;
    TM_BODY(message, REFUSE, refuse, &body);
    tm_outbox_send(out, to, &message);
}

static void welcome(struct tm_coordinator *c, const struct tm_peer *to, uint64_t nonce, struct tm_outbox *out)
{
    Tmw__Welcome body = TMW__WELCOME__INIT;
    tm_message message = tm_coord__head(c, to);
    body.heartbeat_ms = c->options.heartbeat_ms;
    body.lease_ms = c->options.lease_ms;
    body.orphan_ms = c->options.orphan_ms;
    body.layers = c->options.layers;
    body.steps = c->options.steps;
    body.micro_batches = c->options.micro_batches;
    body.log_steps = c->options.log_steps;
    body.nonce = nonce;
    TM_BODY(message, WELCOME, welcome, &body);
    tm_outbox_send(out, to, &message);
}

/* A new process under a known number: the one before it is dead. */
static void replace_process(struct tm_coordinator *c, int64_t now_ms, struct known *k, uint64_t incarnation,
                            struct tm_outbox *out)
{
    if (k->peer.incarnation != 0 && k->peer.role == TM_ROLE_WORKER) {
        tm_coord__process_dead(c, k->peer.id, k->peer.incarnation);
        tm_coord__lost(c, now_ms, k, true, out);
    }
    struct known old = *k;
    *k = (struct known){.peer = {.role = old.peer.role, .id = old.peer.id, .incarnation = incarnation},
                        .layers = old.layers,
                        .followed = old.followed,
                        .copies = old.copies,
                        .told_here = old.told_here,
                        .was_here = old.was_here,
                        .told_notice = old.told_notice,
                        .noticed = old.noticed,
                        .notice_end_ms = old.notice_end_ms,
                        .cloud_noticed = old.cloud_noticed,
                        .cloud_notice_end_ms = old.cloud_notice_end_ms,
                        .quarantine_until_ms = old.quarantine_until_ms,
                        .quarantines = old.quarantines,
                        .past_next = old.past_next,
                        .round = ++c->rounds,
                        .round_before = old.round};
    memcpy(k->past, old.past, sizeof k->past);
    memset(k->layers, 0, c->options.layers * sizeof *k->layers);
    memset(k->followed, 0, c->options.layers * sizeof *k->followed);
}

/* Bits are promised within one kernel class: the first worker's is the job's. */
static bool class_right(struct tm_coordinator *c, const struct tm_peer *from, const char *kernel_class,
                        struct tm_outbox *out)
{
    char why[TM_MESSAGE_STRING_MAX + 1];
    if (!c->kernel_class_known && tm_coord__stuck(c)) return false; /* it asks again */
    if (!c->kernel_class_known) {
        (void)snprintf(c->kernel_class, sizeof c->kernel_class, "%s", kernel_class);
        c->kernel_class_known = true;
        tm_coord__record_kernel_class(c, out);
    }
    if (strcmp(c->kernel_class, kernel_class) == 0) return true;
    (void)snprintf(why, sizeof why,
                   "this worker's kernel class is '%.40s', the job's is '%.40s', and only the same class gives the "
                   "same bits: set TIDEMILL_KERNELS to the smaller one on all machines",
                   kernel_class, c->kernel_class);
    refuse(c, from, why, out);
    return false;
}

/* Whoever would train something else is told so. What nobody has said yet is the first one's to say. */
static bool fingerprint_right(struct tm_coordinator *c, const struct tm_peer *from, const Tmw__Hello *hello,
                              struct tm_outbox *out)
{
    char why[TM_MESSAGE_STRING_MAX + 1];
    const char *who = from->role == TM_ROLE_WORKER ? "this worker" : "this machine";
    for (size_t i = 0; i < hello->n_fingerprint && !TM_PLANTED(fingerprint_ignored); i++) {
        if (!tm_fingerprint_differs(&c->fingerprint, hello->fingerprint[i], who, why)) continue;
        refuse(c, from, why, out);
        return false;
    }
    for (size_t i = 0; i < hello->n_fingerprint; i++)
        (void)tm_fingerprint_add(&c->fingerprint, hello->fingerprint[i]);
    tm_coord__record_fingerprint(c, out);
    return true;
}

static bool fits(struct tm_coordinator *c, const struct tm_peer *from, const Tmw__Hello *hello, struct tm_outbox *out)
{
    bool right = fingerprint_right(c, from, hello, out) &&
                 (from->role != TM_ROLE_WORKER || class_right(c, from, hello->kernel_class, out));
    if (!right && from->role == TM_ROLE_WORKER) c->refused[c->refused_next++ % FAILURES_KEPT] = from->incarnation;
    return right;
}

/* Are all whom the coordinator can know here? Of a fleet that is lost at once some are not forgotten before the next
 * generation: whoever comes then waits for that, and is not sent away. */
static bool are_too_many(const struct tm_coordinator *c)
{
    for (size_t i = 0; i < c->known_count; i++)
        if (!c->known[i].registered) return false;
    return c->known_count == KNOWN_MAX;
}

void tm_coord__on_hello(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__Hello *hello = message->hello;
    struct tm_peer from = tm_message_sender(message);
    if (!nonce_right(c, &from, hello->nonce)) {
        tm_coord__challenge(c, &from, out);
        return;
    }
    if (!proof_right(c, &from, hello)) {
        refuse(c, &from, "wrong join token: use the file named token in the job's state folder", out);
        return;
    }
    if (!fits(c, &from, hello, out)) return;
    if (from.role == TM_ROLE_AGENT && hello->instance != 0 && hello->instance != tm_coord__place(c, from.id)) {
        refuse(c, &from,
               "the job has another number of workers an instance (fleet.workers): give it the job's own file", out);
        return;
    }
    struct known *k = tm_coord__find(c, from.role, from.id);
    if (k == NULL) k = tm_coord__add(c, from.role, from.id);
    if (k ==
        NULL) { /* for want of memory, or until those who have gone make room, it is not answered, and asks again */
        if (are_too_many(c)) refuse(c, &from, "too many workers for one job", out);
        return;
    }
    if (k->gone) return; /* a late word, or a replayed one, of a machine that is not there any more */
    for (size_t i = 0; i < PAST_MAX; i++)
        if (k->past[i] == from.incarnation) return; /* a late word of the dead */
    if (k->peer.incarnation != from.incarnation) replace_process(c, now_ms, k, from.incarnation, out);
    if (!k->registered) {
        k->registered = true;
        k->joined_ms = now_ms;
        k->progress_ms = now_ms;
        if (from.role == TM_ROLE_WORKER) c->changed_ms = now_ms;
    }
    k->heard_ms = now_ms;
    k->cut_ms = 0;
    k->acked_ms = now_ms;
    k->anchor = hello->anchor;
    k->follows = hello->follows;
    if (from.role == TM_ROLE_WORKER) tm_coord__tell_arrival(c, k, out);
    (void)snprintf(k->address, sizeof k->address, "%s", hello->address);
    (void)snprintf(k->endpoint, sizeof k->endpoint, "%s", hello->endpoint);
    welcome(c, &k->peer, hello->nonce, out);
    if (from.role == TM_ROLE_WORKER && c->phase == TM_COORDINATOR_COLLECTING) tm_coord__send_fence(c, k, out);
}

/* ---- heartbeats ---- */

static void acknowledge(struct tm_coordinator *c, const struct known *k, uint64_t sequence, struct tm_outbox *out)
{
    Tmw__HeartbeatAck body = TMW__HEARTBEAT_ACK__INIT;
    tm_message message = tm_coord__head(c, &k->peer);
    uint64_t keep[SETS_MAX];
    body.sequence = sequence;
    body.generation = c->phase == TM_COORDINATOR_REBUILDING ? 0 : c->generation;
    bool drains = c->phase == TM_COORDINATOR_DRAINING || c->phase == TM_COORDINATOR_STOPPING;
    body.drain_step = drains ? c->drain_step : 0;
    /* Until a generation has started, what it is to start from may yet be found damaged. */
    body.keep_all = c->phase == TM_COORDINATOR_REBUILDING || c->phase == TM_COORDINATOR_COLLECTING ||
                    c->phase == TM_COORDINATOR_ASSIGNED;
    body.n_keep = tm_coord__kept(c, keep);
    body.keep = keep;
    body.newest_set = c->newest_set;
    const struct copy_set *durable = tm_coord__newest_good(c);
    body.durable_step = durable == NULL ? 0 : durable->step;
    body.logged_step = c->logged_step; /* put down before this is sent: it is synced */
    body.copy_closed = c->copying.set != c->newest_set;
    TM_BODY(message, HEARTBEAT_ACK, heartbeat_ack, &body);
    tm_outbox_send(out, &k->peer, &message);
}

void tm_coord__stop_worker(struct tm_coordinator *c, const struct known *k, struct tm_outbox *out)
{
    Tmw__Stop body = TMW__STOP__INIT;
    tm_message message = tm_coord__head(c, &k->peer);
    char reason[TM_MESSAGE_STRING_MAX + 1];
    body.failed = c->phase == TM_COORDINATOR_FAILED;
    bool stopped = c->phase == TM_COORDINATOR_STOPPED;
    (void)snprintf(reason, sizeof reason, "%s",
                   body.failed ? c->failure
                   : stopped   ? "the job was stopped and can be resumed"
                               : "the job is finished");
    body.reason = reason;
    body.step = stopped ? c->stopped_step : c->options.steps;
    TM_BODY(message, STOP, stop, &body);
    tm_outbox_send(out, &k->peer, &message);
}

void tm_coord__on_heartbeat(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__Heartbeat *body = message->heartbeat;
    struct known *k = tm_coord__find(c, TM_ROLE_WORKER, message->from_id);
    if (k == NULL || message->from_role != TM_ROLE_WORKER) return;
    if (!tm_coord__can_be_generation(body->generation) || body->applied > c->options.steps)
        return; /* nothing that we ever said */
    k->heard_ms = now_ms;
    k->cut_ms = 0;
    if (body->generation > c->highest_seen) c->highest_seen = body->generation;
    bool counts = c->phase != TM_COORDINATOR_REBUILDING && !tm_coord__ended(c);
    if (counts && body->generation > c->generation) {
        tm_coord__outnumbered(c, now_ms, out);
        return; /* without an answer */
    }
    k->acked_ms = now_ms;
    tm_coord__observe(c, k, body);
    if (k->progress != body->progress || k->generation != body->generation || k->phase != body->phase)
        k->progress_ms = now_ms;
    k->generation = body->generation;
    k->phase = body->phase;
    k->applied = body->applied;
    k->held = body->held;
    k->working_on = body->working_on;
    k->drain_step = body->drain_step;
    k->follow_number = body->follow_number;
    k->follow_step = body->follow_step;
    if (body->follow_number > c->follow_highest && body->follow_number < UINT64_MAX / 2)
        c->follow_highest = body->follow_number;
    k->waiting_for = body->waiting_for;
    k->progress = body->progress;
    k->step_ms = body->step_ms;
    tm_coord__shares_heard(c, k, body);
    k->copied_set = body->copied_set;
    if (body->copied_set > c->newest_set && body->copied_set < UINT64_MAX / 2) c->newest_set = body->copied_set;
    /* One that obeys the generation and has not started in it, a spare for example, may have steps of a past that was
     * given up. */
    const struct tm_member *member = tm_roster_find(&c->roster, k->peer.id);
    bool trains = member != NULL && !member->spare && body->phase == TM_WORKER_RUNNING;
    if (trains && tm_coord__runs(c) && body->generation == c->generation && body->applied > c->applied) {
        tm_coord__pause_end(c, now_ms, body, out);
        tm_coord__commit_heard(c, now_ms, body->applied, body->applied_ago_ms);
        c->applied = body->applied;
        c->applied_ms = now_ms;
        tm_coord__progress_made(c, body->applied);
        tm_coord__traffic_made(c, body->applied);
        if (c->applied > c->reached) c->reached = c->applied;
    }
    tm_coord__losses_heard(c, body);
    tm_coord__trouble_heard(k, body);
    if (body->failure[0] != '\0') {
        struct why_failed why = {.reason = body->failure,
                                 .worker = k->peer.id,
                                 .step = body->applied + 1,
                                 .lines = body->failure_lines,
                                 .line_count = body->n_failure_lines,
                                 .file = ""};
        tm_coord__fail(c, now_ms, &why, out);
    }
    if (tm_coord__ended(c)) {
        tm_coord__stop_worker(c, k, out);
        return;
    }
    tm_coord__copy_heard(c, now_ms, k, body, out);
    if (c->phase == TM_COORDINATOR_DRAINING) tm_coord__drain_check(c, now_ms, out);
    if (c->phase == TM_COORDINATOR_STOPPING) tm_coord__stop_check(c, now_ms, out);
    if (!tm_coord__ended(c)) acknowledge(c, k, body->sequence, out); /* else it would not know of a drain any more */
}

/* ---- agents ---- */

/* May this process have the job's result, and be saving it? Not one that was never in a generation: it is starting yet,
 * or waits for its first layers. Where the record was lost nobody knows who was. */
static bool may_save(struct tm_coordinator *c, uint64_t id, uint64_t incarnation)
{
    bool lost = tm_coordinator_rebuilds(c) || c->generation >> 32 != 0;
    if (c->started.generation == 0 && lost) return true;
    const struct tm_member *member = tm_roster_find(&c->started, id);
    if (member != NULL && member->incarnation == incarnation) return true;
    const struct known *worker = tm_coord__find(c, TM_ROLE_WORKER, id);
    return worker != NULL && worker->peer.incarnation == incarnation && worker->applied > 0;
}

static void send_order(struct tm_coordinator *c, struct known *agent, const Tmw__AgentHeartbeat *body,
                       struct tm_outbox *out)
{
    Tmw__AgentOrder order = TMW__AGENT_ORDER__INIT;
    tm_message answer = tm_coord__head(c, &agent->peer);
    order.sequence = body->sequence;
    order.stop = tm_coord__ended(c);
    bool hangs = agent->restart_incarnation != 0 && body->worker_incarnation == agent->restart_incarnation;
    bool idle = order.stop && !may_save(c, agent->peer.id, body->worker_incarnation);
    if (body->worker_runs && (hangs || idle)) {
        order.restart_worker = true;
        order.worker_incarnation = body->worker_incarnation;
    }
    agent->told_end = order.stop;
    TM_BODY(answer, AGENT_ORDER, agent_order, &order);
    tm_outbox_send(out, &agent->peer, &answer);
}

void tm_coord__on_agent(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__AgentHeartbeat *body = message->agent_heartbeat;
    struct known *agent = tm_coord__find(c, TM_ROLE_AGENT, message->from_id);
    if (agent == NULL || message->from_role != TM_ROLE_AGENT || body->sequence <= agent->agent_sequence) return;
    agent->agent_sequence = body->sequence;
    agent->heard_ms = now_ms;
    agent->acked_ms = now_ms;
    struct known *worker = tm_coord__find(c, TM_ROLE_WORKER, message->from_id);
    if (body->ended_incarnation != 0) tm_coord__process_dead(c, message->from_id, body->ended_incarnation);
    if (worker != NULL && worker->peer.incarnation == body->ended_incarnation && body->ended_incarnation != 0)
        tm_coord__lost(c, now_ms, worker, true, out);
    tm_coord__worker_failed(c, now_ms, message->from_id, body, out);
    if (worker == NULL) worker = tm_coord__add(c, TM_ROLE_WORKER, message->from_id);
    if (worker != NULL) {
        if (worker->noticed != (body->notice != 0)) c->changed_ms = now_ms;
        if (body->notice_left_ms > 0 || !worker->noticed)
            worker->notice_end_ms = now_ms + (int64_t)(body->notice_left_ms % (1U << 31));
        worker->noticed = body->notice != 0;
        tm_coord__tell_notice(c, now_ms, worker, out);
    }
    agent = tm_coord__find(c, TM_ROLE_AGENT, message->from_id); /* the table may have moved */
    if (agent != NULL) send_order(c, agent, body, out);
}
