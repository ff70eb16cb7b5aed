#include "plan/recorded_traces.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool is_of_type(const char *type, const struct tm_instance_type *instance)
{
    return strcasecmp(type, instance->name) == 0 || strcasecmp(type, instance->gpu) == 0;
}

const struct tm_plan_trace *tm_plan__trace_of(const struct tm_plan_traces *traces,
                                              const struct tm_instance_type *instance, const struct tm_offer *offer)
{
    const struct tm_plan_trace *best = NULL;
    int best_rank = -1;
    for (size_t i = 0; traces != NULL && i < traces->count; i++) {
        const struct tm_plan_trace *trace = &traces->list[i];
        if (trace->type != NULL && !is_of_type(trace->type, instance)) continue;
        if (trace->region != NULL && strcasecmp(trace->region, offer->region) != 0) continue;
        int rank = (trace->type != NULL ? 4 : 0) + (trace->region != NULL ? 2 : 0) +
                   (trace->type != NULL && strcasecmp(trace->type, instance->name) == 0);
        if (rank < best_rank) continue;
        best = trace;
        best_rank = rank;
    }
    return best;
}

struct tm_expect_job tm_plan__job_on(const struct tm_expect_job *job, const struct tm_plan_trace *trace)
{
    struct tm_expect_job out = *job;
    if (trace == NULL) return out;
    out.burst_share = trace->losses.burst_share;
    out.burst_size = trace->losses.burst_size;
    out.replace_s = trace->losses.replace_s;
    out.outage_s = trace->outage_s;
    return out;
}

/* us-west-2 has us-west-2a, us-east1 has us-east1-c, eastus has eastus-1. */
static bool is_zone_of(const char *zone, const char *region)
{
    size_t length = strlen(region);
    if (strncasecmp(zone, region, length) != 0) return false;
    const char *rest = zone + length;
    if (rest[0] == '-') rest++;
    return rest[0] == '\0' || (isalnum((unsigned char)rest[0]) && rest[1] == '\0' &&
                               (zone[length] == '-' || isalpha((unsigned char)rest[0])));
}

const char *tm_plan_trace_region(const struct tm_catalog *catalog, const struct tm_trace *trace)
{
    const char *found = NULL;
    for (size_t i = 0; trace->zone[0] != '\0' && i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        if (strcasecmp(offer->region, trace->zone) == 0 || strcasecmp(offer->zone, trace->zone) == 0)
            return offer->region;
        if (found == NULL && offer->region[0] != '\0' && is_zone_of(trace->zone, offer->region)) found = offer->region;
    }
    return found;
}

bool tm_plan_trace_type_is_known(const struct tm_catalog *catalog, const char *type)
{
    for (size_t i = 0; i < catalog->instance_count; i++) {
        if (catalog->instances[i].gpus > 0 && is_of_type(type, &catalog->instances[i])) return true;
    }
    return false;
}
