#include "job/job_pools.h"

#include "base/alloc.h"
#include "base/log.h"
#include "market/risk.h"
#include "market/trace_draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { INTERVAL_S = 60, HORIZON = 12 };

static const double SHORT_SHARE = 0.9; /* of the longest trace: less is told */

/* Between two regions of a cloud: what AWS asks between most of its own, and what it lets an instance of fewer than 32
 * vCPUs send there. */
static const double REGION_USD_GB = 0.02;
static const double REGION_GBIT_S = 5;
enum { GRADIENT_BYTES = 4 }; /* of a parameter */

/* ---- one pool ---- */

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

static bool same(const char *a, const char *b)
{
    return strcasecmp(text_of(a), text_of(b)) == 0;
}

/* Where a pool is, as far as the job says: its region, else the one that its zone is named after. */
static void region_of(const struct tm_job_pool *pool, char out[64])
{
    if (pool->region != NULL && strcmp(pool->region, "*") != 0)
        (void)snprintf(out, 64, "%s", pool->region);
    else
        tm_risk_region(text_of(pool->zone), out);
}

static bool same_region(const struct tm_job_pool *a, const struct tm_job_pool *b)
{
    char of_a[64], of_b[64];
    region_of(a, of_a);
    region_of(b, of_b);
    return same(of_a, of_b) && same(a->cloud, b->cloud);
}

/* Of the catalogue: in the zone, else in the region, else (`there` false: that is not where the pool is) the cheapest
 * anywhere; NaN: none. */
static double listed_usd_h(const struct tm_catalog *catalog, const struct tm_job_pool *pool, enum tm_pool_market market,
                           bool *out_there)
{
    bool spot = market == TM_POOL_SPOT;
    double best_usd_h = NAN;
    int best = -1;
    char region[64];
    region_of(pool, region);
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        double usd_h = spot ? offer->spot_usd_h : offer->on_demand_usd_h;
        if (isnan(usd_h) || !same(type->name, pool->instance)) continue;
        if (pool->cloud != NULL && !same(type->cloud, pool->cloud)) continue;
        int fit = region[0] != '\0' && same(offer->region, region);
        if (fit == 1 && pool->zone != NULL && same(offer->zone, pool->zone)) fit = 2;
        if (fit < best || (fit == best && usd_h >= best_usd_h)) continue;
        best = fit;
        best_usd_h = usd_h;
    }
    *out_there = region[0] == '\0' || best > 0;
    return best_usd_h;
}

double tm_job_pool__on_demand_usd_h(const struct tm_catalog *catalog, const struct tm_job_pool *pool)
{
    bool there = false;
    return listed_usd_h(catalog, pool, TM_POOL_ON_DEMAND, &there);
}

static bool is_listed(const struct tm_catalog *catalog, const char *type)
{
    for (size_t i = 0; i < catalog->instance_count; i++)
        if (same(catalog->instances[i].name, type)) return true;
    return false;
}

const char *tm_job_pool__name(const struct tm_job_pool *pool, struct tm_arena *arena)
{
    const char *parts[] = {pool->cloud, pool->region, pool->zone};
    const char *name = pool->instance;
    for (size_t i = 0; name != NULL && i < 3; i++)
        if (parts[i] != NULL) name = tm_arena_printf(arena, "%s%s%s", name, i == 0 ? " " : "/", parts[i]);
    return name == NULL ? NULL : tm_arena_printf(arena, "%s%s", name, pool->market == TM_POOL_SPOT ? "" : " on-demand");
}

/* From what is known of preemptions, for want of a trace. */
static int draw_trace(const struct tm_job_fleet *fleet, const struct tm_job_pool *pool, size_t number,
                      struct tm_trace *out, struct tm_error *e)
{
    struct tm_draw_pool drawn[TM_DRAW_POOLS_MAX];
    struct tm_job_pool one = *pool;
    struct tm_job_fleet alone = *fleet;
    one.count = pool->limit > 0 ? pool->limit : pool->count;
    alone.pools = (struct tm_maps){&one, 1};
    struct tm_draw draw = tm_run_draw(&alone, drawn);
    draw.seed += number;
    return tm_trace_draw(&draw, out, e);
}

static int64_t start_ms_of(const struct tm_job_fleet *fleet, const struct tm_job_pool *pool)
{
    if (pool->start_ms >= 0) return pool->start_ms;
    return pool->market == TM_POOL_SPOT ? fleet->spot_start_ms : fleet->on_demand_start_ms;
}

static int add_pool(struct tm_env *env, const struct tm_job *job, size_t number, const struct tm_catalog *catalog,
                    struct tm_arena *arena, struct tm_job_pools *out, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &job->fleet;
    size_t count = 0;
    const struct tm_job_pool *pool = &tm_job_fleet_pools(fleet, &count)[number];
    bool spot = pool->market == TM_POOL_SPOT;
    struct tm_trace *trace = &out->traces[number];
    int rc = 0;
    if (pool->trace != NULL)
        rc = tm_trace_load(env, pool->trace, NULL, trace, e);
    else if (spot)
        rc = draw_trace(fleet, pool, number, trace, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s: fleet.pools[%zu]", job->file, number + 1);
    enum tm_pool_market market = (enum tm_pool_market)pool->market;
    double said_usd_h = (double)pool->usd_h_millionths / 1e6;
    bool there = true;
    double usd_h = pool->usd_h_millionths >= 0 ? said_usd_h : listed_usd_h(catalog, pool, market, &there);
    for (size_t i = 0; (pool->usd_h_millionths >= 0 || pool->trace == NULL) && i < trace->event_count; i++)
        trace->events[i].price_usd_h = NAN; /* what the job says counts, and a trace that was drawn says nothing */
    bool priced = trace->event_count > 0 && !isnan(trace->events[0].price_usd_h);
    if (isnan(usd_h) && !priced && !is_listed(catalog, pool->instance))
        return tm_error_set(
            e, TM_EINPUT,
            "%s: fleet.pools[%zu].instance: the catalogue has no instance type %s; correct it, or write "
            "its price: 0.92",
            job->file, number + 1, pool->instance);
    if (isnan(usd_h) && !priced)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.pools[%zu].price: no %s price of %s is known; write price: 0.92",
                            job->file, number + 1, tm_pool_market_names[pool->market], pool->instance);
    if (!there && !priced)
        tm_log(TM_LOG_WARN,
               "%s: fleet.pools[%zu]: the catalogue has no %s price of %s in that region: it is taken to cost $%.4g an "
               "hour, the cheapest elsewhere; write price: if you know better",
               job->file, number + 1, tm_pool_market_names[pool->market], pool->instance, usd_h);
    int64_t most = pool->limit > 0 ? pool->limit : pool->count > 0 ? pool->count : trace->instances_max;
    out->types[number] = pool->instance;
    out->list[number] =
        (struct tm_sim_pool){.name = tm_job_pool__name(pool, arena),
                             .market = (enum tm_pool_market)pool->market,
                             .trace = spot ? trace : NULL,
                             .from_ms = trace->begin_ms + pool->from_ms + fleet->from_ms,
                             .limit = (int)most,
                             .price_usd_h = usd_h,
                             .start_s = (double)start_ms_of(fleet, pool) / 1000,
                             .notice_s = (double)(pool->notice_ms >= 0 ? pool->notice_ms : fleet->notice_ms) / 1000,
                             .speed = pool->throughput > 0 ? pool->throughput : 1};
    if (out->list[number].name == NULL) return tm_error_nomem(e);
    if (spot && out->list[number].from_ms >= trace->end_ms)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.pools[%zu]%s: its trace ends at %.2f h; begin before", job->file,
                            number + 1, fleet->from_ms == 0 ? ".from" : ", fleet.from", (double)trace->end_ms / 3.6e6);
    return 0;
}

/* ---- all of them ---- */

/* Partitions without a word about what their nodes are have the same ones. */
static bool same_type(const struct tm_job_pool *a, const struct tm_job_pool *b)
{
    bool unsaid = a->partition != NULL && b->partition != NULL && same(a->instance, a->partition) &&
                  same(b->instance, b->partition);
    return unsaid || same(a->instance, b->instance);
}

int tm_job_pools__region(const struct tm_job_fleet *fleet, size_t number)
{
    size_t count = 0, first = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    while (!same_region(&pools[first], &pools[number]))
        first++;
    return (int)first;
}

/* Workers that train together are, unless the job says otherwise, of one type and in one region. */
static void make_groups(const struct tm_job_fleet *fleet, int groups[TM_POOLS_MAX])
{
    size_t count = 0;
    int made = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++) {
        groups[i] = 0; /* keepers' say nothing */
        if (pools[i].role != TM_POOL_TRAINS) continue;
        groups[i] = -1;
        for (size_t k = 0; k < i && groups[i] < 0; k++) {
            bool near = fleet->across_regions || same_region(&pools[i], &pools[k]);
            if (near && (fleet->across_types || same_type(&pools[i], &pools[k]))) groups[i] = groups[k];
        }
        if (groups[i] < 0) groups[i] = made++;
    }
}

double tm_job_pools__join_s(const struct tm_job_fleet *fleet, const struct tm_cost *cost)
{
    return fmax(0, cost->measured.join_s - (double)fleet->spot_start_ms / 1000);
}

void tm_job_pools__rule(const struct tm_job_fleet *fleet, const struct tm_run_work *work, double join_s,
                        struct tm_policy_rule *out)
{
    size_t count = 0;
    int groups[TM_POOLS_MAX];
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    out->pool_count = (int)tm_job_fleet_trainers(fleet);
    out->keeper_count = (int)count - out->pool_count;
    out->move_usd = tm_job_pools__egress_usd(fleet, tm_run_work__state_bytes(work));
    out->far = tm_job_pools__far(fleet, tm_run_work__gradient_bytes(work), (double)work->batch);
    out->rent = (enum tm_fleet_rent)fleet->rent;
    make_groups(fleet, groups);
    for (size_t i = 0; i < count; i++)
        out->pools[i] = (struct tm_rule_pool){.market = (enum tm_pool_market)pools[i].market,
                                              .group = groups[i],
                                              .region = tm_job_pools__region(fleet, i),
                                              .limit = (int)(pools[i].limit > 0 ? pools[i].limit : pools[i].count),
                                              .start_s = (double)start_ms_of(fleet, &pools[i]) / 1000 + join_s,
                                              .wait_s = (double)start_ms_of(fleet, &pools[i]) / 1000,
                                              .free = pools[i].usd_h_millionths == 0,
                                              .speed = pools[i].throughput > 0 ? pools[i].throughput : 1};
}

void tm_job_pools__describe(const struct tm_job_pools *pools, const struct tm_job_fleet *fleet, int number,
                            struct tm_cloud_pool *out)
{
    size_t count = 0;
    const struct tm_job_pool *pool = &tm_job_fleet_pools(fleet, &count)[number];
    const struct tm_sim_pool *known = &pools->list[number];
    *out = (struct tm_cloud_pool){.kind = known->market == TM_POOL_SPOT ? TM_INSTANCE_SPOT : TM_INSTANCE_ON_DEMAND,
                                  .limit = known->limit,
                                  .price_usd_h = known->price_usd_h,
                                  .start_ms = start_ms_of(fleet, pool),
                                  .notice_ms = (int64_t)(known->notice_s * 1000)};
    const char *zone = pool->zone != NULL ? pool->zone : pool->region != NULL ? pool->region : "";
    (void)snprintf(out->name, sizeof out->name, "%s", known->name);
    (void)snprintf(out->type, sizeof out->type, "%s", pool->instance);
    (void)snprintf(out->zone, sizeof out->zone, "%s", zone);
}

/* When a pool's trace was recorded, in ms; false: nobody says, or it has none. */
static bool recorded_ms(const struct tm_job_pool *pool, const struct tm_trace *trace, int64_t *out_zero_ms)
{
    *out_zero_ms = trace->has_start ? trace->start_utc_ms : 0;
    return pool->trace != NULL && trace->has_start;
}

/* Traces of one time begin together, at the first record of the last of them: what the others say before it is history.
 * So it is by the clock where all tell their date, and by their own zeros where none does; whoever writes `from` has
 * lined them up himself. Of different times each begins at its own. */
static void line_up(const struct tm_job *job, struct tm_job_pools *out, size_t count)
{
    size_t all = 0, with = 0, dated = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(&job->fleet, &all);
    int64_t latest_ms = INT64_MIN, zero_ms = 0;
    for (size_t i = 0; i < count; i++) {
        if (pools[i].trace == NULL || out->list[i].trace == NULL) continue;
        if (pools[i].from_ms > 0) return;
        with++;
        dated += recorded_ms(&pools[i], &out->traces[i], &zero_ms);
        int64_t begin_ms = zero_ms + out->traces[i].begin_ms;
        if (begin_ms > latest_ms) latest_ms = begin_ms;
    }
    if (with < 2 || (dated != 0 && dated != with)) return;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++) {
            if (pools[i].trace == NULL || out->list[i].trace == NULL) continue;
            (void)recorded_ms(&pools[i], &out->traces[i], &zero_ms);
            int64_t from_ms = latest_ms - zero_ms + job->fleet.from_ms;
            if (pass == 1) out->list[i].from_ms = from_ms;
            if (from_ms < out->traces[i].end_ms) continue;
            tm_log(TM_LOG_WARN,
                   "%s: the traces of fleet.pools are not of one time: each begins at its own first record", job->file);
            return;
        }
}

/* Of pools that the shortest trace cuts short; a format that lists events ends with the last of them. */
static void tell_short(const struct tm_job *job, const struct tm_job_pools *out)
{
    int64_t longest_ms = 0;
    for (int i = 0; i < out->pools.count; i++) {
        const struct tm_sim_pool *pool = &out->list[i];
        if (pool->trace != NULL && pool->trace->end_ms - pool->from_ms > longest_ms)
            longest_ms = pool->trace->end_ms - pool->from_ms;
    }
    if ((double)out->times.end_ms >= SHORT_SHARE * (double)longest_ms) return;
    for (int i = 0; i < out->pools.count; i++) {
        const struct tm_sim_pool *pool = &out->list[i];
        if (pool->trace == NULL || pool->trace->end_ms - pool->from_ms > out->times.end_ms) continue;
        tm_log(TM_LOG_WARN, "%s: nothing is known of pool %s after %.2f h: no more is simulated, of %.2f h of another",
               job->file, pool->name, (double)out->times.end_ms / 3.6e6, (double)longest_ms / 3.6e6);
        return;
    }
}

/* As many as the job says; else all that one group has. */
static int find_wanted(const struct tm_job *job, struct tm_job_pools *pools, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &job->fleet;
    int64_t most = 0, sums[TM_POOLS_MAX] = {0};
    for (int i = 0; i < pools->pools.count; i++) {
        int64_t *sum = &sums[pools->list[i].group];
        if (pools->list[i].market == TM_POOL_SPOT) *sum += pools->list[i].limit;
        if (*sum > most) most = *sum;
    }
    int64_t asked = fleet->limit > 0 ? fleet->limit : most;
    if (asked > TM_LAYOUT_INSTANCES_MAX)
        return tm_job_wrong(
            job, "fleet.limit", e,
            "expected at most %d instances, got %lld (where it is not written: all that the pools have)",
            TM_LAYOUT_INSTANCES_MAX, (long long)asked);
    pools->wanted = (int)asked;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* When a trace changes, and when a loss of it is announced; up to the end of the shortest. */
static int list_times(struct tm_job_pools *out, struct tm_error *e)
{
    int64_t end_ms = INT64_MAX;
    size_t most = 0, count = 0;
    for (int i = 0; i < out->pools.count; i++) {
        const struct tm_sim_pool *pool = &out->list[i];
        if (pool->trace == NULL) continue;
        int64_t left_ms = pool->trace->end_ms - pool->from_ms;
        if (left_ms < end_ms) end_ms = left_ms;
        most += 2 * pool->trace->event_count;
    }
    int64_t *times = tm_alloc((most + 1) * sizeof *times);
    if (times == NULL) return tm_error_nomem(e);
    for (int i = 0; i < out->pools.count; i++) {
        const struct tm_sim_pool *pool = &out->list[i];
        for (size_t k = 0; pool->trace != NULL && k < pool->trace->event_count; k++) {
            const struct tm_trace_event *event = &pool->trace->events[k];
            int64_t at_ms = event->time_ms - pool->from_ms, told_ms = at_ms - (int64_t)(pool->notice_s * 1000);
            if (at_ms > 0 && at_ms < end_ms) times[count++] = at_ms;
            if (event->out > 0 && told_ms > 0 && told_ms < end_ms) times[count++] = told_ms;
        }
    }
    qsort(times, count, sizeof *times, by_time);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = tm_trace_add(&out->times, times[i], 0, 0, NAN, e);
    tm_free(times);
    out->times.begin_ms = 0;
    out->times.end_ms = end_ms;
    return rc;
}

int tm_job_pools__init(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_job_pools *out,
                       struct tm_error *e)
{
    struct tm_catalog catalog;
    size_t count = 0;
    (void)tm_job_fleet_pools(&job->fleet, &count);
    memset(out, 0, sizeof *out);
    tm_trace_init(&out->times);
    for (size_t i = 0; i < TM_POOLS_MAX; i++)
        tm_trace_init(&out->traces[i]);
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(env, &catalog, e);
    for (size_t i = 0; rc == 0 && i < count; i++) /* at most TM_FLEET_POOLS_MAX: checked */
        rc = add_pool(env, job, i, &catalog, arena, out, e);
    tm_catalog_deinit(&catalog);
    if (rc != 0) return rc;
    size_t trains = tm_job_fleet_trainers(&job->fleet);
    out->pools = (struct tm_sim_pools){.list = out->list, .count = (int)trains, .keeper_count = (int)(count - trains)};
    int groups[TM_POOLS_MAX];
    make_groups(&job->fleet, groups);
    for (size_t i = 0; i < count; i++) {
        out->list[i].group = groups[i];
        out->list[i].region = tm_job_pools__region(&job->fleet, i);
    }
    rc = find_wanted(job, out, e);
    if (rc != 0) return rc;
    bool spot = false;
    for (size_t i = 0; i < trains; i++)
        spot = spot || out->list[i].market == TM_POOL_SPOT;
    if (!spot)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.pools: none is spot; there is nothing to choose", job->file);
    line_up(job, out, trains);
    rc = list_times(out, e);
    if (rc == 0) tell_short(job, out);
    return rc;
}

int tm_job_pools__copy(const struct tm_job_pools *pools, struct tm_job_pools *out, struct tm_error *e)
{
    *out = *pools;
    tm_trace_init(&out->times);
    for (size_t i = 0; i < TM_POOLS_MAX; i++)
        tm_trace_init(&out->traces[i]);
    out->pools.list = out->list;
    int rc = tm_trace_copy(&pools->times, &out->times, e);
    for (int i = 0; rc == 0 && i < tm_job_pools__all(pools); i++) {
        if (pools->list[i].trace == NULL) continue;
        rc = tm_trace_copy(&pools->traces[i], &out->traces[i], e);
        out->list[i].trace = &out->traces[i];
    }
    return rc;
}

int tm_job_pools__count_workers(struct tm_job_pools *pools, int each, struct tm_error *e)
{
    int rc = 0;
    if (each <= 1) return 0;
    for (int i = 0; rc == 0 && i < tm_job_pools__all(pools); i++) {
        pools->list[i].limit *= each;
        pools->list[i].price_usd_h /= each;
        rc = tm_trace_multiply(&pools->traces[i], each, e);
    }
    pools->pools.workers_each = each;
    return rc;
}

static bool has_regions(const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 1; i < count; i++)
        if (!same_region(&pools[i], &pools[0])) return true;
    return false;
}

static double region_usd(const struct tm_job_fleet *fleet, double bytes)
{
    int64_t said = fleet->region_usd_gb_millionths;
    return bytes / 1e9 * (said >= 0 ? (double)said / 1e6 : REGION_USD_GB);
}

double tm_job_pools__egress_usd(const struct tm_job_fleet *fleet, double state_bytes)
{
    return has_regions(fleet) ? region_usd(fleet, state_bytes) : 0;
}

/* Each region beyond the first sends its sum, and gets that of all, once a step. */
struct tm_far tm_job_pools__far(const struct tm_job_fleet *fleet, double gradient_bytes, double batch)
{
    double gbit_s = fleet->region_gbit_s > 0 ? fleet->region_gbit_s : REGION_GBIT_S;
    if (!fleet->across_regions || !has_regions(fleet) || batch <= 0) return (struct tm_far){0};
    return (struct tm_far){.sample_s = 2 * gradient_bytes * 8 / (gbit_s * 1e9) / batch,
                           .sample_usd = region_usd(fleet, 2 * gradient_bytes) / batch};
}

double tm_run_work__state_bytes(const struct tm_run_work *work)
{
    double bytes = 0;
    for (uint32_t i = 0; i < work->layers; i++)
        bytes += work->layer_params[i] * work->state_bytes_param;
    return bytes;
}

double tm_run_work__gradient_bytes(const struct tm_run_work *work)
{
    double params = 0;
    for (uint32_t i = 0; i < work->layers; i++)
        params += work->layer_params[i];
    return params * GRADIENT_BYTES;
}

struct tm_sim_options tm_job_pools__sim_options(const struct tm_run_settings *settings,
                                                const struct tm_job_pools *pools, double samples)
{
    const struct tm_job *job = &settings->job;
    int64_t end_ms = pools->times.end_ms;
    int64_t to_ms = job->fleet.to_ms > 0 ? job->fleet.to_ms - job->fleet.from_ms : end_ms; /* it begins at `from` */
    return (struct tm_sim_options){.to_ms = to_ms < end_ms ? to_ms : end_ms,
                                   .interval_s = INTERVAL_S,
                                   .horizon = HORIZON,
                                   .notice_s = (double)job->fleet.notice_ms / 1000,
                                   .seed = (uint64_t)job->fleet.seed,
                                   .spot_usd_h = NAN,
                                   .on_demand_usd_h = NAN,
                                   .samples_total = samples,
                                   .deadline_s = (double)job->deadline_ms / 1000,
                                   .budget_usd = (double)job->budget_usd_millionths / 1e6,
                                   .workers_min = (int)(pools->pools.workers_each > 1
                                                            ? job->fleet.workers_min
                                                            : tm_job_fleet_by_instance(&job->fleet).workers_min),
                                   .workers_each = pools->pools.workers_each,
                                   .rent = (enum tm_fleet_rent)job->fleet.rent,
                                   .live = true,
                                   .pools = &pools->pools};
}

void tm_job_pools__deinit(struct tm_job_pools *pools)
{
    for (size_t i = 0; i < TM_POOLS_MAX; i++)
        tm_trace_deinit(&pools->traces[i]);
    tm_trace_deinit(&pools->times);
}
