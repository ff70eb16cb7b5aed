/* Watching the pace of a run. It tells, and never steers.
 *
 * Steps against their prediction: after a generation's first steps the prediction is corrected by what was seen
 * (workload/observed.h), and a correction by a quarter or more is told. The correction is kept for the next
 * generations.
 *
 * Bottlenecks: a heartbeat says for whom its worker waits, and by following who waits for whom, who holds all up in the
 * end. Heartbeats come at any moment of a step, so the share of them that blame a worker is the share of time that it
 * costs the others. What steps would take without that is the prediction that sim/bottleneck.h judges by. */
#include "run/coord_internal.h"

#include "run/pace.h"

#include <math.h>

enum { STEPS_CORRECTING = 20, SAMPLES_EACH = 2, WINDOW_STEPS = 2 };
static const double told_from = 1.25;   /* corrections by less are nobody's business */
static const double blamed_share = 0.6; /* of all waiting: else it is not one worker's fault */
static const struct tm_bottleneck_options watching = {.threshold = 0.2, .warmup_s = 10, .needed = 12};

static void window_begin(struct tm_coordinator *c, int64_t now_ms)
{
    c->pace.window_ms = now_ms;
    c->pace.window_applied = c->applied;
    c->pace.samples = 0;
    c->pace.waits = 0;
    for (size_t i = 0; i < c->known_count; i++)
        c->known[i].waited_for = 0;
}

void tm_coord__observe_start(struct tm_coordinator *c, int64_t now_ms)
{
    double factor = c->pace.factor > 0 ? c->pace.factor : 1;
    c->pace = (struct pace){.started_ms = now_ms, .factor = factor};
    c->uneven = 0;
    tm_bottleneck_init(&c->pace.detector, &watching);
    window_begin(c, now_ms);
}

/* Called before the heartbeat's figures replace those of the one before. */
void tm_coord__observe(struct tm_coordinator *c, const struct known *k, const Tmw__Heartbeat *body)
{
    const struct tm_member *member = tm_roster_find(&c->roster, k->peer.id);
    if (c->phase != TM_COORDINATOR_RUNNING || member == NULL || member->spare) return;
    if (body->generation != c->generation || k->generation != c->generation) return;
    if (body->applied > k->applied && body->step_ms > 0 && c->pace.step_count < PACE_STEPS_MAX)
        c->pace.step_s[c->pace.step_count++] = body->step_ms / 1000.0;
    c->pace.samples++;
    struct known *waited = body->waiting_for == 0 ? NULL : tm_coord__find(c, TM_ROLE_WORKER, body->waiting_for);
    if (waited == NULL) return;
    tm_coord__root_of(c, waited)->waited_for++; /* it may itself wait */
    c->pace.waits++;
}

/* ---- the prediction ---- */

static double predicted_s(const struct tm_coordinator *c)
{
    return (c->predicted_step_ms > 0 ? c->predicted_step_ms : c->options.predicted_step_ms) / 1000.0;
}

static void correct_prediction(struct tm_coordinator *c, struct tm_outbox *out)
{
    if (c->pace.corrected || predicted_s(c) <= 0 || c->pace.step_count < STEPS_CORRECTING) return;
    double before_s = predicted_s(c) * c->pace.factor;
    double off = tm_pace__correction(c->pace.step_s, c->pace.step_count, before_s);
    c->pace.corrected = true;
    c->pace.factor *= off;
    if (off < told_from && off > 1 / told_from) return;
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__PaceEvent body = TMW__PACE_EVENT__INIT;
    body.observed_ms = (uint64_t)llround(before_s * off * 1000);
    body.predicted_ms = (uint64_t)llround(before_s * 1000);
    event.body_case = TMW__RECORD_EVENT__BODY_PACE;
    event.pace = &body;
    tm_coord__record(c, &event, false, out);
}

/* ---- bottlenecks ---- */

/* Of each seated member: its speed over what it would be if it held nobody up. Returns the least. */
static double ratios(struct tm_coordinator *c, double ratio[TM_MEMBERS_MAX], uint64_t ids[TM_MEMBERS_MAX],
                     size_t *out_count)
{
    double least = 1;
    size_t count = 0;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (k == NULL || c->roster.members[i].spare) continue;
        double blamed = (double)k->waited_for;
        bool alone = blamed >= blamed_share * (double)c->pace.waits;
        ids[count] = k->peer.id;
        ratio[count] = alone ? 1 - blamed / (double)c->pace.samples : 1;
        if (ratio[count] < least) least = ratio[count];
        count++;
    }
    *out_count = count;
    return least;
}

static void record_bottleneck(struct tm_coordinator *c, const struct tm_bottleneck_verdict *verdict, uint64_t worker,
                              double observed_s, double should_s, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__BottleneckEvent body = TMW__BOTTLENECK_EVENT__INIT;
    body.cause = verdict->cause;
    body.worker = worker;
    body.percent = (uint32_t)lround(verdict->shortfall * 100);
    body.observed_ms = (uint64_t)llround(observed_s * 1000);
    body.predicted_ms = (uint64_t)llround(should_s * 1000);
    event.body_case = TMW__RECORD_EVENT__BODY_BOTTLENECK;
    event.bottleneck = &body;
    c->pace.told_bottleneck = true;
    tm_coord__record(c, &event, false, out);
}

static void watch_bottleneck(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    double ratio[TM_MEMBERS_MAX];
    uint64_t ids[TM_MEMBERS_MAX];
    size_t count = 0;
    size_t seated = tm_roster_seated(&c->roster);
    uint64_t steps = c->applied - c->pace.window_applied;
    if (c->pace.samples < SAMPLES_EACH * seated || c->applied < c->pace.window_applied + WINDOW_STEPS || seated < 2)
        return;
    double observed_s = (double)(now_ms - c->pace.window_ms) / 1000 / (double)steps;
    double should_s = observed_s * ratios(c, ratio, ids, &count);
    double known_s = predicted_s(c) * c->pace.factor;
    if (c->pace.corrected && known_s < should_s) should_s = known_s;
    struct tm_bottleneck_observation seen = {.time_s = (double)(now_ms - c->pace.started_ms) / 1000,
                                             .observed_steps_s = 1 / observed_s,
                                             .predicted_steps_s = 1 / should_s,
                                             .worker_ratio = ratio,
                                             .worker_count = count};
    window_begin(c, now_ms);
    struct tm_bottleneck_verdict verdict = tm_bottleneck_observe(&c->pace.detector, &seen);
    if (verdict.cause == TM_BOTTLENECK_NONE || c->pace.told_bottleneck) return;
    record_bottleneck(c, &verdict, verdict.cause == TM_BOTTLENECK_WORKER ? ids[verdict.worker] : 0, observed_s,
                      should_s, out);
}

void tm_coord__observe_tell(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->phase != TM_COORDINATOR_RUNNING) return;
    correct_prediction(c, out);
    watch_bottleneck(c, now_ms, out);
}
