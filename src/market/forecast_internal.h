/* Shared by forecast*.c and backtest.c only. */
#ifndef TM_MARKET_FORECAST_INTERNAL_H
#define TM_MARKET_FORECAST_INTERNAL_H

#include "market/forecast.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- the errors that `last` made: how often each one was seen, by step ---- */

enum { TM_LAST_ERRORS_MIN = 24 }; /* fewer at one step: those of all steps are taken together */

struct tm_last_errors {
    int steps;
    int count_max;  /* errors lie in -count_max..count_max */
    double *seen;   /* [steps][2 count_max + 1] */
    double *pooled; /* [2 count_max + 1]: over all steps */
    double *total;  /* [steps] */
    double total_pooled;
    int *newest; /* ring of the last `steps` counts, [t % steps] */
    int64_t observed;
};

int tm_last_errors__init(struct tm_last_errors *errors, int steps, struct tm_error *e);
void tm_last_errors__deinit(struct tm_last_errors *errors);
int tm_last_errors__observe(struct tm_last_errors *errors, int count, struct tm_error *e);
/* How often each error -count_max..count_max was seen at a step (0: the next interval), and how many in all; pooled
 * where there are few. */
const double *tm_last_errors__at(const struct tm_last_errors *errors, int step, double *out_total);

/* ---- methods ---- */

struct tm_parcae;
bool tm_parcae__looks(int horizon);
int tm_parcae__create(const struct tm_forecaster_options *options, struct tm_parcae **out, struct tm_error *e);
void tm_parcae__destroy(struct tm_parcae *parcae);
void tm_parcae__observe(struct tm_parcae *parcae, int count, int losses);
/* Counts, arrivals and losses of the next `horizon` intervals. */
int tm_parcae__predict(struct tm_parcae *parcae, int horizon, int *out_count, struct tm_error *e);

struct tm_tide;
int tm_tide__create(const struct tm_forecaster_options *options, struct tm_tide **out, struct tm_error *e);
void tm_tide__destroy(struct tm_tide *tide);
int tm_tide__observe(struct tm_tide *tide, int count, struct tm_error *e);
/* Fills pmf[step * (count_max + 1) ...] for `horizon` steps; count_max is at least tm_tide__count_max. */
void tm_tide__predict(struct tm_tide *tide, int horizon, int count_max, double *pmf);
int tm_tide__count_max(const struct tm_tide *tide);

#endif
