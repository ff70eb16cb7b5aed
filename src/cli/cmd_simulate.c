#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/number.h"
#include "base/suggest.h"
#include "base/table.h"
#include "cli/commands.h"
#include "cli/knowledge_source.h"
#include "cli/run_table.h"
#include "job/job_layouts.h"
#include "job/job_simulation.h"
#include "market/trace_format.h"
#include "sim/fan.h"
#include "sim/moments.h"
#include "sim/report.h"
#include "sim/sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MODELS_MAX = 64, TRACES_MAX = 1024, POLICIES_MAX = 32, SEEDS_MAX = 1000 };

struct request {
    struct tm_job_layouts *subjects; /* [model_count] */
    struct tm_job_layouts *believed; /* [model_count]; --believe */
    struct tm_trace *list;           /* [trace_count] */
    struct tm_sweep_model *models;
    struct tm_sweep_trace *traces;
    size_t model_count;
    size_t trace_count;
    const struct tm_policy_info *policies[POLICIES_MAX];
    size_t policy_count;
    uint64_t *seeds;
    size_t seed_count;
    struct tm_catalog catalog;
    struct tm_sim_options options; /* what is the same for all traces */
    int64_t from_ms, to_ms;        /* to_ms < 0: the end */
    int instances_max;
    const char *instance;          /* type that is rented; NULL: not known */
    struct tm_job_simulation *job; /* of a job file; NULL: options alone */
};

/* ---- what is asked for ---- */

/* Names end at a comma, but "KEY=..." behind one belongs to the model before it: llama-3.1-8b,lora=16,ctx=2048. */
static size_t length_of_model(const char *at)
{
    size_t length = strcspn(at, ",");
    while (at[length] == ',') {
        const char *next = at + length + 1;
        size_t word = strcspn(next, ",");
        size_t key = strcspn(next, "=:/");
        if (key == 0 || key >= word || next[key] != '=') break;
        length += 1 + word;
    }
    return length;
}

int tm_cmd_each_value(struct tm_cli *cli, const char *name, void *context,
                      int (*add)(struct tm_cli *cli, void *context, const char *value, struct tm_error *e),
                      struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, name) != 0) continue;
        const char *at = cli->given[i].value;
        bool models = strcmp(name, "model") == 0;
        while (rc == 0 && *at != '\0') {
            size_t length = models ? length_of_model(at) : strcspn(at, ",");
            char *value = tm_arena_strndup(&cli->arena, at, length);
            if (value == NULL) return tm_error_nomem(e);
            if (length > 0) rc = add(cli, context, value, e);
            at += length + (at[length] == ',');
        }
    }
    return rc;
}

/* Whether the policy's forecast looks that far ahead; said where it does not. */
static bool can_look(const struct tm_policy_info *info, int horizon)
{
    if (info->forecast < 0 || tm_forecast_looks((enum tm_forecast_method)info->forecast, horizon)) return true;
    tm_log(TM_LOG_WARN, "skipping policy %s: its forecast looks 5, 7 or more intervals ahead, not %d", info->name,
           horizon);
    return false;
}

static int add_policy(struct tm_cli *cli, void *context, const char *name, struct tm_error *e)
{
    struct request *request = context;
    (void)cli;
    struct tm_suggest suggest = {.word = name};
    tm_suggest_offer(&suggest, "all");
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++) {
        tm_suggest_offer(&suggest, info->name);
        if (strcmp(name, "all") != 0 && strcmp(name, info->name) != 0) continue;
        if (strcmp(name, "all") == 0 && !can_look(info, request->options.horizon)) continue;
        bool choices = request->job != NULL && request->job->pools != NULL;
        if (strcmp(name, "all") == 0 && (choices ? info->choice == TM_CHOICE_NONE : info->choice_only)) continue;
        if (info->choice_only && !choices)
            return tm_error_set(e, TM_EUSAGE,
                                "--policy: %s chooses among pools: give a job file whose fleet.pools have a trace or a "
                                "limit each",
                                info->name);
        bool there = false;
        for (size_t i = 0; i < request->policy_count; i++)
            there = there || request->policies[i] == info;
        if (!there) request->policies[request->policy_count++] = info;
        if (strcmp(name, "all") != 0) return 0;
    }
    if (strcmp(name, "all") == 0) return 0;
    return tm_error_set(e, TM_EUSAGE, "--policy: no policy \"%.40s\"%s%s%s; tidemill help simulate lists them", name,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

static int add_seed(struct tm_cli *cli, void *context, const char *text, struct tm_error *e)
{
    struct request *request = context;
    int64_t seed;
    (void)cli;
    if (!tm_number_i64(text, strlen(text), &seed) || seed < 0 || request->seed_count == SEEDS_MAX)
        return tm_error_set(e, TM_EUSAGE, "--seed: expected up to %d whole numbers, got \"%.40s\"", SEEDS_MAX, text);
    request->seeds[request->seed_count++] = (uint64_t)seed;
    return 0;
}

static int read_intervals(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    int64_t interval_ms = 60000, horizon = 12;
    int rc = tm_given_time_span(cli, "interval", &interval_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "horizon", 1, TM_FORECAST_STEPS_MAX, &horizon, e);
    request->options.interval_s = (double)interval_ms / 1000;
    request->options.horizon = (int)horizon;
    return rc;
}

static int read_times(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    int64_t notice_ms = 30000, deadline_ms = 0;
    request->to_ms = -1;
    struct tm_sim_options *options = &request->options;
    int rc = read_intervals(cli, request, e);
    if (rc == 0) rc = tm_given_duration(cli, "from", &request->from_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "to", &request->to_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "notice", &notice_ms, e);
    if (rc == 0) rc = tm_given_time_span(cli, "deadline", &deadline_ms, e);
    if (rc == 0) rc = tm_given_number(cli, "samples", 1, 1e18, &options->samples_total, e);
    options->spot_usd_h = options->on_demand_usd_h = NAN;
    if (rc == 0) rc = tm_given_number(cli, "spot-price", 0, 1e6, &options->spot_usd_h, e);
    if (rc == 0) rc = tm_given_number(cli, "on-demand-price", 0, 1e6, &options->on_demand_usd_h, e);
    if (rc == 0 && deadline_ms > 0 && !(options->samples_total > 0))
        rc = tm_error_set(e, TM_EUSAGE, "--deadline needs the size of the job: give --samples too");
    options->notice_s = (double)notice_ms / 1000;
    options->deadline_s = (double)deadline_ms / 1000;
    return rc;
}

/* ---- traces ---- */

static int add_trace(struct tm_cli *cli, void *context, const char *path, struct tm_error *e)
{
    struct request *request = context;
    if (request->trace_count == TRACES_MAX)
        return tm_error_set(e, TM_ELIMIT, "--trace: more than %d traces in one call", TRACES_MAX);
    struct tm_trace *trace = &request->list[request->trace_count];
    tm_trace_init(trace);
    request->trace_count++;
    int rc = tm_cmd_load_trace(cli, path, trace, e);
    if (rc != 0) return rc;
    struct tm_sweep_trace *row = &request->traces[request->trace_count - 1];
    *row = (struct tm_sweep_trace){.name = path, .trace = trace, .options = request->options};
    row->options.from_ms = tm_given(cli, "from") ? request->from_ms : trace->begin_ms;
    int64_t end_ms = tm_moments_end_ms(trace, (int64_t)(request->options.interval_s * 1000));
    row->options.to_ms = request->to_ms >= 0 ? request->to_ms : end_ms;
    if (trace->instances_max > TM_LAYOUT_INSTANCES_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s: %lld instances; layouts are for at most %d", path,
                            (long long)trace->instances_max, TM_LAYOUT_INSTANCES_MAX);
    if (trace->instances_max > request->instances_max) request->instances_max = (int)trace->instances_max;
    if (request->instance == NULL && trace->instance[0] != '\0') request->instance = trace->instance;
    return 0;
}

static int read_traces(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    int rc = tm_cmd_each_value(cli, "trace", request, add_trace, e);
    for (size_t i = 0; rc == 0 && i < cli->argument_count; i++)
        rc = add_trace(cli, request, cli->arguments[i], e);
    if (rc == 0 && request->trace_count == 0)
        rc = tm_error_set(e, TM_EUSAGE, "which trace? tidemill simulate --model parcae/gpt-1.5b --trace hadp");
    if (rc == 0 && request->instances_max < 1)
        rc = tm_error_set(e, TM_EINPUT, "%s: the trace never has an instance: nothing can be trained",
                          request->traces[0].name);
    return rc;
}

/* What an instance costs: from the options, else the trace (the simulator sees to that), else the catalogue. */
static int read_prices(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    if (tm_given(cli, "instance")) request->instance = tm_given_text(cli, "instance");
    const char *name = request->instance != NULL ? request->instance : "p3.2xlarge";
    const struct tm_instance_type *found = NULL;
    int rc = tm_knowledge_instance(&request->catalog, name, NULL, NULL, &found, e);
    if (rc != 0 && tm_given(cli, "instance")) return tm_error_wrap(e, rc, "--instance");
    rc = 0;
    for (size_t i = 0; rc == 0 && i < request->trace_count; i++)
        rc =
            tm_knowledge_prices(&request->catalog, name, "give --spot-price and --on-demand-price, or --instance",
                                &request->traces[i].options.spot_usd_h, &request->traces[i].options.on_demand_usd_h, e);
    return rc;
}

/* ---- models ---- */

/* The same layouts as policies see them, at the speed that the real costs are for. */
static int add_belief(struct tm_cli *cli, struct tm_job_layouts_request asked, const struct tm_job_layouts *real,
                      struct tm_job_layouts *out, struct tm_error *e)
{
    asked.cost = tm_given_text(cli, "believe");
    asked.rules = &real->cost.rules;
    if (real->cost.kind == TM_COST_MEASURED) asked.speed = real->cost.measured.speed;
    return tm_job_layouts_init(cli->env, &asked, out, e);
}

static int add_model(struct tm_cli *cli, void *context, const char *name, struct tm_error *e)
{
    struct request *request = context;
    if (request->model_count == MODELS_MAX)
        return tm_error_set(e, TM_ELIMIT, "--model: more than %d models in one call", MODELS_MAX);
    struct tm_job_layouts *believed = &request->believed[request->model_count];
    struct tm_job_layouts *subject = &request->subjects[request->model_count++];
    struct tm_job_layouts_request asked = {.catalog = &request->catalog,
                                           .model = name,
                                           .cost = tm_given(cli, "cost") ? tm_given_text(cli, "cost") : "paper",
                                           .instance = request->instance,
                                           .instances_max = request->instances_max,
                                           .source = tm_cmd_source(cli)};
    int rc = tm_given_integer(cli, "batch", 1, 1 << 30, &asked.batch, e);
    if (rc == 0) rc = tm_given_number(cli, "speed", 1e-6, 1e6, &asked.speed, e);
    if (rc == 0) rc = tm_job_layouts_init(cli->env, &asked, subject, e);
    if (rc == 0 && tm_given(cli, "believe")) rc = add_belief(cli, asked, subject, believed, e);
    if (rc != 0) return rc;
    if (subject->layouts.list[subject->layouts.best[request->instances_max]].samples_per_s <= 0)
        tm_log(TM_LOG_WARN, "%s: no layout on up to %d instances can train it", name, request->instances_max);
    double fastest = subject->layouts.list[subject->layouts.best[request->instances_max]].samples_per_s;
    double needed_s = fastest > 0 ? request->options.samples_total / fastest : 0;
    if (request->options.deadline_s > 0 && needed_s > request->options.deadline_s)
        tm_log(TM_LOG_WARN,
               "%s: even %d instances that are never preempted need %.2f h; no policy can finish in %.2f h", name,
               request->instances_max, needed_s / 3600, request->options.deadline_s / 3600);
    request->models[request->model_count - 1] =
        (struct tm_sweep_model){.name = name, .layouts = &subject->layouts, .cost = &subject->cost};
    if (tm_given(cli, "believe")) {
        request->models[request->model_count - 1].believed_layouts = &believed->layouts;
        request->models[request->model_count - 1].believed_cost = &believed->cost;
    }
    return 0;
}

/* ---- answers ---- */

static void put_pools_json(struct tm_jsonout *json, const struct tm_sim_result *r, const struct tm_sim_pools *pools)
{
    tm_jsonout_integer(json, "moves", r->moves);
    tm_jsonout_list(json, "pools");
    for (int i = 0; i < pools->count + pools->keeper_count; i++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "pool", pools->list[i].name);
        tm_jsonout_number(json, "instance_hours", r->pools[i].instance_hours);
        tm_jsonout_number(json, "bill_usd", r->pools[i].bill_usd);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void put_run_json(struct tm_jsonout *json, const struct tm_sweep_run *run, const struct tm_sim_options *options)
{
    const struct tm_sim_result *r = &run->result;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "policy", run->policy);
    tm_jsonout_string(json, "trace", run->trace);
    tm_jsonout_string(json, "model", run->model);
    tm_jsonout_integer(json, "seed", (int64_t)run->seed);
    tm_jsonout_number(json, "samples", r->samples);
    tm_jsonout_number(json, "samples_per_s", r->samples_per_s);
    tm_jsonout_number(json, "fraction_of_ideal", run->fraction_of_ideal);
    tm_jsonout_object(json, "stall_s");
    tm_jsonout_number(json, "migrate", r->pauses.migrate_s);
    tm_jsonout_number(json, "rollback", r->pauses.rollback_s);
    tm_jsonout_number(json, "idle", r->pauses.idle_s);
    tm_jsonout_number(json, "start", r->pauses.start_s);
    tm_jsonout_end(json);
    tm_jsonout_integer(json, "reconfigurations", r->reconfigurations);
    tm_jsonout_number(json, "bill_usd", r->bill_usd);
    tm_jsonout_number(json, "on_demand_hours", r->on_demand_hours);
    tm_jsonout_number(json, "usd_per_million_samples", r->usd_per_million_samples);
    tm_jsonout_number(json, "finished_at_s", r->finished_at_s);
    if (options->deadline_s > 0)
        tm_jsonout_bool(json, "deadline_met", r->deadline_met);
    else
        tm_jsonout_null(json, "deadline_met");
    tm_jsonout_object(json, "decision_us");
    tm_jsonout_number(json, "mean", r->decision_us_mean);
    tm_jsonout_number(json, "max", r->decision_us_max);
    tm_jsonout_number(json, "tables_ms", r->tables_ms);
    tm_jsonout_end(json);
    if (options->pools != NULL) put_pools_json(json, r, options->pools);
    tm_jsonout_end(json);
}

static void print_json(struct tm_cli *cli, const struct request *request, const struct tm_sweep_run *runs, size_t count)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "runs");
    for (size_t i = 0; i < count; i++)
        put_run_json(&json, &runs[i], &request->options);
    tm_jsonout_end(&json);
    if (request->job != NULL && request->job->pools == NULL) tm_run_expected_json(&request->job->verdict, &json);
    tm_jsonout_end(&json);
}

static int print_table(struct tm_cli *cli, const struct request *request, const struct tm_sweep_run *runs, size_t count,
                       struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"MODEL", TM_LEFT, 4},       {"TRACE", TM_LEFT, 3},      {"POLICY", TM_LEFT, 0},
        {"SAMPLES", TM_RIGHT, 0},    {"SAMPLES/S", TM_RIGHT, 0}, {"OF IDEAL", TM_RIGHT, 0},
        {"MIGRATING", TM_RIGHT, 1},  {"ROLLBACK", TM_RIGHT, 1},  {"IDLE", TM_RIGHT, 1},
        {"MIGRATIONS", TM_RIGHT, 2}, {"COST", TM_RIGHT, 0},      {"$/M SAMPLES", TM_RIGHT, 0},
        {"DONE AT", TM_RIGHT, 2},    {"IN TIME", TM_LEFT, 2}};
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const struct tm_sim_result *r = &runs[i].result;
        tm_table_add(&table, "%s", runs[i].model);
        tm_table_add(&table, "%s", runs[i].trace);
        tm_table_add(&table, "%s", runs[i].policy);
        tm_table_add(&table, "%.0f", r->samples);
        tm_table_add(&table, "%.2f", r->samples_per_s);
        if (isnan(runs[i].fraction_of_ideal))
            tm_table_add(&table, "-");
        else
            tm_table_add(&table, "%.1f%%", 100 * runs[i].fraction_of_ideal);
        tm_table_add(&table, "%.0f s", r->pauses.migrate_s + r->pauses.start_s);
        tm_table_add(&table, "%.0f s", r->pauses.rollback_s);
        tm_table_add(&table, "%.0f s", r->pauses.idle_s);
        tm_table_add(&table, "%d", r->reconfigurations);
        tm_table_add(&table, "$%.2f", r->bill_usd);
        tm_table_add(&table, isnan(r->usd_per_million_samples) ? "-" : "$%.2f", r->usd_per_million_samples);
        tm_table_add(&table, isnan(r->finished_at_s) ? "-" : "%.2f h", r->finished_at_s / 3600);
        tm_table_add(&table, "%s", request->options.deadline_s <= 0 ? "-" : r->deadline_met ? "yes" : "no");
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

/* --plan-log: one row an interval, of all runs. */
static int write_plan_log(struct tm_cli *cli, const struct tm_sweep_run *runs, size_t count, struct tm_error *e)
{
    const char *path = tm_given_text(cli, "plan-log");
    if (path == NULL) return 0;
    struct tm_text text;
    tm_text_init(&text, 1 << 30);
    tm_text_puts(&text, "model,trace,policy,seed,time_s,nodes,pipelines,stages,stall_s,samples\n");
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < runs[i].log.count; k++) {
            const struct tm_sim_interval *at = &runs[i].log.intervals[k];
            tm_text_printf(&text, "%s,%s,%s,%llu,%.3f,%d,%d,%d,%.3f,%.4f\n", runs[i].model, runs[i].trace,
                           runs[i].policy, (unsigned long long)runs[i].seed, at->time_s, at->after, at->pipelines,
                           at->stages, at->pause_s, at->samples);
        }
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = cli->env->file_write(cli->env, path, text.data, text.length, e);
    tm_text_deinit(&text);
    return rc;
}

/* ---- the report ---- */

static struct tm_report_run *report_runs(struct tm_cli *cli, const struct request *request,
                                         const struct tm_sweep_run *runs, size_t count)
{
    struct tm_report_run *rows = tm_calloc(count + 1, sizeof *rows);
    for (size_t i = 0; rows != NULL && i < count; i++) {
        char note[32];
        snprintf(note, sizeof note, "seed %llu", (unsigned long long)runs[i].seed);
        rows[i] = (struct tm_report_run){.policy = runs[i].policy,
                                         .trace = runs[i].trace,
                                         .model = runs[i].model,
                                         .result = &runs[i].result,
                                         .log = &runs[i].log,
                                         .fraction_of_ideal = runs[i].fraction_of_ideal};
        if (request->seed_count > 1) rows[i].note = tm_arena_strndup(&cli->arena, note, strlen(note));
    }
    return rows;
}

/* Our forecast along each trace, as the simulations saw it. */
static int make_fans(const struct request *request, struct tm_sim_fan *fans, struct tm_report_fan *shown,
                     struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < request->trace_count; i++) {
        const struct tm_sim_options *options = &request->traces[i].options;
        struct tm_sim_fan_options how = {.from_ms = options->from_ms,
                                         .to_ms = options->to_ms,
                                         .interval_ms = (int64_t)(options->interval_s * 1000),
                                         .horizon = options->horizon,
                                         .method = TM_FORECAST_TIDEMILL};
        rc = tm_sim_fan_init(&fans[i], request->traces[i].name, request->traces[i].trace, &how, e);
        shown[i] = fans[i].report;
    }
    return rc;
}

static int make_report(struct tm_cli *cli, const struct request *request, const struct tm_sweep_run *runs, size_t count,
                       struct tm_text *html, struct tm_error *e)
{
    struct tm_text command;
    tm_text_init(&command, 1 << 16);
    tm_cli_put_call(cli, "simulate", &command);
    struct tm_report_run *rows = report_runs(cli, request, runs, count);
    struct tm_sim_fan *fans = tm_calloc(request->trace_count + 1, sizeof *fans);
    struct tm_report_fan *shown = tm_calloc(request->trace_count + 1, sizeof *shown);
    int rc = rows == NULL || fans == NULL || shown == NULL ? tm_error_nomem(e) : tm_text_status(&command, e);
    if (rc == 0) rc = make_fans(request, fans, shown, e);
    struct tm_report report = {.title = "Simulated training on spot instances",
                               .command = tm_text_string(&command),
                               .deadline_s = request->options.deadline_s,
                               .runs = rows,
                               .run_count = count,
                               .fans = shown,
                               .fan_count = request->trace_count};
    if (rc == 0) rc = tm_report_html(&report, html, e);
    for (size_t i = 0; fans != NULL && i < request->trace_count; i++)
        tm_sim_fan_deinit(&fans[i]);
    tm_free(shown);
    tm_free(fans);
    tm_free(rows);
    tm_text_deinit(&command);
    return rc;
}

static int write_report(struct tm_cli *cli, const struct request *request, const struct tm_sweep_run *runs,
                        size_t count, struct tm_error *e)
{
    const char *path = tm_given_text(cli, "report");
    if (path == NULL) return 0;
    struct tm_text html;
    tm_text_init(&html, TM_REPORT_BYTES_MAX);
    int rc = make_report(cli, request, runs, count, &html, e);
    if (rc == 0) rc = cli->env->file_write(cli->env, path, html.data, html.length, e);
    if (rc == 0) tm_log(TM_LOG_INFO, "report: %s", path);
    tm_text_deinit(&html);
    return rc;
}

/* ---- a job file ---- */

/* Options override what the file says, but for what the job is made of. */
static int check_options(struct tm_cli *cli, struct tm_error *e)
{
    static const char *const fixed[] = {"model", "samples", "batch", "profile", "profile-gpu", "format"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (tm_given(cli, fixed[i]))
            return tm_error_set(e, TM_EUSAGE, "--%s: the job file says it; change it there", fixed[i]);
    return 0;
}

static int read_job_options(struct tm_cli *cli, struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    double spot = -1, on_demand = -1;
    int rc = check_options(cli, e);
    if (tm_given(cli, "trace")) fleet->trace = tm_given_text(cli, "trace");
    settings->costs = tm_given_text(cli, "cost");
    if (rc == 0) rc = tm_given_duration(cli, "from", &fleet->from_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "notice", &fleet->notice_ms, e);
    if (tm_given(cli, "notice")) fleet->notice_wall_ms = 0;
    if (rc == 0) rc = tm_given_time_span(cli, "deadline", &settings->job.deadline_ms, e);
    if (rc == 0) rc = tm_given_number(cli, "speed", 1e-3, 1e6, &fleet->speed, e);
    if (rc == 0) rc = tm_given_number(cli, "spot-price", 0, 1e6, &spot, e);
    if (rc == 0) rc = tm_given_number(cli, "on-demand-price", 0, 1e6, &on_demand, e);
    if (rc == 0 && tm_given(cli, "instance") && fleet->pools.count > 0)
        rc = tm_error_set(e, TM_EUSAGE, "--instance: fleet.pools says it; change it there");
    if (tm_given(cli, "instance")) fleet->instance = tm_given_text(cli, "instance");
    if (rc == 0 && spot >= 0) tm_job_fleet_set_price(fleet, TM_POOL_SPOT, llround(spot * 1e6));
    if (rc == 0 && on_demand >= 0) tm_job_fleet_set_price(fleet, TM_POOL_ON_DEMAND, llround(on_demand * 1e6));
    return rc;
}

/* The model, the trace and the limits of the file; its policy, unless others are asked for. */
static int prepare_job(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    const char *path = cli->arguments[0];
    struct tm_job_simulation *job = tm_calloc(1, sizeof *job);
    if (job == NULL) return tm_error_nomem(e);
    tm_job_simulation_init(job);
    request->job = job;
    int rc = tm_job_simulation_read(cli->env, path, job, e);
    if (rc == 0) rc = read_job_options(cli, &job->settings, e);
    if (rc == 0) rc = tm_job_simulation_make(cli->env, &cli->arena, job, e);
    if (rc == 0 && tm_given(cli, "believe"))
        rc = tm_job_simulation_believe(cli->env, tm_given_text(cli, "believe"), job, e);
    int64_t to_ms = job->options.to_ms;
    if (rc == 0) rc = tm_given_duration(cli, "to", &to_ms, e);
    int64_t skipped_ms = job->options.pools != NULL ? job->settings.job.fleet.from_ms : 0; /* its time begins there */
    if (rc == 0 && tm_given(cli, "to") && (to_ms -= skipped_ms) <= 0)
        rc = tm_error_set(e, TM_EUSAGE, "--to: expected a time after --from");
    if (to_ms < job->options.to_ms) job->options.to_ms = to_ms;
    if (rc == 0) rc = tm_cmd_each_value(cli, "policy", request, add_policy, e);
    if (rc == 0 && request->policy_count == 0) rc = add_policy(cli, request, job->settings.job.policy, e);
    if (rc == 0) rc = tm_cmd_each_value(cli, "seed", request, add_seed, e);
    if (rc != 0) return rc;
    if (request->seed_count == 0) request->seeds[request->seed_count++] = job->options.seed;
    if (tm_given(cli, "interval")) job->options.interval_s = request->options.interval_s;
    if (tm_given(cli, "horizon")) job->options.horizon = request->options.horizon;
    request->options = job->options;
    request->traces[request->trace_count++] =
        (struct tm_sweep_trace){.name = job->trace,
                                .trace = job->pools != NULL ? &job->pools->times : &job->plan.trace,
                                .options = job->options};
    request->models[request->model_count++] =
        (struct tm_sweep_model){.name = job->settings.job.name, .layouts = job->layouts, .cost = job->cost};
    if (tm_given(cli, "believe")) {
        request->models[request->model_count - 1].believed_layouts = &job->believed.job.layouts;
        request->models[request->model_count - 1].believed_cost = &job->believed.job.cost;
    }
    return 0;
}

static void drop_job(struct request *request)
{
    if (request->job == NULL) return;
    request->trace_count = request->model_count = 0; /* they are the job's */
    tm_job_simulation_deinit(request->job);
    tm_free(request->job);
}

/* ---- the command ---- */

static int prepare(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    request->subjects = tm_calloc(MODELS_MAX, sizeof *request->subjects);
    request->believed = tm_calloc(MODELS_MAX, sizeof *request->believed);
    request->models = tm_calloc(MODELS_MAX, sizeof *request->models);
    request->list = tm_calloc(TRACES_MAX, sizeof *request->list);
    request->traces = tm_calloc(TRACES_MAX, sizeof *request->traces);
    request->seeds = tm_calloc(SEEDS_MAX, sizeof *request->seeds);
    if (request->subjects == NULL || request->believed == NULL || request->models == NULL || request->list == NULL ||
        request->traces == NULL || request->seeds == NULL)
        return tm_error_nomem(e);
    if (cli->argument_count == 1 && tm_job_simulation_is_job(cli->env, cli->arguments[0])) {
        int read = read_intervals(cli, request, e);
        return read == 0 ? prepare_job(cli, request, e) : read;
    }
    int rc = read_times(cli, request, e);
    if (rc == 0) rc = tm_cmd_each_value(cli, "policy", request, add_policy, e);
    if (rc == 0 && request->policy_count == 0 && tm_given(cli, "policy"))
        rc = tm_error_set(e, TM_EUSAGE, "--policy: name one, or all");
    if (rc == 0 && request->policy_count == 0) rc = add_policy(cli, request, "all", e);
    if (rc == 0) rc = tm_cmd_each_value(cli, "seed", request, add_seed, e);
    if (rc == 0 && request->seed_count == 0) request->seed_count = 1;
    if (rc == 0 && !tm_given(cli, "model"))
        rc = tm_error_set(e, TM_EUSAGE, "which model? tidemill simulate --model parcae/gpt-1.5b --trace hadp");
    if (rc == 0) rc = tm_catalog_load(cli->env, &request->catalog, e);
    if (rc == 0) rc = read_traces(cli, request, e);
    if (rc == 0) rc = read_prices(cli, request, e);
    return rc == 0 ? tm_cmd_each_value(cli, "model", request, add_model, e) : rc;
}

static void drop(struct request *request)
{
    drop_job(request);
    for (size_t i = 0; i < request->model_count; i++) {
        tm_job_layouts_deinit(&request->subjects[i]);
        tm_job_layouts_deinit(&request->believed[i]);
    }
    for (size_t i = 0; i < request->trace_count; i++)
        tm_trace_deinit(&request->list[i]);
    tm_catalog_deinit(&request->catalog);
    tm_free(request->subjects);
    tm_free(request->believed);
    tm_free(request->models);
    tm_free(request->list);
    tm_free(request->traces);
    tm_free(request->seeds);
    tm_free(request);
}

static int simulate(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    int64_t threads = sysconf(_SC_NPROCESSORS_ONLN);
    int rc = tm_given_integer(cli, "threads", 1, TM_SWEEP_THREADS_MAX, &threads, e);
    if (rc != 0) return rc;
    struct tm_sweep sweep = {.models = request->models,
                             .model_count = request->model_count,
                             .traces = request->traces,
                             .trace_count = request->trace_count,
                             .policies = request->policies,
                             .policy_count = request->policy_count,
                             .seeds = request->seeds,
                             .seed_count = request->seed_count,
                             .logs = tm_given(cli, "plan-log") || tm_given(cli, "report"),
                             .threads = (int)threads};
    size_t asked = request->model_count * request->trace_count * request->policy_count * request->seed_count;
    if (tm_given(cli, "report") && asked > TM_REPORT_RUNS_MAX) /* told before hours of work, not after */
        return tm_error_set(e, TM_EUSAGE, "--report shows at most %d runs, not %zu; simulate fewer at once",
                            (int)TM_REPORT_RUNS_MAX, asked);
    struct tm_progress progress;
    struct tm_sweep_run *runs = NULL;
    size_t count = 0;
    tm_progress_start(&progress, cli->env, tm_term_detect(cli->env, STDERR_FILENO, TM_COLOR_NEVER), "simulating",
                      (int64_t)(request->model_count * request->trace_count));
    rc = tm_sweep_run(cli->env, &sweep, &progress, &runs, &count, e);
    tm_progress_finish(&progress);
    if (rc == 0) rc = write_plan_log(cli, runs, count, e);
    if (rc == 0) rc = write_report(cli, request, runs, count, e);
    if (rc == 0 && cli->json)
        print_json(cli, request, runs, count);
    else if (rc == 0)
        rc = print_table(cli, request, runs, count, e);
    tm_sweep_free(runs, count);
    return rc;
}

int tm_cmd_simulate(struct tm_cli *cli, struct tm_error *e)
{
    if (tm_given(cli, "work") || tm_given(cli, "gang")) return tm_cmd_simulate_gang(cli, e);
    struct request *request = tm_calloc(1, sizeof *request);
    if (request == NULL) return tm_error_nomem(e);
    tm_catalog_init(&request->catalog);
    int rc = prepare(cli, request, e);
    if (rc == 0) rc = simulate(cli, request, e);
    drop(request);
    return rc;
}

const struct tm_option tm_simulate_options[] = {
    {.name = "model", .value = "NAME", .help = "model to train: a shipped model, a file or a formula; may be repeated"},
    {.name = "trace", .value = "FILE", .help = "trace to replay; may be repeated"},
    {.name = "from", .value = "DURATION", .help = "start at this time of the trace; what came before is known history"},
    {.name = "to", .value = "DURATION", .help = "stop at this time of the trace (its end)"},
    {.name = "policy", .value = "LIST", .help = "policies to compare, separated by commas (all)"},
    {.name = "cost", .value = "NAME", .help = "migration costs: paper, local, paced, measured or a file (paper)"},
    {.name = "believe", .value = "NAME", .help = "migration costs that policies assume, if not the true ones"},
    {.name = "speed",
     .value = "N",
     .help = "with measured costs: replay speed, seconds of the trace per second of real time (as measured)"},
    {.name = "notice", .value = "DURATION", .help = "notice before a preemption (30s)"},
    {.name = "seed", .value = "N", .help = "seed of random draws (parcae's forecast); may be repeated (0)"},
    {.name = "samples", .value = "N", .help = "size of the job (trains to the end of the trace)"},
    {.name = "deadline",
     .value = "DURATION",
     .help = "time by which the job must finish, from its start (needs --samples or --work)"},
    {.name = "work",
     .value = "DURATION",
     .help = "instead of a model: a job that takes this long on a full gang; needs --deadline"},
    {.name = "gang", .value = "N", .help = "with --work: instances that the job needs at once (1)"},
    {.name = "restart", .value = "DURATION", .help = "with --work: time paid for and lost at each launch (6m)"},
    {.name = "start-up", .value = "DURATION", .help = "with --work: time until on-demand instances arrive (0s)"},
    {.name = "interval", .value = "DURATION", .help = "time between decisions when nothing happens (60s)"},
    {.name = "horizon", .value = "N", .help = "intervals that policies look ahead (12)"},
    {.name = "instance", .value = "TYPE", .help = "instance type, for prices and predicted throughput"},
    {.name = "batch", .value = "N", .help = "global batch of models without measured layouts"},
    {.name = "profile", .value = "FILE", .help = "measured steps to learn from, as in predict"},
    {.name = "profile-gpu", .value = "NAME", .help = "GPU of that profile"},
    {.name = "spot-price", .value = "USD", .help = "spot price per instance-hour, if the trace has no prices"},
    {.name = "on-demand-price", .value = "USD", .help = "on-demand price per instance-hour"},
    {.name = "report", .value = "OUT.html", .help = "write a report with timelines and charts to OUT.html"},
    {.name = "plan-log", .value = "OUT.csv", .help = "write what each run did in each interval to OUT.csv"},
    {.name = "threads", .value = "N", .help = "simulations to run at once (one per core)"},
    {.name = "format",
     .value = "NAME",
     .help = "read the traces as format NAME instead of detecting it",
     .choices = tm_trace_format_names},
    {.name = NULL},
};
