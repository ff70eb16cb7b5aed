/* The VM that runs a job's coordinator, so that the machine that asked for it may go: on demand, small, and tagged with
 * the place of the run's books, by which any machine finds it. It gets the program (and the Python package) by URL, has
 * the credentials of the instance profile that the user names and no others, runs `tidemill run PLACE`, and ends itself
 * when that has ended. Calls wait: for commands, not for loops. */
#ifndef TM_CLOUD_AWS_COORDINATOR_H
#define TM_CLOUD_AWS_COORDINATOR_H

#include "base/env.h"
#include "base/text.h"

enum { TM_AWS_COORDINATOR_ID_MAX = 32, TM_AWS_COORDINATOR_PORT = 7000, TM_AWS_COORDINATOR_API_PORT = 7443 };

/* What `tidemill run` is told on that VM, as variables: what the VM costs an hour, since when it runs (seconds UTC),
 * and the security group that it and the VMs of its run are in. */
#define TM_OWN_USD_H "TIDEMILL_OWN_USD_H"
#define TM_OWN_SINCE "TIDEMILL_OWN_SINCE"
#define TM_OWN_GROUP "TIDEMILL_OWN_GROUP"

/* All is borrowed. NULL: not said. */
struct tm_aws_coordinator {
    const char *region;
    const char *image;
    const char *subnet;
    const char *security_group; /* else one is made, for it and the VMs of its run */
    const char *reached_from;   /* CIDR: from there its API is reached, too; NULL: from nowhere */
    double usd_h;               /* of the VM; 0: not known */
    const char *profile;        /* of its instance profile */
    const char *type;
    int64_t disk_gb;
    int64_t life_ms; /* 0: the usual */
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

/* Brings the program to the bucket and rents the VM. -TM_EEXISTS: the token was used before. */
int tm_aws_coordinator_rent(struct tm_env *env, const struct tm_aws_coordinator *o,
                            char out_id[TM_AWS_COORDINATOR_ID_MAX], struct tm_error *e);
/* The VM that has the books at `place` now. -TM_ENOTFOUND: none. */
int tm_aws_coordinator_find(struct tm_env *env, const char *region, const char *place,
                            char out_id[TM_AWS_COORDINATOR_ID_MAX], struct tm_error *e);
/* Where the books of the job of this name are, by the VM that has them. -TM_ENOTFOUND: none has. */
int tm_aws_coordinator_place(struct tm_env *env, const char *job, char *out, size_t room, struct tm_error *e);

#endif
