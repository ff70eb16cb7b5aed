/* What of a subscription of Azure works for Tidemill, without renting anything: each line with what to do where it does
 * not. */
#ifndef TM_CLOUD_AZURE_CHECK_H
#define TM_CLOUD_AZURE_CHECK_H

#include "cloud/aws_check.h"

/* `image`: as of tm_azure_options. Only memory is an error: what cannot be asked is a line. */
int tm_azure_check(struct tm_env *env, const char *image, struct tm_aws_checks *out, struct tm_error *e);
/* The least permissions, as a custom role for `az role definition create --role-definition`; borrowed. */
const char *tm_azure_check_policy(void);

#endif
