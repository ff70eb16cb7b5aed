/* Events for people: who came, who is lost, notices, pauses, the state of the job. They tell and never steer; the
 * schema says what each number means. */
#include "run/coord_internal.h"

#include "base/planted.h"

#include <stdio.h>
#include <string.h>

/* ---- who is here ---- */

void tm_coord__tell_arrival(struct tm_coordinator *c, struct known *k, struct tm_outbox *out)
{
    bool told = k->told_here == k->peer.incarnation && !TM_PLANTED(arrival_twice);
    if (told || tm_coord__ended(c)) return; /* it was here before this coordinator was */
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__ArrivalEvent body = TMW__ARRIVAL_EVENT__INIT;
    body.instance = tm_coord__place(c, k->peer.id);
    body.worker = k->peer.id;
    body.incarnation = k->peer.incarnation;
    body.again = k->was_here;
    body.anchor = k->anchor;
    event.body_case = TMW__RECORD_EVENT__BODY_ARRIVAL;
    event.arrival = &body;
    k->told_here = k->peer.incarnation;
    k->was_here = true;
    tm_coord__record(c, &event, false, out);
}

void tm_coord__tell_loss(struct tm_coordinator *c, int64_t now_ms, struct known *k, bool dead, bool seated,
                         struct tm_outbox *out)
{
    if (k->told_here == 0) return;
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__LossEvent body = TMW__LOSS_EVENT__INIT;
    const Tmw__Instance *instance = tm_coord__instance_of(c, k->peer.id);
    body.instance = tm_coord__place(c, k->peer.id);
    body.worker = k->peer.id;
    body.incarnation = k->told_here;
    body.announced = tm_coord__noticed(c, k, now_ms) || (instance != NULL && instance->announced);
    body.silent = !dead;
    body.seated = seated;
    event.body_case = TMW__RECORD_EVENT__BODY_LOSS;
    event.loss = &body;
    k->told_here = 0;
    bool expected = tm_coord__ended(c) || (instance != NULL && instance->released);
    if (!expected) tm_coord__record(c, &event, false, out);
}

void tm_coord__tell_notice(struct tm_coordinator *c, int64_t now_ms, struct known *k, struct tm_outbox *out)
{
    bool noticed = k->noticed || k->cloud_noticed;
    if (noticed == k->told_notice) return;
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__NoticeEvent body = TMW__NOTICE_EVENT__INIT;
    int64_t end_ms = k->noticed ? k->notice_end_ms : k->cloud_notice_end_ms;
    body.instance = tm_coord__place(c, k->peer.id);
    if (noticed && end_ms > now_ms) body.left_ms = (uint64_t)(end_ms - now_ms);
    body.taken_back = !noticed;
    event.body_case = TMW__RECORD_EVENT__BODY_NOTICE;
    event.notice = &body;
    k->told_notice = noticed;
    bool first = k->peer.id == tm_worker_of_instance(body.instance, 0, c->options.workers); /* once for them all */
    if (first) tm_coord__record(c, &event, false, out);
}

/* What the record says of who was here, so that nobody arrives or is lost twice. */
int tm_coord__load_here(struct tm_coordinator *c, const Tmw__RecordEvent *event, struct tm_error *e)
{
    bool arrival = event->body_case == TMW__RECORD_EVENT__BODY_ARRIVAL;
    uint64_t worker = arrival ? event->arrival->worker : event->loss->worker;
    uint64_t id = worker != 0 ? worker : arrival ? event->arrival->instance : event->loss->instance;
    struct known *k = tm_coord__find(c, TM_ROLE_WORKER, id);
    if (k == NULL) k = tm_coord__add(c, TM_ROLE_WORKER, id);
    if (k == NULL) return tm_error_nomem(e);
    k->was_here = true;
    k->told_here = arrival ? event->arrival->incarnation : 0;
    return 0;
}

/* ---- pauses ---- */

/* A step was committed `ago_ms` ago, says a worker's heartbeat or report. */
void tm_coord__commit_heard(struct tm_coordinator *c, int64_t now_ms, uint64_t applied, uint64_t ago_ms)
{
    if (applied == 0 || ago_ms > (uint64_t)INT64_MAX / 2) return;
    int64_t at_ms = now_ms - (int64_t)ago_ms;
    if (!c->commit_known || at_ms > c->commit_ms) c->commit_ms = at_ms;
    c->commit_known = true;
}

/* The generation starts: its first commit will end the pause since the last one. */
void tm_coord__pause_begin(struct tm_coordinator *c)
{
    c->pause.open = c->commit_known && c->generations_started > 1;
    c->pause.since_ms = c->commit_ms;
    c->pause.cause = c->change_cause;
    c->pause.step_ms = c->told_step_ms;
    c->change_cause = TM_CHANGED_NONE;
}

void tm_coord__pause_end(struct tm_coordinator *c, int64_t now_ms, const Tmw__Heartbeat *body, struct tm_outbox *out)
{
    if (!c->pause.open || body->applied <= c->base) return;
    /* Where the first commit's own heartbeat was lost, later steps took their time since. */
    uint64_t later_ms = (body->applied - c->base - 1) * body->step_ms + body->applied_ago_ms;
    int64_t at_ms = now_ms - (later_ms < (uint64_t)INT64_MAX / 2 ? (int64_t)later_ms : 0);
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__PauseEvent pause = TMW__PAUSE_EVENT__INIT;
    pause.generation = c->generation;
    pause.pause_ms = at_ms > c->pause.since_ms ? (uint64_t)(at_ms - c->pause.since_ms) : 0;
    pause.cause = c->pause.cause;
    pause.step_ms = c->pause.step_ms;
    pause.ago_ms = (uint64_t)(now_ms - at_ms);
    event.body_case = TMW__RECORD_EVENT__BODY_PAUSE;
    event.pause = &pause;
    c->pause.open = false;
    tm_coord__record(c, &event, false, out);
}

/* ---- the coordinator and the job ---- */

void tm_coord__tell_restart(struct tm_coordinator *c, bool rebuilt, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__RestartEvent body = TMW__RESTART_EVENT__INIT;
    body.generation = c->generation;
    body.rebuilt = rebuilt;
    event.body_case = TMW__RECORD_EVENT__BODY_RESTART;
    event.restart = &body;
    tm_coord__record(c, &event, false, out);
}

enum tm_job_state tm_coord__state(const struct tm_coordinator *c)
{
    if (c->phase == TM_COORDINATOR_FINISHED) return TM_JOB_FINISHED;
    if (c->phase == TM_COORDINATOR_FAILED) return TM_JOB_FAILED;
    if (c->phase == TM_COORDINATOR_STOPPED) return TM_JOB_STOPPED;
    if (c->stop_wanted) return TM_JOB_STOPPING;
    if (c->generations_started == 0 || c->resumed) return TM_JOB_STARTING;
    return c->starved ? TM_JOB_WAITING : TM_JOB_TRAINING;
}

void tm_coord__record_state(struct tm_coordinator *c, bool sync, struct tm_outbox *out)
{
    enum tm_job_state state = tm_coord__state(c);
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__StateEvent body = TMW__STATE_EVENT__INIT;
    char reason[TM_MESSAGE_STRING_MAX + 1];
    bool stops = state == TM_JOB_STOPPING || state == TM_JOB_STOPPED;
    const char *why = state == TM_JOB_FAILED ? c->failure : stops ? c->stop_reason : "";
    (void)snprintf(reason, sizeof reason, "%s", state == TM_JOB_WAITING ? c->waiting : why);
    body.state = state;
    body.reason = reason;
    body.step = state == TM_JOB_STOPPED ? c->stopped_step : c->applied;
    body.quiet = state == TM_JOB_STOPPED && c->stopped_quiet;
    body.gave_up = state == TM_JOB_STOPPED && c->gave_up;
    event.body_case = TMW__RECORD_EVENT__BODY_STATE;
    event.state = &body;
    c->told_state = state;
    c->told_state_known = true;
    tm_coord__record(c, &event, sync, out);
}

/* Once for each state: short waits between two ticks are nobody's business. */
void tm_coord__tell_state(struct tm_coordinator *c, struct tm_outbox *out)
{
    if (!c->told_state_known || tm_coord__state(c) != c->told_state) tm_coord__record_state(c, false, out);
}

/* Once when a pool begins to refuse, and once when it has room again. */
void tm_coord__tell_refusals(struct tm_coordinator *c, const Tmw__CloudReport *report, struct tm_outbox *out)
{
    for (uint32_t i = 0; i < report->n_pools && i < TM_RUN_POOLS_MAX; i++) {
        bool refuses = report->pools[i]->refused > 0;
        bool chosen = c->cloud.pools_told && i < c->options.pools;
        bool said = c->told_refused[i] || report->pools[i]->why[0] != '\0'; /* a job without a choice: what has words */
        if (refuses == c->told_refused[i] || !(chosen || said)) continue;
        Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
        Tmw__RefusalEvent body = TMW__REFUSAL_EVENT__INIT;
        body.pool = i;
        body.missing = report->pools[i]->refused;
        body.why = refuses ? report->pools[i]->why : body.why;
        event.body_case = TMW__RECORD_EVENT__BODY_REFUSAL;
        event.refusal = &body;
        c->told_refused[i] = refuses;
        tm_coord__record(c, &event, false, out);
    }
}

void tm_coord__keep_hint(struct tm_coordinator *c, uint64_t instance)
{
    c->told_hints[c->told_hint_count++ % HINTS_KEPT] = instance;
}

/* Each instance's once: reports repeat it as long as the instance is there. */
void tm_coord__tell_hints(struct tm_coordinator *c, const Tmw__CloudReport *report, struct tm_outbox *out)
{
    for (size_t i = 0; i < report->n_hints; i++) {
        bool told = false;
        for (size_t k = 0; k < c->told_hint_count && k < HINTS_KEPT; k++)
            told = told || c->told_hints[k] == report->hints[i]->instance;
        if (told) continue;
        Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
        event.body_case = TMW__RECORD_EVENT__BODY_HINT;
        event.hint = report->hints[i];
        tm_coord__keep_hint(c, report->hints[i]->instance);
        tm_coord__record(c, &event, false, out);
    }
}

void tm_coord__keep_zone(struct tm_coordinator *c, uint32_t zone)
{
    c->told_zones[c->told_zone_count++ % ZONES_KEPT] = zone;
}

/* Each zone's name once: reports repeat it. */
void tm_coord__tell_zones(struct tm_coordinator *c, const Tmw__CloudReport *report, struct tm_outbox *out)
{
    for (size_t i = 0; i < report->n_zones; i++) {
        bool told = false;
        for (size_t k = 0; k < c->told_zone_count && k < ZONES_KEPT; k++)
            told = told || c->told_zones[k] == report->zones[i]->zone;
        if (told) continue;
        Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
        event.body_case = TMW__RECORD_EVENT__BODY_ZONE;
        event.zone = report->zones[i];
        tm_coord__keep_zone(c, report->zones[i]->zone);
        tm_coord__record(c, &event, false, out);
    }
}

void tm_coord__tell_rent(struct tm_coordinator *c, struct tm_outbox *out)
{
    bool same = c->told_spot == c->want_spot && c->told_on_demand == c->want_on_demand &&
                memcmp(c->told_want, c->want, sizeof c->want) == 0;
    if (!c->rents || (c->told_rent && same)) return;
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__RentEvent body = TMW__RENT_EVENT__INIT;
    body.want_spot = c->want_spot;
    body.want_on_demand = c->want_on_demand;
    body.want = c->want;
    body.n_want = c->options.pools;
    event.body_case = TMW__RECORD_EVENT__BODY_RENT;
    event.rent = &body;
    c->told_rent = true;
    c->told_spot = c->want_spot;
    c->told_on_demand = c->want_on_demand;
    memcpy(c->told_want, c->want, sizeof c->want);
    tm_coord__record(c, &event, false, out);
}
