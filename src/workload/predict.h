/* Step time, memory and throughput of a model on a fleet, for a layout of D pipelines of P stages.
 *
 * A stage is a run of layers; stages are cut so that the slowest is as fast as can be. Micro-batches go through in 1F1B
 * order: the first takes the turns of all stages, each further one the longest turn; what is not the longest turn of a
 * micro-batch is the bubble. A turn is a forward and a backward pass and, since trainers of pipelines do not overlap
 * them, the exchange of activations and their gradients with both neighbours. Stages of one number all-reduce their
 * gradients over the D pipelines while the last backward passes run. A stage that does not fit its GPU's memory
 * recomputes activations (a third more work) if that makes it fit. Pipelines on different instance types get
 * micro-batches so that all finish together.
 *
 * Pipelines lie side by side on instances with several GPUs: where P divides into them, a pipeline stays on one
 * instance and exchanges activations inside it, the copies of a stage on one instance add up inside it first, and the
 * rings of the min(P, GPUs) stages that an instance holds share its link. */
#ifndef TM_WORKLOAD_PREDICT_H
#define TM_WORKLOAD_PREDICT_H

#include "workload/comm.h"

enum { TM_FLEET_GROUPS_MAX = 8, TM_PREDICT_STAGES_MAX = 256, TM_FLEET_GPUS_MAX = 65536 };

/* Equal instances. */
struct tm_fleet_group {
    const char *instance;
    struct tm_gpu_figures gpu;
    int instances;
    int gpus_per_node;
    double network_bit_s; /* of one instance, for good */
    double burst_bit_s;   /* while the average stays below that, or for some minutes; 0: no more than that */
    double local_bit_s;   /* between two GPUs of one instance; 0: a seventh of the memory's bandwidth (NVLink) for GPUs
                             with 890 GB/s of it or more, 100 Gbit/s (PCIe) for others */
};

/* Ways beside data parallel and pipelines, which our runtime does; these need an engine of the user's own. */
enum tm_way { TM_WAY_SHARDED = 1, TM_WAY_TENSOR = 2 };

struct tm_predict_request {
    const struct tm_model *model;
    const struct tm_fleet_group *groups;
    size_t group_count;
    enum tm_precision precision;
    int batch;       /* global */
    int micro_batch; /* of one pipeline; 0: the best power of two */
    int pipelines;   /* 0: the best layout */
    int stages;
    const struct tm_compute_model *compute;
    const struct tm_comm_model *comm;
    unsigned ways; /* enum tm_way that may be tried, too, without a layout; tensor of fleets of one instance type */
    bool burst;    /* links give their burst all the time: a short run; false: no more than their baseline on average */
    /* Measured steps of this model on the first group's GPU; count 0: none. */
    const int *measured_batches;
    const double *measured_ms;
    size_t measured_count;
    /* Its gradients in the order in which they become ready, for layouts of one stage; count 0: as its layers tell. */
    const struct tm_comm_bucket *gradients;
    size_t gradient_count;
};

struct tm_prediction {
    struct tm_estimate step_s;
    double samples_per_s;
    double compute_s; /* the parts add up to the mean */
    double exposed_comm_s;
    double bubble_s;
    double optimizer_s;
    double sustained_s; /* a step once bursts of links are used up; the mean where that changes nothing */
    int pipelines;
    int stages;
    int tensor; /* GPUs that compute a stage together; 0 or 1: one */
    int zero;   /* what replicas share out: ZeRO 1 to 3; 0: nothing */
    int shards; /* replicas among which they do; fewer than there are: each group of so many has all */
    int idle_gpus;
    int micro_batch;
    int micro_batches;                            /* of the pipeline that has most */
    int group_pipelines[TM_FLEET_GROUPS_MAX];     /* of each group of the fleet ... */
    int group_micro_batches[TM_FLEET_GROUPS_MAX]; /* ... and how many micro-batches all of them have */
    bool recompute;
    double memory_gib[TM_PREDICT_STAGES_MAX]; /* of the GPU of each stage */
    double memory_limit_gib;
    bool fits;
    const char *limit; /* what sets the pace: "compute", "launches", "communication", "bubble", or "memory" */
};

/* -TM_EINPUT: wrong figures; -TM_ENONE: no layout fits the fleet's memory (`out` tells how far the best one is off). */
int tm_predict(const struct tm_predict_request *request, struct tm_prediction *out, struct tm_error *e);

/* Samples per second of a job that lasts longer than the burst of its links: what layouts are chosen by. */
double tm_prediction_lasting_rate(const struct tm_prediction *prediction);

/* Makes a prediction slower by a factor, all parts alike. */
void tm_prediction_slow(struct tm_prediction *prediction, double factor);

/* The same for many counts of the same kinds of instance: what does not depend on the counts is found once. What the
 * request points to must outlive it. */
struct tm_predictor;
int tm_predictor_create(const struct tm_predict_request *request, struct tm_predictor **out, struct tm_error *e);
void tm_predictor_destroy(struct tm_predictor *predictor); /* NULL is fine */
/* `instances`: how many instances of each group. */
int tm_predictor_run(struct tm_predictor *predictor, const int *instances, struct tm_prediction *out,
                     struct tm_error *e);

#endif
