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

static int64_t notice_lead_ms(const struct tm_local__cloud *local)
{
    const struct tm_local_options *options = &local->options;
    return options->notice_wall_ms > 0 ? to_trace_ms(local, options->notice_wall_ms) : options->notice_ms;
}

/* ---- bill ---- */

void tm_local__settle(struct tm_local__cloud *local, struct tm_local__place *place, int64_t time_ms)
{
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    if (!tm_instance_is_here(instance)) return;
    double seconds = (double)(time_ms - place->billed_ms) / 1000;
    double usd = seconds * instance->price_usd_h / 3600;
    instance->bill_usd += usd;
    local->bill.usd[instance->kind] += usd;
    local->bill.seconds[instance->kind] += seconds;
    place->billed_ms = time_ms;
}

static void change_prices(struct tm_local__cloud *local, int64_t time_ms)
{
    const struct tm_trace *trace = local->options.trace;
    for (; local->price_next < trace->event_count && trace->events[local->price_next].time_ms <= time_ms;
         local->price_next++) {
        double price = trace->events[local->price_next].price_usd_h;
        if (isnan(price)) continue;
        local->spot_usd_h = price;
        for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
            struct tm_local__place *place = &local->places[i];
            if (place->id == 0 || !place->has_slot) continue;
            tm_local__settle(local, place, time_ms);
            tm_local__instance(local, place)->price_usd_h = price;
        }
    }
}

/* ---- ends ---- */

int tm_local__end(struct tm_local__cloud *local, struct tm_local__place *place, enum tm_instance_state state,
                  int64_t time_ms, int status, struct tm_error *e)
{
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    struct tm_cloud_event event = {
        .kind = state == TM_INSTANCE_LOST ? TM_CLOUD_LOST : TM_CLOUD_RELEASED,
        .instance = instance->id,
        .time_ms = time_ms,
        .announced = instance->state == TM_INSTANCE_NOTICED,
        .status = status,
    };
    tm_local__settle(local, place, time_ms);
    if (place->has_slot && time_ms < place->loss_ms) local->slot_taken[place->slot] = false;
    instance->state = state;
    instance->gone_ms = time_ms;
    place->id = 0;
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
    enum tm_instance_kind kind = instance->kind;
    int64_t now_ms = tm_local__now_ms(local);
    int64_t time_ms = now_ms < place->loss_ms ? now_ms : place->loss_ms;
    int status = -1;
    int rc = tm_local__stop_process(local, place, true, &status, e);
    if (rc != 0) return rc;
    bool in_order = status == 0;
    if (in_order && local->want[kind] > 0) local->want[kind]--;
    if (!in_order) {
        bool soon = now_ms - instance->arrived_ms < to_trace_ms(local, SOON_WALL_MS);
        int doublings = soon ? local->failures[kind]++ : (local->failures[kind] = 0);
        if (doublings > RETRY_DOUBLINGS) doublings = RETRY_DOUBLINGS;
        local->retry_ms[kind] = now_ms + to_trace_ms(local, (int64_t)RETRY_WALL_MS << doublings);
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
    struct tm_cloud_event event = {.kind = kind, .instance = instance->id, .time_ms = time_ms, .left_ms = left_ms};
    return tm_local__tell(local, event, e);
}

/* ---- grants and arrivals ---- */

static void plan_end(struct tm_local__cloud *local, struct tm_local__place *place, const struct tm_local_slot *slot)
{
    int64_t lead_ms = notice_lead_ms(local);
    place->hint_ms = place->notice_ms = place->loss_ms = TM_LOCAL_NEVER;
    if (slot == NULL || slot->to_ms == INT64_MAX || local->options.no_losses) return;
    place->loss_ms = slot->to_ms;
    if (lead_ms > 0) place->notice_ms = slot->to_ms - lead_ms;
    if (lead_ms > 0 && local->options.hint_ms > 0) place->hint_ms = place->notice_ms - local->options.hint_ms;
}

/* A free slot that is not under notice, or has only just come; slot_next: none. */
static size_t find_slot(struct tm_local__cloud *local, int64_t time_ms)
{
    int64_t lead_ms = notice_lead_ms(local);
    bool no_losses = local->options.no_losses;
    for (size_t i = local->slot_first; i < local->slot_next; i++) {
        const struct tm_local_slot *slot = &local->slots.list[i];
        bool there = no_losses || time_ms < slot->to_ms;
        bool quiet = no_losses || slot->to_ms == INT64_MAX || time_ms < slot->to_ms - lead_ms;
        if (!local->slot_taken[i] && there && (quiet || slot->from_ms == time_ms)) return i;
    }
    return local->slot_next;
}

const char *tm_local__type(const struct tm_local_options *options, enum tm_instance_kind kind, bool keeper)
{
    if (keeper && options->keeper_type != NULL) return options->keeper_type;
    if (options->types[kind] != NULL) return options->types[kind];
    return options->trace->instance[0] != '\0' ? options->trace->instance : "local";
}

const char *tm_local__zone(const struct tm_local_options *options, enum tm_instance_kind kind, bool keeper)
{
    if (keeper && options->keeper_zone != NULL) return options->keeper_zone;
    if (options->zones[kind] != NULL) return options->zones[kind];
    return options->trace->zone[0] != '\0' ? options->trace->zone : "local-a";
}

/* Those that go are replaced by others of their type, before any of the rest. */
static bool is_keeper_due(const struct tm_local__cloud *local, enum tm_instance_kind kind)
{
    int here = 0;
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++)
        here += local->places[i].id != 0 && local->places[i].keeper;
    return kind == TM_INSTANCE_ON_DEMAND && here < local->options.keepers;
}

static int grant(struct tm_local__cloud *local, enum tm_instance_kind kind, int64_t time_ms, size_t slot,
                 struct tm_error *e)
{
    const struct tm_local_options *options = &local->options;
    bool spot = kind == TM_INSTANCE_SPOT;
    bool keeper = is_keeper_due(local, kind);
    struct tm_local__place *place = local->places;
    while (place->id != 0)
        place++;
    void *list = local->instances;
    int rc = tm_grow(&list, &local->instance_capacity, local->instance_count + 1, sizeof *local->instances,
                     TM_LOCAL_HISTORY_MAX);
    local->instances = list;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "no room for another instance");
    struct tm_cloud_instance *instance = &local->instances[local->instance_count++];
    *instance = (struct tm_cloud_instance){.kind = kind, .asked_ms = time_ms, .arrived_ms = -1};
    instance->id = options->id_first + local->instance_count - 1;
    instance->noticed_ms = instance->gone_ms = -1;
    instance->price_usd_h = spot ? local->spot_usd_h : keeper ? options->keeper_usd_h : options->on_demand_usd_h;
    (void)snprintf(instance->zone, sizeof instance->zone, "%s", tm_local__zone(options, kind, keeper));
    (void)snprintf(instance->type, sizeof instance->type, "%s", tm_local__type(options, kind, keeper));
    *place = (struct tm_local__place){
        .id = instance->id, .has_slot = spot, .keeper = keeper, .slot = slot, .handle = -1, .endpoint = -1};
    place->arrive_ms = time_ms + (spot ? options->spot_start_ms : options->on_demand_start_ms);
    plan_end(local, place, spot ? &local->slots.list[slot] : NULL);
    if (spot) local->slot_taken[slot] = true;
    return 0;
}

/* Instances that count towards the limit. Whoever is about to go, or is not wanted any more, leaves room for its
 * successor, which may have to take over what it has before it is released. */
static int counted(const struct tm_local__cloud *local, int here[TM_INSTANCE_KINDS])
{
    int count = 0, noticed[TM_INSTANCE_KINDS] = {0};
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        if (local->places[i].id == 0) continue;
        const struct tm_cloud_instance *instance = &local->instances[local->places[i].id - local->options.id_first];
        here[instance->kind]++;
        noticed[instance->kind] += instance->state == TM_INSTANCE_NOTICED;
    }
    for (int kind = 0; kind < TM_INSTANCE_KINDS; kind++) {
        int stay = here[kind] - noticed[kind];
        count += stay < local->want[kind] ? stay : local->want[kind];
    }
    return count;
}

static int grant_kind(struct tm_local__cloud *local, enum tm_instance_kind kind, int64_t time_ms, struct tm_error *e)
{
    int here[TM_INSTANCE_KINDS] = {0}, all = counted(local, here), places = 0, have = here[kind];
    for (int i = 0; i < TM_INSTANCE_KINDS; i++)
        places += here[i];
    int rc = 0;
    while (rc == 0 && have < local->want[kind] && all < local->options.limit && places < TM_LOCAL_INSTANCES_MAX &&
           time_ms >= local->retry_ms[kind]) {
        size_t slot = kind == TM_INSTANCE_SPOT ? find_slot(local, time_ms) : 0;
        if (kind == TM_INSTANCE_SPOT && slot == local->slot_next) break;
        rc = grant(local, kind, time_ms, slot, e);
        have++;
        places++;
        all++;
    }
    return rc;
}

static int grant_all(struct tm_local__cloud *local, int64_t time_ms, struct tm_error *e)
{
    const struct tm_local_slots *slots = &local->slots;
    while (local->slot_next < slots->count && slots->list[local->slot_next].from_ms <= time_ms)
        local->slot_next++;
    while (local->slot_first < local->slot_next && slots->list[local->slot_first].to_ms <= time_ms &&
           !local->options.no_losses)
        local->slot_first++;
    if (local->grant_ms <= time_ms) local->grant_ms = TM_LOCAL_NEVER;
    for (int kind = 0; kind < TM_INSTANCE_KINDS; kind++) {
        if (time_ms >= local->retry_ms[kind]) local->retry_ms[kind] = 0;
    }
    int rc = grant_kind(local, TM_INSTANCE_ON_DEMAND, time_ms, e);
    return rc != 0 ? rc : grant_kind(local, TM_INSTANCE_SPOT, time_ms, e);
}

static int arrive(struct tm_local__cloud *local, struct tm_local__place *place, int64_t time_ms, struct tm_error *e)
{
    place->arrive_ms = TM_LOCAL_NEVER;
    int rc = tm_local__start_process(local, place, e);
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    place->billed_ms = time_ms;
    local->record_due = true;
    if (rc != 0) { /* the caller's command is wrong, or the machine is full: never again without being asked */
        local->want[instance->kind] = 0;
        (void)tm_local__end(local, place, TM_INSTANCE_LOST, time_ms, 127, NULL);
        return tm_error_wrap(e, rc, "instance %" PRIu64, instance->id);
    }
    instance->state = TM_INSTANCE_RUNNING;
    instance->arrived_ms = time_ms;
    if (place->has_slot) instance->price_usd_h = local->spot_usd_h;
    return tm_local__tell(
        local, (struct tm_cloud_event){.kind = TM_CLOUD_ARRIVED, .instance = instance->id, .time_ms = time_ms}, e);
}

/* ---- time ---- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t tm_local__next_ms(const struct tm_local__cloud *local)
{
    const struct tm_trace *trace = local->options.trace;
    int64_t next_ms = local->grant_ms;
    if (local->slot_next < local->slots.count) next_ms = earlier(next_ms, local->slots.list[local->slot_next].from_ms);
    if (local->price_next < trace->event_count) next_ms = earlier(next_ms, trace->events[local->price_next].time_ms);
    for (int kind = 0; kind < TM_INSTANCE_KINDS; kind++) {
        if (local->retry_ms[kind] > 0) next_ms = earlier(next_ms, local->retry_ms[kind]);
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
    return rc != 0 ? rc : grant_all(local, time_ms, e);
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
