/* One single-gang job with a deadline on a trace under one policy: what happens and what it costs.
 *
 * Event-driven on a virtual clock: time goes from one change (spot comes or goes, a restart ends, the policy asked to
 * be asked again, the work is done) to the next. A gang of n needs n instances at once: there is spot while the trace
 * has n or more. Nothing is known after the end of the trace: there is no spot. Work survives a loss (the time of a
 * restart represents what is redone). Bills are per instance-second. */
#ifndef TM_SIM_GANG_H
#define TM_SIM_GANG_H

#include "market/trace.h"
#include "policy/deadline.h"

struct tm_gang_options {
    int64_t from_ms; /* of the trace, at or after its first record; what lies before is known to policies that learn */
    int gang;        /* instances, 1 or more */
    double work_s;
    double deadline_s;
    double restart_s;
    double start_s;    /* of on-demand instances */
    double spot_usd_h; /* of one instance */
    double on_demand_usd_h;
};

struct tm_gang_result {
    double cost_usd;
    double finished_at_s; /* since the start */
    bool deadline_met;
    int launches;  /* of either kind */
    int losses;    /* of the spot gang */
    double spot_s; /* restarts included */
    double on_demand_s;
    double idle_s;             /* on nothing */
    double start_up_s;         /* waiting for on-demand instances */
    double restart_s;          /* the part of spot_s and on_demand_s without work */
    bool trace_ended;          /* the job went on behind the end of the trace */
    double on_demand_only_usd; /* the same job on on-demand instances alone */
    int decisions;
};

/* -TM_EINPUT with words: a value out of range. oracle-deadline: -TM_ELIMIT as of tm_gang_plan_init; where no plan meets
 * the deadline it is on-demand. */
int tm_gang_simulate(const struct tm_trace *trace, const struct tm_deadline_policy *policy,
                     const struct tm_gang_options *options, struct tm_gang_result *result, struct tm_error *e);

#endif
