/* What to rent for a job: fleets of the catalogue's offers, predicted by `workload`, weighed by `expect`.
 *
 * `srift` is the published idea: the best predicted throughput or cost under the constraint, as if nothing were ever
 * lost. `tidemill` weighs losses: it looks for the smallest expected cost (or time) among fleets that meet the deadline
 * with the probability asked for, buys instances on demand where that takes it there, and rents anchors, on-demand
 * instances that hold the state's copies while all others can be lost. A fleet lies in one region: up to three types,
 * several zones, each type in each zone on spot or on demand.
 *
 * First every type at every count, zones and on-demand shares alone; then a branch and bound over throughput and loss
 * rate, in which an integer program (mix.h) gives for each box the least price an hour. What it proves is a bound for
 * fleets in which an instance gives what it gives in a fleet of its own type of the same throughput: that is what makes
 * mixes linear. What is found is always weighed exactly. */
#ifndef TM_PLAN_SEARCH_H
#define TM_PLAN_SEARCH_H

#include "base/jsonout.h"
#include "plan/expect.h"
#include "plan/supply.h"

enum tm_plan_planner { TM_PLAN_TIDEMILL, TM_PLAN_SRIFT };
enum tm_plan_objective { TM_PLAN_CHEAPEST, TM_PLAN_FASTEST };
enum tm_plan_market { TM_PLAN_MIXED, TM_PLAN_SPOT_ONLY, TM_PLAN_ON_DEMAND_ONLY };

enum { TM_PLAN_ANSWERS_MAX = 64, TM_PLAN_PARTS_MAX = 16, TM_PLAN_QUOTAS_MAX = 64 };

/* At most `limit` instances, or vCPUs, of an instance type, a family of them ("p", "p3", "g2"), a GPU, a zone, a region
 * or a cloud of this name; "us-east-1/p" is a family in a region. */
struct tm_plan_quota {
    const char *name;
    int markets; /* of mix.h: which instances count */
    int limit;
    bool vcpus; /* not instances: clouds count so */
};

struct tm_plan_request {
    struct tm_supply_request supply; /* its spot, on_demand and max_instances follow from the members below */
    enum tm_plan_planner planner;
    enum tm_plan_objective objective;
    enum tm_plan_market market;
    struct tm_expect_job job;
    double state_bytes; /* of a copy set; 0: no anchors are needed */
    int anchors_said;   /* so many of supply.anchor_type, which the job names, beside every fleet; 0: it names none */
    double budget_usd;  /* infinite: none */
    double max_usd_h;   /* infinite: none */
    int max_instances;
    double min_probability; /* to meet the deadline */
    int workers_min;        /* below so many instances the job waits; 0 or 1: it never does */
    struct tm_plan_quota quotas[TM_PLAN_QUOTAS_MAX];
    size_t quota_count;
    size_t top;
    int programs_max; /* integer programs at most; 0: none, so no mixed types and no bound */
};

/* Instances of one offer. */
struct tm_plan_part {
    const struct tm_instance_type *instance;
    const struct tm_offer *offer;
    int spot;
    int on_demand;
};

struct tm_plan_fleet {
    struct tm_plan_part parts[TM_PLAN_PARTS_MAX]; /* those of one type side by side */
    size_t part_count;
    struct tm_plan_anchor_kind anchor; /* instances without GPU that hold copies; instance NULL: none */
    int anchor_instances;
};

struct tm_plan_answer {
    struct tm_plan_fleet fleet;
    struct tm_prediction prediction;
    struct tm_expectation expectation;
    int anchors;       /* instances that hold copies: anchor_instances, or on-demand ones that train too */
    double egress_usd; /* part of the cost: the state leaves the cloud that it is in; 0: it need not */
};

struct tm_plan_result {
    struct tm_plan_answer answers[TM_PLAN_ANSWERS_MAX]; /* best first; one for each set of instance types */
    size_t count;
    size_t fleets;   /* weighed */
    size_t programs; /* integer programs solved */
    double bound;    /* no fleet of the kind said above is better: dollars or seconds; NaN: not searched for */
    double gap;      /* of the best answer to it, relative */
    /* Over fleets that satisfy all other constraints: what each would have to be relaxed to; infinite if that does not
     * help alone. */
    double deadline_needed_s;
    double budget_needed_usd;
    double usd_h_needed;
};

int tm_plan_spot_instances(const struct tm_plan_fleet *fleet);
int tm_plan_on_demand_instances(const struct tm_plan_fleet *fleet);
/* What an hour of all of it costs, anchors among them. */
double tm_plan_usd_h(const struct tm_plan_fleet *fleet);

/* The chance that a budget is enough: as the judge saw it, else by the spread of the cost. */
double tm_plan_p_budget(const struct tm_expectation *expectation, double budget_usd);

/* Large results: give them their own allocation. 0 also if nothing was found (count 0). `other`, if not NULL, gets what
 * the other planner would answer: predictions, the dear part, are made once for both. */
int tm_plan__search(const struct tm_catalog *catalog, const struct tm_plan_request *request, struct tm_plan_result *out,
                    struct tm_plan_result *other, struct tm_error *e);

/* The same on a supply that was made for this request, or for one that differs in limits and objective alone;
 * tm_plan_solve for one planner. */
int tm_plan_search_in(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_result *out,
                      struct tm_plan_result *other, struct tm_error *e);
int tm_plan_solve(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_result *out,
                  struct tm_error *e);
int tm_plan_make_supply(const struct tm_catalog *catalog, const struct tm_plan_request *request,
                        struct tm_supply *supply, struct tm_error *e);

/* Says what a fleet would take, by the expectation that judges all planners. The fleet's anchors are found with it. */
int tm_plan_judge(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_answer *answer,
                  struct tm_error *e);

/* The same for a prediction that stands in the answer already, corrected perhaps by what was observed. */
int tm_plan__weigh(const struct tm_supply *supply, const struct tm_plan_request *request, struct tm_plan_answer *answer,
                   struct tm_error *e);

/* The integer program behind an answer (the least price an hour for its throughput in its region), with what our solver
 * says of it, as one JSON document for other solvers: {"feasible","objective","bound","program"} (tm_milp__json). */
int tm_plan_program(const struct tm_supply *supply, const struct tm_plan_request *request,
                    const struct tm_plan_answer *answer, struct tm_jsonout *json, struct tm_error *e);

/* A quota as people write it, NAME=N, NAME:spot=N or NAME:on-demand=N: `length` characters; its name goes to the arena.
 * -TM_EUSAGE, -TM_ELIMIT: what is wrong with it, or that nothing in the catalogue has the name. */
int tm_plan_quota_add(const struct tm_catalog *catalog, const char *text, size_t length, struct tm_arena *arena,
                      struct tm_plan_request *request, struct tm_error *e);
/* Does a quota's name mean this offer? */
bool tm_plan__quota_covers(const struct tm_plan_quota *quota, const struct tm_instance_type *instance,
                           const struct tm_offer *offer);
/* What an instance of the offer counts against the quota; 0: nothing. */
double tm_plan__quota_counts(const struct tm_plan_quota *quota, const struct tm_instance_type *instance,
                             const struct tm_offer *offer);

#endif
