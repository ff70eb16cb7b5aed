/* What the two halves of the search share: weighing a fleet, keeping the best. */
#ifndef TM_PLAN_SEARCH_INTERNAL_H
#define TM_PLAN_SEARCH_INTERNAL_H

#include "plan/search.h"

struct tm_search {
    const struct tm_supply *supply;
    const struct tm_plan_request *request;
    bool losses; /* weigh them? srift does not */
    struct tm_plan_result *out;
};

/* The value of the best answer so far; infinite where there is none. */
double tm_search__best(const struct tm_search *search);
/* Weighs a fleet whose parts are set and keeps it where it belongs. */
void tm_search__consider(struct tm_search *search, const struct tm_plan_region *region, struct tm_plan_fleet *fleet,
                         const struct tm_plan_rate *rate);
/* Do the fleet's counts satisfy every quota? */
bool tm_search__within_quotas(const struct tm_search *search, const struct tm_plan_fleet *fleet);
/* Are they of the same instance types, whatever the counts? */
bool tm_search__same_types(const struct tm_plan_fleet *a, const struct tm_plan_fleet *b);
/* What the copies of the state need of anchors together, for a checkpoint interval: bit/s and GiB. */
double tm_search__anchor_bit_s(const struct tm_plan_request *request, double interval_s);
double tm_search__anchor_gib(const struct tm_plan_request *request);
/* Exact throughput of a fleet of several types: false where it does not fit together. */
bool tm_search__predict(const struct tm_search *search, const struct tm_plan_fleet *fleet,
                        struct tm_prediction *prediction, struct tm_error *e, int *out_rc);

/* The second half (branch.c). */
int tm_search__branch(struct tm_search *search, struct tm_error *e);

#endif
