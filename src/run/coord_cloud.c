/* What the cloud says, and what it is told: instances, prices, notices, the bill; how many are wanted, which may go.
 *
 * Both directions name a state. A report that is not newer than the last says nothing; an order is the answer to a
 * report, and the next one repeats it. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <string.h>

enum { BILL_EVERY_MS = 60000 };

/* ---- instances ---- */

/* Where it is, or after the last. Clouds number instances in the order of their coming, mostly. */
static size_t find_instance(const struct tm_coordinator *c, uint64_t id)
{
    size_t low = 0;
    size_t high = c->instance_count;
    while (low < high && !c->instances_mixed) {
        size_t middle = low + (high - low) / 2;
        if (c->instances[middle].id == id) return middle;
        if (c->instances[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = 0; c->instances_mixed && i < c->instance_count; i++)
        if (c->instances[i].id == id) return i;
    return c->instance_count;
}

const Tmw__Instance *tm_coord__instance(const struct tm_coordinator *c, uint64_t id)
{
    size_t i = find_instance(c, id);
    return i < c->instance_count ? &c->instances[i] : NULL;
}

const Tmw__Instance *tm_coord__instance_of(const struct tm_coordinator *c, uint64_t worker)
{
    return tm_coord__instance(c, tm_coord__place(c, worker));
}

int tm_coord__store_instance(struct tm_coordinator *c, const Tmw__Instance *instance)
{
    size_t i = find_instance(c, instance->id);
    if (i == c->instance_count || c->instances == NULL) { /* NULL says the first again, for clang's analyzer */
        int rc = tm_grow((void **)&c->instances, &c->instance_capacity, i + 1, sizeof *c->instances, INSTANCES_MAX);
        if (rc != 0) return rc;
        c->instance_count++;
        c->instances_mixed = c->instances_mixed || (i > 0 && c->instances[i - 1].id > instance->id);
    }
    c->instances[i] = *instance;
    c->instances[i].base.n_unknown_fields = 0;
    c->instances[i].base.unknown_fields = NULL;
    return 0;
}

static void process_gone(struct tm_coordinator *c, int64_t now_ms, enum tm_role role, uint64_t id,
                         struct tm_outbox *out)
{
    struct known *k = tm_coord__find(c, role, id);
    if (k == NULL) k = tm_coord__add(c, role, id);
    if (k == NULL) return;
    k->gone = true;
    if (k->peer.incarnation == 0) return;
    tm_coord__process_dead(c, k->peer.id, k->peer.incarnation);
    tm_coord__lost(c, now_ms, k, true, out);
}

/* All processes of an instance that has ended are dead. */
static void instance_ended(struct tm_coordinator *c, int64_t now_ms, uint64_t id, struct tm_outbox *out)
{
    for (size_t i = 0; i < c->started.member_count; i++)
        if (tm_coord__place(c, c->started.members[i].id) == id) c->started_dead[i] = true;
    for (uint32_t w = 0; w < tm_coord__workers_each(c); w++)
        for (enum tm_role role = TM_ROLE_AGENT; role <= TM_ROLE_WORKER; role++)
            process_gone(c, now_ms, role, tm_worker_of_instance(id, w, c->options.workers), out);
}

/* The record gets what is new: an instance, its end, its notice, its price; and the bill of all now and then. */
static void take_instance(struct tm_coordinator *c, int64_t now_ms, Tmw__Instance *instance, bool bill_due,
                          struct tm_outbox *out)
{
    if (TM_PLANTED(bill_wrong) && instance->end_ms != 0) instance->bill_microusd = 0;
    const Tmw__Instance *old = tm_coord__instance(c, instance->id);
    bool ended_before = old != NULL && old->end_ms != 0;
    if (instance->id == 0 || (ended_before && instance->end_ms == 0)) return; /* what has ended does not come back */
    bool changed = old == NULL || old->end_ms != instance->end_ms || old->start_ms != instance->start_ms ||
                   old->price_microusd_h != instance->price_microusd_h || old->announced != instance->announced;
    bool billed = old != NULL && old->bill_microusd != instance->bill_microusd;
    if (!changed && !billed) return;
    if (tm_coord__store_instance(c, instance) != 0) return; /* it will be told again */
    if (changed || bill_due) tm_coord__record_instance(c, instance, out);
    if (instance->end_ms != 0 && !ended_before) instance_ended(c, now_ms, instance->id, out);
}

/* A report names all that are there. One that runs by the record and is not named has ended while nobody could write it
 * down, such as after the program around the cloud was killed; whoever waited for it would wait for ever. */
static void end_unnamed(struct tm_coordinator *c, int64_t now_ms, const Tmw__CloudReport *report, struct tm_outbox *out)
{
    for (size_t i = 0; i < c->instance_count && !TM_PLANTED(unnamed_runs); i++) {
        bool named = c->instances[i].end_ms != 0;
        for (size_t n = 0; !named && n < report->n_instances; n++)
            named = report->instances[n]->id == c->instances[i].id;
        if (named) continue;
        Tmw__Instance gone = c->instances[i];
        gone.end_ms = report->now_ms > 0 ? report->now_ms : 1;
        gone.released = true;
        take_instance(c, now_ms, &gone, true, out);
    }
}

static void notice_worker(struct tm_coordinator *c, int64_t now_ms, const Tmw__Instance *instance, uint64_t worker,
                          struct tm_outbox *out)
{
    struct known *k = tm_coord__find(c, TM_ROLE_WORKER, worker);
    if (k == NULL || instance->end_ms != 0) return;
    if (k->cloud_noticed != (instance->announced != 0)) c->changed_ms = now_ms;
    k->cloud_noticed = instance->announced != 0;
    if (k->cloud_noticed && instance->notice_left_ms > 0)
        k->cloud_notice_end_ms = now_ms + instance->notice_left_ms % ((int64_t)1 << 31);
    tm_coord__tell_notice(c, now_ms, k, out);
}

static void take_notice(struct tm_coordinator *c, int64_t now_ms, const Tmw__Instance *instance, struct tm_outbox *out)
{
    for (uint32_t w = 0; instance->id > 0 && w < tm_coord__workers_each(c); w++)
        notice_worker(c, now_ms, instance, tm_worker_of_instance(instance->id, w, c->options.workers), out);
}

/* ---- orders ---- */

uint32_t tm_coord__pool(const struct tm_coordinator *c, const Tmw__Instance *instance)
{
    if (c->options.pools == 0) return !instance->spot;
    return instance->pool < c->options.pools ? instance->pool : c->options.pools - 1;
}

static uint32_t count_in(const struct tm_coordinator *c, uint32_t pool, bool announced_only)
{
    uint32_t count = 0;
    for (size_t i = 0; i < c->instance_count; i++) {
        const Tmw__Instance *instance = &c->instances[i];
        if (instance->end_ms != 0 || tm_coord__pool(c, instance) != pool) continue;
        count += !announced_only || instance->announced;
    }
    return count;
}

static bool trains(const struct tm_coordinator *c, uint32_t pool)
{
    return c->seated_pools == 0 || (c->seated_pools >> pool & 1) != 0;
}

uint32_t tm_coord__wanted(const struct tm_coordinator *c, uint32_t pool)
{
    if (c->options.pools == 0) return pool == 0 ? c->want_spot : c->want_on_demand;
    return c->want[pool] + (trains(c, pool) ? count_in(c, pool, true) : 0);
}

bool tm_coord__more_come(const struct tm_coordinator *c)
{
    uint32_t pools = c->options.pools == 0 ? 2 : c->options.pools;
    for (uint32_t i = 0; c->rents && i < pools; i++)
        if (tm_coord__wanted(c, i) > count_in(c, i, false)) return true;
    return false;
}

bool tm_coord__may_sit(const struct tm_coordinator *c, uint64_t id)
{
    if (c->options.pools == 0 || c->seated_pools == 0 || TM_PLANTED(regions_mixed)) return true;
    const Tmw__Instance *instance = tm_coord__instance_of(c, id);
    return instance != NULL && trains(c, tm_coord__pool(c, instance));
}

void tm_coord__want(struct tm_coordinator *c, const struct tm_run_decision *decision)
{
    if (!decision->rents) return;
    memcpy(c->want, decision->want, sizeof c->want);
    c->rents = true;
    c->want_spot = decision->want_spot;
    c->want_on_demand = decision->want_on_demand;
}

/* Of those that run, so many are ordered to go: less are kept where none are rented. */
static uint32_t going(const struct tm_coordinator *c, uint32_t pool)
{
    uint32_t here = count_in(c, pool, false), leave = tm_coord__draining(c, pool);
    return leave < here ? leave : here;
}

/* Before anything was decided all stays as it is, and that is those on their way, too: a job that waits in somebody's
 * queue has waited for its place. */
static uint32_t kept(const struct tm_coordinator *c, uint32_t pool)
{
    uint32_t starting = c->options.pools > 0 ? c->cloud.pools[pool].starting : c->cloud.starting[pool];
    return count_in(c, pool, false) + starting - going(c, pool);
}

static void send_order(struct tm_coordinator *c, const struct known *cloud, uint64_t sequence, struct tm_outbox *out)
{
    Tmw__CloudOrder body = TMW__CLOUD_ORDER__INIT;
    tm_message message = tm_coord__head(c, &cloud->peer);
    body.sequence = sequence;
    body.want_spot = TM_PLANTED(rent_fewer) && c->want_spot > 1 ? c->want_spot - 1 : c->want_spot;
    body.want_on_demand = c->want_on_demand;
    uint32_t want[TM_RUN_POOLS_MAX];
    for (uint32_t i = 0; i < c->options.pools; i++)
        want[i] = c->rents ? tm_coord__wanted(c, i) + tm_coord__draining(c, i) : kept(c, i);
    body.want = want;
    body.n_want = c->options.pools;
    for (size_t i = 0; !c->rents && c->options.pools > 0 && i < c->instance_count; i++) {
        bool runs = c->instances[i].end_ms == 0;
        body.want_spot += runs && c->instances[i].spot;
        body.want_on_demand += runs && !c->instances[i].spot;
    }
    if (c->options.pools == 0) { /* another one in the place of each that is ordered to go, where any are rented */
        body.want_spot = c->rents ? body.want_spot + tm_coord__draining(c, 0) : kept(c, 0);
        body.want_on_demand = c->rents ? body.want_on_demand + tm_coord__draining(c, 1) : kept(c, 1);
    }
    uint64_t list[RELEASES_MAX];
    body.release = list;
    body.n_release = tm_coord__release_list(c, list);
    body.job_state = tm_coord__state(c);
    body.stop = tm_coord__ended(c);
    TM_BODY(message, CLOUD_ORDER, cloud_order, &body);
    tm_outbox_send(out, &cloud->peer, &message);
}

/* Is a price new? */
static bool take_pools(struct tm_coordinator *c, const Tmw__CloudReport *report)
{
    bool new_price = false;
    bool plain = c->options.pools == 0 && report->n_pools == 2;
    c->cloud.spot_wait_ms = plain ? report->pools[0]->wait_ms : 0;
    c->cloud.on_demand_wait_ms = plain ? report->pools[1]->wait_ms : 0;
    for (int i = 0; i < 2; i++)
        c->cloud.starting[i] = plain ? report->pools[i]->starting : 0;
    c->cloud.pools_told = c->options.pools > 0 && report->n_pools >= c->options.pools;
    for (uint32_t i = 0; c->cloud.pools_told && i < c->options.pools; i++) {
        const Tmw__PoolReport *told = report->pools[i];
        struct tm_run_pool *pool = &c->cloud.pools[i];
        new_price = new_price || pool->microusd_h != told->price_microusd_h;
        *pool = (struct tm_run_pool){.microusd_h = told->price_microusd_h,
                                     .offered = told->offered,
                                     .refused = told->refused,
                                     .starting = told->starting,
                                     .wait_ms = told->wait_ms > 0 ? told->wait_ms : 0,
                                     .bill_microusd = told->bill_microusd,
                                     .instance_ms = told->instance_ms};
    }
    return new_price;
}

void tm_coord__on_cloud(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__CloudReport *report = message->cloud_report;
    struct known *cloud = tm_coord__find(c, TM_ROLE_CLOUD, message->from_id);
    if (cloud == NULL || message->from_role != TM_ROLE_CLOUD || report->sequence <= cloud->agent_sequence) return;
    cloud->agent_sequence = report->sequence;
    cloud->heard_ms = now_ms;
    cloud->acked_ms = now_ms;
    bool new_price = report->spot_microusd_h != c->cloud.spot_microusd_h ||
                     report->on_demand_microusd_h != c->cloud.on_demand_microusd_h;
    bool bill_due = !c->cloud.heard || now_ms - c->cloud.billed_ms >= BILL_EVERY_MS;
    struct cloud_seen before = c->cloud;
    c->cloud = (struct cloud_seen){.heard = true,
                                   .heard_ms = now_ms,
                                   .billed_ms = bill_due ? now_ms : c->cloud.billed_ms,
                                   .now_ms = report->now_ms,
                                   .speed = report->speed > 0 ? report->speed : 1,
                                   .spot_microusd_h = report->spot_microusd_h,
                                   .on_demand_microusd_h = report->on_demand_microusd_h,
                                   .spot_offered = report->spot_offered,
                                   .bill_microusd = report->bill_microusd,
                                   .on_demand_bill_microusd = report->on_demand_bill_microusd};
    memcpy(c->cloud.pools, before.pools, sizeof before.pools);
    if (take_pools(c, report) || new_price) tm_coord__record_price(c, out);
    tm_coord__tell_refusals(c, report, out);
    tm_coord__tell_hints(c, report, out);
    tm_coord__tell_zones(c, report, out);
    for (size_t i = 0; i < report->n_instances; i++) {
        take_instance(c, now_ms, report->instances[i], bill_due, out);
        take_notice(c, now_ms, report->instances[i], out);
    }
    end_unnamed(c, now_ms, report, out);
    cloud = tm_coord__find(c, TM_ROLE_CLOUD, message->from_id); /* the table may have moved */
    if (cloud != NULL) send_order(c, cloud, report->sequence, out);
}

/* ---- the bill ---- */

/* The cloud's own sum; before it has spoken to this process, what the record says. It never falls. */
uint64_t tm_coord__bill(const struct tm_coordinator *c, bool on_demand_only)
{
    uint64_t told = on_demand_only ? c->told_on_demand_bill_microusd : c->told_bill_microusd;
    uint64_t cloud = on_demand_only ? c->cloud.on_demand_bill_microusd : c->cloud.bill_microusd;
    uint64_t sum = 0;
    for (size_t i = 0; i < c->instance_count; i++)
        if (!on_demand_only || !c->instances[i].spot) sum += c->instances[i].bill_microusd;
    if (told > sum) sum = told;
    return cloud > sum ? cloud : sum;
}

/* The pool that has most of those who train, and how many regions they are in. */
static uint32_t regions_that_train(const struct tm_coordinator *c, uint32_t *out_largest)
{
    uint32_t counts[TM_RUN_POOLS_MAX] = {0}, regions = 0;
    bool seen[TM_RUN_POOLS_MAX] = {false};
    *out_largest = 0;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const Tmw__Instance *instance = tm_coord__instance_of(c, c->roster.members[i].id);
        if (c->roster.members[i].spare || instance == NULL) continue;
        uint32_t pool = tm_coord__pool(c, instance), region = c->options.pool_region[pool];
        regions += !seen[region];
        seen[region] = true;
        if (++counts[pool] > counts[*out_largest]) *out_largest = pool;
    }
    return regions;
}

/* As a simulation has it: on the bill of the largest pool. */
void tm_coord__traffic_made(struct tm_coordinator *c, uint64_t step)
{
    uint32_t largest = 0;
    uint64_t made = step > c->traffic_step ? step - c->traffic_step : 0;
    c->traffic_step = step;
    if (c->options.pools == 0 || (c->options.region_step_usd <= 0 && c->options.move_usd <= 0)) return;
    uint32_t regions = regions_that_train(c, &largest);
    if (regions == 0) return; /* the cloud has not told of them yet */
    uint32_t home = c->options.pool_region[largest] + 1;
    c->traffic_usd[largest] += (double)made * (regions - 1) * c->options.region_step_usd;
    if (c->home != 0 && home != c->home) c->traffic_usd[largest] += c->options.move_usd;
    c->home = home;
}

uint64_t tm_coord__spent(const struct tm_coordinator *c)
{
    double usd = 0;
    for (uint32_t i = 0; i < c->options.pools; i++)
        usd += c->traffic_usd[i];
    return tm_coord__bill(c, false) + (uint64_t)(usd * 1e6 + 0.5);
}
