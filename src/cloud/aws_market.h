/* AWS's spot market, asked: prices now, how likely it is to give, and, if the user pays for it, whether it does. Calls
 * wait: for commands, not for loops. */
#ifndef TM_CLOUD_AWS_MARKET_H
#define TM_CLOUD_AWS_MARKET_H

#include "base/env.h"
#include "market/catalog.h"

enum { TM_AWS_TYPES_MAX = 100 };

/* One type in one zone. */
struct tm_aws_quote {
    char type[64];
    char region[40];
    char zone[40];    /* as this account calls it: us-east-1a */
    char zone_id[24]; /* as all do: use1-az4; "": not known */
    double usd_h;
    int64_t since_ms; /* UTC, of the price; 0: not said */
    int score;        /* of placement, 1 to 10; 0: not asked, or not said */
};

struct tm_aws_quotes {
    struct tm_aws_quote *items; /* owned */
    size_t count, capacity;
};

struct tm_aws_market {
    const char *region;
    const char *const *types;
    size_t type_count; /* at most TM_AWS_TYPES_MAX */
    int instances;     /* placement scores for so many at a time; 0: none are asked for */
};

/* Adds to the list. Scores that cannot be had are no error: a warning. */
int tm_aws_market__ask(struct tm_env *env, const struct tm_aws_market *market, struct tm_aws_quotes *out,
                       struct tm_error *e);
void tm_aws_quotes__deinit(struct tm_aws_quotes *quotes);

/* Rents one spot instance of this type in this zone and ends it at once: AWS bills a minute. `out_given`: whether there
 * was one. It is tagged as of the job "trace record", so that `cloud clean` finds what a crash left. */
int tm_aws_market__try(struct tm_env *env, const char *region, const char *zone, const char *type, const char *image,
                       bool *out_given, struct tm_error *e);

/* Lays the spot prices of now over AWS's offers that are wanted: one call for a region. `out_asked_ms`: when (UTC). A
 * region that does not answer keeps the catalogue's prices, with a warning; none at all is an error. */
int tm_aws_market_live(struct tm_env *env, struct tm_catalog *catalog,
                       bool (*is_wanted)(void *context, const struct tm_offer *offer), void *context,
                       int64_t *out_asked_ms, size_t *out_changed, struct tm_error *e);

#endif
