#include "sim/fan.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum { SERIES = 5 }; /* time, p10, p50, p90, truth */

/* Under way: interval i of the trace is at begin_ms + i * interval_ms; point k is about interval first + k. */
struct walk {
    const struct tm_trace *trace;
    const struct tm_sim_fan_options *options;
    struct tm_forecaster *forecaster;
    int64_t begin_ms;
    int64_t first, end; /* intervals */
    int64_t stride;
    size_t next_event;
    int count;
    double *series[SERIES];
};

/* The fleet at an interval, told to the forecaster. */
static int observe(struct walk *walk, int64_t interval, struct tm_error *e)
{
    int64_t now_ms = walk->begin_ms + interval * walk->options->interval_ms;
    int arrived = 0, lost = 0;
    for (; walk->next_event < walk->trace->event_count; walk->next_event++) {
        const struct tm_trace_event *event = &walk->trace->events[walk->next_event];
        if (event->time_ms > now_ms) break;
        arrived += event->in;
        lost += event->out;
    }
    walk->count += arrived - lost;
    return tm_forecaster_observe(walk->forecaster, walk->count, interval == 0 ? 0 : arrived, interval == 0 ? 0 : lost,
                                 e);
}

/* What is said now of the interval `horizon` from now. Parcae's predictor must be asked each time: it draws numbers. */
static int foretell(struct walk *walk, int64_t interval, struct tm_error *e)
{
    int64_t about = interval + walk->options->horizon, point = about - walk->first;
    bool wanted = about >= walk->first && about < walk->end && point % walk->stride == 0;
    if (!wanted && walk->options->method != TM_FORECAST_PARCAE) return 0;
    struct tm_forecast forecast;
    int rc = tm_forecaster_predict(walk->forecaster, walk->options->horizon, &forecast, e);
    if (rc != 0 || !wanted) return rc;
    const struct tm_forecast_step *step = &forecast.steps[walk->options->horizon - 1];
    walk->series[1][point] = step->p10;
    walk->series[2][point] = step->p50;
    walk->series[3][point] = step->p90;
    return 0;
}

static int walk_trace(struct walk *walk, struct tm_error *e)
{
    for (int64_t i = 0; i < walk->end; i++) {
        int rc = observe(walk, i, e);
        if (rc == 0) rc = foretell(walk, i, e);
        if (rc != 0) return rc;
        if (i < walk->first) continue;
        walk->series[0][i - walk->first] = (double)((i - walk->first) * walk->options->interval_ms) / 1000;
        walk->series[4][i - walk->first] = walk->count;
    }
    return 0;
}

/* Leaves only the points of which something was said. */
static size_t keep_foretold(struct walk *walk)
{
    size_t kept = 0, count = (size_t)(walk->end - walk->first);
    for (size_t i = 0; i < count; i++) {
        if (isnan(walk->series[2][i])) continue;
        for (int s = 0; s < SERIES; s++)
            walk->series[s][kept] = walk->series[s][i];
        kept++;
    }
    return kept;
}

static int plan_walk(struct walk *walk, struct tm_error *e)
{
    const struct tm_sim_fan_options *o = walk->options;
    if (o->interval_ms <= 0 || o->from_ms < walk->trace->begin_ms || o->to_ms <= o->from_ms)
        return tm_error_set(e, TM_EUSAGE, "no intervals of the trace to forecast");
    walk->first = (o->from_ms - walk->trace->begin_ms) / o->interval_ms;
    walk->begin_ms = o->from_ms - walk->first * o->interval_ms;
    int64_t count = (o->to_ms - o->from_ms + o->interval_ms - 1) / o->interval_ms;
    walk->end = walk->first + count;
    walk->stride = (count + TM_SIM_FAN_POINTS - 1) / TM_SIM_FAN_POINTS;
    if (walk->end > TM_SIM_MOMENTS_MAX)
        return tm_error_set(e, TM_ELIMIT, "more than %d intervals to forecast; use less time or a longer interval",
                            (int)TM_SIM_MOMENTS_MAX);
    return 0;
}

int tm_sim_fan_init(struct tm_sim_fan *fan, const char *name, const struct tm_trace *trace,
                    const struct tm_sim_fan_options *options, struct tm_error *e)
{
    struct walk walk = {.trace = trace, .options = options};
    memset(fan, 0, sizeof *fan);
    int rc = plan_walk(&walk, e);
    if (rc != 0) return rc;
    size_t count = (size_t)(walk.end - walk.first);
    double *values = tm_alloc(count * SERIES * sizeof *values);
    if (values == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < count * SERIES; i++)
        values[i] = NAN;
    for (size_t s = 0; s < SERIES; s++)
        walk.series[s] = values + s * count;
    struct tm_forecaster_options how = {.method = options->method,
                                        .interval_ms = options->interval_ms,
                                        .horizon_max = options->horizon,
                                        .seed = options->seed};
    rc = tm_forecaster_create(&how, &walk.forecaster, e);
    if (rc == 0) rc = walk_trace(&walk, e);
    tm_forecaster_destroy(walk.forecaster);
    if (rc != 0) {
        tm_free(values);
        return rc;
    }
    fan->values = values;
    fan->report = (struct tm_report_fan){.trace = name,
                                         .interval_s = (double)options->interval_ms / 1000,
                                         .horizon = options->horizon,
                                         .count = keep_foretold(&walk),
                                         .time_s = walk.series[0],
                                         .p10 = walk.series[1],
                                         .p50 = walk.series[2],
                                         .p90 = walk.series[3],
                                         .truth = walk.series[4]};
    return 0;
}

void tm_sim_fan_deinit(struct tm_sim_fan *fan)
{
    tm_free(fan->values);
    memset(fan, 0, sizeof *fan);
}
