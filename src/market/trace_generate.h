/* Made-up traces whose statistics match: mean count, loss rate, size of loss bursts.
 *
 * The model: while instances are there, loss events come as a Poisson process, each taking a burst; while there is
 * room, arrival events come as another, the more so the more room there is. Burst sizes are drawn from those that the
 * trace to be matched had at a like number of instances, or geometric with a given mean. Rounds of calibration move the
 * two rates, and of several draws the one is kept whose statistics come nearest to the wanted ones. The same seed gives
 * the same trace. */
#ifndef TM_MARKET_TRACE_GENERATE_H
#define TM_MARKET_TRACE_GENERATE_H

#include "market/trace.h"

struct tm_trace_recipe {
    uint64_t seed;
    const struct tm_trace *like; /* match this one; or NULL: match the figures below */
    int64_t instances_max;       /* most instances at a time */
    double mean_available;
    int64_t mtbf_ms; /* mean time between loss events */
    double mean_burst;
    int64_t interval_ms; /* grid of the events; 0: whole seconds, or as `like` */
    int64_t duration_ms; /* 0: as `like`, or 24 h */
};

/* `out` must be initialised. -TM_EUSAGE with words for figures that cannot be. */
int tm_trace_generate(const struct tm_trace_recipe *recipe, struct tm_trace *out, struct tm_error *e);

#endif
