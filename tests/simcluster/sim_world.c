/* Time, network, processes, machines, the record's disk and the file store. */
#include "sim.h"

#include "base/alloc.h"

#include <assert.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    UTC_START_MS = 1000000000,
    RESEND_MS = 600,
    AFTERMATH_MS = 45000,
    SETTLE_MS = 45000,
    POLICY_INSTANCES_MAX = 16,
    FLUSH_TICKS = 5, /* as the program flushes its record once a second */
    ANCHOR_DICE = 9001,
    ODD_DICE = 9002,
    WORKERS_DICE = 9003
};
const char sim_fingerprint[] = "lr=0.003\n";
const char sim_token[] = "a token that only members of the job know";

/* ---- randomness, words ---- */

double sim_unit(struct sim *sim)
{
    return tm_random_unit(&sim->random);
}

uint64_t sim_below(struct sim *sim, uint64_t limit)
{
    return tm_random_below(&sim->random, limit);
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    if (!sim->trace) return;
    va_list arguments;
    printf("%10.3f  ", (double)sim->now_ms / 1000);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    if (sim->failure[0] != '\0') return; /* the first one counts */
    va_list arguments;
    va_start(arguments, format);
    int used = snprintf(sim->failure, sizeof sim->failure, "at %.3f s: ", (double)sim->now_ms / 1000);
    (void)vsnprintf(sim->failure + used, sizeof sim->failure - (size_t)used, format, arguments);
    va_end(arguments);
    sim_trace(sim, "FAILED %s", sim->failure);
}

int64_t sim_utc(const struct sim *sim)
{
    return UTC_START_MS + sim->now_ms;
}

int64_t sim_clock(const struct sim *sim, const struct node *node)
{
    return sim->now_ms + node->clock_ms + sim->now_ms * node->clock_ppm / 1000000;
}

/* ---- memory ---- */

/* What the world itself needs inside such an event (the engine plans its next word) has its room before. */
void sim_memory_short(struct sim *sim)
{
    if (sim->faults.memory_short_ms <= sim->now_ms || sim_unit(sim) < 0.7) return;
    int rc = tm_grow((void **)&sim->heap, &sim->heap_capacity, sim->heap_count + 64, sizeof *sim->heap, 1 << 22);
    assert(rc == 0);
    tm_alloc_fail_at(1 + (long)sim_below(sim, 14));
}

void sim_memory_back(struct sim *sim)
{
    sim->memory_faults += tm_alloc_failed() != 0;
    sim->fault_count += tm_alloc_failed() != 0;
    sim->fault_kinds[FAULT_MEMORY] += tm_alloc_failed() != 0;
    tm_alloc_fail_at(0);
}

/* ---- events: a heap by time, then by order of making ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

void sim_schedule(struct sim *sim, int64_t at_ms, void (*run)(struct sim *, struct event *), uint64_t a, uint64_t b,
                  uint64_t c, uint64_t d, const void *data, size_t length)
{
    int rc = tm_grow((void **)&sim->heap, &sim->heap_capacity, sim->heap_count + 1, sizeof *sim->heap, 1 << 22);
    assert(rc == 0);
    struct event event = {.at_ms = at_ms < sim->now_ms ? sim->now_ms : at_ms,
                          .order = sim->order++,
                          .run = run,
                          .a = a,
                          .b = b,
                          .c = c,
                          .d = d,
                          .length = length};
    if (data != NULL) {
        event.data = tm_alloc(length + 1);
        assert(event.data != NULL);
        memcpy(event.data, data, length);
    }
    size_t i = sim->heap_count++;
    while (i > 0 && before(&event, &sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = event;
}

static struct event pop(struct sim *sim)
{
    struct event first = sim->heap[0];
    struct event last = sim->heap[--sim->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= sim->heap_count) break;
        if (child + 1 < sim->heap_count && before(&sim->heap[child + 1], &sim->heap[child])) child++;
        if (!before(&sim->heap[child], &last)) break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

/* ---- network ---- */

static void deliver(struct sim *sim, struct event *event);

static int64_t delay_of(struct sim *sim)
{
    int64_t delay_ms = 1 + (int64_t)sim_below(sim, 15);
    if (sim->faults.delay_ms_max > 0 && sim_unit(sim) < 0.3)
        delay_ms += (int64_t)sim_below(sim, (uint64_t)sim->faults.delay_ms_max);
    if (sim_unit(sim) < sim->faults.long_delay) {
        delay_ms += (int64_t)sim_below(sim, 40000);
        sim->fault_kinds[FAULT_MESSAGE_LATE]++;
    }
    return delay_ms;
}

void sim_send(struct sim *sim, uint64_t from_node, uint64_t to_node, void (*run)(struct sim *, struct event *),
              uint64_t role, uint64_t extra, const void *data, size_t length)
{
    sim->messages++;
    if (sim->capturing && role == TM_ROLE_WORKER && run == deliver && sim->captured_count++ < CAPTURED_MAX)
        sim_schedule(sim, sim->now_ms + 100000000, run, from_node, to_node, role, extra, data, length);
    if (to_node >= sim->node_count) return;
    if (run == deliver) hostile_overhears(sim, from_node, to_node, role, data, length);
    if (sim->faults.cut[from_node][to_node]) return;
    if (sim->faults.loss > 0 && sim_unit(sim) < sim->faults.loss) {
        sim->fault_count++;
        sim->fault_kinds[FAULT_MESSAGE_LOST]++;
        return;
    }
    int64_t at_ms = sim->now_ms + delay_of(sim);
    if (at_ms < sim->last_at_ms[from_node][to_node] && !fault_may(sim, FAULT_MESSAGE_OVERTAKEN))
        at_ms = sim->last_at_ms[from_node][to_node];
    sim->fault_kinds[FAULT_MESSAGE_OVERTAKEN] += at_ms < sim->last_at_ms[from_node][to_node];
    sim->last_at_ms[from_node][to_node] = at_ms;
    sim_schedule(sim, at_ms, run, from_node, to_node, role, extra, data, length);
    if (sim->faults.duplicate > 0 && sim_unit(sim) < sim->faults.duplicate) {
        sim->fault_count++;
        sim->fault_kinds[FAULT_MESSAGE_DOUBLED]++;
        sim_schedule(sim, sim->now_ms + delay_of(sim), run, from_node, to_node, role, extra, data, length);
    }
}

static void agent_actions(struct sim *sim, struct node *node, struct tm_outbox *out);

/* Everything captured comes again now. */
void sim_replay_captured(struct sim *sim)
{
    struct event late[CAPTURED_MAX];
    size_t count = 0;
    for (size_t i = 0; i < sim->heap_count && count < CAPTURED_MAX; i++)
        if (sim->heap[i].at_ms > sim->now_ms + 50000000) late[count++] = sim->heap[i];
    for (size_t i = 0; i < count; i++) {
        sim->fault_count++;
        sim_schedule(sim, sim->now_ms + (int64_t)(i % 400), deliver, late[i].a, late[i].b, late[i].c, late[i].d,
                     late[i].data, late[i].length);
    }
}

void sim_deliver_at(struct sim *sim, int64_t at_ms, const struct overheard *frame)
{
    sim_schedule(sim, at_ms, deliver, frame->from, frame->to, frame->role, 0, frame->data, frame->length);
}

static const char *role_name(uint64_t role)
{
    static const char *const names[] = {"nobody", "coordinator", "agent", "worker", "cloud"};
    return names[role];
}

static struct node *node_of(struct sim *sim, uint64_t id)
{
    return &sim->instances[id];
}

/* A message reaches the process of a role on a machine, if there is one. */
static void deliver(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->b];
    if (event->c == TM_ROLE_COORDINATOR && split_takes(sim, event)) return;
    int64_t paused_ms = event->c == TM_ROLE_COORDINATOR ? sim->coordinator_paused_ms
                        : event->c == TM_ROLE_AGENT     ? node->agent_paused_ms
                                                        : node->paused_ms;
    if (paused_ms > sim->now_ms) { /* it waits in the machine's buffers */
        sim_schedule(sim, paused_ms, deliver, event->a, event->b, event->c, event->d, event->data, event->length);
        return;
    }
    struct tm_arena arena;
    struct tm_error e;
    tm_message *message = NULL;
    struct tm_outbox out;
    tm_arena_init(&arena, 64 << 20);
    tm_outbox_init(&out);
    sim_memory_short(sim);
    int rc = tm_message_unpack(event->data, event->length, &arena, &message, &e);
    if (rc == -(int)TM_ENOMEM) {
        sim_trace(sim, "a message is lost for want of memory");
    } else if (rc != 0) {
        sim_fail(sim, "a message of ours is refused: %s", e.text);
    } else if (event->c == TM_ROLE_COORDINATOR && sim->coordinator != NULL) {
        struct tm_peer from = tm_message_sender(message);
        if (message->body_case == TMW__ENVELOPE__BODY_REPORT && !hostile_is(&from))
            check_report(sim, node_of(sim, event->a), message->from_incarnation, message->report);
        if (sim->trace && message->body_case != TMW__ENVELOPE__BODY_HEARTBEAT &&
            message->body_case != TMW__ENVELOPE__BODY_AGENT_HEARTBEAT &&
            message->body_case != TMW__ENVELOPE__BODY_CLOUD_REPORT)
            sim_trace(sim, "%s %llu -> coordinator  %s", role_name(message->from_role), (unsigned long long)event->a,
                      tm_message_name(message));
        tm_coordinator_receive(sim->coordinator, sim->now_ms, message, &out);
        sim_memory_back(sim);
        sim_coordinator_actions(sim, &out);
    } else if (event->c == TM_ROLE_CLOUD) {
        cloud_receive(sim, message, &out);
        sim_memory_back(sim); /* what it could not say it says again */
        sim_cloud_actions(sim, &out);
    } else if (event->c == TM_ROLE_AGENT && node->up && node->agent_up) {
        tm_agent_receive(&node->agent, sim_clock(sim, node), message, &out);
        sim_memory_back(sim);
        agent_actions(sim, node, &out);
    } else if (event->c == TM_ROLE_WORKER && node->up && node->worker != NULL) {
        if (sim->trace && message->body_case != TMW__ENVELOPE__BODY_HEARTBEAT_ACK)
            sim_trace(sim, "%s %llu -> worker %llu  %s", role_name(message->from_role), (unsigned long long)event->a,
                      (unsigned long long)event->b, tm_message_name(message));
        sim->layers_moved += message->body_case == TMW__ENVELOPE__BODY_FETCH_DATA;
        tm_worker_receive(node->worker, sim_clock(sim, node), message, &out);
        sim_memory_back(sim);
        sim_worker_actions(sim, node, &out);
    }
    sim_memory_back(sim);
    tm_outbox_deinit(&out);
    tm_arena_deinit(&arena);
}

/* The cloud's program runs on the coordinator's machine. */
void sim_say(struct sim *sim, uint64_t from_node, const struct tm_action *action, const void *data)
{
    bool there = action->to.role == TM_ROLE_COORDINATOR || action->to.role == TM_ROLE_CLOUD;
    uint64_t to_node = there ? 0 : action->to.id;
    if (hostile_is(&action->to)) hostile_answered(sim, from_node, &action->to, data, action->length);
    sim_send(sim, from_node, to_node, deliver, action->to.role, 0, data, action->length);
}

void sim_cloud_actions(struct sim *sim, struct tm_outbox *out)
{
    for (size_t i = 0; i < out->count; i++)
        sim_say(sim, 0, &out->actions[i], tm_outbox_data(out, &out->actions[i]));
}

/* ---- workers ---- */

static void disconnected(struct sim *sim, struct event *event)
{
    struct tm_peer peer = {.role = (enum tm_role)event->b, .id = event->a, .incarnation = event->c};
    struct tm_outbox out;
    if (sim->coordinator == NULL) return;
    if (sim->coordinator_paused_ms > sim->now_ms) {
        sim_schedule(sim, sim->coordinator_paused_ms, disconnected, event->a, event->b, event->c, 0, NULL, 0);
        return;
    }
    sim_trace(sim, "the connection of %llu is lost", (unsigned long long)event->a);
    tm_outbox_init(&out);
    tm_coordinator_disconnected(sim->coordinator, sim->now_ms, &peer, &out);
    sim_coordinator_actions(sim, &out);
    tm_outbox_deinit(&out);
}

/* The machine of a worker or agent closes its connection to the coordinator; it may live on. */
void sim_disconnect(struct sim *sim, const struct node *node, enum tm_role role)
{
    uint64_t incarnation = role == TM_ROLE_WORKER ? node->incarnation : node->agent.self.incarnation;
    sim_schedule(sim, sim->now_ms + 1 + (int64_t)sim_below(sim, 10), disconnected, node->id, role, incarnation, 0, NULL,
                 0);
}

void sim_worker_kill(struct sim *sim, struct node *node)
{
    sim_worker_end(sim, node, 128 + SIGKILL);
}

void sim_worker_end(struct sim *sim, struct node *node, int status)
{
    if (node->worker == NULL) return;
    if (sim_below(sim, 2) == 0) sim_disconnect(sim, node, TM_ROLE_WORKER);
    sim_trace(sim, "worker %llu dies", (unsigned long long)node->id);
    node->died_ms = sim->now_ms;
    tm_worker_destroy(node->worker);
    node->worker = NULL;
    node->hangs = false;
    node->paused_ms = 0;
    if (!node->agent_up) return;
    struct tm_outbox out; /* the agent's wait for its child returns */
    tm_outbox_init(&out);
    struct tm_worker_end end = {.status = status};
    tm_agent_worker_ended(&node->agent, sim_clock(sim, node), node->incarnation, &end, &out);
    agent_actions(sim, node, &out);
    tm_outbox_deinit(&out);
}

static void worker_tick(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    if (node->worker == NULL || node->incarnation != event->b) return;
    sim_schedule(sim, sim->now_ms + TICK_MS, worker_tick, event->a, event->b, event->c + 1, 0, NULL, 0);
    if (node->paused_ms > sim->now_ms) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_memory_short(sim);
    tm_worker_tick(node->worker, sim_clock(sim, node), &out);
    sim_memory_back(sim);
    if (event->c % 3 == 0) toy_tick(&node->toy);
    sim_worker_actions(sim, node, &out);
    tm_outbox_deinit(&out);
}

/* It ended before it did anything. */
static void worker_unborn(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    if (!node->up || !node->agent_up || node->worker != NULL) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    struct tm_worker_end end = {.status = 128 + SIGKILL};
    tm_agent_worker_ended(&node->agent, sim_clock(sim, node), event->b, &end, &out);
    agent_actions(sim, node, &out);
    tm_outbox_deinit(&out);
}

static void worker_start(struct sim *sim, struct node *node, uint64_t incarnation)
{
    assert(node->worker == NULL);
    struct tm_worker_options options = {.job = 42,
                                        .id = node->id,
                                        .incarnation = incarnation,
                                        .token = sim_token,
                                        .address = "sim",
                                        .kernel_class = "toy",
                                        .fingerprint = node->other_job ? "lr=0.001\n" : sim_fingerprint,
                                        .anchor = node->anchor,
                                        .chunk_bytes = 24,
                                        .copy_bytes_max = 1 << 20,
                                        .resend_ms = RESEND_MS};
    node->toy = (struct toy){.sim = sim, .node = node};
    struct tm_worker_engine engine = toy_engine(&node->toy);
    sim_memory_short(sim);
    node->worker = tm_worker_create(&options, &engine);
    sim_memory_back(sim);
    node->incarnation = incarnation;
    node->hangs = false;
    node->slow = node->usual_slow;
    sim_trace(sim, "worker %llu starts%s", (unsigned long long)node->id, node->worker == NULL ? ", and dies" : "");
    if (node->worker == NULL) {
        sim_schedule(sim, sim->now_ms + 1, worker_unborn, node->id, incarnation, 0, 0, NULL, 0);
        return;
    }
    sim_schedule(sim, sim->now_ms + (int64_t)sim_below(sim, TICK_MS), worker_tick, node->id, incarnation, 0, 0, NULL,
                 0);
}

void sim_worker_actions(struct sim *sim, struct node *node, struct tm_outbox *out)
{
    if (tm_outbox_status(out, NULL) != 0) { /* it must be destroyed; its agent starts another */
        sim->memory_deaths++;
        sim_worker_kill(sim, node);
        return;
    }
    for (size_t i = 0; i < out->count && node->worker != NULL; i++) {
        const struct tm_action *action = &out->actions[i];
        int64_t at_ms = sim->now_ms + 20 + (int64_t)sim_below(sim, 200);
        switch (action->kind) {
        case TM_ACTION_SEND:
            sim_say(sim, node->id, action, tm_outbox_data(out, action));
            break;
        case TM_WORKER_FILE_PUT:
            files_put(sim, node, at_ms + sim->faults.files_slow_ms, action->number, (uint32_t)action->other);
            break;
        case TM_WORKER_FILE_GET:
            files_get(sim, node, at_ms, action->number, (uint32_t)action->other);
            break;
        case TM_WORKER_STOP:
            sim_trace(sim, "worker %llu stops in order", (unsigned long long)node->id);
            if (action->number != 0 && !node->other_job)
                sim_fail(sim, "worker %llu was refused", (unsigned long long)node->id);
            tm_worker_destroy(node->worker);
            node->worker = NULL;
            if (node->agent_up) {
                struct tm_outbox ended;
                tm_outbox_init(&ended);
                tm_agent_worker_ended(&node->agent, sim_clock(sim, node), node->incarnation,
                                      &(struct tm_worker_end){.status = action->number == 0 ? 0 : 1}, &ended);
                agent_actions(sim, node, &ended);
                tm_outbox_deinit(&ended);
            }
            break;
        default:
            assert(false);
        }
    }
}

/* ---- agents ---- */

static void agent_actions(struct sim *sim, struct node *node, struct tm_outbox *out)
{
    if (tm_outbox_status(out, NULL) != 0) {
        sim->memory_deaths++;
        sim_agent_kill(sim, node, 500 + (int64_t)sim_below(sim, 3000));
        return;
    }
    for (size_t i = 0; i < out->count; i++) {
        const struct tm_action *action = &out->actions[i];
        if (action->kind == TM_ACTION_SEND) sim_say(sim, node->id, action, tm_outbox_data(out, action));
        if (action->kind == TM_AGENT_START_WORKER && node->worker == NULL) worker_start(sim, node, action->number);
        if (action->kind == TM_AGENT_END_WORKER && node->worker != NULL && node->incarnation == action->number)
            sim_worker_kill(sim, node);
        if (action->kind == TM_AGENT_STOP && action->number != 0) sim_fail(sim, "an agent was refused");
    }
}

static void agent_tick(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    if (!node->up || !node->agent_up || node->agent.self.incarnation != event->b) return;
    sim_schedule(sim, sim->now_ms + TICK_MS, agent_tick, event->a, event->b, 0, 0, NULL, 0);
    if (node->agent_paused_ms > sim->now_ms) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_memory_short(sim);
    tm_agent_tick(&node->agent, sim_clock(sim, node), &out);
    sim_memory_back(sim);
    agent_actions(sim, node, &out);
    tm_outbox_deinit(&out);
}

static void agent_start(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    if (!node->up || node->agent_up) return;
    uint64_t incarnation = tm_random_u64(&sim->random) | 1;
    struct tm_agent_options options = {.job = 42,
                                       .id = node->id,
                                       .instance = tm_instance_of_worker(node->id, sim->workers),
                                       .incarnation = incarnation,
                                       .token = sim_token,
                                       .random_seed = sim->seed,
                                       .heartbeat_ms = 1000,
                                       .backoff_ms = 500,
                                       .restarts_max = 1000,
                                       .restart_window_ms = 60000,
                                       .kills_expected = true};
    tm_agent_init(&node->agent, &options);
    node->agent_up = true;
    sim_schedule(sim, sim->now_ms, agent_tick, node->id, incarnation, 0, 0, NULL, 0);
}

/* Agents that ended with the job are started anew. */
void sim_agents_again(struct sim *sim)
{
    for (size_t i = 1; i < sim->node_count; i++) {
        struct node *node = &sim->instances[i];
        if (!node->up || !node->agent_up || (!node->agent.stopped && !node->agent.done)) continue;
        sim_worker_kill(sim, node);
        node->agent_up = false;
        sim_schedule(sim, sim->now_ms + 100, agent_start, node->id, 0, 0, 0, NULL, 0);
    }
}

/* The worker is its child and does not outlive it. */
void sim_agent_kill(struct sim *sim, struct node *node, int64_t back_in_ms)
{
    if (!node->agent_up) return;
    sim_trace(sim, "agent %llu dies", (unsigned long long)node->id);
    for (uint64_t i = sim_first(sim, node->id); i < sim_next(sim, node->id); i++) { /* one process keeps them all */
        struct node *mate = &sim->instances[i];
        if (!mate->agent_up) continue;
        mate->agent_up = false;
        sim_worker_kill(sim, mate);
        if (back_in_ms >= 0) sim_schedule(sim, sim->now_ms + back_in_ms, agent_start, mate->id, 0, 0, 0, NULL, 0);
    }
}

/* ---- instances ---- */

struct node *sim_add_instance(struct sim *sim)
{
    if (sim->node_count + sim->workers > INSTANCES_MAX) return NULL;
    struct node *first = &sim->instances[sim->node_count];
    int64_t clock_ms = (int64_t)sim_below(sim, 1000000); /* each machine counts from another zero */
    uint64_t price_microusd_h = 500000 + sim_below(sim, 3000000);
    int64_t at_ms = sim->now_ms + 100 + (int64_t)sim_below(sim, 900);
    sim_trace(sim, "instance %llu arrives", (unsigned long long)sim->node_count);
    for (uint32_t i = 0; i < sim->workers; i++) {
        struct node *node = &sim->instances[sim->node_count];
        *node = (struct node){.id = sim->node_count++,
                              .up = true,
                              .start_ms = sim_utc(sim),
                              .goes_ms = -1,
                              .spot = true,
                              .clock_ms = clock_ms,
                              .price_microusd_h = i == 0 ? price_microusd_h : 0,
                              .slow = 1,
                              .usual_slow = 1};
        sim_schedule(sim, at_ms, agent_start, node->id, 0, 0, 0, NULL, 0);
    }
    pools_place_any(sim, first);
    return first;
}

void sim_alike(struct sim *sim, const struct node *node)
{
    for (uint64_t i = node->id + 1; i < sim_next(sim, node->id); i++) {
        sim->instances[i].spot = node->spot;
        sim->instances[i].anchor = node->anchor;
        sim->instances[i].other_job = node->other_job;
        sim->instances[i].clock_ppm = node->clock_ppm;
    }
}

void sim_instance_gone(struct sim *sim, struct node *node)
{
    if (!node->up) return;
    sim_trace(sim, "instance of %llu is taken", (unsigned long long)node->id);
    for (uint64_t i = sim_first(sim, node->id); i < sim_next(sim, node->id); i++) {
        struct node *mate = &sim->instances[i];
        mate->agent_up = false;
        sim_worker_kill(sim, mate);
        mate->up = false;
        mate->end_ms = sim_utc(sim);
    }
}

/* ---- the coordinator ---- */

static void record_append(struct sim *sim, const void *data, size_t length)
{
    int rc = tm_grow((void **)&sim->record, &sim->record_capacity, sim->record_count + 1, sizeof *sim->record, 1 << 20);
    assert(rc == 0);
    uint8_t *copy = tm_alloc(length + 1);
    assert(copy != NULL);
    memcpy(copy, data, length);
    sim->record[sim->record_count++] = (struct record_entry){.data = copy, .length = length};
}

static void record_cut(struct sim *sim, size_t count)
{
    while (sim->record_count > count)
        tm_free(sim->record[--sim->record_count].data);
    if (sim->record_synced > count) sim->record_synced = count;
    if (sim->record_checked > count) sim->record_checked = count;
}

/* Up to here nothing is taken back any more, unless the process dies. */
static void record_check(struct sim *sim, size_t count)
{
    while (sim->record_checked < count) {
        const struct record_entry *entry = &sim->record[sim->record_checked++];
        check_record(sim, entry->data, entry->length);
    }
}

/* The first synced event that waits for the disk; after the last: none does. */
static size_t first_pending(const struct sim *sim)
{
    size_t i = sim->record_synced;
    while (i < sim->record_count && !sim->record[i].sync)
        i++;
    return i;
}

void sim_record_put(struct sim *sim, const void *data, size_t length, bool sync)
{
    record_append(sim, data, length);
    if (sync) sim->record_synced = sim->record_count;
    record_check(sim, sim->record_count);
}

static void coordinator_back(struct sim *sim, struct event *event)
{
    (void)event;
    sim_coordinator_start(sim);
}

void sim_coordinator_start_in(struct sim *sim, int64_t in_ms)
{
    sim_schedule(sim, sim->now_ms + in_ms, coordinator_back, 0, 0, 0, 0, NULL, 0);
}

/* Of what was not synced, any part may have reached the disk. */
void sim_record_left(struct sim *sim, bool disk_lost)
{
    size_t unsynced = sim->record_count - sim->record_synced;
    size_t written = sim->record_count;
    size_t kept = 0;
    if (!disk_lost) kept = fault_may(sim, FAULT_RECORD_CUT) ? (size_t)sim_below(sim, unsynced + 1) : unsynced;
    record_cut(sim, disk_lost ? 0 : sim->record_synced + kept);
    if (!disk_lost) record_check(sim, sim->record_count); /* what reached the disk all the same: so it was */
    sim->fault_kinds[FAULT_DISK_LOST] += disk_lost;
    if (disk_lost) files_forgotten(sim);
    sim->fault_kinds[FAULT_RECORD_CUT] += !disk_lost && sim->record_count < written;
    sim->record_synced = sim->record_count;
}

void sim_coordinator_crash(struct sim *sim, bool disk_lost, int64_t back_in_ms)
{
    if (sim->coordinator == NULL) return;
    sim_trace(sim, "coordinator dies%s", disk_lost ? ", its disk too" : "");
    tm_coordinator_destroy(sim->coordinator);
    sim->coordinator = NULL;
    tm_set_manifests_deinit(&sim->manifests);
    tm_action_queue_clear(&sim->queue);
    sim->crash_after_actions = -1;
    sim->coordinator_paused_ms = 0;
    sim->record_stuck = false; /* the next one finds out for itself */
    sim_record_left(sim, disk_lost);
    sim_coordinator_start_in(sim, back_in_ms);
}

static bool record_full(const struct sim *sim)
{
    return sim->faults.record_full_ms > sim->now_ms;
}

/* Once a second the program writes what it had no need to sync. What cannot be written waits in its memory. */
static void flush(struct sim *sim)
{
    sim->record_stuck = record_full(sim) && (sim->record_stuck || sim->record_count > sim->record_synced);
    tm_coordinator_record_stuck(sim->coordinator, sim->record_stuck ? "the disk is full" : NULL);
    files_retry(sim);
}

/* What had to be in the record is not: the program goes back to what the record says, in one process. */
static void revive(struct sim *sim)
{
    sim_trace(sim, "the record cannot be written: the coordinator begins anew");
    record_cut(sim, first_pending(sim));
    tm_coordinator_destroy(sim->coordinator);
    sim->coordinator = NULL;
    tm_set_manifests_deinit(&sim->manifests);
    tm_action_queue_clear(&sim->queue);
    sim->record_stuck = true;
    sim_coordinator_start(sim);
}

/* What nothing stands in the way of any more. False: the process is gone. */
static bool act(struct sim *sim, const struct tm_action *action, const void *data)
{
    if (sim->crash_after_actions == 0) {
        sim->fault_count++;
        sim->fault_kinds[FAULT_COORDINATOR_KILLED_BETWEEN]++;
        sim_coordinator_crash(sim, false, 200 + (int64_t)sim_below(sim, 8000));
        return false;
    }
    if (sim->crash_after_actions > 0) sim->crash_after_actions--;
    switch (action->kind) {
    case TM_ACTION_SEND:
        sim_say(sim, 0, action, data);
        break;
    case TM_COORDINATOR_MANIFEST:
        if (sim->crash_before_manifest) {
            sim->crash_before_manifest = false;
            sim_coordinator_crash(sim, false, 1000);
            return false;
        }
        if (sim->full_before_manifest) fault_files_full(sim, 5000);
        sim->full_before_manifest = false;
        /* there is memory here */
        (void)tm_set_manifests_put(&sim->manifests, action->number, data, action->length, NULL);
        files_mended(sim);
        break;
    case TM_COORDINATOR_FILES_DROP:
        files_drop(sim, &sim->manifests, action->number);
        break;
    case TM_COORDINATOR_DONE:
        orders_done(sim);
        break;
    default:
        assert(false);
    }
    return true;
}

/* The disk has answered: so many events last, and what waited for them goes out. False: the process is gone, or began
 * anew. */
static bool synced(struct sim *sim, size_t count)
{
    struct tm_queued_action *queued = NULL;
    bool goes_on = true;
    if (record_full(sim)) {
        revive(sim);
        return false;
    }
    sim->record_stuck = false;
    if (sim->fail_next_sync) { /* the program ends, and is started again */
        sim->fault_kinds[FAULT_SYNC_FAILED]++;
        sim->fail_next_sync = false;
        sim_coordinator_crash(sim, false, 500 + (int64_t)sim_below(sim, 3000));
        return false;
    }
    if (count > sim->record_synced) sim->record_synced = count;
    record_check(sim, first_pending(sim));
    tm_action_queue_release(&sim->queue, sim->record_synced);
    while (goes_on && (queued = tm_action_queue_take(&sim->queue)) != NULL) {
        goes_on = act(sim, &queued->action, queued->data);
        tm_free(queued);
    }
    return goes_on;
}

static void sync_done(struct sim *sim, struct event *event)
{
    if (sim->coordinator == NULL || sim->coordinator_starts != event->a) return;
    if (event->b > sim->record_count) return;
    if (sim->coordinator_paused_ms > sim->now_ms) {
        sim_schedule(sim, sim->coordinator_paused_ms, sync_done, event->a, event->b, 0, 0, NULL, 0);
        return;
    }
    (void)synced(sim, (size_t)event->b);
    check_now(sim);
}

/* False: the process is gone, or began anew. */
static bool record_event(struct sim *sim, const void *data, size_t length, bool sync)
{
    if (sim->crash_after_actions == 0) return act(sim, &(struct tm_action){.kind = TM_ACTION_SEND}, NULL);
    if (sim->crash_after_actions > 0) sim->crash_after_actions--;
    record_append(sim, data, length);
    sim->record[sim->record_count - 1].sync = sync;
    if (!sync) {
        record_check(sim, first_pending(sim));
        return true;
    }
    if (sim->record_stuck && record_full(sim)) {
        sim_fail(sim, "stuck: something happens that has to be in the record, which cannot be written");
        return false;
    }
    if (sim->sync_ms_max == 0) return synced(sim, sim->record_count);
    tm_action_queue_hold(&sim->queue, sim->record_count);
    int64_t done_ms = sim->now_ms + (int64_t)tm_random_below(&sim->disk, sim->sync_ms_max);
    if (done_ms > sim->sync_done_ms) sim->sync_done_ms = done_ms; /* one after the other */
    sim_schedule(sim, sim->sync_done_ms, sync_done, sim->coordinator_starts, sim->record_count, 0, 0, NULL, 0);
    return true;
}

void sim_coordinator_actions(struct sim *sim, struct tm_outbox *out)
{
    bool goes_on = tm_outbox_status(out, NULL) == 0;
    if (!goes_on) {
        sim->memory_deaths++;
        sim_coordinator_crash(sim, false, 500 + (int64_t)sim_below(sim, 3000));
    }
    for (size_t i = 0; goes_on && i < out->count; i++) {
        const struct tm_action *action = &out->actions[i];
        const void *data = tm_outbox_data(out, action);
        if (action->kind == TM_COORDINATOR_RECORD) {
            goes_on = record_event(sim, data, action->length, action->number != 0);
        } else if (tm_action_queue_open(&sim->queue)) {
            goes_on = act(sim, action, data);
        } else {
            int rc = tm_action_queue_put(&sim->queue, action, data, NULL);
            assert(rc == 0); /* there is memory here */
        }
    }
}

static void coordinator_tick(struct sim *sim, struct event *event)
{
    if (sim->coordinator == NULL || sim->coordinator_starts != event->a) return;
    sim_schedule(sim, sim->now_ms + TICK_MS, coordinator_tick, event->a, event->b + 1, 0, 0, NULL, 0);
    if (sim->coordinator_paused_ms > sim->now_ms) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_memory_short(sim);
    tm_coordinator_tick(sim->coordinator, sim->now_ms, sim_utc(sim) + sim->faults.utc_jump_ms, &out);
    sim_memory_back(sim);
    sim_coordinator_actions(sim, &out);
    tm_outbox_deinit(&out);
    if (sim->coordinator != NULL && event->b % FLUSH_TICKS == 0) flush(sim);
    check_now(sim);
}

/* Uses all there are; now and then with another number of stages. */
static void dice_decide(void *context, const struct tm_run_view *view, struct tm_run_decision *out)
{
    struct sim *sim = context;
    struct tm_use_all rule = sim->rule;
    if (sim->layout_dice > 0) {
        struct tm_random dice = tm_random_make(sim->seed, view->worker_count + 100 * (view->applied / 40));
        rule.stages = 1 + (uint32_t)tm_random_below(&dice, sim->layout_dice);
    }
    struct tm_decider decider = tm_decider_use_all(&rule);
    decider.decide(decider.context, view, out);
    if (!out->rents) return;
    struct tm_random dice = tm_random_make(sim->seed, 7000 + view->applied / 30);
    if (sim->on_demand_dice > 0) out->want_on_demand = (uint32_t)tm_random_below(&dice, sim->on_demand_dice);
    uint32_t training = out->want_on_demand + sim->anchors - sim->coordinator_options.remotes / sim->workers;
    out->want_on_demand += sim->anchors;
    out->want_spot -= training < out->want_spot ? training : out->want_spot;
}

/* As fast as it has instances, deeper pipelines a little less so. */
static int speed_of(void *context, int pipelines, int stages, double *samples_per_s, double *step_s, struct tm_error *e)
{
    (void)context;
    (void)e;
    *samples_per_s = 10.0 * pipelines * stages / (1 + 0.1 * stages);
    *step_s = 8 / *samples_per_s;
    return 0;
}

/* The policy that room sim judges, for this job. */
static void policy_make(struct sim *sim)
{
    static const char cost[] = "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 100, 1000000000: 20000000}\n"
                               "models: {toy: {stages_max: 3, process_ms: 200, rendezvous_ms: 300}}\n";
    struct tm_error e;
    for (uint32_t l = 0; l < sim->layers; l++)
        sim->model_layers[l] = (struct tm_layer){.params = 1000 + 100 * l, .tied = -1};
    sim->model = (struct tm_model){
        .name = "toy", .optimizer_states = 2, .layers = sim->model_layers, .layer_count = sim->layers};
    int rc = tm_cost_parse("cost", cost, sizeof cost - 1, "toy", &sim->cost, &e);
    if (rc == 0)
        rc = tm_layouts_init(&sim->layouts, &sim->model, &sim->cost.rules, POLICY_INSTANCES_MAX * (int)sim->workers,
                             speed_of, NULL, &e);
    if (rc == 0) rc = tm_migrations_create(&sim->layouts, &sim->cost, &sim->migrations, &e);
    struct tm_policy_rule rule = {.info = tm_policy_find("tidemill"),
                                  .layouts = &sim->layouts,
                                  .migrations = sim->migrations,
                                  .cost = &sim->cost,
                                  .interval_s = 60,
                                  .workers = (int)sim->workers,
                                  .workers_min = (int)sim->rule.workers_min,
                                  .workers_max = (int)sim->rule.workers_max,
                                  .anchors = (int)sim->anchors,
                                  .anchors_train = sim->coordinator_options.remotes == 0,
                                  .samples_per_step = 8,
                                  .deadline_s = sim->deadline_s,
                                  .copy_every_ms = sim->fixed_copies ? sim->rule.copy_every_ms : 0,
                                  .copy_every_alone_ms = sim->fixed_copies ? sim->rule.copy_every_ms / 2 : 0};
    pools_rule(sim, &rule);
    for (size_t i = 0; rc == 0 && i < 2; i++)
        rc = tm_policy_decider_create(&rule, &sim->policies[i], &e);
    if (rc != 0) sim_fail(sim, "no policy: %s", e.text);
}

/* The record, and where it was lost the manifests beside copies in files. */
static int load_all(struct sim *sim, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sim->record_count; i++) {
        struct tm_arena arena;
        Tmw__RecordEvent *event = NULL;
        tm_arena_init(&arena, 64 << 20);
        rc = tm_record_event_unpack(sim->record[i].data, sim->record[i].length, &arena, &event, e);
        if (rc == 0) rc = tm_set_manifests_saw(&sim->manifests, event, e);
        if (rc == 0) rc = tm_coordinator_load(sim->coordinator, event, e);
        tm_arena_deinit(&arena);
    }
    if (rc == 0) rc = tm_set_manifests_mend(&sim->manifests, e);
    if (rc == 0) files_mended(sim);
    if (rc == 0 && tm_coordinator_rebuilds(sim->coordinator))
        rc = tm_set_manifests_load(&sim->manifests, sim->coordinator, e);
    return rc;
}

void sim_coordinator_start(struct sim *sim)
{
    if (sim->coordinator != NULL || sim->runs.down) return;
    sim->coordinator_options.incarnation = tm_random_u64(&sim->random) | 1;
    sim->coordinator_options.fresh = sim->coordinator_starts == 0;
    sim->coordinator_options.resume = sim->resumes;
    sim->resumes = false;
    sim->coordinator_starts++;
    struct tm_decider decider = {.context = sim, .decide = dice_decide};
    if (sim->by_policy && sim->policies[0] == NULL) policy_make(sim);
    if (sim->outlived.coordinator != NULL) sim->policy = 1 - sim->outlived.policy;
    if (sim->policies[sim->policy] != NULL) decider = tm_policy_decider_get(sim->policies[sim->policy]);
    struct tm_error e = {.text = ""};
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_memory_short(sim);
    sim->coordinator = tm_coordinator_create(&sim->coordinator_options, &decider);
    files_open(sim);
    tm_action_queue_init(&sim->queue);
    tm_action_queue_release(&sim->queue, sim->record_synced);
    int rc = sim->coordinator == NULL ? -(int)TM_ENOMEM : load_all(sim, &e);
    if (rc == 0 && sim->record_stuck) tm_coordinator_record_stuck(sim->coordinator, "the disk is full");
    if (rc == 0) tm_coordinator_begin(sim->coordinator, sim->now_ms, sim_utc(sim) + sim->faults.utc_jump_ms, &out);
    sim_memory_back(sim);
    sim->rent_off_ms = sim->now_ms; /* nobody could order before */
    sim_trace(sim, "coordinator starts with %zu events of record", sim->record_count);
    bool unreadable = rc == -(int)TM_EIO && !files_readable(sim); /* it ends, and is started again */
    if (rc == -(int)TM_ENOMEM || unreadable) tm_outbox_fail(&out, rc);
    if (rc != 0 && rc != -(int)TM_ENOMEM && !unreadable) sim_fail(sim, "the record cannot be read: %s", e.text);
    if (sim->coordinator == NULL) tm_set_manifests_deinit(&sim->manifests);
    if (sim->coordinator == NULL)
        sim_schedule(sim, sim->now_ms + 500, coordinator_back, 0, 0, 0, 0, NULL, 0);
    else
        sim_schedule(sim, sim->now_ms + TICK_MS, coordinator_tick, sim->coordinator_starts, 0, 0, 0, NULL, 0);
    if (sim->coordinator != NULL) sim_coordinator_actions(sim, &out);
    tm_outbox_deinit(&out);
}

/* ---- a run ---- */

/* DeepVM's two ways to use on-demand instances, each in some worlds: remotes that keep copies and do not train, and one
 * anchor that trains. From dice of their own, so that the other worlds are what they were. */
static void draw_anchors(struct sim *sim)
{
    struct tm_random dice = tm_random_make(sim->seed, ANCHOR_DICE);
    double kind = tm_random_unit(&dice);
    if (kind >= 0.3) return;
    sim->anchors = kind < 0.2 ? 1 + (uint32_t)tm_random_below(&dice, 2) : 1;
    if (kind < 0.2) sim->coordinator_options.remotes = sim->anchors * sim->workers;
    if (sim->coordinator_options.copies == 0) sim->coordinator_options.copies = 1;
}

/* In some worlds instances have several workers. */
static void draw_workers(struct sim *sim)
{
    struct tm_random dice = tm_random_make(sim->seed, WORKERS_DICE);
    double kind = tm_random_unit(&dice);
    sim->workers = kind < 0.2 ? 2 : kind < 0.3 ? 3 : 1;
    if (sim->choice->workers > 0) sim->workers = (uint32_t)sim->choice->workers;
    if (sim->choice->instances > 0 && sim->choice->workers == 0) sim->workers = 1;
    if (tm_random_below(&dice, 2) == 0) { /* flags go through a tree, however few they are */
        sim->votes_direct_max = 1;
        sim->vote_fan = 1 + (uint32_t)tm_random_below(&dice, 3);
    }
}

/* A fleet as large as was asked for: enough micro-batches for all, and little else that depends on how many they are.
 */
static void draw_fleet(struct sim *sim)
{
    size_t instances = sim->choice->instances;
    sim->fleet_max = instances > 8 ? instances + 1 : 9;
    if (instances == 0) return;
    size_t pipelines = instances / sim->stages + 1;
    sim->micro_batches = pipelines < MICRO_MAX ? (uint32_t)pipelines + 4 : MICRO_MAX;
    if (sim->micro_batches > MICRO_MAX) sim->micro_batches = MICRO_MAX;
    if (instances > POLICY_INSTANCES_MAX) sim->by_policy = false;
    if (sim->rule.workers_max > 0) sim->rule.workers_max = (uint32_t)instances;
}

void sim_init(struct sim *sim, uint64_t seed, const struct choice *choice)
{
    *sim = (struct sim){.seed = seed, .choice = choice, .crash_after_actions = -1, .node_count = 1};
    sim->random = tm_random_make(seed, 1);
    sim->odd = tm_random_make(seed, ODD_DICE);
    draw_workers(sim);
    sim->layers = 3 + (uint32_t)sim_below(sim, 6);
    sim->micro_batches = 4 + (uint32_t)sim_below(sim, 6);
    sim->stages = 1 + (uint32_t)sim_below(sim, 3);
    sim->steps = 60 + sim_below(sim, 120);
    if (sim->choice->steps > 0) sim->steps = sim->choice->steps;
    sim->compute_ms = 400 + (double)sim_below(sim, 2000);
    sim->layout_dice = sim_unit(sim) < 0.4 ? 3 : 0;
    sim->by_policy = sim_unit(sim) < 0.3;
    sim->rule = (struct tm_use_all){.stages = sim->stages,
                                    .workers_min = 1 + (uint32_t)sim_below(sim, 2),
                                    .copy_every_ms = 5000 + (int64_t)sim_below(sim, 25000)};
    sim->supply = INSTANCES_MAX;
    if (sim_unit(sim) < 0.7) {
        sim->rule.workers_max = sim->stages + 1 + (uint32_t)sim_below(sim, 5);
        sim->on_demand_dice = sim_unit(sim) < 0.4 ? 3 : 0;
        sim->deadline_s = sim_unit(sim) < 0.5 ? 60 + (double)sim_below(sim, 300) : 0;
    }
    sim->cloud_passive = sim->rule.workers_max == 0;
    sim->fixed_copies = sim_unit(sim) < 0.5;
    draw_fleet(sim);
    sim->coordinator_options = (struct tm_coordinator_options){.job = 42,
                                                               .token = sim_token,
                                                               .fingerprint = sim_fingerprint,
                                                               .random_seed = seed,
                                                               .layers = sim->layers,
                                                               .steps = sim->steps,
                                                               .micro_batches = sim->micro_batches,
                                                               .heartbeat_ms = 800,
                                                               .lease_ms = 4000,
                                                               .orphan_ms = 20000,
                                                               .resend_ms = RESEND_MS,
                                                               .settle_ms = 1500,
                                                               .follow_limit_ms = sim_unit(sim) < 0.7 ? 20000 : 0,
                                                               .drain_limit_ms = 15000,
                                                               .fetch_limit_ms = 8000,
                                                               .stall_ms = 12000,
                                                               .quarantine_ms = 15000,
                                                               .copy_limit_ms = 20000,
                                                               .false_alarm_ms = 10000,
                                                               .durable_wait_ms = 3600000,
                                                               .copies = (uint32_t)sim_below(sim, 3),
                                                               .workers = sim->workers,
                                                               .votes_direct_max = sim->votes_direct_max,
                                                               .vote_fan = sim->vote_fan,
                                                               .copies_to_files = sim_unit(sim) < 0.5,
                                                               .log_steps = choice->log_steps,
                                                               .sets_kept = 2,
                                                               .failures_max = 3};
    draw_anchors(sim);
    pools_draw(sim);
}

bool sim_begin(struct sim *sim)
{
    if (!oracle_make(sim)) return false;
    runs_begin(sim);
    sim_coordinator_start(sim);
    cloud_start(sim);
    return true;
}

void sim_deinit(struct sim *sim)
{
    split_end(sim);
    if (sim->coordinator != NULL) tm_set_manifests_deinit(&sim->manifests);
    tm_coordinator_destroy(sim->coordinator);
    tm_policy_decider_destroy(sim->policies[0]);
    tm_policy_decider_destroy(sim->policies[1]);
    tm_migrations_destroy(sim->migrations);
    if (sim->layouts.list != NULL) tm_layouts_deinit(&sim->layouts);
    for (size_t i = 1; i < sim->node_count; i++)
        tm_worker_destroy(sim->instances[i].worker);
    while (sim->heap_count > 0)
        tm_free(sim->heap[--sim->heap_count].data);
    tm_free(sim->heap);
    tm_action_queue_clear(&sim->queue);
    record_cut(sim, 0);
    tm_free(sim->record);
    files_deinit(sim);
    hostile_deinit(sim);
    tm_free(sim->oracle);
    tm_free(sim->held);
    tm_roster_deinit(&sim->last_roster);
}

void sim_run_until(struct sim *sim, int64_t until_ms)
{
    while (sim->heap_count > 0 && sim->failure[0] == '\0' && sim->heap[0].at_ms <= until_ms) {
        if (sim->finished && !sim->settles && sim->now_ms > sim->finished_ms + AFTERMATH_MS) return;
        struct event event = pop(sim);
        assert(event.at_ms >= sim->now_ms);
        sim->now_ms = event.at_ms;
        event.run(sim, &event);
        tm_free(event.data);
    }
    if (sim->failure[0] == '\0' && sim->now_ms < until_ms) sim->now_ms = until_ms;
}

/* All faults are over, and whatever was said last is heard. */
void sim_settle(struct sim *sim)
{
    struct event event = {.a = 0};
    if (sim->failure[0] != '\0' || !sim->finished) return;
    sim->settles = true;
    sim->faults.until_ms = sim->now_ms;
    faults_stop(sim, &event);
    sim_run_until(sim, sim->now_ms + SETTLE_MS);
}
