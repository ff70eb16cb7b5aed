/* Pools to choose from, in some worlds: each has a region, a market, a limit, a capacity and a price that change, a
 * time to start and a speed of its own. From dice of their own, so that the other worlds are what they were. */
#include "sim.h"

#include "layout/shares.h"

#include <math.h>
#include <stdio.h>

typedef unsigned long long ull;

enum { POOLS_DICE = 9004, ARRIVAL_S = 1, INSTANCES_KEPT = 8 /* for when faults stop */ };

static uint64_t below(struct sim *sim, uint64_t limit)
{
    return tm_random_below(&sim->pool_dice, limit);
}

static void draw_pool(struct sim *sim, struct sim_pool *pool, uint32_t regions)
{
    static const double speeds[] = {1, 1, 2, 0.5};
    *pool = (struct sim_pool){.region = (int)below(sim, regions),
                              .spot = below(sim, 5) != 0,
                              .limit = 2 + (size_t)below(sim, 6),
                              .supply = (size_t)below(sim, 7),
                              .price_microusd_h = 300000 + below(sim, 1500000),
                              .start_ms = 500 + (int64_t)below(sim, 12000),
                              .speed = sim->mixed ? speeds[below(sim, 4)] : 1,
                              .tells = below(sim, 2) == 0};
    if (!pool->spot) pool->supply = INSTANCES_MAX;
    if (!pool->spot) pool->price_microusd_h += 2000000;
}

void pools_draw(struct sim *sim)
{
    sim->pool_dice = tm_random_make(sim->seed, POOLS_DICE);
    if (!fault_may(sim, FAULT_POOL_CAPACITY) || sim->choice->instances > 0 || below(sim, 4) != 0) return;
    uint32_t regions = 1 + (uint32_t)below(sim, 3);
    sim->mixed = below(sim, 2) == 0;
    sim->by_share = sim->mixed && below(sim, 2) == 0;
    sim->pool_count = 2 + (size_t)below(sim, POOLS_MAX - 1);
    struct tm_coordinator_options *options = &sim->coordinator_options;
    options->pools = (uint32_t)sim->pool_count;
    for (size_t i = 0; i < sim->pool_count; i++) {
        draw_pool(sim, &sim->pools[i], regions);
        if (below(sim, 4) != 0) options->pool_slowness[i] = tm_slowness(1 / sim->pools[i].speed); /* else unsaid */
    }
    sim->by_policy = true;
    sim->cloud_passive = false;
    sim->anchors = 0;
    options->remotes = 0;
    if (sim->rule.workers_max == 0) sim->rule.workers_max = sim->stages + 1 + (uint32_t)below(sim, 5);
}

void pools_rule(const struct sim *sim, struct tm_policy_rule *rule)
{
    rule->pool_count = (int)sim->pool_count;
    rule->move_usd = sim->pool_count > 0 ? 0.001 : 0;
    for (size_t i = 0; i < sim->pool_count; i++) {
        const struct sim_pool *pool = &sim->pools[i];
        double wait_s = (double)pool->start_ms / 1000;
        rule->pools[i] = (struct tm_rule_pool){.market = pool->spot ? TM_POOL_SPOT : TM_POOL_ON_DEMAND,
                                               .group = pool->region,
                                               .start_s = wait_s + ARRIVAL_S,
                                               .wait_s = wait_s,
                                               .speed = pool->speed};
    }
}

double pools_slowest(const struct sim *sim)
{
    double slowest = 1;
    for (size_t i = 0; i < sim->pool_count; i++)
        slowest = fmax(slowest, 1 / sim->pools[i].speed);
    return slowest;
}

/* ---- instances ---- */

void pools_place(struct sim *sim, struct node *first, size_t number)
{
    const struct sim_pool *pool = &sim->pools[number];
    for (uint64_t i = first->id; i < sim_next(sim, first->id); i++) {
        struct node *node = &sim->instances[i];
        node->pool = (uint32_t)number;
        node->spot = pool->spot;
        node->anchor = !pool->spot;
        node->slow = node->usual_slow = 1 / pool->speed;
        node->price_microusd_h = i == first->id ? pool->price_microusd_h : 0;
    }
}

void pools_place_any(struct sim *sim, struct node *first)
{
    if (sim->pool_count > 0) pools_place(sim, first, (size_t)below(sim, sim->pool_count));
}

static size_t here_in(const struct sim *sim, size_t pool)
{
    size_t count = 0;
    for (size_t i = 1; i < sim->node_count; i += sim->workers)
        count += sim->instances[i].up && sim->instances[i].pool == pool;
    return count;
}

static size_t capacity(const struct sim_pool *pool)
{
    return pool->supply < pool->limit ? pool->supply : pool->limit;
}

/* ---- what the cloud says and does ---- */

size_t pools_report(const struct sim *sim, Tmw__PoolReport *told, Tmw__PoolReport **list)
{
    for (size_t i = 0; i < sim->pool_count; i++) {
        const struct sim_pool *pool = &sim->pools[i];
        size_t taken = here_in(sim, i) + pool->granting;
        tmw__pool_report__init(&told[i]);
        told[i].price_microusd_h = pool->price_microusd_h;
        told[i].offered = !pool->tells ? -1 : taken < capacity(pool) ? (int64_t)(capacity(pool) - taken) : 0;
        told[i].refused = (uint32_t)pool->refused;
        told[i].starting = (uint32_t)pool->granting;
        told[i].wait_ms = pool->tells ? pool->start_ms : 0;
        double bill_microusd = 0;
        for (size_t n = 1; n < sim->node_count; n += sim->workers) {
            const struct node *node = &sim->instances[n];
            if (node->pool != i) continue;
            bill_microusd += cloud_bill_microusd(sim, node);
            told[i].instance_ms += (uint64_t)((node->end_ms != 0 ? node->end_ms : sim_utc(sim)) - node->start_ms);
        }
        told[i].bill_microusd = (uint64_t)bill_microusd;
        list[i] = &told[i];
    }
    return sim->pool_count;
}

static void grant(struct sim *sim, struct event *event)
{
    struct sim_pool *pool = &sim->pools[event->a];
    const struct tm_cloud_order *order = &sim->cloud.order;
    size_t here = here_in(sim, (size_t)event->a);
    pool->granting--;
    if (!order->given || order->stop || here >= order->want[event->a]) return; /* not wanted any more */
    if (here >= capacity(pool)) return;
    struct node *first = sim_add_instance(sim);
    if (first != NULL) pools_place(sim, first, (size_t)event->a);
}

static size_t all_granting(const struct sim *sim)
{
    size_t count = 0;
    for (size_t i = 0; i < sim->pool_count; i++)
        count += sim->pools[i].granting;
    return count;
}

static void rent_in(struct sim *sim, size_t number, size_t want)
{
    struct sim_pool *pool = &sim->pools[number];
    size_t taken = here_in(sim, number) + pool->granting;
    size_t get = want < capacity(pool) ? want : capacity(pool);
    while (taken < get) {
        if (sim->node_count + (all_granting(sim) + INSTANCES_KEPT) * sim->workers >= INSTANCES_MAX) return;
        int64_t delay_ms = pool->start_ms + (int64_t)below(sim, 1000);
        if (!sim->faults.over && below(sim, 5) == 0) delay_ms += (int64_t)below(sim, 20000);
        pool->granting++;
        taken++;
        sim_schedule(sim, sim->now_ms + delay_ms, grant, number, 0, 0, 0, NULL, 0);
    }
    size_t refused = want > taken ? want - taken : 0;
    if (refused > pool->refused && fault_comes(sim, FAULT_POOL_REFUSED))
        sim_trace(sim, "pool %zu refuses %zu", number, refused);
    pool->refused = refused;
}

void pools_rent(struct sim *sim)
{
    const struct tm_cloud_order *order = &sim->cloud.order;
    for (size_t i = 0; i < sim->pool_count; i++)
        rent_in(sim, i, i < order->pool_count ? order->want[i] : 0);
}

/* ---- faults ---- */

/* A pool runs dry, or has some again; what it has no place for any more goes, the newest first, with or without a
 * notice. */
static void change_capacity(struct sim *sim, size_t number)
{
    struct sim_pool *pool = &sim->pools[number];
    if (!pool->spot || !fault_comes(sim, FAULT_POOL_CAPACITY)) return;
    pool->supply = below(sim, 3) == 0 ? 0 : (size_t)below(sim, 8);
    sim_trace(sim, "pool %zu has room for %zu", number, pool->supply);
    size_t here = here_in(sim, number);
    for (size_t i = sim->node_count; i > 1 && here > pool->supply;) {
        i -= sim->workers;
        struct node *node = &sim->instances[i];
        if (!node->up || node->pool != number) continue;
        int64_t left_ms = below(sim, 3) == 0 ? 0 : 1000 + (int64_t)below(sim, 20000);
        here--;
        fault_notice(sim, node, left_ms, left_ms);
    }
}

static void change_price(struct sim *sim, size_t number)
{
    if (!fault_comes(sim, FAULT_POOL_PRICE)) return;
    sim->pools[number].price_microusd_h = 200000 + below(sim, 4000000);
}

static void next_change(struct sim *sim, struct event *event)
{
    if (sim->now_ms >= sim->faults.until_ms || sim->finished) return;
    size_t number = (size_t)below(sim, sim->pool_count);
    sim->fault_count++;
    if (below(sim, 3) == 0)
        change_price(sim, number);
    else
        change_capacity(sim, number);
    sim_schedule(sim, sim->now_ms + (int64_t)tm_random_exponential(&sim->pool_dice, (double)event->a), next_change,
                 event->a, 0, 0, 0, NULL, 0);
}

void pools_plan(struct sim *sim)
{
    if (sim->pool_count == 0) return;
    double mean_ms = (5000 + (double)below(sim, 30000)) / sim->choice->scale;
    sim_schedule(sim, 3000, next_change, (uint64_t)mean_ms + 1, 0, 0, 0, NULL, 0);
}

void pools_mend(struct sim *sim)
{
    for (size_t i = 0; i < sim->pool_count; i++)
        sim->pools[i].supply = INSTANCES_MAX;
}

/* ---- checkers ---- */

/* Are there more than are wanted of some pool, or less, though it has them? */
bool pools_off(const struct sim *sim, const struct tm_coordinator_view *view)
{
    for (size_t i = 0; i < sim->pool_count; i++) {
        size_t here = here_in(sim, i), want = view->want[i];
        if (here > want || (here < want && here < capacity(&sim->pools[i]))) return true;
    }
    return false;
}

void pools_fail_rent(struct sim *sim, const struct tm_coordinator_view *view)
{
    char list[POOLS_MAX * 32] = "";
    int used = 0;
    for (size_t i = 0; i < sim->pool_count; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, " %zu of %u", here_in(sim, i), view->want[i]);
    sim_fail(sim, "rent: by pool, there are for long, of what is wanted:%s", list);
}

/* Who trains together is in one region, and a region is not asked for more than the job may have. */
void pools_started(struct sim *sim, const struct tm_roster *roster)
{
    int region = -1;
    for (size_t i = 0; sim->pool_count > 0 && i < roster->member_count; i++) {
        const struct tm_member *member = &roster->members[i];
        int own = sim->pools[sim->instances[member->id].pool].region;
        if (member->spare) continue;
        if (region >= 0 && own != region)
            sim_fail(sim, "pools: worker %llu of region %d trains with others of region %d in generation %llu",
                     (ull)member->id, own, region, (ull)roster->generation);
        region = own;
    }
    if (region < 0) return;
    sim->moves += sim->region_known && region != sim->region;
    sim->region = region;
    sim->region_known = true;
}

void pools_check(struct sim *sim, const struct tm_coordinator_view *view)
{
    uint32_t wanted[POOLS_MAX] = {0};
    for (size_t i = 0; i < sim->pool_count && i < view->pool_count; i++) {
        wanted[sim->pools[i].region] += view->want[i];
        if (wanted[sim->pools[i].region] > sim->rule.workers_max)
            sim_fail(sim, "pools: %u instances of one region are wanted, %u are allowed", wanted[sim->pools[i].region],
                     sim->rule.workers_max);
    }
}
