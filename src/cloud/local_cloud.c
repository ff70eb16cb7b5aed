#include "cloud/local_internal.h"

#include "base/alloc.h"
#include "base/debug.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WANT_MAX = 1000000, EVENTS_MAX = 1 << 16, HANDLES_MAX = 240 };

static struct tm_local__cloud *local_of(struct tm_cloud *cloud)
{
    return cloud->self;
}

int64_t tm_local__now_ms(const struct tm_local__cloud *local)
{
    if (!local->asked) return 0;
    double wall_ms = (double)(local->env->monotonic_ns(local->env) - local->start_ns) / 1e6;
    return (int64_t)(wall_ms * local->options.speed);
}

struct tm_cloud_instance *tm_local__instance(struct tm_local__cloud *local, const struct tm_local__place *place)
{
    return &local->instances[place->id - local->options.id_first];
}

int tm_local__tell(struct tm_local__cloud *local, struct tm_cloud_event event, struct tm_error *e)
{
    void *list = local->events;
    int rc = tm_grow(&list, &local->event_capacity, local->event_count + 1, sizeof *local->events, EVENTS_MAX);
    local->events = list;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "too many pending events of the cloud");
    local->events[local->event_count++] = event;
    tm_debug(TM_DEBUG_CLOUD, "local: instance %" PRIu64 ": %s", event.instance, tm_cloud_event_kind_name(event.kind));
    return 0;
}

/* ---- the interface ---- */

static const struct tm_cloud_pool *local_pools(struct tm_cloud *cloud, int *out_count)
{
    *out_count = local_of(cloud)->pool_count;
    return local_of(cloud)->is;
}

static int local_want(struct tm_cloud *cloud, int pool, int count, struct tm_error *e)
{
    struct tm_local__cloud *local = local_of(cloud);
    if (pool < 0 || pool >= local->pool_count)
        return tm_error_set(e, TM_EUSAGE, "there is no pool %d: the cloud has %d", pool, local->pool_count);
    if (count < 0 || count > WANT_MAX)
        return tm_error_set(e, TM_EUSAGE, "%d instances wanted: expected 0 to %d", count, WANT_MAX);
    if (!local->asked && count > 0) {
        local->start_ns = local->env->monotonic_ns(local->env);
        local->asked = true;
    }
    if (local->pools[pool].want != count)
        tm_debug(TM_DEBUG_CLOUD, "local: %d of %s wanted, was %d", count, local->is[pool].name,
                 local->pools[pool].want);
    local->pools[pool].want = count;
    local->pools[pool].retry_ms = 0;
    local->grant_ms = tm_local__now_ms(local);
    return 0;
}

static int local_release(struct tm_cloud *cloud, uint64_t id, struct tm_error *e)
{
    struct tm_local__cloud *local = local_of(cloud);
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        struct tm_local__place *place = &local->places[i];
        if (id == 0 || place->id != id) continue;
        struct tm_local__pool *pool = &local->pools[place->pool];
        int64_t now_ms = tm_local__now_ms(local);
        int status = 0;
        if (pool->want > 0) pool->want--;
        int rc = tm_local__stop_process(local, place, false, &status, e);
        int told = tm_local__end(local, place, TM_INSTANCE_RELEASED, now_ms < place->loss_ms ? now_ms : place->loss_ms,
                                 -1, rc == 0 ? e : NULL);
        return rc != 0 ? rc : told;
    }
    return tm_error_set(e, TM_ENOTFOUND, "there is no instance %" PRIu64, id);
}

static const struct tm_cloud_instance *local_instances(struct tm_cloud *cloud, size_t *out_count)
{
    *out_count = local_of(cloud)->instance_count;
    return local_of(cloud)->instances;
}

static bool take_event(struct tm_local__cloud *local, struct tm_cloud_event *out)
{
    if (local->event_first == local->event_count) return false;
    *out = local->events[local->event_first++];
    if (local->event_first == local->event_count) local->event_first = local->event_count = 0;
    return true;
}

static size_t local_watch(struct tm_cloud *cloud, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct tm_local__cloud *local = local_of(cloud);
    int64_t next_ms = tm_local__next_ms(local);
    size_t count = 0;
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        if (local->places[i].id != 0 && local->places[i].handle >= 0 && count < max)
            handles[count++] = local->places[i].handle;
    }
    count += tm_metadata_server__watch(local->server, handles + count, max - count, out_wait_ms);
    if (next_ms == TM_LOCAL_NEVER) return count;
    double wall_ms = ceil((double)(next_ms - tm_local__now_ms(local)) / local->options.speed);
    int64_t wait_ms = wall_ms < 0 ? 0 : (int64_t)fmin(wall_ms, 1e12);
    if (wait_ms < *out_wait_ms) *out_wait_ms = wait_ms;
    if (local->event_first < local->event_count) *out_wait_ms = 0;
    return count;
}

static int local_next(struct tm_cloud *cloud, int64_t timeout_ms, struct tm_cloud_event *out, struct tm_error *e)
{
    struct tm_local__cloud *local = local_of(cloud);
    struct tm_env *env = local->env;
    int64_t end_ms = env->monotonic_ns(env) / 1000000 + timeout_ms;
    for (;;) {
        int handles[HANDLES_MAX];
        bool ready[HANDLES_MAX];
        int64_t wait_ms = 0;
        if (take_event(local, out)) return 0;
        int rc = tm_local__advance(local, e);
        if (rc != 0) return rc;
        tm_metadata_server__serve(local->server);
        if (take_event(local, out)) return 0;
        int64_t left_ms = end_ms - env->monotonic_ns(env) / 1000000;
        if (left_ms <= 0) return tm_error_set(e, TM_ETIMEOUT, "nothing happened");
        size_t count = local_watch(cloud, handles, HANDLES_MAX, &wait_ms);
        rc = env->net_wait(env, handles, count, wait_ms < left_ms ? wait_ms : left_ms, ready, e);
        if (rc != 0 && rc != -(int)TM_ETIMEOUT) return rc;
    }
}

static double local_price_usd_h(struct tm_cloud *cloud, int pool)
{
    struct tm_local__cloud *local = local_of(cloud);
    return pool >= 0 && pool < local->pool_count ? local->pools[pool].price_usd_h : NAN;
}

static int local_offered(struct tm_cloud *cloud, int pool)
{
    struct tm_local__cloud *local = local_of(cloud);
    if (!local->choices || pool < 0 || pool >= local->pool_count) return -1;
    int here = 0, limit = local->is[pool].limit > 0 ? local->is[pool].limit : local->options.limit;
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++)
        here += local->places[i].id != 0 && local->places[i].pool == pool;
    int room = limit > here ? limit - here : 0;
    int there = local->pools[pool].trace == NULL ? room : tm_local__free_slots(local, pool, local->done_ms);
    return there < room ? there : room;
}

static int64_t local_now_ms(struct tm_cloud *cloud)
{
    return tm_local__now_ms(local_of(cloud));
}

static struct tm_cloud_bill local_bill(struct tm_cloud *cloud)
{
    struct tm_local__cloud *local = local_of(cloud);
    int64_t now_ms = tm_local__now_ms(local);
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        struct tm_local__place *place = &local->places[i];
        if (place->id != 0) tm_local__settle(local, place, now_ms < place->loss_ms ? now_ms : place->loss_ms);
    }
    return local->bill;
}

/* ---- life ---- */

static void free_all(struct tm_local__cloud *local)
{
    tm_metadata_server__destroy(local->server);
    for (int i = 0; i < local->pool_count; i++) {
        tm_local_slots__deinit(&local->pools[i].slots);
        tm_free(local->pools[i].slot_taken);
    }
    tm_free(local->instances);
    tm_free(local->events);
    tm_free(local);
}

static int local_destroy(struct tm_cloud *cloud, struct tm_error *e)
{
    struct tm_local__cloud *local = local_of(cloud);
    struct tm_env *env = local->env;
    int rc = 0;
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        int status = 0;
        if (local->places[i].id == 0) continue;
        int stopped = tm_local__stop_process(local, &local->places[i], false, &status, rc == 0 ? e : NULL);
        if (rc == 0) rc = stopped;
    }
    if (local->netns_up) (void)tm_local__netns_clean_up(env, local->run);
    if (rc == 0) rc = env->file_remove(env, local->record_path, e); /* else the next start tries again */
    free_all(local);
    return rc;
}

static int check_options(const struct tm_local_options *options, struct tm_error *e)
{
    if (!(options->speed > 0) || options->speed > 1e6)
        return tm_error_set(e, TM_EUSAGE,
                            "replay speed of the local cloud: expected more than 0 and at most 1000000 seconds of the "
                            "trace per second");
    if (options->limit < 1 || options->limit > TM_LOCAL_INSTANCES_MAX)
        return tm_error_set(e, TM_EUSAGE, "limit of the local cloud: expected 1 to %d instances, got %d",
                            TM_LOCAL_INSTANCES_MAX, options->limit);
    if (options->notice_ms < 0 || options->notice_wall_ms < 0 || options->hint_ms < 0 || options->spot_start_ms < 0 ||
        options->on_demand_start_ms < 0)
        return tm_error_set(e, TM_EUSAGE, "times of the local cloud must not be negative");
    if (options->pool_count < 0 || options->pool_count > TM_CLOUD_POOLS_MAX)
        return tm_error_set(e, TM_EUSAGE, "pools of the local cloud: expected at most %d, got %d", TM_CLOUD_POOLS_MAX,
                            options->pool_count);
    if (options->command == NULL || options->command[0] == NULL)
        return tm_error_set(e, TM_EUSAGE, "the local cloud needs a command to run on each instance");
    return 0;
}

static const struct tm_cloud functions = {
    .pools = local_pools,
    .want = local_want,
    .release = local_release,
    .instances = local_instances,
    .next = local_next,
    .watch = local_watch,
    .price_usd_h = local_price_usd_h,
    .offered = local_offered,
    .now_ms = local_now_ms,
    .bill = local_bill,
    .destroy = local_destroy,
};

static void name_plain(struct tm_local__cloud *local)
{
    const struct tm_local_options *options = &local->options;
    tm_cloud_pools__plain(local->is);
    for (int i = 0; i < TM_INSTANCE_KINDS; i++) {
        struct tm_cloud_pool *is = &local->is[i];
        is->notice_ms = options->notice_ms;
        is->start_ms = i == TM_CLOUD_SPOT ? options->spot_start_ms : options->on_demand_start_ms;
        is->price_usd_h = i == TM_CLOUD_SPOT ? options->spot_usd_h : options->on_demand_usd_h;
        if (options->types[i] != NULL) (void)snprintf(is->type, sizeof is->type, "%s", options->types[i]);
        if (options->zones[i] != NULL) (void)snprintf(is->zone, sizeof is->zone, "%s", options->zones[i]);
    }
    local->pools[TM_CLOUD_SPOT].trace = options->trace;
    local->pool_count = TM_INSTANCE_KINDS;
}

static int make_pools(struct tm_local__cloud *local, struct tm_error *e)
{
    const struct tm_local_options *options = &local->options;
    int rc = 0;
    local->choices = options->pool_count > 0;
    local->cloud.bills_start = local->choices;
    if (!local->choices) name_plain(local);
    for (int i = 0; i < options->pool_count; i++) {
        local->is[i] = options->pools[i].is;
        local->pools[i].trace = options->pools[i].trace;
        local->pool_count++;
    }
    for (int i = 0; rc == 0 && i < local->pool_count; i++) {
        struct tm_local__pool *pool = &local->pools[i];
        pool->price_usd_h = local->is[i].price_usd_h;
        if (pool->trace == NULL) continue;
        rc = tm_local_slots__make(pool->trace, options->seed + (uint64_t)i, local->choices, &pool->slots, e);
        if (rc == 0) pool->slot_taken = tm_calloc(pool->slots.count + 1, sizeof *pool->slot_taken);
        if (rc == 0 && pool->slot_taken == NULL) rc = tm_error_nomem(e);
    }
    return rc;
}

static int prepare(struct tm_local__cloud *local, struct tm_error *e)
{
    struct tm_env *env = local->env;
    int rc = tm_local__clean_up(env, local->options.state_dir, &local->leftovers, e);
    if (rc == 0) rc = make_pools(local, e);
    if (rc != 0) return rc;
    local->server = tm_metadata_server__create(env);
    if (local->server == NULL) return tm_error_nomem(e);
    rc = env->process_started(env, env->process_self(env), &local->self_start, e);
    if (rc == 0) rc = tm_local__write_record(local, e); /* before anything is started */
    if (rc == 0 && local->options.netns) rc = tm_local__netns_open(local, e);
    return rc;
}

int tm_local_cloud_create(struct tm_env *env, const struct tm_local_options *options, struct tm_cloud **out,
                          struct tm_error *e)
{
    int rc = check_options(options, e);
    if (rc != 0) return rc;
    struct tm_local__cloud *local = tm_calloc(1, sizeof *local);
    if (local == NULL) return tm_error_nomem(e);
    local->cloud = functions;
    local->cloud.self = local;
    local->env = env;
    local->options = *options;
    if (local->options.id_first == 0) local->options.id_first = 1;
    local->grant_ms = TM_LOCAL_NEVER;
    (void)snprintf(local->run, sizeof local->run, "%016" PRIx64, env->random_u64(env));
    tm_local__record_path(options->state_dir, local->record_path, sizeof local->record_path);
    rc = prepare(local, e);
    if (rc != 0) {
        if (local->self_start != 0) (void)env->file_remove(env, local->record_path, NULL);
        if (local->netns_up) (void)tm_local__netns_clean_up(env, local->run);
        free_all(local);
        return tm_error_wrap(e, rc, "local cloud");
    }
    *out = &local->cloud;
    return 0;
}

void tm_local_cloud_host(const struct tm_cloud *cloud, char out[TM_ADDRESS_MAX])
{
    const struct tm_local__cloud *local = cloud->self;
    char gateway[TM_LOCAL_NAME_MAX] = "127.0.0.1";
    if (local->options.netns) tm_local__netns_gateway(local->run, gateway);
    (void)snprintf(out, TM_ADDRESS_MAX, "%s", gateway);
}

int tm_local_cloud_cut(struct tm_cloud *cloud, uint64_t id, bool cut, struct tm_error *e)
{
    struct tm_local__cloud *local = cloud->self;
    if (!local->options.netns) return tm_error_set(e, TM_EUSAGE, "links can only be cut between network namespaces");
    for (size_t i = 0; id != 0 && i < TM_LOCAL_INSTANCES_MAX; i++) {
        struct tm_local__place *place = &local->places[i];
        if (place->id == id && place->in_netns) return tm_local__netns_cut(local, place, cut, e);
    }
    return tm_error_set(e, TM_ENOTFOUND, "there is no instance %" PRIu64, id);
}

int tm_local_cloud_leftovers(const struct tm_cloud *cloud)
{
    const struct tm_local__cloud *local = cloud->self;
    return local->leftovers;
}
