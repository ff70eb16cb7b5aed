#include "cli/run_table.h"

#include "base/table.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

static int print_table(const struct tm_term *term, const struct tm_run_settings *settings,
                       const struct tm_run_plan *plan, struct tm_text *out, struct tm_error *e)
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
    add_row(&table, settings, &plan->chosen, spot, true, term->utf8);
    if (strcmp(settings->policy, "checkpoint") != 0) add_row(&table, settings, &plan->restart, spot, false, false);
    add_row(&table, settings, &plan->on_demand, on_demand, false, false);
    int rc = tm_table_print(&table, term, out, e);
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

int tm_run_table_print(const struct tm_term *term, const struct tm_run_settings *settings,
                       const struct tm_run_plan *plan, const char *dir, struct tm_text *out, struct tm_error *e)
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
    if (settings->step_core_s > 0)
        tm_text_printf(out, "; %u layers, %.2f million parameters; a step is %.3g core-seconds here", work->layers,
                       params / 1e6, settings->step_core_s);
    tm_text_printf(out, "\nlocal cloud: %s%s, %s of it in a second; %s\n",
                   fleet->trace[0] != '\0' ? fleet->trace : "preemptions drawn from fleet.losses",
                   settings->no_losses ? " without losses" : "", speed,
                   settings->chaos >= 0 ? "faults by chaos on top" : "instances are processes of this machine");
    tm_text_printf(out, "state: %s\n\n", dir);
    if (plan->speed_unknown) {
        print_prices(settings, out);
        return 0;
    }
    tm_text_printf(out, "Expected, by simulation (costs of changes %s):\n",
                   plan->costs_measured ? "as measured by the last run" : "as is typical");
    return print_table(term, settings, plan, out, e);
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
