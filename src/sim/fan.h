/* Forecasts along a trace beside what came, for the report. */
#ifndef TM_SIM_FAN_H
#define TM_SIM_FAN_H

#include "market/forecast.h"
#include "market/trace.h"
#include "sim/report.h"

enum { TM_SIM_FAN_POINTS = 4000 }; /* of longer times every second, third ... interval is asked about */

struct tm_sim_fan_options {
    int64_t from_ms; /* of the trace; forecasts learn from its beginning */
    int64_t to_ms;
    int64_t interval_ms;
    int horizon; /* forecasts are made so many intervals before */
    enum tm_forecast_method method;
    uint64_t seed;
};

struct tm_sim_fan {
    struct tm_report_fan report; /* what tm_report_html takes; points into the values, borrows the name */
    double *values;              /* owned */
};

/* Times are since from_ms. Where nothing was forecast yet (the first `horizon` intervals of a trace) there is no point;
 * there may be none at all. -TM_EUSAGE: nothing between from and to. tm_sim_fan_deinit frees. */
int tm_sim_fan_init(struct tm_sim_fan *fan, const char *name, const struct tm_trace *trace,
                    const struct tm_sim_fan_options *options, struct tm_error *e);
void tm_sim_fan_deinit(struct tm_sim_fan *fan);

#endif
