#include "workload/predict.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

/* A saved value takes 2 bytes in 16-bit formats; in 32-bit ones 4, but some of them are shared or dropped early. */
static const double SAVED_BYTES_16 = 2.1;
static const double SAVED_BYTES_32 = 3.2;
static const double RESERVED_GIB = 1.0; /* framework, workspaces, fragments */
static const double RECOMPUTE_WORK = 4.0 / 3;

/* ---- stages ---- */

struct stage {
    size_t first; /* layers first .. last - 1 */
    size_t last;
    struct tm_network network;
    double saved_values;
    double output_values;
    double input_values;  /* of all its layers: what recomputation starts from */
    double largest_saved; /* of one layer */
};

struct cut {
    struct stage stages[TM_STAGES_MAX];
    size_t count;
    struct tm_compute_curve curves[TM_FLEET_GROUPS_MAX][TM_STAGES_MAX]; /* of each stage on each kind of instance */
};

/* Per-sample cost of a layer, in any unit: what the cut balances. */
static double layer_cost(const struct tm_compute_model *compute, const struct tm_layer *layer,
                         const struct tm_gpu_figures *gpu, enum tm_precision precision)
{
    struct tm_network network = tm_network_of(layer, 1);
    struct tm_compute_curve curve;
    if (tm_compute_curve(compute, &network, gpu, precision, &curve, NULL) != 0) return 0;
    return curve.sample_ms + 1e-9;
}

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

static void fill_stage(const struct tm_model *model, struct stage *stage)
{
    stage->network = tm_network_of(model->layers + stage->first, stage->last - stage->first);
    stage->saved_values = 0;
    stage->input_values = 0;
    stage->largest_saved = 0;
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

/* How long each stage takes on each kind of instance, whatever the micro-batch. */
static int find_curves(const struct tm_predict_request *request, struct cut *cut, struct tm_error *e)
{
    for (size_t g = 0; g < request->group_count; g++) {
        for (size_t s = 0; s < cut->count; s++) {
            int rc = tm_compute_curve(request->compute, &cut->stages[s].network, &request->groups[g].gpu,
                                      request->precision, &cut->curves[g][s], e);
            if (rc != 0) return rc;
        }
    }
    return 0;
}

/* Cuts the model into `count` stages, each with at least one layer. */
static void cut_model(const struct tm_model *model, const double *costs, size_t count, struct cut *cut)
{
    double most = smallest_most(costs, model->layer_count, count);
    size_t first = 0;
    cut->count = count;
    for (size_t s = 0; s < count; s++) {
        size_t last = first;
        double sum = 0;
        size_t must_leave = count - s - 1; /* a layer for each stage to come */
        while (last < model->layer_count - must_leave && (last == first || sum + costs[last] <= most))
            sum += costs[last++];
        if (s + 1 == count) last = model->layer_count;
        cut->stages[s] = (struct stage){.first = first, .last = last};
        fill_stage(model, &cut->stages[s]);
        first = last;
    }
}

/* ---- memory ---- */

static double stage_gib(const struct tm_predict_request *request, const struct stage *stage, int micro_batch,
                        size_t index, size_t stage_count, int micro_batches, bool recompute)
{
    double state = stage->network.params * 4 * (2 + request->model->optimizer_states); /* weight, gradient, states */
    double in_flight = fmin((double)(stage_count - index), micro_batches);
    double bytes = tm_precision_value_bytes(request->precision) < 4 ? SAVED_BYTES_16 : SAVED_BYTES_32;
    double values =
        recompute ? stage->input_values * in_flight + stage->largest_saved : stage->saved_values * in_flight;
    return (state + values * bytes * micro_batch) / (1 << 30) + RESERVED_GIB;
}

/* ---- one pipeline on one kind of GPU ---- */

struct pipeline {
    double stage_ms;    /* slowest stage, forward and backward of one micro-batch */
    double launches_ms; /* of it: what the host's floor would be */
    double transfer_ms; /* activations there and gradients back between two stages, one micro-batch */
    double optimizer_ms;
    const struct tm_compute_curve *slowest;
    bool fits;
    bool recompute;
    double largest_gib;
};

static void time_stage(const struct tm_fleet_group *group, const struct stage *stage,
                       const struct tm_compute_curve *curve, int micro_batch, double tuning, struct pipeline *pipeline)
{
    double mean = tm_compute_mean_ms(curve, micro_batch);
    /* Weights are updated once a step, not once a micro-batch: some 28 bytes a parameter go to and from memory. */
    double optimizer_ms = stage->network.params * 28 / group->gpu.memory_bytes_s * 1e3;
    double ms = fmax(mean * tuning - optimizer_ms, mean * 0.2);
    if (pipeline->recompute) ms *= RECOMPUTE_WORK;
    pipeline->optimizer_ms = fmax(pipeline->optimizer_ms, optimizer_ms);
    if (ms > pipeline->stage_ms) {
        pipeline->stage_ms = ms;
        pipeline->launches_ms = curve->floor_ms * tuning;
        pipeline->slowest = curve;
    }
}

static void time_pipeline(const struct tm_predict_request *request, size_t group_index, const struct cut *cut,
                          int micro_batch, int micro_batches, double tuning, struct pipeline *pipeline,
                          double *memory_gib)
{
    const struct tm_fleet_group *group = &request->groups[group_index];
    *pipeline = (struct pipeline){.fits = true};
    for (int pass = 0; pass < 2; pass++) { /* with recomputation only if it does not fit without */
        pipeline->fits = true;
        pipeline->largest_gib = 0;
        for (size_t s = 0; s < cut->count; s++) {
            double gib = stage_gib(request, &cut->stages[s], micro_batch, s, cut->count, micro_batches, pass == 1);
            memory_gib[s] = gib;
            pipeline->largest_gib = fmax(pipeline->largest_gib, gib);
            pipeline->fits = pipeline->fits && gib <= group->gpu.memory_gib;
        }
        pipeline->recompute = pass == 1;
        if (pipeline->fits) break;
    }
    for (size_t s = 0; s < cut->count; s++) {
        time_stage(group, &cut->stages[s], &cut->curves[group_index][s], micro_batch, tuning, pipeline);
        if (s + 1 < cut->count) {
            double bytes = cut->stages[s].output_values * micro_batch * tm_precision_value_bytes(request->precision);
            pipeline->transfer_ms = fmax(pipeline->transfer_ms, 2 * bytes * 8 / group->network_bit_s * 1e3);
        }
    }
}

/* ---- a whole layout ---- */

struct layout_plan {
    int pipelines;
    int stages;
    int micro_batch;
};

/* Pipelines that each group can hold. */
static int count_pipelines(const struct tm_predict_request *request, int stages, int per_group[TM_FLEET_GROUPS_MAX])
{
    int total = 0;
    for (size_t g = 0; g < request->group_count; g++) {
        per_group[g] = request->groups[g].nodes * request->groups[g].gpus_per_node / stages;
        total += per_group[g];
    }
    return total;
}

/* Hands out micro-batches one by one to the pipeline that would finish it first: all finish together, as near as whole
 * micro-batches allow. Returns how many the busiest pipeline of each group has. */
static void share_micro_batches(const struct tm_predict_request *request, const int *pipelines, const double *stage_ms,
                                int total, int most[TM_FLEET_GROUPS_MAX])
{
    double speed = 0;
    for (size_t g = 0; g < request->group_count; g++)
        speed += pipelines[g] / stage_ms[g];
    /* Start from the proportional share, rounded down, then give the rest one by one. */
    int given = 0;
    int counts[TM_FLEET_GROUPS_MAX];
    for (size_t g = 0; g < request->group_count; g++) {
        counts[g] = pipelines[g] > 0 ? (int)(total / speed / stage_ms[g]) : 0; /* each pipeline of the group */
        given += counts[g] * pipelines[g];
        most[g] = counts[g];
    }
    int extra[TM_FLEET_GROUPS_MAX] = {0};
    for (; given < total; given++) {
        size_t best = 0;
        double best_ms = INFINITY;
        for (size_t g = 0; g < request->group_count; g++) {
            if (pipelines[g] == 0) continue;
            double ms = (counts[g] + extra[g] / pipelines[g] + 1) * stage_ms[g];
            if (ms < best_ms) {
                best_ms = ms;
                best = g;
            }
        }
        extra[best]++;
        int busiest = counts[best] + (extra[best] + pipelines[best] - 1) / pipelines[best];
        if (busiest > most[best]) most[best] = busiest;
    }
}

static double slowest_link(const struct tm_predict_request *request)
{
    double slowest = INFINITY;
    for (size_t g = 0; g < request->group_count; g++) /* the GPUs of an instance share its link */
        slowest = fmin(slowest, request->groups[g].network_bit_s / request->groups[g].gpus_per_node);
    return slowest;
}

static bool is_single_node(const struct tm_predict_request *request)
{
    return request->group_count == 1 && request->groups[0].nodes == 1;
}

/* Time that the all-reduce of the largest stage's gradients adds behind the last backward pass. */
static double exposed_ms(const struct tm_predict_request *request, const struct cut *cut, int pipelines,
                         double stage_ms)
{
    if (pipelines < 2) return 0;
    double params = 0;
    for (size_t s = 0; s < cut->count; s++)
        params = fmax(params, cut->stages[s].network.params);
    struct tm_comm_iteration iteration = {.world = pipelines,
                                          .rate_bit_s = is_single_node(request) ? 8e11 : slowest_link(request),
                                          .grad_bytes = params * tm_precision_value_bytes(request->precision),
                                          .forward_ms = stage_ms / 3,
                                          .backward_ms = stage_ms * 2 / 3};
    return fmax(0, tm_comm_iteration_ms(request->comm, &iteration).mean - stage_ms);
}

/* How much slower or faster than the common model the user's own measurements say this model is. */
static int find_tuning(const struct tm_predict_request *request, int micro_batch, double *out, double *out_spread,
                       struct tm_error *e)
{
    *out = 1;
    *out_spread = NAN;
    if (request->measured_count == 0) return 0;
    struct tm_network network = tm_network_of(request->model->layers, request->model->layer_count);
    struct tm_compute_curve curve;
    int rc = tm_compute_curve(request->compute, &network, &request->groups[0].gpu, request->precision, &curve, e);
    if (rc != 0) return rc;
    double before = tm_compute_step_ms(&curve, micro_batch).mean;
    rc = tm_compute_tune(&curve, request->measured_batches, request->measured_ms, request->measured_count, e);
    if (rc != 0) return rc;
    struct tm_estimate after = tm_compute_step_ms(&curve, micro_batch);
    *out = after.mean / before;
    *out_spread = tm_estimate_spread(&after);
    return 0;
}

static const char *name_limit(const struct tm_prediction *p, double stage_ms, double launches_ms)
{
    if (!p->fits) return "memory";
    if (p->exposed_comm_s > p->compute_s) return "communication";
    if (p->bubble_s > p->compute_s) return "bubble";
    return launches_ms > 0.7 * stage_ms ? "launches" : "compute";
}

static void fill_times(const struct tm_predict_request *request, const struct pipeline *pipelines, const int *most,
                       const int *per_group, double exposed, double spread, struct tm_prediction *out)
{
    double best_ms = 0;
    size_t slowest = 0;
    for (size_t g = 0; g < request->group_count; g++) {
        double ms = per_group[g] > 0 ? (most[g] + out->stages - 1) * pipelines[g].stage_ms : 0;
        if (ms >= best_ms) {
            best_ms = ms;
            slowest = g;
        }
    }
    const struct pipeline *pipeline = &pipelines[slowest];
    double transfer_ms = (out->stages - 1) * pipeline->transfer_ms; /* to fill and to drain the pipeline */
    double wait_ms = fmax(0, pipeline->transfer_ms - pipeline->stage_ms) * most[slowest]; /* links slower than stages */
    out->micro_batches = most[slowest];
    out->compute_s = most[slowest] * pipeline->stage_ms / 1e3;
    out->bubble_s = (out->stages - 1) * pipeline->stage_ms / 1e3;
    out->exposed_comm_s = (exposed + transfer_ms + wait_ms) / 1e3;
    out->optimizer_s = pipeline->optimizer_ms / 1e3;
    out->recompute = pipeline->recompute;
    double mean = out->compute_s + out->bubble_s + out->exposed_comm_s + out->optimizer_s;
    /* All wait for the slowest of n: its expected maximum lies above the mean by about sigma sqrt(2 ln n) of the
     * run-to-run spread, which is some 2% of a step. */
    int workers = out->pipelines * out->stages;
    double wait_s = mean * 0.02 * sqrt(2 * log((double)workers));
    out->compute_s += wait_s; /* waiting for somebody else's compute */
    mean += wait_s;
    struct tm_estimate stage = tm_compute_step_ms(pipeline->slowest, out->micro_batch);
    double own_spread = isnan(spread) ? tm_estimate_spread(&stage) : spread;
    double comm_spread = request->comm->spread * out->exposed_comm_s / mean;
    out->step_s = tm_estimate_around(mean, hypot(own_spread, comm_spread));
    out->samples_per_s = request->batch / mean;
    out->limit = name_limit(out, pipeline->stage_ms, pipeline->launches_ms);
}

/* Predicts one layout. */
static int predict_layout(const struct tm_predict_request *request, const struct layout_plan *plan,
                          const struct cut *cut, struct tm_prediction *out, struct tm_error *e)
{
    struct pipeline pipelines[TM_FLEET_GROUPS_MAX];
    double stage_ms[TM_FLEET_GROUPS_MAX];
    int per_group[TM_FLEET_GROUPS_MAX];
    int most[TM_FLEET_GROUPS_MAX] = {0};
    double tuning = 1;
    double spread = NAN;
    *out = (struct tm_prediction){
        .pipelines = plan->pipelines, .stages = plan->stages, .micro_batch = plan->micro_batch, .fits = true};
    int left = count_pipelines(request, plan->stages, per_group) - plan->pipelines; /* spares */
    for (size_t g = request->group_count; g-- > 0 && left > 0;) {
        int drop = left < per_group[g] ? left : per_group[g];
        per_group[g] -= drop;
        left -= drop;
    }
    int total = (request->batch - 1) / plan->micro_batch + 1;
    int each = (total + plan->pipelines - 1) / plan->pipelines;
    int rc = find_tuning(request, plan->micro_batch, &tuning, &spread, e);
    for (size_t g = 0; rc == 0 && g < request->group_count; g++) {
        double memory[TM_STAGES_MAX];
        time_pipeline(request, g, cut, plan->micro_batch, each, tuning, &pipelines[g], memory);
        stage_ms[g] = pipelines[g].stage_ms;
        if (per_group[g] == 0) continue;
        out->fits = out->fits && pipelines[g].fits;
        if (out->memory_limit_gib == 0 || request->groups[g].gpu.memory_gib < out->memory_limit_gib) {
            out->memory_limit_gib = request->groups[g].gpu.memory_gib;
            memcpy(out->memory_gib, memory, cut->count * sizeof *memory);
        }
    }
    if (rc != 0) return rc;
    share_micro_batches(request, per_group, stage_ms, total, most);
    fill_times(request, pipelines, most, per_group, exposed_ms(request, cut, plan->pipelines, stage_ms[0]), spread,
               out);
    return 0;
}

/* ---- choosing ---- */

static int check_request(const struct tm_predict_request *request, int *out_gpus, struct tm_error *e)
{
    int64_t gpus = 0;
    if (request->group_count < 1 || request->group_count > TM_FLEET_GROUPS_MAX)
        return tm_error_set(e, TM_EINPUT, "a fleet has from 1 to %d kinds of instance", TM_FLEET_GROUPS_MAX);
    for (size_t g = 0; g < request->group_count; g++) {
        const struct tm_fleet_group *group = &request->groups[g];
        if (group->nodes < 1 || group->gpus_per_node < 1)
            return tm_error_set(e, TM_EINPUT, "%s: needs at least one instance with a GPU", group->instance);
        if (!(group->network_bit_s > 0))
            return tm_error_set(e, TM_EINPUT, "%s: its network bandwidth is not known", group->instance);
        gpus += (int64_t)group->nodes * group->gpus_per_node;
    }
    if (gpus > TM_FLEET_GPUS_MAX) return tm_error_set(e, TM_ELIMIT, "more than %d GPUs", TM_FLEET_GPUS_MAX);
    if (request->batch < 1) return tm_error_set(e, TM_EINPUT, "the global batch must be 1 or more");
    if (request->micro_batch < 0 || request->micro_batch > request->batch)
        return tm_error_set(e, TM_EINPUT, "the micro-batch must be from 1 to the global batch of %d", request->batch);
    if (request->stages > (int)request->model->layer_count)
        return tm_error_set(e, TM_EINPUT, "%d stages, but %s has %zu layers", request->stages, request->model->name,
                            request->model->layer_count);
    if (request->stages > TM_STAGES_MAX) return tm_error_set(e, TM_ELIMIT, "more than %d stages", TM_STAGES_MAX);
    if (request->pipelines > 0 && (int64_t)request->pipelines * request->stages > gpus)
        return tm_error_set(e, TM_EINPUT, "%dx%d needs %lld GPUs, the fleet has %lld", request->pipelines,
                            request->stages, (long long)request->pipelines * request->stages, (long long)gpus);
    *out_gpus = (int)gpus;
    return 0;
}

static double largest_gib(const struct tm_prediction *prediction)
{
    double largest = 0;
    for (int s = 0; s < prediction->stages; s++)
        largest = fmax(largest, prediction->memory_gib[s]);
    return largest;
}

static bool is_better(const struct tm_prediction *a, const struct tm_prediction *b)
{
    if (a->fits != b->fits) return a->fits;
    if (a->fits) return a->samples_per_s > b->samples_per_s;
    return largest_gib(a) < largest_gib(b);
}

/* The next smaller number of pipelines worth a try: one with which each has no more to do, then half of them, at last
 * one by one. */
static int fewer_pipelines(int micro_batches, int pipelines)
{
    int each = (micro_batches - 1) / pipelines + 1;
    int enough = (micro_batches - 1) / each + 1;
    if (enough < pipelines) return enough;
    return pipelines > 8 ? pipelines / 2 : pipelines - 1;
}

/* All micro-batch sizes that are powers of two, for P stages and at most D pipelines (D itself, where it was asked
 * for). */
static int try_layout(const struct tm_predict_request *request, int pipelines, int stages, const struct cut *cut,
                      struct tm_prediction *best, bool *any, struct tm_error *e)
{
    struct tm_prediction prediction;
    int per_pipeline = request->pipelines > 0 ? (request->batch - 1) / pipelines + 1 : request->batch;
    int first = request->micro_batch > 0 ? request->micro_batch : 1;
    int last = request->micro_batch > 0 ? request->micro_batch : per_pipeline;
    for (int micro = first;; micro *= 2) {
        bool fits = true;
        for (int d = pipelines; d > 0; d = fewer_pipelines((request->batch - 1) / micro + 1, d)) {
            struct layout_plan plan = {d, stages, micro};
            int rc = predict_layout(request, &plan, cut, &prediction, e);
            if (rc != 0) return rc;
            if (!*any || is_better(&prediction, best)) *best = prediction;
            *any = true;
            if (d == pipelines) fits = prediction.fits;
            if (!prediction.fits || request->pipelines > 0) break; /* fewer pipelines have more in flight */
        }
        if (!fits || micro > last / 2) return 0; /* larger ones fit even less */
    }
}

static int try_layouts(const struct tm_predict_request *request, int gpus, const double *costs, struct cut *cut,
                       struct tm_prediction *best, struct tm_error *e)
{
    bool any = false;
    int stages_max = (int)request->model->layer_count < gpus ? (int)request->model->layer_count : gpus;
    if (stages_max > TM_STAGES_MAX) stages_max = TM_STAGES_MAX;
    int first = request->stages > 0 ? request->stages : 1;
    int last = request->stages > 0 ? request->stages : stages_max;
    for (int stages = first; stages <= last; stages++) {
        int per_group[TM_FLEET_GROUPS_MAX];
        int most = count_pipelines(request, stages, per_group);
        int pipelines = request->pipelines > 0 ? request->pipelines : most;
        if (pipelines > request->batch) pipelines = request->batch;
        if (pipelines < 1 || pipelines > most) continue;
        cut_model(request->model, costs, (size_t)stages, cut);
        int rc = find_curves(request, cut, e);
        if (rc == 0) rc = try_layout(request, pipelines, stages, cut, best, &any, e);
        if (rc != 0) return rc;
        if (best->fits && stages > 2 * best->stages + 8) break; /* deeper ones have long stopped being better */
    }
    if (!any) return tm_error_set(e, TM_EINPUT, "no layout uses this fleet: pipelines do not span kinds of instance");
    return 0;
}

int tm_predict(const struct tm_predict_request *request, struct tm_prediction *out, struct tm_error *e)
{
    int gpus = 0;
    int rc = check_request(request, &gpus, e);
    if (rc != 0) return rc;
    size_t layer_count = request->model->layer_count;
    double *costs = tm_alloc(layer_count * sizeof *costs);
    struct cut *cut = tm_alloc(sizeof *cut);
    if (costs == NULL || cut == NULL) rc = tm_error_nomem(e);
    for (size_t i = 0; rc == 0 && i < layer_count; i++)
        costs[i] =
            layer_cost(request->compute, &request->model->layers[i], &request->groups[0].gpu, request->precision);
    if (rc == 0) rc = try_layouts(request, gpus, costs, cut, out, e);
    tm_free(costs);
    tm_free(cut);
    if (rc == 0 && !out->fits)
        rc = tm_error_set(e, TM_ENONE,
                          "%s does not fit: a stage needs %.1f GiB, the GPU has %.0f; use more stages, a "
                          "smaller micro-batch or a larger GPU",
                          request->model->name, largest_gib(out), out->memory_limit_gib);
    return rc;
}
