#include "job/job_gang.h"

#include "base/alloc.h"
#include "base/log.h"
#include "job/job_file.h"
#include "market/risk.h"

#include <math.h>
#include <string.h>
#include <strings.h>

void tm_job_gang_init(struct tm_job_gang *gang)
{
    memset(gang, 0, sizeof *gang);
    tm_run_settings_init(&gang->settings);
    for (size_t i = 0; i < TM_POOLS_MAX; i++)
        tm_trace_init(&gang->traces[i]);
    gang->on_demand_usd_h = NAN;
    gang->on_demand_name = "on-demand";
}

void tm_job_gang_deinit(struct tm_job_gang *gang)
{
    for (size_t i = 0; i < TM_POOLS_MAX; i++)
        tm_trace_deinit(&gang->traces[i]);
    if (gang->pools != NULL) tm_job_pools__deinit(gang->pools);
    tm_free(gang->pools);
    tm_run_settings_deinit(&gang->settings);
}

struct tm_gang_pools tm_job_gang_pools(const struct tm_job_gang *gang)
{
    return (struct tm_gang_pools){.list = gang->list, .count = gang->count};
}

/* ---- a job file ---- */

static int check_file(const struct tm_job *job, struct tm_error *e)
{
    size_t count = 0;
    bool types = false;
    const struct tm_job_pool *pools = tm_job_fleet_pools(&job->fleet, &count);
    if (!tm_job_fleet_has_choices(&job->fleet))
        return tm_job_wrong(job, "fleet.pools", e,
                            "--work needs pools to choose from: write a trace or a limit for each");
    for (size_t i = 0; i < count; i++) {
        if (pools[i].role != TM_POOL_TRAINS)
            return tm_job_wrong(job, "fleet.pools", e, "with --work nothing keeps copies: leave pool %zu out", i + 1);
        if (pools[i].throughput > 0 && pools[i].throughput != 1)
            return tm_job_wrong(job, "fleet.pools", e,
                                "--work takes as long in every pool: leave throughput of pool %zu out", i + 1);
        types = types || strcasecmp(pools[i].instance, pools[0].instance) != 0;
    }
    if (types) tm_log(TM_LOG_WARN, "%s: --work is taken to last as long on each instance type", job->file);
    return 0;
}

/* Of the first price of its trace, where neither the job nor the catalogue says one. */
static double price_of(const struct tm_sim_pool *pool)
{
    for (size_t i = 0; isnan(pool->price_usd_h) && i < pool->trace->event_count; i++)
        if (!isnan(pool->trace->events[i].price_usd_h)) return pool->trace->events[i].price_usd_h;
    return pool->price_usd_h;
}

static void take_pools(struct tm_job_gang *gang)
{
    const struct tm_job_pools *pools = gang->pools;
    int numbers[TM_POOLS_MAX], groups = 0; /* of the groups that have spot */
    for (int i = 0; i < TM_POOLS_MAX; i++)
        numbers[i] = -1;
    for (int i = 0; i < pools->pools.count; i++) {
        const struct tm_sim_pool *pool = &pools->list[i];
        if (pool->market != TM_POOL_SPOT) continue;
        if (numbers[pool->group] < 0) numbers[pool->group] = groups++;
        gang->names[gang->count] = pool->name;
        gang->list[gang->count++] = (struct tm_gang_pool){.trace = pool->trace,
                                                          .from_ms = pool->from_ms,
                                                          .limit = pool->limit,
                                                          .group = numbers[pool->group],
                                                          .usd_h = price_of(pool)};
        gang->spot_start_s = fmax(gang->spot_start_s, pool->start_s);
    }
}

/* What the catalogue says of the first pool's type. */
static int find_listed(struct tm_env *env, struct tm_arena *arena, struct tm_job_gang *gang, struct tm_error *e)
{
    struct tm_catalog catalog;
    size_t count = 0;
    const struct tm_job_pool *pool = tm_job_fleet_pools(&gang->settings.job.fleet, &count);
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(env, &catalog, e);
    if (rc == 0) gang->on_demand_usd_h = tm_job_pool__on_demand_usd_h(&catalog, pool);
    tm_catalog_deinit(&catalog);
    if (rc != 0) return rc;
    gang->on_demand_name = tm_arena_printf(arena, "%s on-demand", pool->instance);
    return gang->on_demand_name == NULL ? tm_error_nomem(e) : 0;
}

int tm_job_gang_read(struct tm_env *env, const char *path, struct tm_arena *arena, struct tm_job_gang *gang,
                     struct tm_error *e)
{
    struct tm_job *job = &gang->settings.job;
    int rc = tm_job_file_load(env, path, &gang->settings, e);
    if (rc == 0) rc = check_file(job, e);
    if (rc != 0) return rc;
    gang->limit = (int)job->fleet.limit;
    gang->deadline_s = (double)job->deadline_ms / 1000;
    job->fleet.across_regions = job->fleet.across_types = false;
    gang->pools = tm_calloc(1, sizeof *gang->pools);
    if (gang->pools == NULL) return tm_error_nomem(e);
    rc = tm_job_pools__init(env, job, arena, gang->pools, e);
    if (rc != 0) return rc;
    take_pools(gang);
    return find_listed(env, arena, gang, e);
}

/* ---- traces ---- */

static bool is_beside(const struct tm_trace *a, const struct tm_trace *b)
{
    char of_a[64], of_b[64];
    if (a->zone[0] == '\0') return false;
    tm_risk_region(a->zone, of_a);
    tm_risk_region(b->zone, of_b);
    return strcasecmp(of_a, of_b) == 0 && strcasecmp(a->instance, b->instance) == 0;
}

int tm_job_gang_add(struct tm_job_gang *gang, const char *name, struct tm_trace *trace, double usd_h,
                    struct tm_error *e)
{
    if (gang->count == TM_POOLS_MAX) {
        tm_trace_deinit(trace);
        return tm_error_set(e, TM_ELIMIT, "more than %d traces as pools of one job; leave some out", TM_POOLS_MAX);
    }
    int number = gang->count++, group = 0;
    gang->traces[number] = *trace; /* moved */
    tm_trace_init(trace);
    const struct tm_trace *mine = &gang->traces[number];
    for (int i = 0; i < number; i++)
        group = gang->list[i].group >= group ? gang->list[i].group + 1 : group;
    for (int i = 0; i < number; i++)
        if (is_beside(&gang->traces[i], mine)) group = gang->list[i].group;
    gang->names[number] = name;
    gang->list[number] = (struct tm_gang_pool){
        .trace = mine, .from_ms = mine->begin_ms, .limit = TM_TRACE_INSTANCES_MAX, .group = group, .usd_h = usd_h};
    return 0;
}

/* ---- both ---- */

static void find_on_demand(struct tm_job_gang *gang, int instances)
{
    const struct tm_sim_pool *best = NULL;
    for (int i = 0; gang->pools != NULL && i < gang->pools->pools.count; i++) {
        const struct tm_sim_pool *pool = &gang->pools->list[i];
        if (pool->market != TM_POOL_ON_DEMAND || pool->limit < instances) continue;
        if (best == NULL || pool->price_usd_h < best->price_usd_h) best = pool;
    }
    if (best == NULL) return;
    gang->on_demand_usd_h = best->price_usd_h;
    gang->on_demand_name = best->name;
}

void tm_job_gang_settle(struct tm_job_gang *gang, int instances)
{
    int64_t sums[TM_POOLS_MAX] = {0}, most = 0;
    for (int i = 0; i < gang->count; i++) {
        const struct tm_gang_pool *pool = &gang->list[i];
        sums[pool->group] += pool->trace->instances_max < pool->limit ? pool->trace->instances_max : pool->limit;
        if (sums[pool->group] > most) most = sums[pool->group];
    }
    if (most < instances)
        tm_log(TM_LOG_WARN,
               "no region ever has %d spot instances of one type, the most are %lld: give a smaller --gang", instances,
               (long long)most);
    find_on_demand(gang, instances);
}
