/* What Tidemill rented and still costs, found by tag alone: no state folder is needed. Whatever rents an instance for a
 * job tags it, as it is made, with TM_RENTED_TAG and the job's name. Calls wait: for commands, not for loops. */
#ifndef TM_CLOUD_RENTED_H
#define TM_CLOUD_RENTED_H

#include "base/env.h"
#include "market/catalog.h"

#define TM_RENTED_TAG "tidemill:job"

enum tm_rented_fate {
    TM_RENTED_THERE, /* as far as is known */
    TM_RENTED_ENDED, /* the cloud took it back when it was told to */
    TM_RENTED_GONE   /* it was gone already */
};

struct tm_rented {
    const char *cloud; /* whoever finds it for people says: "aws" */
    char id[96];
    char group[96]; /* Azure: its resource group; "": none */
    int kind; /* 0: a VM; else what was left of one (rented_azure.c, rented_aws.c: a volume; rented_gcp.c: a disk) */
    char region[40];
    char type[48];
    char job[128];
    char state[24]; /* the cloud's word */
    bool spot;
    int64_t since_ms;   /* UTC; 0: not said */
    double price_usd_h; /* by the catalogue; NaN: not known */
    enum tm_rented_fate fate;
};

struct tm_rented_list {
    struct tm_rented *items; /* owned */
    size_t count;
    size_t capacity;
    int unasked; /* regions and parts of the cloud that could not be asked; each was logged, with what to do */
};

/* All instances of an AWS account that were rented and have not ended, in every region that it has, and volumes that
 * are attached to none (state "volume"). A region that cannot be asked is counted: nobody could say that nothing is
 * left there. An error: nothing could be asked at all. The caller owns the list. */
int tm_rented_find_aws(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                       struct tm_error *e);
/* Ends them, and says of each what became of it; one that the cloud does not let go is logged, with why, and is no
 * reason to leave another. An error: nothing could be tried. */
int tm_rented_end_aws(struct tm_env *env, struct tm_rented_list *list, struct tm_error *e);

/* What jobs have beside instances, and what was done about it. */
struct tm_rented_beside {
    int removed;
    int left;
    int unasked; /* regions and things that could not be asked about; each was logged */
};
/* Removes what jobs (or the one of this name) have on AWS beside instances, in every region: security groups and launch
 * templates. `wait`: until instances that end let theirs go. */
int tm_rented_clear_aws(struct tm_env *env, const char *job, bool wait, struct tm_rented_beside *out,
                        struct tm_error *e);
/* The same of a Google Cloud project, in every zone: also those that are stopped, whose disks still cost, and disks
 * that no VM has (state "disk"). */
int tm_rented_find_gcp(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                       struct tm_error *e);
int tm_rented_end_gcp(struct tm_env *env, struct tm_rented_list *list, struct tm_error *e);
/* Removes firewall rules of runs that have no VM now. */
int tm_rented_clear_gcp(struct tm_env *env, const char *job, bool wait, struct tm_rented_beside *out,
                        struct tm_error *e);
/* The same of a subscription of Azure, in every location: VMs, and interfaces, disks and addresses that they left.
 * Waits until what is ended has gone. */
int tm_rented_find_azure(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                         struct tm_error *e);
int tm_rented_end_azure(struct tm_env *env, struct tm_rented_list *list, struct tm_error *e);
/* Removes security groups of runs that have no VM now; `wait`: until Azure lets them go. */
int tm_rented_clear_azure(struct tm_env *env, const char *job, bool wait, struct tm_rented_beside *out,
                          struct tm_error *e);
void tm_rented_list_deinit(struct tm_rented_list *list);

#endif
