#include "cloud/market.h"

#include "base/alloc.h"
#include "cloud/aws_market.h"
#include "cloud/azure_market.h"
#include "cloud/gcp_market.h"

#include <assert.h>
#include <string.h>

const char *const tm_market_clouds[] = {"aws", "gcp", "azure", NULL};

static int (*const askers[])(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                             struct tm_error *e) = {tm_aws_market__ask, tm_gcp_market__ask, tm_azure_market__ask};

void tm_market_quotes__deinit(struct tm_market_quotes *quotes)
{
    tm_free(quotes->items);
    *quotes = (struct tm_market_quotes){.items = NULL};
}

int tm_market_quotes__add(struct tm_market_quotes *quotes, const struct tm_market_quote *quote, struct tm_error *e)
{
    int rc = tm_grow((void **)&quotes->items, &quotes->capacity, quotes->count + 1, sizeof *quotes->items,
                     TM_MARKET_QUOTES_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "more than %d prices", TM_MARKET_QUOTES_MAX);
    quotes->items[quotes->count++] = *quote;
    return 0;
}

int tm_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                   struct tm_error *e)
{
    size_t at = 0;
    while (tm_market_clouds[at] != NULL && strcmp(tm_market_clouds[at], ask->cloud) != 0)
        at++;
    assert(tm_market_clouds[at] != NULL);
    return askers[at](env, ask, out, e);
}

/* ---- live ---- */

static bool is_wanted(const struct tm_market_live *live, const struct tm_catalog *catalog, size_t offer)
{
    const struct tm_offer *one = &catalog->offers[offer];
    return strcmp(catalog->instances[one->instance].cloud, live->cloud) == 0 && live->is_wanted(live->context, one);
}

bool tm_market_is_wanted(const struct tm_market_live *live, const struct tm_catalog *catalog)
{
    for (size_t i = 0; i < catalog->offer_count; i++)
        if (is_wanted(live, catalog, i)) return true;
    return false;
}

struct wants {
    struct tm_market_want *items; /* owned */
    size_t count, capacity;
};

/* Each type in each region once: strings of the catalogue are equal where their addresses are. */
static int list_wants(const struct tm_market_live *live, const struct tm_catalog *catalog, struct wants *out,
                      struct tm_error *e)
{
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const char *type = catalog->instances[offer->instance].name;
        size_t at = 0;
        if (!is_wanted(live, catalog, i)) continue;
        while (at < out->count && (out->items[at].type != type || out->items[at].region != offer->region))
            at++;
        if (at < out->count) continue;
        int rc = tm_grow((void **)&out->items, &out->capacity, at + 1, sizeof *out->items, TM_MARKET_WANTS_MAX);
        if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "more than %d offers to ask for", TM_MARKET_WANTS_MAX);
        out->items[out->count++] = (struct tm_market_want){.type = type, .region = offer->region, .zone = ""};
    }
    if (out->count > 0) return 0;
    return tm_error_set(e, TM_EINPUT, "no offer of %s is wanted", tm_cloud_label(live->cloud));
}

int tm_market_live(struct tm_env *env, const struct tm_market_live *live, struct tm_catalog *catalog,
                   int64_t *out_asked_ms, size_t *out_changed, struct tm_error *e)
{
    struct wants wants = {.items = NULL};
    struct tm_market_quotes quotes = {.items = NULL};
    size_t changed = 0;
    *out_asked_ms = env->now_ms(env);
    int rc = list_wants(live, catalog, &wants, e);
    const struct tm_market_ask ask = {
        .cloud = live->cloud, .wants = wants.items, .want_count = wants.count, .catalog = catalog};
    if (rc == 0) rc = tm_market__ask(env, &ask, &quotes, e);
    if (rc == 0) rc = tm_catalog_begin_live(catalog, live->cloud, *out_asked_ms, e);
    for (size_t i = 0; rc == 0 && i < quotes.count; i++) {
        const struct tm_market_quote *q = &quotes.items[i];
        changed += tm_catalog_set_spot(catalog, live->cloud, q->type, q->region, q->zone, q->zone_id, q->usd_h);
    }
    tm_market_quotes__deinit(&quotes);
    tm_free(wants.items);
    *out_changed = changed;
    return rc;
}
