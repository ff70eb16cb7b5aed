/* How good predictions are: parts of a profile are held back, predicted, and compared. */
#ifndef TM_WORKLOAD_EVALUATE_H
#define TM_WORKLOAD_EVALUATE_H

#include "workload/compute.h"
#include "workload/profile.h"

/* two-batches: of each (network, precision) the smallest and the largest batch are known, the rest is predicted.
 * leave-one-network: nothing is known of a network but its layers (of runs: its compute time).
 * leave-one-bandwidth: of runs, nothing is known of one link rate. */
enum tm_split { TM_SPLIT_TWO_BATCHES, TM_SPLIT_LEAVE_ONE_NETWORK, TM_SPLIT_LEAVE_ONE_BANDWIDTH };
extern const char *const tm_split_names[]; /* NULL-terminated */

struct tm_errors {
    size_t cells;
    double mape_percent;
    double median_percent;
    double p90_percent;
    double bias_percent;     /* mean of signed errors */
    double inside80_percent; /* truths that lie between p10 and p90 */
};

struct tm_evaluation_row {
    const char *network; /* of the profile; borrowed */
    struct tm_errors errors;
};

enum { TM_EVALUATION_NETWORKS_MAX = 256 };

struct tm_evaluation {
    struct tm_errors overall;
    struct tm_errors gpu_bound; /* steps: cells that take at least 1.3 times as long as the smallest batch */
    struct tm_errors naive;     /* runs: of compute + one ring at the nominal rate */
    struct tm_evaluation_row networks[TM_EVALUATION_NETWORKS_MAX];
    size_t network_count;
};

/* Looks up the layers of a network of the profile: fills *out, or returns false where it is not known (its totals in
 * the profile are used then). */
typedef bool (*tm_network_lookup_f)(void *context, const char *network, struct tm_network *out);

int tm_evaluate_steps(const struct tm_profile *profile, enum tm_split split, const struct tm_gpu_figures *gpu,
                      tm_network_lookup_f lookup, void *lookup_context, struct tm_evaluation *out, struct tm_error *e);

/* Data-parallel runs; split is leave-one-network or leave-one-bandwidth. */
int tm_evaluate_runs(const struct tm_profile *profile, enum tm_split split, struct tm_evaluation *out,
                     struct tm_error *e);

#endif
