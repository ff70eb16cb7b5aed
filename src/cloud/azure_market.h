/* Azure's retail prices, asked (market.h), and where they are. Calls wait: for commands, not for loops. */
#ifndef TM_CLOUD_AZURE_MARKET_H
#define TM_CLOUD_AZURE_MARKET_H

#include "cloud/market.h"

int tm_azure_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                         struct tm_error *e);

/* Where prices are asked for (AZURE_RETAIL_PRICES_ENDPOINT), of the cloud whose Resource Manager is there; NULL: a
 * private cloud has none that we know of. Borrowed. */
const char *tm_azure_market__origin(struct tm_env *env, const char *resource_manager);
/* Appends the question: prices of a size at a location (""; everywhere), from this row on. */
int tm_azure_market__url(const char *origin, const char *size, const char *location, size_t skip, struct tm_text *out,
                         struct tm_error *e);

/* The spot price of now of a size at a location, the same in each of its zones. NaN: it is not sold there. */
int tm_azure_market_price(struct tm_env *env, const char *location, const char *type, double *out_usd_h,
                          struct tm_error *e);

#endif
