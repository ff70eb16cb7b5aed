#include "plan/search.h"

#include <math.h>
#include <string.h>

/* Counts that are tried: all small ones, then steps of a quarter; throughput per instance changes little between. */
static int next_count(int nodes)
{
    return nodes < 4 ? nodes + 1 : nodes + nodes / 4;
}

struct tm_gpu_figures tm_plan_gpu_figures(const struct tm_gpu *gpu)
{
    struct tm_gpu_figures figures = {
        .name = gpu->name, .memory_bytes_s = gpu->memory_gbyte_s * 1e9, .memory_gib = gpu->memory_gib};
    for (int p = 0; p < TM_PRECISION_COUNT; p++)
        figures.flops[p] = gpu->tflops[p] * 1e12;
    return figures;
}

/* False: its GPU or its network is not known, so nothing can be predicted. */
static bool group_of(const struct tm_catalog *catalog, const struct tm_instance *instance, struct tm_fleet_group *group)
{
    const struct tm_gpu *gpu = instance->gpu[0] != '\0' ? tm_catalog_gpu(catalog, instance->gpu) : NULL;
    if (gpu == NULL || instance->gpus < 1 || !(instance->network_gbps > 0)) return false;
    *group = (struct tm_fleet_group){.instance = instance->name,
                                     .gpu = tm_plan_gpu_figures(gpu),
                                     .gpus_per_node = (int)instance->gpus,
                                     .network_bit_s = instance->network_gbps * 1e9};
    if (!isnan(instance->gpu_memory_gib)) group->gpu.memory_gib = instance->gpu_memory_gib;
    return group->gpu.memory_bytes_s > 0;
}

static enum tm_precision precision_of(const struct tm_gpu_figures *gpu, int asked)
{
    if (asked != TM_PRECISION_MIXED) return (enum tm_precision)asked;
    return gpu->flops[TM_BF16] > 0 ? TM_BF16 : gpu->flops[TM_FP16] > 0 ? TM_FP16 : TM_FP32;
}

/* ---- weighing one fleet ---- */

struct search {
    const struct tm_catalog *catalog;
    const struct tm_plan_request *request;
    struct tm_plan_result *out;
    struct search *other; /* the same for the other planner, or NULL */
};

static double loss_rate(const struct tm_plan_request *request, const struct tm_offer *offer)
{
    if (!isnan(request->loss_per_s)) return request->loss_per_s;
    double rate = tm_expect_band_rate(offer->band);
    return isnan(rate) ? request->default_loss_per_s : rate;
}

static struct tm_expectation weigh(const struct search *search, const struct tm_plan_answer *answer, bool losses)
{
    const struct tm_estimate *step = &answer->prediction.step_s;
    double batch = search->request->batch;
    struct tm_expect_fleet fleet = {.samples_per_s = {batch / step->mean, batch / step->p90, batch / step->p10},
                                    .spot_nodes = answer->spot_nodes,
                                    .on_demand_nodes = answer->on_demand_nodes,
                                    .loss_per_s = losses ? loss_rate(search->request, answer->offer) : 0,
                                    .spot_usd_h = answer->offer->spot_usd_h,
                                    .on_demand_usd_h = answer->offer->on_demand_usd_h};
    return tm_expect(&search->request->job, &fleet);
}

static double value_of(const struct tm_plan_request *request, const struct tm_expectation *expectation)
{
    return request->objective == TM_PLAN_CHEAPEST ? expectation->cost_usd.mean : expectation->time_s.mean;
}

/* Srift takes its prediction at its word: on time is on time. */
static bool meets_deadline(const struct tm_plan_request *request, const struct tm_expectation *expectation)
{
    if (request->planner == TM_PLAN_SRIFT) return expectation->time_s.mean <= request->job.deadline_s;
    return expectation->p_deadline >= request->min_probability || isinf(request->job.deadline_s);
}

static void note_misses(struct search *search, const struct tm_expectation *expectation, bool on_time, bool affordable)
{
    struct tm_plan_result *out = search->out;
    if (on_time)
        out->cheapest_within_deadline_usd = fmin(out->cheapest_within_deadline_usd, expectation->cost_usd.mean);
    if (affordable) out->fastest_within_budget_s = fmin(out->fastest_within_budget_s, expectation->time_s.mean);
    out->cheapest_usd_h = fmin(out->cheapest_usd_h, expectation->usd_h);
}

/* Keeps the best fleet of each instance type, best first. */
static void keep(struct search *search, const struct tm_plan_answer *answer, const struct tm_expectation *believed)
{
    struct tm_plan_result *out = search->out;
    double value = value_of(search->request, believed);
    size_t at = 0;
    while (at < out->count && out->answers[at].instance != answer->instance)
        at++;
    if (at < out->count) {
        if (value_of(search->request, &out->answers[at].expectation) <= value) return;
        memmove(&out->answers[at], &out->answers[at + 1], (out->count - at - 1) * sizeof *out->answers);
        out->count--;
    }
    at = out->count;
    while (at > 0 && value_of(search->request, &out->answers[at - 1].expectation) > value)
        at--;
    if (at >= search->request->top) return;
    size_t moved = out->count - at;
    if (out->count == search->request->top) moved--;
    memmove(&out->answers[at + 1], &out->answers[at], moved * sizeof *out->answers);
    if (out->count < search->request->top) out->count++;
    out->answers[at] = *answer;
    out->answers[at].expectation = *believed;
}

static void consider(struct search *search, struct tm_plan_answer *answer)
{
    const struct tm_plan_request *request = search->request;
    bool losses = request->planner == TM_PLAN_TIDEMILL;
    struct tm_expectation believed = weigh(search, answer, losses);
    search->out->fleets++;
    if (!believed.finishes || !(believed.usd_h <= request->max_usd_h)) {
        if (believed.finishes) search->out->cheapest_usd_h = fmin(search->out->cheapest_usd_h, believed.usd_h);
        return;
    }
    bool on_time = meets_deadline(request, &believed);
    bool affordable = believed.cost_usd.mean <= request->budget_usd;
    note_misses(search, &believed, on_time, affordable);
    if (on_time && affordable) keep(search, answer, &believed);
}

/* ---- all fleets of one offer ---- */

static bool can_use(const struct tm_plan_request *request, const struct tm_instance *instance,
                    const struct tm_offer *offer)
{
    bool spot = !isnan(offer->spot_usd_h) && request->market != TM_PLAN_ON_DEMAND_ONLY;
    bool on_demand = !isnan(offer->on_demand_usd_h) && request->market != TM_PLAN_SPOT_ONLY;
    if (!spot && !on_demand) return false;
    return request->allowed == NULL || request->allowed(request->allowed_context, instance, offer);
}

/* All shares of on-demand instances in a fleet of `nodes`: none, all, and for a mix eighths between. */
static void consider_shares(struct search *search, struct tm_plan_answer *answer, int nodes)
{
    const struct tm_plan_request *request = search->request;
    bool spot = !isnan(answer->offer->spot_usd_h) && request->market != TM_PLAN_ON_DEMAND_ONLY;
    bool on_demand = !isnan(answer->offer->on_demand_usd_h) && request->market != TM_PLAN_SPOT_ONLY;
    bool mixed = spot && on_demand && request->planner == TM_PLAN_TIDEMILL && request->market == TM_PLAN_MIXED;
    int before = -1;
    for (int eighth = 0; eighth <= 8; eighth++) {
        int share = (nodes * eighth + 7) / 8;
        if (share == before || (share > 0 && !on_demand) || (share < nodes && !spot)) continue;
        if (share > 0 && share < nodes && !mixed) continue;
        before = share;
        answer->on_demand_nodes = share;
        answer->spot_nodes = nodes - share;
        consider(search, answer);
    }
}

/* The cheapest offers of an instance type: spot and on demand may be cheapest at different places. */
static size_t cheapest_offers(const struct search *search, const struct tm_instance *instance,
                              const struct tm_offer *out[2])
{
    const struct tm_offer *best[2] = {NULL, NULL};
    for (size_t i = 0; i < search->catalog->offer_count; i++) {
        const struct tm_offer *offer = &search->catalog->offers[i];
        if (&search->catalog->instances[offer->instance] != instance || !can_use(search->request, instance, offer))
            continue;
        if (!isnan(offer->spot_usd_h) && (best[0] == NULL || offer->spot_usd_h < best[0]->spot_usd_h)) best[0] = offer;
        if (!isnan(offer->on_demand_usd_h) && (best[1] == NULL || offer->on_demand_usd_h < best[1]->on_demand_usd_h))
            best[1] = offer;
    }
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        if (best[i] != NULL && (count == 0 || out[0] != best[i])) out[count++] = best[i];
    }
    return count;
}

static int search_instance(struct search *search, const struct tm_instance *instance, struct tm_error *e)
{
    const struct tm_plan_request *request = search->request;
    struct tm_fleet_group group;
    const struct tm_offer *offers[2];
    if (!group_of(search->catalog, instance, &group)) return 0;
    size_t offer_count = cheapest_offers(search, instance, offers);
    if (offer_count == 0) return 0;
    struct tm_predict_request predict = {.model = request->model,
                                         .groups = &group,
                                         .group_count = 1,
                                         .precision = precision_of(&group.gpu, request->precision),
                                         .batch = request->batch,
                                         .compute = request->compute,
                                         .comm = request->comm};
    double fastest = 0;
    int stale = 0; /* counts in a row that were hardly faster than fewer instances: more of them never pay */
    for (int nodes = 1; nodes <= request->max_nodes && stale < 3; nodes = next_count(nodes)) {
        struct tm_plan_answer answer = {.instance = instance};
        group.nodes = nodes;
        int rc = tm_predict(&predict, &answer.prediction, e);
        if (rc == -(int)TM_ENONE) continue;  /* does not fit on so few */
        if (rc == -(int)TM_EINPUT) return 0; /* no such precision */
        if (rc != 0) return rc;
        int used = answer.prediction.pipelines * answer.prediction.stages;
        int rented = (used + group.gpus_per_node - 1) / group.gpus_per_node; /* nobody rents what would stand idle */
        for (size_t i = 0; i < offer_count; i++) {
            answer.offer = offers[i];
            consider_shares(search, &answer, rented);
            if (search->other != NULL) consider_shares(search->other, &answer, rented);
        }
        stale = answer.prediction.samples_per_s > 1.01 * fastest ? 0 : stale + 1;
        fastest = fmax(fastest, answer.prediction.samples_per_s);
    }
    return 0;
}

static void clear(struct tm_plan_result *result)
{
    memset(result, 0, sizeof *result);
    result->cheapest_within_deadline_usd = INFINITY;
    result->fastest_within_budget_s = INFINITY;
    result->cheapest_usd_h = INFINITY;
}

/* One judge for both planners: with losses. */
static void judge(const struct search *search)
{
    for (size_t i = 0; i < search->out->count; i++)
        search->out->answers[i].expectation = weigh(search, &search->out->answers[i], true);
}

int tm_plan_search(const struct tm_catalog *catalog, const struct tm_plan_request *request, struct tm_plan_result *out,
                   struct tm_plan_result *other, struct tm_error *e)
{
    if (request->top < 1 || request->top > TM_PLAN_ANSWERS_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected from 1 to %d answers", TM_PLAN_ANSWERS_MAX);
    if (!(request->job.samples > 0)) return tm_error_set(e, TM_EUSAGE, "the job needs a number of samples above 0");
    if (!(request->job.deadline_s > 0)) return tm_error_set(e, TM_EUSAGE, "the deadline must lie ahead");
    if (request->max_nodes < 1 || request->max_nodes > TM_PLAN_NODES_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected from 1 to %d instances at most", TM_PLAN_NODES_MAX);
    struct tm_plan_request other_request = *request;
    other_request.planner = request->planner == TM_PLAN_SRIFT ? TM_PLAN_TIDEMILL : TM_PLAN_SRIFT;
    struct search second = {catalog, &other_request, other, NULL};
    struct search search = {catalog, request, out, other != NULL ? &second : NULL};
    clear(out);
    if (other != NULL) clear(other);
    for (size_t i = 0; i < catalog->instance_count; i++) {
        int rc = search_instance(&search, &catalog->instances[i], e);
        if (rc != 0) return rc;
    }
    judge(&search);
    if (other != NULL) judge(&second);
    return 0;
}
