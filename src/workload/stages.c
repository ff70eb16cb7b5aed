#include "base/alloc.h"
#include "workload/predict_internal.h"

#include <math.h>
#include <string.h>

/* A saved value takes 2 bytes in 16-bit formats; in 32-bit ones 4, but some of them are shared or dropped early. */
static const double SAVED_BYTES_16 = 2.1;
static const double SAVED_BYTES_32 = 3.2;
static const double RESERVED_GIB = 1.0; /* framework, workspaces, fragments */

/* ---- the cut ---- */

/* Fewest stages needed if none may cost more than `most`. */
static size_t stages_needed(const double *costs, size_t layer_count, double most)
{
    size_t stages = 1;
    double sum = 0;
    for (size_t i = 0; i < layer_count; i++) {
        if (sum + costs[i] > most && sum > 0) {
            stages++;
            sum = 0;
        }
        sum += costs[i];
    }
    return stages;
}

/* The smallest possible cost of the dearest of `count` stages, by bisection. */
static double smallest_most(const double *costs, size_t layer_count, size_t count)
{
    double low = 0;
    double high = 0;
    for (size_t i = 0; i < layer_count; i++) {
        low = fmax(low, costs[i]);
        high += costs[i];
    }
    for (int i = 0; i < 50 && high - low > 1e-9 * high; i++) {
        double middle = (low + high) / 2;
        if (stages_needed(costs, layer_count, middle) <= count)
            high = middle;
        else
            low = middle;
    }
    return high * (1 + 1e-9);
}

static void fill_stage(const struct tm_model *model, struct tm_stage *stage)
{
    stage->network = tm_network_of(model->layers + stage->first, stage->last - stage->first);
    for (size_t i = stage->first; i < stage->last; i++) {
        stage->saved_values += model->layers[i].saved_values;
        if (i > 0) stage->input_values += model->layers[i - 1].output_values;
        stage->largest_saved = fmax(stage->largest_saved, model->layers[i].saved_values);
    }
    stage->output_values = model->layers[stage->last - 1].output_values;
    /* A tied weight lives on both ends of a pipeline. */
    for (size_t i = stage->first; i < stage->last; i++) {
        const struct tm_layer *layer = &model->layers[i];
        bool elsewhere = layer->tied >= 0 && ((size_t)layer->tied < stage->first || (size_t)layer->tied >= stage->last);
        if (elsewhere && layer->params == 0) stage->network.params += model->layers[layer->tied].params;
    }
}

/* Cuts the model into stages, each with at least one layer. */
static void cut_layers(const struct tm_model *model, const double *costs, struct tm_stage_cut *cut)
{
    double most = smallest_most(costs, model->layer_count, cut->count);
    size_t first = 0;
    for (size_t s = 0; s < cut->count; s++) {
        size_t last = first;
        double sum = 0;
        size_t must_leave = cut->count - s - 1; /* a layer for each stage to come */
        while (last < model->layer_count - must_leave && (last == first || sum + costs[last] <= most))
            sum += costs[last++];
        if (s + 1 == cut->count) last = model->layer_count;
        cut->stages[s] = (struct tm_stage){.first = first, .last = last};
        fill_stage(model, &cut->stages[s]);
        if (s + 1 < cut->count) cut->link_values = fmax(cut->link_values, cut->stages[s].output_values);
        first = last;
    }
}

/* How long each stage takes on each kind of instance, whatever the micro-batch. */
static int find_curves(const struct tm_predictor *predictor, struct tm_stage_cut *cut, struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    for (size_t g = 0; g < request->group_count; g++) {
        cut->curves[g] = tm_alloc(cut->count * sizeof *cut->curves[g]);
        if (cut->curves[g] == NULL) return tm_error_nomem(e);
        for (size_t s = 0; s < cut->count; s++) {
            int rc = tm_compute_curve(request->compute, &cut->stages[s].network, &request->groups[g].gpu,
                                      request->precision, &cut->curves[g][s], e);
            if (rc != 0) return rc;
        }
    }
    return 0;
}

/* The gradients of a stage, in the order in which its layers' backward passes end. */
static void gradients_of_layers(const struct tm_predictor *predictor, const struct tm_stage *stage, double value_bytes,
                                struct tm_comm_bucket *out)
{
    const struct tm_model *model = predictor->request.model;
    size_t count = stage->last - stage->first;
    double total = 0, done = 0, params = 0;
    for (size_t i = stage->first; i < stage->last; i++)
        total += predictor->costs[i];
    for (size_t i = 0; i < count; i++) {
        size_t layer = stage->last - 1 - i;
        done += predictor->costs[layer];
        params += model->layers[layer].params;
        out[i] = (struct tm_comm_bucket){model->layers[layer].params * value_bytes, done / total};
    }
    out[count] = (struct tm_comm_bucket){(stage->network.params - params) * value_bytes, 1}; /* a tied copy */
}

static double sum_of(const struct tm_comm_bucket *gradients, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += gradients[i].bytes;
    return sum;
}

/* The buckets of the stage that has most. */
static int find_buckets(const struct tm_predictor *predictor, struct tm_stage_cut *cut, struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    const struct tm_stage *stage = &cut->stages[0];
    for (size_t s = 1; s < cut->count; s++) {
        if (cut->stages[s].network.params > stage->network.params) stage = &cut->stages[s];
    }
    double value_bytes = tm_precision_value_bytes(request->precision);
    cut->grad_bytes = stage->network.params * value_bytes;
    bool measured = cut->count == 1 && request->gradient_count > 0;
    if (measured) cut->grad_bytes = sum_of(request->gradients, request->gradient_count);
    size_t max = (size_t)fmin(TM_BUCKETS_MAX, cut->grad_bytes / (25 << 20) + 3);
    cut->buckets = tm_alloc(max * sizeof *cut->buckets);
    if (cut->buckets == NULL) return tm_error_nomem(e);
    if (measured) {
        cut->bucket_count = tm_comm_tensor_buckets(request->gradients, request->gradient_count, cut->buckets, max);
        return 0;
    }
    size_t count = stage->last - stage->first + 1;
    struct tm_comm_bucket *gradients = tm_alloc(count * sizeof *gradients);
    if (gradients == NULL) return tm_error_nomem(e);
    gradients_of_layers(predictor, stage, value_bytes, gradients);
    cut->bucket_count = tm_comm_buckets(gradients, count, cut->buckets, max);
    tm_free(gradients);
    return 0;
}

void tm_predictor__forget(struct tm_stage_cut *cut)
{
    if (cut == NULL) return;
    for (size_t g = 0; g < TM_FLEET_GROUPS_MAX; g++)
        tm_free(cut->curves[g]);
    tm_free(cut->stages);
    tm_free(cut->buckets);
    tm_free(cut);
}

int tm_predictor__cut(struct tm_predictor *predictor, int count, struct tm_stage_cut **out, struct tm_error *e)
{
    *out = predictor->cuts[count];
    if (*out != NULL) return 0;
    struct tm_stage_cut *cut = tm_calloc(1, sizeof *cut);
    if (cut == NULL) return tm_error_nomem(e);
    cut->count = (size_t)count;
    cut->stages = tm_calloc(cut->count, sizeof *cut->stages);
    int rc = cut->stages != NULL ? 0 : tm_error_nomem(e);
    if (rc == 0) {
        cut_layers(predictor->request.model, predictor->costs, cut);
        rc = find_curves(predictor, cut, e);
    }
    if (rc == 0) rc = find_buckets(predictor, cut, e);
    if (rc != 0) {
        tm_predictor__forget(cut);
        return rc;
    }
    predictor->cuts[count] = cut;
    *out = cut;
    return 0;
}

/* ---- time and memory of a stage ---- */

/* How much slower or faster than the common model the user's own measurements say this model is. */
static double tuning_of(const struct tm_predictor *predictor, int micro_batch)
{
    if (!predictor->tuned) return 1;
    return tm_compute_mean_ms(&predictor->own, micro_batch) / tm_compute_mean_ms(&predictor->common, micro_batch);
}

static struct tm_pace find_pace(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, size_t group,
                                int micro_batch)
{
    double tuning = tuning_of(predictor, micro_batch);
    double memory_bytes_s = predictor->groups[group].gpu.memory_bytes_s;
    struct tm_pace pace = {0};
    for (size_t s = 0; s < cut->count; s++) {
        const struct tm_compute_curve *curve = &cut->curves[group][s];
        double mean = tm_compute_mean_ms(curve, micro_batch);
        /* Weights are updated once a step, not once a micro-batch: some 28 bytes a parameter go to and from memory. */
        double optimizer_ms = cut->stages[s].network.params * 28 / memory_bytes_s * 1e3;
        double ms = fmax(mean * tuning - optimizer_ms, mean * 0.2);
        pace.optimizer_ms = fmax(pace.optimizer_ms, optimizer_ms);
        if (ms > pace.stage_ms) {
            pace.stage_ms = ms;
            pace.launches_ms = curve->floor_ms * tuning;
            pace.slowest = curve;
        }
    }
    return pace;
}

struct tm_pace tm_predictor__pace(struct tm_predictor *predictor, struct tm_stage_cut *cut, size_t group,
                                  int micro_batch)
{
    int power = __builtin_ctz((unsigned)micro_batch);
    if (micro_batch != 1 << power) return find_pace(predictor, cut, group, micro_batch);
    struct tm_pace *pace = &cut->paces[group][power];
    if (pace->slowest == NULL) *pace = find_pace(predictor, cut, group, micro_batch);
    return *pace;
}

double tm_predictor__gib(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, size_t stage,
                         int micro_batch, int micro_batches, bool recompute)
{
    const struct tm_stage *s = &cut->stages[stage];
    /* weight, gradient, states */
    double state = s->network.params * 4 * (2 + predictor->request.model->optimizer_states);
    size_t behind = cut->count - stage;
    double in_flight = behind < (size_t)micro_batches ? (double)behind : micro_batches;
    double bytes = tm_precision_value_bytes(predictor->request.precision) < 4 ? SAVED_BYTES_16 : SAVED_BYTES_32;
    double values = recompute ? s->input_values * in_flight + s->largest_saved : s->saved_values * in_flight;
    return (state + values * bytes * micro_batch) / (1 << 30) + RESERVED_GIB;
}
