/* AWS Signature Version 4: what stands in the Authorization header of a request, or in the query of a presigned URL.
 * Pure functions. Paths and queries are given as they are meant, not encoded; what is signed is what is to be sent. */
#ifndef TM_WEB_AWS_SIGN_H
#define TM_WEB_AWS_SIGN_H

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_AWS_UNSIGNED "UNSIGNED-PAYLOAD"

enum { TM_SHA256_HEX = 65, TM_AWS_PAIRS_MAX = 256 };

struct tm_web_pair {
    const char *name;
    const char *value;
};

/* Who asks. Never printed, logged or stored by us. */
struct tm_aws_keys {
    char id[160];
    char secret[256];
    char token[8192]; /* "": none */
    int64_t ends_ms;  /* UTC; INT64_MAX: never */
};

struct tm_aws_signed {
    const char *method;
    const char *host; /* with its port, unless it is the usual one */
    const char *path; /* "/..." */
    const struct tm_web_pair *query;
    size_t query_count;
    const struct tm_web_pair *headers; /* to be sent and signed, besides host, date and token; names in lower case */
    size_t header_count;
    const char *payload; /* SHA-256 of the body in hex, or TM_AWS_UNSIGNED */
    bool payload_header; /* S3: say so in x-amz-content-sha256 */
    const char *region;
    const char *service;
    int64_t time_ms;
};

/* Appends the path and query to send, and the headers to send as lines. -TM_ELIMIT: too many pairs; -TM_ENOMEM. */
int tm_aws_sign(const struct tm_aws_signed *request, const struct tm_aws_keys *keys, struct tm_text *target,
                struct tm_text *headers, struct tm_error *e);
/* Appends the path and query of a URL that anybody may use for `seconds`. */
int tm_aws_presign(const struct tm_aws_signed *request, const struct tm_aws_keys *keys, int64_t seconds,
                   struct tm_text *target, struct tm_error *e);

void tm_sha256_hex(const void *data, size_t length, char out[TM_SHA256_HEX]);
/* Percent-encodes all but letters, digits, "-._~" and, if wanted, "/". */
void tm_percent_encode(const char *text, bool keep_slash, struct tm_text *out);

#endif
