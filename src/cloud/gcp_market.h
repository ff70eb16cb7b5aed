/* Google Cloud's spot market, asked (market.h). Calls wait: for commands, not for loops. */
#ifndef TM_CLOUD_GCP_MARKET_H
#define TM_CLOUD_GCP_MARKET_H

#include "cloud/market.h"

int tm_gcp_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                       struct tm_error *e);

#endif
