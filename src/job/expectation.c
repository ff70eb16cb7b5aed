#include "job/expectation.h"

#include "base/alloc.h"
#include "job/planned_fleet.h"
#include "sim/judge.h"
#include "sim/moments.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { INTERVAL_S = 60, HORIZON = 12, EXTRA_H_MAX = 200 };

static const double MEASURED_SPREAD = 0.1; /* steps that were measured a moment ago come back within a tenth, mostly */

/* ---- prices ---- */

/* The type of the pools that keep copies; NULL: there are none, or they train too. */
static const char *keeper_type(const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].role == TM_POOL_KEEPS_COPIES) return pools[i].instance;
    return NULL;
}

/* On demand, of the type that trains; NaN: nobody sells it so. */
static void find_training_price(const struct tm_catalog *catalog, const char *instance, double *out_usd_h)
{
    double spot_usd_h = 0;
    *out_usd_h = NAN;
    if (tm_knowledge_prices(catalog, instance, "", &spot_usd_h, out_usd_h, NULL) != 0) *out_usd_h = NAN;
}

/* What neither the job nor the trace says is the catalogue's, of the instance type that the job or the trace names. */
static int find_prices(struct tm_env *env, const struct tm_trace *trace, struct tm_run_settings *settings,
                       double *out_trains_usd_h, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->fleet;
    struct tm_catalog catalog;
    double spot = fleet->spot_usd_h_millionths < 0 ? NAN : (double)fleet->spot_usd_h_millionths / 1e6;
    double on_demand = fleet->on_demand_usd_h_millionths < 0 ? NAN : (double)fleet->on_demand_usd_h_millionths / 1e6;
    if (fleet->instance[0] == '\0')
        fleet->instance =
            trace->instance[0] == '\0' ? "p3.2xlarge" : tm_arena_strdup(&settings->arena, trace->instance);
    if (fleet->instance == NULL) return tm_error_nomem(e);
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(env, &catalog, e);
    const char *keeper = keeper_type(fleet);
    double free_usd_h = 0; /* nobody asks what a keeper costs on spot */
    if (rc == 0 && keeper != NULL && isnan(on_demand))
        rc = tm_knowledge_prices(&catalog, keeper, "name the price of its pool in the job", &free_usd_h, &on_demand, e);
    if (rc == 0 && keeper != NULL) find_training_price(&catalog, fleet->instance, out_trains_usd_h);
    if (rc == 0)
        rc = tm_knowledge_prices(&catalog, fleet->instance,
                                 "give fleet.spot_price and fleet.on_demand_price in the job", &spot, &on_demand, e);
    if (rc == 0) {
        fleet->spot_usd_h_millionths = llround(spot * 1e6);
        fleet->on_demand_usd_h_millionths = llround(on_demand * 1e6);
    }
    tm_catalog_deinit(&catalog);
    return rc;
}

/* ---- simulation ---- */

static void take(const char *policy, const struct tm_judged *judged, struct tm_run_expectation *out)
{
    *out = (struct tm_run_expectation){.policy = policy,
                                       .time_s = judged->time_s,
                                       .bill_usd = judged->bill_usd,
                                       .sure_s = judged->sure_s,
                                       .sure_usd = judged->sure_usd,
                                       .p_deadline = judged->p_deadline,
                                       .p_finish = judged->p_finish,
                                       .paused_s = judged->paused_s,
                                       .changes = judged->changes};
}

/* Does the budget stop it? */
static bool is_stopped(const struct tm_run_settings *settings, const struct tm_run_expectation *chosen)
{
    return settings->budget_usd_millionths > 0 && isinf(chosen->time_s.mean);
}

struct tm_sim_options tm_run__sim_options(const struct tm_run_settings *settings, const struct tm_run_work *work,
                                          const struct tm_layouts *layouts, struct tm_trace *trace)
{
    const struct tm_job_fleet *fleet = &settings->fleet;
    double samples = (double)work->steps * (double)work->batch;
    double alone_s = samples / fmax(1e-9, layouts->list[layouts->best[1]].samples_per_s);
    double notice_wall_s = (double)fleet->notice_wall_ms / 1000;
    trace->end_ms += (int64_t)fmin(isfinite(alone_s) ? 4000 * alone_s : 0, EXTRA_H_MAX * 3600e3);
    return (struct tm_sim_options){.from_ms = trace->begin_ms,
                                   .to_ms = tm_moments_end_ms(trace, INTERVAL_S * 1000),
                                   .interval_s = INTERVAL_S,
                                   .horizon = HORIZON,
                                   .notice_s = notice_wall_s > 0 ? notice_wall_s * fleet->speed
                                                                 : (double)fleet->notice_ms / 1000,
                                   .seed = (uint64_t)fleet->seed,
                                   .spot_usd_h = (double)fleet->spot_usd_h_millionths / 1e6,
                                   .on_demand_usd_h = (double)fleet->on_demand_usd_h_millionths / 1e6,
                                   .samples_total = samples,
                                   .deadline_s = (double)settings->deadline_ms / 1000,
                                   .budget_usd = (double)settings->budget_usd_millionths / 1e6,
                                   .anchors = (int)fleet->on_demand,
                                   .anchors_train = fleet->on_demand_trains != 0,
                                   .workers_min = (int)fleet->workers_min,
                                   .live = true};
}

/* On the trace that the local cloud will replay. */
static int expect_here(struct tm_env *env, const char *policy, bool limited, const struct tm_run_settings *settings,
                       const struct tm_run_layouts *layouts, const struct tm_run_plan *plan,
                       struct tm_run_expectation *out, struct tm_error *e)
{
    struct tm_sim_job job = {&layouts->job.layouts, layouts->migrations, &layouts->job.cost, NULL};
    struct tm_trace longer = plan->trace; /* borrows: after its end what there is stays */
    struct tm_judged judged;
    struct tm_judge judge = {.env = env,
                             .job = &job,
                             .policy = tm_policy_find(policy),
                             .trace = &longer,
                             .step_spread = settings->step_core_s > 0 ? MEASURED_SPREAD : 0,
                             .probability = settings->probability,
                             .runs = settings->step_core_s > 0 ? TM_JUDGE_RUNS : 1};
    judge.options = tm_run__sim_options(settings, &plan->work, &layouts->job.layouts, &longer);
    if (!limited) judge.options.budget_usd = 0;
    int rc = tm_judge_job(&judge, &judged, e);
    if (rc == 0) take(policy, &judged, out);
    return rc;
}

static int expect_planned(const struct tm_planned_fleet *planned, const struct tm_fleet_layouts *layouts,
                          const char *policy, bool limited, struct tm_run_expectation *out, struct tm_error *e)
{
    struct tm_judged judged;
    struct tm_plan_request request = planned->request;
    if (!limited) request.budget_usd = INFINITY;
    int rc =
        tm_fleet_judge_policy(&planned->judge, &request, &planned->fleet, layouts, tm_policy_find(policy), &judged, e);
    if (rc == 0) take(policy, &judged, out);
    return rc;
}

/* As `plan` judges it; *out_known false: it is no planned fleet, or nothing can be predicted. */
static int judge_planned(struct tm_env *env, const char *path, const struct tm_run_settings *settings,
                         struct tm_run_plan *out, bool *out_known, struct tm_error *e)
{
    struct tm_planned_fleet *planned = tm_calloc(1, sizeof *planned);
    struct tm_fleet_layouts layouts;
    *out_known = false;
    if (planned == NULL) return tm_error_nomem(e);
    int rc = tm_planned_fleet__init(env, path, settings, planned, out_known, e);
    if (rc == 0 && *out_known) {
        rc = tm_fleet_layouts_init(&planned->judge, &planned->request, &planned->fleet, &layouts, e);
        if (rc == 0) {
            rc = expect_planned(planned, &layouts, settings->policy, true, &out->chosen, e);
            if (rc == 0 && is_stopped(settings, &out->chosen))
                rc = expect_planned(planned, &layouts, settings->policy, false, &out->unlimited, e);
            if (rc == 0) rc = expect_planned(planned, &layouts, "checkpoint", true, &out->restart, e);
            if (rc == 0) rc = expect_planned(planned, &layouts, "on-demand", true, &out->on_demand, e);
            if (rc == -(int)TM_ENONE) rc = 0; /* nobody offers it on demand */
            tm_fleet_layouts_deinit(&layouts);
        }
    }
    tm_planned_fleet__deinit(planned);
    tm_free(planned);
    return rc;
}

static int judge_here(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                      struct tm_run_plan *out, struct tm_error *e)
{
    struct tm_run_layouts layouts;
    int rc = tm_run_layouts__init(env, dir, settings, &out->work, &layouts, e);
    if (rc != 0) return rc;
    out->costs_measured = layouts.measured;
    out->speed_unknown = layouts.speed_unknown;
    if (!out->speed_unknown) {
        rc = expect_here(env, settings->policy, true, settings, &layouts, out, &out->chosen, e);
        if (rc == 0 && is_stopped(settings, &out->chosen))
            rc = expect_here(env, settings->policy, false, settings, &layouts, out, &out->unlimited, e);
        if (rc == 0) rc = expect_here(env, "on-demand", true, settings, &layouts, out, &out->on_demand, e);
        if (rc == 0) rc = expect_here(env, "checkpoint", true, settings, &layouts, out, &out->restart, e);
    }
    tm_run_layouts__deinit(&layouts);
    return rc;
}

/* No instance goes: a trace with all of them, from its beginning. */
static int keep_whole(struct tm_trace *trace, int64_t limit, struct tm_error *e)
{
    int64_t end_ms = trace->end_ms;
    double price = NAN;
    (void)tm_moments_count_at(trace, trace->begin_ms, &price);
    trace->event_count = 0;
    trace->begin_ms = 0;
    trace->instances_max = limit;
    int rc = tm_trace_add(trace, 0, limit, 0, price, e);
    trace->end_ms = end_ms;
    return rc;
}

/* The job in numbers, and a step of it as measured here. */
static int load_work(struct tm_env *env, const char *path, struct tm_run_settings *settings, struct tm_arena *arena,
                     struct tm_run_work *out, struct tm_error *e)
{
    struct tm_job job;
    tm_job_init(&job);
    int rc = tm_job_load(env, path, &job, e);
    if (rc == 0) rc = tm_run_work__load(env, &job, settings, arena, out, e);
    if (rc == 0 && settings->step_core_s <= 0)
        rc = tm_run_work__measure(env, &job, settings, arena, &settings->step_core_s, e);
    tm_job_deinit(&job);
    return rc;
}

/* What the coordinator of a run would find: that no layout suits the fleet's own limits (memory, stages). */
static int check_layouts(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                         const struct tm_run_work *work, struct tm_error *e)
{
    struct tm_run_layouts layouts;
    int rc = tm_run_layouts__init(env, dir, settings, work, &layouts, e);
    if (rc == 0) tm_run_layouts__deinit(&layouts);
    return rc;
}

int tm_run_plan_make(struct tm_env *env, const char *path, const char *dir, struct tm_run_settings *settings,
                     struct tm_arena *arena, struct tm_run_plan *out, struct tm_error *e)
{
    bool known = false;
    *out = (struct tm_run_plan){.work = {0}};
    tm_trace_init(&out->trace);
    int rc = load_work(env, path, settings, arena, &out->work, e);
    if (rc == 0) rc = tm_run_trace(env, settings, &out->trace, e);
    if (rc == 0 && settings->no_losses) rc = keep_whole(&out->trace, settings->fleet.limit, e);
    if (rc == 0) rc = find_prices(env, &out->trace, settings, &out->trains_usd_h, e);
    settings->cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (rc == 0) rc = judge_planned(env, path, settings, out, &known, e);
    out->planned = known;
    if (rc == 0 && known) rc = check_layouts(env, dir, settings, &out->work, e);
    if (rc == 0 && !known) rc = judge_here(env, dir, settings, out, e);
    return rc;
}

void tm_run_plan_deinit(struct tm_run_plan *plan)
{
    tm_trace_deinit(&plan->trace);
}
