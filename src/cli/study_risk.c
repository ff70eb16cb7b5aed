#include "cli/study_risk.h"

#include "base/jsonout.h"
#include "base/paths.h"
#include "base/table.h"
#include "base/units.h"
#include "market/catalog.h"
#include "market/risk.h"
#include "market/study.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { RECORDS_MAX = 4096 };

/* ---- what is known of offers ---- */

struct known {
    struct tm_cli *cli;
    struct tm_catalog catalog;
    struct tm_risk risk;
    struct tm_table table;
    struct tm_jsonout json;
    int hour_utc;
    size_t shown;
};

static void put_share_json(struct tm_jsonout *json, const char *key, const struct tm_risk_share *share)
{
    tm_jsonout_object(json, key);
    tm_jsonout_number(json, "middle", share->middle);
    tm_jsonout_number(json, "low", share->low);
    tm_jsonout_number(json, "high", share->high);
    tm_jsonout_end(json);
}

static void put_known_json(struct tm_jsonout *json, const struct tm_risk_query *query,
                           const struct tm_risk_answer *answer)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "cloud", query->cloud);
    tm_jsonout_string(json, "instance", query->instance);
    tm_jsonout_string(json, "gpu", query->gpu);
    tm_jsonout_string(json, "region", query->region);
    tm_jsonout_string(json, "band", tm_band_label(query->band));
    put_share_json(json, "within_1h", &answer->lost[0]);
    put_share_json(json, "within_24h", &answer->lost[TM_RISK_AGES - 1]);
    put_share_json(json, "life_h", &answer->life_h);
    tm_jsonout_number(json, "hazard_per_hour", answer->loss_per_s * 3600);
    tm_jsonout_number(json, "mean_life_h", 1 / (answer->loss_per_s * 3600));
    tm_jsonout_integer(json, "recorded_pools", (int64_t)answer->same_type);
    tm_jsonout_end(json);
}

static void put_interval(struct tm_table *table, const struct tm_risk_share *share)
{
    tm_table_add(table, "%.0f%% (%.0f-%.0f)", 100 * share->middle, 100 * share->low, 100 * share->high);
}

static void put_life(struct tm_table *table, const struct tm_risk_share *life)
{
    char texts[3][TM_UNITS_TEXT_MAX];
    const double hours[] = {life->middle, life->low, life->high};
    for (int i = 0; i < 3; i++)
        (void)snprintf(texts[i], sizeof texts[i],
                       hours[i] < 9.95 ? "%.1fh"
                       : hours[i] < 96 ? "%.0fh"
                                       : "%.0fd",
                       hours[i] < 96 ? hours[i] : hours[i] / 24);
    tm_table_add(table, "%s (%s-%s)", texts[0], texts[1], texts[2]);
}

static void show_known(struct known *known, const struct tm_risk_query *query)
{
    struct tm_risk_answer answer;
    struct tm_table *table = &known->table;
    tm_risk_ask(&known->risk, query, &answer);
    known->shown++;
    if (known->cli->json) {
        put_known_json(&known->json, query, &answer);
        return;
    }
    tm_table_add(table, "%s", tm_cloud_label(query->cloud));
    tm_table_add(table, "%s", query->instance[0] != '\0' ? query->instance : "-");
    tm_table_add(table, "%s", query->gpu[0] != '\0' ? query->gpu : "-");
    tm_table_add(table, "%s", query->region[0] != '\0' ? query->region : "-");
    tm_table_add(table, "%s", tm_band_label(query->band));
    put_interval(table, &answer.lost[0]);
    put_interval(table, &answer.lost[TM_RISK_AGES - 1]);
    put_life(table, &answer.life_h);
    tm_table_add(table, "%zu", answer.same_type);
}

static void show_offers(struct known *known, bool bands)
{
    struct tm_cli *cli = known->cli;
    const struct tm_catalog *catalog = &known->catalog;
    const struct tm_offer *before = NULL; /* one row for all zones of a region */
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *instance = &catalog->instances[offer->instance];
        bool priced = bands ? offer->band != TM_BAND_UNKNOWN : offer->spot_usd_h > 0;
        if (!priced || instance->gpu[0] == '\0' || !tm_filter_gpu_matches(cli, catalog, instance) ||
            !tm_given_matches(cli, "cloud", instance->cloud) || !tm_given_matches(cli, "region", offer->region) ||
            !tm_given_matches(cli, "instance", instance->name))
            continue;
        if (before != NULL && before->instance == offer->instance && strcmp(before->region, offer->region) == 0)
            continue;
        before = offer;
        struct tm_risk_query query = {.cloud = instance->cloud,
                                      .instance = instance->name,
                                      .gpu = instance->gpu,
                                      .gpus = instance->gpus,
                                      .region = offer->region,
                                      .zone = tm_given_text(cli, "zone"),
                                      .band = offer->band,
                                      .hour_utc = known->hour_utc};
        show_known(known, &query);
    }
}

/* What the catalogue does not have may be asked for all the same. */
static void show_asked(struct known *known)
{
    const struct tm_cli *cli = known->cli;
    const char *zone = tm_given_text(cli, "zone");
    const char *region = tm_given_text(cli, "region");
    const char *gpu = tm_given_text(cli, "gpu");
    const char *instance = tm_given_text(cli, "instance");
    char of_zone[64] = "";
    if (zone != NULL) tm_risk_region(zone, of_zone);
    struct tm_risk_query query = {.cloud = tm_given_text(cli, "cloud"),
                                  .instance = instance != NULL ? instance : "",
                                  .gpu = gpu != NULL ? gpu : "",
                                  .gpus = gpu != NULL ? 1 : 0,
                                  .region = region != NULL ? region : of_zone,
                                  .zone = zone,
                                  .band = TM_BAND_UNKNOWN,
                                  .hour_utc = known->hour_utc};
    if (query.cloud != NULL && (gpu != NULL || instance != NULL)) show_known(known, &query);
}

static int print_known(struct known *known, bool bands, struct tm_error *e)
{
    struct tm_cli *cli = known->cli;
    if (cli->json) {
        tm_jsonout_object(&known->json, NULL);
        tm_jsonout_list(&known->json, bands ? "bands" : "offers");
    }
    show_offers(known, bands);
    if (known->shown == 0 && !bands) show_asked(known);
    if (known->shown == 0 && bands)
        return tm_error_set(e, TM_ENONE,
                            "no offer with that GPU has an interruption band; import one with tidemill "
                            "catalog import --format advisor");
    if (known->shown == 0)
        return tm_error_set(e, TM_ENONE,
                            "no such offer in the catalogue; what it does not have needs --cloud and --gpu (or "
                            "--instance)");
    if (cli->json) {
        tm_jsonout_end(&known->json);
        tm_jsonout_end(&known->json);
        return 0;
    }
    int rc = tm_table_print(&known->table, &cli->term, &cli->out, e);
    if (rc == 0 && !cli->quiet)
        tm_text_puts(&cli->out,
                     "\nShares of instances preempted within an age, and instance-hours per preemption, each with the "
                     "interval that holds 80%.\nPOOLS: recorded ones of that cloud and GPU; where there are few the "
                     "intervals are wide. Add your own with tidemill study FILE... --learn.\n");
    return rc;
}

int tm_study_known(struct tm_cli *cli, bool bands, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"INFRA", TM_LEFT, 0},       {"INSTANCE", TM_LEFT, 0}, {"GPU", TM_LEFT, 0},
        {"REGION", TM_LEFT, 0},      {"BAND", TM_RIGHT, 2},    {"WITHIN 1h", TM_RIGHT, 0},
        {"WITHIN 24h", TM_RIGHT, 0}, {"LIFE", TM_RIGHT, 0},    {"POOLS", TM_RIGHT, 1},
    };
    struct known *known = tm_arena_alloc(&cli->arena, sizeof *known);
    if (known == NULL) return tm_error_nomem(e);
    int64_t hour = -1;
    *known = (struct known){.cli = cli};
    tm_catalog_init(&known->catalog);
    tm_risk_init(&known->risk);
    tm_table_init(&known->table, columns, sizeof columns / sizeof *columns);
    tm_jsonout_init(&known->json, &cli->out);
    int rc = tm_given_integer(cli, "hour", 0, 23, &hour, e);
    known->hour_utc = (int)hour;
    if (rc == 0) rc = tm_catalog_load(cli->env, &known->catalog, e);
    if (rc == 0) rc = tm_risk_load(cli->env, &known->risk, e);
    if (rc == 0) rc = print_known(known, bands, e);
    tm_table_deinit(&known->table);
    tm_risk_deinit(&known->risk);
    tm_catalog_deinit(&known->catalog);
    return rc;
}

/* ---- what a file is a record of ---- */

struct record {
    struct tm_risk_pool pool; /* strings in the command's arena */
    const char *file;
    double lost[2]; /* share preempted within 1 h and 24 h (Kaplan-Meier); NaN: nobody lived that long */
};

/* Does a name stand in the text, with nothing of a word around it? */
static bool stands_in(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = text; *at != '\0'; at++) {
        if (strncasecmp(at, name, length) != 0) continue;
        bool before = at == text || !isalnum((unsigned char)at[-1]);
        bool after =
            !isalnum((unsigned char)at[length]) || (at[length] == 'x' && isdigit((unsigned char)at[length + 1]));
        if (before && after) return true;
    }
    return false;
}

static bool begins_region(const char *text)
{
    static const char *const parts[] = {"us-",        "eu-",           "ap-",           "ca-",    "sa-",     "me-",
                                        "af-",        "il-",           "mx-",           "cn-",    "europe-", "asia-",
                                        "australia-", "northamerica-", "southamerica-", "africa-"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strncmp(text, parts[i], strlen(parts[i])) == 0) return true;
    return false;
}

/* The length of a zone that begins here, as AWS (us-east-1a) or GCE (us-central1-c) writes them; 0: none. */
static size_t zone_at(const char *text)
{
    size_t at = 0;
    int words = 0;
    while (isalpha((unsigned char)text[at])) {
        while (isalpha((unsigned char)text[at]))
            at++;
        words++;
        if (text[at] != '-') break;
        if (words >= 2 && isdigit((unsigned char)text[at + 1])) { /* us-east-1a */
            at += 2;
            return islower((unsigned char)text[at]) && !isalnum((unsigned char)text[at + 1]) ? at + 1 : 0;
        }
        at++;
    }
    if (words < 2 || !isdigit((unsigned char)text[at])) return 0; /* us-central1-c */
    while (isdigit((unsigned char)text[at]))
        at++;
    bool ends = text[at] == '-' && islower((unsigned char)text[at + 1]) && !isalnum((unsigned char)text[at + 2]);
    return ends ? at + 2 : 0;
}

static const char *zone_in(struct tm_cli *cli, const char *name)
{
    for (const char *at = name; *at != '\0'; at++) {
        if (at != name && isalnum((unsigned char)at[-1])) continue;
        size_t length = begins_region(at) ? zone_at(at) : 0;
        if (length > 0) return tm_arena_strndup(&cli->arena, at, length);
    }
    return "";
}

static const char *cloud_of(const char *zone, const char *file)
{
    static const char *const clouds[] = {"aws", "gcp", "azure", "lambda"};
    size_t length = strlen(zone);
    for (size_t i = 0; i < sizeof clouds / sizeof *clouds; i++)
        if (stands_in(file, clouds[i])) return clouds[i];
    if (length > 3 && zone[length - 2] == '-') return "gcp";
    return length > 3 && isdigit((unsigned char)zone[length - 2]) ? "aws" : "";
}

/* A type that AWS may have had: "r5.16xlarge" of "aws-r5.16xlarge-us-east-1b.json"; "": none. */
static const char *aws_type_in(struct tm_cli *cli, const char *name)
{
    for (const char *at = name; *at != '\0'; at += strcspn(at, "-_") + (at[strcspn(at, "-_")] != '\0')) {
        size_t length = strcspn(at, "-_");
        const char *dot = memchr(at, '.', length);
        if (dot == NULL || dot == at || length < 7) continue;
        bool large = strncmp(at + length - 5, "large", 5) == 0 || strncmp(at + length - 5, "metal", 5) == 0;
        if (large) return tm_arena_strndup(&cli->arena, at, length);
    }
    return "";
}

/* The type by what the record says, or else the options, or else the file's name. */
static void find_type(struct tm_cli *cli, const struct tm_catalog *catalog, const char *type, const char *file,
                      struct tm_risk_pool *pool)
{
    const struct tm_instance_type *best = NULL;
    const char *instance = tm_given_text(cli, "instance");
    const char *gpu = tm_given_text(cli, "gpu");
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *one = &catalog->instances[i];
        bool is = type[0] != '\0'    ? strcasecmp(one->name, type) == 0
                  : instance != NULL ? strcasecmp(one->name, instance) == 0
                                     : stands_in(file, one->name);
        if (is && (best == NULL || strlen(one->name) > strlen(best->name))) best = one;
    }
    pool->instance = best != NULL ? best->name : type[0] != '\0' ? type : instance != NULL ? instance : "";
    pool->gpu = best != NULL ? best->gpu : "";
    pool->gpus = best != NULL ? best->gpus : 0;
    if (best != NULL && pool->cloud[0] == '\0') pool->cloud = best->cloud;
    if (best != NULL) return;
    const char *name = type[0] != '\0' ? type : gpu;
    const struct tm_gpu *known = name != NULL ? tm_catalog_gpu(catalog, name) : NULL;
    for (size_t i = 0; name == NULL && known == NULL && i < catalog->gpu_count; i++)
        if (stands_in(file, catalog->gpus[i].name)) known = &catalog->gpus[i];
    if (known == NULL && pool->instance[0] == '\0') pool->instance = aws_type_in(cli, file);
    if (known == NULL) return;
    pool->gpu = known->name;
    pool->gpus = 1;
    if (type[0] != '\0') pool->instance = "";
}

/* What the options say must be what the record says, where it says something. */
static int check_options(struct tm_cli *cli, const struct tm_catalog *catalog, const char *type,
                         const struct record *record, struct tm_error *e)
{
    const char *instance = tm_given_text(cli, "instance"), *cloud = tm_given_text(cli, "cloud");
    const struct tm_risk_pool *pool = &record->pool;
    const char *sold_by = NULL;
    if (instance != NULL && type[0] != '\0' && strcasecmp(instance, type) != 0)
        return tm_error_set(e, TM_EUSAGE, "%s was recorded of %s, and --instance says %s: leave it out", record->file,
                            type, instance);
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *one = &catalog->instances[i];
        if (cloud == NULL || strcasecmp(one->name, pool->instance) != 0) continue;
        if (strcasecmp(one->cloud, cloud) == 0) return 0;
        sold_by = one->cloud;
    }
    if (sold_by == NULL) return 0;
    return tm_error_set(e, TM_EUSAGE, "%s: %s is sold by %s, and --cloud says %s: leave it out", record->file,
                        pool->instance, sold_by, cloud);
}

static int describe(struct tm_cli *cli, const struct tm_catalog *catalog, const char *type, const char *zone,
                    struct record *record, struct tm_error *e)
{
    struct tm_risk_pool *pool = &record->pool;
    const char *base = tm_path_base(record->file);
    const char *cloud = tm_given_text(cli, "cloud");
    const char *region = tm_given_text(cli, "region");
    char of_zone[64] = "";
    pool->zone = strcmp(zone, base) != 0 ? zone : tm_given_text(cli, "zone");
    if (pool->zone == NULL) pool->zone = zone_in(cli, base);
    if (pool->zone != NULL) tm_risk_region(pool->zone, of_zone);
    pool->region = region != NULL ? region : tm_arena_strdup(&cli->arena, of_zone);
    if (pool->zone == NULL || pool->region == NULL) return tm_error_nomem(e);
    pool->cloud = cloud != NULL ? cloud : cloud_of(pool->zone, base);
    pool->campaign = "";
    find_type(cli, catalog, type, base, pool);
    if (pool->instance == NULL) return tm_error_nomem(e);
    int rc = check_options(cli, catalog, type, record, e);
    if (rc != 0) return rc;
    pool->instance = tm_arena_strdup(&cli->arena, pool->instance);
    pool->zone = tm_arena_strdup(&cli->arena, pool->zone);
    return pool->instance != NULL && pool->zone != NULL ? 0 : tm_error_nomem(e);
}

struct records {
    struct record *list; /* in the arena */
    size_t count;
};

static void take_group(const struct tm_study_group *group, struct record *record)
{
    struct tm_risk_pool *pool = &record->pool;
    pool->instances = group->survival.instances;
    memcpy(pool->age_lost, group->hazards.age_lost, sizeof pool->age_lost);
    memcpy(pool->age_hours, group->hazards.age_hours, sizeof pool->age_hours);
    memcpy(pool->hour_lost, group->hazards.hour_lost, sizeof pool->hour_lost);
    memcpy(pool->hour_hours, group->hazards.hour_hours, sizeof pool->hour_hours);
    record->lost[0] = tm_survival_lost_by(&group->survival, 3600, NULL, NULL);
    record->lost[1] = tm_survival_lost_by(&group->survival, 24 * 3600, NULL, NULL);
}

static int zone_of_type(const struct tm_lifetimes *lifetimes, int type)
{
    for (size_t i = 0; i < lifetimes->count; i++)
        if (lifetimes->records[i].type == type) return lifetimes->records[i].zone;
    return 0;
}

static int take_records(struct tm_cli *cli, const struct tm_catalog *catalog, const char *file,
                        const struct tm_lifetimes *lifetimes, const struct tm_study *study, struct records *out,
                        struct tm_error *e)
{
    for (size_t i = 0; i < study->count; i++) {
        const struct tm_study_group *group = &study->groups[i];
        int type = group->filter.type;
        bool has_zones = i + 1 < study->count && group->filter.zone < 0 && study->groups[i + 1].filter.type == type &&
                         study->groups[i + 1].filter.zone >= 0;
        if (type < 0 || has_zones) continue;
        if (out->count == RECORDS_MAX)
            return tm_error_set(e, TM_ELIMIT, "more than %d types and zones in the files: give fewer at a time",
                                RECORDS_MAX);
        int zone = group->filter.zone >= 0 ? group->filter.zone : zone_of_type(lifetimes, type);
        struct record *record = &out->list[out->count];
        *record = (struct record){.file = file};
        int rc = describe(cli, catalog, lifetimes->types.names[type], lifetimes->zones.names[zone], record, e);
        if (rc != 0) return rc;
        take_group(group, record);
        out->count++;
    }
    return 0;
}

static int read_records(struct tm_cli *cli, const struct tm_catalog *catalog, double cap_s, struct records *out,
                        struct tm_error *e)
{
    int rc = 0;
    out->list = tm_arena_alloc(&cli->arena, RECORDS_MAX * sizeof *out->list);
    if (out->list == NULL) return tm_error_nomem(e);
    for (size_t i = 0; rc == 0 && i < cli->argument_count; i++) {
        struct tm_lifetimes lifetimes;
        struct tm_study study;
        tm_lifetimes_init(&lifetimes);
        tm_study_init(&study);
        rc = tm_lifetimes_load(cli->env, cli->arguments[i], cap_s, &lifetimes, e);
        if (rc == 0) rc = tm_study_make(&lifetimes, (struct tm_lifetime_filter){-1, -1, -1}, &study, e);
        if (rc == 0) rc = take_records(cli, catalog, cli->arguments[i], &lifetimes, &study, out, e);
        tm_study_deinit(&study);
        tm_lifetimes_deinit(&lifetimes);
    }
    return rc;
}

/* ---- learning ---- */

static int learn(struct tm_cli *cli, const struct records *records, struct tm_error *e)
{
    struct tm_risk_pool *pools = tm_arena_alloc(&cli->arena, (records->count + 1) * sizeof *pools);
    double instances = 0;
    double lost = 0;
    if (pools == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < records->count; i++) {
        const struct tm_risk_pool *pool = &records->list[i].pool;
        if (pool->cloud[0] == '\0' || (pool->instance[0] == '\0' && pool->gpu[0] == '\0'))
            return tm_error_set(e, TM_EUSAGE,
                                "%s: what is it a record of? Say it with --cloud and --instance (or --gpu), and --zone "
                                "if you know it: --cloud aws --instance p3.2xlarge --zone us-east-1a",
                                records->list[i].file);
        pools[i] = *pool;
        instances += pool->instances;
        for (int b = 0; b < TM_AGE_BINS; b++)
            lost += pool->age_lost[b];
    }
    int rc = tm_risk_learn(cli->env, pools, records->count, e);
    if (rc != 0) return rc;
    if (cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_integer(&json, "pools", (int64_t)records->count);
        tm_jsonout_number(&json, "instances", instances);
        tm_jsonout_number(&json, "preempted", lost);
        tm_jsonout_end(&json);
    } else if (!cli->quiet) {
        for (size_t i = 0; i < records->count; i++) {
            const struct tm_risk_pool *pool = &pools[i];
            tm_text_printf(&cli->out, "learned %s %s %s: %.0f instances\n", pool->cloud,
                           pool->instance[0] != '\0' ? pool->instance : pool->gpu,
                           pool->zone[0] != '\0' ? pool->zone : "(zone not known)", pool->instances);
        }
    }
    return 0;
}

int tm_study_learn(struct tm_cli *cli, double cap_s, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct records records = {0};
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) rc = read_records(cli, &catalog, cap_s, &records, e);
    if (rc == 0) rc = learn(cli, &records, e);
    tm_catalog_deinit(&catalog);
    return rc;
}

/* ---- trying predictions ---- */

struct trial {
    struct tm_risk_share predicted[2];
    bool held[2];
};

static const size_t trial_ages[2] = {0, TM_RISK_AGES - 1};

static int try_record(const struct tm_risk *risk, const struct record *record, struct trial *out, struct tm_error *e)
{
    const struct tm_risk_pool *pool = &record->pool;
    struct tm_risk_answer answer;
    struct tm_risk rest;
    /* Bands of today say nothing of a record of then; every type of AWS that was recorded was in the top one. */
    struct tm_risk_query query = {.cloud = pool->cloud,
                                  .instance = pool->instance,
                                  .gpu = pool->gpu,
                                  .gpus = pool->gpus,
                                  .region = pool->region,
                                  .zone = pool->zone,
                                  .campaign = pool->campaign,
                                  .band = strcmp(pool->cloud, "aws") == 0 ? 4 : TM_BAND_UNKNOWN,
                                  .hour_utc = -1};
    tm_risk_init(&rest);
    int rc = tm_risk_without(risk, pool, false, &rest, e);
    if (rc == 0) tm_risk_ask(&rest, &query, &answer);
    for (int a = 0; rc == 0 && a < 2; a++) {
        double half = 0.5 / fmax(pool->instances, 1);
        out->predicted[a] = tm_risk_recorded(&answer, trial_ages[a], pool->instances);
        out->held[a] =
            record->lost[a] >= out->predicted[a].low - half && record->lost[a] <= out->predicted[a].high + half;
    }
    tm_risk_deinit(&rest);
    return rc;
}

struct held {
    double held[2], tried[2], error[2];
};

static void put_trial_json(struct tm_jsonout *json, const struct record *record, const struct trial *trial)
{
    static const char *const keys[] = {"within_1h", "within_24h"};
    const struct tm_risk_pool *pool = &record->pool;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "file", record->file);
    tm_jsonout_string(json, "cloud", pool->cloud);
    tm_jsonout_string(json, "instance", pool->instance);
    tm_jsonout_string(json, "gpu", pool->gpu);
    tm_jsonout_string(json, "zone", pool->zone);
    tm_jsonout_number(json, "instances", pool->instances);
    for (int a = 0; a < 2; a++) {
        tm_jsonout_object(json, keys[a]);
        tm_jsonout_number(json, "recorded", record->lost[a]);
        tm_jsonout_number(json, "predicted", trial->predicted[a].middle);
        tm_jsonout_number(json, "low", trial->predicted[a].low);
        tm_jsonout_number(json, "high", trial->predicted[a].high);
        tm_jsonout_bool(json, "in80", trial->held[a]);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void add_trial(struct tm_table *table, const struct record *record, const struct trial *trial)
{
    const struct tm_risk_pool *pool = &record->pool;
    tm_table_add(table, "%s", pool->cloud[0] != '\0' ? tm_cloud_label(pool->cloud) : "-");
    tm_table_add(table, "%s", pool->instance[0] != '\0' ? pool->instance : pool->gpu[0] != '\0' ? pool->gpu : "-");
    tm_table_add(table, "%s", pool->zone[0] != '\0' ? pool->zone : "-");
    tm_table_add(table, "%.0f", pool->instances);
    for (int a = 0; a < 2; a++) {
        if (isnan(record->lost[a]))
            tm_table_add(table, "-");
        else
            tm_table_add(table, "%.0f%%", 100 * record->lost[a]);
        put_interval(table, &trial->predicted[a]);
        tm_table_add(table, "%s", isnan(record->lost[a]) ? "-" : trial->held[a] ? "yes" : "no");
    }
}

static void put_held(struct tm_cli *cli, struct tm_jsonout *json, const struct held *held)
{
    static const char *const ages[] = {"1h", "24h"};
    if (cli->json) tm_jsonout_object(json, "overall");
    for (int a = 0; a < 2; a++) {
        double share = held->tried[a] > 0 ? 100 * held->held[a] / held->tried[a] : NAN;
        double error = held->tried[a] > 0 ? 100 * held->error[a] / held->tried[a] : NAN;
        if (cli->json) {
            tm_jsonout_object(json, ages[a]);
            tm_jsonout_number(json, "pools", held->tried[a]);
            tm_jsonout_number(json, "in80_percent", share);
            tm_jsonout_number(json, "mean_error_points", error);
            tm_jsonout_end(json);
        } else if (!cli->quiet) {
            tm_text_printf(&cli->out,
                           "%sWithin %s: 80%% intervals hold %.0f%% of %.0f pools; mean error %.0f points.\n",
                           a == 0 ? "\n" : "", ages[a], share, held->tried[a], error);
        }
    }
    if (cli->json) tm_jsonout_end(json);
}

static int evaluate(struct tm_cli *cli, const struct tm_risk *risk, const struct records *records, struct tm_error *e)
{
    static const struct tm_column columns[] = {{"INFRA", TM_LEFT, 0},  {"TYPE", TM_LEFT, 0}, {"ZONE", TM_LEFT, 0},
                                               {"N", TM_RIGHT, 1},     {"1h", TM_RIGHT, 0},  {"PREDICTED", TM_RIGHT, 0},
                                               {"IN 80%", TM_LEFT, 0}, {"24h", TM_RIGHT, 0}, {"PREDICTED", TM_RIGHT, 0},
                                               {"IN 80%", TM_LEFT, 0}};
    struct tm_table table;
    struct tm_jsonout json;
    struct held held = {0};
    int rc = 0;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    tm_jsonout_init(&json, &cli->out);
    if (cli->json) {
        tm_jsonout_object(&json, NULL);
        tm_jsonout_list(&json, "pools");
    }
    for (size_t i = 0; rc == 0 && i < records->count; i++) {
        const struct record *record = &records->list[i];
        struct trial trial;
        rc = try_record(risk, record, &trial, e);
        for (int a = 0; rc == 0 && a < 2; a++) {
            if (isnan(record->lost[a]) || record->pool.instances < 10) continue; /* a few instances tell nothing */
            held.tried[a]++;
            held.held[a] += trial.held[a];
            held.error[a] += fabs(record->lost[a] - trial.predicted[a].middle);
        }
        if (rc == 0 && cli->json) put_trial_json(&json, record, &trial);
        if (rc == 0 && !cli->json) add_trial(&table, record, &trial);
    }
    if (rc == 0 && cli->json) tm_jsonout_end(&json);
    if (rc == 0 && !cli->json) rc = tm_table_print(&table, &cli->term, &cli->out, e);
    if (rc == 0) put_held(cli, &json, &held);
    if (rc == 0 && cli->json) tm_jsonout_end(&json);
    tm_table_deinit(&table);
    return rc;
}

int tm_study_evaluate(struct tm_cli *cli, double cap_s, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_risk risk;
    struct records records = {0};
    tm_catalog_init(&catalog);
    tm_risk_init(&risk);
    int rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) rc = tm_risk_load(cli->env, &risk, e);
    if (rc == 0) rc = read_records(cli, &catalog, cap_s, &records, e);
    if (rc == 0) rc = evaluate(cli, &risk, &records, e);
    tm_risk_deinit(&risk);
    tm_catalog_deinit(&catalog);
    return rc;
}
