/* Azure as a cloud: single VMs, on demand and spot, each an agent of the run (vms.h says how they live).
 *
 * A VM, its network interface, its disk and, if asked for, its public address have one name, which is written down
 * before anything is made; PUT makes what is not there and changes nothing that is. All are tagged, and go with the VM
 * (deleteOption); what does not is found by a list and removed by itself. A VM that could not be made in the end, after
 * Azure had accepted it, is deleted.
 *
 * A guest that powers off is billed on: a VM ends itself by asking Azure to delete it, with a managed identity that the
 * user names (vm_user_data.h). */
#ifndef TM_CLOUD_AZURE_CLOUD_H
#define TM_CLOUD_AZURE_CLOUD_H

#include "cloud/vm_cloud.h"

#define TM_AZURE_IMAGE "microsoft-dsvm:ubuntu-hpc:2204:latest" /* with NVIDIA's driver */
#define TM_AZURE_GROUP "tidemill"

enum { TM_AZURE_INSTANCES_MAX = 256 };

/* All is borrowed as long as the cloud is there. NULL: not said. */
struct tm_azure_options {
    struct tm_vm_options vm;    /* bucket: a container; a pool's zone: "", a location, or LOCATION-ZONE */
    const char *location;       /* "eastus" */
    const char *group;          /* resource group; NULL: TM_AZURE_GROUP, made where there is none */
    const char *image;          /* PUBLISHER:OFFER:SKU:VERSION, or an id; NULL: TM_AZURE_IMAGE */
    const char *subnet;         /* an id; NULL: of a network "tidemill-LOCATION", made where there is none */
    const char *security_group; /* an id; NULL: one made for the run, in which its own VMs reach each other */
    const char *identity;       /* id of a user-assigned identity by which VMs end themselves */
    bool public_ip;
    int64_t disk_gb; /* of the first disk; 0: as the image has it */
};

/* The caller owns the result (its `destroy`, which waits at most two minutes until Azure says that all is gone). */
int tm_azure_cloud_create(struct tm_env *env, const struct tm_azure_options *options, struct tm_cloud **out,
                          struct tm_error *e);

/* Where Azure's Resource Manager is asked, whatever the region. Asks nobody. */
int tm_azure_cloud_origin(struct tm_env *env, const char *region, char out[TM_VM_ORIGIN_MAX], struct tm_error *e);

#endif
