/* The VM that runs a job's coordinator, so that the machine that asked for it may go: on demand, small, and tagged with
 * the place of the run's books, by which any machine finds it. It gets the program (and the Python package) by URL, has
 * the rights of the account that the user names and no others, runs `tidemill run PLACE`, and ends itself when that has
 * ended, or its time is over. It is a cloud of one VM (vm_cloud.h), which is made as those of workers are. Calls wait:
 * for commands, not for loops. */
#ifndef TM_CLOUD_AWAY_VM_H
#define TM_CLOUD_AWAY_VM_H

#include "cloud/aws_cloud.h"
#include "cloud/azure_cloud.h"
#include "cloud/gcp_cloud.h"

enum { TM_COORDINATOR_PORT = 7000, TM_COORDINATOR_API_PORT = 7443, TM_COORDINATOR_PLACE_MAX = 256 };

/* What `tidemill run` is told on that VM, as variables: what the VM costs an hour, since when it runs (seconds UTC),
 * and the number of the firewall that it and the VMs of its run are behind. */
#define TM_OWN_USD_H "TIDEMILL_OWN_USD_H"
#define TM_OWN_SINCE "TIDEMILL_OWN_SINCE"
#define TM_OWN_GROUP "TIDEMILL_OWN_GROUP"

/* All is borrowed. */
struct tm_away_vm {
    const char *type;         /* instance type */
    double usd_h;             /* 0: not known */
    const char *reached_from; /* CIDR: from there its API is reached, too; NULL: from nowhere */
    int64_t life_ms;          /* 0: the usual */
    const char *job;
    const char *owner;
    const char *place;  /* of the books: s3://BUCKET/PREFIX ... */
    const char *bucket; /* ... and its parts */
    const char *prefix;
    const char *program;
    const char *wheel;   /* of the Python package, which the VMs of its run need; NULL: they need none */
    const char *token;   /* of the call, written down before: asked again with it, it is the same VM */
    const char *options; /* words for `tidemill run`, as a shell reads them; "": none */
};

/* Brings the program to the bucket and rents the VM. Of `cloud` what it says of VMs counts, and the account is that of
 * this VM; the rest follows from `o`. -TM_EEXISTS: the token was used before. */
int tm_aws_coordinator_rent(struct tm_env *env, const struct tm_aws_options *cloud, const struct tm_away_vm *o,
                            char out_id[TM_VM_ID_MAX], struct tm_error *e);
int tm_gcp_coordinator_rent(struct tm_env *env, const struct tm_gcp_options *cloud, const struct tm_away_vm *o,
                            char out_id[TM_VM_ID_MAX], struct tm_error *e);
int tm_azure_coordinator_rent(struct tm_env *env, const struct tm_azure_options *cloud, const struct tm_away_vm *o,
                              char out_id[TM_VM_ID_MAX], struct tm_error *e);

/* By one of these. */
struct tm_away_search {
    const char *place; /* of the books */
    const char *job;   /* its name */
};

struct tm_away_found {
    char id[TM_VM_ID_MAX];
    char place[TM_COORDINATOR_PLACE_MAX];
};

/* The VM that has the books there now. -TM_ENOTFOUND: none. */
int tm_aws_coordinator_find(struct tm_env *env, const struct tm_away_search *search, struct tm_away_found *out,
                            struct tm_error *e);
int tm_gcp_coordinator_find(struct tm_env *env, const struct tm_away_search *search, struct tm_away_found *out,
                            struct tm_error *e);
int tm_azure_coordinator_find(struct tm_env *env, const struct tm_away_search *search, struct tm_away_found *out,
                              struct tm_error *e);

#endif
