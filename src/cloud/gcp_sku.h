/* What Google's price list and its capacity advisor say, read. A VM costs what its parts do: cores, memory, GPUs, each
 * a SKU of the Cloud Billing Catalog, by region. */
#ifndef TM_CLOUD_GCP_SKU_H
#define TM_CLOUD_GCP_SKU_H

#include "base/doc.h"
#include "cloud/market.h"

enum tm_gcp__part { TM_GCP_CORE, TM_GCP_MEMORY, TM_GCP_GPU, TM_GCP_PARTS };

/* One part at one price, in several regions. */
struct tm_gcp__sku {
    enum tm_gcp__part part;
    const char *of; /* cores and memory: machine types that begin so ("n1-"); GPUs: the catalogue's name ("V100") */
    double usd_h;   /* of one core, GiB or GPU */
    const json_t *regions; /* borrowed from the item */
};
/* False: it is nothing of a spot VM of a kind that we know, or its unit, currency or price is not as it should be. */
bool tm_gcp__read_sku(const json_t *item, struct tm_gcp__sku *out);

/* What is known of the price of one type in one region so far. */
struct tm_gcp__price {
    double usd_h[TM_GCP_PARTS]; /* of one; NaN: not known */
};
void tm_gcp__price_init(struct tm_gcp__price *price);
void tm_gcp__price_take(struct tm_gcp__price *price, const struct tm_instance_type *type, const char *region,
                        const struct tm_gcp__sku *sku);
/* Of a whole VM; NaN: a part of it has no price. */
double tm_gcp__price_sum(const struct tm_gcp__price *price, const struct tm_instance_type *type);

/* The question to advice.capacity: so many spot VMs of a type in a zone, at once. */
int tm_gcp__print_advice(const char *type, const char *zone, int instances, struct tm_text *out, struct tm_error *e);
/* How likely they are had, 0 to 1; NaN: it does not say. */
double tm_gcp__read_advice(const json_t *root);

#endif
