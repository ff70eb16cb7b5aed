#include "web/aws_endpoint.h"

#include "web/aws_credentials.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Those that are asked, as AWS's tools write them. */
static const char *const names[TM_AWS_ENDPOINT_SERVICES] = {"ec2", "s3", "sts", "service_quotas"};

static const char *set_variable(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

int tm_aws_endpoints__read(struct tm_aws_endpoints *endpoints, struct tm_env *env, struct tm_error *e)
{
    char of_profile[16];
    const char *said = set_variable(env, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    int rc = tm_aws_profile__setting(env, "ignore_configured_endpoint_urls", of_profile, sizeof of_profile, e);
    if (said == NULL) said = of_profile;
    endpoints->own = strcasecmp(said, "true") == 0;
    if (rc == 0) rc = tm_aws_profile__setting(env, "endpoint_url", endpoints->all, TM_AWS_ENDPOINT_MAX, e);
    for (int i = 0; rc == 0 && i < TM_AWS_ENDPOINT_SERVICES; i++)
        rc = tm_aws_profile__endpoint(env, names[i], endpoints->services[i], TM_AWS_ENDPOINT_MAX, e);
    return rc;
}

const char *tm_aws_endpoints__find(const struct tm_aws_endpoints *endpoints, struct tm_env *env, const char *service)
{
    char name[64];
    if (endpoints->own) return NULL;
    if (strcmp(service, "servicequotas") == 0) service = "service_quotas"; /* AWS's tools write its two words apart */
    (void)snprintf(name, sizeof name, "AWS_ENDPOINT_URL_%s", service);
    for (char *at = name; *at != '\0'; at++)
        if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
    const char *found = set_variable(env, name);
    if (found == NULL) found = set_variable(env, "AWS_ENDPOINT_URL");
    for (int i = 0; found == NULL && i < TM_AWS_ENDPOINT_SERVICES; i++)
        if (strcmp(names[i], service) == 0 && endpoints->services[i][0] != '\0') found = endpoints->services[i];
    if (found == NULL && endpoints->all[0] != '\0') found = endpoints->all;
    return found;
}
