/* Facts and decisions: all that a decision may depend on, and all that it says.
 *
 * The simulator and the runtime fill the same facts and carry out the whole decision; neither has a view of its own.
 * All times are the cloud's (the trace's), in seconds; `speed` of them pass in one on the workers' clocks. Plain
 * values: what was recorded can be decided again. */
#ifndef TM_POLICY_FACTS_H
#define TM_POLICY_FACTS_H

#include "policy/far.h"
#include "policy/lookahead.h"
#include "workload/job_fleet.h"

enum { TM_POOLS_MAX = 64 };

/* Instances of one kind at one place. */
struct tm_pool {
    enum tm_pool_market market;
    enum tm_pool_role role;
    int zone;           /* a number for each place */
    double price_usd_h; /* of one instance; NaN: not known */
    int here;           /* in use or usable */
    int ordered;        /* on their way: paid or about to be, not usable yet */
    int leaving;        /* here with a notice: paid, not usable any more */
    int offered;        /* how many more would be given now; -1: not known */
    int limit;          /* the most that the job may have of it; 0: as many as it wants */
    double start_s;     /* from asking for one to its first work */
    /* where pools are choices (facts.choices) */
    int group;    /* pools of one group can train together: one region, one instance type */
    int region;   /* a number for each */
    int lost;     /* preempted at this moment, usable or not */
    int refused;  /* asked for at the decision before, and not given: there was no capacity */
    double speed; /* throughput of its instances over that which the layouts say */
};

struct tm_facts_progress {
    double samples_left; /* INFINITY: no end */
    double samples_per_step;
    double efficiency; /* samples so far over what the fastest layouts would have made; NaN: none so far */
    double step_s;     /* measured, of the standing layout; 0: not known */
    double uneven;     /* step time over that if micro-batches were shared out anew; 0: the same, or not known */
};

struct tm_facts_copies {
    double since_s;        /* since the newest whole copy set; < 0: there is none */
    bool uncopied;         /* there is work that no set has */
    bool last;             /* all steps are done: only the last set is missing */
    bool only_one_replica; /* some layer's state is on one instance alone */
    double copy_s;         /* what the newest set took; 0: not known */
    double every_s;        /* fixed by the user; 0: by expected loss against cost */
    double every_alone_s;  /* ... where a stage has only one replica */
};

struct tm_facts_losses {
    double lost_per_s;  /* of one spot instance, with a notice or without */
    double unannounced; /* share of losses without a notice */
    double together;    /* share of losses that came with another */
};

struct tm_facts_limits {
    int workers_min;  /* that train; below it the job waits */
    int workers_max;  /* 0: what there is; nothing is rented or given back */
    int workers_each; /* of an instance, which come, go and are paid together: pools are rented in such steps; 0: 1 */
    enum tm_fleet_rent rent; /* from pools: as worth their money, up to workers_max, or where a sample is cheapest */
    int anchors;             /* on-demand instances that hold copies; they come on top unless they train too */
    bool anchors_train;
    bool has_deadline;
    double seconds_left; /* to the deadline */
    double budget_usd;   /* 0: none */
    double bill_usd;     /* so far */
};

struct tm_facts {
    double now_s; /* since the job began */
    double speed; /* the cloud's seconds in one on the workers' clocks */
    bool first;   /* nothing has run yet */
    /* This moment's event. Policies that know the past alone do not see it. */
    bool event;
    int before; /* instances that train, before it */
    int lost;
    int after;
    bool noticed; /* the loss was announced long enough ago */
    struct tm_standing standing;
    struct tm_pool pools[TM_POOLS_MAX];
    int pool_count;
    int keeper_count;  /* where pools are choices: so many more behind them, whose instances keep copies */
    bool choices;      /* the pools are choices: the decision says how many of each are wanted */
    int group;         /* that the job trains in; -1: none so far */
    int spares;        /* of that group, more than the job can use: they have a notice, and their successors are here */
    double move_usd;   /* of a move of the whole job to another group: egress */
    struct tm_far far; /* where a group's pools are in several regions */
    struct tm_facts_progress progress;
    struct tm_facts_copies copies;
    struct tm_facts_losses losses;
    struct tm_facts_limits limits;
    /* What is known of the time to come: of policies that may know it, or a forecast that a test gives. Borrowed; 0
     * steps: the policy's own forecast. */
    const struct tm_ahead *ahead;
    size_t ahead_count;
};

/* How often instances are lost, from so many losses (of them unannounced, with another) in so many instance-seconds,
 * and a little of what is usual while little is seen. */
struct tm_facts_losses tm_facts_losses_of(double losses, double unannounced, double together, double seconds);

/* A job that needs all its instances at once, and has a deadline: it may wait on nothing (policy/deadline.h). */
static inline bool tm_facts_gang(int workers_min, int workers_max, bool has_deadline)
{
    return has_deadline && workers_max > 0 && workers_min == workers_max;
}

/* How the next layout is reached. */
enum tm_change {
    TM_CHANGE_MIGRATE,  /* state moves between instances; the migration table says what it costs */
    TM_CHANGE_ROLLBACK, /* everybody restarts from the newest checkpoint */
    TM_CHANGE_FREE,     /* costs nothing: bounds that nobody can reach */
    TM_CHANGE_TIMED,    /* costs what the decision says, and never less than the same migration */
};

/* What mattered most. */
enum tm_why {
    TM_WHY_STAYS,    /* nothing asks for a change */
    TM_WHY_EVENT,    /* the fleet changed */
    TM_WHY_FORECAST, /* another layout is expected to yield more */
    TM_WHY_TOO_FEW,  /* too few instances for any layout */
    TM_WHY_DEADLINE, /* on-demand instances are wanted for the deadline */
    TM_WHY_WAITS,    /* there is time to wait for spot */
    TM_WHY_BUDGET,   /* the budget is used up */
    TM_WHY_MOVES,    /* another group of pools is expected to yield more */
    TM_WHY_SHARES,   /* some instances are slower than others, and get fewer micro-batches */
};
const char *tm_why_words(enum tm_why why);

struct tm_decision {
    int layout;
    enum tm_change change;
    double pace;     /* share of the layout's throughput that is reached: redundancy and checkpoints cost some */
    double pause_ms; /* TM_CHANGE_TIMED */
    bool rents;      /* the next two count; else what there is is kept */
    int want_spot;   /* instances to have in all, of each market */
    int want_on_demand;
    bool share;          /* share micro-batches out anew, by measured speeds: a change without a move of layers */
    bool copy;           /* make a copy set now */
    double copy_every_s; /* from one set to the next, as things stand */
    bool stop;           /* in order: the job cannot go on within its limits */
    double until_s;      /* ask again then at the latest, events and intervals aside; INFINITY: no need */
    enum tm_why why;
    /* where facts.choices: */
    int want[TM_POOLS_MAX]; /* instances to have of each pool, usable or on their way, beside those with a notice;
                               keepers' pools too */
    int group;              /* that trains from now on */
};

#endif
