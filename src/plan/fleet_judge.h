/* A fleet judged as it will run: the simulator trains the job on it under the policy that will run (sim/judge.h).
 *
 * `plan` narrows by its closed form (expect.h) and asks this judge for the best candidates; whoever runs or simulates
 * a planned fleet asks it for that fleet, and gets the same figures: all that goes in is rounded to what a job file can
 * say (whole milliseconds, millionths of a dollar).
 *
 * Spot instances live through the trace that speaks of all of them (plan/recorded_traces.h), from several starts, or
 * through draws from the offers' losses, those of traces among them: that is what a job file can say. On-demand
 * instances are always there; those that only keep copies cost money and do nothing else here. Layouts are those of the
 * fleet's instance type, each as fast as predicted; of a fleet of several types as fast as the share of it that is
 * there. */
#ifndef TM_PLAN_FLEET_JUDGE_H
#define TM_PLAN_FLEET_JUDGE_H

#include "layout/migrate.h"
#include "plan/search.h"
#include "sim/judge.h"
#include "workload/job_fleet.h"

struct tm_fleet_judge {
    struct tm_env *env;
    const struct tm_catalog *catalog;
    const struct tm_trace *trace; /* that all spot instances live through, whatever the request says; NULL: see above */
    const int64_t *lives_ms; /* mean lives of the fleet's spot instances, by part; NULL or 0: as their offers say */
    const char *policy;      /* that will run; NULL: tidemill */
    const struct tm_job_fleet *asked; /* the job's word on notices, starting times and stages; NULL: nothing is said */
    const struct tm_cost *cost;       /* migration costs; NULL: typical ones */
    bool no_losses;                   /* nothing is preempted */
    double first_wait_s;              /* for the first instances, before they start; 0: none */
    uint64_t seed;                    /* of the draws */
    int runs;                         /* 0: TM_JUDGE_RUNS */
};

/* The trace that all spot instances of the fleet live through, by the request; NULL: there is no such one. */
const struct tm_plan_trace *tm_plan_trace_of_fleet(const struct tm_plan_request *request,
                                                   const struct tm_plan_fleet *fleet);

/* How a fleet may train, how fast, and what changes cost: typical ones, by the request's restart and start-up times and
 * the instances' network. */
struct tm_fleet_layouts {
    struct tm_cost cost;
    struct tm_layouts layouts;
    struct tm_migrations *migrations;
    struct tm_prediction prediction; /* of the whole fleet */
};

/* -TM_ENONE: the model fits in no layout; -TM_ELIMIT: more instances or stages than layouts may have. `out` is to be
 * freed after success. */
int tm_fleet_layouts_init(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                          const struct tm_plan_fleet *fleet, struct tm_fleet_layouts *out, struct tm_error *e);
void tm_fleet_layouts_deinit(struct tm_fleet_layouts *layouts);

/* One policy on the fleet; the on-demand policy rents all of it on demand. */
int tm_fleet_judge_policy(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                          const struct tm_plan_fleet *fleet, const struct tm_fleet_layouts *layouts,
                          const struct tm_policy_info *policy, struct tm_judged *out, struct tm_error *e);

/* The policy that will run on an answer's fleet: puts the judge's figures into answer->expectation (what a simulation
 * does not say stays as it was: price of an hour, losses, checkpoint interval). */
int tm_fleet_judge_answer(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                          struct tm_plan_answer *answer, struct tm_error *e);

/* Do deadline and budget hold, by what the judge said? */
bool tm_plan__holds(const struct tm_plan_request *request, const struct tm_expectation *expectation);

/* tm_plan_search_in, then judged: `out` has the answers that hold, best first, and the other planner's are judged
 * alike. Where the closed form's answers do not hold, or it has none, it is asked again with tighter or looser limits.
 * The bound stays one of the closed form; it is NaN where the judge found something below it. */
int tm_plan_search_judged(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                          const struct tm_plan_request *request, struct tm_plan_result *out,
                          struct tm_plan_result *other, struct tm_error *e);
/* The same with fewer candidates, for what is asked beside the answer. */
int tm_plan__search_briefly(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                            const struct tm_plan_request *request, struct tm_plan_result *out, struct tm_error *e);

#endif
