/* What is common to clouds of things with names, on a service in memory: joining, answers that do not come, refusals,
 * what an earlier program left, and ends that take long. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "cloud/remote_cloud.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { THINGS_MAX = 64 };

struct service {
    struct tm_remote_row rows[THINGS_MAX];
    size_t count;
    struct tm_remote_call call;
    enum tm_remote_outcome create; /* what it answers the next times ... */
    bool creates;                  /* ... and whether it does it */
    bool keeps;                    /* what is deleted stays, but for force */
    bool keeps_all;                /* what is deleted stays */
    int forced;
    int made_in;                  /* pool of the last one */
    enum tm_remote_outcome adopt; /* what it answers to adoptions */
    int adoptions;
    bool ends; /* as the last list was told */
    bool adopts_waiting;
    uint64_t joined; /* instances up to this number have */
    bool destroyed, whole;
};

static size_t find_name(const struct service *s, const char *name)
{
    size_t at = 0;
    while (at < s->count && strcmp(s->rows[at].name, name) != 0)
        at++;
    return at;
}

static int service_begin(void *self, const struct tm_remote_call *call, struct tm_error *e)
{
    (void)e;
    ((struct service *)self)->call = *call;
    return 0;
}

static void add_row(struct service *s, const char *name, enum tm_remote_phase phase)
{
    assert_true(s->count < THINGS_MAX && find_name(s, name) == s->count);
    s->rows[s->count] = (struct tm_remote_row){.phase = phase, .status = -1};
    (void)snprintf(s->rows[s->count++].name, TM_REMOTE_NAME_MAX, "%s", name);
}

static bool service_step(void *self, struct tm_remote_answer *out)
{
    struct service *s = self;
    size_t at = find_name(s, s->call.name);
    if (s->call.kind == TM_REMOTE_CREATE) {
        s->made_in = s->call.pool;
        if (s->creates) add_row(s, s->call.name, TM_REMOTE_PENDING);
        out->outcome = s->create;
        (void)snprintf(out->words, sizeof out->words, "as the test says");
    } else if (s->call.kind == TM_REMOTE_ADOPT) {
        out->outcome = s->adopt;
        s->adoptions++;
        assert_true(at < s->count && s->call.instance > 0);
        assert_true(s->adopts_waiting || s->rows[at].phase == TM_REMOTE_RUNNING);
    } else if (s->call.kind == TM_REMOTE_DELETE) {
        out->outcome = at < s->count ? TM_REMOTE_DONE : TM_REMOTE_GONE;
        s->forced += s->call.force;
        if (at < s->count && !s->keeps_all && (!s->keeps || s->call.force)) s->rows[at] = s->rows[--s->count];
    } else {
        s->ends = s->call.ends;
        out->rows = s->rows;
        out->row_count = s->count;
    }
    return true;
}

static size_t service_watch(void *self, int *handles, size_t max, int64_t *out_wait_ms)
{
    (void)self;
    (void)handles;
    (void)max;
    *out_wait_ms = 0;
    return 0;
}

static void service_destroy(void *self, bool whole)
{
    struct service *s = self;
    s->destroyed = true;
    s->whole = whole;
}

static bool has_joined(void *context, uint64_t id)
{
    return id <= ((struct service *)context)->joined;
}

static int open_pools(struct tm_env *env, struct service *s, const struct tm_cloud_pool *pools, int pool_count,
                      struct tm_cloud **out, struct tm_error *e)
{
    struct tm_remote_driver driver = {.self = s,
                                      .things = "things",
                                      .look_up = "look --here",
                                      .adopts_waiting = s->adopts_waiting,
                                      .begin = service_begin,
                                      .step = service_step,
                                      .watch = service_watch,
                                      .destroy = service_destroy};
    struct tm_remote_options options = {.prefix = "tm-x-",
                                        .pools = pools,
                                        .pool_count = pool_count,
                                        .type = "thing",
                                        .limit = {4, 1},
                                        .price_usd_h = {3600, 7200},
                                        .poll_ms = 4000,
                                        .end_limit_ms = 60000,
                                        .start_limit_ms = 10000,
                                        .delete_again_ms = 20000,
                                        .has_joined = has_joined,
                                        .context = s};
    return tm_remote_cloud__create(env, &driver, &options, out, e);
}

static int open_cloud(struct tm_env *env, struct service *s, struct tm_cloud **out, struct tm_error *e)
{
    return open_pools(env, s, NULL, 0, out, e);
}

/* All events within some time, as words: "arrived 1, lost 2". */
static const char *events(struct tm_cloud *cloud, int64_t ms)
{
    static char words[1000];
    size_t length = 0;
    struct tm_cloud_event event;
    struct tm_error e = {.text = ""};
    int64_t until = cloud->now_ms(cloud) + ms;
    words[0] = '\0';
    for (;;) {
        int64_t left = until - cloud->now_ms(cloud);
        int rc = cloud->next(cloud, left > 0 ? left : 0, &event, &e);
        if (rc == -(int)TM_ETIMEOUT) return words;
        assert_row(rc == 0, "%s", e.text);
        uint64_t number = event.kind == TM_CLOUD_REFUSED ? (uint64_t)event.count : event.instance;
        length += (size_t)snprintf(words + length, sizeof words - length, "%s%s %" PRIu64, length > 0 ? ", " : "",
                                   tm_cloud_event_kind_name(event.kind), number);
        assert_true(length < sizeof words);
    }
}

struct fixture {
    struct tm_env *env;
    struct service s;
    struct tm_cloud *cloud;
};

static void set_up(struct fixture *f)
{
    struct tm_error e = {.text = ""};
    *f = (struct fixture){.s = {.creates = true}};
    f->env = tm_env_virtual_create(7);
    assert_non_null(f->env);
    assert_row(open_cloud(f->env, &f->s, &f->cloud, &e) == 0, "%s", e.text);
}

static void tear_down(struct fixture *f)
{
    struct tm_error e = {.text = ""};
    assert_row(f->cloud->destroy(f->cloud, &e) == 0, "%s", e.text);
    assert_true(f->s.destroyed && f->s.whole && f->s.count == 0);
    tm_env_virtual_destroy(f->env);
}

static void set_phase(struct service *s, uint64_t id, enum tm_remote_phase phase, int status)
{
    for (size_t i = 0; i < s->count; i++) {
        const char *number = strrchr(s->rows[i].name, '-') + 1;
        char own[32];
        (void)snprintf(own, sizeof own, "%" PRIu64, id);
        if (strcmp(number, own) != 0) continue;
        s->rows[i].phase = phase;
        s->rows[i].status = status;
        s->rows[i].left_ms = 5000;
    }
}

/* It arrives when its agent has joined; a notice, a loss, an end in order; and what that costs. */
static void test_life(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 2, NULL), 0);
    assert_string_equal(events(f.cloud, 3000), "");
    f.s.joined = 2;
    assert_string_equal(events(f.cloud, 1000), "arrived 1, arrived 2");
    set_phase(&f.s, 1, TM_REMOTE_LEAVING, -1);
    assert_string_equal(events(f.cloud, 5000), "notice 1");
    assert_true(tm_cloud_find(f.cloud, 1)->state == TM_INSTANCE_NOTICED);
    set_phase(&f.s, 1, TM_REMOTE_ENDED, 137);
    assert_string_equal(events(f.cloud, 5000), "lost 1");
    f.s.joined = 3; /* in place of the one that left */
    assert_string_equal(events(f.cloud, 5000), "arrived 3");
    set_phase(&f.s, 2, TM_REMOTE_ENDED, 0);
    assert_string_equal(events(f.cloud, 5000), "released 2"); /* and no other one */
    struct tm_cloud_bill bill = f.cloud->bill(f.cloud);
    assert_true(bill.usd[TM_CLOUD_SPOT] > 10 && bill.seconds[TM_CLOUD_ON_DEMAND] == 0);
    assert_true(bill.usd[TM_CLOUD_SPOT] == bill.seconds[TM_CLOUD_SPOT]);
    tear_down(&f);
}

/* When nothing is wanted any more, whose thing stays when its work is done is asked for: it is given back in order. */
static void test_over(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.s.joined = 9;
    assert_string_equal(events(f.cloud, 5000), "");
    assert_false(f.s.ends); /* nothing was said */
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 5000), "arrived 1");
    assert_false(f.s.ends);
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 0, NULL), 0);
    assert_string_equal(events(f.cloud, 1000), "");
    assert_true(f.s.ends);
    set_phase(&f.s, 1, TM_REMOTE_ENDED, 0);
    assert_string_equal(events(f.cloud, 5000), "released 1");
    tear_down(&f);
}

static void test_never_joins(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 60000), ""); /* one that waits may wait */
    set_phase(&f.s, 1, TM_REMOTE_RUNNING, -1);
    assert_string_equal(events(f.cloud, 30000), "lost 1");
    tear_down(&f);
}

/* No answer: the list says whether it worked. */
static void test_no_answer(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.s.create = TM_REMOTE_NO_ANSWER;
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 2000), "");
    assert_int_equal(f.s.count, 1);
    f.s.joined = 1;
    assert_string_equal(events(f.cloud, 2000), "arrived 1");
    f.s.creates = false;
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 2, NULL), 0);
    assert_string_equal(events(f.cloud, 500), "lost 2");
    f.s.creates = true;
    f.s.create = TM_REMOTE_DONE;
    f.s.joined = 9;
    assert_string_equal(events(f.cloud, 3000), "arrived 3");
    tear_down(&f);
}

static void test_refused(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.s.create = TM_REMOTE_REFUSED;
    f.s.creates = false;
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_ON_DEMAND, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 900), "lost 1, refused 1");
    f.s.create = TM_REMOTE_DONE;
    f.s.creates = true;
    f.s.joined = 9;
    assert_string_equal(events(f.cloud, 3000), "refused 0, arrived 2");
    assert_true(tm_cloud_find(f.cloud, 2)->kind == TM_INSTANCE_ON_DEMAND);
    tear_down(&f);
}

/* Those that wait and are not wanted any more were never there. */
static void test_wanted_less(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 3, NULL), 0);
    assert_string_equal(events(f.cloud, 2000), "");
    assert_int_equal(f.s.count, 3);
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 6000), "");
    assert_int_equal(f.s.count, 1);
    f.s.joined = 9;
    assert_string_equal(events(f.cloud, 1000), "arrived 1");
    struct tm_error e = {.text = ""};
    assert_int_equal(f.cloud->release(f.cloud, 3, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(f.cloud->want(f.cloud, 2, 1, &e), -(int)TM_EUSAGE);
    tear_down(&f);
}

/* With a choice, each pool has its limit, its price and its refusals, and its things its number in their names. */
static void test_pools(void **state)
{
    (void)state;
    static const struct tm_cloud_pool pools[] = {
        {.name = "near", .type = "small", .kind = TM_INSTANCE_SPOT, .limit = 2, .price_usd_h = 3600},
        {.name = "far", .type = "small", .kind = TM_INSTANCE_SPOT, .limit = 4, .price_usd_h = 1800},
        {.name = "sure", .type = "large", .kind = TM_INSTANCE_ON_DEMAND, .limit = 1, .price_usd_h = 7200}};
    struct fixture f = {.s = {.creates = true}};
    struct tm_error e = {.text = ""};
    int count = 0;
    f.env = tm_env_virtual_create(7);
    assert_row(open_pools(f.env, &f.s, pools, 3, &f.cloud, &e) == 0, "%s", e.text);
    assert_string_equal(f.cloud->pools(f.cloud, &count)[1].name, "far");
    assert_int_equal(count, 3);
    assert_int_equal(f.cloud->want(f.cloud, 0, 3, NULL), 0); /* more than there may be */
    assert_int_equal(f.cloud->want(f.cloud, 2, 1, NULL), 0);
    f.s.joined = 3;
    assert_string_equal(events(f.cloud, 3000), "arrived 1, arrived 2, arrived 3");
    assert_non_null(strstr(f.s.rows[0].name, "-p1-1"));
    assert_non_null(strstr(f.s.rows[2].name, "-p3-3"));
    assert_int_equal(f.s.made_in, 2);
    const struct tm_cloud_instance *sure = tm_cloud_find(f.cloud, 3);
    assert_true(sure->pool == 2 && sure->kind == TM_INSTANCE_ON_DEMAND && strcmp(sure->type, "large") == 0);
    set_phase(&f.s, 2, TM_REMOTE_ENDED, 137);
    assert_int_equal(f.cloud->want(f.cloud, 0, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 5000), "lost 2");
    f.s.create = TM_REMOTE_REFUSED;
    f.s.creates = false;
    assert_int_equal(f.cloud->want(f.cloud, 1, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 900), "lost 4, refused 1");
    f.s.create = TM_REMOTE_DONE;
    f.s.creates = true;
    f.s.joined = 9;
    assert_string_equal(events(f.cloud, 3000), "refused 0, arrived 5");
    assert_int_equal(tm_cloud_find(f.cloud, 5)->pool, 1);
    assert_true(f.cloud->price_usd_h(f.cloud, 1) == 1800 && f.cloud->bill(f.cloud).usd[2] > 0);
    assert_int_equal(f.cloud->want(f.cloud, 3, 1, &e), -(int)TM_EUSAGE);
    tear_down(&f);
}

/* What an earlier program left is ended; what is another folder's is nobody's business. */
static void test_strays(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    add_row(&f.s, "tm-x-abcd-1", TM_REMOTE_RUNNING);
    add_row(&f.s, "tm-y-abcd-1", TM_REMOTE_RUNNING);
    f.s.joined = 9;
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 5000), "arrived 1");
    assert_true(find_name(&f.s, "tm-x-abcd-1") == f.s.count && find_name(&f.s, "tm-y-abcd-1") < f.s.count);
    assert_int_equal(f.cloud->strays(f.cloud), 1);
    f.s.rows[find_name(&f.s, "tm-y-abcd-1")] = f.s.rows[f.s.count - 1];
    f.s.count--;
    tear_down(&f);
}

/* What an earlier program left of a pool is taken over, those that run first, as far as the pool's limit goes. */
static void test_adoption(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    add_row(&f.s, "tm-x-abcd-p1-1", TM_REMOTE_PENDING);
    for (int i = 2; i <= 5; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "tm-x-abcd-p1-%d", i);
        add_row(&f.s, name, TM_REMOTE_RUNNING);
    }
    add_row(&f.s, "tm-x-abcd-p2-6", TM_REMOTE_ENDED);
    add_row(&f.s, "tm-x-abcd-p3-7", TM_REMOTE_RUNNING); /* there is no such pool now */
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 4, NULL), 0);
    assert_string_equal(events(f.cloud, 3000), "");
    assert_int_equal(f.s.adoptions, 4);
    f.s.joined = 9;
    assert_string_equal(events(f.cloud, 3000), "arrived 1, arrived 2, arrived 3, arrived 4");
    assert_int_equal(f.s.count, 4);
    for (size_t i = 0; i < f.s.count; i++)
        assert_true(f.s.rows[i].phase == TM_REMOTE_RUNNING && f.s.rows[i].name[12] != '7');
    assert_true(tm_cloud_find(f.cloud, 4)->recalled && tm_cloud_find(f.cloud, 4)->kind == TM_INSTANCE_SPOT);
    assert_int_equal(f.cloud->strays(f.cloud), 3);
    set_phase(&f.s, 2, TM_REMOTE_ENDED, 137); /* by the name that it has: it is instance 1 */
    assert_string_equal(events(f.cloud, 6000), "lost 1, arrived 5");
    assert_int_equal(f.cloud->release(f.cloud, 2, NULL), 0);
    assert_string_equal(events(f.cloud, 6000), "released 2");
    assert_int_equal(f.s.count, 3);
    tear_down(&f);
}

/* One that waits is taken over when it runs, or at once where that can be; one that never runs is given up. */
static void test_adoption_of_waiting(void **state)
{
    (void)state;
    for (int at_once = 0; at_once < 2; at_once++) {
        struct fixture f;
        struct tm_error e = {.text = ""};
        f = (struct fixture){.s = {.creates = true, .adopts_waiting = at_once, .joined = 9}};
        f.env = tm_env_virtual_create(7);
        assert_row(open_cloud(f.env, &f.s, &f.cloud, &e) == 0, "%s", e.text);
        add_row(&f.s, "tm-x-abcd-p1-1", TM_REMOTE_PENDING);
        add_row(&f.s, "tm-x-abcd-p2-2", TM_REMOTE_PENDING);
        f.s.joined = 0;
        assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
        assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_ON_DEMAND, 1, NULL), 0);
        assert_string_equal(events(f.cloud, 5000), "");
        assert_int_equal(f.s.adoptions, at_once ? 2 : 0);
        set_phase(&f.s, 1, TM_REMOTE_RUNNING, -1);
        assert_string_equal(events(f.cloud, 4000), "");
        assert_int_equal(f.s.adoptions, at_once ? 2 : 1);
        f.s.joined = 1;
        assert_string_equal(events(f.cloud, 8000), at_once ? "arrived 1" : "arrived 1, lost 2");
        f.s.joined = 9;
        (void)events(f.cloud, 3000);
        assert_true(tm_cloud_find(f.cloud, at_once ? 2 : 3)->state == TM_INSTANCE_RUNNING);
        tear_down(&f);
    }
}

/* An adoption that gets no answer is tried again; one that is refused is a loss, and another thing is made. */
static void test_adoption_refused(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    add_row(&f.s, "tm-x-abcd-p1-1", TM_REMOTE_RUNNING);
    f.s.adopt = TM_REMOTE_NO_ANSWER;
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 6000), "");
    assert_int_equal(f.s.adoptions, 2);
    f.s.adopt = TM_REMOTE_REFUSED;
    assert_string_equal(events(f.cloud, 6000), "lost 1");
    assert_int_equal(f.s.adoptions, 3);
    f.s.joined = 9;
    assert_string_equal(events(f.cloud, 5000), "arrived 2");
    assert_true(f.s.count == 1 && !tm_cloud_find(f.cloud, 2)->recalled);
    tear_down(&f);
}

/* Fewer are wanted than were left: what waits goes first. Of a run that ends before it has looked nothing is adopted.
 */
static void test_adoption_of_too_many(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.s.joined = 9;
    add_row(&f.s, "tm-x-abcd-p1-1", TM_REMOTE_PENDING);
    add_row(&f.s, "tm-x-abcd-p1-2", TM_REMOTE_RUNNING);
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 6000), "arrived 1");
    assert_int_equal(f.s.count, 1);
    assert_string_equal(f.s.rows[0].name, "tm-x-abcd-p1-2");
    tear_down(&f);
    set_up(&f);
    add_row(&f.s, "tm-x-abcd-p1-1", TM_REMOTE_RUNNING);
    tear_down(&f);
    assert_int_equal(f.s.adoptions, 0);
}

/* An end that takes long is asked for by force; one that never comes is an error that says where to look. */
static void test_long_end(void **state)
{
    (void)state;
    struct fixture f;
    struct tm_error e = {.text = ""};
    set_up(&f);
    f.s.joined = 9;
    f.s.keeps = true;
    assert_int_equal(f.cloud->want(f.cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    assert_string_equal(events(f.cloud, 2000), "arrived 1");
    assert_int_equal(f.cloud->release(f.cloud, 1, &e), 0);
    assert_string_equal(events(f.cloud, 15000), "released 1");
    assert_int_equal(f.s.count, 1);
    assert_int_equal(f.s.forced, 0);
    assert_string_equal(events(f.cloud, 15000), "");
    assert_int_equal(f.s.count, 0);
    assert_int_equal(f.s.forced, 1);
    tear_down(&f);
    set_up(&f);
    add_row(&f.s, "tm-x-abcd-1", TM_REMOTE_RUNNING);
    f.s.keeps_all = true;
    assert_int_equal(f.cloud->destroy(f.cloud, &e), -(int)TM_EPEER);
    assert_error_has(e, "1 things may still be there; look with look --here");
    assert_true(f.s.destroyed && !f.s.whole);
    tm_env_virtual_destroy(f.env);
}

/* One life, from open to end; what the test itself needs never fails. */
static int try_life(struct tm_error *e)
{
    struct service s = {.creates = true, .joined = 9};
    struct tm_cloud *cloud = NULL;
    add_row(&s, "tm-x-abcd-p1-1", TM_REMOTE_RUNNING);
    struct tm_cloud_event event;
    tm_alloc_fail_hold(1);
    struct tm_env *env = tm_env_virtual_create(7);
    tm_alloc_fail_hold(0);
    int rc = open_cloud(env, &s, &cloud, e);
    bool opened = rc == 0;
    if (opened) (void)cloud->want(cloud, TM_CLOUD_SPOT, 2, NULL);
    if (opened) rc = cloud->next(cloud, 1000, &event, e);
    if (opened) (void)cloud->destroy(cloud, NULL);
    assert_true(s.destroyed);
    tm_alloc_fail_hold(1);
    tm_env_virtual_destroy(env);
    tm_alloc_fail_hold(0);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_error e = {.text = ""};
    TM_FAIL_EACH_ALLOC(rc = try_life(&e));
}

TM_TEST_MAIN(TM_TEST(test_life), TM_TEST(test_over), TM_TEST(test_never_joins), TM_TEST(test_no_answer),
             TM_TEST(test_refused), TM_TEST(test_wanted_less), TM_TEST(test_pools), TM_TEST(test_strays),
             TM_TEST(test_adoption), TM_TEST(test_adoption_of_waiting), TM_TEST(test_adoption_refused),
             TM_TEST(test_adoption_of_too_many), TM_TEST(test_long_end), TM_TEST(test_memory))
