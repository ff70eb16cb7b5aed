/* Ways to train in parallel that need an engine of the user's own: data parallel whose replicas share out what each
 * would hold (ZeRO 1 to 3; 3 is FSDP), and tensor parallel, where the GPUs of an instance compute every block together.
 *
 * ZeRO 1 shares out optimizer states, 2 gradients too, 3 the weights as well. 1 and 2 send what an all-reduce sends; 3
 * gathers the weights twice for each micro-batch, layer by layer while others compute, and reduces gradients. Tensor
 * parallel of T divides compute and memory of a stage by T and adds up a block's output twice in each pass, over the
 * inner link, while nobody computes. */
#include "workload/predict_internal.h"

#include <math.h>

static const double TENSOR_SHARE = 0.95; /* of what whole products reach, narrower ones do */
static const double BETTER = 1.1;        /* by so much must a way be faster than one that asks less of the engine */

struct way {
    int pipelines;
    int stages;
    int micro_batch;
    int tensor;
    int zero;
    int shards; /* replicas among which ZeRO shares out; the same is on every so many */
};

/* Instances that take part. */
static int instances_of(const struct tm_predictor *predictor, const struct way *way)
{
    const struct tm_predict_request *request = &predictor->request;
    int instances = 0;
    if (request->group_count == 1)
        return (way->pipelines * way->stages * way->tensor - 1) / predictor->groups[0].gpus_per_node + 1;
    for (size_t g = 0; g < request->group_count; g++)
        instances += predictor->groups[g].instances;
    return instances;
}

/* A ring over `world` of the replicas of a stage, those of an instance beside each other, without anything to overlap
 * with. Of several types the slowest sets the pace. */
static struct tm_comm_iteration ring_of(const struct tm_predictor *predictor, const struct way *way, int world,
                                        double bytes)
{
    int width = way->tensor * way->stages;
    struct tm_comm_iteration ring = {
        .world = world, .rate_bit_s = INFINITY, .grad_bytes = bytes, .local = world, .local_bit_s = INFINITY};
    bool alone = instances_of(predictor, way) == 1;
    for (size_t g = 0; g < predictor->request.group_count; g++) {
        const struct tm_fleet_group *group = &predictor->groups[g];
        int local = group->gpus_per_node > width ? group->gpus_per_node / width : 1;
        int places = group->gpus_per_node / way->tensor;
        int sharing = places < way->stages ? places : way->stages;
        ring.rate_bit_s = fmin(ring.rate_bit_s, tm_group__bit_s(group) / (sharing > 1 ? sharing : 1));
        ring.local_bit_s = fmin(ring.local_bit_s, tm_group__local_bit_s(group));
        if (!alone && local < ring.local) ring.local = local;
    }
    return ring;
}

/* Adding up what the GPUs of a tensor group have of a block's output: one micro-batch through a stage. */
static double tensor_ms(const struct tm_predictor *predictor, const struct tm_stage *stage, const struct way *way,
                        bool recompute)
{
    const struct tm_predict_request *request = &predictor->request;
    double values = 0;
    for (size_t i = stage->first; way->tensor > 1 && i < stage->last; i++) {
        if (request->model->layers[i].kind == TM_LAYER_block) values += request->model->layers[i].output_values;
    }
    double bytes = values * way->micro_batch * tm_precision_value_bytes(request->precision);
    double sums = recompute ? 6 : 4;
    double sent_share = 2.0 * (way->tensor - 1) / way->tensor;
    return sums * sent_share * bytes * 8e3 / tm_group__local_bit_s(&predictor->groups[0]);
}

/* What ZeRO 3 gathers, twice, and reduces for one micro-batch: a ring sends twice the bytes of either. */
static double gathered_bytes(const struct tm_predictor *predictor, const struct tm_stage *stage)
{
    const struct tm_network *network = &stage->network;
    return 2 * network->params * tm_precision_value_bytes(predictor->request.precision) +
           network->trained_params * tm_predictor__gradient_bytes(predictor);
}

/* All gathers and reductions of ZeRO 3 for one micro-batch. */
static double gather_ms(const struct tm_predictor *predictor, const struct tm_stage *stage, const struct way *way)
{
    const struct tm_predict_request *request = &predictor->request;
    if (way->zero < 3 || way->pipelines < 2) return 0;
    double bytes = gathered_bytes(predictor, stage) / 3;
    struct tm_comm_iteration ring = ring_of(predictor, way, way->shards, bytes);
    struct tm_comm_bucket whole = {bytes, 0}; /* layers are gathered whole, not in buckets of gradients */
    ring.buckets = &whole;
    ring.bucket_count = 1;
    return 1.5 * tm_comm_iteration__ms(request->comm, &ring).mean;
}

static struct tm_pace pace_on(struct tm_predictor *predictor, struct tm_stage_cut *cut, size_t g, const struct way *way,
                              bool recompute)
{
    const struct tm_fleet_group *group = &predictor->groups[g];
    int width = way->tensor * way->stages;
    bool inside = tm_group__stays_inside(group, width, way->pipelines);
    double tuning = tm_predictor__tuning(predictor, way->micro_batch);
    struct tm_pace pace = {0};
    for (size_t s = 0; s < cut->count; s++) {
        struct tm_compute__curve curve = cut->curves[recompute][g][s];
        double share = way->tensor > 1 ? way->tensor * TENSOR_SHARE : 1;
        curve.base_ms /= share;
        curve.sample_ms /= share;
        double mean = tm_compute__mean_ms(&curve, way->micro_batch);
        double update_ms = cut->stages[s].network.trained_params * 28 / group->gpu.memory_bytes_s * 1e3 / way->tensor;
        double ms = fmax(mean * tuning - update_ms, mean * 0.2);
        double gather = gather_ms(predictor, &cut->stages[s], way);
        double first = gather / (double)(cut->stages[s].last - cut->stages[s].first); /* there is nothing to hide it */
        double turn_ms = fmax(ms, gather - first) + first + tensor_ms(predictor, &cut->stages[s], way, recompute) +
                         tm_predictor__link_ms(predictor, cut, s, g, way->micro_batch, inside);
        pace.all_ms += turn_ms;
        pace.optimizer_ms = fmax(pace.optimizer_ms, update_ms / (way->zero > 0 ? way->shards : 1));
        if (turn_ms <= pace.turn_ms) continue;
        pace.turn_ms = turn_ms;
        pace.compute_ms = ms;
        pace.launches_ms = curve.floor_ms * tuning;
        pace.slowest = &cut->curves[recompute][g][s];
    }
    return pace;
}

/* All have as much to do, and wait for the slowest. */
static struct tm_pace pace_of(struct tm_predictor *predictor, struct tm_stage_cut *cut, const struct way *way,
                              bool recompute)
{
    struct tm_pace slowest = pace_on(predictor, cut, 0, way, recompute);
    for (size_t g = 1; g < predictor->request.group_count; g++) {
        struct tm_pace pace = pace_on(predictor, cut, g, way, recompute);
        if (pace.turn_ms > slowest.turn_ms) slowest = pace;
    }
    return slowest;
}

static double gib_of(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, size_t stage,
                     const struct way *way, int micro_batches, bool recompute)
{
    size_t behind = cut->count - stage;
    struct tm_memory_use use = {.precision = predictor->request.precision,
                                .optimizer_states = predictor->request.model->optimizer_states,
                                .micro_batch = way->micro_batch,
                                .in_flight = behind < (size_t)micro_batches ? (int)behind : micro_batches,
                                .micro_batches = micro_batches,
                                .recompute = recompute,
                                .narrow_gradients = predictor->request.model->narrow_gradients,
                                .tensor = way->tensor,
                                .zero = way->zero,
                                .shards = way->shards};
    return tm_memory_gib(&cut->stages[stage].footprint, &use);
}

static bool fill_memory(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, const struct way *way,
                        bool recompute, struct tm_prediction *out)
{
    bool fits = true;
    int total = (predictor->request.batch - 1) / way->micro_batch + 1;
    int each = (total - 1) / way->pipelines + 1;
    out->memory_limit_gib = INFINITY;
    for (size_t g = 0; g < predictor->request.group_count; g++) {
        const struct tm_gpu_figures *gpu = &predictor->groups[g].gpu;
        out->memory_limit_gib = fmin(out->memory_limit_gib, tm_memory__usable_gib(gpu->name, gpu->memory_gib));
    }
    for (size_t s = 0; s < cut->count; s++) {
        out->memory_gib[s] = gib_of(predictor, cut, s, way, each, recompute);
        fits = fits && out->memory_gib[s] + TM_MEMORY_RESERVED_GIB <= out->memory_limit_gib;
    }
    return fits;
}

/* What the last all-reduce adds behind the last backward pass. ZeRO 3 gathers and reduces as much there in the same
 * order, which the next micro-batch hides but for the last: what was waited for already is part of it, unless groups
 * of replicas have yet to add up what each of them has. */
static double exposed_of(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, const struct way *way,
                         double compute_ms, double waited_ms)
{
    if (way->pipelines < 2) return 0;
    struct tm_comm_iteration ring = ring_of(predictor, way, way->pipelines, cut->grad_bytes);
    ring.forward_ms = compute_ms / 3;
    ring.backward_ms = compute_ms * 2 / 3;
    ring.buckets = cut->buckets;
    ring.bucket_count = cut->bucket_count;
    double exposed_ms = fmax(0, tm_comm_iteration__ms(predictor->request.comm, &ring).mean - compute_ms);
    return way->zero < 3 || way->shards < way->pipelines ? exposed_ms : fmax(0, exposed_ms - waited_ms);
}

/* How long links with a burst need for a step's bytes at their baseline. */
static double drain_s(const struct tm_predictor *predictor, const struct tm_stage_cut *cut, const struct way *way,
                      int each)
{
    int instances = instances_of(predictor, way);
    bool gathers = way->zero == 3 && way->shards == way->pipelines;
    double bytes = gathers ? each * gathered_bytes(predictor, &cut->stages[0]) : 2 * cut->grad_bytes;
    double longest_s = 0;
    for (size_t g = 0; instances > 1 && way->pipelines > 1 && g < predictor->request.group_count; g++) {
        const struct tm_fleet_group *group = &predictor->groups[g];
        if (group->burst_bit_s > group->network_bit_s)
            longest_s = fmax(longest_s, bytes * (instances - 1) / instances * 8 / group->network_bit_s);
    }
    return longest_s;
}

/* False: it does not fit. */
static bool predict_way(struct tm_predictor *predictor, struct tm_stage_cut *cut, const struct way *way,
                        struct tm_prediction *out)
{
    const struct tm_predict_request *request = &predictor->request;
    bool recompute = request->model->recompute;
    *out = (struct tm_prediction){.pipelines = way->pipelines,
                                  .stages = way->stages,
                                  .micro_batch = way->micro_batch,
                                  .tensor = way->tensor,
                                  .zero = way->zero,
                                  .shards = way->zero > 0 ? way->shards : 0};
    out->fits = fill_memory(predictor, cut, way, recompute, out);
    if (!out->fits && !recompute) {
        recompute = true;
        out->fits = fill_memory(predictor, cut, way, true, out);
    }
    if (!out->fits) return false;
    struct tm_pace pace = pace_of(predictor, cut, way, recompute);
    int total = (request->batch - 1) / way->micro_batch + 1;
    int each = (total - 1) / way->pipelines + 1;
    double exposed_ms = exposed_of(predictor, cut, way, pace.compute_ms, each * (pace.turn_ms - pace.compute_ms));
    tm_predictor__fill_times(predictor, &pace, each, exposed_ms, drain_s(predictor, cut, way, each), out);
    out->recompute = recompute;
    struct tm_estimate stage = tm_compute__step_ms(pace.slowest, way->micro_batch);
    double comm_spread = request->comm->spread * out->exposed_comm_s / out->step_s.mean;
    out->step_s = tm_estimate_around(out->step_s.mean, hypot(tm_estimate_spread(&stage), comm_spread));
    return true;
}

/* All micro-batches of one way: the fastest that fits, if it beats what is best so far by enough. */
static int try_way(struct tm_predictor *predictor, struct way way, struct tm_prediction *best, struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    struct tm_stage_cut *cut = NULL;
    struct tm_prediction prediction;
    int rc = tm_predictor__cut(predictor, way.stages, &cut, e);
    if (rc != 0) return rc;
    int each = (request->batch - 1) / way.pipelines + 1;
    int first = request->micro_batch > 0 ? request->micro_batch : 1;
    int last = request->micro_batch > 0 ? request->micro_batch : each;
    for (way.micro_batch = first; way.micro_batch <= last; way.micro_batch *= 2) {
        if (!predict_way(predictor, cut, &way, &prediction)) break;                   /* larger ones fit even less */
        bool same = best->zero == way.zero && (best->tensor > 1) == (way.tensor > 1); /* it asks no more */
        double to_beat = best->fits ? tm_prediction_lasting_rate(best) * (same ? 1 : BETTER) : 0;
        if (tm_prediction_lasting_rate(&prediction) > to_beat) *best = prediction;
        if (way.micro_batch > last / 2) break;
    }
    return 0;
}

/* The next smaller number of replicas worth a try: whole instances, and where that was no good, a single one, whose
 * links are others. */
static int fewer_replicas(int replicas, int inside, bool good)
{
    int nodes = (replicas - 1) / inside + 1;
    if (nodes == 1) return good ? replicas / 2 : 0;
    if (!good) return inside;
    return (nodes > 8 ? nodes / 2 : nodes - 1) * inside;
}

/* So many replicas, and then fewer, which exchange less. */
static int try_fewer(struct tm_predictor *predictor, struct way way, struct tm_prediction *best, struct tm_error *e)
{
    int width = way.stages * way.tensor;
    int gpus_per_node = predictor->groups[0].gpus_per_node;
    int inside = gpus_per_node > width ? gpus_per_node / width : 1;
    int least = way.shards > 0 ? way.shards + 1 : way.tensor > 1 ? 1 : 2;
    bool all = way.shards == 0;
    bool good = true; /* one step at least */
    int rc = 0;
    while (rc == 0 && way.pipelines >= least) {
        double before = best->fits ? tm_prediction_lasting_rate(best) : 0;
        int tried = way.pipelines;
        if (all) way.shards = way.pipelines;
        rc = try_way(predictor, way, best, e);
        if (predictor->request.group_count > 1) break;
        way.pipelines = fewer_replicas(tried, inside, good);
        good = best->fits && tm_prediction_lasting_rate(best) > before;
    }
    return rc;
}

static bool has_blocks(const struct tm_model *model)
{
    for (size_t i = 0; i < model->layer_count; i++) {
        if (model->layers[i].kind == TM_LAYER_block) return true;
    }
    return false;
}

static int try_tensor(struct tm_predictor *predictor, int gpus, int tensor, struct tm_prediction *best,
                      struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    int rc = 0;
    for (int stages = 1; rc == 0 && stages <= gpus / tensor && stages <= TM_PREDICT_STAGES_MAX &&
                         (size_t)stages <= request->model->layer_count;
         stages *= 2) {
        int pipelines = gpus / (tensor * stages);
        if (pipelines > request->batch) pipelines = request->batch;
        for (int zero = 0; rc == 0 && zero <= (pipelines > 1 ? 1 : 0); zero++)
            rc = try_fewer(predictor, (struct way){pipelines, stages, 0, tensor, zero, 0}, best, e);
    }
    return rc;
}

int tm_predictor__try_ways(struct tm_predictor *predictor, int gpus, struct tm_prediction *best, struct tm_error *e)
{
    const struct tm_predict_request *request = &predictor->request;
    int rc = 0;
    if (request->stages > 0) return 0;
    int replicas = gpus < request->batch ? gpus : request->batch;
    int inside = predictor->groups[0].gpus_per_node;
    bool sharded = (request->ways & TM_WAY_SHARDED) != 0;
    for (int zero = 1; rc == 0 && sharded && zero <= 3 && replicas > 1; zero++)
        rc = try_fewer(predictor, (struct way){replicas, 1, 0, 1, zero, 0}, best, e);
    if (rc != 0 || request->group_count != 1) return rc;
    if (sharded && inside > 1 && replicas > inside && replicas % inside == 0)
        rc = try_fewer(predictor, (struct way){replicas, 1, 0, 1, 3, inside}, best, e);
    if ((request->ways & TM_WAY_TENSOR) == 0 || !has_blocks(request->model)) return rc;
    for (int tensor = 2; rc == 0 && tensor <= inside; tensor *= 2) {
        if (inside % tensor == 0 && request->model->heads % tensor == 0)
            rc = try_tensor(predictor, gpus, tensor, best, e);
    }
    return rc;
}
