#include "workload/compute.h"

#include "workload/fit.h"

#include <math.h>
#include <string.h>

/* The unknowns, all as logarithms. 16-bit formats and 32-bit ones differ in how well kernels use the hardware and in
 * what the framework adds (casts), so that shares and launch times come in pairs; shares of the peak in threes, since
 * TF32 is done by the same units as 16 bits, and fp32 by others, whose peak is far lower and better reached. */
enum {
    X_CONV,             /* + 2: share of peak reached by convolutions; 16 bit, TF32, fp32 */
    X_MATMUL = 3,       /* + 2: by matrix products */
    X_TRAFFIC = 6,      /* + 1: share of the memory bandwidth; 16 bit, 32 bit */
    X_WEIGHTS = 8,      /* ms per 10^9 parameters that a step spends on weights, whatever the batch */
    X_SMALL,            /* ms per 1,000 ops of kernels too small to fill the GPU */
    X_HOST,             /* ms per step on the host */
    X_LAUNCH,           /* + 1: ms per op on the host */
    X_ATTENTION = 13,   /* share of peak reached by fused attention */
    X_UNALIGNED,        /* how often values in rows that are no multiple of 8 go through memory */
    X_COMPILED_TRAFFIC, /* what a compiler leaves of the traffic */
    X_COMPILED_LAUNCH,  /* and of the launches */
    X_CHANNELS_LAST,    /* what 16-bit values laid out channels last leave of the time of convolutions */
    X_ATTENTION_32,     /* as X_ATTENTION, of 32-bit values, for which there are other kernels */
    X_SCORES,           /* what one score of fused attention costs beside its products, in FLOPs */
    X_DEPTHWISE,        /* + 1: what a value of depthwise convolutions costs, in FLOPs of fp32; 16 bit, 32 bit */
};

/* Physics and experience: half of peak for convolutions, more for products, 60% of bandwidth; weights are read and
 * written some 15 times at 4.8 TB/s; a launch in eager mode costs about 0.1 ms for forward, backward and the framework
 * around it. These are where the fit to measured steps begins (tm_knowledge_learn), not what is predicted with. */
static const double prior_x[TM_COMPUTE_UNKNOWNS] = {
    -0.693147, -0.693147, -0.693147, -0.25, -0.25, -0.25, -0.510826, -0.510826, 2.708050, 2.995732, 1.386294,
    -2.040221, -2.207275, -1.0,      2.3,   -0.7,  -1.0,  -0.5,      -1.0,      4.0,      4.0,      4.0,
};
static const double prior_spread[TM_COMPUTE_UNKNOWNS] = {
    1.5, 1.5, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.4, 0.4, 2.0, 2.0, 0.5, 0.5, 0.5, 2.0, 2.0, 2.0, 2.0,
};

static const double CORNER = 6.4;       /* p of the soft corner */
static const double MODEL_NOISE = 0.4;  /* of one cell around the common model: cells of a network err together */
static const double FLOOR_NOISE = 0.08; /* of a measurement that the host paces */
static const double GPU_NOISE = 0.02;   /* of one that the GPU paces */
static const double PRIOR_NETWORK_SPREAD = 0.30;
static const double COVERED = 0.77; /* cells of a network err together: with this, 71% of unseen decoders are inside */
static const double HOST_COVERED = 0.95;   /* hosts differ more */
static const double GPU_SPREAD = 0.25;     /* how far a GPU may lie off what others reach of their figures */
static const double GPU_CELL_NOISE = 0.15; /* of what one cell says about that */
static const double ATTENTION_REACH = 0.5; /* of the time of fused attention on it, in logarithms */
static const double GPU_OUTLIER = 0.15;    /* beyond which a cell says less */
static const double CHECKPOINT_OPS = 17;   /* that the host spends on checkpointing one block: states, a second graph */
static const double ATTENTION_PASSES = 3.5; /* backward passes of fused attention compute the scores again */

static void add_work(struct tm_work *sum, const struct tm_layer *layer)
{
    bool conv = layer->kind == TM_LAYER_conv || layer->kind == TM_LAYER_depthwise;
    double plain = fmax(0, layer->forward_flops - layer->attention_flops);
    /* Frozen weights need no gradient: one of three passes less. */
    double passes = layer->params > 0 ? 1 - layer->frozen_params / layer->params / 3 : 1;
    *(conv ? &sum->conv_flops : &sum->matmul_flops) += plain * passes;
    sum->attention_flops += layer->attention_flops;
    sum->attention_scores += layer->attention_scores;
    sum->unaligned_values += layer->unaligned_values;
    if (layer->kind == TM_LAYER_depthwise) sum->depthwise_values += layer->traffic_values;
    sum->traffic_values += layer->traffic_values;
}

struct tm_network tm_network_of(const struct tm_layer *layers, size_t count)
{
    struct tm_network network = {.recompute = false};
    bool blocks = false;
    for (size_t i = 0; i < count; i++)
        blocks = blocks || layers[i].kind == TM_LAYER_block;
    for (size_t i = 0; i < count; i++) {
        const struct tm_layer *layer = &layers[i];
        add_work(&network.forward, layer);
        network.ops += layer->ops;
        network.params += layer->params;
        network.trained_params += layer->params - layer->frozen_params;
        if (blocks && layer->kind != TM_LAYER_block) continue;
        add_work(&network.again, layer);
        network.again_ops += blocks ? CHECKPOINT_OPS : layer->ops / 2;
    }
    return network;
}

struct tm_network tm_network__of_totals(double params, double train_gflop_per_sample)
{
    double forward_flops = train_gflop_per_sample * 1e9 / 3;
    struct tm_network network = {
        .forward = {.matmul_flops = forward_flops,
                    .traffic_values = forward_flops / 250}, /* transformers and residual networks: 100 to 350 */
        .ops = 20 * sqrt(params / 1e6),                     /* 25 M: 100, 355 M: 380, 1.5 B: 780 */
        .params = params,
        .trained_params = params,
    };
    network.again = network.forward;
    network.again_ops = network.ops / 2;
    return network;
}

/* ---- the curve ---- */

/* Of what is not a matrix product: attention and convolutions have no kernels of 8 bits in the common frameworks. */
static double others_peak(const struct tm_gpu_figures *gpu, enum tm_precision precision)
{
    if (precision != TM_FP8) return gpu->flops[precision];
    return gpu->flops[TM_BF16] > 0 ? gpu->flops[TM_BF16] : gpu->flops[precision] / 2;
}

/* Seconds of `passes` passes. */
static double work_s(const double *x, const struct tm_work *work, const struct tm_gpu_figures *gpu,
                     enum tm_precision precision, double traffic, double passes)
{
    double bytes = tm_precision_value_bytes(precision);
    int pair = bytes < 4 ? 0 : 1;
    int units = precision == TM_FP32 ? 2 : pair;
    double products_peak = gpu->flops[precision];
    double peak = others_peak(gpu, precision);
    double attention_passes = passes > 1 ? passes * ATTENTION_PASSES / 3 : passes;
    double fp32 = gpu->flops[TM_FP32];
    double plain_rate = fp32 > 0 ? fp32 : 14 * gpu->memory_bytes_s; /* as of an H200 */
    double attention = work->attention_flops + work->attention_scores * exp(x[X_SCORES]);
    return passes * work->conv_flops / (peak * exp(x[X_CONV + units])) +
           passes * work->matmul_flops / (products_peak * exp(x[X_MATMUL + units])) +
           passes * work->unaligned_values * bytes * exp(x[X_UNALIGNED]) / gpu->memory_bytes_s +
           attention_passes * attention / (peak * exp(x[pair == 0 ? X_ATTENTION : X_ATTENTION_32])) +
           passes * work->depthwise_values * exp(x[X_DEPTHWISE + pair]) / plain_rate +
           passes * work->traffic_values * bytes * traffic / (gpu->memory_bytes_s * exp(x[X_TRAFFIC + pair]));
}

static struct tm_compute__curve curve_at(const double *x, const struct tm_network *network,
                                         const struct tm_gpu_figures *gpu, enum tm_precision precision)
{
    int pair = tm_precision_value_bytes(precision) < 4 ? 0 : 1;
    double traffic = network->compiled ? exp(x[X_COMPILED_TRAFFIC]) : 1;
    double launch = exp(x[X_LAUNCH + pair]) * (network->compiled ? exp(x[X_COMPILED_LAUNCH]) : 1);
    /* Three forward passes' worth of work make a training step: forward, gradients of inputs, gradients of weights. */
    double seconds = work_s(x, &network->forward, gpu, precision, traffic, 3);
    if (network->recompute) seconds += work_s(x, &network->again, gpu, precision, traffic, 1);
    if (network->channels_last && pair == 0) seconds *= exp(x[X_CHANNELS_LAST]);
    double ops = network->ops + (network->recompute ? network->again_ops : 0);
    double bandwidth_ratio = 4.8e12 / gpu->memory_bytes_s; /* X_WEIGHTS is in terms of the GPU it was first seen on */
    /* Frozen weights are read, and not updated: some 4 bytes of 50. */
    double weights = network->trained_params + (network->params - network->trained_params) * 0.08;
    return (struct tm_compute__curve){
        .floor_ms = exp(x[X_HOST]) + launch * ops,
        .base_ms = exp(x[X_WEIGHTS]) * weights / 1e9 * bandwidth_ratio + exp(x[X_SMALL]) * network->ops / 1e3,
        .sample_ms = seconds * 1e3,
    };
}

static double soft_max(double a, double b)
{
    double high = fmax(a, b);
    double low = fmin(a, b);
    if (high <= 0 || low < 0.05 * high) return fmax(high, 0); /* less than a billionth away from the larger */
    return high * pow(1 + pow(low / high, CORNER), 1 / CORNER);
}

static double step_of(const struct tm_compute__curve *curve, double batch)
{
    return soft_max(curve->floor_ms, curve->base_ms + curve->sample_ms * batch);
}

static bool is_conv_network(const struct tm_network *network)
{
    return network->forward.conv_flops > network->forward.matmul_flops;
}

/* Chips of one name differ in memory and clocks, which their figures tell. */
static bool same_chip(const char *a, const char *b)
{
    size_t length = strcspn(a, "-");
    return length == strcspn(b, "-") && memcmp(a, b, length) == 0;
}

static enum tm_compute_kind kind_of(const struct tm_network *network, enum tm_precision precision)
{
    if (!is_conv_network(network)) return TM_COMPUTE_PRODUCTS;
    return tm_precision_value_bytes(precision) < 4 ? TM_COMPUTE_CONV_16 : TM_COMPUTE_CONV_32;
}

/* The unknowns as this GPU has them. */
static void shares_on(const struct tm_compute_model *model, const char *name, const double *common, double *x)
{
    memcpy(x, common, sizeof model->x);
    for (size_t i = 0; i < model->gpu_count; i++) {
        if (same_chip(model->gpus[i].name, name)) x[X_ATTENTION] -= model->gpus[i].log_attention;
    }
}

/* What is known of a GPU with networks of this kind; where nobody has measured that, others hardly tell. Convolutions
 * in one width tell a little of those in the other. */
static struct tm_compute_factor find_gpu(const struct tm_compute_model *model, const char *name,
                                         const struct tm_network *network, enum tm_precision precision)
{
    enum tm_compute_kind kind = kind_of(network, precision);
    struct tm_compute_factor unknown = {.spread = model->gpu_count > 0 ? GPU_SPREAD : 0};
    for (size_t i = 0; i < model->gpu_count; i++) {
        const struct tm_compute_gpu *gpu = &model->gpus[i];
        if (!same_chip(gpu->name, name)) continue;
        if (i == 0 || gpu->factors[kind].measured) return gpu->factors[kind];
        if (kind == TM_COMPUTE_PRODUCTS) return unknown;
        unknown.log_factor =
            gpu->factors[kind == TM_COMPUTE_CONV_16 ? TM_COMPUTE_CONV_32 : TM_COMPUTE_CONV_16].log_factor;
        return unknown;
    }
    return unknown;
}

bool tm_compute_is_measured(const struct tm_compute_model *model, const struct tm_network *network, const char *gpu,
                            enum tm_precision precision)
{
    for (size_t i = 0; i < model->gpu_count; i++) {
        if (same_chip(model->gpus[i].name, gpu))
            return i == 0 || model->gpus[i].factors[kind_of(network, precision)].measured;
    }
    return false;
}

static void scale_gpu(struct tm_compute__curve *curve, double factor)
{
    curve->base_ms *= factor;
    curve->sample_ms *= factor;
}

static double scatter_on(const struct tm_compute_model *model, const char *name)
{
    for (size_t i = 0; i < model->gpu_count; i++) {
        if (same_chip(model->gpus[i].name, name)) return model->gpus[i].scatter;
    }
    return 0;
}

int tm_compute__curve(const struct tm_compute_model *model, const struct tm_network *network,
                      const struct tm_gpu_figures *gpu, enum tm_precision precision, struct tm_compute__curve *out,
                      struct tm_error *e)
{
    if (!(gpu->flops[precision] > 0) || !(gpu->memory_bytes_s > 0))
        return tm_error_set(e, TM_EINPUT, "%s has no %s mode; try %s", gpu->name, tm_precision_names[precision],
                            gpu->flops[TM_FP16] > 0 ? "fp16" : "fp32");
    double x[TM_COMPUTE_UNKNOWNS];
    shares_on(model, gpu->name, model->x, x);
    *out = curve_at(x, network, gpu, precision);
    struct tm_compute_factor known = find_gpu(model, gpu->name, network, precision);
    scale_gpu(out, exp(known.log_factor));
    out->floor_spread = model->floor_spread;
    double products = fmax(model->product_spread, scatter_on(model, gpu->name));
    out->gpu_spread = hypot(is_conv_network(network) ? model->conv_spread : products, known.spread);
    return 0;
}

double tm_compute__mean_ms(const struct tm_compute__curve *curve, double batch)
{
    return step_of(curve, batch);
}

struct tm_estimate tm_compute__step_ms(const struct tm_compute__curve *curve, double batch)
{
    double gpu_ms = curve->base_ms + curve->sample_ms * batch;
    double step = soft_max(curve->floor_ms, gpu_ms);
    /* The spread of whichever sets the pace; between them a mixture. */
    double share = pow(gpu_ms, CORNER) / (pow(gpu_ms, CORNER) + pow(curve->floor_ms, CORNER));
    double spread = share * curve->gpu_spread + (1 - share) * curve->floor_spread;
    return tm_estimate_around(step, spread);
}

/* ---- learning from others ---- */

struct learn_context {
    const struct tm_compute_cell *cells;
    const struct tm_compute_model *model; /* what is known of single GPUs */
};

static double learn_residual(const void *context, const double *x, size_t i)
{
    const struct tm_compute_cell *cell = &((const struct learn_context *)context)->cells[i];
    const struct tm_compute_model *model = ((const struct learn_context *)context)->model;
    double own[TM_COMPUTE_UNKNOWNS];
    shares_on(model, cell->gpu.name, x, own);
    struct tm_compute__curve curve = curve_at(own, &cell->network, &cell->gpu, cell->precision);
    scale_gpu(&curve, exp(find_gpu(model, cell->gpu.name, &cell->network, cell->precision).log_factor));
    return log(step_of(&curve, cell->batch) / cell->step_ms) / MODEL_NOISE;
}

struct tm_compute_model tm_compute_prior(void)
{
    struct tm_compute_model model = {.conv_spread = PRIOR_NETWORK_SPREAD,
                                     .product_spread = PRIOR_NETWORK_SPREAD,
                                     .floor_spread = PRIOR_NETWORK_SPREAD};
    for (size_t i = 0; i < TM_COMPUTE_UNKNOWNS; i++)
        model.x[i] = prior_x[i];
    return model;
}

enum pacer { PACED_BY_HOST, PACED_BY_CONV, PACED_BY_PRODUCTS };

static enum pacer pacer_of(const struct tm_compute_cell *cell, const double *x)
{
    struct tm_compute__curve curve = curve_at(x, &cell->network, &cell->gpu, cell->precision);
    if (curve.base_ms + curve.sample_ms * cell->batch < 1.3 * curve.floor_ms) return PACED_BY_HOST;
    return is_conv_network(&cell->network) ? PACED_BY_CONV : PACED_BY_PRODUCTS;
}

/* How much longer than the common fit says the cells of a GPU take, as far as they outweigh that they should not with
 * networks of this kind. The first round takes them all alike; then those that lie far from the
 * rest count less, since some of them contain what is not the GPU's: communication, slow loaders. */
static void learn_factor(const struct learn_context *context, size_t count, const char *name, enum tm_compute_kind kind,
                         struct tm_compute_factor *out)
{
    enum { ROUNDS = 6, FEW = 3 }; /* of so few none is called far from the rest */
    size_t seen = 0;
    const double *x = context->model->x;
    for (int round = 0; round < ROUNDS; round++) {
        double sum = 0;
        double weight = GPU_CELL_NOISE * GPU_CELL_NOISE / (GPU_SPREAD * GPU_SPREAD);
        for (size_t i = 0; i < count; i++) {
            const struct tm_compute_cell *cell = &context->cells[i];
            if (!same_chip(cell->gpu.name, name) || kind_of(&cell->network, cell->precision) != kind) continue;
            if (pacer_of(cell, x) == PACED_BY_HOST) continue;
            double known = find_gpu(context->model, name, &cell->network, cell->precision).log_factor;
            double says = known - learn_residual(context, x, i) * MODEL_NOISE;
            double off = (says - out->log_factor) / GPU_OUTLIER;
            double counts = round == 0 || seen <= FEW ? 1 : 1 / (1 + off * off);
            sum += counts * says;
            weight += counts;
            if (round == 0) seen++;
        }
        out->log_factor = sum / weight;
        out->spread = GPU_CELL_NOISE / sqrt(weight);
    }
    out->measured = seen > 0;
}

/* What half of the cells of a GPU lie within, as one standard deviation; 0 of few. */
static double scatter_of(const struct learn_context *context, size_t count, const char *name)
{
    enum { FEW = 8 };
    double low = 0;
    double high = 0.6;
    for (int i = 0; i < 12; i++) {
        double middle = (low + high) / 2;
        double cells = 0;
        double within = 0;
        for (size_t k = 0; k < count; k++) {
            const struct tm_compute_cell *cell = &context->cells[k];
            if (!same_chip(cell->gpu.name, name) || is_conv_network(&cell->network)) continue;
            cells++;
            if (fabs(learn_residual(context, context->model->x, k) * MODEL_NOISE) <= middle) within++;
        }
        if (cells < FEW) return 0;
        *(within >= 0.5 * cells ? &high : &low) = middle;
    }
    return COVERED * high / 0.6745;
}

/* How badly the cells of a GPU are met if fused attention takes exp(log_attention) times as long there; those far off
 * count less, and so does what differs from all others. */
static double attention_misfit(const struct learn_context *context, size_t count, struct tm_compute_gpu *gpu)
{
    struct tm_compute_model model = *context->model;
    struct learn_context own = {context->cells, &model};
    model.gpus[0] = *gpu;
    model.gpu_count = 1;
    learn_factor(&own, count, gpu->name, TM_COMPUTE_PRODUCTS, &model.gpus[0].factors[TM_COMPUTE_PRODUCTS]);
    gpu->factors[TM_COMPUTE_PRODUCTS] = model.gpus[0].factors[TM_COMPUTE_PRODUCTS];
    double sum = gpu->log_attention * gpu->log_attention / (ATTENTION_REACH * ATTENTION_REACH);
    for (size_t i = 0; i < count; i++) {
        const struct tm_compute_cell *cell = &context->cells[i];
        if (!same_chip(cell->gpu.name, gpu->name) || is_conv_network(&cell->network)) continue;
        double off = learn_residual(&own, model.x, i) * MODEL_NOISE / GPU_CELL_NOISE;
        sum += log1p(off * off);
    }
    return sum;
}

/* Kernels of fused attention are written for one GPU after the other: a GPU's published rates may be of older ones. */
static void learn_attention(const struct learn_context *context, size_t count, struct tm_compute_gpu *gpu)
{
    static const double STEP = 0.05;
    enum { STEPS = 20 }; /* to 2.7 times as long, and to as much less */
    double best = INFINITY;
    struct tm_compute_gpu tried = *gpu;
    for (int i = -STEPS; i <= STEPS; i++) {
        tried.log_attention = i * STEP;
        double misfit = attention_misfit(context, count, &tried);
        if (!(misfit < best)) continue;
        best = misfit;
        *gpu = tried;
    }
}

/* The first GPU is what the common fit is of: most cells are its own. */
static void learn_gpus(const struct learn_context *context, size_t count, struct tm_compute_model *model)
{
    struct tm_compute_gpu gpus[TM_COMPUTE_GPUS_MAX] = {{.name = ""}};
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = context->cells[i].gpu.name;
        size_t length = strcspn(name, "-");
        bool seen = false;
        for (size_t k = 0; k < made && !seen; k++)
            seen = same_chip(gpus[k].name, name);
        if (seen || made == TM_COMPUTE_GPUS_MAX || length >= sizeof gpus->name) continue;
        memcpy(gpus[made].name, name, length);
        if (made > 0) learn_attention(context, count, &gpus[made]);
        for (int kind = TM_COMPUTE_PRODUCTS + 1; made > 0 && kind < TM_COMPUTE_KINDS; kind++)
            learn_factor(context, count, gpus[made].name, (enum tm_compute_kind)kind, &gpus[made].factors[kind]);
        made++;
    }
    memcpy(model->gpus, gpus, sizeof gpus);
    model->gpu_count = made;
}

/* How many cells with this pacer lie within `reach` of the fit; *out_all: of how many. */
static double count_within(const struct learn_context *context, size_t count, enum pacer pacer, double reach,
                           double *out_all)
{
    double within = 0;
    *out_all = 0;
    for (size_t i = 0; i < count; i++) {
        if (pacer_of(&context->cells[i], context->model->x) != pacer) continue;
        *out_all += 1;
        if (fabs(learn_residual(context, context->model->x, i) * MODEL_NOISE) <= reach) within++;
    }
    return within;
}

/* Error on a network not seen, as a standard deviation, from what four of five cells of the fit lie within. */
static double spread_of(const struct learn_context *context, size_t count, enum pacer pacer, double least)
{
    double low = 0;
    double high = 0.6;
    double cells = 0;
    for (int i = 0; i < 12; i++) {
        double middle = (low + high) / 2;
        double within = count_within(context, count, pacer, middle, &cells);
        *(within >= 0.8 * cells ? &high : &low) = middle;
    }
    double covered = pacer == PACED_BY_HOST ? HOST_COVERED : COVERED;
    double fitted = cells > 0 ? covered * high / 1.2816 : PRIOR_NETWORK_SPREAD;
    double known = cells / (cells + 2);
    double spread = fmax(fitted, least);
    return sqrt(known * spread * spread + (1 - known) * PRIOR_NETWORK_SPREAD * PRIOR_NETWORK_SPREAD);
}

static int check_cells(const struct tm_compute_cell *cells, size_t count, struct tm_error *e)
{
    for (size_t i = 0; i < count; i++) {
        if (!(cells[i].gpu.flops[cells[i].precision] > 0))
            return tm_error_set(e, TM_EINPUT, "a measured step uses %s, which %s does not support",
                                tm_precision_names[cells[i].precision], cells[i].gpu.name);
    }
    return 0;
}

int tm_compute_learn(const struct tm_compute_cell *cells, size_t count, struct tm_compute_model *out,
                     struct tm_error *e)
{
    enum { ROUNDS = 3 }; /* shares that all have in common, then what single GPUs add to them, in turn */
    struct tm_compute_model model = tm_compute_prior();
    struct learn_context context = {cells, &model};
    struct tm_fit fit = {.unknowns = TM_COMPUTE_UNKNOWNS,
                         .residuals = count,
                         .prior = prior_x,
                         .spread = prior_spread,
                         .robust = 0.25,
                         .residual = learn_residual,
                         .context = &context};
    int rc = check_cells(cells, count, e);
    for (int round = 0; rc == 0 && round < ROUNDS; round++) {
        double x[TM_COMPUTE_UNKNOWNS];
        rc = tm_fit__solve(&fit, x, e);
        if (rc != 0) return rc;
        memcpy(model.x, x, sizeof x);
        learn_gpus(&context, count, &model);
        if (model.gpu_count < 2) break;
    }
    if (rc != 0) return rc;
    model.conv_spread = spread_of(&context, count, PACED_BY_CONV, 0.08);
    model.product_spread = spread_of(&context, count, PACED_BY_PRODUCTS, 0.05);
    model.floor_spread = spread_of(&context, count, PACED_BY_HOST, 0.08);
    for (size_t i = 1; i < model.gpu_count; i++)
        model.gpus[i].scatter = scatter_of(&context, count, model.gpus[i].name);
    *out = model;
    return 0;
}

/* ---- tuning one curve to its own measurements ---- */

enum { T_FLOOR, T_SLOPE, T_BASE, TUNE_UNKNOWNS };

struct tune_context {
    struct tm_compute__curve curve;
    const int *batches;
    const double *step_ms;
};

static struct tm_compute__curve moved(const struct tm_compute__curve *curve, const double *x)
{
    struct tm_compute__curve fresh = *curve;
    fresh.floor_ms *= exp(x[T_FLOOR]);
    fresh.sample_ms *= exp(x[T_SLOPE]);
    fresh.base_ms *= exp(x[T_BASE]);
    return fresh;
}

static bool host_paces(const struct tm_compute__curve *curve, double batch)
{
    return curve->base_ms + curve->sample_ms * batch < 1.3 * curve->floor_ms;
}

static double tune_residual(const void *context, const double *x, size_t i)
{
    const struct tune_context *tune = context;
    struct tm_compute__curve curve = moved(&tune->curve, x);
    double noise = host_paces(&curve, tune->batches[i]) ? FLOOR_NOISE : GPU_NOISE;
    return log(step_of(&curve, tune->batches[i]) / tune->step_ms[i]) / noise;
}

/* How sure the tuned curve is: measurements shrink the spread of the part that they lie in. */
static void update_spreads(struct tm_compute__curve *curve, const int *batches, size_t count)
{
    size_t host = 0;
    size_t gpu = 0;
    for (size_t i = 0; i < count; i++) {
        if (host_paces(curve, batches[i]))
            host++;
        else
            gpu++;
    }
    /* What is left is the run-to-run spread of the cell itself, and how well few cells pin the curve. */
    if (host > 0) curve->floor_spread = sqrt(FLOOR_NOISE * FLOOR_NOISE * (1 + 1 / (double)host));
    if (gpu > 0) curve->gpu_spread = sqrt(GPU_NOISE * GPU_NOISE * (1 + 1 / (double)gpu) + 0.02 * 0.02 / (double)gpu);
}

int tm_compute__tune(struct tm_compute__curve *curve, double floor_spread, const int *batches, const double *step_ms,
                     size_t count, struct tm_error *e)
{
    static const double prior[TUNE_UNKNOWNS] = {0, 0, 0};
    const double spread[TUNE_UNKNOWNS] = {floor_spread, 0.5, 0.5};
    struct tune_context context = {*curve, batches, step_ms};
    struct tm_fit fit = {.unknowns = TUNE_UNKNOWNS,
                         .residuals = count,
                         .prior = prior,
                         .spread = spread,
                         .robust = 3,
                         .residual = tune_residual,
                         .context = &context};
    double x[TUNE_UNKNOWNS];
    for (size_t i = 0; i < count; i++) {
        if (!(step_ms[i] > 0) || batches[i] < 1)
            return tm_error_set(e, TM_EINPUT, "measured step %zu: expected a batch and a time above 0", i + 1);
    }
    if (count == 0) return 0;
    int rc = tm_fit__solve(&fit, x, e);
    if (rc != 0) return rc;
    *curve = moved(curve, x);
    update_spreads(curve, batches, count);
    return 0;
}
