/* Orders of people: each is put into the record, synced, and then holds for this coordinator and for those after it.
 * Limits are facts of the next decision. An instance that is to go is treated as one that the policy gives back: its
 * seat moves, what only it holds is copied, then it is released; another one is rented first, so that a job that needs
 * all it has goes on. A copy is owed until a set of the step then, or a later one, is whole. */
#include "run/coord_internal.h"

static int check_deadline(const struct tm_coordinator *c, uint64_t deadline_ms, struct tm_error *e)
{
    double passed_s = (double)(c->utc_ms - c->job_utc_ms) / 1000 * (c->cloud.heard ? c->cloud.speed : 1);
    if (deadline_ms == 0 || (double)deadline_ms / 1000 > passed_s) return 0;
    return tm_error_set(e, TM_EINPUT,
                        "the job began %.3g h ago, and the deadline counts from there; give a later one than %.3g h",
                        passed_s / 3600, (double)deadline_ms / 3.6e6);
}

static int check_budget(const struct tm_coordinator *c, uint64_t budget_microusd, struct tm_error *e)
{
    uint64_t bill = tm_coord__spent(c);
    if (budget_microusd == 0 || budget_microusd > bill) return 0;
    return tm_error_set(e, TM_EINPUT,
                        "the job has cost $%.2f, so a budget of $%.2f would stop it at once; to do that, stop it",
                        (double)bill / 1e6, (double)budget_microusd / 1e6);
}

static int check_copy(const struct tm_coordinator *c, struct tm_error *e)
{
    if (c->options.copies > 0 || c->options.copies_to_files) return 0;
    return tm_error_set(e, TM_EBUSY, "this job makes no copies");
}

static int drain(struct tm_coordinator *c, uint64_t id, struct tm_error *e)
{
    const Tmw__Instance *instance = tm_coord__instance(c, id);
    if (instance == NULL || instance->end_ms != 0)
        return tm_error_set(e, TM_ENOTFOUND, "there is no instance %llu here; the status lists those that are",
                            (unsigned long long)id);
    if (tm_coord__drain_instance(c, instance)) return 0;
    return tm_error_set(e, TM_ELIMIT, "%d instances are to go already; wait until some have", RELEASES_MAX);
}

static void record(struct tm_coordinator *c, const struct tm_steer_order *order, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__SteerEvent body = TMW__STEER_EVENT__INIT;
    body.what = order->what;
    body.step = c->applied;
    if (order->what == TM_STEER_DEADLINE) body.deadline_ms = order->value;
    if (order->what == TM_STEER_BUDGET) body.budget_microusd = order->value;
    if (order->what == TM_STEER_DRAIN) body.instance = order->value;
    event.body_case = TMW__RECORD_EVENT__BODY_STEER;
    event.steer = &body;
    tm_coord__record(c, &event, true, out);
    tm_coord__load_steer(c, &body);
}

int tm_coordinator__steer(struct tm_coordinator *c, const struct tm_steer_order *order, struct tm_outbox *out,
                          struct tm_error *e)
{
    int rc = 0;
    if (tm_coord__ended(c) || c->stop_wanted) return tm_error_set(e, TM_EBUSY, "the job is about to end, or has ended");
    if (tm_coord__stuck(c)) return tm_error_set(e, TM_EFULL, "the record cannot be written now: %s", c->stuck_why);
    switch (order->what) {
    case TM_STEER_DEADLINE:
        rc = check_deadline(c, order->value, e);
        break;
    case TM_STEER_BUDGET:
        rc = check_budget(c, order->value, e);
        break;
    case TM_STEER_DRAIN:
        rc = drain(c, order->value, e);
        break;
    case TM_STEER_COPY:
        rc = check_copy(c, e);
        break;
    }
    if (rc == 0) record(c, order, out);
    return rc;
}

/* Also what the record says when a coordinator begins: an order is obeyed the same way then. */
void tm_coord__load_steer(struct tm_coordinator *c, const Tmw__SteerEvent *body)
{
    struct steered *s = &c->steered;
    const Tmw__Instance *instance = NULL;
    switch ((enum tm_steer)body->what) {
    case TM_STEER_DEADLINE:
        s->limits.deadline_set = true;
        s->limits.deadline_s = (double)body->deadline_ms / 1000;
        break;
    case TM_STEER_BUDGET:
        s->limits.budget_set = true;
        s->limits.budget_usd = (double)body->budget_microusd / 1e6;
        break;
    case TM_STEER_DRAIN:
        instance = tm_coord__instance(c, body->instance);
        if (instance != NULL && instance->end_ms == 0) (void)tm_coord__drain_instance(c, instance);
        break;
    case TM_STEER_COPY:
        s->copy = true;
        s->copy_step = body->step;
        break;
    }
}

void tm_coord__steer_copied(struct tm_coordinator *c, uint64_t step)
{
    if (step >= c->steered.copy_step) c->steered.copy = false;
}

void tm_coord__steer_copy_failed(struct tm_coordinator *c, struct tm_outbox *out)
{
    c->steered.copy = false;
    tm_coord__note(c, "the copy that was ordered has no place: no other worker is here, and none go to files", 0, 0,
                   out);
}
