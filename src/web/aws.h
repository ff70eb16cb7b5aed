/* AWS as one account and region: where its services are, as whom we ask, and requests that are signed anew for each
 * try. Settings are those of AWS's own tools: AWS_REGION (AWS_DEFAULT_REGION, the profile's region), AWS_ENDPOINT_URL
 * and its forms for a service (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL_EC2; the profile's `services` section and
 * endpoint_url; none of them with AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true), credentials as of aws_credentials.h.
 *
 * Clocks that differ from the service's are corrected by its own; credentials that have ended are asked for anew. */
#ifndef TM_WEB_AWS_H
#define TM_WEB_AWS_H

#include "web/aws_sign.h"
#include "web/web.h"

struct tm_aws;

/* `region` NULL: as set. Reads settings, asks nobody. -TM_EINPUT: no region is set. Any thread may use the result. */
int tm_aws_create(struct tm_env *env, const char *region, struct tm_aws **out, struct tm_error *e);
/* For questions about all regions: where none is set, by way of us-east-1. */
int tm_aws_create_anywhere(struct tm_env *env, struct tm_aws **out, struct tm_error *e);
void tm_aws_destroy(struct tm_aws *aws);
const char *tm_aws_region(const struct tm_aws *aws); /* borrowed */

enum { TM_AWS_ORIGIN_MAX = 272 };
/* Where a service of the region is asked: "https://HOST". */
int tm_aws_origin(struct tm_aws *aws, const char *service, char out[TM_AWS_ORIGIN_MAX], struct tm_error *e);

/* One request; the caller's, and as it is until the call has ended. */
struct tm_aws_request {
    struct tm_aws *aws;
    const char *service; /* "s3", "ec2" */
    const char *region;  /* NULL: the account's */
    const char *bucket;  /* S3: NULL: none */
    const char *method;
    const char *path; /* "/...", not encoded; of a bucket: within it */
    struct tm_web_pair query[8];
    size_t query_count;
    struct tm_web_pair headers[8]; /* names in lower case */
    size_t header_count;
    const void *body;
    size_t length;
    bool unsigned_body; /* its hash is not part of the signature: S3, for what has hashes of its own */
    void *into;         /* as of tm_web_request */
    size_t room;
    int64_t deadline_ms;
    int64_t silence_ms;
    int tries_max;
    /* its own */
    char host[256];
    char hash[TM_SHA256_HEX];
    bool renewed;
    bool clock_set;
};

/* Begins it. What follows is as of tm_web_begin. */
int tm_aws_begin(struct tm_web *web, struct tm_aws_request *request, struct tm_web_call **out, struct tm_error *e);
/* From begin to end, waiting. */
int tm_aws_ask(struct tm_web *web, struct tm_aws_request *request, struct tm_web_answer *out, struct tm_error *e);

/* Appends the URL by which anybody may make this request, for so long (at most 7 days, and not longer than the
 * credentials are good): method, bucket and path count. -TM_EBUSY: credentials are being asked for; look again later.
 */
int tm_aws_url(struct tm_aws_request *request, int64_t seconds, struct tm_text *out, struct tm_error *e);

/* Waits until there are credentials, or why there are none. */
int tm_aws_await_keys(struct tm_aws *aws, struct tm_error *e);

/* What an answer that is no success says: its code and message ("" where it does not). -TM_ENOMEM. */
struct tm_aws_refusal {
    char code[128];
    char message[512];
};
int tm_aws_refusal(const struct tm_web_answer *answer, struct tm_aws_refusal *out, struct tm_error *e);

#endif
