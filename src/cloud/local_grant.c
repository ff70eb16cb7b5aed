/* Who gets which slot of which pool, and what is refused. */
#include "cloud/local_internal.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>

static int64_t notice_lead_ms(const struct tm_local__cloud *local, int pool)
{
    int64_t wall_ms = local->options.notice_wall_ms;
    return wall_ms > 0 ? (int64_t)llround((double)wall_ms * local->options.speed) : local->is[pool].notice_ms;
}

/* ---- slots ---- */

static void plan_end(struct tm_local__cloud *local, struct tm_local__place *place, const struct tm_local_slot *slot)
{
    int64_t lead_ms = notice_lead_ms(local, place->pool);
    place->hint_ms = place->notice_ms = place->loss_ms = TM_LOCAL_NEVER;
    if (slot == NULL || slot->to_ms == INT64_MAX || local->options.no_losses) return;
    place->loss_ms = slot->to_ms;
    if (lead_ms > 0) place->notice_ms = slot->to_ms - lead_ms;
    if (lead_ms > 0 && local->options.hint_ms > 0) place->hint_ms = place->notice_ms - local->options.hint_ms;
}

/* Free, and not under notice, or it has only just come. */
static bool is_free(const struct tm_local__cloud *local, int number, size_t at, int64_t time_ms)
{
    const struct tm_local__pool *pool = &local->pools[number];
    const struct tm_local_slot *slot = &pool->slots.list[at];
    int64_t lead_ms = notice_lead_ms(local, number);
    bool no_losses = local->options.no_losses;
    bool there = no_losses || time_ms < slot->to_ms;
    bool quiet = no_losses || slot->to_ms == INT64_MAX || time_ms < slot->to_ms - lead_ms;
    return !pool->slot_taken[at] && there && (quiet || slot->from_ms == time_ms);
}

/* The first that is free; where the newest go, the one that lasts longest. slot_next: none. */
static size_t find_slot(const struct tm_local__cloud *local, int number, int64_t time_ms)
{
    const struct tm_local__pool *pool = &local->pools[number];
    size_t best = pool->slot_next;
    for (size_t i = pool->slot_first; i < pool->slot_next; i++) {
        if (!is_free(local, number, i, time_ms)) continue;
        if (!local->choices) return i;
        if (best == pool->slot_next || pool->slots.list[i].to_ms > pool->slots.list[best].to_ms) best = i;
    }
    return best;
}

int tm_local__free_slots(const struct tm_local__cloud *local, int pool, int64_t time_ms)
{
    int count = 0;
    for (size_t i = local->pools[pool].slot_first; i < local->pools[pool].slot_next; i++)
        count += is_free(local, pool, i, time_ms);
    return count;
}

void tm_local__free_slot(struct tm_local__cloud *local, const struct tm_local__place *place)
{
    struct tm_local__pool *pool = &local->pools[place->pool];
    const struct tm_local_slot *slots = pool->slots.list;
    struct tm_local__place *to = NULL;
    pool->slot_taken[place->slot] = false;
    for (size_t i = 0; local->choices && i < TM_LOCAL_INSTANCES_MAX; i++) {
        struct tm_local__place *other = &local->places[i];
        if (other->id == 0 || !other->has_slot || other->pool != place->pool || other->known.noticed) continue;
        if (slots[other->slot].to_ms < slots[to == NULL ? place->slot : to->slot].to_ms) to = other;
    }
    if (to == NULL) return;
    pool->slot_taken[to->slot] = false;
    to->slot = place->slot;
    pool->slot_taken[to->slot] = true;
    plan_end(local, to, &slots[to->slot]);
}

/* ---- instances ---- */

const char *tm_local__type(const struct tm_local__cloud *local, int pool, bool keeper)
{
    const struct tm_local_options *options = &local->options;
    if (keeper && options->keeper_type != NULL) return options->keeper_type;
    if (local->is[pool].type[0] != '\0') return local->is[pool].type;
    return options->trace != NULL && options->trace->instance[0] != '\0' ? options->trace->instance : "local";
}

const char *tm_local__zone(const struct tm_local__cloud *local, int pool, bool keeper)
{
    const struct tm_local_options *options = &local->options;
    if (keeper && options->keeper_zone != NULL) return options->keeper_zone;
    if (local->is[pool].zone[0] != '\0') return local->is[pool].zone;
    return options->trace != NULL && options->trace->zone[0] != '\0' ? options->trace->zone : "local-a";
}

/* Those that go are replaced by others of their type, before any of the rest. */
static bool is_keeper_due(const struct tm_local__cloud *local, int pool)
{
    int here = 0;
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++)
        here += local->places[i].id != 0 && local->places[i].keeper;
    return !local->choices && pool == TM_CLOUD_ON_DEMAND && here < local->options.keepers;
}

static int grant(struct tm_local__cloud *local, int number, int64_t time_ms, size_t slot, struct tm_error *e)
{
    const struct tm_local_options *options = &local->options;
    struct tm_local__pool *pool = &local->pools[number];
    bool has_slot = pool->trace != NULL;
    bool keeper = is_keeper_due(local, number);
    struct tm_local__place *place = local->places;
    while (place->id != 0)
        place++;
    void *list = local->instances;
    int rc = tm_grow(&list, &local->instance_capacity, local->instance_count + 1, sizeof *local->instances,
                     TM_LOCAL_HISTORY_MAX);
    local->instances = list;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "no room for another instance");
    struct tm_cloud_instance *instance = &local->instances[local->instance_count++];
    *instance = (struct tm_cloud_instance){
        .pool = number, .kind = local->is[number].kind, .asked_ms = time_ms, .arrived_ms = -1};
    instance->id = options->id_first + local->instance_count - 1;
    instance->noticed_ms = instance->gone_ms = -1;
    instance->price_usd_h = keeper ? options->keeper_usd_h : pool->price_usd_h;
    (void)snprintf(instance->zone, sizeof instance->zone, "%s", tm_local__zone(local, number, keeper));
    (void)snprintf(instance->type, sizeof instance->type, "%s", tm_local__type(local, number, keeper));
    *place = (struct tm_local__place){.id = instance->id,
                                      .pool = number,
                                      .has_slot = has_slot,
                                      .keeper = keeper,
                                      .slot = slot,
                                      .billed_ms = time_ms,
                                      .handle = -1,
                                      .endpoint = -1};
    place->arrive_ms = time_ms + local->is[number].start_ms;
    plan_end(local, place, has_slot ? &pool->slots.list[slot] : NULL);
    if (has_slot) pool->slot_taken[slot] = true;
    return 0;
}

/* ---- grants ---- */

/* Instances that count towards the limits. Whoever is about to go, or is not wanted any more, leaves room for its
 * successor, which may have to take over what it has before it is released. */
struct counted {
    int all;
    int places;
    int here[TM_CLOUD_POOLS_MAX];
    int staying[TM_CLOUD_POOLS_MAX];
};

static void count_all(const struct tm_local__cloud *local, struct counted *out)
{
    *out = (struct counted){.all = 0};
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        if (local->places[i].id == 0) continue;
        const struct tm_cloud_instance *instance = &local->instances[local->places[i].id - local->options.id_first];
        out->places++;
        out->here[instance->pool]++;
        out->staying[instance->pool] += instance->state != TM_INSTANCE_NOTICED;
    }
    for (int i = 0; i < local->pool_count; i++)
        out->all += out->staying[i] < local->pools[i].want ? out->staying[i] : local->pools[i].want;
}

static int grant_pool(struct tm_local__cloud *local, int number, int64_t time_ms, struct tm_error *e)
{
    struct tm_local__pool *pool = &local->pools[number];
    int limit = local->is[number].limit > 0 ? local->is[number].limit : TM_LOCAL_INSTANCES_MAX, rc = 0;
    struct counted n;
    count_all(local, &n);
    while (rc == 0 && n.here[number] < pool->want && n.all < local->options.limit && n.staying[number] < limit &&
           n.places < TM_LOCAL_INSTANCES_MAX && time_ms >= pool->retry_ms) {
        size_t slot = pool->trace != NULL ? find_slot(local, number, time_ms) : 0;
        if (pool->trace != NULL && slot == pool->slot_next) break;
        rc = grant(local, number, time_ms, slot, e);
        n.here[number]++;
        n.staying[number]++;
        n.places++;
        n.all++;
    }
    int missing = pool->want > n.here[number] ? pool->want - n.here[number] : 0;
    if (rc != 0 || missing == pool->refused) return rc;
    pool->refused = missing;
    struct tm_cloud_event event = {.kind = TM_CLOUD_REFUSED, .pool = number, .count = missing, .time_ms = time_ms};
    return local->choices ? tm_local__tell(local, event, e) : 0;
}

static void pass_time(struct tm_local__cloud *local, struct tm_local__pool *pool, int64_t time_ms)
{
    const struct tm_local_slots *slots = &pool->slots;
    while (pool->slot_next < slots->count && slots->list[pool->slot_next].from_ms <= time_ms)
        pool->slot_next++;
    while (pool->slot_first < pool->slot_next && slots->list[pool->slot_first].to_ms <= time_ms &&
           !local->options.no_losses)
        pool->slot_first++;
    if (time_ms >= pool->retry_ms) pool->retry_ms = 0;
}

/* What is always there first: of a job without a choice, on-demand before spot. */
int tm_local__grant_all(struct tm_local__cloud *local, int64_t time_ms, struct tm_error *e)
{
    int rc = 0;
    if (local->grant_ms <= time_ms) local->grant_ms = TM_LOCAL_NEVER;
    for (int i = 0; i < local->pool_count; i++)
        pass_time(local, &local->pools[i], time_ms);
    for (int traced = 0; traced < 2; traced++)
        for (int i = 0; rc == 0 && i < local->pool_count; i++)
            if ((local->pools[i].trace != NULL) == (traced != 0)) rc = grant_pool(local, i, time_ms, e);
    return rc;
}
