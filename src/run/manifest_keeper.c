#include "run/manifest_keeper.h"

#include "base/alloc.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

struct order {
    struct order *next;
    bool is_put;
    uint64_t set;
    size_t length;
    char data[];
};

struct tm_manifest_keeper {
    struct tm_set_manifests *manifests; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* with the lock */
    struct order *first;
    struct order *last;
    size_t order_count;
    size_t put_count; /* among them, and under way */
    bool retry;
    enum tm_claim claim;
    bool waits; /* a manifest that was tried is not there */
    bool ends;
    int failed;
    struct tm_error error;
};

/* ---- the thread ---- */

/* The claim, where it is due. -TM_EINPUT: another job has it. */
static int make_claim(struct tm_manifest_keeper *k, bool take_over, struct tm_error *e)
{
    struct tm_copy_store *store = k->manifests->store;
    int rc = store == NULL ? 0 : store->claim(store, take_over, e);
    (void)pthread_mutex_lock(&k->lock);
    if (rc == 0) k->claim = TM_CLAIMED;
    (void)pthread_mutex_unlock(&k->lock);
    return rc == -(int)TM_EINPUT ? rc : 0;
}

static int carry_out(struct tm_manifest_keeper *k, const struct order *order, struct tm_error *e)
{
    if (order->is_put) return tm_set_manifests_put(k->manifests, order->set, order->data, order->length, e);
    tm_set_manifests_drop(k->manifests, order->set);
    return 0;
}

/* With the lock, which is given back meanwhile: one order, or what is to be tried again. */
static void work(struct tm_manifest_keeper *k)
{
    struct order *order = k->first;
    struct tm_error e = {.text = ""};
    enum tm_claim claim = k->claim;
    int rc = 0;
    if (order != NULL) {
        k->first = order->next;
        if (k->first == NULL) k->last = NULL;
        k->order_count--;
    }
    if (order == NULL) k->retry = false;
    (void)pthread_mutex_unlock(&k->lock);
    if (order != NULL) rc = carry_out(k, order, &e);
    if (order == NULL) (void)tm_set_manifests_retry(k->manifests);
    if (order == NULL && claim != TM_CLAIMED) rc = make_claim(k, claim == TM_CLAIM_LATER_TAKE_OVER, &e);
    (void)pthread_mutex_lock(&k->lock);
    if (order != NULL && order->is_put) k->put_count--;
    k->waits = k->manifests->waiting_set != 0;
    if (rc != 0 && k->failed == 0) {
        k->failed = rc;
        k->error = e;
    }
    tm_free(order);
}

static void *serve(void *argument)
{
    struct tm_manifest_keeper *k = argument;
    (void)pthread_mutex_lock(&k->lock);
    for (;;) {
        if (k->first != NULL || k->retry)
            work(k);
        else if (k->ends)
            break;
        else
            (void)pthread_cond_wait(&k->changed, &k->lock);
    }
    (void)pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* ---- the caller ---- */

int tm_manifest_keeper__create(struct tm_set_manifests *manifests, enum tm_claim claim, struct tm_manifest_keeper **out,
                               struct tm_error *e)
{
    assert(manifests != NULL);
    struct tm_manifest_keeper *k = tm_calloc(1, sizeof *k);
    if (k == NULL) return tm_error_nomem(e);
    k->manifests = manifests;
    k->claim = claim;
    k->waits = manifests->waiting_set != 0;
    (void)pthread_mutex_init(&k->lock, NULL);
    (void)pthread_cond_init(&k->changed, NULL);
    if (pthread_create(&k->thread, NULL, serve, k) != 0) {
        (void)pthread_cond_destroy(&k->changed);
        (void)pthread_mutex_destroy(&k->lock);
        tm_free(k);
        return tm_error_nomem(e);
    }
    *out = k;
    return 0;
}

void tm_manifest_keeper__destroy(struct tm_manifest_keeper *k)
{
    if (k == NULL) return;
    (void)pthread_mutex_lock(&k->lock);
    k->ends = true;
    (void)pthread_cond_signal(&k->changed);
    (void)pthread_mutex_unlock(&k->lock);
    (void)pthread_join(k->thread, NULL);
    assert(k->first == NULL && k->order_count == 0 && k->put_count == 0);
    (void)pthread_cond_destroy(&k->changed);
    (void)pthread_mutex_destroy(&k->lock);
    tm_free(k);
}

static int ask(struct tm_manifest_keeper *k, bool is_put, uint64_t set, const void *data, size_t length,
               struct tm_error *e)
{
    assert(set > 0);
    struct order *order = tm_alloc(sizeof *order + length);
    if (order == NULL) return tm_error_nomem(e);
    *order = (struct order){.is_put = is_put, .set = set, .length = length};
    if (length > 0) memcpy(order->data, data, length);
    (void)pthread_mutex_lock(&k->lock);
    bool room = k->order_count < TM_KEEPER_ORDERS_MAX;
    if (room) {
        if (k->last != NULL) k->last->next = order;
        if (k->last == NULL) k->first = order;
        k->last = order;
        k->order_count++;
        k->put_count += is_put;
        (void)pthread_cond_signal(&k->changed);
    }
    (void)pthread_mutex_unlock(&k->lock);
    if (room) return 0;
    tm_free(order);
    return tm_error_set(
        e, TM_ELIMIT,
        "the store of copies does not answer: %d orders wait for it; fix it, then start the coordinator again",
        TM_KEEPER_ORDERS_MAX);
}

int tm_manifest_keeper__put(struct tm_manifest_keeper *k, uint64_t set, const void *data, size_t length,
                            struct tm_error *e)
{
    return ask(k, true, set, data, length, e);
}

int tm_manifest_keeper__drop(struct tm_manifest_keeper *k, uint64_t set, struct tm_error *e)
{
    return ask(k, false, set, NULL, 0, e);
}

void tm_manifest_keeper__retry(struct tm_manifest_keeper *k)
{
    (void)pthread_mutex_lock(&k->lock);
    k->retry = true;
    (void)pthread_cond_signal(&k->changed);
    (void)pthread_mutex_unlock(&k->lock);
}

bool tm_manifest_keeper__waits(struct tm_manifest_keeper *k)
{
    (void)pthread_mutex_lock(&k->lock);
    bool waits = k->put_count > 0 || k->waits;
    (void)pthread_mutex_unlock(&k->lock);
    return waits;
}

int tm_manifest_keeper__status(struct tm_manifest_keeper *k, struct tm_error *e)
{
    (void)pthread_mutex_lock(&k->lock);
    int failed = k->failed;
    if (failed != 0 && e != NULL) *e = k->error;
    (void)pthread_mutex_unlock(&k->lock);
    return failed;
}
