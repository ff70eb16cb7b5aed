#include "base/alloc.h"
#include "base/calendar.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/number.h"
#include "base/plot.h"
#include "base/suggest.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/commands.h"
#include "market/catalog.h"
#include "market/import.h"
#include "market/offer_choice.h"
#include "market/price_history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ROWS_SHOWN = 40 };

static const char *const sort_names[] = {"price", "flops", "flopp", "name", NULL};
static const char *const price_names[] = {"best", "spot", "on-demand", NULL};

const struct tm_option tm_catalog_list_options[] = {
    {.name = "cloud", .value = "NAME,...", .help = "only these clouds (aws, gcp, azure, lambda)"},
    {.name = "region", .value = "NAME,...", .help = "only these regions"},
    {.name = "zone", .value = "NAME,...", .help = "only these zones"},
    {.name = "instance", .value = "NAME,...", .help = "only these instance types"},
    {.name = "gpu", .value = "NAME,...", .help = "only instances with these GPUs; \"none\" for instances without"},
    {.name = "min-gpus", .value = "N", .help = "at least N GPUs"},
    {.name = "max-gpus", .value = "N", .help = "at most N GPUs"},
    {.name = "min-vcpus", .value = "N", .help = "at least N vCPUs"},
    {.name = "min-memory", .value = "GIB", .help = "at least GIB GiB of memory"},
    {.name = "min-gpu-memory", .value = "GIB", .help = "at least GIB GiB of memory on each GPU"},
    {.name = "min-network", .value = "GBPS", .help = "at least GBPS Gbit/s of sustained network bandwidth"},
    {.name = "spot", .help = "only what has a spot price, at that price"},
    {.name = "on-demand", .help = "only what has an on-demand price, at that price"},
    {.name = "max-price", .value = "USD", .help = "at most USD dollars per hour, at the price used"},
    {.name = "price",
     .value = "KIND",
     .help = "which price to use; best: spot where there is one",
     .choices = price_names},
    {.name = "precision", .value = "NAME", .help = "precision of TFLOPS and FLOPP", .choices = tm_precision_names},
    {.name = "sort", .value = "KEY", .help = "order of the rows (flopp)", .choices = sort_names},
    {.name = "reverse", .help = "reverse the order"},
    {.name = "all", .letter = 'a', .help = "every offer, not only the cheapest place of each instance type"},
    {.name = "limit", .value = "N", .help = "at most N rows"},
    {.name = NULL},
};

/* ---- choosing ---- */

static int read_filter(const struct tm_cli *cli, struct tm_offer_filter *filter, struct tm_error *e)
{
    int64_t limit = 0;
    int price = TM_PRICE_SPOT_OR_ON_DEMAND;
    int order = TM_OFFERS_BY_FLOPP;
    *filter = (struct tm_offer_filter){.max_gpus = INFINITY,
                                       .max_price_usd_h = INFINITY,
                                       .precision = cli->settings.precision,
                                       .reverse = tm_given(cli, "reverse"),
                                       .all = tm_given(cli, "all") || cli->json};
    int rc = tm_given_number(cli, "min-gpus", 0, 1e6, &filter->min_gpus, e);
    if (rc == 0) rc = tm_given_number(cli, "max-gpus", 0, 1e6, &filter->max_gpus, e);
    if (rc == 0) rc = tm_given_number(cli, "min-vcpus", 0, 1e6, &filter->min_vcpus, e);
    if (rc == 0) rc = tm_given_number(cli, "min-memory", 0, 1e9, &filter->min_memory_gib, e);
    if (rc == 0) rc = tm_given_number(cli, "min-gpu-memory", 0, 1e6, &filter->min_gpu_memory_gib, e);
    if (rc == 0) rc = tm_given_number(cli, "min-network", 0, 1e9, &filter->min_network_gbps, e);
    if (rc == 0) rc = tm_given_number(cli, "max-price", 0, 1e9, &filter->max_price_usd_h, e);
    if (rc == 0) rc = tm_given_integer(cli, "limit", 1, 1000000, &limit, e);
    if (rc == 0) rc = tm_given_choice(cli, "price", &price, e);
    if (rc == 0) rc = tm_given_choice(cli, "precision", &filter->precision, e);
    if (rc == 0) rc = tm_given_choice(cli, "sort", &order, e);
    if (rc == 0 && tm_given(cli, "spot") && tm_given(cli, "on-demand"))
        rc = tm_error_set(e, TM_EUSAGE, "--spot and --on-demand cannot be used together");
    if (rc == 0 && tm_given(cli, "price") && (tm_given(cli, "spot") || tm_given(cli, "on-demand")))
        rc = tm_error_set(e, TM_EUSAGE, "--price cannot be used with --spot or --on-demand: give one of them");
    if (tm_given(cli, "spot")) price = TM_PRICE_SPOT;
    if (tm_given(cli, "on-demand")) price = TM_PRICE_ON_DEMAND;
    filter->price = (enum tm_price_kind)price;
    filter->order = (enum tm_offer_order)order;
    filter->limit = (size_t)limit;
    return rc;
}

static bool cloud_matches(const struct tm_cli *cli, const char *cloud)
{
    if (tm_given(cli, "cloud")) return tm_given_matches(cli, "cloud", cloud);
    const struct tm_strings *clouds = &cli->settings.clouds;
    for (size_t i = 0; i < clouds->count; i++) {
        if (strcasecmp(clouds->items[i], cloud) == 0) return true;
    }
    return clouds->count == 0;
}

/* By any of its names. */
/* NAME or NAME:COUNT, a GPU and how many of them an instance has. */
static bool gpu_word_matches(const struct tm_catalog *catalog, const char *word,
                             const struct tm_instance_type *instance)
{
    char name[64];
    int64_t count = 0;
    const char *colon = strchr(word, ':');
    size_t length = colon != NULL ? (size_t)(colon - word) : strlen(word);
    if (colon != NULL && (!tm_number_i64(colon + 1, strlen(colon + 1), &count) || (double)count != instance->gpus))
        return false;
    (void)snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), word);
    if (instance->gpu[0] == '\0') return strcasecmp(name, "none") == 0;
    const struct tm_gpu *gpu = tm_catalog_gpu(catalog, instance->gpu);
    return strcasecmp(name, instance->gpu) == 0 || (gpu != NULL && gpu == tm_catalog_gpu(catalog, name));
}

bool tm_filter_gpu_matches(const struct tm_cli *cli, const struct tm_catalog *catalog,
                           const struct tm_instance_type *instance)
{
    bool any = false;
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, "gpu") != 0) continue;
        any = true;
        for (const char *at = cli->given[i].value; *at != '\0';) {
            char word[64];
            size_t length = strcspn(at, ",");
            (void)snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), at);
            if (gpu_word_matches(catalog, word, instance)) return true;
            at += length + (at[length] == ',');
        }
    }
    return !any;
}

/* What the words of the options say. */
struct words {
    const struct tm_cli *cli;
    const struct tm_catalog *catalog;
};

static bool allows(const void *context, const struct tm_instance_type *instance, const struct tm_offer *offer)
{
    const struct words *words = context;
    const struct tm_cli *cli = words->cli;
    return cloud_matches(cli, instance->cloud) && tm_given_matches(cli, "region", offer->region) &&
           tm_given_matches(cli, "zone", offer->zone) && tm_given_matches(cli, "instance", instance->name) &&
           tm_filter_gpu_matches(cli, words->catalog, instance);
}

static int choose_rows(const struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_offer_filter *filter,
                       struct tm_offer_rows *out, struct tm_error *e)
{
    struct words words = {cli, catalog};
    filter->allows = allows;
    filter->context = &words;
    return tm_offers_choose(catalog, filter, out, e);
}

/* ---- showing ---- */

static void put_offer_json(struct tm_jsonout *json, const struct tm_catalog *catalog, const struct tm_offer_row *row)
{
    const struct tm_instance_type *instance = row->instance;
    const struct tm_offer *offer = row->offer;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "cloud", instance->cloud);
    tm_jsonout_string(json, "region", offer->region);
    tm_jsonout_string(json, "zone", offer->zone[0] != '\0' ? offer->zone : NULL);
    tm_jsonout_string(json, "instance", instance->name);
    tm_jsonout_string(json, "gpu", instance->gpu[0] != '\0' ? instance->gpu : NULL);
    tm_jsonout_number(json, "gpus", instance->gpus);
    tm_jsonout_number(json, "vcpus", instance->vcpus);
    tm_jsonout_number(json, "memory_gib", instance->memory_gib);
    tm_jsonout_number(json, "gpu_memory_gib", instance->gpu_memory_gib);
    tm_jsonout_number(json, "tflops", row->tflops);
    tm_jsonout_string(json, "precision", isnan(row->tflops) ? NULL : tm_precision_names[row->precision]);
    tm_jsonout_number(json, "network_gbps", instance->network_gbps);
    tm_jsonout_number(json, "price_on_demand_usd_h", offer->on_demand_usd_h);
    tm_jsonout_number(json, "price_spot_usd_h", offer->spot_usd_h);
    tm_jsonout_number(json, "flopp", row->flopp);
    tm_jsonout_string(json, "flopp_price", row->spot ? "spot" : "on-demand");
    tm_jsonout_string(json, "interruption_band", offer->band >= 0 ? tm_band_label(offer->band) : NULL);
    tm_jsonout_string(json, "source", catalog->sources[offer->source].text);
    tm_jsonout_string(json, "as_of", catalog->sources[offer->source].as_of);
    tm_jsonout_end(json);
}

static int print_json(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_offer_rows *rows,
                      struct tm_error *e)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "as_of", catalog->as_of);
    tm_jsonout_list(&json, "offers");
    for (size_t i = 0; i < rows->count; i++)
        put_offer_json(&json, catalog, &rows->rows[i]);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    return tm_text_status(&cli->out, e);
}

/* "AWS (us-east-1)", as SkyPilot's users know it; with the zone where every offer is listed. */
static void add_infra(struct tm_table *table, const struct tm_offer_row *row, bool zones)
{
    bool zone = zones && row->offer->zone[0] != '\0';
    tm_table_add(table, "%s (%s)", tm_cloud_label(row->instance->cloud), zone ? row->offer->zone : row->offer->region);
}

static void add_number(struct tm_table *table, double value, const char *format)
{
    char text[48];
    if (isnan(value)) {
        tm_table_add_colored(table, TM_DIM, "-");
        return;
    }
    (void)snprintf(text, sizeof text, format, value); /* NOLINT: the formats stand below */
    tm_table_add(table, "%s", text);
}

static enum tm_color band_color(int band)
{
    return band < 0 ? TM_DIM : band == 0 ? TM_GREEN : band < 4 ? TM_YELLOW : TM_RED;
}

static int print_table(struct tm_cli *cli, const struct tm_offer_filter *filter, const struct tm_offer_rows *rows,
                       size_t shown, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"INFRA", TM_LEFT, 0},       {"INSTANCE", TM_LEFT, 0},   {"vCPUs", TM_RIGHT, 5},
        {"Mem(GB)", TM_RIGHT, 6},    {"GPUS", TM_LEFT, 0},       {"COST ($/h)", TM_RIGHT, 0},
        {"OD ($/h)", TM_RIGHT, 4},   {"TFLOPS", TM_RIGHT, 1},    {"FLOPP (PFLOP/$)", TM_RIGHT, 0},
        {"NET (Gb/s)", TM_RIGHT, 3}, {"PREEMPTED", TM_RIGHT, 2},
    };
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < shown; i++) {
        const struct tm_offer_row *row = &rows->rows[i];
        add_infra(&table, row, filter->all);
        tm_table_add(&table, "%s%s", row->instance->name, row->spot ? " [Spot]" : "");
        add_number(&table, row->instance->vcpus, "%g");
        add_number(&table, row->instance->memory_gib, "%g");
        if (row->instance->gpu[0] != '\0')
            tm_table_add(&table, "%s:%g", row->instance->gpu, row->instance->gpus);
        else
            tm_table_add_colored(&table, TM_DIM, "-");
        tm_table_add(&table, "%.*f", row->price_usd_h < 1 ? 4 : 2, row->price_usd_h);
        add_number(&table, row->offer->on_demand_usd_h, row->offer->on_demand_usd_h < 1 ? "%.4f" : "%.2f");
        add_number(&table, row->tflops, "%.5g");
        add_number(&table, row->flopp / 1e15, "%.4g");
        add_number(&table, row->instance->network_gbps, "%g");
        tm_table_add_colored(&table, band_color(row->offer->band), "%s", tm_band_label(row->offer->band));
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

static int print_list(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_offer_filter *filter,
                      const struct tm_offer_rows *rows, struct tm_error *e)
{
    bool cut = filter->limit == 0 && !filter->all && rows->count > ROWS_SHOWN;
    size_t shown = cut ? ROWS_SHOWN : rows->count;
    int rc = print_table(cli, filter, rows, shown, e);
    if (rc != 0 || cli->quiet) return rc;
    tm_text_printf(&cli->out, "\n%zu of %zu %s; COST is the %s price; figures up to %s.\n", shown, rows->matching,
                   filter->all ? "offers" : "instance types, each at its cheapest place",
                   filter->price == TM_PRICE_SPOT        ? "spot"
                   : filter->price == TM_PRICE_ON_DEMAND ? "on-demand"
                                                         : "spot price where there is one, else the on-demand",
                   catalog->as_of);
    tm_text_printf(&cli->out,
                   "FLOPP = FLOPS / COST x 3600, in 10^15 operations per dollar, at %s precision, dense peak.\n",
                   tm_precision_names[filter->precision]);
    if (shown < rows->matching)
        tm_text_printf(&cli->out, "More rows: --limit N%s.\n", filter->all ? "" : ", or --all for every offer");
    return tm_text_status(&cli->out, e);
}

/* ---- words that name nothing ---- */

static const char *const filter_options[] = {"cloud", "region", "zone", "instance", "gpu"};

static bool is_filter(const char *option)
{
    for (size_t i = 0; i < sizeof filter_options / sizeof *filter_options; i++) {
        if (strcmp(option, filter_options[i]) == 0) return true;
    }
    return false;
}

static const char *value_of(const struct tm_catalog *catalog, const struct tm_offer *offer, const char *option)
{
    const struct tm_instance_type *instance = &catalog->instances[offer->instance];
    return strcmp(option, "cloud") == 0    ? instance->cloud
           : strcmp(option, "region") == 0 ? offer->region
           : strcmp(option, "zone") == 0   ? offer->zone
           : strcmp(option, "gpu") == 0    ? instance->gpu
                                           : instance->name;
}

/* The first word of a list, and of `T4:1` the name; false: there is none. */
static bool next_word(const char *option, const char **at, char *word, size_t size)
{
    if (**at == '\0') return false;
    size_t length = strcspn(*at, ",");
    (void)snprintf(word, size, "%.*s", (int)length, *at);
    *at += length + ((*at)[length] == ',');
    char *colon = strcmp(option, "gpu") == 0 ? strchr(word, ':') : NULL;
    if (colon != NULL) *colon = '\0';
    return true;
}

static bool offer_matches(const struct tm_catalog *catalog, const struct tm_offer *offer,
                          const struct tm_option_given *given)
{
    const char *option = given->option->name;
    const char *value = value_of(catalog, offer, option);
    char word[128];
    for (const char *at = given->value; next_word(option, &at, word, sizeof word);) {
        const struct tm_gpu *gpu = strcmp(option, "gpu") == 0 ? tm_catalog_gpu(catalog, word) : NULL;
        const char *name = gpu != NULL ? gpu->name : word;
        if (strcasecmp(name, value) == 0 || (value[0] == '\0' && strcasecmp(name, "none") == 0)) return true;
    }
    return false;
}

/* Offers every value that a filter's words may have. */
static void each_value(const struct tm_cli *cli, const struct tm_catalog *catalog, const char *option,
                       struct tm_suggest *suggest, bool *found)
{
    bool gpu = strcmp(option, "gpu") == 0;
    bool cloud = strcmp(option, "cloud") == 0;
    for (size_t i = 0; gpu && i < catalog->gpu_count; i++)
        tm_suggest_offer(suggest, catalog->gpus[i].name);
    if (gpu && (strcasecmp(suggest->word, "none") == 0 || tm_catalog_gpu(catalog, suggest->word) != NULL))
        *found = true;
    for (size_t i = 0; i < catalog->offer_count && !*found; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const char *value = value_of(catalog, offer, option);
        if (strcasecmp(value, suggest->word) == 0) *found = true;
        const char *place = catalog->instances[offer->instance].cloud;
        if (gpu || cloud || tm_given_matches(cli, "cloud", place)) tm_suggest_offer(suggest, value);
    }
}

/* Four names or so: all of them are said. */
static void put_clouds(const struct tm_catalog *catalog, struct tm_text *out)
{
    const char *seen[16];
    size_t count = 0;
    for (size_t i = 0; i < catalog->offer_count && count < sizeof seen / sizeof *seen; i++) {
        const char *cloud = catalog->instances[catalog->offers[i].instance].cloud;
        size_t k = 0;
        while (k < count && strcmp(seen[k], cloud) != 0)
            k++;
        if (k < count) continue;
        tm_text_printf(out, "%s%s", count == 0 ? "; it has " : ", ", cloud);
        seen[count++] = cloud;
    }
}

static int check_word(const struct tm_cli *cli, const struct tm_catalog *catalog, const char *option, const char *word,
                      struct tm_error *e)
{
    struct tm_suggest suggest = {.word = word};
    bool found = false;
    each_value(cli, catalog, option, &suggest, &found);
    if (found) return 0;
    struct tm_text more;
    tm_text_init(&more, 256);
    if (suggest.best != NULL)
        tm_text_printf(&more, "; did you mean %s?", suggest.best);
    else if (strcmp(option, "cloud") == 0)
        put_clouds(catalog, &more);
    int rc = tm_error_set(e, TM_EUSAGE, "--%s: nothing called \"%.40s\" in the catalogue%s", option, word,
                          tm_text_string(&more));
    tm_text_deinit(&more);
    return rc;
}

/* Zone names of AWS may mean their region (tidemill plan), so zones are not weighed. */
static bool is_weighed(const struct tm_option_given *given)
{
    return is_filter(given->option->name) && strcmp(given->option->name, "zone") != 0;
}

static bool any_offer_matches(const struct tm_catalog *catalog, const struct tm_option_given *one,
                              const struct tm_option_given *other)
{
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        if (offer_matches(catalog, offer, one) && offer_matches(catalog, offer, other)) return true;
    }
    return false;
}

void tm_filter_why_none(const struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_text *out)
{
    for (size_t i = 0; i < cli->given_count; i++) {
        const struct tm_option_given *one = &cli->given[i];
        if (!is_weighed(one) || any_offer_matches(catalog, one, one)) continue;
        tm_text_printf(out, "the catalogue has no instance type with --%s %s (tidemill catalog import adds some)",
                       one->option->name, one->value);
        return;
    }
    for (size_t i = 0; i < cli->given_count; i++) {
        for (size_t k = i + 1; k < cli->given_count; k++) {
            const struct tm_option_given *one = &cli->given[i];
            const struct tm_option_given *other = &cli->given[k];
            if (!is_weighed(one) || !is_weighed(other) || one->option == other->option) continue;
            if (any_offer_matches(catalog, one, other)) continue;
            tm_text_printf(out, "the catalogue has nothing that is both --%s %s and --%s %s", one->option->name,
                           one->value, other->option->name, other->value);
            return;
        }
    }
}

int tm_filter_check(const struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_error *e)
{
    for (size_t i = 0; i < cli->given_count; i++) {
        const char *option = cli->given[i].option->name;
        char word[128];
        for (const char *at = is_filter(option) ? cli->given[i].value : "";
             next_word(option, &at, word, sizeof word);) {
            int rc = check_word(cli, catalog, option, word, e);
            if (rc != 0) return rc;
        }
    }
    return 0;
}

static int no_offers(const struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_error *e)
{
    struct tm_text why;
    tm_text_init(&why, 512);
    tm_filter_why_none(cli, catalog, &why);
    bool known = tm_text_string(&why)[0] != '\0';
    int rc = tm_error_set(e, TM_ENONE, "no offer matches all filters%s%s", known ? ": " : "; relax one",
                          known ? tm_text_string(&why) : "");
    tm_text_deinit(&why);
    return rc;
}

static int list(struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_error *e)
{
    struct tm_offer_filter filter;
    struct tm_offer_rows rows = {0};
    int rc = read_filter(cli, &filter, e);
    if (rc == 0) rc = tm_filter_check(cli, catalog, e);
    if (rc == 0) rc = choose_rows(cli, catalog, &filter, &rows, e);
    if (rc == 0 && rows.count == 0 && !cli->json) rc = no_offers(cli, catalog, e);
    if (rc == 0) rc = cli->json ? print_json(cli, catalog, &rows, e) : print_list(cli, catalog, &filter, &rows, e);
    if (rc == 0 && rows.count == 0) cli->exit_status = tm_code_exit_status(TM_ENONE);
    tm_offer_rows_deinit(&rows);
    return rc;
}

static int with_catalog(struct tm_cli *cli, int (*use)(struct tm_cli *, const struct tm_catalog *, struct tm_error *),
                        struct tm_error *e)
{
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) rc = use(cli, &catalog, e);
    tm_catalog_deinit(&catalog);
    return rc;
}

int tm_cmd_catalog_list(struct tm_cli *cli, struct tm_error *e)
{
    if (cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE,
                            "list takes no arguments; to see one instance type: tidemill catalog show %.60s",
                            cli->arguments[0]);
    return with_catalog(cli, list, e);
}

/* ---- show ---- */

static void put_or_dash(struct tm_cli *cli, const char *label, double value, const char *unit)
{
    if (isnan(value))
        tm_text_printf(&cli->out, "  %-11s -\n", label);
    else
        tm_text_printf(&cli->out, "  %-11s %g%s%s\n", label, value, unit[0] != '\0' ? " " : "", unit);
}

static void put_gpu(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_instance_type *instance)
{
    const struct tm_gpu *gpu = instance->gpu[0] != '\0' ? tm_catalog_gpu(catalog, instance->gpu) : NULL;
    if (instance->gpu[0] != '\0') tm_text_printf(&cli->out, "  GPUs        %g x %s\n", instance->gpus, instance->gpu);
    if (instance->gpu[0] != '\0') put_or_dash(cli, "GPU memory", instance->gpu_memory_gib, "GiB each");
    if (gpu == NULL) return;
    tm_text_puts(&cli->out, "  TFLOPS      ");
    for (int p = 0; p < TM_PRECISION_COUNT; p++) {
        if (!isnan(gpu->tflops[p]))
            tm_text_printf(&cli->out, "%s %g   ", tm_precision_names[p], gpu->tflops[p] * instance->gpus);
    }
    tm_text_puts(&cli->out, "(dense peak of the instance)\n");
    put_or_dash(cli, "GPU memory", gpu->memory_gbyte_s, "GB/s each");
}

/* The last 60 changes of a zone as a sparkline. */
static void put_history(struct tm_cli *cli, const struct tm_price_history *history, size_t from, size_t to)
{
    enum { CHANGES_SHOWN = 60 };
    double values[CHANGES_SHOWN];
    char day[TM_CALENDAR_TEXT_MAX];
    size_t first = to - from > CHANGES_SHOWN ? to - CHANGES_SHOWN : from;
    for (size_t i = first; i < to; i++)
        values[i - first] = history->changes[i].usd_h;
    tm_text_printf(&cli->out, "  %-14s ", history->names.names[history->changes[from].zone]);
    tm_plot_sparkline(&cli->term, &cli->out, values, to - first, CHANGES_SHOWN);
    tm_text_printf(&cli->out, "  $%.4f on %s\n", history->changes[to - 1].usd_h,
                   tm_calendar_print_day(history->changes[to - 1].time_ms, day));
}

static int put_histories(struct tm_cli *cli, const struct tm_instance_type *instance, struct tm_error *e)
{
    struct tm_price_history history;
    tm_price_history_init(&history);
    int rc = tm_price_history_load(cli->env, &history, e);
    long number = tm_names_find(&history.names, instance->name, strlen(instance->name));
    bool any = false;
    for (size_t i = 0; rc == 0 && number >= 0 && i < history.count;) {
        size_t end = i;
        while (end < history.count && history.changes[end].instance == history.changes[i].instance &&
               history.changes[end].zone == history.changes[i].zone)
            end++;
        if (history.changes[i].instance == (uint32_t)number) {
            if (!any) tm_text_puts(&cli->out, "\nSpot price, latest changes (imported history):\n");
            any = true;
            put_history(cli, &history, i, end);
        }
        i = end;
    }
    tm_price_history_deinit(&history);
    return rc;
}

/* Each source of the prices shown, once. */
static void put_price_sources(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_offer_rows *rows)
{
    tm_text_putc(&cli->out, '\n');
    for (size_t s = 0; s < catalog->source_count; s++) {
        bool used = false;
        for (size_t i = 0; i < rows->count && !used; i++)
            used = rows->rows[i].offer->source == (int)s;
        if (used) tm_text_printf(&cli->out, "Prices: %s (%s).\n", catalog->sources[s].text, catalog->sources[s].as_of);
    }
}

static int show_instance(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_instance_type *instance,
                         struct tm_error *e)
{
    struct tm_offer_filter filter = {.max_gpus = INFINITY,
                                     .max_price_usd_h = INFINITY,
                                     .precision = cli->settings.precision,
                                     .order = TM_OFFERS_BY_PRICE,
                                     .all = true};
    int rc = tm_given_choice(cli, "precision", &filter.precision, e);
    struct tm_offer_rows all = {0};
    if (rc == 0) rc = choose_rows(cli, catalog, &filter, &all, e);
    struct tm_offer_rows own = {.rows = all.rows};
    for (size_t i = 0; rc == 0 && i < all.count; i++) {
        if (all.rows[i].instance == instance) own.rows[own.count++] = all.rows[i];
    }
    own.matching = own.count;
    if (rc == 0 && cli->json) {
        rc = print_json(cli, catalog, &own, e);
    } else if (rc == 0) {
        tm_term_put(&cli->term, &cli->out, TM_BOLD, instance->name);
        tm_text_printf(&cli->out, "  (%s)\n", instance->cloud);
        put_or_dash(cli, "vCPUs", instance->vcpus, "");
        put_or_dash(cli, "memory", instance->memory_gib, "GiB");
        put_or_dash(cli, "network", instance->network_gbps, "Gbit/s sustained");
        if (instance->burst_gbps > instance->network_gbps)
            put_or_dash(cli, "", instance->burst_gbps, "Gbit/s for a while");
        put_gpu(cli, catalog, instance);
        tm_text_printf(&cli->out, "  source      %s\n\n", catalog->sources[instance->source].text);
        rc = print_table(cli, &filter, &own, own.count, e);
        if (rc == 0) put_price_sources(cli, catalog, &own);
        if (rc == 0) rc = put_histories(cli, instance, e);
    }
    tm_offer_rows_deinit(&all);
    return rc;
}

static int show(struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = cli->arguments[0]};
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *instance = &catalog->instances[i];
        tm_suggest_offer(&suggest, instance->name);
        if (strcasecmp(instance->name, cli->arguments[0]) != 0 || !cloud_matches(cli, instance->cloud)) continue;
        return show_instance(cli, catalog, instance, e);
    }
    return tm_error_set(e, TM_ENOTFOUND, "no instance type \"%.60s\" in the catalogue%s%s%s", cli->arguments[0],
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

static int cmd_show(struct tm_cli *cli, struct tm_error *e)
{
    if (cli->argument_count != 1)
        return tm_error_set(e, TM_EUSAGE, "give one instance type: tidemill catalog show p3.2xlarge");
    return with_catalog(cli, show, e);
}

/* ---- import ---- */

static void print_import_json(struct tm_cli *cli, const struct tm_import_report *report)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_integer(&json, "files", (int64_t)report->files);
    tm_jsonout_integer(&json, "rows", (int64_t)report->rows);
    tm_jsonout_integer(&json, "kept", (int64_t)report->kept);
    tm_jsonout_integer(&json, "rejected", (int64_t)report->rejected);
    tm_jsonout_integer(&json, "warned", (int64_t)report->warned);
    tm_jsonout_integer(&json, "offers", (int64_t)report->offers);
    tm_jsonout_integer(&json, "bands", (int64_t)report->bands);
    tm_jsonout_integer(&json, "price_changes", (int64_t)report->prices);
    tm_jsonout_list(&json, "issues");
    for (size_t i = 0; i < report->issue_count; i++) {
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "file", report->issues[i].file);
        tm_jsonout_integer(&json, "line", report->issues[i].line);
        tm_jsonout_bool(&json, "rejected", report->issues[i].rejected);
        tm_jsonout_string(&json, "reason", report->issues[i].text);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static void log_issues(const struct tm_import_report *report)
{
    for (size_t i = 0; i < report->issue_count; i++) {
        const struct tm_import_issue *issue = &report->issues[i];
        char place[16] = "";
        if (issue->line > 0) (void)snprintf(place, sizeof place, ":%d", issue->line);
        tm_log(TM_LOG_WARN, "%s%s: %s%s", issue->file, place, issue->rejected ? "row skipped: " : "", issue->text);
    }
    size_t more = report->rejected + report->warned - report->issue_count;
    if (more > 0) tm_log(TM_LOG_WARN, "and %zu more rows with issues", more);
}

/* It becomes part of the catalogue's file, which has to read back. */
static bool is_cloud_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
    return length > 0 && length <= 100 && name[length] == '\0';
}

static int cmd_import(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_import_options options = {
        .cloud = tm_given_text(cli, "cloud"), .as_of = tm_given_text(cli, "as-of"), .strict = tm_given(cli, "strict")};
    int format = TM_IMPORT_AUTO;
    int64_t time_ms = 0;
    if (cli->argument_count == 0)
        return tm_error_set(e, TM_EUSAGE, "give files: tidemill catalog import --format skypilot aws.csv");
    if (options.as_of != NULL && (strlen(options.as_of) != 10 || !tm_calendar_parse(options.as_of, 10, &time_ms)))
        return tm_error_set(e, TM_EUSAGE, "--as-of: expected a date, got \"%.40s\"; write for example 2026-08-22",
                            options.as_of);
    if (options.cloud != NULL && !is_cloud_name(options.cloud))
        return tm_error_set(e, TM_EUSAGE,
                            "--cloud: expected a name of letters, digits, '-', '_' and '.', got \"%.40s\"",
                            options.cloud);
    int rc = tm_given_choice(cli, "format", &format, e);
    struct tm_import_report *report = rc == 0 ? tm_alloc(sizeof *report) : NULL;
    if (rc == 0 && report == NULL) rc = tm_error_nomem(e);
    if (rc != 0) return rc;
    options.format = (enum tm_import_format)format;
    tm_import_report_init(report);
    rc = tm_import_files(cli->env, &options, cli->arguments, cli->argument_count, report, e);
    log_issues(report);
    if (rc == 0 && cli->json)
        print_import_json(cli, report);
    else if (rc == 0)
        tm_text_printf(&cli->out,
                       "%zu files, %zu rows: %zu imported, %zu skipped, %zu already known; %zu warnings.\n"
                       "Your imported catalogue now has %zu offers, %zu interruption bands%s.\n",
                       report->files, report->rows, report->kept, report->rejected,
                       report->rows - report->kept - report->rejected, report->warned, report->offers, report->bands,
                       report->prices > 0 ? " and a price history" : "");
    tm_import_report_deinit(report);
    tm_free(report);
    return rc;
}

static const struct tm_option show_options[] = {
    {.name = "cloud", .value = "NAME", .help = "only this cloud"},
    {.name = "precision", .value = "NAME", .help = "precision of TFLOPS and FLOPP", .choices = tm_precision_names},
    {.name = NULL},
};

static const struct tm_option import_options[] = {
    {.name = "format",
     .value = "NAME",
     .help = "format of the files; auto: detected from content",
     .choices = tm_import_formats},
    {.name = "cloud", .value = "NAME", .help = "cloud of SkyPilot files, where the content does not tell"},
    {.name = "as-of", .value = "DATE", .help = "date of the figures (a date in the file name, else today)"},
    {.name = "strict", .help = "import nothing if any row is bad"},
    {.name = NULL},
};

const struct tm_command tm_catalog_subcommands[] = {
    {.name = "list",
     .summary = "same as catalog without a subcommand",
     .description = "Lists offers. Takes all options of catalog.",
     .options = tm_catalog_list_options,
     .run = tm_cmd_catalog_list},
    {.name = "show",
     .summary = "everything about one instance type",
     .arguments = "TYPE",
     .description = "Shows the hardware of an instance type, every place and price at which it is offered, and its "
                    "price history if one was imported.",
     .examples = "  tidemill catalog show p3.2xlarge\n",
     .options = show_options,
     .run = cmd_show},
    {.name = "import",
     .summary = "add catalogues, interruption bands and price histories",
     .arguments = "FILE...",
     .description = "Reads SkyPilot's catalogue CSV (GPU rows of GCP are joined with their host VM), the AWS Spot "
                    "Advisor's JSON, and price histories (CSV, also gzip'd). Rows are checked one by one: a bad row is "
                    "reported with its line and the reason and skipped; the rest is kept. The result is written to the "
                    "data folder (see tidemill config) in one piece or not at all.",
     .examples = "  tidemill catalog import --format skypilot aws.csv gcp.csv azure.csv lambda.csv\n"
                 "  tidemill catalog import --format advisor spot-advisor-data.json\n"
                 "  tidemill catalog import --format prices --as-of 2026-02-28 changes.csv.gz\n",
     .options = import_options,
     .run = cmd_import,
     .files = true},
    {.name = NULL},
};
