/* tidemill simulate with --work: a job that needs a whole gang at once, and has a deadline (sim/gang.h). Each trace is
 * a job of its own, or, with a job file or a policy that chooses among pools, a pool of one job. */
#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/suggest.h"
#include "base/table.h"
#include "cli/commands.h"
#include "cli/knowledge_source.h"
#include "job/job_gang.h"
#include "job/job_simulation.h"

#include <math.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { POLICIES_MAX = 8, TRACES_MAX = 1024 };

/* The V100's of the Can't Be Late study: what the figures of doc/deadlines.md are for. */
static const double SPOT_USD_H = 0.9731;
static const double ON_DEMAND_USD_H = 3.06;

/* One of both. */
struct policy {
    const char *name;
    const struct tm_deadline_policy *on_one; /* trace */
    const struct tm_gang_way *among;         /* pools */
};

struct run {
    const char *trace;
    const struct policy *policy;
    struct tm_gang_result result;
};

struct request {
    struct tm_job_gang *gang; /* pools of one job; NULL: each trace is a job of its own */
    struct policy policies[POLICIES_MAX];
    size_t policy_count;
    const char *traces[TRACES_MAX];
    size_t trace_count;
    struct tm_gang_options options;
    struct run *runs; /* [trace_count x policy_count], by trace */
    size_t run_count;
};

/* ---- what is asked for ---- */

static void add_once(struct request *request, struct policy policy)
{
    for (size_t i = 0; i < request->policy_count; i++)
        if (strcmp(request->policies[i].name, policy.name) == 0) return;
    request->policies[request->policy_count++] = policy;
}

static int no_policy(const struct request *request, const struct tm_suggest *suggest, struct tm_error *e)
{
    bool known = suggest->best != NULL;
    return tm_error_set(e, TM_EUSAGE, "--policy: no policy \"%.40s\" for jobs with --work%s%s%s%s; there are %s",
                        suggest->word, request->gang != NULL ? " and pools" : "", known ? "; did you mean " : "",
                        known ? suggest->best : "", known ? "?" : "",
                        request->gang != NULL ? "single, failover, spread, tidemill, oracle"
                                              : "on-demand, greedy, uniform-progress, oracle-deadline, tidemill");
}

static int add_policy(struct tm_cli *cli, void *context, const char *name, struct tm_error *e)
{
    struct request *request = context;
    struct tm_suggest suggest = {.word = name};
    bool all = strcmp(name, "all") == 0, found = all;
    (void)cli;
    tm_suggest_offer(&suggest, "all");
    for (const struct tm_deadline_policy *one = tm_deadline_policies; request->gang == NULL && one->name != NULL;
         one++) {
        tm_suggest_offer(&suggest, one->name);
        if (!all && strcmp(name, one->name) != 0) continue;
        add_once(request, (struct policy){.name = one->name, .on_one = one});
        found = true;
    }
    for (const struct tm_gang_way *way = tm_gang_ways; request->gang != NULL && way->name != NULL; way++) {
        tm_suggest_offer(&suggest, way->name);
        if (!all && strcmp(name, way->name) != 0) continue;
        add_once(request, (struct policy){.name = way->name, .among = way});
        found = true;
    }
    return found ? 0 : no_policy(request, &suggest, e);
}

/* Policies that only choose among pools make pools of the traces. */
static int find_pools(struct tm_cli *cli, void *context, const char *name, struct tm_error *e)
{
    bool *pools = context;
    (void)cli;
    (void)e;
    *pools = *pools || (tm_gang_way_find(name) != NULL && tm_deadline_policy_find(name) == NULL);
    return 0;
}

static int add_trace(struct tm_cli *cli, void *context, const char *path, struct tm_error *e)
{
    struct request *request = context;
    (void)cli;
    if (request->trace_count == TRACES_MAX)
        return tm_error_set(e, TM_ELIMIT, "--trace: more than %d traces in one call", TRACES_MAX);
    request->traces[request->trace_count++] = path;
    return 0;
}

/* Prices: as given, else of --instance, else the study's. */
static int read_prices(struct tm_cli *cli, struct tm_gang_options *options, struct tm_error *e)
{
    options->spot_usd_h = SPOT_USD_H;
    options->on_demand_usd_h = ON_DEMAND_USD_H;
    const char *name = tm_given_text(cli, "instance");
    if (name != NULL) options->spot_usd_h = options->on_demand_usd_h = NAN;
    int rc = tm_given_number(cli, "spot-price", 0, 1e6, &options->spot_usd_h, e);
    if (rc == 0) rc = tm_given_number(cli, "on-demand-price", 0, 1e6, &options->on_demand_usd_h, e);
    if (rc != 0 || name == NULL) return rc;
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0)
        rc = tm_knowledge_prices(&catalog, name, "give --spot-price and --on-demand-price", &options->spot_usd_h,
                                 &options->on_demand_usd_h, e);
    tm_catalog_deinit(&catalog);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "--instance");
}

/* Options of jobs with a model mean nothing here; saying nothing would mislead. */
static int refuse_others(const struct tm_cli *cli, struct tm_error *e)
{
    static const char *const others[] = {"model", "samples", "to", "cost", "batch", "profile", "report", "plan-log"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (tm_given(cli, others[i]))
            return tm_error_set(e, TM_EUSAGE, "--%s cannot be used with --work: leave one of them out", others[i]);
    }
    return 0;
}

static int check_times(const struct tm_cli *cli, const struct tm_gang_options *options, struct tm_error *e)
{
    if (!tm_given(cli, "work") || options->deadline_s <= 0)
        return tm_error_set(e, TM_EUSAGE,
                            "a gang's job needs --work and --deadline: tidemill simulate --work 48h "
                            "--deadline 52h TRACE");
    return 0;
}

/* Whether the traces, or those of a job file, are pools of one job. */
static int open_pools(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    bool file = cli->argument_count == 1 && tm_job_simulation_is_job(cli->env, cli->arguments[0]), pools = file;
    int rc = tm_cmd_each_value(cli, "policy", &pools, find_pools, e);
    if (rc != 0 || !pools) return rc;
    request->gang = tm_calloc(1, sizeof *request->gang);
    if (request->gang == NULL) return tm_error_nomem(e);
    tm_job_gang_init(request->gang);
    if (!file) return 0;
    if (tm_given(cli, "trace") || tm_given(cli, "from") || tm_given(cli, "instance"))
        return tm_error_set(e, TM_EUSAGE, "--%s: fleet.pools of %s says it; change it there",
                            tm_given(cli, "trace")  ? "trace"
                            : tm_given(cli, "from") ? "from"
                                                    : "instance",
                            cli->arguments[0]);
    return tm_job_gang_read(cli->env, cli->arguments[0], &cli->arena, request->gang, e);
}

static bool is_file(const struct request *request)
{
    return request->gang != NULL && request->gang->pools != NULL;
}

static int read_times(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    struct tm_gang_options *options = &request->options;
    int64_t work_ms = 0, restart_ms = 360000, start_ms = 0, gang = 1;
    int64_t deadline_ms = is_file(request) ? (int64_t)(request->gang->deadline_s * 1000) : 0;
    if (is_file(request) && request->gang->limit > 0) gang = request->gang->limit;
    int rc = tm_given_time_span(cli, "work", &work_ms, e);
    if (rc == 0) rc = tm_given_time_span(cli, "deadline", &deadline_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "restart", &restart_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "start-up", &start_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "gang", 1, TM_TRACE_INSTANCES_MAX, &gang, e);
    options->gang = (int)gang;
    options->work_s = (double)work_ms / 1000;
    options->deadline_s = (double)deadline_ms / 1000;
    options->restart_s = (double)restart_ms / 1000;
    options->start_s = (double)start_ms / 1000;
    if (rc == 0) rc = check_times(cli, options, e);
    double least_s = options->start_s + options->restart_s + options->work_s;
    if (rc == 0 && least_s > options->deadline_s)
        tm_log(TM_LOG_WARN, "even on-demand instances need %.4g h: a deadline of %.4g h cannot be guaranteed",
               least_s / 3600, options->deadline_s / 3600);
    return rc;
}

static int read_traces(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    if (is_file(request)) return add_trace(cli, request, cli->arguments[0], e);
    int rc = tm_cmd_each_value(cli, "trace", request, add_trace, e);
    for (size_t i = 0; rc == 0 && i < cli->argument_count; i++)
        rc = add_trace(cli, request, cli->arguments[i], e);
    if (rc == 0 && request->trace_count == 0)
        rc = tm_error_set(e, TM_EUSAGE, "which trace? tidemill simulate --work 48h --deadline 52h TRACE");
    return rc;
}

static int read_request(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    int rc = refuse_others(cli, e);
    if (rc == 0) rc = open_pools(cli, request, e);
    if (rc == 0) rc = read_times(cli, request, e);
    if (rc == 0 && !is_file(request)) rc = read_prices(cli, &request->options, e);
    if (rc == 0) rc = tm_cmd_each_value(cli, "policy", request, add_policy, e);
    if (rc == 0 && request->policy_count == 0) rc = add_policy(cli, request, "all", e);
    return rc == 0 ? read_traces(cli, request, e) : rc;
}

/* ---- the simulations ---- */

static int simulate_trace(struct tm_cli *cli, struct request *request, const char *path, struct tm_error *e)
{
    struct tm_trace trace;
    tm_trace_init(&trace);
    int rc = tm_cmd_load_trace(cli, path, &trace, e);
    struct tm_gang_options options = request->options;
    options.from_ms = trace.begin_ms;
    if (rc == 0) rc = tm_given_duration(cli, "from", &options.from_ms, e);
    for (size_t i = 0; rc == 0 && i < request->policy_count; i++) {
        struct run *run = &request->runs[request->run_count];
        *run = (struct run){.trace = path, .policy = &request->policies[i]};
        rc = tm_gang_simulate(&trace, run->policy->on_one, &options, &run->result, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "%s", path);
        if (rc == 0) request->run_count++;
    }
    tm_trace_deinit(&trace);
    return rc;
}

static int simulate_traces(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    struct tm_progress progress;
    int rc = 0;
    tm_progress_start(&progress, cli->env, tm_term_detect(cli->env, STDERR_FILENO, TM_COLOR_NEVER), "simulating",
                      (int64_t)request->trace_count);
    for (size_t i = 0; rc == 0 && i < request->trace_count; i++) {
        rc = simulate_trace(cli, request, request->traces[i], e);
        tm_progress_update(&progress, (int64_t)i + 1);
    }
    tm_progress_finish(&progress);
    return rc;
}

static int load_pools(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    struct tm_job_gang *gang = request->gang;
    int rc = 0;
    for (size_t i = 0; rc == 0 && !is_file(request) && i < request->trace_count; i++) {
        struct tm_trace trace;
        tm_trace_init(&trace);
        rc = tm_cmd_load_trace(cli, request->traces[i], &trace, e);
        if (rc == 0) rc = tm_job_gang_add(gang, request->traces[i], &trace, request->options.spot_usd_h, e);
        if (rc == 0) rc = tm_given_duration(cli, "from", &gang->list[i].from_ms, e);
        tm_trace_deinit(&trace);
    }
    return rc;
}

/* Prices of options count for all pools. */
static int settle_pools(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    struct tm_job_gang *gang = request->gang;
    tm_job_gang_settle(gang, request->options.gang);
    if (!is_file(request)) return 0;
    struct tm_gang_options *options = &request->options;
    options->on_demand_usd_h = gang->on_demand_usd_h;
    options->spot_start_s = gang->spot_start_s;
    int rc = tm_given_number(cli, "on-demand-price", 0, 1e6, &options->on_demand_usd_h, e);
    for (int i = 0; rc == 0 && i < gang->count; i++)
        rc = tm_given_number(cli, "spot-price", 0, 1e6, &gang->list[i].usd_h, e);
    if (rc == 0 && isnan(options->on_demand_usd_h))
        rc = tm_error_set(e, TM_EINPUT,
                          "%s: no on-demand price of its instance type is known; give --on-demand-price, or a pool "
                          "with market: on-demand",
                          cli->arguments[0]);
    return rc;
}

static int simulate_pools(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    int rc = load_pools(cli, request, e);
    if (rc == 0) rc = settle_pools(cli, request, e);
    struct tm_gang_pools pools = tm_job_gang_pools(request->gang);
    request->trace_count = 1; /* job */
    for (size_t i = 0; rc == 0 && i < request->policy_count; i++) {
        struct run *run = &request->runs[request->run_count];
        *run = (struct run){.trace = is_file(request) ? request->traces[0] : "pools", .policy = &request->policies[i]};
        rc = tm_gang_simulate_pools(&pools, run->policy->among, &request->options, &run->result, e);
        if (rc == 0) request->run_count++;
    }
    return rc;
}

static int simulate_all(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    request->runs = tm_calloc(request->trace_count * request->policy_count, sizeof *request->runs);
    if (request->runs == NULL) return tm_error_nomem(e);
    return request->gang != NULL ? simulate_pools(cli, request, e) : simulate_traces(cli, request, e);
}

/* ---- answers ---- */

static double mean_usd(const struct request *request, const struct policy *policy, int *out_late)
{
    double sum = 0;
    *out_late = 0;
    for (size_t i = 0; i < request->run_count; i++) {
        if (request->runs[i].policy != policy) continue;
        sum += request->runs[i].result.cost_usd;
        *out_late += !request->runs[i].result.deadline_met;
    }
    return sum / (double)request->trace_count;
}

/* Sums of seconds are good to a microsecond; more digits would be noise. */
static void put_rounded(struct tm_jsonout *json, const char *key, double value)
{
    tm_jsonout_number(json, key, round(value * 1e6) / 1e6);
}

static void put_pools(struct tm_jsonout *json, const struct tm_job_gang *gang, const struct tm_gang_result *r)
{
    tm_jsonout_integer(json, "moves", r->moves);
    tm_jsonout_list(json, "pools");
    for (int i = 0; i <= gang->count; i++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "pool", i < gang->count ? gang->names[i] : gang->on_demand_name);
        put_rounded(json, "instance_hours", r->pools[i].instance_hours);
        put_rounded(json, "bill_usd", r->pools[i].bill_usd);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void put_run(struct tm_jsonout *json, const struct request *request, const struct run *run)
{
    const struct tm_gang_result *r = &run->result;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "policy", run->policy->name);
    tm_jsonout_string(json, "trace", run->trace);
    tm_jsonout_null(json, "model"); /* hours of work, whatever is trained: no samples are counted */
    tm_jsonout_null(json, "samples");
    tm_jsonout_null(json, "samples_per_s");
    tm_jsonout_null(json, "fraction_of_ideal");
    tm_jsonout_integer(json, "gang", request->options.gang);
    tm_jsonout_object(json, "stall_s");
    tm_jsonout_number(json, "migrate", 0);
    put_rounded(json, "rollback", r->restart_s);
    put_rounded(json, "idle", r->idle_s);
    put_rounded(json, "start", r->start_up_s);
    tm_jsonout_end(json);
    tm_jsonout_integer(json, "reconfigurations", r->launches);
    tm_jsonout_integer(json, "losses", r->losses);
    put_rounded(json, "bill_usd", r->cost_usd);
    put_rounded(json, "on_demand_only_usd", r->on_demand_only_usd);
    put_rounded(json, "spot_hours", r->spot_s / 3600);
    put_rounded(json, "on_demand_hours", r->on_demand_s / 3600);
    tm_jsonout_null(json, "usd_per_million_samples");
    put_rounded(json, "finished_at_s", r->finished_at_s);
    tm_jsonout_bool(json, "deadline_met", r->deadline_met);
    tm_jsonout_object(json, "decision_us"); /* not timed: a comparison of a few numbers */
    tm_jsonout_null(json, "mean");
    tm_jsonout_null(json, "max");
    tm_jsonout_end(json);
    tm_jsonout_bool(json, "trace_ended", r->trace_ended);
    if (request->gang != NULL) put_pools(json, request->gang, r);
    tm_jsonout_end(json);
}

static void print_json(struct tm_cli *cli, const struct request *request)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "runs");
    for (size_t i = 0; i < request->run_count; i++)
        put_run(&json, request, &request->runs[i]);
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "means");
    for (size_t i = 0; i < request->policy_count; i++) {
        int late;
        double usd = mean_usd(request, &request->policies[i], &late);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "policy", request->policies[i].name);
        put_rounded(&json, "bill_usd", usd);
        tm_jsonout_integer(&json, "late", late);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static void add_run_row(struct tm_table *table, const struct run *run)
{
    const struct tm_gang_result *r = &run->result;
    tm_table_add(table, "%s", run->trace);
    tm_table_add(table, "%s", run->policy->name);
    tm_table_add(table, "$%.2f", r->cost_usd);
    if (r->on_demand_only_usd > 0)
        tm_table_add(table, "%.0f%%", 100 * (1 - r->cost_usd / r->on_demand_only_usd));
    else
        tm_table_add(table, "-");
    tm_table_add(table, "%.2f h", r->spot_s / 3600);
    tm_table_add(table, "%.2f h", r->on_demand_s / 3600);
    tm_table_add(table, "%.2f h", (r->idle_s + r->start_up_s) / 3600);
    tm_table_add(table, "%d", r->launches);
    tm_table_add(table, "%d", r->losses);
    tm_table_add(table, "%.2f h", r->finished_at_s / 3600);
    tm_table_add(table, "%s", r->deadline_met ? "yes" : "no");
}

static void print_prices(struct tm_cli *cli, const struct request *request)
{
    double least = request->options.spot_usd_h, most = least;
    for (int i = 0; is_file(request) && i < request->gang->count; i++) {
        double usd_h = request->gang->list[i].usd_h;
        least = i == 0 ? usd_h : fmin(least, usd_h);
        most = i == 0 ? usd_h : fmax(most, usd_h);
    }
    tm_text_printf(&cli->out, "\nPrices per instance-hour: spot $%g", least);
    if (most > least) tm_text_printf(&cli->out, " to $%g", most);
    tm_text_printf(&cli->out, ", on-demand $%g. SAVED: compared with on-demand only.\n",
                   request->options.on_demand_usd_h);
}

static int print_table(struct tm_cli *cli, const struct request *request, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"TRACE", TM_LEFT, 3},      {"POLICY", TM_LEFT, 0},     {"COST", TM_RIGHT, 0},  {"SAVED", TM_RIGHT, 1},
        {"SPOT", TM_RIGHT, 1},      {"ON-DEMAND", TM_RIGHT, 1}, {"IDLE", TM_RIGHT, 1},  {"LAUNCHES", TM_RIGHT, 2},
        {"PREEMPTED", TM_RIGHT, 2}, {"DONE AT", TM_RIGHT, 0},   {"IN TIME", TM_LEFT, 0}};
    struct tm_table table;
    bool ended = false;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < request->run_count; i++) {
        add_run_row(&table, &request->runs[i]);
        ended = ended || request->runs[i].result.trace_ended;
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    for (size_t i = 0; request->trace_count > 1 && i < request->policy_count; i++) {
        int late;
        double usd = mean_usd(request, &request->policies[i], &late);
        tm_text_printf(&cli->out, "%smean of %zu traces, %s: $%.2f, late %d times\n", i == 0 ? "\n" : "",
                       request->trace_count, request->policies[i].name, usd, late);
    }
    print_prices(cli, request);
    if (ended) tm_text_puts(&cli->out, "If a trace ends before the job, no spot is available after it.\n");
    return rc;
}

int tm_cmd_simulate_gang(struct tm_cli *cli, struct tm_error *e)
{
    struct request *request = tm_calloc(1, sizeof *request);
    if (request == NULL) return tm_error_nomem(e);
    int rc = read_request(cli, request, e);
    if (rc == 0) rc = simulate_all(cli, request, e);
    if (rc == 0 && cli->json)
        print_json(cli, request);
    else if (rc == 0)
        rc = print_table(cli, request, e);
    if (request->gang != NULL) tm_job_gang_deinit(request->gang);
    tm_free(request->gang);
    tm_free(request->runs);
    tm_free(request);
    return rc;
}
