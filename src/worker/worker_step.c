/* Steps: compute, prepare, apply. See worker.h for why a member is never more than one step ahead of another. */
#include "worker/worker_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void ballot_clear(const struct tm_worker *w, struct ballot *ballot, uint64_t step)
{
    assert(ballot->flagged != NULL && ballot->has_norm != NULL);
    ballot->step = step;
    ballot->own = false;
    ballot->all = false;
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

/* The nodes of the tree are the seated members as the roster has them; the children of the i-th are the fan x i + 1st
 * to the fan x i + fan-th. */
static void find_votes(struct tm_worker *w)
{
    struct votes *votes = &w->votes;
    size_t fan = w->vote_fan < VOTE_FAN_MAX ? w->vote_fan : VOTE_FAN_MAX;
    size_t me = 0;
    *votes = (struct votes){.fan = (uint32_t)fan, .parent = VOTE_NOBODY};
    if (fan == 0 || w->roster.members[w->my_place].spare) return;
    for (size_t i = 0; i < w->my_place; i++)
        me += !w->roster.members[i].spare;
    for (size_t i = 0, rank = 0; i < w->roster.member_count; i++) {
        if (w->roster.members[i].spare) continue;
        if (me > 0 && rank == (me - 1) / fan) votes->parent = (int)i;
        if (rank > fan * me && rank <= fan * me + fan) votes->children[votes->child_count++] = (int)i;
        rank++;
    }
}

void tm_worker__steps_reset(struct tm_worker *w)
{
    ballot_clear(w, &w->ballots[0], w->applied + 1);
    ballot_clear(w, &w->ballots[1], w->applied + 2);
    w->own_norm_step[0] = 0;
    w->own_norm_step[1] = 0;
    w->paces = (struct paces){.step = 0};
    find_votes(w);
}

/* ---- what a micro-batch takes ---- */

void tm_worker_computed(struct tm_worker *w, uint64_t step, uint64_t time_us)
{
    w->paces.step = step;
    w->paces.time_us = time_us;
}

/* A step is held: if the engine has said how long it computed, that counts, but for the first of a generation. */
static void learn_pace(struct tm_worker *w, uint64_t step)
{
    struct paces *paces = &w->paces;
    uint32_t mine = w->roster.micro_batches[w->roster.members[w->my_place].pipeline];
    if (paces->step != step || paces->time_us == 0 || mine == 0) return;
    if (paces->warm) paces->micro_us[paces->count++ % PACES_MAX] = (paces->time_us + mine - 1) / mine;
    paces->warm = true;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t tm_worker__micro_us(const struct tm_worker *w)
{
    uint64_t sorted[PACES_MAX];
    size_t count = w->paces.count < PACES_MAX ? w->paces.count : PACES_MAX;
    if (w->phase != TM_WORKER_RUNNING || count < PACES_MIN) return 0;
    memcpy(sorted, w->paces.micro_us, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_size);
    return sorted[count / 2];
}

static bool seated(const struct tm_worker *w)
{
    assert(w->roster.generation != w->generation || w->generation == 0 || w->my_place < w->roster.member_count);
    return w->roster.generation == w->generation && !w->roster.members[w->my_place].spare;
}

/* ---- saying "prepared" ---- */

static struct tm_peer member_at(const struct tm_worker *w, size_t place)
{
    const struct tm_member *member = &w->roster.members[place];
    return (struct tm_peer){.role = TM_ROLE_WORKER, .id = member->id, .incarnation = member->incarnation};
}

static void send_flag(const struct tm_worker *w, const struct tm_peer *to, const Tmw__Prepared *flag,
                      struct tm_outbox *out)
{
    Tmw__Prepared body = *flag;
    body.generation = w->generation;
    tm_message message = tm_worker__head(w, to);
    TM_BODY(message, PREPARED, prepared, &body);
    tm_outbox_send(out, to, &message);
}

static void send_norms(const struct tm_worker *w, const struct tm_peer *to, uint64_t step, const struct tm_norm *norms,
                       size_t count, bool answer, struct tm_outbox *out)
{
    Tmw__Prepared body = TMW__PREPARED__INIT;
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 20);
    Tmw__NormPart *parts = tm_arena_alloc(&arena, (count + 1) * sizeof *parts);
    Tmw__NormPart **list = tm_arena_alloc(&arena, (count + 1) * sizeof(Tmw__NormPart *));
    if (parts != NULL && list != NULL) {
        for (size_t i = 0; i < count; i++) {
            tmw__norm_part__init(&parts[i]);
            parts[i].layer = norms[i].layer;
            parts[i].sum = norms[i].sum;
            list[i] = &parts[i];
        }
        body.step = step;
        body.answer = answer;
        body.norms = list;
        body.n_norms = count;
        send_flag(w, to, &body, out);
    }
    tm_arena_deinit(&arena);
}

static void send_prepared(const struct tm_worker *w, const struct tm_peer *to, uint64_t step, bool answer,
                          struct tm_outbox *out)
{
    assert(to->role == TM_ROLE_WORKER && step > 0);
    int which = w->own_norm_step[0] == step ? 0 : 1;
    if (w->own_norm_step[which] != step) return;
    send_norms(w, to, step, w->own_norms[which], w->own_norm_count[which], answer, out);
}

/* In a tree: all are prepared. */
static void send_all(const struct tm_worker *w, const struct tm_peer *to, uint64_t step, double norm,
                     struct tm_outbox *out)
{
    Tmw__Prepared body = TMW__PREPARED__INIT;
    body.step = step;
    body.all = true;
    body.norm = norm;
    send_flag(w, to, &body, out);
}

/* In a tree: are we prepared, and all below us? */
static size_t missing_below(const struct tm_worker *w, const struct ballot *ballot)
{
    size_t missing = !ballot->flagged[w->my_place];
    for (size_t i = 0; i < w->votes.child_count; i++)
        missing += !ballot->flagged[w->votes.children[i]];
    return missing;
}

static void tell_parent(struct tm_worker *w, struct tm_outbox *out)
{
    const struct ballot *ballot = &w->ballots[0];
    if (w->votes.parent == VOTE_NOBODY || ballot->all || missing_below(w, ballot) > 0) return;
    struct tm_norm *known = tm_calloc(w->layer_count + 1, sizeof *known);
    struct tm_peer to = member_at(w, (size_t)w->votes.parent);
    size_t count = 0;
    for (uint32_t l = 0; known != NULL && l < w->layer_count; l++)
        if (ballot->has_norm[l]) known[count++] = (struct tm_norm){.layer = l, .sum = ballot->norm[l]};
    if (known != NULL) send_norms(w, &to, ballot->step, known, count, false, out);
    tm_free(known);
}

static void tell_all(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    assert(w->held != 0 && w->own_norm_step[0] == w->held);
    assert(w->roster.generation == w->generation);
    if (w->votes.fan > 0) tell_parent(w, out);
    for (size_t i = 0; w->votes.fan == 0 && i < w->roster.member_count; i++) {
        if (i == w->my_place || w->roster.members[i].spare) continue;
        struct tm_peer to = member_at(w, i);
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
    if (ballot->all) return true;
    if (w->votes.parent != VOTE_NOBODY) return TM_PLANTED(commit_early) && missing_below(w, ballot) == 0;
    size_t missing = w->votes.fan > 0 ? missing_below(w, ballot) : 0;
    for (size_t i = 0; w->votes.fan == 0 && i < w->roster.member_count; i++)
        missing += !w->roster.members[i].spare && !ballot->flagged[i];
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (!ballot->has_norm[l]) return false;
    return missing == 0 || (TM_PLANTED(commit_early) && missing <= 1);
}

uint64_t tm_worker__waiting_for(const struct tm_worker *w)
{
    if (w->phase == TM_WORKER_RUNNING && w->computing) return w->engine.waiting_for(w->engine.context);
    if (w->phase != TM_WORKER_RUNNING || w->held == 0 || w->applying != 0) return 0;
    if (w->votes.fan > 0) {
        for (size_t i = 0; i < w->votes.child_count; i++)
            if (!w->ballots[0].flagged[w->votes.children[i]]) return w->roster.members[w->votes.children[i]].id;
        return w->votes.parent == VOTE_NOBODY ? 0 : w->roster.members[w->votes.parent].id;
    }
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
        bool own = layer >= w->roster.stage_first[stage] && layer < w->roster.stage_first[stage + 1];
        if (!own && (w->votes.fan == 0 || layer >= w->layer_count)) continue; /* in a tree, others' come with it */
        ballot->norm[layer] = norms[i].sum;
        ballot->has_norm[layer] = true;
    }
    ballot->flagged[place] = true;
}

/* All are prepared: add the shares by layer number, the same order everywhere, and apply. */
static void apply_if_complete(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    struct ballot *ballot = &w->ballots[0];
    if (w->phase != TM_WORKER_RUNNING || w->held != ballot->step || w->applying != 0) return;
    if (!complete(w, ballot) || !tm_worker__may_work(w, now_ms)) return;
    double total = ballot->all ? ballot->total : 0;
    for (uint32_t l = 0; !ballot->all && l < w->layer_count; l++)
        total += ballot->norm[l];
    for (size_t i = 0; i < w->votes.child_count; i++) {
        struct tm_peer child = member_at(w, (size_t)w->votes.children[i]);
        send_all(w, &child, w->held, total, out);
    }
    assert(w->held == w->applied + 1 && !w->computing);
    w->applying = w->held;
    w->applying_norm = total;
    tm_worker__keep_gradients(w, w->applying, total);
    w->engine.apply(w->engine.context, w->applying, total);
}

static bool is_child(const struct tm_worker *w, size_t place)
{
    for (size_t i = 0; i < w->votes.child_count; i++)
        if (w->votes.children[i] == (int)place) return true;
    return false;
}

/* In a tree: the parent says that all are prepared, and so are we; or a child asks what we know already. True: that was
 * all. */
static bool told_in_tree(struct tm_worker *w, int64_t now_ms, size_t place, const Tmw__Prepared *body,
                         struct tm_outbox *out)
{
    if (body->all) {
        struct ballot *ballot = &w->ballots[0];
        if ((int)place != w->votes.parent || body->step != ballot->step || w->held != body->step) return true;
        ballot->all = true;
        ballot->total = body->norm;
        apply_if_complete(w, now_ms, out);
        return true;
    }
    if (!is_child(w, place)) return true;
    bool applied = body->step == w->applied && w->applied_norm_known && w->applied > w->base;
    bool applying = w->applying != 0 && body->step == w->applying;
    if (!applied && !applying) return false;
    struct tm_peer child = member_at(w, place);
    if (w->phase == TM_WORKER_RUNNING && tm_worker__may_work(w, now_ms))
        send_all(w, &child, body->step, applying ? w->applying_norm : w->applied_norm, out);
    return true;
}

static void count_flag(struct tm_worker *w, int64_t now_ms, size_t place, const Tmw__Prepared *body,
                       struct tm_outbox *out)
{
    struct ballot *ballot = &w->ballots[body->step - w->applied - 1];
    assert(ballot->step == body->step);
    bool news = !ballot->flagged[place];
    for (size_t i = 0; i < body->n_norms; i++) {
        struct tm_norm norm = {.layer = body->norms[i]->layer, .sum = body->norms[i]->sum};
        count_norms(w, ballot, place, &norm, 1);
    }
    ballot->flagged[place] = true;
    bool holds = w->phase == TM_WORKER_RUNNING && w->held == body->step && w->applying == 0;
    if (news && holds && tm_worker__may_work(w, now_ms)) tell_parent(w, out);
    apply_if_complete(w, now_ms, out);
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
    size_t place = (size_t)(member - w->roster.members);
    if (w->votes.fan > 0 && told_in_tree(w, now_ms, place, body, out)) return;
    if (body->step == w->applied && body->step > 0 && w->phase == TM_WORKER_RUNNING) {
        /* It is behind, and may lack ours. */
        if (tm_worker__may_work(w, now_ms) && !body->answer) send_prepared(w, &from, body->step, true, out);
        return;
    }
    if (body->step != w->applied + 1 && body->step != w->applied + 2) return;
    count_flag(w, now_ms, place, body, out);
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
    learn_pace(w, step);
    count_norms(w, &w->ballots[0], w->my_place, norms, count);
    if (!tm_worker__may_work(w, now_ms)) return; /* said again once there is word from the coordinator */
    tell_all(w, now_ms, out);
    apply_if_complete(w, now_ms, out);
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
    tm_worker__step_done(w, step);
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
        apply_if_complete(w, now_ms, out); /* it may have waited for word from the coordinator */
        return;
    }
    if (w->applied >= w->steps || (w->drain_step != 0 && w->applied >= w->drain_step)) return;
    assert(w->held == 0 && w->applied < w->steps);
    w->computing = true;
    w->begun_ms = now_ms;
    w->engine.begin(w->engine.context, &w->roster, w->applied + 1);
    (void)out;
}
