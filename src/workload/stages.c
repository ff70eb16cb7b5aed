#include "base/alloc.h"
#include "workload/predict_internal.h"

#include <math.h>
#include <string.h>

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

static bool any_block(const struct tm_layer *layers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (layers[i].kind == TM_LAYER_block) return true;
    }
    return false;
}

static void fill_stage(const struct tm_model *model, struct tm_stage *stage)
{
    const struct tm_layer *layers = model->layers + stage->first;
    size_t count = stage->last - stage->first;
    stage->network = tm_network_of(layers, count);
    stage->network.compiled = model->compiled;
    stage->network.channels_last = model->channels_last;
    stage->footprint = tm_footprint_of(model, stage->first, stage->last);
    stage->output_values = model->layers[stage->last - 1].output_values;
    if (!any_block(layers, count) && any_block(model->layers, model->layer_count)) { /* ends of a transformer */
        stage->network.again = (struct tm_work){0};
        stage->network.again_ops = 0;
    }
    /* A tied weight lives on both ends of a pipeline. */
    for (size_t i = stage->first; i < stage->last; i++) {
        const struct tm_layer *layer = &model->layers[i];
        bool elsewhere = layer->tied >= 0 && ((size_t)layer->tied < stage->first || (size_t)layer->tied >= stage->last);
        if (!elsewhere || layer->params > 0) continue;
        const struct tm_layer *other = &model->layers[layer->tied];
        stage->network.params += other->params;
        stage->network.trained_params += other->params - other->frozen_params;
        stage->footprint.params += other->params;
        stage->footprint.frozen_params += other->frozen_params;
    }
}

/* Where a stage that starts at `first` ends: near its share of what is left, if the rest then still fits into
 * `left` stages of at most `most` each. */
static size_t end_of_stage(const double *costs, size_t layer_count, size_t first, size_t left, double most)
{
    double rest = 0;
    for (size_t i = first; i < layer_count; i++)
        rest += costs[i];
    double share = rest / (double)(left + 1);
    double sum = costs[first];
    size_t last = first + 1;
    while (last < layer_count - left && sum + costs[last] <= most) {
        bool enough = sum + costs[last] / 2 > share;
        if (enough && stages_needed(costs + last, layer_count - last, most) <= left) break;
        sum += costs[last++];
    }
    return last;
}

/* Where stage `s` ends if all have as many layers; an embedding is none of its own. */
static size_t even_end(const struct tm_model *model, size_t s, size_t count)
{
    size_t free = model->layers[0].kind == TM_LAYER_embedding && model->layer_count > count ? 1 : 0;
    return free + (s + 1) * (model->layer_count - free) / count;
}

/* Cuts the model into stages, each with at least one layer. */
static void cut_layers(const struct tm_model *model, const double *costs, struct tm_stage_cut *cut)
{
    double most = smallest_most(costs, model->layer_count, cut->count);
    double received = 0;
    size_t first = 0;
    for (size_t s = 0; s < cut->count; s++) {
        size_t left = cut->count - s - 1;
        size_t last = left > 0 ? end_of_stage(costs, model->layer_count, first, left, most) : model->layer_count;
        if (model->even_cut) last = even_end(model, s, cut->count);
        cut->stages[s] = (struct tm_stage){.first = first, .last = last};
        fill_stage(model, &cut->stages[s]);
        double sent = left > 0 ? cut->stages[s].output_values : 0;
        cut->link_values = fmax(cut->link_values, received + sent);
        received = sent;
        first = last;
    }
}

/* How long each stage takes on one kind of instance. */
static int find_curves_of(const struct tm_predictor *predictor, struct tm_stage_cut *cut, size_t group, bool recompute,
                          struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    struct tm_compute__curve *curves = tm_alloc(cut->count * sizeof *curves);
    int rc = 0;
    cut->curves[recompute][group] = curves;
    if (curves == NULL) return tm_error_nomem(e);
    for (size_t s = 0; rc == 0 && s < cut->count; s++) {
        struct tm_network network = cut->stages[s].network;
        network.recompute = recompute;
        rc = tm_compute__curve(request->compute, &network, &request->groups[group].gpu, request->precision, &curves[s],
                               e);
    }
    return rc;
}

/* ... on each kind, whatever the micro-batch. */
static int find_curves(const struct tm_predictor *predictor, struct tm_stage_cut *cut, struct tm_error *e)
{
    int rc = 0;
    for (size_t g = 0; rc == 0 && g < predictor->request.group_count; g++) {
        rc = find_curves_of(predictor, cut, g, false, e);
        if (rc == 0) rc = find_curves_of(predictor, cut, g, true, e);
    }
    return rc;
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
        double trained = model->layers[layer].params - model->layers[layer].frozen_params;
        params += trained;
        out[i] = (struct tm_comm_bucket){trained * value_bytes, done / total};
    }
    out[count] = (struct tm_comm_bucket){(stage->network.trained_params - params) * value_bytes, 1}; /* a tied copy */
}

static double sum_of(const struct tm_comm_bucket *gradients, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += gradients[i].bytes;
    return sum;
}

/* Under autocast the weights, and so their gradients, have 32 bits whatever products compute in. */
double tm_predictor__gradient_bytes(const struct tm_predictor *predictor)
{
    const struct tm_predict_request *request = &predictor->request;
    return request->model->narrow_gradients ? tm_precision_value_bytes(request->precision) : 4;
}

/* The buckets of the stage that has most. */
static int find_buckets(const struct tm_predictor *predictor, struct tm_stage_cut *cut, struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    const struct tm_stage *stage = &cut->stages[0];
    for (size_t s = 1; s < cut->count; s++) {
        if (cut->stages[s].network.trained_params > stage->network.trained_params) stage = &cut->stages[s];
    }
    double gradient_bytes = tm_predictor__gradient_bytes(predictor);
    cut->grad_bytes = stage->network.trained_params * gradient_bytes;
    bool measured = cut->count == 1 && request->gradient_count > 0;
    if (measured) cut->grad_bytes = sum_of(request->gradients, request->gradient_count);
    size_t max = (size_t)fmin(TM_BUCKETS_MAX, cut->grad_bytes / (25 << 20) + 3);
    cut->buckets = tm_alloc(max * sizeof *cut->buckets);
    if (cut->buckets == NULL) return tm_error_nomem(e);
    if (measured) {
        cut->bucket_count = tm_comm__tensor_buckets(request->gradients, request->gradient_count, cut->buckets, max);
        return 0;
    }
    size_t count = stage->last - stage->first + 1;
    struct tm_comm_bucket *gradients = tm_alloc(count * sizeof *gradients);
    if (gradients == NULL) return tm_error_nomem(e);
    gradients_of_layers(predictor, stage, gradient_bytes, gradients);
    cut->bucket_count = tm_comm__buckets(gradients, count, cut->buckets, max);
    tm_free(gradients);
    return 0;
}

void tm_predictor__forget(struct tm_stage_cut *cut)
{
    if (cut == NULL) return;
    for (size_t g = 0; g < TM_FLEET_GROUPS_MAX; g++) {
        tm_free(cut->curves[0][g]);
        tm_free(cut->curves[1][g]);
    }
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

double tm_predictor__tuning(const struct tm_predictor *predictor, int micro_batch)
{
    if (!predictor->tuned) return 1;
    return tm_compute__mean_ms(&predictor->own, micro_batch) / tm_compute__mean_ms(&predictor->common, micro_batch);
}

double tm_group__bit_s(const struct tm_fleet_group *group)
{
    return group->burst_bit_s > group->network_bit_s ? group->burst_bit_s : group->network_bit_s;
}

double tm_group__local_bit_s(const struct tm_fleet_group *group)
{
    if (group->local_bit_s > 0) return group->local_bit_s;
    /* NVLink gives 150, 300 and 450 GB/s one way on V100, A100 and H100: about a seventh of their memory's bandwidth.
     */
    return group->gpu.memory_bytes_s >= 890e9 ? group->gpu.memory_bytes_s * 8 / 7 : 1e11;
}

/* It receives and sends activations, then gradients, one after
 * the other, as trainers of pipelines do. */
double tm_predictor__link_ms(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, size_t stage,
                             size_t group, int micro_batch, bool inside)
{
    const struct tm_predict_request *request = &predictor->request;
    double values = (stage > 0 ? cut->stages[stage - 1].output_values : 0) +
                    (stage + 1 < cut->count ? cut->stages[stage].output_values : 0);
    double bytes = 2 * values * micro_batch * tm_precision_value_bytes(request->precision);
    const struct tm_fleet_group *instances = &predictor->groups[group];
    return inside ? bytes * 8e3 / tm_group__local_bit_s(instances)
                  : tm_comm__send_ms(request->comm, bytes, tm_group__bit_s(instances));
}

static struct tm_pace find_pace(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, size_t group,
                                int micro_batch, bool recompute, bool inside)
{
    double tuning = tm_predictor__tuning(predictor, micro_batch);
    double memory_bytes_s = predictor->groups[group].gpu.memory_bytes_s;
    struct tm_pace pace = {0};
    for (size_t s = 0; s < cut->count; s++) {
        const struct tm_compute__curve *curve = &cut->curves[recompute][group][s];
        double mean = tm_compute__mean_ms(curve, micro_batch);
        /* Weights are updated once a step, not once a micro-batch: some 28 bytes a parameter go to and from memory. */
        double optimizer_ms = cut->stages[s].network.trained_params * 28 / memory_bytes_s * 1e3;
        double ms = fmax(mean * tuning - optimizer_ms, mean * 0.2);
        pace.optimizer_ms = fmax(pace.optimizer_ms, optimizer_ms);
        double turn_ms = ms + tm_predictor__link_ms(predictor, cut, s, group, micro_batch, inside);
        pace.all_ms += turn_ms;
        if (turn_ms > pace.turn_ms) {
            pace.turn_ms = turn_ms;
            pace.compute_ms = ms;
            pace.launches_ms = curve->floor_ms * tuning;
            pace.slowest = curve;
        }
    }
    return pace;
}

struct tm_pace tm_predictor__pace(struct tm_predictor *predictor, struct tm_stage_cut *cut, size_t group,
                                  int micro_batch, bool recompute, bool inside)
{
    int power = __builtin_ctz((unsigned)micro_batch);
    if (micro_batch != 1 << power) return find_pace(predictor, cut, group, micro_batch, recompute, inside);
    struct tm_pace *pace = &cut->paces[recompute][inside][group][power];
    if (pace->slowest == NULL) *pace = find_pace(predictor, cut, group, micro_batch, recompute, inside);
    return *pace;
}

double tm_predictor__gib(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, size_t stage,
                         int micro_batch, int micro_batches, bool recompute)
{
    size_t behind = cut->count - stage;
    struct tm_memory_use use = {.precision = predictor->request.precision,
                                .optimizer_states = predictor->request.model->optimizer_states,
                                .micro_batch = micro_batch,
                                .in_flight = behind < (size_t)micro_batches ? (int)behind : micro_batches,
                                .micro_batches = micro_batches,
                                .recompute = recompute,
                                .narrow_gradients = predictor->request.model->narrow_gradients};
    return tm_memory_gib(&cut->stages[stage].footprint, &use);
}
