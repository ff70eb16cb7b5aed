#include "plan/deepvm.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { SIMULATION_COUNT_MAX = 255 };

/* The released table, looked up exactly. */
static const struct {
    double gbps;
    int instances;
} saturation[] = {{0.3, 2}, {1.7, 12}, {5, 16}, {10, 20}, {12.5, 24}, {15, 24}, {25, 28}, {30, 32}};

int tm_deepvm__saturation(double gbps)
{
    for (size_t i = 0; i < sizeof saturation / sizeof *saturation; i++) {
        if (saturation[i].gbps == gbps) return saturation[i].instances;
    }
    return 0;
}

static bool has_gpu(const struct tm_deepvm_instance *instance)
{
    return strcmp(instance->class_name, "G") == 0 || strcmp(instance->class_name, "P") == 0;
}

double tm_deepvm_scaling(const struct tm_deepvm_instance *gpu, int n)
{
    if (n <= gpu->b) return 1;
    double curve = gpu->c / (1 + exp(-gpu->a * (n - gpu->b)));
    double tangent = gpu->c * gpu->a / 4 * (n - gpu->b) + gpu->c / 2;
    return curve / tangent;
}

static double flopp(const struct tm_deepvm_instance *gpu)
{
    return gpu->flops / gpu->spot_usd_h * 3600;
}

/* Largest count: the quota's, less one (the released ranges exclude their end). */
static int count_max(const struct tm_deepvm_data *data, const struct tm_deepvm_instance *instance, bool spot)
{
    if (data->variant == TM_DEEPVM_SIMULATION) return SIMULATION_COUNT_MAX;
    for (size_t i = 0; i < data->quota_count; i++) {
        if (strcmp(data->quotas[i].class_name, instance->class_name) != 0) continue;
        double vcpus = spot ? data->quotas[i].spot_vcpus : data->quotas[i].on_demand_vcpus;
        return (int)floor(vcpus / instance->vcpus) - 1;
    }
    return 0;
}

static double score_of(const struct tm_deepvm_data *data, const struct tm_deepvm_instance *gpu, int n, double k)
{
    if (data->variant == TM_DEEPVM_SIMULATION) return gpu->flops * n * k * n;
    return gpu->flops * k * n;
}

/* ---- the best few, in the order of enumeration among equals ---- */

struct best {
    struct tm_deepvm_answer *answers;
    size_t count;
    size_t top;
};

/* Behind all that are at least as good: a stable descending sort, cut at `top`. */
static void offer(struct best *best, const struct tm_deepvm_answer *answer)
{
    if (best->count == best->top && answer->z <= best->answers[best->count - 1].z) return;
    size_t at = best->count;
    while (at > 0 && best->answers[at - 1].z < answer->z)
        at--;
    if (best->count < best->top) best->count++;
    for (size_t i = best->count - 1; i > at; i--)
        best->answers[i] = best->answers[i - 1];
    best->answers[at] = *answer;
}

static bool is_good_enough(const struct best *best, double z)
{
    return best->count < best->top || z > best->answers[best->count - 1].z;
}

/* ---- the two searches ---- */

/* All (n, m) of one pair of types. Z does not depend on m, so that only the `top` smallest m can matter; and the
 * smallest m that the network allows is n / n_sat, rounded down, plus one. */
static void search_pair(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request,
                        const struct tm_deepvm_instance *gpu, const struct tm_deepvm_instance *remote,
                        int instances_per_remote, const double *z, const double *k, struct best *best)
{
    int n_max = count_max(data, gpu, true);
    int m_max = count_max(data, remote, false);
    for (int n = 1; n <= n_max; n++) {
        if (!is_good_enough(best, z[n])) continue;
        int m = n / instances_per_remote + 1;
        for (size_t i = 0; i < best->top && m <= m_max; i++, m++) {
            double price = gpu->spot_usd_h * n + remote->on_demand_usd_h * m;
            if (!(price <= request->max_usd_h)) break;
            struct tm_deepvm_answer answer = {.architecture = TM_DEEPVM_TIERING,
                                              .gpu = gpu,
                                              .gpu_instances = n,
                                              .anchor = remote,
                                              .anchor_instances = m,
                                              .price_usd_h = price,
                                              .z = z[n],
                                              .k = k[n],
                                              .score = score_of(data, gpu, n, k[n])};
            offer(best, &answer);
        }
    }
}

static int search_tiering(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request, bool scale,
                          struct best *best, struct tm_error *e)
{
    double z[SIMULATION_COUNT_MAX + 1] = {0};
    double k[SIMULATION_COUNT_MAX + 1] = {0};
    for (size_t v = 0; v < data->instance_count; v++) {
        const struct tm_deepvm_instance *gpu = &data->instances[v];
        if (!has_gpu(gpu)) continue;
        for (int n = 1; n <= count_max(data, gpu, true); n++) {
            k[n] = tm_deepvm_scaling(gpu, n);
            z[n] = flopp(gpu) * (scale ? k[n] : 1) * n;
        }
        for (size_t w = 0; w < data->instance_count; w++) {
            const struct tm_deepvm_instance *remote = &data->instances[w];
            if (has_gpu(remote) || remote->memory_gib < request->checkpoint_size * request->buffer) continue;
            double gbps = fmin(gpu->network_gbps, remote->network_gbps);
            int instances = tm_deepvm__saturation(gbps);
            if (instances == 0)
                return tm_error_set(e, TM_EINPUT,
                                    "%s with %s: DeepVM's table has no entry for %g Gbit/s; it knows 0.3, 1.7, 5, 10, "
                                    "12.5, 15, 25 and 30",
                                    gpu->name, remote->name, gbps);
            search_pair(data, request, gpu, remote, instances, z, k, best);
        }
    }
    return 0;
}

static void search_single_anchor(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request, bool scale,
                                 struct best *best)
{
    for (size_t v = 0; v < data->instance_count; v++) {
        const struct tm_deepvm_instance *gpu = &data->instances[v];
        if (!has_gpu(gpu)) continue;
        for (int n = 2; n <= count_max(data, gpu, true); n++) {
            double price = gpu->spot_usd_h * (n - 1) + gpu->on_demand_usd_h;
            if (!(price <= request->max_usd_h)) break;
            double k = tm_deepvm_scaling(gpu, n);
            struct tm_deepvm_answer answer = {.architecture = TM_DEEPVM_SINGLE_ANCHOR,
                                              .gpu = gpu,
                                              .gpu_instances = n,
                                              .price_usd_h = price,
                                              .z = flopp(gpu) * n * (scale ? k : 1), /* not the order of Tiering */
                                              .k = k,
                                              .score = score_of(data, gpu, n, k)};
            offer(best, &answer);
        }
    }
}

/* Both searches and the final stage. */
static int plan_deepvm(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request,
                       struct tm_deepvm_answer *answers, size_t *out_count, struct tm_error *e)
{
    bool scale = request->planner == TM_DEEPVM;
    bool one = !scale || data->variant == TM_DEEPVM_SIMULATION;
    size_t top = one ? 1 : request->top;
    struct tm_deepvm_answer anchored[TM_DEEPVM_TOP_MAX];
    struct best tiering = {.answers = answers, .top = top};
    struct best single = {.answers = anchored, .top = top};
    int rc = 0;
    if (request->architecture != TM_DEEPVM_SINGLE_ANCHOR) rc = search_tiering(data, request, scale, &tiering, e);
    if (rc != 0) return rc;
    if (request->architecture != TM_DEEPVM_TIERING) search_single_anchor(data, request, scale, &single);
    /* Where one answer is given, Tiering must be strictly better; in the list of several it comes first among equals.
     */
    bool tie = one && tiering.count > 0 && single.count > 0 && single.answers[0].z == tiering.answers[0].z;
    if (tie) tiering.answers[0] = single.answers[0];
    for (size_t i = 0; i < single.count && !tie; i++)
        offer(&tiering, &single.answers[i]);
    *out_count = tiering.count;
    return 0;
}

/* ---- the baselines ---- */

/* Python's x // y for positive numbers. */
static double floor_divide(double x, double y)
{
    double quotient = (x - fmod(x, y)) / y;
    double floored = floor(quotient);
    return quotient - floored > 0.5 ? floored + 1 : floored;
}

/* As many spot instances as the budget leaves beside one on demand; 0: not even one. */
static int spot_instances(const struct tm_deepvm_data *data, const struct tm_deepvm_instance *gpu, double max_usd_h,
                          bool at_least_one)
{
    if (!(max_usd_h >= gpu->on_demand_usd_h + gpu->spot_usd_h)) return 0;
    double k = floor_divide(max_usd_h - gpu->on_demand_usd_h, gpu->spot_usd_h);
    if (at_least_one) k = fmax(k, 1);
    if (data->variant == TM_DEEPVM_RUN) k = fmin(k, count_max(data, gpu, true));
    if (k > INT32_MAX) k = INT32_MAX;
    return k * gpu->spot_usd_h + gpu->on_demand_usd_h <= max_usd_h ? (int)k : 0;
}

static struct tm_deepvm_answer baseline_answer(const struct tm_deepvm_data *data, const struct tm_deepvm_instance *gpu,
                                               int spot)
{
    double k = tm_deepvm_scaling(gpu, spot + 1);
    return (struct tm_deepvm_answer){.architecture = TM_DEEPVM_SINGLE_ANCHOR,
                                     .gpu = gpu,
                                     .gpu_instances = spot + 1,
                                     .price_usd_h = spot * gpu->spot_usd_h + gpu->on_demand_usd_h,
                                     .z = NAN,
                                     .k = k,
                                     .score = score_of(data, gpu, spot + 1, k)};
}

/* Most instances; the earlier type keeps a tie. */
static void plan_cost_first(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request,
                            struct tm_deepvm_answer *answers, size_t *out_count)
{
    for (size_t v = 0; v < data->instance_count; v++) {
        const struct tm_deepvm_instance *gpu = &data->instances[v];
        if (strcmp(gpu->class_name, "G") != 0) continue;
        int spot = spot_instances(data, gpu, request->max_usd_h, false);
        if (spot == 0 || (*out_count > 0 && spot + 1 <= answers[0].gpu_instances)) continue;
        answers[0] = baseline_answer(data, gpu, spot);
        *out_count = 1;
    }
}

/* The fastest type that can be afforded at all. */
static void plan_perf_first(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request,
                            struct tm_deepvm_answer *answers, size_t *out_count)
{
    const struct tm_deepvm_instance *best = NULL;
    int best_spot = 0;
    for (size_t v = 0; v < data->instance_count; v++) {
        const struct tm_deepvm_instance *gpu = &data->instances[v];
        if (strcmp(gpu->class_name, "G") != 0 || (best != NULL && gpu->flops <= best->flops)) continue;
        int spot = spot_instances(data, gpu, request->max_usd_h, true);
        if (spot == 0) continue;
        best = gpu;
        best_spot = spot;
    }
    if (best == NULL) return;
    answers[0] = baseline_answer(data, best, best_spot);
    *out_count = 1;
}

int tm_deepvm_plan(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request,
                   struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX], size_t *out_count, struct tm_error *e)
{
    *out_count = 0;
    if (request->top < 1 || request->top > TM_DEEPVM_TOP_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected from 1 to %d answers", TM_DEEPVM_TOP_MAX);
    if (!(request->max_usd_h >= 0)) return tm_error_set(e, TM_EUSAGE, "expected a price per hour of 0 or more");
    switch (request->planner) {
    case TM_DEEPVM_COST_FIRST:
        plan_cost_first(data, request, answers, out_count);
        return 0;
    case TM_DEEPVM_PERF_FIRST:
        plan_perf_first(data, request, answers, out_count);
        return 0;
    default:
        return plan_deepvm(data, request, answers, out_count, e);
    }
}
