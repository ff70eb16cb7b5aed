/* Forecasts of how many instances there will be, from how many there were.
 *
 * A forecaster is fed one interval after the other, from the beginning of the trace (history before the hour of
 * interest too: methods learn from it, and Parcae's warm-up counts from there), and can be asked after each of them:
 *
 *     tm_forecaster_create(&options, &f, e);
 *     for each interval:  tm_forecaster_observe(f, count, arrivals, losses, e);
 *                         tm_forecaster_predict(f, 12, &forecast, e);
 *
 * Methods: `last` (the last count, with the errors it made so far), `parcae` (Parcae's predictor, bug for bug:
 * forecast_parcae.c), `tidemill` (ours: forecast_tidemill.c). The same options and the same calls give the same
 * forecasts; random numbers come from the seed alone. doc/forecast-and-lifetimes.md has the mathematics. */
#ifndef TM_MARKET_FORECAST_H
#define TM_MARKET_FORECAST_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { TM_FORECAST_STEPS_MAX = 64, TM_FORECAST_COUNT_MAX = 4096 };

enum tm_forecast_method { TM_FORECAST_LAST, TM_FORECAST_PARCAE, TM_FORECAST_TIDEMILL };
extern const char *const tm_forecast_methods[]; /* "last", "parcae", "tidemill"; NULL-terminated */

/* Whether a method forecasts that many intervals ahead: parcae has windows for 5, 7 and more alone. */
bool tm_forecast_looks(enum tm_forecast_method method, int horizon);

struct tm_forecaster_options {
    enum tm_forecast_method method;
    int64_t interval_ms; /* between two observations; > 0 */
    int horizon_max;     /* the longest look-ahead that will be asked for: 1..TM_FORECAST_STEPS_MAX */
    int capacity;        /* the most instances there can be, where it is known; 0: learned from what is seen */
    uint64_t seed;       /* parcae: as numpy's np.random.seed(seed), taken modulo 2^32 */
};

/* One step of look-ahead. */
struct tm_forecast_step {
    const double *pmf; /* probability of each count 0..count_max of the forecast; sums to 1; owned by the forecaster */
    double mean;
    int p10, p50, p90; /* the smallest count with at least that much probability at or below it */
    int point;         /* one number for planners that want one: the last count, parcae's own path, or p50 */
    int in, out;       /* what parcae says comes and goes in this step; else the changes of `point` */
};

struct tm_forecast {
    int horizon;
    int count_max;
    struct tm_forecast_step steps[TM_FORECAST_STEPS_MAX]; /* [0] is the next interval */
};

struct tm_forecaster;

/* Check: -TM_EUSAGE with words for options out of range. The caller owns *out_forecaster. */
int tm_forecaster_create(const struct tm_forecaster_options *options, struct tm_forecaster **out_forecaster,
                         struct tm_error *e);
void tm_forecaster_destroy(struct tm_forecaster *forecaster); /* NULL: nothing */

/* One interval has passed: `count` instances now, of which `arrivals` came and `losses` went since the observation
 * before (of the first: 0 and 0 will do). -TM_ELIMIT above TM_FORECAST_COUNT_MAX; nothing has changed then. */
int tm_forecaster_observe(struct tm_forecaster *forecaster, int count, int arrivals, int losses, struct tm_error *e);

/* Evidence of losses to come, from the cloud: a notice is a promise, a rebalance recommendation a guess whose
 * reliability is learned. `losing` instances of those there now go within the next `within_steps` intervals (>= 1).
 * Holds until that many observations have passed or their losses have been seen. Methods last and parcae ignore it. */
enum tm_forecast_hint { TM_FORECAST_NOTICE, TM_FORECAST_REBALANCE };
void tm_forecaster_hint(struct tm_forecaster *forecaster, enum tm_forecast_hint kind, int losing, int within_steps);

/* The next `horizon` (1..horizon_max) intervals. What `out` points to is valid until the next call with this
 * forecaster. Needs one observation at least (-TM_EUSAGE). Of parcae, each call may change its penalties and draws from
 * its random numbers, as the original's does: ask once an interval, with one horizon. */
int tm_forecaster_predict(struct tm_forecaster *forecaster, int horizon, struct tm_forecast *out, struct tm_error *e);

#endif
