/* Shared by the files of the simulator: one run under way. */
#ifndef TM_SIM_SIMULATE_INTERNAL_H
#define TM_SIM_SIMULATE_INTERNAL_H

#include "sim/in_use.h"
#include "sim/moments.h"
#include "sim/simulate.h"

/* One run under way. */
struct tm_sim__run {
    struct tm_env *env;
    const struct tm_sim_job *job;
    const struct tm_trace *trace;
    const struct tm_policy_info *info;
    const struct tm_sim_options *options;
    struct tm_moments moments;
    struct tm_policy *policy;
    int64_t interval_ms;
    int spot;    /* instances of the trace */
    int rented;  /* those of them that are rented */
    int arrived; /* since the last observation */
    int lost;
    size_t tick;      /* how many there were */
    size_t announced; /* the first moment whose losses have not been told to the forecast */
    struct tm_ahead steps[TM_FORECAST_STEPS_MAX + 1];
    double now_s; /* of this moment, or of the part of it that begins where the policy asked to be asked again */
    bool part;    /* a later part: no event, no tick */
    struct tm_standing standing;
    struct tm_ahead now; /* this moment with the on-demand instances that are there */
    int arrived_now;
    enum tm_sim_cause cause; /* of the last pause */
    int on_demand;           /* instances there */
    int ordered;             /* on-demand instances on their way ... */
    double ready_at_s;       /* ... when they will be there ... */
    double paid_from_s;      /* ... and from when they are paid */
    int released;            /* on-demand instances that go at the next moment */
    int workers_max;         /* that train */
    bool gang;               /* all of them or none, with a deadline */
    int spot_max;            /* of them, spot instances that are wanted */
    int keeping;             /* on-demand instances that keep copies and do not train ... */
    double keep_ready_s;     /* ... when they join ... */
    double keep_paid_from_s; /* ... and from when they are paid */
    bool kept;               /* they have joined */
    bool anchored;           /* they join at this moment: their address must be told to all */
    double worked_s;         /* since training last started: tells where in a step a loss strikes */
    double losses_seen;      /* spot instances lost so far ... */
    double together_seen;    /* ... of them with another ... */
    double spot_s;           /* ... in so many instance-seconds */
    double uncopied_s;       /* work since the last checkpoint or copy set ... */
    double uncopied;         /* ... the samples of it ... */
    double copy_every_s;     /* ... which come so often ... */
    double pace;             /* ... and the share of the layout's throughput that it reached */
    bool trained;            /* in the standing layout: its steps have been measured */
    double best_samples;     /* what the fastest layouts would have made so far */
    double table_ns;         /* spent on filling in the migration table */
    double decision_ns_sum;
    double decision_ns_max;
    size_t decisions;
    struct tm_sim_options used; /* as `options`, with what is left of a notice when it is acted upon */
    struct tm_trace in_use;     /* owned; where it differs from what is paid */
    struct tm_paid paid;
    bool differs;
    struct tm_sim_result *out;
    struct tm_sim_log *log;
};

/* Tells the policy of the trace before the job's start. */
int tm_sim__feed_history(struct tm_sim__run *run, struct tm_error *e);
/* One interval has passed. */
int tm_sim__observe(struct tm_sim__run *run, struct tm_error *e);
/* Fills the facts of this moment, as far as the policy may know them, and asks it. */
int tm_sim__decide(struct tm_sim__run *run, size_t moment, struct tm_decision *out, struct tm_error *e);

#endif
