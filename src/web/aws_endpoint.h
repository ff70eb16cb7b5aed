/* Where services of AWS are asked, if not at AWS's own address, in the order of AWS's own tools: AWS_ENDPOINT_URL_S3
 * and its like, AWS_ENDPOINT_URL, the profile's `services` section, its endpoint_url. None of them counts with
 * AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true. Inside the room. */
#ifndef TM_WEB_AWS_ENDPOINT_H
#define TM_WEB_AWS_ENDPOINT_H

#include "base/env.h"

enum { TM_AWS_ENDPOINT_MAX = 512, TM_AWS_ENDPOINT_SERVICES = 4 };

struct tm_aws_endpoints {
    bool own;                                                     /* what is set is passed over */
    char all[TM_AWS_ENDPOINT_MAX];                                /* of the profile; "": none */
    char services[TM_AWS_ENDPOINT_SERVICES][TM_AWS_ENDPOINT_MAX]; /* of its `services` */
};

int tm_aws_endpoints__read(struct tm_aws_endpoints *endpoints, struct tm_env *env, struct tm_error *e);
/* Borrowed; NULL: AWS's own. */
const char *tm_aws_endpoints__find(const struct tm_aws_endpoints *endpoints, struct tm_env *env, const char *service);

#endif
