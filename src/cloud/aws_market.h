/* AWS's spot market, asked (market.h); and, if the user pays for it, whether it gives. Calls wait: for commands, not
 * for loops. */
#ifndef TM_CLOUD_AWS_MARKET_H
#define TM_CLOUD_AWS_MARKET_H

#include "cloud/market.h"

int tm_aws_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                       struct tm_error *e);

/* The spot price of now: in this zone (by name or id), or ("") the lowest of the region's (NULL: the usual one). NaN:
 * it is not sold there. */
int tm_aws_market_price(struct tm_env *env, const char *region, const char *type, const char *zone, double *out_usd_h,
                        struct tm_error *e);

struct tm_aws_market__try {
    const char *region;
    const char *zone;
    const char *type;
    const char *image;
    const char *owner; /* for its tags */
};

/* Rents one spot instance of this type in this zone and ends it at once: AWS bills a minute. `out_given`: whether there
 * was one. It is tagged as of the job "trace record", so that `cloud clean` finds what a crash left, and shuts itself
 * down some minutes after its boot, so that nobody has to. -TM_EIO: it could not be ended, which the words say. */
int tm_aws_market__try(struct tm_env *env, const struct tm_aws_market__try *what, bool *out_given, struct tm_error *e);

#endif
