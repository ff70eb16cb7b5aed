#include "market/backtest.h"

#include "base/alloc.h"
#include "market/forecast_internal.h"

#include <math.h>
#include <stdlib.h>

struct sums {
    double error;
    double crps;
    double pinball[3];
    double covered;
    double covered_closed;
    int64_t starts;
};

static double pinball(double level, double forecast, double truth)
{
    return truth >= forecast ? level * (truth - forecast) : (1 - level) * (forecast - truth);
}

static double crps_of(const double *pmf, int count_max, int truth)
{
    double sum = 0;
    double below = 0;
    for (int k = 0; k <= count_max || k <= truth; k++) {
        below += k <= count_max ? pmf[k] : 0;
        double v = below - (k >= truth);
        sum += v * v;
    }
    return sum;
}

/* Of the last count plus the errors seen so far at this step, whatever counts that gives. */
static double crps_of_last(const struct tm_last_errors *errors, int step, int last, int truth)
{
    double total;
    const double *seen = tm_last_errors__at(errors, step, &total);
    int reach = errors->count_max;
    if (total == 0) return fabs((double)truth - last);
    double sum = 0;
    double below = 0;
    int low = truth - last < -reach ? truth - last : -reach;
    int high = truth - last > reach ? truth - last : reach;
    for (int error = low; error <= high; error++) {
        below += error >= -reach && error <= reach ? seen[error + reach] / total : 0;
        double v = below - (error >= truth - last);
        sum += v * v;
    }
    return sum;
}

/* Randomised counts made exact: the share of the truth's own probability between the two quantiles. */
static double coverage_of(const double *pmf, int count_max, int truth)
{
    if (truth > count_max) return 0;
    double below = 0;
    for (int k = 0; k < truth; k++)
        below += pmf[k];
    double upto = below + pmf[truth];
    return pmf[truth] < 1e-12 ? 0 : fmax(0, fmin(upto, 0.9) - fmax(below, 0.1)) / pmf[truth];
}

static void score_step(const struct tm_forecast *forecast, int step, int truth, struct sums *sums)
{
    const struct tm_forecast_step *s = &forecast->steps[step];
    sums->error += fabs((double)s->point - truth);
    sums->pinball[0] += pinball(0.1, s->p10, truth);
    sums->pinball[1] += pinball(0.5, s->p50, truth);
    sums->pinball[2] += pinball(0.9, s->p90, truth);
    sums->covered += coverage_of(s->pmf, forecast->count_max, truth);
    sums->covered_closed += truth >= s->p10 && truth <= s->p90;
}

static void score_start(const struct tm_series *series, size_t start, const struct tm_backtest_options *options,
                        const struct tm_forecast *forecast, const struct tm_last_errors *errors, struct sums *sums)
{
    int last = series->points[start].count;
    for (int h = 0; h < options->horizon; h++) {
        int truth = series->points[start + 1 + (size_t)h].count;
        score_step(forecast, h, truth, sums);
        sums->crps += options->method == TM_FORECAST_LAST ? crps_of_last(errors, h, last, truth)
                                                          : crps_of(forecast->steps[h].pmf, forecast->count_max, truth);
    }
    sums->starts++;
}

/* Parcae's table begins with a window that starts at the first interval, whose count the flat forecast repeats. */
static void score_first(const struct tm_series *series, int horizon, struct sums *sums)
{
    int first = series->points[0].count;
    for (int h = 0; h < horizon; h++) {
        double error = fabs((double)first - series->points[h].count);
        sums->error += error;
        sums->crps += error;
        for (int i = 0; i < 3; i++)
            sums->pinball[i] += pinball(i == 0 ? 0.1 : i == 1 ? 0.5 : 0.9, first, series->points[h].count);
        sums->covered += error == 0 ? 0.8 : 0;
        sums->covered_closed += error == 0;
    }
    sums->starts++;
}

static int run(struct tm_env *env, const struct tm_series *series, const struct tm_backtest_options *options,
               struct tm_forecaster *f, struct tm_last_errors *errors, struct sums *sums, double *spent_ns,
               struct tm_error *e)
{
    size_t horizon = (size_t)options->horizon;
    size_t last_start = series->count - horizon - 1 - (options->parcae_protocol ? 1 : 0);
    size_t first_start = options->parcae_protocol ? 0 : TM_BACKTEST_HISTORY - 1;
    struct tm_forecast forecast;
    if (options->parcae_protocol) score_first(series, options->horizon, sums);
    for (size_t t = 0; t <= last_start; t++) {
        const struct tm_series_point *point = &series->points[t];
        int64_t began_ns = env->monotonic_ns(env);
        int rc = tm_forecaster_observe(f, point->count, point->arrivals, point->losses, e);
        if (rc == 0) rc = tm_forecaster_predict(f, options->horizon, &forecast, e);
        spent_ns[t] = (double)(env->monotonic_ns(env) - began_ns);
        if (rc == 0) rc = tm_last_errors__observe(errors, point->count, e);
        if (rc != 0) return rc;
        if (t >= first_start) score_start(series, t, options, &forecast, errors, sums);
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

int tm_backtest_run(struct tm_env *env, const struct tm_series *series, const struct tm_backtest_options *options,
                    struct tm_backtest *out, struct tm_error *e)
{
    if (series->count < TM_BACKTEST_HISTORY + (size_t)options->horizon)
        return tm_error_set(
            e, TM_EINPUT,
            "%zu intervals are too few for a backtest: it needs %d of history and %d to forecast; use a "
            "shorter interval or horizon",
            series->count, TM_BACKTEST_HISTORY, options->horizon);
    struct tm_forecaster_options with = {.method = options->method,
                                         .interval_ms = series->interval_ms,
                                         .horizon_max = options->horizon,
                                         .seed = options->seed};
    size_t calls = series->count - (size_t)options->horizon - (options->parcae_protocol ? 1 : 0);
    double *spent_ns = tm_calloc(calls, sizeof *spent_ns);
    struct tm_forecaster *f = NULL;
    struct tm_last_errors errors = {0};
    struct sums sums = {0};
    int rc = spent_ns == NULL ? tm_error_nomem(e) : tm_forecaster_create(&with, &f, e);
    if (rc == 0) rc = tm_last_errors__init(&errors, options->horizon, e);
    if (rc == 0) rc = run(env, series, options, f, &errors, &sums, spent_ns, e);
    tm_forecaster_destroy(f);
    tm_last_errors__deinit(&errors);
    double median_ns = rc == 0 ? median_of(spent_ns, calls) : 0;
    tm_free(spent_ns);
    if (rc != 0) return rc;
    double n = (double)sums.starts * options->horizon;
    *out = (struct tm_backtest){.horizon = options->horizon,
                                .starts = sums.starts,
                                .mae = sums.error / n,
                                .normalised_l1 = series->mean > 0 ? sums.error / n / series->mean : NAN,
                                .crps = sums.crps / n,
                                .pinball10 = sums.pinball[0] / n,
                                .pinball50 = sums.pinball[1] / n,
                                .pinball90 = sums.pinball[2] / n,
                                .coverage80 = sums.covered / n,
                                .coverage80_closed = sums.covered_closed / n,
                                .ms_per_forecast = median_ns / 1e6};
    return 0;
}
