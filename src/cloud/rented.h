/* What Tidemill rented and still costs, found by tag alone: no state folder is needed. Whatever rents an instance for a
 * job tags it, as it is made, with TM_RENTED_TAG and the job's name. Calls wait: for commands, not for loops. */
#ifndef TM_CLOUD_RENTED_H
#define TM_CLOUD_RENTED_H

#include "base/env.h"
#include "market/catalog.h"

#define TM_RENTED_TAG "tidemill:job"

struct tm_rented {
    const char *cloud; /* whoever finds it for people says: "aws" */
    char id[96];
    char group[96]; /* Azure: its resource group; "": none */
    int kind;       /* Azure: VM, or which part of one was left (rented_azure.c) */
    char region[40];
    char type[48];
    char job[128];
    char state[24]; /* the cloud's word */
    bool spot;
    int64_t since_ms;   /* UTC; 0: not said */
    double price_usd_h; /* by the catalogue; NaN: not known */
};

struct tm_rented_list {
    struct tm_rented *items; /* owned */
    size_t count;
    size_t capacity;
};

/* All instances of an AWS account that were rented and have not ended, in every region that it has. A region that
 * cannot be asked is an error: nobody could say that nothing is left there. The caller owns the list. */
int tm_rented_find_aws(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                       struct tm_error *e);
/* Ends them; one that is gone already is no error. `out_ended`: how many the cloud has taken back. */
int tm_rented_end_aws(struct tm_env *env, const struct tm_rented_list *list, size_t *out_ended, struct tm_error *e);
/* Removes what jobs (or the one of this name) have on AWS beside instances, in every region: security groups and launch
 * templates. Waits until instances that end let theirs go. `out_left`: of those that stay. */
int tm_rented_clear_aws(struct tm_env *env, const char *job, int *out_removed, int *out_left, struct tm_error *e);
/* The same of a Google Cloud project, in every zone: also those that are stopped, whose disks still cost. */
int tm_rented_find_gcp(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                       struct tm_error *e);
int tm_rented_end_gcp(struct tm_env *env, const struct tm_rented_list *list, size_t *out_ended, struct tm_error *e);
/* The same of a subscription of Azure, in every location: VMs, and interfaces, disks and addresses that they left.
 * Waits until what is ended has gone. */
int tm_rented_find_azure(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                         struct tm_error *e);
int tm_rented_end_azure(struct tm_env *env, const struct tm_rented_list *list, size_t *out_ended, struct tm_error *e);
void tm_rented_list_deinit(struct tm_rented_list *list);

#endif
