/* json-series: {"metadata": {"gap_seconds": G}, "data": [n0, n1, ...], "prices": [...]}; n_i instances are available
 * from second i*G on (1, or N, means available); prices, where there are any, are $ per instance-hour. */
#include "market/trace_format.h"

#include "base/doc.h"

#include <math.h>
#include <string.h>

static bool probe_json_series(const struct tm_trace_input *input)
{
    size_t at = 0;
    while (at < input->length && memchr(" \t\r\n", input->text[at], 4) != NULL)
        at++;
    return at < input->length && input->text[at] == '{';
}

static int read_gap(const struct tm_trace_input *input, const json_t *root, int64_t *out_ms, struct tm_error *e)
{
    const json_t *gap = json_object_get(json_object_get(root, "metadata"), "gap_seconds");
    double gap_s = json_number_value(gap);
    if (!json_is_number(gap) || !(gap_s >= 0.001 && gap_s <= 1e8))
        return tm_error_set(e, TM_EINPUT,
                            "%s: metadata.gap_seconds: expected a number of seconds above 0, for example 60",
                            input->file);
    *out_ms = llround(gap_s * 1000);
    return 0;
}

static int read_price(const struct tm_trace_input *input, const json_t *prices, size_t i, double *previous, double *out,
                      struct tm_error *e)
{
    *out = NAN;
    if (prices == NULL) return 0;
    const json_t *price = json_array_get(prices, i);
    if (json_is_null(price)) return 0;
    if (!json_is_number(price) || !(json_number_value(price) >= 0))
        return tm_error_set(e, TM_EINPUT, "%s: prices[%zu]: expected a price of 0 or more", input->file, i);
    double value = json_number_value(price);
    if (value != *previous) *out = value;
    *previous = value;
    return 0;
}

static int read_samples(const struct tm_trace_input *input, const json_t *data, const json_t *prices,
                        struct tm_trace *trace, struct tm_error *e)
{
    struct tm_trace_levels levels = {.input = input, .trace = trace};
    double previous_price = NAN;
    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *count = json_array_get(data, i);
        if (!json_is_integer(count) || json_integer_value(count) < 0 ||
            json_integer_value(count) > TM_TRACE_INSTANCES_MAX)
            return tm_error_set(e, TM_EINPUT, "%s: data[%zu]: expected a number of instances from 0 to %d", input->file,
                                i, TM_TRACE_INSTANCES_MAX);
        double price = NAN;
        int rc = read_price(input, prices, i, &previous_price, &price, e);
        if (rc == 0)
            rc = tm_trace__level(&levels, 1, (int64_t)i * trace->interval_ms, json_integer_value(count), price, e);
        if (rc != 0) return rc;
    }
    trace->end_ms = (int64_t)json_array_size(data) * trace->interval_ms;
    return 0;
}

static int read_root(const struct tm_trace_input *input, const json_t *root, struct tm_trace *trace, struct tm_error *e)
{
    const json_t *data = json_object_get(root, "data");
    const json_t *prices = json_object_get(root, "prices");
    if (!json_is_array(data) || json_array_size(data) == 0)
        return tm_error_set(e, TM_EINPUT, "%s: data: expected a list of counts, for example [1, 1, 0]", input->file);
    if (prices != NULL && (!json_is_array(prices) || json_array_size(prices) != json_array_size(data)))
        return tm_error_set(e, TM_EINPUT, "%s: prices: expected a list as long as data (%zu values)", input->file,
                            json_array_size(data));
    int rc = read_gap(input, root, &trace->interval_ms, e);
    return rc == 0 ? read_samples(input, data, prices, trace, e) : rc;
}

static int read_json_series(const struct tm_trace_input *input, struct tm_trace *trace, struct tm_error *e)
{
    json_t *root = NULL;
    int rc = tm_json_load(input->file, input->text, input->length, &root, e);
    if (rc != 0) return rc;
    rc = read_root(input, root, trace, e);
    json_decref(root);
    return rc;
}

const struct tm_trace_format tm_trace__json_series = {
    .name = "json-series",
    .summary = "JSON with metadata.gap_seconds, data (counts) and optionally prices",
    .probe = probe_json_series,
    .read = read_json_series,
};
