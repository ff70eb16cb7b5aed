/* Prices of now, laid over the catalogue's. */
#include "base/calendar.h"
#include "market/catalog.h"

#include <stdio.h>
#include <string.h>

static void name_source(const char *cloud, char out[64])
{
    (void)snprintf(out, 64, "live-%.40s", cloud);
}

int tm_catalog_begin_live(struct tm_catalog *catalog, const char *cloud, int64_t asked_ms, struct tm_error *e)
{
    char name[64];
    char at[TM_CALENDAR_TEXT_MAX];
    char text[160];
    int source = 0;
    name_source(cloud, name);
    (void)tm_calendar_print(asked_ms / 1000 * 1000, at);
    (void)snprintf(text, sizeof text, "spot prices that %s was asked for at %s", cloud, at);
    at[strcspn(at, "T")] = '\0';
    return tm_catalog__add_source(catalog, name, at, text, &source, e);
}

size_t tm_catalog_set_spot(struct tm_catalog *catalog, const char *cloud, const char *instance, const char *region,
                           const char *zone, const char *zone_id, double usd_h)
{
    char name[64];
    int live = -1;
    size_t changed = 0;
    name_source(cloud, name);
    for (size_t i = 0; i < catalog->source_count; i++)
        if (strcmp(catalog->sources[i].name, name) == 0) live = (int)i;
    for (size_t i = 0; live >= 0 && i < catalog->offer_count; i++) {
        struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        bool whole = offer->zone[0] == '\0';
        if (strcmp(type->cloud, cloud) != 0 || strcmp(type->name, instance) != 0) continue;
        if (strcmp(offer->region, region) != 0) continue;
        bool here = zone[0] == '\0' || strcmp(offer->zone, zone) == 0 || strcmp(offer->zone, zone_id) == 0;
        if (!whole && !here) continue;
        if (whole && zone[0] != '\0' && offer->source == live && offer->spot_usd_h <= usd_h) continue;
        offer->spot_usd_h = usd_h;
        offer->spot_assumed = false;
        offer->source = live;
        changed++;
    }
    return changed;
}
