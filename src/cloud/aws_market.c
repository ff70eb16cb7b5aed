#include "cloud/aws_market.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/log.h"
#include "base/number.h"
#include "cloud/aws_beside.h"
#include "cloud/rented.h"
#include "cloud/vms.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum { ARENA_MAX = 64 << 20, PAGES_MAX = 100, ZONES_MAX = 32, TYPES_MAX = 100, REGIONS_MAX = 64 };

struct asking {
    struct tm_env *env;
    struct tm_aws *aws;
    struct tm_web *web;
    const char *region;
    const char *types[TYPES_MAX];
    size_t type_count;
    struct tm_market_quotes *out;
    size_t first; /* of those that are added now */
    struct {
        char name[40];
        char id[24];
    } zones[ZONES_MAX];
    size_t zone_count;
};

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text);
}

static int open_asking(struct asking *a, struct tm_error *e)
{
    int rc = tm_aws_create(a->env, a->region, &a->aws, e);
    return rc == 0 ? tm_web_create(a->env, &a->web, e) : rc;
}

static void close_asking(struct asking *a)
{
    tm_web_destroy(a->web);
    tm_aws_destroy(a->aws);
}

/* ---- zones ---- */

static int ask_zones(struct asking *a, struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    tm_ec2__init(&call, a->aws, NULL, "DescribeAvailabilityZones");
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(&call, a->web, &arena, &root, code, e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "availabilityZoneInfo/item") : NULL;
    for (; one != NULL && a->zone_count < ZONES_MAX; one = tm_xml_again(one)) {
        copy(a->zones[a->zone_count].name, sizeof a->zones[0].name, tm_xml_text(one, "zoneName"));
        copy(a->zones[a->zone_count++].id, sizeof a->zones[0].id, tm_xml_text(one, "zoneId"));
    }
    tm_arena_deinit(&arena);
    tm_ec2__deinit(&call);
    return rc;
}

static const char *id_of(const struct asking *a, const char *zone)
{
    for (size_t i = 0; i < a->zone_count; i++)
        if (strcmp(a->zones[i].name, zone) == 0) return a->zones[i].id;
    return "";
}

/* ---- prices ---- */

static void put_types(struct tm_ec2_call *call, const struct asking *a)
{
    for (size_t i = 0; i < a->type_count; i++) {
        char name[48];
        (void)snprintf(name, sizeof name, "InstanceType.%zu", i + 1);
        tm_ec2__put(call, name, a->types[i]);
    }
}

/* The newest of its type and zone counts. */
static int take_price(struct asking *a, const struct tm_xml *item, struct tm_error *e)
{
    struct tm_vm__price price;
    struct tm_market_quotes *out = a->out;
    if (!tm_aws__read_price(item, &price) || price.zone[0] == '\0') return 0;
    size_t at = a->first;
    while (at < out->count &&
           (strcmp(out->items[at].type, price.type) != 0 || strcmp(out->items[at].zone, price.zone) != 0))
        at++;
    if (at < out->count && out->items[at].since_ms >= price.since_ms) return 0;
    if (at == out->count) {
        int rc = tm_market_quotes__add(out, &(struct tm_market_quote){.score = NAN}, e);
        if (rc != 0) return rc;
    }
    struct tm_market_quote *quote = &out->items[at];
    copy(quote->type, sizeof quote->type, price.type);
    copy(quote->region, sizeof quote->region, a->region);
    copy(quote->zone, sizeof quote->zone, price.zone);
    copy(quote->zone_id, sizeof quote->zone_id, id_of(a, price.zone));
    quote->usd_h = price.usd_h;
    quote->since_ms = price.since_ms;
    return 0;
}

static int ask_prices(struct asking *a, struct tm_error *e)
{
    char now[TM_CALENDAR_TEXT_MAX];
    char next[1024] = "";
    int rc = 0;
    (void)tm_calendar_print(a->env->now_ms(a->env) / 1000 * 1000, now);
    for (int page = 0; rc == 0 && page < PAGES_MAX && (page == 0 || next[0] != '\0'); page++) {
        struct tm_ec2_call call;
        struct tm_arena arena;
        struct tm_xml *root = NULL;
        char code[128];
        tm_ec2__init(&call, a->aws, NULL, "DescribeSpotPriceHistory");
        tm_ec2__put(&call, "ProductDescription.1", "Linux/UNIX");
        tm_ec2__put(&call, "StartTime", now);
        put_types(&call, a);
        if (next[0] != '\0') tm_ec2__put(&call, "NextToken", next);
        tm_arena_init(&arena, ARENA_MAX);
        rc = tm_ec2__ask(&call, a->web, &arena, &root, code, e);
        const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "spotPriceHistorySet/item") : NULL;
        for (; rc == 0 && one != NULL; one = tm_xml_again(one))
            rc = take_price(a, one, e);
        copy(next, sizeof next, rc == 0 ? tm_xml_text(root, "nextToken") : "");
        tm_arena_deinit(&arena);
        tm_ec2__deinit(&call);
    }
    return rc;
}

/* ---- scores ---- */

static void take_score(struct asking *a, const char *type, const struct tm_xml *item)
{
    const char *text = tm_xml_text(item, "score");
    const char *zone = tm_xml_text(item, "availabilityZoneId");
    int64_t score = 0;
    if (!tm_number_i64(text, strlen(text), &score) || score < 1 || score > 10) return;
    for (size_t i = a->first; i < a->out->count; i++) {
        struct tm_market_quote *quote = &a->out->items[i];
        if (strcmp(quote->type, type) == 0 && strcmp(quote->zone_id, zone) == 0) quote->score = (double)score;
    }
}

static int ask_scores(struct asking *a, const char *type, int count, struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    char instances[16];
    (void)snprintf(instances, sizeof instances, "%d", count);
    tm_ec2__init(&call, a->aws, NULL, "GetSpotPlacementScores");
    tm_ec2__put(&call, "InstanceType.1", type);
    tm_ec2__put(&call, "TargetCapacity", instances);
    tm_ec2__put(&call, "SingleAvailabilityZone", "true");
    tm_ec2__put(&call, "RegionName.1", a->region);
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(&call, a->web, &arena, &root, code, e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "spotPlacementScoreSet/item") : NULL;
    for (; one != NULL; one = tm_xml_again(one))
        take_score(a, type, one);
    tm_arena_deinit(&arena);
    tm_ec2__deinit(&call);
    return rc;
}

/* All types of one region. */
static int ask_region(struct asking *a, int instances, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    int rc = open_asking(a, e);
    if (rc == 0) rc = ask_zones(a, e);
    if (rc == 0) rc = ask_prices(a, e);
    int scored = 0;
    for (size_t i = 0; rc == 0 && scored == 0 && instances > 0 && i < a->type_count; i++)
        scored = ask_scores(a, a->types[i], instances, &own);
    if (scored == -(int)TM_ENOMEM) rc = tm_error_nomem(e);
    if (scored != 0) tm_log(TM_LOG_WARN, "AWS says no placement scores: %s", own.text);
    close_asking(a);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "spot prices of %s", a->region);
}

static void add_name(const char **names, size_t *count, size_t max, const char *name)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(names[i], name) == 0) return;
    if (*count < max) names[(*count)++] = name;
}

int tm_aws_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                       struct tm_error *e)
{
    const char *regions[REGIONS_MAX];
    size_t region_count = 0;
    size_t answered = 0;
    struct tm_error own = {.text = "no offer of AWS is wanted"};
    int failed = -(int)TM_EINPUT;
    for (size_t i = 0; i < ask->want_count; i++)
        add_name(regions, &region_count, REGIONS_MAX, ask->wants[i].region);
    for (size_t i = 0; i < region_count; i++) {
        struct asking a = {.env = env, .region = regions[i], .out = out, .first = out->count};
        for (size_t k = 0; k < ask->want_count; k++)
            if (strcmp(ask->wants[k].region, regions[i]) == 0)
                add_name(a.types, &a.type_count, TYPES_MAX, ask->wants[k].type);
        int one = ask_region(&a, ask->instances, &own);
        answered += one == 0;
        if (one != 0) failed = one;
        if (one == -(int)TM_ENOMEM || (one != 0 && ask->whole))
            return tm_error_set(e, (enum tm_code) - one, "%s", own.text);
        if (one != 0) tm_log(TM_LOG_WARN, "%s; the catalogue's are used there", own.text);
    }
    return answered > 0 ? 0 : tm_error_set(e, (enum tm_code) - failed, "%s", own.text);
}

int tm_aws_market_price(struct tm_env *env, const char *region, const char *type, const char *zone, double *out_usd_h,
                        struct tm_error *e)
{
    struct tm_market_quotes quotes = {.items = NULL};
    struct tm_aws *aws = NULL;
    double lowest = NAN;
    int rc = tm_aws_create(env, region, &aws, e);
    if (rc != 0) return rc;
    const struct tm_market_want want = {.type = type, .region = tm_aws_region(aws), .zone = zone};
    const struct tm_market_ask ask = {.cloud = "aws", .wants = &want, .want_count = 1, .whole = true};
    rc = tm_aws_market__ask(env, &ask, &quotes, e);
    for (size_t i = 0; rc == 0 && i < quotes.count; i++) {
        const struct tm_market_quote *q = &quotes.items[i];
        if (zone[0] == '\0' || strcmp(q->zone, zone) == 0 || strcmp(q->zone_id, zone) == 0)
            lowest = fmin(lowest, q->usd_h);
    }
    tm_market_quotes__deinit(&quotes);
    tm_aws_destroy(aws);
    if (rc == 0) *out_usd_h = lowest;
    return rc;
}

/* ---- trying ---- */

#define TRY_JOB "trace record"

static int ask_one(struct asking *a, struct tm_ec2_call *call, char id[32], char code[128], struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(call, a->web, &arena, &root, code, e);
    if (rc == 0 && id != NULL) copy(id, 32, tm_xml_text(root, "instancesSet/item/instanceId"));
    tm_arena_deinit(&arena);
    tm_ec2__deinit(call);
    return rc;
}

enum { TRY_LIFE_MIN = 5, TRY_TAGS = 4, TRY_DATA_MAX = 128 };

/* That this program is killed, or is not let end it, is no reason for the VM to stay: shutting down terminates it. */
static void put_try_data(struct tm_ec2_call *call)
{
    char script[TRY_DATA_MAX];
    unsigned char coded[2 * TRY_DATA_MAX];
    int length = snprintf(script, sizeof script, "#!/bin/sh\nshutdown -P +%d\n", TRY_LIFE_MIN);
    (void)EVP_EncodeBlock(coded, (const unsigned char *)script, length);
    tm_ec2__put(call, "UserData", (const char *)coded);
}

static void put_try_tags(const struct asking *a, const char *owner, struct tm_ec2_call *call)
{
    char until[TM_CALENDAR_TEXT_MAX];
    int64_t until_ms = a->env->now_ms(a->env) + (int64_t)TRY_LIFE_MIN * 60000;
    const char *const words[TRY_TAGS][2] = {{TM_RENTED_TAG, TRY_JOB},
                                            {TM_VM_TAG_OWNER, owner},
                                            {TM_VM_TAG_UNTIL, tm_calendar_print(until_ms / 1000 * 1000, until)},
                                            {"Name", "tidemill " TRY_JOB}};
    struct tm_vm__tag tags[TRY_TAGS];
    for (size_t i = 0; i < TRY_TAGS; i++) {
        tags[i].name = words[i][0];
        copy(tags[i].value, sizeof tags[i].value, words[i][1]);
    }
    tm_aws__put_tags(call, "", 1, "instance", tags, TRY_TAGS);
    tm_aws__put_tags(call, "", 2, "volume", tags, TRY_TAGS);
}

static int rent_one(struct asking *a, const struct tm_aws_market__try *what, char id[32], char code[128],
                    struct tm_error *e)
{
    const char *const words[][2] = {{"ImageId", what->image},
                                    {"InstanceType", what->type},
                                    {"MinCount", "1"},
                                    {"MaxCount", "1"},
                                    {"Placement.AvailabilityZone", what->zone},
                                    {"InstanceInitiatedShutdownBehavior", "terminate"},
                                    {"MetadataOptions.HttpTokens", "required"},
                                    {"MetadataOptions.HttpPutResponseHopLimit", "1"},
                                    {"InstanceMarketOptions.MarketType", "spot"},
                                    {"InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time"}};
    struct tm_ec2_call call;
    char token[64];
    (void)snprintf(token, sizeof token, "tm-try-%016llx", (unsigned long long)a->env->random_u64(a->env));
    tm_ec2__init(&call, a->aws, NULL, "RunInstances");
    tm_ec2__put(&call, "ClientToken", token);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        tm_ec2__put(&call, words[i][0], words[i][1]);
    put_try_tags(a, what->owner, &call);
    put_try_data(&call);
    return ask_one(a, &call, id, code, e);
}

static int end_one(struct asking *a, const char *id, struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_error own = {.text = ""};
    char code[128];
    tm_ec2__init(&call, a->aws, NULL, "TerminateInstances");
    tm_ec2__put(&call, "InstanceId.1", id);
    int rc = ask_one(a, &call, NULL, code, &own);
    if (rc == 0) return 0;
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    return tm_error_set(e, TM_EIO,
                        "%s was rented and is not ended: %.300s; it shuts itself down %d minutes after its boot, or "
                        "run `tidemill cloud clean aws --job '" TRY_JOB "'`",
                        id, own.text, (int)TRY_LIFE_MIN);
}

static int try_one(struct asking *a, const struct tm_aws_market__try *what, bool *out_given, struct tm_error *e)
{
    char code[128];
    char id[32] = "";
    int rc = rent_one(a, what, id, code, e);
    enum tm_vm__remedy remedy = tm_aws__remedy_of(code);
    *out_given = rc == 0 && id[0] != '\0';
    if (rc != 0 && code[0] != '\0' && (remedy == TM_VM_ELSEWHERE || remedy == TM_VM_QUOTA)) return 0;
    return rc == 0 ? end_one(a, id, e) : rc;
}

int tm_aws_market__try(struct tm_env *env, const struct tm_aws_market__try *what, bool *out_given, struct tm_error *e)
{
    struct asking a = {.env = env, .region = what->region};
    int rc = open_asking(&a, e);
    if (rc == 0) rc = try_one(&a, what, out_given, e);
    close_asking(&a);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "trying %s in %s", what->type, what->zone);
}
