/* What providers of VMs that join have in common (cloud/vm_cloud.h): one region, a bucket that copies and the program
 * are in, tickets, pools. */
#ifndef TM_JOB_PROVIDER_VMS_H
#define TM_JOB_PROVIDER_VMS_H

#include "cloud/vm_cloud.h"
#include "job/provider.h"
#include "store/objects.h"

enum { TM_PROVIDER_OWNER_MAX = 64 };

/* One of them. */
struct tm_provider__vm_kind {
    const char *cloud;  /* "aws" */
    const char *scheme; /* of the buckets it can use: "s3" */
    const char *type;   /* an instance type, for messages */
    /* The region of a zone's name; "" where it does not say. */
    void (*region_of)(const char *zone, char out[64]);
    /* Where its API is; `region` NULL: as set. */
    int (*origin)(struct tm_env *env, const char *region, char out[TM_VM_ORIGIN_MAX], struct tm_error *e);
};

/* What was said of VMs under fleet: 0 is the usual. */
struct tm_provider__vm_times {
    int64_t silence_ms;
    int64_t life_ms;
    int64_t start_ms;
};

/* In the request's arena, as long as the cloud is there. */
struct tm_provider__vms {
    struct tm_vm_options options;
    char region[64]; /* "": not said */
    const struct tm_provider_request *request;
    struct tm_cloud_pool pools[TM_CLOUD_POOLS_MAX];
    char bucket[TM_BUCKET_MAX];
    char prefix[TM_PREFIX_MAX];
    char owner[TM_PROVIDER_OWNER_MAX];
};

/* Who rents, for tags: USER, LOGNAME, or the name of this program's user in /etc/passwd; "not known" where nobody
 * says. */
void tm_provider_vms_owner(struct tm_env *env, char out[TM_PROVIDER_OWNER_MAX]);

/* The Python package for VMs: a file beside the program, or where scripts/make-wheel lays it, or that TIDEMILL_WHEEL
 * names; NULL: there is none, and a warning says so. */
int tm_provider_vms__wheel(struct tm_env *env, const char *program, struct tm_arena *arena, const char **out,
                           struct tm_error *e);
/* Where all its pools are; "": they do not say. */
int tm_provider_vms__region(const struct tm_provider__vm_kind *kind, const struct tm_job_fleet *fleet,
                            const char *place, char out[64], struct tm_error *e);
/* What it must know before anything is rented; where VMs reach this machine, unless somebody says, is the address that
 * it has on its way to the cloud. Waits for that. */
int tm_provider_vms__settle(const struct tm_provider__vm_kind *kind, struct tm_env *env,
                            struct tm_run_settings *settings, const char *place, struct tm_error *e);
int tm_provider_vms__check(const struct tm_provider__vm_kind *kind, const struct tm_run_settings *settings,
                           const char *place, struct tm_error *e);
int tm_provider_vms__fill(const struct tm_provider__vm_kind *kind, struct tm_env *env,
                          const struct tm_provider_request *request, const struct tm_provider__vm_times *times,
                          struct tm_provider__vms **out, struct tm_error *e);

#endif
