/* The insides of the AWS cloud. */
#ifndef TM_CLOUD_AWS_INTERNAL_H
#define TM_CLOUD_AWS_INTERNAL_H

#include "base/arena.h"
#include "cloud/aws_cloud.h"
#include "cloud/aws_text.h"
#include "cloud/ec2.h"
#include "cloud/vm_user_data.h"

enum { TM_AWS_ZONES_MAX = 12, TM_AWS_OVERRIDES_MAX = 48 };

enum { TM_AWS_KEY_MAX = 700, TM_AWS_FORM_MAX = 1 << 18 };

extern const struct tm_vm__guest tm_aws__guest;

/* A call that is under way. */
struct tm_aws__slot {
    struct tm_ec2_call ec2; /* but for objects: */
    struct tm_aws_request object;
    char key[TM_AWS_KEY_MAX];
    struct tm_text then;  /* TM_VM_RUN: the words of the call that follows, CreateFleet; empty: none */
    bool is_fleet;        /* this is that call */
    char next_page[1024]; /* TM_VM_DESCRIBE, TM_VM_PRICES */
    int pages;            /* TM_VM_PRICES: that have come */
    int64_t from_ms;      /* TM_VM_PRICES: since when, the same on every page */
};

/* Where a spot pool's type is offered, if the pool leaves that to AWS. */
struct tm_aws__zones {
    char names[TM_AWS_ZONES_MAX][24];
    int count;
    int refused; /* of them, in the last answer of a fleet */
};

struct tm_aws__cloud {
    struct tm_vm_cloud shared; /* first */
    struct tm_aws_options options;
    struct tm_aws *aws;
    struct tm_aws__slot *slots; /* TM_VM_CALLS_MAX; owned */
    char image[64];
    char root_device[32];     /* of the image: what a disk of another size is called; "": not asked for */
    char group[TM_VM_ID_MAX]; /* the user's, or the one that was made for this run */
    struct tm_aws__zones zones[TM_CLOUD_POOLS_MAX];
    char sha256[TM_SHA256_HEX];
    char bucket_region[64];
};

/* ---- aws_cloud.c ---- */

/* All that comes before the first VM: a cloud that tm_vm_cloud__open makes whole, or tm_aws__destroy ends. Waits. */
int tm_aws__create(struct tm_env *env, const struct tm_aws_options *options, struct tm_aws__cloud **out,
                   struct tm_error *e);
void tm_aws__destroy(struct tm_aws__cloud *c);

/* ---- aws_calls.c: what is asked ---- */

/* Fills the call that rents a VM; what it asks is written down. In `then`: the words of a second call that makes the
 * VM, where the first only prepares it. */
int tm_aws__make_run(struct tm_aws__cloud *c, size_t at, struct tm_ec2_call *call, struct tm_text *then,
                     struct tm_error *e);
void tm_aws__make_describe(struct tm_aws__cloud *c, const char *page, struct tm_ec2_call *call);
void tm_aws__make_terminate(struct tm_aws__cloud *c, size_t at, struct tm_ec2_call *call);
/* Since when prices are to be asked for, UTC. */
int64_t tm_aws__prices_from(struct tm_aws__cloud *c);
void tm_aws__make_prices(struct tm_aws__cloud *c, int64_t from_ms, const char *next_page, struct tm_ec2_call *call);
/* An object of this VM's ("ticket", "log"), or of all ("program-HASH"; at == SIZE_MAX). */
void tm_aws__make_object(struct tm_aws__cloud *c, size_t at, const char *what, const char *method, char *key,
                         struct tm_aws_request *out);
/* Waits: the image, where none is said, or its root device, where a disk is, the program in the bucket, the security
 * group, and where types are offered. */
int tm_aws__prepare(struct tm_aws__cloud *c, struct tm_error *e);
/* Waits: what was made beside VMs is removed. `self`: the cloud. */
void tm_aws__remove_rest(void *self);

/* ---- aws_fleet.c: one VM of several places or types ---- */

/* A fleet of one: AWS picks among these. */
struct tm_aws__override {
    int pool;
    const char *zone; /* "": the subnet's, or AWS's choice */
};
/* Those that may serve this VM now: its own pool's, and other spot pools' that lack some. */
size_t tm_aws__list_overrides(struct tm_aws__cloud *c, size_t at, int64_t now_ms,
                              struct tm_aws__override out[TM_AWS_OVERRIDES_MAX]);
void tm_aws__make_fleet(struct tm_aws__cloud *c, size_t at, const struct tm_aws__override *overrides, size_t count,
                        struct tm_ec2_call *call);
void tm_aws__make_drop_template(struct tm_aws__cloud *c, size_t at, struct tm_ec2_call *call);
/* What CreateFleet says: the VM, and who had none. */
int tm_aws__take_fleet(struct tm_aws__cloud *c, size_t at, const struct tm_xml *root, int64_t now_ms,
                       struct tm_error *e);
/* Waits: the zones of pools that name none. */
int tm_aws__find_zones(struct tm_aws__cloud *c, struct tm_error *e);
bool tm_aws__is_zone(const char *text);

#endif
