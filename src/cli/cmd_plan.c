#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/number.h"
#include "base/paths.h"
#include "base/suggest.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/cloud_accounts.h"
#include "cli/commands.h"
#include "cli/knowledge_source.h"
#include "cli/plan_report.h"
#include "cli/plan_traces.h"
#include "cli/way_words.h"
#include "cli/web_tape.h"
#include "cloud/market.h"
#include "job/described_fleet.h"
#include "job/emit_kubernetes.h"
#include "job/planned_fleet.h"
#include "market/trace_draw.h"
#include "plan/deepvm.h"
#include "plan/emit.h"
#include "plan/fleet_judge.h"
#include "plan/mix.h"
#include "plan/pareto.h"
#include "plan/replan.h"
#include "plan/rivals.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const planner_names[] = {"tidemill",   "srift",      "deepvm", "deepvm-noscale",
                                            "cost-first", "perf-first", NULL};
enum { PLANNER_TIDEMILL, PLANNER_SRIFT, PLANNER_DEEPVM }; /* from here on: enum tm_deepvm_planner */
static const char *const architecture_names[] = {"best", "tiering", "single-anchor", NULL};
static const char *const objective_names[] = {"cheapest", "fastest", "pareto", NULL};
enum { OBJECTIVE_PARETO = 2 };
static const char *const market_names[] = {"mixed", "spot", "on-demand", NULL};
static const char *const judge_names[] = {"simulate", "replay", "expect", NULL};
enum { JUDGE_SIMULATE, JUDGE_REPLAY, JUDGE_EXPECT }; /* replay: simulate, on a trace */
static const char *const anchor_names[] = {"auto", "none", NULL};
static const char *const emit_names[] = {"skypilot", "kubernetes", "job", "milp", NULL};
enum { EMIT_NOTHING = -1, EMIT_SKYPILOT, EMIT_KUBERNETES, EMIT_JOB, EMIT_MILP };

/* ---- the published planners on their own data ---- */

static void print_json(struct tm_cli *cli, int planner, const struct tm_deepvm_answer *answers, size_t count)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "planner", planner_names[planner]);
    tm_jsonout_list(&json, "answers");
    for (size_t i = 0; i < count; i++) {
        const struct tm_deepvm_answer *answer = &answers[i];
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "architecture", architecture_names[answer->architecture]);
        tm_jsonout_string(&json, "gpu_instance", answer->gpu->name);
        tm_jsonout_integer(&json, "gpu_nodes", answer->gpu_instances);
        tm_jsonout_string(&json, "anchor_instance", answer->anchor != NULL ? answer->anchor->name : NULL);
        if (answer->anchor != NULL)
            tm_jsonout_integer(&json, "anchor_nodes", answer->anchor_instances);
        else
            tm_jsonout_null(&json, "anchor_nodes");
        tm_jsonout_number(&json, "price_usd_h", answer->price_usd_h);
        tm_jsonout_number(&json, "z", answer->z);
        tm_jsonout_number(&json, "k", answer->k);
        tm_jsonout_number(&json, "score", answer->score);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static int print_table(struct tm_cli *cli, const struct tm_deepvm_answer *answers, size_t count, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"RANK", TM_RIGHT, 0},  {"ARCHITECTURE", TM_LEFT, 0}, {"GPU INSTANCES", TM_LEFT, 0},
        {"ANCHOR", TM_LEFT, 0}, {"COST ($/h)", TM_RIGHT, 0},  {"K(n)", TM_RIGHT, 1},
        {"Z", TM_RIGHT, 2},     {"SCORE", TM_RIGHT, 0}}; /* F K n, whatever the planner or the data set */
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const struct tm_deepvm_answer *answer = &answers[i];
        tm_table_add(&table, "%zu", i + 1);
        tm_table_add(&table, "%s", architecture_names[answer->architecture]);
        tm_table_add(&table, "%d x %s", answer->gpu_instances, answer->gpu->name);
        if (answer->anchor != NULL)
            tm_table_add(&table, "%d x %s", answer->anchor_instances, answer->anchor->name);
        else
            tm_table_add(&table, "one of them on-demand");
        tm_table_add(&table, "%.4f", answer->price_usd_h);
        tm_table_add(&table, "%.4f", answer->k);
        if (isnan(answer->z))
            tm_table_add(&table, "-");
        else
            tm_table_add(&table, "%.4g", answer->z);
        tm_table_add(&table, "%.6g", answer->gpu->flops * answer->k * answer->gpu_instances);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

/* Can some remote hold the checkpoint? Only Tiering needs one. */
static bool has_room(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request)
{
    bool room = request->architecture != TM_DEEPVM_TIERING;
    for (size_t i = 0; i < data->instance_count; i++) {
        const struct tm_deepvm_instance *one = &data->instances[i];
        bool gpu = strcmp(one->class_name, "G") == 0 || strcmp(one->class_name, "P") == 0;
        room = room || (!gpu && one->memory_gib >= request->checkpoint_size * request->buffer);
    }
    return room;
}

static int plan_published(struct tm_cli *cli, struct tm_deepvm_data *data, struct tm_error *e)
{
    struct tm_deepvm_request request = {.buffer = 0.5, .checkpoint_size = 2, .max_usd_h = 3, .top = 3};
    struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX];
    int planner = PLANNER_DEEPVM;
    int architecture = TM_DEEPVM_BEST;
    int objective = TM_PLAN_FASTEST;
    int64_t top = 3;
    size_t count = 0;
    int rc = tm_given_choice(cli, "planner", &planner, e);
    if (rc == 0) rc = tm_given_choice(cli, "objective", &objective, e);
    if (rc == 0 && planner == PLANNER_SRIFT)
        rc = tm_error_set(e, TM_EUSAGE, "--planner %s plans for a --model from the catalogue, not from --instances",
                          planner_names[planner]);
    if (rc == 0 && objective == OBJECTIVE_PARETO)
        rc = tm_error_set(e, TM_EUSAGE, "--objective pareto is for a --model; with --instances every list is one");
    if (rc == 0) rc = tm_given_choice(cli, "architecture", &architecture, e);
    if (rc == 0) rc = tm_given_number(cli, "max-hourly", 0, 1e9, &request.max_usd_h, e);
    if (rc == 0) rc = tm_given_number(cli, "buffer", 0, 1e9, &request.buffer, e);
    if (rc == 0) rc = tm_given_number(cli, "checkpoint-size", 0, 1e9, &request.checkpoint_size, e);
    if (rc == 0) rc = tm_given_integer(cli, "top", 1, TM_DEEPVM_TOP_MAX, &top, e);
    bool ours = planner == PLANNER_TIDEMILL;
    request.planner = ours ? TM_DEEPVM : (enum tm_deepvm_planner)(planner - PLANNER_DEEPVM);
    request.architecture = (enum tm_deepvm_architecture)architecture;
    request.top = (size_t)top;
    if (rc == 0) rc = tm_deepvm_data_load(cli->env, tm_given_text(cli, "instances"), data, e);
    if (rc == 0)
        rc = ours ? tm_deepvm_ours(data, &request, objective == TM_PLAN_CHEAPEST, answers, &count, e)
                  : tm_deepvm_plan(data, &request, answers, &count, e);
    if (rc != 0) return rc;
    if (count == 0 && !cli->json && !has_room(data, &request))
        return tm_error_set(e, TM_ENONE,
                            "no instance type without GPU has the %g GiB that a checkpoint of %g needs; lower "
                            "--checkpoint-size or --buffer, or use --architecture single-anchor",
                            request.checkpoint_size * request.buffer, request.checkpoint_size);
    if (count == 0 && !cli->json)
        return tm_error_set(e, TM_ENONE, "nothing costs less than $%g per hour; raise --max-hourly", request.max_usd_h);
    if (count == 0) cli->exit_status = tm_code_exit_status(TM_ENONE);
    if (!cli->json) return print_table(cli, answers, count, e);
    print_json(cli, planner, answers, count);
    return 0;
}

static int plan_from_file(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_deepvm_data *data = tm_alloc(sizeof *data);
    if (data == NULL) return tm_error_nomem(e);
    tm_deepvm_data_init(data);
    int rc = plan_published(cli, data, e);
    tm_deepvm_data_deinit(data);
    tm_free(data);
    return rc;
}

/* ---- a model from the catalogue ---- */

struct plan {
    int64_t asked_ms; /* when live prices were asked for; 0: they were not */
    struct tm_cli *cli;
    struct tm_catalog catalog;
    struct tm_model model;
    struct tm_knowledge knowledge;
    struct tm_job job; /* empty without a job file */
    bool has_job;
    size_t own_options; /* how many the user gave; those behind are the job file's */
    int precision;      /* or mixed */
    int objective;      /* index into objective_names */
    int judge;          /* index into judge_names */
    int emits;          /* EMIT_... */
    struct tm_plan_request request;
    struct tm_supply supply;
    struct tm_plan_result result;
    struct tm_plan_result other; /* the other planner's, for comparison */
    struct tm_plan_advice advice;
    struct tm_plan_relaxation relax;
    struct tm_plan_fleet running; /* of --running */
    struct tm_supply home;        /* of its types everywhere, where it does not lie where the new plan may */
    bool is_home;                 /* that is being made, or was */
    struct tm_replan replan;
    struct tm_given_traces traces; /* of --trace, or of the job file */
    struct tm_risk risk;
    double *loss_rates;          /* by offer; owned */
    double elapsed_s, spent_usd; /* of a running job */
    bool batch_searched;
    struct tm_plan_larger_batch larger;
    struct tm_plan_answer smallest; /* that holds the model, where nothing that is allowed does */
};

/* ---- the job file: what it says counts as if it had been given as options, where the user gave none ---- */

/* What a job file names lies beside it; what is not there is meant from here, or is no file. */
static int find_beside(struct tm_cli *cli, const char *name, const char **out, struct tm_error *e)
{
    const char *path = cli->arguments[0];
    const char *slash = strrchr(path, '/');
    *out = name;
    if (name == NULL || name[0] == '/' || slash == NULL) return 0;
    const char *beside = tm_arena_printf(&cli->arena, "%.*s/%s", (int)(slash - path), path, name);
    if (beside == NULL) return tm_error_nomem(e);
    if (cli->env->file_exists(cli->env, beside)) *out = beside;
    return 0;
}

static int give(struct tm_cli *cli, const char *name, const char *value, struct tm_error *e)
{
    if (value == NULL || tm_given(cli, name)) return 0;
    if (cli->given_count == TM_OPTIONS_GIVEN_MAX) return tm_error_set(e, TM_ELIMIT, "too many options");
    cli->given[cli->given_count++] = (struct tm_option_given){tm_option_find(cli, name, 0), value};
    return 0;
}

static int give_integer(struct tm_cli *cli, const char *name, int64_t value, struct tm_error *e)
{
    if (value == 0) return 0;
    const char *text = tm_arena_printf(&cli->arena, "%lld", (long long)value);
    return text != NULL ? give(cli, name, text, e) : tm_error_nomem(e);
}

static int give_unit(struct tm_cli *cli, const char *name, enum tm_unit_kind kind, int64_t value, struct tm_error *e)
{
    char exact[TM_UNITS_TEXT_MAX];
    const char *text = tm_arena_strdup(&cli->arena, tm_unit_print_exact(kind, value, exact));
    return text != NULL ? give(cli, name, text, e) : tm_error_nomem(e);
}

static int give_job(struct plan *plan, struct tm_error *e)
{
    struct tm_cli *cli = plan->cli;
    const struct tm_job *job = &plan->job;
    int64_t samples = job->samples > 0 ? job->samples : job->steps * job->batch;
    const char *spot = job->resources.use_spot;
    const char *model = NULL, *profile = NULL;
    int rc = find_beside(cli, job->model, &model, e);
    if (rc == 0) rc = find_beside(cli, job->profile, &profile, e);
    if (rc == 0) rc = give(cli, "model", model, e);
    if (rc == 0) rc = give(cli, "profile", profile, e);
    if (rc == 0) rc = give(cli, "network", job->network, e);
    if (rc == 0) rc = give(cli, "profile-gpu", job->profile_gpu, e);
    if (rc == 0 && tm_job_refuses_anchors(job)) rc = give(cli, "anchors", "none", e);
    if (rc == 0) rc = give(cli, "precision", job->precision, e);
    if (rc == 0) rc = give(cli, "objective", job->objective, e);
    if (rc == 0) rc = give(cli, "market", job->market, e);
    if (rc == 0 && spot != NULL) rc = give(cli, "market", strcmp(spot, "true") == 0 ? "spot" : "on-demand", e);
    if (rc == 0 && !tm_given(cli, "tokens")) rc = give_integer(cli, "samples", samples, e);
    if (rc == 0) rc = give_integer(cli, "batch", job->batch, e);
    if (rc == 0)
        rc = give_integer(cli, "max-nodes", job->max_instances > 0 ? job->max_instances : job->num_instances, e);
    if (rc == 0 && job->deadline_ms > 0) rc = give_unit(cli, "deadline", TM_UNIT_DURATION, job->deadline_ms, e);
    if (rc == 0 && job->checkpoint_time_ms > 0)
        rc = give_unit(cli, "checkpoint", TM_UNIT_DURATION, job->checkpoint_time_ms, e);
    if (rc == 0 && job->restart_time_ms >= 0) rc = give_unit(cli, "restart", TM_UNIT_DURATION, job->restart_time_ms, e);
    if (rc == 0 && job->budget_usd_millionths > 0)
        rc = give_unit(cli, "budget", TM_UNIT_MONEY, job->budget_usd_millionths, e);
    if (rc == 0 && job->max_hourly_usd_millionths > 0)
        rc = give_unit(cli, "max-hourly", TM_UNIT_MONEY, job->max_hourly_usd_millionths, e);
    if (rc == 0 && job->probability > 0) {
        const char *text = tm_arena_printf(&cli->arena, "%.17g", job->probability);
        rc = text != NULL ? give(cli, "probability", text, e) : tm_error_nomem(e);
    }
    return rc;
}

/* What the job file says of preemptions. A trace that it names lies beside it, unless it is one that ships. */
static int give_losses(struct plan *plan, struct tm_error *e)
{
    struct tm_cli *cli = plan->cli;
    const struct tm_job_fleet *fleet = &plan->job.fleet;
    const char *trace = NULL;
    int rc = find_beside(cli, tm_given(cli, "mtbf") ? NULL : fleet->trace, &trace, e);
    if (rc == 0) rc = give(cli, "trace", trace, e);
    if (rc == 0 && !tm_given(cli, "trace") && fleet->losses.mean_life_ms > 0)
        rc = give_unit(cli, "mtbf", TM_UNIT_DURATION, fleet->losses.mean_life_ms, e);
    if (rc == 0 && fleet->losses.outage_ms >= 0)
        rc = give_unit(cli, "outage", TM_UNIT_DURATION, fleet->losses.outage_ms, e);
    if (rc == 0 && fleet->losses.bursts >= 0) {
        const char *text = tm_arena_printf(&cli->arena, "%.17g", fleet->losses.bursts);
        rc = text != NULL ? give(cli, "bursts", text, e) : tm_error_nomem(e);
    }
    return rc;
}

static bool is_shipped(const char *name)
{
    for (size_t i = 0; i < tm_model_shipped_count(); i++) {
        if (strcmp(name, tm_model_shipped_name(i)) == 0) return true;
    }
    return false;
}

static int read_job_file(struct plan *plan, struct tm_error *e)
{
    plan->own_options = plan->cli->given_count;
    plan->has_job = plan->cli->argument_count == 1;
    if (!plan->has_job) return 0;
    const char *path = plan->cli->arguments[0];
    if (!plan->cli->env->file_exists(plan->cli->env, path) && is_shipped(path))
        return tm_error_set(e, TM_EUSAGE, "%.80s is a model, not a job file: give --model %.80s", path, path);
    int rc = tm_job_load(plan->cli->env, path, &plan->job, e);
    if (rc == 0) rc = tm_job_check_sky(&plan->job, e);
    if (rc == 0) rc = give_job(plan, e);
    return rc == 0 ? give_losses(plan, e) : rc;
}

/* ---- what may be used ---- */

static bool list_allows(const struct tm_strings *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcasecmp(list->items[i], text) == 0) return true;
    }
    return list->count == 0;
}

/* NAME or NAME:COUNT. */
static bool accelerator_allows(const struct tm_catalog *catalog, const char *text,
                               const struct tm_instance_type *instance)
{
    char name[64];
    size_t length = strcspn(text, ":");
    (void)snprintf(name, sizeof name, "%.*s", (int)length, text);
    const struct tm_gpu *gpu = tm_catalog_gpu(catalog, name);
    const struct tm_gpu *its = tm_catalog_gpu(catalog, instance->gpu);
    double count = 0;
    if (gpu == NULL || gpu != its) return false;
    return text[length] == '\0' ||
           (tm_number_double(text + length + 1, strlen(text + length + 1), &count) && count == instance->gpus);
}

static bool job_allows(const struct plan *plan, const struct tm_instance_type *instance, const struct tm_offer *offer,
                       bool anchor)
{
    const struct tm_job_resources *resources = &plan->job.resources;
    bool place = resources->infra.count == 0;
    bool gpu = anchor || resources->accelerators.count == 0;
    for (size_t i = 0; i < resources->infra.count && !place; i++)
        place = tm_job_infra_means(resources->infra.items[i], instance->cloud, offer->region, offer->zone);
    for (size_t i = 0; i < resources->accelerators.count && !gpu; i++)
        gpu = accelerator_allows(&plan->catalog, resources->accelerators.items[i], instance);
    return place && gpu && list_allows(&resources->cloud, instance->cloud) &&
           list_allows(&resources->region, offer->region) && (anchor || list_allows(&resources->zone, offer->zone)) &&
           (anchor || list_allows(&resources->instance_type, instance->name));
}

/* Accelerators that are no GPUs run other software, and nobody has measured any for us: only if they are named. */
static bool is_unasked(const struct plan *plan, const struct tm_instance_type *instance)
{
    const struct tm_job_resources *resources = &plan->job.resources;
    const char *maker = tm_plan_maker(instance);
    if (strcmp(maker, "nvidia") == 0 || strcmp(maker, "amd") == 0) return false;
    return !tm_given(plan->cli, "gpu") && !tm_given(plan->cli, "instance") && resources->accelerators.count == 0 &&
           resources->instance_type.count == 0;
}

/* What has left the market is planned only where it is named. */
static bool is_retired(const struct plan *plan, const struct tm_offer *offer)
{
    const struct tm_job_resources *resources = &plan->job.resources;
    bool named = tm_given(plan->cli, "gpu") || tm_given(plan->cli, "instance") || tm_given(plan->cli, "running") ||
                 resources->accelerators.count > 0 || resources->instance_type.count > 0;
    return !named && tm_offer_is_retired(&plan->catalog, offer);
}

static bool zone_matches(const struct tm_cli *cli, const struct tm_offer *offer)
{
    const char *given = tm_given_text(cli, "zone");
    char zone[64];
    for (const char *at = given; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        (void)snprintf(zone, sizeof zone, "%.*s", (int)(length < sizeof zone ? length : sizeof zone - 1), at);
        if (tm_offer_zone_matches(offer, zone)) return true;
        at += length + (at[length] == ',');
    }
    return given == NULL;
}

/* Is the type in --running? */
static bool is_running(const struct plan *plan, const struct tm_instance_type *instance)
{
    const char *text = tm_given_text(plan->cli, "running");
    size_t length = strlen(instance->name);
    for (const char *at = text; text != NULL && (at = strcasestr(at, instance->name)) != NULL; at++) {
        bool begins = at > text && strchr(" xX", at[-1]) != NULL;
        if (begins && strchr(" ,:", at[length]) != NULL) return true; /* its end is one of these, too */
    }
    return false;
}

static bool is_allowed(const void *context, const struct tm_instance_type *instance, const struct tm_offer *offer,
                       bool anchor)
{
    const struct plan *plan = context;
    const struct tm_cli *cli = plan->cli;
    if (plan->is_home) return anchor || is_running(plan, instance);
    if (!anchor && is_unasked(plan, instance)) return false;
    if (is_retired(plan, offer)) return false;
    const struct tm_instance_type *anchors = plan->request.supply.anchor_type;
    if (anchors != NULL && strcmp(anchors->cloud, instance->cloud) != 0) return false; /* they are beside the rest */
    if (plan->emits == EMIT_SKYPILOT && !tm_emit_skypilot_has(instance)) return false;
    if (plan->has_job && !job_allows(plan, instance, offer, anchor)) return false;
    return tm_given_matches(cli, "cloud", instance->cloud) && tm_given_matches(cli, "region", offer->region) &&
           (anchor || (zone_matches(cli, offer) && tm_given_matches(cli, "instance", instance->name) &&
                       tm_filter_gpu_matches(cli, &plan->catalog, instance)));
}

/* ---- quotas ---- */

static int add_quota(struct plan *plan, const char *text, size_t length, struct tm_error *e)
{
    int rc = tm_plan_quota_add(&plan->catalog, text, length, &plan->cli->arena, &plan->request, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "--quota");
}

static int read_quotas(struct plan *plan, struct tm_error *e)
{
    struct tm_cli *cli = plan->cli;
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, "quota") != 0) continue;
        for (const char *at = cli->given[i].value; *at != '\0';) {
            size_t length = strcspn(at, ",");
            int rc = add_quota(plan, at, length, e);
            if (rc != 0) return rc;
            at += length + (at[length] == ',');
        }
    }
    for (size_t i = 0; !tm_given(cli, "quota") && i < plan->job.quotas.count; i++) {
        const char *text =
            tm_arena_printf(&cli->arena, "%s=%s", plan->job.quotas.items[i].name, plan->job.quotas.items[i].text);
        int rc = text != NULL ? add_quota(plan, text, strlen(text), e) : tm_error_nomem(e);
        if (rc != 0) return rc;
    }
    return 0;
}

/* ---- the request ---- */

/* How instances are lost in traces. */
static int read_traces(struct plan *plan, struct tm_error *e)
{
    const struct tm_cli *cli = plan->cli;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, "trace") != 0) continue;
        rc = tm_given_traces_add(plan->cli, &plan->catalog, cli->given[i].value, i >= plan->own_options, &plan->traces,
                                 e);
    }
    plan->request.supply.traces = &plan->traces.known;
    plan->request.supply.catalog = &plan->catalog;
    return rc;
}

/* What the user says of bursts counts for what traces tell, too. */
static void change_bursts(struct plan *plan)
{
    const struct tm_expect_job *job = &plan->request.job;
    for (size_t i = 0; i < plan->traces.known.count; i++) {
        struct tm_plan_trace *trace = &plan->traces.known.list[i];
        if (tm_given(plan->cli, "bursts")) trace->losses.burst_share = job->burst_share;
        if (tm_given(plan->cli, "bursts") && !(trace->losses.burst_size > 0))
            trace->losses.burst_size = job->burst_size;
        if (tm_given(plan->cli, "outage")) trace->outage_s = job->outage_s;
    }
}

/* Where the user says nothing of preemptions: what is known of each offer. */
static int know_risk(struct plan *plan, struct tm_error *e)
{
    struct tm_supply_request *supply = &plan->request.supply;
    int rc = tm_risk_load(plan->cli->env, &plan->risk, e);
    if (rc != 0) return rc;
    supply->risk = &plan->risk;
    supply->catalog = &plan->catalog;
    rc = tm_supply_loss_rates(supply, &plan->loss_rates, e);
    supply->offer_loss_per_s = plan->loss_rates;
    return rc;
}

static int read_losses(struct tm_cli *cli, struct plan *plan, struct tm_error *e)
{
    const struct tm_job_losses *said = &plan->job.fleet.losses;
    struct tm_plan_request *request = &plan->request;
    struct tm_draw_losses usual = tm_draw_losses_usual();
    int64_t mtbf_ms = 0;
    int64_t outage_ms = usual.outage_ms;
    request->job.replace_s = (double)(said->replace_ms >= 0 ? said->replace_ms : usual.replace_ms) / 1000;
    request->job.outage_s = (double)outage_ms / 1000;
    request->supply.loss_per_s = NAN;
    request->supply.default_loss_per_s = 1000.0 / TM_DRAW_LIFE_MS; /* where nothing is known */
    request->job.burst_share = usual.burst_share;
    request->job.burst_size = said->burst_size > 0 ? said->burst_size : usual.burst_size;
    if (tm_given(cli, "mtbf") && tm_given(cli, "trace"))
        return tm_error_set(e, TM_EUSAGE,
                            "--mtbf and --trace both say how often instances are preempted: give one of them");
    int rc = tm_given_duration(cli, "mtbf", &mtbf_ms, e);
    if (rc == 0 && tm_given(cli, "mtbf") && mtbf_ms < 1000)
        rc = tm_error_set(e, TM_EUSAGE, "--mtbf: expected a second or more");
    if (rc == 0 && mtbf_ms > 0) request->supply.loss_per_s = 1000.0 / (double)mtbf_ms;
    if (rc == 0 && tm_given(cli, "trace")) rc = read_traces(plan, e);
    if (rc == 0 && isnan(request->supply.loss_per_s) && !tm_given_traces_cover_all(&plan->traces))
        rc = know_risk(plan, e);
    if (rc == 0) rc = tm_given_number(cli, "bursts", 0, 1, &request->job.burst_share, e);
    if (rc == 0) rc = tm_given_duration(cli, "outage", &outage_ms, e);
    if (rc == 0 && tm_given(cli, "outage")) request->job.outage_s = (double)outage_ms / 1000;
    if (rc == 0) change_bursts(plan);
    return rc;
}

/* Tokens become the samples that hold them; nothing after this knows --tokens. */
static int read_tokens(struct tm_cli *cli, const struct tm_model *model, struct tm_error *e)
{
    static const int64_t MOST = 9000000000000000; /* of what is written with an exponent, all that is exact */
    int64_t tokens = 0;
    int64_t each = tm_model_sample_tokens(model);
    if (!tm_given(cli, "tokens")) return 0;
    if (tm_given(cli, "samples")) return tm_error_set(e, TM_EUSAGE, "give --samples or --tokens, not both");
    if (each == 0)
        return tm_error_set(e, TM_EUSAGE, "--tokens: how many a sample of %.60s has is not known; give --samples",
                            model->name);
    int rc = tm_given_integer(cli, "tokens", 1, MOST, &tokens, e);
    if (rc != 0) return rc;
    long long needed = (tokens - 1) / each + 1;
    const char *samples = tm_arena_printf(&cli->arena, "%lld", needed);
    if (samples == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, "tokens") == 0)
            cli->given[i] = (struct tm_option_given){tm_option_find(cli, "samples", 0), samples};
    }
    return 0;
}

static int read_job(struct tm_cli *cli, struct plan *plan, struct tm_error *e)
{
    struct tm_plan_request *request = &plan->request;
    int64_t deadline_ms = 0;
    int64_t restart_ms = TM_FLEET_UNSAID;
    int64_t checkpoint_ms = 0;
    int64_t samples = 0;
    int64_t batch = plan->model.global_batch > 0 ? plan->model.global_batch : TM_PLANNED_BATCH;
    int64_t max_instances = 64;
    int64_t top = 8;
    int rc = read_tokens(cli, &plan->model, e);
    if (rc == 0) rc = tm_given_duration(cli, "deadline", &deadline_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "restart", &restart_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "checkpoint", &checkpoint_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "samples", 1, (int64_t)1 << 50, &samples, e);
    if (rc == 0) rc = tm_given_integer(cli, "batch", 1, 1 << 30, &batch, e);
    if (rc == 0) rc = tm_given_integer(cli, "max-nodes", 1, TM_PLAN_INSTANCES_MAX, &max_instances, e);
    if (rc == 0) rc = tm_given_integer(cli, "top", 1, TM_PLAN_ANSWERS_MAX, &top, e);
    if (rc == 0 && samples == 0)
        rc = tm_error_set(e, TM_EUSAGE,
                          "give the amount of training, for example --samples 10M, or --tokens 2T of a language model");
    if (rc == 0 && tm_given(cli, "deadline") && deadline_ms == 0)
        rc = tm_error_set(e, TM_EUSAGE, "--deadline: must be longer than 0s; write for example 12h");
    if (rc != 0) return rc;
    request->state_bytes = tm_planned_times(&plan->model, checkpoint_ms, restart_ms, &request->job);
    request->job.samples = (double)samples;
    request->job.deadline_s = deadline_ms > 0 ? (double)deadline_ms / 1000 : INFINITY;
    if (plan->job.fleet.on_demand_start_ms >= 0)
        request->job.startup_s = (double)plan->job.fleet.on_demand_start_ms / 1000;
    request->supply.batch = (int)batch;
    request->supply.micro_batch = tm_planned_micro_batch(&plan->job, batch);
    request->max_instances = (int)max_instances;
    request->top = (size_t)top;
    return 0;
}

static void fill_supply(struct plan *plan)
{
    struct tm_supply_request *supply = &plan->request.supply;
    supply->model = &plan->model;
    supply->precision = plan->precision;
    /* What our runtime will do knows of pipelines alone: a job, or what is emitted for one. */
    bool runs = plan->has_job || plan->emits != EMIT_NOTHING || tm_given(plan->cli, "running");
    supply->ways = runs ? 0 : TM_WAY_SHARDED | TM_WAY_TENSOR;
    supply->allowed = is_allowed;
    supply->allowed_context = plan;
    tm_knowledge_supply(&plan->knowledge, supply);
}

/* Anchors that the job names are beside every fleet. */
static int read_anchors(struct plan *plan, struct tm_error *e)
{
    struct tm_plan_request *request = &plan->request;
    const char *name = NULL;
    int64_t count = 0;
    if (tm_given(plan->cli, "anchors")) return 0; /* the option overrides the file; none of the file is one, too */
    struct tm_error why;
    int rc = tm_job_anchors(&plan->job, &count, &name, e);
    if (rc != 0 || count == 0) return rc;
    if (tm_knowledge_instance(&plan->catalog, name, NULL, NULL, &request->supply.anchor_type, &why) != 0)
        return tm_job_wrong(&plan->job, "anchors", e, "%s", why.text);
    request->anchors_said = (int)count;
    return 0;
}

static int read_request(struct tm_cli *cli, struct plan *plan, int planner, struct tm_error *e)
{
    struct tm_plan_request *request = &plan->request;
    int market = TM_PLAN_MIXED;
    int anchors = 0;
    *request = (struct tm_plan_request){.planner = planner == PLANNER_SRIFT ? TM_PLAN_SRIFT : TM_PLAN_TIDEMILL,
                                        .budget_usd = INFINITY,
                                        .max_usd_h = INFINITY,
                                        .min_probability = 0.95,
                                        .programs_max = 60};
    int rc = read_job(cli, plan, e);
    plan->emits = EMIT_NOTHING;
    if (rc == 0) rc = tm_given_choice(cli, "emit", &plan->emits, e);
    if (rc == 0) rc = read_losses(cli, plan, e);
    fill_supply(plan);
    if (rc == 0) rc = tm_given_ways(cli, &request->supply.ways, e);
    if (rc == 0 && request->supply.ways != 0 && plan->emits != EMIT_NOTHING && plan->emits != EMIT_MILP)
        rc = tm_error_set(
            e, TM_EUSAGE,
            "--parallel %s needs an engine of your own, such as PyTorch's FSDP, and a run does data parallel "
            "and pipelines: leave --parallel out to emit what it can do",
            tm_given_text(cli, "parallel"));
    if (rc == 0) rc = tm_given_choice(cli, "objective", &plan->objective, e);
    if (rc == 0) rc = tm_given_choice(cli, "market", &market, e);
    if (rc == 0) rc = tm_given_choice(cli, "anchors", &anchors, e);
    if (rc == 0) rc = tm_given_number(cli, "budget", 0, 1e12, &request->budget_usd, e);
    if (rc == 0) rc = tm_given_number(cli, "max-hourly", 0, 1e9, &request->max_usd_h, e);
    if (rc == 0) rc = tm_given_number(cli, "probability", 0.01, 0.9999, &request->min_probability, e);
    if (rc == 0) rc = read_quotas(plan, e);
    if (rc == 0) rc = read_anchors(plan, e);
    if (rc == 0 && planner >= PLANNER_DEEPVM && !tm_given(cli, "max-hourly"))
        request->max_usd_h = 3; /* as DeepVM has it */
    request->objective = plan->objective == TM_PLAN_FASTEST ? TM_PLAN_FASTEST : TM_PLAN_CHEAPEST;
    request->market = (enum tm_plan_market)market;
    request->job.sure = request->min_probability;
    request->workers_min = (int)plan->job.fleet.workers_min;
    if (anchors == 1) request->state_bytes = 0;
    return rc;
}

/* ---- a job that runs ---- */

/* The offer of a type where it is cheapest on a market; NULL: none. Later parts must lie in the region of the first. */
static const struct tm_offer *find_offer(const struct plan *plan, const char *name, bool on_demand)
{
    const struct tm_offer *best = NULL;
    const struct tm_offer *first = plan->running.part_count > 0 ? plan->running.parts[0].offer : NULL;
    const struct tm_supply *supply = plan->is_home ? &plan->home : &plan->supply;
    for (size_t i = 0; i < supply->pool_count; i++) {
        const struct tm_offer *offer = supply->pools[i].offer;
        double price = on_demand ? offer->on_demand_usd_h : offer->spot_usd_h;
        if (strcasecmp(plan->catalog.instances[offer->instance].name, name) != 0 || isnan(price)) continue;
        if (first != NULL && offer->region != first->region) continue;
        if (best == NULL || price < (on_demand ? best->on_demand_usd_h : best->spot_usd_h)) best = offer;
    }
    return best;
}

/* COUNTx TYPE[:on-demand], separated by commas. */
static int read_running(struct plan *plan, struct tm_error *e)
{
    plan->running = (struct tm_plan_fleet){0};
    for (const char *at = tm_given_text(plan->cli, "running"); *at != '\0';) {
        char part[128];
        char name[96];
        int instances = 0;
        size_t length = tm_described_fleet_part(&plan->catalog, at);
        (void)snprintf(part, sizeof part, "%.*s", (int)(length < sizeof part ? length : sizeof part - 1), at);
        bool read = sscanf(part, " %d x %95s", &instances, name) == 2 || /* NOLINT(cert-err34-c): checked below */
                    sscanf(part, " %dx%95s", &instances, name) == 2;     /* NOLINT(cert-err34-c) */
        if (!read || instances < 1 || instances > TM_PLAN_INSTANCES_MAX ||
            plan->running.part_count == TM_PLAN_PARTS_MAX)
            return tm_error_set(e, TM_EUSAGE,
                                "--running: expected COUNTx TYPE, got \"%.60s\"; write for example \"8x p3.2xlarge, "
                                "2x p3.2xlarge:on-demand\"",
                                part);
        char *colon = strchr(name, ':');
        bool on_demand = colon != NULL && strcmp(colon, ":on-demand") == 0;
        if (colon != NULL) *colon = '\0';
        const struct tm_offer *offer = find_offer(plan, name, on_demand);
        if (offer == NULL)
            return tm_error_set(e, TM_ENOTFOUND, "--running: %s is not offered anywhere, or not together with the rest",
                                name);
        plan->running.parts[plan->running.part_count++] = (struct tm_plan_part){
            &plan->catalog.instances[offer->instance], offer, on_demand ? 0 : instances, on_demand ? instances : 0};
        at += length + (at[length] != '\0');
    }
    return plan->running.part_count > 0 ? 0 : tm_error_set(e, TM_EUSAGE, "--running: empty");
}

enum { RUNNING_MAX = 64 }; /* instances of a type that runs, which may be more than the new plan's */

/* Filters are for the new plan: what runs may lie elsewhere. */
static int find_running(struct plan *plan, struct tm_error *e)
{
    int rc = read_running(plan, e);
    if (rc != -(int)TM_ENOTFOUND) return rc;
    struct tm_plan_request everywhere = plan->request;
    if (everywhere.max_instances < RUNNING_MAX) everywhere.max_instances = RUNNING_MAX;
    plan->is_home = true;
    rc = tm_plan_make_supply(&plan->catalog, &everywhere, &plan->home, e);
    if (rc == 0) rc = read_running(plan, e);
    return rc == -(int)TM_ENOTFOUND ? -(int)TM_EUSAGE : rc;
}

static int replan(struct plan *plan, struct tm_error *e)
{
    struct tm_cli *cli = plan->cli;
    struct tm_observed observed;
    struct tm_probed_links links;
    struct tm_replan_state state = {.fleet = &plan->running, .observed = &observed};
    int64_t elapsed_ms = 0;
    tm_observed_init(&observed);
    int rc = find_running(plan, e);
    if (plan->is_home) state.home = &plan->home;
    plan->is_home = false; /* the rest is for the new plan */
    if (rc == 0) rc = tm_given_number(cli, "done", 0, 1e15, &state.samples_done, e);
    if (rc == 0) rc = tm_given_number(cli, "spent", 0, 1e12, &state.spent_usd, e);
    if (rc == 0) rc = tm_given_duration(cli, "elapsed", &elapsed_ms, e);
    if (rc == 0 && tm_given(cli, "observed"))
        rc = tm_observed_load(cli->env, tm_given_text(cli, "observed"), &observed, e);
    if (rc == 0 && tm_given(cli, "links")) {
        rc = tm_probed_links_load(cli->env, tm_given_text(cli, "links"), &links, e);
        state.links = &links;
    }
    state.elapsed_s = (double)elapsed_ms / 1000;
    if (rc == 0) rc = tm_plan_replan(&plan->supply, &plan->request, &state, &plan->replan, &plan->result, e);
    if (rc == 0) plan->request = plan->replan.left;
    plan->elapsed_s = state.elapsed_s;
    plan->spent_usd = state.spent_usd;
    tm_observed_deinit(&observed);
    return rc;
}

/* ---- the plan ---- */

/* A file that was given by option is meant from here, wherever the job is written to; names of what ships stay. */
static const char *name_from_root(const struct plan *plan, const char *given)
{
    char real[PATH_MAX];
    if (is_shipped(given)) return given;
    return realpath(given, real) != NULL ? tm_arena_strdup(&plan->cli->arena, real) : given;
}

/* The keys of a job file that the user's own options override. */
static int find_keys(const struct plan *plan, struct tm_emit_key *keys, size_t *count, struct tm_error *e)
{
    static const struct {
        const char *option;
        struct tm_emit_key key;
    } table[] = {{"model", {.key = "model"}},
                 {"profile", {.key = "profile"}},
                 {"network", {.key = "network"}},
                 {"profile-gpu", {.key = "profile_gpu"}},
                 {"samples", {.key = "samples"}},
                 {"batch", {.key = "batch"}},
                 {"deadline", {.key = "deadline"}},
                 {"budget", {.key = "budget"}},
                 {"max-hourly", {.key = "max_hourly"}},
                 {"max-nodes", {.key = "max_nodes"}},
                 {"objective", {.key = "objective"}},
                 {"market", {.key = "market"}},
                 {"probability", {.key = "probability"}},
                 {"precision", {.key = "precision"}},
                 {"checkpoint", {.key = "checkpoint_time"}},
                 {"restart", {.key = "restart_time"}},
                 {"cloud", {.map = "resources", .key = "cloud", .list = true}},
                 {"region", {.map = "resources", .key = "region", .list = true}},
                 {"zone", {.map = "resources", .key = "zone", .list = true}},
                 {"instance", {.map = "resources", .key = "instance_type", .list = true}},
                 {"gpu", {.map = "resources", .key = "accelerators", .list = true}}};
    const struct tm_cli *cli = plan->cli;
    bool quotas = false;
    for (size_t i = 0; i < plan->own_options && i < TM_OPTIONS_GIVEN_MAX; i++) {
        const char *name = cli->given[i].option->name;
        for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
            if (strcmp(name, table[k].option) != 0) continue;
            bool file = strcmp(name, "model") == 0 || strcmp(name, "profile") == 0;
            keys[*count] = table[k].key;
            keys[*count].text = file ? name_from_root(plan, cli->given[i].value) : cli->given[i].value;
            if (keys[(*count)++].text == NULL) return tm_error_nomem(e);
        }
        if (strcmp(name, "anchors") == 0) {
            bool none = strcmp(cli->given[i].value, anchor_names[1]) == 0;
            keys[(*count)++] = (struct tm_emit_key){.key = "anchors", .text = none ? anchor_names[1] : NULL};
        }
        if (strcmp(name, "quota") == 0 && !quotas) keys[(*count)++] = (struct tm_emit_key){.key = "quotas"};
        quotas = quotas || strcmp(name, "quota") == 0;
    }
    if (!tm_given(cli, "precision") && cli->settings.precision != TM_PRECISION_MIXED &&
        plan->precision == (int)cli->settings.precision) /* the user's settings are not the job's */
        keys[(*count)++] = (struct tm_emit_key){.key = "precision", .text = tm_precision_names[plan->precision]};
    for (size_t i = 0; quotas && i < plan->request.quota_count; i++) {
        static const char *const markets[] = {"", ":spot", ":on-demand", ""};
        const struct tm_plan_quota *quota = &plan->request.quotas[i];
        const char *name = tm_arena_printf(&plan->cli->arena, "%s%s", quota->name, markets[quota->markets & 3]);
        const char *limit = tm_arena_printf(&plan->cli->arena, "%d%s", quota->limit, quota->vcpus ? "vcpus" : "");
        if (name == NULL || limit == NULL) return tm_error_nomem(e);
        keys[(*count)++] = (struct tm_emit_key){.map = "quotas", .key = name, .text = limit};
    }
    return 0;
}

/* The trace that the fleet was judged by, as a job file should name it: what was given by option is meant from here,
 * what the file said stays. */
static const char *trace_to_emit(const struct plan *plan)
{
    const struct tm_cli *cli = plan->cli;
    const struct tm_plan_trace *trace = tm_plan_trace_of_fleet(&plan->request, &plan->result.answers[0].fleet);
    bool own = false;
    for (size_t i = 0; i < plan->own_options; i++)
        own = own || strcmp(cli->given[i].option->name, "trace") == 0;
    if (!own) return tm_given(cli, "trace") ? plan->job.fleet.trace : NULL;
    return trace != NULL ? name_from_root(plan, trace->name) : NULL;
}

/* The job's folder, where standard output is a file in another one; NULL: it is not. */
static const char *folder_left(const struct plan *plan)
{
    char job[PATH_MAX];
    char out[PATH_MAX];
    struct stat s;
    if (!plan->has_job || fstat(STDOUT_FILENO, &s) != 0 || !S_ISREG(s.st_mode)) return NULL;
    if (realpath(plan->cli->arguments[0], job) == NULL || realpath("/proc/self/fd/1", out) == NULL) return NULL;
    *strrchr(job, '/') = *strrchr(out, '/') = '\0'; /* both are absolute */
    return strcmp(job, out) != 0 ? tm_arena_strdup(&plan->cli->arena, job[0] != '\0' ? job : "/") : NULL;
}

static int emit(struct plan *plan, struct tm_error *e)
{
    struct tm_emit_key keys[TM_OPTIONS_GIVEN_MAX + TM_PLAN_QUOTAS_MAX + 2];
    struct tm_emit what = {.request = &plan->request,
                           .answer = &plan->result.answers[0],
                           .job = plan->has_job ? &plan->job : NULL,
                           .file = plan->has_job ? tm_path_base(plan->cli->arguments[0]) : NULL,
                           .trace = trace_to_emit(plan),
                           .folder = plan->emits == EMIT_JOB ? folder_left(plan) : NULL,
                           .env = plan->cli->env,
                           .keys = keys};
    struct tm_jsonout json;
    tm_jsonout_init(&json, &plan->cli->out);
    if (plan->emits == EMIT_MILP) return tm_plan_program(&plan->supply, &plan->request, what.answer, &json, e);
    if (plan->emits == EMIT_SKYPILOT) {
        tm_emit_skypilot(&what, &plan->cli->out);
        return 0;
    }
    if (plan->emits == EMIT_KUBERNETES) return tm_emit_kubernetes(&what, &plan->cli->out, e);
    int rc = find_keys(plan, keys, &what.key_count, e);
    return rc == 0 ? tm_emit_job(&what, &plan->cli->out, e) : rc;
}

/* Which judge: whether a running fleet should change is weighed by the closed form alone. */
static int choose_judge(struct plan *plan, struct tm_error *e)
{
    struct tm_cli *cli = plan->cli;
    plan->judge = tm_given(cli, "running") ? JUDGE_EXPECT : JUDGE_SIMULATE;
    int rc = tm_given_choice(cli, "judge", &plan->judge, e);
    if (rc == 0 && plan->judge == JUDGE_REPLAY && !tm_given(cli, "trace"))
        rc = tm_error_set(e, TM_EUSAGE, "--judge replay needs a trace to replay, for example --trace hadp");
    if (rc == 0 && plan->judge != JUDGE_EXPECT && tm_given(cli, "running"))
        rc = tm_error_set(e, TM_EUSAGE, "--judge %s judges fleets to choose one; --running takes --judge expect",
                          judge_names[plan->judge]);
    return rc;
}

static struct tm_fleet_judge judge_of(const struct plan *plan)
{
    return (struct tm_fleet_judge){.env = plan->cli->env,
                                   .catalog = &plan->catalog,
                                   .policy = plan->job.policy,
                                   .asked = &plan->job.fleet,
                                   .seed = plan->job.fleet.seed > 0 ? (uint64_t)plan->job.fleet.seed : 1};
}

/* What an hour would have to cost at most for such a planner to find anything; infinite: it never does. */
static int find_hourly(struct plan *plan, int planner, struct tm_error *e)
{
    struct tm_plan_request request = plan->request;
    struct tm_plan_answer scratch;
    double none = request.max_usd_h, some = INFINITY;
    plan->result.deadline_needed_s = plan->result.budget_needed_usd = plan->result.usd_h_needed = INFINITY;
    request.max_usd_h = fmax(none, 0.01) / 2;
    while (request.max_usd_h < 5e5 && isinf(some)) {
        bool found = false;
        request.max_usd_h *= 2;
        int rc = tm_plan_rival(&plan->supply, &request, (enum tm_deepvm_planner)(planner - PLANNER_DEEPVM), &scratch,
                               &found, e);
        if (rc != 0) return rc;
        *(found ? &some : &none) = request.max_usd_h;
    }
    while (isfinite(some) && some - none > 0.005) {
        bool found = false;
        request.max_usd_h = (none + some) / 2;
        int rc = tm_plan_rival(&plan->supply, &request, (enum tm_deepvm_planner)(planner - PLANNER_DEEPVM), &scratch,
                               &found, e);
        if (rc != 0) return rc;
        *(found ? &some : &none) = request.max_usd_h;
    }
    plan->result.usd_h_needed = some;
    return 0;
}

/* DeepVM's choice for the model on the catalogue, judged as ours are; ours beside it. */
static int search_published(struct plan *plan, int planner, struct tm_error *e)
{
    struct tm_plan_answer *answer = &plan->result.answers[0];
    struct tm_fleet_judge judge = judge_of(plan);
    bool found = false;
    int rc = tm_plan_search_judged(&judge, &plan->supply, &plan->request, &plan->other, NULL, e);
    if (rc == 0)
        rc = tm_plan_rival(&plan->supply, &plan->request, (enum tm_deepvm_planner)(planner - PLANNER_DEEPVM), answer,
                           &found, e);
    if (rc == 0 && !found) return find_hourly(plan, planner, e);
    if (rc != 0) return rc;
    struct tm_plan_fleet chosen = answer->fleet;
    rc = tm_plan_judge(&plan->supply, &plan->request, answer, e);
    answer->fleet = chosen; /* with the remotes that it has, not those that we would give it */
    answer->anchors = chosen.anchor_instances + tm_plan_on_demand_instances(&chosen);
    answer->expectation.usd_h = tm_plan_usd_h(&chosen);
    if (rc == 0) rc = tm_fleet_judge_answer(&judge, &plan->request, answer, e);
    plan->result.bound = plan->result.gap = NAN;
    plan->result.fleets = plan->other.fleets;
    plan->result.count = rc == 0;
    return rc;
}

static int search(struct plan *plan, int planner, struct tm_error *e)
{
    if (planner >= PLANNER_DEEPVM) return search_published(plan, planner, e);
    if (tm_given(plan->cli, "running")) return replan(plan, e);
    struct tm_fleet_judge judge = judge_of(plan);
    bool judged = plan->judge != JUDGE_EXPECT;
    if (plan->objective == OBJECTIVE_PARETO)
        return tm_plan_pareto(judged ? &judge : NULL, &plan->supply, &plan->request, &plan->result, e);
    if (judged) {
        return tm_plan_search_judged(&judge, &plan->supply, &plan->request, &plan->result, &plan->other, e);
    }
    return tm_plan_search_in(&plan->supply, &plan->request, &plan->result, &plan->other, e);
}

static int search_at(struct plan *plan, int planner, int batch, struct tm_error *e)
{
    plan->request.supply.batch = batch;
    tm_supply_deinit(&plan->supply);
    tm_supply_init(&plan->supply);
    int rc = tm_plan_make_supply(&plan->catalog, &plan->request, &plan->supply, e);
    return rc == 0 ? search(plan, planner, e) : rc;
}

static int try_larger_batch(struct plan *plan, struct tm_error *e)
{
    struct tm_fleet_judge judge = judge_of(plan);
    if (plan->objective == OBJECTIVE_PARETO || plan->emits != EMIT_NOTHING) return 0;
    return tm_plan_try_larger_batch(plan->judge != JUDGE_EXPECT ? &judge : NULL, &plan->catalog, &plan->request,
                                    &plan->result.answers[0], &plan->larger, e);
}

/* A batch that nobody said is free: where nothing is found with the usual one, larger ones send gradients less often.
 * The one that is found counts as if it had been given. */
static int search_batches(struct plan *plan, int planner, struct tm_error *e)
{
    static const int batches[] = {512, 1024, 2048};
    struct tm_cli *cli = plan->cli;
    bool is_open = !tm_given(cli, "batch") && plan->model.global_batch <= 0 && !tm_given(cli, "running");
    if (!is_open || plan->supply.pool_count == 0 || planner != PLANNER_TIDEMILL) return 0;
    if (plan->result.count > 0) return try_larger_batch(plan, e);
    int rc = 0;
    for (size_t i = 0; rc == 0 && plan->result.count == 0 && i < sizeof batches / sizeof *batches; i++)
        rc = search_at(plan, planner, batches[i], e);
    if (rc == 0 && plan->result.count == 0) return search_at(plan, planner, TM_PLANNED_BATCH, e);
    if (rc == 0) rc = give_integer(cli, "batch", plan->request.supply.batch, e);
    if (rc != 0) return rc;
    struct tm_option_given found = cli->given[cli->given_count - 1];
    for (size_t i = cli->given_count - 1; i > plan->own_options; i--)
        cli->given[i] = cli->given[i - 1];
    cli->given[plan->own_options++] = found;
    plan->batch_searched = true;
    return 0;
}

/* Of all offers, whatever is allowed, the smallest that holds the model: least GPU memory, then the cheapest. */
static int find_smallest(struct plan *plan, bool *found, struct tm_error *e)
{
    struct tm_plan_request open = plan->request;
    struct tm_supply supply;
    double least_gib = INFINITY;
    double least_usd_h = INFINITY;
    *found = false;
    open.supply.allowed = NULL;
    open.market = TM_PLAN_MIXED;
    open.max_instances = 8;
    tm_supply_init(&supply);
    int rc = tm_plan_make_supply(&plan->catalog, &open, &supply, e);
    for (size_t i = 0; rc == 0 && i < supply.pool_count; i++) {
        const struct tm_plan_pool *pool = &supply.pools[i];
        const struct tm_plan_type *type = &supply.types[pool->type];
        double gib = type->group.gpu.memory_gib * type->instance->gpus * type->rates[0].instances;
        double usd_h = pool->offer->on_demand_usd_h * type->rates[0].instances;
        bool usual =
            strcmp(tm_plan_maker(type->instance), "nvidia") == 0 && !tm_offer_is_retired(&plan->catalog, pool->offer);
        if (!usual || gib > least_gib || !(gib < least_gib || usd_h < least_usd_h)) continue;
        least_gib = gib;
        least_usd_h = usd_h;
        *found = true;
        plan->smallest.fleet = (struct tm_plan_fleet){.part_count = 1};
        plan->smallest.fleet.parts[0] = (struct tm_plan_part){type->instance, pool->offer, 0, type->rates[0].instances};
    }
    tm_supply_deinit(&supply);
    return rc;
}

/* Was some zone given by a name of AWS's that offers have ids for? */
static bool are_zones_by_region(const struct plan *plan)
{
    const struct tm_offer *offer = plan->result.count > 0 ? plan->result.answers[0].fleet.parts[0].offer : NULL;
    return tm_given(plan->cli, "zone") && offer != NULL && !tm_given_matches(plan->cli, "zone", offer->zone);
}

static const char *judge_words(const struct plan *plan)
{
    if (plan->judge == JUDGE_EXPECT) return "a closed form over random losses";
    if (!tm_given(plan->cli, "trace")) return "20 simulations of the policy that will run, with random preemptions";
    struct tm_text words;
    tm_text_init(&words, 1 << 14);
    tm_text_printf(&words, "20 simulations of the policy that will run, from 20 starts of ");
    tm_given_traces_words(&plan->traces, &words);
    const char *text = tm_arena_strdup(&plan->cli->arena, words.data != NULL ? words.data : "");
    tm_text_deinit(&words);
    return text != NULL ? text : "20 simulations of the policy that will run";
}

/* Which options leave no offer; "": none of them by themselves. */
static const char *why_none(const struct plan *plan)
{
    if (plan->supply.seen.allowed > 0) return "";
    struct tm_text why;
    tm_text_init(&why, 512);
    tm_filter_why_none(plan->cli, &plan->catalog, &why);
    const char *text = tm_arena_strdup(&plan->cli->arena, tm_text_string(&why));
    tm_text_deinit(&why);
    return text != NULL ? text : "";
}

static int report(struct plan *plan, int planner, struct tm_error *e)
{
    struct tm_cli *cli = plan->cli;
    int rc = 0;
    struct tm_plan_report report = {.asked_ms = plan->asked_ms,
                                    .planner = planner_names[planner],
                                    .other_planner =
                                        planner_names[planner == PLANNER_TIDEMILL ? PLANNER_SRIFT : PLANNER_TIDEMILL],
                                    .objective = objective_names[plan->objective],
                                    .request = &plan->request,
                                    .result = &plan->result,
                                    .other = plan->objective == OBJECTIVE_PARETO ? NULL : &plan->other,
                                    .supply = &plan->supply,
                                    .for_skypilot = plan->emits == EMIT_SKYPILOT,
                                    .batch_from = plan->batch_searched           ? "searched: nothing satisfies all "
                                                                                   "constraints at 256; see that it converges"
                                                  : tm_given(cli, "batch")       ? "as you said"
                                                  : plan->model.global_batch > 0 ? "the model's"
                                                                                 : "assumed: --batch sets it",
                                    .larger = &plan->larger,
                                    .zones_by_region = are_zones_by_region(plan),
                                    .published = planner >= PLANNER_DEEPVM,
                                    .judge = judge_words(plan),
                                    .simulated = plan->judge != JUDGE_EXPECT};
    if (tm_given(cli, "running")) report.running = &plan->replan;
    if (report.running != NULL && plan->replan.holds) {
        report.other = NULL;
    } else if (plan->result.count == 0) {
        struct tm_fleet_judge judge = judge_of(plan);
        if (report.published) /* it knows of no other limit */
            plan->relax = (struct tm_plan_relaxation){.deadline_s = INFINITY,
                                                      .budget_usd = INFINITY,
                                                      .usd_h = plan->result.usd_h_needed,
                                                      .both_s = NAN,
                                                      .both_usd = NAN};
        else
            rc = tm_plan_relax(plan->judge != JUDGE_EXPECT ? &judge : NULL, &plan->catalog, &plan->supply,
                               &plan->request, &plan->result, &plan->relax, e);
        plan->relax.deadline_s += plan->elapsed_s; /* limits of the whole job, as they were given */
        plan->relax.budget_usd += plan->spent_usd;
        plan->relax.both_s += plan->elapsed_s;
        plan->relax.both_usd += plan->spent_usd;
        report.relax = &plan->relax;
        bool found = false;
        if (rc == 0 && plan->supply.pool_count == 0 && plan->supply.seen.unfit > 0) rc = find_smallest(plan, &found, e);
        if (found) report.smallest = &plan->smallest;
        report.why_none = why_none(plan);
        if (rc == 0 && (!cli->json || plan->emits != EMIT_NOTHING)) return tm_plan_report_nothing(&report, e);
        cli->exit_status = tm_code_exit_status(TM_ENONE);
    } else if (plan->emits != EMIT_NOTHING) {
        return emit(plan, e);
    } else if (plan->objective != OBJECTIVE_PARETO && planner < PLANNER_DEEPVM) {
        struct tm_fleet_judge judge = judge_of(plan);
        const struct tm_fleet_judge *by = plan->judge != JUDGE_EXPECT ? &judge : NULL;
        rc = tm_plan_advise(by, &plan->supply, &plan->request, &plan->result, &plan->advice, e);
        report.advice = &plan->advice;
    }
    if (rc != 0) return rc;
    if (!cli->json) return tm_plan_report_table(cli, &report, e);
    tm_plan_report_json(cli, &report);
    return 0;
}

static bool is_live(void *context, const struct tm_offer *offer)
{
    const struct plan *plan = context;
    return is_allowed(plan, &plan->catalog.instances[offer->instance], offer, false);
}

/* Is this cloud asked? One that is named always is; else those that are set up here, and Azure, which asks for no
 * account. */
static bool is_asked(const struct plan *plan, const struct tm_cloud_kind *kind)
{
    const char *said = plan->has_job && tm_job_says(&plan->job, "cloud") ? tm_job_cloud_names[plan->job.cloud] : "";
    for (size_t i = 0; tm_market_clouds[i] != NULL; i++)
        if (strcmp(said, tm_market_clouds[i]) == 0) return strcmp(said, kind->name) == 0;
    return tm_given(plan->cli, "cloud") || strcmp(kind->name, "azure") == 0 ||
           tm_cloud_kind_is_set(plan->cli->env, kind) || tm_given(plan->cli, "replay");
}

static int ask_cloud(struct plan *plan, const struct tm_cloud_kind *kind, struct tm_error *e)
{
    const struct tm_market_live live = {.cloud = kind->name, .is_wanted = is_live, .context = plan};
    size_t changed = 0;
    if (!is_asked(plan, kind) || !tm_market_is_wanted(&live, &plan->catalog))
        return tm_error_set(e, TM_ENONE, "%s is not asked", kind->people);
    int rc = tm_market_live(plan->cli->env, &live, &plan->catalog, &plan->asked_ms, &changed, e);
    if (rc == 0) tm_log(TM_LOG_INFO, "%zu offers of %s have the spot price of now", changed, kind->people);
    return rc;
}

/* Prices of now instead of the catalogue's, where a cloud says them: one that does not answer keeps the catalogue's,
 * but somebody must. */
static int ask_prices(struct plan *plan, struct tm_error *e)
{
    struct tm_error why[TM_CLOUD_KINDS_MAX];
    size_t failed = 0;
    size_t answered = 0;
    int rc = tm_cmd_open_tape(plan->cli, e);
    for (size_t i = 0; rc == 0 && tm_cloud_kind_at(i) != NULL; i++) {
        int one = ask_cloud(plan, tm_cloud_kind_at(i), &why[failed]);
        if (one == -(int)TM_ENOMEM) return tm_error_nomem(e);
        answered += one == 0;
        failed += one != 0 && one != -(int)TM_ENONE;
    }
    if (rc != 0) return rc;
    if (answered == 0 && failed == 0)
        return tm_error_set(e, TM_EUSAGE,
                            "--live: none of the clouds that can be asked (AWS, Google Cloud, Azure) is in this plan; "
                            "leave --live out: the catalogue's prices are taken");
    if (answered == 0) return tm_error_set(e, why[0].code, "--live: %s", why[0].text);
    for (size_t i = 0; i < failed; i++)
        tm_log(TM_LOG_WARN, "%s; the catalogue's prices are used", why[i].text);
    return 0;
}

static int plan_model(struct tm_cli *cli, struct plan *plan, int planner, struct tm_error *e)
{
    int rc = read_job_file(plan, e);
    if (rc == 0 && !tm_given(cli, "model") && !tm_given(cli, "profile"))
        rc = tm_error_set(e, TM_EUSAGE,
                          "give a model: tidemill plan --model gpt2-1.5b --samples 1000000 --deadline 24h, or a "
                          "profile of your job: --profile FILE (tidemill profile)");
    if (rc == 0) rc = tm_catalog_load(cli->env, &plan->catalog, e);
    if (rc == 0) {
        tm_catalog_assume_network(&plan->catalog);
        tm_catalog_doubt_prices(&plan->catalog);
    }
    struct tm_knowledge_source source = tm_cmd_source(cli); /* options, and what the job file said as such */
    if (rc == 0) rc = tm_knowledge_read(cli->env, &source, &plan->knowledge, e);
    if (rc == 0) rc = tm_knowledge_model(cli->env, &source, &plan->knowledge, &plan->model, e);
    if (rc == 0) rc = tm_filter_check(cli, &plan->catalog, e);
    if (rc == 0)
        plan->precision = tm_knowledge_precision(&source, &plan->knowledge, &plan->model, cli->settings.precision);
    if (rc == 0) rc = tm_given_choice(cli, "precision", &plan->precision, e);
    if (rc == 0)
        rc = tm_knowledge_learn(cli->env, &source, &plan->catalog, &plan->model, plan->precision, &plan->knowledge, e);
    if (rc == 0) rc = read_request(cli, plan, planner, e);
    if (rc == 0) rc = choose_judge(plan, e);
    if (rc == 0 && tm_given(cli, "live")) rc = ask_prices(plan, e);
    if (rc == 0) rc = tm_plan_make_supply(&plan->catalog, &plan->request, &plan->supply, e);
    if (rc == 0) rc = search(plan, planner, e);
    if (rc == 0) rc = search_batches(plan, planner, e);
    return rc == 0 ? report(plan, planner, e) : rc;
}

int tm_cmd_plan(struct tm_cli *cli, struct tm_error *e)
{
    int planner = tm_given(cli, "instances") ? PLANNER_DEEPVM : PLANNER_TIDEMILL;
    if (cli->argument_count > 1) return tm_error_set(e, TM_EUSAGE, "plan takes one job file at most; see its options");
    int rc = tm_given_choice(cli, "planner", &planner, e);
    if (rc != 0) return rc;
    if (tm_given(cli, "instances")) return plan_from_file(cli, e);
    struct plan *plan = tm_calloc(1, sizeof *plan);
    if (plan == NULL) return tm_error_nomem(e);
    plan->cli = cli;
    tm_catalog_init(&plan->catalog);
    tm_model_init(&plan->model);
    tm_job_init(&plan->job);
    tm_knowledge_init(&plan->knowledge);
    tm_supply_init(&plan->home);
    tm_supply_init(&plan->supply);
    tm_given_traces_init(&plan->traces);
    tm_risk_init(&plan->risk);
    rc = plan_model(cli, plan, planner, e);
    tm_free(plan->loss_rates);
    tm_risk_deinit(&plan->risk);
    tm_given_traces_deinit(&plan->traces);
    tm_supply_deinit(&plan->home);
    tm_supply_deinit(&plan->supply);
    tm_knowledge_deinit(&plan->knowledge);
    tm_job_deinit(&plan->job);
    tm_model_deinit(&plan->model);
    tm_catalog_deinit(&plan->catalog);
    tm_free(plan);
    return rc;
}

const struct tm_option tm_plan_options[] = {
    {.name = "model",
     .value = "NAME",
     .help = "what to train: a shipped model, a model file, or a formula such as gpt: or llama:"},
    {.name = "samples", .value = "N", .help = "how many samples to train: 5000000, 5e6 or 5M"},
    {.name = "tokens",
     .value = "N",
     .help = "instead of --samples, of a language model: how many tokens to train (2T)"},
    {.name = "batch",
     .value = "N",
     .help = "global batch (the model's own, or 256, or if nothing is found with it 512 to 2048)"},
    {.name = "deadline", .value = "DURATION", .help = "finish within this time"},
    {.name = "budget", .value = "USD", .help = "at most USD dollars in total"},
    {.name = "max-hourly", .value = "USD", .help = "at most USD dollars per hour (3 for DeepVM's planners)"},
    {.name = "max-nodes", .value = "N", .help = "at most N instances (64)"},
    {.name = "objective", .value = "NAME", .help = "what to optimize for", .choices = objective_names},
    {.name = "market", .value = "NAME", .help = "what may be rented", .choices = market_names},
    {.name = "probability",
     .value = "P",
     .help = "smallest acceptable probability of meeting the deadline and the budget (0.95)"},
    {.name = "cloud", .value = "NAME,...", .help = "only these clouds"},
    {.name = "region", .value = "NAME,...", .help = "only these regions"},
    {.name = "zone", .value = "NAME,...", .help = "only these zones"},
    {.name = "instance", .value = "NAME,...", .help = "only these instance types"},
    {.name = "gpu", .value = "NAME,...", .help = "only these GPUs; Trainium and the like only if named here"},
    {.name = "live", .help = "ask AWS, Google Cloud and Azure for the spot prices of now (doc/clouds.md)"},
    TM_TAPE_OPTIONS,
    {.name = "quota",
     .value = "NAME=N,...",
     .help = "at most N instances of a type, family, GPU, zone, region or cloud, or of both (us-east-1/p), or N vCPUs "
             "(Nvcpus); NAME:spot=N and NAME:on-demand=N for one market"},
    {.name = "anchors",
     .value = "NAME",
     .help = "none: copies of the state go to a store instead of to on-demand instances",
     .choices = anchor_names},
    {.name = "precision", .value = "NAME", .help = "number format of training", .choices = tm_precision_names},
    {.name = "parallel",
     .value = "NAME",
     .help = "ways to try: data parallel and pipelines, as a run does (data; with a job file, --emit and --running), "
             "sharded data parallel, too (sharded), tensor parallel, too (tensor), or any",
     .choices = tm_way_choices},
    {.name = "profile",
     .value = "FILE",
     .help = "profile of this job from tidemill profile, instead of --model; or measured steps to learn from"},
    {.name = "network", .value = "NAME", .help = "which network of the profile, if it has several"},
    {.name = "profile-gpu", .value = "NAME", .help = "GPU of the profile, if the file does not say"},
    {.name = "mtbf",
     .value = "DURATION",
     .help = "mean life of every spot instance (else what is known of each; see tidemill study)"},
    {.name = "trace",
     .value = "[TYPE=]FILE",
     .help = "take preemptions, bursts and outages of the instance type and region that this trace names from it (a "
             "trace that names none: of all); or of TYPE, REGION/TYPE or any=FILE; may be given several times"},
    {.name = "bursts", .value = "SHARE", .help = "share of preemptions that come in bursts (from the trace, or 0.5)"},
    {.name = "outage",
     .value = "DURATION",
     .help = "time until a zone has instances again after a burst (from the trace, or 15m)"},
    {.name = "checkpoint", .value = "DURATION", .help = "time to write a checkpoint (its size at 1 GB/s)"},
    {.name = "restart", .value = "DURATION", .help = "time from a preemption to the next step (1m)"},
    {.name = "running",
     .value = "LIST",
     .help = "the fleet running now: is it still good enough, and if not, what would be?"},
    {.name = "observed", .value = "FILE", .help = "measured step times of the running fleet, in seconds"},
    {.name = "links",
     .value = "FILE",
     .help = "probed links of the running fleet: CSV with mbit, and optionally latency_ms"},
    {.name = "done", .value = "N", .help = "samples the running job has trained so far"},
    {.name = "elapsed", .value = "DURATION", .help = "time since the running job started"},
    {.name = "spent", .value = "USD", .help = "dollars the running job has cost so far"},
    {.name = "judge",
     .value = "NAME",
     .help = "how answers are judged: by simulating them, on --trace (replay: needs one) or random losses, or by a "
             "closed form",
     .choices = judge_names},
    {.name = "emit", .value = "NAME", .help = "print the plan as a file for the next step", .choices = emit_names},
    {.name = "top", .value = "N", .help = "number of answers (8; 3 for DeepVM's planners)"},
    {.name = "planner", .value = "NAME", .help = "which planner (tidemill)", .choices = planner_names},
    {.name = "instances",
     .value = "FILE",
     .help = "for DeepVM's planners, instead of --model: instance types with quotas and scaling curves"},
    {.name = "architecture",
     .value = "NAME",
     .help = "DeepVM: one search only, or the best of both",
     .choices = architecture_names},
    {.name = "buffer", .value = "SIZE", .help = "DeepVM's buffer_size (0.5)"},
    {.name = "checkpoint-size", .value = "SIZE", .help = "DeepVM's ckp_file_size (2)"},
    {.name = NULL},
};
