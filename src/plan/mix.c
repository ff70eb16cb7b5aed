#include "plan/mix.h"

#include "base/alloc.h"

#include <math.h>

/* Columns: for each pool spot and on demand; for each pool a switch (used for the first pool of a type: is the type in
 * the fleet?); for each anchor its count. */
static int spot_column(size_t pool)
{
    return (int)(3 * pool);
}

static int on_demand_column(size_t pool)
{
    return (int)(3 * pool + 1);
}

static int type_column(const struct tm_mix *mix, size_t pool)
{
    for (size_t i = 0; i <= pool; i++) {
        if (mix->pools[i].type == mix->pools[pool].type) return (int)(3 * i + 2);
    }
    return 0;
}

static int anchor_column(const struct tm_mix *mix, size_t anchor)
{
    return (int)(3 * mix->pool_count + anchor);
}

static void add_columns(const struct tm_mix *mix, struct tm_milp *milp)
{
    for (size_t i = 0; i < mix->pool_count; i++) {
        const struct tm_mix_pool *pool = &mix->pools[i];
        bool spot = !isnan(pool->spot_usd_h);
        bool on_demand = !isnan(pool->on_demand_usd_h);
        (void)tm_milp__column(milp, spot ? pool->spot_usd_h : 0, 0, spot ? mix->instances : 0, true);
        (void)tm_milp__column(milp, on_demand ? pool->on_demand_usd_h : 0, 0, on_demand ? mix->instances : 0, true);
        (void)tm_milp__column(milp, 0, 0, type_column(mix, i) == (int)(3 * i + 2), true);
    }
    for (size_t i = 0; i < mix->anchor_count; i++)
        (void)tm_milp__column(milp, mix->anchors[i].usd_h, 0, 64, true);
}

/* How many instances of a pool can be of use: its throughput alone would do, or its share of the instances. */
static double most_useful(const struct tm_mix *mix, const struct tm_mix_pool *pool)
{
    double alone = ceil(mix->samples_per_s / (pool->samples_per_s * (1 - pool->away)) + 1);
    return fmax(1, fmin(mix->instances, alone));
}

static void add_supply_rows(const struct tm_mix *mix, struct tm_milp *milp)
{
    int speed = tm_milp__row(milp, mix->samples_per_s, INFINITY);
    int instances = tm_milp__row(milp, -INFINITY, mix->instances);
    int types = tm_milp__row(milp, -INFINITY, mix->types > 0 ? mix->types : TM_MIX_TYPES_MAX);
    int events = isfinite(mix->loss_events) ? tm_milp__row(milp, -INFINITY, mix->loss_events) : -1;
    int price = isfinite(mix->usd_h) ? tm_milp__row(milp, -INFINITY, mix->usd_h) : -1;
    for (size_t i = 0; i < mix->pool_count; i++) {
        const struct tm_mix_pool *pool = &mix->pools[i];
        int s = spot_column(i);
        int o = on_demand_column(i);
        tm_milp__put(milp, speed, s, pool->samples_per_s * (1 - pool->away));
        tm_milp__put(milp, speed, o, pool->samples_per_s);
        tm_milp__put(milp, instances, s, 1);
        tm_milp__put(milp, instances, o, 1);
        if (events >= 0) tm_milp__put(milp, events, s, pool->loss_events);
        if (price >= 0 && !isnan(pool->spot_usd_h)) tm_milp__put(milp, price, s, pool->spot_usd_h);
        if (price >= 0 && !isnan(pool->on_demand_usd_h)) tm_milp__put(milp, price, o, pool->on_demand_usd_h);
        int t = type_column(mix, i);
        if (t == (int)(3 * i + 2)) tm_milp__put(milp, types, t, 1);
        int used = tm_milp__row(milp, -INFINITY, 0); /* of a type that is not switched on there is nothing */
        tm_milp__put(milp, used, s, 1);
        tm_milp__put(milp, used, o, 1);
        tm_milp__put(milp, used, t,
                     -(mix->quota_count > 0 || mix->anchor_count > 0 ? mix->instances : most_useful(mix, pool)));
    }
    for (size_t i = 0; price >= 0 && i < mix->anchor_count; i++)
        tm_milp__put(milp, price, anchor_column(mix, i), mix->anchors[i].usd_h);
}

static void add_quota_rows(const struct tm_mix *mix, struct tm_milp *milp)
{
    for (size_t q = 0; q < mix->quota_count; q++) {
        const struct tm_mix_quota *quota = &mix->quotas[q];
        int row = tm_milp__row(milp, -INFINITY, quota->limit);
        for (size_t i = 0; i < mix->pool_count; i++) {
            if (!(quota->pools[i] > 0)) continue;
            if ((quota->markets & TM_MIX_SPOT) != 0) tm_milp__put(milp, row, spot_column(i), quota->pools[i]);
            if ((quota->markets & TM_MIX_ON_DEMAND) != 0) tm_milp__put(milp, row, on_demand_column(i), quota->pools[i]);
        }
    }
}

static void add_anchor_rows(const struct tm_mix *mix, struct tm_milp *milp)
{
    for (int memory = 0; memory < 2; memory++) {
        double needed = memory == 0 ? mix->anchor_network_bit_s / 1e9 : mix->anchor_memory_gib;
        if (!(needed > 0)) continue;
        int row = tm_milp__row(milp, needed, INFINITY);
        for (size_t i = 0; i < mix->pool_count; i++) {
            double given = memory == 0 ? mix->pools[i].network_bit_s / 1e9 : mix->pools[i].memory_gib;
            tm_milp__put(milp, row, on_demand_column(i), fmin(given, needed)); /* more than is needed is of no use */
        }
        for (size_t i = 0; i < mix->anchor_count; i++) {
            double given = memory == 0 ? mix->anchors[i].network_bit_s / 1e9 : mix->anchors[i].memory_gib;
            tm_milp__put(milp, row, anchor_column(mix, i), fmin(given, needed));
        }
    }
}

struct tm_milp *tm_mix__program(const struct tm_mix *mix)
{
    struct tm_milp *milp = tm_milp__create();
    if (milp == NULL) return NULL;
    add_columns(mix, milp);
    add_supply_rows(mix, milp);
    add_quota_rows(mix, milp);
    add_anchor_rows(mix, milp);
    return milp;
}

int tm_mix__solve(const struct tm_mix *mix, double gap, struct tm_mix_counts *counts, int *anchors,
                  struct tm_mix_solution *out, struct tm_error *e)
{
    struct tm_milp_solution solution = {0};
    struct tm_milp *milp = tm_mix__program(mix);
    int rc = milp != NULL ? tm_milp__solve(milp, gap, &solution, e) : tm_error_nomem(e);
    if (rc == 0) *out = (struct tm_mix_solution){solution.feasible, solution.objective, solution.bound};
    for (size_t i = 0; rc == 0 && solution.feasible && i < mix->pool_count; i++)
        counts[i] =
            (struct tm_mix_counts){(int)solution.values[spot_column(i)], (int)solution.values[on_demand_column(i)]};
    for (size_t i = 0; rc == 0 && solution.feasible && i < mix->anchor_count; i++)
        anchors[i] = (int)solution.values[anchor_column(mix, i)];
    tm_milp_solution__deinit(&solution);
    tm_milp__destroy(milp);
    return rc;
}
