/* What a fleet would take and cost to finish a job, in expectation over losses: a closed form.
 *
 * Spot instances are lost at random, each at a rate h. A loss costs the work since the last checkpoint, on average half
 * an interval, a restart, and the lost instance's share of the throughput until it is replaced. Checkpoints cost time
 * too; their interval is the one that makes the sum smallest (Young's square root of 2 C / rate, with C the time that a
 * checkpoint holds training up). Work therefore goes on at a fraction of full speed,
 *
 *     useful = 1 - C / interval - rate (interval / 2 + restart + replace / instances)
 *
 * and the job takes startup + work / (throughput x useful). Its spread comes from how sure the throughput is and from
 * the Poisson number of losses. */
#ifndef TM_PLAN_EXPECT_H
#define TM_PLAN_EXPECT_H

#include "workload/compute.h"

struct tm_expect_job {
    double samples;
    double deadline_s;   /* infinite: none */
    double checkpoint_s; /* training stands still this long for one */
    double restart_s;    /* from a loss to the next step */
    double replace_s;    /* until a new instance has joined */
    double startup_s;
};

struct tm_expect_fleet {
    struct tm_estimate samples_per_s; /* p10 below, p90 above the mean */
    int spot_nodes;
    int on_demand_nodes;
    double loss_per_s; /* of one spot instance */
    double spot_usd_h; /* of one instance */
    double on_demand_usd_h;
};

struct tm_expectation {
    bool finishes; /* false: losses eat up all progress; the figures below are infinite */
    struct tm_estimate time_s;
    struct tm_estimate cost_usd;
    double usd_h;
    double losses;
    double checkpoint_interval_s; /* infinite: no checkpoints needed */
    double p_deadline;
};

struct tm_expectation tm_expect(const struct tm_expect_job *job, const struct tm_expect_fleet *fleet);

/* A rate of loss per second from the share of capacity that is taken back in a month, by AWS's bands 0..4: the middle
 * of the band (2.5, 7.5, 12.5, 17.5 %; 30 % for the open one) as a chance over 30 days. NaN for a band that is not
 * known. */
double tm_expect_band_rate(int band);

#endif
