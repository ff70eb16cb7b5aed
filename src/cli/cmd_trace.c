#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/plot.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/commands.h"
#include "market/shipped.h"
#include "market/trace.h"
#include "market/trace_format.h"
#include "market/trace_generate.h"
#include "market/trace_stats.h"
#include "market/trace_write.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PLOT_ROWS = 13, PLOT_COLUMNS_MAX = 100, SVG_BYTES_MAX = 256 << 20 };

/* ---- reading ---- */

/* Warnings go to the log as "FILE:LINE: name: meaning". */
static void log_warnings(const char *file, const struct tm_trace *trace)
{
    for (int w = 0; w < TM_TRACE_WARNING_COUNT; w++) {
        if (trace->warnings[w].count == 0) continue;
        tm_log(TM_LOG_WARN, "%s:%d: %s: %s%s", file, trace->warnings[w].first_line,
               tm_trace_warning_name((enum tm_trace_warning)w), tm_trace_warning_meaning((enum tm_trace_warning)w),
               trace->warnings[w].count > 1 ? " (and more such lines)" : "");
    }
}

int tm_cmd_load_trace(struct tm_cli *cli, const char *path, struct tm_trace *trace, struct tm_error *e)
{
    int rc = tm_trace_load(cli->env, path, tm_given_text(cli, "format"), trace, e);
    if (rc == 0) log_warnings(path, trace);
    return rc;
}

static int one_file(const struct tm_cli *cli, const char *what, struct tm_error *e)
{
    if (cli->argument_count == 1) return 0;
    return tm_error_set(e, TM_EUSAGE, "give one trace: tidemill trace %s FILE (or hadp, hasp, ladp, lasp)", what);
}

int tm_given_time_span(const struct tm_cli *cli, const char *name, int64_t *out_ms, struct tm_error *e)
{
    int64_t span_ms = 1;
    int rc = tm_given_duration(cli, name, &span_ms, e);
    if (rc != 0 || !tm_given(cli, name)) return rc;
    if (span_ms == 0)
        return tm_error_set(e, TM_EUSAGE, "--%s: expected a duration above 0, got \"%.40s\"", name,
                            tm_given_text(cli, name));
    *out_ms = span_ms;
    return 0;
}

/* To the file of --output, else to standard output. */
static int put_result(struct tm_cli *cli, const struct tm_text *text, struct tm_error *e)
{
    const char *path = tm_given_text(cli, "output");
    int rc = tm_text_status(text, e);
    if (rc != 0) return rc;
    if (path == NULL || strcmp(path, "-") == 0) {
        tm_text_append(&cli->out, tm_text_string(text), text->length);
        return tm_text_status(&cli->out, e);
    }
    return cli->env->file_write(cli->env, path, tm_text_string(text), text->length, e);
}

/* ---- stats ---- */

static void put_stats_json(struct tm_jsonout *json, const char *file, const struct tm_trace *trace)
{
    struct tm_trace_stats stats = tm_trace_stats(trace);
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "file", file);
    tm_jsonout_string(json, "format", trace->format);
    tm_jsonout_integer(json, "nodes_max", stats.instances_max);
    tm_jsonout_number(json, "duration_s", stats.duration_s);
    tm_jsonout_number(json, "interval_s", trace->interval_ms > 0 ? (double)trace->interval_ms / 1000 : NAN);
    tm_jsonout_number(json, "mean_available", stats.mean_available);
    tm_jsonout_number(json, "availability", stats.availability);
    tm_jsonout_integer(json, "min", stats.min);
    tm_jsonout_integer(json, "max", stats.max);
    tm_jsonout_integer(json, "loss_events", stats.loss_events);
    tm_jsonout_integer(json, "nodes_lost", stats.instances_lost);
    tm_jsonout_integer(json, "arrival_events", stats.arrival_events);
    tm_jsonout_integer(json, "nodes_arrived", stats.instances_arrived);
    tm_jsonout_number(json, "longest_outage_s", stats.longest_outage_s);
    tm_jsonout_number(json, "mean_time_between_losses_s", stats.mean_time_between_losses_s);
    tm_jsonout_number(json, "mean_burst", stats.mean_burst);
    tm_jsonout_number(json, "mean_price_usd_h", stats.has_price ? stats.mean_price_usd_h : NAN);
    tm_jsonout_end(json);
}

static const char *print_s(double seconds, char buffer[TM_UNITS_TEXT_MAX])
{
    if (!isfinite(seconds)) return "-";
    if (seconds == 0) return "none";
    return tm_unit_print(TM_UNIT_DURATION, (int64_t)(seconds * 1000 + 0.5), buffer);
}

static void add_stats_row(struct tm_table *table, const char *file, const struct tm_trace *trace)
{
    struct tm_trace_stats stats = tm_trace_stats(trace);
    char buffer[TM_UNITS_TEXT_MAX];
    tm_table_add(table, "%s", tm_path_base(file));
    tm_table_add(table, "%s", trace->format);
    tm_table_add(table, "%lld", (long long)stats.instances_max);
    tm_table_add(table, "%s", print_s(stats.duration_s, buffer));
    tm_table_add(table, "%.2f", stats.mean_available);
    tm_table_add(table, "%.1f%%", stats.availability * 100);
    tm_table_add(table, "%lld-%lld", (long long)stats.min, (long long)stats.max);
    tm_table_add(table, "%lld (%lld)", (long long)stats.loss_events, (long long)stats.instances_lost);
    tm_table_add(table, "%lld (%lld)", (long long)stats.arrival_events, (long long)stats.instances_arrived);
    tm_table_add(table, "%s", print_s(stats.longest_outage_s, buffer));
    tm_table_add(table, "%s", print_s(stats.mean_time_between_losses_s, buffer));
}

static const struct tm_column stats_columns[] = {
    {"TRACE", TM_LEFT, 0},
    {"FORMAT", TM_LEFT, 5},
    {"NODES", TM_RIGHT, 0},
    {"LENGTH", TM_RIGHT, 0},
    {"MEAN", TM_RIGHT, 0},
    {"AVAILABLE", TM_RIGHT, 1},
    {"RANGE", TM_RIGHT, 4},
    {"PREEMPTIONS (INSTANCES)", TM_RIGHT, 0},
    {"ARRIVALS (INSTANCES)", TM_RIGHT, 3},
    {"LONGEST OUTAGE", TM_RIGHT, 2},
    {"MEAN TIME BETWEEN", TM_RIGHT, 1},
};

static int cmd_stats(struct tm_cli *cli, struct tm_error *e)
{
    if (cli->argument_count == 0)
        return tm_error_set(e, TM_EUSAGE, "give traces: tidemill trace stats FILE... (or hadp, hasp, ladp, lasp)");
    struct tm_table table;
    struct tm_jsonout json;
    struct tm_trace trace;
    tm_trace_init(&trace);
    tm_table_init(&table, stats_columns, sizeof stats_columns / sizeof *stats_columns);
    tm_jsonout_init(&json, &cli->out);
    if (cli->json) {
        tm_jsonout_object(&json, NULL);
        tm_jsonout_list(&json, "traces");
    }
    int rc = 0;
    size_t read = 0;
    struct tm_progress progress;
    tm_progress_start(&progress, cli->env, tm_term_detect(cli->env, STDERR_FILENO, TM_COLOR_NEVER), "reading traces",
                      (int64_t)cli->argument_count);
    for (size_t i = 0; i < cli->argument_count && rc != -(int)TM_ENOMEM; i++) {
        tm_progress_update(&progress, (int64_t)i);
        rc = tm_cmd_load_trace(cli, cli->arguments[i], &trace, e);
        if (rc == 0 && cli->json) put_stats_json(&json, cli->arguments[i], &trace);
        if (rc == 0 && !cli->json) add_stats_row(&table, cli->arguments[i], &trace);
        read += rc == 0;
        if (rc == 0 || cli->argument_count == 1) continue;
        /* Of several files the good ones are shown all the same; the status tells that some were not. */
        cli->exit_status = tm_code_exit_status(e->code);
        if (read > 0 || i + 1 < cli->argument_count) tm_log(TM_LOG_ERROR, "%s", e->text);
    }
    tm_progress_finish(&progress);
    if (read > 0 && rc != -(int)TM_ENOMEM) rc = 0;
    if (rc == 0 && cli->json) {
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
    }
    if (rc == 0 && !cli->json) rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    tm_trace_deinit(&trace);
    return rc;
}

/* ---- show ---- */

/* x in hours (or minutes for short traces), y the count. */
struct curve {
    double *x;
    double *y;
    size_t count;
    double x_end;
    const char *x_label;
};

static int make_curve(const struct tm_trace *trace, struct curve *curve, struct tm_error *e)
{
    bool minutes = trace->end_ms <= (int64_t)3 * 3600 * 1000;
    double unit_ms = minutes ? 60000 : 3600000;
    curve->x = tm_alloc((trace->event_count + 1) * sizeof *curve->x);
    curve->y = tm_alloc((trace->event_count + 1) * sizeof *curve->y);
    if (curve->x == NULL || curve->y == NULL) return tm_error_nomem(e);
    double count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        count += trace->events[i].in - trace->events[i].out;
        curve->x[i] = (double)trace->events[i].time_ms / unit_ms;
        curve->y[i] = count;
    }
    curve->count = trace->event_count;
    curve->x_end = (double)trace->end_ms / unit_ms;
    if (curve->x_end <= curve->x[0]) curve->x_end = curve->x[0] + 1;
    curve->x_label = minutes ? "minutes" : "hours";
    return 0;
}

static int draw(struct tm_cli *cli, const char *file, const struct tm_trace *trace, const struct curve *curve,
                struct tm_error *e)
{
    struct tm_plot plot = {.title = tm_path_base(file),
                           .x_label = curve->x_label,
                           .y_label = "instances available",
                           .x = curve->x,
                           .y = curve->y,
                           .count = curve->count,
                           .x_end = curve->x_end,
                           .y_max = trace->instances_max > 0 ? (double)trace->instances_max : 1};
    const char *svg = tm_given_text(cli, "svg");
    if (svg != NULL) {
        struct tm_text text;
        tm_text_init(&text, SVG_BYTES_MAX);
        int rc = tm_plot_svg(&plot, &text, e);
        if (rc == 0) rc = cli->env->file_write(cli->env, svg, tm_text_string(&text), text.length, e);
        tm_text_deinit(&text);
        if (rc == 0 && !cli->quiet && !cli->json) tm_text_printf(&cli->out, "wrote %s\n", svg);
        return rc;
    }
    int width = cli->term.width > 0 ? cli->term.width : 80;
    int columns = width - 12 > PLOT_COLUMNS_MAX ? PLOT_COLUMNS_MAX : width - 12 < 10 ? 10 : width - 12;
    return tm_plot_terminal(&plot, &cli->term, (size_t)columns, PLOT_ROWS, &cli->out, e);
}

static void put_show_json(struct tm_cli *cli, const char *file, const struct tm_trace *trace)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "file", file);
    tm_jsonout_string(&json, "format", trace->format);
    tm_jsonout_number(&json, "duration_s", (double)trace->end_ms / 1000);
    tm_jsonout_integer(&json, "nodes_max", trace->instances_max);
    tm_jsonout_list(&json, "events");
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        tm_jsonout_object(&json, NULL);
        tm_jsonout_number(&json, "time_s", (double)event->time_ms / 1000);
        tm_jsonout_integer(&json, "in", event->in);
        tm_jsonout_integer(&json, "out", event->out);
        tm_jsonout_number(&json, "price_usd_h", event->price_usd_h);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static void put_summary(struct tm_cli *cli, const struct tm_trace *trace)
{
    struct tm_trace_stats stats = tm_trace_stats(trace);
    char length[TM_UNITS_TEXT_MAX];
    char between[TM_UNITS_TEXT_MAX];
    tm_text_printf(&cli->out, "\n%lld instances at most, %.2f on average over %s; %lld preemptions took %lld instances",
                   (long long)stats.instances_max, stats.mean_available, print_s(stats.duration_s, length),
                   (long long)stats.loss_events, (long long)stats.instances_lost);
    if (stats.loss_events > 0)
        tm_text_printf(&cli->out, ", one every %s", print_s(stats.mean_time_between_losses_s, between));
    tm_text_puts(&cli->out, ".\n");
    if (trace->source[0] != '\0') tm_text_printf(&cli->out, "Source: %s.\n", trace->source);
}

static int cmd_show(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_trace trace;
    struct curve curve = {0};
    int rc = one_file(cli, "show", e);
    if (rc != 0) return rc;
    tm_trace_init(&trace);
    rc = tm_cmd_load_trace(cli, cli->arguments[0], &trace, e);
    if (rc == 0) rc = make_curve(&trace, &curve, e);
    if (rc == 0 && (!cli->json || tm_given(cli, "svg"))) rc = draw(cli, cli->arguments[0], &trace, &curve, e);
    if (rc == 0 && cli->json) put_show_json(cli, cli->arguments[0], &trace);
    if (rc == 0 && !cli->json && !cli->quiet) put_summary(cli, &trace);
    tm_free(curve.x);
    tm_free(curve.y);
    tm_trace_deinit(&trace);
    return rc;
}

/* ---- convert, cut, generate ---- */

/* Writes a trace in a format (NULL: our own); with --json says what was written. */
static int emit(struct tm_cli *cli, const struct tm_trace *trace, const char *to, struct tm_error *e)
{
    int64_t interval_ms = 0;
    int rc = tm_given_time_span(cli, "interval", &interval_ms, e);
    if (rc != 0) return rc;
    if (cli->json && tm_given_text(cli, "output") == NULL) {
        put_show_json(cli, "-", trace);
        return 0;
    }
    struct tm_text text;
    tm_text_init(&text, SVG_BYTES_MAX);
    rc = tm_trace_write(trace, to != NULL ? to : "tidemill", interval_ms, &text, e);
    if (rc == 0) rc = put_result(cli, &text, e);
    tm_text_deinit(&text);
    if (rc == 0 && cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_list(&json, "traces");
        put_stats_json(&json, tm_given_text(cli, "output"), trace);
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
    }
    return rc;
}

static int cmd_convert(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_trace trace;
    int rc = one_file(cli, "convert", e);
    if (rc != 0) return rc;
    tm_trace_init(&trace);
    rc = tm_cmd_load_trace(cli, cli->arguments[0], &trace, e);
    if (rc == 0) rc = emit(cli, &trace, tm_given_text(cli, "to"), e);
    tm_trace_deinit(&trace);
    return rc;
}

static int cmd_cut(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_trace trace;
    struct tm_trace part;
    int64_t from_ms = 0;
    int rc = one_file(cli, "cut", e);
    if (rc != 0) return rc;
    tm_trace_init(&trace);
    tm_trace_init(&part);
    rc = tm_cmd_load_trace(cli, cli->arguments[0], &trace, e);
    int64_t to_ms = trace.end_ms;
    if (rc == 0) rc = tm_given_duration(cli, "from", &from_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "to", &to_ms, e);
    if (rc == 0) rc = tm_trace_cut(&trace, from_ms, to_ms, &part, e);
    if (rc == 0) rc = emit(cli, &part, NULL, e);
    tm_trace_deinit(&trace);
    tm_trace_deinit(&part);
    return rc;
}

static int read_recipe(struct tm_cli *cli, struct tm_trace_recipe *recipe, struct tm_error *e)
{
    int64_t seed = 1;
    int64_t instances = 0;
    int rc = tm_given_integer(cli, "seed", 0, INT64_MAX, &seed, e);
    if (rc == 0) rc = tm_given_integer(cli, "nodes", 1, TM_TRACE_INSTANCES_MAX, &instances, e);
    if (rc == 0) rc = tm_given_number(cli, "mean", 0, TM_TRACE_INSTANCES_MAX, &recipe->mean_available, e);
    if (rc == 0) rc = tm_given_number(cli, "burst", 1, TM_TRACE_INSTANCES_MAX, &recipe->mean_burst, e);
    if (rc == 0) rc = tm_given_time_span(cli, "mtbf", &recipe->mtbf_ms, e);
    if (rc == 0) rc = tm_given_time_span(cli, "interval", &recipe->interval_ms, e);
    if (rc == 0) rc = tm_given_time_span(cli, "duration", &recipe->duration_ms, e);
    if (rc != 0) return rc;
    recipe->seed = (uint64_t)seed;
    recipe->instances_max = instances > 0 ? instances : (int64_t)ceil(recipe->mean_available * 4 / 3);
    if (tm_given(cli, "like") &&
        (tm_given(cli, "nodes") || tm_given(cli, "mean") || tm_given(cli, "burst") || tm_given(cli, "mtbf")))
        return tm_error_set(e, TM_EUSAGE,
                            "--like takes these figures from its trace: leave out --nodes, --mean, --burst and --mtbf");
    if (tm_given(cli, "like")) return 0;
    if (!tm_given(cli, "mean") || !tm_given(cli, "mtbf"))
        return tm_error_set(e, TM_EUSAGE, "give --like FILE, or --mean N and --mtbf DURATION");
    return 0;
}

static int cmd_generate(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_trace_recipe recipe = {0};
    struct tm_trace like;
    struct tm_trace made;
    if (cli->argument_count > 0) return tm_error_set(e, TM_EUSAGE, "generate takes no arguments; see its options");
    tm_trace_init(&like);
    tm_trace_init(&made);
    int rc = read_recipe(cli, &recipe, e);
    if (rc == 0 && tm_given(cli, "like")) {
        rc = tm_cmd_load_trace(cli, tm_given_text(cli, "like"), &like, e);
        recipe.like = &like;
    }
    if (rc == 0) rc = tm_trace_generate(&recipe, &made, e);
    if (rc == 0) rc = emit(cli, &made, tm_given_text(cli, "to"), e);
    tm_trace_deinit(&like);
    tm_trace_deinit(&made);
    return rc;
}

static const struct tm_option stats_options[] = {
    {.name = "format",
     .value = "NAME",
     .help = "read the files as format NAME instead of detecting it",
     .choices = tm_trace_format_names},
    {.name = NULL},
};

static const struct tm_option show_options[] = {
    {.name = "svg", .value = "OUT", .help = "write the plot to OUT as SVG instead of to the terminal"},
    {.name = "format",
     .value = "NAME",
     .help = "read the file as format NAME instead of detecting it",
     .choices = tm_trace_format_names},
    {.name = NULL},
};

static const struct tm_option convert_options[] = {
    {.name = "to", .value = "NAME", .help = "format to write", .choices = tm_trace_write_formats},
    {.name = "interval", .value = "DURATION", .help = "time between samples of json-series (the trace's own)"},
    {.name = "output", .letter = 'o', .value = "FILE", .help = "write to FILE instead of standard output"},
    {.name = "format",
     .value = "NAME",
     .help = "read the file as format NAME instead of detecting it",
     .choices = tm_trace_format_names},
    {.name = NULL},
};

static const struct tm_option cut_options[] = {
    {.name = "from", .value = "DURATION", .help = "start of the part (the start of the trace)"},
    {.name = "to", .value = "DURATION", .help = "end of the part (the end of the trace)"},
    {.name = "output", .letter = 'o', .value = "FILE", .help = "write to FILE instead of standard output"},
    {.name = "format",
     .value = "NAME",
     .help = "read the file as format NAME instead of detecting it",
     .choices = tm_trace_format_names},
    {.name = NULL},
};

static const struct tm_option generate_options[] = {
    {.name = "like", .value = "FILE", .help = "match this trace's mean, preemption rate and burst sizes"},
    {.name = "seed", .value = "N", .help = "the same seed gives the same trace (1)"},
    {.name = "mean", .value = "N", .help = "mean number of instances"},
    {.name = "mtbf", .value = "DURATION", .help = "mean time between preemptions"},
    {.name = "burst", .value = "N", .help = "mean number of instances per preemption (1)"},
    {.name = "nodes", .value = "N", .help = "most instances at a time (4/3 of the mean)"},
    {.name = "duration", .value = "DURATION", .help = "length of the trace (that of --like, or 24h)"},
    {.name = "interval", .value = "DURATION", .help = "round event times to this interval (that of --like, or 1s)"},
    {.name = "to", .value = "NAME", .help = "format to write", .choices = tm_trace_write_formats},
    {.name = "output", .letter = 'o', .value = "FILE", .help = "write to FILE instead of standard output"},
    {.name = "format",
     .value = "NAME",
     .help = "read the file of --like as format NAME",
     .choices = tm_trace_format_names},
    {.name = NULL},
};

/* For completions. */
static const char *const shipped_names[] = {"hadp", "hasp", "ladp", "lasp", NULL};

const struct tm_command tm_trace_subcommands[] = {
    {.name = "stats",
     .summary = "instances, availability, preemptions and arrivals of traces",
     .arguments = "FILE...",
     .description =
         "A preemption is a moment at which instances leave, an arrival one at which instances come; the number of "
         "instances is in brackets. An instance that is replaced at once counts as both. MEAN TIME BETWEEN is that "
         "between preemptions. AVAILABLE is the mean number divided by the largest; for logs of polled instances, the "
         "share of polls that found the instance running. The longest outage is the longest time without any instance.",
     .examples = "  tidemill trace stats hadp hasp ladp lasp\n",
     .options = stats_options,
     .run = cmd_stats,
     .files = true,
     .words = shipped_names},
    {.name = "show",
     .summary = "plot a trace",
     .arguments = "FILE",
     .description =
         "Draws the number of instances over time, in the terminal or as SVG. With --json, prints the events.",
     .examples = "  tidemill trace show hadp\n  tidemill trace show hadp --svg hadp.svg\n",
     .options = show_options,
     .run = cmd_show,
     .files = true,
     .words = shipped_names},
    {.name = "convert",
     .summary = "write a trace in another format",
     .arguments = "FILE",
     .description = "Reads any known format and writes Tidemill's own, which keeps everything (tidemill-trace(5)), or "
                    "one that other programs read.",
     .examples = "  tidemill trace convert p3.csv -o p3.tmtrace\n"
                 "  tidemill trace convert hadp --to json-series --interval 60s\n",
     .options = convert_options,
     .run = cmd_convert,
     .files = true,
     .words = shipped_names},
    {.name = "cut",
     .summary = "cut out part of a trace",
     .arguments = "FILE",
     .description = "The part starts at time zero, with the instances running at that moment.",
     .examples = "  tidemill trace cut p3.csv --from 5.5h --to 6.5h -o hour.tmtrace\n",
     .options = cut_options,
     .run = cmd_cut,
     .files = true,
     .words = shipped_names},
    {.name = "generate",
     .summary = "a synthetic trace with given statistics",
     .description = "Preemptions and arrivals are Poisson processes, calibrated until the trace has the mean, "
                    "preemption rate and burst size asked for. With --like, burst sizes are drawn from that trace. The "
                    "same seed gives the same trace.",
     .examples = "  tidemill trace generate --like hadp --seed 7 --duration 12h\n"
                 "  tidemill trace generate --nodes 32 --mean 24 --mtbf 10m --burst 2 --interval 60s\n",
     .options = generate_options,
     .run = cmd_generate},
    {.name = "record",
     .summary = "ask a market for prices and capacity now and then, and write a trace",
     .description =
         "Asks the clouds of the pools (AWS, Google Cloud, Azure) for the spot price of each, and AWS and Google for "
         "how "
         "likely instances are given there (placement score, capacity advice; on Azure they are assumed), and writes a "
         "trace with prices that simulate, study and plan read. Asking is free. With --try, on AWS alone, it rents one "
         "instance each time, which costs a minute of it, and knows. doc/clouds.md has the permissions.",
     .examples = "  tidemill trace record --pools p3.2xlarge@us-east-1a,g5.xlarge@us-east-1b --every 5m --for 7d -o "
                 "market.tmtrace\n",
     .options = tm_trace_record_options,
     .run = tm_cmd_trace_record},
    {.name = NULL},
};
