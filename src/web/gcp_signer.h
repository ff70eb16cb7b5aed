/* URLs that Google signs, which takes a call or two for each: a thread asks for them, one after the other, beside
 * whoever needs them. What is signed is kept for some minutes, for those who look again, or want the same. Any thread.
 */
#ifndef TM_WEB_GCP_SIGNER_H
#define TM_WEB_GCP_SIGNER_H

#include "base/env.h"
#include "base/text.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TM_GCP_BUCKET_MAX = 256, TM_GCP_OBJECT_MAX = 1100, TM_GCP_EMAIL_MAX = 256 };

struct tm_gcp__wish {
    char method[8];
    char bucket[TM_GCP_BUCKET_MAX];
    char name[TM_GCP_OBJECT_MAX];
    char signer[TM_GCP_EMAIL_MAX]; /* "": the VM's own account */
    int64_t seconds;
};

struct tm_gcp__signed;

struct tm_gcp__signer {
    struct tm_env *env;
    /* By the thread, without the lock: appends the URL. It waits, but not for long after `ended`. */
    int (*sign)(void *context, const struct tm_gcp__wish *wish, struct tm_text *out, struct tm_error *e);
    void *context;
    pthread_mutex_t lock;
    pthread_t thread;
    bool joinable;
    bool running;
    atomic_bool ended;
    uint64_t turns;              /* how many were asked for */
    struct tm_gcp__signed *list; /* NULL: none so far; owned */
};

/* It stays where it is until deinit. */
void tm_gcp__signer_init(struct tm_gcp__signer *signer, struct tm_env *env,
                         int (*sign)(void *context, const struct tm_gcp__wish *wish, struct tm_text *out,
                                     struct tm_error *e),
                         void *context);
/* Waits for the thread. */
void tm_gcp__signer_deinit(struct tm_gcp__signer *signer);
/* Appends the URL. -TM_EBUSY: it is being asked for, look again later; else why there is none. */
int tm_gcp__signer_look(struct tm_gcp__signer *signer, const struct tm_gcp__wish *wish, struct tm_text *out,
                        struct tm_error *e);

#endif
