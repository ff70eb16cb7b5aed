#include "cloud/market_record.h"

#include "base/alloc.h"
#include "base/log.h"
#include "cloud/aws_market.h"
#include "cloud/gcp_text.h"
#include "market/trace.h"
#include "market/trace_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SOURCE_MAX = 256 };

/* ---- pools ---- */

/* Azure's types are called Standard_..., its places have no digit and letter at the end; Google's zones are
 * us-central1-a, AWS's us-east-1a. */
static const char *cloud_of(const struct tm_market_pool *pool, char region[40])
{
    size_t length = strlen(pool->zone);
    char last = length > 1 ? pool->zone[length - 1] : '\0';
    char before = length > 1 ? pool->zone[length - 2] : '\0';
    (void)snprintf(region, 40, "%s", pool->zone);
    if (strncmp(pool->type, "Standard_", 9) == 0) {
        region[strcspn(region, "-")] = '\0';
        return length > 1 ? "azure" : NULL;
    }
    if (last < 'a' || last > 'z') return NULL;
    if (before == '-' && tm_gcp__is_zone(pool->zone)) {
        region[length - 2] = '\0';
        return "gcp";
    }
    region[length - 1] = '\0';
    return before >= '0' && before <= '9' ? "aws" : NULL;
}

static int read_pool(const char *text, size_t length, struct tm_market_pool *out, struct tm_error *e)
{
    const char *at = memchr(text, '@', length);
    size_t type = at != NULL ? (size_t)(at - text) : 0;
    size_t zone = at != NULL ? length - type - 1 : 0;
    *out = (struct tm_market_pool){.path = ""};
    if (type > 0 && type < sizeof out->type && zone < sizeof out->zone) {
        (void)snprintf(out->type, sizeof out->type, "%.*s", (int)type, text);
        (void)snprintf(out->zone, sizeof out->zone, "%.*s", (int)zone, at + 1);
        out->cloud = cloud_of(out, out->region);
    }
    if (out->cloud != NULL) return 0;
    return tm_error_set(e, TM_EUSAGE,
                        "--pools: %.*s: write TYPE@ZONE, for example p3.2xlarge@us-east-1a (AWS), "
                        "g2-standard-4@us-central1-a (Google Cloud) or Standard_NC4as_T4_v3@eastus (Azure)",
                        (int)(length < 100 ? length : 100), text);
}

static void name_file(const char *path, bool alone, struct tm_market_pool *pool)
{
    const char *base = strrchr(path, '/');
    const char *dot = strrchr(base != NULL ? base : path, '.');
    size_t stem = dot != NULL ? (size_t)(dot - path) : strlen(path);
    if (alone)
        (void)snprintf(pool->path, sizeof pool->path, "%.1000s", path);
    else
        (void)snprintf(pool->path, sizeof pool->path, "%.*s-%s-%s%.20s", (int)(stem < 800 ? stem : 800), path,
                       pool->type, pool->zone, path + stem);
}

int tm_market_pools_read(const char *text, const char *path, struct tm_market_pool *out, size_t *out_count,
                         struct tm_error *e)
{
    size_t count = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (count == TM_MARKET_POOLS_MAX)
            return tm_error_set(e, TM_EUSAGE, "--pools: more than %d", TM_MARKET_POOLS_MAX);
        int rc = read_pool(at, length, &out[count], e);
        if (rc != 0) return rc;
        count++;
        at += length;
        if (*at == '\0') break;
    }
    for (size_t i = 0; i < count; i++)
        name_file(path, count == 1, &out[i]);
    *out_count = count;
    return 0;
}

/* ---- one round ---- */

struct recording {
    struct tm_env *env;
    const struct tm_market_record *record;
    struct tm_trace traces[TM_MARKET_POOLS_MAX];
    int now[TM_MARKET_POOLS_MAX];
    double price[TM_MARKET_POOLS_MAX];
    bool scored[TM_MARKET_POOLS_MAX];
};

static int add_event(struct recording *r, size_t at, int64_t time_ms, int count, double price, struct tm_error *e)
{
    struct tm_trace *trace = &r->traces[at];
    bool news = trace->event_count == 0 || count != r->now[at] || price != r->price[at];
    trace->end_ms = time_ms + r->record->every_ms;
    if (!news) return 0;
    int rc = tm_grow((void **)&trace->events, &trace->event_capacity, trace->event_count + 1, sizeof *trace->events,
                     TM_TRACE_EVENTS_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "a trace has at most %d events", TM_TRACE_EVENTS_MAX);
    trace->events[trace->event_count++] = (struct tm_trace_event){.time_ms = time_ms,
                                                                  .in = count > r->now[at] ? count - r->now[at] : 0,
                                                                  .out = count < r->now[at] ? r->now[at] - count : 0,
                                                                  .price_usd_h = price != r->price[at] ? price : NAN};
    r->now[at] = count;
    r->price[at] = price;
    return 0;
}

static int write_trace(struct recording *r, size_t at, struct tm_error *e)
{
    const struct tm_market_record *record = r->record;
    const char *path = record->pools[at].path;
    struct tm_text text;
    bool google = strcmp(record->pools[at].cloud, "gcp") == 0;
    (void)snprintf(r->traces[at].source, SOURCE_MAX, "%s, asked by tidemill trace record; %s",
                   google ? "Google Cloud" : tm_cloud_label(record->pools[at].cloud),
                   record->image != NULL     ? "one was rented each time"
                   : r->scored[at] && google ? "instances by its capacity advice"
                   : r->scored[at]           ? "instances by its placement scores"
                                             : "prices only, instances are assumed");
    tm_text_init(&text, TM_TRACE_BYTES_MAX);
    int rc = tm_trace_write(&r->traces[at], "tidemill", 0, &text, e);
    if (rc == 0) rc = r->env->file_write(r->env, path, tm_text_string(&text), text.length, e);
    tm_text_deinit(&text);
    return rc;
}

static int take_quotes(struct recording *r, size_t at, const struct tm_market_quotes *quotes, int64_t time_ms,
                       struct tm_error *e)
{
    const struct tm_market_record *record = r->record;
    const struct tm_market_pool *pool = &record->pools[at];
    for (size_t i = 0; i < quotes->count; i++) {
        const struct tm_market_quote *quote = &quotes->items[i];
        bool given = isnan(quote->score) || quote->score >= record->score;
        int rc = 0;
        if (strcmp(quote->type, pool->type) != 0 || strcmp(quote->zone, pool->zone) != 0) continue;
        r->scored[at] = r->scored[at] || !isnan(quote->score);
        const struct tm_aws_market__try what = {pool->region, pool->zone, pool->type, record->image, record->owner};
        if (record->image != NULL) rc = tm_aws_market__try(r->env, &what, &given, e);
        if (rc == 0) rc = add_event(r, at, time_ms, given ? record->instances : 0, quote->usd_h, e);
        return rc == 0 ? write_trace(r, at, e) : rc;
    }
    bool known = strcmp(pool->cloud, "gcp") != 0 || tm_catalog_instance(record->catalog, "gcp", pool->type) != NULL;
    return tm_error_set(
        e, TM_EINPUT, "%s has no spot price of %s in %s; %s", tm_cloud_label(pool->cloud), pool->type, pool->zone,
        known ? "is the type offered there?" : "the catalogue does not know what it is made of (tidemill catalog)");
}

/* All pools of one cloud. */
static int ask_cloud(struct recording *r, const char *cloud, int64_t time_ms, struct tm_error *e)
{
    const struct tm_market_record *record = r->record;
    struct tm_market_want wants[TM_MARKET_POOLS_MAX];
    struct tm_market_quotes quotes = {.items = NULL};
    struct tm_market_ask ask = {.cloud = cloud,
                                .wants = wants,
                                .catalog = record->catalog,
                                .instances = record->image == NULL ? record->instances : 0,
                                .whole = true};
    for (size_t i = 0; i < record->pool_count; i++) {
        const struct tm_market_pool *pool = &record->pools[i];
        if (strcmp(pool->cloud, cloud) == 0)
            wants[ask.want_count++] = (struct tm_market_want){pool->type, pool->region, pool->zone};
    }
    if (ask.want_count == 0) return 0;
    int rc = tm_market__ask(r->env, &ask, &quotes, e);
    for (size_t i = 0; rc == 0 && i < record->pool_count; i++)
        if (strcmp(record->pools[i].cloud, cloud) == 0) rc = take_quotes(r, i, &quotes, time_ms, e);
    tm_market_quotes__deinit(&quotes);
    return rc;
}

static int ask_all(struct recording *r, int64_t time_ms, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && tm_market_clouds[i] != NULL; i++)
        rc = ask_cloud(r, tm_market_clouds[i], time_ms, e);
    return rc;
}

static void begin(struct recording *r)
{
    for (size_t i = 0; i < r->record->pool_count; i++) {
        struct tm_trace *trace = &r->traces[i];
        tm_trace_init(trace);
        (void)snprintf(trace->instance, sizeof trace->instance, "%s", r->record->pools[i].type);
        (void)snprintf(trace->zone, sizeof trace->zone, "%s", r->record->pools[i].zone);
        trace->has_start = true;
        trace->start_utc_ms = r->env->now_ms(r->env) / 1000 * 1000;
        trace->interval_ms = r->record->every_ms;
        trace->instances_max = r->record->instances;
        r->price[i] = NAN;
    }
}

int tm_market_record(struct tm_env *env, const struct tm_market_record *record, size_t *out_rounds, struct tm_error *e)
{
    struct recording *r = tm_calloc(1, sizeof *r);
    if (r == NULL) return tm_error_nomem(e);
    r->env = env;
    r->record = record;
    begin(r);
    int64_t begin_ns = env->monotonic_ns(env);
    size_t rounds = 0;
    int rc = 0;
    for (int64_t time_ms = 0; rc == 0 && time_ms <= record->for_ms; time_ms += record->every_ms) {
        struct tm_error own = {.text = ""};
        int64_t wait_ms = time_ms - (env->monotonic_ns(env) - begin_ns) / 1000000;
        if (wait_ms > 0) env->sleep_ms(env, wait_ms);
        int one = ask_all(r, time_ms, &own);
        rounds += one == 0;
        bool fatal = one == -(int)TM_ENOMEM || one == -(int)TM_ELIMIT || (one != 0 && rounds == 0);
        if (one != 0 && !fatal) tm_log(TM_LOG_WARN, "%s; asked again in a while", own.text);
        if (fatal) rc = tm_error_set(e, (enum tm_code) - one, "%s", own.text);
        if (rc == 0 && record->told != NULL && !record->told(record->context, rounds)) break;
    }
    for (size_t i = 0; i < record->pool_count; i++)
        tm_trace_deinit(&r->traces[i]);
    tm_free(r);
    *out_rounds = rounds;
    return rc;
}
