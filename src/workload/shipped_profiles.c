#include "workload/shipped_profiles.h"

#include "base/embed.h"

TM_EMBED(tm_profile_h200, "profiles/h200.tmprofile");
TM_EMBED(tm_profile_published, "profiles/published.tmprofile");

int tm_shipped_profiles(struct tm_profile *profile, struct tm_error *e)
{
    int rc = tm_profile_parse("h200.tmprofile", tm_profile_h200_begin,
                              (size_t)(tm_profile_h200_end - tm_profile_h200_begin), profile, e);
    if (rc != 0) return rc;
    return tm_profile_parse("published.tmprofile", tm_profile_published_begin,
                            (size_t)(tm_profile_published_end - tm_profile_published_begin), profile, e);
}
