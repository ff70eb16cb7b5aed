/* The errors of "it stays as it is", by look-ahead. */
#include "base/alloc.h"
#include "market/forecast_internal.h"

#include <string.h>

int tm_last_errors__init(struct tm_last_errors *errors, int steps, struct tm_error *e)
{
    *errors = (struct tm_last_errors){.steps = steps};
    errors->total = tm_calloc((size_t)steps, sizeof *errors->total);
    errors->newest = tm_calloc((size_t)steps, sizeof *errors->newest);
    if (errors->total != NULL && errors->newest != NULL) return 0;
    tm_last_errors__deinit(errors);
    return tm_error_nomem(e);
}

void tm_last_errors__deinit(struct tm_last_errors *errors)
{
    tm_free(errors->seen);
    tm_free(errors->pooled);
    tm_free(errors->total);
    tm_free(errors->newest);
    *errors = (struct tm_last_errors){0};
}

/* Makes room for counts up to `count`, at least doubling. */
static int widen(struct tm_last_errors *errors, int count, struct tm_error *e)
{
    if (count <= errors->count_max && errors->seen != NULL) return 0;
    int old = errors->count_max;
    int wide = 2 * old > count ? 2 * old : count < 16 ? 16 : count;
    if (wide > TM_FORECAST_COUNT_MAX) wide = TM_FORECAST_COUNT_MAX;
    size_t width = 2 * (size_t)wide + 1;
    double *seen = tm_calloc((size_t)errors->steps * width, sizeof *seen);
    double *pooled = tm_calloc(width, sizeof *pooled);
    if (seen == NULL || pooled == NULL) {
        tm_free(seen);
        tm_free(pooled);
        return tm_error_nomem(e);
    }
    if (errors->seen != NULL) {
        size_t old_width = 2 * (size_t)old + 1;
        size_t shift = (size_t)(wide - old);
        for (size_t s = 0; s < (size_t)errors->steps; s++)
            memcpy(seen + s * width + shift, errors->seen + s * old_width, old_width * sizeof *seen);
        memcpy(pooled + shift, errors->pooled, old_width * sizeof *pooled);
    }
    tm_free(errors->seen);
    tm_free(errors->pooled);
    errors->seen = seen;
    errors->pooled = pooled;
    errors->count_max = wide;
    return 0;
}

int tm_last_errors__observe(struct tm_last_errors *errors, int count, struct tm_error *e)
{
    int rc = widen(errors, count, e);
    if (rc != 0) return rc;
    size_t width = 2 * (size_t)errors->count_max + 1;
    for (int s = 0; s < errors->steps && s < errors->observed; s++) {
        int before = errors->newest[(errors->observed - 1 - s) % errors->steps];
        int error = count - before + errors->count_max;
        size_t at = (size_t)error;
        errors->seen[(size_t)s * width + at]++;
        errors->total[s]++;
        errors->pooled[at]++;
        errors->total_pooled++;
    }
    errors->newest[errors->observed % errors->steps] = count;
    errors->observed++;
    return 0;
}

const double *tm_last_errors__at(const struct tm_last_errors *errors, int step, double *out_total)
{
    bool enough = errors->total[step] >= TM_LAST_ERRORS_MIN;
    *out_total = enough ? errors->total[step] : errors->total_pooled;
    return enough ? errors->seen + (size_t)step * (2 * (size_t)errors->count_max + 1) : errors->pooled;
}
