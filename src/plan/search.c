#include "plan/search.h"

#include "base/alloc.h"
#include "plan/mix.h"
#include "plan/search_internal.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum { OTHER_PROGRAMS = 12 }; /* of the planner that is shown beside: enough for mixes, its bound is not shown */

static const double COPY_SHARE = 0.25; /* of an interval in which a copy set must have reached the anchors */
static const double COPY_SETS = 2;     /* the old set stays until the new one is whole */

/* ---- fleets ---- */

int tm_plan_spot_instances(const struct tm_plan_fleet *fleet)
{
    int instances = 0;
    for (size_t i = 0; i < fleet->part_count; i++)
        instances += fleet->parts[i].spot;
    return instances;
}

int tm_plan_on_demand_instances(const struct tm_plan_fleet *fleet)
{
    int instances = 0;
    for (size_t i = 0; i < fleet->part_count; i++)
        instances += fleet->parts[i].on_demand;
    return instances;
}

double tm_plan_usd_h(const struct tm_plan_fleet *fleet)
{
    double usd_h = 0;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        if (part->spot > 0) usd_h += part->spot * part->offer->spot_usd_h;
        if (part->on_demand > 0) usd_h += part->on_demand * part->offer->on_demand_usd_h;
    }
    if (fleet->anchor_instances > 0) usd_h += fleet->anchor_instances * fleet->anchor.offer->on_demand_usd_h;
    return usd_h;
}

/* ---- quotas ---- */

/* "p" and "p3" of p3.2xlarge, "a2" of a2-highgpu-1g, "NC" of Standard_NC24ads_A100_v4. */
static bool is_family(const char *name, size_t length, const struct tm_instance_type *instance)
{
    const char *type = instance->name;
    if (strncasecmp(type, "Standard_", 9) == 0) type += 9;
    size_t series = strcspn(type, ".-_");
    size_t letters = 0;
    while (isalpha((unsigned char)type[letters]))
        letters++;
    return (length == series || length == letters) && length > 0 && strncasecmp(name, type, length) == 0;
}

static bool is_name(const char *name, size_t length, const char *text)
{
    return strlen(text) == length && strncasecmp(name, text, length) == 0;
}

static bool covers(const char *name, size_t length, const struct tm_instance_type *instance,
                   const struct tm_offer *offer)
{
    return is_name(name, length, instance->name) || is_name(name, length, instance->gpu) ||
           is_name(name, length, offer->zone) || is_name(name, length, offer->region) ||
           is_name(name, length, instance->cloud) || is_family(name, length, instance);
}

bool tm_plan__quota_covers(const struct tm_plan_quota *quota, const struct tm_instance_type *instance,
                           const struct tm_offer *offer)
{
    const char *at = quota->name;
    for (;;) { /* every part of "us-east-1/p" */
        size_t length = strcspn(at, "/");
        if (!covers(at, length, instance, offer)) return false;
        if (at[length] == '\0') return true;
        at += length + 1;
    }
}

double tm_plan__quota_counts(const struct tm_plan_quota *quota, const struct tm_instance_type *instance,
                             const struct tm_offer *offer)
{
    if (!tm_plan__quota_covers(quota, instance, offer)) return 0;
    return quota->vcpus && instance->vcpus > 0 ? instance->vcpus : 1;
}

/* The least number of instances that quotas allow of a pool on the markets; request's max_instances where none does. */
static int quota_of(const struct tm_search *search, const struct tm_plan_pool *pool, int markets)
{
    const struct tm_plan_request *request = search->request;
    const struct tm_instance_type *instance = search->supply->types[pool->type].instance;
    int least = request->max_instances;
    for (size_t i = 0; i < request->quota_count; i++) {
        const struct tm_plan_quota *quota = &request->quotas[i];
        double each = tm_plan__quota_counts(quota, instance, pool->offer);
        if ((quota->markets & markets) == markets && each > 0 && quota->limit / each < least)
            least = (int)(quota->limit / each);
    }
    return least;
}

bool tm_search__within_quotas(const struct tm_search *search, const struct tm_plan_fleet *fleet)
{
    const struct tm_plan_request *request = search->request;
    for (size_t i = 0; i < request->quota_count; i++) {
        const struct tm_plan_quota *quota = &request->quotas[i];
        double counted = 0;
        for (size_t k = 0; k < fleet->part_count; k++) {
            const struct tm_plan_part *part = &fleet->parts[k];
            double each = tm_plan__quota_counts(quota, part->instance, part->offer);
            counted += (quota->markets & TM_MIX_SPOT) != 0 ? each * part->spot : 0;
            counted += (quota->markets & TM_MIX_ON_DEMAND) != 0 ? each * part->on_demand : 0;
        }
        if (counted > quota->limit) return false;
    }
    return true;
}

/* ---- anchors ---- */

double tm_search__anchor_bit_s(const struct tm_plan_request *request, double interval_s)
{
    return request->state_bytes * 8 / (COPY_SHARE * interval_s);
}

double tm_search__anchor_gib(const struct tm_plan_request *request)
{
    return COPY_SETS * request->state_bytes / (1 << 30);
}

static int ceil_ratio(double needed, double each)
{
    return needed > 0 ? (int)fmin(ceil(needed / each - 1e-9), 1 << 20) : 0;
}

static int anchors_needed(double bit_s, double gib, const struct tm_instance_type *kind)
{
    int by_network = ceil_ratio(bit_s, kind->network_gbps * 1e9);
    int by_memory = ceil_ratio(gib, kind->memory_gib);
    return by_network > by_memory ? by_network : by_memory;
}

/* Rents what on-demand instances of the fleet cannot hold themselves. Returns how many instances hold copies. */
static int find_anchors(const struct tm_plan_request *request, const struct tm_plan_region *region, double interval_s,
                        struct tm_plan_fleet *fleet)
{
    fleet->anchor_instances = 0;
    fleet->anchor.instance = NULL;
    if (request->anchors_said > 0 && region->anchor_count > 0) {
        fleet->anchor = region->anchors[0];
        fleet->anchor_instances = request->anchors_said;
        return request->anchors_said;
    }
    if (!(request->state_bytes > 0) || request->market != TM_PLAN_MIXED || tm_plan_spot_instances(fleet) == 0) return 0;
    double bit_s = tm_search__anchor_bit_s(request, interval_s);
    double gib = tm_search__anchor_gib(request);
    int holding = 0;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        for (int k = 0; k < part->on_demand && (bit_s > 0 || gib > 0); k++) {
            bit_s -= part->instance->network_gbps * 1e9;
            gib -= isnan(part->instance->memory_gib) ? 0 : part->instance->memory_gib;
            holding++;
        }
    }
    double best_usd_h = INFINITY;
    for (size_t i = 0; (bit_s > 0 || gib > 0) && i < region->anchor_count; i++) {
        int instances = anchors_needed(bit_s, gib, region->anchors[i].instance);
        double usd_h = instances * region->anchors[i].offer->on_demand_usd_h;
        if (usd_h >= best_usd_h) continue;
        best_usd_h = usd_h;
        fleet->anchor = region->anchors[i];
        fleet->anchor_instances = instances;
    }
    return holding + fleet->anchor_instances;
}

/* ---- weighing one fleet ---- */

double tm_plan_p_budget(const struct tm_expectation *expectation, double budget_usd)
{
    if (!isfinite(budget_usd)) return 1;
    if (!isnan(expectation->p_budget)) return expectation->p_budget;
    if (!expectation->finishes) return 0;
    return tm_expect__chance(expectation->cost_usd.mean, tm_estimate_spread(&expectation->cost_usd), budget_usd);
}

/* The expectation of a fleet; finds its anchors. */
static struct tm_expectation weigh(const struct tm_supply_request *supply, const struct tm_plan_request *request,
                                   const struct tm_plan_region *region, const struct tm_estimate *samples_per_s,
                                   bool losses, struct tm_plan_fleet *fleet, int *out_anchors)
{
    struct tm_expect_fleet expect = {.samples_per_s = *samples_per_s};
    int instances = tm_plan_spot_instances(fleet) + tm_plan_on_demand_instances(fleet);
    for (size_t i = 0; losses && i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        if (part->spot == 0) continue;
        struct tm_expect_job job =
            tm_plan__job_on(&request->job, tm_plan__trace_of(supply->traces, part->instance, part->offer));
        tm_expect__add_pool(&job, instances, part->spot, tm_supply__loss_rate(supply, part->offer), &expect.losses);
    }
    double events = expect.losses.single + expect.losses.burst;
    double interval_s = events > 0 ? sqrt(2 * request->job.checkpoint_s / events) : INFINITY;
    *out_anchors = losses || request->anchors_said > 0 ? find_anchors(request, region, interval_s, fleet) : 0;
    expect.usd_h = tm_plan_usd_h(fleet);
    return tm__expect(&request->job, &expect);
}

static double value_of(const struct tm_search *search, const struct tm_expectation *expectation)
{
    return search->request->objective == TM_PLAN_CHEAPEST ? expectation->cost_usd.mean : expectation->time_s.mean;
}

double tm_search__best(const struct tm_search *search)
{
    if (search->out->count == 0) return INFINITY;
    return value_of(search, &search->out->answers[0].expectation);
}

/* Srift takes its prediction at its word: on time is on time. */
static bool meets_deadline(const struct tm_search *search, const struct tm_expectation *expectation)
{
    const struct tm_plan_request *request = search->request;
    if (isinf(request->job.deadline_s)) return true;
    if (!search->losses) return expectation->time_s.mean <= request->job.deadline_s;
    return expectation->p_deadline >= request->min_probability;
}

/* Is it better in value, or as good for less money or in less time? */
static bool is_better(const struct tm_search *search, const struct tm_expectation *a, const struct tm_expectation *b)
{
    double x = value_of(search, a);
    double y = value_of(search, b);
    if (fabs(x - y) > 1e-9 * y) return x < y;
    return a->cost_usd.mean + a->time_s.mean * 1e-9 < b->cost_usd.mean + b->time_s.mean * 1e-9;
}

bool tm_search__same_types(const struct tm_plan_fleet *a, const struct tm_plan_fleet *b)
{
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < a->part_count; i++) {
            bool found = false;
            for (size_t k = 0; k < b->part_count; k++)
                found = found || a->parts[i].instance == b->parts[k].instance;
            if (!found) return false;
        }
        const struct tm_plan_fleet *swap = a;
        a = b;
        b = swap;
    }
    return true;
}

/* Keeps the best fleet of each set of types, best first. */
static void keep(struct tm_search *search, const struct tm_plan_fleet *fleet, const struct tm_expectation *believed,
                 int anchors)
{
    struct tm_plan_result *out = search->out;
    size_t top = search->request->top;
    size_t at = 0;
    while (at < out->count && !tm_search__same_types(&out->answers[at].fleet, fleet))
        at++;
    if (at < out->count) {
        if (!is_better(search, believed, &out->answers[at].expectation)) return;
        memmove(&out->answers[at], &out->answers[at + 1], (out->count - at - 1) * sizeof *out->answers);
        out->count--;
    }
    at = out->count;
    while (at > 0 && is_better(search, believed, &out->answers[at - 1].expectation))
        at--;
    if (at >= top) return;
    size_t moved = out->count - at;
    if (out->count == top) moved--;
    memmove(&out->answers[at + 1], &out->answers[at], moved * sizeof *out->answers);
    if (out->count < top) out->count++;
    out->answers[at].fleet = *fleet;
    out->answers[at].expectation = *believed;
    out->answers[at].anchors = anchors;
}

/* Where one constraint alone stands in the way: what it would have to be. */
static void note_miss(struct tm_search *search, const struct tm_expectation *believed, bool on_time, bool affordable,
                      bool within_hourly)
{
    struct tm_plan_result *out = search->out;
    double needed_s = search->losses ? believed->sure_s : believed->time_s.mean;
    if (affordable && within_hourly) out->deadline_needed_s = fmin(out->deadline_needed_s, needed_s);
    if (on_time && within_hourly) out->budget_needed_usd = fmin(out->budget_needed_usd, believed->cost_usd.mean);
    if (on_time && affordable) out->usd_h_needed = fmin(out->usd_h_needed, believed->usd_h);
}

void tm_search__consider(struct tm_search *search, const struct tm_plan_region *region, struct tm_plan_fleet *fleet,
                         const struct tm_plan_rate *rate)
{
    const struct tm_plan_request *request = search->request;
    struct tm_estimate samples_per_s = tm_estimate_around(rate->samples_per_s, rate->spread);
    int anchors = 0;
    search->out->fleets++;
    struct tm_expectation believed =
        weigh(&request->supply, request, region, &samples_per_s, search->losses, fleet, &anchors);
    if (!believed.finishes) return;
    bool within_hourly = believed.usd_h <= request->max_usd_h;
    bool on_time = meets_deadline(search, &believed);
    bool affordable = believed.cost_usd.mean <= request->budget_usd;
    if (on_time && affordable && within_hourly)
        keep(search, fleet, &believed, anchors);
    else
        note_miss(search, &believed, on_time, affordable, within_hourly);
}

/* ---- fleets of one type ---- */

/* The pools of one type in one region. */
struct choice {
    const struct tm_plan_region *region;
    const struct tm_plan_type *type;
    const struct tm_plan_pool *pools;
    size_t count;
    size_t zones;                         /* with a spot price: the first ones */
    const struct tm_plan_pool *on_demand; /* NULL: none */
    int spot_max;
    int on_demand_max;
    int max;
};

static struct choice choice_of(const struct tm_search *search, const struct tm_plan_region *region,
                               const struct tm_plan_pool *pools, size_t count)
{
    struct choice choice = {.region = region,
                            .type = &search->supply->types[pools[0].type],
                            .pools = pools,
                            .count = count,
                            .spot_max = quota_of(search, &pools[0], TM_MIX_SPOT),
                            .on_demand_max = quota_of(search, &pools[0], TM_MIX_ON_DEMAND),
                            .max = quota_of(search, &pools[0], TM_MIX_SPOT | TM_MIX_ON_DEMAND)};
    for (size_t i = 0; i < count; i++) {
        if (!isnan(pools[i].spot_usd_h)) choice.zones = i + 1;
        if (!isnan(pools[i].on_demand_usd_h)) choice.on_demand = &pools[i];
    }
    return choice;
}

/* `on_demand` of `instances` on demand, the rest on spot over the cheapest `zones`. */
static void consider_split(struct tm_search *search, const struct choice *choice, const struct tm_plan_rate *rate,
                           int on_demand, size_t zones)
{
    struct tm_plan_fleet fleet = {.part_count = 0};
    int spot = rate->instances - on_demand;
    for (size_t i = 0; i < choice->count; i++) {
        const struct tm_plan_pool *pool = &choice->pools[i];
        int here = 0;
        if (spot > 0 && i < zones) here = spot / (int)zones + (i < (size_t)(spot % (int)zones));
        int bought = pool == choice->on_demand ? on_demand : 0;
        if (here + bought == 0) continue;
        fleet.parts[fleet.part_count++] = (struct tm_plan_part){choice->type->instance, pool->offer, here, bought};
    }
    if (search->request->quota_count > 0 && !tm_search__within_quotas(search, &fleet)) return;
    tm_search__consider(search, choice->region, &fleet, rate);
}

/* Every share of on-demand instances (in sixteenths of large fleets), and every spread over zones where that can make a
 * deadline surer. */
static void consider_shares(struct tm_search *search, const struct choice *choice, const struct tm_plan_rate *rate)
{
    const struct tm_plan_request *request = search->request;
    int instances = rate->instances;
    int before = -1;
    int steps = instances < 16 ? instances : 16;
    bool spread = search->losses && request->job.burst_share > 0 && isfinite(request->job.deadline_s);
    for (int i = 0; i <= steps; i++) {
        int on_demand = (instances * i + steps - 1) / steps;
        int spot = instances - on_demand;
        bool mixed = on_demand > 0 && spot > 0;
        if (on_demand == before || on_demand > choice->on_demand_max || spot > choice->spot_max) continue;
        if ((on_demand > 0 && choice->on_demand == NULL) || (spot > 0 && choice->zones == 0)) continue;
        if (mixed && (!search->losses || request->market != TM_PLAN_MIXED)) continue;
        before = on_demand;
        size_t most = spread && spot > 1 ? choice->zones : 1;
        for (size_t zones = 1; zones <= most && (zones == 1 || (int)zones <= spot); zones++)
            consider_split(search, choice, rate, on_demand, zones);
    }
}

/* What a fleet of this type must beat. */
static double value_to_beat(const struct tm_search *search, const struct tm_plan_type *type)
{
    const struct tm_plan_result *out = search->out;
    for (size_t i = 0; i < out->count; i++) {
        const struct tm_plan_fleet *fleet = &out->answers[i].fleet;
        bool alone = true;
        for (size_t k = 0; k < fleet->part_count; k++)
            alone = alone && fleet->parts[k].instance == type->instance;
        if (alone) return value_of(search, &out->answers[i].expectation);
    }
    if (out->count < search->request->top) return INFINITY;
    return value_of(search, &out->answers[out->count - 1].expectation);
}

static void search_type(struct tm_search *search, const struct choice *choice)
{
    const struct tm_plan_request *request = search->request;
    double cheapest_usd_h = choice->zones > 0 ? choice->pools[0].spot_usd_h : INFINITY;
    if (choice->on_demand != NULL) cheapest_usd_h = fmin(cheapest_usd_h, choice->on_demand->on_demand_usd_h);
    double to_beat = value_to_beat(search, choice->type);
    for (size_t i = 0; i < choice->type->rate_count; i++) {
        const struct tm_plan_rate *rate = &choice->type->rates[i];
        if (rate->instances > request->max_instances || rate->instances > choice->max) return;
        double least_s = request->job.startup_s + request->job.samples / rate->samples_per_s;
        double least =
            request->objective == TM_PLAN_CHEAPEST ? least_s / 3600 * cheapest_usd_h * rate->instances : least_s;
        if (least > to_beat) continue;
        consider_shares(search, choice, rate);
        to_beat = value_to_beat(search, choice->type);
    }
}

static void search_types(struct tm_search *search)
{
    const struct tm_supply *supply = search->supply;
    for (size_t r = 0; r < supply->region_count; r++) {
        const struct tm_plan_region *region = &supply->regions[r];
        const struct tm_plan_pool *pools = &supply->pools[region->first];
        for (size_t i = 0; i < region->count;) {
            size_t end = i + 1;
            while (end < region->count && pools[end].type == pools[i].type)
                end++;
            struct choice choice = choice_of(search, region, &pools[i], end - i);
            search_type(search, &choice);
            i = end;
        }
    }
}

/* ---- judging ---- */

static const struct tm_plan_region *region_of(const struct tm_supply *supply, const struct tm_plan_fleet *fleet)
{
    for (size_t r = 0; r < supply->region_count; r++) {
        const struct tm_plan_region *region = &supply->regions[r];
        if (region->region == fleet->parts[0].offer->region && region->cloud == fleet->parts[0].instance->cloud)
            return region;
    }
    return NULL;
}

static const struct tm_plan_type *type_of(const struct tm_supply *supply, const struct tm_instance_type *instance)
{
    for (size_t i = 0; i < supply->type_count; i++) {
        if (supply->types[i].instance == instance) return &supply->types[i];
    }
    return NULL;
}

static int predict_fleet(const struct tm_supply *supply, const struct tm_supply_request *request,
                         const struct tm_plan_fleet *fleet, struct tm_prediction *out, struct tm_error *e)
{
    const struct tm_plan_type *types[TM_FLEET_GROUPS_MAX];
    struct tm_fleet_group groups[TM_FLEET_GROUPS_MAX];
    int instances[TM_FLEET_GROUPS_MAX] = {0};
    size_t count = 0;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        size_t at = 0;
        while (at < count && types[at]->instance != part->instance)
            at++;
        if (at == count) types[count++] = type_of(supply, part->instance);
        instances[at] += part->spot + part->on_demand;
    }
    struct tm_predict_request predict = tm_supply_predict_request(request, types, instances, count, groups);
    int rc = tm_predict(&predict, out, e);
    if (rc == 0 && types[0]->slowdown != 1) tm_prediction_slow(out, types[0]->slowdown);
    return rc;
}

bool tm_search__predict(const struct tm_search *search, const struct tm_plan_fleet *fleet,
                        struct tm_prediction *prediction, struct tm_error *e, int *out_rc)
{
    int rc = predict_fleet(search->supply, &search->request->supply, fleet, prediction, e);
    *out_rc = rc == -(int)TM_ENONE || rc == -(int)TM_EINPUT ? 0 : rc;
    return rc == 0;
}

int tm_plan_judge(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_answer *answer,
                  struct tm_error *e)
{
    int rc = predict_fleet(supply, &request->supply, &answer->fleet, &answer->prediction, e);
    if (rc != 0) return rc;
    return tm_plan__weigh(supply, request, answer, e);
}

int tm_plan__weigh(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_answer *answer,
                   struct tm_error *e)
{
    const struct tm_plan_region *region = region_of(supply, &answer->fleet);
    if (region == NULL) return tm_error_set(e, TM_EINPUT, "the fleet is not in any region that may be used");
    double spread = tm_estimate_spread(&answer->prediction.step_s);
    struct tm_estimate samples_per_s = tm_estimate_around(answer->prediction.samples_per_s, spread);
    answer->expectation =
        weigh(&request->supply, request, region, &samples_per_s, true, &answer->fleet, &answer->anchors);
    return 0;
}

/* ---- the whole ---- */

static int check_request(const struct tm_plan_request *request, struct tm_error *e)
{
    if (request->top < 1 || request->top > TM_PLAN_ANSWERS_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected from 1 to %d answers", TM_PLAN_ANSWERS_MAX);
    if (!(request->job.samples > 0)) return tm_error_set(e, TM_EUSAGE, "the job needs a number of samples above 0");
    if (!(request->job.deadline_s > 0)) return tm_error_set(e, TM_EUSAGE, "the deadline must be longer than 0s");
    if (request->max_instances < 1 || request->max_instances > TM_PLAN_INSTANCES_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected from 1 to %d instances at most", TM_PLAN_INSTANCES_MAX);
    if (request->quota_count > TM_PLAN_QUOTAS_MAX)
        return tm_error_set(e, TM_ELIMIT, "more than %d quotas", TM_PLAN_QUOTAS_MAX);
    return 0;
}

static void clear(struct tm_plan_result *result)
{
    memset(result, 0, sizeof *result);
    result->deadline_needed_s = INFINITY;
    result->budget_needed_usd = INFINITY;
    result->usd_h_needed = INFINITY;
    result->bound = NAN;
    result->gap = NAN;
}

int tm_plan_make_supply(const struct tm_catalog *catalog, const struct tm_plan_request *request,
                        struct tm_supply *supply, struct tm_error *e)
{
    int rc = check_request(request, e);
    if (rc != 0) return rc;
    struct tm_supply_request wanted = request->supply;
    wanted.max_instances = request->max_instances;
    wanted.spot = request->market != TM_PLAN_ON_DEMAND_ONLY;
    wanted.on_demand = request->market != TM_PLAN_SPOT_ONLY;
    wanted.anchor_gib = tm_search__anchor_gib(request);
    return tm_supply__make(catalog, &wanted, supply, e);
}

int tm_plan_solve(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_result *out,
                  struct tm_error *e)
{
    struct tm_search search = {supply, request, request->planner == TM_PLAN_TIDEMILL, out};
    int rc = check_request(request, e);
    if (rc != 0) return rc;
    clear(out);
    search_types(&search);
    if (request->programs_max > 0) rc = tm_search__branch(&search, e);
    for (size_t i = 0; rc == 0 && i < out->count; i++) /* one judge for all planners: with losses */
        rc = tm_plan_judge(supply, request, &out->answers[i], e);
    return rc;
}

/* What the other planner found is open to ours too, where it holds under losses. */
static void adopt(const struct tm_supply *supply, const struct tm_plan_request *request,
                  const struct tm_plan_result *other, struct tm_plan_result *out)
{
    struct tm_search search = {supply, request, true, out};
    double bound = out->bound;
    for (size_t i = 0; i < other->count; i++) {
        const struct tm_plan_answer *answer = &other->answers[i];
        const struct tm_expectation *judged = &answer->expectation;
        if (!judged->finishes || judged->usd_h > request->max_usd_h || judged->cost_usd.mean > request->budget_usd ||
            !meets_deadline(&search, judged) || value_of(&search, judged) >= tm_search__best(&search))
            continue;
        struct tm_plan_answer copy = *answer;
        keep(&search, &copy.fleet, judged, copy.anchors);
        out->answers[0].prediction = copy.prediction;
    }
    if (!isnan(bound) && out->count > 0) {
        out->bound = fmin(bound, tm_search__best(&search));
        out->gap = 1 - out->bound / tm_search__best(&search);
    }
}

int tm_plan_search_in(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_result *out,
                      struct tm_plan_result *other, struct tm_error *e)
{
    struct tm_plan_request other_request = *request;
    other_request.planner = request->planner == TM_PLAN_SRIFT ? TM_PLAN_TIDEMILL : TM_PLAN_SRIFT;
    if (other_request.programs_max > OTHER_PROGRAMS) other_request.programs_max = OTHER_PROGRAMS;
    int rc = tm_plan_solve(supply, request, out, e);
    if (rc == 0 && other != NULL) rc = tm_plan_solve(supply, &other_request, other, e);
    if (rc == 0 && other != NULL && request->planner == TM_PLAN_TIDEMILL) adopt(supply, request, other, out);
    return rc;
}

int tm_plan__search(const struct tm_catalog *catalog, const struct tm_plan_request *request, struct tm_plan_result *out,
                    struct tm_plan_result *other, struct tm_error *e)
{
    struct tm_supply supply;
    tm_supply_init(&supply);
    int rc = tm_plan_make_supply(catalog, request, &supply, e);
    if (rc == 0) rc = tm_plan_search_in(&supply, request, out, other, e);
    tm_supply_deinit(&supply);
    return rc;
}
