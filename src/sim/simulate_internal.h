/* Shared by the files of the simulator: one run under way. */
#ifndef TM_SIM_SIMULATE_INTERNAL_H
#define TM_SIM_SIMULATE_INTERNAL_H

#include "sim/in_use.h"
#include "sim/moments.h"
#include "sim/simulate.h"

enum { TM_SIM__ORDERS_MAX = 16 };

/* Instances on their way: when they will be there, and from when they are paid. */
struct tm_sim__order {
    int count;
    double ready_s;
    double paid_from_s;
};

/* A pool in a run. */
struct tm_sim__pool {
    const struct tm_sim_pool *is;
    size_t next;  /* event of its trace */
    int in_trace; /* instances that the trace has now */
    double price_usd_h;
    int here;                                        /* rented and usable */
    struct tm_sim__order orders[TM_SIM__ORDERS_MAX]; /* oldest first */
    int order_count;
    int lost;    /* at this moment */
    int leaving; /* of those here, with a notice */
    int refused; /* at the last decision */
};

/* The pools of a run that chooses among them. */
struct tm_sim__pools {
    struct tm_sim__pool list[TM_POOLS_MAX];
    int count;
    int all; /* with those of keepers, which come behind */
    int group_count;
    int group;           /* that trains; -1: none so far */
    int region;          /* where it is */
    int trained;         /* instances that did, before this moment */
    int spares;          /* beside them in their group: more than the job can use, until their notice has run out */
    int given_up;        /* of those that this moment takes from the job, the ones that nobody preempted */
    int announced;       /* losses that the forecast has been told of */
    bool moved;          /* the job has just left a group with instances that trained */
    double move_s;       /* the least that a move takes */
    unsigned char *path; /* owned; of bounds: the group at each moment, every group_count-th of it */
};

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
    enum tm_sim_cause cause;                         /* of the last pause */
    int on_demand;                                   /* instances there */
    struct tm_sim__order orders[TM_SIM__ORDERS_MAX]; /* the oldest first */
    int order_count;
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
    double lead_s;               /* how long before its end an instance with a notice is left */
    size_t seen;                 /* events of the paid trace that the forecast has been told of ... */
    int64_t seen_count;          /* ... and the instances then */
    int leaving;                 /* instances in use that have their notice */
    double hits_due;             /* losses of rented instances that were expected, less those that there were */
    int missing;                 /* lost where the trace has more than are rented: others take their places ... */
    double missing_until_s;      /* ... then */
    struct tm_sim__pools *pools; /* owned; NULL: the trace is the only pool */
    double group_speed;          /* of the pools that train: 1 where there is no choice */
    struct tm_sim_result *out;
    struct tm_sim_log *log;
};

/* On-demand instances on their way. */
int tm_sim__ordered(const struct tm_sim__run *run);
/* Of losses of the trace, how many are of instances that are rented. */
int tm_sim__hits(const struct tm_sim__run *run, int lost, int in_trace);
/* Instances in use that have their notice: who trains on them knows that they go. */
int tm_sim__leaving(const struct tm_sim__run *run, size_t moment);
/* Tells the policy of the trace before the job's start. */
int tm_sim__feed_history(struct tm_sim__run *run, struct tm_error *e);
/* One interval has passed. */
int tm_sim__observe(struct tm_sim__run *run, struct tm_error *e);
/* Fills the facts of this moment, as far as the policy may know them, and asks it. */
int tm_sim__decide(struct tm_sim__run *run, size_t moment, struct tm_decision *out, struct tm_error *e);

/* sim_pools.c: a run that chooses among pools. Begin is after the policy is made; end after any of it. */
int tm_sim__pools_begin(struct tm_sim__run *run, struct tm_error *e);
void tm_sim__pools_end(struct tm_sim__run *run);
void tm_sim__pools_meet(struct tm_sim__run *run, size_t moment);
void tm_sim__pools_show(struct tm_sim__run *run, struct tm_facts *facts);
void tm_sim__pools_carry_out(struct tm_sim__run *run, const struct tm_decision *decision);
void tm_sim__pools_bill(struct tm_sim__run *run, double hours);
/* Of so many samples, where those that train are in several regions. */
void tm_sim__pools_traffic(struct tm_sim__run *run, double samples);
/* How fast the instances that train are in a layout, over what it says. */
void tm_sim__pools_speed(struct tm_sim__run *run, int layout);
/* When the next instances are ready. */
double tm_sim__pools_next_s(const struct tm_sim__run *run);
/* The pause of whoever knows all, before it trains in a layout. */
double tm_sim__pools_bound_ms(const struct tm_sim__run *run, int to);
/* Each spot pool alone, and of these the best. */
int tm_sim__best_single(struct tm_env *env, const struct tm_sim_job *job, const struct tm_trace *trace,
                        const struct tm_policy_info *info, const struct tm_sim_options *options,
                        struct tm_sim_result *out, struct tm_sim_log *log, struct tm_error *e);

static inline double tm_sim__keeper_usd_h(const struct tm_sim_options *options)
{
    return options->keeper_usd_h > 0 ? options->keeper_usd_h : options->on_demand_usd_h;
}

#endif
