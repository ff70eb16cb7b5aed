/* From one generation to the next: decide, drain, fence, collect, resolve, assign, start. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/planted.h"

#include <string.h>

/* ---- deciding ---- */

static bool one_replica(struct tm_coordinator *c)
{
    return c->roster.pipelines == 1;
}

static void show_cloud(const struct tm_coordinator *c, int64_t now_ms, struct tm_run_cloud *out)
{
    *out =
        (struct tm_run_cloud){.known = c->cloud.heard,
                              .now_ms = c->cloud.now_ms,
                              .ago_ms = c->cloud.heard && now_ms > c->cloud.heard_ms ? now_ms - c->cloud.heard_ms : 0,
                              .speed = c->cloud.speed,
                              .spot_microusd_h = c->cloud.spot_microusd_h,
                              .spot_wait_ms = c->cloud.spot_wait_ms,
                              .on_demand_wait_ms = c->cloud.on_demand_wait_ms,
                              .on_demand_microusd_h = c->cloud.on_demand_microusd_h,
                              .spot_offered = c->cloud.heard ? c->cloud.spot_offered : -1,
                              .bill_microusd = tm_coord__spent(c),
                              .pools = c->cloud.pools,
                              .pool_count = c->cloud.pools_told ? c->options.pools : 0,
                              .instances = c->instances,
                              .instance_count = c->instance_count};
}

static int pool_of(const struct tm_coordinator *c, uint64_t id)
{
    const Tmw__Instance *instance = c->options.pools > 0 ? tm_coord__instance_of(c, id) : NULL;
    return instance != NULL ? (int)tm_coord__pool(c, instance) : -1;
}

/* Those that may train, and those that are about to go. */
static void show_workers(struct tm_coordinator *c, int64_t now_ms, bool reported_only, struct tm_run_worker *workers,
                         struct tm_run_view *view)
{
    bool runs = tm_coord__runs(c);
    for (size_t i = 0; i < c->known_count && view->worker_count < TM_MEMBERS_MAX; i++) {
        const struct known *k = &c->known[i];
        if (k->peer.role == TM_ROLE_WORKER && k->registered && tm_coord__noticed(c, k, now_ms)) {
            int64_t end_ms = k->noticed ? k->notice_end_ms : k->cloud_notice_end_ms;
            int64_t left_ms = end_ms > now_ms ? end_ms - now_ms : 0;
            if (view->leaving_count++ == 0 || left_ms < view->leaving_left_ms) view->leaving_left_ms = left_ms;
        }
        if (!tm_coord__usable(c, k, now_ms) || (reported_only && k->reported != c->generation)) continue;
        if (tm_coord__remote(c, k, now_ms)) continue;
        const struct tm_member *member = runs ? tm_roster_find(&c->roster, k->peer.id) : NULL;
        workers[view->worker_count++] = (struct tm_run_worker){.id = k->peer.id,
                                                               .pool = pool_of(c, k->peer.id),
                                                               .anchor = k->anchor,
                                                               .seated = member != NULL && !member->spare};
    }
    for (size_t i = 0; i < c->started.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->started.members[i]);
        bool usable = k != NULL && tm_coord__usable(c, k, now_ms);
        /* a spare that goes, such as one whose notice the generation began with, changes nothing */
        if (c->started.members[i].remote || (c->started.members[i].spare && !usable)) continue;
        view->last_workers++;
        view->last_here += usable;
        int pool = pool_of(c, c->started.members[i].id);
        if (pool < 0) continue;
        view->last_workers_of[pool]++;
        view->last_here_of[pool] += usable;
    }
}

static void decide(struct tm_coordinator *c, int64_t now_ms, bool reported_only, struct tm_run_decision *out,
                   struct tm_outbox *outbox)
{
    struct tm_run_worker workers[TM_MEMBERS_MAX];
    const struct copy_set *durable = tm_coord__newest_good(c);
    bool runs = tm_coord__runs(c);
    struct tm_run_view view = {.now_ms = now_ms,
                               .layers = c->options.layers,
                               .micro_batches = c->options.micro_batches,
                               .steps = c->options.steps,
                               .applied = c->applied,
                               .workers = workers,
                               .generation = c->generation,
                               .pipelines = runs ? c->roster.pipelines : 0,
                               .stages = runs ? c->roster.stages : 0,
                               .last_pipelines = c->started.pipelines,
                               .last_stages = c->started.stages,
                               .paused_ms = runs && c->pause.open ? now_ms - c->pause.since_ms : 0,
                               .only_one_replica = runs && one_replica(c),
                               .since_copy_ms = c->newest_set == 0 ? -1 : now_ms - c->copied_ms,
                               .copied_step = durable == NULL ? 0 : durable->step,
                               .copy_ms = durable == NULL ? 0 : durable->took_ms,
                               .step_ms = c->told_step_ms,
                               .uneven = tm_coord__uneven(c, now_ms),
                               .elapsed_ms = c->utc_ms - c->job_utc_ms,
                               .limits = c->steered.limits};
    show_cloud(c, now_ms, &view.cloud);
    show_workers(c, now_ms, reported_only, workers, &view);
    *out = (struct tm_run_decision){.pipelines = 0};
    struct tm_decision_ear ear = tm_coord__ear(c, outbox);
    if (c->decider.made != NULL) view.ear = &ear;
    c->decider.decide(c->decider.context, &view, out);
    tm_coord__decisions_tell(c, outbox);
    if (out->rents && out->pools != c->seated_pools) c->changed_ms = now_ms;
    if (out->rents) c->seated_pools = out->pools;
    size_t may_sit = 0;
    for (size_t i = 0; i < view.worker_count; i++)
        may_sit += tm_coord__may_sit(c, workers[i].id);
    if (out->stages > c->options.layers || out->pipelines > c->options.micro_batches ||
        (size_t)out->pipelines * out->stages > may_sit)
        out->pipelines = 0; /* more than there is: as good as no decision */
    tm_debug(TM_DEBUG_RUN,
             "coordinator: of %zu workers %u pipelines of %u stages, was %ux%u; wants %u spot, %u on-demand%s%s",
             view.worker_count, out->pipelines, out->stages, view.pipelines, view.stages, out->want_spot,
             out->want_on_demand, out->copy ? "; copies" : "", out->stop ? "; stops" : "");
    tm_coord__want(c, out);
}

static bool same_layout(const struct tm_coordinator *c, const struct tm_run_decision *decision)
{
    return c->roster.pipelines == decision->pipelines && c->roster.stages == decision->stages &&
           memcmp(c->roster.stage_first, decision->stage_first,
                  (decision->stages + 1) * sizeof *decision->stage_first) == 0;
}

/* After a restart, some members have not joined again yet: the fleet looks smaller than it is. */
static bool members_awaited(struct tm_coordinator *c)
{
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (!c->roster.members[i].spare && k != NULL && !k->registered) return true;
    }
    return false;
}

/* Why the running generation must change whatever the layout: a seat's holder is about to go. */
static enum tm_change_cause leaving(struct tm_coordinator *c, int64_t now_ms)
{
    enum tm_change_cause cause = TM_CHANGED_NONE;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (c->roster.members[i].spare || k == NULL || !k->registered) continue;
        bool moves = !tm_coord__may_sit(c, k->peer.id); /* the job, to where others are */
        if (tm_coord__usable(c, k, now_ms) && !moves) continue;
        bool given_back =
            (moves || tm_coord__releasing(c, tm_coord__place(c, k->peer.id))) && !tm_coord__noticed(c, k, now_ms);
        if (cause != TM_CHANGED_NOTICE) cause = given_back ? TM_CHANGED_RELEASE : TM_CHANGED_NOTICE;
    }
    return cause;
}

/* A remote that has come since the generation was made: nobody knows its address before the next. */
static bool remote_arrived(struct tm_coordinator *c, int64_t now_ms)
{
    for (size_t i = 0; c->options.copies > 0 && i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        if (!tm_coord__remote(c, k, now_ms)) continue;
        const struct tm_member *member = tm_roster_find(&c->roster, k->peer.id);
        if (member == NULL || member->incarnation != k->peer.incarnation) return true;
    }
    return false;
}

/* How long a change may be prepared: of a notice's time, a third is left for that. */
static int64_t follow_limit(const struct tm_coordinator *c, int64_t now_ms, enum tm_change_cause cause)
{
    int64_t limit_ms = c->options.follow_limit_ms;
    for (size_t i = 0; cause == TM_CHANGED_NOTICE && i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        if (k->peer.role != TM_ROLE_WORKER || !k->registered || !tm_coord__noticed(c, k, now_ms)) continue;
        int64_t end_ms = k->noticed ? k->notice_end_ms : k->cloud_notice_end_ms;
        int64_t begun_ms = c->follow.active ? c->follow.since_ms : now_ms;
        if ((end_ms - begun_ms) / 3 < limit_ms) limit_ms = (end_ms - begun_ms) / 3;
    }
    return limit_ms;
}

/* A running generation goes on unless the decision is another layout, or a seat's holder is about to go. */
void tm_coord__reconsider(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->phase != TM_COORDINATOR_RUNNING || members_awaited(c)) return;
    if (c->stop_wanted && c->applied < c->options.steps) {
        tm_coord__stop_begin(c, now_ms);
        return;
    }
    struct tm_run_decision decision;
    decide(c, now_ms, false, &decision, out);
    enum tm_change_cause cause = leaving(c, now_ms);
    if (decision.stop) tm_coordinator_stop(c, now_ms, decision.why, false, out);
    if (c->stuck) return; /* all train on as they are */
    bool too_few = decision.pipelines == 0;
    const struct copy_set *durable = tm_coord__newest_good(c);
    bool behind = durable == NULL || durable->step < c->applied;
    /* When those that stay are too few, what they train on from later must not go with those that leave. */
    bool at_risk =
        cause == TM_CHANGED_NOTICE || (cause == TM_CHANGED_RELEASE && tm_coord__draining(c, UINT32_MAX) == 0);
    bool copy = decision.copy || c->steered.copy || (behind && (c->copy_asked || (too_few && at_risk)));
    if (copy && c->copying.set == 0) {
        tm_coord__copy_begin(c, now_ms, out);
        if (c->steered.copy && c->copying.set == 0) tm_coord__steer_copy_failed(c, out);
    }
    c->copy_asked = false;
    if (c->applied >= c->options.steps || too_few || decision.stop) return;
    if (cause == TM_CHANGED_NONE) {
        bool remote = remote_arrived(c, now_ms);
        bool same = same_layout(c, &decision) && !remote && !decision.share;
        if (same) tm_coord__follow_end(c, out);
        if (same || now_ms - c->changed_ms < c->options.settle_ms) return;
        bool more = remote || (size_t)decision.pipelines * decision.stages > tm_roster_seated(&c->roster);
        cause = more ? TM_CHANGED_ARRIVAL : TM_CHANGED_POLICY;
    }
    if (!tm_coord__followed(c, now_ms, &decision, follow_limit(c, now_ms, cause), out)) return;
    if (cause == TM_CHANGED_POLICY && decision.share) tm_coord__shared_out(c, now_ms);
    tm_coord__enter(c, TM_COORDINATOR_DRAINING, now_ms);
    c->drain_step = c->applied + 1 < c->options.steps ? c->applied + 1 : c->options.steps;
    c->drain_cause = cause;
}

/* ---- draining: all members stop after one common step, so that nothing is redone ---- */

bool tm_coord__drained(struct tm_coordinator *c)
{
    bool all = true;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (c->roster.members[i].spare || k == NULL || k->generation != c->generation) continue;
        if (k->working_on > c->drain_step) c->drain_step = k->working_on; /* begun before it heard of the drain */
        if (k->applied > c->drain_step) c->drain_step = k->applied;
    }
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (c->roster.members[i].spare || k == NULL) continue;
        /* One that does not know of the drain yet may begin the next step in this moment. */
        all = all && k->applied == c->drain_step && k->working_on == 0 && k->drain_step == c->drain_step &&
              k->generation == c->generation;
    }
    return all;
}

void tm_coord__drain_check(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (tm_coord__stuck(c)) return;
    if (tm_coord__drained(c)) {
        if (!tm_coord__follow_last(c, now_ms)) return;
        tm_coord__fence(c, now_ms, c->drain_cause, "drained", out);
    } else if (now_ms - c->phase_ms > c->options.drain_limit_ms) {
        tm_coord__stalled(c, now_ms, out);
        tm_coord__fence(c, now_ms, TM_CHANGED_STALL, "stopping takes too long", out);
    }
}

/* ---- fencing and collecting ---- */

void tm_coord__send_fence(struct tm_coordinator *c, struct known *k, struct tm_outbox *out)
{
    Tmw__Fence body = TMW__FENCE__INIT;
    tm_message message = tm_coord__head(c, &k->peer);
    body.generation = c->generation;
    TM_BODY(message, FENCE, fence, &body);
    tm_outbox_send(out, &k->peer, &message);
}

void tm_coord__fence(struct tm_coordinator *c, int64_t now_ms, enum tm_change_cause cause, const char *why,
                     struct tm_outbox *out)
{
    if (tm_coord__stuck(c)) {
        c->fence_due = cause;
        c->fence_why = why;
        return;
    }
    tm_coord__copy_abandon(c, now_ms, out);
    c->fence_due = TM_CHANGED_NONE;
    c->generation++;
    c->drain_step = 0;
    if (c->change_cause == TM_CHANGED_NONE) c->change_cause = cause;
    tm_coord__record_fenced(c, cause, why, out);
    tm_coord__enter(c, TM_COORDINATOR_COLLECTING, now_ms);
    for (size_t i = 0; i < c->known_count; i++) {
        struct known *k = &c->known[i];
        k->reported = 0;
        k->ready = false;
        k->asked_ms = now_ms;
        if (k->peer.role == TM_ROLE_WORKER && k->registered) tm_coord__send_fence(c, k, out);
    }
}

static int take_copies(struct known *k, const Tmw__Report *report)
{
    struct copy_held *copies = tm_calloc(report->n_copies + 1, sizeof *copies);
    if (copies == NULL) return -(int)TM_ENOMEM;
    for (size_t i = 0; i < report->n_copies; i++) {
        const Tmw__CopyPart *part = report->copies[i];
        copies[i] = (struct copy_held){.set = part->set,
                                       .step = part->step,
                                       .layer = part->layer,
                                       .hash = {.low = part->hash_low, .high = part->hash_high},
                                       .holder = k->peer.id,
                                       .holder_incarnation = k->peer.incarnation};
    }
    if (!TM_PLANTED(memory_leak)) tm_free(k->copies);
    k->copies = copies;
    k->copy_count = report->n_copies;
    return 0;
}

static void take_layers(const struct tm_coordinator *c, Tmw__LayerState *const *states, size_t count,
                        struct layer_report *out)
{
    memset(out, 0, c->options.layers * sizeof *out);
    for (size_t i = 0; i < count; i++) {
        if (states[i]->layer >= c->options.layers) continue;
        out[states[i]->layer] = (struct layer_report){
            .have = true, .step = states[i]->step, .hash = {.low = states[i]->hash_low, .high = states[i]->hash_high}};
    }
}

void tm_coord__on_report(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__Report *report = message->report;
    struct known *k = tm_coord__find(c, TM_ROLE_WORKER, message->from_id);
    if (k == NULL || c->phase != TM_COORDINATOR_COLLECTING || report->generation != c->generation) return;
    if (take_copies(k, report) != 0) return; /* it will be asked again */
    take_layers(c, report->layers, report->n_layers, k->layers);
    take_layers(c, report->followed, report->n_followed, k->followed);
    for (size_t i = 0; i < k->copy_count; i++)
        if (k->copies[i].set > c->newest_set && k->copies[i].set < UINT64_MAX / 2) c->newest_set = k->copies[i].set;
    k->reported = c->generation;
    tm_coord__steps_heard(c, report->steps, report->n_steps, report->applied);
    k->report_applied = report->applied;
    k->report_held = report->held;
    k->report_working_on = report->working_on;
    k->report_assigned = report->assigned;
    k->norm = report->norm;
    k->norm_known = report->norm_known;
    k->progress_ms = now_ms;
    const struct tm_member *member = tm_roster_find(&c->started, k->peer.id);
    bool trained = member != NULL && !member->spare && member->incarnation == k->peer.incarnation &&
                   report->assigned == c->started.generation; /* else: its base in one that did not start */
    if (trained && report->applied > c->reached) c->reached = report->applied; /* since its last heartbeat */
    if (report->norm_known) tm_coord__commit_heard(c, now_ms, report->applied, report->applied_ago_ms);
    tm_coord__collect(c, now_ms, out);
}

/* The record was lost and no generation has started since: any worker that was ever spoken to may train in one that is
 * unknown here, and whoever was not heard at all may do so for the orphan time. */
static bool unknown_generation_stopped(struct tm_coordinator *c, int64_t now_ms)
{
    int64_t limit_ms = tm_coord__surely_ms(c->options.orphan_ms);
    if (now_ms - c->begun_ms <= limit_ms) return false;
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        bool fenced = k->registered && k->reported == c->generation;
        bool dead = k->peer.incarnation == 0;
        for (size_t p = 0; p < PAST_MAX; p++)
            dead = dead || k->past[p] == k->peer.incarnation;
        if (k->peer.role == TM_ROLE_WORKER && !fenced && !dead && now_ms - k->acked_ms <= limit_ms) return false;
    }
    return true;
}

/* May a generation start, as far as members of the last one are concerned? See coordinator.h. */
static bool last_generation_stopped(struct tm_coordinator *c, int64_t now_ms)
{
    bool all_gone = true;
    if (TM_PLANTED(no_wait_for_orphans)) return true;
    if (c->started.generation == 0 && c->generation >> 32 != 0) return unknown_generation_stopped(c, now_ms);
    for (size_t i = 0; i < c->started.member_count; i++) {
        const struct tm_member *member = &c->started.members[i];
        if (member->spare || c->started_dead[i]) continue;
        const struct known *k = tm_coord__member(c, member);
        if (k != NULL && k->registered && k->reported == c->generation) return true;
        int64_t last_word_ms = k != NULL && k->acked_ms > c->begun_ms ? k->acked_ms : c->begun_ms;
        int64_t limit_ms = tm_coord__surely_ms(c->options.orphan_ms);
        all_gone = all_gone && now_ms - last_word_ms > limit_ms;
    }
    return all_gone;
}

/* Is it of the last generation? There, each member has applied the step in doubt or holds it. */
static bool of_the_last(const struct tm_coordinator *c, const struct known *k)
{
    if (c->started.generation == 0) return true; /* the record was lost: it may be */
    const struct tm_member *member = tm_roster_find(&c->started, k->peer.id);
    return member != NULL && member->incarnation == k->peer.incarnation;
}

static bool has_reported(const struct tm_coordinator *c, const struct known *k)
{
    return k->peer.role == TM_ROLE_WORKER && k->reported == c->generation;
}

static bool only_holds(const struct tm_coordinator *c, const struct known *k, uint64_t step)
{
    return has_reported(c, k) && k->report_held == step && k->report_applied + 1 == step;
}

/* Can every layer be had at that step, once those who only hold it have applied it? */
static bool within_reach(struct tm_coordinator *c, uint64_t step, bool with_older)
{
    for (uint32_t l = 0; l < c->options.layers; l++) {
        struct layer_sources sources;
        bool found = tm_coord__sources(c, l, step, &sources);
        for (size_t i = 0; !found && i < c->known_count; i++) {
            const struct known *k = &c->known[i];
            found = only_holds(c, k, step) && (with_older || of_the_last(c, k)) && k->layers[l].have &&
                    k->layers[l].step + 1 == step;
        }
        if (!found) return false;
    }
    return true;
}

static void send_resolve(struct tm_coordinator *c, int64_t now_ms, struct known *k, double norm, struct tm_outbox *out)
{
    Tmw__Resolve body = TMW__RESOLVE__INIT;
    tm_message message = tm_coord__head(c, &k->peer);
    body.generation = c->generation;
    body.step = k->report_held;
    body.norm = norm;
    TM_BODY(message, RESOLVE, resolve, &body);
    tm_outbox_send(out, &k->peer, &message);
    k->reported = 0; /* until it says so */
    k->progress_ms = now_ms;
}

/* The reporter of the highest step below `below` that it is known to have applied; NULL: none. */
static const struct known *next_applied(const struct tm_coordinator *c, uint64_t below)
{
    const struct known *best = NULL;
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        if (!has_reported(c, k) || !k->norm_known || k->report_applied >= below) continue;
        if (best == NULL || k->report_applied > best->report_applied) best = k;
    }
    return best;
}

/* Orders those who only hold a step that another has applied to apply it, where that makes the step whole. One that
 * comes back from an older generation may hold it too, while others of its time do not: unless it is needed, it is left
 * as it is, so that what they have together stays whole until layers are moved to it. True: nobody is left to do so. */
static bool resolve_doubt(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    uint64_t step = UINT64_MAX;
    double norm = 0;
    bool with_older = false;
    bool resolved = true;
    do {
        const struct known *applied = next_applied(c, step);
        if (applied == NULL || TM_PLANTED(resolve_forgets)) return true;
        step = applied->report_applied;
        norm = applied->norm;
        with_older = !within_reach(c, step, false);
    } while (with_older && !within_reach(c, step, true));
    for (size_t i = 0; i < c->known_count; i++) {
        struct known *k = &c->known[i];
        if (!only_holds(c, k, step) || (!with_older && !of_the_last(c, k))) continue;
        send_resolve(c, now_ms, k, norm, out);
        resolved = false;
    }
    return resolved;
}

static bool report_awaited(const struct tm_coordinator *c, const struct known *k, int64_t now_ms)
{
    if (k->peer.role != TM_ROLE_WORKER || !k->registered || now_ms < k->quarantine_until_ms) return false;
    return k->reported != c->generation;
}

/* Every report asks: whoever was missing last is looked at first. */
static bool all_reported(struct tm_coordinator *c, int64_t now_ms)
{
    if (c->missing < c->known_count && report_awaited(c, &c->known[c->missing], now_ms)) return false;
    for (c->missing = 0; c->missing < c->known_count; c->missing++)
        if (report_awaited(c, &c->known[c->missing], now_ms)) return false;
    return true;
}

/* The newest durable step is not given up while those who hold it may come back. */
static bool durable_reachable(struct tm_coordinator *c, int64_t now_ms, uint64_t base, struct tm_outbox *out)
{
    const struct copy_set *durable = tm_coord__newest_good(c);
    if (durable == NULL || base >= durable->step || TM_PLANTED(durable_ignored)) return true;
    if (now_ms - c->phase_ms <= c->options.durable_wait_ms) return false;
    for (size_t i = 0; i < c->set_count; i++) {
        if (&c->sets[i] != durable) continue;
        bool in_files = false;
        for (size_t p = 0; p < durable->part_count; p++)
            in_files = in_files || durable->parts[p].holder == 0;
        if (in_files) return false; /* files do not go away */
        c->sets[i].bad = true;
        tm_coord__record_bad(c, durable->set, out);
        tm_coord__note(c, "copy set lost with its holders", 0, durable->set, out);
    }
    return tm_coord__newest_good(c) == NULL || base >= tm_coord__newest_good(c)->step;
}

/* The highest step that is known to have been applied: by heartbeats, or by reports of those who trained last. */
static uint64_t known_progress(const struct tm_coordinator *c)
{
    uint64_t applied = c->applied;
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        if (has_reported(c, k) && of_the_last(c, k) && k->report_applied > applied) applied = k->report_applied;
    }
    return applied;
}

/* Progress is not given up while a member may only be silent: it stood still, or a link was cut for a while, and it has
 * the layers that are missing. One that is known to be dead is not waited for; any other for the orphan time, in which
 * it trusts in our coming back as we do in its. */
static bool progress_reachable(struct tm_coordinator *c, int64_t now_ms, uint64_t base)
{
    if (base >= known_progress(c) || TM_PLANTED(silent_forgotten)) return true;
    if (TM_PLANTED(no_wait_for_orphans) || TM_PLANTED(clock_margin)) return true; /* this longer wait would hide them */
    for (size_t i = 0; i < c->started.member_count; i++) {
        const struct tm_member *member = &c->started.members[i];
        const struct known *k = tm_coord__member(c, member);
        if (member->spare || c->started_dead[i] || (k != NULL && has_reported(c, k))) continue;
        int64_t until_ms = k != NULL ? k->silent_until_ms : 0; /* not heard since we began */
        if (until_ms == 0) until_ms = c->begun_ms + tm_coord__surely_ms(c->options.orphan_ms);
        if (now_ms <= until_ms) return false;
    }
    return true;
}

void tm_coord__collect(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->phase != TM_COORDINATOR_COLLECTING || tm_coord__stuck(c)) return;
    c->waiting = "reports of all workers";
    if (!all_reported(c, now_ms)) return;
    tm_coord__adopt_sets(c, out);
    c->waiting = "the step in doubt";
    if (!resolve_doubt(c, now_ms, out)) return;
    c->waiting = "members of the last generation, which may still be training";
    if (!last_generation_stopped(c, now_ms)) return;
    struct tm_run_decision decision;
    decide(c, now_ms, true, &decision, out);
    if (decision.stop) tm_coordinator_stop(c, now_ms, decision.why, false, out);
    c->waiting = "more workers";
    c->starved = true;
    if (decision.pipelines == 0) return;
    uint64_t base = tm_coord__best_base(c);
    c->waiting = "holders of the newest copy set";
    if (!durable_reachable(c, now_ms, base, out)) return;
    c->waiting = "silent members, which may hold newer steps";
    if (!progress_reachable(c, now_ms, base)) return;
    c->starved = false;
    if (tm_coord__seat(c, now_ms, &decision, base) != 0) return; /* memory: tried again at the next tick */
    c->base = base;
    c->predicted_step_ms = decision.predicted_step_ms;
    tm_coord__enter(c, TM_COORDINATOR_ASSIGNED, now_ms);
    for (size_t i = 0; i < c->roster.member_count; i++) {
        struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (k != NULL) k->asked_ms = now_ms; /* once is enough for now */
        tm_coord__send_assign(c, &c->roster.members[i], out);
    }
}

/* ---- starting ---- */

void tm_coord__on_ready(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    struct known *k = tm_coord__find(c, TM_ROLE_WORKER, message->from_id);
    if (k == NULL || message->ready->generation != c->generation) return;
    k->ready = true;
    k->progress_ms = now_ms;
    tm_coord__start_check(c, now_ms, out);
}

static void send_start(struct tm_coordinator *c, const struct tm_member *member, struct tm_outbox *out)
{
    struct tm_peer to = {.role = TM_ROLE_WORKER, .id = member->id, .incarnation = member->incarnation};
    Tmw__Start body = TMW__START__INIT;
    tm_message message = tm_coord__head(c, &to);
    body.generation = c->generation;
    TM_BODY(message, START, start, &body);
    tm_outbox_send(out, &to, &message);
}

/* Steps that were under way, by the reports, and are neither part of the base nor rolled back: they are done again. */
static uint64_t thrown_away(struct tm_coordinator *c)
{
    uint64_t counted = c->reached > c->base ? c->reached : c->base;
    for (size_t i = 0; i < c->started.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->started.members[i]);
        if (k != NULL && k->reported == c->generation && k->report_working_on > counted) return 1;
    }
    return 0;
}

void tm_coord__start_check(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->phase != TM_COORDINATOR_ASSIGNED || tm_coord__stuck(c)) return;
    c->waiting = "members to fetch their layers";
    for (; c->ready_count < c->roster.member_count; c->ready_count++) { /* who is ready stays so until a fence */
        const struct known *k = tm_coord__member(c, &c->roster.members[c->ready_count]);
        if (!c->roster.members[c->ready_count].spare && (k == NULL || !k->ready)) return;
    }
    uint64_t redone = thrown_away(c);
    bool *dead = tm_calloc(c->roster.member_count + 1, sizeof *dead);
    if (dead == NULL || tm_roster_copy(&c->started, &c->roster, NULL) != 0) {
        tm_free(dead);
        return;
    }
    tm_free(c->started_dead);
    c->started_dead = dead;
    tm_coord__assignment_end(c);
    uint64_t rolled_back = c->reached > c->base ? c->reached - c->base : 0;
    c->reached = c->base;
    c->rolled_back += rolled_back;
    c->redone += redone;
    c->applied = c->base;
    c->applied_ms = now_ms;
    tm_coord__steps_tell_all(c, c->base, out); /* whoever is left has told all that it knows */
    tm_coord__losses_forget(c, c->base);
    c->generations_started++;
    c->files_failed = 0;
    c->last_step_ms = 0;
    c->resumed = false;
    tm_coord__enter(c, TM_COORDINATOR_RUNNING, now_ms);
    tm_coord__follow_forget(c);
    tm_coord__observe_start(c, now_ms);
    tm_coord__pause_begin(c);
    tm_coord__record_started(c, rolled_back, redone, out);
    for (size_t i = 0; i < c->bad_count;) { /* what was said of live state is past */
        if (c->bad[i].set == 0)
            c->bad[i] = c->bad[--c->bad_count];
        else
            i++;
    }
    for (size_t i = 0; i < c->known_count; i++)
        c->known[i].silent_until_ms = 0;
    for (size_t i = 0; i < c->roster.member_count; i++)
        send_start(c, &c->roster.members[i], out);
}

void tm_coord__on_fetch_failed(struct tm_coordinator *c, int64_t now_ms, const tm_message *message,
                               struct tm_outbox *out)
{
    const Tmw__FetchFailed *body = message->fetch_failed;
    if (c->phase != TM_COORDINATOR_ASSIGNED || body->generation != c->generation) return;
    if (body->layer >= c->options.layers || tm_coord__is_bad(c, body->set, body->layer, body->source, c->base)) return;
    if (tm_grow((void **)&c->bad, &c->bad_capacity, c->bad_count + 1, sizeof *c->bad, BAD_MAX) != 0) c->bad_count = 0;
    if (c->bad_capacity == 0) return;
    c->bad[c->bad_count++] =
        (struct bad_part){.set = body->set, .layer = body->layer, .source = body->source, .step = c->base};
    tm_coord__note(c, "a copy is damaged", body->source, body->set, out);
    tm_coord__fence(c, now_ms, TM_CHANGED_DAMAGE, "a source is damaged", out);
}

/* ---- what may have been lost on its way is said again ---- */

void tm_coord__resend(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    for (size_t i = 0; i < c->known_count; i++) {
        struct known *k = &c->known[i];
        if (k->peer.role != TM_ROLE_WORKER || !k->registered) continue;
        if (now_ms - k->asked_ms < c->options.resend_ms) continue;
        k->asked_ms = now_ms;
        const struct tm_member *member = tm_roster_find(&c->roster, k->peer.id);
        if (c->phase == TM_COORDINATOR_COLLECTING && k->reported != c->generation) tm_coord__send_fence(c, k, out);
        if (member == NULL || member->incarnation != k->peer.incarnation) continue;
        if (c->phase == TM_COORDINATOR_ASSIGNED && !k->ready) tm_coord__send_assign(c, member, out);
        bool runs = tm_coord__runs(c);
        bool unstarted = k->generation == c->generation && k->phase == TM_WORKER_READY;
        if (runs && unstarted) send_start(c, member, out);
        /* Nobody waits for spares to get ready; they may have missed it. */
        if (runs && member->spare && k->phase <= TM_WORKER_FETCHING) tm_coord__send_assign(c, member, out);
    }
}

/* ---- the end ---- */

void tm_coord__finish_check(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->phase != TM_COORDINATOR_RUNNING || c->applied < c->options.steps) return;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (!c->roster.members[i].spare && (k == NULL || k->applied < c->options.steps)) return;
    }
    const struct copy_set *durable = tm_coord__newest_good(c);
    bool copies_wanted = c->options.copies > 0 || c->options.copies_to_files;
    bool in_memory = durable != NULL && durable->step == c->options.steps;
    bool in_files = !c->options.copies_to_files || tm_coord__filed_step(c) == c->options.steps;
    if (TM_PLANTED(finish_early)) copies_wanted = false;
    if (tm_coord__stuck(c)) {
        tm_coord__last_set_limit(c, now_ms, out);
        return;
    }
    if (copies_wanted && !(in_memory && in_files)) { /* workers' memory goes with them: files are what is left */
        if (c->copying.set == 0) tm_coord__copy_at(c, now_ms, c->options.steps, in_memory, out);
        /* The last step is made durable first. Only what is to be in memory may have no place. */
        if (c->copying.set != 0 || !in_files) return;
    }
    tm_coord__copy_abandon(c, now_ms, out); /* a set of the last step is whole, and another of it had been begun */
    tm_coord__enter(c, TM_COORDINATOR_FINISHED, now_ms);
    tm_coord__steps_tell_all(c, c->applied, out);
    tm_coord__progress_tell(c, now_ms, true, out);
    tm_coord__record_finished(c, out);
    for (size_t i = 0; i < c->known_count; i++)
        if (c->known[i].peer.role == TM_ROLE_WORKER && c->known[i].registered)
            tm_coord__stop_worker(c, &c->known[i], out);
    tm_outbox_add(out, TM_COORDINATOR_DONE, NULL, 0, 0, 0);
}
