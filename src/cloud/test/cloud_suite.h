/* What every cloud must do (cloud/cloud.h), tried on one that is fresh: arrivals, releases, losses, refusals, a place
 * that is full for a while, a driver that dies at every step, another that takes over, notices, and nothing left
 * behind. An implementation's test says how its cloud is opened, how an instance is taken from it, and how many there
 * really are, and calls cloud_suite. */
#ifndef TM_CLOUD_TEST_CLOUD_SUITE_H
#define TM_CLOUD_TEST_CLOUD_SUITE_H

#include "base/test/harness.h"
#include "cloud/cloud.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SUITE_LONG_MS = 60000, SUITE_STEPS = 600 };

struct cloud_place {
    void *context;
    int limit; /* of instances at a time: at least 3 */
    /* `again`: what an earlier one, whose program died, has left is still there. `id_first`: its first instance. */
    struct tm_cloud *(*open)(void *context, bool again, uint64_t id_first);
    /* Takes the instance away, as a failure does: not through the cloud. */
    void (*lose)(void *context, const struct tm_cloud_instance *instance);
    /* How many instances' processes there are, as the machine tells, not the cloud. */
    int (*alive)(void *context);
    /* Lets the place itself announce that the instance goes, and take it within a minute. NULL: nothing is announced
     * there, or to its agent alone. */
    void (*notice)(void *context, const struct tm_cloud_instance *instance);
    /* From now on the place itself has nothing more to give, or has again; what is there stays. NULL: that cannot be
     * brought about there. */
    void (*full)(void *context, bool full);
    /* A number that stays as it is while the same things (VMs, jobs, pods) are there, as the place itself tells. NULL:
     * what an earlier program left is ended there, not taken over. */
    int (*same)(void *context);
};

/* The next event of a kind; others are taken on the way. */
static struct tm_cloud_event suite_await(struct tm_cloud *cloud, enum tm_cloud_event_kind kind)
{
    struct tm_cloud_event event = {0};
    struct tm_error e = {.text = ""};
    for (int i = 0; i < SUITE_STEPS; i++) {
        int rc = cloud->next(cloud, SUITE_LONG_MS / SUITE_STEPS, &event, &e);
        assert_row(rc == 0 || rc == -(int)TM_ETIMEOUT, "%s", e.text);
        if (rc == 0 && event.kind == kind) return event;
    }
    fail_msg("the cloud never told: %s", tm_cloud_event_kind_name(kind));
    return event;
}

/* Serves the cloud until so many are really there. */
static void suite_await_alive(const struct cloud_place *place, struct tm_cloud *cloud, int count)
{
    struct tm_cloud_event event;
    for (int i = 0; i < SUITE_STEPS && place->alive(place->context) != count; i++)
        (void)cloud->next(cloud, SUITE_LONG_MS / SUITE_STEPS, &event, NULL);
    assert_int_equal(place->alive(place->context), count);
}

static int suite_here(struct tm_cloud *cloud)
{
    size_t count = 0;
    int here = 0;
    const struct tm_cloud_instance *all = cloud->instances(cloud, &count);
    for (size_t i = 0; i < count; i++)
        here += tm_instance_is_here(&all[i]);
    return here;
}

static void suite_want(struct tm_cloud *cloud, int count)
{
    struct tm_error e = {.text = ""};
    assert_row(cloud->want(cloud, TM_CLOUD_SPOT, count, &e) == 0, "%s", e.text);
}

static void suite_close(const struct cloud_place *place, struct tm_cloud *cloud)
{
    struct tm_error e = {.text = ""};
    assert_row(cloud->destroy(cloud, &e) == 0, "%s", e.text);
    assert_int_equal(place->alive(place->context), 0);
}

/* What is wanted arrives, numbered from the first on, and really runs; what is given back goes, and is not replaced. */
static void suite_arrive_release(const struct cloud_place *place)
{
    struct tm_cloud *cloud = place->open(place->context, false, 7);
    struct tm_error e;
    int pools = 0;
    assert_true(cloud->pools(cloud, &pools) != NULL && pools > TM_CLOUD_SPOT);
    assert_int_equal(suite_here(cloud), 0);
    suite_want(cloud, 2);
    struct tm_cloud_event first = suite_await(cloud, TM_CLOUD_ARRIVED);
    struct tm_cloud_event second = suite_await(cloud, TM_CLOUD_ARRIVED);
    assert_true(first.instance >= 7 && second.instance >= 7 && first.instance != second.instance);
    assert_true(tm_instance_is_here(tm_cloud_find(cloud, first.instance)));
    suite_await_alive(place, cloud, 2);
    assert_int_equal(cloud->release(cloud, first.instance, &e), 0);
    assert_int_equal(suite_await(cloud, TM_CLOUD_RELEASED).instance, first.instance);
    assert_int_equal(tm_cloud_find(cloud, first.instance)->state, TM_INSTANCE_RELEASED);
    suite_await_alive(place, cloud, 1);
    assert_int_equal(suite_here(cloud), 1);
    struct tm_cloud_bill bill = cloud->bill(cloud);
    assert_true(bill.seconds[TM_CLOUD_SPOT] > 0 && bill.usd[TM_CLOUD_SPOT] >= 0);
    suite_close(place, cloud);
}

/* One that is taken away is told, as a loss without a notice, and another comes in its place. */
static void suite_loss(const struct cloud_place *place)
{
    struct tm_cloud *cloud = place->open(place->context, false, 1);
    suite_want(cloud, 1);
    uint64_t id = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
    suite_await_alive(place, cloud, 1);
    struct tm_cloud_instance taken = *tm_cloud_find(cloud, id);
    place->lose(place->context, &taken);
    struct tm_cloud_event lost = suite_await(cloud, TM_CLOUD_LOST);
    assert_int_equal(lost.instance, id);
    assert_false(lost.announced);
    assert_int_equal(tm_cloud_find(cloud, id)->state, TM_INSTANCE_LOST);
    uint64_t next = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
    assert_true(next > id);
    suite_await_alive(place, cloud, 1);
    suite_close(place, cloud);
}

/* What it has not got it refuses in words, or does not grant; nothing of that changes what is there. */
static void suite_refusal(const struct cloud_place *place)
{
    struct tm_cloud *cloud = place->open(place->context, false, 1);
    struct tm_cloud_event event;
    struct tm_error e = {.text = ""};
    int pools = 0;
    (void)cloud->pools(cloud, &pools);
    assert_int_equal(cloud->want(cloud, pools, 1, &e), -(int)TM_EUSAGE);
    assert_true(e.text[0] != '\0');
    assert_int_equal(cloud->release(cloud, 99, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(cloud->next(cloud, 0, &event, &e), -(int)TM_ETIMEOUT);
    suite_want(cloud, place->limit + 5);
    for (int i = 0; i < place->limit; i++)
        (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    for (int i = 0; i < 5; i++)
        (void)cloud->next(cloud, 20, &event, NULL);
    assert_int_equal(suite_here(cloud), place->limit);
    suite_close(place, cloud);
}

/* Where the place itself has no more, nobody comes, and who is there stays; when it has again, they come by themselves.
 */
__attribute__((unused)) static void suite_full(const struct cloud_place *place)
{
    struct tm_cloud *cloud = place->open(place->context, false, 1);
    struct tm_cloud_event event;
    suite_want(cloud, 1);
    uint64_t id = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
    suite_await_alive(place, cloud, 1);
    place->full(place->context, true);
    suite_want(cloud, 2);
    for (int i = 0; i < 20; i++)
        (void)cloud->next(cloud, 100, &event, NULL);
    assert_int_equal(suite_here(cloud), 1);
    assert_true(tm_instance_is_here(tm_cloud_find(cloud, id)));
    place->full(place->context, false);
    assert_true(suite_await(cloud, TM_CLOUD_ARRIVED).instance > id);
    suite_await_alive(place, cloud, 2);
    suite_close(place, cloud);
}

/* What is announced is told before it happens, as a loss that was announced when it does, and another comes. */
__attribute__((unused)) static void suite_notice(const struct cloud_place *place)
{
    struct tm_cloud *cloud = place->open(place->context, false, 1);
    struct tm_cloud_event event;
    suite_want(cloud, 1);
    uint64_t id = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
    suite_await_alive(place, cloud, 1);
    struct tm_cloud_instance leaving = *tm_cloud_find(cloud, id);
    place->notice(place->context, &leaving);
    struct tm_cloud_event notice = suite_await(cloud, TM_CLOUD_NOTICE);
    assert_int_equal(notice.instance, id);
    assert_true(notice.left_ms > 0);
    assert_int_equal(tm_cloud_find(cloud, id)->state, TM_INSTANCE_NOTICED);
    struct tm_cloud_event lost = suite_await(cloud, TM_CLOUD_LOST);
    assert_int_equal(lost.instance, id);
    assert_true(lost.announced);
    for (int i = 0; i < SUITE_STEPS && suite_here(cloud) == 0; i++)
        (void)cloud->next(cloud, SUITE_LONG_MS / SUITE_STEPS, &event, NULL);
    assert_int_equal(suite_here(cloud), 1);
    suite_await_alive(place, cloud, 1);
    suite_close(place, cloud);
}

enum suite_step {
    SUITE_AT_ONCE,
    SUITE_STARTING,
    SUITE_ONE_HERE,
    SUITE_BOTH_HERE,
    SUITE_RELEASING,
    SUITE_LOSING,
    SUITE_STEP_COUNT
};

/* Up to the step at which the driver dies, and not further. */
static void suite_live(const struct cloud_place *place, enum suite_step step)
{
    struct tm_cloud *dying = place->open(place->context, false, 1);
    struct tm_cloud_event event;
    struct tm_error e = {.text = ""};
    uint64_t id = 0;
    suite_want(dying, 2);
    if (step == SUITE_STARTING) (void)dying->next(dying, 0, &event, NULL);
    for (int i = 0; i < (step >= SUITE_BOTH_HERE ? 2 : step == SUITE_ONE_HERE ? 1 : 0); i++)
        id = suite_await(dying, TM_CLOUD_ARRIVED).instance;
    if (step < SUITE_RELEASING) return;
    suite_await_alive(place, dying, 2);
    struct tm_cloud_instance instance = *tm_cloud_find(dying, id);
    if (step == SUITE_LOSING) place->lose(place->context, &instance);
    if (step == SUITE_RELEASING) assert_row(dying->release(dying, id, &e) == 0, "%s", e.text);
    (void)dying->next(dying, 0, &event, NULL); /* what it does about it has begun */
}

static void suite_die(const struct cloud_place *place, enum suite_step step)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        suite_live(place, step);
        _exit(0); /* as SIGKILL: nothing is put in order */
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The driver dies at once, while instances start, when they are there, while one is given back and when one was lost;
 * the next one finds the place its own, and leaves nothing of either. */
static void suite_crash(const struct cloud_place *place, enum suite_step step)
{
    suite_die(place, step);
    struct tm_cloud *cloud = place->open(place->context, true, 10);
    suite_want(cloud, 1);
    assert_true(suite_await(cloud, TM_CLOUD_ARRIVED).instance >= 10);
    suite_await_alive(place, cloud, 1); /* and none of before */
    suite_close(place, cloud);
}

/* What the driver that died had is taken over, as instances with new numbers: nothing is started beside it. */
__attribute__((unused)) static void suite_adopt(const struct cloud_place *place)
{
    suite_die(place, SUITE_BOTH_HERE);
    int before = place->same(place->context);
    struct tm_cloud *cloud = place->open(place->context, true, 10);
    suite_want(cloud, 2);
    for (int i = 0; i < 2; i++) {
        uint64_t id = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
        assert_true(id >= 10 && tm_cloud_find(cloud, id)->recalled);
    }
    suite_await_alive(place, cloud, 2);
    assert_int_equal(place->same(place->context), before);
    suite_close(place, cloud);
}

static void cloud_suite(const struct cloud_place *place)
{
    suite_arrive_release(place);
    suite_loss(place);
    suite_refusal(place);
    if (place->full != NULL) suite_full(place);
    for (int step = 0; step < SUITE_STEP_COUNT; step++)
        suite_crash(place, (enum suite_step)step);
    if (place->same != NULL) suite_adopt(place);
    if (place->notice != NULL) suite_notice(place);
}

#endif
