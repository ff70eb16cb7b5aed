/* What happens in the local cloud, in the order of the trace's time. At one time: prices, losses, notices and hints,
 * arrivals, then grants. */
#include "cloud/local_internal.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_WALL_MS = 1000, RETRY_DOUBLINGS = 6, SOON_WALL_MS = 10000, STEPS_MAX = 1 << 20 };

static int64_t to_trace_ms(const struct tm_local__cloud *local, int64_t wall_ms)
{
    return (int64_t)llround((double)wall_ms * local->options.speed);
}

/* ---- bill ---- */

void tm_local__settle(struct tm_local__cloud *local, struct tm_local__place *place, int64_t time_ms)
{
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    bool paid = tm_instance_is_here(instance) || (local->choices && instance->state == TM_INSTANCE_STARTING);
    if (!paid) return;
    double seconds = (double)(time_ms - place->billed_ms) / 1000;
    double usd = seconds * instance->price_usd_h / 3600;
    instance->bill_usd += usd;
    local->bill.usd[instance->pool] += usd;
    local->bill.seconds[instance->pool] += seconds;
    place->billed_ms = time_ms;
}

static void change_prices_of(struct tm_local__cloud *local, int number, int64_t time_ms)
{
    struct tm_local__pool *pool = &local->pools[number];
    const struct tm_trace *trace = pool->trace;
    for (; pool->price_next < trace->event_count && trace->events[pool->price_next].time_ms <= time_ms;
         pool->price_next++) {
        double price = trace->events[pool->price_next].price_usd_h;
        if (isnan(price)) continue;
        pool->price_usd_h = price;
        for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
            struct tm_local__place *place = &local->places[i];
            if (place->id == 0 || !place->has_slot || place->pool != number) continue;
            tm_local__settle(local, place, time_ms);
            tm_local__instance(local, place)->price_usd_h = price;
        }
    }
}

static void change_prices(struct tm_local__cloud *local, int64_t time_ms)
{
    for (int i = 0; i < local->pool_count; i++)
        if (local->pools[i].trace != NULL) change_prices_of(local, i, time_ms);
}

/* ---- ends ---- */

int tm_local__end(struct tm_local__cloud *local, struct tm_local__place *place, enum tm_instance_state state,
                  int64_t time_ms, int status, struct tm_error *e)
{
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    struct tm_cloud_event event = {
        .kind = state == TM_INSTANCE_LOST ? TM_CLOUD_LOST : TM_CLOUD_RELEASED,
        .instance = instance->id,
        .pool = place->pool,
        .time_ms = time_ms,
        .announced = instance->state == TM_INSTANCE_NOTICED,
        .status = status,
    };
    tm_local__settle(local, place, time_ms);
    bool frees = place->has_slot && time_ms < place->loss_ms;
    instance->state = state;
    instance->gone_ms = time_ms;
    place->id = 0;
    if (frees) tm_local__free_slot(local, place);
    local->record_due = true;
    if (time_ms < local->grant_ms) local->grant_ms = time_ms;
    return tm_local__tell(local, event, e);
}

static int lose(struct tm_local__cloud *local, struct tm_local__place *place, int64_t time_ms, struct tm_error *e)
{
    int status = -1;
    int rc = tm_local__stop_process(local, place, false, &status, e);
    int told = tm_local__end(local, place, TM_INSTANCE_LOST, time_ms, -1, rc == 0 ? e : NULL);
    return rc != 0 ? rc : told;
}

/* One whose leader ended by itself. */
static int find_ended(struct tm_local__cloud *local, struct tm_local__place *place, struct tm_error *e)
{
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    struct tm_local__pool *pool = &local->pools[place->pool];
    int64_t now_ms = tm_local__now_ms(local);
    int64_t time_ms = now_ms < place->loss_ms ? now_ms : place->loss_ms;
    int status = -1;
    int rc = tm_local__stop_process(local, place, true, &status, e);
    if (rc != 0) return rc;
    bool in_order = status == 0;
    if (in_order && pool->want > 0) pool->want--;
    if (!in_order) {
        bool soon = now_ms - instance->arrived_ms < to_trace_ms(local, SOON_WALL_MS);
        int doublings = soon ? pool->failures++ : (pool->failures = 0);
        if (doublings > RETRY_DOUBLINGS) doublings = RETRY_DOUBLINGS;
        pool->retry_ms = now_ms + to_trace_ms(local, (int64_t)RETRY_WALL_MS << doublings);
    }
    return tm_local__end(local, place, in_order ? TM_INSTANCE_RELEASED : TM_INSTANCE_LOST, time_ms, status, e);
}

static int find_all_ended(struct tm_local__cloud *local, struct tm_error *e)
{
    struct tm_local__place *there[TM_LOCAL_INSTANCES_MAX];
    int handles[TM_LOCAL_INSTANCES_MAX];
    bool ready[TM_LOCAL_INSTANCES_MAX] = {false};
    size_t count = 0;
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        if (local->places[i].id == 0 || local->places[i].handle < 0) continue;
        there[count] = &local->places[i];
        handles[count++] = local->places[i].handle;
    }
    if (count == 0) return 0;
    int rc = local->env->net_wait(local->env, handles, count, 0, ready, e);
    if (rc == -(int)TM_ETIMEOUT) return 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (ready[i]) rc = find_ended(local, there[i], e);
    }
    return rc;
}

/* ---- notices ---- */

static int warn(struct tm_local__cloud *local, struct tm_local__place *place, enum tm_cloud_event_kind kind,
                int64_t time_ms, struct tm_error *e)
{
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    int64_t left_ms = (int64_t)((double)(place->loss_ms - tm_local__now_ms(local)) / local->options.speed);
    if (left_ms < 0) left_ms = 0;
    int64_t now_utc_ms = local->env->now_ms(local->env);
    place->known.version++;
    if (kind == TM_CLOUD_HINT || !place->known.hinted) { /* whoever is told that it goes, may know that it may */
        place->known.hinted = true;
        place->known.hinted_utc_ms = now_utc_ms;
    }
    if (kind == TM_CLOUD_NOTICE) {
        instance->state = TM_INSTANCE_NOTICED;
        instance->noticed_ms = time_ms;
        place->known.noticed = true;
        place->known.noticed_utc_ms = now_utc_ms;
        place->known.loss_utc_ms = now_utc_ms + left_ms;
    }
    struct tm_cloud_event event = {
        .kind = kind, .instance = instance->id, .pool = place->pool, .time_ms = time_ms, .left_ms = left_ms};
    return tm_local__tell(local, event, e);
}

/* ---- arrivals ---- */

static int arrive(struct tm_local__cloud *local, struct tm_local__place *place, int64_t time_ms, struct tm_error *e)
{
    place->arrive_ms = TM_LOCAL_NEVER;
    int rc = tm_local__start_process(local, place, e);
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    if (!local->choices) place->billed_ms = time_ms;
    local->record_due = true;
    if (rc != 0) { /* the caller's command is wrong, or the machine is full: never again without being asked */
        local->pools[place->pool].want = 0;
        (void)tm_local__end(local, place, TM_INSTANCE_LOST, time_ms, 127, NULL);
        return tm_error_wrap(e, rc, "instance %" PRIu64, instance->id);
    }
    instance->state = TM_INSTANCE_RUNNING;
    instance->arrived_ms = time_ms;
    if (place->has_slot) instance->price_usd_h = local->pools[place->pool].price_usd_h;
    struct tm_cloud_event event = {
        .kind = TM_CLOUD_ARRIVED, .instance = instance->id, .pool = place->pool, .time_ms = time_ms};
    return tm_local__tell(local, event, e);
}

/* ---- time ---- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t tm_local__next_ms(const struct tm_local__cloud *local)
{
    int64_t next_ms = local->grant_ms;
    for (int i = 0; i < local->pool_count; i++) {
        const struct tm_local__pool *pool = &local->pools[i];
        if (pool->retry_ms > 0) next_ms = earlier(next_ms, pool->retry_ms);
        if (pool->trace == NULL) continue;
        if (pool->slot_next < pool->slots.count) next_ms = earlier(next_ms, pool->slots.list[pool->slot_next].from_ms);
        if (pool->price_next < pool->trace->event_count)
            next_ms = earlier(next_ms, pool->trace->events[pool->price_next].time_ms);
    }
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        const struct tm_local__place *place = &local->places[i];
        if (place->id == 0) continue;
        next_ms = earlier(next_ms, earlier(place->arrive_ms, place->loss_ms));
        if (place->arrive_ms == TM_LOCAL_NEVER) next_ms = earlier(next_ms, earlier(place->hint_ms, place->notice_ms));
    }
    return next_ms;
}

static int step_place(struct tm_local__cloud *local, struct tm_local__place *place, int64_t time_ms, struct tm_error *e)
{
    int rc = 0;
    if (place->loss_ms <= time_ms) return lose(local, place, time_ms, e);
    if (place->arrive_ms <= time_ms) rc = arrive(local, place, time_ms, e);
    if (rc != 0 || place->id == 0 || place->arrive_ms != TM_LOCAL_NEVER) return rc;
    if (place->hint_ms <= time_ms) {
        bool timely = time_ms < place->notice_ms;
        place->hint_ms = TM_LOCAL_NEVER;
        if (timely) rc = warn(local, place, TM_CLOUD_HINT, time_ms, e);
    }
    if (rc == 0 && place->notice_ms <= time_ms) {
        place->notice_ms = TM_LOCAL_NEVER;
        rc = warn(local, place, TM_CLOUD_NOTICE, time_ms, e);
    }
    return rc;
}

/* All that happens at one time. Losses before arrivals: a place may be needed twice. */
static int step(struct tm_local__cloud *local, int64_t time_ms, struct tm_error *e)
{
    int rc = 0;
    change_prices(local, time_ms);
    for (int pass = 0; rc == 0 && pass < 2; pass++) {
        for (size_t i = 0; rc == 0 && i < TM_LOCAL_INSTANCES_MAX; i++) {
            struct tm_local__place *place = &local->places[i];
            bool goes = place->id != 0 && place->loss_ms <= time_ms;
            if (place->id != 0 && goes == (pass == 0)) rc = step_place(local, place, time_ms, e);
        }
    }
    local->done_ms = time_ms;
    return rc != 0 ? rc : tm_local__grant_all(local, time_ms, e);
}

int tm_local__advance(struct tm_local__cloud *local, struct tm_error *e)
{
    int64_t now_ms = tm_local__now_ms(local);
    int rc = 0;
    for (int i = 0; rc == 0 && i < STEPS_MAX; i++) {
        int64_t next_ms = tm_local__next_ms(local);
        if (next_ms > now_ms) break;
        rc = step(local, next_ms > local->done_ms ? next_ms : local->done_ms, e);
    }
    if (rc == 0) rc = find_all_ended(local, e);
    if (local->record_due) {
        int written = tm_local__write_record(local, rc == 0 ? e : NULL);
        if (rc == 0 && written != -(int)TM_EFULL) rc = written; /* a full disk: it stays due */
    }
    return rc;
}
