#include "workload/probed_links.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"

#include <math.h>
#include <stdlib.h>

struct samples {
    double *mbit;
    size_t mbit_count, mbit_capacity;
    double *latency_ms;
    size_t latency_count, latency_capacity;
};

static int add(double **values, size_t *count, size_t *capacity, double value, const struct tm_csv *csv,
               struct tm_error *e)
{
    void *array = *values;
    int rc = tm_grow(&array, capacity, *count + 1, sizeof value, TM_PROBED_LINKS_MAX);
    *values = array;
    if (rc == -(int)TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "%s: more than %d links", csv->file, TM_PROBED_LINKS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    (*values)[(*count)++] = value;
    return 0;
}

/* A field above 0; an empty one is skipped where it may be. */
static int read_field(const struct tm_csv *csv, int column, const char *name, bool needed, double *out,
                      struct tm_error *e)
{
    struct tm_slice text = {"", 0};
    if (column >= 0 && (size_t)column < csv->field_count) text = tm_slice_trim(csv->fields[column]);
    *out = NAN;
    if (text.length == 0 && !needed) return 0;
    if (!tm_number_double(text.data, text.length, out) || !(*out > 0) || *out > 1e9)
        return tm_error_set(e, TM_EINPUT, "%s:%d: %s: expected a number above 0, got \"%.*s\"", csv->file, csv->line,
                            name, (int)(text.length < 40 ? text.length : 40), text.data);
    return 0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sum_up(struct samples *samples, struct tm_probed_links *out)
{
    double sum = 0;
    double squares = 0;
    size_t count = samples->mbit_count;
    qsort(samples->mbit, count, sizeof *samples->mbit, compare_doubles);
    for (size_t i = 0; i < count; i++) {
        sum += log(samples->mbit[i]);
        squares += log(samples->mbit[i]) * log(samples->mbit[i]);
    }
    double mean = sum / (double)count;
    *out = (struct tm_probed_links){.count = count,
                                    .rate_bit_s = samples->mbit[count / 10] * 1e6,
                                    .latency_ms = NAN,
                                    .spread = sqrt(fmax(0, squares / (double)count - mean * mean))};
    if (samples->latency_count == 0) return;
    qsort(samples->latency_ms, samples->latency_count, sizeof *samples->latency_ms, compare_doubles);
    out->latency_ms = samples->latency_ms[samples->latency_count / 2];
}

/* What a row's link gives a ring: as measured in one, else both ways, else one way. */
static int read_rate(const struct tm_csv *csv, const int *columns, size_t count, double *out, struct tm_error *e)
{
    static const char *const names[] = {"mbit", "both_mbit", "together_mbit"};
    for (size_t i = 0; i < count; i++) {
        double rate = NAN;
        int rc = read_field(csv, columns[i], names[i], i == 0, &rate, e);
        if (rc != 0) return rc;
        if (!isnan(rate)) *out = rate;
    }
    return 0;
}

static int read_rows(struct tm_csv *csv, struct samples *samples, struct tm_error *e)
{
    int rc = tm_csv_next(csv, e);
    const int mbit[] = {rc == 1 ? tm_csv_find(csv, "mbit") : -1, rc == 1 ? tm_csv_find(csv, "both_mbit") : -1,
                        rc == 1 ? tm_csv_find(csv, "together_mbit") : -1};
    int latency = rc == 1 ? tm_csv_find(csv, "latency_ms") : -1;
    if (rc >= 0 && mbit[0] < 0)
        return tm_error_set(e, TM_EINPUT, "%s: expected a header with the column mbit, and optionally latency_ms",
                            csv->file);
    while (rc >= 0 && (rc = tm_csv_next(csv, e)) == 1) {
        double rate = 0;
        double delay = 0;
        rc = read_rate(csv, mbit, 3, &rate, e);
        if (rc == 0) rc = read_field(csv, latency, "latency_ms", false, &delay, e);
        if (rc == 0) rc = add(&samples->mbit, &samples->mbit_count, &samples->mbit_capacity, rate, csv, e);
        if (rc == 0 && !isnan(delay))
            rc = add(&samples->latency_ms, &samples->latency_count, &samples->latency_capacity, delay, csv, e);
    }
    if (rc == 0 && samples->mbit_count == 0) rc = tm_error_set(e, TM_EINPUT, "%s: no links", csv->file);
    return rc;
}

int tm_probed_links__parse(const char *file, const char *text, size_t length, struct tm_probed_links *out,
                           struct tm_error *e)
{
    struct samples samples = {0};
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    tm_csv_init(csv, file, text, length);
    csv->comments = true;
    int rc = read_rows(csv, &samples, e);
    if (rc == 0) sum_up(&samples, out);
    tm_free(samples.mbit);
    tm_free(samples.latency_ms);
    tm_free(csv);
    return rc;
}

int tm_probed_links_load(struct tm_env *env, const char *path, struct tm_probed_links *out, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 64 << 20);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_probed_links__parse(path, tm_text_string(&text), text.length, out, e);
    tm_text_deinit(&text);
    return rc;
}

void tm_probed_links_use(const struct tm_probed_links *links, struct tm_fleet_group *groups, size_t group_count,
                         struct tm_comm_model *comm)
{
    for (size_t g = 0; g < group_count; g++) {
        groups[g].network_bit_s = links->rate_bit_s;
        groups[g].burst_bit_s = 0;
    }
    tm_comm_probed(links->latency_ms, links->spread, comm);
}
