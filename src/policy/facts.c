#include "policy/policy_internal.h"

#include <math.h>

static int sum(const struct tm_facts *facts, enum tm_pool_market market, enum tm_pool_role role, bool ordered)
{
    int count = 0;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (pool->market == market && pool->role == role) count += ordered ? pool->ordered : pool->here;
    }
    return count;
}

int tm_facts__here(const struct tm_facts *facts, enum tm_pool_market market, enum tm_pool_role role)
{
    return sum(facts, market, role, false);
}

int tm_facts__ordered(const struct tm_facts *facts, enum tm_pool_market market, enum tm_pool_role role)
{
    return sum(facts, market, role, true);
}

double tm_facts__usd_h(const struct tm_facts *facts)
{
    double usd_h = 0;
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (!isnan(pool->price_usd_h)) usd_h += pool->price_usd_h * (pool->here + pool->ordered + pool->leaving);
    }
    return usd_h;
}

/* What is usual: one loss in two hours of an instance, half of them without a notice, a tenth together. */
static const double usual_losses = 1, usual_s = 7200, usual_unannounced = 0.5, usual_together = 0.1;

struct tm_facts_losses tm_facts_losses_of(double losses, double unannounced, double together, double seconds)
{
    return (struct tm_facts_losses){.lost_per_s = (losses + usual_losses) / (seconds + usual_s),
                                    .unannounced = (unannounced + 2 * usual_unannounced) / (losses + 2),
                                    .together = (together + 2 * usual_together) / (losses + 2)};
}

const char *tm_why_words(enum tm_why why)
{
    switch (why) {
    case TM_WHY_STAYS:
        return "nothing asks for a change";
    case TM_WHY_EVENT:
        return "the fleet changed";
    case TM_WHY_FORECAST:
        return "another layout is expected to yield more";
    case TM_WHY_TOO_FEW:
        return "too few instances";
    case TM_WHY_DEADLINE:
        return "the deadline needs on-demand instances";
    case TM_WHY_WAITS:
        return "there is time to wait for spot instances";
    case TM_WHY_BUDGET:
        return "its budget is used up";
    case TM_WHY_MOVES:
        return "other pools are expected to yield more";
    case TM_WHY_SHARES:
        return "slower instances get fewer micro-batches";
    }
    return "";
}
