/* How long a training step takes on one GPU.
 *
 * The physical picture. The host launches kernels one after the other, the GPU works them off. With small batches the
 * host sets the pace:  floor = h0 + h1 x ops.  With large ones the GPU does:  gpu(b) = base + b x slope, where slope
 * adds up arithmetic at a share of the peak rate and memory traffic at a share of the bandwidth, and base is work that
 * does not grow with the batch (weights read and updated, kernels too small to fill the GPU). A step takes the larger
 * of the two, with a soft corner:  step(b) = (floor^p + gpu(b)^p)^(1/p).
 *
 * Recomputing activations does the forward pass of the blocks once more, and the host checkpoints each of them; a
 * compiler fuses what goes through memory, and launches less.
 *
 * The shares and rates are unknowns with a prior. tm_compute_learn fits them to whatever profiles exist, in log space,
 * robustly; without any the prior stands. A GPU whose steps lie off the common fit gets a factor of its own. For a
 * network that was profiled itself, tm_compute__tune then moves floor, base and slope of its own curve, as far as its
 * measurements outweigh what was learned from others. */
#ifndef TM_WORKLOAD_COMPUTE_H
#define TM_WORKLOAD_COMPUTE_H

#include "base/precision.h"
#include "workload/estimate.h"
#include "workload/model.h"

#include <stdbool.h>

/* Peak figures of a GPU; NaN: the GPU has no such mode. */
struct tm_gpu_figures {
    const char *name;
    double flops[TM_PRECISION_COUNT]; /* per second, dense */
    double memory_bytes_s;
    double memory_gib;
};

/* Work of one kind of pass over layers; per sample. */
struct tm_work {
    double conv_flops;       /* in convolutions */
    double matmul_flops;     /* in matrix products */
    double attention_flops;  /* in fused attention */
    double attention_scores; /* that it computes */
    double unaligned_values; /* of products whose rows no tensor core can load whole */
    double traffic_values;
    double depthwise_values; /* of traffic_values: of depthwise convolutions, which use no tensor cores */
};

/* What this model of time sees of a network; per sample, forward. */
struct tm_network {
    struct tm_work forward; /* a training step does it three times; less where weights are frozen (counted here) */
    struct tm_work again;   /* of it: what recomputation does once more: blocks, or all where there are none */
    double ops;
    double again_ops;
    double params;
    double trained_params;
    bool recompute; /* activations are recomputed */
    bool compiled;  /* by torch.compile or the like */
    bool channels_last;
};

struct tm_network tm_network_of(const struct tm_layer *layers, size_t count);
/* For a network of which only these totals are known: ops and traffic are guessed from them, as in a transformer. */
struct tm_network tm_network__of_totals(double params, double train_gflop_per_sample);

/* One measured step. */
struct tm_compute_cell {
    struct tm_network network;
    struct tm_gpu_figures gpu;
    enum tm_precision precision;
    int batch;
    double step_ms;
};

/* Kinds of networks, of which one tells little of the other: by what most of their arithmetic is, and of convolutions
 * by how wide their values are (16 bits are often laid out channels last). */
enum tm_compute_kind { TM_COMPUTE_PRODUCTS, TM_COMPUTE_CONV_16, TM_COMPUTE_CONV_32, TM_COMPUTE_KINDS };

enum { TM_COMPUTE_UNKNOWNS = 22, TM_COMPUTE_GPUS_MAX = 32 };

struct tm_compute_model {
    double x[TM_COMPUTE_UNKNOWNS]; /* logarithms; see compute.c */
    /* One standard deviation of log error on a network not seen, where its convolutions pace, its products, the host.
     */
    double conv_spread;
    double product_spread;
    double floor_spread;
    /* GPUs that were measured reach more or less of their figures than the first: by how much longer they take. */
    struct tm_compute_gpu {
        char name[32];        /* without what stands behind a dash: V100-32GB is a V100 */
        double log_attention; /* the same of fused attention in 16 bits: kernels of the time when it was measured */
        double scatter;       /* of its networks of products around what is known of it, one standard deviation */
        struct tm_compute_factor {
            double log_factor;
            double spread; /* one standard deviation of it */
            bool measured;
        } factors[TM_COMPUTE_KINDS];
    } gpus[TM_COMPUTE_GPUS_MAX];
    size_t gpu_count;
};

struct tm_compute_model tm_compute_prior(void);
int tm_compute_learn(const struct tm_compute_cell *cells, size_t count, struct tm_compute_model *out,
                     struct tm_error *e);

/* Was a step of a network of this kind measured on the GPU? Where not, it is taken for a common one of its figures, and
 * intervals are wider. */
bool tm_compute_is_measured(const struct tm_compute_model *model, const struct tm_network *network, const char *gpu,
                            enum tm_precision precision);

/* The curve of one network on one GPU at one precision. */
struct tm_compute__curve {
    double floor_ms;
    double base_ms;
    double sample_ms;
    double floor_spread; /* one standard deviation of the log of the floor, and of base and slope together */
    double gpu_spread;
};

/* -TM_EINPUT where the GPU has no such precision. */
int tm_compute__curve(const struct tm_compute_model *model, const struct tm_network *network,
                      const struct tm_gpu_figures *gpu, enum tm_precision precision, struct tm_compute__curve *out,
                      struct tm_error *e);

/* Measured steps of this very curve: batches and times. `floor_spread`: how far the floor may be from what the model
 * says, one standard deviation of its logarithm: hosts that launch kernels differ more than GPUs do. */
int tm_compute__tune(struct tm_compute__curve *curve, double floor_spread, const int *batches, const double *step_ms,
                     size_t count, struct tm_error *e);
#define TM_COMPUTE_KNOWN_HOST 0.12 /* of the kind that the model was learned on */
#define TM_COMPUTE_ANY_HOST   0.25

/* Step time in ms for a micro-batch; its mean alone is several times cheaper. */
double tm_compute__mean_ms(const struct tm_compute__curve *curve, double batch);
struct tm_estimate tm_compute__step_ms(const struct tm_compute__curve *curve, double batch);

#endif
