/* Our planner on DeepVM's data: every cluster, weighed by what it gives. */
#include "plan/deepvm.h"

#include <math.h>
#include <string.h>

enum { SIMULATION_COUNT_MAX = 255 };

struct choice {
    struct tm_deepvm_answer answer;
    double speed;
    double usd_per_work;
};

/* One best choice for each number of GPU instances of each type: what comes out is a short list. */
struct choices {
    struct choice list[TM_DEEPVM_INSTANCES_MAX];
    size_t count;
};

static bool is_gpu(const struct tm_deepvm_instance *instance)
{
    return strcmp(instance->class_name, "G") == 0 || strcmp(instance->class_name, "P") == 0;
}

/* The quota, in full. */
static int most_of(const struct tm_deepvm_data *data, const struct tm_deepvm_instance *instance, bool spot)
{
    if (data->variant == TM_DEEPVM_SIMULATION) return SIMULATION_COUNT_MAX;
    for (size_t i = 0; i < data->quota_count; i++) {
        if (strcmp(data->quotas[i].class_name, instance->class_name) != 0) continue;
        double vcpus = spot ? data->quotas[i].spot_vcpus : data->quotas[i].on_demand_vcpus;
        return (int)fmin(floor(vcpus / instance->vcpus), SIMULATION_COUNT_MAX);
    }
    return 0;
}

static double speed_of(const struct tm_deepvm_instance *gpu, int n, bool by_curve)
{
    if (!by_curve) return gpu->flops * tm_deepvm_scaling(gpu, n) * n;
    return n == 1 ? gpu->flops : gpu->flops * gpu->c / (1 + exp(-gpu->a * (n - gpu->b)));
}

static bool is_better(const struct choice *a, const struct choice *b, bool cheapest)
{
    double x = cheapest ? -a->usd_per_work : a->speed;
    double y = cheapest ? -b->usd_per_work : b->speed;
    if (fabs(x - y) > 1e-12 * fabs(y)) return x > y;
    return a->answer.price_usd_h < b->answer.price_usd_h;
}

/* Is there one that is at least as fast for at most as much an hour? */
static bool is_beaten(const struct choices *choices, const struct choice *choice)
{
    for (size_t i = 0; i < choices->count; i++) {
        const struct choice *other = &choices->list[i];
        if (other->speed >= choice->speed && other->answer.price_usd_h <= choice->answer.price_usd_h) return true;
    }
    return false;
}

/* Keeps the set in which none beats another in both speed and price. */
static void offer(struct choices *choices, const struct choice *choice)
{
    if (is_beaten(choices, choice)) return;
    size_t kept = 0;
    for (size_t i = 0; i < choices->count; i++) {
        const struct choice *other = &choices->list[i];
        if (choice->speed >= other->speed && choice->answer.price_usd_h <= other->answer.price_usd_h) continue;
        choices->list[kept++] = *other;
    }
    choices->count = kept;
    if (choices->count < TM_DEEPVM_INSTANCES_MAX) choices->list[choices->count++] = *choice;
}

static void consider(const struct tm_deepvm_request *request, const struct tm_deepvm_answer *cluster, bool cheapest,
                     struct choices *choices)
{
    if (!(cluster->price_usd_h <= request->max_usd_h)) return;
    struct choice choice = {.answer = *cluster, .speed = speed_of(cluster->gpu, cluster->gpu_instances, cheapest)};
    choice.usd_per_work = cluster->price_usd_h / choice.speed;
    choice.answer.k = tm_deepvm_scaling(cluster->gpu, cluster->gpu_instances);
    choice.answer.z = cluster->gpu->flops / cluster->gpu->spot_usd_h * 3600 * choice.answer.k * cluster->gpu_instances;
    choice.answer.score = cluster->gpu->flops * choice.answer.k * cluster->gpu_instances;
    offer(choices, &choice);
}

/* n instances of a type, with every kind of remote and without any. */
static void consider_count(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request,
                           const struct tm_deepvm_instance *gpu, int n, bool cheapest, struct choices *choices)
{
    struct tm_deepvm_answer cluster = {.architecture = TM_DEEPVM_SINGLE_ANCHOR, .gpu = gpu, .gpu_instances = n};
    cluster.price_usd_h = gpu->spot_usd_h * (n - 1) + gpu->on_demand_usd_h;
    if (request->architecture != TM_DEEPVM_TIERING && most_of(data, gpu, false) >= 1)
        consider(request, &cluster, cheapest, choices);
    for (size_t w = 0; w < data->instance_count && request->architecture != TM_DEEPVM_SINGLE_ANCHOR; w++) {
        const struct tm_deepvm_instance *remote = &data->instances[w];
        if (is_gpu(remote) || remote->memory_gib < request->checkpoint_size * request->buffer) continue;
        int each = tm_deepvm__saturation(fmin(gpu->network_gbps, remote->network_gbps));
        if (each == 0) continue;
        cluster.architecture = TM_DEEPVM_TIERING;
        cluster.anchor = remote;
        cluster.anchor_instances = n / each + 1;
        cluster.price_usd_h = gpu->spot_usd_h * n + remote->on_demand_usd_h * cluster.anchor_instances;
        if (cluster.anchor_instances <= most_of(data, remote, false)) consider(request, &cluster, cheapest, choices);
    }
}

int tm_deepvm_ours(const struct tm_deepvm_data *data, const struct tm_deepvm_request *request, bool cheapest,
                   struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX], size_t *out_count, struct tm_error *e)
{
    struct choices choices = {.count = 0};
    *out_count = 0;
    if (request->top < 1 || request->top > TM_DEEPVM_TOP_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected from 1 to %d answers", TM_DEEPVM_TOP_MAX);
    if (!(request->max_usd_h >= 0)) return tm_error_set(e, TM_EUSAGE, "expected a price per hour of 0 or more");
    for (size_t v = 0; v < data->instance_count; v++) {
        const struct tm_deepvm_instance *gpu = &data->instances[v];
        if (!is_gpu(gpu)) continue;
        for (int n = 1; n <= most_of(data, gpu, true); n++)
            consider_count(data, request, gpu, n, cheapest, &choices);
    }
    while (*out_count < request->top && choices.count > 0) {
        size_t best = 0;
        for (size_t i = 1; i < choices.count; i++) {
            if (is_better(&choices.list[i], &choices.list[best], cheapest)) best = i;
        }
        answers[(*out_count)++] = choices.list[best].answer;
        choices.list[best] = choices.list[--choices.count];
    }
    return 0;
}
