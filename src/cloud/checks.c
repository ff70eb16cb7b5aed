#include "cloud/checks.h"

#include <assert.h>
#include <stdio.h>

struct tm_cloud_check *tm_cloud_checks_add(struct tm_cloud_checks *checks, const char *name,
                                           enum tm_check_result result)
{
    assert(checks->count < TM_CLOUD_CHECKS_MAX);
    struct tm_cloud_check *line = &checks->lines[checks->count++];
    *line = (struct tm_cloud_check){.name = name, .result = result};
    return line;
}

void tm_check__quota(struct tm_cloud_checks *checks, const struct tm_check_need *need, double needed, const char *of,
                     double left, const char *quota, const char *fix)
{
    struct tm_cloud_check *line = tm_cloud_checks_add(checks, "quota", needed <= left ? TM_CHECK_GOOD : TM_CHECK_BAD);
    (void)snprintf(line->what, sizeof line->what, "%lld %s %.60s need %.0f %.40s; %.0f may be had (%.120s)",
                   (long long)need->count, need->spot ? "spot" : "on-demand", need->type, needed, of, left, quota);
    if (needed > left) (void)snprintf(line->fix, sizeof line->fix, "%.299s", fix);
}

void tm_check__no_quota(struct tm_cloud_checks *checks, const struct tm_check_need *need, const char *why)
{
    struct tm_cloud_check *line = tm_cloud_checks_add(checks, "quota", TM_CHECK_UNKNOWN);
    (void)snprintf(line->what, sizeof line->what, "%lld %s %.60s: not known: %.200s", (long long)need->count,
                   need->spot ? "spot" : "on-demand", need->type, why);
}
