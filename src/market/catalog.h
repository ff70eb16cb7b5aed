/* The catalogue: which instance types there are, where they are offered, and for how much.
 *
 * Three tables: GPUs (what they can do), instance types (what is in them), offers (where, and the price). The shipped
 * catalogue is part of the binary; what the user imported comes on top and hides shipped offers of the same instance
 * type in the same region. File format: catalog_file.c, man page tidemill-catalog(5). */
#ifndef TM_MARKET_CATALOG_H
#define TM_MARKET_CATALOG_H

#include "base/env.h"
#include "base/names.h"
#include "base/precision.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_CATALOG_ROWS_MAX = 1 << 20, TM_CATALOG_BYTES_MAX = 128 << 20, TM_BAND_UNKNOWN = -1 };

/* All strings belong to the catalogue. NaN: not known. */
struct tm_gpu {
    const char *name;
    const char *aliases; /* other names, separated by '|'; "" if none */
    double memory_gib;
    double memory_gbyte_s;
    double tflops[TM_PRECISION_COUNT]; /* dense peak of one GPU */
    int source;
};

struct tm_instance_type {
    const char *cloud; /* aws, gcp, azure, lambda */
    const char *name;
    const char *gpu; /* name; "" for none */
    double gpus;     /* fractions occur */
    double vcpus;
    double memory_gib;
    double gpu_memory_gib; /* of one GPU */
    double network_gbps;   /* sustained */
    double burst_gbps;     /* for a while; 0: no more than that, or not known */
    int source;
    bool network_assumed; /* by tm_catalog_assume_network */
};

struct tm_offer {
    uint32_t instance; /* index into instances */
    const char *region;
    const char *zone; /* "" where prices are by region */
    double on_demand_usd_h;
    double spot_usd_h;
    int band;   /* 0..4: <5%, 5-10%, 10-15%, 15-20%, >20% reclaimed a month; TM_BAND_UNKNOWN */
    int source; /* index into sources */
    bool imported;
    bool spot_assumed; /* by tm_catalog_doubt_prices */
};

/* Latest price seen in an imported history, and interruption bands: laid over offers by tm_catalog_finish. */
struct tm_spot_price {
    const char *cloud;
    const char *zone;
    const char *instance;
    double spot_usd_h;
    int64_t time_ms;
    int source;
};

struct tm_band {
    const char *cloud;
    const char *region;
    const char *instance;
    int band;
    double saving_percent;
    int source;
};

struct tm_source {
    const char *name;
    const char *as_of; /* "2026-08-22" */
    const char *text;
};

struct tm_catalog {
    struct tm_names strings;       /* owns every string */
    struct tm_names instance_keys; /* "cloud\tname" -> index into instances */
    struct tm_names offer_keys;    /* "cloud\tregion\tzone\tname" -> index into offers */
    struct tm_names price_keys;    /* "cloud\tzone\tname" -> index into prices */
    struct tm_names band_keys;     /* "cloud\tregion\tname" -> index into bands */
    struct tm_gpu *gpus;
    size_t gpu_count, gpu_capacity;
    struct tm_instance_type *instances;
    size_t instance_count, instance_capacity;
    struct tm_offer *offers;
    size_t offer_count, offer_capacity;
    struct tm_spot_price *prices;
    size_t price_count, price_capacity;
    struct tm_band *bands;
    size_t band_count, band_capacity;
    struct tm_source *sources;
    size_t source_count, source_capacity;
    const char *as_of; /* the newest of the sources */
};

void tm_catalog_init(struct tm_catalog *catalog);
void tm_catalog_deinit(struct tm_catalog *catalog);

/* The shipped catalogue with the user's imports (file `catalog.tmcat` of the data folder) on top. */
int tm_catalog_load(struct tm_env *env, struct tm_catalog *catalog, struct tm_error *e);
/* The shipped catalogue alone. */
int tm_catalog_load_shipped(struct tm_catalog *catalog, struct tm_error *e);

/* Adds what a catalogue file says; rows of the same key replace what is there. */
int tm_catalog_parse(struct tm_catalog *catalog, const char *file, const char *text, size_t length, bool imported,
                     struct tm_error *e);
/* The same of a damaged file of imports: rows that cannot be read are told to `lost` (line and reason) and left out.
 * -TM_EINPUT: it is no catalogue at all. */
typedef void (*tm_catalog_lost_f)(void *context, int line, const struct tm_error *error);
int tm_catalog__salvage(struct tm_catalog *catalog, const char *file, const char *text, size_t length,
                        tm_catalog_lost_f lost, void *context, struct tm_error *e);
/* Adds the user's imports, if there are any. path_needed: that no folder for them is known is an error. */
int tm_catalog__parse_imported(struct tm_env *env, struct tm_catalog *catalog, bool path_needed, struct tm_error *e);
/* Lays bands and newer prices over the offers, drops shipped offers that imports hide, finds as_of. Call once after
 * the last parse. */
int tm_catalog_finish(struct tm_catalog *catalog, struct tm_error *e);
void tm_catalog__print(const struct tm_catalog *catalog, struct tm_text *out);

/* ---- adding, by readers and importers; a row of the same key replaces the old one ---- */

/* A string of the catalogue's own, equal texts at equal addresses; NULL: out of memory. */
const char *tm_catalog__string(struct tm_catalog *catalog, const char *text, size_t length);
int tm_catalog__add_source(struct tm_catalog *catalog, const char *name, const char *as_of, const char *text,
                           int *out_source, struct tm_error *e);
int tm_catalog__add_gpu(struct tm_catalog *catalog, const struct tm_gpu *gpu, struct tm_error *e);
/* Figures that are NaN in the new row do not replace known ones. */
int tm_catalog__add_instance(struct tm_catalog *catalog, const struct tm_instance_type *instance, uint32_t *out_index,
                             struct tm_error *e);
int tm_catalog__add_offer(struct tm_catalog *catalog, const struct tm_offer *offer, struct tm_error *e);
int tm_catalog__add_price(struct tm_catalog *catalog, const struct tm_spot_price *price, struct tm_error *e);
int tm_catalog__add_band(struct tm_catalog *catalog, const struct tm_band *band, struct tm_error *e);

/* ---- asking ---- */

/* By name or alias, case ignored; NULL: unknown. Borrowed. */
const struct tm_gpu *tm_catalog_gpu(const struct tm_catalog *catalog, const char *name);
const struct tm_instance_type *tm_catalog_instance(const struct tm_catalog *catalog, const char *cloud,
                                                   const char *name);

/* Peak of the whole instance in TFLOPS at a precision (or TM_PRECISION_MIXED), and which precision that is. NaN where
 * unknown, or where the GPU has no such mode; also for instances without a GPU. */
double tm_instance__tflops(const struct tm_catalog *catalog, const struct tm_instance_type *instance, int precision,
                           int *out_precision);

/* What plans need and vendors do not publish: instances whose network is not known get a rate that any cloud gives. */
void tm_catalog_assume_network(struct tm_catalog *catalog);

/* Spot prices that nothing backs: many offers of a cloud are the same share of the on-demand price, to the digit, and
 * nothing is known of their interruptions. They become the geometric mean of what is listed and of what the other
 * spot prices are, as a share of on-demand, and are marked. */
void tm_catalog_doubt_prices(struct tm_catalog *catalog);
/* Prices that a cloud was asked for now, after all of the above: they come from a source of their own, "live-CLOUD".
 * set_spot: how many offers have the price now. An offer of a whole region has the lowest of its zones; `zone` and
 * `zone_id` are the two names that a zone has on AWS; zone "": the price is that of every zone of the region. */
int tm_catalog_begin_live(struct tm_catalog *catalog, const char *cloud, int64_t asked_ms, struct tm_error *e);
size_t tm_catalog_set_spot(struct tm_catalog *catalog, const char *cloud, const char *instance, const char *region,
                           const char *zone, const char *zone_id, double usd_h);

/* Has this offer left the market? Its prices are years older than the catalogue. */
bool tm_offer_is_retired(const struct tm_catalog *catalog, const struct tm_offer *offer);

/* Is this the zone that is asked for? AWS's names (us-east-1a) mean other zones in other accounts, so those of a region
 * mean any of its zone ids (use1-az1). */
bool tm_offer_zone_matches(const struct tm_offer *offer, const char *zone);

/* "AWS" for "aws": how tables show a cloud; the name itself where it is not one of ours. */
const char *tm_cloud_label(const char *cloud);

enum tm_price_kind { TM_PRICE_SPOT_OR_ON_DEMAND, TM_PRICE_SPOT, TM_PRICE_ON_DEMAND };

/* The price of an offer of a kind; NaN where there is none. SPOT_OR_ON_DEMAND takes spot where there is a spot price.
 */
double tm_offer__price(const struct tm_offer *offer, enum tm_price_kind kind);

/* The lowest price of a kind that any place asks for an instance type; NaN: none is known. */
double tm_catalog_cheapest(const struct tm_catalog *catalog, const struct tm_instance_type *instance,
                           enum tm_price_kind kind);

/* FLOPP as DeepVM defines it: FLOPS / price x 3600, that is, floating point operations for one dollar. */
double tm_offer__flopp(double tflops, double price_usd_h);

const char *tm_band_label(int band); /* "<5%" ... ">20%"; "-" if unknown */

#endif
