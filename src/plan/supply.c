#include "plan/supply.h"

#include "base/alloc.h"
#include "plan/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { STALE = 3 };

void tm_supply_init(struct tm_supply *supply)
{
    *supply = (struct tm_supply){0};
}

void tm_supply_deinit(struct tm_supply *supply)
{
    for (size_t i = 0; i < supply->type_count; i++)
        tm_free(supply->types[i].rates);
    tm_free(supply->types);
    tm_free(supply->pools);
    tm_free(supply->regions);
    tm_free(supply->assumed);
    *supply = (struct tm_supply){0};
}

struct tm_gpu_figures tm_plan_gpu_figures(const struct tm_gpu *gpu)
{
    struct tm_gpu_figures figures = {
        .name = gpu->name, .memory_bytes_s = gpu->memory_gbyte_s * 1e9, .memory_gib = gpu->memory_gib};
    for (int p = 0; p < TM_PRECISION_COUNT; p++)
        figures.flops[p] = gpu->tflops[p] * 1e12;
    return figures;
}

struct tm_fleet_group tm_plan_group(const struct tm_gpu *gpu, const struct tm_instance_type *instance)
{
    struct tm_fleet_group group = {.instance = instance->name,
                                   .instances = 1,
                                   .gpu = tm_plan_gpu_figures(gpu),
                                   .gpus_per_node = (int)instance->gpus,
                                   .network_bit_s = instance->network_gbps * 1e9};
    if (instance->burst_gbps > instance->network_gbps) group.burst_bit_s = instance->burst_gbps * 1e9;
    if (!isnan(instance->gpu_memory_gib)) group.gpu.memory_gib = instance->gpu_memory_gib;
    return group;
}

enum tm_precision tm_plan_precision(const struct tm_gpu_figures *gpu, int asked)
{
    if (asked != TM_PRECISION_MIXED) return (enum tm_precision)asked;
    return gpu->flops[TM_BF16] > 0 ? TM_BF16 : gpu->flops[TM_FP16] > 0 ? TM_FP16 : TM_FP32;
}

/* ---- types ---- */

/* False: its GPU or its network is not known, so nothing can be predicted. */
static bool group_of(const struct tm_catalog *catalog, const struct tm_instance_type *instance,
                     struct tm_fleet_group *group, struct tm_supply_types *seen)
{
    const struct tm_gpu *gpu = instance->gpu[0] != '\0' ? tm_catalog_gpu(catalog, instance->gpu) : NULL;
    if (gpu == NULL || !(gpu->memory_gbyte_s > 0) || instance->gpus < 1) {
        seen->gpu_unknown++;
        return false;
    }
    if (!(instance->network_gbps > 0)) {
        seen->network_unknown++;
        return false;
    }
    *group = tm_plan_group(gpu, instance);
    return true;
}

struct tm_predict_request tm_supply_predict_request(const struct tm_supply_request *request,
                                                    const struct tm_plan_type *const *types, const int *instances,
                                                    size_t count, struct tm_fleet_group *groups)
{
    struct tm_predict_request predict = {.model = request->model,
                                         .groups = groups,
                                         .group_count = count,
                                         .batch = request->batch,
                                         .micro_batch = request->micro_batch,
                                         .ways = count == 1 ? request->ways : 0,
                                         .compute = request->compute,
                                         .comm = request->comm,
                                         .gradients = request->gradients,
                                         .gradient_count = request->gradient_count};
    predict.precision = types[0]->precision;
    for (size_t i = 0; i < count; i++) {
        groups[i] = types[i]->group;
        groups[i].instances = instances[i];
        if (request->probed_bit_s > 0) {
            groups[i].network_bit_s = request->probed_bit_s;
            groups[i].burst_bit_s = 0;
        }
        /* One precision for all: what the least able of them has. */
        if (!(groups[i].gpu.flops[predict.precision] > 0)) predict.precision = types[i]->precision;
    }
    for (size_t i = 0; i < count; i++) {
        if (!(groups[i].gpu.flops[predict.precision] > 0)) predict.precision = TM_FP32;
    }
    if (request->measured_count > 0 && request->measured_precision == predict.precision &&
        strcmp(request->measured_gpu, groups[0].gpu.name) == 0) {
        predict.measured_batches = request->measured_batches;
        predict.measured_ms = request->measured_ms;
        predict.measured_count = request->measured_count;
    }
    return predict;
}

/* Counts that are tried: all small ones, then steps of an eighth; throughput per instance changes little between. */
static int next_count(int instances)
{
    return instances < 8 ? instances + 1 : instances + instances / 8;
}

static int add_rate(struct tm_plan_type *type, size_t *capacity, int instances, const struct tm_prediction *prediction,
                    struct tm_error *e)
{
    void *rates = type->rates;
    int rc = tm_grow(&rates, capacity, type->rate_count + 1, sizeof *type->rates, TM_PLAN_INSTANCES_MAX);
    type->rates = rates;
    if (rc != 0) return tm_error_nomem(e);
    type->rates[type->rate_count++] = (struct tm_plan_rate){.instances = instances,
                                                            .samples_per_s = prediction->samples_per_s,
                                                            .spread = tm_estimate_spread(&prediction->step_s)};
    return 0;
}

static bool is_stale(int stale, int instances, int fastest_at)
{
    return stale >= STALE && instances > 2 * fastest_at;
}

/* Fleets of one type at all counts that matter. */
static int find_rates(const struct tm_supply_request *request, struct tm_plan_type *type, struct tm_error *e)
{
    struct tm_fleet_group group;
    const struct tm_plan_type *types[] = {type};
    const int one = 1;
    struct tm_predictor *predictor = NULL;
    struct tm_predict_request predict = tm_supply_predict_request(request, types, &one, 1, &group);
    size_t capacity = 0;
    double fastest = 0;
    /* Counts in a row that were hardly faster than fewer instances: more of them never pay, but twice as many may,
     * where the batch divides again. */
    int stale = 0;
    int fastest_at = 0;
    int rented_before = 0;
    int rc = tm_predictor_create(&predict, &predictor, e);
    for (int instances = 1; rc == 0 && instances <= request->max_instances && !is_stale(stale, instances, fastest_at);
         instances = next_count(instances)) {
        struct tm_prediction prediction;
        rc = tm_predictor_run(predictor, &instances, &prediction, e);
        if (rc == -(int)TM_ENONE) {
            rc = 0; /* does not fit on so few */
            continue;
        }
        if (rc != 0) break;
        int used = prediction.pipelines * prediction.stages * (prediction.tensor > 1 ? prediction.tensor : 1);
        int rented = (used + group.gpus_per_node - 1) / group.gpus_per_node; /* nobody rents what would stand idle */
        stale = prediction.samples_per_s > 1.01 * fastest ? 0 : stale + 1;
        if (stale == 0) fastest_at = instances;
        if (prediction.samples_per_s > fastest && rented > rented_before) {
            rc = add_rate(type, &capacity, rented, &prediction, e);
            rented_before = rented;
        }
        fastest = fmax(fastest, prediction.samples_per_s);
    }
    type->saturated = stale >= STALE;
    tm_predictor_destroy(predictor);
    if (rc == -(int)TM_EINPUT) rc = 0; /* no such precision on this GPU: none of it */
    return rc;
}

/* Fractional number of instances for a throughput, on the line between tabulated counts; beyond the table as at its
 * end. */
static double instances_for(const struct tm_plan_type *type, double samples_per_s)
{
    double instances = 0;
    double reached = 0;
    for (size_t i = 0; i < type->rate_count; i++) {
        const struct tm_plan_rate *rate = &type->rates[i];
        if (samples_per_s <= rate->samples_per_s)
            return instances +
                   (rate->instances - instances) * (samples_per_s - reached) / (rate->samples_per_s - reached);
        instances = rate->instances;
        reached = rate->samples_per_s;
    }
    return instances * samples_per_s / reached;
}

double tm_plan_type__rate(const struct tm_plan_type *type, double low, double high)
{
    if (type->rate_count == 0) return 0;
    const struct tm_plan_rate *last = &type->rates[type->rate_count - 1];
    if (type->saturated && low > last->samples_per_s) return 0;
    double best = low / instances_for(type, low);
    if (!type->saturated || high <= last->samples_per_s) best = fmax(best, high / instances_for(type, high));
    for (size_t i = 0; i < type->rate_count; i++) {
        const struct tm_plan_rate *rate = &type->rates[i];
        if (rate->samples_per_s >= low && rate->samples_per_s <= high)
            best = fmax(best, rate->samples_per_s / rate->instances);
    }
    return best;
}

/* ---- pools ---- */

const char *tm_plan_maker(const struct tm_instance_type *instance)
{
    static const struct {
        const char *prefix;
        const char *maker;
    } rows[] = {{"Trainium", "aws"}, {"Inferentia", "aws"}, {"tpu", "google"},  {"MI", "amd"},
                {"Radeon", "amd"},   {"Gaudi", "intel"},    {"Habana", "intel"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strncasecmp(instance->gpu, rows[i].prefix, strlen(rows[i].prefix)) == 0) return rows[i].maker;
    }
    return "nvidia";
}

/* What is known of the risk of an offer; false: nothing, or the user said it. */
static bool ask_risk(const struct tm_supply_request *request, const struct tm_offer *offer, struct tm_risk_answer *out)
{
    if (!isnan(request->loss_per_s) || request->risk == NULL || request->catalog == NULL) return false;
    const struct tm_instance_type *instance = &request->catalog->instances[offer->instance];
    struct tm_risk_query query = {.cloud = instance->cloud,
                                  .instance = instance->name,
                                  .gpu = instance->gpu,
                                  .gpus = instance->gpus,
                                  .region = offer->region,
                                  .zone = offer->zone,
                                  .band = offer->band,
                                  .hour_utc = -1};
    tm_risk_ask(request->risk, &query, out);
    return true;
}

static const struct tm_plan_trace *trace_of(const struct tm_supply_request *request, const struct tm_offer *offer)
{
    if (request->traces == NULL || request->traces->count == 0) return NULL;
    return tm_plan__trace_of(request->traces, &request->catalog->instances[offer->instance], offer);
}

double tm_supply__loss_rate(const struct tm_supply_request *request, const struct tm_offer *offer)
{
    struct tm_risk_answer answer;
    const struct tm_catalog *catalog = request->catalog;
    const struct tm_plan_trace *trace = trace_of(request, offer);
    if (trace != NULL) return trace->losses.loss_per_s;
    if (!isnan(request->loss_per_s)) return request->loss_per_s;
    if (request->offer_loss_per_s != NULL && catalog != NULL && offer >= catalog->offers &&
        offer < catalog->offers + catalog->offer_count)
        return request->offer_loss_per_s[offer - catalog->offers];
    return ask_risk(request, offer, &answer) ? answer.loss_per_s : request->default_loss_per_s;
}

int tm_supply_loss_rates(const struct tm_supply_request *request, double **out, struct tm_error *e)
{
    size_t count = request->catalog->offer_count;
    double *rates = tm_alloc((count + 1) * sizeof *rates);
    if (rates == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < count; i++) {
        const struct tm_offer *offer = &request->catalog->offers[i];
        bool spot = request->catalog->instances[offer->instance].gpus > 0 && offer->spot_usd_h > 0;
        rates[i] = spot ? tm_supply__loss_rate(request, offer) : request->default_loss_per_s;
    }
    *out = rates;
    return 0;
}

static double usable_price(bool allowed, double usd_h)
{
    return allowed && usd_h > 0 && isfinite(usd_h) ? usd_h : NAN;
}

static int add_pool(const struct tm_supply_request *request, const struct tm_offer *offer, size_t type,
                    struct tm_supply *supply, struct tm_error *e)
{
    struct tm_plan_pool pool = {.offer = offer,
                                .type = type,
                                .spot_usd_h = usable_price(request->spot, offer->spot_usd_h),
                                .on_demand_usd_h = usable_price(request->on_demand, offer->on_demand_usd_h),
                                .loss_per_s = tm_supply__loss_rate(request, offer)};
    if (isnan(pool.spot_usd_h) && isnan(pool.on_demand_usd_h)) return 0;
    void *pools = supply->pools;
    int rc = tm_grow(&pools, &supply->pool_capacity, supply->pool_count + 1, sizeof pool, TM_CATALOG_ROWS_MAX);
    supply->pools = pools;
    if (rc != 0) return tm_error_nomem(e);
    supply->pools[supply->pool_count++] = pool;
    return 0;
}

static int compare_pools(const void *a, const void *b, void *supply)
{
    const struct tm_plan_pool *x = a;
    const struct tm_plan_pool *y = b;
    const struct tm_plan_type *types = ((const struct tm_supply *)supply)->types;
    int cloud = strcmp(types[x->type].instance->cloud, types[y->type].instance->cloud);
    if (cloud != 0) return cloud;
    int region = strcmp(x->offer->region, y->offer->region);
    if (region != 0) return region;
    int maker = strcmp(tm_plan_maker(types[x->type].instance), tm_plan_maker(types[y->type].instance));
    if (maker != 0) return maker;
    if (x->type != y->type) return x->type < y->type ? -1 : 1;
    bool no_x = isnan(x->spot_usd_h);
    bool no_y = isnan(y->spot_usd_h);
    if (no_x != no_y) return no_x ? 1 : -1;
    if (!no_x && x->spot_usd_h != y->spot_usd_h) return x->spot_usd_h < y->spot_usd_h ? -1 : 1;
    return x->offer < y->offer ? -1 : 1;
}

/* Of the pools of one type in one region keeps the cheapest zones on spot and one place on demand. */
static void thin_pools(struct tm_plan_pool *pools, size_t count)
{
    size_t cheapest = count;
    for (size_t i = 0; i < count; i++) {
        double usd_h = pools[i].on_demand_usd_h;
        if (i >= TM_PLAN_ZONES_MAX) pools[i].spot_usd_h = NAN;
        if (!isnan(usd_h) && (cheapest == count || usd_h < pools[cheapest].on_demand_usd_h)) cheapest = i;
    }
    for (size_t i = 0; i < count; i++) {
        if (i != cheapest) pools[i].on_demand_usd_h = NAN;
    }
}

static bool same_region(const struct tm_supply *supply, const struct tm_plan_pool *a, const struct tm_plan_pool *b)
{
    return supply->types[a->type].instance->cloud == supply->types[b->type].instance->cloud &&
           a->offer->region == b->offer->region &&
           strcmp(tm_plan_maker(supply->types[a->type].instance), tm_plan_maker(supply->types[b->type].instance)) == 0;
}

static int add_region(struct tm_supply *supply, size_t first, size_t count, struct tm_error *e)
{
    const struct tm_plan_pool *pool = &supply->pools[first];
    void *regions = supply->regions;
    int rc = tm_grow(&regions, &supply->region_capacity, supply->region_count + 1, sizeof *supply->regions,
                     TM_CATALOG_ROWS_MAX);
    supply->regions = regions;
    if (rc != 0) return tm_error_nomem(e);
    supply->regions[supply->region_count++] =
        (struct tm_plan_region){.cloud = supply->types[pool->type].instance->cloud,
                                .region = pool->offer->region,
                                .first = first,
                                .count = count};
    return 0;
}

/* Sorts the pools into regions and drops those that no search would take. */
static int make_regions(struct tm_supply *supply, struct tm_error *e)
{
    if (supply->pool_count > 0)
        qsort_r(supply->pools, supply->pool_count, sizeof *supply->pools, compare_pools, supply);
    size_t kept = 0;
    int rc = 0;
    for (size_t i = 0; i < supply->pool_count;) {
        size_t end = i + 1;
        while (end < supply->pool_count && supply->pools[end].type == supply->pools[i].type &&
               same_region(supply, &supply->pools[end], &supply->pools[i]))
            end++;
        thin_pools(&supply->pools[i], end - i);
        for (; i < end; i++) {
            if (!isnan(supply->pools[i].spot_usd_h) || !isnan(supply->pools[i].on_demand_usd_h))
                supply->pools[kept++] = supply->pools[i];
        }
    }
    supply->pool_count = kept;
    for (size_t i = 0; rc == 0 && i < kept;) {
        size_t end = i + 1;
        while (end < kept && same_region(supply, &supply->pools[end], &supply->pools[i]))
            end++;
        rc = add_region(supply, i, end - i, e);
        i = end;
    }
    return rc;
}

/* ---- anchors ---- */

static double anchor_score(const struct tm_plan_anchor_kind *kind, double needed_gib, size_t by)
{
    double usd_h = kind->offer->on_demand_usd_h;
    double instances = fmax(1, ceil(needed_gib / kind->instance->memory_gib));
    if (by == 0)
        return usd_h * instances * (1 + 0.02 * instances); /* few large ones are less trouble than many small ones */
    return usd_h / (by == 1 ? kind->instance->memory_gib : kind->instance->network_gbps);
}

static void offer_anchor(const struct tm_plan_anchor_kind *kind, double needed_gib,
                         struct tm_plan_anchor_kind *best) /* TM_PLAN_ANCHOR_KINDS_MAX of them */
{
    for (size_t by = 0; by < TM_PLAN_ANCHOR_KINDS_MAX; by++) {
        if (best[by].instance == NULL || anchor_score(kind, needed_gib, by) < anchor_score(&best[by], needed_gib, by))
            best[by] = *kind;
    }
}

static bool can_anchor(const struct tm_supply_request *request, const struct tm_instance_type *instance,
                       const struct tm_offer *offer)
{
    if (request->anchor_type != NULL) return instance == request->anchor_type && offer->on_demand_usd_h > 0;
    if (instance->gpus > 0 || !(instance->network_gbps > 0) || !(instance->memory_gib > 0)) return false;
    if (!(offer->on_demand_usd_h > 0)) return false;
    return request->allowed == NULL || request->allowed(request->allowed_context, instance, offer, true);
}

/* Every region has instances without GPU; where the catalogue has none, those of the cloud's other regions, at the
 * price that they have there. */
static void assume_anchors(const struct tm_supply_request *request, struct tm_supply *supply)
{
    for (size_t r = 0; r < supply->region_count; r++) {
        struct tm_plan_region *region = &supply->regions[r];
        if (region->anchors[0].instance != NULL) continue;
        for (size_t i = 0; i < supply->catalog->offer_count; i++) {
            const struct tm_offer *offer = &supply->catalog->offers[i];
            const struct tm_instance_type *instance = &supply->catalog->instances[offer->instance];
            struct tm_plan_anchor_kind kind = {instance, offer};
            bool named = request->anchor_type != NULL;
            bool suits = named ? instance == request->anchor_type
                               : instance->gpus == 0 && instance->network_gbps > 0 && instance->memory_gib > 0;
            if (!suits || instance->cloud != region->cloud || !(offer->on_demand_usd_h > 0)) continue;
            offer_anchor(&kind, request->anchor_gib, region->anchors);
        }
        for (size_t by = 0; by < TM_PLAN_ANCHOR_KINDS_MAX && region->anchors[0].instance != NULL; by++) {
            struct tm_offer *here = &supply->assumed[r * TM_PLAN_ANCHOR_KINDS_MAX + by];
            *here = *region->anchors[by].offer;
            here->region = region->region;
            here->zone = "";
            region->anchors[by].offer = here;
        }
    }
}

/* The best of each kind for each region, then each instance type once. */
static int find_anchors(const struct tm_supply_request *request, struct tm_supply *supply, struct tm_error *e)
{
    supply->assumed = tm_alloc((supply->region_count + 1) * TM_PLAN_ANCHOR_KINDS_MAX * sizeof *supply->assumed);
    if (supply->assumed == NULL) return tm_error_nomem(e);
    bool wanted = request->on_demand || request->anchor_type != NULL;
    for (size_t i = 0; wanted && i < supply->catalog->offer_count; i++) {
        const struct tm_offer *offer = &supply->catalog->offers[i];
        const struct tm_instance_type *instance = &supply->catalog->instances[offer->instance];
        struct tm_plan_anchor_kind kind = {instance, offer};
        if (!can_anchor(request, instance, offer)) continue;
        for (size_t r = 0; r < supply->region_count; r++) {
            struct tm_plan_region *region = &supply->regions[r];
            if (offer->region == region->region && instance->cloud == region->cloud)
                offer_anchor(&kind, request->anchor_gib, region->anchors);
        }
    }
    if (wanted) assume_anchors(request, supply);
    for (size_t r = 0; r < supply->region_count; r++) {
        struct tm_plan_region *region = &supply->regions[r];
        for (size_t by = 0; by < TM_PLAN_ANCHOR_KINDS_MAX && region->anchors[0].instance != NULL; by++) {
            bool known = false;
            for (size_t k = 0; k < region->anchor_count; k++)
                known = known || region->anchors[k].instance == region->anchors[by].instance;
            if (!known) region->anchors[region->anchor_count++] = region->anchors[by];
        }
    }
    return 0;
}

/* ---- all of it ---- */

/* What becomes of a type: its number, or: */
static const size_t NOT_SEEN = SIZE_MAX;
static const size_t NO_PRICE = SIZE_MAX - 1; /* as yet */
static const size_t NO_USE = SIZE_MAX - 2;

bool tm_supply__type(const struct tm_catalog *catalog, const struct tm_supply_request *request,
                     const struct tm_instance_type *instance, struct tm_plan_type *out)
{
    struct tm_supply_types seen = {0};
    *out = (struct tm_plan_type){.instance = instance, .slowdown = 1};
    if (!group_of(catalog, instance, &out->group, &seen)) return false;
    out->precision = tm_plan_precision(&out->group.gpu, request->precision);
    return true;
}

static int add_type(const struct tm_supply_request *request, const struct tm_instance_type *instance,
                    struct tm_supply *supply, size_t *out_index, struct tm_error *e)
{
    struct tm_plan_type type = {.instance = instance, .slowdown = 1};
    void *types = supply->types;
    *out_index = NO_USE;
    if (!group_of(supply->catalog, instance, &type.group, &supply->seen)) return 0;
    type.precision = tm_plan_precision(&type.group.gpu, request->precision);
    if (request->precision != TM_PRECISION_MIXED && !(type.group.gpu.flops[type.precision] > 0)) {
        supply->seen.no_precision++;
        return 0;
    }
    int rc = tm_grow(&types, &supply->type_capacity, supply->type_count + 1, sizeof type, TM_CATALOG_ROWS_MAX);
    supply->types = types;
    if (rc != 0) return tm_error_nomem(e);
    rc = find_rates(request, &type, e);
    if (rc != 0 || type.rate_count == 0) {
        supply->seen.unfit++;
        tm_free(type.rates);
        return rc;
    }
    supply->types[supply->type_count] = type;
    *out_index = supply->type_count++;
    return 0;
}

static int take_offer(const struct tm_supply_request *request, const struct tm_offer *offer, struct tm_supply *supply,
                      size_t *type, struct tm_error *e)
{
    const struct tm_instance_type *instance = &supply->catalog->instances[offer->instance];
    if (!(instance->gpus > 0)) return 0;
    if (request->allowed != NULL && !request->allowed(request->allowed_context, instance, offer, false)) return 0;
    if (*type == NOT_SEEN) {
        supply->seen.allowed++;
        *type = NO_PRICE;
    }
    if (isnan(usable_price(request->spot, offer->spot_usd_h)) &&
        isnan(usable_price(request->on_demand, offer->on_demand_usd_h)))
        return 0;
    int rc = *type == NO_PRICE ? add_type(request, instance, supply, type, e) : 0;
    return rc == 0 && *type != NO_USE ? add_pool(request, offer, *type, supply, e) : rc;
}

int tm_supply__make(const struct tm_catalog *catalog, const struct tm_supply_request *request, struct tm_supply *supply,
                    struct tm_error *e)
{
    size_t *type_of = tm_alloc((catalog->instance_count + 1) * sizeof *type_of);
    int rc = type_of != NULL ? 0 : tm_error_nomem(e);
    supply->catalog = catalog;
    for (size_t i = 0; rc == 0 && i < catalog->instance_count; i++)
        type_of[i] = NOT_SEEN;
    for (size_t i = 0; rc == 0 && i < catalog->offer_count; i++)
        rc = take_offer(request, &catalog->offers[i], supply, &type_of[catalog->offers[i].instance], e);
    for (size_t i = 0; rc == 0 && i < catalog->instance_count; i++)
        supply->seen.unpriced += type_of[i] == NO_PRICE;
    if (rc == 0) rc = make_regions(supply, e);
    if (rc == 0) rc = find_anchors(request, supply, e);
    tm_free(type_of);
    if (rc != 0) tm_supply_deinit(supply);
    return rc;
}
