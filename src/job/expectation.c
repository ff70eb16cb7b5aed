#include "job/expectation.h"

#include "sim/moments.h"
#include "sim/simulate.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { INTERVAL_S = 60, HORIZON = 12, EXTRA_H_MAX = 200 };

/* ---- prices ---- */

/* What neither the job nor the trace says is the catalogue's, of the instance type that the job or the trace names. */
static int find_prices(struct tm_env *env, const struct tm_trace *trace, struct tm_run_settings *settings,
                       struct tm_error *e)
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
    if (rc == 0)
        rc = tm_knowledge_prices(&catalog, fleet->instance,
                                 "name fleet.spot_price and fleet.on_demand_price in the job", &spot, &on_demand, e);
    if (rc == 0) {
        fleet->spot_usd_h_millionths = llround(spot * 1e6);
        fleet->on_demand_usd_h_millionths = llround(on_demand * 1e6);
    }
    tm_catalog_deinit(&catalog);
    return rc;
}

/* ---- simulation ---- */

static int expect(struct tm_env *env, const char *policy, const struct tm_run_settings *settings,
                  const struct tm_run_layouts *layouts, const struct tm_run_plan *plan, struct tm_run_expectation *out,
                  struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->fleet;
    struct tm_sim_job job = {&layouts->job.layouts, layouts->migrations, &layouts->job.cost, NULL};
    struct tm_sim_result result;
    struct tm_trace longer = plan->trace; /* borrows: after its end what there is stays */
    double samples = (double)plan->work.steps * (double)plan->work.batch;
    double alone_s = samples / fmax(1e-9, layouts->job.layouts.list[layouts->job.layouts.best[1]].samples_per_s);
    double slow_s = isfinite(alone_s) ? 4 * alone_s : 0;
    longer.end_ms += (int64_t)fmin(slow_s * 1000, EXTRA_H_MAX * 3600e3);
    struct tm_sim_options options = {.from_ms = longer.begin_ms,
                                     .to_ms = tm_moments_end_ms(&longer, INTERVAL_S * 1000),
                                     .interval_s = INTERVAL_S,
                                     .horizon = HORIZON,
                                     .notice_s = fleet->notice_wall_ms > 0
                                                     ? (double)fleet->notice_wall_ms / 1000 * fleet->speed
                                                     : (double)fleet->notice_ms / 1000,
                                     .seed = (uint64_t)fleet->seed,
                                     .spot_usd_h = (double)fleet->spot_usd_h_millionths / 1e6,
                                     .on_demand_usd_h = (double)fleet->on_demand_usd_h_millionths / 1e6,
                                     .samples_total = samples};
    int rc = tm_simulate(env, &job, &longer, tm_policy_find(policy), &options, &result, NULL, e);
    if (rc != 0) return tm_error_wrap(e, rc, "simulating policy %s", policy);
    *out = (struct tm_run_expectation){.policy = policy,
                                       .time_s = result.finished_at_s,
                                       .bill_usd = result.bill_usd,
                                       .paused_s = result.pauses.migrate_s + result.pauses.rollback_s +
                                                   result.pauses.idle_s + result.pauses.start_s,
                                       .changes = result.reconfigurations};
    return 0;
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
    if (rc == 0) rc = tm_run_work_load(env, &job, settings, arena, out, e);
    if (rc == 0 && settings->step_core_s <= 0)
        rc = tm_run_work_measure(env, &job, settings, arena, &settings->step_core_s, e);
    tm_job_deinit(&job);
    return rc;
}

int tm_run_plan_make(struct tm_env *env, const char *path, const char *dir, struct tm_run_settings *settings,
                     struct tm_arena *arena, struct tm_run_plan *out, struct tm_error *e)
{
    struct tm_run_layouts layouts;
    *out = (struct tm_run_plan){.work = {0}};
    tm_trace_init(&out->trace);
    int rc = load_work(env, path, settings, arena, &out->work, e);
    if (rc == 0) rc = tm_run_trace(env, settings, &out->trace, e);
    if (rc == 0 && settings->no_losses) rc = keep_whole(&out->trace, settings->fleet.limit, e);
    if (rc == 0) rc = find_prices(env, &out->trace, settings, e);
    settings->cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (rc == 0) rc = tm_run_layouts_init(env, dir, settings, &out->work, &layouts, e);
    if (rc != 0) return rc;
    out->costs_measured = layouts.measured;
    out->speed_unknown = layouts.speed_unknown;
    if (out->speed_unknown) {
        tm_run_layouts_deinit(&layouts);
        return 0;
    }
    rc = expect(env, settings->policy, settings, &layouts, out, &out->chosen, e);
    if (rc == 0) rc = expect(env, "on-demand", settings, &layouts, out, &out->on_demand, e);
    if (rc == 0) rc = expect(env, "checkpoint", settings, &layouts, out, &out->restart, e);
    tm_run_layouts_deinit(&layouts);
    return rc;
}

void tm_run_plan_deinit(struct tm_run_plan *plan)
{
    tm_trace_deinit(&plan->trace);
}
