#include "market/trace_stats.h"

#include <math.h>

/* Adds the time from event i to the next one (or the end), during which the count is `count`. */
static void add_span(struct tm_trace_stats *stats, double span_s, int64_t count, int64_t instances_max,
                     double *outage_s)
{
    stats->mean_available += span_s * (double)count;
    if (count > 0) stats->time_up_s += span_s;
    if (count < instances_max) stats->time_below_max_s += span_s;
    *outage_s = count == 0 ? *outage_s + span_s : 0;
    if (*outage_s > stats->longest_outage_s) stats->longest_outage_s = *outage_s;
}

static void add_change(struct tm_trace_stats *stats, const struct tm_trace_event *event)
{
    stats->loss_events += event->out > 0;
    stats->instances_lost += event->out;
    stats->arrival_events += event->in > 0;
    stats->instances_arrived += event->in;
}

struct tm_trace_stats tm_trace_stats(const struct tm_trace *trace)
{
    struct tm_trace_stats stats = {.instances_max = trace->instances_max, .duration_s = (double)trace->end_ms / 1000};
    int64_t count = 0;
    double outage_s = 0;
    double price = NAN;
    double priced_s = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        if (i > 0) add_change(&stats, event);
        count += (int64_t)event->in - event->out;
        if (i == 0 || count < stats.min) stats.min = count;
        if (count > stats.max) stats.max = count;
        if (!isnan(event->price_usd_h)) price = event->price_usd_h;
        int64_t next_ms = i + 1 < trace->event_count ? trace->events[i + 1].time_ms : trace->end_ms;
        double span_s = (double)(next_ms - event->time_ms) / 1000;
        add_span(&stats, span_s, count, trace->instances_max, &outage_s);
        if (!isnan(price)) {
            priced_s += span_s;
            stats.mean_price_usd_h += span_s * price;
        }
    }
    double known_s = (double)(trace->end_ms - trace->begin_ms) / 1000;
    stats.mean_available = known_s > 0 ? stats.mean_available / known_s : (double)count;
    stats.availability = trace->polls > 0           ? (double)trace->polls_running / (double)trace->polls
                         : trace->instances_max > 0 ? stats.mean_available / (double)trace->instances_max
                                                    : 0;
    stats.mean_time_between_losses_s = stats.loss_events > 0 ? stats.duration_s / (double)stats.loss_events : INFINITY;
    stats.mean_burst = stats.loss_events > 0 ? (double)stats.instances_lost / (double)stats.loss_events : 0;
    stats.has_price = priced_s > 0;
    if (priced_s > 0) stats.mean_price_usd_h /= priced_s;
    return stats;
}
