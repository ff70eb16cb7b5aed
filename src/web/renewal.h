/* When credentials that end are asked for anew, and by whom: a thread asks. While the old ones are good it does so not
 * more than once a minute, and they are used meanwhile. Without any that are good, who serves others meanwhile looks
 * again later.
 *
 * The owner has the credentials and guards them by this lock; all but init and deinit is called with it. */
#ifndef TM_WEB_RENEWAL_H
#define TM_WEB_RENEWAL_H

#include "base/env.h"

#include <pthread.h>

struct tm_renewal {
    struct tm_env *env;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int (*ask)(void *context, struct tm_error *e); /* by the thread, without the lock: asks, and stores what it got */
    void *context;
    pthread_t thread;
    bool joinable;
    bool running;
    bool answered; /* the last asking, then, with `rc` */
    int64_t answered_ns;
    int rc;
    struct tm_error why;
    int64_t got_ms;   /* when those that are had came */
    int64_t tried_ns; /* monotonic: when they were asked for last */
};

void tm_renewal__init(struct tm_renewal *renewal, struct tm_env *env, int (*ask)(void *context, struct tm_error *e),
                      void *context);
/* Waits for a thread that asks. */
void tm_renewal__deinit(struct tm_renewal *renewal);

/* Those that end then are good enough to be used now. */
bool tm_renewal__is_good(const struct tm_renewal *renewal, int64_t ends_ms);
/* Asks for new ones, beside the caller, if it is time: so long before they end, or at half of their life where they
 * last for less, and not within a minute of the last time. */
void tm_renewal__refresh(struct tm_renewal *renewal, int64_t ends_ms, int64_t before_ms);
/* There are none that are good: asks beside the caller, unless somebody does. -TM_EBUSY: there is no answer so far,
 * look again later; else what the last asking, less than a second ago, ended with. */
int tm_renewal__look(struct tm_renewal *renewal, struct tm_error *e);
/* The same for who may wait: until there is an answer. */
int tm_renewal__await(struct tm_renewal *renewal, struct tm_error *e);
/* What was answered so far does not count any more. */
void tm_renewal__doubt(struct tm_renewal *renewal);
/* New ones have come. */
void tm_renewal__got(struct tm_renewal *renewal);

#endif
