/* How often to make copy sets: expected loss against cost.
 *
 * A copy costs training time; work since the newest copy is lost when all replicas of a stage are. With copies every T,
 * a share cost / T of the time goes to copies, and with rate R of such losses a share R T / 2 is done again. The sum is
 * least at T = sqrt(2 cost / R) (Young 1974; Daly's corrections are below a percent here). */
#ifndef TM_POLICY_COPY_INTERVAL_INTERNAL_H
#define TM_POLICY_COPY_INTERVAL_INTERNAL_H

#include <stdbool.h>

struct tm_copy_view {
    int pipelines; /* replicas of each stage */
    int stages;
    double lost_per_s; /* of one instance, without a notice that is long enough */
    double together;   /* when one is lost, the chance of each other one to be lost with it: losses come in bursts */
    double copy_s;     /* what a copy set takes, in the background; 0: not known yet */
    double slowed;     /* share by which training is slower meanwhile */
    double step_s;     /* 0: not known yet */
    double exposed_s;  /* from a loss until the stage has its replica again */
};

/* The rate at which a stage loses all its replicas. */
double tm_copy__loss_rate(const struct tm_copy_view *view);
/* Seconds from one copy set to the next; never less than two copies take, or ten steps, and never more than half an
 * hour. */
double tm_copy__interval_s(const struct tm_copy_view *view);

#endif
