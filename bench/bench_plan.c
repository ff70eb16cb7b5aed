/* How fast the published planner is here: DeepVM's own problem at $3 an hour against plain enumeration of the same
 * (four nested loops over types and counts, as its released code does it), both in this run and in C; and one
 * prediction of a step.
 *
 * Use: bench_plan DATA.tmdeepvm */
#include "base/alloc.h"
#include "base/env.h"
#include "plan/deepvm.h"
#include "plan/search.h"
#include "workload/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 20000, PLAIN_ROUNDS = 50, PREDICTIONS = 20000 };

static double seconds_since(int64_t start_ns)
{
    return (double)(tm_env_real()->monotonic_ns(tm_env_real()) - start_ns) / 1e9;
}

/* Every (v, w, n, m), with K(n) anew for each, as in the original. */
static double enumerate(const struct tm_deepvm_data *data, double pw)
{
    double best = 0;
    for (size_t v = 0; v < data->instance_count; v++) {
        const struct tm_deepvm_instance *gpu = &data->instances[v];
        if (isnan(gpu->flops)) continue;
        for (size_t w = 0; w < data->instance_count; w++) {
            const struct tm_deepvm_instance *remote = &data->instances[w];
            if (!isnan(remote->flops)) continue;
            for (int n = 1; n < 32; n++) {
                for (int m = 1; m < 64; m++) {
                    if (gpu->spot_usd_h * n + remote->on_demand_usd_h * m > pw || n >= 20 * m) continue;
                    double z = gpu->flops / gpu->spot_usd_h * 3600 * tm_deepvm_scaling(gpu, n) * n;
                    best = fmax(best, z);
                }
            }
        }
    }
    return best;
}

static void bench_deepvm(const struct tm_deepvm_data *data)
{
    struct tm_deepvm_request request = {.max_usd_h = 3, .buffer = 0.5, .checkpoint_size = 2, .top = 3};
    struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX];
    size_t count = 0;
    double sum = 0;
    int64_t start = tm_env_real()->monotonic_ns(tm_env_real());
    for (int i = 0; i < ROUNDS; i++) {
        (void)tm_deepvm_plan(data, &request, answers, &count, NULL);
        sum += answers[0].z;
    }
    double ours = seconds_since(start) / ROUNDS;
    start = tm_env_real()->monotonic_ns(tm_env_real());
    for (int i = 0; i < PLAIN_ROUNDS; i++)
        sum += enumerate(data, 3);
    double plain = seconds_since(start) / PLAIN_ROUNDS;
    /* 21.5 ms is the CPU time of the released Python on a 2.8 GHz Xeon: another machine, so only its size counts. */
    printf("deepvm at $3/h: %.2f us a plan, %.0f times faster than plain enumeration in C, %.0f times the released "
           "Python's 21.5 ms (checksum %.3g)\n",
           ours * 1e6, plain / ours, 21.5e-3 / ours, sum);
}

static void bench_predict(void)
{
    struct tm_model model;
    struct tm_prediction prediction;
    struct tm_compute_model compute = tm_compute_prior();
    struct tm_comm_model comm = tm_comm_gpus();
    struct tm_fleet_group group = {
        .instance = "p3.2xlarge",
        .gpu = {.name = "V100", .flops = {15.7e12, NAN, 125e12, NAN, NAN}, .memory_bytes_s = 900e9, .memory_gib = 16},
        .instances = 16,
        .gpus_per_node = 1,
        .network_bit_s = 10e9};
    tm_model_init(&model);
    if (tm_model_load(tm_env_real(), "gpt2-124m", &model, NULL) != 0) return;
    struct tm_predict_request request = {.model = &model,
                                         .groups = &group,
                                         .group_count = 1,
                                         .precision = TM_FP16,
                                         .batch = 128,
                                         .micro_batch = 4,
                                         .pipelines = 4,
                                         .stages = 4,
                                         .compute = &compute,
                                         .comm = &comm};
    double sum = 0;
    int64_t start = tm_env_real()->monotonic_ns(tm_env_real());
    for (int i = 0; i < PREDICTIONS; i++) {
        request.batch = 128 + 4 * (i % 64);
        (void)tm_predict(&request, &prediction, NULL);
        sum += prediction.step_s.mean;
    }
    double took = seconds_since(start) / PREDICTIONS;
    printf("predict gpt2-124m as 4x4: %.2f us a prediction, %.1f s for a million (checksum %.3g)\n", took * 1e6,
           took * 1e6, sum);
    tm_model_deinit(&model);
}

/* How long the types would take without keeping what their counts share: the baseline. */
static double plain_seconds(const struct tm_supply *supply, const struct tm_supply_request *request)
{
    int64_t start = tm_env_real()->monotonic_ns(tm_env_real());
    double sum = 0;
    for (size_t t = 0; t < supply->type_count; t++) {
        const struct tm_plan_type *type = &supply->types[t];
        for (size_t i = 0; i < type->rate_count; i++) {
            struct tm_fleet_group group;
            struct tm_prediction prediction;
            struct tm_predict_request predict =
                tm_supply_predict_request(request, &type, &type->rates[i].instances, 1, &group);
            if (tm_predict(&predict, &prediction, NULL) == 0) sum += prediction.samples_per_s;
        }
    }
    return seconds_since(start) + 0 * sum;
}

/* Our planner over a whole catalogue, on one core: the shipped one, and with the user's imports (TIDEMILL_DATA_DIR). */
static void bench_search(bool imported)
{
    struct tm_catalog catalog;
    struct tm_model model;
    struct tm_compute_model compute = tm_compute_prior();
    struct tm_comm_model comm = tm_comm_gpus();
    struct tm_plan_result *result = tm_alloc(sizeof *result);
    tm_catalog_init(&catalog);
    tm_model_init(&model);
    if (result == NULL ||
        (imported ? tm_catalog_load(tm_env_real(), &catalog, NULL) : tm_catalog_load_shipped(&catalog, NULL)) != 0 ||
        tm_model_load(tm_env_real(), "gpt2-1.5b", &model, NULL) != 0)
        return;
    struct tm_plan_request request = {.supply = {.model = &model,
                                                 .compute = &compute,
                                                 .comm = &comm,
                                                 .precision = TM_PRECISION_MIXED,
                                                 .batch = 256,
                                                 .loss_per_s = NAN,
                                                 .default_loss_per_s = 1 / 86400.0},
                                      .job = {.samples = 5e6,
                                              .deadline_s = 86400,
                                              .checkpoint_s = 19,
                                              .restart_s = 60,
                                              .rejoin_s = 60,
                                              .replace_s = 180,
                                              .startup_s = 180,
                                              .burst_share = 0.5,
                                              .burst_size = 0.25,
                                              .outage_s = 900},
                                      .state_bytes = 18.7e9,
                                      .budget_usd = INFINITY,
                                      .max_usd_h = INFINITY,
                                      .max_instances = 64,
                                      .min_probability = 0.95,
                                      .top = 8,
                                      .programs_max = 60};
    int64_t start = tm_env_real()->monotonic_ns(tm_env_real());
    struct tm_supply supply;
    tm_supply_init(&supply);
    (void)tm_plan_make_supply(&catalog, &request, &supply, NULL);
    double supply_s = seconds_since(start);
    (void)tm_plan_solve(&supply, &request, result, NULL);
    double took = seconds_since(start);
    printf(
        "plan gpt2-1.5b over %zu offers of %zu types: %.2f s (throughputs %.2f s, %.1f times faster than one by one), "
        "%zu fleets weighed, %zu integer programs, best $%.2f, gap %.2f%%\n",
        catalog.offer_count, supply.type_count, took, supply_s, plain_seconds(&supply, &request.supply) / supply_s,
        result->fleets, result->programs, result->count > 0 ? result->answers[0].expectation.cost_usd.mean : NAN,
        100 * result->gap);
    tm_supply_deinit(&supply);
    tm_model_deinit(&model);
    tm_catalog_deinit(&catalog);
    tm_free(result);
}

int main(int argc, char **argv)
{
    struct tm_deepvm_data *data = tm_alloc(sizeof *data);
    struct tm_error e = {0};
    if (data == NULL || argc != 2) return 2;
    tm_deepvm_data_init(data);
    if (tm_deepvm_data_load(tm_env_real(), argv[1], data, &e) != 0) {
        (void)fprintf(stderr, "bench_plan: %s\n", e.text);
        return 2;
    }
    bench_deepvm(data);
    bench_predict();
    bench_search(false);
    if (getenv("TIDEMILL_DATA_DIR") != NULL) bench_search(true);
    tm_deepvm_data_deinit(data);
    tm_free(data);
    return 0;
}
