/* How good forecasts of a trace would have been: one made at every interval, compared with what came.
 *
 * At horizon h all figures are means over steps 1..h and over all starts. Starts: every interval that has at least
 * TM_BACKTEST_HISTORY of history (itself included) and all h steps in the trace. Under the protocol of Parcae's table
 * every interval is a start, also the very first one, whose count is then "forecast" by itself; and the last whole
 * window is left out. */
#ifndef TM_MARKET_BACKTEST_H
#define TM_MARKET_BACKTEST_H

#include "base/env.h"
#include "market/forecast.h"
#include "market/series.h"

#include <stdbool.h>

enum { TM_BACKTEST_HISTORY = 12 };

struct tm_backtest_options {
    enum tm_forecast_method method;
    int horizon;
    uint64_t seed;
    bool parcae_protocol;
};

struct tm_backtest {
    int horizon;
    int64_t starts;
    double mae;           /* of the median; of parcae's path */
    double normalised_l1; /* mae / mean count of the trace; NaN where that is 0 */
    double crps;          /* of `last`: of the last count plus its errors, not held to counts of 0 and more */
    double pinball10, pinball50, pinball90;
    double coverage80;        /* probability mass of what came that lies between the 10% and 90% quantiles */
    double coverage80_closed; /* share of counts in p10..p90, both included: more than 0.8 where counts rarely change */
    double ms_per_forecast;   /* observing an interval and forecasting from it, by the clock of `env`: the median */
};

/* -TM_EINPUT with words where the trace is too short for one start. `env` is asked for the time only. */
int tm_backtest_run(struct tm_env *env, const struct tm_series *series, const struct tm_backtest_options *options,
                    struct tm_backtest *out, struct tm_error *e);

#endif
