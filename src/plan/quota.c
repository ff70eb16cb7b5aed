/* Quotas as people write them. */
#include "plan/search.h"

#include "base/number.h"
#include "base/suggest.h"
#include "plan/mix.h"

#include <string.h>
#include <strings.h>

enum { LIMIT_MAX = 1000000 };

/* Is there anything of this name? */
static bool is_known(const struct tm_catalog *catalog, const struct tm_plan_quota *quota, struct tm_suggest *suggest)
{
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *instance = &catalog->instances[offer->instance];
        if (tm_plan__quota_covers(quota, instance, offer)) return true;
        tm_suggest_offer(suggest, instance->name);
        tm_suggest_offer(suggest, offer->region);
    }
    return false;
}

/* The market behind the name, which gets shorter by it. */
static int read_market(const char *text, size_t *length, struct tm_plan_quota *quota, struct tm_error *e)
{
    const char *colon = memchr(text, ':', *length);
    if (colon == NULL) return 0;
    size_t left = *length - (size_t)(colon + 1 - text);
    bool spot = left == 4 && strncmp(colon + 1, "spot", 4) == 0;
    bool on_demand = left == 9 && strncmp(colon + 1, "on-demand", 9) == 0;
    if (!spot && !on_demand)
        return tm_error_set(e, TM_EUSAGE, "expected :spot or :on-demand after the name, got \"%.*s\"",
                            (int)(left < 40 ? left : 40), colon + 1);
    quota->markets = spot ? TM_MIX_SPOT : TM_MIX_ON_DEMAND;
    *length = (size_t)(colon - text);
    return 0;
}

/* A count of instances, or of vCPUs: "8", "64vcpus". */
static bool read_limit(const char *text, size_t length, struct tm_plan_quota *out)
{
    static const char *const ends[] = {"vcpus", "vcpu", ""};
    int64_t limit = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (length <= end || strncasecmp(text + length - end, ends[i], end) != 0) continue;
        out->vcpus = end > 0;
        if (!tm_number_i64(text, length - end, &limit) || limit < 0 || limit > LIMIT_MAX) return false;
        out->limit = (int)limit;
        return true;
    }
    return false;
}

int tm_plan_quota_add(const struct tm_catalog *catalog, const char *text, size_t length, struct tm_arena *arena,
                      struct tm_plan_request *request, struct tm_error *e)
{
    const char *equals = memchr(text, '=', length);
    struct tm_plan_quota quota = {.markets = TM_MIX_SPOT | TM_MIX_ON_DEMAND};
    if (equals == NULL || equals == text || !read_limit(equals + 1, length - (size_t)(equals + 1 - text), &quota))
        return tm_error_set(e, TM_EUSAGE,
                            "expected NAME=COUNT, got \"%.*s\"; write for example p3.2xlarge=8, V100:spot=16, or "
                            "vCPUs of a family in a region: us-east-1/p:spot=64vcpus",
                            (int)(length < 60 ? length : 60), text);
    if (request->quota_count == TM_PLAN_QUOTAS_MAX)
        return tm_error_set(e, TM_ELIMIT, "more than %d of them", TM_PLAN_QUOTAS_MAX);
    size_t name_length = (size_t)(equals - text);
    int rc = read_market(text, &name_length, &quota, e);
    if (rc != 0) return rc;
    quota.name = tm_arena_strndup(arena, text, name_length);
    if (quota.name == NULL) return tm_error_nomem(e);
    struct tm_suggest suggest = {.word = quota.name};
    if (!is_known(catalog, &quota, &suggest))
        return tm_error_set(e, TM_EUSAGE, "no instance type, family, GPU, zone, region or cloud \"%.60s\"%s%s%s",
                            quota.name, suggest.best != NULL ? "; did you mean " : "",
                            suggest.best != NULL ? suggest.best : "", suggest.best != NULL ? "?" : "");
    request->quotas[request->quota_count++] = quota;
    return 0;
}
