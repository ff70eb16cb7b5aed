/* A job that allows one thing and has another in its pools. */
#include "workload/job.h"

#include <string.h>
#include <strings.h>

bool tm_job_infra_means(const char *infra, const char *cloud, const char *region, const char *zone)
{
    const char *const parts[] = {cloud, region, zone};
    const char *at = infra;
    for (size_t i = 0; i < 3 && *at != '\0'; i++) {
        size_t length = strcspn(at, "/");
        bool any = (length == 1 && at[0] == '*') || parts[i] == NULL;
        if (!any && (strlen(parts[i]) != length || strncasecmp(at, parts[i], length) != 0)) return false;
        at += length + (at[length] == '/');
    }
    return true;
}

static bool list_has(const struct tm_strings *list, const char *text)
{
    for (size_t i = 0; text != NULL && i < list->count; i++)
        if (strcasecmp(list->items[i], text) == 0) return true;
    return list->count == 0 || text == NULL;
}

static int check_place(const struct tm_job *job, const struct tm_job_pool *pool, size_t number, struct tm_error *e)
{
    const struct tm_job_resources *resources = &job->resources;
    bool trains = pool->role == TM_POOL_TRAINS; /* instances that keep copies may be of any type, in any zone */
    const struct {
        const char *key;
        const struct tm_strings *list;
        const char *text;
        bool asked;
    } rows[] = {{"cloud", &resources->cloud, pool->cloud, true},
                {"region", &resources->region, pool->region, true},
                {"zone", &resources->zone, pool->zone, trains},
                {"instance_type", &resources->instance_type, pool->instance, trains}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].asked && !list_has(rows[i].list, rows[i].text))
            return tm_job_wrong(job, "fleet.pools", e, "pool %zu: %.60s is not in resources.%s; change one of them",
                                number, rows[i].text, rows[i].key);
    bool allowed = resources->infra.count == 0;
    for (size_t i = 0; i < resources->infra.count; i++)
        allowed = allowed || tm_job_infra_means(resources->infra.items[i], pool->cloud, pool->region, pool->zone);
    if (!allowed)
        return tm_job_wrong(job, "fleet.pools", e, "pool %zu: its place is not in resources.infra; change one of them",
                            number);
    return 0;
}

static int check_market(const struct tm_job *job, const struct tm_job_pool *pool, size_t number, struct tm_error *e)
{
    const char *spot = job->resources.use_spot;
    const char *key = job->market != NULL ? "market" : "resources.use_spot";
    bool on_demand_only =
        job->market != NULL ? strcmp(job->market, "on-demand") == 0 : spot != NULL && strcmp(spot, "false") == 0;
    bool wrong = pool->market == TM_POOL_SPOT ? on_demand_only : tm_job_wants_spot(job);
    if (!wrong || pool->role != TM_POOL_TRAINS) return 0;
    return tm_job_wrong(job, "fleet.pools", e, "pool %zu: %s does not allow %s instances; change one of them", number,
                        key, tm_pool_market_names[pool->market]);
}

int tm_job_check_pools(const struct tm_job *job, struct tm_error *e)
{
    size_t count = 0;
    int64_t training = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(&job->fleet, &count);
    int64_t most = job->max_instances > 0 ? job->max_instances : job->num_instances;
    for (size_t i = 0; i < count; i++) {
        int rc = check_place(job, &pools[i], i + 1, e);
        if (rc == 0) rc = check_market(job, &pools[i], i + 1, e);
        if (rc != 0) return rc;
        if (pools[i].role == TM_POOL_TRAINS) training += pools[i].count;
    }
    if (tm_job_fleet_has_choices(&job->fleet)) most = 0; /* of those it is how many to have at a time */
    if (most > 0 && training > most)
        return tm_job_wrong(job, "fleet.pools", e, "%lld instances train, but %s is %lld; change one of them",
                            (long long)training, job->max_instances > 0 ? "max_nodes" : "num_nodes", (long long)most);
    if (count > 0 && job->fleet.memory > 0)
        return tm_job_wrong(job, "fleet.memory", e,
                            "the memory is that of the instance types in fleet.pools; leave it out");
    return 0;
}
