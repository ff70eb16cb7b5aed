/* How far the job is, as its engines tell it: losses for the user's eyes, and that the job itself is wrong. */
#include "run/coord_internal.h"

#include <stdio.h>
#include <string.h>

bool tm_coord__ended(const struct tm_coordinator *c)
{
    return c->phase == TM_COORDINATOR_FINISHED || c->phase == TM_COORDINATOR_FAILED ||
           c->phase == TM_COORDINATOR_STOPPED;
}

/* Every member tells the same number, and a step that is redone has it again: one entry a step. */
void tm_coord__loss_told(struct tm_coordinator *c, uint64_t step, double loss)
{
    size_t at = c->loss_count;
    while (at > 0 && c->losses[at - 1].step > step)
        at--;
    if (at > 0 && c->losses[at - 1].step == step) {
        c->losses[at - 1].loss = loss;
        return;
    }
    if (c->loss_count == LOSSES_MAX) {
        if (at == 0) return; /* older than all that are kept */
        memmove(&c->losses[0], &c->losses[1], (at - 1) * sizeof c->losses[0]);
        at--;
    } else {
        memmove(&c->losses[at + 1], &c->losses[at], (c->loss_count - at) * sizeof c->losses[0]);
        c->loss_count++;
    }
    c->losses[at] = (struct tm_step_loss){.step = step, .loss = loss};
}

/* A worker tells of steps up to the one in flight; what it repeats of later ones was rolled back. */
void tm_coord__losses_heard(struct tm_coordinator *c, const Tmw__Heartbeat *body)
{
    bool past = tm_coord__runs(c) && body->generation != c->generation;
    for (size_t i = 0; i < body->n_losses && !past; i++) {
        if (body->losses[i]->unknown) continue;
        uint64_t step = body->losses[i]->step;
        if (step > 0 && step <= c->options.steps && step - 1 <= body->applied)
            tm_coord__loss_told(c, step + TM_PLANTED(loss_shifted), body->losses[i]->loss);
    }
    if (!past) tm_coord__steps_heard(c, body->losses, body->n_losses, body->applied);
    if (body->step_ms > 0) c->told_step_ms = body->step_ms;
}

/* A generation starts from `base`: what was told of later steps is told again when they are done again. */
void tm_coord__losses_forget(struct tm_coordinator *c, uint64_t base)
{
    while (c->loss_count > 0 && c->losses[c->loss_count - 1].step > base)
        c->loss_count--;
    if (c->progress_step > base) c->progress_step = base;
    if (c->traffic_step > base) c->traffic_step = base;
}

/* The newest that is of a committed step, not of the one in flight; NULL: none. */
static const struct tm_step_loss *newest_loss(const struct tm_coordinator *c)
{
    uint64_t committed = c->reached > c->applied ? c->reached : c->applied;
    /* Without a record of any generation, whoever is here is believed. */
    for (size_t k = 0; c->started.generation == 0 && k < c->known_count; k++)
        if (c->known[k].registered && c->known[k].applied > committed) committed = c->known[k].applied;
    size_t i = c->loss_count;
    while (i > 0 && c->losses[i - 1].step > committed)
        i--;
    return i == 0 ? NULL : &c->losses[i - 1];
}

/* At most one event a second, but always one for the last step: of the job, or before it stops (`last`). */
void tm_coord__progress_tell(struct tm_coordinator *c, int64_t now_ms, bool last, struct tm_outbox *out)
{
    const struct tm_step_loss *newest = newest_loss(c);
    uint64_t step = newest == NULL ? c->applied : newest->step;
    int64_t since_ms = now_ms - c->progress_ms;
    bool soon = since_ms < PROGRESS_EVERY_MS && step < c->options.steps;
    bool paid = tm_coord__bill(c, false) > c->told_bill_microusd && (last || since_ms >= BILL_TOLD_EVERY_MS);
    bool further = step > c->progress_step;
    if (!paid && (!further || (soon && !last))) return;
    if (further) c->progress_step = step;
    c->progress_ms = now_ms;
    tm_coord__record_progress(c, newest != NULL && newest->step == c->progress_step ? newest : NULL, out);
}

void tm_coordinator__last_words(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (tm_coord__ended(c)) return;
    tm_coord__steps_tell_all(c, c->applied, out);
    tm_coord__progress_tell(c, now_ms, true, out);
}

void tm_coord__fail(struct tm_coordinator *c, int64_t now_ms, const struct why_failed *why, struct tm_outbox *out)
{
    if (tm_coord__ended(c)) return;
    tm_coord__copy_abandon(c, now_ms, out);
    (void)snprintf(c->failure, sizeof c->failure, "%s", why->reason);
    tm_coord__record_failed(c, why, out);
    tm_coord__enter(c, TM_COORDINATOR_FAILED, now_ms);
    for (size_t i = 0; i < c->known_count; i++)
        if (c->known[i].peer.role == TM_ROLE_WORKER && c->known[i].registered)
            tm_coord__stop_worker(c, &c->known[i], out);
    tm_outbox_add(out, TM_COORDINATOR_DONE, NULL, 0, 0, 0);
}
