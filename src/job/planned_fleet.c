#include "job/planned_fleet.h"

#include "job/run_layouts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { STARTUP_S = 180, RESTART_S = 60 };
static const double COPY_BYTES_S = 1e9; /* that a checkpoint is written with */

/* ---- the pools ---- */

static const struct tm_instance_type *find_type(const struct tm_catalog *catalog, const struct tm_job_pool *pool)
{
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *type = &catalog->instances[i];
        if (strcasecmp(type->name, pool->instance) == 0 &&
            (pool->cloud == NULL || strcmp(type->cloud, pool->cloud) == 0))
            return type;
    }
    return NULL;
}

/* The pool as an offer, with the catalogue's price where it says none. */
static struct tm_offer offer_of(const struct tm_catalog *catalog, const struct tm_job_pool *pool,
                                const struct tm_instance_type *type)
{
    bool spot = pool->market == TM_POOL_SPOT;
    double usd_h = pool->usd_h_millionths >= 0
                       ? (double)pool->usd_h_millionths / 1e6
                       : tm_catalog_cheapest(catalog, type, spot ? TM_PRICE_SPOT : TM_PRICE_ON_DEMAND);
    return (struct tm_offer){.instance = (uint32_t)(type - catalog->instances),
                             .region = pool->region != NULL ? pool->region : "",
                             .zone = pool->zone != NULL ? pool->zone : "",
                             .spot_usd_h = spot ? usd_h : NAN,
                             .on_demand_usd_h = spot ? NAN : usd_h,
                             .band = TM_BAND_UNKNOWN};
}

static int add_pool(struct tm_planned_fleet *out, const struct tm_job_pool *pool, const char *path, struct tm_error *e)
{
    struct tm_plan_fleet *fleet = &out->fleet;
    const struct tm_instance_type *type = find_type(&out->catalog, pool);
    if (type == NULL)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.pools: the catalogue has no instance type %s%s%s", path,
                            pool->instance, pool->cloud != NULL ? " of " : "", pool->cloud != NULL ? pool->cloud : "");
    struct tm_offer offer = offer_of(&out->catalog, pool, type);
    if (isnan(pool->market == TM_POOL_SPOT ? offer.spot_usd_h : offer.on_demand_usd_h))
        return tm_error_set(e, TM_EINPUT, "%s: fleet.pools: no %s price of %s is known; give price", path,
                            tm_pool_market_names[pool->market], type->name);
    if (pool->role == TM_POOL_KEEPS_COPIES) { /* all of them at what one costs on average */
        double paid = fleet->anchor_instances > 0 ? fleet->anchor_instances * out->keepers.on_demand_usd_h : 0;
        double usd_h = pool->market == TM_POOL_SPOT ? offer.spot_usd_h : offer.on_demand_usd_h;
        fleet->anchor_instances += (int)pool->count;
        offer.on_demand_usd_h = (paid + (double)pool->count * usd_h) / fleet->anchor_instances;
        out->keepers = offer;
        fleet->anchor = (struct tm_plan_anchor_kind){type, &out->keepers};
        return 0;
    }
    if (fleet->part_count == TM_PLAN_PARTS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s: fleet.pools: more than %d that train", path, TM_PLAN_PARTS_MAX);
    size_t at = fleet->part_count++;
    out->offers[at] = offer;
    out->lives_ms[at] = pool->mean_life_ms;
    fleet->parts[at] = (struct tm_plan_part){type, &out->offers[at], 0, 0};
    if (pool->market == TM_POOL_SPOT)
        fleet->parts[at].spot = (int)pool->count;
    else
        fleet->parts[at].on_demand = (int)pool->count;
    return 0;
}

/* ---- the job ---- */

void tm_knowledge_supply(const struct tm_knowledge *knowledge, struct tm_supply_request *out)
{
    out->compute = &knowledge->compute;
    out->comm = &knowledge->comm;
    out->measured_gpu = knowledge->gpu;
    out->measured_precision = knowledge->precision;
    out->measured_batches = knowledge->batches;
    out->measured_ms = knowledge->ms;
    out->measured_count = knowledge->count;
    out->gradients = knowledge->gradients;
    out->gradient_count = knowledge->gradient_count;
}

static int learn(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_planned_fleet *out,
                 struct tm_error *e)
{
    struct tm_supply_request *supply = &out->request.supply;
    struct tm_knowledge_source source = tm_knowledge__of_job(env, job, arena);
    int rc = tm_knowledge_read(env, &source, &out->knowledge, e);
    if (rc == 0) rc = tm_knowledge_model(env, &source, &out->knowledge, &out->model, e);
    if (rc != 0) return rc;
    int said = tm_knowledge__said_precision(job);
    supply->precision =
        said >= 0 ? said : tm_knowledge_precision(&source, &out->knowledge, &out->model, TM_PRECISION_MIXED);
    rc = tm_knowledge_learn(env, &source, &out->catalog, &out->model, supply->precision, &out->knowledge, e);
    supply->model = &out->model;
    tm_knowledge_supply(&out->knowledge, supply);
    return rc;
}

double tm_planned_times(const struct tm_model *model, int64_t checkpoint_ms, int64_t restart_ms,
                        struct tm_expect_job *out)
{
    /* Frozen weights are where they came from: copies are of what training changes. */
    double state_bytes = tm_model_totals(model).trained_params * 4 * (1 + model->optimizer_states);
    out->checkpoint_s = checkpoint_ms > 0 ? (double)checkpoint_ms / 1000 : state_bytes / COPY_BYTES_S;
    out->restart_s = out->rejoin_s = restart_ms >= 0 ? (double)restart_ms / 1000 : RESTART_S;
    out->startup_s = STARTUP_S;
    return state_bytes;
}

int tm_planned_micro_batch(const struct tm_job *job, int64_t batch)
{
    return job->micro_batch > 0 && batch % job->micro_batch == 0 ? (int)job->micro_batch : 0;
}

static void fill_job(const struct tm_job *job, struct tm_planned_fleet *out)
{
    struct tm_plan_request *request = &out->request;
    int64_t batch = job->batch > 0                ? job->batch
                    : out->model.global_batch > 0 ? out->model.global_batch
                                                  : TM_PLANNED_BATCH;
    request->supply.batch = (int)batch;
    request->supply.micro_batch = tm_planned_micro_batch(job, batch);
    request->job.samples = job->samples > 0 ? (double)job->samples : (double)job->steps * (double)batch;
    request->job.deadline_s = job->deadline_ms > 0 ? (double)job->deadline_ms / 1000 : INFINITY;
    (void)tm_planned_times(&out->model, job->checkpoint_time_ms, job->restart_time_ms, &request->job);
    if (tm_job_says(job, "fleet.on_demand_start"))
        request->job.startup_s = (double)job->fleet.on_demand_start_ms / 1000;
    request->budget_usd = job->budget_usd_millionths > 0 ? (double)job->budget_usd_millionths / 1e6 : INFINITY;
    request->max_usd_h = INFINITY;
    request->min_probability = job->probability;
    request->workers_min = (int)tm_job_fleet_by_instance(&job->fleet).workers_min; /* what is planned are instances */
    request->market = tm_job_wants_spot(job) ? TM_PLAN_SPOT_ONLY : TM_PLAN_MIXED;
}

static int fill_losses(struct tm_env *env, const struct tm_job_fleet *fleet, struct tm_planned_fleet *out,
                       struct tm_error *e)
{
    struct tm_plan_request *request = &out->request;
    struct tm_draw_pool unused[TM_DRAW_POOLS_MAX];
    if (tm_job_fleet_is_drawn(fleet)) {
        struct tm_draw draw = tm_run_draw(fleet, unused);
        request->job.burst_share = draw.losses.burst_share;
        request->job.burst_size = draw.losses.burst_size;
        request->job.outage_s = (double)draw.losses.outage_ms / 1000;
        request->job.replace_s = (double)draw.losses.replace_ms / 1000;
        request->supply.loss_per_s = fleet->losses.mean_life_ms > 0 ? 1000.0 / (double)fleet->losses.mean_life_ms : NAN;
        request->supply.default_loss_per_s = 1000.0 / TM_DRAW_LIFE_MS;
        return 0;
    }
    int rc = tm_trace_load(env, fleet->trace, NULL, &out->trace, e);
    if (rc != 0) return rc;
    struct tm_expect_trace losses = tm_expect_trace(&out->trace);
    request->supply.loss_per_s = losses.loss_per_s;
    request->job.burst_share = losses.burst_share;
    request->job.burst_size = losses.burst_size;
    request->job.outage_s = request->job.replace_s = losses.replace_s;
    out->judge.trace = &out->trace;
    return 0;
}

/* Migration costs that are given (simulate --cost) instead of typical ones. */
static int take_cost(struct tm_env *env, const struct tm_run_settings *settings, struct tm_planned_fleet *out,
                     struct tm_error *e)
{
    if (settings->costs == NULL) return 0;
    int rc = tm_cost_load(env, settings->costs, out->model.name, &out->cost, e);
    if (rc != 0) return rc;
    tm_cost_change_speed(&out->cost, settings->job.fleet.speed);
    out->judge.cost = &out->cost;
    return 0;
}

static int fill(struct tm_env *env, const struct tm_run_settings *settings, struct tm_arena *arena,
                struct tm_planned_fleet *out, struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job *job = &settings->job;
    const struct tm_job_pool *pools = tm_job_fleet_pools(&job->fleet, &count);
    int rc = tm_catalog_load(env, &out->catalog, e);
    if (rc == 0) tm_catalog_assume_network(&out->catalog);
    if (rc == 0) rc = learn(env, job, arena, out, e);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct tm_job_pool pool = pools[i];
        if (pool.count == 0) pool.count = pool.limit; /* a mix */
        rc = add_pool(out, &pool, job->file, e);
    }
    if (rc == 0 && out->fleet.part_count == 0)
        rc = tm_error_set(e, TM_EINPUT, "%s: fleet.pools: none of them trains", job->file);
    if (rc != 0) return rc;
    fill_job(job, out);
    out->judge.env = env;
    out->judge.catalog = &out->catalog;
    out->judge.lives_ms = out->lives_ms;
    out->judge.policy = job->policy;
    out->asked = tm_job_fleet_by_instance(&job->fleet);
    out->judge.asked = &out->asked;
    out->judge.no_losses = settings->no_losses;
    out->judge.first_wait_s = tm_run_layouts__first_wait_s(&job->fleet);
    out->judge.seed = (uint64_t)job->fleet.seed;
    rc = take_cost(env, settings, out, e);
    if (rc != 0) return rc;
    if (!(out->request.job.samples > 0) && !tm_job_fleet_has_choices(&job->fleet)) /* those have an end */
        return tm_error_set(e, TM_EINPUT, "%s: the amount of training is missing: give steps and batch, or samples",
                            job->file);
    return fill_losses(env, &job->fleet, out, e);
}

int tm_planned_fleet__init(struct tm_env *env, const struct tm_run_settings *settings, struct tm_planned_fleet *out,
                           bool *out_known, struct tm_error *e)
{
    const struct tm_job *job = &settings->job;
    struct tm_arena arena;
    memset(out, 0, sizeof *out);
    tm_catalog_init(&out->catalog);
    tm_model_init(&out->model);
    tm_knowledge_init(&out->knowledge);
    tm_trace_init(&out->trace);
    *out_known = false;
    if (job->fleet.pools.count == 0 || tm_job_fleet_has_partitions(&job->fleet)) return 0;
    if (job->model == NULL && job->profile == NULL) return 0;
    tm_arena_init(&arena, 1 << 20);
    int rc = fill(env, settings, &arena, out, e);
    *out_known = rc == 0;
    tm_arena_deinit(&arena);
    return rc;
}

void tm_planned_fleet__deinit(struct tm_planned_fleet *planned)
{
    tm_trace_deinit(&planned->trace);
    tm_knowledge_deinit(&planned->knowledge);
    tm_model_deinit(&planned->model);
    tm_catalog_deinit(&planned->catalog);
}
