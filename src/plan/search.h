/* What to rent for a job: fleets of the catalogue's offers, predicted by `workload`, weighed by `expect`.
 *
 * `srift` is the published idea: the best predicted throughput or cost under the constraint, as if nothing were ever
 * lost. `tidemill` weighs losses: it looks for the smallest expected cost (or time) among fleets that meet the deadline
 * with the probability asked for, and buys instances on demand where that takes it there. Both look at every instance
 * type, every count up to the limit that matters, and, for tidemill, every share of on-demand instances; fleets are of
 * one type in one region. Both answers are judged by the same expectation. */
#ifndef TM_PLAN_SEARCH_H
#define TM_PLAN_SEARCH_H

#include "market/catalog.h"
#include "plan/expect.h"
#include "workload/predict.h"

enum tm_plan_planner { TM_PLAN_TIDEMILL, TM_PLAN_SRIFT };
enum tm_plan_objective { TM_PLAN_CHEAPEST, TM_PLAN_FASTEST };
enum tm_plan_market { TM_PLAN_MIXED, TM_PLAN_SPOT_ONLY, TM_PLAN_ON_DEMAND_ONLY };

enum { TM_PLAN_ANSWERS_MAX = 64, TM_PLAN_NODES_MAX = 1024 };

struct tm_plan_request {
    const struct tm_model *model;
    const struct tm_compute_model *compute;
    const struct tm_comm_model *comm;
    int precision; /* or mixed */
    int batch;
    enum tm_plan_planner planner;
    enum tm_plan_objective objective;
    enum tm_plan_market market;
    struct tm_expect_job job;
    double budget_usd; /* infinite: none */
    double max_usd_h;  /* infinite: none */
    int max_nodes;
    double min_probability; /* to meet the deadline */
    double loss_per_s;      /* of a spot instance; NaN: from the offer's interruption band, else `default_loss_per_s` */
    double default_loss_per_s;
    /* May this offer be used? NULL: all. */
    bool (*allowed)(const void *context, const struct tm_instance *instance, const struct tm_offer *offer);
    const void *allowed_context;
    size_t top;
};

struct tm_plan_answer {
    const struct tm_instance *instance;
    const struct tm_offer *offer; /* the place; its spot price counts for spot, its on-demand price for the rest */
    int spot_nodes;
    int on_demand_nodes;
    struct tm_prediction prediction;
    struct tm_expectation expectation;
};

struct tm_plan_result {
    struct tm_plan_answer answers[TM_PLAN_ANSWERS_MAX]; /* best first; one for each instance type */
    size_t count;
    size_t fleets; /* weighed */
    /* Where nothing satisfies all constraints: the nearest misses, one constraint relaxed each; infinite if that does
     * not help alone. */
    double cheapest_within_deadline_usd;
    double fastest_within_budget_s;
    double cheapest_usd_h;
};

/* Peak figures of a GPU of the catalogue, as prediction wants them. */
struct tm_gpu_figures tm_plan_gpu_figures(const struct tm_gpu *gpu);

/* Large results: give them their own allocation. 0 also if nothing was found (count 0). `other`, if not NULL, gets what
 * the other planner would answer: predictions, the dear part, are made once for both. */
int tm_plan_search(const struct tm_catalog *catalog, const struct tm_plan_request *request, struct tm_plan_result *out,
                   struct tm_plan_result *other, struct tm_error *e);

#endif
