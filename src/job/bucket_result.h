/* What a run leaves goes to its bucket, too, or to the folder that the job names for copies: the weights (result/,
 * safetensors files), report.html and summary.json, under the prefix of its copies. */
#ifndef TM_JOB_BUCKET_RESULT_H
#define TM_JOB_BUCKET_RESULT_H

#include "base/env.h"

/* Is the place of the folder's copies a bucket? `out` (TM_COPY_PLACE_MAX) is where. */
bool tm_bucket__of(struct tm_env *env, const char *dir, char *out);
/* Has the run such a place, a bucket or a folder that is not its state folder's own? `out` as above. */
bool tm_bucket_result__place(struct tm_env *env, const char *dir, char *out);
/* Brings what is there of them. What an earlier result had and this one has not goes, and so does what was half
 * brought. */
int tm_bucket_result__bring(struct tm_env *env, const char *dir, const char *place, struct tm_error *e);
/* Weights and report from the bucket into a folder. -TM_ENOTFOUND: there are no weights. */
int tm_bucket_result_fetch(struct tm_env *env, const char *place, const char *folder, struct tm_error *e);

#endif
