#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/web_tape.h"
#include "cloud/market_record.h"
#include "job/provider_vms.h"

#include <string.h>

const struct tm_option tm_trace_record_options[] = {
    {.name = "pools",
     .value = "TYPE@ZONE,...",
     .help = "which: an instance type in a zone, as p3.2xlarge@us-east-1a, g2-standard-4@us-central1-a or "
             "Standard_NC4as_T4_v3@eastus"},
    {.name = "output",
     .letter = 'o',
     .value = "FILE",
     .help = "the trace; with several pools their names go before its ending"},
    {.name = "every", .value = "DURATION", .help = "time between two rounds (5m)"},
    {.name = "for", .value = "DURATION", .help = "how long (24h); the files are whole after each round"},
    {.name = "instances", .value = "N", .help = "how many are asked about (4)"},
    {.name = "score",
     .value = "N",
     .help = "a place gives them if its score is N or more, of 10 (3): AWS's placement score, ten times Google's "
             "obtainability; without scores (Azure) always"},
    {.name = "try", .help = "of AWS: rent one each time instead, and end it at once: a minute of it is billed"},
    {.name = "image", .value = "AMI", .help = "of --try: the image to rent with"},
    TM_TAPE_OPTIONS,
    {.name = NULL},
};

static int read_options(struct tm_cli *cli, struct tm_market_pool *pools, struct tm_market_record *record,
                        struct tm_error *e)
{
    int64_t instances = 4;
    int64_t score = TM_MARKET_SCORE_USUAL;
    const char *list = tm_given_text(cli, "pools");
    const char *path = tm_given_text(cli, "output");
    if (list == NULL || path == NULL || cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE,
                            "give what to ask for and where to write it: tidemill trace record --pools "
                            "p3.2xlarge@us-east-1a -o FILE");
    int rc = tm_market_pools_read(list, path, pools, &record->pool_count, e);
    if (rc == 0) rc = tm_given_time_span(cli, "every", &record->every_ms, e);
    if (rc == 0) rc = tm_given_time_span(cli, "for", &record->for_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "instances", 1, 1000, &instances, e);
    if (rc == 0) rc = tm_given_integer(cli, "score", 1, 10, &score, e);
    record->instances = (int)instances;
    record->score = (int)score;
    record->image = tm_given(cli, "try") ? tm_given_text(cli, "image") : NULL;
    if (rc == 0 && tm_given(cli, "try") && record->image == NULL)
        rc = tm_error_set(e, TM_EUSAGE, "--try: rent with which image? give --image ami-...");
    for (size_t i = 0; rc == 0 && tm_given(cli, "try") && i < record->pool_count; i++)
        if (strcmp(pools[i].cloud, "aws") != 0)
            rc = tm_error_set(e, TM_EUSAGE, "--try: %s@%s: only AWS can be tried; leave --try out", pools[i].type,
                              pools[i].zone);
    return rc;
}

int tm_cmd_trace_record(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_market_pool pools[TM_MARKET_POOLS_MAX];
    struct tm_market_record record = {.pools = pools, .every_ms = 5 * 60000, .for_ms = 24 * 3600000};
    struct tm_jsonout json;
    struct tm_catalog catalog;
    char owner[TM_PROVIDER_OWNER_MAX];
    size_t rounds = 0;
    tm_catalog_init(&catalog);
    record.catalog = &catalog;
    tm_provider_vms_owner(cli->env, owner);
    record.owner = owner;
    int rc = read_options(cli, pools, &record, e);
    if (rc == 0) rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) rc = tm_cmd_open_tape(cli, e);
    if (rc == 0) rc = tm_market_record(cli->env, &record, &rounds, e);
    tm_catalog_deinit(&catalog);
    if (rc != 0) return rc;
    if (!cli->json) {
        tm_text_printf(&cli->out, "asked %zu times; written:\n", rounds);
        for (size_t i = 0; i < record.pool_count; i++)
            tm_text_printf(&cli->out, "  %s\n", pools[i].path);
        return 0;
    }
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_integer(&json, "rounds", (int64_t)rounds);
    tm_jsonout_list(&json, "traces");
    for (size_t i = 0; i < record.pool_count; i++) {
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "cloud", pools[i].cloud);
        tm_jsonout_string(&json, "instance", pools[i].type);
        tm_jsonout_string(&json, "zone", pools[i].zone);
        tm_jsonout_string(&json, "file", pools[i].path);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    return 0;
}
