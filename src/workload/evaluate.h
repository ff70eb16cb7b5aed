/* How good predictions are: parts of a profile are held back, predicted, and compared. */
#ifndef TM_WORKLOAD_EVALUATE_H
#define TM_WORKLOAD_EVALUATE_H

#include "workload/compute.h"
#include "workload/profile.h"

/* two-batches: of each (network, precision) the smallest and the largest batch are known, the rest is predicted.
 * leave-one-network: nothing is known of a network but its layers (of runs: its compute time).
 * leave-one-bandwidth: of runs, nothing is known of one link rate.
 * untrained: nothing of the profile is known; all of it is predicted with what was known before. */
enum tm_split { TM_SPLIT_TWO_BATCHES, TM_SPLIT_LEAVE_ONE_NETWORK, TM_SPLIT_LEAVE_ONE_BANDWIDTH, TM_SPLIT_UNTRAINED };
extern const char *const tm_split_names[]; /* NULL-terminated */

struct tm_errors {
    size_t cells;
    double mape_percent;
    double median_percent;
    double p90_percent;
    double bias_percent;     /* mean of signed errors */
    double inside80_percent; /* truths that lie between p10 and p90 */
    size_t memory_cells;     /* that have a measured peak of memory, and one that was predicted */
    double memory_mape_percent;
};

/* One prediction beside the truth; NaN: not known. */
struct tm_evaluation_cell {
    const struct tm_profile_step *step; /* of runs NULL */
    const char *network;                /* borrowed from the profile, as above */
    double truth_ms;
    struct tm_estimate estimate_ms;
    double truth_gib;
    double predicted_gib;
    bool gpu_bound;
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
    struct tm_evaluation_cell *cells; /* all that were predicted; the evaluation's own */
    size_t cell_count;
};

/* Finds the model of a step of the profile, trained as the step was: fills `model`, which is initialised, or returns
 * false where it is not known (its totals in the profile are used then). */
typedef bool (*tm_model_lookup_f)(void *context, const struct tm_profile_step *step, struct tm_model *model);

/* `gpus`: one for each step of the profile. `known`: what was known before, for the split untrained. */
int tm_evaluate_steps(const struct tm_profile *profile, enum tm_split split, const struct tm_gpu_figures *gpus,
                      const struct tm_compute_model *known, tm_model_lookup_f lookup, void *lookup_context,
                      struct tm_evaluation *out, struct tm_error *e);
void tm_evaluation_deinit(struct tm_evaluation *evaluation);

/* Data-parallel runs; split is leave-one-network, leave-one-bandwidth or untrained. */
int tm_evaluate_runs(const struct tm_profile *profile, enum tm_split split, struct tm_evaluation *out,
                     struct tm_error *e);

#endif
