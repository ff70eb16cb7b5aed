#include "base/jsonout.h"
#include "base/table.h"
#include "cli/commands.h"
#include "job/profile_hook.h"
#include "workload/profile_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VARIABLES_MAX = 8, WAIT_MS = 1000, WHY_BYTES_MAX = 4096 };

const struct tm_option tm_profile_options[] = {
    {.name = "output", .letter = 'o', .value = "FILE", .help = "output file (job.tmprofile)"},
    {.name = "add", .help = "add to FILE: keep other batch sizes and networks, replace only what is measured again"},
    {.name = "iterations", .value = "N", .help = "number of steps to time, after 5 of warm-up (40)"},
    {.name = "batch", .value = "N", .help = "samples per batch, if it is not the first dimension of the model's input"},
    {.name = "name", .value = "NAME", .help = "name of the network (the name of its class)"},
    {.name = "keep", .help = "let the command continue after profiling, instead of ending it"},
    {.name = NULL},
};

/* ---- running the command ---- */

struct request {
    struct tm_profile_hook hook;
    const char *variables[VARIABLES_MAX];
    size_t variable_count;
    const char **argv;
    const char *path;
};

static int set(struct tm_cli *cli, struct request *request, const char *name, const char *value, struct tm_error *e)
{
    const char *text = tm_arena_printf(&cli->arena, "%s=%s", name, value);
    if (text == NULL) return tm_error_nomem(e);
    request->variables[request->variable_count++] = text;
    request->variables[request->variable_count] = NULL;
    return 0;
}

static int set_number(struct tm_cli *cli, struct request *request, const char *name, int64_t number, struct tm_error *e)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)number);
    return set(cli, request, name, text, e);
}

/* The words behind "--", and what the hook is told. */
static int prepare(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    int64_t iterations = 40;
    int64_t batch = 0;
    if (cli->argument_count == 0)
        return tm_error_set(e, TM_EUSAGE, "give a command to profile: tidemill profile -- python train.py");
    int rc = tm_given_integer(cli, "iterations", 8, 100000, &iterations, e);
    if (rc == 0) rc = tm_given_integer(cli, "batch", 1, 1 << 30, &batch, e);
    if (rc != 0) return rc;
    request->path = tm_given(cli, "output") ? tm_given_text(cli, "output") : "job.tmprofile";
    request->argv = tm_arena_alloc(&cli->arena, (cli->argument_count + 1) * sizeof *request->argv);
    if (request->argv == NULL) return tm_error_nomem(e);
    memcpy(request->argv, cli->arguments, cli->argument_count * sizeof *request->argv);
    request->argv[cli->argument_count] = NULL;
    const char *name = tm_given_text(cli, "name");
    const char *python_path = cli->env->variable(cli->env, "PYTHONPATH");
    rc = tm_profile_hook_make(cli->env, &cli->arena, &request->hook, e);
    if (rc != 0) return rc;
    const char *joined = python_path != NULL && python_path[0] != '\0'
                             ? tm_arena_printf(&cli->arena, "%s:%s", request->hook.folder, python_path)
                             : request->hook.folder;
    if (joined == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = set(cli, request, "PYTHONPATH", joined, e);
    if (rc == 0) rc = set(cli, request, "TIDEMILL_PROFILE_OUT", request->hook.out, e);
    if (rc == 0) rc = set(cli, request, "TIDEMILL_PROFILE_KEEP", tm_given(cli, "keep") ? "1" : "0", e);
    if (rc == 0) rc = set_number(cli, request, "TIDEMILL_PROFILE_ITERATIONS", iterations, e);
    if (rc == 0 && batch > 0) rc = set_number(cli, request, "TIDEMILL_PROFILE_BATCH", batch, e);
    if (rc == 0 && name != NULL) rc = set(cli, request, "TIDEMILL_PROFILE_NAME", name, e);
    if (rc != 0) tm_profile_hook_remove(cli->env, &request->hook);
    return rc;
}

/* Standard output is for our document alone where --json is given. */
static int run_command(struct tm_cli *cli, const struct request *request, int *out_status, struct tm_error *e)
{
    struct tm_process_options options = {
        .argv = request->argv, .variables = request->variables, .output = cli->json ? "/dev/stderr" : NULL};
    int pid = 0;
    int rc = cli->env->process_start_with(cli->env, &options, &pid, e);
    if (rc != 0) return rc;
    do
        rc = cli->env->process_wait(cli->env, pid, WAIT_MS, out_status, e);
    while (rc == -(int)TM_ETIMEOUT);
    return rc;
}

/* Why there is no profile: as the hook says, or as the command's end tells. */
static int explain(struct tm_cli *cli, const struct request *request, int status, struct tm_error *e)
{
    struct tm_text why;
    tm_text_init(&why, WHY_BYTES_MAX);
    int rc = 0;
    if (cli->env->file_exists(cli->env, request->hook.why) &&
        cli->env->file_read(cli->env, request->hook.why, &why, NULL) == 0)
        rc = tm_error_set(e, TM_EINPUT, "%s was not profiled: %s", request->argv[0], tm_text_string(&why));
    else if (status != 0)
        rc = tm_error_set(e, TM_EPEER, "%s ended with status %d before it was profiled; see what it printed",
                          request->argv[0], status);
    else
        rc = tm_error_set(e, TM_EINPUT,
                          "%s took no step of a PyTorch optimizer: the command must start a Python (without -E, -I or "
                          "-S) that trains with torch.optim",
                          request->argv[0]);
    tm_text_deinit(&why);
    return rc;
}

/* Reads what the hook wrote, over what was there, and writes it where it is asked for. */
static int keep_profile(struct tm_cli *cli, const struct request *request, struct tm_profile *fresh,
                        struct tm_profile *all, struct tm_error *e)
{
    struct tm_text text;
    int rc = tm_profile_load(cli->env, request->hook.out, fresh, e);
    if (rc == 0 && tm_given(cli, "add") && cli->env->file_exists(cli->env, request->path))
        rc = tm_profile_load(cli->env, request->path, all, e);
    if (rc == 0) rc = tm_profile_update(cli->env, request->hook.out, all, e);
    if (rc != 0) return rc;
    tm_text_init(&text, TM_PROFILE_BYTES_MAX);
    tm_profile_print(all, &text);
    rc = tm_text_status(&text, e);
    if (rc == 0) rc = cli->env->file_write(cli->env, request->path, tm_text_string(&text), text.length, e);
    tm_text_deinit(&text);
    return rc;
}

/* ---- the report ---- */

static double or_zero(double figure)
{
    return isnan(figure) ? 0 : figure;
}

static void put_parts_json(struct tm_jsonout *json, const struct tm_profile_step *step)
{
    tm_jsonout_object(json, "parts_ms");
    tm_jsonout_number(json, "data", step->data_ms);
    tm_jsonout_number(json, "forward", step->forward_ms);
    tm_jsonout_number(json, "backward", step->backward_ms);
    tm_jsonout_number(json, "optimizer", step->optimizer_ms);
    tm_jsonout_number(json, "other", step->other_ms);
    tm_jsonout_end(json);
}

static void print_json(struct tm_cli *cli, const char *path, const struct tm_profile_report *report)
{
    const struct tm_profile_step *step = report->step;
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "file", path);
    tm_jsonout_string(&json, "network", step->network);
    tm_jsonout_string(&json, "device", step->gpu);
    tm_jsonout_string(&json, "precision", tm_precision_names[step->precision]);
    tm_jsonout_integer(&json, "micro_batch", step->micro_batch);
    tm_jsonout_integer(&json, "micro_batches", step->micro_batches);
    tm_jsonout_number(&json, "step_ms", report->step_ms);
    tm_jsonout_number(&json, "step_ms_p10", step->step_ms_p10);
    tm_jsonout_number(&json, "step_ms_p90", step->step_ms_p90);
    tm_jsonout_number(&json, "samples_per_s", report->samples_per_s);
    put_parts_json(&json, step);
    tm_jsonout_number(&json, "params", step->params);
    tm_jsonout_number(&json, "peak_gib", step->peak_gib);
    tm_jsonout_number(&json, "busy_cores", step->busy_cores);
    tm_jsonout_number(&json, "overhead_percent", step->overhead_percent);
    tm_jsonout_integer(&json, "layers", (int64_t)report->layers_in_all);
    tm_jsonout_integer(&json, "gradient_tensors", (int64_t)report->tensors);
    tm_jsonout_number(&json, "gradient_bytes", report->grad_bytes);
    tm_jsonout_integer(&json, "gradient_buckets", (int64_t)report->buckets);
    tm_jsonout_list(&json, "slowest");
    for (size_t i = 0; i < report->layer_count; i++) {
        const struct tm_profile_layer *layer = report->layers[i];
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "layer", layer->layer.name);
        tm_jsonout_string(&json, "kind", tm_layer_kind_names[layer->layer.kind]);
        tm_jsonout_number(&json, "params", layer->layer.params);
        tm_jsonout_number(&json, "forward_ms", layer->forward_ms);
        tm_jsonout_number(&json, "backward_ms", layer->backward_ms);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "advice");
    for (size_t i = 0; i < report->advice_count; i++)
        tm_jsonout_string(&json, NULL, report->advice[i]);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static int print_parts(struct tm_cli *cli, const struct tm_profile_report *report, struct tm_error *e)
{
    static const struct tm_column columns[] = {{"PART", TM_LEFT, 0}, {"MS", TM_RIGHT, 0}, {"SHARE", TM_RIGHT, 0}};
    const struct tm_profile_step *step = report->step;
    int passes = step->micro_batches > 0 ? step->micro_batches : 1;
    const struct {
        const char *name;
        double ms;
    } parts[] = {{"waiting for data", or_zero(step->data_ms)}, {"forward", passes * step->forward_ms},
                 {"backward", passes * step->backward_ms},     {"optimizer", step->optimizer_ms},
                 {"other", or_zero(step->other_ms)},           {"a step", report->step_ms}};
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        tm_table_add(&table, "%s", parts[i].name);
        tm_table_add(&table, "%.4g", parts[i].ms);
        tm_table_add(&table, "%.0f%%", 100 * parts[i].ms / report->step_ms);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

static void add_ms(struct tm_table *table, double ms)
{
    if (isnan(ms))
        tm_table_add(table, "-");
    else
        tm_table_add(table, "%.4g", ms);
}

static int print_layers(struct tm_cli *cli, const struct tm_profile_report *report, struct tm_error *e)
{
    static const struct tm_column columns[] = {{"LAYER", TM_LEFT, 0},          {"KIND", TM_LEFT, 2},
                                               {"PARAMETERS", TM_RIGHT, 1},    {"FORWARD (ms)", TM_RIGHT, 0},
                                               {"BACKWARD (ms)", TM_RIGHT, 0}, {"SHARE", TM_RIGHT, 0}};
    struct tm_table table;
    if (!(report->layers_ms > 0)) return 0;
    tm_text_printf(&cli->out, "\nSlowest of %zu layers:\n", report->layers_in_all);
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < report->layer_count; i++) {
        const struct tm_profile_layer *layer = report->layers[i];
        tm_table_add(&table, "%s", layer->layer.name);
        tm_table_add(&table, "%s", tm_layer_kind_names[layer->layer.kind]);
        tm_table_add(&table, "%.0f", layer->layer.params);
        add_ms(&table, layer->forward_ms);
        add_ms(&table, layer->backward_ms);
        tm_table_add(&table, "%.0f%%",
                     100 * (or_zero(layer->forward_ms) + or_zero(layer->backward_ms)) / report->layers_ms);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

static int print_report(struct tm_cli *cli, const char *path, const struct tm_profile_report *report,
                        struct tm_error *e)
{
    const struct tm_profile_step *step = report->step;
    struct tm_text *out = &cli->out;
    tm_text_putc(out, '\n');
    tm_term_put(&cli->term, out, TM_BOLD, step->network);
    tm_text_printf(out, " on %s, %s, batch %d", step->gpu, tm_precision_names[step->precision], step->micro_batch);
    if (step->micro_batches > 1) tm_text_printf(out, " x %d", step->micro_batches);
    tm_text_printf(out, ": %.4g ms per step (%.4g - %.4g), %.4g samples/s\n\n", report->step_ms, step->step_ms_p10,
                   step->step_ms_p90, report->samples_per_s);
    int rc = print_parts(cli, report, e);
    if (rc == 0) rc = print_layers(cli, report, e);
    if (rc != 0) return rc;
    tm_text_printf(
        out,
        "\n"
        "Gradients: %zu tensors, %.4g MB, %zu bucket%s; the first is ready after %.0f%% of the backward pass.\n",
        report->tensors, report->grad_bytes / 1e6, report->buckets, report->buckets == 1 ? "" : "s",
        100 * report->first_ready);
    tm_text_printf(
        out, "Peak memory: %.2f GiB. Processors: %.2f of %d busy. Profiling took %.1f%% of the time of %d steps.\n",
        step->peak_gib, or_zero(step->busy_cores), step->cores, or_zero(step->overhead_percent), step->iterations);
    for (size_t i = 0; i < report->advice_count; i++)
        tm_text_printf(out, "%s%s\n", i == 0 ? "\n" : "", report->advice[i]);
    tm_text_printf(out,
                   "\nWritten to %s. Next:\n"
                   "  tidemill predict --profile %s --workers 1,2,4 --mbit 1000\n"
                   "  tidemill plan --profile %s --samples 10000000 --deadline 24h\n",
                   path, path, path);
    return 0;
}

static int profile_command(struct tm_cli *cli, const struct request *request, struct tm_error *e)
{
    struct tm_profile fresh;
    struct tm_profile all;
    struct tm_profile_report *report = tm_arena_alloc(&cli->arena, sizeof *report);
    const char *network = NULL;
    int status = 0;
    if (report == NULL) return tm_error_nomem(e);
    int rc = run_command(cli, request, &status, e);
    if (rc == 0 && !cli->env->file_exists(cli->env, request->hook.out)) rc = explain(cli, request, status, e);
    if (rc != 0) return rc;
    tm_profile_init(&fresh);
    tm_profile_init(&all);
    rc = keep_profile(cli, request, &fresh, &all, e);
    if (rc == 0) rc = tm_profile_choose(&fresh, request->hook.out, NULL, &network, e);
    if (rc == 0) rc = tm_profile_report(&all, network, report, e);
    if (rc == 0 && cli->json)
        print_json(cli, request->path, report);
    else if (rc == 0)
        rc = print_report(cli, request->path, report, e);
    tm_profile_deinit(&fresh);
    tm_profile_deinit(&all);
    return rc;
}

int tm_cmd_profile(struct tm_cli *cli, struct tm_error *e)
{
    struct request request = {.variable_count = 0};
    int rc = prepare(cli, &request, e);
    if (rc != 0) return rc;
    rc = profile_command(cli, &request, e);
    tm_profile_hook_remove(cli->env, &request.hook);
    return rc;
}
