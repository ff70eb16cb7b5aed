/* Where messages for one worker wait until it asks for them: by sender and tag, in any order of arrival.
 *
 * Any thread may put, one takes. Cancelling ends every wait at once, and all that follow. */
#ifndef TM_ENGINE_INBOX_H
#define TM_ENGINE_INBOX_H

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_parcel {
    struct tm_parcel *next;
    int from;
    uint64_t tag;
    size_t length;
    size_t capacity;
    _Alignas(16) unsigned char data[];
};

struct tm_inbox {
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct tm_parcel *waiting; /* any order */
    struct tm_parcel *spare;   /* memory to use again */
    size_t bytes;              /* in waiting */
    size_t bytes_max;
    bool cancelled;
    bool lost[256]; /* by sender: nothing more will come */
};

int tm_inbox__init(struct tm_inbox *inbox, size_t bytes_max, struct tm_error *e);
void tm_inbox__deinit(struct tm_inbox *inbox);

/* A parcel of this length to be filled and put (or given back); NULL: out of memory. */
struct tm_parcel *tm_inbox__parcel(struct tm_inbox *inbox, size_t length);
/* Takes the parcel over. -TM_ELIMIT: too much waits already. */
int tm_inbox__put(struct tm_inbox *inbox, struct tm_parcel *parcel, struct tm_error *e);
/* Waits for the parcel; the caller gives it back. -TM_ECANCELED when cancelled, -TM_EPEER where it has another length.
 */
int tm_inbox__take(struct tm_inbox *inbox, int from, uint64_t tag, size_t length, struct tm_parcel **out,
                   struct tm_error *e);
/* The parcel if it is here already, else NULL. */
struct tm_parcel *tm_inbox__try(struct tm_inbox *inbox, int from, uint64_t tag, size_t length);
void tm_inbox__give_back(struct tm_inbox *inbox, struct tm_parcel *parcel); /* NULL is allowed */
/* This sender is gone: what it sent before can still be taken, waiting for more is -TM_EPEER. */
void tm_inbox__lost(struct tm_inbox *inbox, int from);
void tm_inbox__cancel(struct tm_inbox *inbox);

#endif
