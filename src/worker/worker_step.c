/* Steps: compute, prepare, apply. See worker.h for why a member is never more than one step ahead of another. */
#include "worker/worker_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <assert.h>
#include <string.h>

static void ballot_clear(const struct tm_worker *w, struct ballot *ballot, uint64_t step)
{
    assert(ballot->flagged != NULL && ballot->has_norm != NULL);
    ballot->step = step;
    ballot->own = false;
    memset(ballot->flagged, 0, TM_MEMBERS_MAX * sizeof *ballot->flagged);
    memset(ballot->has_norm, 0, w->layer_count * sizeof *ballot->has_norm);
}

int tm_worker__steps_init(struct tm_worker *w)
{
    assert(w->layer_count > 0 && w->layer_count <= TM_LAYERS_MAX);
    for (int i = 0; i < 2; i++) {
        struct ballot *ballot = &w->ballots[i];
        ballot->flagged = tm_calloc(TM_MEMBERS_MAX, sizeof *ballot->flagged);
        ballot->has_norm = tm_calloc(w->layer_count, sizeof *ballot->has_norm);
        ballot->norm = tm_calloc(w->layer_count, sizeof *ballot->norm);
        w->own_norms[i] = tm_calloc(w->layer_count, sizeof *w->own_norms[i]);
        if (ballot->flagged == NULL || ballot->has_norm == NULL || ballot->norm == NULL || w->own_norms[i] == NULL)
            return -(int)TM_ENOMEM;
    }
    return 0;
}

void tm_worker__steps_deinit(struct tm_worker *w)
{
    for (int i = 0; i < 2; i++) {
        tm_free(w->ballots[i].flagged);
        tm_free(w->ballots[i].has_norm);
        tm_free(w->ballots[i].norm);
        tm_free(w->own_norms[i]);
        w->ballots[i] = (struct ballot){.step = 0};
        w->own_norms[i] = NULL;
    }
}

void tm_worker__steps_reset(struct tm_worker *w)
{
    ballot_clear(w, &w->ballots[0], w->applied + 1);
    ballot_clear(w, &w->ballots[1], w->applied + 2);
    w->own_norm_step[0] = 0;
    w->own_norm_step[1] = 0;
}

static bool seated(const struct tm_worker *w)
{
    assert(w->roster.generation != w->generation || w->generation == 0 || w->my_place < w->roster.member_count);
    return w->roster.generation == w->generation && !w->roster.members[w->my_place].spare;
}

/* ---- saying "prepared" ---- */

static void send_prepared(const struct tm_worker *w, const struct tm_peer *to, uint64_t step, bool answer,
                          struct tm_outbox *out)
{
    assert(to->role == TM_ROLE_WORKER && step > 0);
    int which = w->own_norm_step[0] == step ? 0 : 1;
    if (w->own_norm_step[which] != step) return;
    Tmw__Prepared body = TMW__PREPARED__INIT;
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 20);
    size_t count = w->own_norm_count[which];
    Tmw__NormPart *parts = tm_arena_alloc(&arena, (count + 1) * sizeof *parts);
    Tmw__NormPart **list = tm_arena_alloc(&arena, (count + 1) * sizeof(Tmw__NormPart *));
    if (parts != NULL && list != NULL) {
        for (size_t i = 0; i < count; i++) {
            tmw__norm_part__init(&parts[i]);
            parts[i].layer = w->own_norms[which][i].layer;
            parts[i].sum = w->own_norms[which][i].sum;
            list[i] = &parts[i];
        }
        body.generation = w->generation;
        body.step = step;
        body.answer = answer;
        body.norms = list;
        body.n_norms = count;
        tm_message message = tm_worker__head(w, to);
        TM_BODY(message, PREPARED, prepared, &body);
        tm_outbox_send(out, to, &message);
    }
    tm_arena_deinit(&arena);
}

static void tell_all(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    assert(w->held != 0 && w->own_norm_step[0] == w->held);
    assert(w->roster.generation == w->generation);
    for (size_t i = 0; i < w->roster.member_count; i++) {
        const struct tm_member *member = &w->roster.members[i];
        if (i == w->my_place || member->spare) continue;
        struct tm_peer to = {.role = TM_ROLE_WORKER, .id = member->id, .incarnation = member->incarnation};
        send_prepared(w, &to, w->held, false, out);
    }
    w->prepared_ms = now_ms;
}

void tm_worker__resend_prepared(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    if (w->phase != TM_WORKER_RUNNING || w->held == 0 || w->applying != 0 || !tm_worker__may_work(w, now_ms)) return;
    if (w->prepared_ms == NEVER_MS || now_ms - w->prepared_ms >= w->options.resend_ms) tell_all(w, now_ms, out);
}

/* ---- counting ---- */

static bool complete(const struct tm_worker *w, const struct ballot *ballot)
{
    assert(ballot->step == w->applied + 1);
    size_t missing = 0;
    for (size_t i = 0; i < w->roster.member_count; i++)
        missing += !w->roster.members[i].spare && !ballot->flagged[i];
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (!ballot->has_norm[l]) return false;
    return missing == 0 || (TM_PLANTED(commit_early) && missing <= 1);
}

uint64_t tm_worker__waiting_for(const struct tm_worker *w)
{
    if (w->phase == TM_WORKER_RUNNING && w->computing) return w->engine.waiting_for(w->engine.context);
    if (w->phase != TM_WORKER_RUNNING || w->held == 0 || w->applying != 0) return 0;
    for (size_t i = 0; i < w->roster.member_count; i++)
        if (!w->roster.members[i].spare && !w->ballots[0].flagged[i]) return w->roster.members[i].id;
    return 0;
}

static void count_norms(struct tm_worker *w, struct ballot *ballot, size_t place, const struct tm_norm *norms,
                        size_t count)
{
    assert(place < w->roster.member_count && !w->roster.members[place].spare);
    assert(w->roster.members[place].stage < w->roster.stages);
    uint32_t stage = w->roster.members[place].stage;
    for (size_t i = 0; i < count; i++) {
        uint32_t layer = norms[i].layer;
        if (layer < w->roster.stage_first[stage] || layer >= w->roster.stage_first[stage + 1]) continue;
        ballot->norm[layer] = norms[i].sum;
        ballot->has_norm[layer] = true;
    }
    ballot->flagged[place] = true;
}

/* All are prepared: add the shares by layer number, the same order everywhere, and apply. */
static void apply_if_complete(struct tm_worker *w, int64_t now_ms)
{
    struct ballot *ballot = &w->ballots[0];
    if (w->phase != TM_WORKER_RUNNING || w->held != ballot->step || w->applying != 0) return;
    if (!complete(w, ballot) || !tm_worker__may_work(w, now_ms)) return;
    double total = 0;
    for (uint32_t l = 0; l < w->layer_count; l++)
        total += ballot->norm[l];
    assert(w->held == w->applied + 1 && !w->computing);
    w->applying = w->held;
    w->applying_norm = total;
    tm_worker__keep_gradients(w, w->applying, total);
    w->engine.apply(w->engine.context, w->applying, total);
}

void tm_worker__on_prepared(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__Prepared *body = message->prepared;
    struct tm_peer from = tm_message_sender(message);
    if (body->generation != w->generation && !TM_PLANTED(accept_old_flags)) return;
    bool taking_part = w->phase == TM_WORKER_RUNNING || w->phase == TM_WORKER_READY;
    if (w->roster.generation != w->generation || !taking_part || !seated(w)) return;
    const struct tm_member *member = tm_roster_find(&w->roster, from.id);
    if (member == NULL || member->spare) return;
    if (member->incarnation != from.incarnation && !TM_PLANTED(accept_old_flags)) return;
    if (body->step == w->applied && body->step > 0 && w->phase == TM_WORKER_RUNNING) {
        /* It is behind, and may lack ours. */
        if (tm_worker__may_work(w, now_ms) && !body->answer) send_prepared(w, &from, body->step, true, out);
        return;
    }
    if (body->step != w->applied + 1 && body->step != w->applied + 2) return;
    struct ballot *ballot = &w->ballots[body->step - w->applied - 1];
    assert(ballot->step == body->step);
    size_t place = (size_t)(member - w->roster.members);
    for (size_t i = 0; i < body->n_norms; i++) {
        struct tm_norm norm = {.layer = body->norms[i]->layer, .sum = body->norms[i]->sum};
        count_norms(w, ballot, place, &norm, 1);
    }
    ballot->flagged[place] = true;
    apply_if_complete(w, now_ms);
}

/* ---- the engine's word ---- */

void tm_worker_held(struct tm_worker *w, int64_t now_ms, uint64_t step, const struct tm_norm *norms, size_t count,
                    struct tm_outbox *out)
{
    assert(norms != NULL || count == 0);
    if (!w->computing || step != w->applied + 1 || count > w->layer_count) return; /* cancelled meanwhile */
    assert(w->held == 0 && w->applying == 0);
    w->computing = false;
    w->held = step;
    struct tm_norm *oldest = w->own_norms[1];
    w->own_norms[1] = w->own_norms[0];
    w->own_norm_count[1] = w->own_norm_count[0];
    w->own_norm_step[1] = w->own_norm_step[0];
    w->own_norms[0] = oldest;
    memcpy(oldest, norms, count * sizeof *norms);
    w->own_norm_count[0] = count;
    w->own_norm_step[0] = step;
    if (w->phase != TM_WORKER_RUNNING) return;
    count_norms(w, &w->ballots[0], w->my_place, norms, count);
    if (!tm_worker__may_work(w, now_ms)) return; /* said again once there is word from the coordinator */
    tell_all(w, now_ms, out);
    apply_if_complete(w, now_ms);
    tm_worker__check(w);
}

void tm_worker_applied(struct tm_worker *w, int64_t now_ms, uint64_t step, struct tm_outbox *out)
{
    if (w->applying == 0 || step != w->applying) return;
    assert(w->held == step && step == w->applied + 1 && !w->computing);
    for (uint32_t l = 0; l < w->layer_count; l++) {
        if (!w->layers[l].have || w->layers[l].step != w->applied) continue;
        w->layers[l].step = step;
        w->layers[l].hashed = false;
    }
    w->applied = step;
    w->applied_ms = now_ms;
    w->applied_norm = w->applying_norm;
    w->applied_norm_known = true;
    w->applying = 0;
    w->held = 0;
    w->progress++;
    w->step_ms = (uint32_t)(now_ms - w->begun_ms);
    struct ballot done = w->ballots[0];
    w->ballots[0] = w->ballots[1];
    w->ballots[1] = done;
    ballot_clear(w, &w->ballots[1], step + 2);
    w->ballots[0].step = step + 1;
    if (w->phase == TM_WORKER_RUNNING) tm_worker__copy_applied(w, now_ms, out);
    if (w->report_due && w->phase == TM_WORKER_FENCED) tm_worker__report(w, now_ms, out);
    /* The end, a drain, and the end of a pause are told at once. */
    if (w->applied == w->steps || w->applied == w->drain_step || w->applied == w->base + 1) w->heartbeat_now = true;
    tm_worker__tell_followers(w, out);
    tm_worker__pump(w, now_ms, out);
    tm_worker__say_now(w, now_ms, out);
    tm_worker__check(w);
}

/* Begins the next step when nothing stands against it. */
void tm_worker__pump(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    if (w->phase != TM_WORKER_RUNNING || w->computing || w->applying != 0 || !seated(w)) return;
    if (!tm_worker__may_work(w, now_ms)) return;
    if (w->held != 0) {
        apply_if_complete(w, now_ms); /* it may have waited for word from the coordinator */
        return;
    }
    if (w->applied >= w->steps || (w->drain_step != 0 && w->applied >= w->drain_step)) return;
    assert(w->held == 0 && w->applied < w->steps);
    w->computing = true;
    w->begun_ms = now_ms;
    w->engine.begin(w->engine.context, &w->roster, w->applied + 1);
    (void)out;
}
