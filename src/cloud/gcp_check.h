/* What of a Google Cloud project works for Tidemill, without renting anything: each line with what to do where it does
 * not. */
#ifndef TM_CLOUD_GCP_CHECK_H
#define TM_CLOUD_GCP_CHECK_H

#include "cloud/checks.h"

/* `image`: as of tm_gcp_options. Only memory is an error: what cannot be asked is a line. */
int tm_gcp_check(struct tm_env *env, const struct tm_check_request *request, struct tm_cloud_checks *out,
                 struct tm_error *e);
/* The least permissions, as a role for `gcloud iam roles create --file`; borrowed. */
const char *tm_gcp_check_policy(void);

#endif
