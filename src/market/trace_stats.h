/* What a trace says in numbers.
 *
 * A loss event is a time at which instances go, an arrival event one at which instances come (both, where one was
 * replaced at once); instances lost and arrived sum how many. The instances there at the first record are no arrivals.
 */
#ifndef TM_MARKET_TRACE_STATS_H
#define TM_MARKET_TRACE_STATS_H

#include "market/trace.h"

struct tm_trace_stats {
    int64_t instances_max;
    double duration_s;
    double mean_available; /* over the time from the first record to the end */
    double
        availability; /* share of polls that found the instance running, for polled logs; else mean / instances_max */
    int64_t min;
    int64_t max;
    int64_t loss_events;
    int64_t instances_lost;
    int64_t arrival_events;
    int64_t instances_arrived;
    double longest_outage_s;           /* longest time with no instance at all */
    double mean_time_between_losses_s; /* duration / loss events; infinite where there are none */
    double mean_burst;                 /* instances lost per loss event; 0 where there are none */
    double time_up_s;                  /* with at least one instance */
    double time_below_max_s;           /* with fewer than instances_max */
    bool has_price;
    double mean_price_usd_h; /* over the time with a known price */
};

struct tm_trace_stats tm_trace_stats(const struct tm_trace *trace);

#endif
