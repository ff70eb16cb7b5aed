/* What a job has on AWS beside its VMs: its security group, and launch templates of VMs that are being asked for. They
 * are tagged as VMs are, and found by tag alone. Calls wait: before anything is rented, after all has ended, and for
 * commands. */
#ifndef TM_CLOUD_AWS_BESIDE_H
#define TM_CLOUD_AWS_BESIDE_H

#include "cloud/aws_text.h"
#include "cloud/ec2.h"
#include "cloud/vm_user_data.h"

struct tm_aws__place {
    struct tm_env *env;
    struct tm_aws *aws;
    struct tm_web *web;
    const char *region; /* NULL: the account's */
};

/* Tags of one resource, as parameters of a call. `stem`: "" or "LaunchTemplateData.". */
void tm_aws__put_tags(struct tm_ec2_call *call, const char *stem, int number, const char *resource,
                      const struct tm_vm__tag *tags, size_t count);

/* The security group of this run: the one that has its tag, or a new one with these tags. Its members reach each other
 * and whatever is outside; nobody else reaches them. `subnet` NULL: in the default VPC. */
int tm_aws__make_group(const struct tm_aws__place *place, uint64_t run, const char *subnet,
                       const struct tm_vm__tag *tags, size_t tag_count, char out[TM_VM_ID_MAX], struct tm_error *e);

/* Lets this TCP port of its members be reached from there: "203.0.113.7/32". */
int tm_aws__open_port(const struct tm_aws__place *place, const char *group, int port, const char *from,
                      struct tm_error *e);

struct tm_aws__beside {
    int removed;
    int left; /* AWS does not let them go (yet): their VMs have not ended */
};
/* Removes templates and groups whose tag has this value (NULL: any). An error: they could not be looked for. */
int tm_aws__remove_beside(const struct tm_aws__place *place, const char *tag, const char *value,
                          struct tm_aws__beside *out, struct tm_error *e);

#endif
