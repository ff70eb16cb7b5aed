/* What a fleet would take and cost to finish a job, in expectation over losses: a closed form.
 *
 * Spot instances are lost at random, each at a rate h. A share q of the losses comes in bursts: the zone runs short of
 * the type, and each of the job's instances in that pool is taken with a chance f at once; a burst of a pool comes at
 * the rate q h / f, so that h is the rate of one instance whatever q is. An event, of one instance or of many, costs
 * the work since the last checkpoint, on average half an interval, a restart, and a pause when replacements join; and
 * the share of the fleet that is gone is missing until it is replaced, after a burst only when the shortage is over.
 * Checkpoints cost time too; their interval is the one that makes the sum smallest (Young's square root of 2 C / rate
 * of events, with C the time that a checkpoint holds training up). Work therefore goes on at a fraction of full speed,
 *
 *     useful = (1 - C / interval - events (interval / 2 + restart + rejoin)) (1 - away),
 *     away   = sum over pools of x / (1 + x) times its share of the fleet, x = h ((1 - q) replace + q outage)
 *
 * and the job takes startup + work / (throughput x useful). Its spread comes from how sure the throughput is and from
 * the Poisson numbers of events: a burst of a pool that holds all of the fleet costs far more at once than one of a
 * pool that holds a third of it, so that spreading over zones makes a deadline surer, though there are more events. */
#ifndef TM_PLAN_EXPECT_H
#define TM_PLAN_EXPECT_H

#include "market/trace.h"
#include "workload/compute.h"

struct tm_expect_job {
    double samples;
    double deadline_s;   /* infinite: none */
    double checkpoint_s; /* training stands still this long for one */
    double restart_s;    /* from a loss to the next step */
    double rejoin_s;     /* training stands still this long when new instances join */
    double replace_s;    /* until a new instance has joined */
    double startup_s;
    double burst_share; /* of the losses that come in bursts: q */
    double burst_size;  /* of a pool that a burst takes: f; above 0 where q is */
    double outage_s;    /* until a pool gives instances again after a burst */
    double sure;        /* the probability that tm_expectation's sure_s is for; 0: 0.95 */
};

/* What the pools of a fleet add up to; start from {0}. */
struct tm_expect_losses {
    double rate;         /* instances lost per second */
    double single;       /* events of one instance, per second */
    double burst;        /* bursts per second */
    double away;         /* share of the fleet that is missing on average */
    double single_away;  /* what one event takes away, in seconds of the whole fleet */
    double burst_away;   /* sums over bursts of their rate times what they take away ... */
    double burst_square; /* ... and its square */
};

/* Adds a pool of `spot` instances of a fleet of `instances`, each lost at `loss_per_s`. */
void tm_expect__add_pool(const struct tm_expect_job *job, int instances, int spot, double loss_per_s,
                         struct tm_expect_losses *losses);

struct tm_expect_fleet {
    struct tm_estimate samples_per_s; /* p10 below, p90 above the mean */
    struct tm_expect_losses losses;
    double usd_h; /* of all of it */
};

struct tm_expectation {
    bool finishes; /* false: losses eat up all progress; the figures below are infinite */
    struct tm_estimate time_s;
    struct tm_estimate cost_usd;
    double usd_h;
    double losses;                /* instances */
    double checkpoint_interval_s; /* infinite: no checkpoints needed */
    double p_deadline;
    double p_budget; /* the share of simulations that the budget was enough for; NaN: the closed form does not say */
    double sure_s;   /* it is done by then with the probability that the job names */
    double sure_usd; /* that is enough with the same probability; 0: not known (the closed form does not say) */
};

struct tm_expectation tm__expect(const struct tm_expect_job *job, const struct tm_expect_fleet *fleet);

/* The chance that something with this mean and standard deviation of the log is at most `limit`. */
double tm_expect__chance(double mean, double sigma, double limit);

/* How instances are lost in a trace: the rate of one, the share that went two or more at a time, the mean share of the
 * instances then there that such an event took, and how long it takes until one that is gone is replaced: as long as
 * makes the share that was there. */
struct tm_expect_trace {
    double loss_per_s;
    double burst_share;
    double burst_size;
    double replace_s;
};
struct tm_expect_trace tm_expect_trace(const struct tm_trace *trace);

/* The share of the time that a spot instance is missing. */
double tm_expect__away(const struct tm_expect_job *job, double loss_per_s);

#endif
