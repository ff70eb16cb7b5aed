#include "market/series.h"

#include "base/alloc.h"
#include "market/forecast.h"

void tm_series_init(struct tm_series *series)
{
    *series = (struct tm_series){0};
}

void tm_series_deinit(struct tm_series *series)
{
    tm_free(series->points);
    *series = (struct tm_series){0};
}

int tm_series_sample(const struct tm_trace *trace, int64_t interval_ms, struct tm_series *out, struct tm_error *e)
{
    if (interval_ms <= 0) return tm_error_set(e, TM_EUSAGE, "counts need an interval above 0");
    if (trace->event_count == 0) return tm_error_set(e, TM_EINPUT, "the trace has no events");
    int64_t first_ms = trace->events[0].time_ms;
    int64_t last_event_ms = trace->events[trace->event_count - 1].time_ms;
    int64_t span_ms = trace->end_ms - first_ms;
    int64_t count = span_ms / interval_ms + (span_ms % interval_ms != 0 || last_event_ms == trace->end_ms);
    if (count < 1) count = 1;
    if (count > TM_SERIES_MAX)
        return tm_error_set(e, TM_ELIMIT, "%lld intervals, at most %d: use a longer interval", (long long)count,
                            (int)TM_SERIES_MAX);
    struct tm_series_point *points = tm_calloc((size_t)count, sizeof *points);
    if (points == NULL) return tm_error_nomem(e);
    size_t at = 0;
    int64_t now = 0;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        for (; at < trace->event_count && trace->events[at].time_ms <= first_ms + i * interval_ms; at++) {
            now += (int64_t)trace->events[at].in - trace->events[at].out;
            points[i].arrivals += i > 0 ? trace->events[at].in : 0;
            points[i].losses += i > 0 ? trace->events[at].out : 0;
        }
        if (now > TM_FORECAST_COUNT_MAX) {
            tm_free(points);
            return tm_error_set(e, TM_ELIMIT, "%lld instances at once; forecasts are of at most %d", (long long)now,
                                (int)TM_FORECAST_COUNT_MAX);
        }
        points[i].count = (int)now;
        sum += (double)now;
    }
    tm_series_deinit(out);
    *out = (struct tm_series){.interval_ms = interval_ms,
                              .begin_ms = first_ms,
                              .points = points,
                              .count = (size_t)count,
                              .mean = sum / (double)count};
    return 0;
}
