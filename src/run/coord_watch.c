/* Who is lost, who hangs, which link is cut: what heartbeats and their absence say. */
#include "run/coord_internal.h"

#include "base/debug.h"
#include "base/planted.h"

enum { CUT_GRACE_MS = 200, STALL_STEPS = 8, QUARANTINES_COUNTED = 3 };

/* This process trains no more, whatever happens. */
void tm_coord__process_dead(struct tm_coordinator *c, uint64_t id, uint64_t incarnation)
{
    for (size_t i = 0; i < c->started.member_count; i++)
        if (c->started.members[i].id == id && c->started.members[i].incarnation == incarnation)
            c->started_dead[i] = true;
}

/* Only the first time since the last start: who comes and goes is not waited for without end. */
static void silent(struct known *k, int64_t now_ms, int64_t for_ms)
{
    if (k->silent_until_ms == 0) k->silent_until_ms = now_ms + for_ms;
}

void tm_coord__closed(struct tm_coordinator *c, int64_t now_ms, struct known *k, struct tm_outbox *out)
{
    silent(k, now_ms, c->options.lease_ms);
    tm_coord__lost(c, now_ms, k, false, out);
}

void tm_coord__lost(struct tm_coordinator *c, int64_t now_ms, struct known *k, bool dead, struct tm_outbox *out)
{
    bool was_registered = k->registered;
    tm_debug(TM_DEBUG_RUN, "coordinator: %s %" PRIu64 " is lost%s", tm_role_name(k->peer.role), k->peer.id,
             dead ? ", it is dead" : "");
    silent(k, now_ms, tm_coord__surely_ms(c->options.orphan_ms));
    k->registered = TM_PLANTED(lease_forever) && k->peer.role == TM_ROLE_AGENT;
    k->ready = false;
    k->reported = 0;
    bool listed = false;
    for (size_t i = 0; i < PAST_MAX; i++)
        listed = listed || k->past[i] == k->peer.incarnation;
    if (dead && k->peer.incarnation != 0 && !listed) k->past[k->past_next++ % PAST_MAX] = k->peer.incarnation;
    if (k->peer.role != TM_ROLE_WORKER) return;
    const struct tm_member *member = tm_roster_find(&c->roster, k->peer.id);
    bool is_member = member != NULL && member->incarnation == k->peer.incarnation;
    if (was_registered || (is_member && !listed)) c->changed_ms = now_ms;
    tm_coord__tell_loss(c, now_ms, k, dead, is_member && !member->spare, out);
    if (!is_member) return;
    if (c->phase == TM_COORDINATOR_ASSIGNED || (tm_coord__runs(c) && !member->spare))
        tm_coord__fence(c, now_ms, TM_CHANGED_LOSS, "a member is lost", out);
}

static void quarantine(struct tm_coordinator *c, int64_t now_ms, struct known *k, bool restart, const char *why,
                       struct tm_outbox *out)
{
    tm_coord__note(c, why, k->peer.id, 0, out);
    /* Longer each time, to a limit: a link that stays cut is not to be tried again and again. */
    if (k->quarantines < QUARANTINES_COUNTED) k->quarantines++;
    k->quarantine_until_ms = now_ms + c->options.quarantine_ms * (int64_t)k->quarantines;
    silent(k, now_ms, tm_coord__surely_ms(c->options.orphan_ms)); /* its report is not waited for as others' are */
    struct known *agent = tm_coord__find(c, TM_ROLE_AGENT, k->peer.id);
    if (restart && agent != NULL) agent->restart_incarnation = k->peer.incarnation;
}

static void watch_leases(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    int64_t limit_ms = tm_coord__surely_ms(c->options.lease_ms);
    for (size_t i = 0; i < c->known_count; i++) {
        struct known *k = &c->known[i];
        bool cut = k->registered && k->cut_ms != 0 && now_ms - k->cut_ms > CUT_GRACE_MS;
        if (now_ms - k->heard_ms <= limit_ms && !cut) continue;
        const struct tm_member *member = tm_roster_find(&c->roster, k->peer.id);
        bool seated = member != NULL && !member->spare && member->incarnation == k->peer.incarnation;
        /* After a restart, members of the running generation are awaited though they hold no lease yet. */
        if (!k->registered && !(seated && tm_coord__runs(c)) && k->told_here == 0) continue;
        if (cut)
            tm_coord__closed(c, now_ms, k, out);
        else
            tm_coord__lost(c, now_ms, k, false, out);
    }
}

/* Whom a member waits for in the end: it may wait for one that itself waits. In a ring of waiting (a link is cut one
 * way), the one that is furthest behind. */
struct known *tm_coord__root_of(struct tm_coordinator *c, struct known *k)
{
    struct known *lowest = k;
    for (size_t hops = 0; hops < 2 * c->roster.member_count; hops++) {
        const struct tm_member *member = tm_roster_find(&c->roster, k->waiting_for);
        struct known *next = member == NULL ? NULL : tm_coord__member(c, member);
        if (k->waiting_for == 0 || next == NULL) return k;
        if (hops == c->roster.member_count) lowest = next; /* from here on, all are in the ring */
        if (next->applied < lowest->applied) lowest = next;
        k = next;
    }
    return lowest;
}

static unsigned votes_for(struct tm_coordinator *c, const struct known *k)
{
    unsigned votes = 0;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        struct known *voter = tm_coord__member(c, &c->roster.members[i]);
        if (voter != NULL && !c->roster.members[i].spare && voter->working_on != 0)
            votes += tm_coord__root_of(c, voter) == k;
    }
    return votes;
}

/* The member to leave out: the one most others wait for; NULL: nobody waits. */
static struct known *blamed(struct tm_coordinator *c)
{
    struct known *worst = NULL;
    unsigned worst_votes = 0;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        struct known *k = tm_coord__member(c, &c->roster.members[i]);
        unsigned votes = k == NULL || c->roster.members[i].spare ? 0 : votes_for(c, k);
        if (votes <= worst_votes) continue;
        worst = k;
        worst_votes = votes;
    }
    return worst;
}

/* No step gets done: leave out every member that computes alone without end; if there is none, the one that most wait
 * for in the end: its links are cut. */
void tm_coord__stalled(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    size_t hung = 0;
    if (TM_PLANTED(hung_forever)) return;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (k == NULL || c->roster.members[i].spare || k->working_on == 0) continue;
        if (k->held != 0 || k->waiting_for != 0) continue;
        quarantine(c, now_ms, k, true, "worker hangs", out);
        hung++;
    }
    struct known *k = hung == 0 ? blamed(c) : NULL;
    if (k != NULL) quarantine(c, now_ms, k, false, "worker's links are cut", out);
}

/* The last step is done when all have applied it, not when the first has. */
static bool all_at_the_end(struct tm_coordinator *c)
{
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (!c->roster.members[i].spare && (k == NULL || k->applied < c->options.steps)) return false;
    }
    return true;
}

static void watch_steps(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    /* Members step together, so the least of their last times is the step's; others hold a wait that is over. */
    int64_t step_ms = INT64_MAX / STALL_STEPS;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (k != NULL && !c->roster.members[i].spare && k->step_ms < step_ms) step_ms = k->step_ms;
    }
    int64_t limit_ms = step_ms * STALL_STEPS > c->options.stall_ms ? step_ms * STALL_STEPS : c->options.stall_ms;
    if (limit_ms > 4 * c->options.stall_ms) limit_ms = 4 * c->options.stall_ms;
    int64_t since_ms = c->applied_ms > c->phase_ms ? c->applied_ms : c->phase_ms;
    if (all_at_the_end(c) || now_ms - since_ms <= limit_ms || TM_PLANTED(hung_forever)) return;
    tm_coord__stalled(c, now_ms, out);
    tm_coord__fence(c, now_ms, TM_CHANGED_STALL, "no step in time", out);
}

/* A member that neither reports nor fetches, though its heart beats. */
static void watch_answers(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (now_ms - c->phase_ms <= c->options.fetch_limit_ms || TM_PLANTED(hung_forever)) return;
    bool assigned = c->phase == TM_COORDINATOR_ASSIGNED;
    for (size_t i = 0; i < c->known_count; i++) {
        struct known *k = &c->known[i];
        if (k->peer.role != TM_ROLE_WORKER || !k->registered || now_ms < k->quarantine_until_ms) continue;
        if (now_ms - k->progress_ms <= c->options.fetch_limit_ms || now_ms - k->joined_ms <= c->options.fetch_limit_ms)
            continue;
        const struct tm_member *member = assigned ? tm_roster_find(&c->roster, k->peer.id) : NULL;
        if (assigned && (member == NULL || member->spare || k->ready)) continue;
        if (!assigned && k->reported == c->generation) continue;
        quarantine(c, now_ms, k, true, assigned ? "worker cannot fetch its layers" : "worker does not report", out);
        if (!assigned) continue;
        if (k->trouble[0] != '\0') tm_coord__files_failed(c, now_ms, "layers cannot be read", 0, out);
        if (tm_coord__ended(c)) return;
        tm_coord__fence(c, now_ms, TM_CHANGED_STALL, "a member does not get ready", out);
        return;
    }
}

void tm_coord__watch(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    watch_leases(c, now_ms, out);
    if (c->stuck) return; /* who stands still then does so because all have to wait */
    if (c->phase == TM_COORDINATOR_RUNNING) watch_steps(c, now_ms, out);
    if (c->phase == TM_COORDINATOR_COLLECTING || c->phase == TM_COORDINATOR_ASSIGNED) watch_answers(c, now_ms, out);
}
