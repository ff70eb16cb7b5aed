/* Offers of a catalogue that meet conditions, each with its price and what it gives for it, in an order. */
#ifndef TM_MARKET_OFFER_CHOICE_H
#define TM_MARKET_OFFER_CHOICE_H

#include "market/catalog.h"

enum tm_offer_order { TM_OFFERS_BY_PRICE, TM_OFFERS_BY_FLOPS, TM_OFFERS_BY_FLOPP, TM_OFFERS_BY_NAME };

struct tm_offer_filter {
    double min_gpus;
    double max_gpus; /* INFINITY: any number, as of the next */
    double max_price_usd_h;
    double min_vcpus; /* what is not known of an instance type passes, but for the next two, where they are not 0 */
    double min_memory_gib;
    double min_gpu_memory_gib;
    double min_network_gbps;
    enum tm_price_kind price;
    int precision; /* of FLOPS; TM_PRECISION_MIXED: the best that each has */
    enum tm_offer_order order;
    bool reverse;
    bool all;     /* every offer, not only the cheapest place of each instance type */
    size_t limit; /* 0: none */
    /* Further conditions; NULL: none. */
    bool (*allows)(const void *context, const struct tm_instance_type *instance, const struct tm_offer *offer);
    const void *context;
};

/* All is the catalogue's. Not known: NaN. */
struct tm_offer_row {
    const struct tm_offer *offer;
    const struct tm_instance_type *instance;
    double price_usd_h;
    bool spot; /* the price is the spot price */
    double tflops;
    double flopp;
    int precision; /* of the two above */
};

struct tm_offer_rows {
    struct tm_offer_row *rows;
    size_t count;
    size_t matching; /* before the limit */
};

/* Offers without a price of the kind are left out. What is not known goes last, in either order. The caller frees. */
int tm_offers_choose(const struct tm_catalog *catalog, const struct tm_offer_filter *filter, struct tm_offer_rows *out,
                     struct tm_error *e);
void tm_offer_rows_deinit(struct tm_offer_rows *rows);

#endif
