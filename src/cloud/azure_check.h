/* What of a subscription of Azure works for Tidemill, without renting anything: each line with what to do where it does
 * not. */
#ifndef TM_CLOUD_AZURE_CHECK_H
#define TM_CLOUD_AZURE_CHECK_H

#include "cloud/checks.h"

/* The image is as of tm_azure_options. Only memory is an error: what cannot be asked is a line. */
int tm_azure_check(struct tm_env *env, const struct tm_check_request *request, struct tm_cloud_checks *out,
                   struct tm_error *e);
/* The least permissions, as a custom role for `az role definition create --role-definition`; borrowed. */
const char *tm_azure_check_policy(void);

/* Is this usage the quota of this size's family? For tests. */
bool tm_azure__is_family_of(const char *family, const char *size);

#endif
