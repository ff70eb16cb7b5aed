/* Ours: where to rent, how much, and when to move.
 *
 * Pools that can train together are one group, and its capacity is learned as one series, so what its pools lose
 * together is in it. A group is worth the throughput that its capacity is expected to give over the next two hours, by
 * what an instance costs there. The job moves when what another group yields more in that time exceeds what the move
 * costs: the pause, and the egress. It orders there first and trains on where it is until the instances have come: so
 * what a start-up time costs is what the group would have yielded more by then, and all of it where nothing runs. All
 * groups are looked at for two hours and the longest start-up time, or those that start slowly would never be reached.
 *
 * Inside a group it takes as many instances as make a difference and are worth their money (pools_worth.c), the
 * cheapest first; an instance's price is raised by what its preemption would cost the whole job, more so where the job
 * has more instances that go with it. Where a group has several regions (the job says across_regions), all of them are
 * used only if that does more than the best region alone, its slower links counted, and a sample costs little more, its
 * traffic counted. */
#include "policy/policy_internal.h"

#include <math.h>

enum { AHEAD_S = 7200, START_S_MAX = 86400 }; /* what is looked ahead; a start-up time that counts */
static const double least_gain = 0.02;        /* a move must gain this share */
static const double kept_discount = 0.8;      /* of the price of an instance that is there: it has proved to live */
static const double swapped_after_s = 7200;   /* in this time a swap must pay for the two times that all stand still */
static const double started_after_s = 1800;   /* in this time a price must make up for a start-up that takes longer */
static const double most_for_faster = 1.08;   /* of the lowest price of a sample: where instances are limited */
static const double least_worth = 0.98;       /* of throughput that is given up for a cheaper group: the rest */
static const double nothing_missed = 0.995;   /* of the throughput: what costs no more than that is saved */
static const double nearly_all = 0.9;         /* of the throughput to come: enough of the new instances have arrived */
static const double home_bonus = 1.1; /* of the throughput of the region where the job is: another must be better */
enum { ANY_REGION = -1 };

struct group {
    int capacity;           /* of its pools: ours and on offer, but for those with a notice */
    int count;              /* of them, those that are worth their money ... */
    int want[TM_POOLS_MAX]; /* ... of each pool */
    int here;               /* usable now */
    int region;             /* of its first pool */
    double speed;           /* of its instances */
    double usd_h;           /* of one of them: the mean of those on offer */
    int number;             /* of its pools' group */
    double all;             /* samples per second of its capacity ... */
    double share;           /* ... and how much of that those that are wanted give */
    double value;           /* samples per second that it gives now, or would, were all that are wanted there */
    double start_s;         /* until those that are wanted and not there work: the mean of all that are wanted */
    double worth;           /* of a sample there: by price, see weigh() */
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
static int useful(const struct tm_policy *policy, const struct tm_facts *facts, int capacity)
{
    int most = facts->limits.workers_max, count = capacity < most ? capacity : most;
    int each = tm_pools__each(facts);
    double rate = tm_policy__rate(policy, count, 1, facts->limits.workers_min);
    if (rate <= 0) return 0;
    while (count > 0 && tm_policy__rate(policy, count - each, 1, facts->limits.workers_min) >= rate * nothing_missed)
        count -= each;
    return count > 0 ? count : 0;
}

/* A pool from which instances are taken one by one. */
struct source {
    int pool;
    int room;
    int kept;
    double speed;
    double usd_h;      /* of one instance */
    double swap_usd_h; /* of one that is not there, where another is: all stand still twice for it */
    double loss_usd_h; /* what its preemption costs, where it goes alone */
    double exposed;    /* share of the others that would go with it */
    double slow_usd_h; /* of one that is not there: what it does later than one of the pool that starts soonest */
};

static bool is_source(const struct tm_facts *facts, int pool, int group, int region)
{
    const struct tm_pool *it = &facts->pools[pool];
    return it->group == group && (region == ANY_REGION || it->region == region) && is_candidate(facts, pool);
}

static int capacity_in(const struct tm_facts *facts, int group, int region)
{
    int capacity = 0;
    for (int i = 0; i < facts->pool_count; i++)
        if (is_source(facts, i, group, region)) capacity += room_in(facts, i);
    return capacity;
}

static double soonest_start_s(const struct tm_facts *facts, int group, int region)
{
    double soonest_s = INFINITY;
    for (int i = 0; i < facts->pool_count; i++)
        if (is_source(facts, i, group, region) && room_in(facts, i) > 0)
            soonest_s = fmin(soonest_s, facts->pools[i].start_s);
    return soonest_s;
}

/* What it costs in an hour that an instance of the pool works later than one of the pool that starts soonest. Nothing
 * of the job does its work meanwhile; who wants samples cheap, and soon or not, pays for the start-up once in its life.
 */
static double slow_usd_h(const struct tm_policy *policy, const struct tm_facts *facts, int pool, double soonest_s)
{
    const struct tm_pool *it = &facts->pools[pool];
    double later_s = fmax(0, it->start_s - soonest_s), usd_h = isnan(it->price_usd_h) ? 0 : it->price_usd_h;
    if (facts->limits.rent != TM_RENT_CHEAPEST) return usd_h * later_s / started_after_s;
    return it->market == TM_POOL_SPOT ? usd_h * later_s * tm_learned_pools__lost_per_s(policy->pools, pool) : 0;
}

static int sources_of(const struct tm_policy *policy, const struct tm_facts *facts, int number, int region,
                      const struct group *group, int count, struct source *sources)
{
    double pause_s = move_s(policy, count), soonest_s = soonest_start_s(facts, number, region);
    int found = 0;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (!is_source(facts, i, number, region)) continue;
        bool spot = pool->market == TM_POOL_SPOT;
        sources[found++] = (struct source){
            .pool = i,
            .room = room_in(facts, i),
            .kept = pool->here + pool->ordered,
            .speed = pool->speed > 0 ? pool->speed : 1,
            .usd_h = isnan(pool->price_usd_h) ? 0 : pool->price_usd_h,
            .slow_usd_h = slow_usd_h(policy, facts, i, soonest_s),
            .swap_usd_h = 2 * pause_s * count * group->usd_h / swapped_after_s / tm_pools__each(facts),
            /* all stand still once for an instance: a worker has its share of that */
            .loss_usd_h = spot ? tm_learned_pools__lost_per_s(policy->pools, i) * pause_s * count * group->usd_h /
                                     fmax(tm_pools__each(facts), tm_learned_pools__at_once(policy->pools, i))
                               : 0};
    }
    return found;
}

/* What counts is what an instance does for the money. */
static double price_at(const struct source *from, double usd_h)
{
    return (usd_h + from->loss_usd_h * (1 + from->exposed)) / from->speed;
}

static double price_in(const struct source *from, int taken)
{
    bool kept = taken < from->kept;
    return price_at(from, kept ? from->usd_h * kept_discount : from->usd_h + from->swap_usd_h + from->slow_usd_h);
}

/* Where some are faster than others: the pool that does most, alone. It comes first, whole; NULL: all are alike. */
static struct source *strongest(struct source *sources, int found)
{
    struct source *most = sources;
    bool alike = true;
    if (found == 0) return NULL;
    for (struct source *it = sources; it < sources + found; it++) {
        alike = alike && it->speed == sources->speed;
        if (it->room * it->speed > most->room * most->speed) most = it;
    }
    return alike ? NULL : most;
}

/* The pool that the next instance comes from; NULL: there is none. Where there are more instances than the job may have
 * (`few`), a slow one takes the place of a faster one: of those that cost about as much the fastest comes first. */
static struct source *next_source(const struct group *group, struct source *sources, int found, bool few)
{
    struct source *first = strongest(sources, found), *to = NULL;
    double least = INFINITY;
    if (first != NULL && group->want[first->pool] < first->room) return first;
    for (struct source *from = sources; from < sources + found; from++) {
        int taken = group->want[from->pool];
        if (taken >= from->room || !(price_in(from, taken) < least)) continue;
        least = price_in(from, taken);
        to = from;
    }
    double most = to != NULL ? most_for_faster * price_at(to, to->usd_h) : 0;
    for (struct source *from = sources; few && to != NULL && from < sources + found; from++) {
        int taken = group->want[from->pool];
        if (taken < from->room && from->speed > to->speed && price_in(from, taken) <= most) to = from;
    }
    return to;
}

/* One instance after the other from the pool where one costs least, all counted; then those that are not worth it go
 * again. */
static void fill_from(const struct tm_policy *policy, const struct tm_facts *facts, int number, int region,
                      struct group *group)
{
    struct source sources[TM_POOLS_MAX] = {{0}};
    short order[TM_LAYOUT_INSTANCES_MAX];
    int capacity = capacity_in(facts, number, region), each = tm_pools__each(facts);
    int filled = 0, alone = 0, count = useful(policy, facts, capacity);
    if (count > TM_LAYOUT_INSTANCES_MAX) count = TM_LAYOUT_INSTANCES_MAX;
    int found = sources_of(policy, facts, number, region, group, count, sources);
    for (; filled + each <= count; filled += each) {
        struct source *to = next_source(group, sources, found, count < capacity);
        if (to == NULL) break;
        for (int worker = filled; worker < filled + each; worker++)
            order[worker] = (short)to->pool;
        group->want[to->pool] += each;
        for (struct source *it = sources; it < sources + found; it++)
            it->exposed +=
                each * (it == to ? 1 : tm_learned_pools__together(policy->pools, it->pool, to->pool)) / count;
    }
    const struct source *first = strongest(sources, found);
    for (int i = 0; i < found; i++)
        if (first == NULL && sources[i].room > alone) alone = sources[i].room;
    if (first != NULL) alone = first->room;
    group->count = tm_pools__worthwhile(policy, facts, order, filled, alone);
    while (filled > 0 && filled > group->count)
        group->want[order[--filled]]--;
}

/* Until what is wanted works: those that are here do, and of those on their way nobody says when they come; what was
 * begun is not given up for that. */
static double start_s_of(const struct tm_facts *facts, const struct group *group)
{
    double sum_s = 0;
    int wanted = 0;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        int missing = group->want[i] - pool->here - pool->ordered;
        wanted += group->want[i];
        if (missing > 0) sum_s += missing * fmin(pool->start_s, START_S_MAX);
    }
    return wanted > 0 ? sum_s / wanted : 0;
}

/* ---- regions of a group ---- */

/* What the instances that are wanted do, and what they and their traffic cost. */
static double rate_in(const struct tm_policy *policy, const struct tm_facts *facts, int number,
                      const struct group *group, double *out_usd_s)
{
    const struct tm_pool *pools = facts->pools;
    int regions = tm_pools__regions(pools, facts->pool_count, number, group->want);
    double speed = tm_pools__speed(pools, facts->pool_count, number, group->want);
    double rate =
        tm_far_rate(&facts->far, tm_policy__rate(policy, group->count, speed, facts->limits.workers_min), regions);
    *out_usd_s = tm_far_usd(&facts->far, regions) * rate;
    for (int i = 0; i < facts->pool_count; i++)
        if (!isnan(pools[i].price_usd_h)) *out_usd_s += group->want[i] * pools[i].price_usd_h / 3600;
    return rate;
}

/* Where most of the job's instances are; -1: it has none. */
static int home_of(const struct tm_facts *facts, int group)
{
    int counts[TM_POOLS_MAX] = {0}, home = -1;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (pool->group != group || pool->here + pool->leaving <= 0) continue;
        counts[pool->region] += pool->here + pool->leaving;
        if (home < 0 || counts[pool->region] > counts[home]) home = pool->region;
    }
    return home;
}

/* Is it worth while to train in all regions, beside the best one alone? */
static bool spanning_pays(const struct tm_policy *policy, const struct tm_facts *facts, int number,
                          const struct group *all, const struct group *alone)
{
    double all_usd_s = 0, alone_usd_s = 0, rate = rate_in(policy, facts, number, all, &all_usd_s);
    double rate_alone = rate_in(policy, facts, number, alone, &alone_usd_s);
    if (rate <= rate_alone * (1 + least_gain)) return false;
    if (facts->limits.has_deadline || facts->limits.rent == TM_RENT_ALL || rate_alone <= 0) return true;
    return all_usd_s * rate_alone <= tm_pools__most_usd(facts, all->count, alone->count) * alone_usd_s * rate;
}

/* Of a group's regions one alone: what it does, and what a sample costs there. */
struct alone {
    struct group group;
    double rate;
    double usd;   /* of a sample */
    double bonus; /* of the region where the job is: to leave it costs something */
};

static struct alone look_at_region(const struct tm_policy *policy, const struct tm_facts *facts, int number, int region,
                                   int home, const struct group *empty)
{
    struct alone it = {.group = *empty, .bonus = region == home ? home_bonus : 1};
    double usd_s = 0;
    fill_from(policy, facts, number, region, &it.group);
    it.rate = rate_in(policy, facts, number, &it.group, &usd_s);
    it.usd = it.rate > 0 ? usd_s / it.rate : INFINITY;
    if (home < 0) it.rate *= AHEAD_S / (AHEAD_S + start_s_of(facts, &it.group)); /* nothing runs meanwhile */
    return it;
}

/* Does a region as much as another, and at a lower price? */
static bool is_cheaper(const struct alone *it, const struct alone *other)
{
    return it->rate >= least_worth * other->rate && it->usd * other->bonus < other->usd * it->bonus;
}

static bool is_better(const struct alone *it, const struct alone *best)
{
    if (is_cheaper(it, best)) return true;
    return !is_cheaper(best, it) && it->rate * it->bonus > best->rate * best->bonus;
}

/* From all regions, or from the one that does most. */
static void fill(const struct tm_policy *policy, const struct tm_facts *facts, int number, struct group *group)
{
    struct group empty = *group;
    struct alone best = {.group = empty, .rate = -1, .bonus = 1};
    int home = home_of(facts, number);
    fill_from(policy, facts, number, ANY_REGION, group);
    bool costs = facts->far.sample_s > 0 || facts->far.sample_usd > 0;
    if (!costs || tm_pools__regions(facts->pools, facts->pool_count, number, group->want) < 2) return;
    for (int region = 0; region < TM_POOLS_MAX; region++) {
        if (capacity_in(facts, number, region) == 0) continue;
        struct alone it = look_at_region(policy, facts, number, region, home, &empty);
        if (is_better(&it, &best)) best = it;
    }
    if (!spanning_pays(policy, facts, number, group, &best.group)) *group = best.group;
}

/* Where the job goes from one region of its group to another, what it has is kept until enough have come there. */
static void keep_meanwhile(const struct tm_policy *policy, const struct tm_facts *facts, int number,
                           const struct group *group, struct tm_decision *out)
{
    const struct tm_pool *pools = facts->pools;
    int come = 0;
    if (facts->far.sample_s <= 0 && facts->far.sample_usd <= 0) return;
    if (tm_pools__regions(pools, facts->pool_count, number, group->want) != 1) return;
    for (int i = 0; i < facts->pool_count; i++)
        come += pools[i].group == number && group->want[i] > 0 ? pools[i].here : 0;
    double all = tm_policy__rate(policy, group->count, 1, facts->limits.workers_min);
    if (tm_policy__rate(policy, come, 1, facts->limits.workers_min) >= nearly_all * all) return;
    for (int i = 0; i < facts->pool_count; i++)
        if (pools[i].group == number && out->want[i] < pools[i].here) out->want[i] = pools[i].here;
}

/* ---- what a group is worth ---- */

/* What is learned is what the whole capacity gives; so much of it as is wanted counts. */
static double value_at(const struct tm_policy *policy, const struct group *group, int sample)
{
    return tm_learned_pools__expected(policy->pools, group->number, group->all, sample) * group->share;
}

static void foresee(const struct tm_policy *policy, const struct tm_facts *facts, int number, struct group *group)
{
    int most = facts->limits.workers_max, instances = group->capacity < most ? group->capacity : most;
    double usd_s = 0, wanted = group->count > 0 ? rate_in(policy, facts, number, group, &usd_s) : 0;
    group->number = number;
    group->all = tm_policy__rate(policy, instances, group->speed, facts->limits.workers_min);
    group->share = group->all > 0 ? wanted / group->all : 1;
    group->start_s = start_s_of(facts, group);
    group->value = value_at(policy, group, 0);
}

static double usd_of(const struct group *group)
{
    return group->usd_h / fmax(1e-9, group->speed);
}

/* What the pool gives alone. */
static double alone_in(const struct tm_policy *policy, const struct tm_facts *facts, int pool)
{
    double speed = facts->pools[pool].speed > 0 ? facts->pools[pool].speed : 1;
    return tm_policy__rate(policy, room_in(facts, pool), speed, facts->limits.workers_min);
}

/* The pool that gives most alone; -1: there is none. */
static int best_pool(const struct tm_policy *policy, const struct tm_facts *facts)
{
    int best = -1;
    for (int i = 0; i < facts->pool_count; i++)
        if (is_candidate(facts, i) && (best < 0 || alone_in(policy, facts, i) > alone_in(policy, facts, best)))
            best = i;
    return best;
}

/* The lowest price of a sample among the groups that give (nearly) so much throughput. */
static double least_usd(const struct group *groups, int count, double throughput)
{
    double usd = INFINITY;
    for (int g = 0; g < count; g++)
        if (groups[g].capacity > 0 && groups[g].value >= least_worth * throughput) usd = fmin(usd, usd_of(&groups[g]));
    return usd;
}

/* The job is to do no less than in the pool that gives most alone. A group that does more, where a sample costs much
 * more than in another that does as much as that pool, counts no more than that: what a sample may cost more inside a
 * group, it may cost more in another. */
static void cap_dear(const struct tm_policy *policy, const struct tm_facts *facts, struct group *groups, int count)
{
    int pool = best_pool(policy, facts);
    if (facts->limits.has_deadline || facts->limits.rent != TM_RENT_WORTHWHILE || pool < 0) return;
    double alone = alone_in(policy, facts, pool), usd = least_usd(groups, count, alone);
    if (!(alone > 0)) return; /* no pool trains by itself: there is nothing to hold groups against */
    for (int g = 0; g < count; g++) {
        struct group *group = &groups[g];
        double most_usd = tm_pools__most_usd(facts, group->count, room_in(facts, pool)) * usd;
        if (group->value <= alone || usd_of(group) <= most_usd) continue;
        group->share *= alone / group->value;
        group->value = alone;
    }
}

/* What a sample of each counts for: the price of the cheapest that gives (nearly) the most throughput, over its own. So
 * of those that do as much the cheaper one is better by all that it saves, and hardly any throughput is given up for
 * one that is cheaper still, unless samples are to be cheap above all. */
static void weigh(const struct tm_facts *facts, struct group *groups, int count)
{
    double most = 0;
    bool cheap = facts->limits.rent == TM_RENT_CHEAPEST;
    for (int g = 0; g < count; g++)
        most = fmax(most, groups[g].value);
    double usd = least_usd(groups, count, cheap ? 0 : most);
    for (int g = 0; g < count; g++) {
        struct group *group = &groups[g];
        bool does_all = cheap || group->value >= least_worth * most;
        group->worth = usd_of(group) > 0 && isfinite(usd) ? usd / usd_of(group) : 1;
        if (!does_all) group->worth = fmin(fmax(group->worth, least_worth), 1 / least_worth);
    }
}

static int look_at_groups(const struct tm_policy *policy, const struct tm_facts *facts, struct group *groups)
{
    int count = 0, rooms[TM_POOLS_MAX] = {0};
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        while (count <= pool->group)
            groups[count++] = (struct group){.speed = 1, .region = pool->region};
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
    for (int g = 0; g < count; g++) {
        fill(policy, facts, g, &groups[g]);
        foresee(policy, facts, g, &groups[g]);
    }
    cap_dear(policy, facts, groups, count);
    weigh(facts, groups, count);
    return count;
}

/* ---- moves ---- */

/* Seconds of a sample's time that are between two moments. */
static double part_s(int sample, double from_s, double to_s)
{
    double begin_s = fmax(from_s, (double)sample * TM_POOLS_SAMPLE_S);
    return fmax(0, fmin(to_s, (sample + 1.0) * TM_POOLS_SAMPLE_S) - begin_s);
}

/* What going to `to` yields more than `from` (NULL: nothing runs), the moves paid, in samples: for the whole time that
 * is looked at, or until `from` is the better one again. Until those of `to` work, the job has what `from` gives. */
static double gain_of(const struct tm_policy *policy, const struct tm_facts *facts, const struct group *from,
                      const struct group *to, double ahead_s)
{
    double usd_s = to->count * to->usd_h / 3600, egress = 0, more = 0, best = -INFINITY;
    double here_s = from != NULL ? fmax(from->start_s, to->start_s) : 0; /* `from` works then, too */
    bool elsewhere = from == NULL || from->region != to->region;
    if (usd_s > 0 && elsewhere) egress = facts->move_usd * to->value / usd_s;
    double move = to->value * to->worth * move_s(policy, to->count) + egress;
    double now = from != NULL && here_s <= to->start_s ? from->value * from->worth : 0;
    if (to->value * to->worth <= now) return -INFINITY; /* a move that can wait does */
    for (int k = 0; k * TM_POOLS_SAMPLE_S < ahead_s; k++) {
        bool last = (k + 1) * TM_POOLS_SAMPLE_S >= ahead_s;
        more += value_at(policy, to, k) * to->worth * part_s(k, to->start_s, ahead_s);
        if (from != NULL)
            more -= value_at(policy, from, k) * from->worth * (1 + least_gain) * part_s(k, here_s, ahead_s);
        best = fmax(best, more - (last ? 1 : 2) * move);
    }
    return best;
}

static int best_group(const struct tm_policy *policy, const struct tm_facts *facts, const struct group *groups,
                      int count)
{
    int best = facts->group;
    double most = 0, ahead_s = AHEAD_S;
    const struct group *from = best >= 0 && best < count ? &groups[best] : NULL;
    for (int g = 0; g < count; g++)
        ahead_s = fmax(ahead_s, AHEAD_S + groups[g].start_s);
    for (int g = 0; g < count; g++) {
        if (g == facts->group) continue;
        double gain = gain_of(policy, facts, from, &groups[g], ahead_s);
        bool first = best < 0 && groups[g].capacity > 0; /* where nothing runs, any is better than none */
        if (gain <= most && !first) continue;
        most = gain;
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
    int each = tm_pools__each(facts);
    needed = (needed + each - 1) / each * each; /* whole instances */
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

/* Until enough of the others have come, and the anchors (`waits`: not yet), the job trains on where it is. */
static bool stays_meanwhile(const struct tm_policy *policy, const struct tm_facts *facts, const struct group *from,
                            const struct group *to, bool waits)
{
    int least = facts->limits.workers_min;
    double now = tm_policy__rate(policy, from->here, from->speed, least);
    double come = tm_policy__rate(policy, to->here, to->speed, least);
    double all = tm_policy__rate(policy, to->count, to->speed, least);
    return now > 0 && (come < nearly_all * all || waits);
}

/* What is there is kept, as far as the job may have so many: more may be there for a while, such as those that replace
 * others which have a notice. Whole instances, though not all workers of one may have come: by pool, parts of instances
 * add up to more than the job may have. */
static void keep_standing(const struct tm_facts *facts, int group, struct tm_decision *out)
{
    int room = facts->limits.workers_max, each = tm_pools__each(facts);
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        int here = (pool->here + each - 1) / each * each;
        if (pool->group != group) continue;
        out->want[i] = here < room ? here : room;
        room -= out->want[i];
    }
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
    bool stays = standing >= 0 && standing != to &&
                 stays_meanwhile(policy, facts, &groups[standing], &groups[to], tm_pools__keepers_come(facts, to));
    if (stays) out->group = standing;
    if (standing == to) keep_meanwhile(policy, facts, to, &groups[to], out);
    if (standing >= 0 && standing != to) out->why = TM_WHY_MOVES;
    if (stays) keep_standing(facts, standing, out);
}
