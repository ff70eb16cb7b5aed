#include "policy/deadline_pools.h"

#include <math.h>
#include <string.h>

/* Of how long a pool keeps its room, before anything was seen: as the values of deadline_values.c have it. */
static const double PRIOR_ENDS = 1;
static const double PRIOR_S = 2 * 3600.0;
/* A move while the gang works must save this many times what it costs. */
static const double MOVE_WORTH = 1.5;

/* ---- the ways ---- */

/* SkyServe's: whatever spot cannot give is on demand, at once. */
static struct tm_deadline_decision fall_back(const struct tm_deadline_view *view)
{
    return (struct tm_deadline_decision){.go = view->spot ? TM_GANG_SPOT : TM_GANG_ON_DEMAND, .until_s = INFINITY};
}

const struct tm_gang_way tm_gang_ways[] = {
    {"single", "the best pool alone, known afterwards", TM_GANG_FAILOVER, true, NULL, "tidemill"},
    {"failover", "one pool; after a preemption the whole gang goes to the next by price", TM_GANG_FAILOVER, false, NULL,
     "greedy"},
    {"spread", "evenly over the pools that are not short; on demand where there is no spot", TM_GANG_SPREAD, false,
     fall_back, "greedy"},
    {"tidemill", "the lowest expected cost, given what was learned of each pool", TM_GANG_OURS, false, NULL,
     "tidemill"},
    {"oracle", "the cheapest possible, knowing all traces: a bound", TM_GANG_BOUND, false, NULL, "oracle-deadline"},
    {0}};

const struct tm_gang_way *tm_gang_way_find(const char *name)
{
    for (const struct tm_gang_way *way = tm_gang_ways; way->name != NULL; way++) {
        if (strcmp(way->name, name) == 0) return way;
    }
    return NULL;
}

struct tm_deadline_policy tm_gang_way_policy(const struct tm_gang_way *way)
{
    struct tm_deadline_policy policy = *tm_deadline_policy_find(way->policy);
    if (way->decide != NULL) policy.decide = way->decide;
    return policy;
}

/* ---- what a gang is made of ---- */

static void clear(int shares[TM_GANG_PLACES_MAX])
{
    memset(shares, 0, TM_GANG_PLACES_MAX * sizeof *shares);
}

static bool is_on_spot(const struct tm_gang_pools_now *now)
{
    return now->job->on == TM_GANG_SPOT;
}

static bool stay(const struct tm_gang_pools_now *now, int shares[TM_GANG_PLACES_MAX])
{
    memcpy(shares, now->shares, (size_t)now->count * sizeof *shares);
    return true;
}

/* How often the pool takes its room away, in an hour. */
static double ends_per_h(const struct tm_gang_pool_now *pool)
{
    return 3600 * (pool->spells->ends[1] + PRIOR_ENDS) / (pool->spells->time_s[1] + PRIOR_S);
}

/* A launch costs its time at the on-demand price: it is paid, and the slack that it eats is bought back there at last.
 */
static double launch_usd(const struct tm_gang_pools_now *now)
{
    return tm_deadline_spot_launch_s(now->job->terms) / 3600 * now->job->terms->on_demand_usd_h;
}

static double usd_h_of(const struct tm_gang_pools_now *now, const int *shares)
{
    double usd_h = 0;
    for (int i = 0; i < now->count; i++)
        usd_h += shares[i] * now->pools[i].usd_h;
    return usd_h;
}

/* What an hour on such a gang costs, with the launches that its losses will. */
static double worth_usd_h(const struct tm_gang_pools_now *now, const int *shares)
{
    double usd_h = usd_h_of(now, shares);
    for (int i = 0; i < now->count; i++)
        if (shares[i] > 0) usd_h += ends_per_h(&now->pools[i]) * launch_usd(now);
    return usd_h;
}

/* The pool of a group that is next to be filled up: the one that costs least with its losses, if the gang were alone
 * there. */
static int cheapest_left(const struct tm_gang_pools_now *now, int group, const int *shares)
{
    int best = -1;
    double best_usd_h = INFINITY;
    for (int i = 0; i < now->count; i++) {
        const struct tm_gang_pool_now *pool = &now->pools[i];
        if (pool->group != group || shares[i] > 0 || pool->capacity < 1) continue;
        double usd_h = now->gang * pool->usd_h + ends_per_h(pool) * launch_usd(now);
        if (usd_h >= best_usd_h) continue;
        best = i;
        best_usd_h = usd_h;
    }
    return best;
}

/* Pools filled up one after the other. */
static bool fill(const struct tm_gang_pools_now *now, int group, int shares[TM_GANG_PLACES_MAX])
{
    int left = now->gang;
    clear(shares);
    while (left > 0) {
        int to = cheapest_left(now, group, shares);
        if (to < 0) return false;
        shares[to] = now->pools[to].capacity < left ? now->pools[to].capacity : left;
        left -= shares[to];
    }
    return true;
}

static bool fits_alone(const struct tm_gang_pools_now *now, int pool, int shares[TM_GANG_PLACES_MAX])
{
    clear(shares);
    if (now->pools[pool].capacity < now->gang) return false;
    shares[pool] = now->gang;
    return true;
}

/* ---- ours ---- */

static void take_better(const struct tm_gang_pools_now *now, const int *candidate, double *best_usd_h, int *shares)
{
    double usd_h = worth_usd_h(now, candidate);
    if (usd_h_of(now, candidate) > now->job->terms->on_demand_usd_h || usd_h >= *best_usd_h) return;
    *best_usd_h = usd_h;
    memcpy(shares, candidate, TM_GANG_PLACES_MAX * sizeof *shares);
}

/* Whether it pays to leave a gang that works for a better one. */
static bool pays(const struct tm_gang_pools_now *now, double from_usd_h, double to_usd_h, const int *to)
{
    const struct tm_deadline_view *job = now->job;
    double left_s = job->terms->work_s - job->done_s, slack_s = job->terms->deadline_s - job->now_s - left_s;
    double ends = 0;
    for (int i = 0; i < now->count; i++)
        if (to[i] > 0) ends += ends_per_h(&now->pools[i]);
    double life_h = fmin(left_s / 3600, 1 / ends);
    bool safe = slack_s >= tm_deadline_spot_launch_s(job->terms) + tm_deadline_launch_s(job->terms);
    return safe && job->restart_left_s <= 0 && (from_usd_h - to_usd_h) * life_h > MOVE_WORTH * launch_usd(now);
}

static bool choose_ours(const struct tm_gang_pools_now *now, int shares[TM_GANG_PLACES_MAX])
{
    int candidate[TM_GANG_PLACES_MAX];
    double best_usd_h = INFINITY;
    clear(shares);
    for (int i = 0; i < now->count; i++) {
        if (fits_alone(now, i, candidate)) take_better(now, candidate, &best_usd_h, shares);
        bool first = true; /* of its group */
        for (int k = 0; k < i; k++)
            first = first && now->pools[k].group != now->pools[i].group;
        if (first && fill(now, now->pools[i].group, candidate)) take_better(now, candidate, &best_usd_h, shares);
    }
    if (!is_on_spot(now)) return isfinite(best_usd_h);
    bool moves = isfinite(best_usd_h) && pays(now, worth_usd_h(now, now->shares), best_usd_h, shares);
    return moves || stay(now, shares);
}

/* ---- those of others ---- */

static bool is_before(const struct tm_gang_pools_now *now, int a, int b)
{
    double x = now->pools[a].usd_h, y = now->pools[b].usd_h;
    return x < y || (x == y && a < b);
}

/* The first pool with room that comes after `from` in order of price; -1 as `from`: of all. */
static int next_by_price(const struct tm_gang_pools_now *now, int from)
{
    int best = -1;
    for (int i = 0; i < now->count; i++) {
        if (i == from || now->pools[i].capacity < now->gang || (from >= 0 && is_before(now, i, from))) continue;
        if (best < 0 || is_before(now, i, best)) best = i;
    }
    return best;
}

static bool choose_failover(const struct tm_gang_pools_now *now, int shares[TM_GANG_PLACES_MAX])
{
    if (is_on_spot(now)) return stay(now, shares);
    int next = next_by_price(now, now->last);
    if (next < 0) next = next_by_price(now, -1); /* round again, the same pool too */
    return next >= 0 && fits_alone(now, next, shares);
}

/* One after the other to the pool that has the fewest. */
static bool spread_over(const struct tm_gang_pools_now *now, int group, bool all, int shares[TM_GANG_PLACES_MAX])
{
    clear(shares);
    for (int placed = 0; placed < now->gang; placed++) {
        int to = -1;
        for (int i = 0; i < now->count; i++) {
            const struct tm_gang_pool_now *pool = &now->pools[i];
            if (pool->group != group || (pool->is_short && !all) || shares[i] >= pool->capacity) continue;
            if (to < 0 || shares[i] < shares[to]) to = i;
        }
        if (to < 0) return false;
        shares[to]++;
    }
    return true;
}

/* In the group where it was, while that has room; else where there is most. */
static bool choose_spread(const struct tm_gang_pools_now *now, int shares[TM_GANG_PLACES_MAX])
{
    int sums[TM_GANG_PLACES_MAX] = {0}, best = 0;
    if (is_on_spot(now)) return stay(now, shares);
    for (int i = 0; i < now->count; i++)
        sums[now->pools[i].group] += now->pools[i].capacity;
    for (int g = 1; g < TM_GANG_PLACES_MAX; g++)
        if (sums[g] > sums[best]) best = g;
    int group = now->last >= 0 ? now->pools[now->last].group : best;
    if (sums[group] < now->gang) group = best;
    return spread_over(now, group, false, shares) || spread_over(now, group, true, shares);
}

/* What it is made of changes for nothing. */
static bool choose_bound(const struct tm_gang_pools_now *now, int shares[TM_GANG_PLACES_MAX])
{
    const struct tm_gang_plan *plan = now->job->plan;
    size_t i = tm_gang_plan__at(plan, now->job->now_s);
    clear(shares);
    return plan->stretches[i].on == TM_GANG_SPOT && fill(now, plan->stretches[i].place, shares);
}

bool tm_gang_choose(enum tm_gang_choice choice, const struct tm_gang_pools_now *now, int shares[TM_GANG_PLACES_MAX])
{
    switch (choice) {
    case TM_GANG_OURS:
        return choose_ours(now, shares);
    case TM_GANG_SPREAD:
        return choose_spread(now, shares);
    case TM_GANG_BOUND:
        return choose_bound(now, shares);
    case TM_GANG_FAILOVER:
        break;
    }
    return choose_failover(now, shares);
}
