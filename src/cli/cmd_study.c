#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/plot.h"
#include "base/suggest.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/study_risk.h"
#include "market/study.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum { PLOT_ROWS = 12, PLOT_COLUMNS_MAX = 96, SVG_BYTES_MAX = 64 << 20, CURVE_JSON_MAX = 512 };

static const double ages_h[] = {1, 3, 6, 12, 24};
enum { AGES = sizeof ages_h / sizeof *ages_h };

/* ---- what is asked ---- */

static int find_name(const struct tm_names *names, const char *option, const char *text, int *out, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = text};
    *out = -1;
    if (text == NULL) return 0;
    for (size_t i = 0; i < names->count; i++) {
        tm_suggest_offer(&suggest, names->names[i]);
        if (strcasecmp(names->names[i], text) == 0) *out = (int)i;
    }
    if (*out >= 0) return 0;
    if (suggest.best != NULL)
        return tm_error_set(e, TM_EUSAGE, "--%s: \"%.40s\" is not in the files; did you mean \"%.40s\"?", option, text,
                            suggest.best);
    return tm_error_set(e, TM_EUSAGE, "--%s: \"%.40s\" is not in the files", option, text);
}

static int read_cap(const struct tm_cli *cli, double *out_s, struct tm_error *e)
{
    const char *text = tm_given_text(cli, "cap");
    int64_t cap_ms = 0;
    *out_s = -1;
    if (text == NULL) return 0;
    int rc = strcmp(text, "none") == 0 ? 0 : tm_given_time_span(cli, "cap", &cap_ms, e);
    *out_s = (double)cap_ms / 1000;
    return rc;
}

static int load_all(struct tm_cli *cli, struct tm_lifetimes *lifetimes, struct tm_lifetime_filter *filter,
                    struct tm_error *e)
{
    double cap_s;
    int rc = read_cap(cli, &cap_s, e);
    for (size_t i = 0; rc == 0 && i < cli->argument_count; i++)
        rc = tm_lifetimes_load(cli->env, cli->arguments[i], cap_s, lifetimes, e);
    *filter = (struct tm_lifetime_filter){-1, -1, -1};
    if (rc == 0) rc = find_name(&lifetimes->types, "gpu", tm_given_text(cli, "gpu"), &filter->type, e);
    if (rc == 0) rc = find_name(&lifetimes->zones, "zone", tm_given_text(cli, "zone"), &filter->zone, e);
    return rc;
}

static const char *type_name(const struct tm_lifetimes *lifetimes, const struct tm_study_group *group)
{
    if (group->filter.type < 0) return "all";
    const char *name = lifetimes->types.names[group->filter.type];
    return name[0] != '\0' ? name : "-";
}

static const char *zone_name(const struct tm_lifetimes *lifetimes, const struct tm_study_group *group)
{
    return group->filter.zone < 0 ? "all" : lifetimes->zones.names[group->filter.zone];
}

/* ---- JSON ---- */

static void put_group_json(struct tm_jsonout *json, const struct tm_lifetimes *lifetimes,
                           const struct tm_study_group *group)
{
    const struct tm_survival *survival = &group->survival;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "gpu", type_name(lifetimes, group));
    tm_jsonout_string(json, "zone", zone_name(lifetimes, group));
    tm_jsonout_number(json, "instances", survival->instances);
    tm_jsonout_number(json, "lost", survival->lost);
    tm_jsonout_number(json, "capped", survival->capped);
    tm_jsonout_number(json, "released", survival->released);
    tm_jsonout_number(json, "median_h", tm_survival_median(survival) / 3600);
    tm_jsonout_number(json, "first_hour_share", group->hazards.first_hour_share);
    tm_jsonout_list(json, "revoked");
    for (size_t i = 0; i < AGES; i++) {
        double low;
        double high;
        double share = tm_survival_lost_by(survival, ages_h[i] * 3600, &low, &high);
        tm_jsonout_object(json, NULL);
        tm_jsonout_number(json, "within_h", ages_h[i]);
        tm_jsonout_number(json, "share", share);
        tm_jsonout_number(json, "low", low);
        tm_jsonout_number(json, "high", high);
        tm_jsonout_number(json, "pooled", tm_hazards_lost_by(group->pooled, ages_h[i]));
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_list(json, "hazard_by_age");
    for (int b = 0; b < TM_AGE_BINS; b++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_number(json, "from_h", tm_age_bin_h[b]);
        tm_jsonout_number(json, "to_h", tm_age_bin_h[b + 1]);
        tm_jsonout_number(json, "lost", group->hazards.age_lost[b]);
        tm_jsonout_number(json, "instance_hours", group->hazards.age_hours[b]);
        tm_jsonout_number(json, "pooled_per_hour", group->pooled[b]);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_list(json, "hazard_by_hour");
    for (int h = 0; lifetimes->has_hour && h < TM_HOURS; h++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_integer(json, "hour", h);
        tm_jsonout_number(json, "lost", group->hazards.hour_lost[h]);
        tm_jsonout_number(json, "instance_hours", group->hazards.hour_hours[h]);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void put_bursts_json(struct tm_jsonout *json, const struct tm_bursts *bursts)
{
    tm_jsonout_object(json, "bursts");
    tm_jsonout_number(json, "count", bursts->bursts);
    tm_jsonout_number(json, "largest", bursts->largest);
    tm_jsonout_number(json, "share_together", bursts->share_together);
    tm_jsonout_list(json, "sizes"); /* how many of size 1, 2, ... 8, and more */
    for (int i = 0; i < TM_BURST_SIZES; i++)
        tm_jsonout_number(json, NULL, bursts->count[i]);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

/* At most CURVE_JSON_MAX points: of a long curve every n-th, and the last. */
static void put_curve_json(struct tm_jsonout *json, const struct tm_survival *survival)
{
    size_t every = survival->count / CURVE_JSON_MAX + 1;
    tm_jsonout_list(json, "curve");
    for (size_t i = 0; i < survival->count; i++) {
        const struct tm_survival_step *step = &survival->steps[i];
        if (i % every != 0 && i + 1 < survival->count) continue;
        tm_jsonout_object(json, NULL);
        tm_jsonout_number(json, "age_h", step->age_s / 3600);
        tm_jsonout_number(json, "survival", step->survival);
        tm_jsonout_number(json, "low", step->low);
        tm_jsonout_number(json, "high", step->high);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void put_json(struct tm_cli *cli, const struct tm_lifetimes *lifetimes, const struct tm_study *study)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "groups");
    for (size_t i = 0; i < study->count; i++) {
        put_group_json(&json, lifetimes, &study->groups[i]);
        put_bursts_json(&json, &study->groups[i].bursts);
        put_curve_json(&json, &study->groups[i].survival);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

/* ---- tables and the curve ---- */

static const struct tm_column columns[] = {
    {"GPU", TM_LEFT, 0},     {"ZONE", TM_LEFT, 0},         {"N", TM_RIGHT, 0},          {"LOST", TM_RIGHT, 0},
    {"AT CAP", TM_RIGHT, 5}, {"1h", TM_RIGHT, 0},          {"3h", TM_RIGHT, 0},         {"6h", TM_RIGHT, 2},
    {"12h", TM_RIGHT, 2},    {"24h", TM_RIGHT, 0},         {"95% OF 24h", TM_RIGHT, 1}, {"POOLED 24h", TM_RIGHT, 3},
    {"MEDIAN", TM_RIGHT, 1}, {"IN 1st HOUR", TM_RIGHT, 4}, {"BURST MAX", TM_RIGHT, 4},
};

static void put_count(struct tm_table *table, double count)
{
    tm_table_add(table, fabs(count - round(count)) < 1e-6 ? "%.0f" : "%.1f", count);
}

/* Nobody lived that long: nothing is known. */
static void put_share(struct tm_table *table, double share)
{
    if (isnan(share))
        tm_table_add(table, "-");
    else
        tm_table_add(table, "%.1f%%", 100 * share);
}

static void add_row(struct tm_table *table, const struct tm_lifetimes *lifetimes, const struct tm_study_group *group)
{
    const struct tm_survival *survival = &group->survival;
    double low = 0;
    double high = 0;
    tm_table_add(table, "%s", type_name(lifetimes, group));
    tm_table_add(table, "%s", zone_name(lifetimes, group));
    put_count(table, survival->instances);
    put_count(table, survival->lost);
    put_count(table, survival->capped);
    for (size_t i = 0; i < AGES; i++)
        put_share(table, tm_survival_lost_by(survival, ages_h[i] * 3600, &low, &high));
    if (isnan(low))
        tm_table_add(table, "-");
    else
        tm_table_add(table, "%.0f-%.0f%%", 100 * low, 100 * high);
    put_share(table, isnan(low) ? NAN : tm_hazards_lost_by(group->pooled, 24));
    double median_s = tm_survival_median(survival);
    if (isfinite(median_s))
        tm_table_add(table, "%.1fh", median_s / 3600);
    else
        tm_table_add(table, ">%.0fh", survival->longest_s / 3600);
    if (isnan(group->hazards.first_hour_share))
        tm_table_add(table, "-");
    else
        tm_table_add(table, "%.0f%%", 100 * group->hazards.first_hour_share);
    put_count(table, group->bursts.largest);
}

static int put_table(struct tm_cli *cli, const struct tm_lifetimes *lifetimes, const struct tm_study *study,
                     struct tm_error *e)
{
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    bool one_type = study->count > 1 && study->groups[1].survival.instances == study->groups[0].survival.instances;
    for (size_t i = one_type ? 1 : 0; i < study->count; i++)
        add_row(&table, lifetimes, &study->groups[i]);
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

static void put_burst_sizes(struct tm_cli *cli, const struct tm_bursts *bursts)
{
    tm_text_puts(&cli->out, "Bursts by size:");
    for (int i = 0; i < TM_BURST_SIZES; i++) {
        if (bursts->count[i] == 0) continue;
        tm_text_printf(&cli->out, " %.0f of %s%d", bursts->count[i], i + 1 == TM_BURST_SIZES ? ">=" : "", i + 1);
    }
    tm_text_puts(&cli->out, ".\n");
}

/* Hazards by age and hour, bursts, load: of everything that was asked for. */
static void put_notes(struct tm_cli *cli, const struct tm_lifetimes *lifetimes, const struct tm_study *study)
{
    const struct tm_study_group *all = &study->groups[0];
    const struct tm_hazards *hazards = &all->hazards;
    tm_text_puts(&cli->out, "\nPreemptions per 100 instance-hours by age:");
    for (int b = 0; b < TM_AGE_BINS; b++) {
        if (hazards->age_hours[b] < 1e-9) continue;
        if (isfinite(tm_age_bin_h[b + 1]))
            tm_text_printf(&cli->out, " %g-%gh", tm_age_bin_h[b], tm_age_bin_h[b + 1]);
        else
            tm_text_printf(&cli->out, " >%gh", tm_age_bin_h[b]);
        tm_text_printf(&cli->out, " %.2f", 100 * hazards->age_lost[b] / hazards->age_hours[b]);
    }
    tm_text_putc(&cli->out, '\n');
    if (lifetimes->has_hour) {
        double rate[TM_HOURS];
        int peak = 0;
        for (int h = 0; h < TM_HOURS; h++) {
            rate[h] = hazards->hour_hours[h] > 0 ? hazards->hour_lost[h] / hazards->hour_hours[h] : 0;
            if (rate[h] > rate[peak]) peak = h;
        }
        tm_text_puts(&cli->out, "By hour of the day, 0 to 23: ");
        tm_plot_sparkline(&cli->term, &cli->out, rate, TM_HOURS, TM_HOURS);
        tm_text_printf(&cli->out, "  most at %d:00 (%.2f per 100 instance-hours)\n", peak, 100 * rate[peak]);
    }
    if (all->bursts.losses > 0)
        tm_text_printf(&cli->out,
                       "Bursts (same zone, same minute): %.0f%% of preemptions came in bursts of two or more; the "
                       "largest took %.0f instances.\n",
                       100 * all->bursts.share_together, all->bursts.largest);
    if (all->bursts.losses > 0) put_burst_sizes(cli, &all->bursts);
}

static int put_load(struct tm_cli *cli, const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter,
                    struct tm_error *e)
{
    int rc = 0;
    if (!lifetimes->has_load) return 0;
    for (int idle = 0; rc == 0 && idle < 2; idle++) {
        struct tm_survival survival;
        filter.idle = idle;
        tm_survival_init(&survival);
        rc = tm_survival_estimate(lifetimes, filter, &survival, e);
        if (rc == 0)
            tm_text_printf(&cli->out, "%s %.0f of %.0f %s", idle ? "," : "Lost:", survival.lost, survival.instances,
                           idle ? "idle.\n" : "loaded");
        tm_survival_deinit(&survival);
    }
    return rc;
}

/* The curve as a plot: share that is still there, in percent. */
static int draw(struct tm_cli *cli, const char *title, const struct tm_survival *survival, struct tm_error *e)
{
    size_t n = survival->count + 1;
    double *x = tm_alloc(4 * n * sizeof *x);
    if (x == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < n; i++) {
        const struct tm_survival_step *step = i > 0 ? &survival->steps[i - 1] : NULL;
        x[i] = step != NULL ? step->age_s / 3600 : 0;
        x[n + i] = step != NULL ? 100 * step->survival : 100;
        x[2 * n + i] = step != NULL ? 100 * step->low : 100;
        x[3 * n + i] = step != NULL ? 100 * step->high : 100;
    }
    struct tm_plot plot = {.title = title,
                           .x_label = "hours since it started",
                           .y_label = "% of instances still running, with 95% confidence",
                           .x = x,
                           .y = x + n,
                           .y_low = x + 2 * n,
                           .y_high = x + 3 * n,
                           .count = n,
                           .x_end = fmax(survival->longest_s / 3600, x[n - 1] + 1e-3),
                           .y_max = 100};
    const char *svg = tm_given_text(cli, "svg");
    int rc;
    if (svg == NULL) {
        int width = cli->term.width > 0 ? cli->term.width : 80;
        int wide = width - 12 > PLOT_COLUMNS_MAX ? PLOT_COLUMNS_MAX : width - 12 < 10 ? 10 : width - 12;
        tm_text_putc(&cli->out, '\n');
        rc = tm_plot_terminal(&plot, &cli->term, (size_t)wide, PLOT_ROWS, &cli->out, e);
    } else {
        struct tm_text text;
        tm_text_init(&text, SVG_BYTES_MAX);
        rc = tm_plot_svg(&plot, &text, e);
        if (rc == 0) rc = cli->env->file_write(cli->env, svg, tm_text_string(&text), text.length, e);
        tm_text_deinit(&text);
        if (rc == 0 && !cli->quiet && !cli->json) tm_text_printf(&cli->out, "wrote %s\n", svg);
    }
    tm_free(x);
    return rc;
}

/* ---- the command ---- */

static int study_files(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_lifetimes lifetimes;
    struct tm_study study;
    struct tm_lifetime_filter filter;
    tm_lifetimes_init(&lifetimes);
    tm_study_init(&study);
    int rc = load_all(cli, &lifetimes, &filter, e);
    if (rc == 0) rc = tm_study_make(&lifetimes, filter, &study, e);
    if (rc == 0 && !cli->json) rc = put_table(cli, &lifetimes, &study, e);
    if (rc == 0 && !cli->json && !cli->quiet) {
        put_notes(cli, &lifetimes, &study);
        rc = put_load(cli, &lifetimes, filter, e);
    }
    const char *title = tm_given_text(cli, "gpu") != NULL ? tm_given_text(cli, "gpu") : "all instances";
    if (rc == 0 && (!cli->json || tm_given(cli, "svg"))) rc = draw(cli, title, &study.groups[0].survival, e);
    if (rc == 0 && cli->json) put_json(cli, &lifetimes, &study);
    tm_study_deinit(&study);
    tm_lifetimes_deinit(&lifetimes);
    return rc;
}

int tm_cmd_study(struct tm_cli *cli, struct tm_error *e)
{
    bool bands = tm_given(cli, "bands");
    bool risk = tm_given(cli, "risk");
    bool learns = tm_given(cli, "learn");
    double cap_s;
    if (bands + risk + learns + tm_given(cli, "evaluate") > 1)
        return tm_error_set(e, TM_EUSAGE, "give one of --risk, --bands, --learn and --evaluate");
    if ((bands || risk) && (cli->argument_count > 0 || tm_given(cli, "cap") || tm_given(cli, "svg")))
        return tm_error_set(e, TM_EUSAGE, "--%s reads the catalogue: it takes no files, --cap or --svg",
                            bands ? "bands" : "risk");
    if (bands || risk) return tm_study_known(cli, bands, e);
    if (cli->argument_count == 0)
        return tm_error_set(e, TM_EUSAGE,
                            "give files: tidemill study FILE... (lists of lifetimes, logs or traces), or --risk");
    int rc = read_cap(cli, &cap_s, e);
    if (rc != 0) return rc;
    if (learns) return tm_study_learn(cli, cap_s, e);
    return tm_given(cli, "evaluate") ? tm_study_evaluate(cli, cap_s, e) : study_files(cli, e);
}

const struct tm_option tm_study_options[] = {
    {.name = "gpu", .value = "NAME", .help = "only instances of this GPU (or machine type)"},
    {.name = "zone", .value = "NAME", .help = "only instances in this zone"},
    {.name = "cap",
     .value = "DURATION",
     .help = "instances of this age reached the cloud's limit; \"none\": no limit (24h in GCE's zones)"},
    {.name = "risk", .help = "no files: what is known of the risk of the catalogue's spot offers"},
    {.name = "bands", .help = "the same of offers with an interruption band alone"},
    {.name = "cloud", .value = "NAME", .help = "with --risk: only this cloud; of files: where they were recorded"},
    {.name = "region", .value = "NAME", .help = "with --risk: only this region; of files: where they were recorded"},
    {.name = "instance", .value = "NAME", .help = "with --risk: only this instance type; of files: what they record"},
    {.name = "hour", .value = "N", .help = "with --risk: of instances that start at this hour of the day, UTC (any)"},
    {.name = "learn", .help = "add what the files record to what plan, simulate, run and forecast know"},
    {.name = "evaluate", .help = "predict what the files record without knowing it, and compare"},
    {.name = "svg", .value = "OUT", .help = "write the survival curve to OUT as SVG instead of to the terminal"},
    {.name = NULL},
};
