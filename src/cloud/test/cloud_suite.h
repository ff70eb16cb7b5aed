/* What every cloud must do (cloud/cloud.h), tried on one that is fresh: arrivals, releases, losses, refusals, a place
 * that is full for a while, a driver that dies at every step, another that takes over, notices, and nothing left
 * behind. An implementation's test says how its cloud is opened, how an instance is taken from it, and how many there
 * really are, and calls cloud_suite. It prints what was tried, and of what was not, why.
 *
 * A driver that is opened with suite_env() dies before each of its calls out and after each answer, one after the
 * other, until a whole life has none left; requests over HTTP are among them with suite_web.h. TIDEMILL_TEST_POINTS=all
 * does that, or at as many of these points as it says, evenly; without it at some. */
#ifndef TM_CLOUD_TEST_CLOUD_SUITE_H
#define TM_CLOUD_TEST_CLOUD_SUITE_H

#include "base/test/harness.h"
#include "cloud/cloud.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SUITE_LONG_MS = 60000, SUITE_STEPS = 600, SUITE_SOME_POINTS = 5, SUITE_POINTS_MAX = 5000 };

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
    /* Lets the machine's owner end the instance's agent in order (SIGTERM): the agent itself tells its run, and the
     * cloud a loss that was announced. NULL: nobody can, or it is a notice of the place. */
    void (*taken)(void *context, const struct tm_cloud_instance *instance);
    /* From now on the place itself has nothing more to give, or has again; what is there stays. NULL: that cannot be
     * brought about there. */
    void (*full)(void *context, bool full);
    /* A number that stays as it is while the same things (VMs, jobs, pods) are there, as the place itself tells. NULL:
     * what an earlier program left is ended there, not taken over. */
    int (*same)(void *context);
    /* Why a hook is NULL, in a few words. */
    const char *why_no_full, *why_no_notice, *why_no_same, *why_no_points;
};

/* ---- points at which a driver may die ---- */

static struct {
    struct tm_env env;
    struct tm_env *real; /* NULL: nothing is counted */
    atomic_int count;
    int last; /* it dies at this one; 0: it lives */
} suite_world;

static void suite_point(void)
{
    if (atomic_fetch_add(&suite_world.count, 1) + 1 == suite_world.last) (void)raise(SIGKILL);
}

static int suite_write(struct tm_env *env, const char *path, const char *data, size_t length, struct tm_error *e)
{
    (void)env;
    suite_point();
    return suite_world.real->file_write(suite_world.real, path, data, length, e);
}

static int suite_write_private(struct tm_env *env, const char *path, const char *data, size_t length,
                               struct tm_error *e)
{
    (void)env;
    suite_point();
    return suite_world.real->file_write_private(suite_world.real, path, data, length, e);
}

static int suite_remove(struct tm_env *env, const char *path, struct tm_error *e)
{
    (void)env;
    suite_point();
    return suite_world.real->file_remove(suite_world.real, path, e);
}

static int suite_process_start(struct tm_env *env, const struct tm_process_options *options, int *out_pid,
                               struct tm_error *e)
{
    (void)env;
    suite_point();
    return suite_world.real->process_start_with(suite_world.real, options, out_pid, e);
}

static int suite_process_wait(struct tm_env *env, int pid, int64_t timeout_ms, int *out_status, struct tm_error *e)
{
    (void)env;
    int rc = suite_world.real->process_wait(suite_world.real, pid, timeout_ms, out_status, e);
    if (rc == 0) suite_point();
    return rc;
}

static int suite_signal(struct tm_env *env, int pid, int number, struct tm_error *e)
{
    (void)env;
    suite_point();
    return suite_world.real->process_signal(suite_world.real, pid, number, e);
}

static int suite_signal_group(struct tm_env *env, int group, int number, struct tm_error *e)
{
    (void)env;
    suite_point();
    return suite_world.real->process_signal_group(suite_world.real, group, number, e);
}

static int suite_send(struct tm_env *env, int handle, const void *data, size_t length, size_t *out_sent,
                      struct tm_error *e)
{
    (void)env;
    suite_point();
    return suite_world.real->net_send(suite_world.real, handle, data, length, out_sent, e);
}

static int suite_receive(struct tm_env *env, int handle, void *buffer, size_t size, size_t *out_received,
                         struct tm_error *e)
{
    (void)env;
    int rc = suite_world.real->net_receive(suite_world.real, handle, buffer, size, out_received, e);
    if (rc == 0 && *out_received > 0) suite_point();
    return rc;
}

/* The machine itself, with points to die at. */
__attribute__((unused)) static struct tm_env *suite_env(void)
{
    if (suite_world.real != NULL) return &suite_world.env;
    suite_world.real = tm_env_real();
    suite_world.env = *suite_world.real;
    suite_world.env.file_write = suite_write;
    suite_world.env.file_write_private = suite_write_private;
    suite_world.env.file_remove = suite_remove;
    suite_world.env.process_start_with = suite_process_start;
    suite_world.env.process_wait = suite_process_wait;
    suite_world.env.process_signal = suite_signal;
    suite_world.env.process_signal_group = suite_signal_group;
    suite_world.env.net_send = suite_send;
    suite_world.env.net_receive = suite_receive;
    return &suite_world.env;
}

/* ---- what a cloud does ---- */

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

/* One whose agent its owner has ended in order is lost, and that was announced; another comes. */
__attribute__((unused)) static void suite_taken(const struct cloud_place *place)
{
    struct tm_cloud *cloud = place->open(place->context, false, 1);
    suite_want(cloud, 1);
    uint64_t id = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
    suite_await_alive(place, cloud, 1);
    struct tm_cloud_instance instance = *tm_cloud_find(cloud, id);
    place->taken(place->context, &instance);
    struct tm_cloud_event lost = suite_await(cloud, TM_CLOUD_LOST);
    assert_int_equal(lost.instance, id);
    assert_true(lost.announced);
    assert_true(suite_await(cloud, TM_CLOUD_ARRIVED).instance > id);
    suite_await_alive(place, cloud, 1);
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

/* Another driver finds the place its own, with one instance and no more, and leaves nothing. */
static void suite_take_over(const struct cloud_place *place)
{
    struct tm_cloud *cloud = place->open(place->context, true, 10);
    suite_want(cloud, 1);
    assert_true(suite_await(cloud, TM_CLOUD_ARRIVED).instance >= 10);
    suite_await_alive(place, cloud, 1);
    suite_close(place, cloud);
}

/* The driver dies at once, while instances start, when they are there, while one is given back and when one was lost;
 * the next one finds the place its own, and leaves nothing of either. */
static void suite_crash(const struct cloud_place *place, enum suite_step step)
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
    suite_take_over(place);
}

/* A whole life: two come, one is given back, one is lost and replaced, everything is given back. */
static void suite_whole_life(const struct cloud_place *place)
{
    struct tm_cloud *cloud = place->open(place->context, false, 1);
    struct tm_error e = {.text = ""};
    suite_want(cloud, 2);
    uint64_t first = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
    uint64_t second = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
    suite_await_alive(place, cloud, 2);
    assert_row(cloud->release(cloud, first, &e) == 0, "%s", e.text);
    suite_await_alive(place, cloud, 1);
    struct tm_cloud_instance instance = *tm_cloud_find(cloud, second);
    place->lose(place->context, &instance);
    assert_int_equal(suite_await(cloud, TM_CLOUD_LOST).instance, second);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    suite_close(place, cloud);
}

/* A life that ends at a point; 0: at none. How many points it had, or 0: it died. */
static int suite_live_up_to(const struct cloud_place *place, int point)
{
    int ends[2];
    int points = 0;
    int status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        atomic_store(&suite_world.count, 0);
        suite_world.last = point;
        suite_whole_life(place);
        points = atomic_load(&suite_world.count);
        _exit(write(ends[1], &points, sizeof points) == sizeof points ? 0 : 1);
    }
    (void)close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && point > 0;
    assert_row(died || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "up to point %d", point);
    assert_true(died || read(ends[0], &points, sizeof points) == sizeof points);
    (void)close(ends[0]);
    return died ? 0 : points;
}

/* The driver dies at each point of its life, or at some. How many points lives have differs a little: one may outlive
 * the last of them. */
static int suite_every_step(const struct cloud_place *place, int *out_points)
{
    const char *said = getenv("TIDEMILL_TEST_POINTS");
    bool all = said != NULL && strcmp(said, "all") == 0;
    int most = said != NULL && atoi(said) > 0 ? atoi(said) : SUITE_SOME_POINTS; /* NOLINT(cert-err34-c) */
    int tried = 0;
    int points = suite_live_up_to(place, 0);
    int stride = all || points <= most ? 1 : (points + most - 1) / most;
    for (int point = 1 + (all ? 0 : stride / 2); point < SUITE_POINTS_MAX; point += stride) {
        if (suite_live_up_to(place, point) == 0) {
            suite_take_over(place);
            tried++;
        } else if (point >= points) {
            break;
        }
    }
    *out_points = points;
    return tried;
}

/* What the driver that died had is taken over, as instances with new numbers: nothing is started beside it. */
__attribute__((unused)) static void suite_adopt(const struct cloud_place *place)
{
    pid_t child = fork();
    int status = 0;
    assert_true(child >= 0);
    if (child == 0) {
        struct tm_cloud *dying = place->open(place->context, false, 1);
        suite_want(dying, 2);
        (void)suite_await(dying, TM_CLOUD_ARRIVED);
        (void)suite_await(dying, TM_CLOUD_ARRIVED);
        suite_await_alive(place, dying, 2);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    int before = place->same(place->context);
    struct tm_cloud *cloud = place->open(place->context, true, 10);
    suite_want(cloud, 2);
    for (int i = 0; i < 2; i++) {
        uint64_t id = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
        assert_true(id >= 10 && tm_cloud_find(cloud, id)->recalled);
    }
    suite_await_alive(place, cloud, 2);
    assert_int_equal(place->same(place->context), before);
    assert_int_equal(suite_here(cloud), 2);
    suite_close(place, cloud);
}

static const char *suite_tried(const char *tried, bool was, const char *why)
{
    static char words[4][160];
    static int at;
    char *out = words[at++ % 4];
    (void)snprintf(out, sizeof words[0], "%s: %s", tried, was ? "tried" : why != NULL ? why : "not tried");
    return out;
}

/* Nothing but the points at which a driver dies. */
__attribute__((unused)) static void suite_walk(const struct cloud_place *place)
{
    int points = 0;
    int tried = suite_every_step(place, &points);
    assert_true(tried > 0);
    print_message("suite: points: %d, of a life of about %d\n", tried, points);
}

static void cloud_suite(const struct cloud_place *place)
{
    int points = 0;
    suite_arrive_release(place);
    suite_loss(place);
    suite_refusal(place);
    if (place->full != NULL) suite_full(place);
    for (int step = 0; step < SUITE_STEP_COUNT; step++)
        suite_crash(place, (enum suite_step)step);
    int tried = suite_world.real != NULL ? suite_every_step(place, &points) : 0;
    if (place->same != NULL) suite_adopt(place);
    if (place->notice != NULL) suite_notice(place);
    if (place->taken != NULL) suite_taken(place);
    char walk[160];
    bool notice = place->notice != NULL || place->taken != NULL;
    (void)snprintf(walk, sizeof walk, "points: %d, of a life of about %d", tried, points);
    print_message("suite: arrival, release, loss, refusal: tried; %s; %s; %s; driver killed at %d states; %s\n",
                  suite_tried("full", place->full != NULL, place->why_no_full),
                  suite_tried("notice", notice, place->why_no_notice),
                  suite_tried("adoption", place->same != NULL, place->why_no_same), (int)SUITE_STEP_COUNT,
                  suite_world.real != NULL ? walk : suite_tried("points", false, place->why_no_points));
}

#endif
