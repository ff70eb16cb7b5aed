#include "workload/predict.h"

#include "base/alloc.h"
#include "workload/predict_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- one pipeline on one kind of GPU ---- */

struct pipeline {
    struct tm_pace pace;
    double sent_bytes; /* of one micro-batch over an instance's link, at most */
    bool fits;
    bool recompute;
};

bool tm_group__stays_inside(const struct tm_fleet_group *group, int width, int pipelines)
{
    return width <= group->gpus_per_node && pipelines <= group->instances * (group->gpus_per_node / width);
}

static bool stages_fit(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, double memory_gib,
                       int micro_batch, int micro_batches, bool recompute)
{
    for (size_t s = 0; s < cut->count; s++) {
        double gib = tm_predictor__gib(predictor, cut, s, micro_batch, micro_batches, recompute);
        if (!(gib + TM_MEMORY_RESERVED_GIB <= memory_gib)) return false;
    }
    return true;
}

static struct pipeline time_pipeline(struct tm_predictor *predictor, size_t group_index, struct tm_stage_cut *cut,
                                     int pipelines, int micro_batch, int micro_batches)
{
    const struct tm_fleet_group *group = &predictor->groups[group_index];
    bool recompute = predictor->request.model->recompute;
    double memory_gib = tm_memory__usable_gib(group->gpu.name, group->gpu.memory_gib);
    bool fits = stages_fit(predictor, cut, memory_gib, micro_batch, micro_batches, recompute);
    if (!fits && !recompute) { /* recomputation only where it does not fit without */
        recompute = true;
        fits = stages_fit(predictor, cut, memory_gib, micro_batch, micro_batches, true);
    }
    bool inside = tm_group__stays_inside(group, (int)cut->count, pipelines);
    double value_bytes = tm_precision_value_bytes(predictor->request.precision);
    return (struct pipeline){
        .pace = tm_predictor__pace(predictor, cut, group_index, micro_batch, recompute, inside),
        .sent_bytes = inside ? 0 : cut->link_values * micro_batch * value_bytes,
        .fits = fits,
        .recompute = recompute,
    };
}

/* All micro-batches of a pipeline. */
static double pipeline_ms(const struct tm_pace *pace, int micro_batches)
{
    return pace->all_ms + (micro_batches - 1) * pace->turn_ms;
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
        per_group[g] = request->groups[g].instances * request->groups[g].gpus_per_node / stages;
        total += per_group[g];
    }
    return total;
}

/* Hands out micro-batches one by one to the pipeline that would finish it first: all finish together, as near as whole
 * micro-batches allow. Returns how many the busiest pipeline of each group has, and all of the group together. */
static void share_micro_batches(const struct tm_predict_request *request, const int *pipelines, const double *stage_ms,
                                int total, int most[TM_FLEET_GROUPS_MAX], int all[TM_FLEET_GROUPS_MAX])
{
    double speed = 0;
    for (size_t g = 0; g < request->group_count; g++)
        speed += pipelines[g] / stage_ms[g];
    /* Start from the proportional share, rounded down, then give the rest one by one. */
    int given = 0;
    int counts[TM_FLEET_GROUPS_MAX] = {0};
    for (size_t g = 0; g < request->group_count; g++) {
        counts[g] = pipelines[g] > 0 ? (int)(total / speed / stage_ms[g]) : 0; /* each pipeline of the group */
        all[g] = counts[g] * pipelines[g];
        given += all[g];
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
        if (pipelines[best] == 0) return; /* nobody is there */
        extra[best]++;
        all[best]++;
        int busiest = counts[best] + (extra[best] + pipelines[best] - 1) / pipelines[best];
        if (busiest > most[best]) most[best] = busiest;
    }
}

/* Time that the all-reduce of the largest stage's gradients adds behind the last backward pass of the pipelines that
 * finish last. */
static double all_reduce_ms(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, int pipelines,
                            const int *per_group, double stage_ms)
{
    const struct tm_predict_request *request = &predictor->request;
    if (pipelines < 2) return 0;
    struct tm_comm_iteration iteration = {.world = pipelines,
                                          .rate_bit_s = INFINITY,
                                          .grad_bytes = cut->grad_bytes,
                                          .forward_ms = stage_ms / 3,
                                          .backward_ms = stage_ms * 2 / 3,
                                          .local = pipelines,
                                          .local_bit_s = INFINITY,
                                          .sharing = 1,
                                          .buckets = cut->buckets,
                                          .bucket_count = cut->bucket_count};
    int instances = 0;
    for (size_t g = 0; g < request->group_count; g++) { /* the slowest way of each kind */
        const struct tm_fleet_group *group = &request->groups[g];
        if (per_group[g] == 0) continue;
        int inside = group->gpus_per_node > (int)cut->count ? group->gpus_per_node / (int)cut->count : 1;
        int sharing = group->gpus_per_node < (int)cut->count ? group->gpus_per_node : (int)cut->count;
        iteration.local = inside < iteration.local ? inside : iteration.local;
        iteration.local_bit_s = fmin(iteration.local_bit_s, tm_group__local_bit_s(group));
        iteration.rate_bit_s = fmin(iteration.rate_bit_s, tm_group__bit_s(group) / sharing);
        instances += group->instances;
    }
    if (instances == 1) iteration.local = pipelines;
    return fmax(0, tm_comm_iteration__ms(request->comm, &iteration).mean - stage_ms);
}

/* How long a link with a burst needs for a step's bytes at its baseline: what a step takes at least in the long run. */
static double drain_s(const struct tm_predict_request *request, const struct tm_stage_cut *cut, int pipelines,
                      const int *per_group, const struct pipeline *timed, const int *most)
{
    double longest_s = 0;
    int instances = 0;
    for (size_t g = 0; g < request->group_count; g++)
        instances +=
            (per_group[g] * (int)cut->count + request->groups[g].gpus_per_node - 1) / request->groups[g].gpus_per_node;
    for (size_t g = 0; instances > 1 && g < request->group_count; g++) {
        const struct tm_fleet_group *group = &request->groups[g];
        if (!(group->burst_bit_s > group->network_bit_s)) continue;
        int stages = group->gpus_per_node < (int)cut->count ? group->gpus_per_node : (int)cut->count;
        double ring_bytes = stages * cut->grad_bytes * 2 * (pipelines - 1) / pipelines;
        double bytes = ring_bytes + most[g] * timed[g].sent_bytes;
        longest_s = fmax(longest_s, bytes * 8 / group->network_bit_s);
    }
    return longest_s;
}

static const char *name_limit(const struct tm_prediction *p, double stage_ms, double launches_ms)
{
    if (!p->fits) return "memory";
    if (p->exposed_comm_s > p->compute_s) return "communication";
    if (p->bubble_s > p->compute_s) return "bubble";
    return launches_ms > 0.7 * stage_ms ? "launches" : "compute";
}

/* The kind of instance whose pipelines finish last. */
static size_t last_group(const struct tm_predict_request *request, const struct pipeline *pipelines, const int *most,
                         const int *per_group)
{
    double longest_ms = 0;
    size_t last = 0;
    for (size_t g = 0; g < request->group_count; g++) {
        double ms = per_group[g] > 0 ? pipeline_ms(&pipelines[g].pace, most[g]) : 0;
        if (ms >= longest_ms) {
            longest_ms = ms;
            last = g;
        }
    }
    return last;
}

void tm_predictor__fill_times(const struct tm_predictor *predictor, const struct tm_pace *pace, int micro_batches,
                              double exposed_ms, double drain_s, struct tm_prediction *out)
{
    const struct tm_predict_request *request = &predictor->request;
    out->micro_batches = micro_batches;
    out->compute_s = micro_batches * pace->compute_ms / 1e3;
    out->bubble_s = (pace->all_ms - pace->turn_ms) / 1e3;
    out->exposed_comm_s = (exposed_ms + micro_batches * (pace->turn_ms - pace->compute_ms)) / 1e3;
    out->optimizer_s = pace->optimizer_ms / 1e3;
    double mean = out->compute_s + out->bubble_s + out->exposed_comm_s + out->optimizer_s;
    /* All wait for the slowest of n: its expected maximum lies above the mean by about sigma sqrt(2 ln n) of the
     * run-to-run spread, which is some 2% of a step. */
    int workers = out->pipelines * out->stages * (out->tensor > 1 ? out->tensor : 1);
    double wait_s = mean * 0.02 * sqrt(2 * log((double)workers));
    out->compute_s += wait_s; /* waiting for somebody else's compute */
    mean += wait_s;
    out->sustained_s = fmax(mean, drain_s);
    if (!request->burst && drain_s > mean) {
        out->exposed_comm_s += drain_s - mean;
        mean = drain_s;
    }
    out->step_s.mean = mean;
    out->samples_per_s = request->batch / mean;
    out->limit = name_limit(out, pace->compute_ms, pace->launches_ms);
}

/* What only the layout that is taken needs: the interval and the memory of each stage. */
static void fill_details(struct tm_predictor *predictor, struct tm_stage_cut *cut, const struct pipeline *pipelines,
                         const int *per_group, size_t last, int each, struct tm_prediction *out)
{
    const struct tm_predict_request *request = &predictor->request;
    struct tm_estimate stage = predictor->tuned ? tm_compute__step_ms(&predictor->own, out->micro_batch)
                                                : tm_compute__step_ms(pipelines[last].pace.slowest, out->micro_batch);
    double comm_spread = request->comm->spread * out->exposed_comm_s / out->step_s.mean;
    out->step_s = tm_estimate_around(out->step_s.mean, hypot(tm_estimate_spread(&stage), comm_spread));
    out->memory_limit_gib = 0;
    for (size_t g = 0; g < request->group_count; g++) {
        const struct tm_gpu_figures *gpu = &request->groups[g].gpu;
        double limit_gib = tm_memory__usable_gib(gpu->name, gpu->memory_gib);
        if (per_group[g] == 0 || (out->memory_limit_gib != 0 && limit_gib >= out->memory_limit_gib)) continue;
        out->memory_limit_gib = limit_gib;
        for (size_t s = 0; s < cut->count; s++)
            out->memory_gib[s] = tm_predictor__gib(predictor, cut, s, out->micro_batch, each, pipelines[g].recompute);
    }
}

/* Predicts one layout; `details`: with interval and memory. Where compute alone makes it no faster than `to_beat`
 * samples a second, that bound is all that is found. */
static void predict_layout(struct tm_predictor *predictor, const struct layout_plan *plan, struct tm_stage_cut *cut,
                           bool details, double to_beat, struct tm_prediction *out)
{
    const struct tm_predict_request *request = &predictor->request;
    struct pipeline pipelines[TM_FLEET_GROUPS_MAX];
    double stage_ms[TM_FLEET_GROUPS_MAX];
    int per_group[TM_FLEET_GROUPS_MAX];
    int most[TM_FLEET_GROUPS_MAX] = {0}, all[TM_FLEET_GROUPS_MAX] = {0};
    assert(request->group_count >= 1 && request->group_count <= TM_FLEET_GROUPS_MAX);
    out->pipelines = plan->pipelines;
    out->stages = plan->stages;
    out->micro_batch = plan->micro_batch;
    out->fits = true;
    int left = count_pipelines(request, plan->stages, per_group) - plan->pipelines; /* spares */
    for (size_t g = request->group_count; g-- > 0 && left > 0;) {
        int drop = left < per_group[g] ? left : per_group[g];
        per_group[g] -= drop;
        left -= drop;
    }
    int total = (request->batch - 1) / plan->micro_batch + 1;
    int each = (total + plan->pipelines - 1) / plan->pipelines;
    for (size_t g = 0; g < request->group_count; g++) {
        pipelines[g] = time_pipeline(predictor, g, cut, per_group[g], plan->micro_batch, each);
        stage_ms[g] = pipelines[g].pace.turn_ms;
        out->fits = out->fits && (per_group[g] == 0 || pipelines[g].fits);
    }
    share_micro_batches(request, per_group, stage_ms, total, most, all);
    memcpy(out->group_pipelines, per_group, request->group_count * sizeof *per_group);
    memcpy(out->group_micro_batches, all, request->group_count * sizeof *all);
    size_t last = last_group(request, pipelines, most, per_group);
    out->samples_per_s = request->batch / (pipeline_ms(&pipelines[last].pace, most[last]) / 1e3);
    if (out->samples_per_s <= to_beat && !details) return;
    double exposed = all_reduce_ms(predictor, cut, plan->pipelines, per_group, pipelines[last].pace.compute_ms);
    double drain = drain_s(request, cut, plan->pipelines, per_group, pipelines, most);
    tm_predictor__fill_times(predictor, &pipelines[last].pace, most[last], exposed, drain, out);
    out->recompute = pipelines[last].recompute;
    if (details) fill_details(predictor, cut, pipelines, per_group, last, each, out);
}

/* ---- choosing ---- */

static int check_request(const struct tm_predict_request *request, int *out_gpus, struct tm_error *e)
{
    int64_t gpus = 0;
    if (request->group_count < 1 || request->group_count > TM_FLEET_GROUPS_MAX)
        return tm_error_set(e, TM_EINPUT, "a fleet has 1 to %d instance types", TM_FLEET_GROUPS_MAX);
    for (size_t g = 0; g < request->group_count; g++) {
        const struct tm_fleet_group *group = &request->groups[g];
        if (group->instances < 1 || group->gpus_per_node < 1)
            return tm_error_set(e, TM_EINPUT, "%s: needs at least one instance with a GPU", group->instance);
        if (!(group->network_bit_s > 0))
            return tm_error_set(e, TM_EINPUT, "%s: its network bandwidth is not known", group->instance);
        gpus += (int64_t)group->instances * group->gpus_per_node;
    }
    if (gpus > TM_FLEET_GPUS_MAX) return tm_error_set(e, TM_ELIMIT, "more than %d GPUs", TM_FLEET_GPUS_MAX);
    if (request->batch < 1) return tm_error_set(e, TM_EINPUT, "the global batch must be 1 or more");
    if (request->micro_batch < 0 || request->micro_batch > request->batch)
        return tm_error_set(e, TM_EINPUT, "the micro-batch must be from 1 to the global batch of %d", request->batch);
    if (request->stages > (int)request->model->layer_count)
        return tm_error_set(e, TM_EINPUT, "%d stages, but %s has %zu layers", request->stages, request->model->name,
                            request->model->layer_count);
    if (request->stages > TM_PREDICT_STAGES_MAX)
        return tm_error_set(e, TM_ELIMIT, "more than %d stages", TM_PREDICT_STAGES_MAX);
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

double tm_prediction_lasting_rate(const struct tm_prediction *p)
{
    return p->sustained_s > p->step_s.mean ? p->samples_per_s * p->step_s.mean / p->sustained_s : p->samples_per_s;
}

/* The best layout so far. */
struct best {
    struct layout_plan plan;
    bool any;
    bool fits;
    double samples_per_s;
    double largest_gib; /* where nothing fits: what comes nearest */
};

/* The next smaller number of pipelines worth a try: one with which each has no more to do, then half of them, at last
 * one by one. */
static int fewer_pipelines(int micro_batches, int pipelines)
{
    int each = (micro_batches - 1) / pipelines + 1;
    int enough = (micro_batches - 1) / each + 1;
    if (enough < pipelines) return enough;
    return pipelines > 8 ? pipelines / 2 : pipelines - 1;
}

static bool try_one(struct tm_predictor *predictor, const struct layout_plan *plan, struct tm_stage_cut *cut,
                    struct best *best)
{
    struct tm_prediction prediction = {.tensor = 1};
    bool details = !best->any || !best->fits; /* what does not fit is told apart by its memory */
    predict_layout(predictor, plan, cut, details, best->samples_per_s, &prediction);
    bool better = !best->any || (prediction.fits && !best->fits);
    double samples_per_s = tm_prediction_lasting_rate(&prediction);
    if (!better && prediction.fits == best->fits)
        better = best->fits ? samples_per_s > best->samples_per_s : largest_gib(&prediction) < best->largest_gib;
    if (better)
        *best =
            (struct best){*plan, true, prediction.fits, samples_per_s, prediction.fits ? 0 : largest_gib(&prediction)};
    return prediction.fits;
}

/* All micro-batch sizes that are powers of two, for P stages and at most D pipelines (D itself, where it was asked
 * for). */
static void try_layout(struct tm_predictor *predictor, int pipelines, int stages, struct tm_stage_cut *cut,
                       struct best *best)
{
    const struct tm_predict_request *request = &predictor->request;
    int per_pipeline = request->pipelines > 0 ? (request->batch - 1) / pipelines + 1 : request->batch;
    int first = request->micro_batch > 0 ? request->micro_batch : 1;
    int last = request->micro_batch > 0 ? request->micro_batch : per_pipeline;
    for (int micro = first;; micro *= 2) {
        bool fits = true;
        for (int d = pipelines; d > 0; d = fewer_pipelines((request->batch - 1) / micro + 1, d)) {
            struct layout_plan plan = {d, stages, micro};
            bool this_fits = try_one(predictor, &plan, cut, best);
            if (d == pipelines) fits = this_fits;
            if (!this_fits || request->pipelines > 0) break; /* fewer pipelines have more in flight */
        }
        if (!fits || micro > last / 2) return; /* larger ones fit even less */
    }
}

static int try_layouts(struct tm_predictor *predictor, int gpus, struct best *best, struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    int stages_max = (int)request->model->layer_count < gpus ? (int)request->model->layer_count : gpus;
    if (stages_max > TM_PREDICT_STAGES_MAX) stages_max = TM_PREDICT_STAGES_MAX;
    int first = request->stages > 0 ? request->stages : 1;
    int last = request->stages > 0 ? request->stages : stages_max;
    for (int stages = first; stages <= last; stages++) {
        int per_group[TM_FLEET_GROUPS_MAX];
        struct tm_stage_cut *cut = NULL;
        int most = count_pipelines(request, stages, per_group);
        int pipelines = request->pipelines > 0 ? request->pipelines : most;
        if (pipelines > request->batch) pipelines = request->batch;
        if (pipelines < 1 || pipelines > most) continue;
        int rc = tm_predictor__cut(predictor, stages, &cut, e);
        if (rc != 0) return rc;
        try_layout(predictor, pipelines, stages, cut, best);
        if (best->fits && stages > 2 * best->plan.stages + 8) break; /* deeper ones have long stopped being better */
    }
    if (!best->any)
        return tm_error_set(e, TM_EINPUT,
                            "no layout can use this fleet: a pipeline cannot span several instance types");
    return 0;
}

/* ---- predictors ---- */

/* Per-sample cost of a layer, in any unit: what the cut balances. */
static double layer_cost(const struct tm_predict_request *request, const struct tm_layer *layer)
{
    struct tm_network network = tm_network_of(layer, 1);
    struct tm_compute__curve curve;
    if (tm_compute__curve(request->compute, &network, &request->groups[0].gpu, request->precision, &curve, NULL) != 0)
        return 1e-9;
    return curve.sample_ms + 1e-9;
}

/* Moves the whole model's curve to the user's own measurements of it. */
static int tune(struct tm_predictor *predictor, struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    if (request->measured_count == 0) return 0;
    struct tm_network network = tm_network_of(request->model->layers, request->model->layer_count);
    network.compiled = request->model->compiled;
    network.channels_last = request->model->channels_last;
    network.recompute = request->model->recompute;
    int rc = tm_compute__curve(request->compute, &network, &request->groups[0].gpu, request->precision,
                               &predictor->common, e);
    predictor->own = predictor->common;
    if (rc == 0)
        rc = tm_compute__tune(&predictor->own, TM_COMPUTE_KNOWN_HOST, request->measured_batches, request->measured_ms,
                              request->measured_count, e);
    predictor->tuned = rc == 0;
    return rc;
}

void tm_prediction_slow(struct tm_prediction *prediction, double factor)
{
    prediction->step_s.mean *= factor;
    prediction->step_s.p10 *= factor;
    prediction->step_s.p90 *= factor;
    prediction->samples_per_s /= factor;
    prediction->compute_s *= factor;
    prediction->exposed_comm_s *= factor;
    prediction->bubble_s *= factor;
    prediction->optimizer_s *= factor;
    prediction->sustained_s *= factor;
}

int tm_predictor_create(const struct tm_predict_request *request, struct tm_predictor **out, struct tm_error *e)
{
    if (request->group_count < 1 || request->group_count > TM_FLEET_GROUPS_MAX)
        return tm_error_set(e, TM_EINPUT, "a fleet has 1 to %d instance types", TM_FLEET_GROUPS_MAX);
    struct tm_predictor *predictor = tm_calloc(1, sizeof *predictor);
    if (predictor == NULL) return tm_error_nomem(e);
    predictor->request = *request;
    memcpy(predictor->groups, request->groups, request->group_count * sizeof *request->groups);
    predictor->request.groups = predictor->groups;
    size_t layer_count = request->model->layer_count;
    predictor->costs = tm_alloc(layer_count * sizeof *predictor->costs);
    int rc = predictor->costs != NULL ? tune(predictor, e) : tm_error_nomem(e);
    for (size_t i = 0; rc == 0 && i < layer_count; i++)
        predictor->costs[i] = layer_cost(request, &request->model->layers[i]);
    if (rc != 0) {
        tm_predictor_destroy(predictor);
        return rc;
    }
    *out = predictor;
    return 0;
}

void tm_predictor_destroy(struct tm_predictor *predictor)
{
    if (predictor == NULL) return;
    for (size_t i = 0; i <= TM_PREDICT_STAGES_MAX; i++)
        tm_predictor__forget(predictor->cuts[i]);
    tm_free(predictor->costs);
    tm_free(predictor);
}

int tm_predictor_run(struct tm_predictor *predictor, const int *instances, struct tm_prediction *out,
                     struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    struct best best = {.any = false};
    struct tm_stage_cut *cut = NULL;
    int gpus = 0;
    for (size_t g = 0; g < request->group_count; g++)
        predictor->groups[g].instances = instances[g];
    int rc = check_request(request, &gpus, e);
    if (rc == 0) rc = try_layouts(predictor, gpus, &best, e);
    if (rc == 0) rc = tm_predictor__cut(predictor, best.plan.stages, &cut, e);
    if (rc != 0) return rc;
    *out = (struct tm_prediction){0};
    predict_layout(predictor, &best.plan, cut, true, 0, out);
    if (request->ways != 0) rc = tm_predictor__try_ways(predictor, gpus, out, e);
    if (rc != 0) return rc;
    out->idle_gpus = gpus - out->pipelines * out->stages * (out->tensor > 1 ? out->tensor : 1);
    if (out->fits) return 0;
    return tm_error_set(
        e, TM_ENONE,
        "%s does not fit: a stage needs %.1f GiB and libraries %.0f, the GPU has %.1f; use more stages, a "
        "smaller micro-batch or a larger GPU",
        request->model->name, largest_gib(out), TM_MEMORY_RESERVED_GIB, out->memory_limit_gib);
}

int tm_predict(const struct tm_predict_request *request, struct tm_prediction *out, struct tm_error *e)
{
    struct tm_predictor *predictor = NULL;
    int instances[TM_FLEET_GROUPS_MAX] = {0};
    int rc = tm_predictor_create(request, &predictor, e);
    if (rc != 0) return rc;
    for (size_t g = 0; g < request->group_count; g++)
        instances[g] = request->groups[g].instances;
    rc = tm_predictor_run(predictor, instances, out, e);
    tm_predictor_destroy(predictor);
    return rc;
}
