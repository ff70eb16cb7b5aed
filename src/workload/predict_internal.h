/* Stages: the model cut into P runs of layers, and what each needs on each kind of instance. Made once for each P. */
#ifndef TM_WORKLOAD_PREDICT_INTERNAL_H
#define TM_WORKLOAD_PREDICT_INTERNAL_H

#include "workload/memory.h"
#include "workload/predict.h"

enum { TM_MICRO_SIZES = 31, TM_BUCKETS_MAX = 1024 }; /* micro-batches 1, 2, 4 ... 2^30 */

struct tm_stage {
    size_t first; /* layers first .. last - 1 */
    size_t last;
    struct tm_network network;
    struct tm_footprint footprint;
    double output_values;
};

/* One micro-batch on the stages of a kind of instance. A stage's turn is its forward and backward pass and what it
 * waits for its links meanwhile. */
struct tm_pace {
    double turn_ms;    /* the longest; 0: not found yet */
    double all_ms;     /* turns of all stages: what the first micro-batch takes */
    double compute_ms; /* of the longest turn */
    double launches_ms;
    double optimizer_ms;
    const struct tm_compute__curve *slowest;
};

struct tm_stage_cut {
    size_t count;
    struct tm_stage *stages; /* count */
    /* Without and with recomputation: curves of each stage on each kind of instance. */
    struct tm_compute__curve *curves[2][TM_FLEET_GROUPS_MAX];
    /* ... and without and with links inside an instance. */
    struct tm_pace paces[2][2][TM_FLEET_GROUPS_MAX][TM_MICRO_SIZES];
    double link_values;             /* the most that a stage sends per sample, forward and backward */
    double grad_bytes;              /* of the stage that has most */
    struct tm_comm_bucket *buckets; /* of that stage */
    size_t bucket_count;
};

struct tm_predictor {
    struct tm_predict_request request; /* its groups are the predictor's own */
    struct tm_fleet_group groups[TM_FLEET_GROUPS_MAX];
    double *costs; /* per layer: what the cut balances */
    struct tm_stage_cut *cuts[TM_PREDICT_STAGES_MAX + 1];
    bool tuned; /* the user measured this model: how its curve was moved */
    struct tm_compute__curve common;
    struct tm_compute__curve own;
};

/* The cut into `count` stages; made at the first call. */
int tm_predictor__cut(struct tm_predictor *predictor, int count, struct tm_stage_cut **out, struct tm_error *e);
void tm_predictor__forget(struct tm_stage_cut *cut);
struct tm_pace tm_predictor__pace(struct tm_predictor *predictor, struct tm_stage_cut *cut, size_t group,
                                  int micro_batch, bool recompute, bool inside);
/* How much slower or faster than the common model the user's own measurements say this model is. */
double tm_predictor__tuning(const struct tm_predictor *predictor, int micro_batch);
/* Of one parameter. */
double tm_predictor__gradient_bytes(const struct tm_predictor *predictor);
/* What a stage waits for its links, of one micro-batch. */
double tm_predictor__link_ms(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, size_t stage,
                             size_t group, int micro_batch, bool inside);
/* The parts of a step and its mean, of a layout that `out` names. */
void tm_predictor__fill_times(const struct tm_predictor *predictor, const struct tm_pace *pace, int micro_batches,
                              double exposed_ms, double drain_s, struct tm_prediction *out);
/* Ways that the request allows beside data parallel and pipelines, where they beat `best`. */
int tm_predictor__try_ways(struct tm_predictor *predictor, int gpus, struct tm_prediction *best, struct tm_error *e);

/* Between instances while they send: the burst, where there is one. */
double tm_group__bit_s(const struct tm_fleet_group *group);
/* Can so many pipelines of so many GPUs each stay on one instance? */
bool tm_group__stays_inside(const struct tm_fleet_group *group, int width, int pipelines);
/* Between GPUs of one instance. */
double tm_group__local_bit_s(const struct tm_fleet_group *group);
/* Memory of a stage's GPU. */
double tm_predictor__gib(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, size_t stage,
                         int micro_batch, int micro_batches, bool recompute);

#endif
