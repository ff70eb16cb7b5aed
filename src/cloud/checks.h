/* What of a cloud's account works for Tidemill, without renting anything: lines, each with what to do where it does
 * not.
 */
#ifndef TM_CLOUD_CHECKS_H
#define TM_CLOUD_CHECKS_H

#include "base/env.h"

enum { TM_CLOUD_CHECKS_MAX = 48, TM_CHECK_NEEDS_MAX = 24 };

enum tm_check_result { TM_CHECK_GOOD, TM_CHECK_BAD, TM_CHECK_UNKNOWN };

struct tm_cloud_check {
    const char *name; /* "credentials", "network", ... */
    enum tm_check_result result;
    char what[400];
    char fix[300]; /* "": nothing is to be done */
};

struct tm_cloud_checks {
    struct tm_cloud_check lines[TM_CLOUD_CHECKS_MAX];
    size_t count;
};

/* So many instances of a type a job wants at a time: quotas are held against that. Texts are borrowed. */
struct tm_check_need {
    const char *type;
    const char *gpu; /* "V100"; "": none */
    bool spot;
    int64_t count;
    double vcpus; /* of one; 0: not known */
    double gpus;
};

struct tm_check_request {
    const char *image;  /* the one to rent with; NULL: the cloud's newest for GPUs */
    const char *region; /* NULL: the account's */
    const struct tm_check_need *needs;
    size_t need_count;
};

/* The next line, with its result. */
struct tm_cloud_check *tm_cloud_checks_add(struct tm_cloud_checks *checks, const char *name,
                                           enum tm_check_result result);
/* One need against one quota: `of` is what the cloud counts ("vCPUs", "V100 GPUs"), `quota` its name, `left` what may
 * still be had, `fix` how to get more. */
void tm_check__quota(struct tm_cloud_checks *checks, const struct tm_check_need *need, double needed, const char *of,
                     double left, const char *quota, const char *fix);
/* Nobody says which quota holds for it. */
void tm_check__no_quota(struct tm_cloud_checks *checks, const struct tm_check_need *need, const char *why);

#endif
