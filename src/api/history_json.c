#include "api/history_json.h"

enum { THINGS_MAX = 2000 };

/* The index of the i-th of `shown` points of `count`; the first and the last are always there. */
static size_t point(size_t i, size_t shown, size_t count)
{
    return shown <= 1 ? count - 1 : (size_t)((double)i * (double)(count - 1) / (double)(shown - 1) + 0.5);
}

static size_t shown_of(size_t count, size_t max)
{
    if (max < 2) max = 2;
    return count < max ? count : max;
}

#define CURVE(json, key, list, count, max, write)                                                                      \
    do {                                                                                                               \
        size_t shown_ = shown_of(count, max);                                                                          \
        tm_jsonout_list(json, key);                                                                                    \
        for (size_t i_ = 0; i_ < shown_; i_++) {                                                                       \
            size_t p = point(i_, shown_, count);                                                                       \
            write;                                                                                                     \
        }                                                                                                              \
        tm_jsonout_end(json);                                                                                          \
    } while (0)

static void write_progress(const struct tm_run_history *h, size_t max, struct tm_jsonout *json)
{
    size_t count = h->progress_count;
    tm_jsonout_object(json, "progress");
    CURVE(json, "time_s", h->progress, count, max, tm_jsonout_number(json, NULL, h->progress[p].time_s));
    CURVE(json, "step", h->progress, count, max, tm_jsonout_integer(json, NULL, (int64_t)h->progress[p].step));
    CURVE(json, "loss", h->progress, count, max, tm_jsonout_number(json, NULL, h->progress[p].loss));
    CURVE(json, "step_s", h->progress, count, max, tm_jsonout_number(json, NULL, h->progress[p].step_s));
    tm_jsonout_end(json);
}

static void write_fleet(const struct tm_run_history *h, size_t max, struct tm_jsonout *json)
{
    size_t count = h->fleet_count;
    tm_jsonout_object(json, "fleet");
    CURVE(json, "time_s", h->fleet, count, max, tm_jsonout_number(json, NULL, h->fleet[p].time_s));
    CURVE(json, "here", h->fleet, count, max, tm_jsonout_integer(json, NULL, h->fleet[p].here));
    CURVE(json, "noticed", h->fleet, count, max, tm_jsonout_integer(json, NULL, h->fleet[p].noticed));
    tm_jsonout_end(json);
}

static void write_bill(const struct tm_run_history *h, size_t max, struct tm_jsonout *json)
{
    size_t count = h->bill_count;
    tm_jsonout_object(json, "bill");
    CURVE(json, "time_s", h->bill, count, max, tm_jsonout_number(json, NULL, h->bill[p].time_s));
    CURVE(json, "bill_usd", h->bill, count, max, tm_jsonout_number(json, NULL, h->bill[p].bill_usd));
    CURVE(json, "on_demand_usd", h->bill, count, max, tm_jsonout_number(json, NULL, h->bill[p].on_demand_usd));
    tm_jsonout_end(json);
}

/* A curve for each pool that was ever wanted or there: its points, and how it stands now. */
static void write_pool(const struct tm_run_history *h, uint32_t pool, size_t max, struct tm_jsonout *json)
{
    static const char *const markets[] = {"spot", "on-demand"};
    size_t count = 0, seen = 0;
    for (size_t i = 0; i < h->pool_count; i++)
        count += h->pools[i].pool == pool;
    if (count == 0) return;
    size_t stride = (count + max - 1) / max; /* the newest is always there */
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "pool", h->status->job.pool_count > 0 ? h->status->job.pools[pool] : markets[pool]);
    tm_jsonout_number(json, "usd", h->pool_usd[pool] * h->pool_scale);
    tm_jsonout_list(json, "points"); /* [time_s, want, here, usd] */
    for (size_t i = 0; i < h->pool_count; i++) {
        const struct tm_history_pool *point = &h->pools[i];
        if (point->pool != pool || (count - ++seen) % stride != 0) continue;
        tm_jsonout_list(json, NULL);
        tm_jsonout_number(json, NULL, point->time_s);
        tm_jsonout_integer(json, NULL, point->want);
        tm_jsonout_integer(json, NULL, point->here);
        tm_jsonout_number(json, NULL, point->usd * h->pool_scale);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void write_pools(const struct tm_run_history *h, size_t max, struct tm_jsonout *json)
{
    size_t count = h->status->job.pool_count > 0 ? h->status->job.pool_count : 2;
    tm_jsonout_list(json, "pools");
    for (uint32_t i = 0; i < count; i++)
        write_pool(h, i, max < 2 ? 2 : max, json);
    tm_jsonout_end(json);
}

static void write_forecasts(const struct tm_run_history *h, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "forecasts"); /* [time_s, step, low_s, high_s]: when it would be done, in the run's time */
    for (size_t i = 0; i < h->forecast_count; i++) {
        tm_jsonout_list(json, NULL);
        tm_jsonout_number(json, NULL, h->forecasts[i].time_s);
        tm_jsonout_integer(json, NULL, (int64_t)h->forecasts[i].step);
        tm_jsonout_number(json, NULL, h->forecasts[i].low_s);
        tm_jsonout_number(json, NULL, h->forecasts[i].high_s);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void write_copies(const struct tm_run_history *h, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "copies");
    for (size_t i = 0; i < h->copy_count; i++) {
        const struct tm_history_copy *copy = &h->copies[i];
        tm_jsonout_object(json, NULL);
        tm_jsonout_integer(json, "set", (int64_t)copy->set);
        tm_jsonout_integer(json, "step", (int64_t)copy->step);
        tm_jsonout_integer(json, "utc_ms", copy->utc_ms);
        tm_jsonout_integer(json, "took_ms", (int64_t)copy->took_ms);
        tm_jsonout_list(json, "holders");
        for (size_t k = 0; k < copy->holder_count; k++)
            tm_jsonout_integer(json, NULL, (int64_t)copy->holders[k]);
        tm_jsonout_end(json);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static size_t first_shown(size_t count)
{
    return count > THINGS_MAX ? count - THINGS_MAX : 0;
}

static void write_layouts(const struct tm_run_history *h, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "layouts");
    for (size_t i = first_shown(h->layout_count); i < h->layout_count; i++) {
        const struct tm_history_layout *layout = &h->layouts[i];
        tm_jsonout_object(json, NULL);
        tm_jsonout_number(json, "from_s", layout->from_s);
        tm_jsonout_number(json, "to_s", layout->to_s);
        tm_jsonout_integer(json, "generation", (int64_t)(uint32_t)layout->generation);
        tm_jsonout_integer(json, "pipelines", layout->pipelines);
        tm_jsonout_integer(json, "stages", layout->stages);
        tm_jsonout_integer(json, "spares", layout->spares);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

/* Waiting and start-up have no cause: they are named as the report does. */
static const char *pause_name(enum tm_change_cause cause)
{
    return cause == TM_CHANGED_NONE ? "waiting" : cause == TM_CHANGED_BEGIN ? "start" : tm_change_cause_name(cause);
}

static void write_pauses(const struct tm_run_history *h, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "pauses");
    for (size_t i = first_shown(h->pause_count); i < h->pause_count; i++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_number(json, "from_s", h->pauses[i].from_s);
        tm_jsonout_number(json, "to_s", h->pauses[i].to_s);
        tm_jsonout_string(json, "cause", pause_name(h->pauses[i].cause));
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void write_instances(const struct tm_run_history *h, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "instances");
    for (size_t i = first_shown(h->instance_count); i < h->instance_count; i++) {
        const struct tm_history_instance *instance = &h->instances[i];
        tm_jsonout_object(json, NULL);
        tm_jsonout_integer(json, "id", (int64_t)instance->id);
        tm_jsonout_bool(json, "spot", instance->spot);
        tm_jsonout_number(json, "from_s", instance->from_s);
        tm_jsonout_number(json, "to_s", instance->to_s);
        tm_jsonout_number(json, "notice_s", instance->notice_s);
        tm_jsonout_string(json, "state", tm_instance_state_name(instance->state));
        tm_jsonout_bool(json, "announced", instance->announced);
        tm_jsonout_number(json, "bill_usd", instance->bill_usd);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

void tm_history__write(const struct tm_run_history *h, size_t points_max, struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "job", h->status->job.name);
    tm_jsonout_number(json, "wall_s", h->status->wall_s);
    tm_jsonout_integer(json, "sequence", (int64_t)h->status->sequence);
    write_progress(h, points_max, json);
    write_fleet(h, points_max, json);
    write_pools(h, points_max, json);
    write_layouts(h, json);
    write_bill(h, points_max, json);
    write_forecasts(h, json);
    write_copies(h, json);
    write_pauses(h, json);
    write_instances(h, json);
    tm_jsonout_end(json);
}
