/* A decision over 50 pools with 256 instances, forecasts included, beside the same one with all of them in one pool:
 * the median and the mean of a time in which the fleet goes up and down, so that tables are filled in again and again.
 * The target is 10 ms for both. */
#include "bench_tools.h"

#include "policy/policy.h"

#include <stdio.h>

enum { INSTANCES = 256, POOLS = 50, ROUNDS = 200, GROUPS = 10, AWAY = 40 /* instances that come and go */ };

static int speed(void *context, int pipelines, int stages, double *samples_per_s, double *step_s, struct tm_error *e)
{
    (void)context;
    (void)e;
    *samples_per_s = 10 * pow(pipelines * stages, 0.9);
    *step_s = 1;
    return 0;
}

/* How many of the fleet are gone: no two minutes are alike. */
static int away(int round)
{
    return round * 7919 % AWAY;
}

/* All are in the pools of one group; the others have some on offer. */
static void fill(struct tm_facts *facts, int pools, int round, int layout)
{
    int in_group = pools == 1 ? 1 : POOLS / GROUPS, here = INSTANCES - away(round), placed = 0;
    memset(facts, 0, sizeof *facts);
    facts->choices = true;
    facts->speed = 1;
    facts->now_s = 60.0 * round;
    facts->event = true;
    facts->standing.layout = layout;
    facts->progress.samples_left = INFINITY;
    facts->progress.efficiency = NAN;
    facts->limits.workers_max = INSTANCES;
    facts->pool_count = pools;
    for (int i = 0; i < pools; i++) {
        facts->pools[i] = (struct tm_pool){.price_usd_h = 0.9 + 0.01 * (i % 7),
                                           .offered = (i * 7 + round) % 60,
                                           .start_s = 180,
                                           .group = i % GROUPS,
                                           .speed = 1};
        if (i % GROUPS != 0) continue;
        facts->pools[i].here = i + GROUPS >= pools ? here - placed : here / in_group;
        placed += facts->pools[i].here;
    }
    int before = round > 0 ? INSTANCES - away(round - 1) : here;
    facts->before = before;
    facts->lost = before > here ? before - here : 0;
    facts->after = here;
}

struct took {
    double median_ms;
    double mean_ms;
};

/* NaN with a message where something failed. */
static struct took measure(const struct tm_layouts *layouts, struct tm_migrations *migrations,
                           const struct tm_cost *cost, int pools)
{
    struct tm_policy_options options = {.interval_s = 60, .horizon = 12, .live = true};
    struct tm_policy *policy = NULL;
    struct tm_error e = {0};
    static struct tm_facts facts;
    double took[ROUNDS], sum = 0;
    int layout = layouts->best[INSTANCES];
    int rc = tm_policy_create(tm_policy_find("tidemill"), layouts, migrations, cost, &options, &policy, &e);
    for (int round = 0; rc == 0 && round < ROUNDS; round++) {
        struct tm_decision decision;
        fill(&facts, pools, round, layout);
        int came = facts.after - facts.before + facts.lost;
        double begin_s = bench_now_s();
        rc = tm_policy_observe(policy, facts.after, came, facts.lost, &e);
        tm_policy_observe_pools(policy, facts.now_s, facts.pools, facts.pool_count);
        if (rc == 0) rc = tm_policy_decide(policy, &facts, &decision, &e);
        if (rc == 0) layout = decision.layout;
        took[round] = (bench_now_s() - begin_s) * 1000;
        sum += took[round];
    }
    tm_policy_destroy(policy);
    if (rc != 0) fprintf(stderr, "bench_pools: %s\n", e.text);
    return rc == 0 ? (struct took){bench_median(took, ROUNDS), sum / ROUNDS} : (struct took){NAN, NAN};
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
    struct took one = measure(&layouts, migrations, &cost, 1), many = measure(&layouts, migrations, &cost, POOLS);
    bool met = many.median_ms < 10 && many.mean_ms < 10;
    printf("a decision with %d instances: %.3f ms over %d pools (mean %.3f ms), %.3f ms with one; ratio %.1f; target "
           "10 ms: %s\n",
           INSTANCES, many.median_ms, POOLS, many.mean_ms, one.median_ms, many.median_ms / one.median_ms,
           met ? "met" : "missed");
    tm_migrations_destroy(migrations);
    tm_layouts_deinit(&layouts);
    tm_model_deinit(&model);
    return met ? 0 : 1;
}
