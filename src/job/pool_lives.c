#include "job/pool_lives.h"

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

/* The queue of a partition, as it was lately. */
static int fill_waits(struct tm_env *env, struct tm_job *job, struct tm_error *e)
{
    struct tm_job_pool *pools = job->fleet.pools.items;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < job->fleet.pools.count; i++) {
        double wait_s = NAN;
        if (pools[i].partition == NULL || pools[i].start_ms >= 0) continue;
        rc = tm_starts_ask(env, "slurm", pools[i].partition, &wait_s, e);
        if (rc == 0 && !isnan(wait_s)) pools[i].start_ms = llround(wait_s * 1000);
    }
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
    int rc = fill_waits(env, job, e);
    if (rc == 0 && any) rc = locate(job, e);
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
