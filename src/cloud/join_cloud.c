#include "cloud/join_cloud.h"

#include "base/alloc.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 100, END_LIMIT_MS = 10000, HISTORY_MAX = 1 << 16, GUESTS_MAX = 2 * TM_JOIN_INSTANCES_MAX };

struct join_cloud {
    struct tm_cloud cloud; /* first */
    struct tm_env *env;
    struct tm_join_options options;
    struct tm_cloud_pool pools[2];
    int want[2];
    struct tm_cloud_instance *instances;
    int64_t *billed_ms; /* of each */
    bool *outside;      /* of each: its machine has gone */
    size_t instance_count;
    size_t capacity[3];
    struct tm_cloud_event *events;
    size_t event_count;
    size_t event_first;
    size_t event_capacity;
    struct tm_cloud_bill bill;
    struct tm_guest guests[GUESTS_MAX];
    int64_t begin_ms;
};

static struct join_cloud *of(struct tm_cloud *cloud)
{
    return cloud->self;
}

static int64_t now_ms(struct tm_cloud *cloud)
{
    struct join_cloud *c = of(cloud);
    return c->env->monotonic_ns(c->env) / 1000000 - c->begin_ms;
}

static uint64_t first_id(const struct join_cloud *c)
{
    return c->options.id_first > 0 ? c->options.id_first : 1;
}

/* ---- what happens ---- */

static int tell(struct join_cloud *c, struct tm_cloud_event event, struct tm_error *e)
{
    if (c->event_first == c->event_count) c->event_first = c->event_count = 0;
    int rc = tm_grow((void **)&c->events, &c->event_capacity, c->event_count + 1, sizeof *c->events, HISTORY_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "no room for events of machines that join");
    event.time_ms = now_ms(&c->cloud);
    event.pool = TM_CLOUD_SPOT;
    c->events[c->event_count++] = event;
    return 0;
}

static void settle(struct join_cloud *c, size_t at)
{
    struct tm_cloud_instance *instance = &c->instances[at];
    if (!tm_instance_is_here(instance)) return;
    int64_t now = now_ms(&c->cloud);
    double seconds = (double)(now - c->billed_ms[at]) / 1000;
    instance->bill_usd += seconds / 3600 * c->options.price_usd_h;
    c->bill.usd[TM_CLOUD_SPOT] += seconds / 3600 * c->options.price_usd_h;
    c->bill.seconds[TM_CLOUD_SPOT] += seconds;
    c->billed_ms[at] = now;
}

static void welcome(struct join_cloud *c)
{
    int count = c->want[TM_CLOUD_SPOT];
    if (count > c->options.limit) count = c->options.limit;
    c->options.welcome(c->options.context, count, first_id(c));
}

static int end_instance(struct join_cloud *c, size_t at, enum tm_instance_state state, int status, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &c->instances[at];
    settle(c, at);
    bool announced = instance->noticed_ms >= 0;
    instance->state = state;
    instance->gone_ms = now_ms(&c->cloud);
    return tell(c,
                (struct tm_cloud_event){.kind = state == TM_INSTANCE_LOST ? TM_CLOUD_LOST : TM_CLOUD_RELEASED,
                                        .instance = instance->id,
                                        .announced = state == TM_INSTANCE_LOST && announced,
                                        .status = status},
                e);
}

/* Guests are numbered one by one, so the next is one that is not known yet. */
static int arrive(struct join_cloud *c, const struct tm_guest *guest, struct tm_error *e)
{
    size_t at = c->instance_count;
    int rc = tm_grow((void **)&c->instances, &c->capacity[0], at + 1, sizeof *c->instances, HISTORY_MAX);
    if (rc == 0) rc = tm_grow((void **)&c->billed_ms, &c->capacity[1], at + 1, sizeof *c->billed_ms, HISTORY_MAX);
    if (rc == 0) rc = tm_grow((void **)&c->outside, &c->capacity[2], at + 1, sizeof *c->outside, HISTORY_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "more than %d instances in one run", HISTORY_MAX);
    int64_t now = now_ms(&c->cloud);
    c->instances[at] = (struct tm_cloud_instance){.id = first_id(c) + at,
                                                  .kind = TM_INSTANCE_SPOT,
                                                  .state = TM_INSTANCE_RUNNING,
                                                  .type = "machine",
                                                  .price_usd_h = c->options.price_usd_h,
                                                  .asked_ms = now,
                                                  .arrived_ms = now,
                                                  .noticed_ms = -1,
                                                  .gone_ms = -1};
    (void)snprintf(c->instances[at].zone, sizeof c->instances[at].zone, "%.63s", guest->name);
    c->billed_ms[at] = now;
    c->outside[at] = false;
    c->instance_count++;
    return tell(c, (struct tm_cloud_event){.kind = TM_CLOUD_ARRIVED, .instance = first_id(c) + at}, e);
}

static int take_notice(struct join_cloud *c, struct tm_cloud_instance *instance, const struct tm_guest *guest,
                       struct tm_error *e)
{
    if (!guest->noticed || instance->state != TM_INSTANCE_RUNNING) return 0;
    instance->state = TM_INSTANCE_NOTICED;
    instance->noticed_ms = now_ms(&c->cloud);
    return tell(
        c, (struct tm_cloud_event){.kind = TM_CLOUD_NOTICE, .instance = instance->id, .left_ms = guest->notice_left_ms},
        e);
}

/* Who ends in order, and had no notice, was told by the job that it is not needed. */
static int take_guest(struct join_cloud *c, const struct tm_guest *guest, struct tm_error *e)
{
    int rc = 0;
    if (guest->id < first_id(c)) return 0;
    while (rc == 0 && guest->id >= first_id(c) + c->instance_count)
        rc = arrive(c, guest, e);
    if (rc != 0) return rc;
    size_t at = (size_t)(guest->id - first_id(c));
    struct tm_cloud_instance *instance = &c->instances[at];
    c->outside[at] = guest->state != TM_GUEST_HERE;
    if (!tm_instance_is_here(instance)) return 0;
    rc = take_notice(c, instance, guest, e);
    if (rc != 0 || guest->state == TM_GUEST_HERE) return rc;
    bool released = guest->state == TM_GUEST_LEFT && guest->status == 0 && instance->noticed_ms < 0;
    if (released && c->want[TM_CLOUD_SPOT] > 0) c->want[TM_CLOUD_SPOT]--;
    if (released) welcome(c);
    return end_instance(c, at, released ? TM_INSTANCE_RELEASED : TM_INSTANCE_LOST,
                        guest->state == TM_GUEST_LEFT ? guest->status : -1, e);
}

/* By number: a gap would be an instance that nobody has seen. */
static int advance(struct join_cloud *c, struct tm_error *e)
{
    int rc = 0;
    size_t count = c->options.guests(c->options.context, c->guests, GUESTS_MAX);
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k > 0 && c->guests[k].id < c->guests[k - 1].id; k--) {
            struct tm_guest other = c->guests[k];
            c->guests[k] = c->guests[k - 1];
            c->guests[k - 1] = other;
        }
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = take_guest(c, &c->guests[i], e);
    return rc;
}

/* ---- the cloud's functions ---- */

static const struct tm_cloud_pool *join_pools(struct tm_cloud *cloud, int *out_count)
{
    *out_count = 2;
    return of(cloud)->pools;
}

static int join_want(struct tm_cloud *cloud, int pool, int count, struct tm_error *e)
{
    struct join_cloud *c = of(cloud);
    if (pool < 0 || pool > 1 || count < 0)
        return tm_error_set(e, TM_EUSAGE, "machines that join have no pool %d", pool);
    c->want[pool] = count;
    if (pool == TM_CLOUD_SPOT) welcome(c);
    return 0;
}

static int join_release(struct tm_cloud *cloud, uint64_t id, struct tm_error *e)
{
    struct join_cloud *c = of(cloud);
    size_t at = (size_t)(id - first_id(c));
    if (id < first_id(c) || at >= c->instance_count || !tm_instance_is_here(&c->instances[at]))
        return tm_error_set(e, TM_ENOTFOUND, "there is no instance %" PRIu64 " now", id);
    if (c->want[TM_CLOUD_SPOT] > 0) c->want[TM_CLOUD_SPOT]--;
    welcome(c);
    c->options.dismiss(c->options.context, id);
    return end_instance(c, at, TM_INSTANCE_RELEASED, -1, e);
}

static const struct tm_cloud_instance *join_instances(struct tm_cloud *cloud, size_t *out_count)
{
    struct join_cloud *c = of(cloud);
    for (size_t i = 0; i < c->instance_count; i++)
        settle(c, i);
    *out_count = c->instance_count;
    return c->instances;
}

static size_t join_watch(struct tm_cloud *cloud, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct join_cloud *c = of(cloud);
    (void)handles;
    (void)max;
    *out_wait_ms = c->event_first < c->event_count ? 0 : LOOK_MS;
    return 0;
}

static int join_next(struct tm_cloud *cloud, int64_t timeout_ms, struct tm_cloud_event *out, struct tm_error *e)
{
    struct join_cloud *c = of(cloud);
    int64_t until = now_ms(cloud) + timeout_ms;
    for (;;) {
        int rc = advance(c, e);
        if (rc != 0) return rc;
        if (c->event_first < c->event_count) {
            *out = c->events[c->event_first++];
            return 0;
        }
        int64_t left = until - now_ms(cloud);
        if (left <= 0) return tm_error_set(e, TM_ETIMEOUT, "nothing happened");
        c->env->sleep_ms(c->env, left < LOOK_MS ? left : LOOK_MS);
    }
}

static double join_price(struct tm_cloud *cloud, int pool)
{
    return pool == TM_CLOUD_SPOT ? of(cloud)->options.price_usd_h : NAN;
}

static struct tm_cloud_bill join_bill(struct tm_cloud *cloud)
{
    size_t count = 0;
    (void)join_instances(cloud, &count); /* settles */
    return of(cloud)->bill;
}

static size_t still_inside(const struct join_cloud *c)
{
    size_t count = 0;
    for (size_t i = 0; i < c->instance_count; i++)
        count += !c->outside[i];
    return count;
}

static int join_destroy(struct tm_cloud *cloud, struct tm_error *e)
{
    struct join_cloud *c = of(cloud);
    struct tm_cloud_event event;
    int64_t until = now_ms(cloud) + END_LIMIT_MS;
    int rc = join_want(cloud, TM_CLOUD_SPOT, 0, e);
    (void)advance(c, NULL);
    for (size_t i = 0; i < c->instance_count; i++)
        if (tm_instance_is_here(&c->instances[i])) {
            int released = join_release(cloud, c->instances[i].id, rc == 0 ? e : NULL);
            if (rc == 0) rc = released;
        }
    while (still_inside(c) > 0 && now_ms(cloud) < until) {
        int next = join_next(cloud, LOOK_MS, &event, NULL);
        if (next != 0 && next != -(int)TM_ETIMEOUT) break;
    }
    if (still_inside(c) > 0)
        tm_log(TM_LOG_WARN, "%zu machines have not said that they are gone: their agents give up within 5 minutes",
               still_inside(c));
    tm_free(c->instances);
    tm_free(c->billed_ms);
    tm_free(c->outside);
    tm_free(c->events);
    tm_free(c);
    return rc;
}

int tm_join_cloud_create(struct tm_env *env, const struct tm_join_options *options, struct tm_cloud **out,
                         struct tm_error *e)
{
    struct join_cloud *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    c->cloud = (struct tm_cloud){.self = c,
                                 .pools = join_pools,
                                 .want = join_want,
                                 .release = join_release,
                                 .instances = join_instances,
                                 .next = join_next,
                                 .watch = join_watch,
                                 .price_usd_h = join_price,
                                 .now_ms = now_ms,
                                 .bill = join_bill,
                                 .destroy = join_destroy};
    c->env = env;
    c->options = *options;
    if (c->options.limit <= 0 || c->options.limit > TM_JOIN_INSTANCES_MAX) c->options.limit = TM_JOIN_INSTANCES_MAX;
    c->begin_ms = env->monotonic_ns(env) / 1000000;
    tm_cloud_pools__plain(c->pools);
    c->pools[TM_CLOUD_SPOT].price_usd_h = options->price_usd_h;
    (void)snprintf(c->pools[TM_CLOUD_SPOT].type, sizeof c->pools[0].type, "machine");
    *out = &c->cloud;
    return 0;
}
