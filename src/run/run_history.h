/* A run from beginning to end, made from the events of its record: what a report draws. Times are seconds of the run,
 * in real time; the time between a stop and a resume is left out (as in status.wall_s). */
#ifndef TM_RUN_RUN_HISTORY_H
#define TM_RUN_RUN_HISTORY_H

#include "run/run_status.h"

enum {
    TM_HISTORY_EVENTS_MAX = 2000,
    TM_HISTORY_POINTS_MAX = 1 << 20,
    TM_HISTORY_FORECASTS_MAX = 48,
    TM_HISTORY_COPIES_MAX = 8
};

/* From time_s on, until the next one. */
struct tm_history_fleet {
    double time_s;
    uint32_t here;
    uint32_t noticed;
};

/* A pool that the job may choose (or, without a choice, a market) from time_s on, until its next one. */
struct tm_history_pool {
    double time_s;
    uint32_t pool;
    uint32_t want;
    uint32_t here;
    double usd; /* so far: time at its price */
};

struct tm_history_layout {
    double from_s, to_s;
    uint64_t generation;
    uint32_t pipelines, stages, spares;
};

struct tm_history_progress {
    double time_s;
    uint64_t step;
    double loss;   /* NaN: not told */
    double step_s; /* NaN: not told */
};

struct tm_history_bill {
    double time_s;
    double bill_usd;
    double on_demand_usd; /* NaN: no price */
};

/* What was forecast at time_s, by what was known then: when it would be done, with four chances in five. */
struct tm_history_forecast {
    double time_s;
    uint64_t step; /* that was committed */
    double low_s, high_s;
};

struct tm_history_pause {
    double from_s, to_s;
    enum tm_change_cause cause; /* TM_CHANGED_NONE: waiting for workers; TM_CHANGED_BEGIN: start-up */
};

struct tm_history_instance {
    uint64_t id;
    bool spot;
    double from_s, to_s; /* to_s: its end, or the run's */
    double notice_s;     /* NaN: it had none */
    enum tm_instance_state state;
    bool announced;
    double bill_usd;
};

/* A copy set that is whole and was not dropped since. */
struct tm_history_copy {
    uint64_t set, step;
    int64_t utc_ms;
    uint64_t took_ms;                     /* 0: not known */
    uint64_t holders[TM_RUN_HOLDERS_MAX]; /* workers by their numbers, 0 for files */
    size_t holder_count;
};

struct tm_history_event {
    double time_s;
    const char *kind; /* of the schema: static */
    char *text;       /* owned */
};

struct tm_run_history {
    const struct tm_run_status *status; /* at the end; borrowed from inside */
    struct tm_history_fleet *fleet;
    size_t fleet_count;
    struct tm_history_pool *pools; /* all pools' in one list, in the order of time */
    size_t pool_count;
    double pool_usd[TM_RUN_POOLS_MAX]; /* up to now */
    double pool_scale;                 /* by which costs of pools are to be multiplied: then they are the cloud's */
    struct tm_history_layout *layouts;
    size_t layout_count;
    struct tm_history_progress *progress;
    size_t progress_count;
    struct tm_history_bill *bill;
    size_t bill_count;
    struct tm_history_forecast forecasts[TM_HISTORY_FORECASTS_MAX]; /* at about equal distances */
    size_t forecast_count;
    struct tm_history_copy copies[TM_HISTORY_COPIES_MAX]; /* the newest ones, the newest last */
    size_t copy_count;
    struct tm_history_pause *pauses;
    size_t pause_count;
    struct tm_history_instance *instances; /* in the order of their arrival */
    size_t instance_count;
    struct tm_history_event *events; /* those for people; the first TM_HISTORY_EVENTS_MAX */
    size_t event_count;
    size_t events_left_out;
};

struct tm_run_historian;

/* The caller owns the result. NULL: out of memory. */
struct tm_run_historian *tm_run_historian_create(void);
void tm_run_historian_destroy(struct tm_run_historian *historian);
int tm_run_historian_take(struct tm_run_historian *historian, uint64_t sequence, const Tmw__RecordEvent *event,
                          struct tm_error *e);
/* Up to the last event; borrowed until more is taken. */
const struct tm_run_history *tm_run_historian_tell(struct tm_run_historian *historian);

#endif
