/* From facts to a decision: the forecast, the policy's own part, and what is common to all policies: how many instances
 * to have, when to copy, when to stop. */
#include "policy/policy_internal.h"

#include "policy/copy_interval_internal.h"
#include "policy/rent_internal.h"

#include <math.h>
#include <string.h>

static const double slowed_by_copies = 0.1; /* share of training's speed while a set is copied */
static const double exposed_s = 10;     /* on the workers' clocks, from a loss until its stage has a replica again */
static const double least_uneven = 1.1; /* by less, nobody is slow */
static const double shares_margin = 2;  /* what is gained must be so many times what it costs */
static const double least_until_s = 1;  /* nobody is asked to come back sooner */

/* ---- the forecast ---- */

int tm_policy_observe(struct tm_policy *policy, int count, int arrived, int lost, struct tm_error *e)
{
    if (policy->forecaster != NULL) {
        int rc = tm_forecaster_observe(policy->forecaster, count, arrived, lost, e);
        if (rc != 0) return rc;
    }
    policy->observed = count;
    policy->observations++;
    policy->forecast_fresh = false;
    return 0;
}

void tm_policy_hint(struct tm_policy *policy, int losing, double in_s)
{
    if (policy->forecaster == NULL || policy->observations == 0) return;
    double steps = ceil(in_s / policy->options.interval_s);
    tm_forecaster_hint(policy->forecaster, TM_FORECAST_NOTICE, losing,
                       steps > TM_FORECAST_STEPS_MAX ? TM_FORECAST_STEPS_MAX : (int)steps);
    policy->forecast_fresh = false;
}

int tm_policy_observed(const struct tm_policy *policy)
{
    return policy->observations;
}

/* Would it take too long in a run to look through a forecast? */
static bool takes_long(const struct tm_policy *policy)
{
    const struct tm_layouts *layouts = policy->layouts;
    return policy->options.live && layouts->instances_max > TM_POLICY_LIVE_MAX &&
           layouts->instances_max * layouts->stages_max > TM_POLICY_LIVE_PLACES_MAX;
}

/* Made once from what was learned: of Parcae's, each call draws random numbers. */
static int foresee(struct tm_policy *policy, const struct tm_forecast **out, struct tm_error *e)
{
    *out = NULL;
    if (policy->forecaster == NULL || policy->observations == 0) return 0;
    if (policy->info->knows == TM_KNOWS_EVENT && takes_long(policy)) return 0;
    if (!policy->forecast_fresh) {
        int rc = tm_forecaster_predict(policy->forecaster, policy->options.horizon, &policy->forecast, e);
        if (rc != 0) return rc;
        policy->forecast_fresh = true;
    }
    *out = &policy->forecast;
    return 0;
}

/* ---- what the policy sees ---- */

/* This moment's event, as far as it is told, and then no change; or the forecast's path. */
static void look_ahead(struct tm_policy *policy, const struct tm_facts *facts, struct tm_view *view)
{
    int horizon = policy->options.horizon;
    double interval_s = policy->options.interval_s;
    view->ahead = policy->steps;
    view->ahead_count = (size_t)horizon;
    if (policy->info->knows == TM_KNOWS_PAST) { /* nothing is known before the first interval: no change */
        int path[TM_FORECAST_STEPS_MAX];
        for (int i = 0; i < horizon; i++)
            path[i] = view->forecast != NULL ? view->forecast->steps[i].point : facts->after;
        tm_policy_ahead_of_path(policy->layouts, interval_s, path, (size_t)horizon, facts->before, policy->steps);
        return;
    }
    policy->steps[0] = (struct tm_ahead){interval_s, facts->before, facts->lost, facts->after};
    if (facts->ahead_count > 0) policy->steps[0] = facts->ahead[0];
    for (int i = 1; i < horizon; i++)
        policy->steps[i] = (struct tm_ahead){interval_s, policy->steps[0].after, 0, policy->steps[0].after};
}

/* What on-demand instances cost and take to start, and what the spot ones cost. */
static void see_prices(const struct tm_facts *facts, struct tm_view *view)
{
    double spot_usd_h = 0, spot = 0;
    view->on_demand_usd_h = NAN;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (pool->role != TM_POOL_TRAINS) continue;
        if (pool->market == TM_POOL_ON_DEMAND) {
            view->start_s = pool->start_s;
            view->on_demand_usd_h = fmin(view->on_demand_usd_h, pool->price_usd_h); /* the number, where one is NaN */
        } else if (pool->here + pool->ordered > 0) {
            spot += pool->here + pool->ordered;
            spot_usd_h += (pool->here + pool->ordered) * pool->price_usd_h;
        }
    }
    view->spot_usd_h = spot > 0 ? spot_usd_h / spot : NAN;
}

static int make_view(struct tm_policy *policy, const struct tm_facts *facts, struct tm_view *view, struct tm_error *e)
{
    int on_demand = tm_facts__here(facts, TM_POOL_ON_DEMAND, TM_POOL_TRAINS);
    bool told = policy->info->knows != TM_KNOWS_PAST;
    *view = (struct tm_view){.standing = facts->standing,
                             .first = facts->first,
                             .event = told && facts->event,
                             .before = facts->before,
                             .lost = told ? facts->lost : 0,
                             .after = told ? facts->after : facts->before,
                             .noticed = facts->noticed,
                             .interval_s = policy->options.interval_s,
                             .observed = policy->observations,
                             .forecast_from = policy->observed,
                             .on_demand = on_demand < facts->after ? on_demand : facts->after,
                             .ordered = tm_facts__ordered(facts, TM_POOL_ON_DEMAND, TM_POOL_TRAINS),
                             .spot_ordered = tm_facts__ordered(facts, TM_POOL_SPOT, TM_POOL_TRAINS),
                             .start_s = policy->cost->start_s,
                             .choices = facts->choices,
                             .has_deadline = facts->limits.has_deadline,
                             .samples_left = facts->progress.samples_left * policy->slower,
                             .seconds_left = facts->limits.seconds_left,
                             .efficiency = facts->progress.efficiency};
    see_prices(facts, view);
    bool given = facts->ahead_count > 0 && !(policy->info->knows == TM_KNOWS_EVENT);
    int rc = given && policy->info->knows == TM_KNOWS_PAST ? 0 : foresee(policy, &view->forecast, e);
    if (rc != 0) return rc;
    if (given) {
        view->ahead = facts->ahead;
        view->ahead_count = facts->ahead_count;
    } else {
        look_ahead(policy, facts, view);
    }
    return 0;
}

/* Speeds are predictions until steps have been seen. */
static void learn_speed(struct tm_policy *policy, const struct tm_facts *facts)
{
    double predicted_s = policy->layouts->list[facts->standing.layout].step_s;
    if (facts->progress.step_s > 0 && predicted_s > 0) policy->slower = facts->progress.step_s / predicted_s;
}

/* ---- how many instances, and for how long ---- */

static double price_of(const struct tm_facts *facts, enum tm_pool_market market)
{
    for (int i = 0; i < facts->pool_count; i++)
        if (facts->pools[i].market == market) return facts->pools[i].price_usd_h;
    return NAN;
}

/* On-demand instances fill the room that spot ones leave: none of those is given back for them. */
static int room_beside_spot(const struct tm_facts *facts)
{
    int room = facts->limits.workers_max - tm_facts__here(facts, TM_POOL_SPOT, TM_POOL_TRAINS) -
               tm_facts__ordered(facts, TM_POOL_SPOT, TM_POOL_TRAINS);
    for (int i = 0; facts->first && i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (pool->market != TM_POOL_SPOT) continue;
        /* before any was asked for, nobody may know how many there are: they come first */
        bool unknown = pool->offered < 0 && pool->here == 0 && pool->ordered == 0 && facts->now_s <= pool->start_s;
        room -= unknown ? facts->limits.workers_max : pool->offered > 0 ? pool->offered : 0;
    }
    return room > 0 ? room : 0;
}

static void rent(const struct tm_policy *policy, const struct tm_facts *facts, struct tm_decision *out)
{
    const struct tm_facts_limits *limits = &facts->limits;
    double samples_per_s = policy->layouts->list[out->layout].samples_per_s * out->pace;
    double samples_left = facts->progress.samples_left * policy->slower;
    int room = room_beside_spot(facts);
    struct tm_rent_view asked = {
        .workers_max = limits->workers_max,
        .anchors = limits->anchors,
        .anchors_train = limits->anchors_train,
        .on_demand = policy->info->on_demand      ? limits->workers_max
                     : out->want_on_demand < room ? out->want_on_demand
                                                  : room,
        .spot_usd_h = price_of(facts, TM_POOL_SPOT),
        .on_demand_usd_h = price_of(facts, TM_POOL_ON_DEMAND),
        .bill_usd = limits->bill_usd,
        .budget_usd = limits->budget_usd > 0 ? limits->budget_usd : INFINITY,
        .hours_left = samples_per_s > 0 && isfinite(samples_left) ? samples_left / samples_per_s / 3600 : NAN};
    struct tm_rent rent = tm_rent__decide(&asked);
    out->rents = limits->workers_max > 0;
    out->want_spot = rent.spot;
    out->want_on_demand = rent.on_demand;
    out->stop = rent.stop;
    if (rent.stop || !(limits->budget_usd > 0)) return;
    double usd_h = tm_facts__usd_h(facts);
    double left_h = usd_h > 0 ? tm_rent__left_usd(limits->budget_usd, limits->bill_usd) / usd_h : INFINITY;
    out->until_s = fmin(out->until_s, facts->now_s + fmax(least_until_s, left_h * 3600));
}

/* ---- pools ---- */

void tm_policy_observe_pools(struct tm_policy *policy, double now_s, const struct tm_pool *pools, int count)
{
    int capacities[TM_POOLS_MAX], seen[TM_POOLS_MAX];
    double speeds[TM_POOLS_MAX] = {0};
    if (policy->pools == NULL) return;
    tm_learned_pools__observe(policy->pools, now_s, pools, count, capacities);
    for (int i = 0; i < count; i++)
        seen[i] = policy->pools->pools[i].capacity;
    for (int i = 0; i < count; i++)
        speeds[pools[i].group] = tm_pools__speed(pools, count, pools[i].group, seen);
    for (int g = 0; g < TM_POOLS_MAX; g++)
        if (capacities[g] >= 0)
            tm_learned_pools__sample(policy->pools, g, tm_policy__rate(policy, capacities[g], speeds[g], 0));
}

/* The facts as they are once the choice of pools is carried out: what is not wanted is gone, and the job trains with
 * what is here of the group that was chosen. Who has a notice trains to its end, or until a successor is here. */
static void foretell(const struct tm_decision *choice, struct tm_facts *facts)
{
    int here = 0, stays = 0, most = facts->limits.workers_max;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        int kept = pool->here < choice->want[i] ? pool->here : choice->want[i];
        if (pool->group == facts->group) here += pool->here + pool->leaving;
        if (pool->group == choice->group) stays += kept + pool->leaving;
    }
    bool moves = choice->group != facts->group;
    int trained = facts->before - facts->lost, after = stays < most ? stays : most;
    int spares = stays - after - facts->spares;
    int released = moves ? trained : here - stays + (spares > 0 ? spares : 0);
    if (released > trained) released = trained; /* the others had only just come */
    facts->event = facts->event || moves || released > 0;
    facts->lost += released;
    facts->after = after;
}

/* Chooses pools, and sees the rest of the facts as that choice makes them. */
static int choose(struct tm_policy *policy, struct tm_facts *facts, struct tm_decision *choice, struct tm_error *e)
{
    struct tm_view view;
    int on_demand = 0;
    choice->why = TM_WHY_STAYS;
    if (policy->info->deadlines && facts->limits.has_deadline) {
        int rc = make_view(policy, facts, &view, e);
        if (rc != 0) return rc;
        on_demand = tm_policy__on_demand_needed(policy->layouts, &view);
        int room = room_beside_spot(facts);
        if (on_demand > room) on_demand = room;
    }
    tm_policy__choose_pools(policy, facts, on_demand, choice);
    foretell(choice, facts);
    return 0;
}

static void take_choice(const struct tm_facts *facts, const struct tm_decision *choice, struct tm_decision *out)
{
    const struct tm_facts_limits *limits = &facts->limits;
    out->rents = true;
    out->want_spot = out->want_on_demand = 0;
    out->group = choice->group;
    for (int i = 0; i < facts->pool_count; i++) {
        out->want[i] = choice->want[i];
        *(facts->pools[i].market == TM_POOL_SPOT ? &out->want_spot : &out->want_on_demand) += choice->want[i];
    }
    for (int i = facts->pool_count; i < facts->pool_count + facts->keeper_count; i++)
        out->want[i] = choice->want[i];
    if (!(limits->budget_usd > 0)) return;
    double usd_h = tm_facts__usd_h(facts), left_usd = tm_rent__left_usd(limits->budget_usd, limits->bill_usd);
    out->stop = left_usd <= 0;
    if (usd_h > 0) out->until_s = fmin(out->until_s, facts->now_s + fmax(least_until_s, left_usd / usd_h * 3600));
}

/* ---- copies ---- */

/* By the workers' clocks: it is their copying and their steps that take time. */
static double copy_every_s(const struct tm_policy *policy, const struct tm_facts *facts)
{
    const struct tm_facts_copies *copies = &facts->copies;
    const struct tm_layout *layout = &policy->layouts->list[facts->standing.layout];
    double fixed_s = copies->only_one_replica ? copies->every_alone_s : copies->every_s;
    if (fixed_s > 0) return fixed_s;
    struct tm_copy_view view = {.pipelines = layout->pipelines,
                                .stages = layout->stages,
                                .lost_per_s = facts->losses.lost_per_s * facts->losses.unannounced * facts->speed,
                                .together = facts->losses.together,
                                .copy_s = copies->copy_s / facts->speed,
                                .slowed = slowed_by_copies,
                                .step_s = facts->progress.step_s / facts->speed,
                                .exposed_s = exposed_s};
    return tm_copy__interval_s(&view) * facts->speed;
}

static bool copy_due(const struct tm_facts *facts, double every_s)
{
    const struct tm_facts_copies *copies = &facts->copies;
    return copies->uncopied && (copies->since_s < 0 || copies->last || copies->since_s >= every_s);
}

/* ---- shares ---- */

/* A change of generation moves no layer then, but all stand still. What was measured lasts a while, or does not. */
static bool shares_pay(const struct tm_policy *policy, const struct tm_facts *facts, const struct tm_decision *decision)
{
    double uneven = facts->progress.uneven;
    if (!(uneven >= least_uneven) || decision->layout != facts->standing.layout) return false;
    double pause_s = tm_cost_restart_ms(policy->cost, policy->layouts, facts->standing.layout, false) / 1000;
    double gained_s = policy->options.horizon * policy->options.interval_s * (1 - 1 / uneven);
    return decision->layout != TM_LAYOUT_PAUSE && gained_s > shares_margin * pause_s;
}

/* ---- the decision ---- */

static enum tm_why why(const struct tm_facts *facts, const struct tm_view *view, const struct tm_decision *decision)
{
    int training = view->on_demand + view->ordered;
    if (!facts->limits.anchors_train) training += facts->limits.anchors;
    if (decision->stop) return TM_WHY_BUDGET;
    if (decision->rents && decision->want_on_demand > training && view->has_deadline) return TM_WHY_DEADLINE;
    if (decision->layout == TM_LAYOUT_PAUSE) return TM_WHY_TOO_FEW;
    if (view->event) return TM_WHY_EVENT;
    if (decision->share) return TM_WHY_SHARES;
    return decision->layout == view->standing.layout ? TM_WHY_STAYS : TM_WHY_FORECAST;
}

int tm_policy_decide(struct tm_policy *policy, const struct tm_facts *facts, struct tm_decision *out,
                     struct tm_error *e)
{
    struct tm_view view;
    struct tm_decision decision, choice;
    struct tm_facts chosen;
    int rc = 0;
    learn_speed(policy, facts);
    if (facts->choices) {
        chosen = *facts;
        rc = choose(policy, &chosen, &choice, e);
        facts = &chosen;
    }
    if (rc == 0) rc = make_view(policy, facts, &view, e);
    if (rc == 0) rc = tm_policy__ask(policy, &view, &decision, e);
    if (rc != 0) return rc;
    bool told = policy->info->knows != TM_KNOWS_PAST;
    if (told && view.after < facts->limits.workers_min) decision.layout = TM_LAYOUT_PAUSE;
    memset(decision.want, 0, sizeof decision.want);
    decision.group = 0;
    if (facts->choices)
        take_choice(facts, &choice, &decision);
    else
        rent(policy, facts, &decision);
    decision.copy_every_s = copy_every_s(policy, facts);
    decision.copy = copy_due(facts, decision.copy_every_s);
    decision.share = shares_pay(policy, facts, &decision);
    decision.why = why(facts, &view, &decision);
    bool gang = tm_facts_gang(facts->limits.workers_min, facts->limits.workers_max, facts->limits.has_deadline);
    if (facts->choices && choice.why == TM_WHY_MOVES && !decision.stop) decision.why = TM_WHY_MOVES;
    if (gang && policy->info->deadlines && !decision.stop && !facts->choices)
        rc = tm_policy__gang(policy, facts, view.samples_left, &decision, e);
    if (rc != 0) return rc;
    *out = decision;
    return 0;
}
