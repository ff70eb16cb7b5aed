#include "job/expectation.h"
#include "job/job_pools.h"
#include "job/pool_speeds.h"

#include "base/alloc.h"
#include "job/planned_fleet.h"
#include "job/provider.h"
#include "sim/judge.h"
#include "sim/moments.h"

#include <math.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { INTERVAL_S = 60, HORIZON = 12, EXTRA_H_MAX = 200 };

static const double MEASURED_SPREAD = 0.1; /* steps that were measured a moment ago come back within a tenth, mostly */

/* ---- prices ---- */

static double dollars(int64_t millionths)
{
    return millionths < 0 ? NAN : (double)millionths / 1e6;
}

/* On demand, where the pools lie, as `plan` has it; NaN: nobody sells it there. */
static double price_in_region(const struct tm_catalog *catalog, const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    double best = NAN;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count), *first = NULL;
    for (size_t i = 0; i < count && first == NULL; i++)
        if (pools[i].role == TM_POOL_TRAINS) first = &pools[i];
    for (size_t i = 0; first != NULL && first->region != NULL && i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        bool of_cloud = first->cloud == NULL || strcmp(type->cloud, first->cloud) == 0;
        if (of_cloud && strcasecmp(type->name, first->instance) == 0 && strcmp(offer->region, first->region) == 0)
            best = fmin(best, offer->on_demand_usd_h);
    }
    return best;
}

/* Instances that only keep copies: nobody asks what they cost on spot. */
static int find_anchor_price(const struct tm_catalog *catalog, struct tm_job_fleet *fleet, double on_demand_usd_h,
                             struct tm_error *e)
{
    double usd_h = dollars(fleet->anchor_usd_h_millionths), free_usd_h = 0;
    if (tm_job_fleet_keepers(fleet) == 0) return 0;
    if (fleet->anchor_instance[0] == '\0') fleet->anchor_instance = fleet->instance;
    if (isnan(usd_h) && strcasecmp(fleet->anchor_instance, fleet->instance) == 0) usd_h = on_demand_usd_h;
    int rc = tm_knowledge_prices(catalog, fleet->anchor_instance, "give fleet.anchor_price in the job", &free_usd_h,
                                 &usd_h, e);
    if (rc == 0) fleet->anchor_usd_h_millionths = llround(usd_h * 1e6);
    return rc;
}

/* What neither the job nor the trace says is the catalogue's, of the instance type that the job or the trace names. */
static int find_prices(struct tm_env *env, const struct tm_trace *trace, struct tm_run_settings *settings,
                       struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    struct tm_catalog catalog;
    double spot = dollars(fleet->spot_usd_h_millionths);
    double on_demand = dollars(fleet->on_demand_usd_h_millionths);
    if (fleet->instance[0] == '\0')
        fleet->instance =
            trace->instance[0] == '\0' ? "p3.2xlarge" : tm_arena_strdup(&settings->job.arena, trace->instance);
    if (fleet->instance == NULL) return tm_error_nomem(e);
    if (tm_job_fleet_has_partitions(fleet)) { /* of Slurm: they cost nothing unless the job says so */
        if (isnan(spot)) spot = 0;
        if (isnan(on_demand)) on_demand = 0;
    }
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(env, &catalog, e);
    if (rc == 0 && isnan(on_demand)) on_demand = price_in_region(&catalog, fleet);
    if (rc == 0)
        rc = tm_knowledge_prices(&catalog, fleet->instance,
                                 "give fleet.spot_price and fleet.on_demand_price in the job", &spot, &on_demand, e);
    if (rc == 0) {
        fleet->spot_usd_h_millionths = llround(spot * 1e6);
        fleet->on_demand_usd_h_millionths = llround(on_demand * 1e6);
        rc = find_anchor_price(&catalog, fleet, on_demand, e);
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
    return settings->job.budget_usd_millionths > 0 && isinf(chosen->time_s.mean);
}

struct tm_sim_options tm_run__sim_options(const struct tm_run_settings *settings, const struct tm_run_work *work,
                                          const struct tm_layouts *layouts, struct tm_trace *trace)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    bool trains = fleet->on_demand_trains != 0;
    int each = (int)tm_job_fleet_workers_each(fleet); /* what is simulated are workers */
    double samples = (double)settings->job.steps * (double)work->batch;
    double alone_s = samples / fmax(1e-9, layouts->list[layouts->best[1]].samples_per_s);
    trace->end_ms += (int64_t)fmin(isfinite(alone_s) ? 4000 * alone_s : 0, EXTRA_H_MAX * 3600e3);
    return (struct tm_sim_options){
        .from_ms = trace->begin_ms,
        .to_ms = tm_moments_end_ms(trace, INTERVAL_S * 1000),
        .interval_s = INTERVAL_S,
        .horizon = HORIZON,
        .notice_s = tm_job_fleet_notice_s(fleet),
        .seed = (uint64_t)fleet->seed,
        .spot_usd_h = (double)fleet->spot_usd_h_millionths / 1e6 / each,
        .on_demand_usd_h = (double)fleet->on_demand_usd_h_millionths / 1e6 / each,
        .keeper_usd_h = fmax(0, (double)fleet->anchor_usd_h_millionths / 1e6) / each,
        .samples_total = samples,
        .first_wait_s = tm_run_layouts__first_wait_s(fleet),
        .deadline_s = (double)settings->job.deadline_ms / 1000,
        .buys_nothing = tm_job_wants_spot(&settings->job),
        .budget_usd = (double)settings->job.budget_usd_millionths / 1e6,
        .anchors = each * (int)(trains ? fleet->on_demand - tm_job_fleet_keepers(fleet) : fleet->on_demand),
        .anchors_train = trains,
        .workers_min = (int)fleet->workers_min,
        .workers_max = each * (int)(fleet->limit - tm_job_fleet_keepers(fleet)),
        .workers_each = each,
        .live = true};
}

/* What the fleet might live through instead of this trace: other draws, or the trace from other starts. */
static struct tm_draw others_of(const struct tm_job_fleet *fleet, const struct tm_trace *trace,
                                struct tm_draw_pool pools[TM_DRAW_POOLS_MAX])
{
    if (tm_job_fleet_is_drawn(fleet)) return tm_run_draw(fleet, pools);
    pools[0] = (struct tm_draw_pool){.count = (int)trace->instances_max,
                                     .price_usd_h = fmax(0, (double)fleet->spot_usd_h_millionths / 1e6)};
    return (struct tm_draw){.pools = pools, .pool_count = 1, .like = trace, .seed = (uint64_t)fleet->seed};
}

/* No instance goes: a trace with all of them, from its beginning; with its first price, or without one. */
static int keep_whole(struct tm_trace *trace, int64_t limit, bool priced, struct tm_error *e)
{
    int64_t end_ms = trace->end_ms;
    double price = NAN;
    if (priced) (void)tm_moments_count_at(trace, trace->begin_ms, &price);
    trace->event_count = 0;
    trace->begin_ms = 0;
    trace->instances_max = limit;
    int rc = tm_trace_add(trace, 0, limit, 0, price, e);
    trace->end_ms = end_ms;
    return rc;
}

/* What the judge is shown as the trace, in workers: the simulation of on-demand alone takes the largest fleet that it
 * finds there, and of instances that are on demand anyway a trace of spot does not know. */
static int copy_workers(const struct tm_job_fleet *fleet, const struct tm_trace *trace, bool on_demand_alone,
                        struct tm_trace *out, struct tm_error *e)
{
    int64_t beside = fleet->on_demand_trains != 0 ? fleet->on_demand - tm_job_fleet_keepers(fleet) : 0;
    int64_t most = fleet->limit - tm_job_fleet_keepers(fleet), all = trace->instances_max + beside;
    int rc = tm_trace_copy(trace, out, e);
    if (rc == 0 && on_demand_alone && beside > 0) rc = keep_whole(out, all < most ? all : most, true, e);
    return rc == 0 ? tm_trace_multiply(out, tm_job_fleet_workers_each(fleet), e) : rc;
}

/* On-demand alone begins when any other fleet would that is on demand as a whole. */
static struct tm_cost cost_of(const struct tm_job_fleet *fleet, const struct tm_cost *cost, bool on_demand_alone)
{
    struct tm_cost own = *cost;
    int64_t trains = fleet->limit - tm_job_fleet_keepers(fleet);
    bool whole = fleet->on_demand_trains != 0 && fleet->on_demand - tm_job_fleet_keepers(fleet) >= trains;
    if (on_demand_alone && whole) own.measured.begin_s = own.start_s;
    return own;
}

/* On the trace that the local cloud will replay. */
static int expect_here(struct tm_env *env, const char *policy, bool limited, const struct tm_run_settings *settings,
                       const struct tm_run_layouts *layouts, const struct tm_run_plan *plan,
                       struct tm_run_expectation *out, struct tm_error *e)
{
    bool on_demand_alone = tm_policy_find(policy)->on_demand;
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    struct tm_cost cost = cost_of(fleet, &layouts->job.cost, on_demand_alone);
    struct tm_sim_job job = {&layouts->job.layouts, layouts->migrations, &cost, NULL};
    int64_t each = tm_job_fleet_workers_each(fleet);
    struct tm_trace workers;
    struct tm_judged judged;
    tm_trace_init(&workers);
    int rc = copy_workers(fleet, &plan->trace, on_demand_alone, &workers, e);
    if (rc != 0) {
        tm_trace_deinit(&workers);
        return rc;
    }
    struct tm_trace longer = workers; /* borrows: after its end what there is stays */
    struct tm_judge judge = {.env = env,
                             .job = &job,
                             .policy = tm_policy_find(policy),
                             .trace = &longer,
                             .step_spread = settings->step_core_s > 0 ? MEASURED_SPREAD : 0,
                             .probability = settings->job.probability,
                             .runs = settings->step_core_s > 0 ? TM_JUDGE_RUNS : 1};
    judge.options = tm_run__sim_options(settings, &plan->work, &layouts->job.layouts, &longer);
    struct tm_draw_pool pools[TM_DRAW_POOLS_MAX];
    struct tm_draw others = others_of(fleet, &workers, pools);
    if (on_demand_alone) judge.options.anchors = 0; /* they are of the fleet that it finds in the trace */
    /* instances that are drawn one by one do not take several workers with them */
    bool drawn = each == 1 || !tm_job_fleet_is_drawn(fleet);
    bool varies = !on_demand_alone || fleet->on_demand == 0 || fleet->on_demand_trains == 0;
    if (plan->trace.instances_max > 0 && !settings->no_losses && drawn && varies) judge.others = &others;
    if (!limited) judge.options.budget_usd = 0;
    rc = tm_judge_job(&judge, &judged, e);
    if (rc == 0) take(policy, &judged, out);
    tm_trace_deinit(&workers);
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
static int judge_planned(struct tm_env *env, const struct tm_run_settings *settings, struct tm_run_plan *out,
                         bool *out_known, struct tm_error *e)
{
    struct tm_planned_fleet *planned = tm_calloc(1, sizeof *planned);
    struct tm_fleet_layouts layouts;
    *out_known = false;
    if (planned == NULL) return tm_error_nomem(e);
    int rc = tm_planned_fleet__init(env, settings, planned, out_known, e);
    if (rc == 0 && *out_known) {
        rc = tm_fleet_layouts_init(&planned->judge, &planned->request, &planned->fleet, &layouts, e);
        if (rc == 0) {
            rc = expect_planned(planned, &layouts, settings->job.policy, true, &out->chosen, e);
            if (rc == 0 && is_stopped(settings, &out->chosen))
                rc = expect_planned(planned, &layouts, settings->job.policy, false, &out->unlimited, e);
            if (rc == 0) rc = expect_planned(planned, &layouts, "checkpoint", true, &out->restart, e);
            int on_demand = rc != 0 ? rc : expect_planned(planned, &layouts, "on-demand", true, &out->on_demand, e);
            if (rc == 0 && on_demand != -(int)TM_ENONE) rc = on_demand; /* else nobody offers it on-demand */
            tm_fleet_layouts_deinit(&layouts);
        }
    }
    tm_planned_fleet__deinit(planned);
    tm_free(planned);
    return rc;
}

/* Of a run: with no more workers than its engine can train. */
static int make_layouts(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                        const struct tm_run_work *work, struct tm_run_layouts *out, struct tm_error *e)
{
    int rc = tm_run_layouts__init(env, dir, settings, work, out, e);
    if (rc != 0) return rc;
    rc = tm_run_layouts__check_together(&settings->job, out, e);
    if (rc != 0) tm_run_layouts__deinit(out);
    return rc;
}

static int judge_here(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                      struct tm_run_plan *out, struct tm_error *e)
{
    struct tm_run_layouts layouts;
    int rc = make_layouts(env, dir, settings, &out->work, &layouts, e);
    if (rc != 0) return rc;
    out->costs_measured = layouts.measured;
    out->speed_unknown = layouts.speed_unknown;
    if (!out->speed_unknown) {
        rc = expect_here(env, settings->job.policy, true, settings, &layouts, out, &out->chosen, e);
        if (rc == 0 && is_stopped(settings, &out->chosen))
            rc = expect_here(env, settings->job.policy, false, settings, &layouts, out, &out->unlimited, e);
        if (rc == 0) rc = expect_here(env, "on-demand", true, settings, &layouts, out, &out->on_demand, e);
        if (rc == 0) rc = expect_here(env, "checkpoint", true, settings, &layouts, out, &out->restart, e);
    }
    tm_run_layouts__deinit(&layouts);
    return rc;
}

int tm_run__load_work(struct tm_env *env, struct tm_run_settings *settings, struct tm_arena *arena,
                      struct tm_run_work *out, struct tm_error *e)
{
    int rc = tm_run_work__load(env, &settings->job, arena, out, e);
    if (rc == 0 && settings->step_core_s <= 0)
        rc = tm_run_work__measure(env, &settings->job, arena, &settings->step_core_s, e);
    return rc;
}

/* What the coordinator of a run would find: that no layout suits the fleet's own limits (memory, stages). */
static int check_layouts(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                         const struct tm_run_work *work, struct tm_error *e)
{
    struct tm_run_layouts layouts;
    int rc = make_layouts(env, dir, settings, work, &layouts, e);
    if (rc == 0) tm_run_layouts__deinit(&layouts);
    return rc;
}

/* ---- pools to choose from ---- */

static int expect_choice(struct tm_env *env, const char *policy, const struct tm_run_settings *settings,
                         const struct tm_run_layouts *layouts, const struct tm_run_plan *plan,
                         const struct tm_job_pools *pools, struct tm_run_expectation *out, struct tm_error *e)
{
    struct tm_sim_job job = {&layouts->job.layouts, layouts->migrations, &layouts->job.cost, NULL};
    struct tm_judged judged;
    struct tm_trace longer = plan->trace; /* borrows: after its end what there is stays */
    double samples = (double)settings->job.steps * (double)plan->work.batch;
    double alone_s = samples / fmax(1e-9, job.layouts->list[job.layouts->best[1]].samples_per_s);
    struct tm_judge judge = {.env = env,
                             .job = &job,
                             .policy = tm_policy_find(policy),
                             .options = tm_job_pools__sim_options(settings, pools, samples),
                             .trace = &longer,
                             .step_spread = settings->step_core_s > 0 ? MEASURED_SPREAD : 0,
                             .probability = settings->job.probability,
                             .runs = settings->step_core_s > 0 ? TM_JUDGE_RUNS : 1};
    longer.end_ms += (int64_t)fmin(isfinite(alone_s) ? 4000 * alone_s : 0, EXTRA_H_MAX * 3600e3);
    judge.options.to_ms = tm_moments_end_ms(&longer, INTERVAL_S * 1000);
    int rc = tm_judge_job(&judge, &judged, e);
    if (rc == 0) take(policy, &judged, out);
    return rc;
}

/* What is simulated are workers; the cloud is opened with instances. */
static int expect_choices(struct tm_env *env, const struct tm_run_settings *settings,
                          const struct tm_run_layouts *layouts, struct tm_run_plan *out, struct tm_error *e)
{
    struct tm_job_pools *pools = tm_calloc(1, sizeof *pools);
    if (pools == NULL) return tm_error_nomem(e);
    int rc = tm_job_pools__copy(out->pools, pools, e);
    if (rc == 0) rc = tm_job_pools__count_workers(pools, (int)tm_job_fleet_workers_each(&settings->job.fleet), e);
    for (int i = 0; i < pools->pools.count; i++)
        pools->list[i].start_s += tm_job_pools__join_s(&settings->job.fleet, &layouts->job.cost);
    if (rc == 0) rc = expect_choice(env, settings->job.policy, settings, layouts, out, pools, &out->chosen, e);
    if (rc == 0) rc = expect_choice(env, "failover", settings, layouts, out, pools, &out->restart, e);
    tm_job_pools__deinit(pools);
    tm_free(pools);
    return rc;
}

static int judge_choices(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                         struct tm_run_plan *out, struct tm_error *e)
{
    struct tm_run_layouts layouts;
    int rc = make_layouts(env, dir, settings, &out->work, &layouts, e);
    if (rc != 0) return rc;
    out->costs_measured = layouts.measured;
    out->speed_unknown = layouts.speed_unknown;
    if (!out->speed_unknown) rc = expect_choices(env, settings, &layouts, out, e);
    tm_run_layouts__deinit(&layouts);
    return rc;
}

static int plan_choices(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_arena *arena,
                        struct tm_run_plan *out, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    if (tm_policy_find(settings->job.policy)->choice == TM_CHOICE_NONE)
        return tm_error_set(e, TM_EINPUT, "%s: policy %s does not choose among pools; use tidemill", settings->job.file,
                            settings->job.policy);
    out->pools = tm_calloc(1, sizeof *out->pools);
    if (out->pools == NULL) return tm_error_nomem(e);
    int rc = tm_job_pools__init(env, &settings->job, arena, out->pools, e);
    if (rc == 0) rc = tm_trace_copy(&out->pools->times, &out->trace, e);
    for (int i = 0; rc == 0 && settings->no_losses && i < out->pools->pools.count; i++)
        if (out->pools->list[i].trace != NULL) {
            rc = keep_whole(&out->pools->traces[i], out->pools->list[i].limit, true, e);
            out->pools->list[i].from_ms = 0;
        }
    if (rc != 0) return rc;
    out->pools->pools.move_usd = tm_job_pools__egress_usd(fleet, tm_run_work__state_bytes(&out->work));
    out->pools->pools.far = tm_job_pools__far(fleet, tm_run_work__gradient_bytes(&out->work), (double)out->work.batch);
    fleet->limit = out->pools->wanted;
    settings->cores = tm_provider_of(&settings->job)->emulates ? sysconf(_SC_NPROCESSORS_ONLN) : 0;
    bool mix = tm_job_fleet_is_mix(fleet); /* before predicted throughputs are filled in */
    rc = tm_pool_speeds__settle(env, settings, out->pools, e);
    if (rc == 0 && mix) rc = judge_planned(env, settings, out, &out->planned, e);
    if (rc != 0) return rc;
    return out->planned ? check_layouts(env, dir, settings, &out->work, e) : judge_choices(env, dir, settings, out, e);
}

int tm_run_plan_make(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_arena *arena,
                     struct tm_run_plan *out, struct tm_error *e)
{
    bool known = false;
    *out = (struct tm_run_plan){.work = {0}};
    tm_trace_init(&out->trace);
    int rc = tm_run__load_work(env, settings, arena, &out->work, e);
    if (rc == 0 && tm_job_fleet_has_choices(&settings->job.fleet))
        return plan_choices(env, dir, settings, arena, out, e);
    if (rc == 0) rc = tm_run_trace(env, settings, &out->trace, e);
    bool emulated = tm_provider_of(&settings->job)->emulates;
    if (rc == 0 && settings->no_losses) rc = keep_whole(&out->trace, settings->job.fleet.limit, emulated, e);
    if (rc == 0) rc = find_prices(env, &out->trace, settings, e);
    settings->cores = emulated ? sysconf(_SC_NPROCESSORS_ONLN) : 0; /* else each has its own */
    if (rc == 0) rc = judge_planned(env, settings, out, &known, e);
    out->planned = known;
    if (rc == 0 && known) rc = check_layouts(env, dir, settings, &out->work, e);
    if (rc == 0 && !known) rc = judge_here(env, dir, settings, out, e);
    return rc;
}

void tm_run_plan_add_own(struct tm_run_plan *plan, double usd_h)
{
    struct tm_run_expectation *const all[] = {&plan->chosen, &plan->on_demand, &plan->restart, &plan->unlimited};
    for (size_t i = 0; usd_h > 0 && i < sizeof all / sizeof *all; i++) {
        struct tm_run_expectation *one = all[i];
        one->bill_usd.mean += one->time_s.mean / 3600 * usd_h;
        one->bill_usd.p10 += one->time_s.p10 / 3600 * usd_h;
        one->bill_usd.p90 += one->time_s.p90 / 3600 * usd_h;
        one->sure_usd += one->sure_s / 3600 * usd_h;
    }
}

void tm_run_plan_deinit(struct tm_run_plan *plan)
{
    tm_trace_deinit(&plan->trace);
    if (plan->pools != NULL) tm_job_pools__deinit(plan->pools);
    tm_free(plan->pools);
    plan->pools = NULL;
}
