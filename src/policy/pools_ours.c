/* Ours: where to rent, how much, and when to move.
 *
 * Pools that can train together are one group, and its capacity is learned as one series, so what its pools lose
 * together is in it. A group is worth the throughput that its capacity is expected to give over the next two hours, by
 * what an instance costs there. The job moves when what another group yields more in that time exceeds what the move
 * costs: the pause, and the egress. It orders there first and trains on where it is until the instances have come.
 *
 * Inside a group it takes as many instances as make a difference and are worth their money (pools_worth.c), the
 * cheapest first; an instance's price is raised by what its preemption would cost the whole job, more so where the job
 * has more instances that go with it. */
#include "policy/policy_internal.h"

#include <math.h>

enum { SAMPLES = 12 };                   /* that are looked ahead: two hours */
static const double least_gain = 0.02;   /* a move must gain this share */
static const double kept_discount = 0.8; /* of the price of an instance that is there: swapping it costs a migration */
static const double nothing_missed = 0.995; /* of the throughput: what costs no more than that is saved */
static const double nearly_all = 0.9;       /* of the throughput to come: enough of the new instances have arrived */

struct group {
    int capacity;           /* of its pools: ours and on offer, but for those with a notice */
    int count;              /* of them, those that are worth their money ... */
    int want[TM_POOLS_MAX]; /* ... of each pool */
    int here;               /* usable now */
    double speed;           /* of its instances */
    double usd_h;           /* of one of them: the mean of those on offer */
    double value[SAMPLES];  /* samples per second that it is expected to give, from now on */
    double worth;           /* of a sample there: the least price of all over its own */
};

/* ---- what there is ---- */

static double cheapest_spot(const struct tm_facts *facts, int group)
{
    double usd_h = INFINITY;
    for (int i = 0; i < facts->pool_count; i++)
        if (facts->pools[i].group == group && facts->pools[i].market == TM_POOL_SPOT)
            usd_h = fmin(usd_h, facts->pools[i].price_usd_h);
    return usd_h;
}

/* Spot pools; and on-demand ones where they cost no more. */
static bool is_candidate(const struct tm_facts *facts, int pool)
{
    const struct tm_pool *it = &facts->pools[pool];
    return it->market == TM_POOL_SPOT || it->price_usd_h <= cheapest_spot(facts, it->group);
}

static int room_in(const struct tm_facts *facts, int pool)
{
    const struct tm_pool *it = &facts->pools[pool];
    int most = facts->limits.workers_max, capacity = tm_pool__capacity(it, most);
    return capacity < 0 ? 0 : capacity < most ? capacity : most;
}

/* A move goes through the store: what is there is written, everybody starts anew and reads it. */
static double move_s(const struct tm_policy *policy, int instances)
{
    int layout = policy->layouts->best[instances];
    double largest_ms = tm_migrations_largest_ms(policy->migrations, policy->layouts->list[layout].stages);
    return (tm_migrations_restart_ms(policy->migrations, layout) + 2 * largest_ms) / 1000;
}

/* ---- how many of what ---- */

/* As many as make a difference: the last ones may only wait, or add next to nothing for their money. */
static int useful(const struct tm_policy *policy, const struct tm_facts *facts, const struct group *group)
{
    int most = facts->limits.workers_max, count = group->capacity < most ? group->capacity : most;
    double rate = tm_policy__rate(policy, count, 1, facts->limits.workers_min);
    if (rate <= 0) return 0;
    while (count > 0 && tm_policy__rate(policy, count - 1, 1, facts->limits.workers_min) >= rate * nothing_missed)
        count--;
    return count;
}

/* A pool from which instances are taken one by one. */
struct source {
    int pool;
    int room;
    int kept;
    double usd_h;      /* of one instance */
    double loss_usd_h; /* what its preemption costs, where it goes alone */
    double exposed;    /* share of the others that would go with it */
};

static int sources_of(const struct tm_policy *policy, const struct tm_facts *facts, int number,
                      const struct group *group, int count, struct source *sources)
{
    double pause_s = move_s(policy, count);
    int found = 0;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (pool->group != number || !is_candidate(facts, i)) continue;
        bool spot = pool->market == TM_POOL_SPOT;
        sources[found++] = (struct source){
            .pool = i,
            .room = room_in(facts, i),
            .kept = pool->here + pool->ordered,
            .usd_h = isnan(pool->price_usd_h) ? 0 : pool->price_usd_h,
            .loss_usd_h = spot ? tm_learned_pools__lost_per_s(policy->pools, i) * pause_s * count * group->usd_h : 0};
    }
    return found;
}

/* What counts is what an instance does for the money. */
static double price_in(const struct tm_facts *facts, const struct source *from, int taken)
{
    double usd_h = taken < from->kept ? from->usd_h * kept_discount : from->usd_h;
    return (usd_h + from->loss_usd_h * (1 + from->exposed)) / fmax(1e-9, facts->pools[from->pool].speed);
}

/* One after the other from the pool where one costs least, all counted; then those that are not worth it go again. */
static void fill(const struct tm_policy *policy, const struct tm_facts *facts, int number, struct group *group)
{
    struct source sources[TM_POOLS_MAX];
    short order[TM_LAYOUT_INSTANCES_MAX];
    int filled = 0, alone = 0, count = useful(policy, facts, group);
    if (count > TM_LAYOUT_INSTANCES_MAX) count = TM_LAYOUT_INSTANCES_MAX;
    int found = sources_of(policy, facts, number, group, count, sources);
    for (; filled < count; filled++) {
        struct source *to = NULL;
        double least = INFINITY;
        for (struct source *from = sources; from < sources + found; from++) {
            int taken = group->want[from->pool];
            double price = taken < from->room ? price_in(facts, from, taken) : INFINITY;
            if (!(price < least)) continue;
            least = price;
            to = from;
        }
        if (to == NULL) break;
        order[filled] = (short)to->pool;
        group->want[to->pool]++;
        for (struct source *it = sources; it < sources + found; it++)
            it->exposed += (it == to ? 1 : tm_learned_pools__together(policy->pools, it->pool, to->pool)) / count;
    }
    for (int i = 0; i < found; i++)
        if (sources[i].room > alone) alone = sources[i].room;
    group->count = tm_pools__worthwhile(policy, facts, order, filled, alone);
    while (filled > 0 && filled > group->count)
        group->want[order[--filled]]--;
}

/* ---- what a group is worth ---- */

/* What is learned is what the whole capacity gives; so much of it as is wanted counts. */
static void foresee(const struct tm_policy *policy, const struct tm_facts *facts, int number, struct group *group)
{
    int most = facts->limits.workers_max, instances = group->capacity < most ? group->capacity : most;
    double all = tm_policy__rate(policy, instances, group->speed, facts->limits.workers_min);
    double wanted = tm_policy__rate(policy, group->count, group->speed, facts->limits.workers_min);
    for (int k = 0; k < SAMPLES; k++)
        group->value[k] = tm_learned_pools__expected(policy->pools, number, all, k) * (all > 0 ? wanted / all : 1);
}

static int look_at_groups(const struct tm_policy *policy, const struct tm_facts *facts, struct group *groups)
{
    double cheapest = INFINITY;
    int count = 0, rooms[TM_POOLS_MAX] = {0};
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        while (count <= pool->group)
            groups[count++] = (struct group){.speed = 1};
        struct group *group = &groups[pool->group];
        group->here += pool->here + pool->leaving;
        if (!is_candidate(facts, i)) continue;
        int room = rooms[i] = room_in(facts, i);
        double usd_h = isnan(pool->price_usd_h) ? 0 : pool->price_usd_h;
        if (room > 0) group->usd_h = (group->usd_h * group->capacity + usd_h * room) / (group->capacity + room);
        group->capacity += room;
    }
    for (int i = 0; i < facts->pool_count; i++)
        groups[facts->pools[i].group].speed =
            tm_pools__speed(facts->pools, facts->pool_count, facts->pools[i].group, rooms);
    for (int g = 0; g < count; g++)
        if (groups[g].capacity > 0) cheapest = fmin(cheapest, groups[g].usd_h / fmax(1e-9, groups[g].speed));
    for (int g = 0; g < count; g++) {
        struct group *group = &groups[g];
        double usd_h = group->usd_h / fmax(1e-9, group->speed);
        group->worth = usd_h > 0 ? cheapest / usd_h : 1;
        fill(policy, facts, g, group);
        foresee(policy, facts, g, group);
    }
    return count;
}

/* ---- moves ---- */

/* What going to `to` yields more than `from`, the moves paid, in samples: for the whole time that is looked at, or
 * until `from` is the better one again. */
static double gain_of(const struct tm_policy *policy, const struct tm_facts *facts, const struct group *from,
                      const struct group *to)
{
    int instances = to->count;
    double usd_s = instances * to->usd_h / 3600, egress = 0, more = 0, best = -INFINITY;
    if (usd_s > 0) egress = facts->move_usd * to->value[0] / usd_s;
    double move = to->value[0] * to->worth * move_s(policy, instances) + egress;
    if (to->value[0] * to->worth <= from->value[0] * from->worth) return -INFINITY; /* a move that can wait does */
    for (int k = 0; k < SAMPLES; k++) {
        more += (to->value[k] * to->worth - from->value[k] * from->worth * (1 + least_gain)) * TM_POOLS_SAMPLE_S;
        best = fmax(best, more - (k + 1 < SAMPLES ? 2 : 1) * move);
    }
    return best;
}

static int best_group(const struct tm_policy *policy, const struct tm_facts *facts, const struct group *groups,
                      int count)
{
    const struct group nowhere = {.speed = 1};
    int best = facts->group;
    double most = 0;
    const struct group *from = best >= 0 && best < count ? &groups[best] : &nowhere;
    for (int g = 0; g < count; g++) {
        if (g == facts->group) continue;
        double gain = gain_of(policy, facts, from, &groups[g]);
        if (gain <= most && !(best < 0 && groups[g].capacity > 0)) continue;
        most = fmax(most, gain);
        best = g;
    }
    return best;
}

/* On-demand instances for the deadline, the cheapest first, as far as there is room beside the others. */
static void add_on_demand(const struct tm_facts *facts, int group, int needed, struct tm_decision *out)
{
    int room_beside = facts->limits.workers_max;
    for (int i = 0; i < facts->pool_count; i++)
        if (facts->pools[i].group == group) room_beside -= out->want[i];
    if (needed > room_beside) needed = room_beside;
    while (needed > 0) {
        int to = -1;
        for (int i = 0; i < facts->pool_count; i++) {
            const struct tm_pool *pool = &facts->pools[i];
            bool may = pool->market == TM_POOL_ON_DEMAND && pool->group == group && out->want[i] < room_in(facts, i);
            if (may && (to < 0 || pool->price_usd_h < facts->pools[to].price_usd_h)) to = i;
        }
        if (to < 0) return;
        int room = room_in(facts, to) - out->want[to], more = needed < room ? needed : room;
        out->want[to] += more;
        needed -= more;
    }
}

/* Until enough of the others have come, the job trains on where it is. */
static bool stays_meanwhile(const struct tm_policy *policy, const struct tm_facts *facts, const struct group *from,
                            const struct group *to)
{
    int least = facts->limits.workers_min;
    double now = tm_policy__rate(policy, from->here, from->speed, least);
    double come = tm_policy__rate(policy, to->here, to->speed, least);
    double all = tm_policy__rate(policy, to->count, to->speed, least);
    return now > 0 && come < nearly_all * all;
}

void tm_policy__choose_ours(struct tm_policy *policy, const struct tm_facts *facts, int on_demand,
                            struct tm_decision *out)
{
    struct group groups[TM_POOLS_MAX];
    int count = look_at_groups(policy, facts, groups), standing = facts->group;
    int to = best_group(policy, facts, groups, count);
    if (to < 0) return;
    for (int i = 0; i < facts->pool_count; i++)
        out->want[i] = groups[to].want[i];
    add_on_demand(facts, to, on_demand, out);
    out->group = to;
    bool stays = standing >= 0 && standing != to && stays_meanwhile(policy, facts, &groups[standing], &groups[to]);
    if (stays) out->group = standing;
    if (standing >= 0 && standing != to) out->why = TM_WHY_MOVES;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (stays && pool->group == standing) out->want[i] = pool->here;
    }
}
