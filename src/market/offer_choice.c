#include "market/offer_choice.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool matches(const struct tm_offer_filter *filter, const struct tm_offer_row *row)
{
    const struct tm_instance_type *instance = row->instance;
    return !isnan(row->price_usd_h) && row->price_usd_h <= filter->max_price_usd_h &&
           instance->gpus >= filter->min_gpus && instance->gpus <= filter->max_gpus &&
           !(instance->vcpus < filter->min_vcpus) && !(instance->memory_gib < filter->min_memory_gib) &&
           (filter->min_gpu_memory_gib == 0 || instance->gpu_memory_gib >= filter->min_gpu_memory_gib) &&
           (filter->min_network_gbps == 0 || instance->network_gbps >= filter->min_network_gbps) &&
           (filter->allows == NULL || filter->allows(filter->context, instance, row->offer));
}

/* Ascending; what is not known goes last. */
static int compare_numbers(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int compare_rows(const void *a, const void *b, void *context)
{
    const struct tm_offer_row *x = a;
    const struct tm_offer_row *y = b;
    const struct tm_offer_filter *filter = context;
    int order = 0;
    double way = filter->reverse ? -1 : 1; /* what is not known stays last */
    if (filter->order == TM_OFFERS_BY_PRICE) order = compare_numbers(way * x->price_usd_h, way * y->price_usd_h);
    if (filter->order == TM_OFFERS_BY_FLOPS) order = compare_numbers(-way * x->tflops, -way * y->tflops);
    if (filter->order == TM_OFFERS_BY_FLOPP) order = compare_numbers(-way * x->flopp, -way * y->flopp);
    if (filter->order == TM_OFFERS_BY_NAME && filter->reverse) order = -strcmp(x->instance->name, y->instance->name);
    if (order == 0) order = strcmp(x->instance->cloud, y->instance->cloud);
    if (order == 0) order = strcmp(x->instance->name, y->instance->name);
    if (order == 0) order = compare_numbers(x->price_usd_h, y->price_usd_h);
    if (order == 0) order = strcmp(x->offer->region, y->offer->region);
    if (order == 0) order = strcmp(x->offer->zone, y->offer->zone);
    return order;
}

/* Keeps the cheapest offer of each instance type. */
static size_t keep_cheapest(struct tm_offer_row *rows, size_t count)
{
    struct tm_offer_filter by_name = {.order = TM_OFFERS_BY_NAME};
    size_t kept = 0;
    qsort_r(rows, count, sizeof *rows, compare_rows, &by_name);
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && rows[kept - 1].instance == rows[i].instance) continue;
        rows[kept++] = rows[i];
    }
    return kept;
}

int tm_offers_choose(const struct tm_catalog *catalog, const struct tm_offer_filter *filter, struct tm_offer_rows *out,
                     struct tm_error *e)
{
    struct tm_offer_filter order = *filter;
    struct tm_offer_row *rows = tm_calloc(catalog->offer_count + 1, sizeof *rows);
    size_t count = 0;
    if (rows == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        struct tm_offer_row row = {.offer = offer,
                                   .instance = &catalog->instances[offer->instance],
                                   .price_usd_h = tm_offer__price(offer, filter->price),
                                   .spot = filter->price != TM_PRICE_ON_DEMAND && !isnan(offer->spot_usd_h)};
        if (!matches(filter, &row)) continue;
        row.tflops = tm_instance__tflops(catalog, row.instance, filter->precision, &row.precision);
        row.flopp = tm_offer__flopp(row.tflops, row.price_usd_h);
        rows[count++] = row;
    }
    if (!filter->all) count = keep_cheapest(rows, count);
    qsort_r(rows, count, sizeof *rows, compare_rows, &order);
    *out = (struct tm_offer_rows){
        .rows = rows, .count = filter->limit > 0 && filter->limit < count ? filter->limit : count, .matching = count};
    return 0;
}

void tm_offer_rows_deinit(struct tm_offer_rows *rows)
{
    tm_free(rows->rows);
    *rows = (struct tm_offer_rows){.rows = NULL};
}
