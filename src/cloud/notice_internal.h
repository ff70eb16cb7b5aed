/* What a cloud's reader of notices is made of. */
#ifndef TM_CLOUD_NOTICE_INTERNAL_H
#define TM_CLOUD_NOTICE_INTERNAL_H

#include "cloud/notice.h"

enum { TM_NOTICE_TOKEN_MAX = 256 };

/* State between requests, of any cloud. */
struct tm_notice__talk {
    const struct tm_notice_options *options;
    int step;                        /* which request is next, by the cloud's own count */
    char token[TM_NOTICE_TOKEN_MAX]; /* AWS: the token; GCP: the ETag */
    int64_t token_until_ms;          /* monotonic */
    struct tm_notice word;
};

/* An answer as it came. */
struct tm_notice__answer {
    const struct tm_http_head *head;
    const char *body;
    size_t length;
    int64_t now_ms; /* monotonic */
    int64_t now_utc_ms;
};

struct tm_notice__kind {
    /* Appends the request's first line and own headers; the wait for its answer beyond answer_ms. */
    int64_t (*ask)(struct tm_notice__talk *talk, int64_t now_ms, struct tm_text *out);
    /* Takes the answer into talk->word and moves talk->step; *out_pause_ms: before the next request. An error: nothing
     * was understood. */
    int (*hear)(struct tm_notice__talk *talk, const struct tm_notice__answer *answer, int64_t *out_pause_ms,
                struct tm_error *e);
};

extern const struct tm_notice__kind tm_notice__aws;
extern const struct tm_notice__kind tm_notice__gcp;
extern const struct tm_notice__kind tm_notice__azure;

/* Keeps a token or ETag for the next request; false where it is too long or would break a header. */
bool tm_notice__keep(char out[TM_NOTICE_TOKEN_MAX], struct tm_slice value);
int tm_notice__unexpected(const struct tm_notice__answer *answer, const char *what, struct tm_error *e);

#endif
