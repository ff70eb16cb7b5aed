#include "run/agent.h"

#include "base/debug.h"
#include "base/planted.h"
#include "base/random.h"
#include "wire/fingerprint.h"
#include "wire/proof.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TM_BODY(message, name, field, pointer)                                                                         \
    do {                                                                                                               \
        (message).body_case = TMW__ENVELOPE__BODY_##name;                                                              \
        (message).field = (pointer);                                                                                   \
    } while (0)

enum { NEVER_MS = -1, SILENT_HEARTBEATS = 6, BACKOFF_DOUBLINGS_MAX = 6, SIGNAL_STATUS = 128 };

void tm_agent_init(struct tm_agent *agent, const struct tm_agent_options *options)
{
    *agent = (struct tm_agent){.options = *options, .said_ms = NEVER_MS};
    agent->self = (struct tm_peer){.role = TM_ROLE_AGENT, .id = options->id, .incarnation = options->incarnation};
    agent->coordinator = (struct tm_peer){.role = TM_ROLE_COORDINATOR};
}

static void say_hello(struct tm_agent *agent, int64_t now_ms, struct tm_outbox *out)
{
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    tm_message message = tm_message_make(agent->options.job, &agent->self, &to);
    Tmw__Hello body = TMW__HELLO__INIT;
    uint8_t proof[TM_PROOF_BYTES];
    tm_proof_put_hello(agent->options.token, agent->options.job, &agent->self, agent->nonce, proof, &body);
    body.instance = agent->options.instance != 0 ? agent->options.instance : agent->options.id;
    struct tm_fingerprint fingerprint = {.count = 0};
    char *parts[TM_FINGERPRINT_PARTS_MAX];
    tm_fingerprint_add_lines(&fingerprint, agent->options.fingerprint);
    body.n_fingerprint = tm_fingerprint_list(&fingerprint, parts);
    body.fingerprint = parts;
    TM_BODY(message, HELLO, hello, &body);
    tm_outbox_send(out, &to, &message);
    agent->said_ms = now_ms;
}

/* The lines only until somebody has heard them; whether it failed always, for a coordinator that is new. */
static void tell_end(struct tm_agent *agent, int64_t now_ms, Tmw__AgentHeartbeat *body, char *lines[TM_LAST_LINES])
{
    body->ended_incarnation = agent->ended;
    if (agent->ended == 0) return;
    body->ended_status = (uint32_t)agent->ended_status;
    body->ended_failed = agent->ended_failed;
    body->ended_ran_ms = (uint64_t)agent->ended_ran_ms;
    body->ended_ago_ms = (uint64_t)(now_ms - agent->ended_ms);
    if (agent->ended_sequence == 0) agent->ended_sequence = agent->sequence;
    if (!agent->ended_failed || agent->acked >= agent->ended_sequence) return;
    body->n_ended_lines = tm_last_lines_point(&agent->ended_lines, lines);
    body->ended_lines = lines;
    body->ended_file = agent->ended_file;
}

static void heartbeat(struct tm_agent *agent, int64_t now_ms, struct tm_outbox *out)
{
    char *lines[TM_LAST_LINES];
    tm_message message = tm_message_make(agent->options.job, &agent->self, &agent->coordinator);
    Tmw__AgentHeartbeat body = TMW__AGENT_HEARTBEAT__INIT;
    body.sequence = ++agent->sequence;
    body.worker_runs = agent->worker != 0;
    body.worker_incarnation = agent->worker;
    tell_end(agent, now_ms, &body, lines);
    body.restarts = (uint32_t)agent->restart_count;
    body.gave_up = agent->gave_up;
    body.instance = agent->options.id;
    body.notice = agent->noticed;
    if (agent->noticed && agent->notice_end_ms > now_ms)
        body.notice_left_ms = (uint64_t)(agent->notice_end_ms - now_ms);
    TM_BODY(message, AGENT_HEARTBEAT, agent_heartbeat, &body);
    tm_outbox_send(out, &agent->coordinator, &message);
    agent->said_ms = now_ms;
    if (agent->sequence - agent->acked > SILENT_HEARTBEATS) {
        agent->registered = false;
        agent->nonce = 0;
    }
}

/* ---- what always holds ---- */

enum agent_state { WAITS, RUNS, DONE, GAVE_UP, STOPPED, STATES };

/* What is over stays over, whatever the coordinator says later. */
static const bool moves[STATES][STATES] = {
    [WAITS] = {[WAITS] = true, [RUNS] = true, [STOPPED] = true},
    [RUNS] = {[RUNS] = true, [WAITS] = true, [DONE] = true, [GAVE_UP] = true, [STOPPED] = true},
    [DONE] = {[DONE] = true, [STOPPED] = true},
    [GAVE_UP] = {[GAVE_UP] = true, [STOPPED] = true},
    [STOPPED] = {[STOPPED] = true},
};

static enum agent_state state_of(const struct tm_agent *agent)
{
    if (agent->stopped) return STOPPED;
    if (agent->worker != 0) return RUNS;
    return agent->done ? DONE : agent->gave_up ? GAVE_UP : WAITS;
}

/* At the end of every event. */
static void check(struct tm_agent *agent, int64_t now_ms)
{
    enum agent_state state = state_of(agent);
    assert(moves[agent->state][state]);
    agent->state = (int)state;
    assert(agent->acked <= agent->sequence && agent->ended_sequence <= agent->sequence);
    assert(agent->worker == 0 || (agent->starts > 0 && agent->worker != agent->ended));
    assert(agent->worker == 0 || !(agent->done || agent->gave_up));
    assert(agent->ended == 0 || agent->starts > 0);
    assert(agent->restart_count <= agent->starts);
    assert(agent->said_ms <= now_ms && agent->ended_ms <= now_ms && agent->started_ms <= now_ms);
    assert(agent->ended_ran_ms >= 0);
}

/* ---- the worker ---- */

static void start_worker(struct tm_agent *agent, int64_t now_ms, struct tm_outbox *out)
{
    if (agent->worker != 0 || agent->gave_up || agent->stopped || agent->done || now_ms < agent->start_at_ms) return;
    struct tm_random random =
        tm_random_make(agent->options.random_seed ^ agent->options.incarnation, agent->options.id);
    random.position = ++agent->starts;
    agent->worker = tm_random_u64(&random) | 1;
    agent->started_ms = now_ms;
    tm_debug(TM_DEBUG_RUN, "agent %" PRIu64 ": start %" PRIu64 " of its worker", agent->options.id, agent->starts);
    tm_outbox_add(out, TM_AGENT_START_WORKER, NULL, 0, agent->worker, 0);
}

/* How many restarts the window has seen, with this one. */
static uint32_t count_restart(struct tm_agent *agent, int64_t now_ms)
{
    uint32_t recent = 1;
    for (size_t i = 0; i < agent->restart_count && i < TM_AGENT_RESTARTS_KEPT; i++)
        recent += now_ms - agent->restarts_ms[i] < agent->options.restart_window_ms;
    agent->restarts_ms[agent->restart_count++ % TM_AGENT_RESTARTS_KEPT] = now_ms;
    return recent;
}

/* Is it the program's own fault, as far as can be seen from here? Status 0 is right at the end of the job, and wrong
 * before it: the coordinator knows. */
static bool is_failure(const struct tm_agent *agent, const struct tm_worker_end *end)
{
    if (agent->stopped || agent->noticed || agent->ending == agent->ended) return false;
    if (end->status == SIGNAL_STATUS + SIGTERM) return false; /* the machine goes down, or somebody wants it to end */
    return !(agent->options.kills_expected && end->status == SIGNAL_STATUS + SIGKILL);
}

static void remember_end(struct tm_agent *agent, int64_t now_ms, const struct tm_worker_end *end)
{
    agent->ended_ms = now_ms;
    agent->ended_ran_ms = now_ms > agent->started_ms ? now_ms - agent->started_ms : 0;
    agent->ended_status = end->status;
    agent->ended_failed = is_failure(agent, end);
    agent->ended_sequence = 0;
    tm_last_lines_of(end->output, end->output == NULL ? 0 : end->output_length, &agent->ended_lines);
    (void)snprintf(agent->ended_file, sizeof agent->ended_file, "%s", end->file == NULL ? "" : end->file);
}

void tm_agent_worker_ended(struct tm_agent *agent, int64_t now_ms, uint64_t incarnation,
                           const struct tm_worker_end *end, struct tm_outbox *out)
{
    if (agent->worker != incarnation || incarnation == 0) return;
    agent->worker = 0;
    agent->ended = incarnation;
    remember_end(agent, now_ms, end);
    if (end->status == 0) {
        agent->done = true;
    } else {
        uint32_t recent = count_restart(agent, now_ms);
        uint32_t doublings = recent - 1 < BACKOFF_DOUBLINGS_MAX ? recent - 1 : BACKOFF_DOUBLINGS_MAX;
        agent->gave_up = recent > agent->options.restarts_max;
        agent->start_at_ms = now_ms + (agent->options.backoff_ms << doublings);
    }
    tm_debug(TM_DEBUG_RUN, "agent %" PRIu64 ": its worker ended with status %d%s", agent->options.id, end->status,
             agent->gave_up ? "; it is not started again" : "");
    if (agent->registered) heartbeat(agent, now_ms, out); /* at once: others wait for the dead */
    check(agent, now_ms);
}

void tm_agent_notice(struct tm_agent *agent, int64_t now_ms, int64_t left_ms, struct tm_outbox *out)
{
    if (agent->noticed != (left_ms >= 0))
        tm_debug(TM_DEBUG_RUN, "agent %" PRIu64 ": notice, %" PRId64 " ms left", agent->options.id, left_ms);
    agent->noticed = left_ms >= 0;
    agent->notice_end_ms = now_ms + left_ms;
    if (agent->registered) heartbeat(agent, now_ms, out);
    check(agent, now_ms);
}

/* ---- events ---- */

void tm_agent_tick(struct tm_agent *agent, int64_t now_ms, struct tm_outbox *out)
{
    start_worker(agent, now_ms, out);
    bool due = agent->said_ms == NEVER_MS || now_ms - agent->said_ms >= agent->options.heartbeat_ms;
    if (due && agent->registered)
        heartbeat(agent, now_ms, out);
    else if (due && !agent->stopped)
        say_hello(agent, now_ms, out);
    check(agent, now_ms);
}

static void on_order(struct tm_agent *agent, const Tmw__AgentOrder *order, struct tm_outbox *out)
{
    if (order->sequence <= agent->acked || order->sequence > agent->sequence) return;
    agent->acked = order->sequence;
    if (order->restart_worker && agent->worker != 0 && agent->worker == order->worker_incarnation) {
        agent->ending = agent->worker;
        tm_outbox_add(out, TM_AGENT_END_WORKER, NULL, 0, agent->worker, 1);
    }
    if (!order->stop) return;
    tm_debug(TM_DEBUG_RUN, "agent %" PRIu64 ": told to stop", agent->options.id);
    agent->stopped = true;
    if (agent->worker != 0 && agent->ending != agent->worker && !TM_PLANTED(stop_ignored))
        tm_outbox_add(out, TM_AGENT_END_WORKER, NULL, 0, agent->worker, 0);
    tm_outbox_add(out, TM_AGENT_STOP, NULL, 0, 0, 0);
}

void tm_agent_receive(struct tm_agent *agent, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    if (message->job != agent->options.job || message->from_role != TM_ROLE_COORDINATOR) return;
    if (message->to_incarnation != agent->self.incarnation) return;
    switch (message->body_case) {
    case TMW__ENVELOPE__BODY_CHALLENGE:
        agent->nonce = message->challenge->nonce;
        if (message->from_incarnation != agent->coordinator.incarnation) agent->registered = false;
        say_hello(agent, now_ms, out);
        break;
    case TMW__ENVELOPE__BODY_WELCOME:
        if (message->welcome->nonce != agent->nonce || agent->nonce == 0 || agent->registered) break;
        /* Status 0 was the end that the coordinator before this one had told it, for all that this one knows. */
        if (agent->coordinator.incarnation != 0 && agent->coordinator.incarnation != message->from_incarnation &&
            agent->done)
            agent->ended_failed = false;
        agent->coordinator.incarnation = message->from_incarnation;
        agent->registered = true;
        agent->acked = agent->sequence;
        agent->ended_sequence = 0; /* this one has not heard of it */
        heartbeat(agent, now_ms, out);
        break;
    case TMW__ENVELOPE__BODY_REFUSE:
        agent->stopped = true;
        (void)snprintf(agent->refused, sizeof agent->refused, "%s", message->refuse->reason);
        tm_outbox_add(out, TM_AGENT_STOP, NULL, 0, 1, 0);
        break;
    case TMW__ENVELOPE__BODY_AGENT_ORDER:
        if (agent->registered && message->from_incarnation == agent->coordinator.incarnation)
            on_order(agent, message->agent_order, out);
        break;
    default:
        break;
    }
    check(agent, now_ms);
}
