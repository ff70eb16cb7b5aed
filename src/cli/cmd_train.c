#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/number.h"
#include "base/plot.h"
#include "base/progress.h"
#include "base/table.h"
#include "cli/commands.h"
#include "engine/compare.h"
#include "engine/generate.h"
#include "engine/trainer_process.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PLOT_ROWS = 12, PLOT_COLUMNS_MAX = 90 };

const struct tm_option tm_train_command_options[] = {
    {.name = "layout", .value = "DxP", .help = "D pipelines of P stages, one worker each, instead of the job's layout"},
    {.name = "relayout",
     .value = "STEP:DxP[,...]",
     .help = "change the layout before step STEP (the first is 0); only missing layers are copied"},
    {.name = "steps", .value = "N", .help = "train N steps in total instead of the job's"},
    {.name = "seed", .value = "N", .help = "seed instead of the job's"},
    {.name = "determinism", .value = "KIND", .help = "overrides the job's setting", .choices = tm_determinism_names},
    {.name = "checkpoint", .value = "DIR", .help = "write checkpoints to DIR instead of the job's"},
    {.name = "transport",
     .value = "KIND",
     .help = "workers as threads (the default), or as processes over unix or tcp sockets",
     .choices = tm_transport_names},
    {.name = "worker", .value = "IDENTITY", .help = "be this worker of a run (internal)", .hidden = true},
    {.name = "resume",
     .value = "CHECKPOINT",
     .help = "continue from a checkpoint (its folder, or the folder of all checkpoints)"},
    {.name = NULL},
};

const struct tm_option tm_generate_command_options[] = {
    {.name = "prompt", .letter = 'p', .value = "TEXT", .help = "what the text starts with"},
    {.name = "length", .letter = 'n', .value = "N", .help = "bytes to write (200)"},
    {.name = "temperature", .value = "T", .help = "0: always the likeliest byte; 1 (the default): sample as predicted"},
    {.name = "top-k", .value = "K", .help = "draw among the K likeliest bytes only"},
    {.name = "seed", .value = "N", .help = "seed of sampling (1)"},
    {.name = NULL},
};

/* ---- train ---- */

/* "10:2x2,20:1x4" behind the layout of the start. */
static int read_layouts(const struct tm_cli *cli, const struct tm_train_job *job,
                        struct tm_layout_change changes[TM_LAYOUTS_MAX], size_t *out_count, struct tm_error *e)
{
    const char *layout = tm_given_text(cli, "layout");
    size_t count = 1;
    changes[0] = (struct tm_layout_change){.pipelines = job->pipelines, .stages = job->stages};
    if (layout != NULL) {
        int rc = tm_layout_parse(layout, &changes[0].pipelines, &changes[0].stages, e);
        if (rc != 0) return tm_error_wrap(e, rc, "--layout");
    }
    const char *at = tm_given_text(cli, "relayout");
    while (at != NULL && *at != '\0') {
        char one[64] = "";
        size_t length = strcspn(at, ",");
        const char *colon = memchr(at, ':', length);
        if (count >= TM_LAYOUTS_MAX)
            return tm_error_set(e, TM_EUSAGE, "--relayout: more than %d layouts", TM_LAYOUTS_MAX - 1);
        if (colon == NULL || length >= sizeof one || !tm_number_i64(at, (size_t)(colon - at), &changes[count].step) ||
            changes[count].step <= changes[count - 1].step)
            return tm_error_set(e, TM_EUSAGE,
                                "--relayout: expected ascending STEP:DxP, such as 10:2x2,20:1x4, got "
                                "\"%.40s\"",
                                at);
        memcpy(one, colon + 1, length - (size_t)(colon + 1 - at));
        int rc = tm_layout_parse(one, &changes[count].pipelines, &changes[count].stages, e);
        if (rc != 0) return tm_error_wrap(e, rc, "--relayout");
        count++;
        at += length + (at[length] == ',' ? 1 : 0);
    }
    *out_count = count;
    return 0;
}

static int read_overrides(const struct tm_cli *cli, struct tm_train_job *job, struct tm_error *e)
{
    int64_t seed = (int64_t)job->seed;
    int determinism = (int)job->determinism;
    int rc = tm_given_integer(cli, "steps", 1, 1 << 24, &job->steps, e);
    if (rc == 0) rc = tm_given_integer(cli, "seed", 0, INT64_MAX, &seed, e);
    if (rc == 0) rc = tm_given_choice(cli, "determinism", &determinism, e);
    if (rc != 0) return rc;
    job->seed = (uint64_t)seed;
    job->determinism = (enum tm_determinism)determinism;
    const char *dir = tm_given_text(cli, "checkpoint");
    if (dir != NULL) job->checkpoint.dir = dir;
    return 0;
}

static void on_step(void *context, int64_t step, const struct tm_step_result *result, double step_s)
{
    tm_log(TM_LOG_INFO, "step %lld: loss %.4f, gradient norm %.3f, %.3f s", (long long)step, result->loss, result->norm,
           step_s);
    tm_progress_update(context, step + 1);
}

static void print_json(struct tm_cli *cli, const struct tm_train_options *options, const struct tm_train_result *result)
{
    char hash[33];
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "name", options->job->name);
    tm_jsonout_integer(&json, "steps", options->steps);
    tm_jsonout_number(&json, "final_loss", result->final_loss);
    tm_jsonout_number(&json, "tokens_per_s", result->tokens_per_s);
    tm_jsonout_string(&json, "weights_hash", tm_hash_print(result->weights_hash, hash));
    tm_jsonout_object(&json, "step_s");
    tm_jsonout_number(&json, "p50", result->step_p50_s);
    tm_jsonout_number(&json, "p90", result->step_p90_s);
    tm_jsonout_end(&json);
    tm_jsonout_string(&json, "kernels", options->kernels->name);
    tm_jsonout_string(&json, "determinism", tm_determinism_names[options->job->determinism]);
    tm_jsonout_integer(&json, "steps_redone", result->steps_redone);
    tm_jsonout_integer(&json, "layers_moved", result->layers_moved);
    tm_jsonout_integer(&json, "bytes_sent", (int64_t)result->bytes_sent);
    tm_jsonout_list(&json, "losses");
    for (int64_t i = 0; i < result->steps; i++)
        tm_jsonout_number(&json, NULL, result->losses[i]);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static int print_curve(struct tm_cli *cli, const struct tm_train_options *options, const struct tm_train_result *result,
                       struct tm_error *e)
{
    size_t count = (size_t)result->steps;
    double *x = tm_calloc(count, sizeof *x);
    double top = 0;
    if (x == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)(options->steps - result->steps) + (double)i;
        top = fmax(top, result->losses[i]);
    }
    struct tm_plot plot = {.title = "loss",
                           .x_label = "step",
                           .y_label = "nats a byte",
                           .x = x,
                           .y = result->losses,
                           .count = count,
                           .x_end = (double)options->steps,
                           .y_max = top};
    size_t width = cli->term.width > 20 ? (size_t)cli->term.width - 12 : PLOT_COLUMNS_MAX;
    int rc = tm_plot_terminal(&plot, &cli->term, width < PLOT_COLUMNS_MAX ? width : PLOT_COLUMNS_MAX, PLOT_ROWS,
                              &cli->out, e);
    tm_free(x);
    return rc;
}

static int print_summary(struct tm_cli *cli, const struct tm_train_options *options,
                         const struct tm_train_result *result, struct tm_error *e)
{
    char hash[33];
    int rc = result->steps > 1 ? print_curve(cli, options, result, e) : 0;
    if (rc != 0) return rc;
    tm_text_printf(&cli->out, "\n%s: %lld steps, loss %.4f, %.0f tokens/s, step %.3f s (p50), %.3f s (p90)\n",
                   options->job->name, (long long)options->steps, result->final_loss, result->tokens_per_s,
                   result->step_p50_s, result->step_p90_s);
    tm_text_printf(&cli->out, "weights %s (%s, kernels %s)\n", tm_hash_print(result->weights_hash, hash),
                   tm_determinism_names[options->job->determinism], options->kernels->name);
    if (options->job->checkpoint.dir[0] != '\0')
        tm_text_printf(&cli->out, "checkpoint in %s; try: tidemill generate %s --prompt \"In the beginning\"\n",
                       options->job->checkpoint.dir, options->job->checkpoint.dir);
    return 0;
}

/* Another process with the same words and an identity. */
static int start_worker(void *context, const struct tm_worker_identity *identity, int *out_pid, struct tm_error *e)
{
    struct tm_cli *cli = context;
    const char *words[2 * TM_OPTIONS_GIVEN_MAX + 8] = {"/proc/self/exe", "train", cli->arguments[0], "--worker"};
    size_t count = 4;
    words[count] = tm_arena_alloc(&cli->arena, TM_ADDRESS_MAX + 64);
    if (words[count] == NULL) return tm_error_nomem(e);
    union { /* just allocated, so it may be written */
        const char *held;
        char *written;
    } text = {.held = words[count++]};
    (void)tm_worker_identity_print(identity, text.written);
    for (size_t i = 0; i < cli->given_count; i++) {
        const struct tm_option *option = cli->given[i].option;
        if (strcmp(option->name, "transport") == 0) continue;
        words[count] = tm_arena_printf(&cli->arena, "--%s", option->name);
        if (words[count++] == NULL) return tm_error_nomem(e);
        if (cli->given[i].value != NULL) words[count++] = cli->given[i].value;
    }
    words[count] = NULL;
    return cli->env->process_start(cli->env, words, out_pid, e);
}

static int run_training(struct tm_cli *cli, const struct tm_train_options *options, struct tm_train_result *result,
                        struct tm_error *e)
{
    int transport = TM_TRANSPORT_THREADS;
    int rc = tm_given_choice(cli, "transport", &transport, e);
    if (rc != 0) return rc;
    if (transport == TM_TRANSPORT_THREADS) return tm_train(cli->env, options, result, e);
    return tm_train_processes(cli->env, options, (enum tm_transport)transport, start_worker, cli, result, e);
}

/* The part of a process that another one started: it prints nothing but errors. */
static int run_worker(struct tm_cli *cli, const struct tm_train_options *options, struct tm_error *e)
{
    struct tm_worker_identity identity;
    int rc = tm_worker_identity_parse(tm_given_text(cli, "worker"), &identity, e);
    return rc == 0 ? tm_train_as_worker(cli->env, options, &identity, e) : rc;
}

static int load_job(struct tm_cli *cli, struct tm_train_job *out, struct tm_error *e)
{
    struct tm_job job;
    tm_job_init(&job);
    int rc = tm_job_load(cli->env, cli->arguments[0], &job, e);
    if (rc == 0) rc = tm_job_check_sky(&job, e);
    if (rc == 0) rc = tm_train_job_of(&job, &cli->arena, out, e);
    tm_job_deinit(&job);
    return rc;
}

int tm_cmd_train(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_train_job job;
    struct tm_layout_change layouts[TM_LAYOUTS_MAX];
    struct tm_train_options options = {.job = &job, .layouts = layouts, .resume = tm_given_text(cli, "resume")};
    struct tm_blas blas;
    struct tm_progress progress;
    struct tm_train_result result = {0};
    if (cli->argument_count != 1) return tm_error_set(e, TM_EUSAGE, "give one job file: tidemill train JOB.yaml");
    int rc = load_job(cli, &job, e);
    if (rc == 0) rc = read_overrides(cli, &job, e);
    if (rc == 0) rc = read_layouts(cli, &job, layouts, &options.layout_count, e);
    if (rc == 0) rc = tm_kernels_choose(cli->env, &options.kernels, e);
    if (rc == 0) rc = tm_blas_open(cli->env, options.kernels->core, &blas, e);
    if (rc != 0) return rc;
    options.steps = job.steps;
    options.blas = &blas;
    if (tm_given(cli, "worker")) return run_worker(cli, &options, e);
    options.progress = on_step;
    options.context = &progress;
    struct tm_term term = tm_term_detect(cli->env, STDERR_FILENO, TM_COLOR_AUTO);
    if (cli->quiet) term.is_terminal = false;
    tm_progress_start(&progress, cli->env, term, "training", options.steps);
    rc = run_training(cli, &options, &result, e);
    tm_progress_finish(&progress);
    if (rc != 0) return rc;
    if (cli->json)
        print_json(cli, &options, &result);
    else
        rc = print_summary(cli, &options, &result, e);
    tm_train_result_deinit(&result);
    return rc;
}

/* ---- generate ---- */

/* Lines stay lines; what else could command the terminal, or is no UTF-8, becomes '?'. */
static void put_text(struct tm_text *out, const char *bytes, size_t length)
{
    while (length > 0) {
        const char *end = memchr(bytes, '\n', length);
        size_t line = end != NULL ? (size_t)(end - bytes) : length;
        tm_term_put_safe(out, bytes, line);
        if (end != NULL) tm_text_putc(out, '\n');
        line += end != NULL ? 1 : 0;
        bytes += line;
        length -= line;
    }
}

static int print_generated(struct tm_cli *cli, const struct tm_generate_options *options, const struct tm_text *made,
                           struct tm_error *e)
{
    struct tm_text shown;
    tm_text_init(&shown, 1 << 28);
    put_text(&shown, options->prompt, strlen(options->prompt));
    put_text(&shown, tm_text_string(made), made->length);
    int rc = tm_text_status(&shown, e);
    if (rc == 0 && cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "prompt", options->prompt);
        tm_jsonout_integer(&json, "seed", (int64_t)options->seed);
        tm_jsonout_string(&json, "text", tm_text_string(&shown));
        tm_jsonout_end(&json);
    } else if (rc == 0) {
        tm_text_append(&cli->out, tm_text_string(&shown), shown.length);
        tm_text_putc(&cli->out, '\n');
    }
    tm_text_deinit(&shown);
    return rc;
}

int tm_cmd_generate(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_generate_options options = {.prompt = "", .length = 200, .temperature = 1, .seed = 1};
    struct tm_checkpoint checkpoint;
    const struct tm_kernels *kernels = NULL;
    struct tm_blas blas;
    struct tm_text made;
    int64_t seed = 1;
    if (cli->argument_count != 1)
        return tm_error_set(e, TM_EUSAGE, "give one checkpoint: tidemill generate CHECKPOINT");
    if (tm_given_text(cli, "prompt") != NULL) options.prompt = tm_given_text(cli, "prompt");
    int rc = tm_given_integer(cli, "length", 1, 1 << 20, &options.length, e);
    if (rc == 0) rc = tm_given_number(cli, "temperature", 0, 100, &options.temperature, e);
    if (rc == 0) rc = tm_given_integer(cli, "top-k", 1, TM_VOCAB, &options.top_k, e);
    if (rc == 0) rc = tm_given_integer(cli, "seed", 0, INT64_MAX, &seed, e);
    if (rc == 0) rc = tm_kernels_choose(cli->env, &kernels, e);
    if (rc == 0) rc = tm_blas_open(cli->env, kernels->core, &blas, e);
    if (rc == 0) rc = tm_checkpoint_open(cli->env, cli->arguments[0], &checkpoint, e);
    if (rc != 0) return rc;
    options.seed = (uint64_t)seed;
    tm_text_init(&made, 1 << 28);
    rc = tm_generate(&checkpoint, kernels, &blas, &options, &made, e);
    if (rc == 0) rc = print_generated(cli, &options, &made, e);
    tm_text_deinit(&made);
    tm_checkpoint_close(&checkpoint);
    return rc;
}

/* ---- verify ---- */

static void print_verdict_json(struct tm_cli *cli, const struct tm_layer_difference *layers, int count,
                               const struct tm_difference *difference)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_bool(&json, "same", difference->same);
    if (!difference->same) {
        tm_jsonout_object(&json, "first_difference");
        tm_jsonout_integer(&json, "layer", difference->layer);
        tm_jsonout_string(&json, "tensor", difference->tensor);
        tm_jsonout_integer(&json, "element", difference->element);
        tm_jsonout_integer(&json, "elements_differing", difference->elements);
        tm_jsonout_number(&json, "a", difference->a);
        tm_jsonout_number(&json, "b", difference->b);
        tm_jsonout_end(&json);
    }
    tm_jsonout_list(&json, "layers");
    for (int l = 0; l < count; l++) {
        tm_jsonout_object(&json, NULL);
        tm_jsonout_integer(&json, "layer", l);
        tm_jsonout_integer(&json, "tensors", layers[l].tensors);
        tm_jsonout_integer(&json, "differing", layers[l].differing);
        tm_jsonout_number(&json, "largest_difference", layers[l].largest);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static int print_verdict(struct tm_cli *cli, const struct tm_layer_difference *layers, int count,
                         const struct tm_difference *difference, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"LAYER", TM_LEFT, 0}, {"TENSORS", TM_RIGHT, 1}, {"VERDICT", TM_LEFT, 0}, {"LARGEST DIFFERENCE", TM_RIGHT, 0}};
    struct tm_table table;
    tm_table_init(&table, columns, 4);
    for (int l = 0; l < count; l++) {
        if (l == 0 || l == count - 1)
            tm_table_add(&table, "%s", l == 0 ? "embedding" : "head");
        else
            tm_table_add(&table, "block %d", l - 1);
        tm_table_add(&table, "%lld", (long long)layers[l].tensors);
        bool same = layers[l].differing == 0;
        if (same)
            tm_table_add_colored(&table, TM_GREEN, "same bits");
        else
            tm_table_add_colored(&table, TM_RED, "%lld differ", (long long)layers[l].differing);
        if (same)
            tm_table_add(&table, "-");
        else
            tm_table_add(&table, "%.3g", layers[l].largest);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    if (difference->same)
        tm_text_puts(&cli->out, "same bits\n");
    else
        tm_text_printf(&cli->out, "the first tensor that differs: %s, at element %lld (%.9g and %.9g), %lld elements\n",
                       difference->tensor, (long long)difference->element, difference->a, difference->b,
                       (long long)difference->elements);
    return rc;
}

int tm_cmd_verify(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_checkpoint a;
    struct tm_checkpoint b;
    struct tm_difference difference;
    if (cli->argument_count != 2) return tm_error_set(e, TM_EUSAGE, "give two checkpoints: tidemill verify A B");
    int rc = tm_checkpoint_open(cli->env, cli->arguments[0], &a, e);
    if (rc != 0) return rc;
    rc = tm_checkpoint_open(cli->env, cli->arguments[1], &b, e);
    if (rc != 0) {
        tm_checkpoint_close(&a);
        return rc;
    }
    int count = tm_network_layers(&a.network);
    struct tm_layer_difference *layers = tm_calloc((size_t)count, sizeof *layers);
    rc = layers == NULL ? tm_error_nomem(e) : tm_checkpoint_compare(&a, &b, layers, &difference, e);
    if (rc == 0 && cli->json) print_verdict_json(cli, layers, count, &difference);
    if (rc == 0 && !cli->json) rc = print_verdict(cli, layers, count, &difference, e);
    if (rc == 0 && !difference.same) cli->exit_status = 1;
    tm_free(layers);
    tm_checkpoint_close(&a);
    tm_checkpoint_close(&b);
    return rc;
}
