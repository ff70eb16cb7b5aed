/* Objects of a bucket under a prefix, whatever the service: one struct of functions, for the store of copies
 * (copy_bucket.c). S3 (s3.c), Azure's blobs (blobs.c) and Google's objects (gs.c) implement it. Any thread; calls wait.
 *
 * Results: 0; -TM_ENOTFOUND: there is no such object; -TM_EEXISTS: a condition does not hold; -TM_ENOMEM; else -TM_EIO,
 * with words that say what the service said and what to do. */
#ifndef TM_STORE_OBJECTS_H
#define TM_STORE_OBJECTS_H

#include "base/env.h"
#include "store/grant.h"
#include "web/web.h"

enum { TM_BUCKET_MAX = 64, TM_PREFIX_MAX = 512, TM_KEY_MAX = 1024 };

struct tm_objects {
    void *self;
    /* Names are below the prefix. `if_match`: NULL: whatever is there; "": only where nothing is; else only in place of
     * what has this ETag. `out_etag`, if not NULL, is that of what was written. */
    int (*put)(void *self, const char *name, const void *data, size_t length, const char *if_match,
               char out_etag[TM_WEB_WORD_MAX], struct tm_error *e);
    /* Appends a small object to `out`. */
    int (*get)(void *self, const char *name, struct tm_text *out, char out_etag[TM_WEB_WORD_MAX], struct tm_error *e);
    int (*remove)(void *self, const char *name, struct tm_error *e);
    /* Names that begin with `from`; only up to the next "/" after it where `flat`. Other than 0 of `take` ends it. */
    int (*each)(void *self, const char *from, bool flat, tm_name_f take, void *context, struct tm_error *e);
    /* Uploads that were begun and not finished, of names that begin with `from`, are given up. */
    int (*abort_uploads)(void *self, const char *from, struct tm_error *e);
    bool aborts_alone; /* it takes nothing of what was finished in that moment */
    /* Large objects, straight from and to memory, over several connections. What was put lasts when the call returns,
     * and is whole or not there. */
    int (*upload)(void *self, const char *name, const void *data, size_t length, struct tm_error *e);
    /* The first `length` bytes, and how many the object has. -TM_EINPUT: it has fewer. */
    int (*download)(void *self, const char *name, void *into, size_t length, uint64_t *out_total, struct tm_error *e);
    /* For somebody without credentials (grant.h); NULL: this service, or this way of asking it, has no such URLs.
     * `length`: of an upload; 0: a download. An upload that was granted is ended by what its parts were answered with,
     * one a line; with "" it is given up. */
    int (*grant)(void *self, const char *name, size_t length, struct tm_grant *out, struct tm_error *e);
    int (*granted)(void *self, const char *name, const char *upload, const char *tags, struct tm_error *e);
    void (*close)(void *self);
};

/* Does it name a bucket ("s3://...", "az://...", "gs://..."), well or badly? */
bool tm_objects__is_place(const char *place);
/* "SCHEME://BUCKET/PREFIX" taken apart: -TM_EUSAGE where it is none. */
int tm_objects_place(const char *place, char bucket[TM_BUCKET_MAX], char prefix[TM_PREFIX_MAX], struct tm_error *e);
int tm_objects_open(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e);

/* The services. */
int tm_s3__open(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e);
int tm_blobs__open(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e);
int tm_gs__open(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e);

#endif
