/* Objects of an S3 bucket under a prefix (objects.h), and what its two files share. */
#ifndef TM_STORE_S3_H
#define TM_STORE_S3_H

#include "store/objects.h"
#include "web/aws.h"

struct tm_s3;
struct tm_webs;

/* As of objects.h. */
int tm_s3__upload(void *s3, const char *name, const void *data, size_t length, struct tm_error *e);
int tm_s3__download(void *s3, const char *name, void *into, size_t length, uint64_t *out_total, struct tm_error *e);

int tm_s3__grant(void *s3, const char *name, size_t length, struct tm_grant *out, struct tm_error *e);
int tm_s3__granted(void *s3, const char *name, const char *upload, const char *tags, struct tm_error *e);

struct tm_webs *tm_s3__webs(struct tm_s3 *s3); /* borrowed */
/* "/PREFIX/NAME". */
void tm_s3__path(const struct tm_s3 *s3, const char *name, char out[TM_KEY_MAX + 2]);
/* Waits until there are credentials. */
int tm_s3__await_keys(const struct tm_s3 *s3, struct tm_error *e);
/* A request with what all have in common. */
struct tm_aws_request tm_s3__request(struct tm_s3 *s3, const char *method, const char *path);
/* What became of a request: `rc` and the answer, as a result. Takes the answer's memory where it is no success. */
int tm_s3__judge(struct tm_s3 *s3, int rc, const char *path, struct tm_web_answer *answer, struct tm_error *e);

#endif
