/* Objects of an S3 bucket under a prefix, for the store of copies (copy_s3.c). Any thread; calls wait.
 *
 * Results: 0; -TM_ENOTFOUND: there is no such object; -TM_EEXISTS: a condition does not hold; -TM_ENOMEM; else -TM_EIO,
 * with words that say what the service said and what to do. */
#ifndef TM_STORE_S3_H
#define TM_STORE_S3_H

#include "base/env.h"
#include "web/aws.h"

enum { TM_S3_BUCKET_MAX = 64, TM_S3_PREFIX_MAX = 512, TM_S3_KEY_MAX = 1024 };

struct tm_s3;

/* "s3://BUCKET/PREFIX" taken apart: -TM_EUSAGE where it is none. */
int tm_s3__place(const char *place, char bucket[TM_S3_BUCKET_MAX], char prefix[TM_S3_PREFIX_MAX], struct tm_error *e);

int tm_s3__create(struct tm_env *env, const char *place, struct tm_s3 **out, struct tm_error *e);
void tm_s3__destroy(struct tm_s3 *s3);

/* Names are below the prefix. `if_match`: NULL: whatever is there; "": only where nothing is; else only in place of
 * what has this ETag. `out_etag`, if not NULL, is that of what was written. */
int tm_s3__put(struct tm_s3 *s3, const char *name, const void *data, size_t length, const char *if_match,
               char out_etag[TM_WEB_WORD_MAX], struct tm_error *e);
/* Appends a small object to `out`. */
int tm_s3__get(struct tm_s3 *s3, const char *name, struct tm_text *out, char out_etag[TM_WEB_WORD_MAX],
               struct tm_error *e);
int tm_s3__remove(struct tm_s3 *s3, const char *name, struct tm_error *e);
/* Names that begin with `from`; only up to the next "/" after it where `flat`. Other than 0 of `take` ends it. */
int tm_s3__each(struct tm_s3 *s3, const char *from, bool flat, tm_name_f take, void *context, struct tm_error *e);
/* Uploads that were begun and not finished, of names that begin with `from`, are given up. */
int tm_s3__abort_uploads(struct tm_s3 *s3, const char *from, struct tm_error *e);

/* Large objects, straight from and to memory, over several connections. What was put lasts when the call returns, and
 * is whole or not there. */
int tm_s3__upload(struct tm_s3 *s3, const char *name, const void *data, size_t length, struct tm_error *e);
/* The first `length` bytes, and how many the object has. -TM_EINPUT: it has fewer. */
int tm_s3__download(struct tm_s3 *s3, const char *name, void *into, size_t length, uint64_t *out_total,
                    struct tm_error *e);

/* ---- shared by s3.c and s3_transfer.c ---- */

/* A connection of this thread's own, until it is given back. */
int tm_s3__take_web(struct tm_s3 *s3, struct tm_web **out, struct tm_error *e);
void tm_s3__give_web(struct tm_s3 *s3, struct tm_web *web);
/* "/PREFIX/NAME". */
void tm_s3__path(const struct tm_s3 *s3, const char *name, char out[TM_S3_KEY_MAX + 2]);
/* A request with what all have in common. */
struct tm_aws_request tm_s3__request(struct tm_s3 *s3, const char *method, const char *path);
/* What became of a request: `rc` and the answer, as a result. Takes the answer's memory where it is no success. */
int tm_s3__judge(struct tm_s3 *s3, int rc, const char *path, struct tm_web_answer *answer, struct tm_error *e);

#endif
