#include "plan/rivals.h"

#include "base/alloc.h"
#include "plan/mix.h"
#include "workload/scaling.h"

#include <math.h>
#include <string.h>

/* One row of DeepVM's data and where it comes from. */
struct row {
    const struct tm_plan_type *type;
    const struct tm_plan_pool *spot;      /* cheapest anywhere */
    const struct tm_plan_pool *on_demand; /* of the same region */
    const struct tm_plan_region *region;
};

/* The cheapest spot pool of a type whose region sells it on demand too. */
static bool find_row(const struct tm_supply *supply, size_t type, struct row *out)
{
    *out = (struct row){.type = &supply->types[type]};
    for (size_t r = 0; r < supply->region_count; r++) {
        const struct tm_plan_region *region = &supply->regions[r];
        const struct tm_plan_pool *spot = NULL;
        const struct tm_plan_pool *on_demand = NULL;
        for (size_t i = 0; i < region->count; i++) {
            const struct tm_plan_pool *pool = &supply->pools[region->first + i];
            if (pool->type != type) continue;
            if (spot == NULL && !isnan(pool->spot_usd_h)) spot = pool;
            if (!isnan(pool->on_demand_usd_h)) on_demand = pool;
        }
        if (spot == NULL || on_demand == NULL) continue;
        if (out->spot != NULL && out->spot->spot_usd_h <= spot->spot_usd_h) continue;
        out->spot = spot;
        out->on_demand = on_demand;
        out->region = region;
    }
    return out->spot != NULL && out->type->rates[0].instances == 1;
}

/* S(n) of predicted throughputs; a flat K where nothing can be fitted. */
static int fit_curve(const struct tm_plan_type *type, struct tm_deepvm_instance *out, struct tm_error *e)
{
    struct tm_scaling_fit fit;
    struct tm_scaling_data data = {.count = type->rate_count};
    out->a = 1;
    out->b = 1e6; /* K is 1 below b */
    out->c = 1;
    if (type->rate_count < 4) return 0;
    data.points = tm_alloc(type->rate_count * sizeof *data.points);
    if (data.points == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < type->rate_count; i++)
        data.points[i] = (struct tm_scaling_point){type->rates[i].instances, 1e4 / type->rates[i].samples_per_s};
    if (tm_scaling_fit(&data, &fit, NULL) == 0 && fit.a > 0 && fit.c > 0) {
        out->a = fit.a;
        out->b = fit.b;
        out->c = fit.c;
    }
    tm_free(data.points);
    return 0;
}

/* The entry of DeepVM's table of links that comes nearest. */
static double nearest_link(double gbps)
{
    static const double known[] = {0.3, 1.7, 5, 10, 12.5, 15, 25, 30};
    double nearest = known[0];
    for (size_t i = 1; i < sizeof known / sizeof *known; i++) {
        if (fabs(log(known[i] / gbps)) < fabs(log(nearest / gbps))) nearest = known[i];
    }
    return nearest;
}

/* DeepVM counts vCPUs by class, up to one less than a quota has room for; ours are by whatever the user names. A type's
 * vCPUs are set so that its own limit comes out. */
static const double class_vcpus = 1e4;

static double vcpus_for(const struct tm_plan_request *request, const struct tm_instance_type *instance,
                        const struct tm_offer *offer)
{
    double limit = request->max_instances;
    for (size_t i = 0; i < request->quota_count; i++) {
        const struct tm_plan_quota *quota = &request->quotas[i];
        double each = tm_plan__quota_counts(quota, instance, offer);
        if ((quota->markets & TM_MIX_SPOT) != 0 && each > 0) limit = fmin(limit, floor(quota->limit / each));
    }
    return class_vcpus / (limit + 1 + 1e-6);
}

static void add_remote(const struct tm_plan_region *region, struct tm_deepvm_data *data)
{
    if (region->anchor_count == 0) return;
    const struct tm_plan_anchor_kind *kind = &region->anchors[0];
    data->instances[data->instance_count++] =
        (struct tm_deepvm_instance){.name = kind->instance->name,
                                    .class_name = "C",
                                    .vcpus = 1,
                                    .memory_gib = kind->instance->memory_gib,
                                    .network_gbps = nearest_link(kind->instance->network_gbps),
                                    .on_demand_usd_h = kind->offer->on_demand_usd_h,
                                    .spot_usd_h = kind->offer->on_demand_usd_h,
                                    .flops = NAN};
}

static int make_data(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_deepvm_data *data,
                     struct row *rows, struct tm_error *e)
{
    const struct tm_plan_region *remote = NULL;
    for (size_t t = 0; t < supply->type_count && data->instance_count + 1 < TM_DEEPVM_INSTANCES_MAX; t++) {
        struct row row;
        if (!find_row(supply, t, &row)) continue;
        struct tm_deepvm_instance *instance = &data->instances[data->instance_count];
        *instance = (struct tm_deepvm_instance){.name = row.type->instance->name,
                                                .class_name = "G",
                                                .vcpus = vcpus_for(request, row.type->instance, row.spot->offer),
                                                .network_gbps = nearest_link(row.type->instance->network_gbps),
                                                .on_demand_usd_h = row.on_demand->on_demand_usd_h,
                                                .spot_usd_h = row.spot->spot_usd_h,
                                                .flops = row.type->rates[0].samples_per_s};
        int rc = fit_curve(row.type, instance, e);
        if (rc != 0) return rc;
        rows[data->instance_count++] = row;
        if (remote == NULL && row.region->anchor_count > 0) remote = row.region;
    }
    if (remote != NULL) add_remote(remote, data);
    data->quotas[0] = (struct tm_deepvm_quota){"G", class_vcpus, class_vcpus};
    data->quotas[1] = (struct tm_deepvm_quota){"C", 64, 64};
    data->quota_count = 2;
    return 0;
}

static void fleet_of(const struct tm_deepvm_answer *cluster, const struct row *row, struct tm_plan_fleet *fleet)
{
    bool tiering = cluster->architecture == TM_DEEPVM_TIERING;
    *fleet = (struct tm_plan_fleet){.part_count = 1};
    int on_demand = tiering ? 0 : 1;
    fleet->parts[0] =
        (struct tm_plan_part){row->type->instance, row->spot->offer, cluster->gpu_instances - on_demand, on_demand};
    if (on_demand > 0 && isnan(row->spot->offer->on_demand_usd_h)) {
        fleet->parts[0].on_demand = 0;
        fleet->parts[fleet->part_count++] = (struct tm_plan_part){row->type->instance, row->on_demand->offer, 0, 1};
    }
    if (tiering && row->region->anchor_count > 0) {
        fleet->anchor = row->region->anchors[0];
        fleet->anchor_instances = cluster->anchor_instances;
    }
}

int tm_plan_rival(const struct tm_supply *supply, const struct tm_plan_request *request, enum tm_deepvm_planner planner,
                  struct tm_plan_answer *out, bool *found, struct tm_error *e)
{
    struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX];
    struct tm_deepvm_request asked = {.planner = planner, .max_usd_h = request->max_usd_h, .top = 1};
    struct row *rows = tm_alloc(TM_DEEPVM_INSTANCES_MAX * sizeof *rows);
    struct tm_deepvm_data *data = tm_alloc(sizeof *data);
    size_t count = 0;
    int rc = rows != NULL && data != NULL ? 0 : tm_error_nomem(e);
    if (rc == 0) {
        tm_deepvm_data_init(data);
        rc = make_data(supply, request, data, rows, e);
    }
    if (rc == 0) rc = tm_deepvm_plan(data, &asked, answers, &count, e);
    *found = rc == 0 && count > 0;
    if (*found) fleet_of(&answers[0], &rows[answers[0].gpu - data->instances], &out->fleet);
    if (data != NULL) tm_deepvm_data_deinit(data);
    tm_free(data);
    tm_free(rows);
    return rc;
}
