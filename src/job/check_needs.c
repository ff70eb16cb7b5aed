#include "job/check_needs.h"

#include <string.h>
#include <strings.h>

static void add(const struct tm_catalog *catalog, const char *type, bool spot, int64_t count,
                struct tm_check_needs *out)
{
    if (type == NULL || type[0] == '\0' || count <= 0) return;
    for (size_t i = 0; i < out->count; i++)
        if (out->list[i].spot == spot && strcasecmp(out->list[i].type, type) == 0) {
            out->list[i].count += count;
            return;
        }
    if (out->count == TM_CHECK_NEEDS_MAX) return;
    struct tm_check_need *need = &out->list[out->count++];
    *need = (struct tm_check_need){.type = type, .gpu = "", .spot = spot, .count = count};
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *one = &catalog->instances[i];
        if (strcasecmp(one->name, type) != 0) continue;
        need->vcpus = one->vcpus;
        need->gpus = (double)one->gpus;
        need->gpu = one->gpu;
    }
}

void tm_job_check_needs(const struct tm_job *job, const struct tm_catalog *catalog, struct tm_check_needs *out)
{
    const struct tm_job_fleet *fleet = &job->fleet;
    const char *cloud = tm_job_cloud_names[job->cloud];
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    *out = (struct tm_check_needs){.count = 0};
    for (size_t i = 0; i < fleet->pools.count; i++) {
        const struct tm_job_pool *pool = &pools[i];
        add(catalog, pool->instance, pool->market == TM_POOL_SPOT, pool->limit > 0 ? pool->limit : pool->count, out);
        if (pool->region != NULL) out->region = pool->region;
    }
    if (fleet->pools.count == 0) {
        add(catalog, fleet->instance, true, fleet->limit, out);
        add(catalog, fleet->instance, false, job->deadline_ms > 0 ? fleet->limit : fleet->on_demand, out);
    }
    if (strcmp(cloud, "aws") == 0) out->image = fleet->aws.image;
    if (strcmp(cloud, "gcp") == 0) out->image = fleet->gcp.image;
    if (strcmp(cloud, "azure") == 0) out->image = fleet->azure.image;
    if (strcmp(cloud, "azure") == 0 && fleet->azure.location != NULL) out->region = fleet->azure.location;
}
