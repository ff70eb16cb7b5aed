/* Google Cloud's spot market, asked (market.h). Calls wait: for commands, not for loops. */
#ifndef TM_CLOUD_GCP_MARKET_H
#define TM_CLOUD_GCP_MARKET_H

#include "cloud/market.h"
#include "web/gcp.h"

/* The page of the price list behind `next`, to be asked for; "": the first. It is borrowed. */
struct tm_gcp_request tm_gcp_market__page(struct tm_gcp *gcp, const char *next);

/* What spot VMs of these types cost now in these regions; NaN: the list does not say. One question, for all. */
int tm_gcp_market_prices(struct tm_env *env, const struct tm_market_want *wants, size_t count, double *out_usd_h,
                         struct tm_error *e);

int tm_gcp_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                       struct tm_error *e);

#endif
