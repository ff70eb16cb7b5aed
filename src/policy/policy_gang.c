/* A job that needs all its instances at once, with a deadline: the facts become the view of policy/deadline.h, and what
 * it goes on becomes how many instances of which market are wanted. */
#include "policy/policy_internal.h"

#include "policy/rent_internal.h"

#include <math.h>

static const double memory_s = 24 * 3600.0; /* how fast it forgets how spot came and went */
static const double usual_spot_usd_h = 1;   /* where prices are not known, what counts is their ratio */
static const double usual_on_demand_usd_h = 3;

static double price_of(const struct tm_facts *facts, enum tm_pool_market market, double usual)
{
    for (int i = 0; i < facts->pool_count; i++)
        if (facts->pools[i].market == market && !isnan(facts->pools[i].price_usd_h)) return facts->pools[i].price_usd_h;
    return usual;
}

static int offered(const struct tm_facts *facts)
{
    int count = 0;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (pool->market != TM_POOL_SPOT) continue;
        count += pool->here + pool->ordered + (pool->offered < 0 ? facts->limits.workers_max : pool->offered);
    }
    return count;
}

static int begin(struct tm_policy *policy, const struct tm_facts *facts, double left_s, double restart_s,
                 struct tm_error *e)
{
    int gang = facts->limits.workers_max;
    policy->terms =
        (struct tm_deadline_terms){.work_s = fmax(1, left_s),
                                   .deadline_s = fmax(1, facts->now_s + facts->limits.seconds_left),
                                   .restart_s = restart_s,
                                   .start_s = policy->cost->start_s,
                                   .spot_usd_h = gang * price_of(facts, TM_POOL_SPOT, usual_spot_usd_h),
                                   .on_demand_usd_h = gang * price_of(facts, TM_POOL_ON_DEMAND, usual_on_demand_usd_h)};
    tm_spells_init(&policy->spells, memory_s);
    return tm_deadline_values_create(&policy->terms, &policy->values, e);
}

/* Does the budget pay for the rest of the work on-demand? */
static bool can_pay(const struct tm_facts *facts, const struct tm_deadline_view *view, double left_s)
{
    const struct tm_facts_limits *limits = &facts->limits;
    if (!(limits->budget_usd > 0)) return true;
    double hours = (left_s + view->restart_left_s) / 3600;
    return view->terms->on_demand_usd_h * hours <= tm_rent__left_usd(limits->budget_usd, limits->bill_usd);
}

int tm_policy__gang(struct tm_policy *policy, const struct tm_facts *facts, double samples_left,
                    struct tm_decision *out, struct tm_error *e)
{
    const struct tm_facts_limits *limits = &facts->limits;
    int gang = limits->workers_max, layout = policy->layouts->best[gang];
    double samples_per_s = policy->layouts->list[layout].samples_per_s;
    double restart_s = tm_migrations_restart_ms(policy->migrations, layout) / 1000;
    if (!(samples_per_s > 0)) return 0;
    double left_s = samples_left / samples_per_s;
    int rc = policy->values == NULL ? begin(policy, facts, left_s, restart_s, e) : 0;
    if (rc != 0) return rc;
    int spot = tm_facts__here(facts, TM_POOL_SPOT, TM_POOL_TRAINS);
    int on_demand = tm_facts__here(facts, TM_POOL_ON_DEMAND, TM_POOL_TRAINS);
    int joining = tm_facts__ordered(facts, TM_POOL_ON_DEMAND, TM_POOL_TRAINS);
    struct tm_deadline_view view = {.terms = &policy->terms,
                                    .now_s = facts->now_s,
                                    .done_s = policy->terms.work_s - left_s,
                                    .spot = offered(facts) >= gang,
                                    .spells = &policy->spells,
                                    .values = policy->values};
    if (on_demand + joining >= gang)
        view.on = TM_GANG_ON_DEMAND;
    else if (spot + tm_facts__ordered(facts, TM_POOL_SPOT, TM_POOL_TRAINS) >= gang)
        view.on = TM_GANG_SPOT;
    if (view.on != TM_GANG_NOTHING) view.restart_left_s = facts->standing.migrating_ms / 1000;
    if (view.on == TM_GANG_ON_DEMAND && joining > 0) view.restart_left_s = policy->terms.start_s + restart_s;
    tm_spells_observe(&policy->spells, fmax(facts->now_s, policy->spells.now_s), view.spot); /* clocks may jump back */
    struct tm_deadline_decision decision = tm_deadline_decide(tm_deadline_policy_find("tidemill"), &view);
    int beside = limits->anchors_train ? 0 : limits->anchors;
    /* A budget is kept, a deadline is not worth it: what it does not pay on-demand is left to spot instances. */
    if (decision.go == TM_GANG_ON_DEMAND && !can_pay(facts, &view, left_s)) {
        out->want_spot = gang;
        out->want_on_demand = beside;
        return 0;
    }
    out->want_spot = decision.go == TM_GANG_SPOT ? gang : 0;
    out->want_on_demand = (decision.go == TM_GANG_ON_DEMAND ? gang : 0) + beside;
    out->until_s = fmin(out->until_s, fmax(decision.until_s, facts->now_s + 1));
    if (decision.go == TM_GANG_ON_DEMAND && view.on != TM_GANG_ON_DEMAND) out->why = TM_WHY_DEADLINE;
    if (decision.go == TM_GANG_NOTHING) out->why = TM_WHY_WAITS;
    return 0;
}
