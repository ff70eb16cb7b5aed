/* Spot price histories: which price held in which zone from when on. Kept in the user's data folder as
 * `spot-prices.csv` (instance,zone,time,usd_h; sorted), which tidemill-catalog(5) describes. */
#ifndef TM_MARKET_PRICE_HISTORY_H
#define TM_MARKET_PRICE_HISTORY_H

#include "base/env.h"
#include "base/names.h"

#include <stddef.h>
#include <stdint.h>

enum { TM_PRICE_CHANGES_MAX = 1 << 23, TM_PRICE_HISTORY_BYTES_MAX = 512 << 20 };

struct tm_price_change {
    uint32_t instance; /* number in names */
    uint32_t zone;
    int64_t time_ms;
    double usd_h;
};

struct tm_price_history {
    struct tm_names names;
    struct tm_price_change *changes;
    size_t count;
    size_t capacity;
};

void tm_price_history_init(struct tm_price_history *history);
void tm_price_history_deinit(struct tm_price_history *history);

int tm_price_history__add(struct tm_price_history *history, const char *instance, size_t instance_length,
                          const char *zone, size_t zone_length, int64_t time_ms, double usd_h, struct tm_error *e);
/* Sorts by instance, zone and time; of several prices at one time the last one added stays. */
int tm_price_history__sort(struct tm_price_history *history, struct tm_error *e);

/* The user's file; a missing one is an empty history. */
int tm_price_history_load(struct tm_env *env, struct tm_price_history *history, struct tm_error *e);
void tm_price_history__print(const struct tm_price_history *history, struct tm_text *out);

#endif
