#include "job/pool_lives.h"

#include "job/provider.h"
#include "market/catalog.h"
#include "market/risk.h"
#include "market/starts.h"

#include <math.h>
#include <strings.h>

static bool is_open(const struct tm_job_fleet *fleet, const struct tm_job_pool *pool)
{
    return pool->market == TM_POOL_SPOT && pool->role == TM_POOL_TRAINS && pool->mean_life_ms == 0 &&
           fleet->losses.mean_life_ms == 0 && fleet->trace == NULL;
}

static int64_t life_ms(const struct tm_catalog *catalog, const struct tm_risk *risk, const struct tm_job_pool *pool)
{
    struct tm_risk_answer answer;
    struct tm_risk_query query = {.cloud = pool->cloud,
                                  .instance = pool->instance,
                                  .region = pool->region,
                                  .zone = pool->zone,
                                  .band = TM_BAND_UNKNOWN,
                                  .hour_utc = -1};
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        if (strcasecmp(type->name, pool->instance) != 0 ||
            (pool->cloud != NULL && strcasecmp(type->cloud, pool->cloud) != 0))
            continue;
        query.cloud = type->cloud;
        query.gpu = type->gpu;
        query.gpus = type->gpus;
        if (pool->region != NULL && strcasecmp(offer->region, pool->region) == 0) query.band = offer->band;
    }
    tm_risk_ask(risk, &query, &answer);
    return llround(1000 / answer.loss_per_s);
}

/* Where the pools are, as settling the job would say it. */
static int locate(struct tm_job *job, struct tm_error *e)
{
    struct tm_job_pool *pools = job->fleet.pools.items;
    int line = job->fleet_line;
    const char *place = line > 0 ? tm_arena_printf(&job->arena, "%s:%d", job->file, line) : job->file;
    int rc = place == NULL ? tm_error_nomem(e) : 0;
    for (size_t i = 0; rc == 0 && i < job->fleet.pools.count; i++)
        rc = tm_job_pool_locate(&pools[i], i + 1, place, &job->arena, e);
    return rc;
}

/* ---- how long one waits for them ---- */

/* Where this pool's instances come from; NULL: from nowhere that was ever waited for. */
static const char *cloud_of(const struct tm_job *job, const char *said)
{
    const struct tm_provider *provider = tm_provider_of(job);
    return said != NULL ? said : provider->emulates ? NULL : provider->name;
}

static int ask_start(struct tm_env *env, const struct tm_job *job, const struct tm_job_pool *pool, int64_t *start_ms,
                     struct tm_error *e)
{
    double wait_s = NAN;
    int rc = 0;
    const char *cloud = cloud_of(job, pool->cloud);
    const char *zone = pool->zone != NULL ? pool->zone : pool->region != NULL ? pool->region : "";
    if (pool->partition != NULL)
        rc = tm_starts_ask(env, "slurm", pool->partition, &wait_s, e);
    else if (cloud != NULL && pool->instance != NULL && pool->instance[0] != '\0')
        rc = tm_starts_ask_type(env, cloud, pool->instance, zone, &wait_s, e);
    if (rc == 0 && !isnan(wait_s)) *start_ms = llround(wait_s * 1000);
    /* a queue that nobody has waited in: what is usual of VMs on demand says nothing of it */
    bool unseen = rc == 0 && isnan(wait_s) && pool->partition != NULL && pool->market == TM_POOL_ON_DEMAND;
    if (unseen && !tm_job_says(job, "fleet.on_demand_start")) *start_ms = 0;
    return rc;
}

static int64_t slowest_start_ms(const struct tm_job_fleet *fleet, enum tm_pool_market market, enum tm_pool_role role)
{
    size_t count = 0;
    int64_t slowest_ms = TM_FLEET_UNSAID;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].market == (int)market && pools[i].role == (int)role && pools[i].start_ms > slowest_ms)
            slowest_ms = pools[i].start_ms;
    return slowest_ms;
}

int64_t tm_pool_lives__start_ms(const struct tm_job_fleet *fleet, enum tm_pool_market market)
{
    int64_t trains_ms = slowest_start_ms(fleet, market, TM_POOL_TRAINS);
    if (tm_job_fleet_has_choices(fleet)) return TM_FLEET_UNSAID;
    return trains_ms != TM_FLEET_UNSAID ? trains_ms : slowest_start_ms(fleet, market, TM_POOL_KEEPS_COPIES);
}

static void take_start(const struct tm_job_fleet *fleet, enum tm_pool_market market, int64_t *start_ms)
{
    int64_t pools_ms = tm_pool_lives__start_ms(fleet, market);
    if (pools_ms != TM_FLEET_UNSAID) *start_ms = pools_ms;
}

int tm_pool_lives__fill_starts(struct tm_env *env, struct tm_job *job, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &job->fleet;
    struct tm_job_pool *pools = fleet->pools.items;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < fleet->pools.count; i++)
        if (pools[i].start_ms < 0) rc = ask_start(env, job, &pools[i], &pools[i].start_ms, e);
    bool keeps = fleet->anchor_instance != NULL && fleet->anchor_instance[0] != '\0';
    struct tm_job_pool spot = {.instance = fleet->instance};
    struct tm_job_pool on_demand = {.instance = keeps ? fleet->anchor_instance : fleet->instance};
    if (rc == 0 && fleet->spot_start_ms == 0 && !tm_job_says(job, "fleet.spot_start"))
        rc = ask_start(env, job, &spot, &fleet->spot_start_ms, e);
    if (rc == 0 && !tm_job_says(job, "fleet.on_demand_start"))
        rc = ask_start(env, job, &on_demand, &fleet->on_demand_start_ms, e);
    if (rc == 0 && !tm_job_says(job, "fleet.spot_start")) take_start(fleet, TM_POOL_SPOT, &fleet->spot_start_ms);
    if (rc == 0 && !tm_job_says(job, "fleet.on_demand_start"))
        take_start(fleet, TM_POOL_ON_DEMAND, &fleet->on_demand_start_ms);
    return rc;
}

int tm_pool_lives__fill(struct tm_env *env, struct tm_job *job, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_risk risk;
    bool any = false;
    size_t count = job->fleet.pools.count;
    struct tm_job_pool *pools = job->fleet.pools.items;
    for (size_t i = 0; i < count; i++)
        any = any || is_open(&job->fleet, &pools[i]);
    int rc = any ? locate(job, e) : 0;
    if (rc == 0) rc = tm_pool_lives__fill_starts(env, job, e);
    if (rc != 0 || !any) return rc;
    tm_catalog_init(&catalog);
    tm_risk_init(&risk);
    rc = tm_catalog_load(env, &catalog, e);
    if (rc == 0) rc = tm_risk_load(env, &risk, e);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (is_open(&job->fleet, &pools[i])) pools[i].mean_life_ms = life_ms(&catalog, &risk, &pools[i]);
    tm_risk_deinit(&risk);
    tm_catalog_deinit(&catalog);
    return rc;
}
