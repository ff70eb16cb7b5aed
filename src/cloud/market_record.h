/* A record of a market as a trace: prices, and how many instances each place would give, asked now and then. */
#ifndef TM_CLOUD_MARKET_RECORD_H
#define TM_CLOUD_MARKET_RECORD_H

#include "base/env.h"
#include "market/catalog.h"

enum { TM_MARKET_POOLS_MAX = 64, TM_MARKET_SCORE_USUAL = 3 };

struct tm_market_pool {
    const char *cloud; /* aws, gcp, azure: as its zone is written */
    char type[64];
    char zone[40]; /* us-east-1a, us-central1-a; of Azure a location (eastus), or a zone of it (eastus-1) */
    char region[40];
    char path[1024]; /* of its trace */
};

/* "TYPE@ZONE,...", of any clouds; with one pool its trace is `path`, with several the pool's name goes before the
 * ending. */
int tm_market_pools_read(const char *text, const char *path, struct tm_market_pool *out, size_t *out_count,
                         struct tm_error *e);

struct tm_market_record {
    const struct tm_market_pool *pools;
    size_t pool_count;
    int64_t every_ms;
    int64_t for_ms;
    int instances;     /* how many a place gives, where it gives any */
    int score;         /* it does where the cloud's score, of 10, is this or more; where there is none, always */
    const char *image; /* of AWS: rents one each time instead, with this image; NULL: it does not */
    const char *owner; /* who rents, for tags; with `image` */
    const struct tm_catalog *catalog; /* what types are made of */
    /* After each round: how many there were; false ends it. NULL: not asked. */
    bool (*told)(void *context, size_t rounds);
    void *context;
};

/* Waits. Every trace is whole after each round. A round that fails is a warning, and its time is not in the trace. */
int tm_market_record(struct tm_env *env, const struct tm_market_record *record, size_t *out_rounds, struct tm_error *e);

#endif
