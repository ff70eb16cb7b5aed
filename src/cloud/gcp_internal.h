/* The insides of the cloud of Google's VMs. */
#ifndef TM_CLOUD_GCP_INTERNAL_H
#define TM_CLOUD_GCP_INTERNAL_H

#include "cloud/gcp_cloud.h"
#include "cloud/gcp_sku.h"
#include "cloud/gcp_text.h"
#include "web/gcp.h"

enum { TM_GCP_ZONES_MAX = 256, TM_GCP_PATH_MAX = 3072, TM_GCP_PAGE_MAX = 1024 };

/* A call that is under way. */
struct tm_gcp__slot {
    struct tm_gcp_request request;
    char path[TM_GCP_PATH_MAX];
    char word[1024]; /* a value of the query */
    char page[TM_GCP_PAGE_MAX];
    struct tm_text body;   /* of an insert */
    struct tm_text script; /* what the VM does when it boots; empty: as it was written down */
    char zone[64];         /* of an insert or a delete */
    size_t zones_left;     /* of the region: where it may be tried, too */
    int stage;             /* of a look: which list; of others: 1: an operation is waited for, 2: the VM is looked at */
};

struct tm_gcp__cloud {
    struct tm_vm_cloud shared; /* first */
    struct tm_gcp_options options;
    struct tm_gcp *gcp;
    const char *project;
    char region[64];
    char zones[TM_GCP_ZONES_MAX][64]; /* of the project */
    size_t zone_count;
    size_t zone_next; /* turns, so that VMs of a region are not all in one zone that has nothing */
    char sha256[TM_SHA256_HEX];
    bool ruled;                                      /* the run has firewall rules */
    struct tm_catalog catalog;                       /* what types are made of */
    struct tm_gcp__price prices[TM_CLOUD_POOLS_MAX]; /* of the pools, in the list that is being read */
    struct tm_gcp__slot *slots;                      /* TM_VM_CALLS_MAX; owned */
};

/* ---- gcp_cloud.c ---- */

/* All that comes before the first VM: a cloud that tm_vm_cloud__open makes whole, or tm_gcp__destroy ends. Waits. */
int tm_gcp__create(struct tm_env *env, const struct tm_gcp_options *options, struct tm_gcp__cloud **out,
                   struct tm_error *e);
void tm_gcp__destroy(struct tm_gcp__cloud *c);

/* ---- gcp_calls.c: what is asked ---- */

/* Fills the slot's request. */
int tm_gcp__make_insert(struct tm_gcp__cloud *c, size_t slot, struct tm_error *e);
/* The same VM in the next zone of its region, written down. False: there is none left. */
int tm_gcp__make_elsewhere(struct tm_gcp__cloud *c, size_t slot, bool *out_more, struct tm_error *e);
void tm_gcp__make_get(struct tm_gcp__cloud *c, size_t slot);
void tm_gcp__make_delete(struct tm_gcp__cloud *c, size_t slot);
void tm_gcp__make_wait(struct tm_gcp__cloud *c, size_t slot, const char *operation);
/* A page of a list: VMs of this run (stage 0), or operations of a kind. */
void tm_gcp__make_list(struct tm_gcp__cloud *c, size_t slot);
/* How many stages a look has, and the kind of operation of one. */
const char *tm_gcp__stage(int stage); /* NULL: there is none */
void tm_gcp__make_object(struct tm_gcp__cloud *c, size_t slot);
/* Waits: zones, and the program in the bucket. */
int tm_gcp__prepare(struct tm_gcp__cloud *c, struct tm_error *e);

/* ---- gcp_prices.c: what spot VMs cost now ---- */

/* The first page of the price list. */
int tm_gcp__begin_prices(struct tm_gcp__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e);
/* What a page says (`root` NULL: there is none, and why), and the next. */
int tm_gcp__take_prices(struct tm_gcp__cloud *c, size_t slot, const json_t *root, const char *why,
                        struct tm_web_call **out, struct tm_error *e);

/* ---- gcp_firewall.c: who reaches whom ---- */

/* Waits. An error where they cannot be made, since then others reach the VMs; in a network that the user named a
 * warning: that has a firewall of the user's. */
int tm_gcp__make_rules(struct tm_gcp__cloud *c, struct tm_error *e);
/* Waits: where a coordinator is reached from. */
int tm_gcp__make_door(struct tm_gcp__cloud *c, struct tm_error *e);
/* Waits. */
void tm_gcp__remove_rules(struct tm_gcp__cloud *c);

#endif
