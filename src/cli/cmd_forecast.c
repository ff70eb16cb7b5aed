#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/plot.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/forecast_known.h"
#include "market/backtest.h"
#include "market/forecast.h"
#include "market/series.h"
#include "market/trace_format.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PLOT_ROWS = 12, PLOT_COLUMNS_MAX = 96, SVG_BYTES_MAX = 4 << 20, SHOWN_HISTORY = 3 };

static const char *const protocols[] = {"every-start", "parcae", NULL};

struct request {
    int method; /* of enum tm_forecast_method */
    int64_t horizon;
    int64_t interval_ms;
    int64_t at_ms;
    int64_t capacity;
    int64_t seed;
    int64_t noticed;
    int64_t recommended;
    int64_t within_ms;
    int protocol;
};

/* What does not go together. */
static int check_request(const struct tm_cli *cli, const struct request *request, struct tm_error *e)
{
    bool backtest = tm_given(cli, "backtest");
    bool hints = tm_given(cli, "notice") || tm_given(cli, "rebalance");
    if (backtest && hints)
        return tm_error_set(e, TM_EUSAGE,
                            "--notice and --rebalance are for a single forecast: do not use them with --backtest");
    if (hints && request->method != TM_FORECAST_TIDEMILL)
        return tm_error_set(e, TM_EUSAGE, "--notice and --rebalance are for method tidemill; %s cannot use them",
                            tm_forecast_methods[request->method]);
    if (backtest && (tm_given(cli, "at") || tm_given(cli, "svg") || tm_given(cli, "capacity")))
        return tm_error_set(e, TM_EUSAGE, "--backtest forecasts from every interval: no --at, --svg or --capacity");
    if (!backtest && tm_given(cli, "protocol"))
        return tm_error_set(e, TM_EUSAGE, "--protocol selects the starts of a backtest: give --backtest too");
    if (cli->argument_count == 0 || (!backtest && cli->argument_count > 1))
        return tm_error_set(e, TM_EUSAGE, "name %s: tidemill forecast %s (or hadp, hasp, ladp, lasp)",
                            backtest ? "the traces" : "one trace", backtest ? "--backtest TRACE..." : "TRACE");
    return 0;
}

static int read_request(struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    *request = (struct request){
        .method = TM_FORECAST_TIDEMILL, .horizon = 12, .interval_ms = 60000, .at_ms = -1, .within_ms = 120000};
    int rc = tm_given_choice(cli, "method", &request->method, e);
    if (rc == 0) rc = tm_given_integer(cli, "horizon", 1, TM_FORECAST_STEPS_MAX, &request->horizon, e);
    if (rc == 0) rc = tm_given_time_span(cli, "interval", &request->interval_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "at", &request->at_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "capacity", 1, TM_FORECAST_COUNT_MAX, &request->capacity, e);
    if (rc == 0) rc = tm_given_integer(cli, "seed", 0, UINT32_MAX, &request->seed, e);
    if (rc == 0) rc = tm_given_integer(cli, "notice", 1, TM_FORECAST_COUNT_MAX, &request->noticed, e);
    if (rc == 0) rc = tm_given_integer(cli, "rebalance", 1, TM_FORECAST_COUNT_MAX, &request->recommended, e);
    if (rc == 0) rc = tm_given_time_span(cli, "within", &request->within_ms, e);
    if (rc == 0) rc = tm_given_choice(cli, "protocol", &request->protocol, e);
    return rc == 0 ? check_request(cli, request, e) : rc;
}

static int load_series(struct tm_cli *cli, const char *path, int64_t interval_ms, struct tm_series *series,
                       struct tm_error *e)
{
    struct tm_trace trace;
    tm_trace_init(&trace);
    int rc = tm_cmd_load_trace(cli, path, &trace, e);
    if (rc == 0) {
        rc = tm_series_sample(&trace, interval_ms, series, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "%s", path);
    }
    tm_trace_deinit(&trace);
    return rc;
}

/* ---- one forecast ---- */

/* Which point of the series is the newest that may be known at a time. */
static int find_now(const struct tm_series *series, int64_t at_ms, const char *path, size_t *out, struct tm_error *e)
{
    int64_t end_ms = series->begin_ms + (int64_t)(series->count - 1) * series->interval_ms;
    char at[TM_UNITS_TEXT_MAX];
    char begin[TM_UNITS_TEXT_MAX];
    char end[TM_UNITS_TEXT_MAX];
    if (at_ms < 0) at_ms = end_ms;
    if (at_ms < series->begin_ms || at_ms > end_ms + series->interval_ms)
        return tm_error_set(
            e, TM_EUSAGE, "--at %s: %s has counts from %s to %s", tm_unit_print(TM_UNIT_DURATION, at_ms, at), path,
            tm_unit_print(TM_UNIT_DURATION, series->begin_ms, begin), tm_unit_print(TM_UNIT_DURATION, end_ms, end));
    size_t now = (size_t)((at_ms - series->begin_ms) / series->interval_ms);
    *out = now < series->count ? now : series->count - 1;
    return 0;
}

static void put_json(struct tm_cli *cli, const struct request *request, const struct tm_series *series, size_t now,
                     const struct tm_forecast *forecast)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "method", tm_forecast_methods[request->method]);
    tm_jsonout_number(&json, "interval_s", (double)request->interval_ms / 1000);
    tm_jsonout_number(&json, "at_s", (double)(series->begin_ms + (int64_t)now * series->interval_ms) / 1000);
    tm_jsonout_integer(&json, "count", series->points[now].count);
    tm_jsonout_list(&json, "steps");
    for (int h = 0; h < forecast->horizon; h++) {
        const struct tm_forecast_step *step = &forecast->steps[h];
        tm_jsonout_object(&json, NULL);
        tm_jsonout_integer(&json, "step", h + 1);
        tm_jsonout_number(&json, "mean", step->mean);
        tm_jsonout_integer(&json, "p10", step->p10);
        tm_jsonout_integer(&json, "p50", step->p50);
        tm_jsonout_integer(&json, "p90", step->p90);
        tm_jsonout_integer(&json, "point", step->point);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

/* The last counts and the fan of what may follow, in minutes from now. */
struct fan {
    double *x, *middle, *low, *high;
    size_t count;
};

static int make_fan(const struct tm_series *series, size_t now, const struct tm_forecast *forecast, struct fan *fan,
                    struct tm_error *e)
{
    size_t steps = (size_t)forecast->horizon;
    size_t before = SHOWN_HISTORY * steps < now + 1 ? SHOWN_HISTORY * steps : now + 1;
    fan->count = before + steps;
    fan->x = tm_calloc(4 * fan->count, sizeof *fan->x);
    if (fan->x == NULL) return tm_error_nomem(e);
    fan->middle = fan->x + fan->count;
    fan->low = fan->middle + fan->count;
    fan->high = fan->low + fan->count;
    double minutes = (double)series->interval_ms / 60000;
    for (size_t i = 0; i < fan->count; i++) {
        fan->x[i] = ((double)i - (double)before + 1) * minutes;
        bool past = i < before;
        const struct tm_forecast_step *step = past ? NULL : &forecast->steps[i - before];
        fan->middle[i] = past ? series->points[now + 1 - before + i].count : step->p50;
        fan->low[i] = past ? fan->middle[i] : step->p10;
        fan->high[i] = past ? fan->middle[i] : step->p90;
    }
    return 0;
}

static int draw(struct tm_cli *cli, const char *title, const struct tm_series *series, const struct fan *fan,
                struct tm_error *e)
{
    double top = 1;
    for (size_t i = 0; i < fan->count; i++)
        top = fmax(top, fan->high[i]);
    struct tm_plot plot = {.title = title,
                           .x_label = "minutes from now",
                           .y_label = "instances: history, median, 80% range",
                           .x = fan->x,
                           .y = fan->middle,
                           .y_low = fan->low,
                           .y_high = fan->high,
                           .count = fan->count,
                           .x_end = fan->x[fan->count - 1] + (double)series->interval_ms / 60000,
                           .y_max = top};
    const char *svg = tm_given_text(cli, "svg");
    if (svg == NULL) {
        int width = cli->term.width > 0 ? cli->term.width : 80;
        int columns = width - 12 > PLOT_COLUMNS_MAX ? PLOT_COLUMNS_MAX : width - 12 < 10 ? 10 : width - 12;
        return tm_plot_terminal(&plot, &cli->term, (size_t)columns, PLOT_ROWS, &cli->out, e);
    }
    struct tm_text text;
    tm_text_init(&text, SVG_BYTES_MAX);
    int rc = tm_plot_svg(&plot, &text, e);
    if (rc == 0) rc = cli->env->file_write(cli->env, svg, tm_text_string(&text), text.length, e);
    tm_text_deinit(&text);
    if (rc == 0 && !cli->quiet && !cli->json) tm_text_printf(&cli->out, "wrote %s\n", svg);
    return rc;
}

static const struct tm_column step_columns[] = {
    {"STEP", TM_RIGHT, 0},   {"AFTER", TM_RIGHT, 1}, {"MEAN", TM_RIGHT, 0}, {"10%", TM_RIGHT, 0},
    {"MEDIAN", TM_RIGHT, 0}, {"90%", TM_RIGHT, 0},   {"SAME", TM_RIGHT, 1}, {"FEWER", TM_RIGHT, 1},
};

static int put_table(struct tm_cli *cli, const struct request *request, int count, const struct tm_forecast *forecast,
                     struct tm_error *e)
{
    struct tm_table table;
    char after[TM_UNITS_TEXT_MAX];
    tm_table_init(&table, step_columns, sizeof step_columns / sizeof *step_columns);
    for (int h = 0; h < forecast->horizon; h++) {
        const struct tm_forecast_step *step = &forecast->steps[h];
        double fewer = 0;
        for (int k = 0; k < count; k++)
            fewer += step->pmf[k];
        tm_table_add(&table, "%d", h + 1);
        tm_table_add(&table, "%s", tm_unit_print(TM_UNIT_DURATION, (h + 1) * request->interval_ms, after));
        tm_table_add(&table, "%.2f", step->mean);
        tm_table_add(&table, "%d", step->p10);
        tm_table_add(&table, "%d", step->p50);
        tm_table_add(&table, "%d", step->p90);
        tm_table_add(&table, "%.0f%%", step->pmf[count] * 100);
        tm_table_add(&table, "%.0f%%", fewer * 100);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

static int put_forecast(struct tm_cli *cli, const struct request *request, const struct tm_series *series, size_t now,
                        const struct tm_forecast *forecast, struct tm_error *e)
{
    struct fan fan = {0};
    const char *path = cli->arguments[0];
    int rc = 0;
    if (!cli->json || tm_given(cli, "svg")) {
        rc = make_fan(series, now, forecast, &fan, e);
        if (rc == 0) rc = draw(cli, tm_path_base(path), series, &fan, e);
    }
    if (rc == 0 && cli->json) put_json(cli, request, series, now, forecast);
    if (rc == 0 && !cli->json) {
        char at[TM_UNITS_TEXT_MAX];
        if (!cli->quiet)
            tm_text_printf(&cli->out, "\n%s: %d instances at %s; method %s\n\n", tm_path_base(path),
                           series->points[now].count,
                           tm_unit_print(TM_UNIT_DURATION, series->begin_ms + (int64_t)now * series->interval_ms, at),
                           tm_forecast_methods[request->method]);
        rc = put_table(cli, request, series->points[now].count, forecast, e);
    }
    tm_free(fan.x);
    return rc;
}

static void give_evidence(const struct request *request, struct tm_forecaster *forecaster)
{
    int64_t steps = (request->within_ms + request->interval_ms - 1) / request->interval_ms;
    int within = steps < TM_FORECAST_STEPS_MAX ? (int)steps : TM_FORECAST_STEPS_MAX;
    tm_forecaster_hint(forecaster, TM_FORECAST_NOTICE, (int)request->noticed, within);
    tm_forecaster_hint(forecaster, TM_FORECAST_REBALANCE, (int)request->recommended, within);
}

static int forecast_once(struct tm_cli *cli, const struct request *request, struct tm_error *e)
{
    struct tm_series series;
    struct tm_forecaster *forecaster = NULL;
    struct tm_forecast *forecast = tm_calloc(1, sizeof *forecast);
    struct tm_forecaster_options options = {.method = (enum tm_forecast_method)request->method,
                                            .interval_ms = request->interval_ms,
                                            .horizon_max = (int)request->horizon,
                                            .capacity = (int)request->capacity,
                                            .seed = (uint64_t)request->seed};
    size_t now = 0;
    tm_series_init(&series);
    int rc = forecast == NULL ? tm_error_nomem(e) : 0;
    if (rc == 0) rc = load_series(cli, cli->arguments[0], request->interval_ms, &series, e);
    if (rc == 0) rc = find_now(&series, request->at_ms, cli->arguments[0], &now, e);
    if (rc == 0) rc = tm_forecaster_create(&options, &forecaster, e);
    for (size_t t = 0; rc == 0 && t <= now; t++) {
        const struct tm_series_point *point = &series.points[t];
        rc = tm_forecaster_observe(forecaster, point->count, point->arrivals, point->losses, e);
        if (rc == 0 && t == now) give_evidence(request, forecaster);
        /* Parcae's penalties and random numbers depend on every forecast made before. */
        if (rc == 0 && (t == now || request->method == TM_FORECAST_PARCAE))
            rc = tm_forecaster_predict(forecaster, (int)request->horizon, forecast, e);
    }
    if (rc == 0) rc = put_forecast(cli, request, &series, now, forecast, e);
    tm_forecaster_destroy(forecaster);
    tm_free(forecast);
    tm_series_deinit(&series);
    return rc;
}

/* ---- backtests ---- */

/* Look-aheads that a backtest lists: those of Parcae's table and the one asked for. */
static int next_horizon(int after, int asked)
{
    static const int listed[] = {1, 5, 7, 8, 10, 12, 14};
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        if (listed[i] > after && listed[i] < asked) return listed[i];
    return after < asked ? asked : 0;
}

struct report {
    struct tm_jsonout json;
    struct tm_table table;
};

static const struct tm_column backtest_columns[] = {
    {"TRACE", TM_LEFT, 0}, {"METHOD", TM_LEFT, 0},    {"STEPS", TM_RIGHT, 0},  {"STARTS", TM_RIGHT, 4},
    {"MAE", TM_RIGHT, 0},  {"NORM. L1", TM_RIGHT, 0}, {"CRPS", TM_RIGHT, 0},   {"PINBALL 10%", TM_RIGHT, 3},
    {"50%", TM_RIGHT, 3},  {"90%", TM_RIGHT, 3},      {"IN 80%", TM_RIGHT, 0}, {"us/FORECAST", TM_RIGHT, 1},
};

static void report_row(struct tm_cli *cli, struct report *report, const char *file, int method,
                       const struct tm_backtest *b)
{
    if (cli->json) {
        tm_jsonout_object(&report->json, NULL);
        tm_jsonout_string(&report->json, "method", tm_forecast_methods[method]);
        tm_jsonout_integer(&report->json, "horizon", b->horizon);
        tm_jsonout_integer(&report->json, "starts", b->starts);
        tm_jsonout_number(&report->json, "mae", b->mae);
        tm_jsonout_number(&report->json, "normalised_l1", b->normalised_l1);
        tm_jsonout_number(&report->json, "crps", b->crps);
        tm_jsonout_number(&report->json, "pinball10", b->pinball10);
        tm_jsonout_number(&report->json, "pinball50", b->pinball50);
        tm_jsonout_number(&report->json, "pinball90", b->pinball90);
        tm_jsonout_number(&report->json, "coverage80", b->coverage80);
        tm_jsonout_number(&report->json, "coverage80_closed", b->coverage80_closed);
        tm_jsonout_number(&report->json, "ms_per_forecast", b->ms_per_forecast);
        tm_jsonout_end(&report->json);
        return;
    }
    struct tm_table *table = &report->table;
    tm_table_add(table, "%s", tm_path_base(file));
    tm_table_add(table, "%s", tm_forecast_methods[method]);
    tm_table_add(table, "%d", b->horizon);
    tm_table_add(table, "%lld", (long long)b->starts);
    tm_table_add(table, "%.3f", b->mae);
    if (isnan(b->normalised_l1))
        tm_table_add(table, "-");
    else
        tm_table_add(table, "%.4f", b->normalised_l1);
    tm_table_add(table, "%.4f", b->crps);
    tm_table_add(table, "%.3f", b->pinball10);
    tm_table_add(table, "%.3f", b->pinball50);
    tm_table_add(table, "%.3f", b->pinball90);
    tm_table_add(table, "%.1f%%", b->coverage80 * 100);
    tm_table_add(table, "%.1f", b->ms_per_forecast * 1000);
}

static int backtest_method(struct tm_cli *cli, const struct request *request, const char *file,
                           const struct tm_series *series, int method, struct report *report, struct tm_error *e)
{
    for (int h = next_horizon(0, (int)request->horizon); h > 0; h = next_horizon(h, (int)request->horizon)) {
        bool undefined = method == TM_FORECAST_PARCAE && (h < 5 || h == 6);
        if (undefined && !tm_given(cli, "method")) continue; /* not asked for by name */
        if (undefined && h < request->horizon) continue;
        /* A table of several traces has the one look-ahead that was asked for. */
        if (!cli->json && h != request->horizon && cli->argument_count > 1) continue;
        struct tm_backtest_options options = {.method = (enum tm_forecast_method)method,
                                              .horizon = h,
                                              .seed = (uint64_t)request->seed,
                                              .parcae_protocol = request->protocol == 1};
        struct tm_backtest result;
        int rc = tm_backtest_run(cli->env, series, &options, &result, e);
        if (rc != 0) return tm_error_wrap(e, rc, "%s", file);
        report_row(cli, report, file, method, &result);
    }
    return 0;
}

static int backtest_file(struct tm_cli *cli, const struct request *request, const char *file, struct report *report,
                         struct tm_error *e)
{
    struct tm_series series;
    tm_series_init(&series);
    int rc = load_series(cli, file, request->interval_ms, &series, e);
    if (rc == 0 && series.count < TM_BACKTEST_HISTORY + (size_t)request->horizon) {
        struct tm_backtest unused;
        struct tm_backtest_options options = {.method = TM_FORECAST_LAST, .horizon = (int)request->horizon};
        rc = tm_backtest_run(cli->env, &series, &options, &unused, e); /* for its words */
        if (rc != 0) rc = tm_error_wrap(e, rc, "%s", file);
    }
    if (rc == 0 && cli->json) {
        tm_jsonout_object(&report->json, NULL);
        tm_jsonout_string(&report->json, "file", file);
        tm_jsonout_number(&report->json, "interval_s", (double)series.interval_ms / 1000);
        tm_jsonout_list(&report->json, "methods");
    }
    bool begun = rc == 0;
    for (int m = 0; rc == 0 && tm_forecast_methods[m] != NULL; m++) {
        if (tm_given(cli, "method") && m != request->method) continue;
        rc = backtest_method(cli, request, file, &series, m, report, e);
    }
    if (begun && cli->json) {
        tm_jsonout_end(&report->json);
        tm_jsonout_end(&report->json);
    }
    tm_series_deinit(&series);
    return rc;
}

/* Of several files the good ones are shown all the same; the status tells that some were not. */
static int backtest(struct tm_cli *cli, const struct request *request, struct tm_error *e)
{
    struct report report;
    struct tm_progress progress;
    size_t good = 0;
    int rc = 0;
    tm_jsonout_init(&report.json, &cli->out);
    tm_table_init(&report.table, backtest_columns, sizeof backtest_columns / sizeof *backtest_columns);
    if (cli->json) {
        tm_jsonout_object(&report.json, NULL);
        tm_jsonout_list(&report.json, "traces");
    }
    tm_progress_start(&progress, cli->env, tm_term_detect(cli->env, STDERR_FILENO, TM_COLOR_NEVER), "backtests",
                      (int64_t)cli->argument_count);
    for (size_t i = 0; i < cli->argument_count && rc != -(int)TM_ENOMEM; i++) {
        tm_progress_update(&progress, (int64_t)i);
        rc = backtest_file(cli, request, cli->arguments[i], &report, e);
        good += rc == 0;
        if (rc == 0 || cli->argument_count == 1) continue;
        cli->exit_status = tm_code_exit_status(e->code);
        if (good > 0 || i + 1 < cli->argument_count) tm_log(TM_LOG_ERROR, "%s", e->text);
    }
    tm_progress_finish(&progress);
    if (good > 0 && rc != -(int)TM_ENOMEM) rc = 0;
    if (rc == 0 && cli->json) {
        tm_jsonout_end(&report.json);
        tm_jsonout_end(&report.json);
    }
    if (rc == 0 && !cli->json) rc = tm_table_print(&report.table, &cli->term, &cli->out, e);
    tm_table_deinit(&report.table);
    return rc;
}

int tm_cmd_forecast(struct tm_cli *cli, struct tm_error *e)
{
    struct request request;
    if (tm_given(cli, "instance")) return tm_forecast_known(cli, e);
    int rc = read_request(cli, &request, e);
    if (rc != 0) return rc;
    return tm_given(cli, "backtest") ? backtest(cli, &request, e) : forecast_once(cli, &request, e);
}

const struct tm_option tm_forecast_options[] = {
    {.name = "at", .value = "DURATION", .help = "forecast from this time of the trace (its end)"},
    {.name = "horizon", .value = "N", .help = "intervals to look ahead (12)"},
    {.name = "interval", .value = "DURATION", .help = "length of an interval (60s)"},
    {.name = "method",
     .value = "NAME",
     .help = "forecast method (tidemill; for a backtest, all of them)",
     .choices = tm_forecast_methods},
    {.name = "capacity", .value = "N", .help = "most instances possible; else learned from the trace"},
    {.name = "seed", .value = "N", .help = "seed of parcae's random preemptions (0)"},
    {.name = "notice", .value = "N", .help = "N instances have a preemption notice"},
    {.name = "rebalance", .value = "N", .help = "N instances have a rebalance recommendation: they may be preempted"},
    {.name = "within", .value = "DURATION", .help = "when the instances of --notice and --rebalance leave (120s)"},
    {.name = "backtest", .help = "compare forecasts from every interval with what happened"},
    {.name = "protocol",
     .value = "NAME",
     .help = "starts of a backtest: every interval with 12 of history, or as in Parcae's table",
     .choices = protocols},
    {.name = "instance", .value = "TYPE", .help = "no trace: by what is known of the risk of this instance type"},
    {.name = "count", .value = "N", .help = "with --instance: how many start (8)"},
    {.name = "cloud", .value = "NAME", .help = "with --instance: its cloud, if several use the name"},
    {.name = "region", .value = "NAME", .help = "with --instance: where"},
    {.name = "zone", .value = "NAME", .help = "with --instance: where, to the zone"},
    {.name = "hour", .value = "N", .help = "with --instance: hour of the day, UTC, at which they start (any)"},
    {.name = "svg", .value = "OUT", .help = "write the plot to OUT as SVG instead of to the terminal"},
    {.name = "format",
     .value = "NAME",
     .help = "read the files as format NAME instead of detecting it",
     .choices = tm_trace_format_names},
    {.name = NULL},
};
