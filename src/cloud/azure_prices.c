/* What spot VMs cost now: Azure's retail prices, which anybody may ask for. */
#include "cloud/azure_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 30000, TRIES = 3 };

/* Where prices are; NULL: a private cloud has none that we know of. */
static const char *endpoint(const struct tm_azure__cloud *c)
{
    const char *said = c->base.env->variable(c->base.env, "AZURE_RETAIL_PRICES_ENDPOINT");
    if (said != NULL && said[0] != '\0') return said;
    return strcmp(tm_arm_endpoint(c->arm), "https://management.azure.com") == 0 ? "https://prices.azure.com" : NULL;
}

bool tm_azure__has_prices(const struct tm_azure__cloud *c)
{
    return endpoint(c) != NULL;
}

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    struct tm_azure__ask *ask = context;
    (void)headers;
    tm_text_puts(url, ask->arm.url);
    return tm_text_status(url, e);
}

/* The next spot pool from ask->at on; false: there is none. */
static bool find_pool(const struct tm_azure__cloud *c, struct tm_azure__ask *ask)
{
    while (ask->at < (size_t)c->base.options.pool_count && c->base.pools[ask->at].kind != TM_INSTANCE_SPOT)
        ask->at++;
    return ask->at < (size_t)c->base.options.pool_count;
}

static int ask_price(struct tm_azure__cloud *c, struct tm_azure__ask *ask, struct tm_web_call **out, struct tm_error *e)
{
    char filter[300];
    struct tm_text url;
    (void)snprintf(filter, sizeof filter,
                   "armRegionName eq '%.60s' and armSkuName eq '%.60s' and priceType eq 'Consumption'",
                   c->options.location, c->base.pools[ask->at].type);
    tm_text_init(&url, sizeof ask->arm.url);
    tm_text_printf(&url, "%.200s/api/retail/prices?$filter=", endpoint(c));
    tm_percent_encode(filter, false, &url);
    int rc = tm_text_status(&url, e);
    (void)snprintf(ask->arm.url, sizeof ask->arm.url, "%s", tm_text_string(&url));
    tm_text_deinit(&url);
    const struct tm_web_request request = {
        .method = "GET", .deadline_ms = ASK_MS, .tries_max = TRIES, .prepare = prepare, .context = ask};
    return rc == 0 ? tm_web_begin(c->base.web, &request, out, e) : rc;
}

int tm_azure__begin_prices(struct tm_azure__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    ask->at = 0;
    if (!find_pool(c, ask)) return tm_error_set(e, TM_ENOTFOUND, "there is no spot pool");
    return ask_price(c, ask, out, e);
}

int tm_azure__take_prices(struct tm_azure__cloud *c, size_t slot, const json_t *root, struct tm_web_call **out,
                          struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    struct tm_vms *vms = &c->base.vms;
    int64_t now_ms = tm_vm_cloud__now_ms(&c->base);
    const struct tm_cloud_pool *pool = &c->base.pools[ask->at];
    double usd_h = tm_azure__read_spot_price(root, pool->type);
    if (!isnan(usd_h)) {
        struct tm_vm__price price = {.usd_h = usd_h}; /* of the location: the same in each of its zones */
        (void)snprintf(price.type, sizeof price.type, "%s", pool->type);
        (void)snprintf(price.zone, sizeof price.zone, "%s", pool->zone);
        tm_vms__priced(vms, &price, now_ms);
        for (size_t i = 0; i < vms->count; i++) {
            if (vms->instances[i].pool != (int)ask->at || strcmp(vms->instances[i].zone, price.zone) == 0) continue;
            (void)snprintf(price.zone, sizeof price.zone, "%s", vms->instances[i].zone);
            tm_vms__priced(vms, &price, now_ms);
        }
    }
    ask->at++;
    if (find_pool(c, ask) && ask_price(c, ask, out, e) == 0) return 0;
    tm_vms__all_priced(vms, now_ms);
    return 0;
}
