/* What the cloud's instances have done so far, as a forecaster and the policy want it: counts at the ends of intervals,
 * how often instances are lost, with a notice or without, alone or together. Made from the list of instances alone, so
 * a restarted coordinator, which has the list from its record, knows as much as the one before it. */
#ifndef TM_RUN_FLEET_WATCH_H
#define TM_RUN_FLEET_WATCH_H

#include "market/forecast.h"
#include "run/decide.h"

enum { TM_FLEET_HINTS_MAX = 64 };

struct tm_fleet_watch {
    struct tm_forecaster *forecaster; /* owned; NULL: none is wanted */
    int64_t interval_ms;              /* the cloud's time, as all here */
    bool begun;
    int64_t next_ms; /* of the next observation */
    int count;       /* at the last one */
    int observations;
    uint64_t hinted[TM_FLEET_HINTS_MAX]; /* instances whose notice the forecaster has heard */
    size_t hint_count;
};

/* `method` < 0: no forecaster. -TM_EUSAGE as tm_forecaster_create. */
int tm_fleet_watch_init(struct tm_fleet_watch *watch, int method, int64_t interval_ms, int horizon, struct tm_error *e);
void tm_fleet_watch_deinit(struct tm_fleet_watch *watch);
/* Every interval that has passed since the last call is observed; notices are passed on once. */
int tm_fleet_watch_update(struct tm_fleet_watch *watch, const struct tm_run_cloud *cloud, struct tm_error *e);

struct tm_fleet_losses {
    double lost_per_s;  /* of one instance in one second of the cloud, with a notice or without */
    double unannounced; /* share of losses without a notice */
    double together;    /* share of losses that came within an interval of another */
};
/* From what is seen, and a little of what is usual while little is seen. On-demand instances do not count. */
struct tm_fleet_losses tm_fleet_losses_of(const struct tm_run_cloud *cloud, int64_t interval_ms);

#endif
