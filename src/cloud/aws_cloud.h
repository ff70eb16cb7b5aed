/* AWS as a cloud: VMs of EC2, on demand and spot, each an agent of the run (vm_cloud.h and vms.h say how they live).
 *
 * Every VM is tagged as it is made, with the job, its owner, the run and how long it may live; `tidemill cloud list`
 * and `clean` find it by that alone. Before anything is rented the program is brought to the bucket, AWS is asked for
 * an image, and the security group is made.
 *
 * A VM ends by itself when it shuts down, and shuts down when the run has let it go, has been silent for long, or when
 * its time is over (vm_user_data.h). */
#ifndef TM_CLOUD_AWS_CLOUD_H
#define TM_CLOUD_AWS_CLOUD_H

#include "cloud/vm_cloud.h"

enum { TM_AWS_INSTANCES_MAX = 256 };

/* All is borrowed as long as the cloud is there. "" and NULL: not said. */
struct tm_aws_options {
    struct tm_vm_options common; /* zone of a pool: a zone, a region, or "" */
    const char *region;          /* NULL: as set for AWS's own tools */
    const char *image;           /* NULL: Amazon's newest for GPUs */
    const char *subnet;
    const char *security_group;
    const char *profile; /* an instance profile, by name */
    int64_t disk_gb;     /* of the first disk; 0: as the image has it */
};

/* The caller owns the result (its `destroy`, which waits at most two minutes until AWS says that all VMs end). */
int tm_aws_cloud_create(struct tm_env *env, const struct tm_aws_options *options, struct tm_cloud **out,
                        struct tm_error *e);

/* Where EC2 is asked; `region` NULL: as set for AWS's own tools. Asks nobody. */
int tm_aws_cloud_origin(struct tm_env *env, const char *region, char out[TM_VM_ORIGIN_MAX], struct tm_error *e);

#endif
