/* Making a coordinator, and which part gets which event. The header tells the story. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <string.h>

static const char *const phase_names[] = {"rebuilding", "collecting", "assigned", "running", "draining",
                                          "stopping",   "stopped",    "finished", "failed"};

const char *tm_coordinator_phase_name(enum tm_coordinator_phase phase)
{
    return phase_names[phase];
}

struct tm_coordinator *tm_coordinator_create(const struct tm_coordinator_options *options,
                                             const struct tm_decider *decider)
{
    struct tm_coordinator *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    c->options = *options;
    c->decider = *decider;
    c->self = (struct tm_peer){.role = TM_ROLE_COORDINATOR, .incarnation = options->incarnation};
    c->random = tm_random_make(options->random_seed, options->incarnation);
    c->waiting = "";
    tm_fingerprint_add_lines(&c->fingerprint, options->fingerprint);
    c->phase = TM_COORDINATOR_COLLECTING;
    return c;
}

void tm_coordinator_destroy(struct tm_coordinator *c)
{
    if (c == NULL) return;
    for (size_t i = 0; i < c->known_count; i++) {
        tm_free(c->known[i].layers);
        tm_free(c->known[i].followed);
        tm_free(c->known[i].copies);
    }
    tm_free(c->known);
    tm_coord__sets_deinit(c);
    tm_coord__follow_forget(c);
    tm_roster_deinit(&c->roster);
    tm_roster_deinit(&c->started);
    tm_roster_deinit(&c->before);
    tm_coord__assignment_end(c);
    tm_free(c->started_dead);
    tm_free(c->bad);
    tm_free(c->instances);
    tm_free(c->decisions.observed);
    tm_step_list_clear(&c->steps_told);
    tm_free(c);
}

tm_message tm_coord__head(const struct tm_coordinator *c, const struct tm_peer *to)
{
    return tm_message_make(c->options.job, &c->self, to);
}

/* Where in the index the search for it begins. */
static size_t index_of(enum tm_role role, uint64_t id)
{
    uint64_t mixed = (id * 8 + (uint64_t)role) * 0x9E3779B97F4A7C15U;
    return (size_t)(mixed >> 40) % INDEX_SIZE;
}

static void index_add(struct tm_coordinator *c, size_t place)
{
    size_t at = index_of(c->known[place].peer.role, c->known[place].peer.id);
    while (c->index[at] != 0)
        at = (at + 1) % INDEX_SIZE;
    c->index[at] = (uint16_t)(place + 1);
}

struct known *tm_coord__find(struct tm_coordinator *c, enum tm_role role, uint64_t id)
{
    for (size_t at = index_of(role, id); c->index[at] != 0; at = (at + 1) % INDEX_SIZE) {
        struct known *k = &c->known[c->index[at] - 1];
        if (k->peer.role == role && k->peer.id == id) return k;
    }
    return NULL;
}

struct known *tm_coord__member(struct tm_coordinator *c, const struct tm_member *member)
{
    struct known *k = tm_coord__find(c, TM_ROLE_WORKER, member->id);
    return k != NULL && k->peer.incarnation == member->incarnation ? k : NULL;
}

/* One that went long ago makes room for the next. */
static struct known *reuse(struct tm_coordinator *c)
{
    struct known *oldest = NULL;
    for (size_t i = 0; i < c->known_count; i++) {
        struct known *k = &c->known[i];
        if (k->registered || tm_roster_find(&c->roster, k->peer.id) != NULL) continue;
        if (tm_roster_find(&c->started, k->peer.id) != NULL) continue; /* it may train: our last word to it counts */
        if (oldest != NULL && (k->told_here != 0) > (oldest->told_here != 0)) continue;
        if (oldest == NULL || (k->told_here == 0 && oldest->told_here != 0) || k->heard_ms < oldest->heard_ms)
            oldest = k;
    }
    return oldest;
}

struct known *tm_coord__add(struct tm_coordinator *c, enum tm_role role, uint64_t id)
{
    struct known *k = NULL;
    if (c->known_count == KNOWN_MAX) {
        k = reuse(c);
        if (k == NULL) return NULL;
    } else {
        if (tm_grow((void **)&c->known, &c->known_capacity, c->known_count + 1, sizeof *c->known, KNOWN_MAX) != 0)
            return NULL;
        k = &c->known[c->known_count++];
        *k = (struct known){.registered = false};
    }
    struct layer_report *layers = k->layers;
    struct layer_report *followed = k->followed;
    struct copy_held *copies = k->copies;
    *k = (struct known){.peer = {.role = role, .id = id},
                        .round = c->rounds,
                        .round_before = c->rounds,
                        .layers = layers,
                        .followed = followed,
                        .copies = copies};
    if (k->layers == NULL) k->layers = tm_calloc(c->options.layers, sizeof *k->layers);
    if (k->followed == NULL) k->followed = tm_calloc(c->options.layers, sizeof *k->followed);
    bool whole = k->layers != NULL && k->followed != NULL;
    if (!whole) k->peer = (struct tm_peer){.role = TM_ROLE_NONE};
    if (c->known_count == KNOWN_MAX) { /* it may have had another's place */
        memset(c->index, 0, sizeof c->index);
        for (size_t i = 0; i < c->known_count; i++)
            if (c->known[i].peer.role != TM_ROLE_NONE) index_add(c, i);
    } else if (whole) {
        index_add(c, (size_t)(k - c->known));
    }
    return whole ? k : NULL;
}

bool tm_coord__noticed(const struct tm_coordinator *c, const struct known *k, int64_t now_ms)
{
    /* A notice whose time is long past was a false alarm. */
    int64_t late_ms = c->options.false_alarm_ms;
    return (k->noticed && now_ms < k->notice_end_ms + late_ms) ||
           (k->cloud_noticed && now_ms < k->cloud_notice_end_ms + late_ms);
}

/* May it get a seat in the next generation? */
bool tm_coord__usable(const struct tm_coordinator *c, const struct known *k, int64_t now_ms)
{
    return k->peer.role == TM_ROLE_WORKER && k->registered && now_ms >= k->quarantine_until_ms &&
           !tm_coord__noticed(c, k, now_ms) && !tm_coord__releasing(c, tm_coord__place(c, k->peer.id));
}

static bool seated(const struct tm_coordinator *c, const struct known *k)
{
    const struct tm_member *member = tm_roster_find(&c->roster, k->peer.id);
    return member != NULL && !member->spare && member->incarnation == k->peer.incarnation;
}

static bool is_keeper(const struct tm_coordinator *c, const struct known *k)
{
    const Tmw__Instance *instance = c->options.keeper_pools != 0 ? tm_coord__instance_of(c, k->peer.id) : NULL;
    return instance != NULL && (c->options.keeper_pools >> tm_coord__pool(c, instance) & 1) != 0;
}

/* Those of pools for it; else of the anchors that are here, those without a seat first, then the oldest: who is one
 * stays one. */
bool tm_coord__remote(const struct tm_coordinator *c, const struct known *k, int64_t now_ms)
{
    if (is_keeper(c, k)) return tm_coord__usable(c, k, now_ms);
    if (c->options.remotes == 0 || !k->anchor || !tm_coord__usable(c, k, now_ms)) return false;
    bool has_seat = seated(c, k);
    uint32_t before = 0;
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *other = &c->known[i];
        if (other == k || !other->anchor || !tm_coord__usable(c, other, now_ms)) continue;
        before += seated(c, other) != has_seat ? has_seat : other->peer.id < k->peer.id;
    }
    return before < c->options.remotes;
}

bool tm_coord__runs(const struct tm_coordinator *c)
{
    return c->phase == TM_COORDINATOR_RUNNING || c->phase == TM_COORDINATOR_DRAINING ||
           c->phase == TM_COORDINATOR_STOPPING;
}

/* ---- events ---- */

/* The record ends in a running generation: its members are given the time of a lease to say that they are there. */
static void expect_members(struct tm_coordinator *c, int64_t now_ms)
{
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct tm_member *member = &c->roster.members[i];
        struct known *k = tm_coord__find(c, TM_ROLE_WORKER, member->id);
        if (k == NULL) k = tm_coord__add(c, TM_ROLE_WORKER, member->id);
        if (k == NULL) continue;
        k->peer.incarnation = member->incarnation;
        k->heard_ms = now_ms + c->options.lease_ms;
        k->acked_ms = now_ms;
        memcpy(k->address, member->address, sizeof k->address);
        memcpy(k->endpoint, member->endpoint, sizeof k->endpoint);
    }
}

/* Members of instances that the record has seen go are dead: nobody has to wait for them. */
static void recall_the_dead(struct tm_coordinator *c)
{
    for (size_t i = 0; i < c->started.member_count; i++) {
        const Tmw__Instance *instance = tm_coord__instance_of(c, c->started.members[i].id);
        if (instance != NULL && instance->end_ms != 0) c->started_dead[i] = true;
    }
}

/* In the phase that the record says. */
static void begin(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->loaded_finished || c->failure[0] != '\0') {
        tm_coord__enter(c, c->loaded_finished ? TM_COORDINATOR_FINISHED : TM_COORDINATOR_FAILED, now_ms);
        tm_outbox_add(out, TM_COORDINATOR_DONE, NULL, 0, 0, 0);
    } else if (tm_coord__stays_stopped(c, now_ms, out)) {
        return;
    } else if (c->loaded_started) {
        expect_members(c, now_ms);
        tm_coord__observe_start(c, now_ms);
        tm_coord__enter(c, TM_COORDINATOR_RUNNING, now_ms);
        tm_coord__tell_restart(c, false, out);
    } else if (c->loaded || c->options.fresh) {
        if (c->loaded) tm_coord__tell_restart(c, false, out);
        tm_coord__fence(c, now_ms, TM_CHANGED_BEGIN, "the coordinator starts", out);
    } else {
        tm_coord__enter(c, TM_COORDINATOR_REBUILDING, now_ms);
        c->waiting = "the orphan time to pass: the record is lost, and workers not heard from may still be training";
    }
}

void tm_coordinator_begin(struct tm_coordinator *c, int64_t now_ms, int64_t utc_ms, struct tm_outbox *out)
{
    struct tm_error e;
    if (c->decider.begin != NULL && c->decider.begin(c->decider.context, &e) != 0) {
        tm_outbox_fail(out, -(int)TM_ENOMEM);
        return;
    }
    recall_the_dead(c);
    c->utc_ms = utc_ms;
    if (!c->job_utc_known) c->job_utc_ms = utc_ms;
    c->job_utc_known = true;
    c->begun_ms = now_ms;
    c->applied_ms = now_ms;
    c->changed_ms = now_ms;
    c->copied_ms = now_ms;
    c->failed_ms = now_ms;
    c->progress_ms = now_ms;
    for (size_t i = 0; i < c->known_count; i++) /* whom events say to be here gets the time to say so */
        c->known[i].heard_ms = now_ms + c->options.lease_ms;
    if (c->options.retry) tm_coord__try_again(c, out);
    begin(c, now_ms, out);
    c->entered = true; /* also where its first fence has to wait for the record: it collects what others have fenced */
    tm_coord__check(c, now_ms);
}

bool tm_coordinator_rebuilds(const struct tm_coordinator *c)
{
    return !c->loaded && !c->options.fresh;
}

static uint64_t next_epoch(const struct tm_coordinator *c)
{
    uint64_t epoch = (c->highest_seen >> 32) + 1;
    uint64_t now_s = (uint64_t)(c->utc_ms > 0 ? c->utc_ms : 0) / 1000;
    return (epoch > now_s ? epoch : now_s) << 32;
}

/* Someone obeys a higher number than ours: it comes from a record that was lost. */
void tm_coord__outnumbered(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (tm_coord__stuck(c)) return;
    c->generation = next_epoch(c);
    tm_coord__fence(c, now_ms, TM_CHANGED_BEGIN, "a worker knows of a later generation", out);
}

static void end_rebuilding(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (now_ms - c->begun_ms <= tm_coord__surely_ms(c->options.orphan_ms) || tm_coord__stuck(c)) return;
    for (size_t i = 0; i < c->set_count; i++)
        tm_coord__record_set(c, &c->sets[i], out); /* known from manifests so far */
    c->generation = next_epoch(c);
    c->newest_set += TM_PLANTED(set_renamed) ? 0 : SETS_UNHEARD;
    tm_coord__tell_restart(c, true, out);
    tm_coord__fence(c, now_ms, TM_CHANGED_BEGIN, "record rebuilt from the workers' reports", out);
}

void tm_coordinator__utc(struct tm_coordinator *c, int64_t utc_ms)
{
    c->utc_ms = utc_ms;
}

void tm_coordinator_tick(struct tm_coordinator *c, int64_t now_ms, int64_t utc_ms, struct tm_outbox *out)
{
    c->utc_ms = utc_ms;
    tm_coord__fence_late(c, now_ms, out);
    tm_coord__watch(c, now_ms, out);
    tm_coord__stop_limit(c, now_ms, out);
    switch (c->phase) {
    case TM_COORDINATOR_REBUILDING:
        end_rebuilding(c, now_ms, out);
        break;
    case TM_COORDINATOR_COLLECTING:
        tm_coord__collect(c, now_ms, out);
        break;
    case TM_COORDINATOR_ASSIGNED:
        tm_coord__start_check(c, now_ms, out);
        break;
    case TM_COORDINATOR_RUNNING:
        tm_coord__reconsider(c, now_ms, out);
        tm_coord__finish_check(c, now_ms, out);
        break;
    case TM_COORDINATOR_DRAINING:
        tm_coord__drain_check(c, now_ms, out);
        break;
    case TM_COORDINATOR_STOPPING:
        tm_coord__stop_check(c, now_ms, out);
        break;
    case TM_COORDINATOR_STOPPED:
    case TM_COORDINATOR_FINISHED:
    case TM_COORDINATOR_FAILED:
        break;
    }
    tm_coord__release_pump(c, now_ms, out);
    tm_coord__tell_state(c, out);
    tm_coord__tell_rent(c, out);
    tm_coord__observe_tell(c, now_ms, out);
    tm_coord__steps_tell(c, now_ms, out);
    tm_coord__progress_tell(c, now_ms, false, out);
    tm_coord__copy_pump(c, now_ms, out);
    tm_coord__resend(c, now_ms, out);
    tm_coord__check(c, now_ms);
}

static bool known_sender(struct tm_coordinator *c, const tm_message *message)
{
    struct known *k = tm_coord__find(c, (enum tm_role)message->from_role, message->from_id);
    return k != NULL && k->registered && k->peer.incarnation == message->from_incarnation;
}

static void receive(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    struct tm_peer from = tm_message_sender(message);
    if (message->job != c->options.job || from.id == 0 || from.incarnation == 0) return;
    if (from.role == TM_ROLE_COORDINATOR) return;
    if (message->body_case == TMW__ENVELOPE__BODY_HELLO) {
        tm_coord__on_hello(c, now_ms, message, out);
        return;
    }
    bool for_us = message->to_incarnation == 0 || message->to_incarnation == c->self.incarnation;
    if (!for_us || !known_sender(c, message)) { /* it speaks to the coordinator before us, or we gave it up */
        tm_coord__challenge(c, &from, out);
        return;
    }
    switch (message->body_case) {
    case TMW__ENVELOPE__BODY_HEARTBEAT:
        tm_coord__on_heartbeat(c, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_REPORT:
        tm_coord__on_report(c, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_READY:
        tm_coord__on_ready(c, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_FETCH_FAILED:
        tm_coord__on_fetch_failed(c, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_AGENT_HEARTBEAT:
        tm_coord__on_agent(c, now_ms, message, out);
        break;
    case TMW__ENVELOPE__BODY_CLOUD_REPORT:
        tm_coord__on_cloud(c, now_ms, message, out);
        break;
    default:
        break;
    }
}

void tm_coordinator_receive(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    receive(c, now_ms, message, out);
    tm_coord__check(c, now_ms);
}

void tm_coordinator_disconnected(struct tm_coordinator *c, int64_t now_ms, const struct tm_peer *peer,
                                 struct tm_outbox *out)
{
    struct known *k = tm_coord__find(c, peer->role, peer->id);
    if (k == NULL || !k->registered || k->peer.incarnation != peer->incarnation || tm_coord__ended(c)) return;
    struct known *agent = tm_coord__find(c, TM_ROLE_AGENT, peer->id);
    struct known *worker = tm_coord__find(c, TM_ROLE_WORKER, peer->id);
    if (peer->role == TM_ROLE_WORKER && agent != NULL && agent->registered) {
        k->cut_ms = now_ms;
        return;
    }
    tm_coord__closed(c, now_ms, k, out);
    if (peer->role == TM_ROLE_AGENT && worker != NULL && worker->registered && worker->cut_ms != 0)
        tm_coord__closed(c, now_ms, worker, out);
    tm_coord__check(c, now_ms);
}

void tm_coordinator_dead(struct tm_coordinator *c, int64_t now_ms, const struct tm_peer *peer, struct tm_outbox *out)
{
    struct known *k = tm_coord__find(c, peer->role, peer->id);
    if (peer->role == TM_ROLE_WORKER) tm_coord__process_dead(c, peer->id, peer->incarnation);
    if (k != NULL && k->peer.incarnation == peer->incarnation) tm_coord__lost(c, now_ms, k, true, out);
    tm_coord__check(c, now_ms);
}

/* ---- views ---- */

struct tm_coordinator_view tm_coordinator_look(const struct tm_coordinator *coordinator)
{
    union { /* nothing is changed: the helpers are shared with code that does change */
        const struct tm_coordinator *given;
        struct tm_coordinator *taken;
    } c = {coordinator};
    const struct copy_set *durable = tm_coord__newest_good(c.taken);
    struct tm_coordinator_view view = {.phase = coordinator->phase,
                                       .generation = coordinator->generation,
                                       .base = coordinator->base,
                                       .roster = &coordinator->roster,
                                       .applied = coordinator->applied,
                                       .steps_rolled_back = coordinator->rolled_back,
                                       .steps_redone = coordinator->redone,
                                       .generations_started = coordinator->generations_started,
                                       .waiting = coordinator->waiting,
                                       .gave_up = coordinator->gave_up,
                                       .losses = coordinator->losses,
                                       .loss_count = coordinator->loss_count,
                                       .step_ms = coordinator->told_step_ms,
                                       .failure = coordinator->failure,
                                       .kernel_class = coordinator->kernel_class,
                                       .state = tm_coord__state(coordinator),
                                       .stopped_step = coordinator->stopped_step,
                                       .want_spot = coordinator->want_spot,
                                       .want_on_demand = coordinator->want_on_demand,
                                       .pools = coordinator->cloud.pools,
                                       .want = coordinator->want,
                                       .pool_count = coordinator->options.pools,
                                       .spot_microusd_h = coordinator->cloud.spot_microusd_h,
                                       .on_demand_microusd_h = coordinator->cloud.on_demand_microusd_h,
                                       .bill_microusd = tm_coord__bill(coordinator, false),
                                       .on_demand_bill_microusd = tm_coord__bill(coordinator, true),
                                       .instances = coordinator->instances,
                                       .instance_count = coordinator->instance_count};
    view.trouble = tm_coord__trouble(coordinator, &view.trouble_full);
    if (durable != NULL) {
        view.durable_step = durable->step;
        view.durable_set = durable->set;
    }
    for (size_t i = 0; i < coordinator->known_count; i++) {
        const struct known *k = &coordinator->known[i];
        view.leases += k->registered;
        view.workers += k->registered && k->peer.role == TM_ROLE_WORKER;
        view.agents_untold += k->registered && k->peer.role == TM_ROLE_AGENT && !k->told_end;
    }
    return view;
}
