#include "market/forecast.h"

#include "base/alloc.h"
#include "market/forecast_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const char *const tm_forecast_methods[] = {"last", "parcae", "tidemill", NULL};

enum { HINTS_MAX = 16 };

struct hint {
    enum tm_forecast_hint kind;
    int losing;
    int within;
};

struct tm_forecaster {
    struct tm_forecaster_options options;
    int64_t observed;
    int count;
    int top;                      /* the highest count seen or known of */
    struct tm_last_errors errors; /* last */
    struct tm_parcae *parcae;     /* parcae */
    struct tm_tide *tide;         /* tidemill */
    struct hint hints[HINTS_MAX]; /* oldest first */
    int hint_count;
    double rebalance_kept;   /* instances that a rebalance recommendation named, and that went in its time ... */
    double rebalance_broken; /* ... and that did not */
    double *pmf;             /* [horizon_max][count_max + 1] */
    int count_max;
};

bool tm_forecast_looks(enum tm_forecast_method method, int horizon)
{
    if (horizon < 1 || horizon > TM_FORECAST_STEPS_MAX) return false;
    return method != TM_FORECAST_PARCAE || tm_parcae__looks(horizon);
}

/* ---- life ---- */

int tm_forecaster_create(const struct tm_forecaster_options *options, struct tm_forecaster **out_forecaster,
                         struct tm_error *e)
{
    if (options->interval_ms <= 0) return tm_error_set(e, TM_EUSAGE, "a forecast needs an interval above 0");
    if (options->horizon_max < 1 || options->horizon_max > TM_FORECAST_STEPS_MAX)
        return tm_error_set(e, TM_EUSAGE, "a forecast looks 1 to %d intervals ahead, not %d", TM_FORECAST_STEPS_MAX,
                            options->horizon_max);
    if (options->capacity < 0 || options->capacity > TM_FORECAST_COUNT_MAX)
        return tm_error_set(e, TM_EUSAGE, "a forecast is of at most %d instances, not %d", TM_FORECAST_COUNT_MAX,
                            options->capacity);
    struct tm_forecaster *f = tm_calloc(1, sizeof *f);
    if (f == NULL) return tm_error_nomem(e);
    f->options = *options;
    f->top = options->capacity;
    int rc = 0;
    if (options->method == TM_FORECAST_LAST) rc = tm_last_errors__init(&f->errors, options->horizon_max, e);
    if (options->method == TM_FORECAST_PARCAE) rc = tm_parcae__create(options, &f->parcae, e);
    if (options->method == TM_FORECAST_TIDEMILL) rc = tm_tide__create(options, &f->tide, e);
    if (rc != 0) {
        tm_forecaster_destroy(f);
        return rc;
    }
    *out_forecaster = f;
    return 0;
}

void tm_forecaster_destroy(struct tm_forecaster *forecaster)
{
    if (forecaster == NULL) return;
    tm_last_errors__deinit(&forecaster->errors);
    tm_parcae__destroy(forecaster->parcae);
    tm_tide__destroy(forecaster->tide);
    tm_free(forecaster->pmf);
    tm_free(forecaster);
}

/* Room for the highest count that a distribution of this method may hold. */
static int make_room(struct tm_forecaster *f, int count, struct tm_error *e)
{
    int top = count > f->top ? count : f->top;
    int need = f->tide != NULL ? tm_tide__count_max(f->tide) : 2 * top;
    if (f->parcae != NULL && need < 64) need = 64;
    if (f->pmf != NULL && need <= f->count_max) return 0;
    need += need / 4;
    double *pmf = tm_calloc((size_t)f->options.horizon_max * ((size_t)need + 1), sizeof *pmf);
    if (pmf == NULL) return tm_error_nomem(e);
    tm_free(f->pmf);
    f->pmf = pmf;
    f->count_max = need;
    return 0;
}

/* ---- evidence ---- */

void tm_forecaster_hint(struct tm_forecaster *forecaster, enum tm_forecast_hint kind, int losing, int within_steps)
{
    if (losing <= 0 || forecaster->options.method != TM_FORECAST_TIDEMILL) return;
    if (forecaster->hint_count == HINTS_MAX) { /* the oldest has waited longest */
        memmove(forecaster->hints, forecaster->hints + 1, (HINTS_MAX - 1) * sizeof *forecaster->hints);
        forecaster->hint_count--;
    }
    forecaster->hints[forecaster->hint_count++] =
        (struct hint){.kind = kind, .losing = losing, .within = within_steps < 1 ? 1 : within_steps};
}

/* Losses are taken to be those announced, the oldest first; what was not lost in time was no good hint. */
static void settle_hints(struct tm_forecaster *f, int losses)
{
    int left = 0;
    for (int i = 0; i < f->hint_count; i++) {
        struct hint hint = f->hints[i];
        int went = losses < hint.losing ? losses : hint.losing;
        losses -= went;
        hint.losing -= went;
        hint.within--;
        bool over = hint.within == 0;
        if (hint.kind == TM_FORECAST_REBALANCE) {
            f->rebalance_kept += went;
            f->rebalance_broken += over ? hint.losing : 0;
        }
        if (!over && hint.losing > 0) f->hints[left++] = hint;
    }
    f->hint_count = left;
}

/* The distribution at a step with what was announced taken away from it. A loss may come at any time up to its end. */
static void apply_hints(const struct tm_forecaster *f, int step, double *pmf)
{
    for (int i = 0; i < f->hint_count; i++) {
        const struct hint *hint = &f->hints[i];
        double due = step >= hint->within ? 1 : (double)step / hint->within;
        double trust = hint->kind == TM_FORECAST_NOTICE
                           ? 1
                           : (f->rebalance_kept + 1) / (f->rebalance_kept + f->rebalance_broken + 2);
        double share = due * trust;
        for (int k = 0; k <= f->count_max; k++) {
            double moved = share * pmf[k];
            pmf[k] -= moved;
            pmf[k > hint->losing ? k - hint->losing : 0] += moved;
        }
    }
}

/* ---- observing ---- */

int tm_forecaster_observe(struct tm_forecaster *forecaster, int count, int arrivals, int losses, struct tm_error *e)
{
    (void)arrivals; /* counts and losses say it; kept in the contract for methods to come */
    if (count < 0 || count > TM_FORECAST_COUNT_MAX)
        return tm_error_set(e, TM_ELIMIT, "forecasts are of 0 to %d instances, not %d", TM_FORECAST_COUNT_MAX, count);
    int rc = 0;
    if (forecaster->options.method == TM_FORECAST_LAST) rc = tm_last_errors__observe(&forecaster->errors, count, e);
    if (forecaster->tide != NULL) rc = tm_tide__observe(forecaster->tide, count, e);
    if (rc != 0) return rc;
    if (forecaster->parcae != NULL) tm_parcae__observe(forecaster->parcae, count, losses);
    settle_hints(forecaster, losses);
    forecaster->count = count;
    if (count > forecaster->top) forecaster->top = count;
    forecaster->observed++;
    return 0;
}

/* ---- predicting ---- */

/* The last count plus the errors seen; what would be below 0 is 0. */
static void predict_last(const struct tm_forecaster *f, int step, double *pmf)
{
    double total;
    const double *seen = tm_last_errors__at(&f->errors, step, &total);
    memset(pmf, 0, ((size_t)f->count_max + 1) * sizeof *pmf);
    if (total == 0) {
        pmf[f->count] = 1;
        return;
    }
    int reach = f->errors.count_max;
    for (int error = -reach; error <= reach; error++) {
        int count = f->count + error;
        if (seen[error + reach] == 0) continue;
        pmf[count < 0 ? 0 : count] += seen[error + reach] / total;
    }
}

static void summarise(const double *pmf, int count_max, struct tm_forecast_step *out)
{
    static const double at[3] = {0.1, 0.5, 0.9};
    int quantile[3] = {0, 0, 0};
    double sum = 0;
    double mean = 0;
    int next = 0;
    for (int k = 0; k <= count_max && next < 3; k++) {
        sum += pmf[k];
        while (next < 3 && sum >= at[next] - 1e-9)
            quantile[next++] = k;
    }
    for (int k = 0; k <= count_max; k++)
        mean += pmf[k] * k;
    *out = (struct tm_forecast_step){
        .pmf = pmf, .mean = mean, .p10 = quantile[0], .p50 = quantile[1], .p90 = quantile[2], .point = quantile[1]};
}

static int predict_parcae(struct tm_forecaster *f, int horizon, struct tm_forecast *out, struct tm_error *e)
{
    int counts[TM_FORECAST_STEPS_MAX];
    int rc = tm_parcae__predict(f->parcae, horizon, counts, e);
    if (rc != 0) return rc;
    for (int h = 0; h < horizon; h++) {
        double *pmf = f->pmf + (size_t)h * ((size_t)f->count_max + 1);
        assert(counts[h] <= f->count_max);
        memset(pmf, 0, ((size_t)f->count_max + 1) * sizeof *pmf);
        pmf[counts[h]] = 1;
        out->steps[h] = (struct tm_forecast_step){
            .pmf = pmf, .mean = counts[h], .p10 = counts[h], .p50 = counts[h], .p90 = counts[h], .point = counts[h]};
    }
    return 0;
}

static void set_changes(int last, struct tm_forecast *out)
{
    for (int h = 0; h < out->horizon; h++) {
        int change = out->steps[h].point - last;
        out->steps[h].in = change > 0 ? change : 0;
        out->steps[h].out = change < 0 ? -change : 0;
        last = out->steps[h].point;
    }
}

int tm_forecaster_predict(struct tm_forecaster *forecaster, int horizon, struct tm_forecast *out, struct tm_error *e)
{
    struct tm_forecaster *f = forecaster;
    if (f->observed == 0) return tm_error_set(e, TM_EUSAGE, "a forecast needs at least one count to start from");
    if (horizon < 1 || horizon > f->options.horizon_max)
        return tm_error_set(e, TM_EUSAGE, "this forecaster looks 1 to %d intervals ahead, not %d",
                            f->options.horizon_max, horizon);
    int rc = make_room(f, f->count, e);
    if (rc != 0) return rc;
    out->horizon = horizon;
    out->count_max = f->count_max;
    if (f->parcae != NULL) rc = predict_parcae(f, horizon, out, e);
    if (rc != 0) return rc;
    size_t counts = (size_t)f->count_max + 1;
    if (f->tide != NULL) tm_tide__predict(f->tide, horizon, f->count_max, f->pmf);
    for (int h = 0; h < horizon && f->parcae == NULL; h++) {
        double *pmf = f->pmf + (size_t)h * counts;
        if (f->tide == NULL) predict_last(f, h, pmf);
        apply_hints(f, h + 1, pmf);
        summarise(pmf, f->count_max, &out->steps[h]);
        if (f->tide == NULL) out->steps[h].point = f->count;
    }
    set_changes(f->count, out);
    return 0;
}
