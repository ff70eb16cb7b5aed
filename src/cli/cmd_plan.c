#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/knowledge.h"
#include "market/trace_stats.h"
#include "plan/deepvm.h"
#include "plan/search.h"

#include <math.h>

static const char *const planner_names[] = {"tidemill",   "srift",      "deepvm", "deepvm-noscale",
                                            "cost-first", "perf-first", NULL};
enum { PLANNER_TIDEMILL, PLANNER_SRIFT, PLANNER_DEEPVM }; /* from here on: enum tm_deepvm_planner */
static const char *const architecture_names[] = {"best", "tiering", "single-anchor", NULL};
static const char *const objective_names[] = {"cheapest", "fastest", NULL};
static const char *const market_names[] = {"mixed", "spot", "on-demand", NULL};

/* ---- the published planners on their own data ---- */

static void print_json(struct tm_cli *cli, enum tm_deepvm_planner planner, const struct tm_deepvm_answer *answers,
                       size_t count)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "planner", planner_names[PLANNER_DEEPVM + (int)planner]);
    tm_jsonout_list(&json, "answers");
    for (size_t i = 0; i < count; i++) {
        const struct tm_deepvm_answer *answer = &answers[i];
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "architecture", architecture_names[answer->architecture]);
        tm_jsonout_string(&json, "gpu_instance", answer->gpu->name);
        tm_jsonout_integer(&json, "gpu_nodes", answer->gpu_nodes);
        tm_jsonout_string(&json, "anchor_instance", answer->anchor != NULL ? answer->anchor->name : NULL);
        if (answer->anchor != NULL)
            tm_jsonout_integer(&json, "anchor_nodes", answer->anchor_nodes);
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
        {"RANK", TM_RIGHT, 0},       {"ARCHITECTURE", TM_LEFT, 0}, {"GPU NODES", TM_LEFT, 0}, {"ANCHOR", TM_LEFT, 0},
        {"COST ($/h)", TM_RIGHT, 0}, {"K(n)", TM_RIGHT, 1},        {"Z", TM_RIGHT, 2},        {"SCORE", TM_RIGHT, 0}};
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const struct tm_deepvm_answer *answer = &answers[i];
        tm_table_add(&table, "%zu", i + 1);
        tm_table_add(&table, "%s", architecture_names[answer->architecture]);
        tm_table_add(&table, "%d x %s", answer->gpu_nodes, answer->gpu->name);
        if (answer->anchor != NULL)
            tm_table_add(&table, "%d x %s", answer->anchor_nodes, answer->anchor->name);
        else
            tm_table_add(&table, "one of them on demand");
        tm_table_add(&table, "%.4f", answer->price_usd_h);
        tm_table_add(&table, "%.4f", answer->k);
        if (isnan(answer->z))
            tm_table_add(&table, "-");
        else
            tm_table_add(&table, "%.4g", answer->z);
        tm_table_add(&table, "%.6g", answer->score);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

static int plan_published(struct tm_cli *cli, struct tm_deepvm_data *data, struct tm_error *e)
{
    struct tm_deepvm_request request = {.buffer = 0.5, .checkpoint_size = 2, .max_usd_h = 3, .top = 3};
    struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX];
    int planner = PLANNER_DEEPVM;
    int architecture = TM_DEEPVM_BEST;
    int64_t top = 3;
    size_t count = 0;
    int rc = tm_given_choice(cli, "planner", &planner, e);
    if (rc == 0 && planner < PLANNER_DEEPVM)
        rc = tm_error_set(e, TM_EUSAGE, "--planner %s plans for a --model from the catalogue, not from --instances",
                          planner_names[planner]);
    if (rc == 0) rc = tm_given_choice(cli, "architecture", &architecture, e);
    if (rc == 0) rc = tm_given_number(cli, "max-hourly", 0, 1e9, &request.max_usd_h, e);
    if (rc == 0) rc = tm_given_number(cli, "buffer", 0, 1e9, &request.buffer, e);
    if (rc == 0) rc = tm_given_number(cli, "checkpoint-size", 0, 1e9, &request.checkpoint_size, e);
    if (rc == 0) rc = tm_given_integer(cli, "top", 1, TM_DEEPVM_TOP_MAX, &top, e);
    request.planner = (enum tm_deepvm_planner)(planner - PLANNER_DEEPVM);
    request.architecture = (enum tm_deepvm_architecture)architecture;
    request.top = (size_t)top;
    if (rc == 0) rc = tm_deepvm_data_load(cli->env, tm_given_text(cli, "instances"), data, e);
    if (rc == 0) rc = tm_deepvm_plan(data, &request, answers, &count, e);
    if (rc != 0) return rc;
    if (count == 0 && !cli->json)
        return tm_error_set(e, TM_ENONE, "nothing is affordable at $%g an hour; raise --max-hourly", request.max_usd_h);
    if (count == 0) cli->exit_status = tm_code_exit_status(TM_ENONE);
    if (!cli->json) return print_table(cli, answers, count, e);
    print_json(cli, request.planner, answers, count);
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

/* What the filters are asked with. */
struct filters {
    const struct tm_cli *cli;
    const struct tm_catalog *catalog;
};

struct plan {
    struct tm_catalog catalog;
    struct tm_model model;
    struct tm_knowledge knowledge;
    struct filters filters;
    struct tm_plan_request request;
    struct tm_plan_result result;
    struct tm_plan_result other; /* the other planner's, for comparison */
};

static bool is_allowed(const void *context, const struct tm_instance *instance, const struct tm_offer *offer)
{
    const struct filters *filters = context;
    return tm_given_matches(filters->cli, "cloud", instance->cloud) &&
           tm_given_matches(filters->cli, "region", offer->region) &&
           tm_filter_gpu_matches(filters->cli, filters->catalog, instance->gpu);
}

/* Rate at which one instance is lost in a trace. */
static int rate_of_trace(struct tm_cli *cli, const char *path, double *out, struct tm_error *e)
{
    struct tm_trace trace;
    tm_trace_init(&trace);
    int rc = tm_trace_load(cli->env, path, NULL, &trace, e);
    if (rc == 0) {
        struct tm_trace_stats stats = tm_trace_stats(&trace);
        double node_s = stats.mean_available * stats.duration_s;
        *out = node_s > 0 ? (double)stats.nodes_lost / node_s : 0;
    }
    tm_trace_deinit(&trace);
    return rc;
}

static int read_losses(struct tm_cli *cli, struct tm_plan_request *request, struct tm_error *e)
{
    int64_t mtbf_ms = 0;
    request->loss_per_s = NAN;
    request->default_loss_per_s = 1 / (24 * 3600.0); /* where nothing is known: once a day */
    if (tm_given(cli, "mtbf") && tm_given(cli, "trace"))
        return tm_error_set(e, TM_EUSAGE, "--mtbf and --trace both say how often instances are lost: give one of them");
    int rc = tm_given_duration(cli, "mtbf", &mtbf_ms, e);
    if (rc == 0 && tm_given(cli, "mtbf") && mtbf_ms < 1000)
        rc = tm_error_set(e, TM_EUSAGE, "--mtbf: expected a second or more");
    if (rc == 0 && mtbf_ms > 0) request->loss_per_s = 1000.0 / (double)mtbf_ms;
    if (rc == 0 && tm_given(cli, "trace"))
        rc = rate_of_trace(cli, tm_given_text(cli, "trace"), &request->loss_per_s, e);
    return rc;
}

static int read_job(struct tm_cli *cli, struct plan *plan, struct tm_error *e)
{
    struct tm_plan_request *request = &plan->request;
    int64_t deadline_ms = 0;
    int64_t restart_ms = 60000;
    int64_t checkpoint_ms = 0;
    int64_t samples = 0;
    int64_t batch = plan->model.global_batch > 0 ? plan->model.global_batch : 256;
    int64_t max_nodes = 64;
    int64_t top = 8;
    int rc = tm_given_duration(cli, "deadline", &deadline_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "restart", &restart_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "checkpoint", &checkpoint_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "samples", 1, (int64_t)1 << 50, &samples, e);
    if (rc == 0) rc = tm_given_integer(cli, "batch", 1, 1 << 30, &batch, e);
    if (rc == 0) rc = tm_given_integer(cli, "max-nodes", 1, TM_PLAN_NODES_MAX, &max_nodes, e);
    if (rc == 0) rc = tm_given_integer(cli, "top", 1, TM_PLAN_ANSWERS_MAX, &top, e);
    if (rc == 0 && samples == 0)
        rc = tm_error_set(e, TM_EUSAGE, "say how much there is to train, for example --samples 10000000");
    if (rc == 0 && tm_given(cli, "deadline") && deadline_ms == 0)
        rc = tm_error_set(e, TM_EUSAGE, "--deadline: 0s lies not ahead; write for example 12h");
    if (rc != 0) return rc;
    /* A checkpoint is the weights and the optimizer's state, written at 1 GB/s. */
    double state_bytes = tm_model_totals(&plan->model).params * 4 * (1 + plan->model.optimizer_states);
    request->job = (struct tm_expect_job){
        .samples = (double)samples,
        .deadline_s = deadline_ms > 0 ? (double)deadline_ms / 1000 : INFINITY,
        .checkpoint_s = checkpoint_ms > 0 ? (double)checkpoint_ms / 1000 : state_bytes / 1e9,
        .restart_s = (double)restart_ms / 1000,
        .replace_s = 180,
        .startup_s = 180,
    };
    request->batch = (int)batch;
    request->max_nodes = (int)max_nodes;
    request->top = (size_t)top;
    return 0;
}

static int read_request(struct tm_cli *cli, struct plan *plan, int planner, struct tm_error *e)
{
    struct tm_plan_request *request = &plan->request;
    int objective = TM_PLAN_CHEAPEST;
    int market = TM_PLAN_MIXED;
    *request = (struct tm_plan_request){.model = &plan->model,
                                        .compute = &plan->knowledge.compute,
                                        .comm = &plan->knowledge.comm,
                                        .precision = cli->settings.precision,
                                        .planner = planner == PLANNER_SRIFT ? TM_PLAN_SRIFT : TM_PLAN_TIDEMILL,
                                        .budget_usd = INFINITY,
                                        .max_usd_h = INFINITY,
                                        .min_probability = 0.95,
                                        .allowed = is_allowed,
                                        .allowed_context = &plan->filters};
    int rc = read_job(cli, plan, e);
    if (rc == 0) rc = read_losses(cli, request, e);
    if (rc == 0) rc = tm_given_choice(cli, "precision", &request->precision, e);
    if (rc == 0) rc = tm_given_choice(cli, "objective", &objective, e);
    if (rc == 0) rc = tm_given_choice(cli, "market", &market, e);
    if (rc == 0) rc = tm_given_number(cli, "budget", 0, 1e12, &request->budget_usd, e);
    if (rc == 0) rc = tm_given_number(cli, "max-hourly", 0, 1e9, &request->max_usd_h, e);
    if (rc == 0) rc = tm_given_number(cli, "probability", 0.01, 0.9999, &request->min_probability, e);
    request->objective = (enum tm_plan_objective)objective;
    request->market = (enum tm_plan_market)market;
    return rc;
}

static void put_estimate(struct tm_jsonout *json, const char *key, const struct tm_estimate *estimate)
{
    tm_jsonout_object(json, key);
    tm_jsonout_number(json, "mean", estimate->mean);
    tm_jsonout_number(json, "p10", estimate->p10);
    tm_jsonout_number(json, "p90", estimate->p90);
    tm_jsonout_end(json);
}

static void put_answer_json(struct tm_jsonout *json, const struct tm_plan_answer *answer, bool chosen)
{
    const struct tm_expectation *expectation = &answer->expectation;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "cloud", answer->instance->cloud);
    tm_jsonout_string(json, "region", answer->offer->region);
    tm_jsonout_string(json, "zone", answer->offer->zone[0] != '\0' ? answer->offer->zone : NULL);
    tm_jsonout_string(json, "instance", answer->instance->name);
    tm_jsonout_integer(json, "spot_nodes", answer->spot_nodes);
    tm_jsonout_integer(json, "on_demand_nodes", answer->on_demand_nodes);
    tm_jsonout_object(json, "layout");
    tm_jsonout_integer(json, "pipelines", answer->prediction.pipelines);
    tm_jsonout_integer(json, "stages", answer->prediction.stages);
    tm_jsonout_end(json);
    tm_jsonout_number(json, "samples_per_s", answer->prediction.samples_per_s);
    put_estimate(json, "time_s", &expectation->time_s);
    put_estimate(json, "cost_usd", &expectation->cost_usd);
    tm_jsonout_number(json, "price_usd_h", expectation->usd_h);
    tm_jsonout_number(json, "losses", expectation->losses);
    tm_jsonout_number(json, "checkpoint_interval_s", expectation->checkpoint_interval_s);
    tm_jsonout_number(json, "p_deadline", expectation->p_deadline);
    tm_jsonout_bool(json, "chosen", chosen);
    tm_jsonout_end(json);
}

static void print_plan_json(struct tm_cli *cli, const struct plan *plan, int planner)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "planner", planner_names[planner]);
    tm_jsonout_string(&json, "objective", objective_names[plan->request.objective]);
    tm_jsonout_integer(&json, "fleets_weighed", (int64_t)plan->result.fleets);
    tm_jsonout_list(&json, "answers");
    for (size_t i = 0; i < plan->result.count; i++)
        put_answer_json(&json, &plan->result.answers[i], i == 0);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static void add_answer(struct tm_cli *cli, struct tm_table *table, const struct tm_plan_answer *answer,
                       const char *planner, bool chosen)
{
    const struct tm_expectation *expectation = &answer->expectation;
    char eta[TM_UNITS_TEXT_MAX];
    int nodes = answer->spot_nodes + answer->on_demand_nodes;
    (void)tm_unit_print(TM_UNIT_DURATION, (int64_t)(expectation->time_s.mean * 1000), eta);
    tm_table_add(table, "%s", planner);
    tm_table_add(table, "%s (%s)", tm_cloud_label(answer->instance->cloud),
                 answer->offer->zone[0] != '\0' ? answer->offer->zone : answer->offer->region);
    tm_table_add(table, "%d x %s", nodes, answer->instance->name);
    tm_table_add(table, "%s:%g", answer->instance->gpu, answer->instance->gpus);
    tm_table_add(table, "%d/%d", answer->spot_nodes, answer->on_demand_nodes);
    tm_table_add(table, "%dx%d", answer->prediction.pipelines, answer->prediction.stages);
    tm_table_add(table, "%.4g/s", answer->prediction.samples_per_s);
    tm_table_add(table, "%s", expectation->finishes ? eta : "never");
    tm_table_add(table, "%.2f", expectation->usd_h);
    tm_table_add(table, "%.2f (%.2f-%.2f)", expectation->cost_usd.mean, expectation->cost_usd.p10,
                 expectation->cost_usd.p90);
    tm_table_add(table, "%.2f", expectation->p_deadline);
    tm_table_add_colored(table, TM_GREEN, "%s", chosen ? (cli->term.utf8 ? "\xE2\x9C\x93" : "*") : "");
}

/* The other planner's best fleet, unless ours is the same. */
static const struct tm_plan_answer *rival(const struct plan *plan)
{
    if (plan->other.count == 0) return NULL;
    const struct tm_plan_answer *ours = &plan->result.answers[0];
    const struct tm_plan_answer *theirs = &plan->other.answers[0];
    bool same = ours->instance == theirs->instance && ours->spot_nodes == theirs->spot_nodes &&
                ours->on_demand_nodes == theirs->on_demand_nodes;
    return same ? NULL : theirs;
}

static void put_words(struct tm_cli *cli, const struct plan *plan)
{
    const struct tm_plan_answer *best = &plan->result.answers[0];
    const struct tm_plan_answer *theirs = rival(plan);
    char interval[TM_UNITS_TEXT_MAX];
    struct tm_text *out = &cli->out;
    tm_text_printf(out, "\n%zu fleets weighed; the %s that satisfies all constraints is marked.", plan->result.fleets,
                   objective_names[plan->request.objective]);
    if (best->spot_nodes > 0 && isfinite(best->expectation.checkpoint_interval_s))
        tm_text_printf(
            out, " It would lose %.1f instances on the way; a checkpoint every %s is best.", best->expectation.losses,
            tm_unit_print(TM_UNIT_DURATION, (int64_t)(best->expectation.checkpoint_interval_s * 1000), interval));
    tm_text_printf(out, " Its step is limited by %s.\n", best->prediction.limit);
    if (theirs != NULL)
        tm_text_printf(out,
                       "The other planner (%s) would take %d x %s: $%.2f, P(deadline) %.2f by the same reckoning.\n",
                       planner_names[plan->request.planner == TM_PLAN_SRIFT ? PLANNER_TIDEMILL : PLANNER_SRIFT],
                       theirs->spot_nodes + theirs->on_demand_nodes, theirs->instance->name,
                       theirs->expectation.cost_usd.mean, theirs->expectation.p_deadline);
    tm_text_puts(out, "Expectations are a closed form over random losses, not yet a replay of traces.\n");
}

static int print_plan(struct tm_cli *cli, const struct plan *plan, int planner, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"PLANNER", TM_LEFT, 5},      {"INFRA", TM_LEFT, 0},
        {"INSTANCE", TM_LEFT, 0},     {"GPUS", TM_LEFT, 4},
        {"SPOT/OD", TM_RIGHT, 0},     {"LAYOUT", TM_RIGHT, 3},
        {"THROUGHPUT", TM_RIGHT, 2},  {"ETA", TM_RIGHT, 0},
        {"$/h", TM_RIGHT, 1},         {"TOTAL ($, p10-p90)", TM_RIGHT, 0},
        {"P(deadline)", TM_RIGHT, 0}, {"CHOSEN", TM_LEFT, 0},
    };
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < plan->result.count; i++)
        add_answer(cli, &table, &plan->result.answers[i], planner_names[planner], i == 0);
    const struct tm_plan_answer *theirs = rival(plan);
    if (theirs != NULL)
        add_answer(cli, &table, theirs, planner_names[planner == PLANNER_SRIFT ? PLANNER_TIDEMILL : PLANNER_SRIFT],
                   false);
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    if (rc == 0 && !cli->quiet) put_words(cli, plan);
    return rc;
}

/* Nothing satisfies all constraints: what would, one relaxed at a time. */
static int explain_nothing(const struct plan *plan, struct tm_error *e)
{
    const struct tm_plan_result *result = &plan->result;
    struct tm_text words;
    char time[TM_UNITS_TEXT_MAX];
    tm_text_init(&words, 512);
    if (isfinite(result->cheapest_within_deadline_usd) && isfinite(plan->request.budget_usd))
        tm_text_printf(&words, "; with --budget %.2f the deadline can be met", result->cheapest_within_deadline_usd);
    if (isfinite(result->fastest_within_budget_s) && isfinite(plan->request.job.deadline_s))
        tm_text_printf(&words, "; within the budget it takes about %s",
                       tm_unit_print(TM_UNIT_DURATION, (int64_t)(result->fastest_within_budget_s * 1000), time));
    if (isfinite(plan->request.max_usd_h) && result->cheapest_usd_h > plan->request.max_usd_h &&
        isfinite(result->cheapest_usd_h))
        tm_text_printf(&words, "; the cheapest fleet that works costs $%.2f an hour", result->cheapest_usd_h);
    if (words.length == 0)
        tm_text_puts(&words, result->fleets == 0
                                 ? "; the model fits into none of them, or no offer is allowed"
                                 : "; allow more instances (--max-nodes), another market or more clouds");
    int rc = tm_error_set(e, TM_ENONE, "no fleet satisfies all constraints%s", tm_text_string(&words));
    tm_text_deinit(&words);
    return rc;
}

static int plan_model(struct tm_cli *cli, struct plan *plan, int planner, struct tm_error *e)
{
    int rc = tm_catalog_load(cli->env, &plan->catalog, e);
    if (rc == 0) rc = tm_model_load(cli->env, tm_given_text(cli, "model"), &plan->model, e);
    plan->filters = (struct filters){cli, &plan->catalog};
    if (rc == 0) rc = tm_filter_check(cli, &plan->catalog, e);
    if (rc == 0) rc = tm_knowledge_learn(cli, &plan->catalog, &plan->model, TM_BF16, &plan->knowledge, e);
    if (rc == 0) rc = read_request(cli, plan, planner, e);
    if (rc == 0) rc = tm_plan_search(&plan->catalog, &plan->request, &plan->result, &plan->other, e);
    if (rc == 0 && plan->result.count == 0 && cli->json) {
        cli->exit_status = tm_code_exit_status(TM_ENONE);
        print_plan_json(cli, plan, planner);
        return 0;
    }
    if (rc == 0 && plan->result.count == 0) rc = explain_nothing(plan, e);
    if (rc != 0) return rc;
    if (cli->json) {
        print_plan_json(cli, plan, planner);
        return 0;
    }
    return print_plan(cli, plan, planner, e);
}

int tm_cmd_plan(struct tm_cli *cli, struct tm_error *e)
{
    int planner = tm_given(cli, "instances") ? PLANNER_DEEPVM : PLANNER_TIDEMILL;
    if (cli->argument_count > 0) return tm_error_set(e, TM_EUSAGE, "plan takes no arguments; see its options");
    int rc = tm_given_choice(cli, "planner", &planner, e);
    if (rc != 0) return rc;
    if (tm_given(cli, "instances")) return plan_from_file(cli, e);
    if (planner >= PLANNER_DEEPVM)
        return tm_error_set(e, TM_EUSAGE, "--planner %s needs --instances FILE, for example data/deepvm-aws.tmdeepvm",
                            planner_names[planner]);
    if (!tm_given(cli, "model"))
        return tm_error_set(e, TM_EUSAGE,
                            "say what to train: tidemill plan --model gpt2-1.5b --samples 1000000 --deadline 24h");
    struct plan *plan = tm_calloc(1, sizeof *plan);
    if (plan == NULL) return tm_error_nomem(e);
    tm_catalog_init(&plan->catalog);
    tm_model_init(&plan->model);
    tm_knowledge_init(&plan->knowledge);
    rc = plan_model(cli, plan, planner, e);
    tm_knowledge_deinit(&plan->knowledge);
    tm_model_deinit(&plan->model);
    tm_catalog_deinit(&plan->catalog);
    tm_free(plan);
    return rc;
}

const struct tm_option tm_plan_options[] = {
    {.name = "model", .value = "NAME", .help = "what to train: a shipped model, a model file, or a gpt: formula"},
    {.name = "samples", .value = "N", .help = "how many samples to train"},
    {.name = "batch", .value = "N", .help = "global batch; else the model's own, or 256"},
    {.name = "deadline", .value = "DURATION", .help = "to be done by then"},
    {.name = "budget", .value = "USD", .help = "at most USD dollars in all"},
    {.name = "max-hourly", .value = "USD", .help = "at most USD dollars an hour; of DeepVM's planners: else 3"},
    {.name = "max-nodes", .value = "N", .help = "at most N instances; else 64"},
    {.name = "objective", .value = "NAME", .help = "what to look for", .choices = objective_names},
    {.name = "market", .value = "NAME", .help = "what may be rented", .choices = market_names},
    {.name = "probability", .value = "P", .help = "least chance to meet the deadline; else 0.95"},
    {.name = "cloud", .value = "NAME,...", .help = "only these clouds"},
    {.name = "region", .value = "NAME,...", .help = "only these regions"},
    {.name = "gpu", .value = "NAME,...", .help = "only these GPUs"},
    {.name = "precision", .value = "NAME", .help = "number format of training", .choices = tm_precision_names},
    {.name = "profile", .value = "FILE", .help = "measured steps to learn from"},
    {.name = "profile-gpu", .value = "NAME", .help = "GPU that the profile was taken on, where it does not say"},
    {.name = "mtbf", .value = "DURATION", .help = "mean life of a spot instance; else from interruption bands, or 24h"},
    {.name = "trace", .value = "FILE", .help = "take the mean life of a spot instance from this trace"},
    {.name = "checkpoint", .value = "DURATION", .help = "time that a checkpoint takes; else its size at 1 GB/s"},
    {.name = "restart", .value = "DURATION", .help = "time from a loss to the next step; else 1m"},
    {.name = "top", .value = "N", .help = "how many answers; else 8, of DeepVM's planners 3"},
    {.name = "planner", .value = "NAME", .help = "which planner; else tidemill", .choices = planner_names},
    {.name = "instances",
     .value = "FILE",
     .help = "for DeepVM's planners: instance types with quotas and scaling curves"},
    {.name = "architecture",
     .value = "NAME",
     .help = "of DeepVM: one search alone, or the best of both",
     .choices = architecture_names},
    {.name = "buffer", .value = "SIZE", .help = "DeepVM's buffer_size; else 0.5"},
    {.name = "checkpoint-size", .value = "SIZE", .help = "DeepVM's ckp_file_size; else 2"},
    {.name = NULL},
};
