/* The ways of others to choose among pools, and what is common to all. */
#include "policy/policy_internal.h"
#include "policy/pools_internal.h"

#include <math.h>

double tm_policy__rate(const struct tm_policy *policy, double instances, double speed, int workers_min)
{
    const struct tm_layouts *layouts = policy->layouts;
    double most = layouts->instances_max, at = instances < 0 ? 0 : instances > most ? most : instances;
    int low = (int)at, high = low < layouts->instances_max ? low + 1 : low;
    double below = low < workers_min ? 0 : layouts->list[layouts->best[low]].samples_per_s;
    double above = high < workers_min ? 0 : layouts->list[layouts->best[high]].samples_per_s;
    return speed * (below + (at - low) * (above - below));
}

double tm_pools__speed(const struct tm_pool *pools, int count, int group, const int *counts)
{
    double first = 0, sum = 0, instances = 0;
    bool alike = true;
    for (int i = 0; i < count; i++) {
        if (pools[i].group != group) continue;
        if (first <= 0) first = pools[i].speed;
        alike = alike && pools[i].speed == first;
        int mine = counts[i] > 0 ? counts[i] : 0;
        sum += mine * pools[i].speed;
        instances += mine;
    }
    return alike || instances <= 0 ? first : sum / instances;
}

int tm_pools__regions(const struct tm_pool *pools, int count, int group, const int *counts)
{
    bool seen[TM_POOLS_MAX] = {false};
    int regions = 0;
    for (int i = 0; i < count; i++) {
        if (pools[i].group != group || counts[i] <= 0 || seen[pools[i].region]) continue;
        seen[pools[i].region] = true;
        regions++;
    }
    return regions;
}

/* The fewest instances that can train. */
static int fewest(const struct tm_policy *policy, int workers_min)
{
    int count = workers_min > 1 ? workers_min : 1;
    while (count < policy->layouts->instances_max && tm_policy__rate(policy, count, 1, 0) <= 0)
        count++;
    return count;
}

static double price_of(const struct tm_pool *pool)
{
    return isnan(pool->price_usd_h) ? 0 : pool->price_usd_h;
}

static int ours_in(const struct tm_pool *pool)
{
    return pool->here + pool->ordered;
}

/* As many of one pool as there are and the job can use. */
static int most_of(const struct tm_facts *facts, int pool)
{
    int most = facts->limits.workers_max, capacity = tm_pool__capacity(&facts->pools[pool], most);
    return capacity < most ? capacity : most;
}

/* ---- one pool at a time ---- */

static bool is_before(const struct tm_facts *facts, int a, int b)
{
    double x = price_of(&facts->pools[a]), y = price_of(&facts->pools[b]);
    return x < y || (x == y && a < b);
}

/* The cheapest pool with room for the job that comes after `from` in order of price (-1: the first of all). */
static int next_by_price(const struct tm_facts *facts, int from, int least)
{
    int best = -1;
    for (int i = 0; i < facts->pool_count; i++) {
        if (facts->pools[i].market != TM_POOL_SPOT || i == from || most_of(facts, i) < least) continue;
        if (from >= 0 && is_before(facts, i, from)) continue;
        if (best < 0 || is_before(facts, i, best)) best = i;
    }
    return best;
}

/* Stays until it is preempted; then the whole job goes to the next pool that has room, and round again. */
static void choose_failover(struct tm_policy *policy, const struct tm_facts *facts, struct tm_decision *out)
{
    int current = policy->pools->current, least = fewest(policy, facts->limits.workers_min);
    bool preempted = current >= 0 && facts->pools[current].lost > 0;
    bool empty = current < 0 || most_of(facts, current) < least;
    if (preempted || empty) {
        int next = next_by_price(facts, current, least);
        if (next < 0) next = next_by_price(facts, -1, least); /* round again, the same pool too */
        current = next >= 0 ? next : current;
    }
    if (current < 0) return;
    out->group = facts->pools[current].group;
    out->want[current] = most_of(facts, current);
}

/* ---- evenly ---- */

static bool is_active(const struct tm_policy *policy, const struct tm_facts *facts, int pool, int group, bool all)
{
    const struct tm_pool *it = &facts->pools[pool];
    return it->market == TM_POOL_SPOT && it->group == group && (all || !policy->pools->pools[pool].is_short);
}

/* What its pools have; in the group that the job is in, while that has room for it. */
static int group_with_room(const struct tm_policy *policy, const struct tm_facts *facts)
{
    int capacity[TM_POOLS_MAX] = {0}, best = facts->group, least = fewest(policy, facts->limits.workers_min);
    for (int i = 0; i < facts->pool_count; i++)
        if (facts->pools[i].market == TM_POOL_SPOT) capacity[facts->pools[i].group] += most_of(facts, i);
    if (best >= 0 && capacity[best] >= least) return best;
    for (int g = 0; g < TM_POOLS_MAX; g++)
        if (best < 0 || capacity[g] > capacity[best]) best = g;
    return best;
}

/* One after the other to the active pool that has the fewest; where fewer than two are active, all are again. */
static void choose_spread(const struct tm_policy *policy, const struct tm_facts *facts, struct tm_decision *out)
{
    int group = group_with_room(policy, facts), active = 0, spot = 0;
    for (int i = 0; i < facts->pool_count; i++)
        active += is_active(policy, facts, i, group, false);
    out->group = group;
    for (int pass = 0; pass < 2; pass++) { /* what is here in pools that are short stays */
        for (; spot < facts->limits.workers_max; spot += tm_pools__each(facts)) {
            int to = -1;
            for (int i = 0; i < facts->pool_count; i++) {
                bool kept = facts->pools[i].market == TM_POOL_SPOT && facts->pools[i].group == group;
                bool may = pass == 0
                               ? kept && out->want[i] < ours_in(&facts->pools[i])
                               : is_active(policy, facts, i, group, active < 2) && out->want[i] < most_of(facts, i);
                if (may && (to < 0 || out->want[i] < out->want[to])) to = i;
            }
            if (to < 0) break;
            out->want[to] += tm_pools__each(facts);
        }
    }
    for (int i = 0; i < facts->pool_count; i++) { /* the rest on demand */
        const struct tm_pool *pool = &facts->pools[i];
        if (pool->market != TM_POOL_ON_DEMAND || pool->group != group) continue;
        int rest = facts->limits.workers_max - spot, room = most_of(facts, i);
        out->want[i] = rest < room ? rest : room;
        spot += out->want[i];
    }
}

/* ---- any ---- */

static void choose_one(const struct tm_facts *facts, struct tm_decision *out)
{
    for (int i = 0; i < facts->pool_count; i++) {
        if (facts->pools[i].market != TM_POOL_SPOT) continue;
        out->group = facts->pools[i].group;
        out->want[i] = most_of(facts, i);
        return;
    }
}

void tm_policy__choose_pools(struct tm_policy *policy, const struct tm_facts *facts, int on_demand,
                             struct tm_decision *out)
{
    for (int i = 0; i < TM_POOLS_MAX; i++)
        out->want[i] = 0;
    out->group = facts->group;
    switch (policy->info->choice) {
    case TM_CHOICE_OURS:
        tm_policy__choose_ours(policy, facts, on_demand, out);
        break;
    case TM_CHOICE_FAILOVER:
        choose_failover(policy, facts, out);
        break;
    case TM_CHOICE_SPREAD:
        choose_spread(policy, facts, out);
        break;
    case TM_CHOICE_ONE:
    case TM_CHOICE_NONE:
        choose_one(facts, out);
        break;
    case TM_CHOICE_BOUND:
        for (int i = 0; i < facts->pool_count; i++)
            out->want[i] = ours_in(&facts->pools[i]);
        break;
    }
    tm_pools__want_keepers(facts, out);
}
