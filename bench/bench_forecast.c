/* How good and how fast forecasts are: every trace named, all methods, 12 intervals of a minute ahead. The baseline of
 * quality is `last` with its own errors; that of speed is our own ARIMA in the same run, and the 3-6 ms that the
 * original's takes in Python.
 *
 * Use: bench_forecast [TRACE...]; without any, the four shipped hours. */
#include "base/env.h"
#include "base/paths.h"
#include "market/backtest.h"

#include <math.h>
#include <stdio.h>

enum { HORIZON = 12 };

struct tally {
    int traces, better, within_2, median_ok, calibrated;
    double slowest_us, log_ratio;
};

static int backtest(const struct tm_series *series, enum tm_forecast_method method, struct tm_backtest *out,
                    struct tm_error *e)
{
    struct tm_backtest_options options = {.method = method, .horizon = HORIZON};
    return tm_backtest_run(tm_env_real(), series, &options, out, e);
}

static int bench_trace(const char *path, struct tally *tally, struct tm_error *e)
{
    struct tm_trace trace;
    struct tm_series series;
    struct tm_backtest last;
    struct tm_backtest parcae;
    struct tm_backtest ours;
    tm_trace_init(&trace);
    tm_series_init(&series);
    int rc = tm_trace_load(tm_env_real(), path, NULL, &trace, e);
    if (rc == 0) rc = tm_series_sample(&trace, 60000, &series, e);
    if (rc == 0) rc = backtest(&series, TM_FORECAST_LAST, &last, e);
    if (rc == 0) rc = backtest(&series, TM_FORECAST_PARCAE, &parcae, e);
    if (rc == 0) rc = backtest(&series, TM_FORECAST_TIDEMILL, &ours, e);
    if (rc == 0) {
        double ratio = ours.crps / last.crps;
        double us = ours.ms_per_forecast * 1000;
        printf("%-54s CRPS %+6.1f%% of last, %+6.1f%% of parcae; median %+5.2f%%; in 80%%: %4.1f%%; %5.1f us (parcae "
               "%4.1f)\n",
               tm_path_base(path), 100 * (ratio - 1), 100 * (ours.crps / parcae.crps - 1),
               100 * (ours.mae / last.mae - 1), 100 * ours.coverage80, us, parcae.ms_per_forecast * 1000);
        tally->traces++;
        tally->better += ratio < 1;
        tally->within_2 += ratio <= 1.02;
        tally->median_ok += ours.mae <= 1.01 * last.mae;
        tally->calibrated += ours.coverage80 >= 0.7 && ours.coverage80 <= 0.9;
        tally->slowest_us = fmax(tally->slowest_us, us);
        tally->log_ratio += log(ratio);
    }
    tm_series_deinit(&series);
    tm_trace_deinit(&trace);
    return rc;
}

int main(int argc, char **argv)
{
    static const char *const shipped[] = {"hadp", "hasp", "ladp", "lasp"};
    struct tally tally = {0};
    int count = argc > 1 ? argc - 1 : (int)(sizeof shipped / sizeof *shipped);
    for (int i = 0; i < count; i++) {
        struct tm_error e;
        const char *path = argc > 1 ? argv[i + 1] : shipped[i];
        if (bench_trace(path, &tally, &e) != 0) fprintf(stderr, "%s\n", e.text);
    }
    if (tally.traces == 0) return 1;
    printf(
        "forecast, %d traces: CRPS %.3f of last's on average, better on %d, within 2%% on %d; median within 1%% on %d; "
        "80%% interval holds 70-90%% on %d; slowest %.1f us a forecast, 1/%.0f of the original's 4 ms\n",
        tally.traces, exp(tally.log_ratio / tally.traces), tally.better, tally.within_2, tally.median_ok,
        tally.calibrated, tally.slowest_us, 4000 / tally.slowest_us);
    return 0;
}
