#include "cli/forecast_known.h"

#include "base/jsonout.h"
#include "base/table.h"
#include "market/catalog.h"
#include "market/risk.h"

#include <math.h>
#include <strings.h>

struct left {
    double age_h, middle, low, high;
};

/* What the catalogue knows of the type completes what is asked. */
static int complete(const struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_risk_query *query,
                    struct tm_error *e)
{
    bool found = false, spot = false;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        if (strcasecmp(type->name, query->instance) != 0 || !tm_given_matches(cli, "cloud", type->cloud)) continue;
        found = true;
        spot = spot || !isnan(offer->spot_usd_h);
        query->cloud = type->cloud;
        query->instance = type->name;
        query->gpu = type->gpu;
        query->gpus = type->gpus;
        if (query->region != NULL && strcasecmp(offer->region, query->region) == 0) query->band = offer->band;
    }
    if (found && !spot)
        return tm_error_set(
            e, TM_EUSAGE,
            "--instance: %s of %s is not rented as spot, as far as the catalogue knows: nobody takes it back",
            query->instance, query->cloud);
    if (found) return 0;
    return tm_error_set(e, TM_EUSAGE,
                        "--instance: no instance type \"%.60s\" is in the catalogue; see tidemill catalog",
                        query->instance);
}

static int ask(struct tm_cli *cli, struct tm_risk_query *query, double count, struct left out[TM_RISK_AGES],
               struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_risk risk;
    struct tm_risk_answer answer;
    tm_catalog_init(&catalog);
    tm_risk_init(&risk);
    int rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) rc = tm_risk_load(cli->env, &risk, e);
    if (rc == 0) rc = complete(cli, &catalog, query, e);
    if (rc == 0) {
        tm_risk_ask(&risk, query, &answer);
        for (size_t a = 0; a < TM_RISK_AGES; a++) {
            struct tm_risk_share lost = tm_risk_recorded(&answer, a, count);
            out[a] = (struct left){.age_h = tm_age_bin_h[a + 1],
                                   .middle = count * (1 - answer.lost[a].middle),
                                   .low = floor(count * (1 - lost.high)),
                                   .high = ceil(count * (1 - lost.low))};
        }
        query->instance = tm_arena_strdup(&cli->arena, query->instance);
        if (query->instance == NULL) rc = tm_error_nomem(e);
    }
    tm_risk_deinit(&risk);
    tm_catalog_deinit(&catalog);
    return rc;
}

static int show(struct tm_cli *cli, const struct tm_risk_query *query, double count,
                const struct left left[TM_RISK_AGES], struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"AFTER", TM_RIGHT, 0}, {"LEFT OF", TM_RIGHT, 0}, {"MEDIAN", TM_RIGHT, 0}, {"10-90%", TM_RIGHT, 0}};
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t a = 0; a < TM_RISK_AGES; a++) {
        tm_table_add(&table, "%g h", left[a].age_h);
        tm_table_add(&table, "%g", count);
        tm_table_add(&table, "%.1f", left[a].middle);
        tm_table_add(&table, "%g-%g", left[a].low, left[a].high);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    if (rc == 0 && !cli->quiet && query->region == NULL)
        tm_text_puts(&cli->out, "\nOf any region, and they differ much: --region or --zone says which.");
    if (rc == 0 && !cli->quiet)
        tm_text_printf(&cli->out,
                       "\n%s instances that start together and are not replaced, by what is known of the risk of spot "
                       "(tidemill study --risk).\nWith a trace of the pool, tidemill forecast TRACE knows more.\n",
                       query->instance);
    return rc;
}

int tm_forecast_known(struct tm_cli *cli, struct tm_error *e)
{
    int64_t count = 8, hour = -1;
    struct left left[TM_RISK_AGES];
    char region[64] = "";
    struct tm_risk_query query = {.instance = tm_given_text(cli, "instance"),
                                  .region = tm_given_text(cli, "region"),
                                  .zone = tm_given_text(cli, "zone"),
                                  .band = TM_BAND_UNKNOWN};
    static const char *const of_traces[] = {"horizon",  "at",     "method",    "interval", "capacity",
                                            "backtest", "notice", "rebalance", "within"};
    if (cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE, "--instance forecasts without a trace: give one of the two");
    for (size_t i = 0; i < sizeof of_traces / sizeof *of_traces; i++) {
        if (tm_given(cli, of_traces[i]))
            return tm_error_set(e, TM_EUSAGE, "--%s is for a trace; --instance always shows 1, 3, 6, 12 and 24 hours",
                                of_traces[i]);
    }
    if (query.region == NULL && query.zone != NULL) {
        tm_risk_region(query.zone, region);
        query.region = region;
    }
    int rc = tm_given_integer(cli, "count", 1, 100000, &count, e);
    if (rc == 0) rc = tm_given_integer(cli, "hour", 0, 23, &hour, e);
    query.hour_utc = (int)hour;
    if (rc == 0) rc = ask(cli, &query, (double)count, left, e);
    if (rc != 0) return rc;
    if (!cli->json) return show(cli, &query, (double)count, left, e);
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "instance", query.instance);
    tm_jsonout_integer(&json, "count", count);
    tm_jsonout_list(&json, "left");
    for (size_t a = 0; a < TM_RISK_AGES; a++) {
        tm_jsonout_object(&json, NULL);
        tm_jsonout_number(&json, "after_h", left[a].age_h);
        tm_jsonout_number(&json, "median", left[a].middle);
        tm_jsonout_number(&json, "p10", left[a].low);
        tm_jsonout_number(&json, "p90", left[a].high);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    return 0;
}
