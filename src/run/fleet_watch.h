/* What the cloud's instances have done so far, as a policy wants it: counts at the ends of intervals, how often
 * instances are lost, with a notice or without, alone or together. Made from the list of instances alone, so a
 * restarted coordinator, which has the list from its record, knows as much as the one before it. */
#ifndef TM_RUN_FLEET_WATCH_H
#define TM_RUN_FLEET_WATCH_H

#include "policy/facts.h"
#include "run/decide.h"

enum { TM_FLEET_HINTS_MAX = 64 };

/* Who is told: as tm_policy_observe and tm_policy_hint. */
struct tm_fleet_learner {
    void *context;
    int (*observe)(void *context, int count, int arrived, int lost, struct tm_error *e);
    void (*hint)(void *context, int losing, double in_s);
};

struct tm_fleet_watch {
    struct tm_fleet_learner learner;
    int64_t interval_ms; /* the cloud's time, as all here */
    bool begun;
    int64_t next_ms; /* of the next observation */
    int count;       /* at the last one */
    int observations;
    uint64_t hinted[TM_FLEET_HINTS_MAX]; /* instances whose notice the learner has heard */
    size_t hint_count;
};

void tm_fleet_watch__init(struct tm_fleet_watch *watch, const struct tm_fleet_learner *learner, int64_t interval_ms);
/* Every interval that has passed since the last call is observed; notices are passed on once. */
int tm_fleet_watch__update(struct tm_fleet_watch *watch, const struct tm_run_cloud *cloud, struct tm_error *e);

/* From what is seen, and a little of what is usual (tm_facts_losses_of). On-demand instances do not count. */
struct tm_facts_losses tm_fleet_losses__of(const struct tm_run_cloud *cloud, int64_t interval_ms);

#endif
