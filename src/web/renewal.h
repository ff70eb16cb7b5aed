/* When credentials that end are asked for anew, and by whom. While the old ones are good nobody waits: a thread asks,
 * not more than once a minute, and they are used meanwhile. Only without any that are good does the caller wait.
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
    void (*ask)(void *context); /* by the thread, without the lock: asks, and stores what it got with it */
    void *context;
    pthread_t thread;
    bool joinable;
    bool running;
    int64_t got_ms;   /* when those that are had came */
    int64_t tried_ns; /* monotonic: when they were asked for last */
};

void tm_renewal__init(struct tm_renewal *renewal, struct tm_env *env, void (*ask)(void *context), void *context);
/* Waits for a thread that asks. */
void tm_renewal__deinit(struct tm_renewal *renewal);

/* Those that end then are good enough to be used now. */
bool tm_renewal__is_good(const struct tm_renewal *renewal, int64_t ends_ms);
/* Asks for new ones, beside the caller, if it is time: so long before they end, or at half of their life where they
 * last for less, and not within a minute of the last time. */
void tm_renewal__refresh(struct tm_renewal *renewal, int64_t ends_ms, int64_t before_ms);
/* Until no thread asks any more; whether one did. */
bool tm_renewal__await(struct tm_renewal *renewal);
/* New ones have come. */
void tm_renewal__got(struct tm_renewal *renewal);

#endif
