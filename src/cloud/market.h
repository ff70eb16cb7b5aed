/* Spot markets of clouds, asked: prices of now, and how likely they are to give. Calls wait: for commands, not for
 * loops.
 *
 *   aws     DescribeSpotPriceHistory, by zone; GetSpotPlacementScores
 *   gcp     the Cloud Billing Catalog, by region: a VM costs what its cores, memory and GPUs do; advice.capacity
 *   azure   the Retail Prices API, by location, which anybody may ask; no scores */
#ifndef TM_CLOUD_MARKET_H
#define TM_CLOUD_MARKET_H

#include "market/catalog.h"

enum { TM_MARKET_WANTS_MAX = 1 << 16, TM_MARKET_QUOTES_MAX = 1 << 20 };

/* What is asked about: a type at a place. Borrowed. */
struct tm_market_want {
    const char *type;
    const char *region;
    const char *zone; /* "": wherever in the region */
};

/* One type at one place. */
struct tm_market_quote {
    char type[64];
    char region[40];
    char zone[40];    /* as this account calls it: us-east-1a; "": every zone of the region */
    char zone_id[24]; /* of AWS, as all call it: use1-az4; "": not known */
    double usd_h;
    int64_t since_ms; /* UTC, of the price; 0: not said */
    double score; /* how likely it gives, of 10: AWS's placement score, ten times Google's obtainability; NaN: none */
};

struct tm_market_quotes {
    struct tm_market_quote *items; /* owned */
    size_t count, capacity;
};
void tm_market_quotes__deinit(struct tm_market_quotes *quotes);
/* Adds one. -TM_ENOMEM, -TM_ELIMIT. */
int tm_market_quotes__add(struct tm_market_quotes *quotes, const struct tm_market_quote *quote, struct tm_error *e);

struct tm_market_ask {
    const char *cloud; /* aws, gcp, azure */
    const struct tm_market_want *wants;
    size_t want_count;
    const struct tm_catalog *catalog; /* what types are made of */
    int instances;                    /* scores for so many at a time; 0: none are asked for */
    bool whole; /* a region that does not answer is an error; else a warning, and only none at all is one */
};

/* The clouds whose market can be asked; ends with NULL. */
extern const char *const tm_market_clouds[];

/* Adds to the list; of what is not sold there nothing. Scores that cannot be had are no error: a warning. */
int tm_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                   struct tm_error *e);

/* Lays the spot prices of now over this cloud's offers that are wanted. `out_changed`: of how many. Where a region does
 * not answer the catalogue's stay, with a warning; none at all is an error, and so is that no offer is wanted. */
struct tm_market_live {
    const char *cloud;
    bool (*is_wanted)(void *context, const struct tm_offer *offer);
    void *context;
};
int tm_market_live(struct tm_env *env, const struct tm_market_live *live, struct tm_catalog *catalog,
                   int64_t *out_asked_ms, size_t *out_changed, struct tm_error *e);
/* Is any of its offers wanted? */
bool tm_market_is_wanted(const struct tm_market_live *live, const struct tm_catalog *catalog);

#endif
