/* The insides of the Azure cloud. */
#ifndef TM_CLOUD_AZURE_INTERNAL_H
#define TM_CLOUD_AZURE_INTERNAL_H

#include "base/jsonout.h"
#include "cloud/azure_cloud.h"
#include "cloud/azure_text.h"
#include "web/aws_sign.h"
#include "web/azure.h"
#include "web/azure_arm.h"

#define TM_AZURE_API_VM      "2024-07-01"
#define TM_AZURE_API_DISK    "2024-03-02"
#define TM_AZURE_API_NETWORK "2024-05-01"
#define TM_AZURE_API_GROUP   "2021-04-01"

enum { TM_AZURE_KEY_MAX = 1024 };

/* Where a call with several requests stands. */
enum tm_azure__stage {
    TM_AZURE_ADDRESS, /* made, listed, removed: the parts of a VM ... */
    TM_AZURE_NIC,
    TM_AZURE_DISK,
    TM_AZURE_VM, /* ... and itself */
    TM_AZURE_POWER,
    TM_AZURE_CONFIRM /* is one that no list named really gone? */
};

/* The request of a call that is under way, by its slot. */
struct tm_azure__ask {
    enum tm_azure__stage stage;
    size_t at; /* TM_AZURE_CONFIRM: the VM; TM_VM_PRICES: the pool */
    struct tm_arm_request arm;
    struct tm_text body;
    char address[64]; /* TM_VM_RUN: of the interface */
    struct tm_azure_request object;
    char key[TM_AZURE_KEY_MAX];
};

struct tm_azure__cloud {
    struct tm_vm_cloud base; /* first */
    struct tm_azure_options options;
    struct tm_arm *arm;
    struct tm_azure *azure;
    struct tm_azure__ask asks[TM_VM_CALLS_MAX];
    char **operations; /* by the places of VMs; NULL: none */
    size_t operation_count;
    int64_t power_ms; /* when power states are asked for again */
    char sha256[TM_SHA256_HEX];
    char subnet[512];
    char public_address[64];     /* of a coordinator's VM; "": it has none */
    char ssh_key[1024];          /* of nobody: Azure wants one */
    char (*parts)[TM_VM_ID_MAX]; /* VMs of which the lists named something */
    size_t part_count, part_capacity;
};

/* ---- azure_cloud.c ---- */

/* All that comes before the first VM: a cloud that tm_vm_cloud__open makes whole, or tm_azure__destroy ends. Waits. */
int tm_azure__create(struct tm_env *env, const struct tm_azure_options *options, struct tm_azure__cloud **out,
                     struct tm_error *e);
void tm_azure__destroy(struct tm_azure__cloud *c);

/* ---- azure_make.c: what is made ---- */

/* The path of a part of the VM of this name (NULL: of all), below the subscription, and the URL of it. */
enum { TM_AZURE_PATH_MAX = 400 };
void tm_azure__part_path(const struct tm_azure__cloud *c, enum tm_azure__stage part, const char *vm,
                         char out[TM_AZURE_PATH_MAX]);
void tm_azure__path_of(struct tm_azure__cloud *c, enum tm_azure__stage part, const char *vm,
                       struct tm_arm_request *out);
/* The body that makes the address, or the interface. */
int tm_azure__print_part(struct tm_azure__cloud *c, size_t at, enum tm_azure__stage part, struct tm_text *out,
                         struct tm_error *e);
/* The body that makes the VM: as it was written down, or anew, and then it is. */
int tm_azure__print_vm(struct tm_azure__cloud *c, size_t at, struct tm_text *out, struct tm_error *e);
void tm_azure__make_object(struct tm_azure__cloud *c, size_t at, const char *what, const char *method, char *key,
                           struct tm_azure_request *out);
/* Waits: the program in the container, the resource group, the network, the firewall. */
int tm_azure__prepare(struct tm_azure__cloud *c, struct tm_error *e);
const char *tm_azure__group_of(const struct tm_azure__cloud *c);
/* What was answered: `root` is the caller's. */
struct tm_azure__said {
    json_t *root;
    char operation[TM_WEB_LINK_MAX]; /* "": there is none to follow */
    int status;
};
/* Waits: 0, -TM_ENOTFOUND, -TM_EEXISTS (its name is taken by other words), or words. */
int tm_azure__ask_json(struct tm_web *web, struct tm_arm_request *r, const char *what, struct tm_azure__said *out,
                       struct tm_error *e);
/* The same, of a cloud. `out_state`: provisioningState; NULL: not asked for. */
int tm_azure__ask_arm(struct tm_azure__cloud *c, struct tm_arm_request *r, const char *what, char out_state[32],
                      struct tm_error *e);
/* Waits until a resource of Microsoft.Network at this path is there and ready: as it is, or made with this body. */
int tm_azure__make_resource(struct tm_azure__cloud *c, const char *path, const char *body, const char *what,
                            struct tm_error *e);

/* ---- azure_firewall.c: who reaches whom; nothing where the user named a security group ---- */

/* Waits. */
int tm_azure__make_firewall(struct tm_azure__cloud *c, struct tm_error *e);
/* Waits: a rule more, where a coordinator is reached from. */
int tm_azure__make_door(struct tm_azure__cloud *c, const char *from, struct tm_error *e);
/* In an interface: whom it lets in. */
void tm_azure__put_rules(const struct tm_azure__cloud *c, struct tm_jsonout *json);
/* In its configuration: that it is one of them. */
void tm_azure__put_member(const struct tm_azure__cloud *c, struct tm_jsonout *json);
/* Waits, not for long: of the cloud of `self`, whose VMs have gone. */
void tm_azure__remove_firewall(void *self);

/* ---- azure_prices.c ---- */

bool tm_azure__has_prices(const struct tm_azure__cloud *c);
int tm_azure__begin_prices(struct tm_azure__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e);
/* `root` NULL: no answer. */
int tm_azure__take_prices(struct tm_azure__cloud *c, size_t slot, const json_t *root, struct tm_web_call **out,
                          struct tm_error *e);

#endif
