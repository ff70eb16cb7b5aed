#include "cloud/aws_market.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/log.h"
#include "base/number.h"
#include "cloud/aws_beside.h"
#include "cloud/rented.h"

#include <stdio.h>
#include <string.h>

enum { ARENA_MAX = 64 << 20, PAGES_MAX = 100, QUOTES_MAX = 1 << 20, ZONES_MAX = 32, REGIONS_MAX = 64 };

struct asking {
    struct tm_env *env;
    struct tm_aws *aws;
    struct tm_web *web;
    const struct tm_aws_market *market;
    struct tm_aws_quotes *out;
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

void tm_aws_quotes__deinit(struct tm_aws_quotes *quotes)
{
    tm_free(quotes->items);
    *quotes = (struct tm_aws_quotes){.items = NULL};
}

static int open_asking(struct asking *a, struct tm_error *e)
{
    int rc = tm_aws_create(a->env, a->market->region, &a->aws, e);
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

static void put_types(struct tm_ec2_call *call, const struct tm_aws_market *market)
{
    for (size_t i = 0; i < market->type_count; i++) {
        char name[48];
        (void)snprintf(name, sizeof name, "InstanceType.%zu", i + 1);
        tm_ec2__put(call, name, market->types[i]);
    }
}

/* The newest of its type and zone counts. */
static int take_price(struct asking *a, const struct tm_xml *item, struct tm_error *e)
{
    struct tm_vm__price price;
    struct tm_aws_quotes *out = a->out;
    const char *since = tm_xml_text(item, "timestamp");
    int64_t since_ms = 0;
    if (!tm_aws__read_price(item, &price) || price.zone[0] == '\0') return 0;
    if (!tm_calendar_parse(since, strlen(since), &since_ms)) since_ms = 0;
    size_t at = a->first;
    while (at < out->count &&
           (strcmp(out->items[at].type, price.type) != 0 || strcmp(out->items[at].zone, price.zone) != 0))
        at++;
    if (at < out->count && out->items[at].since_ms >= since_ms) return 0;
    if (at == out->count) {
        int rc = tm_grow((void **)&out->items, &out->capacity, at + 1, sizeof *out->items, QUOTES_MAX);
        if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "more than %d prices", QUOTES_MAX);
        out->count++;
        out->items[at] = (struct tm_aws_quote){.score = 0};
    }
    struct tm_aws_quote *quote = &out->items[at];
    copy(quote->type, sizeof quote->type, price.type);
    copy(quote->region, sizeof quote->region, a->market->region);
    copy(quote->zone, sizeof quote->zone, price.zone);
    copy(quote->zone_id, sizeof quote->zone_id, id_of(a, price.zone));
    quote->usd_h = price.usd_h;
    quote->since_ms = since_ms;
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
        put_types(&call, a->market);
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
        struct tm_aws_quote *quote = &a->out->items[i];
        if (strcmp(quote->type, type) == 0 && strcmp(quote->zone_id, zone) == 0) quote->score = (int)score;
    }
}

static int ask_scores(struct asking *a, const char *type, struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    char instances[16];
    (void)snprintf(instances, sizeof instances, "%d", a->market->instances);
    tm_ec2__init(&call, a->aws, NULL, "GetSpotPlacementScores");
    tm_ec2__put(&call, "InstanceType.1", type);
    tm_ec2__put(&call, "TargetCapacity", instances);
    tm_ec2__put(&call, "SingleAvailabilityZone", "true");
    tm_ec2__put(&call, "RegionName.1", a->market->region);
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(&call, a->web, &arena, &root, code, e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "spotPlacementScoreSet/item") : NULL;
    for (; one != NULL; one = tm_xml_again(one))
        take_score(a, type, one);
    tm_arena_deinit(&arena);
    tm_ec2__deinit(&call);
    return rc;
}

int tm_aws_market__ask(struct tm_env *env, const struct tm_aws_market *market, struct tm_aws_quotes *out,
                       struct tm_error *e)
{
    struct asking a = {.env = env, .market = market, .out = out, .first = out->count};
    struct tm_error own = {.text = ""};
    int rc = open_asking(&a, e);
    if (rc == 0) rc = ask_zones(&a, e);
    if (rc == 0) rc = ask_prices(&a, e);
    int scored = 0;
    for (size_t i = 0; rc == 0 && scored == 0 && market->instances > 0 && i < market->type_count; i++)
        scored = ask_scores(&a, market->types[i], &own);
    if (scored == -(int)TM_ENOMEM) rc = tm_error_nomem(e);
    if (scored != 0) tm_log(TM_LOG_WARN, "AWS says no placement scores: %s", own.text);
    close_asking(&a);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "spot prices of %s", market->region);
}

/* ---- trying ---- */

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

static int try_one(struct asking *a, const char *zone, const char *type, const char *image, bool *out_given,
                   struct tm_error *e)
{
    static const char *const tags[][2] = {{TM_RENTED_TAG, "trace record"}, {"Name", "tidemill trace record"}};
    const char *const words[][2] = {{"ImageId", image},
                                    {"InstanceType", type},
                                    {"MinCount", "1"},
                                    {"MaxCount", "1"},
                                    {"Placement.AvailabilityZone", zone},
                                    {"InstanceInitiatedShutdownBehavior", "terminate"},
                                    {"InstanceMarketOptions.MarketType", "spot"},
                                    {"InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time"}};
    struct tm_ec2_call call;
    char token[64];
    char code[128];
    char id[32] = "";
    (void)snprintf(token, sizeof token, "tm-try-%016llx", (unsigned long long)a->env->random_u64(a->env));
    tm_ec2__init(&call, a->aws, NULL, "RunInstances");
    tm_ec2__put(&call, "ClientToken", token);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        tm_ec2__put(&call, words[i][0], words[i][1]);
    tm_aws__put_tags(&call, "", 1, "instance", tags, 2);
    int rc = ask_one(a, &call, id, code, e);
    enum tm_vm__remedy remedy = tm_aws__remedy_of(code);
    *out_given = rc == 0 && id[0] != '\0';
    if (rc != 0 && code[0] != '\0' && (remedy == TM_VM_ELSEWHERE || remedy == TM_VM_QUOTA)) return 0;
    if (rc != 0) return rc;
    tm_ec2__init(&call, a->aws, NULL, "TerminateInstances");
    tm_ec2__put(&call, "InstanceId.1", id);
    return ask_one(a, &call, NULL, code, e);
}

int tm_aws_market__try(struct tm_env *env, const char *region, const char *zone, const char *type, const char *image,
                       bool *out_given, struct tm_error *e)
{
    const struct tm_aws_market market = {.region = region};
    struct asking a = {.env = env, .market = &market};
    int rc = open_asking(&a, e);
    if (rc == 0) rc = try_one(&a, zone, type, image, out_given, e);
    close_asking(&a);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "trying %s in %s", type, zone);
}

/* ---- live ---- */

struct regions {
    const char *names[REGIONS_MAX];
    size_t count;
};

static void add_region(struct regions *regions, const char *name)
{
    for (size_t i = 0; i < regions->count; i++)
        if (strcmp(regions->names[i], name) == 0) return;
    if (regions->count < REGIONS_MAX) regions->names[regions->count++] = name;
}

static bool is_aws(const struct tm_catalog *catalog, const struct tm_offer *offer)
{
    return strcmp(catalog->instances[offer->instance].cloud, "aws") == 0;
}

static size_t list_types(const struct tm_catalog *catalog, const char *region,
                         bool (*is_wanted)(void *context, const struct tm_offer *offer), void *context,
                         const char *types[TM_AWS_TYPES_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < catalog->offer_count && count < TM_AWS_TYPES_MAX; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const char *name = catalog->instances[offer->instance].name;
        size_t at = 0;
        if (!is_aws(catalog, offer) || strcmp(offer->region, region) != 0 || !is_wanted(context, offer)) continue;
        while (at < count && strcmp(types[at], name) != 0)
            at++;
        if (at == count) types[count++] = name;
    }
    return count;
}

int tm_aws_market_live(struct tm_env *env, struct tm_catalog *catalog,
                       bool (*is_wanted)(void *context, const struct tm_offer *offer), void *context,
                       int64_t *out_asked_ms, size_t *out_changed, struct tm_error *e)
{
    struct regions regions = {.count = 0};
    struct tm_aws_quotes quotes = {.items = NULL};
    struct tm_error own = {.text = "no offer of AWS is wanted"};
    size_t answered = 0;
    int failed = -(int)TM_EINPUT;
    int rc = 0;
    *out_asked_ms = env->now_ms(env);
    for (size_t i = 0; i < catalog->offer_count; i++)
        if (is_aws(catalog, &catalog->offers[i]) && is_wanted(context, &catalog->offers[i]))
            add_region(&regions, catalog->offers[i].region);
    for (size_t i = 0; rc == 0 && i < regions.count; i++) {
        const char *types[TM_AWS_TYPES_MAX];
        size_t count = list_types(catalog, regions.names[i], is_wanted, context, types);
        const struct tm_aws_market market = {.region = regions.names[i], .types = types, .type_count = count};
        int one = tm_aws_market__ask(env, &market, &quotes, &own);
        answered += one == 0;
        if (one == -(int)TM_ENOMEM) rc = tm_error_nomem(e);
        if (one != 0) failed = one;
        if (one != 0) tm_log(TM_LOG_WARN, "%s; the catalogue's are used there", own.text);
    }
    if (rc == 0 && answered == 0) rc = tm_error_set(e, (enum tm_code) - failed, "%s", own.text);
    if (rc == 0) rc = tm_catalog_begin_live(catalog, "aws", *out_asked_ms, e);
    size_t changed = 0;
    for (size_t i = 0; rc == 0 && i < quotes.count; i++) {
        const struct tm_aws_quote *q = &quotes.items[i];
        changed += tm_catalog_set_spot(catalog, "aws", q->type, q->region, q->zone, q->zone_id, q->usd_h);
    }
    tm_aws_quotes__deinit(&quotes);
    *out_changed = changed;
    return rc;
}
