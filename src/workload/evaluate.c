#include "workload/evaluate.h"

#include "base/alloc.h"
#include "workload/comm.h"
#include "workload/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const tm_split_names[] = {"two-batches", "leave-one-network", "leave-one-bandwidth", "untrained", NULL};

/* A cell of the profile, with what was predicted for it. */
struct cell {
    const struct tm_profile_step *step;
    struct tm_compute_cell compute;
    size_t group; /* first cell of the same network and precision */
    bool known;   /* two-batches: smallest or largest of its group */
    bool gpu_bound;
    bool predicted;
    struct tm_estimate estimate;
    double gib; /* predicted; NaN: its layers are not known */
};

struct evaluation {
    struct cell *cells;
    size_t count;
    struct tm_compute_cell *training; /* scratch, count long */
};

/* ---- preparing ---- */

/* The network of a step and the memory that it takes, from its model or from totals in the profile. */
static int fill_network(struct cell *cell, tm_model_lookup_f lookup, void *lookup_context, struct tm_error *e)
{
    const struct tm_profile_step *step = cell->step;
    struct tm_model model;
    tm_model_init(&model);
    cell->gib = NAN;
    if (lookup(lookup_context, step, &model)) {
        struct tm_footprint footprint = tm_footprint_of(&model, 0, model.layer_count);
        struct tm_memory_use use = {.precision = step->precision,
                                    .optimizer_states = model.optimizer_states,
                                    .micro_batch = step->micro_batch,
                                    .in_flight = 1,
                                    .micro_batches = step->micro_batches,
                                    .recompute = step->recompute != 0};
        cell->gib = tm_memory_gib(&footprint, &use);
        cell->compute.network = tm_network_of(model.layers, model.layer_count);
        cell->compute.network.channels_last = model.channels_last;
    } else if (isnan(step->params) || isnan(step->train_gflop_per_sample)) {
        return tm_error_set(
            e, TM_EINPUT, "network %s: no such model, and the profile has no params and train_gflop_per_sample for it",
            step->network);
    } else {
        cell->compute.network = tm_network__of_totals(step->params, step->train_gflop_per_sample);
    }
    cell->compute.network.recompute = step->recompute != 0;
    cell->compute.network.compiled = step->compile != 0;
    tm_model_deinit(&model);
    return 0;
}

static bool same_group(const struct tm_profile_step *a, const struct tm_profile_step *b)
{
    return strcmp(a->network, b->network) == 0 && a->precision == b->precision && a->recompute == b->recompute &&
           a->compile == b->compile && strcmp(a->gpu, b->gpu) == 0;
}

static int fill_cells(const struct tm_profile *profile, const struct tm_gpu_figures *gpus, tm_model_lookup_f lookup,
                      void *lookup_context, struct evaluation *evaluation, struct tm_error *e)
{
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *step = &profile->steps[i];
        const struct tm_gpu_figures *gpu = &gpus[i];
        struct cell *cell = &evaluation->cells[i];
        *cell = (struct cell){.step = step, .group = i};
        if (!(gpu->flops[step->precision] > 0))
            return tm_error_set(e, TM_EINPUT, "network %s: %s has no %s mode", step->network, gpu->name,
                                tm_precision_names[step->precision]);
        cell->compute = (struct tm_compute_cell){
            .gpu = *gpu, .precision = step->precision, .batch = step->micro_batch, .step_ms = tm_profile_step_ms(step)};
        int rc = fill_network(cell, lookup, lookup_context, e);
        if (rc != 0) return rc;
        for (size_t k = 0; k < i; k++) {
            if (!same_group(profile->steps + k, step)) continue;
            cell->group = evaluation->cells[k].group;
            break;
        }
    }
    evaluation->count = profile->step_count;
    return 0;
}

/* Marks smallest and largest batch of each group, and what is GPU-bound. */
static void mark_cells(struct evaluation *evaluation)
{
    for (size_t g = 0; g < evaluation->count; g++) {
        if (evaluation->cells[g].group != g) continue;
        struct cell *smallest = &evaluation->cells[g];
        struct cell *largest = smallest;
        for (size_t i = g; i < evaluation->count; i++) {
            struct cell *cell = &evaluation->cells[i];
            if (cell->group != g) continue;
            if (cell->compute.batch < smallest->compute.batch) smallest = cell;
            if (cell->compute.batch > largest->compute.batch) largest = cell;
        }
        smallest->known = true;
        largest->known = true;
        for (size_t i = g; i < evaluation->count; i++) {
            struct cell *cell = &evaluation->cells[i];
            if (cell->group == g) cell->gpu_bound = cell->compute.step_ms >= 1.3 * smallest->compute.step_ms;
        }
    }
}

/* ---- predicting ---- */

static int predict_two_batches(struct evaluation *evaluation, struct tm_error *e)
{
    struct tm_compute_model model;
    size_t known = 0;
    for (size_t i = 0; i < evaluation->count; i++) {
        if (evaluation->cells[i].known) evaluation->training[known++] = evaluation->cells[i].compute;
    }
    int rc = tm_compute_learn(evaluation->training, known, &model, e);
    for (size_t i = 0; rc == 0 && i < evaluation->count; i++) {
        struct cell *cell = &evaluation->cells[i];
        if (cell->known) continue;
        int batches[2];
        double step_ms[2];
        size_t own = 0;
        for (size_t k = 0; k < evaluation->count && own < 2; k++) {
            const struct cell *other = &evaluation->cells[k];
            if (other->group != cell->group || !other->known) continue;
            batches[own] = other->compute.batch;
            step_ms[own++] = other->compute.step_ms;
        }
        struct tm_compute__curve curve;
        rc = tm_compute__curve(&model, &cell->compute.network, &cell->compute.gpu, cell->compute.precision, &curve, e);
        if (rc == 0) rc = tm_compute__tune(&curve, TM_COMPUTE_KNOWN_HOST, batches, step_ms, own, e);
        if (rc != 0) break;
        cell->estimate = tm_compute__step_ms(&curve, cell->compute.batch);
        cell->predicted = true;
    }
    return rc;
}

static int predict_network(struct evaluation *evaluation, const char *network, struct tm_error *e)
{
    struct tm_compute_model model;
    size_t known = 0;
    for (size_t i = 0; i < evaluation->count; i++) {
        if (strcmp(evaluation->cells[i].step->network, network) != 0)
            evaluation->training[known++] = evaluation->cells[i].compute;
    }
    int rc = tm_compute_learn(evaluation->training, known, &model, e);
    for (size_t i = 0; rc == 0 && i < evaluation->count; i++) {
        struct cell *cell = &evaluation->cells[i];
        if (strcmp(cell->step->network, network) != 0) continue;
        struct tm_compute__curve curve;
        rc = tm_compute__curve(&model, &cell->compute.network, &cell->compute.gpu, cell->compute.precision, &curve, e);
        if (rc != 0) break;
        cell->estimate = tm_compute__step_ms(&curve, cell->compute.batch);
        cell->predicted = true;
    }
    return rc;
}

static int predict_untrained(struct evaluation *evaluation, const struct tm_compute_model *known, struct tm_error *e)
{
    for (size_t i = 0; i < evaluation->count; i++) {
        struct cell *cell = &evaluation->cells[i];
        struct tm_compute__curve curve;
        int rc =
            tm_compute__curve(known, &cell->compute.network, &cell->compute.gpu, cell->compute.precision, &curve, e);
        if (rc != 0) return rc;
        cell->estimate = tm_compute__step_ms(&curve, cell->compute.batch);
        cell->predicted = true;
    }
    return 0;
}

static int predict_each_network(struct evaluation *evaluation, struct tm_error *e)
{
    for (size_t i = 0; i < evaluation->count; i++) {
        if (evaluation->cells[i].predicted) continue; /* its network was done */
        int rc = predict_network(evaluation, evaluation->cells[i].step->network, e);
        if (rc != 0) return rc;
    }
    return 0;
}

/* ---- counting ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Errors of the outcomes of one network (NULL: all). `scratch` is `count` long. */
static struct tm_errors count_errors(const struct tm_evaluation_cell *outcomes, size_t count, const char *network,
                                     bool gpu_bound_only, double *scratch)
{
    struct tm_errors errors = {0};
    for (size_t i = 0; i < count; i++) {
        const struct tm_evaluation_cell *outcome = &outcomes[i];
        if (gpu_bound_only && !outcome->gpu_bound) continue;
        if (network != NULL && strcmp(outcome->network, network) != 0) continue;
        double off = outcome->estimate_ms.mean / outcome->truth_ms - 1;
        scratch[errors.cells++] = fabs(off);
        errors.mape_percent += 100 * fabs(off);
        errors.bias_percent += 100 * off;
        bool inside = outcome->truth_ms >= outcome->estimate_ms.p10 && outcome->truth_ms <= outcome->estimate_ms.p90;
        errors.inside80_percent += inside ? 100 : 0;
        if (isnan(outcome->truth_gib) || isnan(outcome->predicted_gib)) continue;
        errors.memory_cells++;
        errors.memory_mape_percent += 100 * fabs(outcome->predicted_gib / outcome->truth_gib - 1);
    }
    if (errors.memory_cells > 0) errors.memory_mape_percent /= (double)errors.memory_cells;
    if (errors.cells == 0) return errors;
    double cells = (double)errors.cells;
    qsort(scratch, errors.cells, sizeof *scratch, compare_doubles);
    errors.mape_percent /= cells;
    errors.bias_percent /= cells;
    errors.inside80_percent /= cells;
    errors.median_percent = 100 * scratch[errors.cells / 2];
    errors.p90_percent = 100 * scratch[(size_t)(0.9 * (cells - 1) + 0.5)];
    return errors;
}

static void summarise(const struct tm_evaluation_cell *outcomes, size_t count, double *scratch,
                      struct tm_evaluation *out)
{
    out->network_count = 0;
    out->overall = count_errors(outcomes, count, NULL, false, scratch);
    out->gpu_bound = count_errors(outcomes, count, NULL, true, scratch);
    for (size_t i = 0; i < count; i++) {
        const char *network = outcomes[i].network;
        bool seen = network == NULL;
        for (size_t k = 0; k < out->network_count && !seen; k++)
            seen = strcmp(out->networks[k].network, network) == 0;
        if (seen || out->network_count == TM_EVALUATION_NETWORKS_MAX) continue;
        out->networks[out->network_count++] =
            (struct tm_evaluation_row){network, count_errors(outcomes, count, network, false, scratch)};
    }
}

static size_t collect_outcomes(const struct evaluation *evaluation, struct tm_evaluation_cell *outcomes)
{
    size_t count = 0;
    for (size_t i = 0; i < evaluation->count; i++) {
        const struct cell *cell = &evaluation->cells[i];
        if (!cell->predicted) continue;
        outcomes[count++] = (struct tm_evaluation_cell){.step = cell->step,
                                                        .network = cell->step->network,
                                                        .truth_ms = cell->compute.step_ms,
                                                        .estimate_ms = cell->estimate,
                                                        .truth_gib = cell->step->peak_gib,
                                                        .predicted_gib = cell->gib,
                                                        .gpu_bound = cell->gpu_bound};
    }
    return count;
}

void tm_evaluation_deinit(struct tm_evaluation *evaluation)
{
    tm_free(evaluation->cells);
    *evaluation = (struct tm_evaluation){0};
}

static int predict_cells(struct evaluation *evaluation, enum tm_split split, const struct tm_compute_model *known,
                         struct tm_error *e)
{
    mark_cells(evaluation);
    if (split == TM_SPLIT_UNTRAINED) return predict_untrained(evaluation, known, e);
    return split == TM_SPLIT_TWO_BATCHES ? predict_two_batches(evaluation, e) : predict_each_network(evaluation, e);
}

int tm_evaluate_steps(const struct tm_profile *profile, enum tm_split split, const struct tm_gpu_figures *gpus,
                      const struct tm_compute_model *known, tm_model_lookup_f lookup, void *lookup_context,
                      struct tm_evaluation *out, struct tm_error *e)
{
    if (profile->step_count == 0) return tm_error_set(e, TM_EINPUT, "the profile has no steps on one GPU");
    if (split == TM_SPLIT_LEAVE_ONE_BANDWIDTH)
        return tm_error_set(e, TM_EUSAGE, "steps on one GPU are split by two-batches, leave-one-network or untrained");
    struct evaluation evaluation = {.cells = tm_calloc(profile->step_count, sizeof *evaluation.cells),
                                    .training = tm_calloc(profile->step_count, sizeof *evaluation.training)};
    double *scratch = tm_calloc(profile->step_count, sizeof *scratch);
    struct tm_evaluation_cell *outcomes = tm_calloc(profile->step_count, sizeof *outcomes);
    int rc = 0;
    *out = (struct tm_evaluation){0};
    if (evaluation.cells == NULL || evaluation.training == NULL || scratch == NULL || outcomes == NULL)
        rc = tm_error_nomem(e);
    if (rc == 0) rc = fill_cells(profile, gpus, lookup, lookup_context, &evaluation, e);
    if (rc == 0) rc = predict_cells(&evaluation, split, known, e);
    if (rc == 0) {
        out->cell_count = collect_outcomes(&evaluation, outcomes);
        out->cells = outcomes;
        summarise(outcomes, out->cell_count, scratch, out);
        outcomes = NULL;
    }
    tm_free(outcomes);
    tm_free(evaluation.cells);
    tm_free(evaluation.training);
    tm_free(scratch);
    return rc;
}

/* ---- data-parallel runs ---- */

static bool held_out(const struct tm_profile_run *run, const struct tm_profile_run *like, enum tm_split split)
{
    if (split == TM_SPLIT_UNTRAINED) return true;
    return split == TM_SPLIT_LEAVE_ONE_NETWORK ? strcmp(run->network, like->network) == 0 : run->mbit == like->mbit;
}

/* Predicts the runs that are held out together with `like`, from all the others. */
static int predict_runs(const struct tm_profile *profile, enum tm_split split, const struct tm_profile_run *like,
                        const struct tm_profile_run **training, struct tm_evaluation_cell *outcomes, struct tm_error *e)
{
    struct tm_comm_model model;
    size_t known = 0;
    for (size_t i = 0; i < profile->run_count; i++) {
        if (!held_out(&profile->runs[i], like, split)) training[known++] = &profile->runs[i];
    }
    int rc = tm_comm_learn(training, known, &model, e);
    for (size_t i = 0; rc == 0 && i < profile->run_count; i++) {
        const struct tm_profile_run *run = &profile->runs[i];
        if (!held_out(run, like, split)) continue;
        struct tm_comm_iteration iteration = tm_comm_iteration__of(run);
        outcomes[i] = (struct tm_evaluation_cell){.network = run->network,
                                                  .truth_ms = run->iter_ms,
                                                  .estimate_ms = tm_comm_iteration__ms(&model, &iteration),
                                                  .truth_gib = NAN,
                                                  .predicted_gib = NAN};
    }
    return rc;
}

/* What a sum by hand would say: naive predictions instead of ours. */
static void predict_naively(const struct tm_profile *profile, struct tm_evaluation_cell *outcomes)
{
    for (size_t i = 0; i < profile->run_count; i++) {
        struct tm_comm_iteration iteration = tm_comm_iteration__of(&profile->runs[i]);
        double mean = tm_comm__naive_ms(&iteration);
        outcomes[i].estimate_ms = (struct tm_estimate){mean, mean, mean};
    }
}

int tm_evaluate_runs(const struct tm_profile *profile, enum tm_split split, struct tm_evaluation *out,
                     struct tm_error *e)
{
    if (profile->run_count == 0) return tm_error_set(e, TM_EINPUT, "the profile has no data-parallel runs");
    if (split == TM_SPLIT_TWO_BATCHES)
        return tm_error_set(e, TM_EUSAGE,
                            "data-parallel runs are split by leave-one-bandwidth, leave-one-network or untrained");
    struct tm_evaluation_cell *outcomes = tm_calloc(profile->run_count, sizeof *outcomes);
    const struct tm_profile_run **training = tm_calloc(profile->run_count, sizeof *training);
    double *scratch = tm_calloc(profile->run_count, sizeof *scratch);
    int rc = outcomes == NULL || training == NULL || scratch == NULL ? tm_error_nomem(e) : 0;
    *out = (struct tm_evaluation){0};
    for (size_t i = 0; rc == 0 && i < profile->run_count; i++) {
        if (outcomes[i].network == NULL) rc = predict_runs(profile, split, &profile->runs[i], training, outcomes, e);
    }
    struct tm_evaluation_cell *kept = rc == 0 ? tm_calloc(profile->run_count, sizeof *kept) : NULL;
    if (rc == 0 && kept == NULL) rc = tm_error_nomem(e);
    if (rc == 0) {
        memcpy(kept, outcomes, profile->run_count * sizeof *kept);
        out->cells = kept;
        out->cell_count = profile->run_count;
        summarise(outcomes, profile->run_count, scratch, out);
        predict_naively(profile, outcomes);
        out->naive = count_errors(outcomes, profile->run_count, NULL, false, scratch);
    }
    tm_free(outcomes);
    tm_free((void *)training);
    tm_free(scratch);
    return rc;
}
