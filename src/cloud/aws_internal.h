/* The insides of the AWS cloud. */
#ifndef TM_CLOUD_AWS_INTERNAL_H
#define TM_CLOUD_AWS_INTERNAL_H

#include "base/arena.h"
#include "cloud/aws_cloud.h"
#include "cloud/aws_text.h"
#include "cloud/ec2.h"

enum { TM_AWS_ZONES_MAX = 12, TM_AWS_OVERRIDES_MAX = 48 };

enum { TM_AWS_CALLS_MAX = 12, TM_AWS_PATH_MAX = 1200, TM_AWS_KEY_MAX = 700, TM_AWS_FORM_MAX = 1 << 18 };

/* One that is under way. */
struct tm_aws__slot {
    bool used;
    struct tm_vm__call call;
    struct tm_ec2_call ec2; /* but for objects: */
    struct tm_text then;    /* TM_VM_RUN: the words of the call that follows, CreateFleet; empty: none */
    bool is_fleet;          /* this is that call */
    bool then_due;
    struct tm_aws_request object;
    char key[TM_AWS_KEY_MAX];
    char word[TM_AWS_TICKET_MAX]; /* what is put */
    struct tm_web_call *begun;
};

/* Where a spot pool's type is offered, if the pool leaves that to AWS. */
struct tm_aws__zones {
    char names[TM_AWS_ZONES_MAX][24];
    int count;
    int refused; /* of them, in the last answer of a fleet */
};

struct tm_aws__cloud {
    struct tm_cloud cloud; /* first */
    struct tm_env *env;
    struct tm_aws_options options;
    struct tm_cloud_pool pools[TM_CLOUD_POOLS_MAX];
    struct tm_vms vms;
    struct tm_aws *aws;
    struct tm_web *web;
    struct tm_aws__slot slots[TM_AWS_CALLS_MAX];
    struct tm_vm__row *rows; /* of an answer in several pages */
    size_t row_count, row_capacity;
    char next_page[1024];
    int64_t start_ns;
    char image[64];
    char group[TM_VM_ID_MAX]; /* the user's, or the one that was made for this run */
    struct tm_aws__zones zones[TM_CLOUD_POOLS_MAX];
    char sha256[TM_SHA256_HEX];
    char bucket_region[64];
    char folder[TM_AWS_PATH_MAX]; /* of notes */
};

/* ---- aws_notes.c: what is written down ---- */

/* What an earlier program of this run left, into `vms`; and from when on it has not paid. */
int tm_aws__read_notes(struct tm_aws__cloud *c, struct tm_error *e);
/* The words of the call that rents this VM: as they were written down, or NULL in out->data. */
int tm_aws__read_form(struct tm_aws__cloud *c, const char *token, struct tm_text *out, struct tm_error *e);
/* Writes down a VM: with the words of its call, or with its id. Lasts when it returns. */
int tm_aws__write_note(struct tm_aws__cloud *c, size_t at, const char *form, struct tm_error *e);
void tm_aws__drop_note(struct tm_aws__cloud *c, size_t at);

/* ---- aws_calls.c: what is asked ---- */

/* Fills the call that rents a VM; what it asks is written down. In `then`: the words of a second call that makes the
 * VM, where the first only prepares it. */
int tm_aws__make_run(struct tm_aws__cloud *c, size_t at, struct tm_ec2_call *call, struct tm_text *then,
                     struct tm_error *e);
void tm_aws__make_describe(struct tm_aws__cloud *c, struct tm_ec2_call *call);
void tm_aws__make_terminate(struct tm_aws__cloud *c, size_t at, struct tm_ec2_call *call);
void tm_aws__make_prices(struct tm_aws__cloud *c, struct tm_ec2_call *call);
/* An object of this VM's ("ticket", "log"), or of all ("program-HASH"; at == SIZE_MAX). */
void tm_aws__make_object(struct tm_aws__cloud *c, size_t at, const char *what, const char *method, char *key,
                         struct tm_aws_request *out);
/* Waits: the image, where none is said, the program in the bucket, the security group, and where types are offered. */
int tm_aws__prepare(struct tm_aws__cloud *c, struct tm_error *e);
/* Waits: what was made beside VMs is removed. */
void tm_aws__remove_rest(struct tm_aws__cloud *c);

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
