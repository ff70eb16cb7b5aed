/* What spot VMs cost now: Azure's retail prices, which anybody may ask for. */
#include "cloud/azure_internal.h"
#include "cloud/azure_market.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 30000, TRIES = 3 };

static const char *endpoint(const struct tm_azure__cloud *c)
{
    return tm_azure_market__origin(c->base.env, tm_arm_endpoint(c->arm));
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
    struct tm_text url;
    tm_text_init(&url, sizeof ask->arm.url);
    int rc = tm_azure_market__url(endpoint(c), c->base.pools[ask->at].type, c->options.location, 0, &url, e);
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
    double usd_h = tm_azure__read_spot_price(root, pool->type, c->options.location);
    if (!isnan(usd_h)) {
        struct tm_vm__price price = {.usd_h = usd_h}; /* of the location: the same in each of its zones */
        (void)snprintf(price.type, sizeof price.type, "%s", pool->type);
        (void)snprintf(price.zone, sizeof price.zone, "%s", pool->zone);
        tm_vms__priced(vms, &price);
        for (size_t i = 0; i < vms->count; i++) {
            if (vms->instances[i].pool != (int)ask->at || strcmp(vms->instances[i].zone, price.zone) == 0) continue;
            (void)snprintf(price.zone, sizeof price.zone, "%s", vms->instances[i].zone);
            tm_vms__priced(vms, &price);
        }
    }
    ask->at++;
    if (find_pool(c, ask) && ask_price(c, ask, out, e) == 0) return 0;
    tm_vms__all_priced(vms, now_ms);
    return 0;
}
