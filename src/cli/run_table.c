#include "cli/run_table.h"

#include "base/table.h"
#include "base/units.h"
#include "job/provider.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "4x a.large spot, 1x c.small on-demand (keeps copies)"; all that trains on demand: "5x a.large on-demand". */
static void put_fleet(const struct tm_verdict *verdict, bool on_demand, struct tm_text *out)
{
    int64_t all = 0;
    for (size_t i = 0; i < verdict->fleet_count; i++) {
        const struct tm_job_pool *pool = &verdict->fleet[i];
        if (pool->role == TM_POOL_TRAINS) all += pool->count;
        if (on_demand) continue;
        tm_text_printf(out, "%s%lldx %s %s%s", i > 0 ? ", " : "", (long long)pool->count, pool->instance,
                       tm_pool_market_names[pool->market], pool->role == TM_POOL_KEEPS_COPIES ? " (keeps copies)" : "");
    }
    if (on_demand && verdict->fleet_count > 0)
        tm_text_printf(out, "%lldx %s on-demand", (long long)all, verdict->fleet[0].instance);
}

/* "up to 4x a.large of 3 pools": the policy chooses. */
static void put_choices(const struct tm_job_fleet *fleet, struct tm_text *out)
{
    tm_text_printf(out, "up to %lldx %s of %zu pools", (long long)fleet->limit, fleet->instance, fleet->pools.count);
}

static void add_row(struct tm_table *table, const struct tm_run_settings *settings, const struct tm_verdict *verdict,
                    const struct tm_expected *row, bool utf8)
{
    char cloud[TM_UNITS_TEXT_MAX] = "-";
    char wall[TM_UNITS_TEXT_MAX] = "-";
    char paused[TM_UNITS_TEXT_MAX];
    struct tm_text fleet;
    if (isfinite(row->time_s.mean)) {
        tm_unit_print(TM_UNIT_DURATION, (int64_t)(row->time_s.mean * 1000), cloud);
        tm_unit_print(TM_UNIT_DURATION, (int64_t)(row->time_s.mean * 1000 / settings->job.fleet.speed), wall);
    }
    tm_unit_print(TM_UNIT_DURATION, (int64_t)(row->paused_s * 1000), paused);
    tm_text_init(&fleet, 4096);
    if (tm_job_fleet_has_choices(&settings->job.fleet))
        put_choices(&settings->job.fleet, &fleet);
    else
        put_fleet(verdict, row->on_demand, &fleet);
    tm_table_add(table, "%s", row->policy);
    tm_table_add(table, "%s", tm_text_string(&fleet));
    tm_table_add(table, "%s", cloud);
    tm_table_add(table, "%s", wall);
    tm_table_add(table, "%s", paused);
    tm_table_add(table, "%.3g", row->changes);
    if (row->bill_usd.p10 < row->bill_usd.p90)
        tm_table_add(table, "%.2f (%.2f-%.2f)", row->bill_usd.mean, row->bill_usd.p10, row->bill_usd.p90);
    else
        tm_table_add(table, "%.2f", row->bill_usd.mean);
    if (settings->job.deadline_ms > 0) tm_table_add(table, "%.2f", row->p_deadline);
    tm_table_add(table, "%s", !row->chosen ? "" : utf8 ? "\xE2\x9C\x94" : "*");
    tm_text_deinit(&fleet);
}

static int print_table(const struct tm_term *term, const struct tm_run_settings *settings,
                       const struct tm_verdict *verdict, struct tm_text *out, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"POLICY", TM_LEFT, 0},
        {"FLEET", TM_LEFT, 0},
        {"TIME", TM_RIGHT, 0},
        {"REAL TIME", TM_RIGHT, 1},
        {"MIGRATING", TM_RIGHT, 2},
        {"MIGRATIONS", TM_RIGHT, 3},
        {"COST ($, p10-p90)", TM_RIGHT, 0},
        {"P(deadline)", TM_RIGHT, 0},
        {"CHOSEN", TM_LEFT, 0},
    };
    enum { DEADLINE = 7, COUNT = sizeof columns / sizeof *columns };
    struct tm_column shown[COUNT];
    struct tm_table table;
    size_t count = 0;
    for (size_t i = 0; i < COUNT; i++)
        if (i != DEADLINE || settings->job.deadline_ms > 0) shown[count++] = columns[i];
    tm_table_init(&table, shown, count);
    for (size_t i = 0; i < verdict->row_count; i++)
        add_row(&table, settings, verdict, &verdict->rows[i], term->utf8);
    int rc = tm_table_print(&table, term, out, e);
    tm_table_deinit(&table);
    return rc;
}

/* What a step of the job's own command takes shows when it runs: what can be told is the price of an hour. */
static void print_prices(const struct tm_run_settings *settings, struct tm_text *out)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    double spot = (double)(fleet->limit * fleet->spot_usd_h_millionths) / 1e6;
    double on_demand = (double)(fleet->limit * fleet->on_demand_usd_h_millionths) / 1e6;
    tm_text_puts(out, "No time is predicted: the step time of \"run:\" is not known before it runs.\n");
    if (spot > 0 || on_demand > 0)
        tm_text_printf(out, "Price per hour of the cloud's time: up to %lldx %s, $%.2f spot ($%.2f on-demand)\n",
                       (long long)fleet->limit, fleet->instance, spot, on_demand);
}

/* Where the instances come from, and what becomes of them. */
static void print_cloud(const struct tm_run_settings *settings, struct tm_text *out)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    const struct tm_provider *provider = tm_provider_of(&settings->job);
    const char *about = settings->chaos >= 0 ? "with faults injected by chaos" : provider->about;
    char speed[TM_UNITS_TEXT_MAX];
    tm_unit_print(TM_UNIT_DURATION, (int64_t)(fleet->speed * 1000), speed);
    if (provider->emulates)
        tm_text_printf(out, "\n%s cloud: %s%s, replayed at %s per second; %s\n", provider->name,
                       fleet->trace[0] != '\0'           ? fleet->trace
                       : tm_job_fleet_has_choices(fleet) ? "each pool as its trace says"
                                                         : "preemptions drawn from fleet.losses",
                       settings->no_losses ? " without preemptions" : "", speed, about);
    else
        tm_text_printf(out, "\ncloud %s: at most %lld instances; %s\n", provider->name, (long long)fleet->limit, about);
}

int tm_run_table_print(const struct tm_term *term, const struct tm_run_settings *settings,
                       const struct tm_run_plan *plan, const struct tm_verdict *verdict, const char *dir,
                       struct tm_text *out, struct tm_error *e)
{
    const struct tm_run_work *work = &plan->work;
    double params = 0;
    for (uint32_t l = 0; l < work->layers; l++)
        params += work->layer_params[l];
    tm_text_printf(out, "%s: %llu steps of %lld samples in %u micro-batches", settings->job.name,
                   (unsigned long long)settings->job.steps, (long long)work->batch, work->micro_batches);
    if (settings->step_core_s > 0)
        tm_text_printf(out, "; %u layers, %.2f million parameters; a step takes %.3g core-seconds here", work->layers,
                       params / 1e6, settings->step_core_s);
    print_cloud(settings, out);
    tm_text_printf(out, "state: %s\n\n", dir);
    if (plan->speed_unknown) {
        if (!tm_job_fleet_has_choices(&settings->job.fleet)) print_prices(settings, out);
        return 0;
    }
    tm_text_printf(out, "Expected, by simulation (%s migration costs):\n",
                   plan->costs_measured ? "measured" : "default");
    return print_table(term, settings, verdict, out, e);
}

/* ---- for programs ---- */

static void put_estimate(struct tm_jsonout *json, const char *key, const struct tm_estimate *estimate)
{
    tm_jsonout_object(json, key);
    tm_jsonout_number(json, "mean", estimate->mean);
    tm_jsonout_number(json, "p10", estimate->p10);
    tm_jsonout_number(json, "p90", estimate->p90);
    tm_jsonout_end(json);
}

void tm_run_expected_json(const struct tm_verdict *verdict, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "expected");
    for (size_t i = 0; i < verdict->row_count; i++) {
        const struct tm_expected *row = &verdict->rows[i];
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "policy", row->policy);
        put_estimate(json, "time_s", &row->time_s);
        put_estimate(json, "bill_usd", &row->bill_usd);
        tm_jsonout_number(json, "p_deadline", row->p_deadline);
        tm_jsonout_bool(json, "chosen", row->chosen);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

void tm_run_verdict_json(const char *name, const struct tm_verdict *verdict, struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "job", name);
    tm_jsonout_bool(json, "feasible", verdict->feasible);
    tm_jsonout_list(json, "fleet");
    for (size_t i = 0; i < verdict->fleet_count; i++) {
        const struct tm_job_pool *pool = &verdict->fleet[i];
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "instance", pool->instance);
        tm_jsonout_string(json, "zone", pool->zone);
        tm_jsonout_string(json, "market", tm_pool_market_names[pool->market]);
        tm_jsonout_integer(json, "count", pool->count);
        tm_jsonout_string(json, "role", tm_pool_role_names[pool->role]);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_run_expected_json(verdict, json);
    tm_jsonout_string(json, "why", verdict->why);
    tm_jsonout_end(json);
}
