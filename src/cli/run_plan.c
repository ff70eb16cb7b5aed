#include "cli/run_plan.h"

#include "base/suggest.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/commands.h"
#include "sim/moments.h"
#include "sim/simulate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { INTERVAL_S = 60, HORIZON = 12, EXTRA_H_MAX = 200 };

/* ---- prices ---- */

/* What neither the job nor the trace says is the catalogue's, of the instance type that the job or the trace names. */
static int find_prices(struct tm_cli *cli, const struct tm_trace *trace, struct tm_run_settings *settings,
                       struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->fleet;
    struct tm_catalog catalog;
    bool asked = fleet->instance[0] != '\0';
    if (!asked && trace->instance[0] != '\0') fleet->instance = tm_arena_strdup(&settings->arena, trace->instance);
    if (fleet->instance == NULL) return tm_error_nomem(e);
    if (fleet->instance[0] == '\0') fleet->instance = "p3.2xlarge";
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(cli->env, &catalog, e);
    const struct tm_instance_type *found = NULL;
    struct tm_suggest suggest = {.word = fleet->instance};
    for (size_t i = 0; rc == 0 && found == NULL && i < catalog.instance_count; i++) {
        tm_suggest_offer(&suggest, catalog.instances[i].name);
        if (strcasecmp(catalog.instances[i].name, fleet->instance) == 0) found = &catalog.instances[i];
    }
    double spot = found != NULL ? tm_catalog_cheapest(&catalog, found, TM_PRICE_SPOT) : NAN;
    double on_demand = found != NULL ? tm_catalog_cheapest(&catalog, found, TM_PRICE_ON_DEMAND) : NAN;
    if (fleet->spot_usd_h_millionths < 0 && !isnan(spot)) fleet->spot_usd_h_millionths = llround(spot * 1e6);
    if (fleet->on_demand_usd_h_millionths < 0 && !isnan(on_demand))
        fleet->on_demand_usd_h_millionths = llround(on_demand * 1e6);
    if (rc == 0 && (fleet->spot_usd_h_millionths < 0 || fleet->on_demand_usd_h_millionths < 0))
        rc = tm_error_set(e, TM_EINPUT,
                          "no price of %s is known%s%s%s; name fleet.spot_price and fleet.on_demand_price in the job",
                          fleet->instance, suggest.best != NULL && found == NULL ? " (did you mean " : "",
                          suggest.best != NULL && found == NULL ? suggest.best : "",
                          suggest.best != NULL && found == NULL ? "?)" : "");
    tm_catalog_deinit(&catalog);
    return rc;
}

/* ---- simulation ---- */

static int expect(struct tm_cli *cli, const char *policy, const struct tm_run_settings *settings,
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
    int rc = tm_simulate(cli->env, &job, &longer, tm_policy_find(policy), &options, &result, NULL, e);
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

int tm_run_plan_make(struct tm_cli *cli, const char *path, const char *dir, struct tm_run_settings *settings,
                     struct tm_run_plan *out, struct tm_error *e)
{
    struct tm_run_layouts layouts;
    *out = (struct tm_run_plan){.work = {0}};
    tm_trace_init(&out->trace);
    int rc = tm_run_work_load(cli->env, path, settings, &cli->arena, &out->work, e);
    if (rc == 0) rc = tm_run_trace(cli->env, settings, &out->trace, e);
    if (rc == 0 && settings->no_losses) rc = keep_whole(&out->trace, settings->fleet.limit, e);
    if (rc == 0) rc = find_prices(cli, &out->trace, settings, e);
    if (rc == 0 && settings->step_core_s <= 0)
        rc = tm_run_work_measure(cli->env, path, settings, &cli->arena, &settings->step_core_s, e);
    settings->cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (rc == 0) rc = tm_run_layouts_init(cli, dir, settings, &out->work, &layouts, e);
    if (rc != 0) return rc;
    out->costs_measured = layouts.measured;
    out->speed_unknown = layouts.speed_unknown;
    if (out->speed_unknown) {
        tm_run_layouts_deinit(&layouts);
        return 0;
    }
    rc = expect(cli, settings->policy, settings, &layouts, out, &out->chosen, e);
    if (rc == 0) rc = expect(cli, "on-demand", settings, &layouts, out, &out->on_demand, e);
    if (rc == 0) rc = expect(cli, "checkpoint", settings, &layouts, out, &out->restart, e);
    tm_run_layouts_deinit(&layouts);
    return rc;
}

void tm_run_plan_deinit(struct tm_run_plan *plan)
{
    tm_trace_deinit(&plan->trace);
}

/* ---- for people ---- */

static void add_row(struct tm_table *table, const struct tm_run_settings *settings,
                    const struct tm_run_expectation *row, const char *fleet, bool chosen, bool utf8)
{
    char cloud[TM_UNITS_TEXT_MAX] = "-";
    char wall[TM_UNITS_TEXT_MAX] = "-";
    char paused[TM_UNITS_TEXT_MAX];
    if (isfinite(row->time_s)) {
        tm_unit_print(TM_UNIT_DURATION, (int64_t)(row->time_s * 1000), cloud);
        tm_unit_print(TM_UNIT_DURATION, (int64_t)(row->time_s * 1000 / settings->fleet.speed), wall);
    }
    tm_unit_print(TM_UNIT_DURATION, (int64_t)(row->paused_s * 1000), paused);
    tm_table_add(table, "%s", row->policy);
    tm_table_add(table, "%s", fleet);
    tm_table_add(table, "%s", cloud);
    tm_table_add(table, "%s", wall);
    tm_table_add(table, "%s", paused);
    tm_table_add(table, "%d", row->changes);
    tm_table_add(table, "%.2f", row->bill_usd);
    tm_table_add(table, "%s", !chosen ? "" : utf8 ? "\xE2\x9C\x94" : "*");
}

static int print_table(const struct tm_cli *cli, const struct tm_run_settings *settings, const struct tm_run_plan *plan,
                       struct tm_text *out, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"POLICY", TM_LEFT, 0},  {"FLEET", TM_LEFT, 0},    {"TIME", TM_RIGHT, 0},     {"ON THE WALL", TM_RIGHT, 1},
        {"PAUSED", TM_RIGHT, 2}, {"CHANGES", TM_RIGHT, 3}, {"COST ($)", TM_RIGHT, 0}, {"CHOSEN", TM_LEFT, 0},
    };
    char spot[64];
    char on_demand[64];
    struct tm_table table;
    long long limit = (long long)settings->fleet.limit;
    (void)snprintf(spot, sizeof spot, "up to %lldx %s [Spot]", limit, settings->fleet.instance);
    (void)snprintf(on_demand, sizeof on_demand, "%lldx %s", limit, settings->fleet.instance);
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    add_row(&table, settings, &plan->chosen, spot, true, cli->term.utf8);
    if (strcmp(settings->policy, "checkpoint") != 0) add_row(&table, settings, &plan->restart, spot, false, false);
    add_row(&table, settings, &plan->on_demand, on_demand, false, false);
    int rc = tm_table_print(&table, &cli->term, out, e);
    tm_table_deinit(&table);
    return rc;
}

/* What a step of the job's own command takes shows when it runs: what can be told is the price of an hour. */
static void print_prices(const struct tm_run_settings *settings, struct tm_text *out)
{
    const struct tm_job_fleet *fleet = &settings->fleet;
    double spot = (double)(fleet->limit * fleet->spot_usd_h_millionths) / 1e6;
    double on_demand = (double)(fleet->limit * fleet->on_demand_usd_h_millionths) / 1e6;
    tm_text_printf(out,
                   "No time is predicted: what a step of \"run:\" takes is not known before it runs.\n"
                   "Price of an hour of the cloud's time: up to %lldx %s at $%.2f on spot ($%.2f on demand)\n",
                   (long long)fleet->limit, fleet->instance, spot, on_demand);
}

int tm_run_plan_print(const struct tm_cli *cli, const struct tm_run_settings *settings, const struct tm_run_plan *plan,
                      const char *dir, struct tm_text *out, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->fleet;
    const struct tm_run_work *work = &plan->work;
    char speed[TM_UNITS_TEXT_MAX];
    double params = 0;
    for (uint32_t l = 0; l < work->layers; l++)
        params += work->layer_params[l];
    tm_unit_print(TM_UNIT_DURATION, (int64_t)(fleet->speed * 1000), speed);
    tm_text_printf(out, "%s: %llu steps of %lld samples in %u micro-batches", settings->name,
                   (unsigned long long)work->steps, (long long)work->batch, work->micro_batches);
    if (settings->engine == TM_RUN_GPT)
        tm_text_printf(out, "; %u layers, %.2f million parameters; a step is %.3g core-seconds here", work->layers,
                       params / 1e6, settings->step_core_s);
    tm_text_printf(out, "\nlocal cloud: %s%s, %s of it in a second; %s\n", fleet->trace,
                   settings->no_losses ? " without losses" : "", speed,
                   settings->chaos >= 0 ? "faults by chaos on top" : "instances are processes of this machine");
    tm_text_printf(out, "state: %s\n\n", dir);
    if (plan->speed_unknown) {
        print_prices(settings, out);
        return 0;
    }
    tm_text_printf(out, "Expected, by simulation (costs of changes %s):\n",
                   plan->costs_measured ? "as measured by the last run" : "as is typical");
    return print_table(cli, settings, plan, out, e);
}
