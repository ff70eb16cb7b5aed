#include "workload/compute.h"

#include "workload/fit.h"

#include <math.h>

/* The unknowns, all as logarithms. 16-bit formats and 32-bit ones differ in how well kernels use the hardware and in
 * what the framework adds (casts), so that shares and launch times come in pairs. */
enum {
    X_CONV,        /* + 1: share of peak reached by convolutions; 16 bit, 32 bit */
    X_MATMUL = 2,  /* + 1: by matrix products */
    X_TRAFFIC = 4, /* + 1: share of the memory bandwidth */
    X_WEIGHTS = 6, /* ms per 10^9 parameters that a step spends on weights, whatever the batch */
    X_SMALL,       /* ms per 1,000 ops of kernels too small to fill the GPU */
    X_HOST,        /* ms per step on the host */
    X_LAUNCH,      /* + 1: ms per op on the host */
};

/* Physics and experience: half of peak, 60% of bandwidth; weights are read and written some 15 times at 4.8 TB/s;
 * a launch in eager mode costs about 0.1 ms for forward, backward and the framework around it. */
static const double prior_x[TM_COMPUTE_UNKNOWNS] = {
    -0.693147, -0.693147, -0.693147, -0.693147, -0.510826, -0.510826,
    2.708050,  2.995732,  1.386294,  -2.040221, -2.207275,
};
static const double prior_spread[TM_COMPUTE_UNKNOWNS] = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 0.5, 0.4, 0.4};

static const double CORNER = 6.4;       /* p of the soft corner */
static const double MODEL_NOISE = 0.6;  /* of one cell around the common model: cells of a network err together */
static const double FLOOR_NOISE = 0.08; /* of a measurement that the host paces */
static const double GPU_NOISE = 0.02;   /* of one that the GPU paces */
static const double PRIOR_NETWORK_SPREAD = 0.30;

struct tm_network tm_network_of(const struct tm_layer *layers, size_t count)
{
    struct tm_network network = {0};
    for (size_t i = 0; i < count; i++) {
        const struct tm_layer *layer = &layers[i];
        bool conv = layer->kind == TM_LAYER_conv || layer->kind == TM_LAYER_depthwise;
        *(conv ? &network.conv_flops : &network.matmul_flops) += layer->forward_flops;
        network.traffic_values += layer->traffic_values;
        network.ops += layer->ops;
        network.params += layer->params;
    }
    return network;
}

struct tm_network tm_network_of_totals(double params, double train_gflop_per_sample)
{
    double forward_flops = train_gflop_per_sample * 1e9 / 3;
    return (struct tm_network){
        .matmul_flops = forward_flops,
        .traffic_values = forward_flops / 250, /* transformers and residual networks lie between 100 and 350 */
        .ops = 20 * sqrt(params / 1e6),        /* 25 M: 100, 355 M: 380, 1.5 B: 780 */
        .params = params,
    };
}

/* ---- the curve ---- */

static struct tm_compute_curve curve_at(const double *x, const struct tm_network *network,
                                        const struct tm_gpu_figures *gpu, enum tm_precision precision)
{
    double bytes = tm_precision_value_bytes(precision);
    int pair = bytes < 4 ? 0 : 1;
    double peak = gpu->flops[precision];
    /* Three forward passes' worth of work make a training step: forward, gradients of inputs, gradients of weights. */
    double seconds = 3 * network->conv_flops / (peak * exp(x[X_CONV + pair])) +
                     3 * network->matmul_flops / (peak * exp(x[X_MATMUL + pair])) +
                     3 * network->traffic_values * bytes / (gpu->memory_bytes_s * exp(x[X_TRAFFIC + pair]));
    double bandwidth_ratio = 4.8e12 / gpu->memory_bytes_s; /* X_WEIGHTS is in terms of the GPU it was first seen on */
    return (struct tm_compute_curve){
        .floor_ms = exp(x[X_HOST]) + exp(x[X_LAUNCH + pair]) * network->ops,
        .base_ms = exp(x[X_WEIGHTS]) * network->params / 1e9 * bandwidth_ratio + exp(x[X_SMALL]) * network->ops / 1e3,
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

static double step_of(const struct tm_compute_curve *curve, double batch)
{
    return soft_max(curve->floor_ms, curve->base_ms + curve->sample_ms * batch);
}

int tm_compute_curve(const struct tm_compute_model *model, const struct tm_network *network,
                     const struct tm_gpu_figures *gpu, enum tm_precision precision, struct tm_compute_curve *out,
                     struct tm_error *e)
{
    if (!(gpu->flops[precision] > 0) || !(gpu->memory_bytes_s > 0))
        return tm_error_set(e, TM_EINPUT, "%s has no %s mode; try fp32", gpu->name, tm_precision_names[precision]);
    *out = curve_at(model->x, network, gpu, precision);
    out->floor_spread = model->network_spread;
    out->gpu_spread = model->network_spread;
    return 0;
}

double tm_compute_mean_ms(const struct tm_compute_curve *curve, double batch)
{
    return step_of(curve, batch);
}

struct tm_estimate tm_compute_step_ms(const struct tm_compute_curve *curve, double batch)
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
};

static double learn_residual(const void *context, const double *x, size_t i)
{
    const struct tm_compute_cell *cell = &((const struct learn_context *)context)->cells[i];
    struct tm_compute_curve curve = curve_at(x, &cell->network, &cell->gpu, cell->precision);
    return log(step_of(&curve, cell->batch) / cell->step_ms) / MODEL_NOISE;
}

struct tm_compute_model tm_compute_prior(void)
{
    struct tm_compute_model model = {.network_spread = PRIOR_NETWORK_SPREAD};
    for (size_t i = 0; i < TM_COMPUTE_UNKNOWNS; i++)
        model.x[i] = prior_x[i];
    return model;
}

int tm_compute_learn(const struct tm_compute_cell *cells, size_t count, struct tm_compute_model *out,
                     struct tm_error *e)
{
    struct learn_context context = {cells};
    struct tm_compute_model model = tm_compute_prior();
    for (size_t i = 0; i < count; i++) {
        if (!(cells[i].gpu.flops[cells[i].precision] > 0))
            return tm_error_set(e, TM_EINPUT, "a measured step is of %s, which %s has not",
                                tm_precision_names[cells[i].precision], cells[i].gpu.name);
    }
    struct tm_fit fit = {.unknowns = TM_COMPUTE_UNKNOWNS,
                         .residuals = count,
                         .prior = prior_x,
                         .spread = prior_spread,
                         .robust = 0.25,
                         .residual = learn_residual,
                         .context = &context};
    int rc = tm_fit_solve(&fit, model.x, e);
    if (rc != 0) return rc;
    /* Error on a network not seen: that of the fit, and never below what leaving networks out has shown. */
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double off = learn_residual(&context, model.x, i) * MODEL_NOISE;
        sum += fmin(off * off, 0.25);
    }
    double fitted = count > 0 ? sqrt(sum / (double)count) : PRIOR_NETWORK_SPREAD;
    double known = (double)count / ((double)count + 20);
    model.network_spread =
        sqrt(known * fmax(fitted * fitted, 0.14 * 0.14) + (1 - known) * PRIOR_NETWORK_SPREAD * PRIOR_NETWORK_SPREAD);
    *out = model;
    return 0;
}

/* ---- tuning one curve to its own measurements ---- */

enum { T_FLOOR, T_SLOPE, T_BASE, TUNE_UNKNOWNS };

struct tune_context {
    struct tm_compute_curve curve;
    const int *batches;
    const double *step_ms;
};

static struct tm_compute_curve moved(const struct tm_compute_curve *curve, const double *x)
{
    struct tm_compute_curve fresh = *curve;
    fresh.floor_ms *= exp(x[T_FLOOR]);
    fresh.sample_ms *= exp(x[T_SLOPE]);
    fresh.base_ms *= exp(x[T_BASE]);
    return fresh;
}

static bool host_paces(const struct tm_compute_curve *curve, double batch)
{
    return curve->base_ms + curve->sample_ms * batch < 1.3 * curve->floor_ms;
}

static double tune_residual(const void *context, const double *x, size_t i)
{
    const struct tune_context *tune = context;
    struct tm_compute_curve curve = moved(&tune->curve, x);
    double noise = host_paces(&curve, tune->batches[i]) ? FLOOR_NOISE : GPU_NOISE;
    return log(step_of(&curve, tune->batches[i]) / tune->step_ms[i]) / noise;
}

/* How sure the tuned curve is: measurements shrink the spread of the part that they lie in. */
static void update_spreads(struct tm_compute_curve *curve, const int *batches, size_t count)
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

int tm_compute_tune(struct tm_compute_curve *curve, double floor_spread, const int *batches, const double *step_ms,
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
    int rc = tm_fit_solve(&fit, x, e);
    if (rc != 0) return rc;
    *curve = moved(curve, x);
    update_spreads(curve, batches, count);
    return 0;
}
