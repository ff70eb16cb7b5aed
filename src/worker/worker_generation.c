/* From one generation to the next: fence, report, resolve, assign, start. */
#include "worker/worker_internal.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/planted.h"

#include <assert.h>
#include <string.h>

/* ---- reporting ---- */

static bool report_layers(struct tm_worker *w, struct tm_arena *arena, Tmw__Report *body)
{
    Tmw__LayerState *states = tm_arena_alloc(arena, (w->layer_count + 1) * sizeof *states);
    body->layers = tm_arena_alloc(arena, (w->layer_count + 1) * sizeof(Tmw__LayerState *));
    if (states == NULL || body->layers == NULL) return false;
    for (uint32_t l = 0; l < w->layer_count; l++) {
        if (!w->layers[l].have) continue;
        uint64_t size;
        if (!w->layers[l].hashed && tm_worker__layer_bytes(w, l, &size) == NULL) return false;
        Tmw__LayerState *state = &states[body->n_layers];
        tmw__layer_state__init(state);
        state->layer = l;
        state->step = w->layers[l].step;
        state->hash_low = w->layers[l].hash.low;
        state->hash_high = w->layers[l].hash.high;
        body->layers[body->n_layers++] = state;
    }
    return true;
}

static bool report_copies(const struct tm_worker *w, struct tm_arena *arena, Tmw__Report *body)
{
    Tmw__CopyPart *parts = tm_arena_alloc(arena, (w->copies.count + 1) * sizeof *parts);
    body->copies = tm_arena_alloc(arena, (w->copies.count + 1) * sizeof(Tmw__CopyPart *));
    if (parts == NULL || body->copies == NULL) return false;
    for (size_t i = 0; i < w->copies.count && body->n_copies < TM_MESSAGE_LIST_MAX; i++) {
        const struct tm_copy_part *part = &w->copies.parts[i];
        if (!part->complete) continue;
        Tmw__CopyPart *to = &parts[body->n_copies];
        tmw__copy_part__init(to);
        to->set = part->name.set;
        to->step = part->name.step;
        to->layer = part->name.layer;
        to->hash_low = part->name.hash.low;
        to->hash_high = part->name.hash.high;
        to->holder = w->self.id;
        body->copies[body->n_copies++] = to;
    }
    return true;
}

void tm_worker__report(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    if (w->applying != 0) { /* the answer waits until the state stands still */
        w->report_due = true;
        return;
    }
    assert(w->phase == TM_WORKER_FENCED || TM_PLANTED(fence_ignored));
    Tmw__Report body = TMW__REPORT__INIT;
    tm_message message = tm_worker__head(w, &w->coordinator);
    struct tm_arena arena;
    tm_arena_init(&arena, 64 << 20);
    body.generation = w->generation;
    body.applied = w->applied;
    body.held = w->held;
    body.norm = w->applied_norm;
    body.norm_known = w->applied_norm_known;
    body.working_on = w->fenced_step;
    body.applied_ago_ms = tm_worker__applied_ago_ms(w, now_ms);
    body.assigned = w->roster.generation;
    body.n_followed = tm_worker__report_followed(w, &arena, &body.followed);
    if (w->log_steps) body.n_steps = tm_worker__list_steps(w, true, &arena, &body.steps);
    if (report_layers(w, &arena, &body) && report_copies(w, &arena, &body)) {
        TM_BODY(message, REPORT, report, &body);
        tm_outbox_send(out, &w->coordinator, &message);
    }
    tm_arena_deinit(&arena);
    w->report_due = false;
}

/* ---- fencing ---- */

void tm_worker__fence(struct tm_worker *w, uint64_t generation)
{
    if (generation <= w->generation) return;
    if (TM_PLANTED(fence_ignored) && w->phase == TM_WORKER_RUNNING && w->self.id % 2 == 0) return;
    if (w->computing) w->engine.cancel(w->engine.context);
    bool under_way = w->computing || w->held != 0 || w->applying != 0;
    if (w->phase == TM_WORKER_RUNNING) w->fenced_step = under_way ? w->applied + 1 : 0;
    w->computing = false;
    assert(w->phase != TM_WORKER_STOPPED);
    w->generation = generation;
    tm_worker__enter(w, TM_WORKER_FENCED);
    tm_debug(TM_DEBUG_WORKER, "worker %" PRIu64 ": fenced for generation %" PRIu64 " at step %" PRIu64, w->self.id,
             generation, w->applied);
    w->drain_step = 0;
    tm_worker__fetch_end(w);
    tm_worker__reads_end(w);
    if (!TM_PLANTED(snapshot_leak)) tm_worker__copy_end(w);
}

void tm_worker__on_fence(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    uint64_t generation = message->fence->generation;
    (void)now_ms;
    tm_worker__fence(w, generation);
    if (TM_PLANTED(fence_ignored) && w->phase == TM_WORKER_RUNNING) { /* says it obeys, and does not */
        uint64_t kept = w->generation;
        w->generation = generation;
        tm_worker__report(w, now_ms, out);
        w->generation = kept;
    }
    if (generation == w->generation && w->phase == TM_WORKER_FENCED) tm_worker__report(w, now_ms, out);
}

void tm_worker__on_resolve(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__Resolve *body = message->resolve;
    (void)now_ms;
    if (body->generation != w->generation || w->phase != TM_WORKER_FENCED || w->applying != 0) return;
    if (w->held == body->step && w->applied + 1 == body->step) {
        assert(!w->computing);
        w->applying = body->step;
        w->applying_norm = body->norm;
        w->report_due = true;
        tm_worker__keep_gradients(w, body->step, body->norm);
        w->engine.apply(w->engine.context, body->step, body->norm);
        return;
    }
    tm_worker__report(w, now_ms, out);
}

/* ---- the next layout ---- */

static bool wanted(const struct tm_worker *w, uint32_t layer)
{
    assert(layer < w->layer_count && w->my_place < w->roster.member_count);
    assert(w->roster.members[w->my_place].spare || w->roster.members[w->my_place].stage < w->roster.stages);
    const struct tm_member *me = &w->roster.members[w->my_place];
    return !me->spare && layer >= w->roster.stage_first[me->stage] && layer < w->roster.stage_first[me->stage + 1];
}

void tm_worker__say_ready(struct tm_worker *w, struct tm_outbox *out)
{
    assert(w->phase == TM_WORKER_READY);
    Tmw__Ready body = TMW__READY__INIT;
    tm_message message = tm_worker__head(w, &w->coordinator);
    body.generation = w->generation;
    TM_BODY(message, READY, ready, &body);
    tm_outbox_send(out, &w->coordinator, &message);
}

void tm_worker__check_ready(struct tm_worker *w, struct tm_outbox *out)
{
    if (w->phase != TM_WORKER_FETCHING) return;
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (wanted(w, l) && (!w->layers[l].have || w->layers[l].step != w->base)) return;
    assert(w->applying == 0 && w->held == 0);
    if (w->applied != w->base) w->applied_norm_known = false;
    w->applied = w->base + (TM_PLANTED(step_skipped) && w->base > 0);
    tm_worker__enter(w, TM_WORKER_READY);
    tm_debug(TM_DEBUG_WORKER, "worker %" PRIu64 ": ready for generation %" PRIu64 " at step %" PRIu64, w->self.id,
             w->generation, w->applied);
    w->progress++;
    tm_worker__steps_reset(w);
    tm_worker__fetch_end(w);
    tm_worker__say_ready(w, out);
}

static bool is_fetched(const Tmw__Assign *assign, uint32_t layer)
{
    for (size_t i = 0; i < assign->n_fetches; i++)
        if (assign->fetches[i]->layer == layer) return true;
    return false;
}

/* As it is, or what it is now of one that we have. */
static int take_roster(const struct tm_worker *w, const Tmw__Assign *body, struct tm_roster *out)
{
    if (body->since == 0)
        return tm_roster_read(body->generation, body->layout, w->layer_count, w->micro_batches, out, NULL);
    if (w->roster.generation == body->generation) return tm_roster_copy(out, &w->roster, NULL); /* told again */
    if (w->roster.generation != body->since) return -(int)TM_ENOTFOUND;
    return tm_roster_read_change(&w->roster, body->generation, body->layout, w->layer_count, w->micro_batches, out,
                                 NULL);
}

void tm_worker__on_assign(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__Assign *body = message->assign;
    if (body->generation != w->generation || body->generation == 0) return;
    if (w->phase == TM_WORKER_READY && w->roster.generation == w->generation) tm_worker__say_ready(w, out);
    if (w->phase != TM_WORKER_FENCED || w->applying != 0) return;
    struct tm_roster roster = {0};
    if (take_roster(w, body, &roster) != 0) return;
    const struct tm_member *me = tm_roster_find(&roster, w->self.id);
    if (me == NULL || me->incarnation != w->self.incarnation) {
        tm_roster_deinit(&roster);
        return;
    }
    size_t place = (size_t)(me - roster.members);
    tm_roster_deinit(&w->roster);
    w->roster = roster;
    w->my_place = place;
    w->vote_fan = body->vote_fan;
    w->base = body->base_step;
    if (w->held != 0) w->engine.discard(w->engine.context);
    w->held = 0;
    if (tm_worker__fetch_begin(w, body) != 0) return; /* out of memory: the coordinator asks again, or gives us up */
    tm_worker__enter(w, TM_WORKER_FETCHING);
    tm_debug(TM_DEBUG_WORKER, "worker %" PRIu64 ": place %zu of %ux%u; fetches %zu layers of step %" PRIu64, w->self.id,
             place, roster.pipelines, roster.stages, body->n_fetches, w->base);
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (wanted(w, l) && !is_fetched(body, l)) tm_worker__take_followed(w, l);
    tm_worker__fetch_pump(w, now_ms, out);
    tm_worker__check_ready(w, out);
}

void tm_worker__on_start(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    if (message->start->generation != w->generation || w->phase != TM_WORKER_READY) return;
    if (w->roster.generation != w->generation) return;
    for (uint32_t l = 0; l < w->layer_count; l++) {
        bool forgotten = TM_PLANTED(layer_unowned) && l + 1 == w->layer_count;
        if (!w->layers[l].have || (wanted(w, l) && !forgotten)) continue;
        w->engine.drop_layer(w->engine.context, l);
        w->layers[l] = (struct held_layer){.have = false};
    }
    tm_worker__reads_end(w);
    tm_worker__follow_end(w);
    tm_worker__serving_end(w);
    if (w->log_steps) tm_step_list_drop_after(&w->steps_told, w->base); /* of a past that was given up */
    tm_worker__enter(w, TM_WORKER_RUNNING);
    tm_debug(TM_DEBUG_WORKER, "worker %" PRIu64 ": generation %" PRIu64 " runs", w->self.id, w->generation);
    w->heartbeat_now = true;
    tm_worker__pump(w, now_ms, out);
}
