/* The instances that a job uses, which are not those that it pays for: one that arrives is paid before it has joined,
 * and one that has its notice is left before it goes. */
#ifndef TM_SIM_IN_USE_H
#define TM_SIM_IN_USE_H

#include "layout/cost.h"
#include "market/trace.h"

/* Is there a difference? */
bool tm_in_use__differs(const struct tm_cost *cost, double notice_s);

/* The trace from from_ms on with arrivals later by what joining takes and losses earlier by what is left of the notice
 * when the instance is left; prices and all before stay. What is lost before it has joined never joins. Where an
 * instance arrives or has its notice there is an event, if one that changes nothing: a run decides then. `out` must be
 * initialised; it is filled only on success. With first_wait_s > 0 those that are there at from_ms were asked for then,
 * and are in use that much later; what was before is not told then. */
int tm_in_use__trace(const struct tm_trace *trace, const struct tm_cost *cost, int64_t from_ms, double notice_s,
                     double first_wait_s, struct tm_trace *out, struct tm_error *e);

/* How long before a change its loss is known: what of the notice is not used up; 0: losses come unannounced. */
double tm_in_use__notice_s(const struct tm_cost *cost, double notice_s);
/* How long before its end an instance with a notice is left. */
double tm_in_use__lead_s(const struct tm_cost *cost, double notice_s);

/* What is paid: a walk over the trace from time to time, each call beginning where the last ended. */
struct tm_paid {
    const struct tm_trace *trace; /* borrowed */
    size_t next;                  /* event */
    int64_t count;
    double price_usd_h; /* NaN: not in the trace so far */
    double time_ms;
};
struct tm_paid tm_paid__begin(const struct tm_trace *trace, int64_t from_ms);
/* Up to a time: dollars and instance-hours, of at most `most` instances; `spot_usd_h` where the trace has no price. */
void tm_paid__advance(struct tm_paid *paid, double to_ms, int most, double spot_usd_h, double *out_usd,
                      double *out_hours);

#endif
