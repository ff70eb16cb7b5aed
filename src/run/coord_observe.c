/* Watching the pace of a run: steps against their prediction, and whom the others wait for. It tells, and never steers.
 */
#include "run/coord_internal.h"

enum { STEPS_SEEN_MIN = 20, WAITS_SEEN_MIN = 40, WAITED_PERCENT = 60, SLOWER_PERCENT = 125, FASTER_PERCENT = 80 };

void tm_coord__observe_start(struct tm_coordinator *c)
{
    c->pace = (struct pace){.steps = 0};
    for (size_t i = 0; i < c->known_count; i++)
        c->known[i].waited_for = 0;
}

/* Called before the heartbeat's figures replace those of the one before. */
void tm_coord__observe(struct tm_coordinator *c, const struct known *k, const Tmw__Heartbeat *body)
{
    const struct tm_member *member = tm_roster_find(&c->roster, k->peer.id);
    if (c->phase != TM_COORDINATOR_RUNNING || member == NULL || member->spare) return;
    if (body->generation != c->generation || k->generation != c->generation) return;
    if (body->applied > k->applied && body->step_ms > 0) {
        c->pace.steps++;
        c->pace.sum_ms += body->step_ms;
    }
    struct known *waited = body->waiting_for == 0 ? NULL : tm_coord__find(c, TM_ROLE_WORKER, body->waiting_for);
    if (waited == NULL) return;
    tm_coord__root_of(c, waited)->waited_for++; /* it may itself wait */
    c->pace.waits++;
}

static void tell_pace(struct tm_coordinator *c, struct tm_outbox *out)
{
    if (c->pace.told_steps || c->options.predicted_step_ms == 0 || c->pace.steps < STEPS_SEEN_MIN) return;
    uint64_t mean_ms = c->pace.sum_ms / c->pace.steps;
    uint64_t percent = mean_ms * 100 / c->options.predicted_step_ms;
    c->pace.steps = 0; /* window after window, until there is something to tell */
    c->pace.sum_ms = 0;
    c->pace.told_steps = percent > SLOWER_PERCENT || percent < FASTER_PERCENT;
    if (percent > SLOWER_PERCENT) tm_coord__note(c, "steps take longer than predicted (ms)", 0, mean_ms, out);
    if (percent < FASTER_PERCENT) tm_coord__note(c, "steps take less time than predicted (ms)", 0, mean_ms, out);
}

static void tell_bottleneck(struct tm_coordinator *c, struct tm_outbox *out)
{
    if (c->pace.told_bottleneck || c->pace.waits < WAITS_SEEN_MIN || tm_roster_seated(&c->roster) < 3) return;
    const struct known *most = NULL;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (k != NULL && (most == NULL || k->waited_for > most->waited_for)) most = k;
    }
    c->pace.told_bottleneck = most != NULL && most->waited_for * 100 >= c->pace.waits * WAITED_PERCENT;
    if (c->pace.told_bottleneck)
        tm_coord__note(c, "worker is the bottleneck: the others wait for it", most->peer.id,
                       most->waited_for * 100 / c->pace.waits, out);
    c->pace.waits = 0;
    for (size_t i = 0; i < c->known_count; i++)
        c->known[i].waited_for = 0;
}

void tm_coord__observe_tell(struct tm_coordinator *c, struct tm_outbox *out)
{
    if (c->phase != TM_COORDINATOR_RUNNING) return;
    tell_pace(c, out);
    tell_bottleneck(c, out);
}
