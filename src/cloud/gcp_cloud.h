/* Google Cloud as a cloud: VMs of Compute Engine, spot and on demand, each an agent of the run (vm_cloud.h and vms.h
 * say how they live).
 *
 * A VM is an insert with a requestId that follows from its name, which is written down before: asked again, Google
 * answers with the same operation. Errors sit inside an operation that is done; where a zone has nothing, the next of
 * the region is asked. Every VM has labels with the job, its owner, the run and its time limit, and is deleted by
 * Google when it is preempted or when that time is over (maxRunDuration), whoever is there to see it. That it was
 * preempted is heard in the VM, and seen from outside as an operation. */
#ifndef TM_CLOUD_GCP_CLOUD_H
#define TM_CLOUD_GCP_CLOUD_H

#include "cloud/vm_cloud.h"

#define TM_GCP_IMAGE "projects/deeplearning-platform-release/global/images/family/pytorch-latest-gpu"

enum { TM_GCP_INSTANCES_MAX = 256 };

/* All is borrowed as long as the cloud is there. "" and NULL: not said. */
struct tm_gcp_options {
    struct tm_vm_options common; /* zone of a pool: a zone, a region, or "" */
    const char *region;          /* of pools that do not say; NULL: as set for gcloud */
    const char *image;   /* "projects/.../images/...", "family/NAME" or NAME of this project; NULL: TM_GCP_IMAGE */
    const char *network; /* NULL: default */
    const char *subnetwork;
    const char *service_account; /* of the VMs; also signs where we have no key. NULL: they have none */
    int64_t disk_gb;             /* of the boot disk; 0: as the image has it */
};

/* The caller owns the result (its `destroy`, which waits at most two minutes until Google says that all VMs end). */
int tm_gcp_cloud_create(struct tm_env *env, const struct tm_gcp_options *options, struct tm_cloud **out,
                        struct tm_error *e);

/* Where Compute Engine is asked, whatever the region. Asks nobody. */
int tm_gcp_cloud_origin(struct tm_env *env, const char *region, char out[TM_VM_ORIGIN_MAX], struct tm_error *e);

#endif
