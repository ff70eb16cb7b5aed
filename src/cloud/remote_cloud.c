#include "cloud/remote_cloud.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_MS = 100, /* at tickets, while some have not joined */
    POLL_MIN_MS = 500,
    RETRY_MS = 1000,
    RETRY_DOUBLINGS = 6,
    AGAIN_PAUSE_MS = 5000,
    STEADY_MS = 60000,
    STRAYS_MAX = 64,
    HANDLES_MAX = 64,
    HISTORY_MAX = 1 << 16
};

struct thing {
    char name[TM_REMOTE_NAME_MAX];
    bool asked;             /* for, and the answer is not there */
    bool over;              /* there is none by that name (any more) */
    bool end;               /* it is to end */
    bool seen;              /* in the last list */
    bool runs;              /* as the service says */
    bool refused;           /* for want of capacity, in the last list */
    bool told;              /* why it waits */
    bool adopt;             /* it is of an earlier program, and has not got its ticket */
    int64_t adopt_ms;       /* when it is given one (again) */
    int64_t adopt_until_ms; /* later it is given up */
    int64_t running_ms;
    int64_t delete_ms;       /* when it is asked to end (again) */
    int64_t delete_first_ms; /* 0: not so far */
};

struct stray {
    char name[TM_REMOTE_NAME_MAX];
    bool seen;
    int64_t delete_ms;
    int64_t delete_first_ms;
};

struct remote {
    struct tm_cloud cloud; /* first */
    struct tm_env *env;
    struct tm_remote_driver driver;
    struct tm_remote_options options;
    struct tm_cloud_pool pools[TM_CLOUD_POOLS_MAX];
    int pool_count;
    char stem[TM_REMOTE_NAME_MAX]; /* of names of this program: the prefix and its own number */
    int64_t begin_ms;
    bool calling;
    struct tm_remote_call call;
    size_t call_at; /* of the instance, or of the stray behind them */
    bool listed;    /* once, so that what was left is known */
    bool closing;   /* nothing is wanted, whatever is there */
    bool told;      /* that the service does not do what it is asked */
    int64_t poll_ms;
    int64_t list_ms;
    int want[TM_CLOUD_POOLS_MAX];
    bool said[TM_CLOUD_POOLS_MAX];        /* how many are wanted */
    int missing[TM_CLOUD_POOLS_MAX];      /* as was told */
    bool turned_down[TM_CLOUD_POOLS_MAX]; /* the last one that was asked for */
    int failures[TM_CLOUD_POOLS_MAX];
    int64_t retry_ms[TM_CLOUD_POOLS_MAX];
    struct tm_cloud_instance *instances;
    size_t instance_count, instance_capacity;
    struct thing *things; /* by the same places */
    size_t thing_capacity;
    struct stray strays[STRAYS_MAX]; /* of an earlier program */
    size_t stray_count;
    int strays_found;
    struct tm_cloud_event *events;
    size_t event_first, event_count, event_capacity;
    struct tm_cloud_bill bill; /* of those that have gone */
};

static struct remote *of(const struct tm_cloud *cloud)
{
    return cloud->self;
}

static int64_t now_ms(struct tm_cloud *cloud)
{
    struct remote *r = of(cloud);
    return r->env->monotonic_ns(r->env) / 1000000 - r->begin_ms;
}

void tm_remote__prefix(const char *folder, char out[TM_REMOTE_NAME_MAX])
{
    uint64_t hash = 0xcbf29ce484222325U; /* FNV-1a: the same folder has the same name, whoever asks */
    for (const char *at = folder; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3U;
    (void)snprintf(out, TM_REMOTE_NAME_MAX, "tm-%012" PRIx64 "-", hash >> 16);
}

/* ---- events and bills ---- */

static int tell(struct remote *r, struct tm_cloud_event event, struct tm_error *e)
{
    void *list = r->events;
    if (r->event_first == r->event_count) r->event_first = r->event_count = 0;
    int rc = tm_grow(&list, &r->event_capacity, r->event_count + 1, sizeof *r->events, HISTORY_MAX);
    r->events = list;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "too many events of %s are pending", r->driver.things);
    event.time_ms = now_ms(&r->cloud);
    r->events[r->event_count++] = event;
    tm_debug(TM_DEBUG_CLOUD, "%s: instance %" PRIu64 ": %s", r->driver.things, event.instance,
             tm_cloud_event_kind_name(event.kind));
    return 0;
}

static void look_soon(struct remote *r)
{
    int64_t now = now_ms(&r->cloud);
    r->poll_ms = POLL_MIN_MS < r->options.poll_ms ? POLL_MIN_MS : r->options.poll_ms;
    if (r->list_ms > now + r->poll_ms) r->list_ms = now + r->poll_ms;
}

static void settle(struct remote *r, struct tm_cloud_instance *instance)
{
    if (tm_instance_is_here(instance))
        instance->bill_usd = (double)(now_ms(&r->cloud) - instance->arrived_ms) / 3600e3 * instance->price_usd_h;
}

static struct tm_cloud_bill remote_bill(struct tm_cloud *cloud)
{
    struct remote *r = of(cloud);
    struct tm_cloud_bill sum = r->bill;
    for (size_t i = 0; i < r->instance_count; i++) {
        struct tm_cloud_instance *instance = &r->instances[i];
        if (!tm_instance_is_here(instance)) continue;
        settle(r, instance);
        sum.usd[instance->pool] += instance->bill_usd;
        sum.seconds[instance->pool] += (double)(now_ms(cloud) - instance->arrived_ms) / 1000;
    }
    return sum;
}

/* ---- what happens to one ---- */

static bool is_gone(const struct tm_cloud_instance *instance)
{
    return instance->state == TM_INSTANCE_LOST || instance->state == TM_INSTANCE_RELEASED;
}

static void back_off(struct remote *r, int pool)
{
    int doublings = r->failures[pool] < RETRY_DOUBLINGS ? r->failures[pool] : RETRY_DOUBLINGS;
    r->failures[pool]++;
    r->retry_ms[pool] = now_ms(&r->cloud) + ((int64_t)RETRY_MS << doublings);
}

static int end(struct remote *r, size_t at, enum tm_instance_state state, int status, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &r->instances[at];
    int64_t now = now_ms(&r->cloud);
    r->things[at].end = true;
    if (is_gone(instance)) return 0;
    bool here = tm_instance_is_here(instance);
    if (here) {
        settle(r, instance);
        r->bill.usd[instance->pool] += instance->bill_usd;
        r->bill.seconds[instance->pool] += (double)(now - instance->arrived_ms) / 1000;
    }
    bool steady = here && now - instance->arrived_ms >= STEADY_MS;
    bool lost = state == TM_INSTANCE_LOST;
    if (lost && !steady && instance->noticed_ms < 0) back_off(r, instance->pool);
    if (steady) r->failures[instance->pool] = 0;
    instance->state = state;
    instance->gone_ms = now;
    look_soon(r);
    return tell(r,
                (struct tm_cloud_event){.kind = lost ? TM_CLOUD_LOST : TM_CLOUD_RELEASED,
                                        .instance = instance->id,
                                        .pool = instance->pool,
                                        .announced = instance->noticed_ms >= 0,
                                        .status = status},
                e);
}

static int arrive(struct remote *r, size_t at, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &r->instances[at];
    instance->state = TM_INSTANCE_RUNNING;
    instance->arrived_ms = now_ms(&r->cloud);
    r->things[at].adopt = false;
    r->failures[instance->pool] = 0;
    return tell(r, (struct tm_cloud_event){.kind = TM_CLOUD_ARRIVED, .instance = instance->id, .pool = instance->pool},
                e);
}

static int give_notice(struct remote *r, size_t at, int64_t left_ms, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &r->instances[at];
    instance->state = TM_INSTANCE_NOTICED;
    instance->noticed_ms = now_ms(&r->cloud);
    look_soon(r);
    return tell(r,
                (struct tm_cloud_event){.kind = TM_CLOUD_NOTICE,
                                        .instance = instance->id,
                                        .pool = instance->pool,
                                        .left_ms = left_ms > 0 ? left_ms : 0},
                e);
}

/* ---- lists ---- */

/* The number in a name of this program's; 0: it is not one. */
static uint64_t number_of(const struct remote *r, const char *name)
{
    int64_t number = 0;
    if (strncmp(name, r->stem, strlen(r->stem)) != 0) return 0;
    const char *last = strrchr(name, '-') + 1; /* the stem ends in one */
    return tm_number_i64(last, strlen(last), &number) && number > 0 ? (uint64_t)number : 0;
}

static size_t find(const struct remote *r, uint64_t id)
{
    uint64_t first = r->options.id_first > 0 ? r->options.id_first : 1;
    if (id < first || id - first >= r->instance_count) return r->instance_count;
    return (size_t)(id - first);
}

/* Of this program, or adopted. */
static size_t find_name(const struct remote *r, const char *name)
{
    size_t at = find(r, number_of(r, name));
    if (at < r->instance_count) return at;
    for (at = 0; at < r->instance_count; at++)
        if (!r->things[at].over && strcmp(r->things[at].name, name) == 0) break;
    return at;
}

static void take_stray(struct remote *r, const char *name)
{
    size_t at = 0;
    while (at < r->stray_count && strcmp(r->strays[at].name, name) != 0)
        at++;
    if (at == STRAYS_MAX) return; /* the next list has it, when some have gone */
    if (at == r->stray_count) {
        r->stray_count++;
        r->strays_found++;
        r->strays[at] = (struct stray){.delete_ms = 0};
        (void)snprintf(r->strays[at].name, sizeof r->strays[at].name, "%s", name);
        tm_log(TM_LOG_INFO, "%s: %s was left by an earlier program: it is ended", r->driver.things, name);
    }
    r->strays[at].seen = true;
}

static int take_running(struct remote *r, size_t at, const struct tm_remote_row *row, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &r->instances[at];
    struct thing *thing = &r->things[at];
    if (!thing->runs) thing->running_ms = now_ms(&r->cloud);
    thing->runs = true;
    (void)snprintf(instance->host, sizeof instance->host, "%s", row->host);
    if (row->price_usd_h > 0) instance->price_usd_h = r->pools[instance->pool].price_usd_h = row->price_usd_h;
    if (row->zone[0] != '\0') (void)snprintf(instance->zone, sizeof instance->zone, "%s", row->zone);
    if (instance->state != TM_INSTANCE_STARTING || thing->adopt) return 0;
    if (r->options.has_joined == NULL) return arrive(r, at, e);
    if (now_ms(&r->cloud) - thing->running_ms <= r->options.start_limit_ms) return 0;
    tm_log(TM_LOG_WARN, "%s: %s runs, but its agent has not joined: another one is asked for", r->driver.things,
           thing->name);
    return end(r, at, TM_INSTANCE_LOST, -1, e);
}

static int take_row(struct remote *r, size_t at, const struct tm_remote_row *row, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &r->instances[at];
    struct thing *thing = &r->things[at];
    thing->seen = true;
    thing->asked = thing->over = false;
    thing->refused = row->phase == TM_REMOTE_PENDING && row->refused;
    if (is_gone(instance)) {
        thing->end = true;
        return 0;
    }
    if (thing->adopt && now_ms(&r->cloud) > thing->adopt_until_ms) {
        tm_log(TM_LOG_WARN, "%s: %s could not be taken over: another one is asked for", r->driver.things, thing->name);
        return end(r, at, TM_INSTANCE_LOST, -1, e);
    }
    if (row->words[0] != '\0' && !thing->told && row->phase != TM_REMOTE_LEAVING) {
        thing->told = true;
        tm_log(TM_LOG_WARN, "%s: %s: %s", r->driver.things, thing->name, row->words);
    }
    switch (row->phase) {
    case TM_REMOTE_PENDING:
        return 0;
    case TM_REMOTE_RUNNING:
        return take_running(r, at, row, e);
    case TM_REMOTE_LEAVING:
        if (instance->state == TM_INSTANCE_RUNNING) return give_notice(r, at, row->left_ms, e);
        return instance->state == TM_INSTANCE_STARTING ? end(r, at, TM_INSTANCE_LOST, -1, e) : 0;
    case TM_REMOTE_ENDED:
        if (row->status == 0 && r->want[instance->pool] > 0) r->want[instance->pool]--; /* it was asked to go */
        return end(r, at, row->status == 0 ? TM_INSTANCE_RELEASED : TM_INSTANCE_LOST, row->status, e);
    }
    return 0;
}

static int take_missing(struct remote *r, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->instance_count; i++) {
        struct thing *thing = &r->things[i];
        if (thing->seen || thing->over) continue;
        thing->over = true;
        rc = end(r, i, TM_INSTANCE_LOST, -1, e);
    }
    for (size_t i = r->stray_count; i-- > 0;)
        if (!r->strays[i].seen) r->strays[i] = r->strays[--r->stray_count];
    return rc;
}

/* How many of what is wanted there is no capacity for. */
static int tell_missing(struct remote *r, struct tm_error *e)
{
    int missing[TM_CLOUD_POOLS_MAX] = {0};
    int rc = 0;
    for (int pool = 0; pool < r->pool_count; pool++)
        missing[pool] = r->turned_down[pool];
    for (size_t i = 0; i < r->instance_count; i++)
        if (!is_gone(&r->instances[i]) && r->things[i].refused) missing[r->instances[i].pool]++;
    for (int pool = 0; rc == 0 && pool < r->pool_count; pool++) {
        if (missing[pool] == r->missing[pool]) continue;
        r->missing[pool] = missing[pool];
        rc = tell(r, (struct tm_cloud_event){.kind = TM_CLOUD_REFUSED, .pool = pool, .count = missing[pool]}, e);
    }
    return rc;
}

/* Of a pool: those that are, or will be, there, but for those about to go. */
static int active(const struct remote *r, int pool)
{
    int count = 0;
    for (size_t i = 0; i < r->instance_count; i++) {
        const struct tm_cloud_instance *instance = &r->instances[i];
        count += instance->pool == pool && !is_gone(instance) && instance->state != TM_INSTANCE_NOTICED;
    }
    return count;
}

/* One more, which has no thing so far. */
static int add_instance(struct remote *r, int pool, struct tm_error *e)
{
    void *instances = r->instances;
    void *things = r->things;
    size_t at = r->instance_count;
    uint64_t first = r->options.id_first > 0 ? r->options.id_first : 1;
    int rc = tm_grow(&instances, &r->instance_capacity, at + 1, sizeof *r->instances, HISTORY_MAX);
    r->instances = instances;
    if (rc == 0) rc = tm_grow(&things, &r->thing_capacity, at + 1, sizeof *r->things, HISTORY_MAX);
    r->things = things;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "more than %d instances in one run", HISTORY_MAX);
    r->instances[at] = (struct tm_cloud_instance){.id = first + at,
                                                  .pool = pool,
                                                  .kind = r->pools[pool].kind,
                                                  .state = TM_INSTANCE_STARTING,
                                                  .price_usd_h = r->pools[pool].price_usd_h,
                                                  .asked_ms = now_ms(&r->cloud),
                                                  .arrived_ms = -1,
                                                  .noticed_ms = -1,
                                                  .gone_ms = -1};
    (void)snprintf(r->instances[at].type, sizeof r->instances[at].type, "%s", r->pools[pool].type);
    r->things[at] = (struct thing){.name = ""};
    r->instance_count++;
    return 0;
}

/* ---- what an earlier program left ---- */

/* Of a thing, by its name (name_thing); -1: it has none that we know. */
static int pool_in(const struct remote *r, const char *name)
{
    const char *at = strchr(name + strlen(r->options.prefix), '-');
    const char *end = at != NULL ? strchr(at + 1, '-') : NULL;
    int64_t pool = 0;
    if (end == NULL || at[1] != 'p' || !tm_number_i64(at + 2, (size_t)(end - at - 2), &pool)) return -1;
    return pool >= 1 && pool <= r->pool_count ? (int)pool - 1 : -1;
}

/* Those that run first: where there are more than there may be, those that wait are ended. */
static int adopt_all(struct remote *r, const struct tm_remote_answer *answer, struct tm_error *e)
{
    static const enum tm_remote_phase phases[] = {TM_REMOTE_RUNNING, TM_REMOTE_PENDING};
    for (size_t k = 0; k < 2 * answer->row_count; k++) {
        const struct tm_remote_row *row = &answer->rows[k % answer->row_count];
        bool ours = strncmp(row->name, r->options.prefix, strlen(r->options.prefix)) == 0;
        int pool = ours ? pool_in(r, row->name) : -1;
        if (pool < 0 || row->phase != phases[k / answer->row_count] || active(r, pool) >= r->pools[pool].limit)
            continue;
        int rc = add_instance(r, pool, e);
        if (rc != 0) return rc;
        struct thing *thing = &r->things[r->instance_count - 1];
        (void)snprintf(thing->name, sizeof thing->name, "%s", row->name);
        thing->adopt = r->instances[r->instance_count - 1].recalled = true;
        thing->runs = row->phase == TM_REMOTE_RUNNING;
        thing->adopt_ms = now_ms(&r->cloud);
        thing->adopt_until_ms = thing->adopt_ms + r->options.start_limit_ms;
        tm_log(TM_LOG_INFO, "%s: %s of an earlier program is instance %" PRIu64 " now", r->driver.things, thing->name,
               r->instances[r->instance_count - 1].id);
    }
    return 0;
}

/* Those that have not come and are not wanted any more go at once, and were never there: first those that do not run,
 * and the newest. Others go by release. */
static void drop_waiting(struct remote *r, int pool)
{
    int more = active(r, pool) - r->want[pool];
    for (int running = 0; running < 2; running++)
        for (size_t i = r->instance_count; more > 0 && i-- > 0;) {
            struct tm_cloud_instance *instance = &r->instances[i];
            if (instance->pool != pool || instance->state != TM_INSTANCE_STARTING || r->things[i].runs != running)
                continue;
            instance->state = TM_INSTANCE_RELEASED;
            instance->gone_ms = now_ms(&r->cloud);
            r->things[i].end = true;
            more--;
        }
}

static int take_list(struct remote *r, const struct tm_remote_answer *answer, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < r->instance_count; i++)
        r->things[i].seen = false;
    for (size_t i = 0; i < r->stray_count; i++)
        r->strays[i].seen = false;
    if (!r->listed && !r->closing) rc = adopt_all(r, answer, e);
    for (size_t i = 0; rc == 0 && i < answer->row_count; i++) {
        const struct tm_remote_row *row = &answer->rows[i];
        if (strncmp(row->name, r->options.prefix, strlen(r->options.prefix)) != 0) continue;
        size_t at = find_name(r, row->name);
        if (at < r->instance_count)
            rc = take_row(r, at, row, e);
        else
            take_stray(r, row->name);
    }
    if (rc == 0) rc = take_missing(r, e);
    if (rc == 0) rc = tell_missing(r, e);
    for (int pool = 0; rc == 0 && !r->listed && pool < r->pool_count; pool++)
        if (r->said[pool]) drop_waiting(r, pool); /* of those that were adopted */
    r->listed = true;
    return rc;
}

/* ---- answers ---- */

static void say_once(struct remote *r, const char *what, const struct tm_remote_answer *answer)
{
    if (r->told) return;
    r->told = true;
    tm_log(TM_LOG_WARN, "%s: %s: %s; it is tried again", r->driver.things, what,
           answer->words[0] != '\0' ? answer->words : "no answer");
}

static int take_created(struct remote *r, const struct tm_remote_answer *answer, struct tm_error *e)
{
    struct thing *thing = &r->things[r->call_at];
    int pool = r->instances[r->call_at].pool;
    look_soon(r);
    if (answer->outcome == TM_REMOTE_DONE) {
        thing->asked = false;
        r->told = r->turned_down[pool] = false;
        return 0;
    }
    say_once(r, "one could not be made", answer);
    if (answer->outcome == TM_REMOTE_NO_ANSWER) { /* the next list tells */
        r->list_ms = now_ms(&r->cloud);
        return 0;
    }
    thing->over = true;
    r->turned_down[pool] = true;
    int rc = end(r, r->call_at, TM_INSTANCE_LOST, -1, e);
    return rc == 0 ? tell_missing(r, e) : rc;
}

static int take_adopted(struct remote *r, const struct tm_remote_answer *answer, struct tm_error *e)
{
    struct thing *thing = &r->things[r->call_at];
    look_soon(r);
    if (answer->outcome == TM_REMOTE_DONE) {
        thing->adopt = r->told = false;
        thing->running_ms = now_ms(&r->cloud); /* its agent begins anew */
        return 0;
    }
    if (answer->outcome == TM_REMOTE_NO_ANSWER) {
        say_once(r, "one could not be taken over", answer);
        return 0;
    }
    tm_log(TM_LOG_WARN, "%s: %s could not be taken over: %s; another one is asked for", r->driver.things, thing->name,
           answer->words[0] != '\0' ? answer->words : "it has gone");
    thing->adopt = false;
    return end(r, r->call_at, TM_INSTANCE_LOST, -1, e);
}

static int take_answer(struct remote *r, const struct tm_remote_answer *answer, struct tm_error *e)
{
    switch (r->call.kind) {
    case TM_REMOTE_CREATE:
        return take_created(r, answer, e);
    case TM_REMOTE_ADOPT:
        return take_adopted(r, answer, e);
    case TM_REMOTE_LIST:
        r->list_ms = now_ms(&r->cloud) + r->poll_ms;
        r->poll_ms = 2 * r->poll_ms < r->options.poll_ms ? 2 * r->poll_ms : r->options.poll_ms;
        if (answer->outcome == TM_REMOTE_DONE) {
            r->told = false;
            return take_list(r, answer, e);
        }
        say_once(r, "they could not be listed", answer); /* no answer says nothing */
        return 0;
    case TM_REMOTE_DELETE:
        if (answer->outcome == TM_REMOTE_GONE && r->call_at < r->instance_count) r->things[r->call_at].over = true;
        if (answer->outcome == TM_REMOTE_REFUSED) say_once(r, "one could not be ended", answer);
        look_soon(r);
        return 0;
    }
    return 0;
}

/* ---- calls ---- */

/* Something was wanted, and nothing is any more: the job is over. */
static bool is_over(const struct remote *r)
{
    bool said = false;
    for (int pool = 0; pool < r->pool_count; pool++) {
        if (r->want[pool] > 0) return false;
        said = said || r->said[pool];
    }
    return said && !r->closing;
}

static int call(struct remote *r, enum tm_remote_call_kind kind, const char *name, struct tm_error *e)
{
    r->call = (struct tm_remote_call){.kind = kind, .force = r->call.force};
    r->call.ends = kind == TM_REMOTE_LIST && is_over(r);
    (void)snprintf(r->call.name, sizeof r->call.name, "%s", name);
    if (kind == TM_REMOTE_CREATE || kind == TM_REMOTE_ADOPT) {
        r->call.instance = r->instances[r->call_at].id;
        r->call.market = r->instances[r->call_at].kind;
        r->call.pool = r->instances[r->call_at].pool;
    }
    int rc = r->driver.begin(r->driver.self, &r->call, e);
    r->calling = rc == 0;
    return rc;
}

/* When a thing is asked to end: at once, and again while it is there. */
static bool delete_due(struct remote *r, int64_t *delete_ms, int64_t *first_ms)
{
    int64_t now = now_ms(&r->cloud);
    if (*delete_ms > now) return false;
    if (*first_ms == 0) *first_ms = now > 0 ? now : 1;
    *delete_ms = now + AGAIN_PAUSE_MS;
    r->call.force = now - *first_ms >= r->options.delete_again_ms;
    return true;
}

static int delete_one(struct remote *r, bool *out_due, struct tm_error *e)
{
    for (size_t i = 0; i < r->instance_count; i++) {
        struct thing *thing = &r->things[i];
        if (!thing->end || thing->over || thing->asked || !delete_due(r, &thing->delete_ms, &thing->delete_first_ms))
            continue;
        *out_due = true;
        r->call_at = i;
        return call(r, TM_REMOTE_DELETE, thing->name, e);
    }
    for (size_t i = 0; i < r->stray_count; i++) {
        if (!delete_due(r, &r->strays[i].delete_ms, &r->strays[i].delete_first_ms)) continue;
        *out_due = true;
        r->call_at = SIZE_MAX;
        return call(r, TM_REMOTE_DELETE, r->strays[i].name, e);
    }
    return 0;
}

/* By its pool and its number. */
static void name_thing(const struct remote *r, const struct tm_cloud_instance *instance, char out[TM_REMOTE_NAME_MAX])
{
    (void)snprintf(out, TM_REMOTE_NAME_MAX, "%.36sp%d-%" PRIu64, r->stem, instance->pool + 1, instance->id);
}

static int create_one(struct remote *r, int pool, struct tm_error *e)
{
    int rc = add_instance(r, pool, e);
    if (rc != 0) return rc;
    r->call_at = r->instance_count - 1;
    r->things[r->call_at].asked = true;
    name_thing(r, &r->instances[r->call_at], r->things[r->call_at].name);
    return call(r, TM_REMOTE_CREATE, r->things[r->call_at].name, e);
}

/* It is to be given a ticket, and can be. */
static bool may_adopt(const struct remote *r, size_t at)
{
    const struct thing *thing = &r->things[at];
    return thing->adopt && !thing->end && !thing->over && (thing->runs || r->driver.adopts_waiting);
}

static int adopt_one(struct remote *r, bool *out_due, struct tm_error *e)
{
    for (size_t i = 0; i < r->instance_count; i++) {
        if (!may_adopt(r, i) || r->things[i].adopt_ms > now_ms(&r->cloud)) continue;
        *out_due = true;
        r->things[i].adopt_ms = now_ms(&r->cloud) + AGAIN_PAUSE_MS;
        r->call_at = i;
        return call(r, TM_REMOTE_ADOPT, r->things[i].name, e);
    }
    return 0;
}

static bool may_create(const struct remote *r, int pool, int64_t now)
{
    int most = r->want[pool] < r->pools[pool].limit ? r->want[pool] : r->pools[pool].limit;
    return r->retry_ms[pool] <= now && active(r, pool) < most;
}

/* Is there anything that a list would tell of? */
static bool any_there(const struct remote *r)
{
    for (size_t i = 0; i < r->instance_count; i++)
        if (!r->things[i].over) return true;
    return r->stray_count > 0 || !r->listed;
}

static int start_call(struct remote *r, struct tm_error *e)
{
    int64_t now = now_ms(&r->cloud);
    bool due = false;
    int rc = delete_one(r, &due, e);
    if (rc == 0 && !due) rc = adopt_one(r, &due, e);
    if (rc != 0 || due) return rc;
    for (int pool = 0; r->listed && pool < r->pool_count; pool++)
        if (may_create(r, pool, now)) return create_one(r, pool, e);
    if (any_there(r) && r->list_ms <= now) return call(r, TM_REMOTE_LIST, "", e);
    return 0;
}

static int look_at_tickets(struct remote *r, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && r->options.has_joined != NULL && i < r->instance_count; i++) {
        const struct tm_cloud_instance *instance = &r->instances[i];
        if (instance->state == TM_INSTANCE_STARTING && r->options.has_joined(r->options.context, instance->id))
            rc = arrive(r, i, e);
    }
    return rc;
}

static int advance(struct remote *r, struct tm_error *e)
{
    struct tm_remote_answer answer;
    int rc = look_at_tickets(r, e);
    for (;;) {
        if (rc == 0 && !r->calling) rc = start_call(r, e);
        if (rc != 0 || !r->calling) return rc;
        answer = (struct tm_remote_answer){.outcome = TM_REMOTE_DONE};
        if (!r->driver.step(r->driver.self, &answer)) return 0;
        r->calling = false;
        rc = take_answer(r, &answer, e);
    }
}

/* ---- the cloud's functions ---- */

static const struct tm_cloud_pool *remote_pools(struct tm_cloud *cloud, int *out_count)
{
    *out_count = of(cloud)->pool_count;
    return of(cloud)->pools;
}

static int remote_want(struct tm_cloud *cloud, int pool, int count, struct tm_error *e)
{
    struct remote *r = of(cloud);
    if (pool < 0 || pool >= r->pool_count || count < 0)
        return tm_error_set(e, TM_EUSAGE, "%s have no pool %d", r->driver.things, pool);
    r->want[pool] = count;
    r->said[pool] = true;
    drop_waiting(r, pool);
    if (is_over(r)) look_soon(r);
    return 0;
}

static int remote_release(struct tm_cloud *cloud, uint64_t id, struct tm_error *e)
{
    struct remote *r = of(cloud);
    size_t at = find(r, id);
    if (at == r->instance_count || is_gone(&r->instances[at]))
        return tm_error_set(e, TM_ENOTFOUND, "there is no instance %" PRIu64 " now", id);
    int pool = r->instances[at].pool;
    if (r->want[pool] > 0) r->want[pool]--;
    return end(r, at, TM_INSTANCE_RELEASED, -1, e);
}

static int strays(struct tm_cloud *cloud)
{
    const struct remote *r = cloud->self;
    return r->strays_found;
}

static const struct tm_cloud_instance *remote_instances(struct tm_cloud *cloud, size_t *out_count)
{
    struct remote *r = of(cloud);
    for (size_t i = 0; i < r->instance_count; i++)
        settle(r, &r->instances[i]);
    *out_count = r->instance_count;
    return r->instances;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When something is due without an answer; INT64_MAX: never. */
static int64_t due_ms(struct remote *r)
{
    int64_t due = any_there(r) ? r->list_ms : INT64_MAX;
    for (int pool = 0; pool < r->pool_count; pool++)
        if (may_create(r, pool, INT64_MAX)) due = earlier(due, r->retry_ms[pool]);
    for (size_t i = 0; i < r->instance_count; i++)
        if (r->things[i].end && !r->things[i].over && !r->things[i].asked)
            due = earlier(due, r->things[i].delete_ms);
        else if (may_adopt(r, i))
            due = earlier(due, r->things[i].adopt_ms);
    for (size_t i = 0; i < r->stray_count; i++)
        due = earlier(due, r->strays[i].delete_ms);
    return due;
}

static size_t remote_watch(struct tm_cloud *cloud, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct remote *r = of(cloud);
    size_t count = 0;
    int64_t wait = INT64_MAX;
    int64_t due = r->calling ? INT64_MAX : due_ms(r);
    if (r->calling) count = r->driver.watch(r->driver.self, handles, max, &wait);
    if (due != INT64_MAX) wait = earlier(wait, due > now_ms(cloud) ? due - now_ms(cloud) : 0);
    for (size_t i = 0; r->options.has_joined != NULL && i < r->instance_count; i++)
        if (r->instances[i].state == TM_INSTANCE_STARTING) wait = earlier(wait, LOOK_MS);
    *out_wait_ms = r->event_first < r->event_count ? 0 : wait;
    return count;
}

static int remote_next(struct tm_cloud *cloud, int64_t timeout_ms, struct tm_cloud_event *out, struct tm_error *e)
{
    struct remote *r = of(cloud);
    int64_t until = now_ms(cloud) + timeout_ms;
    for (;;) {
        int rc = r->event_first < r->event_count ? 0 : advance(r, e);
        if (rc != 0) return tm_error_wrap(e, rc, "%s", r->driver.things);
        if (r->event_first < r->event_count) {
            *out = r->events[r->event_first++];
            return 0;
        }
        int64_t left = until - now_ms(cloud);
        if (left <= 0) return tm_error_set(e, TM_ETIMEOUT, "nothing happened");
        int handles[HANDLES_MAX];
        struct tm_watch watches[HANDLES_MAX];
        int64_t wait = INT64_MAX;
        size_t count = remote_watch(cloud, handles, HANDLES_MAX, &wait);
        for (size_t i = 0; i < count; i++)
            watches[i] = (struct tm_watch){.handle = handles[i]};
        (void)r->env->net_watch(r->env, watches, count, earlier(wait, left), NULL);
    }
}

static double remote_price(struct tm_cloud *cloud, int pool)
{
    return pool >= 0 && pool < of(cloud)->pool_count ? of(cloud)->pools[pool].price_usd_h : NAN;
}

static void free_all(struct remote *r, bool whole)
{
    r->driver.destroy(r->driver.self, whole);
    tm_free(r->instances);
    tm_free(r->things);
    tm_free(r->events);
    tm_free(r);
}

static size_t left_there(const struct remote *r)
{
    size_t count = r->stray_count;
    for (size_t i = 0; i < r->instance_count; i++)
        count += !r->things[i].over;
    return count;
}

/* Everything is asked to end, and looked for until it is gone. */
static int remote_destroy(struct tm_cloud *cloud, struct tm_error *e)
{
    struct remote *r = of(cloud);
    struct tm_cloud_event event;
    int64_t until = now_ms(cloud) + r->options.end_limit_ms;
    int rc = 0;
    memset(r->want, 0, sizeof r->want);
    r->closing = true;
    r->list_ms = 0;
    for (size_t i = 0; rc == 0 && i < r->instance_count; i++)
        rc = end(r, i, TM_INSTANCE_RELEASED, -1, e);
    while (rc == 0 && (any_there(r) || r->calling) && now_ms(cloud) < until) {
        int next = remote_next(cloud, LOOK_MS, &event, e);
        if (next != 0 && next != -(int)TM_ETIMEOUT) rc = next;
    }
    if (rc == 0 && (left_there(r) > 0 || !r->listed))
        rc = tm_error_set(e, TM_EPEER, "%zu %s may still be there; look with %s", left_there(r), r->driver.things,
                          r->driver.look_up);
    free_all(r, rc == 0);
    return rc;
}

static void fill_pools(struct remote *r)
{
    const struct tm_remote_options *options = &r->options;
    if (options->pool_count > 0) {
        memcpy(r->pools, options->pools, (size_t)options->pool_count * sizeof *r->pools);
        r->pool_count = options->pool_count;
        return;
    }
    tm_cloud_pools__plain(r->pools);
    r->pool_count = 2;
    for (int pool = 0; pool < 2; pool++) {
        (void)snprintf(r->pools[pool].type, sizeof r->pools[pool].type, "%s", options->type);
        r->pools[pool].limit = options->limit[pool];
        r->pools[pool].price_usd_h = options->price_usd_h[pool];
    }
}

int tm_remote_cloud__create(struct tm_env *env, const struct tm_remote_driver *driver,
                            const struct tm_remote_options *options, struct tm_cloud **out, struct tm_error *e)
{
    struct remote *r = tm_calloc(1, sizeof *r);
    if (r == NULL) {
        driver->destroy(driver->self, false);
        return tm_error_nomem(e);
    }
    r->cloud = (struct tm_cloud){.self = r,
                                 .pools = remote_pools,
                                 .want = remote_want,
                                 .release = remote_release,
                                 .instances = remote_instances,
                                 .next = remote_next,
                                 .watch = remote_watch,
                                 .price_usd_h = remote_price,
                                 .strays = strays,
                                 .now_ms = now_ms,
                                 .bill = remote_bill,
                                 .destroy = remote_destroy};
    r->env = env;
    r->driver = *driver;
    r->options = *options;
    r->begin_ms = env->monotonic_ns(env) / 1000000;
    r->poll_ms = POLL_MIN_MS < options->poll_ms ? POLL_MIN_MS : options->poll_ms;
    (void)snprintf(r->stem, sizeof r->stem, "%.30s%04x-", options->prefix, (unsigned)(env->random_u64(env) & 0xffff));
    fill_pools(r);
    *out = &r->cloud;
    return 0;
}
