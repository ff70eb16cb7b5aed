/* Sums over workers, by threads and by sockets; waits that are cancelled; workers that are lost. */
#include "base/test/harness.h"
#include "engine/mesh_local.h"
#include "engine/mesh_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 3, COUNT = 200003 };

struct worker {
    struct tm_mesh *mesh;
    const char *address; /* of worker 0; NULL: the mesh is there already */
    int listener;
    char bound[TM_ADDRESS_MAX];
    int rank;
    struct tm_mesh_socket *socket;
    int rc;
    struct tm_error e;
};

static int sum_up(struct tm_mesh *mesh, struct tm_error *e)
{
    int32_t *data = calloc(COUNT, sizeof *data);
    struct tm_group group = {.ranks = {2, 0, 1}, .count = WORKERS, .place = (mesh->rank + 1) % WORKERS};
    uint32_t index = 0;
    if (data == NULL) return tm_error_nomem(e);
    for (int i = 0; i < COUNT; i++)
        data[i] = i * (mesh->rank + 1);
    uint64_t tag = tm_message__tag(TM_MESSAGE_REDUCE, 3, 0, 0);
    int rc = tm_mesh__all_reduce(mesh, &group, &tm_kernels__avx2, TM_SUM_I32, data, COUNT, tag, &index, e);
    for (int i = 0; rc == 0 && i < COUNT; i++) {
        if (data[i] != i * 6) rc = tm_error_set(e, TM_EINTERNAL, "element %d is %d, want %d", i, data[i], i * 6);
    }
    float values[2] = {(float)mesh->rank, 5.0F - (float)mesh->rank};
    if (rc == 0) rc = tm_mesh__all_largest(mesh, &group, values, 2, tm_message__tag(TM_MESSAGE_LARGEST, 3, 0, 0), e);
    if (rc == 0 && (values[0] != 2.0F || values[1] != 5.0F)) rc = tm_error_set(e, TM_EINTERNAL, "wrong largest");
    free(data);
    return rc;
}

static void *run_worker(void *argument)
{
    struct worker *w = argument;
    if (w->address != NULL) {
        struct tm_mesh_socket_options options = {.rank = w->rank,
                                                 .size = WORKERS,
                                                 .listener = w->listener,
                                                 .own = w->bound,
                                                 .first = w->address,
                                                 .generation = 9,
                                                 .timeout_ms = 20000};
        w->rc = tm_mesh_socket__create(tm_env_real(), &options, &w->socket, &w->e);
        if (w->rc != 0) return NULL;
        w->mesh = tm_mesh_socket__end(w->socket);
    }
    w->rc = sum_up(w->mesh, &w->e);
    return NULL;
}

static void run_all(struct worker *workers)
{
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < WORKERS; i++)
        assert_row(workers[i].rc == 0, "worker %d: %s", i, workers[i].e.text);
}

static void test_sums_between_threads(void **state)
{
    (void)state;
    struct tm_mesh_local *local = NULL;
    assert_int_equal(tm_mesh_local_create(WORKERS, &local, NULL), 0);
    struct worker workers[WORKERS] = {0};
    for (int i = 0; i < WORKERS; i++)
        workers[i].mesh = tm_mesh_local_end(local, i);
    run_all(workers);
    /* a ring: 2 (n - 1) / n of the data, and a few numbers */
    double share = (double)workers[0].mesh->bytes_sent / (4.0 * COUNT);
    assert_true(share > 1.33 && share < 1.34);
    tm_mesh_local_destroy(local);
}

/* ---- many ---- */

enum { MANY_MAX = 40, MANY_COUNT = 70001 };

struct one_of_many {
    struct tm_mesh *mesh;
    int count; /* of elements */
    uint32_t index;
    int rc;
    struct tm_error e;
};

/* Twice, one after the other: who had less to do in the first must not be ahead in the numbers of its messages. */
static void *sum_of_many(void *argument)
{
    struct one_of_many *one = argument;
    struct tm_mesh *mesh = one->mesh;
    int n = mesh->size;
    int32_t *data = calloc((size_t)one->count + 1, sizeof *data);
    struct tm_group group = {.count = n, .place = (mesh->rank + 3) % n};
    for (int i = 0; i < n; i++)
        group.ranks[i] = (i - 3 + 3 * n) % n;
    uint64_t tag = tm_message__tag(TM_MESSAGE_REDUCE, 3, 0, 0);
    for (int round = 1; one->rc == 0 && round <= 2; round++) {
        for (int i = 0; i < one->count; i++)
            data[i] = i * (mesh->rank + round);
        one->rc = tm_mesh__all_reduce(mesh, &group, &tm_kernels__avx2, TM_SUM_I32, data, (size_t)one->count, tag,
                                      &one->index, &one->e);
        int times = n * (n - 1) / 2 + n * round;
        for (int i = 0; one->rc == 0 && i < one->count; i++)
            if (data[i] != i * times) one->rc = tm_error_set(&one->e, TM_EINTERNAL, "element %d is %d", i, data[i]);
    }
    float values[2] = {(float)mesh->rank, 5.0F - (float)mesh->rank};
    if (one->rc == 0)
        one->rc = tm_mesh__all_largest(mesh, &group, values, 2, tm_message__tag(TM_MESSAGE_LARGEST, 3, 0, 0), &one->e);
    if (one->rc == 0 && (values[0] != (float)(n - 1) || values[1] != 5.0F))
        one->rc = tm_error_set(&one->e, TM_EINTERNAL, "wrong largest");
    free(data);
    return NULL;
}

static void sum_by(int workers, int count)
{
    struct tm_mesh_local *local = NULL;
    struct one_of_many all[MANY_MAX];
    pthread_t threads[MANY_MAX];
    assert_int_equal(tm_mesh_local_create(workers, &local, NULL), 0);
    for (int i = 0; i < workers; i++) {
        all[i] = (struct one_of_many){.mesh = tm_mesh_local_end(local, i), .count = count};
        assert_int_equal(pthread_create(&threads[i], NULL, sum_of_many, &all[i]), 0);
    }
    for (int i = 0; i < workers; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < workers; i++) {
        assert_row(all[i].rc == 0, "%d of %d, %d elements: %s", i, workers, count, all[i].e.text);
        assert_int_equal(all[i].index, all[0].index);
        assert_true((double)all[i].mesh->bytes_sent <= 2 * 3 * 4.0 * count + 128); /* of two sums */
    }
    tm_mesh_local_destroy(local);
}

static void test_sums_of_many(void **state)
{
    (void)state;
    static const int sizes[] = {2, 16, 17, 32, MANY_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sum_by(sizes[i], 0);
        sum_by(sizes[i], 5);
        sum_by(sizes[i], 1000);
    }
    sum_by(33, MANY_COUNT);   /* more than one piece */
    sum_by(2, (2 << 16) + 1); /* one piece for some, and two for others */
    sum_by(3, 3 * (1 << 16) + 1);
}

static void connect_and_sum(const char *const addresses[WORKERS], struct worker *workers)
{
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.rank = i};
        assert_int_equal(
            tm_mesh_socket__listen(tm_env_real(), addresses[i], &workers[i].listener, workers[i].bound, &workers[i].e),
            0);
    }
    for (int i = 0; i < WORKERS; i++)
        workers[i].address = workers[0].bound;
    run_all(workers);
}

static void test_sums_over_tcp(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"};
    struct worker workers[WORKERS];
    connect_and_sum(addresses, workers);
    for (int i = 0; i < WORKERS; i++)
        tm_mesh_socket__destroy(workers[i].socket);
}

struct waiter {
    struct tm_mesh *mesh;
    int rc;
    struct tm_error e;
};

static void *wait_for_ever(void *argument)
{
    struct waiter *waiter = argument;
    struct tm_parcel *parcel = NULL;
    waiter->rc = waiter->mesh->receive(waiter->mesh, 2, 1234, 8, &parcel, &waiter->e);
    return NULL;
}

/* Over Unix sockets: one wait is cancelled, another ends because the worker it waits for is gone. */
static void test_unix_sockets_cancelled_and_lost(void **state)
{
    (void)state;
    char names[WORKERS][64];
    const char *addresses[WORKERS];
    struct worker workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        (void)snprintf(names[i], sizeof names[i], "unix:/tmp/tidemill-test-%ld-%d", (long)getpid(), i);
        addresses[i] = names[i];
    }
    connect_and_sum(addresses, workers);
    for (int i = 0; i < WORKERS; i++)
        (void)unlink(names[i] + 5);
    struct waiter waiters[2] = {{.mesh = workers[0].mesh}, {.mesh = workers[1].mesh}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_ever, &waiters[i]), 0);
    workers[0].mesh->cancel(workers[0].mesh);
    assert_int_equal(pthread_join(threads[0], NULL), 0);
    assert_int_equal(waiters[0].rc, -(int)TM_ECANCELED);
    tm_mesh_socket__destroy(workers[2].socket);
    assert_int_equal(pthread_join(threads[1], NULL), 0);
    assert_int_equal(waiters[1].rc, -(int)TM_EPEER);
    assert_error_has(waiters[1].e, "worker 2 was lost");
    tm_mesh_socket__destroy(workers[0].socket);
    tm_mesh_socket__destroy(workers[1].socket);
}

static void test_a_thread_cancelled(void **state)
{
    (void)state;
    struct tm_mesh_local *local = NULL;
    assert_int_equal(tm_mesh_local_create(WORKERS, &local, NULL), 0);
    struct waiter waiter = {.mesh = tm_mesh_local_end(local, 1)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &waiter), 0);
    tm_mesh_local__cancel_all(local);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiter.rc, -(int)TM_ECANCELED);
    /* and whoever comes later does not wait either */
    (void)wait_for_ever(&waiter);
    assert_int_equal(waiter.rc, -(int)TM_ECANCELED);
    tm_mesh_local_destroy(local);
}

static void test_another_generation_is_refused(void **state)
{
    (void)state;
    struct worker first = {.rank = 0};
    struct tm_env *env = tm_env_real();
    assert_int_equal(tm_mesh_socket__listen(env, "127.0.0.1:0", &first.listener, first.bound, NULL), 0);
    int handle = -1;
    assert_int_equal(env->net_connect(env, first.bound, &handle, NULL), 0);
    struct {
        uint64_t magic;
        uint64_t generation;
        int32_t rank;
        int32_t size;
        char address[TM_ADDRESS_MAX + 4];
    } hello = {.magic = 0x544D4D4553483031U, .generation = 8, .rank = 1, .size = WORKERS};
    size_t sent = 0;
    assert_int_equal(env->net_send(env, handle, &hello, sizeof hello, &sent, NULL), 0);
    first.address = first.bound;
    (void)run_worker(&first);
    assert_int_equal(first.rc, -(int)TM_EPEER);
    assert_error_has(first.e, "worker 1 is in generation 8, this is 9");
    env->net_close(env, handle);
}

static void test_what_is_sent_must_fit(void **state)
{
    (void)state;
    struct tm_mesh_local *local = NULL;
    struct tm_error e = {0};
    char byte = 0;
    assert_int_equal(tm_mesh_local_create(2, &local, NULL), 0);
    struct tm_mesh *a = tm_mesh_local_end(local, 0);
    struct tm_mesh *b = tm_mesh_local_end(local, 1);
    assert_int_equal(a->send(a, 1, 7, "abc", 3, &e), 0);
    assert_int_equal(tm_mesh__receive_into(b, 0, 7, &byte, 1, &e), -(int)TM_EPEER);
    assert_error_has(e, "worker 0 sent 3 bytes, expected 1");
    tm_mesh_local_destroy(local);
    TM_FAIL_EACH_ALLOC({
        struct tm_mesh_local *made = NULL;
        rc = tm_mesh_local_create(2, &made, NULL);
        if (rc == 0) rc = tm_mesh_local_end(made, 0)->send(tm_mesh_local_end(made, 0), 1, 7, "abc", 3, NULL);
        tm_mesh_local_destroy(made);
    });
}

TM_TEST_MAIN(TM_TEST(test_sums_between_threads), TM_TEST(test_sums_of_many), TM_TEST(test_sums_over_tcp),
             TM_TEST(test_unix_sockets_cancelled_and_lost), TM_TEST(test_a_thread_cancelled),
             TM_TEST(test_another_generation_is_refused), TM_TEST(test_what_is_sent_must_fit))
