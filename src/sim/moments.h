/* A trace as moments: each change of the fleet, and each tick of an interval, with how long it lasts. */
#ifndef TM_SIM_MOMENTS_H
#define TM_SIM_MOMENTS_H

#include "market/trace.h"
#include "policy/lookahead.h"

struct tm_moment {
    double time_s; /* since the start */
    bool tick;
    bool event;
    int arrived;
    double price_usd_h; /* of a spot instance; NaN: not in the trace */
};

struct tm_moments {
    struct tm_moment *list; /* owned, in order of time */
    struct tm_ahead *ahead; /* owned; the same moments as look-ahead sees them */
    size_t count;           /* up to `to` */
    size_t known;           /* and beyond it, as far as a look-ahead of `beyond` reaches into the trace */
    size_t capacity;
    size_t ahead_capacity;
};

/* The first moment is from_ms, when the whole fleet arrives. Times are exact to the millisecond. -TM_ELIMIT: more than
 * TM_LOOKAHEAD_STEPS_MAX moments. tm_moments__deinit frees. */
int tm_moments__init(struct tm_moments *moments, const struct tm_trace *trace, int64_t from_ms, int64_t to_ms,
                     int64_t interval_ms, int beyond, struct tm_error *e);
void tm_moments__deinit(struct tm_moments *moments);

/* Where a trace ends for a simulation: its last record holds for one interval. */
int64_t tm_moments_end_ms(const struct tm_trace *trace, int64_t interval_ms);

/* Instances at a time of the trace (after its event), and the last price known then (NaN: none). */
int tm_moments_count_at(const struct tm_trace *trace, int64_t time_ms, double *price_usd_h);

#endif
