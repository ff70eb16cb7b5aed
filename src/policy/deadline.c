#include "policy/deadline.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Times closer than this are the same: they come out of sums of seconds. */
static const double SAME_S = 1e-6;
/* Uniform progress leaves on-demand only this far ahead of its line, even where a switch costs nothing. */
static const double MARGIN_LEAST_S = 60;

static double left_s(const struct tm_deadline_view *view)
{
    return view->terms->work_s - view->done_s;
}

static double raw_slack_s(const struct tm_deadline_view *view)
{
    return view->terms->deadline_s - view->now_s - left_s(view);
}

static struct tm_deadline_decision go(enum tm_gang_on on)
{
    return (struct tm_deadline_decision){.go = on, .until_s = INFINITY};
}

static struct tm_deadline_decision on_demand(const struct tm_deadline_view *view)
{
    (void)view;
    return go(TM_GANG_ON_DEMAND);
}

static struct tm_deadline_decision greedy(const struct tm_deadline_view *view)
{
    if (view->on == TM_GANG_ON_DEMAND) return go(TM_GANG_ON_DEMAND);
    return go(view->spot ? TM_GANG_SPOT : TM_GANG_NOTHING);
}

/* Keep progress at or above elapsed/deadline of the work; spot whenever there is spot; on demand when behind and there
 * is none; leave on-demand only when ahead by the switching cost. */
static struct tm_deadline_decision uniform_progress(const struct tm_deadline_view *view)
{
    double pace = view->terms->work_s / view->terms->deadline_s;
    double ahead_s = view->done_s - pace * view->now_s;
    if (view->on == TM_GANG_ON_DEMAND) {
        double short_s = fmax(view->terms->restart_s, MARGIN_LEAST_S) - ahead_s;
        if (short_s > SAME_S && pace >= 1) return go(TM_GANG_ON_DEMAND);
        double until_s = view->now_s + (short_s + view->restart_left_s) / (1 - pace);
        if (short_s > SAME_S) return (struct tm_deadline_decision){.go = TM_GANG_ON_DEMAND, .until_s = until_s};
    }
    if (view->spot) return go(TM_GANG_SPOT);
    if (ahead_s <= SAME_S) return go(TM_GANG_ON_DEMAND);
    return (struct tm_deadline_decision){.go = TM_GANG_NOTHING, .until_s = view->done_s / pace};
}

/* The cheapest in expectation. A spot gang is kept while it is there: it is the cheapest way to work. It is launched
 * only if a loss in its restart can still be made good. */
static struct tm_deadline_decision tidemill(const struct tm_deadline_view *view)
{
    if (view->on == TM_GANG_SPOT && view->spot) return go(TM_GANG_SPOT);
    if (view->on != TM_GANG_NOTHING && view->restart_left_s > 0) return go(view->on);
    double slack_s = raw_slack_s(view);
    struct tm_deadline_costs costs =
        tm_deadline_values__costs(view->values, view->spells, view->on, left_s(view), slack_s);
    struct tm_deadline_decision best = go(TM_GANG_ON_DEMAND);
    bool safe = slack_s >= tm_deadline_spot_launch_s(view->terms) + tm_deadline_launch_s(view->terms);
    if (view->spot && safe &&
        costs.spot_usd < costs.on_demand_usd) /* spot that comes later is no better: do not wait */
        best.go = TM_GANG_SPOT;
    else if (costs.wait_usd < costs.on_demand_usd)
        best.go = TM_GANG_NOTHING;
    if (best.go != TM_GANG_SPOT) best.until_s = view->now_s + tm_deadline_values__step_s(view->values);
    return best;
}

static struct tm_deadline_decision oracle(const struct tm_deadline_view *view)
{
    const struct tm_gang_plan *plan = view->plan;
    size_t i = tm_gang_plan__at(plan, view->now_s);
    struct tm_deadline_decision decision = go(plan->stretches[i].on);
    if (i + 1 < plan->count) decision.until_s = plan->stretches[i + 1].start_s;
    return decision;
}

const struct tm_deadline_policy tm_deadline_policies[] = {
    {"on-demand", "only on-demand instances", false, false, on_demand},
    {"greedy", "spot when available, else wait; switches to on-demand for good when the slack runs out", false, false,
     greedy},
    {"uniform-progress", "spot when available; on-demand when it is not and the job is behind an even pace", false,
     false, uniform_progress},
    {"oracle-deadline", "the cheapest possible, knowing the whole trace: a bound", true, false, oracle},
    {"tidemill", "the lowest expected cost, given what was learned about spot availability", false, true, tidemill},
    {0}};

const struct tm_deadline_policy *tm_deadline_policy_find(const char *name)
{
    for (const struct tm_deadline_policy *policy = tm_deadline_policies; policy->name != NULL; policy++) {
        if (strcmp(policy->name, name) == 0) return policy;
    }
    return NULL;
}

struct tm_deadline_decision tm_deadline_decide(const struct tm_deadline_policy *policy,
                                               const struct tm_deadline_view *view)
{
    struct tm_deadline_decision decision = policy->decide(view);
    assert(decision.go != TM_GANG_SPOT || view->spot);
    if (policy->knows_all) return decision;
    /* A spot gang that works keeps the slack it has: it may stay at the line until it is lost. */
    bool working_spot = view->on == TM_GANG_SPOT && view->spot && view->restart_left_s <= SAME_S;
    double room_s = raw_slack_s(view) - tm_deadline_launch_s(view->terms);
    if (room_s <= SAME_S && !(working_spot && room_s >= -SAME_S)) return go(TM_GANG_ON_DEMAND);
    bool eats_slack = decision.go == TM_GANG_NOTHING || (decision.go == TM_GANG_SPOT && !working_spot);
    if (eats_slack) decision.until_s = fmin(decision.until_s, view->now_s + room_s);
    return decision;
}
