#include "engine/inbox.h"

#include "base/alloc.h"

enum { SPARES_MAX = 8 }; /* parcels kept for use again; more would be memory that nobody asked for */

int tm_inbox__init(struct tm_inbox *inbox, size_t bytes_max, struct tm_error *e)
{
    *inbox = (struct tm_inbox){.bytes_max = bytes_max};
    if (pthread_mutex_init(&inbox->lock, NULL) != 0) return tm_error_nomem(e);
    if (pthread_cond_init(&inbox->came, NULL) == 0) return 0;
    (void)pthread_mutex_destroy(&inbox->lock);
    return tm_error_nomem(e);
}

static void free_all(struct tm_parcel *parcel)
{
    while (parcel != NULL) {
        struct tm_parcel *next = parcel->next;
        tm_free(parcel);
        parcel = next;
    }
}

void tm_inbox__deinit(struct tm_inbox *inbox)
{
    free_all(inbox->waiting);
    free_all(inbox->spare);
    (void)pthread_cond_destroy(&inbox->came);
    (void)pthread_mutex_destroy(&inbox->lock);
}

/* A spare parcel that is large enough and not far too large, unlinked; NULL: none. */
static struct tm_parcel *take_spare(struct tm_inbox *inbox, size_t length)
{
    for (struct tm_parcel **at = &inbox->spare; *at != NULL; at = &(*at)->next) {
        struct tm_parcel *parcel = *at;
        if (parcel->capacity < length || parcel->capacity / 4 > length) continue;
        *at = parcel->next;
        return parcel;
    }
    return NULL;
}

struct tm_parcel *tm_inbox__parcel(struct tm_inbox *inbox, size_t length)
{
    (void)pthread_mutex_lock(&inbox->lock);
    struct tm_parcel *parcel = take_spare(inbox, length);
    (void)pthread_mutex_unlock(&inbox->lock);
    if (parcel == NULL) {
        parcel = tm_alloc(sizeof *parcel + length);
        if (parcel == NULL) return NULL;
        parcel->capacity = length;
    }
    parcel->length = length;
    return parcel;
}

int tm_inbox__put(struct tm_inbox *inbox, struct tm_parcel *parcel, struct tm_error *e)
{
    (void)pthread_mutex_lock(&inbox->lock);
    bool fits = parcel->length <= inbox->bytes_max - inbox->bytes;
    if (fits) {
        inbox->bytes += parcel->length;
        parcel->next = inbox->waiting;
        inbox->waiting = parcel;
        (void)pthread_cond_broadcast(&inbox->came);
    }
    (void)pthread_mutex_unlock(&inbox->lock);
    if (fits) return 0;
    tm_free(parcel);
    return tm_error_set(e, TM_ELIMIT, "more than %zu bytes of messages are queued for one worker", inbox->bytes_max);
}

static struct tm_parcel *find(struct tm_inbox *inbox, int from, uint64_t tag)
{
    for (struct tm_parcel **at = &inbox->waiting; *at != NULL; at = &(*at)->next) {
        struct tm_parcel *parcel = *at;
        if (parcel->from != from || parcel->tag != tag) continue;
        *at = parcel->next;
        inbox->bytes -= parcel->length;
        return parcel;
    }
    return NULL;
}

struct tm_parcel *tm_inbox__try(struct tm_inbox *inbox, int from, uint64_t tag, size_t length)
{
    (void)pthread_mutex_lock(&inbox->lock);
    struct tm_parcel *parcel = inbox->cancelled ? NULL : find(inbox, from, tag);
    if (parcel != NULL && parcel->length != length) { /* tm_inbox__take says what is wrong with it */
        parcel->next = inbox->waiting;
        inbox->waiting = parcel;
        inbox->bytes += parcel->length;
        parcel = NULL;
    }
    (void)pthread_mutex_unlock(&inbox->lock);
    return parcel;
}

int tm_inbox__take(struct tm_inbox *inbox, int from, uint64_t tag, size_t length, struct tm_parcel **out,
                   struct tm_error *e)
{
    struct tm_parcel *parcel = NULL;
    (void)pthread_mutex_lock(&inbox->lock);
    while (!inbox->cancelled && (parcel = find(inbox, from, tag)) == NULL && !inbox->lost[from])
        (void)pthread_cond_wait(&inbox->came, &inbox->lock);
    bool is_lost = parcel == NULL && !inbox->cancelled;
    (void)pthread_mutex_unlock(&inbox->lock);
    if (is_lost) return tm_error_set(e, TM_EPEER, "worker %d was lost", from);
    if (parcel == NULL) return tm_error_set(e, TM_ECANCELED, "waiting for worker %d was cancelled", from);
    if (parcel->length != length) {
        int rc = tm_error_set(e, TM_EPEER, "worker %d sent %zu bytes, expected %zu", from, parcel->length, length);
        tm_free(parcel);
        return rc;
    }
    *out = parcel;
    return 0;
}

void tm_inbox__give_back(struct tm_inbox *inbox, struct tm_parcel *parcel)
{
    if (parcel == NULL) return;
    int spares = 0;
    (void)pthread_mutex_lock(&inbox->lock);
    for (const struct tm_parcel *p = inbox->spare; p != NULL; p = p->next)
        spares++;
    bool keep = spares < SPARES_MAX;
    if (keep) {
        parcel->next = inbox->spare;
        inbox->spare = parcel;
    }
    (void)pthread_mutex_unlock(&inbox->lock);
    if (!keep) tm_free(parcel);
}

void tm_inbox__lost(struct tm_inbox *inbox, int from)
{
    (void)pthread_mutex_lock(&inbox->lock);
    inbox->lost[from] = true;
    (void)pthread_cond_broadcast(&inbox->came);
    (void)pthread_mutex_unlock(&inbox->lock);
}

void tm_inbox__cancel(struct tm_inbox *inbox)
{
    (void)pthread_mutex_lock(&inbox->lock);
    inbox->cancelled = true;
    (void)pthread_cond_broadcast(&inbox->came);
    (void)pthread_mutex_unlock(&inbox->lock);
}
