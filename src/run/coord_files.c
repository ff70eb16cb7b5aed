/* Files that cannot be written or read: the record's, and those of copy sets.
 *
 * A full disk is no reason to stop: it may have room again. Steps need no record, so training goes on. What must be in
 * the record before it happens waits: a fence, a start, a copy set's number and that it is whole. What only people want
 * to know is put down later. When the last step is done, or a stop is asked for, the wait has a limit.
 *
 * Anything else that is wrong with the folder for copies stays wrong: nothing would be durable, at full price. After a
 * few tries in a row the job gives up, with the reason and with what it has. */
#include "run/coord_internal.h"

#include <stdio.h>

void tm_coordinator_record_stuck(struct tm_coordinator *c, const char *why)
{
    c->stuck = why != NULL;
    (void)snprintf(c->stuck_why, sizeof c->stuck_why, "%s", why == NULL ? "" : why);
}

bool tm_coord__stuck(struct tm_coordinator *c)
{
    if (TM_PLANTED(stuck_ignored)) return false;
    if (c->stuck) c->waiting = "disk space: the record cannot be written";
    return c->stuck;
}

static bool all_seated_here(struct tm_coordinator *c)
{
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (!c->roster.members[i].spare && (k == NULL || !k->registered)) return false;
    }
    return true;
}

void tm_coord__fence_late(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    enum tm_change_cause cause = c->fence_due;
    if (c->stuck || cause == TM_CHANGED_NONE) return;
    c->fence_due = TM_CHANGED_NONE;
    if (tm_coord__ended(c)) return;
    /* Who was lost meanwhile may have come back as it was: then nothing has to change. */
    if (cause == TM_CHANGED_LOSS && tm_coord__runs(c) && all_seated_here(c)) return;
    tm_coord__fence(c, now_ms, cause, c->fence_why, out);
}

/* ---- copy sets ---- */

void tm_coord__trouble_heard(struct known *k, const Tmw__Heartbeat *body)
{
    (void)snprintf(k->trouble, sizeof k->trouble, "%s", body->trouble);
    k->trouble_full = body->trouble_full;
}

/* Of those who have trouble with files, one for whom it will not pass by itself first. */
static const struct known *troubled(const struct tm_coordinator *c)
{
    const struct known *found = NULL;
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        if (k->peer.role != TM_ROLE_WORKER || !k->registered || k->trouble[0] == '\0') continue;
        if (found == NULL || (found->trouble_full && !k->trouble_full)) found = k;
    }
    return found;
}

const char *tm_coord__trouble(const struct tm_coordinator *c, bool *out_full)
{
    const struct known *k = troubled(c);
    *out_full = c->stuck || (k != NULL && k->trouble_full);
    return c->stuck ? c->stuck_why : k != NULL ? k->trouble : "";
}

static void give_up(struct tm_coordinator *c, int64_t now_ms, const char *what, const char *trouble, bool full,
                    struct tm_outbox *out)
{
    enum { WHAT = 60, REMEDY = 50 };
    char why[TM_MESSAGE_STRING_MAX + 1];
    (void)snprintf(why, sizeof why, "%.*s: %.*s; %.*s, then resume it", WHAT, what,
                   TM_MESSAGE_STRING_MAX - WHAT - REMEDY, trouble, REMEDY / 2,
                   full ? "free some disk space" : "fix that");
    tm_coord__give_up(c, now_ms, why, out);
}

void tm_coord__files_failed(struct tm_coordinator *c, int64_t now_ms, const char *what, uint64_t set,
                            struct tm_outbox *out)
{
    const struct known *k = troubled(c);
    char text[2 * TM_MESSAGE_STRING_MAX]; /* a note cuts it */
    (void)snprintf(text, sizeof text, "%.40s: %s", what, k == NULL ? "it took too long" : k->trouble);
    tm_coord__note(c, text, k == NULL ? 0 : k->peer.id, set, out);
    if (k == NULL) return; /* that may be better next time */
    if (k->trouble_full && c->applied < c->options.steps && !TM_PLANTED(full_disk_fatal)) return; /* so may this */
    if (++c->files_failed >= FILES_FAILED_MAX) give_up(c, now_ms, what, k->trouble, k->trouble_full, out);
}

void tm_coord__last_set_limit(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->last_step_ms == 0) c->last_step_ms = now_ms;
    if (!c->stuck || now_ms - c->last_step_ms <= FILES_FAILED_MAX * c->options.copy_limit_ms) return;
    give_up(c, now_ms, "the last step is done, but cannot be stored", c->stuck_why, true, out);
}
