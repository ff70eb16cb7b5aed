/* Manifests and drops by a thread of their own: nobody waits for a store that takes its time, the order is kept, and
 * what fails for a while is done later. */
#include "run/manifest_keeper.h"

#include "base/test/harness.h"
#include "store/test/copy_memory.h"

#include <sched.h>

static struct copy_memory memory;
static struct tm_copy_store *store;
static struct tm_set_manifests m;
static struct tm_manifest_keeper *keeper;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

/* A store that takes as long as the gate is closed. */
static int slow_seal(struct tm_copy_store *slow, uint64_t set, const void *manifest, size_t length, struct tm_error *e)
{
    (void)pthread_mutex_lock(&gate);
    (void)pthread_mutex_unlock(&gate);
    return copy_memory_seal(slow, set, manifest, length, e);
}

static void open_keeper(enum tm_claim claim)
{
    copy_memory_init(&memory);
    store = copy_memory_open(&memory, 5);
    assert_non_null(store);
    store->seal = slow_seal;
    tm_set_manifests_init(&m, store);
    assert_int_equal(tm_manifest_keeper__create(&m, claim, &keeper, NULL), 0);
}

static void close_keeper(void)
{
    tm_manifest_keeper__destroy(keeper);
    tm_set_manifests_deinit(&m);
    store->close(store);
    copy_memory_deinit(&memory);
}

static void await_manifests(void)
{
    while (tm_manifest_keeper__waits(keeper))
        (void)sched_yield();
}

static uint64_t newest(void)
{
    uint64_t set = 0;
    (void)store->newest(store, &set, NULL);
    return set;
}

static bool is_sealed(uint64_t set)
{
    (void)pthread_mutex_lock(&memory.lock);
    bool there = copy_memory_find(&memory, set, COPY_MEMORY_MANIFEST) != NULL;
    (void)pthread_mutex_unlock(&memory.lock);
    return there;
}

static void test_nobody_waits(void **state)
{
    (void)state;
    struct tm_error e;
    open_keeper(TM_CLAIMED);
    (void)pthread_mutex_lock(&gate);
    assert_int_equal(tm_manifest_keeper__put(keeper, 1, "one", 3, NULL), 0);
    assert_int_equal(tm_manifest_keeper__put(keeper, 2, "two", 3, NULL), 0);
    assert_int_equal(tm_manifest_keeper__drop(keeper, 1, NULL), 0);
    assert_true(tm_manifest_keeper__waits(keeper));
    assert_int_equal(newest(), 0);
    (void)pthread_mutex_unlock(&gate);
    tm_manifest_keeper__destroy(keeper); /* which carries out what was asked for */
    assert_int_equal(newest(), 2);
    assert_true(is_sealed(2) && !is_sealed(1));
    assert_int_equal(tm_manifest_keeper__create(&m, TM_CLAIMED, &keeper, NULL), 0);
    (void)pthread_mutex_lock(&gate);
    assert_int_equal(tm_manifest_keeper__put(keeper, 3, "three", 5, NULL), 0);
    int rc = 0;
    for (uint64_t set = 4; rc == 0 && set < 2 * TM_KEEPER_ORDERS_MAX; set++)
        rc = tm_manifest_keeper__drop(keeper, set, &e);
    assert_int_equal(rc, -(int)TM_ELIMIT);
    assert_error_has(e, "the store of copies does not answer");
    (void)pthread_mutex_unlock(&gate);
    await_manifests();
    assert_int_equal(newest(), 3);
    assert_int_equal(tm_manifest_keeper__status(keeper, NULL), 0);
    close_keeper();
}

/* Full for a while: the manifest comes later, and the set before it stays until then. */
static void test_tried_again(void **state)
{
    (void)state;
    open_keeper(TM_CLAIMED);
    assert_int_equal(tm_manifest_keeper__put(keeper, 1, "one", 3, NULL), 0);
    await_manifests();
    (void)pthread_mutex_lock(&memory.lock);
    memory.full = 1;
    (void)pthread_mutex_unlock(&memory.lock);
    assert_int_equal(tm_manifest_keeper__put(keeper, 2, "two", 3, NULL), 0);
    assert_int_equal(tm_manifest_keeper__drop(keeper, 1, NULL), 0);
    tm_manifest_keeper__destroy(keeper);
    assert_int_equal(m.waiting_set, 2);
    assert_true(is_sealed(1) && !is_sealed(2));
    assert_int_equal(tm_manifest_keeper__create(&m, TM_CLAIMED, &keeper, NULL), 0);
    assert_true(tm_manifest_keeper__waits(keeper));
    tm_manifest_keeper__retry(keeper);
    await_manifests();
    assert_int_equal(newest(), 2);
    close_keeper();
}

static void test_claims(void **state)
{
    (void)state;
    struct tm_error e;
    open_keeper(TM_CLAIM_LATER);
    tm_manifest_keeper__retry(keeper);
    tm_manifest_keeper__destroy(keeper);
    assert_int_equal(memory.job, 5);
    memory.job = 6;
    assert_int_equal(tm_manifest_keeper__create(&m, TM_CLAIM_LATER_TAKE_OVER, &keeper, NULL), 0);
    tm_manifest_keeper__retry(keeper);
    tm_manifest_keeper__destroy(keeper);
    assert_int_equal(memory.job, 5);
    memory.job = 6;
    assert_int_equal(tm_manifest_keeper__create(&m, TM_CLAIM_LATER, &keeper, NULL), 0);
    tm_manifest_keeper__retry(keeper);
    while (tm_manifest_keeper__status(keeper, &e) == 0)
        (void)sched_yield();
    assert_error_has(e, "the copies of another job");
    close_keeper();
}

static void test_memory(void **state)
{
    (void)state;
    tm_set_manifests_init(&m, NULL);
    TM_FAIL_EACH_ALLOC({
        struct tm_manifest_keeper *k = NULL;
        rc = tm_manifest_keeper__create(&m, TM_CLAIMED, &k, NULL);
        if (rc == 0) rc = tm_manifest_keeper__put(k, 1, "one", 3, NULL);
        if (rc == 0) rc = tm_manifest_keeper__drop(k, 1, NULL);
        tm_manifest_keeper__destroy(k);
    });
    tm_set_manifests_deinit(&m);
}

TM_TEST_MAIN(TM_TEST(test_nobody_waits), TM_TEST(test_tried_again), TM_TEST(test_claims), TM_TEST(test_memory))
