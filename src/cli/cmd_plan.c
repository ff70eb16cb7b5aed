#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/table.h"
#include "cli/commands.h"
#include "plan/deepvm.h"

#include <math.h>

static const char *const planner_names[] = {"deepvm", "deepvm-noscale", "cost-first", "perf-first", NULL};
static const char *const architecture_names[] = {"best", "tiering", "single-anchor", NULL};

static void print_json(struct tm_cli *cli, enum tm_deepvm_planner planner, const struct tm_deepvm_answer *answers,
                       size_t count)
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
    int planner = TM_DEEPVM;
    int architecture = TM_DEEPVM_BEST;
    int64_t top = 3;
    size_t count = 0;
    int rc = tm_given_choice(cli, "planner", &planner, e);
    if (rc == 0) rc = tm_given_choice(cli, "architecture", &architecture, e);
    if (rc == 0) rc = tm_given_number(cli, "max-hourly", 0, 1e9, &request.max_usd_h, e);
    if (rc == 0) rc = tm_given_number(cli, "buffer", 0, 1e9, &request.buffer, e);
    if (rc == 0) rc = tm_given_number(cli, "checkpoint-size", 0, 1e9, &request.checkpoint_size, e);
    if (rc == 0) rc = tm_given_integer(cli, "top", 1, TM_DEEPVM_TOP_MAX, &top, e);
    request.planner = (enum tm_deepvm_planner)planner;
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

int tm_cmd_plan(struct tm_cli *cli, struct tm_error *e)
{
    if (cli->argument_count > 0) return tm_error_set(e, TM_EUSAGE, "plan takes no arguments; see its options");
    if (!tm_given(cli, "instances"))
        return tm_error_set(e, TM_EUSAGE,
                            "say from which instances: tidemill plan --instances data/deepvm-aws.tmdeepvm");
    struct tm_deepvm_data *data = tm_alloc(sizeof *data);
    if (data == NULL) return tm_error_nomem(e);
    tm_deepvm_data_init(data);
    int rc = plan_published(cli, data, e);
    tm_deepvm_data_deinit(data);
    tm_free(data);
    return rc;
}

const struct tm_option tm_plan_options[] = {
    {.name = "planner", .value = "NAME", .help = "which planner", .choices = planner_names},
    {.name = "instances",
     .value = "FILE",
     .help = "instance types with quotas and scaling curves, as shipped in data/"},
    {.name = "max-hourly", .value = "USD", .help = "at most USD dollars an hour; else 3"},
    {.name = "architecture",
     .value = "NAME",
     .help = "one search alone, or the best of both",
     .choices = architecture_names},
    {.name = "buffer", .value = "SIZE", .help = "DeepVM's buffer_size; else 0.5"},
    {.name = "checkpoint-size", .value = "SIZE", .help = "DeepVM's ckp_file_size; else 2"},
    {.name = "top", .value = "N", .help = "how many answers; else 3"},
    {.name = NULL},
};
