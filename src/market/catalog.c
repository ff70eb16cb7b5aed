#include "market/catalog.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/content.h"
#include "base/number.h"
#include "base/paths.h"
#include "market/shipped.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { KEY_MAX = 1024 };

void tm_catalog_init(struct tm_catalog *catalog)
{
    *catalog = (struct tm_catalog){.as_of = ""};
    tm_names_init(&catalog->strings, TM_CATALOG_ROWS_MAX);
    tm_names_init(&catalog->instance_keys, TM_CATALOG_ROWS_MAX);
    tm_names_init(&catalog->offer_keys, TM_CATALOG_ROWS_MAX);
    tm_names_init(&catalog->price_keys, TM_CATALOG_ROWS_MAX);
    tm_names_init(&catalog->band_keys, TM_CATALOG_ROWS_MAX);
}

void tm_catalog_deinit(struct tm_catalog *catalog)
{
    tm_names_deinit(&catalog->strings);
    tm_names_deinit(&catalog->instance_keys);
    tm_names_deinit(&catalog->offer_keys);
    tm_names_deinit(&catalog->price_keys);
    tm_names_deinit(&catalog->band_keys);
    tm_free(catalog->gpus);
    tm_free(catalog->instances);
    tm_free(catalog->offers);
    tm_free(catalog->prices);
    tm_free(catalog->bands);
    tm_free(catalog->sources);
    *catalog = (struct tm_catalog){.as_of = ""};
}

/* ---- adding ---- */

const char *tm_catalog__string(struct tm_catalog *catalog, const char *text, size_t length)
{
    long number = tm_names_add(&catalog->strings, text, length);
    return number < 0 ? NULL : catalog->strings.names[number];
}

static int full_or_nomem(int rc, const char *what, struct tm_error *e)
{
    if (rc == -(int)TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "more than %d %s in the catalogue", TM_CATALOG_ROWS_MAX, what);
    return tm_error_nomem(e);
}

/* Room for one more row of a table. */
static int reserve(void **rows, size_t *capacity, size_t count, size_t row_size, const char *what, struct tm_error *e)
{
    int rc = tm_grow(rows, capacity, count + 1, row_size, TM_CATALOG_ROWS_MAX);
    return rc == 0 ? 0 : full_or_nomem(rc, what, e);
}

/* Number of a row by its key, which is added if it was not there. */
static int find_or_add_key(struct tm_names *keys, const char *key, size_t *out_number, bool *out_is_new,
                           struct tm_error *e)
{
    size_t before = keys->count;
    long number = tm_names_add(keys, key, strlen(key));
    if (number < 0) return full_or_nomem((int)number, "rows", e);
    *out_number = (size_t)number;
    *out_is_new = keys->count > before;
    return 0;
}

int tm_catalog__add_source(struct tm_catalog *catalog, const char *name, const char *as_of, const char *text,
                           int *out_source, struct tm_error *e)
{
    struct tm_source source = {tm_catalog__string(catalog, name, strlen(name)),
                               tm_catalog__string(catalog, as_of, strlen(as_of)),
                               tm_catalog__string(catalog, text, strlen(text))};
    if (source.name == NULL || source.as_of == NULL || source.text == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < catalog->source_count; i++) {
        if (catalog->sources[i].name != source.name) continue;
        catalog->sources[i] = source;
        *out_source = (int)i;
        return 0;
    }
    void *rows = catalog->sources;
    int rc = reserve(&rows, &catalog->source_capacity, catalog->source_count, sizeof source, "sources", e);
    catalog->sources = rows;
    if (rc != 0) return rc;
    *out_source = (int)catalog->source_count;
    catalog->sources[catalog->source_count++] = source;
    return 0;
}

int tm_catalog__add_gpu(struct tm_catalog *catalog, const struct tm_gpu *gpu, struct tm_error *e)
{
    for (size_t i = 0; i < catalog->gpu_count; i++) {
        if (strcasecmp(catalog->gpus[i].name, gpu->name) != 0) continue;
        catalog->gpus[i] = *gpu;
        return 0;
    }
    void *rows = catalog->gpus;
    int rc = reserve(&rows, &catalog->gpu_capacity, catalog->gpu_count, sizeof *gpu, "GPUs", e);
    catalog->gpus = rows;
    if (rc == 0) catalog->gpus[catalog->gpu_count++] = *gpu;
    return rc;
}

static void keep_known(double *fresh, double old)
{
    if (isnan(*fresh)) *fresh = old;
}

int tm_catalog__add_instance(struct tm_catalog *catalog, const struct tm_instance_type *instance, uint32_t *out_index,
                             struct tm_error *e)
{
    char key[KEY_MAX];
    size_t number = 0;
    bool is_new = false;
    (void)snprintf(key, sizeof key, "%s\t%s", instance->cloud, instance->name);
    void *rows = catalog->instances;
    int rc = reserve(&rows, &catalog->instance_capacity, catalog->instance_count, sizeof *instance, "instances", e);
    catalog->instances = rows;
    if (rc == 0) rc = find_or_add_key(&catalog->instance_keys, key, &number, &is_new, e);
    if (rc != 0) return rc;
    struct tm_instance_type fresh = *instance;
    if (is_new) {
        catalog->instance_count++;
    } else {
        const struct tm_instance_type *old = &catalog->instances[number];
        keep_known(&fresh.vcpus, old->vcpus);
        keep_known(&fresh.memory_gib, old->memory_gib);
        keep_known(&fresh.network_gbps, old->network_gbps);
        if (!(fresh.burst_gbps > 0)) fresh.burst_gbps = old->burst_gbps;
        keep_known(&fresh.gpu_memory_gib, old->gpu_memory_gib);
    }
    catalog->instances[number] = fresh;
    if (out_index != NULL) *out_index = (uint32_t)number;
    return 0;
}

int tm_catalog__add_offer(struct tm_catalog *catalog, const struct tm_offer *offer, struct tm_error *e)
{
    char key[KEY_MAX];
    size_t number = 0;
    bool is_new = false;
    const struct tm_instance_type *instance = &catalog->instances[offer->instance];
    (void)snprintf(key, sizeof key, "%s\t%s\t%s\t%s", instance->cloud, offer->region, offer->zone, instance->name);
    void *rows = catalog->offers;
    int rc = reserve(&rows, &catalog->offer_capacity, catalog->offer_count, sizeof *offer, "offers", e);
    catalog->offers = rows;
    if (rc == 0) rc = find_or_add_key(&catalog->offer_keys, key, &number, &is_new, e);
    if (rc != 0) return rc;
    if (is_new) catalog->offer_count++;
    catalog->offers[number] = *offer;
    return 0;
}

int tm_catalog__add_price(struct tm_catalog *catalog, const struct tm_spot_price *price, struct tm_error *e)
{
    char key[KEY_MAX];
    size_t number = 0;
    bool is_new = false;
    (void)snprintf(key, sizeof key, "%s\t%s\t%s", price->cloud, price->zone, price->instance);
    void *rows = catalog->prices;
    int rc = reserve(&rows, &catalog->price_capacity, catalog->price_count, sizeof *price, "prices", e);
    catalog->prices = rows;
    if (rc == 0) rc = find_or_add_key(&catalog->price_keys, key, &number, &is_new, e);
    if (rc != 0) return rc;
    if (is_new) catalog->price_count++;
    if (is_new || catalog->prices[number].time_ms <= price->time_ms) catalog->prices[number] = *price;
    return 0;
}

int tm_catalog__add_band(struct tm_catalog *catalog, const struct tm_band *band, struct tm_error *e)
{
    char key[KEY_MAX];
    size_t number = 0;
    bool is_new = false;
    (void)snprintf(key, sizeof key, "%s\t%s\t%s", band->cloud, band->region, band->instance);
    void *rows = catalog->bands;
    int rc = reserve(&rows, &catalog->band_capacity, catalog->band_count, sizeof *band, "bands", e);
    catalog->bands = rows;
    if (rc == 0) rc = find_or_add_key(&catalog->band_keys, key, &number, &is_new, e);
    if (rc != 0) return rc;
    if (is_new) catalog->band_count++;
    catalog->bands[number] = *band;
    return 0;
}

/* ---- finishing ---- */

static const char *as_of_of(const struct tm_catalog *catalog, int source)
{
    return source >= 0 && (size_t)source < catalog->source_count ? catalog->sources[source].as_of : "";
}

/* Is a price from a history at least as new as the figures of an offer? Both are read as days. */
static bool is_newer(const struct tm_catalog *catalog, const struct tm_spot_price *price, const struct tm_offer *offer)
{
    char day[TM_CALENDAR_TEXT_MAX];
    return strcmp(tm_calendar_print_day(price->time_ms, day), as_of_of(catalog, offer->source)) >= 0;
}

static void lay_bands(struct tm_catalog *catalog)
{
    char key[KEY_MAX];
    for (size_t i = 0; i < catalog->offer_count; i++) {
        struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *instance = &catalog->instances[offer->instance];
        (void)snprintf(key, sizeof key, "%s\t%s\t%s", instance->cloud, offer->region, instance->name);
        long number = tm_names_find(&catalog->band_keys, key, strlen(key));
        offer->band = number >= 0 ? catalog->bands[number].band : TM_BAND_UNKNOWN;
    }
}

/* A zone's price from an imported history replaces an older one of the same zone. */
static void lay_prices(struct tm_catalog *catalog)
{
    char key[KEY_MAX];
    for (size_t i = 0; i < catalog->offer_count; i++) {
        struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *instance = &catalog->instances[offer->instance];
        (void)snprintf(key, sizeof key, "%s\t%s\t%s", instance->cloud, offer->zone, instance->name);
        long number = tm_names_find(&catalog->price_keys, key, strlen(key));
        if (number < 0) continue;
        const struct tm_spot_price *price = &catalog->prices[number];
        if (!is_newer(catalog, price, offer)) continue;
        offer->spot_usd_h = price->spot_usd_h;
        offer->source = price->source;
    }
}

/* The region of an AWS zone name: "us-east-1a" lies in "us-east-1". */
static size_t region_length(const char *zone)
{
    size_t length = strlen(zone);
    return length > 1 && zone[length - 1] >= 'a' && zone[length - 1] <= 'z' ? length - 1 : 0;
}

/* An offer for a zone that only the price history knows: on-demand price as elsewhere in its region. What the user
 * imported there goes before what was shipped, which it hides. */
static int offer_from_price(struct tm_catalog *catalog, const struct tm_spot_price *price, struct tm_error *e)
{
    char key[KEY_MAX];
    size_t length = region_length(price->zone);
    (void)snprintf(key, sizeof key, "%s\t%.*s\t%s\t%s", price->cloud, (int)length, price->zone, price->zone,
                   price->instance);
    if (length == 0 || tm_names_find(&catalog->offer_keys, key, strlen(key)) >= 0) return 0;
    const struct tm_offer *like = NULL;
    for (size_t i = 0; (like == NULL || !like->imported) && i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *instance = &catalog->instances[offer->instance];
        if (instance->name != price->instance || instance->cloud != price->cloud) continue;
        if (strlen(offer->region) != length || memcmp(offer->region, price->zone, length) != 0) continue;
        if (like == NULL || offer->imported) like = offer;
    }
    if (like == NULL || !is_newer(catalog, price, like)) return 0;
    struct tm_offer offer = *like;
    offer.zone = price->zone;
    offer.spot_usd_h = price->spot_usd_h;
    offer.source = price->source;
    return tm_catalog__add_offer(catalog, &offer, e);
}

static int region_key(const struct tm_catalog *catalog, const struct tm_offer *offer, char key[KEY_MAX])
{
    const struct tm_instance_type *instance = &catalog->instances[offer->instance];
    return snprintf(key, KEY_MAX, "%s\t%s\t%s", instance->cloud, instance->name, offer->region);
}

/* Drops shipped offers of an instance type in a region for which there are imported ones. */
static int hide_shipped(struct tm_catalog *catalog, struct tm_error *e)
{
    struct tm_names imported;
    tm_names_init(&imported, TM_CATALOG_ROWS_MAX);
    char key[KEY_MAX];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < catalog->offer_count; i++) {
        if (!catalog->offers[i].imported) continue;
        int length = region_key(catalog, &catalog->offers[i], key);
        long number = tm_names_add(&imported, key, (size_t)length);
        if (number < 0) rc = full_or_nomem((int)number, "offers", e);
    }
    size_t kept = 0;
    for (size_t i = 0; rc == 0 && i < catalog->offer_count; i++) {
        int length = region_key(catalog, &catalog->offers[i], key);
        bool hidden = !catalog->offers[i].imported && tm_names_find(&imported, key, (size_t)length) >= 0;
        if (!hidden) catalog->offers[kept++] = catalog->offers[i];
    }
    if (rc == 0) catalog->offer_count = kept;
    tm_names_deinit(&imported);
    tm_names_deinit(&catalog->offer_keys); /* numbers have moved: adding is over */
    return rc;
}

int tm_catalog_finish(struct tm_catalog *catalog, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < catalog->price_count; i++)
        rc = offer_from_price(catalog, &catalog->prices[i], e);
    if (rc == 0) rc = hide_shipped(catalog, e);
    if (rc != 0) return rc;
    lay_bands(catalog);
    lay_prices(catalog);
    for (size_t i = 0; i < catalog->source_count; i++) {
        if (strcmp(catalog->sources[i].as_of, catalog->as_of) > 0) catalog->as_of = catalog->sources[i].as_of;
    }
    return 0;
}

/* ---- loading ---- */

static int parse_shipped(struct tm_catalog *catalog, struct tm_error *e)
{
    struct tm_shipped shipped = tm_shipped__catalog();
    return tm_catalog_parse(catalog, "(shipped catalogue)", shipped.text, shipped.length, false, e);
}

int tm_catalog_load_shipped(struct tm_catalog *catalog, struct tm_error *e)
{
    int rc = parse_shipped(catalog, e);
    return rc == 0 ? tm_catalog_finish(catalog, e) : rc;
}

static const char way_on[] = "; this is your imported catalogue: fix it by hand, or run tidemill catalog import again, "
                             "which skips what cannot be read and keeps the damaged file as a backup";

int tm_catalog__parse_imported(struct tm_env *env, struct tm_catalog *catalog, bool path_needed, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_text text;
    tm_arena_init(&arena, 1 << 16);
    tm_text_init(&text, TM_CATALOG_BYTES_MAX);
    int rc = 0;
    struct tm_error no_path = {0};
    const char *path = tm_path(env, TM_PATH_DATA, "catalog.tmcat", &arena, &no_path);
    if (path == NULL && (path_needed || no_path.code == TM_ENOMEM))
        rc = tm_error_set(e, no_path.code, "%s", no_path.text);
    if (path != NULL && env->file_exists(env, path)) {
        struct tm_error damage = {0};
        rc = tm_content_read(env, path, &text, &damage);
        if (rc == 0) rc = tm_catalog_parse(catalog, path, tm_text_string(&text), text.length, true, &damage);
        if (rc != 0) rc = tm_error_set(e, damage.code, "%s%s", damage.text, rc == -(int)TM_EINPUT ? way_on : "");
    }
    tm_text_deinit(&text);
    tm_arena_deinit(&arena);
    return rc;
}

int tm_catalog_load(struct tm_env *env, struct tm_catalog *catalog, struct tm_error *e)
{
    int rc = parse_shipped(catalog, e);
    if (rc == 0) rc = tm_catalog__parse_imported(env, catalog, false, e);
    return rc == 0 ? tm_catalog_finish(catalog, e) : rc;
}

/* ---- asking ---- */

static bool is_alias(const char *aliases, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = aliases; length > 0 && *at != '\0';) {
        size_t word = strcspn(at, "|");
        if (word == length && strncasecmp(at, name, length) == 0) return true;
        at += word + (at[word] == '|');
    }
    return false;
}

const struct tm_gpu *tm_catalog_gpu(const struct tm_catalog *catalog, const char *name)
{
    for (size_t i = 0; i < catalog->gpu_count; i++) {
        if (strcasecmp(catalog->gpus[i].name, name) == 0 || is_alias(catalog->gpus[i].aliases, name))
            return &catalog->gpus[i];
    }
    return NULL;
}

const struct tm_instance_type *tm_catalog_instance(const struct tm_catalog *catalog, const char *cloud,
                                                   const char *name)
{
    char key[KEY_MAX];
    int length = snprintf(key, sizeof key, "%s\t%s", cloud, name);
    long number = tm_names_find(&catalog->instance_keys, key, (size_t)length);
    return number < 0 ? NULL : &catalog->instances[number];
}

double tm_instance__tflops(const struct tm_catalog *catalog, const struct tm_instance_type *instance, int precision,
                           int *out_precision)
{
    const struct tm_gpu *gpu = instance->gpu[0] != '\0' ? tm_catalog_gpu(catalog, instance->gpu) : NULL;
    int used = precision;
    if (gpu != NULL && precision == TM_PRECISION_MIXED)
        used = !isnan(gpu->tflops[TM_BF16]) ? TM_BF16 : !isnan(gpu->tflops[TM_FP16]) ? TM_FP16 : TM_FP32;
    if (out_precision != NULL) *out_precision = used;
    return gpu == NULL || used >= TM_PRECISION_COUNT ? NAN : gpu->tflops[used] * instance->gpus;
}

double tm_offer__price(const struct tm_offer *offer, enum tm_price_kind kind)
{
    if (kind == TM_PRICE_ON_DEMAND) return offer->on_demand_usd_h;
    if (kind == TM_PRICE_SPOT || !isnan(offer->spot_usd_h)) return offer->spot_usd_h;
    return offer->on_demand_usd_h;
}

double tm_offer__flopp(double tflops, double price_usd_h)
{
    return price_usd_h > 0 ? tflops * 1e12 / price_usd_h * 3600 : NAN;
}

const char *tm_band_label(int band)
{
    static const char *const labels[] = {"<5%", "5-10%", "10-15%", "15-20%", ">20%"};
    return band >= 0 && band < 5 ? labels[band] : "-";
}

/* The clouds that the shipped catalogue knows. */
static const struct {
    const char *name;
    const char *label;
} clouds[] = {{"aws", "AWS"}, {"gcp", "GCP"}, {"azure", "Azure"}, {"lambda", "Lambda"}};

void tm_catalog_assume_network(struct tm_catalog *catalog)
{
    static const double least_gbps = 5;
    for (size_t i = 0; i < catalog->instance_count; i++) {
        struct tm_instance_type *instance = &catalog->instances[i];
        if (instance->network_gbps > 0) continue;
        instance->network_gbps = least_gbps;
        instance->network_assumed = true;
    }
}

enum { FLAT_OFFERS_MIN = 20 };

static double spot_share(const struct tm_offer *offer)
{
    bool priced = offer->spot_usd_h > 0 && offer->on_demand_usd_h > 0 && offer->spot_usd_h < offer->on_demand_usd_h;
    return priced ? offer->spot_usd_h / offer->on_demand_usd_h : NAN;
}

/* Offers of the same cloud with the same share, among those of which nothing else is known. */
static size_t count_alike(const struct tm_catalog *catalog, size_t index)
{
    const struct tm_offer *offer = &catalog->offers[index];
    const char *cloud = catalog->instances[offer->instance].cloud;
    double share = spot_share(offer);
    size_t alike = 0;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *other = &catalog->offers[i];
        alike += catalog->instances[other->instance].cloud == cloud && other->band == TM_BAND_UNKNOWN &&
                 fabs(spot_share(other) - share) < 5e-4;
    }
    return alike;
}

void tm_catalog_doubt_prices(struct tm_catalog *catalog)
{
    double logs = 0;
    double backed = 0;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        struct tm_offer *offer = &catalog->offers[i];
        double share = spot_share(offer);
        offer->spot_assumed = !isnan(share) && !offer->imported && offer->band == TM_BAND_UNKNOWN &&
                              catalog->instances[offer->instance].gpus > 0 &&
                              count_alike(catalog, i) >= FLAT_OFFERS_MIN;
        if (isnan(share) || offer->spot_assumed) continue;
        logs += log(share);
        backed++;
    }
    double usual = backed > 0 ? exp(logs / backed) : 1;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        struct tm_offer *offer = &catalog->offers[i];
        double share = spot_share(offer);
        if (offer->spot_assumed && share < usual) offer->spot_usd_h = offer->on_demand_usd_h * sqrt(share * usual);
    }
}

bool tm_offer_is_retired(const struct tm_catalog *catalog, const struct tm_offer *offer)
{
    enum { YEARS = 2 };
    const char *as_of = catalog->sources[offer->source].as_of;
    double then = 0;
    double now = 0;
    return catalog->as_of != NULL && strlen(as_of) >= 4 && strlen(catalog->as_of) >= 4 &&
           tm_number_double(as_of, 4, &then) && tm_number_double(catalog->as_of, 4, &now) && now - then > YEARS;
}

bool tm_offer_zone_matches(const struct tm_offer *offer, const char *zone)
{
    size_t region = strlen(offer->region);
    if (strcasecmp(offer->zone, zone) == 0) return true;
    bool named = strncasecmp(zone, offer->region, region) == 0 && strlen(zone) == region + 1 &&
                 isdigit((unsigned char)zone[region - 1]) && isalpha((unsigned char)zone[region]);
    return named && strstr(offer->zone, "-az") != NULL;
}

const char *tm_cloud_label(const char *cloud)
{
    for (size_t i = 0; i < sizeof clouds / sizeof *clouds; i++) {
        if (strcmp(clouds[i].name, cloud) == 0) return clouds[i].label;
    }
    return cloud;
}

double tm_catalog_cheapest(const struct tm_catalog *catalog, const struct tm_instance_type *instance,
                           enum tm_price_kind kind)
{
    double best = NAN;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        if (&catalog->instances[catalog->offers[i].instance] != instance) continue;
        double price = tm_offer__price(&catalog->offers[i], kind);
        if (isnan(best) || price < best) best = price;
    }
    return best;
}
