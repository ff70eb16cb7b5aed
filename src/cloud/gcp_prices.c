/* What spot VMs cost now, by Google's price list: page by page, and not often (tm_vm__rules). */
#include "base/log.h"
#include "cloud/gcp_internal.h"
#include "cloud/gcp_market.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int ask_page(struct tm_gcp__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    s->request = tm_gcp_market__page(c->gcp, s->page);
    return tm_gcp_begin(c->shared.web, &s->request, out, e);
}

int tm_gcp__begin_prices(struct tm_gcp__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    for (int i = 0; i < TM_CLOUD_POOLS_MAX; i++)
        tm_gcp__price_init(&c->prices[i]);
    c->slots[slot].page[0] = '\0';
    return ask_page(c, slot, out, e);
}

static const struct tm_instance_type *type_of(const struct tm_gcp__cloud *c, int pool)
{
    return tm_catalog_instance(&c->catalog, "gcp", c->shared.pools[pool].type);
}

static void take_sku(struct tm_gcp__cloud *c, const struct tm_gcp__sku *sku)
{
    for (int i = 0; i < c->shared.options.pool_count; i++) {
        const struct tm_cloud_pool *pool = &c->shared.pools[i];
        const struct tm_instance_type *type = type_of(c, i);
        char region[64];
        tm_gcp__region(pool->zone[0] != '\0' ? pool->zone : c->region, region);
        if (pool->kind == TM_INSTANCE_SPOT && type != NULL) tm_gcp__price_take(&c->prices[i], type, region, sku);
    }
}

/* The same in each zone of a region. */
static void take_price(struct tm_gcp__cloud *c, int pool, double usd_h)
{
    struct tm_vms *vms = &c->shared.vms;
    struct tm_vm__price price = {.usd_h = usd_h};
    (void)snprintf(price.type, sizeof price.type, "%s", c->shared.pools[pool].type);
    (void)snprintf(price.zone, sizeof price.zone, "%s", c->shared.pools[pool].zone);
    tm_vms__priced(vms, &price);
    for (size_t i = 0; i < vms->count; i++) {
        if (vms->instances[i].pool != pool || strcmp(vms->instances[i].zone, price.zone) == 0) continue;
        (void)snprintf(price.zone, sizeof price.zone, "%s", vms->instances[i].zone);
        tm_vms__priced(vms, &price);
    }
}

static void take_all(struct tm_gcp__cloud *c)
{
    for (int i = 0; i < c->shared.options.pool_count; i++) {
        const struct tm_instance_type *type = type_of(c, i);
        double usd_h = type != NULL ? tm_gcp__price_sum(&c->prices[i], type) : NAN;
        if (!isnan(usd_h)) take_price(c, i, usd_h);
    }
    tm_vms__all_priced(&c->shared.vms, tm_vm_cloud__now_ms(&c->shared));
}

int tm_gcp__take_prices(struct tm_gcp__cloud *c, size_t slot, const json_t *root, const char *why,
                        struct tm_web_call **out, struct tm_error *e)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    const json_t *skus = json_object_get(root, "skus");
    const char *more = json_string_value(json_object_get(root, "nextPageToken"));
    if (root == NULL) {
        tm_log(TM_LOG_WARN, "Google's price list cannot be asked for, so the bill is by the prices that were known: %s",
               why);
        tm_vms__all_priced(&c->shared.vms, tm_vm_cloud__now_ms(&c->shared));
        return 0;
    }
    for (size_t i = 0; i < json_array_size(skus); i++) {
        struct tm_gcp__sku sku;
        if (tm_gcp__read_sku(json_array_get(skus, i), &sku)) take_sku(c, &sku);
    }
    if (more != NULL && more[0] != '\0' && strlen(more) < sizeof s->page) {
        (void)snprintf(s->page, sizeof s->page, "%s", more);
        return tm_vm_cloud__go_on(&c->shared, slot, ask_page(c, slot, out, e), e);
    }
    take_all(c);
    return 0;
}
