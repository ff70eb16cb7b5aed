/* When somebody should look: from a run's status, again and again, to alerts, each raised once until its cause is gone.
 *
 *   finished, failed, stopped   the run has ended so
 *   stalled                     no step was committed for a while, though it is not waiting for instances
 *   budget                      80% of the budget are spent
 *   deadline                    the probability of meeting it, by how throughput went so far, fell below what was asked
 *   capacity                    it has waited for instances for a while
 *   leaked                      an instance was found that an earlier program left, or nobody asked for; or one could
 *                               not be given back at the end */
#ifndef TM_RUN_ALERT_H
#define TM_RUN_ALERT_H

#include "run/outlook.h"
#include "run/run_status.h"

enum tm_alert {
    TM_ALERT_FINISHED,
    TM_ALERT_FAILED,
    TM_ALERT_STOPPED,
    TM_ALERT_STALLED,
    TM_ALERT_BUDGET,
    TM_ALERT_DEADLINE,
    TM_ALERT_CAPACITY,
    TM_ALERT_LEAKED,
    TM_ALERT_COUNT
};

enum { TM_ALERT_TEXT_MAX = 400 };

/* What the user allows. */
struct tm_alert_limits {
    double probability; /* of meeting the deadline, that is asked for; 0: that it is likely */
    double patience_s;  /* in real time: without a step, or without instances */
};

/* What was seen so far; all bytes 0 at first. */
struct tm_alerts {
    bool raised[TM_ALERT_COUNT];
    uint64_t committed;
    int64_t moved_ms; /* when it was last seen to commit a step; 0: never */
    int64_t waits_ms; /* since when it waits; 0: it does not */
    struct tm_outlook outlook;
};

/* Calls `raise` for each alert that is new. */
void tm_alerts__look(struct tm_alerts *alerts, const struct tm_alert_limits *limits, const struct tm_run_status *status,
                     int64_t now_ms, void (*raise)(void *context, enum tm_alert alert, const char *text),
                     void *context);

#endif
