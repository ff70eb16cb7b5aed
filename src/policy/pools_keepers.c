/* Anchors from pools of their own: instances that keep copies in memory and do not train, cheap ones without a GPU.
 *
 * They are wanted in every region that the job uses, and where it moves to before it trains there: copies then go to
 * memory nearby, not to another region. */
#include "policy/pools_internal.h"

static bool uses_region(const struct tm_facts *facts, const struct tm_decision *decision, int region)
{
    for (int i = 0; i < facts->pool_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        if (pool->region == region && (decision->want[i] > 0 || (pool->group == decision->group && pool->here > 0)))
            return true;
    }
    return false;
}

void tm_pools__want_keepers(const struct tm_facts *facts, struct tm_decision *out)
{
    for (int i = facts->pool_count; i < facts->pool_count + facts->keeper_count; i++) {
        const struct tm_pool *pool = &facts->pools[i];
        int most = pool->here + pool->ordered + (pool->offered > 0 ? pool->offered : 0);
        out->want[i] = uses_region(facts, out, pool->region) ? most : 0;
    }
}

bool tm_pools__keepers_come(const struct tm_facts *facts, int group)
{
    for (int i = facts->pool_count; i < facts->pool_count + facts->keeper_count; i++)
        for (int k = 0; k < facts->pool_count; k++)
            if (facts->pools[k].group == group && facts->pools[k].region == facts->pools[i].region &&
                facts->pools[i].ordered > 0)
                return true;
    return false;
}
