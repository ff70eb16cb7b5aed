/* How many instances are worth their money.
 *
 * One more instance adds less than the one before (communication, micro-batches that do not divide), is paid while it
 * starts, and all stand still when it comes and when it goes. So a sample of it costs more than one of the others, and
 * much more where it does not live long. What one pool has is taken whole: the job is to do no less than it would
 * there. Beyond that, instances are taken as long as a sample costs at most a little more than it would with that pool
 * alone. Where none has a price, as on a cluster of one's own, there is no money to save, and all are taken. */
#include "policy/policy_internal.h"

#include <math.h>
#include <stdlib.h>

/* Dollars a sample, over those of the best pool alone: with as many instances again, some of which go on when that pool
 * takes its own, and with more than that. */
static const double most_for_twice = 1.08;
static const double most_for_more = 1.05;
/* Of the instances that are there: for so few more or less all would stand still again and again, as lives are learned.
 */
static const double steady = 0.2;

/* Of the first instances in the order. */
struct tally {
    double usd_h;
    double stops_per_s; /* how often all stand still, for one that comes or goes */
    double starting;    /* instances that are paid and start, on average */
    double speeds;      /* their sum */
    int taken[TM_POOLS_MAX];
};

/* Those that are here have been started and have joined: that is paid. */
static void count_in(const struct tm_policy *policy, const struct tm_facts *facts, int pool, struct tally *tally)
{
    const struct tm_pool *it = &facts->pools[pool];
    double lost_per_s = it->market == TM_POOL_SPOT ? tm_learned_pools__lost_per_s(policy->pools, pool) : 0;
    bool kept = tally->taken[pool]++ < it->here + it->ordered;
    tally->speeds += it->speed > 0 ? it->speed : 1;
    tally->usd_h += isnan(it->price_usd_h) ? 0 : it->price_usd_h;
    double stops_per_s = lost_per_s / fmax(tm_pools__each(facts), tm_learned_pools__at_once(policy->pools, pool));
    tally->stops_per_s += kept ? stops_per_s : 2 * stops_per_s; /* those that go together are one stop */
    tally->starting += kept ? 0 : fmin(1, lost_per_s * it->start_s);
}

static double samples_per_s(const struct tm_policy *policy, const struct tm_facts *facts, const struct tally *tally,
                            int count)
{
    int layout = policy->layouts->best[count];
    double stop_ms = tm_migrations_restart_ms(policy->migrations, layout) +
                     tm_migrations_largest_ms(policy->migrations, policy->layouts->list[layout].stages);
    double lost = tally->stops_per_s * stop_ms / 1000 + tally->starting / count;
    return tm_policy__rate(policy, count, tally->speeds / count, facts->limits.workers_min) * fmax(0, 1 - lost);
}

static bool are_free(const struct tm_facts *facts, const short *order, int count)
{
    for (int n = 0; n < count; n++)
        if (facts->pools[order[n]].price_usd_h > 0) return false;
    return true;
}

double tm_pools__most_usd(const struct tm_facts *facts, int count, int alone)
{
    if (facts->limits.budget_usd > 0) return 1; /* what a sample costs more is missing at the end */
    return count <= 2 * alone ? most_for_twice : most_for_more;
}

/* Of the instances in the order, those that are here or on their way. */
static int kept_of(const struct tm_facts *facts, const short *order, int count)
{
    int taken[TM_POOLS_MAX] = {0}, kept = 0;
    for (int n = 0; n < count; n++)
        kept += taken[order[n]]++ < facts->pools[order[n]].here + facts->pools[order[n]].ordered;
    return kept;
}

int tm_pools__worthwhile(const struct tm_policy *policy, const struct tm_facts *facts, const short *order, int count,
                         int alone)
{
    struct tally tally = {0};
    double alone_usd_h = 0, alone_per_s = 0, most = 0;
    int best = alone < count ? alone : count;
    if (facts->limits.rent == TM_RENT_ALL || are_free(facts, order, count)) return count;
    if (facts->limits.has_deadline) return count; /* what is not taken here would be rented on demand */
    for (int n = 1; n <= count; n++) {
        count_in(policy, facts, order[n - 1], &tally);
        if (n < alone || n % tm_pools__each(facts) != 0) continue; /* whole instances */
        double per_s = samples_per_s(policy, facts, &tally, n);
        if (n == alone) {
            alone_per_s = most = per_s;
            alone_usd_h = tally.usd_h;
            continue;
        }
        if (per_s <= most || tally.usd_h * alone_per_s > tm_pools__most_usd(facts, n, alone) * alone_usd_h * per_s)
            continue;
        most = per_s;
        best = n;
    }
    int kept = kept_of(facts, order, count);
    return kept >= alone && abs(best - kept) < steady * kept ? kept : best;
}
