#include "workload/scaling.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"
#include "workload/fit.h"

#include <math.h>

void tm_scaling_data_init(struct tm_scaling_data *data)
{
    *data = (struct tm_scaling_data){0};
}

void tm_scaling_data_deinit(struct tm_scaling_data *data)
{
    tm_free(data->points);
    *data = (struct tm_scaling_data){0};
}

/* ---- reading ---- */

static int take_row(const struct tm_csv *csv, int instances_at, int seconds_at, struct tm_scaling_data *data,
                    struct tm_error *e)
{
    struct tm_scaling_point point = {0};
    size_t last = (size_t)(instances_at > seconds_at ? instances_at : seconds_at);
    if (csv->field_count <= last)
        return tm_error_set(e, TM_EINPUT, "%s:%d: expected nodes and seconds", csv->file, csv->line);
    struct tm_slice instances = tm_slice_trim(csv->fields[instances_at]);
    struct tm_slice seconds = tm_slice_trim(csv->fields[seconds_at]);
    if (!tm_number_double(instances.data, instances.length, &point.instances) || point.instances < 1 ||
        point.instances > 1e6)
        return tm_error_set(e, TM_EINPUT, "%s:%d: nodes: expected a number from 1 to 1000000", csv->file, csv->line);
    if (!tm_number_double(seconds.data, seconds.length, &point.seconds) || !(point.seconds > 0) || point.seconds > 1e9)
        return tm_error_set(e, TM_EINPUT, "%s:%d: seconds: expected a number above 0", csv->file, csv->line);
    void *points = data->points;
    int rc = tm_grow(&points, &data->capacity, data->count + 1, sizeof point, TM_SCALING_POINTS_MAX);
    data->points = points;
    if (rc == -(int)TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "%s: more than %d measurements", csv->file, TM_SCALING_POINTS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    data->points[data->count++] = point;
    return 0;
}

int tm_scaling_data__parse(const char *file, const char *text, size_t length, struct tm_scaling_data *data,
                           struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    tm_csv_init(csv, file, text, length);
    csv->comments = true;
    int rc = tm_csv_next(csv, e);
    int instances_at = rc == 1 ? tm_csv_find(csv, "nodes") : -1;
    int seconds_at = rc == 1 ? tm_csv_find(csv, "seconds") : -1;
    if (rc >= 0 && (instances_at < 0 || seconds_at < 0))
        rc = tm_error_set(e, TM_EINPUT, "%s:1: expected a header with nodes,seconds", file);
    while (rc >= 0 && (rc = tm_csv_next(csv, e)) == 1)
        rc = take_row(csv, instances_at, seconds_at, data, e);
    tm_free(csv);
    return rc;
}

int tm_scaling_data_load(struct tm_env *env, const char *path, struct tm_scaling_data *data, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_scaling_data__parse(path, tm_text_string(&text), text.length, data, e);
    tm_text_deinit(&text);
    return rc;
}

/* ---- fitting ---- */

enum { X_A, X_B, X_C, UNKNOWNS };

struct context {
    const struct tm_scaling_data *data;
    double one_s; /* time of one instance */
};

static double logistic(double a, double b, double c, double n)
{
    return c / (1 + exp(-a * (n - b)));
}

/* a and c as logarithms: both are positive. */
static double logistic_residual(const void *context, const double *x, size_t i)
{
    const struct context *known = context;
    const struct tm_scaling_point *point = &known->data->points[i];
    double off = logistic(exp(x[X_A]), x[X_B], exp(x[X_C]), point->instances) - known->one_s / point->seconds;
    return off / 1e-3; /* so sure of the data that the prior does not count */
}

static double physical_time(const double *x, double n)
{
    return (exp(x[0]) + exp(x[1]) * 2 * (n - 1) / n + exp(x[2]) * (n - 1)) / n;
}

static double physical_residual(const void *context, const double *x, size_t i)
{
    const struct tm_scaling_point *point = &((const struct context *)context)->data->points[i];
    return log(physical_time(x, point->instances) / point->seconds) / 0.03;
}

/* Standard errors from the curvature at the solution and the residuals' own spread. */
static void find_errors(const struct context *known, const double *x, struct tm_scaling_fit *out)
{
    size_t count = known->data->count;
    double normal[UNKNOWNS * UNKNOWNS] = {0};
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        double row[UNKNOWNS];
        double r = logistic_residual(known, x, i);
        squares += r * r;
        for (int j = 0; j < UNKNOWNS; j++) {
            double moved[UNKNOWNS] = {x[X_A], x[X_B], x[X_C]};
            moved[j] += 1e-6;
            row[j] = (logistic_residual(known, moved, i) - r) / 1e-6;
        }
        for (int j = 0; j < UNKNOWNS; j++) {
            for (int k = 0; k < UNKNOWNS; k++)
                normal[j * UNKNOWNS + k] += row[j] * row[k];
        }
    }
    double *const errors[] = {&out->a_error, &out->b_error, &out->c_error};
    const double scale[] = {out->a, 1, out->c}; /* from logarithms back */
    for (int j = 0; j < UNKNOWNS; j++) {
        double a[UNKNOWNS * UNKNOWNS];
        double unit[UNKNOWNS] = {0};
        for (int k = 0; k < UNKNOWNS * UNKNOWNS; k++)
            a[k] = normal[k];
        unit[j] = 1;
        bool known_error = count > UNKNOWNS && tm_fit__cholesky(UNKNOWNS, a, unit) == 0;
        *errors[j] = known_error ? scale[j] * sqrt(unit[j] * squares / (double)(count - UNKNOWNS)) : NAN;
    }
}

static double off_percent(double measured, double estimate)
{
    return 100 * fabs(measured - estimate) / fmax(measured, estimate);
}

static void find_misfits(const struct context *known, const double *physical, struct tm_scaling_fit *out)
{
    double count = (double)known->data->count;
    for (size_t i = 0; i < known->data->count; i++) {
        const struct tm_scaling_point *point = &known->data->points[i];
        double measured = known->one_s / point->seconds;
        double curve = logistic(out->a, out->b, out->c, point->instances);
        double tangent = out->c * out->a / 4 * (point->instances - out->b) + out->c / 2;
        double estimate = point->instances <= out->b ? fmax(tangent, 1e-9) : curve;
        out->logistic_percent += off_percent(measured, curve) / count;
        out->estimate_percent += off_percent(measured, estimate) / count;
        out->physical_percent +=
            off_percent(measured, known->one_s / physical_time(physical, point->instances)) / count;
    }
}

static int fit_logistic(const struct context *known, double instances_max, double speedup_max,
                        struct tm_scaling_fit *out, struct tm_error *e)
{
    const double prior[UNKNOWNS] = {log(4 / instances_max), instances_max / 2, log(speedup_max)};
    const double spread[UNKNOWNS] = {3, 3 * instances_max, 3}; /* so wide that only the data speak */
    struct tm_fit fit = {.unknowns = UNKNOWNS,
                         .residuals = known->data->count,
                         .prior = prior,
                         .spread = spread,
                         .residual = logistic_residual,
                         .context = known};
    double x[UNKNOWNS];
    int rc = tm_fit__solve(&fit, x, e);
    if (rc != 0) return rc;
    out->a = exp(x[X_A]);
    out->b = x[X_B];
    out->c = exp(x[X_C]);
    find_errors(known, x, out);
    return 0;
}

int tm_scaling_fit(const struct tm_scaling_data *data, struct tm_scaling_fit *out, struct tm_error *e)
{
    struct context known = {.data = data};
    double instances_max = 1;
    double fastest_s = INFINITY;
    size_t ones = 0;
    for (size_t i = 0; i < data->count; i++) {
        instances_max = fmax(instances_max, data->points[i].instances);
        fastest_s = fmin(fastest_s, data->points[i].seconds);
        if (data->points[i].instances != 1) continue;
        known.one_s += data->points[i].seconds;
        ones++;
    }
    if (ones == 0) return tm_error_set(e, TM_EINPUT, "no measurement with nodes = 1: speed-up is counted from it");
    if (data->count < 3 || instances_max < 2)
        return tm_error_set(e, TM_EINPUT, "a curve needs at least three measurements, with different numbers of nodes");
    known.one_s /= (double)ones;
    *out = (struct tm_scaling_fit){0};
    int rc = fit_logistic(&known, instances_max, known.one_s / fastest_s, out, e);
    if (rc != 0) return rc;
    const double prior[3] = {log(known.one_s), log(known.one_s / 2), log(known.one_s / 50)};
    const double spread[3] = {0.5, 2, 2};
    struct tm_fit fit = {.unknowns = 3,
                         .residuals = data->count,
                         .prior = prior,
                         .spread = spread,
                         .robust = 3,
                         .residual = physical_residual,
                         .context = &known};
    double x[3];
    rc = tm_fit__solve(&fit, x, e);
    if (rc != 0) return rc;
    out->work_s = exp(x[0]);
    out->exchange_s = exp(x[1]);
    out->latency_s = exp(x[2]);
    find_misfits(&known, x, out);
    return 0;
}
