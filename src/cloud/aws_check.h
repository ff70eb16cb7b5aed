/* What of an AWS account works for Tidemill, without renting anything: each line with what to do where it does not. */
#ifndef TM_CLOUD_AWS_CHECK_H
#define TM_CLOUD_AWS_CHECK_H

#include "cloud/checks.h"

/* Amazon's images for GPUs, with NVIDIA's driver: the newest of this name. */
#define TM_AWS_IMAGE_NAME "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) *"

/* Only memory is an error: what cannot be asked is a line. */
int tm_aws_check(struct tm_env *env, const struct tm_check_request *request, struct tm_cloud_checks *out,
                 struct tm_error *e);
/* Does the quota of this name hold for this type and market? For tests. */
bool tm_aws__is_quota_of(const char *quota, const char *type, bool spot);
/* The least permissions, as an IAM policy in JSON; borrowed. */
const char *tm_aws_check_policy(void);

#endif
