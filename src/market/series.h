/* A trace as evenly spaced counts: what forecasts are made from. */
#ifndef TM_MARKET_SERIES_H
#define TM_MARKET_SERIES_H

#include "market/trace.h"

enum { TM_SERIES_MAX = 1 << 21 };

struct tm_series_point {
    int count;    /* instances there, after all events up to this time */
    int arrivals; /* since the point before; of the first: 0 */
    int losses;
};

struct tm_series {
    int64_t interval_ms;
    int64_t begin_ms;               /* of point 0 */
    struct tm_series_point *points; /* owned */
    size_t count;
    double mean; /* of the counts */
};

void tm_series_init(struct tm_series *series);
void tm_series_deinit(struct tm_series *series);

/* Points from the trace's first record on, every interval_ms, up to its end: a point at the end itself counts only if
 * something is recorded there. -TM_ELIMIT where there would be too many, or counts too large for a forecast. `out` must
 * be initialised; it is filled only on success. */
int tm_series_sample(const struct tm_trace *trace, int64_t interval_ms, struct tm_series *out, struct tm_error *e);

#endif
