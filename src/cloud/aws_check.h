/* What of an AWS account works for Tidemill, without renting anything: each line with what to do where it does not. */
#ifndef TM_CLOUD_AWS_CHECK_H
#define TM_CLOUD_AWS_CHECK_H

#include "base/env.h"

/* Amazon's images for GPUs, with NVIDIA's driver: the newest of this name. */
#define TM_AWS_IMAGE_NAME "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) *"

enum { TM_AWS_CHECKS_MAX = 16 };

enum tm_check_result { TM_CHECK_GOOD, TM_CHECK_BAD, TM_CHECK_UNKNOWN };

struct tm_aws_check_line {
    const char *name; /* "credentials", "network", ... */
    enum tm_check_result result;
    char what[400];
    char fix[300]; /* "": nothing is to be done */
};

struct tm_aws_checks {
    struct tm_aws_check_line lines[TM_AWS_CHECKS_MAX];
    size_t count;
};

/* `image`: the one to rent with; NULL: Amazon's newest for GPUs. Only memory is an error: what cannot be asked is a
 * line.
 */
int tm_aws_check(struct tm_env *env, const char *image, struct tm_aws_checks *out, struct tm_error *e);
/* The least permissions, as an IAM policy in JSON; borrowed. */
const char *tm_aws_check_policy(void);

#endif
