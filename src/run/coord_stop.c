/* An ordered stop: all members stop after one common step, as for a planned change; that step is written to files as a
 * copy set; the record says "stopped"; all are told to end. Whoever goes on later starts from that set, on any layout.
 *
 * What is lost meanwhile is dealt with as ever, and then the stop goes on. Where nothing can be made of it in time (too
 * few workers, no files), the job stops with the newest copy set in files that there is. */
#include "run/coord_internal.h"

#include "base/planted.h"

#include <stdio.h>

static bool in_files(struct tm_coordinator *c, const struct copy_set *set)
{
    for (uint32_t l = 0; l < c->options.layers; l++) {
        bool found = false;
        for (size_t p = 0; p < set->part_count && !found; p++)
            found = set->parts[p].layer == l && set->parts[p].holder == 0 &&
                    !tm_coord__is_bad(c, set->set, l, 0, set->step);
        if (!found) return false;
    }
    return true;
}

/* The newest step that stays when all memory is gone; 0: none. */
uint64_t tm_coord__filed_step(struct tm_coordinator *c)
{
    for (size_t i = c->set_count; i-- > 0;)
        if (!c->sets[i].bad && in_files(c, &c->sets[i])) return c->sets[i].step;
    return 0;
}

/* `quiet`: every member of the last generation was seen to have stopped, and only a new generation can let it go on. */
static void stopped(struct tm_coordinator *c, int64_t now_ms, uint64_t step, bool quiet, struct tm_outbox *out)
{
    tm_coord__copy_abandon(c, now_ms, out);
    tm_coord__steps_tell_all(c, c->applied, out);
    tm_coord__progress_tell(c, now_ms, true, out);
    tm_coord__enter(c, TM_COORDINATOR_STOPPED, now_ms);
    c->stopped_step = step;
    c->stopped_quiet = quiet;
    tm_coord__record_state(c, !c->stuck, out); /* a full disk must not keep us from ending */
    for (size_t i = 0; i < c->known_count; i++)
        if (c->known[i].peer.role == TM_ROLE_WORKER && c->known[i].registered)
            tm_coord__stop_worker(c, &c->known[i], out);
    tm_outbox_add(out, TM_COORDINATOR_DONE, NULL, 0, 0, 0);
}

void tm_coordinator_stop(struct tm_coordinator *c, int64_t now_ms, const char *reason, bool at_once,
                         struct tm_outbox *out)
{
    if (tm_coord__ended(c)) return;
    if (at_once) {
        (void)snprintf(c->stop_reason, sizeof c->stop_reason, "%s", reason);
        stopped(c, now_ms, tm_coord__filed_step(c), false, out);
        return;
    }
    if (c->stop_wanted) return;
    c->stop_wanted = true;
    c->stop_ms = now_ms;
    (void)snprintf(c->stop_reason, sizeof c->stop_reason, "%s", reason);
    tm_coord__record_state(c, !c->stuck, out); /* a coordinator after us must know */
    tm_coord__check(c, now_ms);
}

void tm_coord__give_up(struct tm_coordinator *c, int64_t now_ms, const char *why, struct tm_outbox *out)
{
    if (tm_coord__ended(c)) return;
    (void)snprintf(c->stop_reason, sizeof c->stop_reason, "%s", why);
    c->gave_up = true;
    stopped(c, now_ms, tm_coord__filed_step(c), false, out);
}

void tm_coord__stop_begin(struct tm_coordinator *c, int64_t now_ms)
{
    tm_coord__enter(c, TM_COORDINATOR_STOPPING, now_ms);
    c->drain_step = c->applied > 0 ? c->applied : 1;
    c->waiting = "all workers to stop at a common step";
}

/* All members stand at the common step: make it last. */
static void keep_step(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->drain_step >= c->options.steps) { /* it was the last one */
        c->stop_wanted = false;
        tm_coord__enter(c, TM_COORDINATOR_RUNNING, now_ms);
        tm_coord__finish_check(c, now_ms, out);
        return;
    }
    c->waiting = "the last copy set";
    if (tm_coord__stuck(c)) { /* there may be room soon, but whoever asked for a stop is not kept waiting for long */
        if (now_ms - c->stop_ms > c->options.copy_limit_ms) stopped(c, now_ms, tm_coord__filed_step(c), false, out);
        return;
    }
    if (tm_coord__filed_step(c) == c->drain_step) {
        stopped(c, now_ms, c->drain_step, true, out);
        return;
    }
    if (c->copying.set != 0 && c->copying.step != c->drain_step) tm_coord__copy_abandon(c, now_ms, out);
    if (c->copying.set == 0) tm_coord__copy_at(c, now_ms, c->drain_step, true, out);
}

void tm_coord__stop_check(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->phase != TM_COORDINATOR_STOPPING) return;
    if (TM_PLANTED(stop_early)) stopped(c, now_ms, tm_coord__filed_step(c), true, out);
    if (c->phase != TM_COORDINATOR_STOPPING) return;
    if (tm_coord__drained(c)) {
        keep_step(c, now_ms, out);
        return;
    }
    if (now_ms - c->phase_ms <= c->options.drain_limit_ms || tm_coord__stuck(c)) return;
    tm_coord__stalled(c, now_ms, out);
    tm_coord__fence(c, now_ms, TM_CHANGED_STALL, "stopping takes too long", out);
}

/* Whatever the phase: nobody waits for ever. */
void tm_coord__stop_limit(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (!c->stop_wanted || tm_coord__ended(c)) return;
    bool nothing = c->generations_started == 0 && c->generation >> 32 == 0;
    int64_t limit_ms = 2 * (c->options.drain_limit_ms + c->options.copy_limit_ms);
    if (nothing && c->phase != TM_COORDINATOR_REBUILDING)
        stopped(c, now_ms, 0, true, out);
    else if (now_ms - c->stop_ms > limit_ms)
        stopped(c, now_ms, tm_coord__filed_step(c), false, out);
}

/* ---- reading it back ---- */

void tm_coord__load_state(struct tm_coordinator *c, const Tmw__StateEvent *body)
{
    if (c->failure[0] != '\0' && body->state != TM_JOB_FAILED) {
        c->failure[0] = '\0'; /* it was tried again */
        c->failures = 0;
    }
    c->told_state = (enum tm_job_state)body->state;
    c->told_state_known = true;
    c->stop_wanted = body->state == TM_JOB_STOPPING;
    c->loaded_stopped = body->state == TM_JOB_STOPPED;
    c->stopped_step = body->step;
    /* A stop at once names the newest set in files, which may be of a past that was given up, and who goes on repeats
     * it. */
    bool trained = body->state != TM_JOB_STARTING && (body->state != TM_JOB_STOPPED || body->quiet);
    if (trained && body->step > c->reached) c->reached = body->step;
    (void)snprintf(c->stop_reason, sizeof c->stop_reason, "%s", body->reason);
    if (!c->loaded_stopped) return;
    c->loaded_started = false;
    for (size_t i = 0; body->quiet && i < c->started.member_count; i++)
        c->started_dead[i] = true;
}

/* The record says "stopped". True: it stays so. */
bool tm_coord__stays_stopped(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    c->stop_ms = now_ms;
    if (!c->loaded_stopped) return false;
    if (!c->options.resume) {
        tm_coord__enter(c, TM_COORDINATOR_STOPPED, now_ms);
        tm_outbox_add(out, TM_COORDINATOR_DONE, NULL, 0, 0, 0);
        return true;
    }
    c->applied = c->stopped_step;
    c->resumed = true;
    tm_coord__record_state(c, !c->stuck, out); /* starting: should we end now, the next one goes on too */
    return false;
}
