/* DeepVM's planner and its baselines, faithful to the last digit to the released code (arXiv 2403.05861; run.py and
 * simulation.py), for comparison with ours. What it leaves out (losses, deadlines, mixed fleets) it leaves out here
 * too.
 *
 * A cluster is n GPU instances of one type on spot, with either m on-demand CPU instances that hold the checkpoints
 * (Tiering) or one of the n on demand (Single Anchor). It maximises Z = FLOPP x K(n) x n within a price per hour, where
 * FLOPP = F / spot price x 3600 and K(n) is how far a logistic curve of measured speed-up falls below its tangent at
 * the inflection. */
#ifndef TM_PLAN_DEEPVM_H
#define TM_PLAN_DEEPVM_H

#include "base/arena.h"
#include "base/env.h"

enum { TM_DEEPVM_INSTANCES_MAX = 256, TM_DEEPVM_CLASSES_MAX = 32, TM_DEEPVM_TOP_MAX = 64 };

/* Which of the two programs a data set belongs to. run: counts up to the quota, several answers, Tiering wins exact
 * ties, baselines capped at the quota. simulation: counts 1 to 255, one answer, Single Anchor wins ties, no cap. */
enum tm_deepvm_variant { TM_DEEPVM_RUN, TM_DEEPVM_SIMULATION };

struct tm_deepvm_instance {
    const char *name;
    const char *class_name; /* G and P have GPUs, all others may hold checkpoints */
    double vcpus;
    double memory_gib;
    double network_gbps;
    double on_demand_usd_h;
    double spot_usd_h;
    double flops; /* relative score; only of GPU types, as are a, b, c */
    double a, b, c;
};

struct tm_deepvm_quota {
    const char *class_name;
    double on_demand_vcpus;
    double spot_vcpus;
};

struct tm_deepvm_data {
    struct tm_arena arena; /* owns the strings */
    enum tm_deepvm_variant variant;
    const char *source;
    struct tm_deepvm_instance instances[TM_DEEPVM_INSTANCES_MAX]; /* the order decides ties */
    size_t instance_count;
    struct tm_deepvm_quota quotas[TM_DEEPVM_CLASSES_MAX];
    size_t quota_count;
};

/* Large: give it its own allocation. */
void tm_deepvm_data_init(struct tm_deepvm_data *data);
void tm_deepvm_data_deinit(struct tm_deepvm_data *data);
int tm_deepvm_data_load(struct tm_env *env, const char *path, struct tm_deepvm_data *data, struct tm_error *e);
int tm_deepvm_data__parse(const char *file, const char *text, size_t length, struct tm_deepvm_data *data,
                          struct tm_error *e);

enum tm_deepvm_planner { TM_DEEPVM, TM_DEEPVM_NOSCALE, TM_DEEPVM_COST_FIRST, TM_DEEPVM_PERF_FIRST };
enum tm_deepvm_architecture { TM_DEEPVM_BEST, TM_DEEPVM_TIERING, TM_DEEPVM_SINGLE_ANCHOR };

struct tm_deepvm_request {
    enum tm_deepvm_planner planner;
    enum tm_deepvm_architecture architecture; /* BEST: the final stage */
    double max_usd_h;
    double buffer;          /* their buffer_size */
    double checkpoint_size; /* their ckp_file_size */
    size_t top;             /* answers wanted; the simulation variant, NoScale and the baselines give one */
};

struct tm_deepvm_answer {
    enum tm_deepvm_architecture architecture;
    const struct tm_deepvm_instance *gpu;
    int gpu_instances;                       /* a Single Anchor's anchor counts */
    const struct tm_deepvm_instance *anchor; /* NULL for Single Anchor */
    int anchor_instances;
    double price_usd_h;
    double z; /* NaN for the baselines */
    double k;
    double score; /* run: F K n; simulation: F n K n, as the released code has it */
};

/* Best first; *out_count may be 0: nothing is affordable. */
int tm_deepvm_plan(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request,
                   struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX], size_t *out_count, struct tm_error *e);

/* Our planner on the same data, where DeepVM's misses something better: quotas in full, single instances too, the
 * cheaper of two that are equally good. `cheapest`: the least money for the work by the fitted speed-up S(n) (F alone
 * for one instance); else the largest F K(n) n, DeepVM's own measure of speed. What follows the first answer is the
 * other objective's way: slower and cheaper, or dearer and faster, never a near-duplicate. */
int tm_deepvm_ours(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request, bool cheapest,
                   struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX], size_t *out_count, struct tm_error *e);

/* GPU instances that one remote can take, by the slower link of the two; 0: the released table does not say. */
int tm_deepvm__saturation(double gbps);

/* K(n) of an instance type. */
double tm_deepvm_scaling(const struct tm_deepvm_instance *gpu, int n);

#endif
