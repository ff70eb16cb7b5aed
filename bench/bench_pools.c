/* A decision over 50 pools with 256 instances, beside the same one with all of them in one pool. The target is 10 ms.
 */
#include "bench_tools.h"

#include "policy/policy.h"

#include <stdio.h>

enum { INSTANCES = 256, POOLS = 50, ROUNDS = 200, GROUPS = 10 };

static int speed(void *context, int pipelines, int stages, double *samples_per_s, double *step_s, struct tm_error *e)
{
    (void)context;
    (void)e;
    *samples_per_s = 10 * pow(pipelines * stages, 0.9);
    *step_s = 1;
    return 0;
}

static void fill(struct tm_facts *facts, int pools, int round)
{
    memset(facts, 0, sizeof *facts);
    facts->choices = true;
    facts->speed = 1;
    facts->now_s = 60.0 * round;
    facts->before = facts->after = INSTANCES / (pools == 1 ? 1 : GROUPS);
    facts->progress.samples_left = INFINITY;
    facts->progress.efficiency = NAN;
    facts->limits.workers_max = INSTANCES;
    facts->pool_count = pools;
    for (int i = 0; i < pools; i++)
        facts->pools[i] =
            (struct tm_pool){.price_usd_h = 0.9 + 0.01 * (i % 7),
                             .here = i % GROUPS == 0 ? facts->after / (pools == 1 ? 1 : POOLS / GROUPS) : 0,
                             .offered = (i * 7 + round) % 60,
                             .start_s = 180,
                             .group = i % GROUPS,
                             .speed = 1};
    facts->after = 0;
    for (int i = 0; i < pools; i++)
        facts->after += facts->pools[i].group == 0 ? facts->pools[i].here : 0;
    facts->before = facts->after;
}

/* The median of a decision, in ms; NaN with a message where something failed. */
static double measure(const struct tm_layouts *layouts, struct tm_migrations *migrations, const struct tm_cost *cost,
                      int pools)
{
    struct tm_policy_options options = {.interval_s = 60, .horizon = 12, .live = true};
    struct tm_policy *policy = NULL;
    struct tm_error e = {0};
    static struct tm_facts facts;
    double took[ROUNDS];
    int rc = tm_policy_create(tm_policy_find("tidemill"), layouts, migrations, cost, &options, &policy, &e);
    for (int round = 0; rc == 0 && round < ROUNDS; round++) {
        struct tm_decision decision;
        fill(&facts, pools, round);
        double begin_s = bench_now_s();
        tm_policy_observe_pools(policy, facts.now_s, facts.pools, facts.pool_count);
        rc = tm_policy_decide(policy, &facts, &decision, &e);
        took[round] = (bench_now_s() - begin_s) * 1000;
    }
    tm_policy_destroy(policy);
    if (rc != 0) fprintf(stderr, "bench_pools: %s\n", e.text);
    return rc == 0 ? bench_median(took, ROUNDS) : NAN;
}

int main(void)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    struct tm_model model;
    struct tm_layouts layouts;
    struct tm_migrations *migrations = NULL;
    static struct tm_cost cost;
    tm_model_init(&model);
    int rc = tm_model_load(env, "resnet152", &model, &e);
    if (rc == 0) rc = tm_cost_load(env, "local", "resnet152", &cost, &e);
    struct tm_layout_rules rules = {.stages_min = 1, .stages_max = 4, .pipelines_min = 1};
    if (rc == 0) rc = tm_layouts_init(&layouts, &model, &rules, INSTANCES, speed, NULL, &e);
    if (rc == 0) rc = tm_migrations_create(&layouts, &cost, &migrations, &e);
    if (rc != 0) {
        fprintf(stderr, "bench_pools: %s\n", e.text);
        return 1;
    }
    double one_ms = measure(&layouts, migrations, &cost, 1), many_ms = measure(&layouts, migrations, &cost, POOLS);
    printf("a decision with %d instances: %.3f ms over %d pools, %.3f ms with one; ratio %.1f; target 10 ms: %s\n",
           INSTANCES, many_ms, POOLS, one_ms, many_ms / one_ms, many_ms < 10 ? "met" : "missed");
    tm_migrations_destroy(migrations);
    tm_layouts_deinit(&layouts);
    tm_model_deinit(&model);
    return many_ms < 10 ? 0 : 1;
}
