#include "workload/observed.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"

#include <math.h>
#include <stdlib.h>

void tm_observed_init(struct tm_observed *observed)
{
    *observed = (struct tm_observed){0};
}

void tm_observed_deinit(struct tm_observed *observed)
{
    tm_free(observed->step_s);
    *observed = (struct tm_observed){0};
}

static int add_step(const struct tm_csv *csv, int column, struct tm_observed *observed, struct tm_error *e)
{
    double step_s = 0;
    struct tm_slice text =
        (size_t)column < csv->field_count ? tm_slice_trim(csv->fields[column]) : (struct tm_slice){"", 0};
    if (!tm_number_double(text.data, text.length, &step_s) || !(step_s > 0) || step_s > 1e9)
        return tm_error_set(e, TM_EINPUT, "%s:%d: expected the seconds of a step, above 0", csv->file, csv->line);
    void *steps = observed->step_s;
    int rc = tm_grow(&steps, &observed->capacity, observed->count + 1, sizeof step_s, TM_OBSERVED_STEPS_MAX);
    observed->step_s = steps;
    if (rc == -(int)TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "%s: more than %d steps", csv->file, TM_OBSERVED_STEPS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    observed->step_s[observed->count++] = step_s;
    return 0;
}

int tm_observed_parse(const char *file, const char *text, size_t length, struct tm_observed *observed,
                      struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    tm_csv_init(csv, file, text, length);
    csv->comments = true;
    int rc = tm_csv_next(csv, e);
    int column = rc == 1 ? tm_csv_find(csv, "step_s") : -1;
    if (rc == 1) rc = column >= 0 ? 0 : add_step(csv, 0, observed, e); /* no header: the first line is a step */
    if (column < 0) column = 0;
    while (rc >= 0 && (rc = tm_csv_next(csv, e)) == 1)
        rc = add_step(csv, column, observed, e);
    tm_free(csv);
    if (rc == 0 && observed->count == 0) rc = tm_error_set(e, TM_EINPUT, "%s: no steps", file);
    return rc;
}

int tm_observed_load(struct tm_env *env, const char *path, struct tm_observed *observed, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 64 << 20);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_observed_parse(path, tm_text_string(&text), text.length, observed, e);
    tm_text_deinit(&text);
    return rc;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double tm_observed_correct(struct tm_observed *observed, struct tm_prediction *prediction)
{
    size_t count = observed->count;
    if (count == 0) return 1;
    qsort(observed->step_s, count, sizeof *observed->step_s, compare_doubles);
    double median = observed->step_s[count / 2];
    /* Spread of one step, from the middle 80% so that stragglers and pauses do not count, never below 1%. */
    double low = observed->step_s[count / 10];
    double high = observed->step_s[count - 1 - count / 10];
    double step_spread = fmax(tm_estimate__spread_between(low, high), 0.01);
    double belief_spread = fmax(tm_estimate_spread(&prediction->step_s), 1e-6);
    double evidence = (double)count / (step_spread * step_spread);
    double belief = 1 / (belief_spread * belief_spread);
    double factor = exp(evidence / (evidence + belief) * log(median / prediction->step_s.mean));
    double spread = sqrt(step_spread * step_spread + 1 / (evidence + belief));
    tm_prediction_slow(prediction, factor);
    prediction->step_s = tm_estimate_around(prediction->step_s.mean, spread);
    return factor;
}
