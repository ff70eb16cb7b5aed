/* When a job is given up: its workers end by themselves again and again, and no new step comes of it.
 *
 * Counted are tries, not processes: a mistake that all workers make ends all of them at once, and a passing trouble
 * may, too. A try has failed when a worker ends that was started after the last try had failed. What an instance that
 * goes, an order or somebody's kill ends is no failure (its agent says which). Only a step above all before sets the
 * count back: a job that dies at the same step every time gets nowhere, though it does earlier steps again.
 *
 * While some machine has not failed since the last new step, the fault may be one machine's alone: then there are more
 * tries, and one that was refused counts for nothing. Where nobody else is here, refusals are counted apart, in
 * tries as well, and need as many: others may come. While the cloud has yet to give some that are wanted, they do
 * come, and a machine that cannot train says nothing about the job.
 *
 * A program that ends with status 0 before the job does, and never joined it, is none of ours (a script without the
 * package, say). It would do the same again: where all machines' have ended so, the job fails at once. */
#include "base/end_words.h"
#include "run/coord_internal.h"

#include <stdio.h>

enum { TRIES_OF_ONE_MACHINE = 4 }; /* times as many */

void tm_coord__progress_made(struct tm_coordinator *c, uint64_t step)
{
    if (step > c->highest) c->highest = step;
    if (c->highest > c->failed_step) c->refusals = 0;
    if (c->failures == 0 || c->highest <= c->failed_step) return;
    c->failures = 0;
    c->failures_past++;
}

/* Was the worker started after the last try had failed? `last_ms`: when that was. */
static bool is_new_try(int64_t now_ms, const Tmw__AgentHeartbeat *heard, uint32_t tries, int64_t last_ms)
{
    int64_t ago_ms = (int64_t)(heard->ended_ago_ms & INT32_MAX) + (int64_t)(heard->ended_ran_ms & INT32_MAX);
    return tries == 0 || now_ms - ago_ms > last_ms;
}

/* Is there a machine whose worker has not failed since the last new step? */
static bool others_are_well(const struct tm_coordinator *c)
{
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        if (k->peer.role == TM_ROLE_AGENT && k->registered && k->failed_in != c->failures_past + 1) return true;
    }
    return false;
}

static bool is_among(const uint64_t incarnations[FAILURES_KEPT], uint64_t incarnation)
{
    for (size_t i = 0; i < FAILURES_KEPT; i++)
        if (incarnations[i] == incarnation) return true;
    return false;
}

static void record_failure(struct tm_coordinator *c, uint64_t id, const Tmw__AgentHeartbeat *heard, uint32_t limit,
                           struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__FailureEvent body = TMW__FAILURE_EVENT__INIT;
    body.instance = id;
    body.incarnation = heard->ended_incarnation;
    body.status = heard->ended_status;
    body.failures = c->failures;
    body.failures_max = limit;
    body.step = c->failed_step;
    event.body_case = TMW__RECORD_EVENT__BODY_FAILURE;
    event.failure = &body;
    tm_coord__record(c, &event, !c->stuck, out);
}

/* With what its agent told of the worker's end. */
static void fail_by(struct tm_coordinator *c, int64_t now_ms, uint64_t id, const char *reason,
                    const Tmw__AgentHeartbeat *heard, struct tm_outbox *out)
{
    struct why_failed why = {.reason = reason,
                             .worker = id,
                             .step = c->highest + 1,
                             .lines = heard->ended_lines,
                             .line_count = heard->n_ended_lines,
                             .file = heard->ended_file};
    tm_coord__fail(c, now_ms, &why, out);
}

static void give_up(struct tm_coordinator *c, int64_t now_ms, uint64_t id, uint32_t failures,
                    const Tmw__AgentHeartbeat *heard, struct tm_outbox *out)
{
    char ended[TM_END_WORDS_MAX];
    char reason[TM_MESSAGE_STRING_MAX + 1];
    (void)snprintf(reason, sizeof reason, "worker %llu %s; %u %s without a new step", (unsigned long long)id,
                   tm_end_words(heard->ended_status, ended), failures, failures == 1 ? "failure" : "failures");
    fail_by(c, now_ms, id, reason, heard, out);
}

/* Without a record nobody knows who took part. */
static bool took_part(const struct tm_coordinator *c, const struct known *worker, uint64_t incarnation)
{
    return c->generation >> 32 != 0 || (worker != NULL && worker->peer.incarnation == incarnation);
}

static void fail_done(struct tm_coordinator *c, int64_t now_ms, uint64_t id, const Tmw__AgentHeartbeat *heard,
                      struct tm_outbox *out)
{
    char reason[TM_MESSAGE_STRING_MAX + 1];
    (void)snprintf(reason, sizeof reason,
                   "worker %llu ended with status 0 and never joined the job: does the program use libtidemill, or "
                   "tidemill.torch and its loop?",
                   (unsigned long long)id);
    fail_by(c, now_ms, id, reason, heard, out);
}

/* All workers of an instance with another job file are refused: one try, however many they are. */
static void count_refusal(struct tm_coordinator *c, int64_t now_ms, uint64_t id, const Tmw__AgentHeartbeat *heard,
                          struct tm_outbox *out)
{
    uint32_t limit = c->options.failures_max * TRIES_OF_ONE_MACHINE;
    if (!is_new_try(now_ms, heard, c->refusals, c->refusal_ms)) return;
    c->refusals++;
    c->refusal_ms = now_ms;
    if (limit > 0 && c->refusals >= limit) give_up(c, now_ms, id, c->refusals, heard, out);
}

void tm_coord__worker_failed(struct tm_coordinator *c, int64_t now_ms, uint64_t id, const Tmw__AgentHeartbeat *body,
                             struct tm_outbox *out)
{
    const struct known *worker = tm_coord__find(c, TM_ROLE_WORKER, id);
    if (!body->ended_failed || body->ended_incarnation == 0 || is_among(c->failed, body->ended_incarnation)) return;
    if (body->ended_status == 0 && took_part(c, worker, body->ended_incarnation)) return;
    c->failed[c->failed_next++ % FAILURES_KEPT] = body->ended_incarnation;
    bool goes = worker != NULL && tm_coord__noticed(c, worker, now_ms);
    const Tmw__Instance *instance = tm_coord__instance_of(c, id);
    goes = goes || tm_coord__releasing(c, tm_coord__place(c, id)) || (instance != NULL && instance->end_ms != 0);
    if (goes || c->stop_wanted || tm_coord__ended(c)) return;
    if (c->stuck) return; /* nothing can come of a try while the disk is full */
    struct known *agent = tm_coord__find(c, TM_ROLE_AGENT, id);
    if (agent != NULL) agent->failed_in = c->failures_past + 1;
    bool alone = others_are_well(c);
    if (body->ended_status == 0) {
        if (!alone && c->options.failures_max > 0) fail_done(c, now_ms, id, body, out);
        return;
    }
    if (is_among(c->refused, body->ended_incarnation)) {
        if (!alone && !tm_coord__more_come(c)) count_refusal(c, now_ms, id, body, out);
        return;
    }
    if (is_new_try(now_ms, body, c->failures, c->failed_ms)) {
        c->failures++;
        c->failed_ms = now_ms;
        c->failed_step = c->highest;
    }
    uint32_t limit = c->options.failures_max * (alone ? TRIES_OF_ONE_MACHINE : 1);
    record_failure(c, id, body, limit, out);
    if (limit > 0 && c->failures >= limit) give_up(c, now_ms, id, c->failures, body, out);
}

void tm_coord__load_failure(struct tm_coordinator *c, const Tmw__FailureEvent *body)
{
    c->failed[c->failed_next++ % FAILURES_KEPT] = body->incarnation;
    tm_coord__progress_made(c, body->step);
    c->failures = body->failures;
    c->failed_step = body->step;
}

/* The fault is mended, says who wants it to go on. Should we end now, the next coordinator knows by the state. */
void tm_coord__try_again(struct tm_coordinator *c, struct tm_outbox *out)
{
    c->failures = 0;
    if (c->failure[0] == '\0' || c->loaded_finished) return;
    c->failure[0] = '\0';
    c->resumed = true;
    tm_coord__record_state(c, !c->stuck, out);
}
