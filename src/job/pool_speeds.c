#include "job/pool_speeds.h"

#include "base/alloc.h"
#include "job/job_engine.h"
#include "job/planned_fleet.h"

#include <string.h>
#include <strings.h>

struct tm_run_settings tm_pool_speeds__alone(const struct tm_run_settings *settings, const char *type, int count,
                                             struct tm_job_pool *pool)
{
    struct tm_run_settings one = *settings; /* borrows */
    size_t pool_count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(&settings->job.fleet, &pool_count);
    for (size_t i = 0; i < pool_count; i++)
        if (strcasecmp(pools[i].instance, type) == 0) *pool = pools[i];
    pool->market = TM_POOL_SPOT;
    pool->count = pool->limit = count;
    if (pool->usd_h_millionths < 0) pool->usd_h_millionths = 0; /* nobody asks what it costs */
    pool->trace = NULL;
    one.job.fleet.pools = (struct tm_maps){pool, 1};
    one.job.fleet.limit = count;
    return one;
}

/* Samples per second of so many instances of a type; 0: it cannot train the model. */
static int predict_type(struct tm_env *env, const struct tm_run_settings *settings, const char *type, int count,
                        double *out, struct tm_error *e)
{
    struct tm_job_pool pool = {0};
    struct tm_run_settings one = tm_pool_speeds__alone(settings, type, count, &pool);
    struct tm_fleet_layouts layouts;
    bool known = false;
    struct tm_planned_fleet *planned = tm_calloc(1, sizeof *planned);
    if (planned == NULL) return tm_error_nomem(e);
    *out = 0;
    int rc = tm_planned_fleet__init(env, &one, planned, &known, e);
    if (rc == 0 && known) {
        rc = tm_fleet_layouts_init(&planned->judge, &planned->request, &planned->fleet, &layouts, e);
        if (rc == 0) {
            *out = layouts.layouts.list[layouts.layouts.best[count]].samples_per_s;
            tm_fleet_layouts_deinit(&layouts);
        }
        if (rc == -(int)TM_ENONE) rc = 0;
    }
    tm_planned_fleet__deinit(planned);
    tm_free(planned);
    return rc;
}

int tm_pool_speeds__find(struct tm_env *env, const struct tm_run_settings *settings, int count, double first,
                         struct tm_job_pools *pools, struct tm_error *e)
{
    const char *usual = settings->job.fleet.instance;
    size_t pool_count = 0;
    const struct tm_job_pool *said = tm_job_fleet_pools(&settings->job.fleet, &pool_count);
    for (int i = 0; i < pools->pools.count; i++) {
        int like = 0, rc = 0;
        double speed = first;
        if (said[i].throughput > 0 || strcasecmp(pools->types[i], usual) == 0) {
            pools->list[i].speed = said[i].throughput > 0 ? said[i].throughput : 1;
            continue;
        }
        while (strcasecmp(pools->types[like], pools->types[i]) != 0 || said[like].throughput > 0)
            like++;
        if (like < i) {
            pools->list[i].speed = pools->list[like].speed;
            continue;
        }
        if (!(first > 0)) rc = predict_type(env, settings, usual, count, &first, e);
        if (rc == 0) rc = predict_type(env, settings, pools->types[i], count, &speed, e);
        if (rc != 0) return rc;
        pools->list[i].speed = first > 0 ? speed / first : 1;
    }
    return 0;
}

int tm_pool_speeds__settle(struct tm_env *env, struct tm_run_settings *settings, struct tm_job_pools *pools,
                           struct tm_error *e)
{
    struct tm_job_pool *said = settings->job.fleet.pools.items;
    if (!tm_job_engine_of(&settings->job)->paced) return 0; /* as fast as they are: it will be measured */
    int rc = tm_pool_speeds__find(env, settings, pools->wanted, 0, pools, e);
    for (int i = 0; rc == 0 && i < pools->pools.count; i++) {
        if (!(pools->list[i].speed > 0))
            return tm_error_set(e, TM_EINPUT,
                                "%s: fleet.pools[%d].throughput: how fast %s trains this model is not known; write its "
                                "throughput over that of %s, such as throughput: 2",
                                settings->job.file, i + 1, said[i].instance, settings->job.fleet.instance);
        if (pools->list[i].speed != 1) said[i].throughput = pools->list[i].speed;
    }
    return rc;
}

double tm_pool_speeds__of(const struct tm_job_fleet *fleet, const char *name, struct tm_arena *arena)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; name != NULL && i < count; i++) {
        const char *its = tm_job_pool__name(&pools[i], arena);
        if (its != NULL && strcmp(its, name) == 0) return pools[i].throughput > 0 ? pools[i].throughput : 1;
    }
    return 1;
}
